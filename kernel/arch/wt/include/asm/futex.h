/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_FUTEX_H
#define _ASM_WT_FUTEX_H
/*
 * Only kernel/futex/futex.h includes this file, after everything else that it needs.
 *
 * Programs have address spaces of their own and share pages of files, so their futexes are keyed as with an MMU: private
 * ones by mm and address, others by what is at the address. What follows makes that of the generic code, which on a
 * machine without MMU would key all by address alone.
 */
#include <asm-generic/futex.h>

#undef CONFIG_MMU
#define CONFIG_MMU 1

/* get_futex_key() asks for the page at an address, only to look at its mapping: futex.c has one to look at. */
#define get_user_pages_fast wt_futex_page
int wt_futex_page(unsigned long address, int nr_pages, unsigned int gup_flags, struct page **page);

/* An access that faulted had no page to wait for: the host's memory is always in place. */
#define fixup_user_fault(mm, address, fault_flags, unlocked) (-EFAULT)
#endif
