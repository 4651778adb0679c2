/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_STACKTRACE_H
#define _ASM_WT_STACKTRACE_H
#include <linux/types.h>
static inline bool on_thread_stack(void)
{
	return true;
}
#endif
