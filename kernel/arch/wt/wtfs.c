// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * wtfs - the files of a node.
 *
 * A tree of names and attributes in memory, over a read-only lower tree that the host describes; the bytes of every
 * regular file live at the host, behind a handle.
 *
 *  - A lower node is looked up when its name is first used and may be forgotten again: the dentry cache is the only
 *    cache, and its shrinker may take all that is as the host gave it.
 *  - What the node made or changed is upper: its dentry holds one reference on itself (it is "pinned"), and so does
 *    every directory above it. Nothing else says that an entry exists.
 *  - A lower name that was removed or moved away is remembered in its directory, for ever: a lower name shows if it is
 *    neither hidden so nor covered by a pinned dentry.
 *  - Contents are read from the lower file until the first change, then from a copy of the node's own. There is no page
 *    cache, so reads and writes are one call to the host per segment, straight from and to the program's memory. The
 *    copy is not seen by mappings made before it.
 *
 * Lower hard links are separate files here, with equal inode numbers. Extended attributes of lower files do not show.
 *
 * Locking: one CPU, no preemption, and no host operation sleeps, so a function without a sleeping allocation is atomic.
 * The tree itself is under the usual i_rwsem of its directories.
 */
#include <linux/types.h>
#include <linux/fs_context.h>
#include <linux/init.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/statfs.h>

#include "wtfs.h"

#define WTFS_LOWER_ROOT 1ULL
/* Inode numbers of the node's own files start here, above all that the host gives. */
#define WTFS_FIRST_OWN_INO (1UL << 40)
/* Mark in dentry->d_fsdata: holds a reference on itself. */
#define WTFS_PINNED ((void *)1UL)

/* Size and free space by statfs, in pages. The host counts what files take and refuses what is more. */
u64 wtfs_blocks __ro_after_init = WTFS_BLOCKS;

static struct kmem_cache *wtfs_inode_cache;
static unsigned long wtfs_last_ino = WTFS_FIRST_OWN_INO;

static const struct inode_operations wtfs_dir_iops;
static const struct inode_operations wtfs_file_iops;
static const struct inode_operations wtfs_symlink_iops;
static const struct inode_operations wtfs_special_iops;

/* ----------------------------------------------------------------- pinning */

/**
 * wtfs_pin - keep a changed entry from being forgotten
 * @dentry: the entry
 *
 * Pins the directories above it too, so that after all unpinned dentries are gone every one that is left has exactly one
 * reference of its own (see wtfs_kill_sb). An entry without a name (unlinked, O_TMPFILE, a handle's) lives as long as it
 * is open, and no longer.
 */
void wtfs_pin(struct dentry *dentry)
{
	while (!IS_ROOT(dentry) && !d_unhashed(dentry) && !dentry->d_fsdata) {
		dentry->d_fsdata = WTFS_PINNED;
		dget(dentry);
		dentry = dentry->d_parent;
	}
}

static void wtfs_unpin(struct dentry *dentry)
{
	if (dentry->d_fsdata) {
		dentry->d_fsdata = NULL;
		dput(dentry);
	}
}

/* Before a name goes: if there is a lower entry of that name, see that it does not show again. */
static int wtfs_hide_lower(struct inode *dir, struct dentry *dentry)
{
	struct wtfs_inode *wi = wtfs_i(dir);
	const struct qstr *name = &dentry->d_name;
	struct wt_fs_attr attr;
	s64 err;

	if (!wi->lower || wtfs_name_find(&wi->hidden, name->name, name->len))
		return 0;
	err = wt_call(fs_lookup, wi->lower, name->name, name->len, &attr);
	if (err == -ENOENT)
		return 0;
	if (err < 0)
		return err;
	if (!wtfs_name_add(&wi->hidden, name->name, name->len))
		return -ENOMEM;
	wtfs_pin(dentry->d_parent);
	return 0;
}

/* ------------------------------------------------------------------ inodes */

static void wtfs_set_ops(struct inode *inode, dev_t rdev)
{
	switch (inode->i_mode & S_IFMT) {
	case S_IFREG:
		inode->i_op = &wtfs_file_iops;
		inode->i_fop = &wtfs_file_fops;
		break;
	case S_IFDIR:
		inode->i_op = &wtfs_dir_iops;
		inode->i_fop = &wtfs_dir_fops;
		break;
	case S_IFLNK:
		inode->i_op = &wtfs_symlink_iops;
		break;
	default:
		inode->i_op = &wtfs_special_iops;
		init_special_inode(inode, inode->i_mode, rdev);
	}
}

