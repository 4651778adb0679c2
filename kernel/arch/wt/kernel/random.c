// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Random numbers below a bound. The generic inline function (linux/random.h) draws 8, 16 or 32 bits where the compiler
 * knows the bound, and its out-of-line namesake (drivers/char/random.c) always 32: what is drawn, and so all that
 * follows, would depend on the compiler's inlining. Every call of the latter comes here (see wt-wrapped) and draws what
 * the former would.
 */
#include <linux/random.h>

u32 __wrap___get_random_u32_below(u32 ceil);

static u32 wt_random_word(unsigned int bits)
{
	switch (bits) {
	case 8:
		return get_random_u8();
	case 16:
		return get_random_u16();
	default:
		return get_random_u32();
	}
}

/* Uniform in [0, ceil) by the high part of a product, as D. Lemire describes (arXiv:1805.10941); ceil 0: any number. */
u32 __wrap___get_random_u32_below(u32 ceil)
{
	unsigned int bits = ceil <= 1U << 8 ? 8 : ceil <= 1U << 16 ? 16 : 32;
	u64 range = 1ULL << bits, product;
	u32 surplus; /* low parts below this would make some results likelier than others */

	if (!ceil)
		return get_random_u32();
	if (ceil == 1)
		return 0;
	surplus = range % ceil;
	do {
		product = (u64)ceil * wt_random_word(bits);
	} while ((product & (range - 1)) < surplus);
	return product >> bits;
}
