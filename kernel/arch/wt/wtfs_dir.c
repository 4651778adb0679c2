// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Directories of wtfs: the merge of lower and upper names, each sorted by bytes.
 */
#include <linux/slab.h>

#include "wtfs.h"

/**
 * struct wtfs_cursor - place of an open directory in the merge of its lower and upper names
 * @upper: upper names as they were when reading began, struct wtfs_name
 * @next_upper: first of them not yet passed
 * @lower_index: index of the first lower entry not yet passed
 * @lower_ready: @entry is lower entry @lower_index
 * @lower_end: there is none at @lower_index
 * @pos: file position of this place: 2 + lower entries passed + upper ones passed
 * @entry: the lower entry looked at
 */
struct wtfs_cursor {
	struct rb_root upper;
	struct rb_node *next_upper;
	u64 lower_index;
	bool lower_ready;
	bool lower_end;
	loff_t pos;
	struct wt_fs_dirent entry;
};

/* ------------------------------------------------------------ sorted names */

static int wtfs_name_order(const char *a, u32 a_len, const char *b, u32 b_len)
{
	int order = memcmp(a, b, min(a_len, b_len));

	return order ? order : (int)a_len - (int)b_len;
}

bool wtfs_name_find(const struct rb_root *names, const char *name, u32 len)
{
	struct rb_node *at = names->rb_node;

	while (at) {
		struct wtfs_name *other = rb_entry(at, struct wtfs_name, node);
		int order = wtfs_name_order(name, len, other->name, other->len);

		if (!order)
			return true;
		at = order < 0 ? at->rb_left : at->rb_right;
	}
	return false;
}

/* Returns the new name, the old one if it is there, or NULL without memory. */
struct wtfs_name *wtfs_name_add(struct rb_root *names, const char *name, u32 len)
{
	struct rb_node **link = &names->rb_node, *parent = NULL;
	struct wtfs_name *new;

	while (*link) {
		struct wtfs_name *other = rb_entry(*link, struct wtfs_name, node);
		int order = wtfs_name_order(name, len, other->name, other->len);

		if (!order)
			return other;
		parent = *link;
		link = order < 0 ? &parent->rb_left : &parent->rb_right;
	}
	new = kzalloc(struct_size(new, name, len), GFP_KERNEL_ACCOUNT);
	if (!new)
		return NULL;
	new->len = len;
	memcpy(new->name, name, len);
	rb_link_node(&new->node, parent, link);
	rb_insert_color(&new->node, names);
	return new;
}

void wtfs_names_free(struct rb_root *names)
{
	struct wtfs_name *name, *next;

	rbtree_postorder_for_each_entry_safe(name, next, names, node) kfree(name);
	*names = RB_ROOT;
}

/* --------------------------------------------------------------- directories */

/* 0: a directory without entries; -ENOTEMPTY; or the host's error. */
int wtfs_check_empty(struct dentry *dentry)
{
	struct wtfs_inode *wi = wtfs_i(d_inode(dentry));
	struct wt_fs_dirent entry;
	u64 index = 0;
	s64 found;

	if (!simple_empty(dentry))
		return -ENOTEMPTY;
	while (wi->lower) {
		found = wt_call(fs_readdir, wi->lower, index++, &entry);
		if (found <= 0)
			return found;
		if (!wtfs_name_find(&wi->hidden, entry.name, entry.name_len))
			return -ENOTEMPTY;
	}
	return 0;
}

/* The first pinned entry of dir after last (NULL: of all), with a reference; drops that of last. */
static struct dentry *wtfs_next_pinned(struct dentry *dir, struct dentry *last)
{
	struct dentry *next;

	spin_lock(&dir->d_lock);
	next = last ? d_next_sibling(last) : d_first_child(dir);
	while (next && !(next->d_fsdata && d_really_is_positive(next)))
		next = d_next_sibling(next);
	if (next)
		dget(next);
	spin_unlock(&dir->d_lock);
	dput(last);
	return next;
}

/* The caller holds the directory's i_rwsem, so that no entry appears, goes or moves. */
static int wtfs_snapshot(struct dentry *dir, struct rb_root *names)
{
	struct dentry *child = NULL;

	while ((child = wtfs_next_pinned(dir, child))) {
		struct inode *inode = d_inode(child);
		struct wtfs_name *name = wtfs_name_add(names, child->d_name.name, child->d_name.len);

		if (!name) {
			dput(child);
			return -ENOMEM;
		}
		name->ino = inode->i_ino;
		name->type = fs_umode_to_dtype(inode->i_mode);
	}
	return 0;
}