/* A new inode of the node's own, or an ERR_PTR. */
struct inode *wtfs_new(struct super_block *sb, const struct inode *dir, umode_t mode, dev_t rdev)
{
	int err = wtfs_take_inode(sb);
	struct inode *inode;

	if (err)
		return ERR_PTR(err);
	inode = new_inode(sb);
	if (!inode) {
		wtfs_give_inode(sb);
		return ERR_PTR(-ENOMEM);
	}
	inode->i_ino = wtfs_last_ino++;
	inode_init_owner(&nop_mnt_idmap, inode, dir, mode);
	simple_inode_init_ts(inode);
	if (S_ISDIR(mode))
		inc_nlink(inode);
	wtfs_set_ops(inode, rdev);
	return inode;
}

/* Target of a symbolic link: kept with the inode, so that following it costs no call. */
static int wtfs_lower_symlink(struct inode *inode, u64 lower)
{
	char *buf = __getname();
	s64 len;

	if (!buf)
		return -ENOMEM;
	len = wt_call(fs_readlink, lower, buf, PATH_MAX - 1);
	if (len >= 0) {
		inode->i_link = kmemdup_nul(buf, len, GFP_KERNEL_ACCOUNT);
		inode->i_size = len;
		if (!inode->i_link)
			len = -ENOMEM;
	}
	__putname(buf);
	return len < 0 ? len : 0;
}

/* An inode for a lower node, or an ERR_PTR. */
static struct inode *wtfs_lower_inode(struct super_block *sb, const struct wt_fs_attr *attr)
{
	struct timespec64 mtime = ns_to_timespec64(attr->mtime_ns);
	struct inode *inode = new_inode(sb);
	int err;

	if (!inode)
		return ERR_PTR(-ENOMEM);
	inode->i_ino = attr->ino;
	inode->i_mode = attr->mode;
	i_uid_write(inode, attr->uid);
	i_gid_write(inode, attr->gid);
	i_size_write(inode, attr->size);
	set_nlink(inode, max_t(u32, attr->nlink, S_ISDIR(attr->mode) ? 2 : 1));
	inode_set_atime_to_ts(inode, mtime);
	inode_set_mtime_to_ts(inode, mtime);
	inode_set_ctime_to_ts(inode, mtime);
	wtfs_set_ops(inode, MKDEV(attr->rdev_major, attr->rdev_minor));
	if (S_ISREG(attr->mode) || S_ISDIR(attr->mode))
		wtfs_i(inode)->lower = attr->id;
	if (S_ISLNK(attr->mode)) {
		err = wtfs_lower_symlink(inode, attr->id);
		if (err) {
			iput(inode);
			return ERR_PTR(err);
		}
	}
	return inode;
}

static int wtfs_setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attr)
{
	struct inode *inode = d_inode(dentry);
	int err = setattr_prepare(idmap, dentry, attr);

	if (!err && attr->ia_valid & ATTR_MODE && wtfs_i(inode)->seals & F_SEAL_EXEC &&
	    (inode->i_mode ^ attr->ia_mode) & 0111)
		err = -EPERM;
	if (!err && attr->ia_valid & ATTR_SIZE)
		err = wtfs_resize(inode, dentry, attr->ia_size);
	if (err)
		return err;
	setattr_copy(idmap, inode, attr);
	wtfs_pin(dentry);
	return 0;
}

static int wtfs_getattr(struct mnt_idmap *idmap, const struct path *path, struct kstat *stat, u32 mask,
			unsigned int flags)
{
	struct inode *inode = d_inode(path->dentry);

	generic_fillattr(idmap, mask, inode, stat);
	stat->blocks = DIV_ROUND_UP_ULL(wtfs_storage(inode), SECTOR_SIZE);
	return 0;
}

/* --------------------------------------------------------------- the tree */

static struct dentry *wtfs_lookup(struct inode *dir, struct dentry *dentry, unsigned int flags)
{
	struct wtfs_inode *wi = wtfs_i(dir);
	const struct qstr *name = &dentry->d_name;
	struct inode *inode = NULL;
	struct wt_fs_attr attr;
	s64 err;

	if (name->len > NAME_MAX)
		return ERR_PTR(-ENAMETOOLONG);
	if (wi->lower && !wtfs_name_find(&wi->hidden, name->name, name->len)) {
		err = wt_call(fs_lookup, wi->lower, name->name, name->len, &attr);
		if (err >= 0)
			inode = wtfs_lower_inode(dir->i_sb, &attr);
		else if (err != -ENOENT)
			return ERR_PTR(err);
		if (IS_ERR(inode))
			return ERR_CAST(inode);
	}
	d_add(dentry, inode);
	return NULL;
}

