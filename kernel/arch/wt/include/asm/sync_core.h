/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_SYNC_CORE_H
#define _ASM_WT_SYNC_CORE_H

/* Threads of a node run in turn on one thread of the host: a CPU sees the code that it wrote itself (Intel SDM vol. 3,
 * 9.1.3), and the host's kernel synchronizes the next one when it moves the thread. */
static inline void sync_core_before_usermode(void) {}
#endif
