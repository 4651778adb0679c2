/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_CURRENT_H
#define _ASM_WT_CURRENT_H
#ifndef __ASSEMBLY__
struct task_struct;
/* One CPU per instance: the running task is a plain variable of the instance. */
extern struct task_struct *wt_current;
#define get_current() wt_current
#define current get_current()
#endif
#endif
