// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tmpfs: trees of wtfs with nothing beneath, and limits on what they hold (tmpfs(5), mm/shmem.c).
 *
 * Without an MMU Linux offers ramfs by that name, whose files cannot be mapped and have no bounds. This takes its place.
 * Pages count as used that the host has for a file, whichever way they were written, and those that fallocate() asked
 * for. A mapping is not held up at the limit: what it writes beyond is seen by the next write or statfs().
 */
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/init.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/statfs.h>
#include <linux/string.h>

#include "wtfs.h"

#define TMPFS_MODE 01777

enum tmpfs_option { Opt_size, Opt_nr_blocks, Opt_nr_inodes, Opt_mode, Opt_uid, Opt_gid, Opt_ignored };

/* What only says how Linux is to lay out its pages, or numbers inodes, is taken without effect. */
static const struct fs_parameter_spec tmpfs_parameters[] = {
	fsparam_string("size", Opt_size),
	fsparam_string("nr_blocks", Opt_nr_blocks),
	fsparam_string("nr_inodes", Opt_nr_inodes),
	fsparam_u32oct("mode", Opt_mode),
	fsparam_uid("uid", Opt_uid),
	fsparam_gid("gid", Opt_gid),
	fsparam_string("huge", Opt_ignored),
	fsparam_flag("inode32", Opt_ignored),
	fsparam_flag("inode64", Opt_ignored),
	fsparam_flag("noswap", Opt_ignored),
	{},
};

/**
 * struct tmpfs_options - what a mount asks for
 * @limits: with those of a mount without options where @given does not say so
 * @given: bit for each enum tmpfs_option
 */
struct tmpfs_options {
	struct wtfs_limits limits;
	unsigned int given;
};

static struct wtfs_limits *limits_of(const struct super_block *sb)
{
	return sb->s_fs_info;
}

/* ------------------------------------------------------------------ counts */

/**
 * wtfs_take_inode - count one more inode, or name of one
 * @sb: its file system
 *
 * Return: 0, or -ENOSPC where there may be no more.
 */
int wtfs_take_inode(struct super_block *sb)
{
	struct wtfs_limits *limits = limits_of(sb);

	if (!limits)
		return 0;
	if (limits->max_inodes && limits->inodes >= limits->max_inodes)
		return -ENOSPC;
	limits->inodes++;
	return 0;
}

void wtfs_give_inode(struct super_block *sb)
{
	struct wtfs_limits *limits = limits_of(sb);

	if (limits)
		limits->inodes--;
}

/**
 * wtfs_count - bring the count of a regular file's pages up to date
 * @inode: the file
 */
void wtfs_count(struct inode *inode)
{
	struct wtfs_limits *limits = limits_of(inode->i_sb);
	struct wtfs_inode *wi = wtfs_i(inode);
	u64 pages;

	if (!limits || !S_ISREG(inode->i_mode))
		return;
	pages = DIV_ROUND_UP_ULL(wtfs_storage(inode), PAGE_SIZE);
	limits->blocks += pages - wi->counted;
	wi->counted = pages;
}

/* The file is gone. */
void wtfs_uncount(struct inode *inode)
{
	struct wtfs_limits *limits = limits_of(inode->i_sb);

	if (!limits)
		return;
	limits->blocks -= wtfs_i(inode)->counted;
	wtfs_i(inode)->counted = 0;
	limits->inodes--;
}

/* First offset from `at` on where contents are (SEEK_DATA) or are not (SEEK_HOLE); `end` if none is before. */
static u64 seek(const struct wtfs_inode *wi, u64 at, u64 end, int whence)
{
	s64 found = wi->handle ? wt_call(fs_seek, wi->handle, at, whence) : -ENXIO;

	return found < 0 ? end : min((u64)found, end);
}

/**
 * wtfs_room - how much of a write there is room for
 * @inode: the file
 * @pos: where it begins, bytes
 * @len: bytes
 *
 * Return: bytes that fit, or -ENOSPC if none does.
 */
