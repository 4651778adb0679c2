// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie no-pie static
/* Faults: what a handler is told, and that it can change the registers and go on. */
#include "show.h"

#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>

static sigjmp_buf out;
static volatile int signo_seen, code_seen, trap_seen, error_seen;
static volatile uintptr_t address_seen, cr2_seen;

static void note(int signo, siginfo_t *info, void *context)
{
	const greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;

	signo_seen = signo;
	code_seen = info->si_code;
	address_seen = (uintptr_t)info->si_addr;
	trap_seen = regs[REG_TRAPNO];
	error_seen = regs[REG_ERR];
	cr2_seen = regs[REG_CR2];
	siglongjmp(out, 1);
}

#define FAULT(text, code)                                                                                      \
	do {                                                                                                   \
		if (!sigsetjmp(out, 1)) {                                                                      \
			code;                                                                                  \
			say("%s: nothing", text);                                                              \
		} else {                                                                                       \
			say("%s: signal %d code %d trap %d error %#x", text, signo_seen, code_seen, trap_seen, \
			    error_seen);                                                                       \
		}                                                                                              \
	} while (0)

static void kinds(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
	struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
	char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	volatile int zero = 0, lowest = INT32_MIN;
	volatile long sink;

	for (int i = 0; i < 5; i++)
		MUST(sigaction(signals[i], &action, NULL));
	FAULT("read of NULL", sink = *(volatile char *)8);
	say("address %#lx, cr2 %#lx", address_seen, cr2_seen);
	FAULT("write to NULL", *(volatile char *)16 = 1);
	FAULT("write to read-only", *(volatile char *)page = 1);
	SHOW_BOOL(address_seen == (uintptr_t)page && cr2_seen == (uintptr_t)page);
	FAULT("call of NULL", ((void (*)(void))0)());
	say("address %#lx", address_seen);
	FAULT("call of data", ((void (*)(void))page)());
	SHOW_BOOL(address_seen == (uintptr_t)page);
	FAULT("read of a non-canonical address", sink = *(volatile char *)0x8000000000000000);
	say("address %#lx", address_seen);
	FAULT("jump to a non-canonical address", ((void (*)(void))0x8000000000000000)());
	say("address %#lx", address_seen);
	FAULT("read of the kernel", sink = *(volatile char *)0xffffffff81000000);
	say("address %#lx", address_seen);
	FAULT("division by zero", sink = 5 / zero);
	FAULT("division overflow", sink = lowest / (zero - 1));
	FAULT("ud2", asm volatile("ud2"));
	FAULT("int3", asm volatile("int3"));
	FAULT("hlt", asm volatile("hlt"));
	FAULT("in", asm volatile("in $0x80, %%al" ::: "rax"));
	FAULT("cli", asm volatile("cli"));
	FAULT("int 0x81", asm volatile("int $0x81"));
	FAULT("misaligned movaps", asm volatile("movaps 1(%0), %%xmm0" ::"r"(page) : "xmm0"));
	FAULT("push without a stack", asm volatile("mov %%rsp, %%rbx; mov $4096, %%esp; push %%rax; mov %%rbx, %%rsp" ::
							   : "rbx", "memory"));
	(void)sink;
}

static void *fixable;

static void repair(int signo, siginfo_t *info, void *context)
{
	(void)context;
	say("repairing after %d, code %d", signo, info->si_code);
	MUST(mprotect(fixable, 4096, PROT_READ | PROT_WRITE));
}

static void skip(int signo, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)signo;
	(void)info;
	regs[REG_RIP] += 2; /* ud2 */
	regs[REG_RBX] = 0x1234567890abcdef;
	regs[REG_R12] = 12;
	regs[REG_EFL] |= 1; /* carry */
}

static void handlers_that_go_on(void)
{
	struct sigaction action = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO};
	unsigned long rbx = 1, r12 = 2;
	unsigned char carry;

	fixable = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(sigaction(SIGSEGV, &action, NULL));
	*(volatile int *)fixable = 7;
	say("stored %d", *(volatile int *)fixable);
	action.sa_sigaction = skip;
	MUST(sigaction(SIGILL, &action, NULL));
	asm volatile("mov $0, %%ebx; clc; ud2; setc %2; mov %%rbx, %0; mov %%r12, %1"
		     : "=r"(rbx), "=r"(r12), "=r"(carry)
		     :
		     : "rbx", "r12", "cc");
	say("rbx %lx r12 %lu carry %d", rbx, r12, carry);
	/* The same through every register. */
	asm volatile("ud2" ::: "rbx", "r12", "cc");
}

/* Registers that a fault's handler must leave as they were, the vector registers among them. */
static void registers_kept(void)
{
	static const double in[2] = {1.5, -2.25};
	double out_of[2];
	unsigned long before[8] = {1, 2, 3, 4, 5, 6, 7, 8}, after[8];

	asm volatile("mov 0(%2), %%rax; mov 8(%2), %%rcx; mov 16(%2), %%rdx; mov 24(%2), %%r8; mov 32(%2), %%r9;"
		     "mov 40(%2), %%r10; mov 48(%2), %%r11; mov 56(%2), %%r15; movupd (%3), %%xmm7; ud2;"
		     "mov %%rax, 0(%1); mov %%rcx, 8(%1); mov %%rdx, 16(%1); mov %%r8, 24(%1); mov %%r9, 32(%1);"
		     "mov %%r10, 40(%1); mov %%r11, 48(%1); mov %%r15, 56(%1); movupd %%xmm7, %0"
		     : "=m"(out_of)
		     : "r"(after), "r"(before), "r"(in)
		     : "rax", "rcx", "rdx", "rbx", "r8", "r9", "r10", "r11", "r12", "r15", "xmm7", "memory", "cc");
	SHOW_BOOL(!memcmp(before, after, sizeof(before)));
	SHOW_BOOL(!memcmp(in, out_of, sizeof(in)));
}

static void blocked(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	sigprocmask(SIG_BLOCK, &set, NULL);
	say("a blocked fault ends the program, handler or not");
	*(volatile int *)8 = 1;
}

int main(void)
{
	kinds();
	handlers_that_go_on();
	registers_kept();
	blocked();
	return 0;
}
