// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* Children, their children, and siblings that all live at once; they go in any order. */
#include "fork.h"

#define MEMBERS 6

static long cells[MEMBERS * 600];
static int ready[2], go[MEMBERS][2];

static void own(int number)
{
	for (int i = 0; i < MEMBERS * 600; i++)
		cells[i] = cells[i] * 10 + number;
}

static long signature(void)
{
	for (int i = 1; i < MEMBERS * 600; i++)
		CHECK(cells[i] == cells[0]);
	return cells[0];
}

static void live(int number)
{
	own(number);
	tell(ready[1]);
	await(go[number][0]);
	say("member %d: %ld", number, signature());
	tell(ready[1]);
	_exit(number);
}

/* 1 and 2 are children, 3 and 4 children of 2, 5 a child of 4. */
static void second(void)
{
	pid_t three, four, five;

	own(2);
	three = MUST(fork());
	if (!three)
		live(3);
	four = MUST(fork());
	if (!four) {
		own(4);
		five = MUST(fork());
		if (!five)
			live(5);
		tell(ready[1]);
		await(go[4][0]);
		say("member 4: %ld", signature());
		tell(ready[1]);
		CHECK(reap(five) == 5);
		_exit(4);
	}
	tell(ready[1]);
	await(go[2][0]);
	say("member 2: %ld", signature());
	tell(ready[1]);
	CHECK(reap(four) == 4);
	CHECK(reap(three) == 3);
	_exit(2);
}

int main(void)
{
	static const int order[] = {3, 1, 5, 4, 2};
	pid_t one, two;
	char *grown;

	CHECK(pipe(ready) == 0);
	for (int i = 0; i < MEMBERS; i++)
		CHECK(pipe(go[i]) == 0);
	one = MUST(fork());
	if (!one)
		live(1);
	two = MUST(fork());
	if (!two)
		second();
	for (int i = 0; i < 5; i++)
		await(ready[0]);
	CHECK(signature() == 0);
	grown = malloc(300000);
	memset(grown, 1, 300000);
	for (int i = 0; i < 5; i++) {
		tell(go[order[i]][1]);
		await(ready[0]);
	}
	CHECK(reap(one) == 1);
	CHECK(reap(two) == 2);
	CHECK(signature() == 0 && grown[299999] == 1);
	say("member 0: 0");
	/* A hundred more, one after the other. */
	for (int i = 0; i < 100; i++) {
		pid_t pid = MUST(fork());

		if (!pid) {
			own(i);
			_exit(i);
		}
		CHECK(reap(pid) == i);
	}
	CHECK(signature() == 0);
	return 0;
}
