/* SPDX-License-Identifier: GPL-2.0-or-later WITH Linux-syscall-note */
#ifndef _UAPI_ASM_WT_UNISTD_H
#define _UAPI_ASM_WT_UNISTD_H
#include <asm/unistd_64.h>
#endif
