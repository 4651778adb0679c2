/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_SHMBUF_H
#define _ASM_WT_SHMBUF_H
/*
 * Of the generic code only ipc/shm.c includes this file (by uapi/linux/shm.h). It keeps the segments, their rights and
 * who is attached; the memory is contents at the host like that of any file, and shm.c beside it maps them.
 */
#include <uapi/asm/shmbuf.h>
#include <linux/mm.h>

struct file *wt_shm_file_setup(const char *name, loff_t size, unsigned long flags);
unsigned long wt_shm_mmap(struct file *file, unsigned long addr, unsigned long len, unsigned long prot,
			  unsigned long flags, vm_flags_t vm_flags, unsigned long pgoff, unsigned long *populate,
			  struct list_head *uf);
struct vm_area_struct *wt_shm_lookup(struct mm_struct *mm, unsigned long addr);
int wt_shm_munmap(struct mm_struct *mm, unsigned long start, size_t len, struct list_head *uf);
bool wt_shm_taken(struct mm_struct *mm, unsigned long start, unsigned long end);

#define shmem_kernel_file_setup wt_shm_file_setup
#define do_mmap			wt_shm_mmap
#define vma_lookup		wt_shm_lookup
#define do_munmap		wt_shm_munmap
#define find_vma_intersection	wt_shm_taken
#endif
