/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reads the time stamp counter as often as its argument says. */
#include <stdio.h>
#include <stdlib.h>
#include <x86intrin.h>

int main(int argc, char **argv)
{
	long reads = argc > 1 ? atol(argv[1]) : 0;
	unsigned long long first = __rdtsc(), last = first;

	for (long i = 0; i < reads; i++)
		last = __rdtsc();
	printf("%ld reads, %llu ticks\n", reads, last - first);
	return 0;
}
