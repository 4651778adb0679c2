/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What processes cost: the calls of one measurement, as many times as asked for. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void must(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

/* A process with `bytes` of memory in use forks a child that exits at once. */
static void fork_exit_wait(long count, size_t bytes)
{
	char *memory = malloc(bytes);
	int status;

	must(memory != NULL, "malloc");
	memset(memory, 1, bytes);
	while (count--) {
		pid_t pid = fork();

		must(pid >= 0, "fork");
		if (!pid)
			_exit(memory[bytes - 1]);
		must(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 1, "waitpid");
	}
}

/* Parent and child wake each other: two switches a round. */
static void pingpong(long rounds)
{
	int there[2], back[2];
	char byte = 0;
	pid_t pid;

	must(pipe(there) == 0 && pipe(back) == 0, "pipe");
	pid = fork();
	must(pid >= 0, "fork");
	while (rounds--) {
		if (pid)
			must(write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1, "parent");
		else
			must(read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1, "child");
	}
	if (!pid)
		_exit(0);
	must(wait(NULL) == pid, "wait");
}

static void spawn(long count)
{
	char *args[] = {"true", NULL};
	int status;
	pid_t pid;

	while (count--) {
		must(posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ) == 0, "posix_spawn");
		must(waitpid(pid, &status, 0) == pid && status == 0, "waitpid");
	}
}

int main(int argc, char **argv)
{
	long count = argc > 2 ? atol(argv[2]) : 0;

	must(count > 0, "usage: fork (fork|pingpong|spawn) COUNT [BYTES]");
	if (!strcmp(argv[1], "fork"))
		fork_exit_wait(count, argc > 3 ? strtoul(argv[3], NULL, 0) : 1);
	else if (!strcmp(argv[1], "pingpong"))
		pingpong(count);
	else
		spawn(count);
	return 0;
}
