/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_ARCHRANDOM_H
#define _ASM_WT_ARCHRANDOM_H
#include <linux/types.h>
/* The node's seeded stream, from the host. */
size_t wt_random_longs(unsigned long *v, size_t max_longs);
static inline size_t __must_check arch_get_random_longs(unsigned long *v, size_t max_longs)
{
	return wt_random_longs(v, max_longs);
}
static inline size_t __must_check arch_get_random_seed_longs(unsigned long *v, size_t max_longs)
{
	return wt_random_longs(v, max_longs);
}
#endif
