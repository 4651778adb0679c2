/* SPDX-License-Identifier: GPL-2.0-or-later WITH Linux-syscall-note */
#include "../../../../x86/include/uapi/asm/msgbuf.h"
