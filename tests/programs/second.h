/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For programs of this folder that need a second process with an address space of its own: another copy of the program,
 * which finds the name of its role as its first argument. What it has to say goes through shared memory or its exit
 * status to the first, so that the order of lines does not depend on who is faster.
 */
#ifndef SECOND_H
#define SECOND_H
#include "show.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

__attribute__((unused)) static pid_t start_second(const char *role)
{
	char *argv[] = {(char *)"second", (char *)role, NULL};
	pid_t pid;
	int error = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ);

	if (error) {
		fprintf(stderr, "cannot start myself: %s\n", strerror(error));
		_exit(SHOW_BROKEN);
	}
	return pid;
}

/* How it ended: its exit status, or minus a signal. */
__attribute__((unused)) static int end_of(pid_t pid)
{
	int status;

	MUST(waitpid(pid, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

__attribute__((unused)) static void sleep_ms(long ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};

	while (nanosleep(&time, &time) == -1 && errno == EINTR)
		;
}

/* Waits until a word that another process writes is `value`. */
__attribute__((unused)) static void await(const int *word, int value)
{
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value)
		sleep_ms(1);
}

__attribute__((unused)) static void tell(int *word, int value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}
#endif
