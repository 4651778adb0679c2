// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A program with stray pointers: accesses the addresses that a file lists, in hexadecimal, one a line, and goes on after
 * each SIGSEGV. Prints how many were stopped, and how: as where nothing is mapped, or otherwise.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile unsigned long target;
static volatile sig_atomic_t like_linux;

static void on_fault(int signo, siginfo_t *info, void *context)
{
	(void)context;
	if (signo == SIGSEGV && info->si_code == SEGV_MAPERR && (unsigned long)info->si_addr == target)
		like_linux++;
	siglongjmp(back, 1);
}

__attribute__((noinline)) static void touch(char how, unsigned long address)
{
	if (how == 'w')
		*(volatile unsigned long *)address = 0x4141414141414141;
	else if (how == 'r')
		(void)*(volatile unsigned long *)address;
	else
		((void (*)(void))address)();
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	FILE *list = fopen(argv[2], "r");
	unsigned long address;
	int all = 0, stopped = 0;

	if (argc != 3 || !list)
		return 2;
	sigaction(SIGSEGV, &action, NULL);
	while (fscanf(list, "%lx", &address) == 1) {
		target = address;
		all++;
		if (sigsetjmp(back, 1))
			stopped++;
		else
			touch(argv[1][0], address);
	}
	printf("stopped %d of %d, %d as on Linux\n", stopped, all, (int)like_linux);
	return 0;
}
