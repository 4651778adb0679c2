// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* A thread forks: the child has that thread only, with its stack and its thread-local memory. */
#include "fork.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

static __thread int mine;
static int turns, to_thread[2], from_thread[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *other(void *unused)
{
	mine = 100;
	for (;;) {
		await(to_thread[0]);
		turns++;
		CHECK(mine == 100);
		tell(from_thread[1]);
	}
	return unused;
}

static void *forker(void *unused)
{
	int local = 5;
	pid_t pid;

	mine = 7;
	pthread_mutex_lock(&lock);
	pid = MUST(fork());
	if (!pid) {
		pthread_t again;

		CHECK(mine == 7 && local == 5 && getpid() == gettid());
		pthread_mutex_unlock(&lock);
		/* The copy of the other thread's memory is there, the thread is not. */
		CHECK(turns == 3);
		mine = 8, local = 6;
		/* Threads of its own take the stacks of those that are gone. */
		CHECK(pipe(to_thread) == 0 && pipe(from_thread) == 0);
		CHECK(pthread_create(&again, NULL, other, NULL) == 0);
		tell(to_thread[1]);
		await(from_thread[0]);
		CHECK(turns == 4 && mine == 8 && local == 6);
		say("child");
		_exit(9);
	}
	pthread_mutex_unlock(&lock);
	CHECK(reap(pid) == 9);
	CHECK(mine == 7 && local == 5 && turns == 3);
	return unused;
}

/* CLONE_CHILD_SETTID and CLONE_CHILD_CLEARTID are about the child's memory. */
static void raw_clone(void)
{
	static volatile int tid = -1;
	int status;
	pid_t pid = syscall(SYS_clone, CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD, NULL, NULL, &tid, NULL);

	CHECK(pid >= 0);
	if (!pid) {
		CHECK(tid == syscall(SYS_getpid));
		syscall(SYS_exit, 11);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 11);
	CHECK(tid == -1);
	pid = syscall(SYS_clone, CLONE_PARENT_SETTID | SIGCHLD, NULL, &tid, NULL, NULL);
	if (!pid)
		syscall(SYS_exit, 12);
	CHECK(tid == pid && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 12);
}

int main(void)
{
	pthread_t a, b;

	CHECK(pipe(to_thread) == 0 && pipe(from_thread) == 0);
	CHECK(pthread_create(&a, NULL, other, NULL) == 0);
	for (int i = 0; i < 3; i++)
		tell(to_thread[1]), await(from_thread[0]);
	CHECK(pthread_create(&b, NULL, forker, NULL) == 0);
	CHECK(pthread_join(b, NULL) == 0);
	tell(to_thread[1]), await(from_thread[0]);
	CHECK(turns == 4);
	raw_clone();
	say("parent");
	return 0;
}
