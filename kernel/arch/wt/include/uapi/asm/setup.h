/* SPDX-License-Identifier: GPL-2.0-or-later WITH Linux-syscall-note */
#ifndef _UAPI_ASM_WT_SETUP_H
#define _UAPI_ASM_WT_SETUP_H
#define COMMAND_LINE_SIZE 2048
#endif
