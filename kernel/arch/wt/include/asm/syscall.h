/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_SYSCALL_H
#define _ASM_WT_SYSCALL_H
#include <linux/err.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <uapi/linux/audit.h>

typedef long (*sys_call_ptr_t)(unsigned long, unsigned long, unsigned long, unsigned long, unsigned long,
			       unsigned long);
extern sys_call_ptr_t sys_call_table[];

static inline int syscall_get_nr(struct task_struct *task, struct pt_regs *regs)
{
	return regs->orig_ax;
}

static inline void syscall_rollback(struct task_struct *task, struct pt_regs *regs)
{
	regs->ax = regs->orig_ax;
}

static inline long syscall_get_error(struct task_struct *task, struct pt_regs *regs)
{
	return IS_ERR_VALUE(regs->ax) ? regs->ax : 0;
}

static inline long syscall_get_return_value(struct task_struct *task, struct pt_regs *regs)
{
	return regs->ax;
}

static inline void syscall_set_return_value(struct task_struct *task, struct pt_regs *regs, int error, long val)
{
	regs->ax = (long)error ?: val;
}

static inline void syscall_get_arguments(struct task_struct *task, struct pt_regs *regs, unsigned long *args)
{
	args[0] = regs->di;
	args[1] = regs->si;
	args[2] = regs->dx;
	args[3] = regs->r10;
	args[4] = regs->r8;
	args[5] = regs->r9;
}

static inline bool arch_syscall_is_vdso_sigreturn(struct pt_regs *regs)
{
	return false;
}

static inline int syscall_get_arch(struct task_struct *task)
{
	return AUDIT_ARCH_X86_64;
}
#endif
