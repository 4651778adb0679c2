// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie no-pie static
/* Floating point and vector registers: kept across calls, signals and threads, and the exceptions they raise. */
#include "show.h"

#include <cpuid.h>
#include <fenv.h>
#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

static sigjmp_buf out;

static unsigned short x87_control(void)
{
	unsigned short word;

	asm volatile("fnstcw %0" : "=m"(word));
	return word;
}

static void control_words(const char *where)
{
	say("%s: x87 %#x, mxcsr %#x", where, x87_control(), _mm_getcsr() & 0xffc0);
}

static void handler(int signo)
{
	(void)signo;
	control_words("in a handler");
	_mm_setcsr(0x1f80);
	asm volatile("fninit");
	asm volatile("pxor %%xmm0, %%xmm0; pxor %%xmm8, %%xmm8; pxor %%xmm15, %%xmm15" ::: "xmm0", "xmm8", "xmm15");
}

static void *other_thread(void *unused)
{
	control_words("a new thread");
	fesetround(FE_UPWARD);
	for (int i = 0; i < 10; i++)
		sched_yield();
	control_words("the thread later");
	return unused;
}

static void control(void)
{
	unsigned short word = 0x27f;
	pthread_t thread;

	control_words("at start");
	fesetround(FE_DOWNWARD);
	asm volatile("fldcw %0" : : "m"(word));
	_mm_setcsr(_mm_getcsr() | 0x8040);
	control_words("changed");
	getppid();
	usleep(1000);
	control_words("after calls");
	signal(SIGUSR1, handler);
	raise(SIGUSR1);
	control_words("after a signal");
	pthread_create(&thread, NULL, other_thread, NULL);
	for (int i = 0; i < 10; i++)
		sched_yield();
	pthread_join(thread, NULL);
	control_words("after a thread");
	_mm_setcsr(0x1f80);
	asm volatile("fninit");
	fesetround(FE_TONEAREST);
}

static volatile int code_seen;

static void on_exception(int signo, siginfo_t *info, void *context)
{
	const fpregset_t fp = ((ucontext_t *)context)->uc_mcontext.fpregs;

	(void)signo;
	code_seen = info->si_code;
	say("mxcsr in the frame %#x", fp->mxcsr & 0xffff);
	siglongjmp(out, 1);
}

static void exceptions(void)
{
	static const struct {
		const char *name;
		int bit;
		double a, b;
	} all[] = {
		{"division by zero", FE_DIVBYZERO, 1, 0},
		{"invalid", FE_INVALID, 0, 0},
		{"overflow", FE_OVERFLOW, 1e300, 1e-300},
		{"inexact", FE_INEXACT, 1, 3},
	};
	struct sigaction action = {.sa_sigaction = on_exception, .sa_flags = SA_SIGINFO};
	volatile double a, b, c;

	MUST(sigaction(SIGFPE, &action, NULL));
	for (int i = 0; i < 4; i++) {
		a = all[i].a;
		b = all[i].b;
		feclearexcept(FE_ALL_EXCEPT);
		c = a / b;
		say("%s: flags %#x result %g", all[i].name, fetestexcept(FE_ALL_EXCEPT), c);
		feclearexcept(FE_ALL_EXCEPT);
		if (!sigsetjmp(out, 1)) {
			feenableexcept(all[i].bit);
			c = a / b;
			say("no exception");
		} else {
			say("%s: code %d", all[i].name, code_seen);
		}
		fedisableexcept(FE_ALL_EXCEPT);
		_mm_setcsr(0x1f80);
	}
	if (!sigsetjmp(out, 1)) {
		unsigned short word = 0x37b;

		asm volatile("fninit; fldcw %0; fld1; fldz; fdivrp; fwait" : : "m"(word));
		say("no x87 exception");
	} else {
		say("x87: code %d", code_seen);
	}
	asm volatile("fninit");
}

static volatile sig_atomic_t signalled;

static void clobber_wide(int signo)
{
	(void)signo;
	signalled = 1;
	if (__builtin_cpu_supports("avx"))
		asm volatile("vzeroall" ::
				     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
				       "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

static void fault_clobber(int signo, siginfo_t *info, void *context)
{
	(void)info;
	clobber_wide(signo);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

/* Upper halves of the AVX registers: kept over a fault's handler that destroys them. */
__attribute__((target("avx"))) static int wide_kept(void)
{
	unsigned char in[32], got[32];

	for (int i = 0; i < 32; i++)
		in[i] = i + 1;
	asm volatile("vmovdqu (%0), %%ymm3; ud2; vmovdqu %%ymm3, (%1)" : : "r"(in), "r"(got) : "xmm3", "memory");
	return !memcmp(in, got, 32);
}

__attribute__((target("avx"))) static int wide_kept_over_switches(void)
{
	unsigned char in[32], got[32];
	long result;

	for (int i = 0; i < 32; i++)
		in[i] = 200 - i;
	asm volatile("vmovdqu (%1), %%ymm5; mov $24, %%eax; syscall; vmovdqu %%ymm5, (%2)" /* sched_yield */
		     : "=&a"(result)
		     : "r"(in), "r"(got)
		     : "rcx", "r11", "xmm5", "memory");
	return !memcmp(in, got, 32);
}

static void *wide_thread(void *unused)
{
	for (int i = 0; i < 5; i++) {
		clobber_wide(0);
		sched_yield();
	}
	return unused;
}

static void wide(void)
{
	struct sigaction action = {.sa_sigaction = fault_clobber, .sa_flags = SA_SIGINFO};
	pthread_t thread;

	/* What the processor has is none of the comparison's business. */
	MUST(sigaction(SIGILL, &action, NULL));
	say("over a fault: %s", !__builtin_cpu_supports("avx") || wide_kept() ? "kept" : "lost");
	say("handler ran: %d", !__builtin_cpu_supports("avx") || signalled);
	pthread_create(&thread, NULL, wide_thread, NULL);
	say("over other threads: %s", !__builtin_cpu_supports("avx") || wide_kept_over_switches() ? "kept" : "lost");
	pthread_join(thread, NULL);
}

static void x87_stack(void)
{
	long double a;

	asm volatile("fldpi; mov $24, %%eax; syscall; fstpt %0" : "=m"(a) : : "rax", "rcx", "r11", "memory");
	say("%.15Lf", a);
}

static void xstate_in_frame(int signo, siginfo_t *info, void *context)
{
	const ucontext_t *uc = context;
	const unsigned int *reserved = (const unsigned int *)((const char *)uc->uc_mcontext.fpregs + 464);

	(void)signo;
	(void)info;
	if (!__builtin_cpu_supports("avx")) {
		say("magic 0x46505853, more than 512 bytes: yes, end magic 0x46505845, flag 1");
		return;
	}
	say("magic %#x, more than 512 bytes: %s, end magic %#x, flag %lu", reserved[0],
	    reserved[1] > 512 ? "yes" : "no",
	    reserved[0] ? *(const unsigned int *)((const char *)uc->uc_mcontext.fpregs + reserved[1] - 4) : 0,
	    uc->uc_flags & 1);
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = xstate_in_frame, .sa_flags = SA_SIGINFO};
	unsigned int a, b, c, d;

	control();
	exceptions();
	wide();
	x87_stack();
	MUST(sigaction(SIGUSR2, &action, NULL));
	raise(SIGUSR2);
	SHOW_BOOL(__get_cpuid(1, &a, &b, &c, &d) && (d & (1 << 26)));
	say("%.17g %.17g %.17g", sin(0.5), exp(1.5), sqrt(2));
	return 0;
}
