/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_TIMEX_H
#define _ASM_WT_TIMEX_H
typedef unsigned long cycles_t;
unsigned long wt_now(void);
static inline cycles_t get_cycles(void)
{
	return wt_now();
}
#define get_cycles get_cycles
/* Constant: only the seed may reach the random state. Not 0, which the kernel takes for a missing counter. */
#define random_get_entropy() 1UL
#endif
