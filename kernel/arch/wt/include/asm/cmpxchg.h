/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_CMPXCHG_H
#define _ASM_WT_CMPXCHG_H
/* Plain loads and stores, for the reason given in atomic.h. */
#include <linux/compiler.h>
#include <linux/types.h>
#include <linux/irqflags.h>

#define arch_xchg(ptr, new)                                                \
	({                                                                 \
		__auto_type __x_ptr = (ptr);                               \
		__unqual_scalar_typeof(*__x_ptr) __x_new = (new), __x_old; \
                                                                           \
		__x_old = READ_ONCE(*__x_ptr);                             \
		WRITE_ONCE(*__x_ptr, __x_new);                             \
		__x_old;                                                   \
	})

#define arch_cmpxchg(ptr, old, new)                                                     \
	({                                                                              \
		__auto_type __c_ptr = (ptr);                                            \
		__unqual_scalar_typeof(*__c_ptr) __c_old = (__typeof__(*__c_ptr))(old); \
		__unqual_scalar_typeof(*__c_ptr) __c_new = (__typeof__(*__c_ptr))(new); \
		__unqual_scalar_typeof(*__c_ptr) __c_now = READ_ONCE(*__c_ptr);         \
                                                                                        \
		if (__c_now == __c_old)                                                 \
			WRITE_ONCE(*__c_ptr, __c_new);                                  \
		__c_now;                                                                \
	})

#define arch_cmpxchg_local arch_cmpxchg
#define arch_cmpxchg64 arch_cmpxchg
#define arch_cmpxchg64_local arch_cmpxchg
#endif
