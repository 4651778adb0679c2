// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* The time stamp counter: never goes back, and who waits for it gets there. */
#include "show.h"

#include <pthread.h>
#include <stdatomic.h>
#include <x86intrin.h>

#define TICKS 2000000

static atomic_int released;

static void *release(void *unused)
{
	(void)unused;
	released = 1;
	return NULL;
}

int main(void)
{
	unsigned long long first = __rdtsc(), last = first, next;
	unsigned int cpu = 77;
	bool back = false;
	pthread_t thread;

	while (last - first < TICKS) {
		next = __rdtsc();
		back |= next < last;
		last = next;
	}
	SHOW_BOOL(back);
	while (last - first < 2ULL * TICKS) {
		next = __rdtscp(&cpu);
		back |= next < last;
		last = next;
	}
	SHOW_BOOL(back);
	SHOW_BOOL((cpu & 0xfff) < 0xfff);
	MUST(pthread_create(&thread, NULL, release, NULL) ? -1 : 0);
	while (!released)
		last = __rdtsc();
	say("released");
	MUST(pthread_join(thread, NULL) ? -1 : 0);
	return 0;
}
