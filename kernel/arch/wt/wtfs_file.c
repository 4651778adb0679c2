// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Regular files of wtfs: contents behind host handles.
 */
#include <linux/fs.h>
#include <linux/falloc.h>
#include <linux/file.h>
#include <linux/init.h>
#include <linux/iov_iter.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>
#include <linux/splice.h>
#include <linux/uio.h>

#include "../../fs/internal.h"
#include "wtfs.h"

static struct vfsmount *wtfs_handle_mount;

/* ---------------------------------------------------------------- contents */

/**
 * wtfs_content - handle for reading a regular file
 * @wi: the file
 *
 * Return: a handle, or a negative errno.
 */
static s64 wtfs_content(struct wtfs_inode *wi)
{
	s64 handle;

	if (likely(wi->handle))
		return wi->handle;
	if (wi->lower)
		handle = wt_call(fs_open, wi->lower);
	else
		handle = wt_call(fs_create, 0, 0);
	if (handle < 0)
		return handle;
	wi->handle = handle;
	wi->owned = !wi->lower;
	return handle;
}

/**
 * wtfs_own - handle for writing a regular file; copies a lower file first
 * @inode: the file
 * @dentry: a name of it
 * @keep: bytes of the old contents that stay, at least when they are not the node's own yet
 *
 * Return: a handle, or a negative errno.
 */
static s64 wtfs_own(struct inode *inode, struct dentry *dentry, u64 keep)
{
	struct wtfs_inode *wi = wtfs_i(inode);
	s64 from = 0, to;

	if (likely(wi->owned))
		return wi->handle;
	if (keep && wi->lower) {
		from = wtfs_content(wi);
		if (from < 0)
			return from;
	}
	to = wt_call(fs_create, from, keep);
	if (to < 0)
		return to;
	if (wi->handle)
		wt_call(fs_release, wi->handle);
	wi->handle = to;
	wi->owned = true;
	wi->lower = 0;
	wtfs_pin(dentry);
	return to;
}

/* Sets the size of a regular file, whose inode the caller has locked. */
int wtfs_resize(struct inode *inode, struct dentry *dentry, u64 size)
{
	u64 old_size = i_size_read(inode);
	s64 handle, err;

	if (size == old_size)
		return 0;
	err = wtfs_seal_resize(inode, size);
	if (err)
		return err;
	handle = wtfs_own(inode, dentry, min(size, old_size));
	if (handle < 0)
		return handle;
	err = wt_call(fs_truncate, handle, size);
	if (err < 0)
		return err;
	i_size_write(inode, size);
	if (size < old_size)
		wtfs_i(inode)->reserved = min(wtfs_i(inode)->reserved, size);
	wtfs_count(inode);
	inode_set_mtime_to_ts(inode, inode_set_ctime_current(inode));
	return 0;
}

/**
 * wtfs_storage - bytes that a regular file takes, for stat(2)
 * @inode: the file
 *
 * Of a lower file all that it has: where the host keeps it is the host's business, and differs from host to host.
 */
u64 wtfs_storage(const struct inode *inode)
{
	const struct wtfs_inode *wi = wtfs_i(inode);
	s64 bytes;

	if (!wi->owned || !wi->handle)
		return wi->lower ? i_size_read(inode) : wi->reserved;
	bytes = wt_call(fs_storage, wi->handle);
	return max(bytes < 0 ? 0 : (u64)bytes, wi->reserved);
}

/**
 * struct wtfs_io - one transfer between a file and an iov_iter
 * @handle: host handle of the contents
 * @pos: where the transfer began, bytes
 * @error: of the host, or 0
 */
struct wtfs_io {
	u64 handle;
	u64 pos;
	s64 error;
};

/*
 * Steps of iterate_and_advance(): each returns the bytes it did not move. The host touches the memory with a system
 * call of its own, so that a program's bad pointer is an EFAULT. That another's memory is bad it cannot know.
 */
static size_t wtfs_read_step(void *to, size_t done, size_t len, void *arg, void *unused)
{
	struct wtfs_io *io = arg;
	s64 moved = wt_call(fs_read, io->handle, to, len, io->pos + done);

	if (moved < 0) {
		io->error = moved;
		return len;
	}
	return len - moved;
}

static size_t wtfs_read_user_step(void __user *to, size_t done, size_t len, void *arg, void *unused)
{
	size_t left = len;

	if (wt_within_reach(to))
		left = wtfs_read_step((__force void *)to, done, len, arg, unused);
	wt_copied += len - left;
	return left;
}

static size_t wtfs_write_step(void *from, size_t done, size_t len, void *arg, void *unused)
{
	struct wtfs_io *io = arg;
	s64 moved = wt_call(fs_write, io->handle, from, len, io->pos + done);

	if (moved < 0) {
		io->error = moved;
		return len;
	}
	return len - moved;
}

