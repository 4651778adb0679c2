// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Mappings of System V shared memory.
 *
 * ipc/shm.c counts who is attached by the open and close operations of mappings. The host has the mappings, so those
 * that belong to segments are listed here, as struct vm_area_struct outside of their mm's tree: made by shmat(), copied
 * by fork, cut by munmap() and whatever else replaces them, closed by shmdt() and the end of the last thread.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <asm/host.h>
#include <asm/shmbuf.h>
#include <asm/unistd.h>

/**
 * struct wt_attach - one mapping of a segment
 * @node: in wt_attached
 * @vma: mm, addresses, file, and operations of ipc/shm.c
 */
struct wt_attach {
	struct list_head node;
	struct vm_area_struct *vma;
};

/* Of all programs of the node: there are few. New ones go to the head, so a walk does not meet what it adds. */
LIST_HEAD(wt_attached);

#define for_each_attach(attach, of_mm)                     \
	list_for_each_entry ((attach), &wt_attached, node) \
		if ((attach)->vma->vm_mm == (of_mm))
#define for_each_attach_safe(attach, next, of_mm)                       \
	list_for_each_entry_safe ((attach), (next), &wt_attached, node) \
		if ((attach)->vma->vm_mm == (of_mm))

/* Another mapping of the same segment, counted. */
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

static void wt_attach_drop(struct wt_attach *attach)
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
 * wt_shm_follow - keep the list of attached segments after a memory call of the running program
 * @nr: mmap, munmap, mremap or another
 * @arg: its arguments
 * @ret: its result
 */
void wt_shm_follow(unsigned int nr, const u64 *arg, long ret)
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
 * wt_shm_fork - attach a copied mm to the segments of its parent
 * @mm: the copy
 * @parent: what it is a copy of
 */
void wt_shm_fork(struct mm_struct *mm, const struct mm_struct *parent)
{
	struct wt_attach *attach;

	for_each_attach(attach, parent) wt_attach_copy(mm, attach);
}

/**
 * wt_shm_exit - detach from all segments; their memory stays mapped until the mm goes
 * @mm: an mm that no other thread uses
 */
void wt_shm_exit(struct mm_struct *mm)
{
	struct wt_attach *attach, *next;

	for_each_attach_safe(attach, next, mm) wt_attach_drop(attach);
}

/* ------------------------------------------ what ipc/shm.c calls instead of the memory manager (asm/shmbuf.h) */

/* shmem_kernel_file_setup() */
struct file *wt_shm_file_setup(const char *name, loff_t size, unsigned long flags)
{
	return wtfs_memory_file(name, size, 0777, O_RDWR);
}

/* do_mmap() of a file of ipc/shm.c, whose mmap operation counts. */
unsigned long wt_shm_mmap(struct file *file, unsigned long addr, unsigned long len, unsigned long prot,
			  unsigned long flags, vm_flags_t vm_flags, unsigned long pgoff, unsigned long *populate,
			  struct list_head *uf)
{
	unsigned long may = PROT_READ | PROT_EXEC | (file->f_mode & FMODE_WRITE ? PROT_WRITE : 0);
	u64 arg[6] = {addr, len, prot, flags, may, pgoff << PAGE_SHIFT};
	struct wt_attach *attach = kmalloc(sizeof(*attach), GFP_KERNEL);
	struct vm_area_struct *vma = vm_area_alloc(current->mm);
	long ret = -ENOMEM;

	*populate = 0;
	if (!attach || !vma)
		goto free;
	attach->vma = vma;
	vm_flags_init(vma, VM_SHARED | VM_MAYSHARE);
	vma->vm_pgoff = pgoff;
	vma->vm_file = get_file(file);
	ret = call_mmap(file, vma);
	if (ret)
		goto put;
	ret = wt_memory(__NR_mmap, arg, wtfs_handle(file));
	if (IS_ERR_VALUE(ret)) {
		vma->vm_ops->close(vma);
		goto put;
	}
	vma->vm_start = ret;
	vma->vm_end = ret + PAGE_ALIGN(len);
	list_add(&attach->node, &wt_attached);
	return ret;
put:
	fput(file);
free:
	if (vma)
		vm_area_free(vma);
	kfree(attach);
	return ret;
}

/* vma_lookup() in shmdt(): only where a mapping starts. */
struct vm_area_struct *wt_shm_lookup(struct mm_struct *mm, unsigned long addr)
{
	struct wt_attach *attach;

	for_each_attach(attach, mm)
	{
		if (attach->vma->vm_start == addr)
			return attach->vma;
	}
	return NULL;
}

/* do_munmap() in shmdt(): the mapping found, and what mprotect() or munmap() left of it further up. */
int wt_shm_munmap(struct mm_struct *mm, unsigned long start, size_t len, struct list_head *uf)
{
	struct file *file = get_file(wt_shm_lookup(mm, start)->vm_file);
	unsigned long base = start - (wt_shm_lookup(mm, start)->vm_pgoff << PAGE_SHIFT);
	struct wt_attach *attach, *next;

	for_each_attach_safe(attach, next, mm)
	{
		struct vm_area_struct *vma = attach->vma;
		u64 arg[6] = {vma->vm_start, vma->vm_end - vma->vm_start};

		if (vma->vm_file != file || vma->vm_start - (vma->vm_pgoff << PAGE_SHIFT) != base)
			continue;
		wt_call(mem_call, mm->context.as, __NR_munmap, (u64)arg, 0);
		wt_attach_drop(attach);
	}
	fput(file);
	return 0;
}

/* find_vma_intersection() in shmat() at a given address: whether a mapping that must not replace anything fails. */
bool wt_shm_taken(struct mm_struct *mm, unsigned long start, unsigned long end)
{
	u64 arg[6] = {start, end - start, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, ~0UL, 0};

	if (IS_ERR_VALUE(wt_memory(__NR_mmap, arg, 0)))
		return true;
	wt_memory(__NR_munmap, arg, 0);
	return false;
}
