// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* What is mapped MAP_SHARED is one memory for all that came from the fork. */
#include "fork.h"

#include <fcntl.h>

int main(void)
{
	long *counter = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int file = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0600);
	pid_t pids[4];
	long *in_file;

	CHECK(counter != MAP_FAILED && file >= 0 && ftruncate(file, 4096) == 0);
	in_file = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(in_file != MAP_FAILED);
	counter[100000] = 1;
	for (int i = 0; i < 4; i++) {
		pids[i] = MUST(fork());
		if (pids[i])
			continue;
		for (int j = 0; j < 1000; j++)
			__atomic_add_fetch(&counter[0], 1, __ATOMIC_RELAXED);
		__atomic_add_fetch(&in_file[i], i + 1, __ATOMIC_RELAXED);
		CHECK(counter[100000] == 1);
		_exit(0);
	}
	for (int i = 0; i < 4; i++)
		CHECK(reap(pids[i]) == 0);
	say("%ld %ld %ld %ld %ld", counter[0], in_file[0], in_file[1], in_file[2], in_file[3]);
	/* What is made by one after the fork is the other's only if it is told. */
	if (!MUST(fork())) {
		CHECK(munmap(counter, 1 << 20) == 0);
		in_file[7] = 77;
		_exit(0);
	}
	CHECK(wait(NULL) > 0);
	say("%ld %ld", counter[0], in_file[7]);
	unlink("shared");
	return 0;
}
