/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * All accesses to program memory. Rules that let one fixup serve every instruction here: nothing is on the stack, and
 * rcx holds, at every access, what the function returns if it faults.
 */
#include <linux/linkage.h>

	.section .text.wt_asm, "ax", @progbits
SYM_CODE_START(wt_uaccess_start)
SYM_CODE_END(wt_uaccess_start)

/* Goes on only where an address is the program's (reach.c); else returns what is in rcx. Uses rax. */
	.macro WITHIN_REACH reg, ask=wt_within_reach
	movq	\reg, %rax
	subq	wt_window(%rip), %rax
	cmpq	wt_window+8(%rip), %rax
	jae	8f
9:
	.subsection 1
8:	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	pushq	%rcx
	subq	$8, %rsp
	.ifc	\ask, wt_within_reach
	movq	\reg, %rdi
	.endif
	call	\ask
	addq	$8, %rsp
	popq	%rcx
	popq	%rdx
	popq	%rsi
	popq	%rdi
	testb	%al, %al
	jnz	9b
	movq	%rcx, %rax
	ret
	.previous
	.endm

	.macro GET_USER size, mov
SYM_FUNC_START(wt_get_user_\size)
	movl	$14, %ecx
	WITHIN_REACH %rdi
	\mov
	xorl	%eax, %eax
	ret
SYM_FUNC_END(wt_get_user_\size)
	.endm

	GET_USER 1, "movzbl (%rdi), %edx"
	GET_USER 2, "movzwl (%rdi), %edx"
	GET_USER 4, "movl (%rdi), %edx"
	GET_USER 8, "movq (%rdi), %rdx"

	.macro PUT_USER size, mov
SYM_FUNC_START(wt_put_user_\size)
	movl	$14, %ecx
	WITHIN_REACH %rdi
	\mov
	xorl	%eax, %eax
	ret
SYM_FUNC_END(wt_put_user_\size)
	.endm

	PUT_USER 1, "movb %sil, (%rdi)"
	PUT_USER 2, "movw %si, (%rdi)"
	PUT_USER 4, "movl %esi, (%rdi)"
	PUT_USER 8, "movq %rsi, (%rdi)"

/* unsigned long wt_user_copy(to, from, n): to or from the program. The other end is the kernel's, in no window. */
SYM_FUNC_START(wt_user_copy)
	addq	%rdx, wt_copied(%rip)	/* for cpu.c */
	movq	%rdx, %rcx
	movq	%rdi, %rax
	subq	wt_window(%rip), %rax
	cmpq	wt_window+8(%rip), %rax
	jb	.Lcopy
	WITHIN_REACH %rsi, wt_copy_within_reach
	jmp	.Lcopy
SYM_FUNC_END(wt_user_copy)

/* unsigned long wt_copy_nofault(to, from, n): whosever the addresses are. rcx counts the bytes still to do. */
SYM_FUNC_START(wt_copy_nofault)
	movq	%rdx, %rcx
.Lcopy:	cmpq	$128, %rcx
	jae	3f
1:	cmpq	$8, %rcx
	jb	2f
	movq	(%rsi), %r8
	movq	%r8, (%rdi)
	addq	$8, %rsi
	addq	$8, %rdi
	subq	$8, %rcx
	jmp	1b
2:	testq	%rcx, %rcx
	jz	4f
	movb	(%rsi), %r8b
	movb	%r8b, (%rdi)
	incq	%rsi
	incq	%rdi
	decq	%rcx
	jmp	2b
3:	rep movsb
4:	movq	%rcx, %rax
	ret
SYM_FUNC_END(wt_copy_nofault)

/* unsigned long wt_user_clear(to, n) */
SYM_FUNC_START(wt_user_clear)
	addq	%rsi, wt_copied(%rip)	/* for cpu.c */
	movq	%rsi, %rcx
	WITHIN_REACH %rdi
	xorl	%eax, %eax
	rep stosb
	movq	%rcx, %rax
	ret
SYM_FUNC_END(wt_user_clear)

/* long wt_user_strncpy(to, from, count) */
SYM_FUNC_START(wt_user_strncpy)
	movq	$-14, %rcx
	WITHIN_REACH %rsi
	xorl	%eax, %eax
1:	cmpq	%rdx, %rax
	jge	2f
	movzbl	(%rsi,%rax), %r8d
	movb	%r8b, (%rdi,%rax)
	testb	%r8b, %r8b
	jz	2f
	incq	%rax
	jmp	1b
2:	ret
SYM_FUNC_END(wt_user_strncpy)

/* long wt_user_strnlen(from, count) */
SYM_FUNC_START(wt_user_strnlen)
	movq	$-14, %rcx
	WITHIN_REACH %rdi
	xorl	%eax, %eax
1:	cmpq	%rsi, %rax
	jge	2f
	cmpb	$0, (%rdi,%rax)
	je	2f
	incq	%rax
	jmp	1b
2:	incq	%rax
	ret
SYM_FUNC_END(wt_user_strnlen)

SYM_CODE_START(wt_uaccess_end)
SYM_CODE_END(wt_uaccess_end)

SYM_CODE_START(wt_uaccess_fixup)
	movq	%rcx, %rax
	ret
SYM_CODE_END(wt_uaccess_fixup)

	.section .note.GNU-stack, "", @progbits
