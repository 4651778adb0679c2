/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_PGTABLE_H
#define _ASM_WT_PGTABLE_H

#include <asm-generic/pgtable-nopmd.h>
#include <linux/mm_types.h>

#ifndef __ASSEMBLY__
/* There are no page tables: the host's are the only ones. These satisfy generic code. */
#define PGDIR_SHIFT 21
#define PGDIR_SIZE (1UL << PGDIR_SHIFT)
#define PGDIR_MASK (~(PGDIR_SIZE - 1))
#define PTRS_PER_PGD 1
#define PTRS_PER_PTE 1
#define pgd_present(pgd) (1)
#define pgd_none(pgd) (0)
#define pgd_bad(pgd) (0)
#define pgd_clear(pgdp)
#define PAGE_NONE __pgprot(0)
#define PAGE_SHARED __pgprot(0)
#define PAGE_COPY __pgprot(0)
#define PAGE_READONLY __pgprot(0)
#define PAGE_KERNEL __pgprot(0)
#define swapper_pg_dir ((pgd_t *)0)
typedef pte_t *pte_addr_t;
#define pgprot_noncached(prot) (prot)
#define pgprot_writecombine(prot) (prot)
#define pgprot_device(prot) (prot)

extern void *wt_zero_page;
#define ZERO_PAGE(vaddr) virt_to_page(wt_zero_page)

#define VMALLOC_START 0UL
#define VMALLOC_END (~0UL)
#define FIRST_USER_ADDRESS 0UL
#endif
#endif
