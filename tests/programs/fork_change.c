// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* Either of two that came from a fork unmaps, protects, moves and grows its memory; the other sees none of it. */
#include "fork.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>

#define PAGE 4096
#define RW   (PROT_READ | PROT_WRITE)

static sigjmp_buf fault;

static void on_fault(int signo)
{
	siglongjmp(fault, signo);
}

/* 0: neither, 1: readable, 2: readable and writable */
static int access_of(volatile char *at)
{
	volatile int found = 0;

	if (sigsetjmp(fault, 1) == 0) {
		char value = *at;

		found = 1;
		*at = value;
		found = 2;
	}
	return found;
}

static char *map(int prot, int pages)
{
	char *at = mmap(NULL, pages * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

struct area {
	char *plain, *sealed, *none, *file, *moved, *brk;
};

static void unchanged(const struct area *a)
{
	CHECK(a->plain[0] == 1 && a->plain[9 * PAGE] == 2 && access_of(a->plain + 5 * PAGE) == 2);
	CHECK(a->sealed[0] == 3 && a->sealed[3 * PAGE] == 4 && access_of(a->sealed) == 1);
	CHECK(access_of(a->none) == 0);
	CHECK(memcmp(a->file, "\177ELF", 4) == 0 && access_of(a->file) == 1);
	CHECK(a->moved[0] == 5 && a->moved[3 * PAGE] == 6);
	CHECK(sbrk(0) == a->brk + 10 * PAGE && a->brk[9 * PAGE] == 7);
}

static void change(struct area *a)
{
	char *to;

	CHECK(munmap(a->plain + 5 * PAGE, PAGE) == 0 && access_of(a->plain + 5 * PAGE) == 0);
	CHECK(mprotect(a->plain, PAGE, PROT_NONE) == 0 && access_of(a->plain) == 0);
	CHECK(mprotect(a->sealed + PAGE, PAGE, RW) == 0 && access_of(a->sealed + PAGE) == 2);
	CHECK(a->sealed[0] == 3 && a->sealed[3 * PAGE] == 4);
	a->sealed[PAGE] = 33;
	CHECK(mprotect(a->none, 2 * PAGE, RW) == 0 && a->none[0] == 8);
	CHECK(mprotect(a->file, PAGE, RW) == 0);
	a->file[0] = 9;
	to = mremap(a->moved, 4 * PAGE, 40 * PAGE, MREMAP_MAYMOVE);
	CHECK(to != MAP_FAILED && to[0] == 5 && to[3 * PAGE] == 6 && to[39 * PAGE] == 0);
	CHECK(brk(a->brk + 50 * PAGE) == 0 && a->brk[9 * PAGE] == 7 && a->brk[49 * PAGE] == 0);
	memset(a->brk, 1, 50 * PAGE);
	CHECK(madvise(a->plain + 6 * PAGE, 4 * PAGE, MADV_DONTNEED) == 0 && a->plain[9 * PAGE] == 0);
	a->plain[9 * PAGE] = 11;
	CHECK(mmap(a->plain + 7 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	/* More than a slot of addresses: a new place that the other has not. */
	to = mmap(NULL, 6UL << 30, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(to != MAP_FAILED);
	to[5UL << 30] = 1;
	a->none = to + (5UL << 30);
}

static void changed(const struct area *a)
{
	CHECK(access_of(a->plain + 5 * PAGE) == 0 && access_of(a->plain) == 0 && a->plain[9 * PAGE] == 11);
	CHECK(access_of(a->plain + 7 * PAGE) == 1);
	CHECK(a->sealed[0] == 3 && a->sealed[PAGE] == 33 && a->sealed[3 * PAGE] == 4);
	CHECK(a->none[0] == 1 && a->file[0] == 9 && a->brk[49 * PAGE] == 1);
}

int main(void)
{
	int program = open("/proc/self/exe", O_RDONLY), to_child[2], to_parent[2];

	CHECK(program >= 0 && pipe(to_child) == 0 && pipe(to_parent) == 0);
	signal(SIGSEGV, on_fault);
	for (int changer = 0; changer < 2; changer++) {
		struct area a = {
			.plain = map(RW, 10),
			.sealed = map(RW, 4),
			.none = map(RW, 2),
			.file = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, program, 0),
			.moved = map(RW, 4),
			.brk = sbrk(10 * PAGE),
		};
		pid_t pid;

		a.plain[0] = 1, a.plain[9 * PAGE] = 2;
		a.sealed[0] = 3, a.sealed[3 * PAGE] = 4;
		a.none[0] = 8;
		a.moved[0] = 5, a.moved[3 * PAGE] = 6;
		a.brk[9 * PAGE] = 7;
		CHECK(mprotect(a.sealed, 4 * PAGE, PROT_READ) == 0 && mprotect(a.none, 2 * PAGE, PROT_NONE) == 0);
		pid = MUST(fork());
		unchanged(&a);
		if (changer == (pid == 0))
			change(&a);
		for (int i = 0; i < 3; i++) {
			if (pid)
				tell(to_child[1]), await(to_parent[0]);
			else
				await(to_child[0]), tell(to_parent[1]);
			if (changer == (pid == 0))
				changed(&a);
			else
				unchanged(&a);
		}
		if (!pid)
			_exit(1);
		CHECK(reap(pid) == 1);
		/* A third one, made of memory that was changed. */
		pid = MUST(fork());
		if (changer)
			unchanged(&a);
		else
			changed(&a);
		if (!pid)
			_exit(2);
		CHECK(reap(pid) == 2);
		say("changer %d: good", changer);
		CHECK(brk(a.brk) == 0);
	}
	return 0;
}
