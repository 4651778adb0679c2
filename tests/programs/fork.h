/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the programs that fork share. Each says the same on every Linux, whoever of its processes runs first. */
#ifndef FORK_H
#define FORK_H
#include "show.h"

#include <sys/mman.h>
#include <sys/wait.h>

/* What must hold of memory, in too many places to say each. */
#define CHECK(what)                                                                    \
	do {                                                                           \
		if (!(what)) {                                                         \
			say("line %d: not so: %s (errno %d)", __LINE__, #what, errno); \
			_exit(98);                                                     \
		}                                                                      \
	} while (0)

/* Waits for a child and returns its exit status; dies if a signal ended it. */
__attribute__((unused)) static int reap(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* One byte each way: who waits for whom. */
__attribute__((unused)) static void tell(int fd)
{
	CHECK(write(fd, "x", 1) == 1);
}

__attribute__((unused)) static void await(int fd)
{
	char byte;

	CHECK(read(fd, &byte, 1) == 1);
}
#endif
