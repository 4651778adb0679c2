/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_PTRACE_H
#define _ASM_WT_PTRACE_H

#include <uapi/asm/ptrace.h>

#ifndef __ASSEMBLY__
#include <linux/types.h>

/* Registers of a program at its entry into the kernel: the layout x86-64 programs and debuggers know. entry.S
 * pushes exactly this; the last five are what iretq takes. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8;
	unsigned long ax, cx, dx, si, di;
	unsigned long orig_ax;
	unsigned long ip, cs, flags, sp, ss;
};

struct task_struct;

#define user_mode(regs) ((regs)->cs == 0x33)
#define instruction_pointer(regs) ((regs)->ip)
#define user_stack_pointer(regs) ((regs)->sp)
#define profile_pc(regs) instruction_pointer(regs)
#define kernel_stack_pointer(regs) ((regs)->sp)

static inline unsigned long regs_return_value(struct pt_regs *regs)
{
	return regs->ax;
}

static inline bool is_syscall_success(struct pt_regs *regs)
{
	return !((long)regs->ax >= -4095L && (long)regs->ax < 0);
}

static inline bool regs_irqs_disabled(struct pt_regs *regs)
{
	return false;
}

static inline void instruction_pointer_set(struct pt_regs *regs, unsigned long val)
{
	regs->ip = val;
}

#define current_user_stack_pointer() user_stack_pointer(current_pt_regs())
#define arch_has_single_step() (0)
#endif
#endif
