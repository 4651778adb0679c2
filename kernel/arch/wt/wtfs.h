/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _WT_WTFS_H
#define _WT_WTFS_H
/* What the parts of wtfs share: wtfs.c tree and superblock, wtfs_dir.c directories, wtfs_file.c contents,
 * wtfs_memfd.c files of no directory, wtfs_tmpfs.c trees without a lower one. */
#include <linux/fs.h>
#include <linux/rbtree.h>
#include <linux/xattr.h>

#include <asm/host.h>

#define WTFS_MAGIC 0x77746673UL
/* Pages that a node's files may take unless its `disk` says otherwise: 16 GiB. */
#define WTFS_BLOCKS (4ULL << 20)

/**
 * struct wtfs_limits - what a tmpfs may hold, and holds: its super_block's s_fs_info
 * @max_blocks: pages of contents; 0: any number
 * @max_inodes: inodes, a further name counting as one; 0: any number
 * @blocks: pages there are
 * @inodes: inodes there are
 * @mode: permission bits of its root, as mounted
 * @uid: owner of its root
 * @gid: its group
 */
struct wtfs_limits {
	u64 max_blocks, max_inodes;
	u64 blocks, inodes;
	umode_t mode;
	kuid_t uid;
	kgid_t gid;
};

/**
 * struct wtfs_inode - a file of the node
 * @vfs: the generic part
 * @lower: host id of the node beneath: of a directory for good, of a regular file until it is copied; 0: none
 * @handle: host handle of a regular file's contents; 0: not open
 * @users: open files on it
 * @owned: @handle is the node's own, writable, and lives as long as the inode
 * @reserved: bytes that fallocate() asked for room for: they count as used, like those written
 * @memory: made by wtfs_memory_file()
 * @seals: F_SEAL_* of a memory file, 0 of others
 * @hidden: of a directory: lower names that were removed, struct wtfs_name by name
 * @xattrs: extended attributes
 */
struct wtfs_inode {
	struct inode vfs;
	u64 lower;
	u64 handle;
	u32 users;
	bool owned;
	u64 reserved;
	u64 counted;
	bool memory;
	u32 seals;
	struct rb_root hidden;
	struct simple_xattrs xattrs;
};

/**
 * struct wtfs_name - a name in a tree sorted by bytes
 * @node: place in the tree
 * @ino: inode number, in a directory snapshot
 * @type: DT_*, in a directory snapshot
 * @len: bytes of @name
 * @name: the name, not terminated
 */
struct wtfs_name {
	struct rb_node node;
	u64 ino;
	u8 type;
	u8 len;
	char name[];
};

static inline struct wtfs_inode *wtfs_i(const struct inode *inode)
{
	return container_of(inode, struct wtfs_inode, vfs);
}

/* wtfs.c */
extern u64 wtfs_blocks;
/* Files that fit: one for 16 KiB, as mke2fs makes room for. */
#define WTFS_FILES (wtfs_blocks / 4)
extern const struct super_operations wtfs_super_ops;
extern const struct xattr_handler *const wtfs_xattrs[];
struct inode *wtfs_new(struct super_block *sb, const struct inode *dir, umode_t mode, dev_t rdev);
void wtfs_pin(struct dentry *dentry);
struct inode *wtfs_fill(struct super_block *sb, umode_t mode);
void wtfs_kill_sb(struct super_block *sb);

/* wtfs_dir.c */
extern const struct file_operations wtfs_dir_fops;
bool wtfs_name_find(const struct rb_root *names, const char *name, u32 len);
struct wtfs_name *wtfs_name_add(struct rb_root *names, const char *name, u32 len);
void wtfs_names_free(struct rb_root *names);
int wtfs_check_empty(struct dentry *dentry);

/* wtfs_file.c */
extern const struct file_operations wtfs_file_fops;
int wtfs_resize(struct inode *inode, struct dentry *dentry, u64 size);
u64 wtfs_storage(const struct inode *inode);
int wtfs_handles_init(void);

/* wtfs_tmpfs.c */
int wtfs_take_inode(struct super_block *sb);
void wtfs_give_inode(struct super_block *sb);
void wtfs_count(struct inode *inode);
void wtfs_uncount(struct inode *inode);
s64 wtfs_room(struct inode *inode, u64 pos, u64 len);
void wtfs_statfs_limits(struct super_block *sb, struct kstatfs *stat);
int wtfs_show_limits(struct seq_file *seq, struct dentry *root);
int wtfs_tmpfs_init(void);

/* wtfs_memfd.c */
int wtfs_seal_resize(const struct inode *inode, u64 size);
s64 wtfs_seal_write(const struct inode *inode, u64 pos, u64 len);
#endif
