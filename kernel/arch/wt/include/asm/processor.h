/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_PROCESSOR_H
#define _ASM_WT_PROCESSOR_H

#ifndef __ASSEMBLY__
#include <asm/page.h>
#include <asm/ptrace.h>

#define TASK_SIZE (0x7ffffffff000UL)
#define TASK_SIZE_MAX TASK_SIZE
#define STACK_TOP TASK_SIZE
#define STACK_TOP_MAX STACK_TOP
#define TASK_UNMAPPED_BASE 0UL

struct task_struct;
struct pt_regs;

/**
 * struct thread_struct - what the port keeps per task
 * @sp: kernel stack pointer while switched away
 * @fs: FS base of the program thread while its user state is not in the registers
 * @xstate: XSAVEC/FXSAVE area for the same; NULL for kernel threads
 * @full: return to the program with all registers (iretq), not by the short system call path
 * @calls: system calls since @calls_now changed; see wt_quantum()
 * @calls_now: virtual time when @calls was last reset, ns
 * @spins: sleeps in a row in loops that wait; see wt_preempt()
 * @spin_now: virtual time when the last of them was over, ns
 * @trapno: x86 trap number of the last fault, for sigcontext
 * @error_code: its error code
 * @cr2: its address
 */
struct thread_struct {
	unsigned long sp;
	unsigned long fs;
	void *xstate;
	unsigned int full;
	unsigned int calls;
	unsigned long calls_now;
	unsigned int spins;
	unsigned long spin_now;
	unsigned long trapno;
	unsigned long error_code;
	unsigned long cr2;
};

#define INIT_THREAD { }

#define task_top_of_stack(task) ((unsigned long)(task)->stack + THREAD_SIZE)
#define task_pt_regs(task) ((struct pt_regs *)task_top_of_stack(task) - 1)
#define KSTK_EIP(task) (task_pt_regs(task)->ip)
#define KSTK_ESP(task) (task_pt_regs(task)->sp)

void start_thread(struct pt_regs *regs, unsigned long ip, unsigned long sp);
unsigned long __get_wchan(struct task_struct *p);
void show_registers(struct pt_regs *regs);
void wt_relax(void);

/* Nothing changes while the kernel waits for it: a loop around cpu_relax() would never end. */
#define cpu_relax() wt_relax()
#endif
#endif