s64 wtfs_room(struct inode *inode, u64 pos, u64 len)
{
	struct wtfs_limits *limits = limits_of(inode->i_sb);
	struct wtfs_inode *wi = wtfs_i(inode);
	u64 at = round_down(pos, PAGE_SIZE), end = pos + len, hole_end, pages, room;

	if (!limits || !limits->max_blocks || !len)
		return len;
	wtfs_count(inode);
	room = limits->max_blocks - min(limits->blocks, limits->max_blocks);
	while (at < end) {
		hole_end = seek(wi, at, end, SEEK_DATA);
		/* What fallocate() asked for is counted already. */
		at = max(at, min(wi->reserved, hole_end));
		if (hole_end > at) {
			pages = DIV_ROUND_UP_ULL(hole_end, PAGE_SIZE) - at / PAGE_SIZE;
			if (pages > room) {
				end = max(pos, round_down(at, PAGE_SIZE) + room * PAGE_SIZE);
				return end > pos ? end - pos : -ENOSPC;
			}
			room -= pages;
		}
		/* The page in which a file ends is there in whole. */
		at = hole_end < end ? round_up(seek(wi, hole_end, end, SEEK_HOLE), PAGE_SIZE) : end;
	}
	return len;
}

/**
 * wtfs_statfs_limits - size and free space of a file system that has limits
 * @sb: the file system
 * @stat: the answer so far
 */
void wtfs_statfs_limits(struct super_block *sb, struct kstatfs *stat)
{
	struct wtfs_limits *limits = limits_of(sb);
	struct inode *inode;

	if (!limits)
		return;
	/* Mappings have written since. One CPU, and nothing sleeps: the list stays as it is. */
	list_for_each_entry (inode, &sb->s_inodes, i_sb_list)
		wtfs_count(inode);
	stat->f_blocks = limits->max_blocks;
	stat->f_bfree = stat->f_bavail = limits->max_blocks - min(limits->blocks, limits->max_blocks);
	stat->f_files = limits->max_inodes;
	stat->f_ffree = limits->max_inodes - min(limits->inodes, limits->max_inodes);
}

int wtfs_show_limits(struct seq_file *seq, struct dentry *root)
{
	const struct wtfs_limits *limits = limits_of(root->d_sb);

	if (!limits)
		return 0;
	if (limits->max_blocks != wtfs_blocks)
		seq_printf(seq, ",size=%lluk", limits->max_blocks << (PAGE_SHIFT - 10));
	if (limits->max_inodes != WTFS_FILES)
		seq_printf(seq, ",nr_inodes=%llu", limits->max_inodes);
	if (limits->mode != TMPFS_MODE)
		seq_printf(seq, ",mode=%03ho", limits->mode);
	if (!uid_eq(limits->uid, GLOBAL_ROOT_UID))
		seq_printf(seq, ",uid=%u", from_kuid_munged(&init_user_ns, limits->uid));
	if (!gid_eq(limits->gid, GLOBAL_ROOT_GID))
		seq_printf(seq, ",gid=%u", from_kgid_munged(&init_user_ns, limits->gid));
	return 0;
}

/* ------------------------------------------------------------------- mounts */

static int parse_size(const char *text, u64 *blocks)
{
	char *rest;
	u64 size = memparse(text, &rest);

	if (*rest == '%') {
		size = div_u64((size << PAGE_SHIFT) * totalram_pages(), 100);
		rest++;
	}
	*blocks = DIV_ROUND_UP_ULL(size, PAGE_SIZE);
	return *rest ? -EINVAL : 0;
}

static int parse_count(const char *text, u64 *count)
{
	char *rest;

	*count = memparse(text, &rest);
	return *rest || *count > LONG_MAX ? -EINVAL : 0;
}

static int tmpfs_parse(struct fs_context *fc, struct fs_parameter *param)
{
	struct tmpfs_options *options = fc->fs_private;
	struct wtfs_limits *limits = &options->limits;
	struct fs_parse_result result;
	int opt = fs_parse(fc, tmpfs_parameters, param, &result), err = 0;

	if (opt < 0)
		return opt;
	switch (opt) {
	case Opt_size:
		err = parse_size(param->string, &limits->max_blocks);
		break;
	case Opt_nr_blocks:
		err = parse_count(param->string, &limits->max_blocks);
		opt = Opt_size;
		break;
	case Opt_nr_inodes:
		err = parse_count(param->string, &limits->max_inodes);
		break;
	case Opt_mode:
		limits->mode = result.uint_32 & 07777;
		break;
	case Opt_uid:
		limits->uid = result.uid;
		err = kuid_has_mapping(fc->user_ns, result.uid) ? 0 : -EINVAL;
		break;
	case Opt_gid:
		limits->gid = result.gid;
		err = kgid_has_mapping(fc->user_ns, result.gid) ? 0 : -EINVAL;
		break;
	}
	if (err)
		return invalfc(fc, "Bad value for '%s'", param->key);
	options->given |= 1U << opt;
	return 0;
}

