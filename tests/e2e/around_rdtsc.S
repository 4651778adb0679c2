/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * void around_rdtsc(const struct around *before, struct around *after): takes all registers from `before`, fills the red zone
 * with 1 to 16, reads the time stamp counter, and puts everything to `after`. A patch finds room only before rdtsc, and only after
 * rdtscp, because of jumps.
 */
	.macro	AROUND name, room
	.text
	.globl	around_\name, at_\name
	.type	around_\name, @function
around_\name:
	.cfi_startproc
	push	%rbx
	push	%rbp
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	mov	%rsi, after(%rip)
	mov	%rdi, %rax
	pushq	104(%rax)
	popfq
	.irp	i, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
	movq	$\i, -8 * \i(%rsp)
	.endr
	mov	0(%rax), %rbx
	mov	8(%rax), %rcx
	mov	16(%rax), %rsi
	mov	24(%rax), %rdi
	mov	32(%rax), %rbp
	mov	40(%rax), %r8
	mov	48(%rax), %r9
	mov	56(%rax), %r10
	mov	64(%rax), %r11
	mov	72(%rax), %r12
	mov	80(%rax), %r13
	.ifc	\room, before
at_\name:
	mov	88(%rax), %r14
	mov	96(%rax), %r15
	\name
	jmp	1f
1:
	.else
	mov	88(%rax), %r14
	mov	96(%rax), %r15
	jmp	1f
1:
at_\name:
	\name
	.endif
	mov	%rdx, high(%rip)
	mov	%rax, low(%rip)
	lahf
	seto	%al
	mov	%rax, flags(%rip)
	mov	after(%rip), %rax
	mov	%rbx, 0(%rax)
	mov	%rcx, 8(%rax)
	mov	%rsi, 16(%rax)
	mov	%rdi, 24(%rax)
	mov	%rbp, 32(%rax)
	mov	%r8, 40(%rax)
	mov	%r9, 48(%rax)
	mov	%r10, 56(%rax)
	mov	%r11, 64(%rax)
	mov	%r12, 72(%rax)
	mov	%r13, 80(%rax)
	mov	%r14, 88(%rax)
	mov	%r15, 96(%rax)
	.irp	i, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
	mov	-8 * \i(%rsp), %rdx
	mov	%rdx, 120 + 8 * \i(%rax)
	.endr
	mov	flags(%rip), %rdx
	mov	%rdx, 104(%rax)
	mov	low(%rip), %rdx
	mov	%rdx, 112(%rax)
	mov	high(%rip), %rdx
	mov	%rdx, 120(%rax)
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbp
	pop	%rbx
	ret
	.cfi_endproc
	.size	around_\name, . - around_\name
	.endm

	AROUND	rdtsc, before
	AROUND	rdtscp, after

	.bss
	.balign	8
after:	.quad	0
low:	.quad	0
high:	.quad	0
flags:	.quad	0
	.section .note.GNU-stack, "", @progbits