static size_t wtfs_write_user_step(void __user *from, size_t done, size_t len, void *arg, void *unused)
{
	size_t left = len;

	if (wt_within_reach(from))
		left = wtfs_write_step((__force void *)from, done, len, arg, unused);
	wt_copied += len - left;
	return left;
}

static ssize_t wtfs_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct wtfs_io io = {.pos = iocb->ki_pos};
	loff_t size = i_size_read(inode);
	s64 handle;
	size_t len;

	if (iocb->ki_pos >= size || !iov_iter_count(to))
		return 0;
	handle = wtfs_content(wtfs_i(inode));
	if (handle < 0)
		return handle;
	io.handle = handle;
	len = min_t(u64, iov_iter_count(to), size - iocb->ki_pos);
	len = iterate_and_advance(to, len, &io, wtfs_read_user_step, wtfs_read_step);
	file_accessed(iocb->ki_filp);
	iocb->ki_pos += len;
	return len ?: io.error ?: -EFAULT;
}

static ssize_t wtfs_write_locked(struct kiocb *iocb, struct iov_iter *from)
{
	struct file *file = iocb->ki_filp;
	struct inode *inode = file_inode(file);
	struct wtfs_io io = {};
	ssize_t len;
	s64 handle;
	int err;

	len = generic_write_checks(iocb, from);
	if (len <= 0)
		return len;
	len = wtfs_seal_write(inode, iocb->ki_pos, len);
	if (len >= 0)
		len = wtfs_room(inode, iocb->ki_pos, len);
	if (len < 0)
		return len;
	iov_iter_truncate(from, len);
	handle = wtfs_own(inode, file->f_path.dentry, i_size_read(inode));
	if (handle < 0)
		return handle;
	err = file_remove_privs(file);
	if (!err)
		err = file_update_time(file);
	if (err)
		return err;
	io.handle = handle;
	io.pos = iocb->ki_pos;
	len = iterate_and_advance(from, len, &io, wtfs_write_user_step, wtfs_write_step);
	wtfs_count(inode);
	iocb->ki_pos += len;
	if (iocb->ki_pos > i_size_read(inode))
		i_size_write(inode, iocb->ki_pos);
	return len ?: io.error ?: -EFAULT;
}

static ssize_t wtfs_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	ssize_t result;

	inode_lock(inode);
	result = wtfs_write_locked(iocb, from);
	inode_unlock(inode);
	return result;
}

