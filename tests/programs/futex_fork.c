// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie no-pie static
/* Futexes after fork: parent and child meet in shared memory only, though all of it has the same addresses. */
#include "second.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096UL

struct area {
	int word, stage, own_wakes, own_private_wakes;
};

static struct area *area;
static int own;

static long futex(int *word, int op, int value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

static void *wait_own(void *op)
{
	struct timespec limit = {20, 0};

	return (void *)futex(&own, (int)(long)op, 0, &limit);
}

/* A thread of the parent waits at its own word; the child wakes whoever waits at its copy of it. */
static void private_words(int op, int wake)
{
	pthread_t thread;
	void *result;
	pid_t pid;

	tell(&area->stage, 0);
	MUST(-pthread_create(&thread, NULL, wait_own, (void *)(long)op));
	sleep_ms(50);
	pid = MUST(fork());
	if (!pid) {
		area->own_wakes = futex(&own, FUTEX_WAKE, 1, NULL);
		area->own_private_wakes = futex(&own, FUTEX_WAKE_PRIVATE, 1, NULL);
		_exit(0);
	}
	say("the child ended with %d", end_of(pid));
	say("it woke %d and %d", area->own_wakes, area->own_private_wakes);
	say("the parent wakes %ld", futex(&own, wake, 1, NULL));
	pthread_join(thread, &result);
	say("its wait: %ld", (long)result);
}

static void shared_word(void)
{
	struct timespec limit = {20, 0};
	pid_t pid = MUST(fork());
	long count;

	if (!pid)
		_exit(futex(&area->word, FUTEX_WAIT, 0, &limit) ? 1 : 6);
	sleep_ms(50);
	say("private: %ld", futex(&area->word, FUTEX_WAKE_PRIVATE, 1, NULL));
	while (!(count = futex(&area->word, FUTEX_WAKE, 1, NULL)))
		sleep_ms(1);
	say("shared: %ld", count);
	say("the child ended with %d", end_of(pid));
}

/* A mutex of many processes, in memory without a file. */
static void contended(void)
{
	struct {
		pthread_mutex_t mutex;
		int counter;
	} *shared = (void *)MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	pthread_mutexattr_t attr;
	pid_t pids[4];
	int bad = 0;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->mutex, &attr);
	for (int i = 0; i < 4; i++) {
		pids[i] = MUST(fork());
		for (int j = 0; !pids[i] && j < 300; j++) {
			int value;

			pthread_mutex_lock(&shared->mutex);
			value = shared->counter;
			if (j % 16 == 0)
				sleep_ms(1);
			shared->counter = value + 1;
			pthread_mutex_unlock(&shared->mutex);
		}
		if (!pids[i])
			_exit(0);
	}
	for (int i = 0; i < 4; i++)
		bad += end_of(pids[i]) != 0;
	say("counter %d, %d failed", shared->counter, bad);
}

int main(void)
{
	area = (struct area *)MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	private_words(FUTEX_WAIT, FUTEX_WAKE);
	private_words(FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE);
	shared_word();
	contended();
	return 0;
}
