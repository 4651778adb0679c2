// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* 10,000 turns between parent and child; each checks and changes its own memory in every turn. */
#include "fork.h"

#define TURNS 10000

static long counts[2000];

static void turn(long *heap, long *stack, long number)
{
	int at = number % 2000;

	CHECK(counts[at] == heap[at] && heap[at] == stack[at]);
	counts[at] += number;
	heap[at] += number;
	stack[at] += number;
}

int main(void)
{
	long *heap = calloc(2000, sizeof(long)), stack[2000] = {0}, sum = 0;
	int there[2], back[2];
	pid_t pid;

	CHECK(pipe(there) == 0 && pipe(back) == 0);
	pid = MUST(fork());
	for (long i = 0; i < TURNS; i++) {
		long got = i;

		if (pid) {
			turn(heap, stack, 2 * i);
			CHECK(write(there[1], &got, sizeof(got)) == sizeof(got));
			CHECK(read(back[0], &got, sizeof(got)) == sizeof(got));
			CHECK(got == -i);
		} else {
			CHECK(read(there[0], &got, sizeof(got)) == sizeof(got));
			CHECK(got == i);
			turn(heap, stack, 3 * i);
			got = -i;
			CHECK(write(back[1], &got, sizeof(got)) == sizeof(got));
		}
	}
	for (int i = 0; i < 2000; i++)
		sum += counts[i];
	if (!pid) {
		say("child %ld", sum);
		_exit(5);
	}
	CHECK(reap(pid) == 5);
	say("parent %ld", sum);
	return 0;
}
