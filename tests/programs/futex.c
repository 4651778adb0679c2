// SPDX-License-Identifier: GPL-2.0-or-later
/* futex(2) itself: waiting, waking, moving waiters, bit sets, priority inheritance, lists of owners that die. */
#include "show.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

static int word, other;

static long futex(int *at, int op, int value, const void *timeout, int *at2, int value3)
{
	return syscall(SYS_futex, at, op, value, timeout, at2, value3);
}

static void *wait_there(void *argument)
{
	(void)argument;
	return (void *)futex(&word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void *wait_for_bits(void *argument)
{
	return (void *)futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, (long)argument);
}

static void start(pthread_t *threads, int count, void *(*function)(void *))
{
	for (long i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, function, (void *)(i + 1));
	usleep(200000); /* so that they wait, also on a machine with much to do */
}

static void join(pthread_t *threads, int count)
{
	void *result;

	for (int i = 0; i < count; i++) {
		pthread_join(threads[i], &result);
		say("thread %d: %ld", i, (long)result);
	}
}

static void waits(void)
{
	struct timespec soon = {.tv_nsec = 5000000}, bad = {.tv_nsec = -1}, past = {0};
	pthread_t threads[4];

	SHOW(futex(&word, FUTEX_WAIT, 1, NULL, NULL, 0));
	SHOW(futex(&word, FUTEX_WAIT, 0, &soon, NULL, 0));
	SHOW(futex(&word, FUTEX_WAIT_PRIVATE, 0, &bad, NULL, 0));
	SHOW(futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 0, &past, NULL, ~0));
	SHOW(futex(&word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0, &past, NULL, ~0));
	SHOW(futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, 0));
	SHOW(futex((int *)((char *)&word + 1), FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0));
	SHOW(futex((int *)8, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0));
	SHOW(futex((int *)8, FUTEX_WAIT, 0, NULL, NULL, 0));
	SHOW(futex(&word, 77, 0, NULL, NULL, 0));
	SHOW(futex(&word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
	start(threads, 4, wait_there);
	SHOW(futex(&word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
	usleep(100000);
	SHOW(futex(&word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0));
	join(threads, 4);
	start(threads, 4, wait_for_bits);
	SHOW(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, 4));
	usleep(100000);
	SHOW(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, 2));
	usleep(100000);
	SHOW(futex(&word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0));
	join(threads, 4);
}

static void moves(void)
{
	pthread_t threads[4];

	start(threads, 4, wait_there);
	SHOW(futex(&word, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)2, &other, 5));
	SHOW(futex(&word, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)2, &other, 0));
	usleep(100000);
	SHOW(futex(&other, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0));
	usleep(100000);
	SHOW(futex(&word, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &other, FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0)));
	say("other is %d", other);
	other = 0;
	join(threads, 4);
}

static int pi;

static void *hold_pi(void *argument)
{
	(void)argument;
	SHOW(futex(&pi, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0));
	usleep(20000);
	SHOW(futex(&pi, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0));
	return NULL;
}

static void inheritance(void)
{
	struct timespec past = {.tv_sec = 1};
	pthread_t thread;

	SHOW(futex(&pi, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0));
	start(&thread, 1, hold_pi);
	SHOW(futex(&pi, FUTEX_TRYLOCK_PI_PRIVATE, 0, NULL, NULL, 0));
	SHOW(futex(&pi, FUTEX_LOCK_PI_PRIVATE, 0, &past, NULL, 0));
	SHOW_BOOL(pi & FUTEX_WAITERS || pi);
	SHOW(futex(&pi, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0));
	SHOW(futex(&pi, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0));
	SHOW_BOOL((pi & FUTEX_TID_MASK) == gettid());
	SHOW(futex(&pi, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0));
	pthread_join(thread, NULL);
}

static struct {
	struct robust_list_head head;
	struct robust_list entry;
	int futex;
} owned;

static void *die_owning(void *argument)
{
	owned.head.list.next = &owned.entry;
	owned.entry.next = &owned.head.list;
	owned.head.futex_offset = (char *)&owned.futex - (char *)&owned.entry;
	MUST(syscall(SYS_set_robust_list, &owned.head, sizeof(owned.head)));
	owned.futex = gettid();
	return argument;
}

static void robust(void)
{
	struct robust_list_head *head;
	size_t size;
	pthread_t thread;

	SHOW(syscall(SYS_get_robust_list, 0, &head, &size));
	SHOW_BOOL(head && size == sizeof(*head));
	SHOW(syscall(SYS_set_robust_list, head, 3));
	start(&thread, 1, die_owning);
	pthread_join(thread, NULL);
	say("owner died: %s", owned.futex & FUTEX_OWNER_DIED ? "yes" : "no");
}

static void on_alarm(int signo)
{
	(void)signo;
}

static void interrupted(void)
{
	struct sigaction action = {.sa_handler = on_alarm};
	struct timespec soon = {.tv_nsec = 20000000};

	MUST(sigaction(SIGALRM, &action, NULL));
	ualarm(5000, 0);
	SHOW(futex(&word, FUTEX_WAIT_PRIVATE, 0, &soon, NULL, 0));
	action.sa_flags = SA_RESTART;
	MUST(sigaction(SIGALRM, &action, NULL));
	ualarm(5000, 0);
	SHOW(futex(&word, FUTEX_WAIT_PRIVATE, 0, &soon, NULL, 0));
}

static void several(void)
{
	struct futex_waitv waiters[2] = {
		{.val = 0, .uaddr = (unsigned long)&word, .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG},
		{.val = 0, .uaddr = (unsigned long)&other, .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG},
	};
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	SHOW(syscall(SYS_futex_waitv, waiters, 2, 0, &until, CLOCK_MONOTONIC));
	waiters[1].val = 1;
	SHOW(syscall(SYS_futex_waitv, waiters, 2, 0, &until, CLOCK_MONOTONIC));
	SHOW(syscall(SYS_futex_waitv, waiters, 0, 0, &until, CLOCK_MONOTONIC));
	SHOW(syscall(SYS_futex_waitv, waiters, 2, 1, &until, CLOCK_MONOTONIC));
}

int main(void)
{
	waits();
	moves();
	inheritance();
	robust();
	interrupted();
	several();
	return 0;
}
