// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A program that others may harm: tells where its data, heap, stack and shared memory are, and again and again whether they
 * are as they were. A forked child, whose memory takes turns with it, does the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (256 * 1024)

static unsigned char data[BYTES];

static int intact(unsigned char *const areas[], int count, unsigned char mark)
{
	for (int i = 0; i < count; i++)
		for (int at = 0; at < BYTES; at++)
			if (areas[i][at] != mark)
				return 0;
	return 1;
}

int main(void)
{
	unsigned char stack[BYTES];
	unsigned char *shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned char *areas[] = {data, malloc(BYTES), stack, shared};
	int child, status = 0;

	memset(shared, 'S', BYTES);
	for (int i = 0; i < 3; i++) {
		memset(areas[i], 'P', BYTES);
		printf("%lx\n", (unsigned long)areas[i]);
	}
	printf("%lx\n", (unsigned long)shared);
	fflush(stdout);
	child = fork();
	if (child == 0)
		for (int i = 0; i < 3; i++)
			memset(areas[i], 'C', BYTES);
	for (int round = 0; round < 8; round++) {
		usleep(500000);
		fprintf(stderr, "%s %d: %s, %s\n", child ? "parent" : "child", round,
			intact(areas, 3, child ? 'P' : 'C') ? "intact" : "DAMAGED",
			intact(&shared, 1, 'S') ? "intact" : "DAMAGED");
	}
	if (child)
		wait(&status);
	return status;
}
