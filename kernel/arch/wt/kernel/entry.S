/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ways in and out: programs <-> kernel, host <-> kernel, task <-> task.
 *
 * A program enters at wt_syscall_entry by an indirect jump from a patched call site (struct wt_thread.entry): rax the
 * number, rcx the return address, r11 free, all else as at a syscall instruction. Vector registers and FS stay the
 * program's: the kernel uses neither.
 */
#include <linux/linkage.h>
#include <asm/asm-offsets.h>

/*
 * Flags that the kernel and the host must not run with: trap, direction, nested task, alignment check, identification.
 * Nothing here sets them, so that a short return, which restores no flags, is right for programs that had none of them.
 */
#define ODD_FLAGS 0x244500
#define PLAIN_FLAGS 0x202

#define GS_IN_USER 240 /* struct wt_thread.in_user, asserted in host.c */
#define GS_CLOCK_IP 288 /* struct wt_thread.clock_ip */

	.cfi_sections .debug_frame
	.section .text.wt_asm, "ax", @progbits

	.macro PUSH_REGS_AFTER_ORIG_AX
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	pushq	%rcx
	pushq	$-38			/* ax: -ENOSYS until known */
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	.endm

/* System call from a patched call site. */
SYM_CODE_START(wt_syscall_entry)
	.cfi_startproc simple
	.cfi_signal_frame
	.cfi_def_cfa %rsp, 0
	.cfi_register %rip, %rcx
	movq	%rsp, %r11
	.cfi_def_cfa %r11, 0
	movq	wt_kstack_top(%rip), %rsp
	pushq	$0x2b			/* ss */
	pushq	%r11			/* sp */
	pushfq				/* flags */
	testl	$ODD_FLAGS, (%rsp)
	pushq	$0x33			/* cs */
	pushq	%rcx			/* ip */
	pushq	%rax			/* orig_ax */
	PUSH_REGS_AFTER_ORIG_AX
	movq	$0, %gs:GS_IN_USER
	jnz	2f			/* none of the pushes changes the flags */
1:	movq	%rsp, %rdi
	subq	$8, %rsp		/* 16-byte alignment: pt_regs is an odd number of words */
	.cfi_escape 0x0f, 4, 0x77, 0xa0, 0x01, 0x06	/* CFA = *(rsp + 160): the program's rsp */
	.cfi_escape 0x10, 16, 3, 0x77, 0x88, 0x01		/* rip at rsp + 136 */
	call	wt_do_syscall
	addq	$8, %rsp
	testb	%al, %al
	jnz	wt_return_full
	movq	$1, %gs:GS_IN_USER
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	addq	$8, %rsp		/* r11 is scratch */
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rax
	addq	$8, %rsp		/* rcx becomes ip */
	popq	%rdx
	popq	%rsi
	popq	%rdi
	movq	8(%rsp), %rcx		/* ip */
	movq	32(%rsp), %rsp		/* sp */
	jmp	*%rcx

2:	.cfi_def_cfa %r11, 0
	pushq	$PLAIN_FLAGS
	popfq
	movq	wt_current(%rip), %rdi
	movl	$1, TASK_FULL(%rdi)	/* the program gets its flags back by iretq */
	jmp	1b
	.cfi_endproc
SYM_CODE_END(wt_syscall_entry)

/*
 * A patched rdtsc: rax the return address, rdx free, all else the program's, flags among it. No call: nothing traces or
 * filters it.
 */
SYM_CODE_START(wt_clock_entry)
	.cfi_startproc simple
	.cfi_signal_frame
	.cfi_def_cfa %rsp, 0
	.cfi_register %rip, %rax
	movq	%rsp, %rdx
	.cfi_def_cfa %rdx, 0
	movq	wt_kstack_top(%rip), %rsp
	pushq	$0x2b			/* ss */
	pushq	%rdx			/* sp */
	pushfq				/* flags */
	pushq	$0x33			/* cs */
	pushq	%rax			/* ip */
	pushq	$-1			/* orig_ax: no call */
	PUSH_REGS_AFTER_ORIG_AX
	movq	$0, %gs:GS_IN_USER
	pushq	$2			/* no flag of the program's, such as DF or AC, for the kernel */
	popfq
	movq	%rsp, %rdi
	subq	$8, %rsp
	.cfi_escape 0x0f, 4, 0x77, 0xa0, 0x01, 0x06	/* CFA = *(rsp + 160): the program's rsp */
	.cfi_escape 0x10, 16, 3, 0x77, 0x88, 0x01		/* rip at rsp + 136 */
	call	wt_do_clock
	addq	$8, %rsp
	testb	%al, %al
	jnz	wt_return_full
	movq	$1, %gs:GS_IN_USER
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rax
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	addq	$8, %rsp		/* orig_ax */
	popq	%gs:GS_CLOCK_IP		/* all registers are the program's again */
	addq	$8, %rsp		/* cs */
	popfq
	popq	%rsp
	jmp	*%gs:GS_CLOCK_IP
	.cfi_endproc
