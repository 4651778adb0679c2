// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A program's memory as others see it: /proc/PID/{cmdline,environ,mem,maps,status,stat,statm}.
 *
 * Generic code without an MMU looks for VMAs, but mappings are the host's. Each __wrap_ function here takes the place of
 * the generic one of that name at link time (ld --wrap, see the Makefile), and asks the host.
 *
 * Which pages are in memory is the host's affair and not the same in every run: all that a program can access counts as
 * resident, as mincore(2) says, too.
 */
#include <linux/fs.h>
#include <linux/kdev_t.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/percpu_counter.h>
#include <linux/ptrace.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <asm/host.h>

#include "../../../fs/proc/internal.h"

int __wrap_access_remote_vm(struct mm_struct *mm, unsigned long addr, void *buf, int len, unsigned int gup_flags);
int __wrap_access_process_vm(struct task_struct *task, unsigned long addr, void *buf, int len, unsigned int gup_flags);
void __wrap_task_mem(struct seq_file *m, struct mm_struct *mm);
unsigned long __wrap_task_vsize(struct mm_struct *mm);
unsigned long __wrap_task_statm(struct mm_struct *mm, unsigned long *shared, unsigned long *text, unsigned long *data,
				unsigned long *resident);

/* ------------------------------------------------------------------ contents */

int __wrap_access_remote_vm(struct mm_struct *mm, unsigned long addr, void *buf, int len, unsigned int gup_flags)
{
	s64 done;

	if (!mm->context.as)
		return 0;
	if (gup_flags & FOLL_WRITE)
		done = wt_call(as_write, mm->context.as, addr, (u64)buf, len);
	else
		done = wt_call(as_read, mm->context.as, addr, (u64)buf, len);
	return done < 0 ? 0 : done;
}

int __wrap_access_process_vm(struct task_struct *task, unsigned long addr, void *buf, int len, unsigned int gup_flags)
{
	struct mm_struct *mm = get_task_mm(task);
	int done;

	if (!mm)
		return 0;
	done = __wrap_access_remote_vm(mm, addr, buf, len, gup_flags);
	mmput(mm);
	return done;
}

/* ---------------------------------------------------------------- names */

/**
 * wt_name_file - tell the host what to show of mappings of a file
 * @file: the file, about to be mapped
 * @handle: the host's name for its contents
 */
void wt_name_file(struct file *file, u64 handle)
{
	struct inode *inode = file_inode(file);
	struct wt_file_name name = {
		.ino = inode->i_ino,
		.dev_major = MAJOR(inode->i_sb->s_dev),
		.dev_minor = MINOR(inode->i_sb->s_dev),
	};
	char *buf = __getname(), *path;

	if (!buf)
		return; /* it shows without a name, or an older one */
	path = d_path(&file->f_path, buf, PATH_MAX);
	if (!IS_ERR(path)) {
		name.path = path;
		name.path_len = strlen(path);
		wt_call(fs_name, handle, (u64)&name);
	}
	__putname(buf);
}

/* --------------------------------------------------------------------- sizes */

/**
 * struct usage - how much a program has mapped, bytes
 * @total: all of it
 * @anon: accessible, private memory or written parts of files
 * @file: accessible, other private mappings of files
 * @shared: accessible, shared mappings
 * @data: private, writable, but for the stack
 * @stack: the stack
 * @code: executable and not writable
 */
struct usage {
	unsigned long total, anon, file, shared, data, stack, code;
};

static void add_map(struct usage *u, const struct wt_map *map)
{
	unsigned long size = map->end - map->start;
	bool shared = map->flags & WT_MAP_SHARED, write = map->prot & PROT_WRITE;

	u->total += size;
	if (map->flags & WT_MAP_STACK)
		u->stack += size;
	else if (write && !shared)
		u->data += size;
	else if (map->prot & PROT_EXEC)
		u->code += size;
	if (!map->prot)
		return;
	if (shared)
		u->shared += size;
	else if (map->flags & WT_MAP_FILE && !write)
		u->file += size;
	else
		u->anon += size;
}

/* Counts, and puts the results where generic code looks for them. */
static void count_usage(struct mm_struct *mm, struct usage *u)
{
	struct wt_map *map = kmalloc(sizeof(*map), GFP_KERNEL);
	u64 at = 0;

	memset(u, 0, sizeof(*u));
	if (!map)
		return;
	while (mm->context.as && wt_call(as_map, mm->context.as, at, (u64)map) == 1) {
		add_map(u, map);
		at = map->end;
	}
	kfree(map);
	percpu_counter_set(&mm->rss_stat[MM_ANONPAGES], u->anon >> PAGE_SHIFT);
	percpu_counter_set(&mm->rss_stat[MM_FILEPAGES], u->file >> PAGE_SHIFT);
	percpu_counter_set(&mm->rss_stat[MM_SHMEMPAGES], u->shared >> PAGE_SHIFT);
	mm->total_vm = u->total >> PAGE_SHIFT;
	mm->hiwater_vm = max(mm->hiwater_vm, mm->total_vm);
	mm->hiwater_rss = max(mm->hiwater_rss, get_mm_rss(mm));
}

/* The counters of an mm that goes must be 0. */
void wt_forget_usage(struct mm_struct *mm)
{
	percpu_counter_set(&mm->rss_stat[MM_ANONPAGES], 0);
	percpu_counter_set(&mm->rss_stat[MM_FILEPAGES], 0);
	percpu_counter_set(&mm->rss_stat[MM_SHMEMPAGES], 0);
}

static unsigned long code_bytes(const struct mm_struct *mm)
{
	return PAGE_ALIGN(mm->end_code) - (mm->start_code & PAGE_MASK);
}

