// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* After fork, memory of every kind is the same in both at first, and private ever after. */
#include "fork.h"

#include <pthread.h>

static long data = 1;
static long bss[4096];
static __thread long tls = 2;
static const long *const relocated = &data;

struct memory {
	long *heap, *big, *stack, *mapped, *untouched;
};

static void fill(struct memory *m, long value)
{
	data = value;
	for (int i = 0; i < 4096; i++)
		bss[i] = value + i;
	tls = value + 1;
	for (int i = 0; i < 1000; i++)
		m->heap[i] = value + 2 * i;
	for (int i = 0; i < 1 << 17; i += 512)
		m->big[i] = value + 3 * i;
	for (int i = 0; i < 5000; i++)
		m->stack[i] = value + 4 * i;
	for (int i = 0; i < 1 << 16; i += 100)
		m->mapped[i] = value + 5 * i;
}

static void verify(const struct memory *m, long value)
{
	CHECK(*relocated == value);
	for (int i = 0; i < 4096; i++)
		CHECK(bss[i] == value + i);
	CHECK(tls == value + 1);
	for (int i = 0; i < 1000; i++)
		CHECK(m->heap[i] == value + 2 * i);
	for (int i = 0; i < 1 << 17; i += 512)
		CHECK(m->big[i] == value + 3 * i);
	for (int i = 0; i < 5000; i++)
		CHECK(m->stack[i] == value + 4 * i);
	for (int i = 0; i < 1 << 16; i += 100)
		CHECK(m->mapped[i] == value + 5 * i);
}

int main(void)
{
	long stack[5000];
	struct memory m = {
		.heap = malloc(8000),
		.big = malloc(1 << 20),
		.stack = stack,
		.mapped = mmap(NULL, 1 << 19, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		/* Larger than any node's memory: copying it all would fail. */
		.untouched = mmap(NULL, 2UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				  -1, 0),
	};
	int to_child[2], to_parent[2];
	pid_t pid;

	CHECK(m.mapped != MAP_FAILED && m.untouched != MAP_FAILED);
	CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
	fill(&m, 1000);
	m.untouched[123456789] = 7;
	pid = MUST(fork());
	if (!pid) {
		verify(&m, 1000);
		CHECK(m.untouched[123456789] == 7 && m.untouched[1] == 0);
		fill(&m, 2000);
		m.untouched[1] = 9;
		tell(to_parent[1]);
		await(to_child[0]);
		verify(&m, 2000);
		CHECK(m.untouched[1] == 9);
		say("child keeps its own");
		_exit(3);
	}
	await(to_parent[0]);
	verify(&m, 1000);
	CHECK(m.untouched[1] == 0);
	fill(&m, 3000);
	tell(to_child[1]);
	CHECK(reap(pid) == 3);
	verify(&m, 3000);
	CHECK(m.untouched[123456789] == 7);
	say("parent keeps its own");
	return 0;
}
