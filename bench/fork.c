/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What processes cost: the calls of one measurement, as many times as asked for. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* One end of two pipes: the first sends first. */
struct end {
	int first, from, to;
	long rounds;
};

/* Each wakes the other: two switches a round. */
static void *exchange(void *ends)
{
	const struct end *end = ends;
	char byte = 0;

	if (end->first)
		must(write(end->to, &byte, 1) == 1, "first write");
	for (long i = 0; i < end->rounds; i++) {
		must(read(end->from, &byte, 1) == 1, "read");
		if (!end->first || i < end->rounds - 1)
			must(write(end->to, &byte, 1) == 1, "write");
	}
	return NULL;
}

static void make_ends(long rounds, struct end ends[2])
{
	int there[2], back[2];

	must(pipe(there) == 0 && pipe(back) == 0, "pipe");
	ends[0] = (struct end){1, back[0], there[1], rounds};
	ends[1] = (struct end){0, there[0], back[1], rounds};
}

/* Between parent and forked child. */
static void pingpong(long rounds)
{
	struct end ends[2];
	pid_t pid;

	make_ends(rounds, ends);
	pid = fork();
	must(pid >= 0, "fork");
	exchange(&ends[!pid]);
	if (!pid)
		_exit(0);
	must(wait(NULL) == pid, "wait");
}

/* Between two threads. */
static void threads(long rounds)
{
	struct end ends[2];
	pthread_t thread;

	make_ends(rounds, ends);
	must(pthread_create(&thread, NULL, exchange, &ends[1]) == 0, "pthread_create");
	exchange(&ends[0]);
	must(pthread_join(thread, NULL) == 0, "pthread_join");
}

/* Between two programs, each started with this, that know of two FIFOs in `folder`. */
static void meet(long rounds, const char *folder, int first)
{
	struct end end = {.first = first, .rounds = rounds};
	int there, back;

	must(chdir(folder) == 0, folder);
	must(mkfifo("there", 0600) == 0 || errno == EEXIST, "mkfifo");
	must(mkfifo("back", 0600) == 0 || errno == EEXIST, "mkfifo");
	there = open("there", first ? O_WRONLY : O_RDONLY);
	back = open("back", first ? O_RDONLY : O_WRONLY);
	must(there >= 0 && back >= 0, "open");
	end.to = first ? there : back;
	end.from = first ? back : there;
	exchange(&end);
}

/* Children that are all there at once, until the last one is. */
static void children(long count)
{
	int gate[2], status;
	char byte;

	must(pipe(gate) == 0, "pipe");
	for (long i = 0; i < count; i++) {
		pid_t pid = fork();

		must(pid >= 0, "fork");
		if (!pid) {
			close(gate[1]);
			_exit(read(gate[0], &byte, 1) == 0 ? 7 : 1);
		}
	}
	close(gate[1]);
	for (long i = 0; i < count; i++)
		must(wait(&status) > 0 && WEXITSTATUS(status) == 7, "wait");
}

static void spawn(long count, char **args)
{
	int status;
	pid_t pid;

	while (count--) {
		must(posix_spawn(&pid, args[0], NULL, NULL, args, environ) == 0, args[0]);
		must(waitpid(pid, &status, 0) == pid && status == 0, "waitpid");
	}
}

int main(int argc, char **argv)
{
	long count = argc > 2 ? atol(argv[2]) : 0;

	must(count > 0,
	     "usage: fork (fork|pingpong|threads|meet|children|spawn) COUNT [BYTES | FOLDER FIRST | PROGRAM ...]");
	if (!strcmp(argv[1], "fork"))
		fork_exit_wait(count, argc > 3 ? strtoul(argv[3], NULL, 0) : 1);
	else if (!strcmp(argv[1], "pingpong"))
		pingpong(count);
	else if (!strcmp(argv[1], "threads"))
		threads(count);
	else if (!strcmp(argv[1], "meet") && argc == 5)
		meet(count, argv[3], atoi(argv[4]));
	else if (!strcmp(argv[1], "children"))
		children(count);
	else if (argc > 3)
		spawn(count, argv + 3);
	else
		must(0, "what?");
	return 0;
}
