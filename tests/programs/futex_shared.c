// SPDX-License-Identifier: GPL-2.0-or-later
/* Futexes in memory that two processes share, at different addresses: every operation, and who must not meet. */
#include "second.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096UL
#define FD   9
#define RW   (PROT_READ | PROT_WRITE)

struct area {
	int word[8];
	int pi;
	int stage;  /* of the second process */
	int result; /* of its last call */
	int error;  /* its errno */
	struct {
		struct robust_list_head head;
		struct robust_list entry;
		int lock;
	} robust;
};

static long futex(int *word, int op, int value, const void *timeout, int *word2, int value3)
{
	return syscall(SYS_futex, word, op, value, timeout, word2, value3);
}

/* The second page of the file; `shift` pages of something else come before it in memory. */
static struct area *map_area(int shift)
{
	char *room = (char *)MUST(mmap(NULL, (shift + 1) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

	return (struct area *)MUST(mmap(room + shift * PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED, FD, PAGE));
}

/* Wakes until somebody was there to be woken. */
static long wake_one(int *word, int op, int value3)
{
	long count;

	while (!(count = futex(word, op, 1, NULL, NULL, value3)))
		sleep_ms(1);
	return count;
}

static void second_waits(struct area *area, int *word, int op, int value3)
{
	struct timespec limit = {20, 0};
	struct timespec *timeout = &limit;

	if ((op & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET) {
		clock_gettime(CLOCK_MONOTONIC, &limit);
		limit.tv_sec += 20;
	}
	area->result = futex(word, op, 0, timeout, NULL, value3);
	area->error = area->result == -1 ? errno : 0;
	tell(&area->stage, area->stage + 1);
}

static int second(const char *role)
{
	struct area *area = map_area(3);

	tell(&area->stage, 1);
	if (!strcmp(role, "wait")) {
		second_waits(area, &area->word[0], FUTEX_WAIT, 0);
		second_waits(area, &area->word[1], FUTEX_WAIT_BITSET, 0x10);
		second_waits(area, &area->word[2], FUTEX_WAIT, 0);
		second_waits(area, &area->word[4], FUTEX_WAIT, 0);
	} else if (!strcmp(role, "pi")) {
		futex(&area->pi, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
		tell(&area->stage, 2);
		while (!(__atomic_load_n(&area->pi, __ATOMIC_SEQ_CST) & FUTEX_WAITERS))
			sleep_ms(1);
		area->result = futex(&area->pi, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
	} else if (!strcmp(role, "robust")) {
		area->robust.head.list.next = &area->robust.entry;
		area->robust.head.futex_offset =
			offsetof(struct area, robust.lock) - offsetof(struct area, robust.entry);
		area->robust.head.list_op_pending = NULL;
		area->robust.entry.next = &area->robust.head.list;
		area->robust.lock = gettid();
		syscall(SYS_set_robust_list, &area->robust.head, sizeof(area->robust.head));
		tell(&area->stage, 2);
		while (!(__atomic_load_n(&area->robust.lock, __ATOMIC_SEQ_CST) & FUTEX_WAITERS))
			sleep_ms(1);
		sleep_ms(50);
		_exit(0);
	} else if (!strcmp(role, "private")) {
		char *copy = mmap(NULL, PAGE, RW, MAP_PRIVATE, FD, PAGE);
		struct area *own = (struct area *)copy;
		struct timespec limit = {0, 300000000};

		own->word[7] = 0;
		tell(&area->stage, 2);
		area->result = futex(&own->word[7], FUTEX_WAIT, 0, &limit, NULL, 0);
		area->error = errno;
	}
	return 0;
}

static void waits_and_wakes(struct area *area)
{
	pid_t pid = start_second("wait");

	await(&area->stage, 1);
	say("woken: %ld", wake_one(&area->word[0], FUTEX_WAKE, 0));
	await(&area->stage, 2);
	say("its wait: %d %s", area->result, error_name(area->error));

	sleep_ms(50);
	SHOW(futex(&area->word[1], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
	SHOW(futex(&area->word[0], FUTEX_WAKE, 1, NULL, NULL, 0));
	SHOW(futex(&area->word[1], FUTEX_WAKE_BITSET, 1, NULL, NULL, 0x01));
	say("woken by bit: %ld", wake_one(&area->word[1], FUTEX_WAKE_BITSET, 0x30));
	await(&area->stage, 3);

	while (futex(&area->word[2], FUTEX_CMP_REQUEUE, 0, (void *)1L, &area->word[3], 0) == 0)
		sleep_ms(1);
	SHOW(futex(&area->word[2], FUTEX_CMP_REQUEUE, 0, (void *)1L, &area->word[3], 5));
	SHOW(futex(&area->word[2], FUTEX_WAKE, 1, NULL, NULL, 0));
	SHOW(futex(&area->word[3], FUTEX_REQUEUE, 0, (void *)1L, &area->word[2], 0));
	SHOW(futex(&area->word[2], FUTEX_WAKE, 1, NULL, NULL, 0));
	await(&area->stage, 4);

	sleep_ms(50);
	SHOW(futex(&area->word[5], FUTEX_WAKE_OP, 1, (void *)1L, &area->word[4],
		   FUTEX_OP(FUTEX_OP_ADD, 7, FUTEX_OP_CMP_EQ, 0)));
	say("word %d", area->word[4]);
	await(&area->stage, 5);
	say("the second ended with %d", end_of(pid));
}

static void priority_inheritance(struct area *area)
{
	pid_t pid = start_second("pi");

	await(&area->stage, 2);
	SHOW(futex(&area->pi, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0));
	SHOW_BOOL((area->pi & FUTEX_TID_MASK) == pid);
	SHOW(futex(&area->pi, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	SHOW_BOOL((area->pi & FUTEX_TID_MASK) == gettid());
	SHOW(futex(&area->pi, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	SHOW(futex(&area->pi, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
	SHOW(futex(&area->pi, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
	say("the second ended with %d", end_of(pid));
	say("its unlock: %d", area->result);
}

static void a_dead_owner(struct area *area)
{
	pid_t pid = start_second("robust");
	struct timespec limit = {20, 0};
	int seen;

	await(&area->stage, 2);
	SHOW_BOOL((area->robust.lock & FUTEX_TID_MASK) == pid);
	seen = __atomic_or_fetch(&area->robust.lock, FUTEX_WAITERS, __ATOMIC_SEQ_CST);
	SHOW(futex(&area->robust.lock, FUTEX_WAIT, seen, &limit, NULL, 0));
	say("lock %#x", area->robust.lock);
	say("the second ended with %d", end_of(pid));
}

static void private_copies(struct area *area)
{
	pid_t pid = start_second("private");

	await(&area->stage, 2);
	sleep_ms(50);
	SHOW(futex(&area->word[7], FUTEX_WAKE, 1, NULL, NULL, 0));
	say("the second ended with %d", end_of(pid));
	say("its wait: %d %s", area->result, error_name(area->error));
}

static void *wait_at(void *word)
{
	struct timespec limit = {20, 0};

	return (void *)futex(word, FUTEX_WAIT, 0, &limit, NULL, 0);
}

static void one_process_two_addresses(struct area *area)
{
	struct area *again = map_area(5);
	pthread_t thread;
	void *result;

	SHOW_BOOL(again != area);
	MUST(-pthread_create(&thread, NULL, wait_at, &again->word[6]));
	sleep_ms(50);
	SHOW(futex(&area->word[6], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
	say("woken: %ld", wake_one(&area->word[6], FUTEX_WAKE, 0));
	pthread_join(thread, &result);
	say("its wait: %ld", (long)result);
	MUST(munmap(again, PAGE));
}

/* What is no futex, or no memory. */
static void errors(struct area *area)
{
	struct timespec soon = {0, 1000000};
	int *nowhere = (int *)MUST(mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	int *read_only = (int *)MUST(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, FD, PAGE));
	int *private_read_only = (int *)MUST(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	int local = 0;

	SHOW(futex(&area->word[0], FUTEX_WAIT, 1, NULL, NULL, 0));
	SHOW(futex(&area->word[0], FUTEX_WAIT, 0, &soon, NULL, 0));
	SHOW(futex(&local, FUTEX_WAIT, 0, &soon, NULL, 0));
	SHOW(futex((int *)((char *)area->word + 1), FUTEX_WAIT, 0, &soon, NULL, 0));
	SHOW(futex(nowhere, FUTEX_WAIT, 0, &soon, NULL, 0));
	SHOW(futex(nowhere, FUTEX_WAIT_PRIVATE, 0, &soon, NULL, 0));
	SHOW(futex(nowhere, FUTEX_WAKE, 1, NULL, NULL, 0));
	SHOW(futex(nowhere, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
	SHOW(futex(read_only, FUTEX_WAIT, area->word[0], &soon, NULL, 0));
	SHOW(futex(read_only, FUTEX_WAKE, 1, NULL, NULL, 0));
	SHOW(futex(private_read_only, FUTEX_WAIT_PRIVATE, 0, &soon, NULL, 0));
	SHOW(futex(nowhere, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	SHOW(futex(nowhere, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0));
	SHOW(futex(read_only, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	SHOW(futex(nowhere, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0));
	SHOW(futex(&local, FUTEX_WAKE_OP, 1, (void *)1L, nowhere, FUTEX_OP(FUTEX_OP_SET, 1, FUTEX_OP_CMP_EQ, 0)));
	SHOW(futex(&local, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1L, nowhere,
		   FUTEX_OP(FUTEX_OP_SET, 1, FUTEX_OP_CMP_EQ, 0)));
	SHOW(futex(&local, FUTEX_CMP_REQUEUE, 1, (void *)1L, nowhere, 0));
	SHOW(futex(&local, 99, 0, NULL, NULL, 0));
	SHOW(syscall(SYS_set_robust_list, nowhere, 1));
}

int main(int argc, char **argv)
{
	struct area *area;

	if (argc > 1)
		return second(argv[1]);
	MUST(dup2(MUST(memfd_create("area", MFD_CLOEXEC)), FD));
	MUST(ftruncate(FD, 2 * PAGE));
	area = map_area(0);
	waits_and_wakes(area);
	tell(&area->stage, 0);
	priority_inheritance(area);
	tell(&area->stage, 0);
	a_dead_owner(area);
	tell(&area->stage, 0);
	private_copies(area);
	one_process_two_addresses(area);
	memset(area, 0, sizeof(*area));
	errors(area);
	return 0;
}
