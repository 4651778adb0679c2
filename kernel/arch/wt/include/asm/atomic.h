/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_ATOMIC_H
#define _ASM_WT_ATOMIC_H
/*
 * One CPU and no asynchronous interrupts: nothing can come between the load and the store of a plain operation, so
 * plain operations are atomic.
 */
#include <linux/types.h>
#include <asm/barrier.h>
#include <asm/cmpxchg.h>

#define arch_atomic_read(v) READ_ONCE((v)->counter)
#define arch_atomic_set(v, i) WRITE_ONCE((v)->counter, (i))
#define arch_atomic64_read(v) READ_ONCE((v)->counter)
#define arch_atomic64_set(v, i) WRITE_ONCE((v)->counter, (i))

#define WT_ATOMIC_OP(pfx, type, ctr, op, c_op)                                      \
	static __always_inline void pfx##_##op(type i, ctr *v)                      \
	{                                                                           \
		WRITE_ONCE(v->counter, READ_ONCE(v->counter) c_op i);               \
	}                                                                           \
	static __always_inline type pfx##_fetch_##op(type i, ctr *v)                \
	{                                                                           \
		type old = READ_ONCE(v->counter);                                   \
                                                                                    \
		WRITE_ONCE(v->counter, old c_op i);                                 \
		return old;                                                         \
	}
#define WT_ATOMIC_RETURN(pfx, type, ctr, op, c_op)                                  \
	static __always_inline type pfx##_##op##_return(type i, ctr *v)             \
	{                                                                           \
		type new = READ_ONCE(v->counter) c_op i;                            \
                                                                                    \
		WRITE_ONCE(v->counter, new);                                        \
		return new;                                                         \
	}
#define WT_ATOMIC(pfx, type, ctr)                 \
	WT_ATOMIC_OP(pfx, type, ctr, add, +)      \
	WT_ATOMIC_OP(pfx, type, ctr, sub, -)      \
	WT_ATOMIC_OP(pfx, type, ctr, and, &)      \
	WT_ATOMIC_OP(pfx, type, ctr, or, |)       \
	WT_ATOMIC_OP(pfx, type, ctr, xor, ^)      \
	WT_ATOMIC_RETURN(pfx, type, ctr, add, +)  \
	WT_ATOMIC_RETURN(pfx, type, ctr, sub, -)

WT_ATOMIC(arch_atomic, int, atomic_t)
WT_ATOMIC(arch_atomic64, s64, atomic64_t)

#undef WT_ATOMIC
#undef WT_ATOMIC_RETURN
#undef WT_ATOMIC_OP

#define ATOMIC64_INIT(i) { (i) }

#define arch_atomic_add_return arch_atomic_add_return
#define arch_atomic_sub_return arch_atomic_sub_return
#define arch_atomic_fetch_add arch_atomic_fetch_add
#define arch_atomic_fetch_sub arch_atomic_fetch_sub
#define arch_atomic_fetch_and arch_atomic_fetch_and
#define arch_atomic_fetch_or arch_atomic_fetch_or
#define arch_atomic_fetch_xor arch_atomic_fetch_xor
#define arch_atomic64_add_return arch_atomic64_add_return
#define arch_atomic64_sub_return arch_atomic64_sub_return
#define arch_atomic64_fetch_add arch_atomic64_fetch_add
#define arch_atomic64_fetch_sub arch_atomic64_fetch_sub
#define arch_atomic64_fetch_and arch_atomic64_fetch_and
#define arch_atomic64_fetch_or arch_atomic64_fetch_or
#define arch_atomic64_fetch_xor arch_atomic64_fetch_xor
#endif
