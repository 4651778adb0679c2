// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * System V shared memory: what ipc/shm.c calls instead of the memory manager (asm/shmbuf.h). Its segments are contents
 * at the host like those of files; its mappings are the host's, and counted in attach.c.
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

#include "attach.h"

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
