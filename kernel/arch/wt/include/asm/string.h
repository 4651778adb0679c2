/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_STRING_H
#define _ASM_WT_STRING_H
#define __HAVE_ARCH_MEMCPY
#define __HAVE_ARCH_MEMMOVE
#define __HAVE_ARCH_MEMSET
void *memcpy(void *to, const void *from, __kernel_size_t n);
void *memmove(void *to, const void *from, __kernel_size_t n);
void *memset(void *to, int c, __kernel_size_t n);
#endif
