// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A storm of damaged registers: contexts SEED COUNT. In each of COUNT children registers get values that nobody gives them,
 * then a signal's frame is damaged anywhere, the vector state included, and given back. Says what became of them all, in
 * numbers and in a sum over their ends in order.
 *
 * After the damage a child runs only the few instructions of after_damage, which need no register, so none of them loops.
 */
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define FLAGS_DRAWN   0x244cd5UL /* all that a program may set but TF */
#define FLAG_TF	      0x100UL
#define FX_BYTES      512
#define STATE_SIZE_AT 468 /* of the area with its second magic number */
#define STATE_MAX     4096U
#define CHANGES_MAX   6

static uint64_t drawn;

/* splitmix64 */
static uint64_t draw(void)
{
	uint64_t z = drawn += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static uint64_t below(uint64_t bound)
{
	return draw() % bound;
}

static uint64_t wild(uint64_t before)
{
	switch (below(10)) {
	case 0:
		return 0;
	case 1:
		return below(4096);
	case 2:
		return -1UL - below(4096);
	case 3:
		return 0x8000000000000000 ^ draw() >> 1;
	case 4:
		return 0xffff800000000000 | draw() >> 17;
	case 5:
		return 0x00007ffffffff000 - below(1UL << 20);
	case 6:
		return draw() >> below(64);
	case 7:
		return 0x800000000000 + below(4096);
	case 8:
		return before ^ 1UL << below(64);
	default:
		return before + below(17) - 8;
	}
}

/* Returns true where a small change of an address could lead to code that loops. */
static bool leads_to_code(size_t at)
{
	size_t rip = offsetof(ucontext_t, uc_mcontext.gregs) + 8 * REG_RIP;

	return at > rip - 8 && at < rip + 8;
}

static void damage(int signo, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	char *fp = (char *)uc->uc_mcontext.fpregs;
	uint32_t size = *(uint32_t *)(fp + STATE_SIZE_AT),
		 bytes = size < STATE_MAX && size > FX_BYTES ? size : FX_BYTES;
	uint64_t changes = 1 + below(CHANGES_MAX);

	(void)signo;
	(void)info;
	uc->uc_mcontext.gregs[REG_RIP] += 2; /* ud2 */
	while (changes--) {
		bool in_state = below(2);
		/* What says how the rest is to be read, more often than the rest. */
		size_t control = below(2) ? 24 + 4 * below(4) : 464 + 4 * below(32);
		size_t end = in_state ? bytes : sizeof(ucontext_t);
		size_t at = in_state && below(2) ? control : below(end - 8);
		char *to = (in_state ? fp : (char *)uc) + at;
		uint64_t word;

		if (at + 8 > end)
			continue;
		memcpy(&word, to, 8);
		word = !in_state && leads_to_code(at) ? 0x8000000000000000 ^ draw() >> below(16) : wild(word);
		memcpy(to, &word, below(3) ? 8 : 1 + below(8));
	}
	if (!below(4))
		uc->uc_mcontext.gregs[REG_EFL] = draw();
	if (!below(8))
		uc->uc_mcontext.gregs[REG_RSP] = wild(uc->uc_mcontext.gregs[REG_RSP]);
}

static void wild_registers(void)
{
	uint32_t mxcsr = draw() & 0xffff;
	uint16_t control = draw();

	if (below(2))
		asm volatile("ldmxcsr %0" ::"m"(mxcsr));
	if (below(2))
		asm volatile("fldcw %0; fld1; fldz; fdivrp" ::"m"(control));
	if (below(2))
		asm volatile("mov %0, %%gs" ::"r"(below(2) ? 0 : 0x2b));
	if (below(4) == 0)
		asm volatile("mov %0, %%ds; mov %0, %%es" ::"r"(below(2) ? 0 : 0x2b));
	if (below(2))
		asm volatile("lea -128(%%rsp), %%rsp; pushq %0; popfq; lea 128(%%rsp), %%rsp" ::"r"(
				     0x202 | (draw() & FLAGS_DRAWN) | (below(8) ? 0 : FLAG_TF))
			     : "memory", "cc");
}

/* The frame is given back at the ud2; then calls that need nothing of what may be damaged. */
asm(".globl after_damage\n"
    "after_damage:\n"
    "	mov	$24, %eax\n" /* sched_yield */
    "	syscall\n"
    "	ud2\n"
    "	mov	$39, %eax\n" /* getpid */
    "	syscall\n"
    "	mov	$9, %eax\n" /* mmap */
    "	xor	%edi, %edi\n"
    "	mov	$4096, %esi\n"
    "	mov	$3, %edx\n"
    "	mov	$0x22, %r10d\n"
    "	mov	$-1, %r8\n"
    "	xor	%r9d, %r9d\n"
    "	syscall\n"
    "	movl	$1, 1(%rax)\n"
    "	mov	$57, %eax\n" /* fork */
    "	syscall\n"
    "	mov	$24, %eax\n"
    "	syscall\n"
    "	mov	$231, %eax\n" /* exit_group */
    "	xor	%edi, %edi\n"
    "	syscall\n"
    "	hlt\n");
void after_damage(void);

static void child(void)
{
	static char stack[1 << 16];
	struct sigaction action = {.sa_sigaction = damage, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};

	sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof(stack)}, NULL);
	sigaction(SIGILL, &action, NULL);
	if (below(2))
		wild_registers();
	after_damage();
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, sum = 0;
	long count = argc > 2 ? atol(argv[2]) : 1000, exits = 0, signals[65] = {0};

	for (long i = 0; i < count; i++) {
		int status;
		pid_t pid;

		drawn = seed * 0x100000001b3 + i;
		pid = fork();
		if (!pid)
			child();
		if (pid < 0 || waitpid(pid, &status, 0) != pid) {
			perror("child");
			return 1;
		}
		if (WIFEXITED(status))
			exits++;
		else
			signals[WTERMSIG(status)]++;
		sum = (sum ^ status) * 0x100000001b3;
	}
	printf("%ld children: %ld ended by themselves", count, exits);
	for (int signo = 1; signo < 65; signo++)
		if (signals[signo])
			printf(", %ld by signal %d", signals[signo], signo);
	printf("; sum %016lx\n", sum);
	return 0;
}