SYM_CODE_END(wt_clock_entry)

/* To the program with every register as in pt_regs at rsp. */
SYM_CODE_START_LOCAL(wt_return_full)
	movq	$1, %gs:GS_IN_USER
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rax
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	addq	$8, %rsp		/* orig_ax */
	iretq
SYM_CODE_END(wt_return_full)

/* The host's signal handler comes back here, on the task's kernel stack, with the registers in wt_thread.fault. */
SYM_CODE_START(wt_fault_entry)
	subq	$PT_REGS_SIZE, %rsp
	movq	$0, %gs:GS_IN_USER
	movq	%rsp, %rdi
	subq	$8, %rsp
	call	wt_do_fault
	addq	$8, %rsp
	jmp	wt_return_full
SYM_CODE_END(wt_fault_entry)

/* A system call that reached the host's SIGSYS handler: as above, and every register survives it. */
SYM_CODE_START(wt_slow_entry)
	subq	$PT_REGS_SIZE, %rsp
	movq	$0, %gs:GS_IN_USER
	movq	%rsp, %rdi
	subq	$8, %rsp
	call	wt_do_slow_syscall
	addq	$8, %rsp
	jmp	wt_return_full
SYM_CODE_END(wt_slow_entry)

/* First run of a task: rax the previous task, rbx a kernel function or 0, r12 its argument. */
SYM_CODE_START(ret_from_fork_asm)
	movq	%rax, %rdi
	movq	%rbx, %rsi
	movq	%r12, %rdx
	leaq	16(%rsp), %rcx		/* pt_regs */
	addq	$8, %rsp
	call	wt_ret_from_fork
	addq	$8, %rsp
	jmp	wt_return_full
SYM_CODE_END(ret_from_fork_asm)

	.macro SAVE_CALLEE
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	.endm
	.macro RESTORE_CALLEE
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	.endm

/* struct task_struct *wt_switch_stacks(struct task_struct *prev, struct task_struct *next) */
SYM_FUNC_START(wt_switch_stacks)
	SAVE_CALLEE
	movq	%rsp, TASK_SP(%rdi)
	movq	TASK_SP(%rsi), %rsp
	RESTORE_CALLEE
	movq	%rdi, %rax
	ret
SYM_FUNC_END(wt_switch_stacks)

/* void wt_enter_idle(void): from the host into the idle task, where it left with wt_leave_idle(). */
SYM_FUNC_START(wt_enter_idle)
	SAVE_CALLEE
	movq	%rsp, wt_host_rsp(%rip)
	movq	wt_idle_rsp(%rip), %rsp
	RESTORE_CALLEE
	ret
SYM_FUNC_END(wt_enter_idle)

/* void wt_leave_idle(void): from the idle task back to the host. */
SYM_FUNC_START(wt_leave_idle)
	SAVE_CALLEE
	movq	%rsp, wt_idle_rsp(%rip)
	movq	wt_host_rsp(%rip), %rsp
	RESTORE_CALLEE
	ret
SYM_FUNC_END(wt_leave_idle)

/* void wt_boot_on(unsigned long stack_top): from the host to start_kernel(); comes back when first idle. */
	.section .ref.text, "ax"
SYM_FUNC_START(wt_boot_on)
	SAVE_CALLEE
	movq	%rsp, wt_host_rsp(%rip)
	movq	%rdi, %rsp
	xorl	%ebp, %ebp
	call	start_kernel
	ud2
SYM_FUNC_END(wt_boot_on)
	.section .text.wt_asm, "ax", @progbits

/* u64 wt_on_host_stack(fn, host, a, b, c, d) */
SYM_FUNC_START(wt_on_host_stack)
	pushq	%rbp
	movq	%rsp, %rbp
	movq	wt_host_rsp(%rip), %rsp
	andq	$-16, %rsp
	movq	%rdi, %rax
	movq	%rsi, %rdi
	movq	%rdx, %rsi
	movq	%rcx, %rdx
	movq	%r8, %rcx
	movq	%r9, %r8
	call	*%rax
	movq	%rbp, %rsp
	popq	%rbp
	ret
SYM_FUNC_END(wt_on_host_stack)

	.section .note.GNU-stack, "", @progbits
