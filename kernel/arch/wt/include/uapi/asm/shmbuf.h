/* SPDX-License-Identifier: GPL-2.0-or-later WITH Linux-syscall-note */
/* What programs see; ipc/shm.c includes asm/shmbuf.h around it. */
#include "../../../../x86/include/uapi/asm/shmbuf.h"
