/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_CHECKSUM_H
#define _ASM_WT_CHECKSUM_H
/* Internet checksum of len bytes, folded to 16 bits (RFC 1071); string.S. */
unsigned int do_csum(const unsigned char *buff, int len);
#define do_csum do_csum
#include <asm-generic/checksum.h>
#endif
