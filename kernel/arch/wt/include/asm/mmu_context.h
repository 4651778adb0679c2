/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_MMU_CONTEXT_H
#define _ASM_WT_MMU_CONTEXT_H
#include <linux/mm_types.h>

int wt_mm_init(struct mm_struct *mm);
void wt_mm_destroy(struct mm_struct *mm);

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

#include <asm-generic/nommu_context.h>
#endif
