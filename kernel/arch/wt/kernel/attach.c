// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Mappings that their files count.
 *
 * ipc/shm.c and net/packet/af_packet.c count who maps a segment or a ring by the open and close operations of mappings.
 * The host has the mappings, so those that are counted are listed here, as struct vm_area_struct outside of their mm's
 * tree: made by shmat() or mmap(), copied by fork, cut by munmap() and whatever else replaces them, closed by shmdt()
 * and the end of the last thread. Each holds its file, and so the memory that it maps.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <asm/host.h>
#include <asm/unistd.h>

#include "attach.h"

LIST_HEAD(wt_attached);

/* Another mapping of the same file, counted. */
static struct wt_attach *wt_attach_copy(struct mm_struct *mm, const struct wt_attach *from)
{
	struct wt_attach *attach = kmalloc(sizeof(*attach), GFP_KERNEL | __GFP_NOFAIL);
	struct vm_area_struct *vma;

	while (!(vma = vm_area_dup(from->vma)))
		cond_resched();
	vma->vm_mm = mm;
	get_file(vma->vm_file);
	vma->vm_ops->open(vma);
	attach->vma = vma;
	list_add(&attach->node, &wt_attached);
	return attach;
}

/**
 * wt_attach_add - count a new mapping of the running program
 * @file: what it maps; held
 * @start: its address
 * @len: bytes
 * @ops: open counts it, close ends that
 *
 * Returns: 0 or -ENOMEM.
 */
int wt_attach_add(struct file *file, unsigned long start, unsigned long len, const struct vm_operations_struct *ops)
{
	struct wt_attach *attach = kmalloc(sizeof(*attach), GFP_KERNEL);
	struct vm_area_struct *vma = vm_area_alloc(current->mm);

	if (!attach || !vma) {
		if (vma)
			vm_area_free(vma);
		kfree(attach);
		return -ENOMEM;
	}
	vm_flags_init(vma, VM_SHARED | VM_MAYSHARE);
	vma->vm_file = get_file(file);
	vma->vm_ops = ops;
	vma->vm_start = start;
	vma->vm_end = start + PAGE_ALIGN(len);
	ops->open(vma);
	attach->vma = vma;
	list_add(&attach->node, &wt_attached);
	return 0;
}

/**
 * wt_attach_drop - end the count of a mapping
 * @attach: taken from the list and freed
 */
void wt_attach_drop(struct wt_attach *attach)
{
	list_del(&attach->node);
	attach->vma->vm_ops->close(attach->vma);
	fput(attach->vma->vm_file);
	vm_area_free(attach->vma);
	kfree(attach);
}

/* Makes addr a boundary between mappings. */
static void wt_attach_split(struct mm_struct *mm, unsigned long addr)
{
	struct wt_attach *attach, *upper;

	for_each_attach(attach, mm)
	{
		if (attach->vma->vm_start >= addr || addr >= attach->vma->vm_end)
			continue;
		upper = wt_attach_copy(mm, attach);
		upper->vma->vm_pgoff += (addr - attach->vma->vm_start) >> PAGE_SHIFT;
		upper->vma->vm_start = addr;
		attach->vma->vm_end = addr;
		return;
	}
}

/* The host has removed or replaced what was in start..end. */
static void wt_attach_cut(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	struct wt_attach *attach, *next;

	wt_attach_split(mm, start);
	wt_attach_split(mm, end);
	for_each_attach_safe(attach, next, mm)
	{
		if (attach->vma->vm_start >= start && attach->vma->vm_end <= end)
			wt_attach_drop(attach);
	}
}

/* The host has moved, shrunk, lengthened or doubled (keep) len bytes at old; they are at to now. */
static void wt_attach_move(struct mm_struct *mm, unsigned long old, unsigned long len, unsigned long new_len,
			   unsigned long to, bool keep)
{
	struct wt_attach *attach, *moved;

	if (new_len < len)
		wt_attach_cut(mm, old + new_len, old + len);
	if (to != old) {
		wt_attach_cut(mm, to, to + new_len);
		wt_attach_split(mm, old);
		wt_attach_split(mm, old + len);
	}
	for_each_attach(attach, mm)
	{
		struct vm_area_struct *vma = attach->vma;

		if (vma->vm_start < old || vma->vm_end > old + len)
			continue;
		moved = to != old && keep ? wt_attach_copy(mm, attach) : attach;
		moved->vma->vm_start += to - old;
		moved->vma->vm_end += to - old;
		if (moved->vma->vm_end == to + len && new_len > len)
			moved->vma->vm_end = to + new_len;
	}
}

/* mremap() of no bytes maps the pages at old once more. */
static void wt_attach_again(struct mm_struct *mm, unsigned long old, unsigned long len, unsigned long to)
{
	struct wt_attach *attach, *copy;

	wt_attach_cut(mm, to, to + len);
	for_each_attach(attach, mm)
	{
		if (old < attach->vma->vm_start || old >= attach->vma->vm_end)
			continue;
		copy = wt_attach_copy(mm, attach);
		copy->vma->vm_pgoff += (old - attach->vma->vm_start) >> PAGE_SHIFT;
		copy->vma->vm_start = to;
		copy->vma->vm_end = to + len;
		return;
	}
}

/**
 * wt_attach_follow - keep the list of counted mappings after a memory call of the running program
 * @nr: mmap, munmap, mremap or another
 * @arg: its arguments
 * @ret: its result
 */
void wt_attach_follow(unsigned int nr, const u64 *arg, long ret)
{
	struct mm_struct *mm = current->mm;

	if (IS_ERR_VALUE(ret))
		return;
	if (nr == __NR_mmap)
		wt_attach_cut(mm, ret, ret + PAGE_ALIGN(arg[1]));
	else if (nr == __NR_munmap)
		wt_attach_cut(mm, arg[0], arg[0] + PAGE_ALIGN(arg[1]));
	else if (nr == __NR_mremap && !PAGE_ALIGN(arg[1]))
		wt_attach_again(mm, arg[0], PAGE_ALIGN(arg[2]), ret);
	else if (nr == __NR_mremap)
		wt_attach_move(mm, arg[0], PAGE_ALIGN(arg[1]), PAGE_ALIGN(arg[2]), ret, arg[3] & MREMAP_DONTUNMAP);
}

/**
 * wt_attach_fork - count the mappings of a copied mm
 * @mm: the copy
 * @parent: what it is a copy of
 */
void wt_attach_fork(struct mm_struct *mm, const struct mm_struct *parent)
{
	struct wt_attach *attach;

	for_each_attach(attach, parent) wt_attach_copy(mm, attach);
}

/**
 * wt_attach_exit - end the count of all mappings of an mm; their memory stays mapped until it goes
 * @mm: an mm that no other thread uses
 */
void wt_attach_exit(struct mm_struct *mm)
{
	struct wt_attach *attach, *next;

	for_each_attach_safe(attach, next, mm) wt_attach_drop(attach);
}
