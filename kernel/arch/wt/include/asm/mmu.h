/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_MMU_H
#define _ASM_WT_MMU_H
typedef struct {
	unsigned long end_brk; /* generic NOMMU code wants it; the host keeps the real one */
	unsigned long as;      /* the host's address space, 0: none */
	unsigned int low;      /* it holds a non-PIE image that may need swapping in */
} mm_context_t;
#endif
