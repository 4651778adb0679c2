/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_CACHEFLUSH_H
#define _ASM_WT_CACHEFLUSH_H
#include <linux/mm.h>
#include <linux/uaccess.h>
/* Another task's memory, at an address it may have unmapped since: never a plain copy. */
#define copy_to_user_page(vma, page, vaddr, dst, src, len) ((void)wt_user_copy((dst), (src), (len)))
#define copy_from_user_page(vma, page, vaddr, dst, src, len) ((void)wt_user_copy((dst), (src), (len)))
#include <asm-generic/cacheflush.h>
#endif
