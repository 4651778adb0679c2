// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A thread that never waits holds a lock but for one call of each turn. Another that waits for the lock has to get it,
 * however many calls a turn has, and although the first goes on asking until the clock has moved.
 */
#include "show.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#define TURNS_MAX 400000L

static atomic_int held;
static atomic_bool had;

static void take(void)
{
	int free = 0;

	while (!atomic_compare_exchange_strong(&held, &free, 1)) {
		syscall(SYS_futex, &held, FUTEX_WAIT_PRIVATE, 1, NULL);
		free = 0;
	}
}

static void give(void)
{
	atomic_store(&held, 0);
	syscall(SYS_futex, &held, FUTEX_WAKE_PRIVATE, 1);
}

static void *other(void *unused)
{
	take();
	atomic_store(&had, true);
	give();
	return unused;
}

static void spend(int calls)
{
	while (calls--)
		syscall(SYS_getppid);
}

static long clock_ns(void)
{
	struct timespec now;

	MUST(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now));
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* Turns of `calls` calls until the clock has moved, then `between` calls, and so on. */
static void contest(int calls, int between)
{
	pthread_t thread;
	long turns = 0;

	atomic_store(&had, false);
	take();
	MUST(-pthread_create(&thread, NULL, other, NULL));
	while (!atomic_load(&had) && turns < TURNS_MAX) {
		long start = clock_ns();

		do {
			spend(calls - 2);
			give();
			take();
			turns++;
		} while (clock_ns() == start && turns < TURNS_MAX);
		spend(between);
	}
	say("turns of %d, %d between: the other thread %s", calls, between,
	    atomic_load(&had) ? "had the lock" : "starved");
	give();
	MUST(-pthread_join(thread, NULL));
}

int main(void)
{
	for (int calls = 2; calls <= 8; calls++)
		for (int between = 0; between < 8; between++)
			contest(calls, between);
	return 0;
}
