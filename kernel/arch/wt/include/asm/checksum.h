/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_CHECKSUM_H
#define _ASM_WT_CHECKSUM_H
#include <linux/types.h>

/* Internet checksum of len bytes, folded to 16 bits (RFC 1071); string.S. */
unsigned int do_csum(const unsigned char *buff, int len);
#define do_csum do_csum

/* A sum of 32-bit words, folded to 32 bits with its carries. */
static __always_inline u32 wt_csum_fold64(u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (u32)sum + (u32)(sum >> 32);
}

/* Checksum of an IPv4 header of ihl words, at least 5 (RFC 791): one or two for each packet, so without a call. */
static inline __sum16 ip_fast_csum(const void *iph, unsigned int ihl)
{
	const u32 *word = iph;
	u64 sum = (u64)word[0] + word[1] + word[2] + word[3] + word[4];
	u32 folded;
	unsigned int i;

	for (i = 5; i < ihl; i++)
		sum += word[i];
	folded = wt_csum_fold64(sum);
	folded = (folded & 0xffff) + (folded >> 16);
	return (__force __sum16)~(u16)(folded + (folded >> 16));
}
#define ip_fast_csum ip_fast_csum

/* Sum of the pseudo-header of TCP and UDP over IPv4 (RFC 9293, 3.1), not folded to 16 bits. */
static inline __wsum csum_tcpudp_nofold(__be32 saddr, __be32 daddr, __u32 len, __u8 proto, __wsum sum)
{
	u64 all = (u64)(__force u32)sum + (__force u32)saddr + (__force u32)daddr;

	/* Little endian: the 16-bit words of length and protocol are the host's, moved up by a byte. */
	return (__force __wsum)wt_csum_fold64(all + ((u64)(proto + len) << 8));
}
#define csum_tcpudp_nofold csum_tcpudp_nofold

#include <asm-generic/checksum.h>
#endif
