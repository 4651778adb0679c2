/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_SIGNAL_H
#define _ASM_WT_SIGNAL_H

#ifndef __ASSEMBLY__
#define _NSIG 64
#define _NSIG_BPW 64
#define _NSIG_WORDS (_NSIG / _NSIG_BPW)

typedef unsigned long old_sigset_t;
typedef struct {
	unsigned long sig[_NSIG_WORDS];
} sigset_t;
#endif

#include <uapi/asm/signal.h>

#define __ARCH_HAS_SA_RESTORER
#ifndef __ASSEMBLY__
#include <uapi/asm/sigcontext.h>
#endif
#endif
