// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Files of no directory for memory that programs share: memfd_create(2) with its seals, System V segments.
 *
 * The rules of seals are those of mm/memfd.c and mm/shmem.c.
 */
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mman.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <uapi/linux/memfd.h>

#include "wtfs.h"

#define WTFS_WRITE_SEALS  (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)
#define WTFS_ALL_SEALS	  (F_SEAL_SEAL | F_SEAL_EXEC | F_SEAL_SHRINK | F_SEAL_GROW | WTFS_WRITE_SEALS)
#define WTFS_MEMFD_FLAGS  (MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC)
#define WTFS_MEMFD_PREFIX "memfd:"

/**
 * wtfs_memory_file - a file of zeros that has no name in any directory
 * @name: what /proc/PID/fd and maps show
 * @size: bytes
 * @mode: permission bits
 * @flags: O_* to open it with
 *
 * Return: the file, or an ERR_PTR.
 */
struct file *wtfs_memory_file(const char *name, u64 size, umode_t mode, int flags)
{
	s64 handle = wt_call(fs_create, 0, 0), err;
	struct file *file;
	struct inode *inode;

	if (handle < 0)
		return ERR_PTR(handle);
	err = size ? wt_call(fs_truncate, handle, size) : 0;
	if (err < 0) {
		wt_call(fs_release, handle);
		return ERR_PTR(err);
	}
	file = wtfs_open_handle(handle, flags, name);
	if (IS_ERR(file))
		return file;
	inode = file_inode(file);
	inode->i_mode = S_IFREG | mode;
	wtfs_i(inode)->memory = true;
	wtfs_i(inode)->seals = F_SEAL_SEAL;
	clear_nlink(inode);
	return file;
}

static char *wtfs_memfd_name(const char __user *uname)
{
	const size_t prefix = sizeof(WTFS_MEMFD_PREFIX) - 1, room = NAME_MAX - prefix + 1;
	char *name = kmalloc(prefix + room, GFP_KERNEL);
	long len;

	if (!name)
		return ERR_PTR(-ENOMEM);
	memcpy(name, WTFS_MEMFD_PREFIX, prefix);
	len = strncpy_from_user(name + prefix, uname, room);
	if (len >= 0 && len < room)
		return name;
	kfree(name);
	return ERR_PTR(len < 0 ? -EFAULT : -EINVAL);
}

/* memfd_create(2) */
long wtfs_memfd_create(const char __user *uname, unsigned int flags)
{
	struct wtfs_inode *wi;
	struct file *file;
	char *name;
	int fd;

	if (flags & ~WTFS_MEMFD_FLAGS || (flags & MFD_EXEC && flags & MFD_NOEXEC_SEAL))
		return -EINVAL;
	name = wtfs_memfd_name(uname);
	if (IS_ERR(name))
		return PTR_ERR(name);
	fd = get_unused_fd_flags(flags & MFD_CLOEXEC ? O_CLOEXEC : 0);
	if (fd < 0)
		goto out;
	file = wtfs_memory_file(name, 0, flags & MFD_NOEXEC_SEAL ? 0666 : 0777, O_RDWR | O_LARGEFILE);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		fd = PTR_ERR(file);
		goto out;
	}
	wi = wtfs_i(file_inode(file));
	if (flags & MFD_NOEXEC_SEAL)
		wi->seals = F_SEAL_EXEC;
	else if (flags & MFD_ALLOW_SEALING)
		wi->seals = 0;
	fd_install(fd, file);
out:
	kfree(name);
	return fd;
}

static long wtfs_add_seals(struct file *file, u32 seals)
{
	struct inode *inode = file_inode(file);
	struct wtfs_inode *wi = wtfs_i(inode);
	long err = 0;

	if (!(file->f_mode & FMODE_WRITE))
		return -EPERM;
	if (seals & ~WTFS_ALL_SEALS)
		return -EINVAL;
	inode_lock(inode);
	if (wi->seals & F_SEAL_SEAL)
		err = -EPERM;
	if (seals & F_SEAL_EXEC && inode->i_mode & 0111)
		seals |= F_SEAL_SHRINK | F_SEAL_GROW | WTFS_WRITE_SEALS;
	if (!err && seals & ~wi->seals & F_SEAL_WRITE && wt_call(fs_writers, wi->handle) > 0)
		err = -EBUSY;
	if (!err)
		wi->seals |= seals;
	inode_unlock(inode);
	return err;
}

/**
 * wtfs_fcntl_seals - fcntl(2) with F_ADD_SEALS or F_GET_SEALS
 * @file: any file
 * @cmd: which
 * @arg: seals to add
 *
 * Return: 0 or the seals, or a negative errno: -EINVAL if such a file has none.
 */
long wtfs_fcntl_seals(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct inode *inode = file_inode(file);

	if (inode->i_sb->s_op != &wtfs_super_ops || !wtfs_i(inode)->memory)
		return -EINVAL;
	return cmd == F_GET_SEALS ? wtfs_i(inode)->seals : wtfs_add_seals(file, arg);
}

/**
 * wtfs_may_map - what protection a mapping of a file may have, after do_mmap() in mm/mmap.c
 * @file: an open file
 * @prot: PROT_* asked for
 * @flags: MAP_* asked for
 *
 * Return: the PROT_* bits that it may ever have, or a negative errno if @prot is too much already.
 */
long wtfs_may_map(struct file *file, unsigned long prot, unsigned long flags)
{
	struct inode *inode = file_inode(file);
	u32 seals = inode->i_sb->s_op == &wtfs_super_ops ? wtfs_i(inode)->seals : 0;
	bool shared = (flags & MAP_TYPE) != MAP_PRIVATE;
	bool writable = file->f_mode & FMODE_WRITE;
	long may = PROT_READ | PROT_WRITE | PROT_EXEC;

	if (shared && ((prot & PROT_WRITE && !writable) || (IS_APPEND(inode) && writable)))
		return -EACCES;
	if (!(file->f_mode & FMODE_READ))
		return -EACCES;
	if (path_noexec(&file->f_path)) {
		if (prot & PROT_EXEC)
			return -EPERM;
		may &= ~PROT_EXEC;
	}
	if (shared && writable && seals & WTFS_WRITE_SEALS) {
		if (prot & PROT_WRITE)
			return -EPERM;
		writable = false;
	}
	return shared && !writable ? may & ~PROT_WRITE : may;
}

/**
 * wtfs_seal_resize - whether a file's seals let it have another size
 * @inode: the file
 * @size: new size, bytes
 */
int wtfs_seal_resize(const struct inode *inode, u64 size)
{
	u64 old = i_size_read(inode);
	u32 seals = wtfs_i(inode)->seals;

	return (size < old && seals & F_SEAL_SHRINK) || (size > old && seals & F_SEAL_GROW) ? -EPERM : 0;
}

/**
 * wtfs_seal_write - how much of a write a file's seals permit
 * @inode: the file
 * @pos: where it begins, bytes
 * @len: bytes
 *
 * Linux asks page by page, so that a write which would make the file longer may get through in part.
 *
 * Return: bytes that may be written, or -EPERM.
 */
s64 wtfs_seal_write(const struct inode *inode, u64 pos, u64 len)
{
	u64 size = i_size_read(inode), whole = round_down(size, PAGE_SIZE);
	u32 seals = wtfs_i(inode)->seals;

	if (seals & WTFS_WRITE_SEALS)
		return -EPERM;
	if (!(seals & F_SEAL_GROW) || pos + len <= size)
		return len;
	return pos < whole ? whole - pos : -EPERM;
}