/* Part of /proc/PID/status. */
void __wrap_task_mem(struct seq_file *m, struct mm_struct *mm)
{
	unsigned long exe = code_bytes(mm), lib;
	struct usage u;

	count_usage(mm, &u);
	exe = min(exe, u.code);
	lib = u.code - exe;
	seq_printf(m,
		   "VmPeak:\t%8lu kB\nVmSize:\t%8lu kB\nVmLck:\t%8lu kB\nVmPin:\t%8lu kB\nVmHWM:\t%8lu kB\n"
		   "VmRSS:\t%8lu kB\nRssAnon:\t%8lu kB\nRssFile:\t%8lu kB\nRssShmem:\t%8lu kB\n",
		   mm->hiwater_vm << (PAGE_SHIFT - 10), u.total >> 10, 0UL, 0UL, mm->hiwater_rss << (PAGE_SHIFT - 10),
		   (u.anon + u.file + u.shared) >> 10, u.anon >> 10, u.file >> 10, u.shared >> 10);
	seq_printf(m,
		   "VmData:\t%8lu kB\nVmStk:\t%8lu kB\nVmExe:\t%8lu kB\nVmLib:\t%8lu kB\nVmPTE:\t%8lu kB\n"
		   "VmSwap:\t%8lu kB\n",
		   u.data >> 10, u.stack >> 10, exe >> 10, lib >> 10, 0UL, 0UL);
}

/* For /proc/PID/stat, which takes the resident size from the counters next. */
unsigned long __wrap_task_vsize(struct mm_struct *mm)
{
	struct usage u;

	count_usage(mm, &u);
	return u.total;
}

/* For /proc/PID/statm, in pages. */
unsigned long __wrap_task_statm(struct mm_struct *mm, unsigned long *shared, unsigned long *text, unsigned long *data,
				unsigned long *resident)
{
	struct usage u;

	count_usage(mm, &u);
	*shared = (u.file + u.shared) >> PAGE_SHIFT;
	*text = code_bytes(mm) >> PAGE_SHIFT;
	*data = (u.data + u.stack) >> PAGE_SHIFT;
	*resident = *shared + (u.anon >> PAGE_SHIFT);
	return u.total >> PAGE_SHIFT;
}

/* ---------------------------------------------------------------- /proc/PID/maps */

/* Position in the file: the address to go on at; MAPS_END after the last mapping. */
#define MAPS_END ((loff_t)-1)

struct maps_reader {
	struct mm_struct *mm;
	struct wt_map map;
};

static void *maps_at(struct maps_reader *r, loff_t *pos)
{
	if (*pos == MAPS_END || !r->mm || !atomic_read(&r->mm->mm_users) || !r->mm->context.as ||
	    wt_call(as_map, r->mm->context.as, *pos, (u64)&r->map) != 1) {
		*pos = MAPS_END;
		return NULL;
	}
	*pos = r->map.start;
	return &r->map;
}

static void *maps_start(struct seq_file *m, loff_t *pos)
{
	return maps_at(m->private, pos);
}

static void *maps_next(struct seq_file *m, void *v, loff_t *pos)
{
	struct maps_reader *r = m->private;

	*pos = r->map.end;
	return maps_at(r, pos);
}

static void maps_stop(struct seq_file *m, void *v) {}

/* The column of names starts where it does on every 64-bit Linux (fs/proc/task_mmu.c). */
static int maps_show(struct seq_file *m, void *v)
{
	const struct wt_map *map = v;

	seq_setwidth(m, 25 + sizeof(void *) * 6 - 1);
	seq_printf(m, "%08llx-%08llx %c%c%c%c %08llx %02x:%02x %llu ", map->start, map->end,
		   map->prot & PROT_READ ? 'r' : '-', map->prot & PROT_WRITE ? 'w' : '-',
		   map->prot & PROT_EXEC ? 'x' : '-', map->flags & WT_MAP_SHARED ? 's' : 'p', map->offset,
		   map->dev_major, map->dev_minor, map->ino);
	if (map->path_len) {
		unsigned int i;

		seq_pad(m, ' ');
		for (i = 0; i < map->path_len; i++) {
			if (map->path[i] == '\n')
				seq_puts(m, "\\012");
			else
				seq_putc(m, map->path[i]);
		}
	} else if (map->flags & WT_MAP_HEAP) {
		seq_pad(m, ' ');
		seq_puts(m, "[heap]");
	} else if (map->flags & WT_MAP_STACK) {
		seq_pad(m, ' ');
		seq_puts(m, "[stack]");
	}
	seq_putc(m, '\n');
	return 0;
}

static const struct seq_operations maps_ops = {
	.start = maps_start,
	.next = maps_next,
	.stop = maps_stop,
	.show = maps_show,
};

static int maps_open(struct inode *inode, struct file *file)
{
	struct maps_reader *r = __seq_open_private(file, &maps_ops, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->mm = proc_mem_open(inode, PTRACE_MODE_READ);
	if (IS_ERR(r->mm)) {
		int err = PTR_ERR(r->mm);

		seq_release_private(inode, file);
		return err;
	}
	return 0;
}

static int maps_release(struct inode *inode, struct file *file)
{
	struct seq_file *m = file->private_data;
	struct maps_reader *r = m->private;

	if (r->mm)
		mmdrop(r->mm);
	return seq_release_private(inode, file);
}

extern const struct file_operations __wrap_proc_pid_maps_operations;
const struct file_operations __wrap_proc_pid_maps_operations = {
	.open = maps_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = maps_release,
};
