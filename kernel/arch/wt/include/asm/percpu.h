/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_PERCPU_H
#define _ASM_WT_PERCPU_H
/*
 * The generic this_cpu operations switch interrupts off for the time of a load and a store. Here none can come between
 * the two (see irqflags.h), so they are what the generic code calls raw.
 */
#include <asm-generic/percpu.h>

#undef this_cpu_generic_to_op
#undef this_cpu_generic_add_return
#undef this_cpu_generic_xchg
#undef this_cpu_generic_try_cmpxchg
#undef this_cpu_generic_cmpxchg
#define this_cpu_generic_to_op raw_cpu_generic_to_op
#define this_cpu_generic_add_return raw_cpu_generic_add_return
#define this_cpu_generic_xchg raw_cpu_generic_xchg
#define this_cpu_generic_try_cmpxchg raw_cpu_generic_try_cmpxchg
#define this_cpu_generic_cmpxchg raw_cpu_generic_cmpxchg
#endif
