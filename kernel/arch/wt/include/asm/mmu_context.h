/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_MMU_CONTEXT_H
#define _ASM_WT_MMU_CONTEXT_H
#include <linux/mm_types.h>

/**
 * struct wt_window - addresses that the running program named last, and may name (reach.c)
 * @start: the first
 * @size: bytes; 0: not known
 */
struct wt_window {
	unsigned long start, size;
};
extern struct wt_window wt_window;
extern const struct mm_struct *wt_window_mm; /* whose it is */

int wt_mm_init(struct mm_struct *mm);
void wt_mm_destroy(struct mm_struct *mm);
void wt_mm_activate(struct mm_struct *mm);
void wt_attach_exit(struct mm_struct *mm);

/* A new mm is zeroed, a forked one a copy of its parent's. */
#define init_new_context init_new_context
static inline int init_new_context(struct task_struct *tsk, struct mm_struct *mm)
{
	return wt_mm_init(mm);
}

#define destroy_context destroy_context
static inline void destroy_context(struct mm_struct *mm)
{
	wt_mm_destroy(mm);
}

/*
 * The kernel uses the memory of the mm it runs on (copies of a read that slept, signal frames, clear_child_tid, robust
 * lists), so what takes turns at its addresses (context.low: a low image, or a parent or child by fork) is brought in
 * place here and not on the way back to the program.
 */
static inline void switch_mm(struct mm_struct *prev, struct mm_struct *next, struct task_struct *tsk)
{
	if (next != wt_window_mm)
		wt_window.size = 0;
	if (unlikely(next->context.low))
		wt_mm_activate(next);
}

/*
 * The end of a thread, or its exec: with the last one of an mm, its mappings no longer count. A kernel thread's mm
 * is NULL.
 */
#define deactivate_mm deactivate_mm
static inline void deactivate_mm(struct task_struct *tsk, struct mm_struct *mm)
{
	if (mm && atomic_read(&mm->mm_users) == 1)
		wt_attach_exit(mm);
}

#include <asm-generic/mm_hooks.h>
#include <asm-generic/mmu_context.h>
#endif