static void wtfs_touch_dir(struct inode *dir)
{
	inode_set_mtime_to_ts(dir, inode_set_ctime_current(dir));
}

/* A directory of dir went away. Some hosts count one link for every directory: never fall below two. */
static void wtfs_drop_subdir(struct inode *dir)
{
	if (dir->i_nlink > 2)
		drop_nlink(dir);
}

/* Gives a new inode its name; takes over the caller's reference on it. */
static int wtfs_add(struct inode *dir, struct dentry *dentry, struct inode *inode)
{
	if (IS_ERR(inode))
		return PTR_ERR(inode);
	d_instantiate(dentry, inode);
	wtfs_pin(dentry);
	wtfs_touch_dir(dir);
	return 0;
}

/* Takes a name from its inode; the caller has hidden the lower entry. */
static void wtfs_remove(struct inode *dir, struct dentry *dentry)
{
	struct inode *inode = d_inode(dentry);

	wtfs_touch_dir(dir);
	inode_set_ctime_current(inode);
	if (S_ISDIR(inode->i_mode)) {
		clear_nlink(inode);
		wtfs_drop_subdir(dir);
	} else {
		if (inode->i_nlink > 1)
			wtfs_give_inode(inode->i_sb);
		drop_nlink(inode);
	}
	wtfs_unpin(dentry);
}

static int wtfs_create(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode, bool excl)
{
	return wtfs_add(dir, dentry, wtfs_new(dir->i_sb, dir, mode | S_IFREG, 0));
}

static int wtfs_mknod(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode, dev_t rdev)
{
	return wtfs_add(dir, dentry, wtfs_new(dir->i_sb, dir, mode, rdev));
}

static int wtfs_mkdir(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode)
{
	int err = wtfs_add(dir, dentry, wtfs_new(dir->i_sb, dir, mode | S_IFDIR, 0));

	if (!err)
		inc_nlink(dir);
	return err;
}

static int wtfs_symlink(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, const char *target)
{
	struct inode *inode = wtfs_new(dir->i_sb, dir, S_IFLNK | 0777, 0);

	if (IS_ERR(inode))
		return PTR_ERR(inode);
	inode->i_link = kstrdup(target, GFP_KERNEL_ACCOUNT);
	if (!inode->i_link) {
		iput(inode);
		return -ENOMEM;
	}
	inode->i_size = strlen(target);
	return wtfs_add(dir, dentry, inode);
}

static int wtfs_tmpfile(struct mnt_idmap *idmap, struct inode *dir, struct file *file, umode_t mode)
{
	struct inode *inode = wtfs_new(dir->i_sb, dir, mode, 0);

	if (IS_ERR(inode))
		return PTR_ERR(inode);
	d_tmpfile(file, inode);
	return finish_open_simple(file, 0);
}

static int wtfs_link(struct dentry *old_dentry, struct inode *dir, struct dentry *dentry)
{
	struct inode *inode = d_inode(old_dentry);
	int err = inode->i_nlink ? wtfs_take_inode(dir->i_sb) : 0;

	if (err)
		return err;
	ihold(inode);
	inc_nlink(inode);
	inode_set_ctime_current(inode);
	/* From now on the inode has two names, which a second look at the host would not tell. */
	wtfs_pin(old_dentry);
	return wtfs_add(dir, dentry, inode);
}

static int wtfs_unlink(struct inode *dir, struct dentry *dentry)
{
	int err = wtfs_hide_lower(dir, dentry);

	if (!err)
		wtfs_remove(dir, dentry);
	return err;
}

static int wtfs_rmdir(struct inode *dir, struct dentry *dentry)
{
	int err = wtfs_check_empty(dentry);

	return err ? err : wtfs_unlink(dir, dentry);
}

static int wtfs_rename(struct mnt_idmap *idmap, struct inode *old_dir, struct dentry *old_dentry, struct inode *new_dir,
		       struct dentry *new_dentry, unsigned int flags)
{
	bool exchange = flags & RENAME_EXCHANGE;
	int err = 0;