/* Whether seals, limits and the like permit it. */
static int wtfs_may_fallocate(struct inode *inode, int mode, u64 start, u64 len)
{
	u64 end = start + len;
	s64 err = 0;

	if (!(mode & FALLOC_FL_KEEP_SIZE))
		err = inode_newsize_ok(inode, end) ?: wtfs_seal_resize(inode, max_t(u64, end, i_size_read(inode)));
	if (!err && mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		err = wtfs_seal_write(inode, start, 0);
	if (!err && !(mode & FALLOC_FL_PUNCH_HOLE)) {
		err = wtfs_room(inode, start, len);
		err = err == len ? 0 : -ENOSPC;
	}
	return err;
}

static long wtfs_fallocate(struct file *file, int mode, loff_t start, loff_t len)
{
	struct inode *inode = file_inode(file);
	struct dentry *dentry = file->f_path.dentry;
	u64 end = start + len;
	s64 handle;
	int err;

	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		return -EOPNOTSUPP;
	inode_lock(inode);
	err = wtfs_may_fallocate(inode, mode, start, len) ?: file_modified(file);
	if (!err && mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) {
		handle = wtfs_own(inode, dentry, i_size_read(inode));
		err = handle < 0 ? handle : wt_call(fs_punch, handle, start, len);
	}
	if (!err && !(mode & FALLOC_FL_KEEP_SIZE) && end > i_size_read(inode))
		err = wtfs_resize(inode, dentry, end);
	if (!err && !(mode & FALLOC_FL_PUNCH_HOLE))
		wtfs_i(inode)->reserved = max(wtfs_i(inode)->reserved, end);
	wtfs_count(inode);
	inode_unlock(inode);
	return err;
}

static loff_t wtfs_llseek(struct file *file, loff_t offset, int whence)
{
	struct inode *inode = file_inode(file);
	loff_t size = i_size_read(inode);
	s64 handle, found;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return generic_file_llseek(file, offset, whence);
	if (offset < 0 || offset >= size)
		return -ENXIO;
	inode_lock(inode);
	handle = wtfs_content(wtfs_i(inode));
	if (handle < 0)
		found = handle;
	else if (!wtfs_i(inode)->owned)
		found = whence == SEEK_DATA ? offset : size; /* as for wtfs_storage() */
	else
		found = wt_call(fs_seek, handle, offset, whence);
	if (found >= 0)
		found = vfs_setpos(file, found, inode->i_sb->s_maxbytes);
	inode_unlock(inode);
	return found;
}

static const struct vm_operations_struct wtfs_vm_ops;

/*
 * Mappings are the host's business and made from wtfs_handle(). Only ipc/shm.c calls this, for each of its own, and
 * wants operations to put its own before.
 */
static int wtfs_mmap(struct file *file, struct vm_area_struct *vma)
{
	vma->vm_ops = &wtfs_vm_ops;
	return 0;
}

static int wtfs_open(struct inode *inode, struct file *file)
{
	wtfs_i(inode)->users++;
	/* All transfers are direct. */
	file->f_mode |= FMODE_CAN_ODIRECT;
	return generic_file_open(inode, file);
}

static int wtfs_release(struct inode *inode, struct file *file)
{
	struct wtfs_inode *wi = wtfs_i(inode);

	if (!--wi->users && wi->handle && !wi->owned) {
		wt_call(fs_release, wi->handle);
		wi->handle = 0;
	}
	return 0;
}

/**
 * wtfs_handle - what the host calls the contents of a file
 * @file: an open file
 *
 * The handle of a file opened for writing is that of the node's own copy. It is good as long as @file is open and the
 * contents are not copied.
 *
 * Return: a host handle, or 0: not a regular file of wtfs, or the host has no room.
 */
u64 wtfs_handle(struct file *file)
{
	struct inode *inode = file_inode(file);
	s64 handle;

	if (inode->i_sb->s_op != &wtfs_super_ops || !S_ISREG(inode->i_mode))
		return 0;
	if (file->f_mode & FMODE_WRITE)
		handle = wtfs_own(inode, file->f_path.dentry, i_size_read(inode));
	else
		handle = wtfs_content(wtfs_i(inode));
	return handle < 0 ? 0 : handle;
}

const struct file_operations wtfs_file_fops = {
	.open = wtfs_open,
	.release = wtfs_release,
	.llseek = wtfs_llseek,
	.read_iter = wtfs_read_iter,
	.write_iter = wtfs_write_iter,
	.splice_read = copy_splice_read,
	.splice_write = iter_file_splice_write,
	.fallocate = wtfs_fallocate,
	.fsync = noop_fsync,
	.mmap = wtfs_mmap,
};

/* ------------------------------------------------------ files of the host's */

static char *wtfs_handle_dname(struct dentry *dentry, char *buffer, int buflen)
{
	if (!d_inode(dentry)->i_nlink)
		return simple_dname(dentry, buffer, buflen);
	return dynamic_dname(buffer, buflen, "%.60s", dentry->d_name.name);
}

static const struct dentry_operations wtfs_handle_dops = {
	.d_dname = wtfs_handle_dname,
};

static int wtfs_handle_init_fs_context(struct fs_context *fc)
{
	struct pseudo_fs_context *ctx = init_pseudo(fc, WTFS_MAGIC);

	if (!ctx)
		return -ENOMEM;
	ctx->ops = &wtfs_super_ops;
	ctx->xattr = wtfs_xattrs;
	ctx->dops = &wtfs_handle_dops;
	return 0;
}

static struct file_system_type wtfs_handle_type = {
	.name = "wtfs-handle",
	.init_fs_context = wtfs_handle_init_fs_context,
	.kill_sb = kill_anon_super,
};

/**
 * wtfs_open_handle - a file of no directory, whose contents the host gave
 * @handle: host handle of the contents, writable if @flags say so; the file owns it, and gives it back at its end or
 *	when this fails
 * @flags: O_* to open it with
 * @name: what /proc/PID/fd shows, up to 60 bytes if the file counts as linked
 *
 * Return: the file, or an ERR_PTR.
 */
struct file *wtfs_open_handle(u64 handle, int flags, const char *name)
{
	s64 size = wt_call(fs_size, handle);
	struct inode *inode;
	struct file *file;

	/* Everyone may: which user opens /dev/stdout again is not known here. */
	inode = size < 0 ? ERR_PTR(size) : wtfs_new(wtfs_handle_mount->mnt_sb, NULL, S_IFREG | 0666, 0);
	if (IS_ERR(inode)) {
		wt_call(fs_release, handle);
		return ERR_CAST(inode);
	}
	wtfs_i(inode)->handle = handle;
	wtfs_i(inode)->owned = true;
	i_size_write(inode, size);
	file = alloc_file_pseudo(inode, wtfs_handle_mount, name, flags, &wtfs_file_fops);
	if (IS_ERR(file)) {
		iput(inode);
		return file;
	}
	wtfs_i(inode)->users++;
	file->f_mode |= FMODE_PREAD | FMODE_PWRITE | FMODE_CAN_ODIRECT | FMODE_ATOMIC_POS;
	return file;
}

int __init wtfs_handles_init(void)
{
	wtfs_handle_mount = kern_mount(&wtfs_handle_type);
	return PTR_ERR_OR_ZERO(wtfs_handle_mount);
}