static int tmpfs_fill_super(struct super_block *sb, struct fs_context *fc)
{
	const struct tmpfs_options *options = fc->fs_private;
	struct wtfs_limits *limits = kmemdup(&options->limits, sizeof(*limits), GFP_KERNEL);
	struct inode *root;

	if (!limits)
		return -ENOMEM;
	sb->s_fs_info = limits; /* wtfs_kill_sb() frees it */
	root = wtfs_fill(sb, limits->mode);
	if (IS_ERR(root))
		return PTR_ERR(root);
	sb->s_magic = TMPFS_MAGIC;
	root->i_uid = limits->uid;
	root->i_gid = limits->gid;
	sb->s_root = d_make_root(root);
	return sb->s_root ? 0 : -ENOMEM;
}

static int tmpfs_get_tree(struct fs_context *fc)
{
	return get_tree_nodev(fc, tmpfs_fill_super);
}

/* Another limit, if what is there fits; shmem_reconfigure() changes nothing else either. */
static int tmpfs_reconfigure(struct fs_context *fc)
{
	const struct tmpfs_options *options = fc->fs_private;
	struct wtfs_limits *limits = limits_of(fc->root->d_sb);
	u64 blocks = options->limits.max_blocks, inodes = options->limits.max_inodes;
	bool size = options->given & (1U << Opt_size), count = options->given & (1U << Opt_nr_inodes);

	if (size && blocks && !limits->max_blocks)
		return invalfc(fc, "Cannot retroactively limit size");
	if (size && blocks && limits->blocks > blocks)
		return invalfc(fc, "Too small a size for current use");
	if (count && inodes && !limits->max_inodes)
		return invalfc(fc, "Cannot retroactively limit inodes");
	if (count && inodes && limits->inodes > inodes)
		return invalfc(fc, "Too few inodes for current use");
	if (size)
		limits->max_blocks = blocks;
	if (count)
		limits->max_inodes = inodes;
	return 0;
}

static void tmpfs_free_context(struct fs_context *fc)
{
	kfree(fc->fs_private);
}

static const struct fs_context_operations tmpfs_context_ops = {
	.free = tmpfs_free_context,
	.parse_param = tmpfs_parse,
	.get_tree = tmpfs_get_tree,
	.reconfigure = tmpfs_reconfigure,
};

/* Without a size: as the node's other files, since it is the host's memory here that sets the limit. */
static int tmpfs_init_fs_context(struct fs_context *fc)
{
	struct tmpfs_options *options = kzalloc(sizeof(*options), GFP_KERNEL);

	if (!options)
		return -ENOMEM;
	options->limits = (struct wtfs_limits){
		.max_blocks = wtfs_blocks,
		.max_inodes = WTFS_FILES,
		.mode = TMPFS_MODE,
		.uid = current_fsuid(),
		.gid = current_fsgid(),
	};
	fc->fs_private = options;
	fc->ops = &tmpfs_context_ops;
	return 0;
}

static struct file_system_type tmpfs_type = {
	.name = "tmpfs",
	.init_fs_context = tmpfs_init_fs_context,
	.parameters = tmpfs_parameters,
	.kill_sb = wtfs_kill_sb,
	.fs_flags = FS_USERNS_MOUNT,
};

/* In the place of Linux's; what mounted that one inside the kernel keeps it. */
int __init wtfs_tmpfs_init(void)
{
	struct file_system_type *generic = get_fs_type("tmpfs");
	int err;

	if (generic) {
		err = unregister_filesystem(generic);
		put_filesystem(generic);
		if (err)
			return err;
	}
	return register_filesystem(&tmpfs_type);
}