	if (flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE))
		return -EINVAL;
	if (!exchange) {
		if (d_is_dir(new_dentry))
			err = wtfs_check_empty(new_dentry);
		if (!err)
			err = wtfs_hide_lower(old_dir, old_dentry);
		if (err)
			return err;
	}
	/* A directory keeps its lower id wherever it goes; what moved must not be looked up again under its old name. */
	wtfs_pin(old_dentry);
	wtfs_pin(exchange ? new_dentry : new_dentry->d_parent);
	if (!exchange && d_really_is_positive(new_dentry))
		wtfs_remove(new_dir, new_dentry);
	if (old_dir != new_dir) {
		if (d_is_dir(old_dentry)) {
			wtfs_drop_subdir(old_dir);
			inc_nlink(new_dir);
		}
		if (exchange && d_is_dir(new_dentry)) {
			wtfs_drop_subdir(new_dir);
			inc_nlink(old_dir);
		}
	}
	simple_rename_timestamp(old_dir, old_dentry, new_dir, new_dentry);
	return 0;
}

/* ------------------------------------------------------- extended attributes */

static int wtfs_xattr_get(const struct xattr_handler *handler, struct dentry *unused, struct inode *inode,
			  const char *name, void *value, size_t size)
{
	return simple_xattr_get(&wtfs_i(inode)->xattrs, xattr_full_name(handler, name), value, size);
}

static int wtfs_xattr_set(const struct xattr_handler *handler, struct mnt_idmap *idmap, struct dentry *dentry,
			  struct inode *inode, const char *name, const void *value, size_t size, int flags)
{
	struct simple_xattr *old;

	old = simple_xattr_set(&wtfs_i(inode)->xattrs, xattr_full_name(handler, name), value, size, flags);
	if (IS_ERR(old))
		return PTR_ERR(old);
	simple_xattr_free(old);
	inode_set_ctime_current(inode);
	wtfs_pin(dentry);
	return 0;
}

static ssize_t wtfs_listxattr(struct dentry *dentry, char *buffer, size_t size)
{
	struct inode *inode = d_inode(dentry);

	return simple_xattr_list(inode, &wtfs_i(inode)->xattrs, buffer, size);
}

static const struct xattr_handler wtfs_user_xattr = {
	.prefix = XATTR_USER_PREFIX,
	.get = wtfs_xattr_get,
	.set = wtfs_xattr_set,
};

static const struct xattr_handler wtfs_trusted_xattr = {
	.prefix = XATTR_TRUSTED_PREFIX,
	.get = wtfs_xattr_get,
	.set = wtfs_xattr_set,
};

static const struct xattr_handler wtfs_security_xattr = {
	.prefix = XATTR_SECURITY_PREFIX,
	.get = wtfs_xattr_get,
	.set = wtfs_xattr_set,
};

const struct xattr_handler *const wtfs_xattrs[] = {
	&wtfs_user_xattr,
	&wtfs_trusted_xattr,
	&wtfs_security_xattr,
	NULL,
};

/* --------------------------------------------------------------- operations */

static const struct inode_operations wtfs_dir_iops = {
	.lookup = wtfs_lookup,
	.create = wtfs_create,
	.mknod = wtfs_mknod,
	.mkdir = wtfs_mkdir,
	.symlink = wtfs_symlink,
	.tmpfile = wtfs_tmpfile,
	.link = wtfs_link,
	.unlink = wtfs_unlink,
	.rmdir = wtfs_rmdir,
	.rename = wtfs_rename,
	.setattr = wtfs_setattr,
	.listxattr = wtfs_listxattr,
};

static const struct inode_operations wtfs_file_iops = {
	.setattr = wtfs_setattr,
	.getattr = wtfs_getattr,
	.listxattr = wtfs_listxattr,
};

static const struct inode_operations wtfs_symlink_iops = {
	.get_link = simple_get_link,
	.setattr = wtfs_setattr,
	.listxattr = wtfs_listxattr,
};

static const struct inode_operations wtfs_special_iops = {
	.setattr = wtfs_setattr,
	.listxattr = wtfs_listxattr,
};

/* --------------------------------------------------------------- superblock */

static void wtfs_init_once(void *object)
{
	struct wtfs_inode *wi = object;

	inode_init_once(&wi->vfs);
}

static struct inode *wtfs_alloc_inode(struct super_block *sb)
{
	struct wtfs_inode *wi = alloc_inode_sb(sb, wtfs_inode_cache, GFP_KERNEL);

