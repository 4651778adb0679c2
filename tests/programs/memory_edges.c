// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie no-pie static
/* Memory at its edges: the stack's growth and end, guard pages, faults in the middle of a call, memory that many share. */
#include "show.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

#define PAGE 4096UL

static sigjmp_buf out;
static char signal_stack[65536];
static volatile sig_atomic_t code;

static void on_fault(int signo, siginfo_t *info, void *context)
{
	(void)signo;
	(void)context;
	code = info->si_code;
	siglongjmp(out, 1);
}

/* Uses about a page of stack at each level. */
static __attribute__((noinline)) int deep(int levels)
{
	volatile char page[PAGE];

	page[0] = levels;
	page[PAGE - 1] = 1;
	return levels ? deep(levels - 1) + page[PAGE - 1] : page[0];
}

static volatile int endless_depth;

static __attribute__((noinline)) int endless(int level)
{
	volatile char page[PAGE];

	page[0] = page[PAGE - 1] = 1;
	endless_depth = level;
	return level < 1 << 20 ? endless(level + 1) + page[0] : 0;
}

static void stacks(void)
{
	stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof(signal_stack)};
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	say("6 MiB deep: %d", deep(6 << 20 >> 12));
	MUST(sigaltstack(&stack, NULL));
	MUST(sigaction(SIGSEGV, &action, NULL));
	MUST(sigaction(SIGBUS, &action, NULL));
	if (!sigsetjmp(out, 1))
		endless(0);
	SHOW_BOOL(endless_depth > 1800 && endless_depth < 2300);
	say("6 MiB deep again: %d", deep(6 << 20 >> 12));
}

static void *small_thread(void *argument)
{
	stack_t stack = {.ss_sp = argument, .ss_size = 16384};

	MUST(sigaltstack(&stack, NULL));
	if (!sigsetjmp(out, 1))
		endless(0);
	say("a thread's stack ends: %s",
	    endless_depth > 8 && endless_depth < 40 ? "about where it should" : "elsewhere");
	return NULL;
}

static void thread_stacks(void)
{
	static char memory[16384];
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 128 << 10);
	pthread_create(&thread, &attr, small_thread, memory);
	pthread_join(thread, NULL);
}

static void guards(void)
{
	char *p = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec parts[2];
	int pipe_fds[2];

	MUST(mprotect(p + 4 * PAGE, PAGE, PROT_NONE));
	MUST(mprotect(p + 8 * PAGE, PAGE, PROT_READ));
	MUST(pipe2(pipe_fds, O_NONBLOCK));
	memset(p, 'a', 4 * PAGE);
	memset(p + 5 * PAGE, 'b', 3 * PAGE);
	SHOW(write(pipe_fds[1], p + 4 * PAGE - 10, 20));
	SHOW(read(pipe_fds[0], p, PAGE));
	SHOW(write(pipe_fds[1], p + 4 * PAGE, 20));
	SHOW(write(pipe_fds[1], p + 8 * PAGE - 10, 20));
	SHOW(read(pipe_fds[0], p + 8 * PAGE - 10, 20));
	SHOW(write(pipe_fds[1], "0123456789abcdefghij", 20));
	SHOW(read(pipe_fds[0], p + 8 * PAGE, 20));
	parts[0] = (struct iovec){p, 10};
	parts[1] = (struct iovec){p + 4 * PAGE, 10};
	SHOW(writev(pipe_fds[1], parts, 2));
	/* The same after all is one again. */
	MUST(mprotect(p, 16 * PAGE, PROT_READ | PROT_WRITE));
	SHOW(write(pipe_fds[1], p + 4 * PAGE - 10, 20));
	MUST(munmap(p, 16 * PAGE));
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

static void execution(void)
{
	static const unsigned char code_of_42[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov $42, %eax; ret */
	unsigned char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int (*function)(void) = (int (*)(void))(uintptr_t)p;
	/* A system call in code made at run time: mov $39, %eax; syscall; ret */
	static const unsigned char call[] = {0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3};

	memcpy(p, code_of_42, sizeof(code_of_42));
	if (sigsetjmp(out, 1))
		say("not executable: code %d", code);
	else
		say("executed: %d", function());
	SHOW(mprotect(p, PAGE, PROT_READ | PROT_EXEC));
	say("%d", function());
	SHOW(mprotect(p, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
	p[1] = 43;
	say("%d", function());
	memcpy(p, call, sizeof(call));
	SHOW_BOOL(function() == getpid());
	MUST(munmap(p, PAGE));
}

static void *toucher(void *argument)
{
	char *p = argument;

	for (int i = 0; i < 1000; i++)
		p[i * PAGE % (64 * PAGE)]++;
	return NULL;
}

static void sharing(void)
{
	char *p = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;

	p[5] = 'x';
	SHOW_BOOL(mremap(p, 64 * PAGE, 32 * PAGE, 0) == p);
	SHOW_OK(p = mremap(p, 32 * PAGE, 64 * PAGE, MREMAP_MAYMOVE));
	say("%c", p[5]);
	SHOW(madvise(p, 32 * PAGE, MADV_DONTNEED));
	say("%c", p[5]);
	SHOW(madvise(p, PAGE, MADV_REMOVE));
	say("%d", p[5]);
	munmap(p, 64 * PAGE);
	p = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	pthread_create(&thread, NULL, toucher, p);
	pthread_join(thread, NULL);
	say("%d %d", p[0], p[PAGE]);
	munmap(p, 64 * PAGE);
}

static void many(void)
{
	enum { COUNT = 5000 };
	static char *p[COUNT];
	int odd = 0;

	for (int i = 0; i < COUNT; i++) {
		p[i] = mmap(NULL, PAGE, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p[i] == MAP_FAILED)
			odd++;
	}
	for (int i = 0; i < COUNT; i += 3)
		odd += munmap(p[i], PAGE) != 0;
	for (int i = 1; i < COUNT; i += 3)
		odd += mprotect(p[i], PAGE, PROT_READ | PROT_WRITE) != 0;
	for (int i = 1; i < COUNT; i += 3)
		*p[i] = i;
	for (int i = 0; i < COUNT; i++)
		odd += munmap(p[i], PAGE) != 0;
	say("%d failures", odd);
}

int main(void)
{
	stacks();
	thread_stacks();
	guards();
	execution();
	sharing();
	many();
	return 0;
}
