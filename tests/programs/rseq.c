// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/*
 * rseq(2) and membarrier(2): what the C library registered for each thread, and a sequence that a signal aborts. (What
 * interrupts it is a fault of its own: nothing in it may depend on when another thread runs.)
 */
#include "show.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#define AT_RSEQ_ALIGN	     28
#endif

/* Bytes that the C library registers; __rseq_size may count those in use only. */
#define REGISTERED 32

static long rseq(void *area, unsigned int length, int flags, unsigned int signature)
{
	return syscall(SYS_rseq, area, length, flags, signature);
}

static long membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

static struct rseq *library(void)
{
	return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
}

static bool knows_its_cpu(void)
{
	const volatile struct rseq *area = library();

	return area->cpu_id == area->cpu_id_start && (int)area->cpu_id == sched_getcpu();
}

static void again(void)
{
	alignas(32) static struct rseq other;

	SHOW(rseq(library(), REGISTERED, 0, RSEQ_SIG));
	SHOW(rseq(library(), REGISTERED, 0, RSEQ_SIG + 1));
	SHOW(rseq(library(), REGISTERED + 32, 0, RSEQ_SIG));
	SHOW(rseq(&other, sizeof(other), 0, RSEQ_SIG));
	SHOW(rseq(&other, sizeof(other), RSEQ_FLAG_UNREGISTER, RSEQ_SIG));
	SHOW(rseq(library(), REGISTERED, RSEQ_FLAG_UNREGISTER, RSEQ_SIG + 1));
	SHOW(rseq(library(), REGISTERED, RSEQ_FLAG_UNREGISTER | 2, RSEQ_SIG));
}

static void *of_ones_own(void *unused)
{
	alignas(32) static struct rseq own;

	(void)unused;
	SHOW_BOOL(knows_its_cpu());
	SHOW(rseq(library(), REGISTERED, RSEQ_FLAG_UNREGISTER, RSEQ_SIG));
	SHOW_BOOL((int)library()->cpu_id == RSEQ_CPU_ID_UNINITIALIZED);
	SHOW(rseq(library(), REGISTERED, RSEQ_FLAG_UNREGISTER, RSEQ_SIG));
	SHOW(rseq((char *)&own + 8, 32, 0, 1));
	SHOW(rseq(&own, 16, 0, 1));
	SHOW(rseq(&own, 32, 2, 1));
	SHOW(rseq((void *)-4096L, 32, 0, 1));
	own.cpu_id = -1;
	own.rseq_cs = 1;
	SHOW(rseq(&own, 32, 0, 1));
	SHOW_BOOL(own.rseq_cs == 0);
	SHOW_BOOL((int)own.cpu_id == sched_getcpu());
	SHOW(rseq(&own, 32, RSEQ_FLAG_UNREGISTER, 1));
	SHOW(rseq(library(), REGISTERED, 0, RSEQ_SIG));
	SHOW_BOOL(knows_its_cpu());
	return NULL;
}

static volatile unsigned long seen_ip;

static void on_illegal(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	seen_ip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
}

/* A sequence from 1 to 2 with an illegal instruction in the middle; 4 is where it goes when it is aborted. */
static int aborted_at(unsigned long *abort_ip)
{
	uint64_t *sequence = (uint64_t *)&library()->rseq_cs;
	unsigned long abort = 0;
	int aborted = 0;

	asm volatile(".pushsection .data.rel.rseq_cs, \"aw\"\n"
		     ".balign 32\n"
		     "3: .long 0, 0\n"
		     ".quad 1f, 2f - 1f, 4f\n"
		     ".popsection\n"
		     "leaq 4f(%%rip), %[abort]\n"
		     "leaq 3b(%%rip), %%rax\n"
		     "movq %%rax, %[sequence]\n"
		     "1: nop\n"
		     "ud2\n"
		     "2: jmp 5f\n"
		     ".byte 0x0f, 0xb9, 0x3d\n"
		     ".long %c[signature]\n"
		     "4: movl $1, %[aborted]\n"
		     "5:\n"
		     : [aborted] "+r"(aborted), [abort] "+&r"(abort), [sequence] "=m"(*sequence)
		     : [signature] "i"(RSEQ_SIG)
		     : "rax", "memory", "cc");
	*abort_ip = abort;
	return aborted;
}

static void sequences(void)
{
	struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
	unsigned long abort_ip;
	int turn;

	MUST(sigaction(SIGILL, &action, NULL));
	for (turn = 0; turn < 3; turn++) {
		SHOW(aborted_at(&abort_ip));
		SHOW_BOOL(seen_ip == abort_ip);
		SHOW_BOOL(library()->rseq_cs == 0);
		sched_yield();
	}
}

/* A descriptor whose place to go to lacks the signature: the program is killed. */
static void without_signature(void)
{
	alignas(32) static struct rseq_cs sequence;

	sequence.start_ip = (uintptr_t)on_illegal;
	sequence.post_commit_offset = 1;
	sequence.abort_ip = (uintptr_t)sequences;
	library()->rseq_cs = (uintptr_t)&sequence;
	raise(SIGUSR1);
	say("still here");
}

static void nothing(int signal)
{
	(void)signal;
}

static void children(void)
{
	pid_t child;
	int status;

	fflush(NULL);
	child = MUST(fork());
	if (!child) {
		SHOW_BOOL(knows_its_cpu());
		again();
		SHOW(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
		signal(SIGUSR1, nothing);
		without_signature();
		_exit(0);
	}
	MUST(waitpid(child, &status, 0));
	SHOW_BOOL(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void barriers(void)
{
	long known = MEMBARRIER_CMD_GLOBAL | MEMBARRIER_CMD_GLOBAL_EXPEDITED |
		     MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED | MEMBARRIER_CMD_PRIVATE_EXPEDITED |
		     MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED | MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE |
		     MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE | MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ |
		     MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ;

	SHOW_BOOL((membarrier(MEMBARRIER_CMD_QUERY) & known) == known);
	SHOW(membarrier(1 << 30));
	SHOW(membarrier(MEMBARRIER_CMD_GLOBAL));
	SHOW(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
	SHOW(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED));
	SHOW(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
	SHOW(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE));
	SHOW(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE));
	SHOW(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE));
	SHOW(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ));
	SHOW(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ));
	SHOW(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ));
	SHOW(membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED));
	SHOW(membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED));
}

int main(void)
{
	unsigned int cpu = sched_getcpu();
	pthread_t thread;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	MUST(sched_setaffinity(0, sizeof(one), &one));
	SHOW_BOOL(__rseq_size >= 20);
	SHOW_BOOL(getauxval(AT_RSEQ_FEATURE_SIZE) == 0 || getauxval(AT_RSEQ_FEATURE_SIZE) >= 28);
	SHOW_BOOL(getauxval(AT_RSEQ_ALIGN) == 0 || getauxval(AT_RSEQ_ALIGN) == 32);
	SHOW_BOOL(knows_its_cpu());
	again();
	sequences();
	barriers();
	MUST(pthread_create(&thread, NULL, of_ones_own, NULL) ? -1 : 0);
	MUST(pthread_join(thread, NULL) ? -1 : 0);
	children();
	return 0;
}
