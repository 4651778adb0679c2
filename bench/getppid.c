/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Makes the number of getppid() calls that its argument says: the cheapest system call there is. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long calls = argc > 1 ? atol(argv[1]) : 0;
	long parent = 0;

	for (long i = 0; i < calls; i++)
		parent += getppid();
	printf("%ld calls, sum of answers %ld\n", calls, parent);
	return 0;
}
