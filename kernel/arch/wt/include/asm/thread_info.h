/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_THREAD_INFO_H
#define _ASM_WT_THREAD_INFO_H

#include <linux/const.h>
#include <asm/page.h>

#define THREAD_SIZE_ORDER 2
#define THREAD_SIZE (PAGE_SIZE << THREAD_SIZE_ORDER)

#ifndef __ASSEMBLY__
#include <asm/processor.h>

struct thread_info {
	unsigned long flags;
	unsigned long syscall_work;
	int preempt_count;
	int cpu;
};

#define INIT_THREAD_INFO(tsk)                          \
	{                                              \
		.flags = 0,                            \
		.preempt_count = INIT_PREEMPT_COUNT,   \
	}
#endif

#define TIF_NOTIFY_RESUME 1
#define TIF_SIGPENDING 2
#define TIF_NEED_RESCHED 3
#define TIF_NOTIFY_SIGNAL 4
#define TIF_RESTORE_SIGMASK 5
#define TIF_MEMDIE 6
#define TIF_POLLING_NRFLAG 7
#define TIF_32BIT 8

#define _TIF_NOTIFY_RESUME (1 << TIF_NOTIFY_RESUME)
#define _TIF_SIGPENDING (1 << TIF_SIGPENDING)
#define _TIF_NEED_RESCHED (1 << TIF_NEED_RESCHED)
#define _TIF_NOTIFY_SIGNAL (1 << TIF_NOTIFY_SIGNAL)
#endif