static void wtfs_cursor_rewind(struct wtfs_cursor *cursor)
{
	cursor->next_upper = rb_first(&cursor->upper);
	cursor->lower_index = 0;
	cursor->lower_ready = false;
	cursor->lower_end = false;
	cursor->pos = 2;
}

/* The cursor of an open directory, or an ERR_PTR; a fresh one if it has none or at the directory's start. */
static struct wtfs_cursor *wtfs_cursor(struct file *file, loff_t pos)
{
	struct wtfs_cursor *cursor = file->private_data;
	int err;

	if (cursor && pos)
		return cursor;
	if (!cursor) {
		cursor = kzalloc(sizeof(*cursor), GFP_KERNEL_ACCOUNT);
		if (!cursor)
			return ERR_PTR(-ENOMEM);
		file->private_data = cursor;
	}
	wtfs_names_free(&cursor->upper);
	err = wtfs_snapshot(file->f_path.dentry, &cursor->upper);
	wtfs_cursor_rewind(cursor);
	return err ? ERR_PTR(err) : cursor;
}

/* Reads the lower entry at the cursor, if it is not there yet. */
static int wtfs_cursor_load(struct wtfs_cursor *cursor, const struct wtfs_inode *wi)
{
	s64 found;

	if (cursor->lower_ready || cursor->lower_end)
		return 0;
	found = wi->lower ? wt_call(fs_readdir, wi->lower, cursor->lower_index, &cursor->entry) : 0;
	if (found < 0)
		return found;
	cursor->lower_ready = found;
	cursor->lower_end = !found;
	return 0;
}

/*
 * Emits the entry at the cursor if the reader has not got it, and goes on to the next. A name that is both upper and
 * lower is one entry, the upper one, and takes two positions.
 * Return: 1 more, 0 end or no more room, or a negative errno.
 */
static int wtfs_cursor_step(struct wtfs_cursor *cursor, const struct wtfs_inode *wi, struct dir_context *ctx)
{
	const struct wtfs_name *upper = rb_entry_safe(cursor->next_upper, struct wtfs_name, node);
	const struct wt_fs_dirent *lower = &cursor->entry;
	int order, err = wtfs_cursor_load(cursor, wi);
	bool room = true;

	if (err)
		return err;
	if (!upper && cursor->lower_end)
		return 0;
	if (!upper || cursor->lower_end)
		order = upper ? -1 : 1;
	else
		order = wtfs_name_order(upper->name, upper->len, lower->name, lower->name_len);

	if (cursor->pos >= ctx->pos) {
		ctx->pos = cursor->pos;
		if (order <= 0)
			room = dir_emit(ctx, upper->name, upper->len, upper->ino, upper->type);
		else if (!wtfs_name_find(&wi->hidden, lower->name, lower->name_len))
			room = dir_emit(ctx, lower->name, lower->name_len, lower->ino, fs_umode_to_dtype(lower->mode));
		if (!room)
			return 0;
	}
	if (order <= 0) {
		cursor->next_upper = rb_next(cursor->next_upper);
		cursor->pos++;
	}
	if (order >= 0) {
		cursor->lower_index++;
		cursor->lower_ready = false;
		cursor->pos++;
	}
	ctx->pos = max(ctx->pos, cursor->pos);
	return 1;
}

static int wtfs_iterate(struct file *file, struct dir_context *ctx)
{
	const struct wtfs_inode *wi = wtfs_i(file_inode(file));
	struct wtfs_cursor *cursor = wtfs_cursor(file, ctx->pos);
	int more;

	if (IS_ERR(cursor))
		return PTR_ERR(cursor);
	if (!dir_emit_dots(file, ctx))
		return 0;
	if (ctx->pos < cursor->pos)
		wtfs_cursor_rewind(cursor);
	do {
		more = wtfs_cursor_step(cursor, wi, ctx);
	} while (more > 0);
	return more;
}

static int wtfs_dir_release(struct inode *inode, struct file *file)
{
	struct wtfs_cursor *cursor = file->private_data;

	if (cursor) {
		wtfs_names_free(&cursor->upper);
		kfree(cursor);
	}
	return 0;
}

const struct file_operations wtfs_dir_fops = {
	.release = wtfs_dir_release,
	.llseek = generic_file_llseek,
	.read = generic_read_dir,
	.iterate_shared = wtfs_iterate,
	.fsync = noop_fsync,
};
