/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Block memory and the Internet checksum, in general registers only. */
#include <linux/linkage.h>

	.section .text.wt_asm, "ax", @progbits
/* void *memcpy(void *to, const void *from, size_t n) */
SYM_FUNC_START(memcpy)
	movq	%rdi, %rax
	cmpq	$16, %rdx
	jb	.Lcopy_small
	cmpq	$192, %rdx
	jae	.Lcopy_rep
	/* 16 to 191 bytes: pairs of words, the last pair overlapping */
	movq	-16(%rsi,%rdx), %r10
	movq	-8(%rsi,%rdx), %r11
	leaq	-16(%rdi,%rdx), %r9
	subq	$16, %rdx
	jz	2f
1:	movq	(%rsi), %rcx
	movq	8(%rsi), %r8
	movq	%rcx, (%rdi)
	movq	%r8, 8(%rdi)
	addq	$16, %rsi
	addq	$16, %rdi
	subq	$16, %rdx
	ja	1b
2:	movq	%r10, (%r9)
	movq	%r11, 8(%r9)
	ret
.Lcopy_rep:
	movq	%rdx, %rcx
	rep movsb
	ret
.Lcopy_small:
	cmpl	$8, %edx
	jb	3f
	movq	(%rsi), %rcx
	movq	-8(%rsi,%rdx), %r8
	movq	%rcx, (%rdi)
	movq	%r8, -8(%rdi,%rdx)
	ret
3:	cmpl	$4, %edx
	jb	4f
	movl	(%rsi), %ecx
	movl	-4(%rsi,%rdx), %r8d
	movl	%ecx, (%rdi)
	movl	%r8d, -4(%rdi,%rdx)
	ret
4:	testl	%edx, %edx
	jz	6f
	movzbl	(%rsi), %ecx
	cmpl	$1, %edx
	je	5f
	movzwl	-2(%rsi,%rdx), %r8d
	movw	%r8w, -2(%rdi,%rdx)
5:	movb	%cl, (%rdi)
6:	ret
SYM_FUNC_END(memcpy)

/* void *memmove(void *to, const void *from, size_t n) */
SYM_FUNC_START(memmove)
	movq	%rdi, %rcx
	subq	%rsi, %rcx
	cmpq	%rdx, %rcx
	jae	1f			/* no overlap, or to is below from */
	/* backwards by words, then bytes */
	movq	%rdi, %rax
2:	cmpq	$8, %rdx
	jb	3f
	movq	-8(%rsi,%rdx), %r8
	movq	%r8, -8(%rdi,%rdx)
	subq	$8, %rdx
	jmp	2b
3:	testq	%rdx, %rdx
	jz	4f
	movb	-1(%rsi,%rdx), %r8b
	movb	%r8b, -1(%rdi,%rdx)
	decq	%rdx
	jmp	3b
4:	ret
1:	negq	%rcx			/* from - to; ahead by less than n: forward, never a block that overlaps itself */
	cmpq	%rdx, %rcx
	jae	memcpy
	movq	%rdi, %rax
5:	cmpq	$8, %rcx
	jb	7f
6:	cmpq	$8, %rdx
	jb	7f
	movq	(%rsi), %r8
	movq	%r8, (%rdi)
	addq	$8, %rsi
	addq	$8, %rdi
	subq	$8, %rdx
	jmp	6b
7:	movq	%rdx, %rcx
	rep movsb
	ret
SYM_FUNC_END(memmove)

/* void *memset(void *to, int c, size_t n) */
SYM_FUNC_START(memset)
	movq	%rdi, %r9
	movzbl	%sil, %eax
	movabsq	$0x0101010101010101, %rcx
	imulq	%rcx, %rax
	cmpq	$256, %rdx
	jae	3f
1:	cmpq	$8, %rdx
	jb	2f
	movq	%rax, (%rdi)
	addq	$8, %rdi
	subq	$8, %rdx
	jmp	1b
2:	testq	%rdx, %rdx
	jz	4f
	movb	%al, (%rdi)
	incq	%rdi
	decq	%rdx
	jmp	2b
3:	movq	%rdx, %rcx
	rep stosb
4:	movq	%r9, %rax
	ret
SYM_FUNC_END(memset)

/* unsigned int do_csum(const unsigned char *buff, int len): ones' complement sum, folded to 16 bits */
SYM_FUNC_START(do_csum)
	xorl	%eax, %eax
	movl	%esi, %edx
	movl	%esi, %ecx
	shrl	$5, %ecx
	jz	2f
	clc
1:	adcq	(%rdi), %rax		/* the carry goes from block to block: neither lea nor dec touches it */
	adcq	8(%rdi), %rax
	adcq	16(%rdi), %rax
	adcq	24(%rdi), %rax
	leaq	32(%rdi), %rdi
	decl	%ecx
	jnz	1b
	adcq	$0, %rax
2:	andl	$31, %edx
3:	cmpl	$8, %edx
	jb	4f
	addq	(%rdi), %rax
	adcq	$0, %rax
	addq	$8, %rdi
	subl	$8, %edx
	jmp	3b
4:	xorl	%r8d, %r8d		/* up to 7 bytes, little endian */
	xorl	%ecx, %ecx
5:	testl	%edx, %edx
	jz	6f
	movzbl	(%rdi), %r9d
	shlq	%cl, %r9
	orq	%r9, %r8
	addl	$8, %ecx
	incq	%rdi
	decl	%edx
	jmp	5b
6:	addq	%r8, %rax
	adcq	$0, %rax
	movq	%rax, %rdx		/* 64 -> 32 -> 16 */
	shrq	$32, %rdx
	addl	%edx, %eax
	adcl	$0, %eax
	movl	%eax, %edx
	shrl	$16, %edx
	addw	%dx, %ax
	adcw	$0, %ax
	movzwl	%ax, %eax
	ret
SYM_FUNC_END(do_csum)

	.section .note.GNU-stack, "", @progbits
