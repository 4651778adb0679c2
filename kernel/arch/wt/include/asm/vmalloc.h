/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_VMALLOC_H
#define _ASM_WT_VMALLOC_H
#endif
