/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_ENTRY_COMMON_H
#define _ASM_WT_ENTRY_COMMON_H
#include <asm/stacktrace.h>
#endif