	if (!wi)
		return NULL;
	wi->lower = 0;
	wi->handle = 0;
	wi->users = 0;
	wi->owned = false;
	wi->reserved = 0;
	wi->counted = 0;
	wi->memory = false;
	wi->seals = 0;
	wi->hidden = RB_ROOT;
	simple_xattrs_init(&wi->xattrs);
	return &wi->vfs;
}

static void wtfs_evict_inode(struct inode *inode)
{
	struct wtfs_inode *wi = wtfs_i(inode);

	truncate_inode_pages_final(&inode->i_data);
	clear_inode(inode);
	wtfs_uncount(inode);
	if (wi->handle)
		wt_call(fs_release, wi->handle);
	wtfs_names_free(&wi->hidden);
	simple_xattrs_free(&wi->xattrs, NULL);
}

/* After a grace period: a path walk may still read the target of a symbolic link. */
static void wtfs_free_inode(struct inode *inode)
{
	if (S_ISLNK(inode->i_mode))
		kfree(inode->i_link);
	kmem_cache_free(wtfs_inode_cache, wtfs_i(inode));
}

static int wtfs_statfs(struct dentry *dentry, struct kstatfs *stat)
{
	simple_statfs(dentry, stat);
	stat->f_blocks = wtfs_blocks;
	stat->f_bfree = wtfs_blocks;
	stat->f_bavail = wtfs_blocks;
	stat->f_files = WTFS_FILES;
	stat->f_ffree = WTFS_FILES;
	wtfs_statfs_limits(dentry->d_sb, stat);
	return 0;
}

const struct super_operations wtfs_super_ops = {
	.alloc_inode = wtfs_alloc_inode,
	.free_inode = wtfs_free_inode,
	.evict_inode = wtfs_evict_inode,
	.drop_inode = generic_delete_inode,
	.statfs = wtfs_statfs,
	.show_options = wtfs_show_limits,
};

/* Sets up a superblock; its root, with these permission bits, or an ERR_PTR. */
struct inode *wtfs_fill(struct super_block *sb, umode_t mode)
{
	sb->s_magic = WTFS_MAGIC;
	sb->s_op = &wtfs_super_ops;
	sb->s_xattr = wtfs_xattrs;
	sb->s_maxbytes = MAX_LFS_FILESIZE;
	sb->s_blocksize = PAGE_SIZE;
	sb->s_blocksize_bits = PAGE_SHIFT;
	sb->s_time_gran = 1;
	sb->s_flags |= SB_NOSEC;
	return wtfs_new(sb, NULL, S_IFDIR | mode, 0);
}

static int wtfs_fill_super(struct super_block *sb, struct fs_context *fc)
{
	struct inode *root = wtfs_fill(sb, 0755);

	if (IS_ERR(root))
		return PTR_ERR(root);
	wtfs_i(root)->lower = WTFS_LOWER_ROOT;
	sb->s_root = d_make_root(root);
	return sb->s_root ? 0 : -ENOMEM;
}

static int wtfs_get_tree(struct fs_context *fc)
{
	return get_tree_nodev(fc, wtfs_fill_super);
}

static const struct fs_context_operations wtfs_context_ops = {
	.get_tree = wtfs_get_tree,
};

static int wtfs_init_fs_context(struct fs_context *fc)
{
	fc->ops = &wtfs_context_ops;
	return 0;
}

/* kill_litter_super() takes one reference from every dentry: first let those go that have none of their own. */
void wtfs_kill_sb(struct super_block *sb)
{
	struct wtfs_limits *limits = sb->s_fs_info;

	if (sb->s_root)
		shrink_dcache_sb(sb);
	kill_litter_super(sb);
	kfree(limits);
}

static struct file_system_type wtfs_type = {
	.name = "wtfs",
	.init_fs_context = wtfs_init_fs_context,
	.kill_sb = wtfs_kill_sb,
};

/* wtfs_disk=BYTES: where it is not the usual size. */
static int __init wtfs_set_disk(char *text)
{
	u64 bytes;
	int err = kstrtou64(text, 10, &bytes);

	if (!err)
		wtfs_blocks = bytes >> PAGE_SHIFT;
	return err;
}
early_param("wtfs_disk", wtfs_set_disk);

static int __init wtfs_init(void)
{
	wtfs_inode_cache = kmem_cache_create("wtfs_inode", sizeof(struct wtfs_inode), 0,
					     SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT, wtfs_init_once);
	if (!wtfs_inode_cache)
		return -ENOMEM;
	return wtfs_handles_init() ?: register_filesystem(&wtfs_type) ?: wtfs_tmpfs_init();
}
fs_initcall(wtfs_init);
