// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/*
 * Registers and flags that nobody sets, but a program may: each case is a child, which says what becomes of it. Everything
 * goes on as if they were ordinary, or ends with a signal of the one program.
 */
#include "show.h"

#include <asm/prctl.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

#define NON_CANONICAL 0x8000000000000000UL
#define KERNEL_HALF   0xffff800000001000UL
#define FLAG_TF	      0x100UL
#define FLAG_DF	      0x400UL
#define FLAG_NT	      0x4000UL
#define FLAG_AC	      0x40000UL
#define FLAG_ID	      0x200000UL
#define FLAGS_SHOWN   (0xcd5UL | FLAG_NT | FLAG_AC | FLAG_ID)
#define FSGSBASE      2 /* bit of AT_HWCAP2 */

static inline __attribute__((always_inline)) unsigned long flags_get(void)
{
	unsigned long flags;

	asm volatile("lea -128(%%rsp), %%rsp; pushfq; popq %0; lea 128(%%rsp), %%rsp" : "=r"(flags));
	return flags;
}

static inline __attribute__((always_inline)) void flags_set(unsigned long flags)
{
	asm volatile("lea -128(%%rsp), %%rsp; pushq %0; popfq; lea 128(%%rsp), %%rsp" ::"r"(flags) : "memory", "cc");
}

static inline __attribute__((always_inline)) long raw(long nr, long a, long b, long c, long d)
{
	register long r10 asm("r10") = d;
	long result;

	asm volatile("syscall" : "=a"(result) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return result;
}

/* A call by its instruction, whatever is in the registers that the C library looks at. */
#define RAW(nr, a, b, c, d) raw(nr, (long)(a), (long)(b), (long)(c), (long)(d))

/* Told of all faults of a child, on a stack of its own. */
static void faulted(int signo, siginfo_t *info, void *context)
{
	const greg_t *regs;

	flags_set(0x202);
	regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	say("  signal %d code %d trap %d address %#lx", signo, info->si_code, (int)regs[REG_TRAPNO],
	    signo == SIGFPE || info->si_code == SI_KERNEL ? 0 : (unsigned long)info->si_addr);
	_exit(1);
}

static void catch_faults(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
	struct sigaction action = {.sa_sigaction = faulted, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};

	MUST(sigaltstack(&stack, NULL));
	for (int i = 0; i < 4; i++)
		MUST(sigaction(signals[i], &action, NULL));
}

/* Runs something in a child, told of its faults or not, and says how that ended. */
static void child(const char *text, bool caught, void (*run)(unsigned long), unsigned long argument)
{
	int status;
	pid_t pid;

	say("%s", text);
	pid = MUST(fork());
	if (!pid) {
		if (caught)
			catch_faults();
		run(argument);
		say("  went on");
		_exit(0);
	}
	MUST(waitpid(pid, &status, 0));
	if (WIFEXITED(status))
		say("  exit %d", WEXITSTATUS(status));
	else
		say("  ended by signal %d", WTERMSIG(status));
}

/* ------------------------------------------------------------ handlers */

static void handler_at(unsigned long address)
{
	struct sigaction action = {.sa_handler = (void (*)(int))address};

	MUST(sigaction(SIGUSR1, &action, NULL));
	raise(SIGUSR1);
}

static void handlers(void)
{
	for (int caught = 0; caught < 2; caught++) {
		child("a handler at 2", caught, handler_at, 2);
		child("a handler at the last address of all", caught, handler_at, -1UL);
		child("a handler at a non-canonical address", caught, handler_at, NON_CANONICAL);
		child("a handler just above the user half", caught, handler_at, 0x800000000000UL);
		child("a handler in the kernel", caught, handler_at, KERNEL_HALF);
		child("a handler at the last page of the user half", caught, handler_at, 0x7ffffffff000UL);
	}
}

/* ------------------------------------------------------- what sigreturn gets */

static void (*change)(ucontext_t *, unsigned long);
static unsigned long change_to;

static void changing(int signo, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	(void)signo;
	(void)info;
	uc->uc_mcontext.gregs[REG_RIP] += 2; /* ud2 */
	change(uc, change_to);
}

static unsigned long return_and_look(void (*how)(ucontext_t *, unsigned long), unsigned long to)
{
	struct sigaction action = {.sa_sigaction = changing, .sa_flags = SA_SIGINFO};
	unsigned long flags;

	change = how;
	change_to = to;
	MUST(sigaction(SIGILL, &action, NULL));
	asm volatile("lea -128(%%rsp), %%rsp; ud2; pushfq; popq %0; pushq $0x202; popfq; lea 128(%%rsp), %%rsp"
		     : "=r"(flags)
		     :
		     : "memory", "cc");
	return flags;
}

static void set_rip(ucontext_t *uc, unsigned long to)
{
	uc->uc_mcontext.gregs[REG_RIP] = to;
}

static void set_rsp(ucontext_t *uc, unsigned long to)
{
	uc->uc_mcontext.gregs[REG_RSP] = to;
}

static void set_flags(ucontext_t *uc, unsigned long to)
{
	uc->uc_mcontext.gregs[REG_EFL] = to;
}

/* The selectors are cs, gs, fs and ss, 16 bits each. */
static void set_cs(ucontext_t *uc, unsigned long to)
{
	uc->uc_mcontext.gregs[REG_CSGSFS] = (uc->uc_mcontext.gregs[REG_CSGSFS] & ~0xffffUL) | to;
}

static void set_ss(ucontext_t *uc, unsigned long to)
{
	uc->uc_mcontext.gregs[REG_CSGSFS] = (uc->uc_mcontext.gregs[REG_CSGSFS] & ~(0xffffUL << 48)) | to << 48;
}

static void set_ss_loosely(ucontext_t *uc, unsigned long to)
{
	uc->uc_flags &= ~4UL; /* UC_STRICT_RESTORE_SS */
	set_ss(uc, to);
}

static void set_fpstate(ucontext_t *uc, unsigned long to)
{
	uc->uc_mcontext.fpregs = (void *)to;
}

static void move_fpstate(ucontext_t *uc, unsigned long by)
{
	uc->uc_mcontext.fpregs = (void *)((char *)uc->uc_mcontext.fpregs + by);
}

/* What follows x87 and SSE in the area is left alone: the processor of a node has no XSAVE. */
static void set_mxcsr(ucontext_t *uc, unsigned long to)
{
	uc->uc_mcontext.fpregs->mxcsr = to;
}

struct frame_change {
	const char *text;
	void (*how)(ucontext_t *, unsigned long);
	unsigned long to;
};

static const struct frame_change *frame_change;

static void run_frame_change(unsigned long unused)
{
	(void)unused;
	return_and_look(frame_change->how, frame_change->to);
}

static void frames(void)
{
	static const struct frame_change changes[] = {
		{"rip 0", set_rip, 0},
		{"rip non-canonical", set_rip, NON_CANONICAL},
		{"rip just above the user half", set_rip, 0x800000000000},
		{"rip in the kernel", set_rip, KERNEL_HALF},
		{"rip at the end of the user half", set_rip, 0x7fffffffeff0},
		{"rsp 0", set_rsp, 0},
		{"rsp odd and nowhere", set_rsp, 0x1001},
		{"rsp non-canonical", set_rsp, NON_CANONICAL},
		{"rsp in the kernel", set_rsp, KERNEL_HALF},
		{"cs of the kernel", set_cs, 0x10},
		{"cs null", set_cs, 0},
		{"cs that is none", set_cs, 0xfff8},
		{"ss of the kernel", set_ss, 0x18},
		{"ss null", set_ss, 0},
		{"ss that is none", set_ss, 0xfff8},
		{"ss null, not meant", set_ss_loosely, 0},
		{"no vector state", set_fpstate, 0},
		{"vector state at 64", set_fpstate, 64},
		{"vector state non-canonical", set_fpstate, NON_CANONICAL},
		{"vector state in the kernel", set_fpstate, KERNEL_HALF},
		{"vector state 8 bytes on", move_fpstate, 8},
		{"mxcsr without exceptions masked", set_mxcsr, 0},
		{"mxcsr of all ones", set_mxcsr, 0xffffffff},
		{"mxcsr with bit 16", set_mxcsr, 0x11f80},
	};

	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		frame_change = &changes[i];
		child(changes[i].text, true, run_frame_change, 0);
	}
	for (int bit = 0; bit < 64; bit++) {
		if (bit != 8)
			say("flag %d given back: %#lx", bit,
			    return_and_look(set_flags, 0x202 | 1UL << bit) & FLAGS_SHOWN);
	}
	say("all but the trap flag given back: %#lx", return_and_look(set_flags, ~FLAG_TF) & FLAGS_SHOWN);
}

/* ----------------------------------------------------- flags across calls */

static long calls(void)
{
	static char area[256] __attribute__((aligned(64)));
	char *odd = area + 1;
	int ends[2];
	long bad = 0;

	/* Each of these has something at an odd address. */
	bad += RAW(SYS_pipe2, (char *)ends, 0, 0, 0) != 0;
	bad += RAW(SYS_write, ends[1], odd, 99, 0) != 99;
	bad += RAW(SYS_read, ends[0], odd + 2, 99, 0) != 99;
	bad += RAW(SYS_close, ends[0], 0, 0, 0) != 0;
	bad += RAW(SYS_close, ends[1], 0, 0, 0) != 0;
	bad += RAW(SYS_clock_gettime, CLOCK_REALTIME, odd + 8, 0, 0) != 0;
	for (size_t i = 0; i < sizeof(area); i++)
		*(volatile char *)&area[i] = 0;
	odd[8] = 100;
	bad += RAW(SYS_nanosleep, odd, 0, 0, 0) != 0;
	bad += RAW(SYS_getrandom, odd, 77, 0, 0) != 77;
	for (int i = 0; i < 12; i++)
		*(volatile char *)&odd[i] = "/etc/passwd"[i];
	bad += RAW(SYS_stat, odd, odd + 16, 0, 0) != 0;
	bad += RAW(SYS_sched_yield, 0, 0, 0, 0) != 0;
	bad += RAW(SYS_munmap, RAW(SYS_mmap, 0, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS), 8192, 0, 0) > 0;
	return bad;
}

static void datagrams(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(to);
	int in = MUST(socket(AF_INET, SOCK_DGRAM, 0)), out = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	char byte;

	MUST(bind(in, (struct sockaddr *)&to, size));
	MUST(getsockname(in, (struct sockaddr *)&to, &size));
	for (int i = 0; i < 10; i++) {
		MUST(sendto(out, "x", 1, 0, (struct sockaddr *)&to, size));
		MUST(recv(in, &byte, 1, 0));
	}
	close(in);
	close(out);
}

static void with_flag(unsigned long flag)
{
	unsigned long after;
	long bad, pid;
	int status;

	flags_set(0x202 | flag);
	bad = calls();
	after = flags_get();
	flags_set(0x202);
	say("  calls that failed: %ld, kept: %#lx", bad, after & FLAGS_SHOWN & flag);
	flags_set(0x202 | flag);
	pid = RAW(SYS_fork, 0, 0, 0, 0);
	after = flags_get();
	flags_set(0x202);
	if (!pid) {
		say("  a child's: %#lx", after & flag);
		_exit(0);
	}
	MUST(waitpid(pid, &status, 0));
	/* Another thread of execution does not get them. */
	flags_set(0x202 | flag);
	RAW(SYS_sched_yield, 0, 0, 0, 0);
	flags_set(0x202);
}

static void unaligned(unsigned long unused)
{
	static uint64_t words[2];

	(void)unused;
	flags_set(0x202 | FLAG_AC);
	RAW(SYS_getpid, 0, 0, 0, 0);
	*(volatile uint64_t *)((char *)words + 1) = 1;
	flags_set(0x202);
}

static volatile int steps, steps_without;

static void count_step(int signo, siginfo_t *info, void *context)
{
	(void)context;
	steps++;
	if (signo != SIGTRAP || info->si_code != TRAP_TRACE)
		steps_without++;
}

static void single_step(unsigned long unused)
{
	struct sigaction action = {.sa_sigaction = count_step, .sa_flags = SA_SIGINFO};
	unsigned long after;
	long pid;

	(void)unused;
	MUST(sigaction(SIGTRAP, &action, NULL));
	flags_set(0x202 | FLAG_TF);
	asm volatile("nop; nop; nop; nop");
	flags_set(0x202);
	say("  steps: %s, all told as such: %s", steps >= 6 && steps < 16 ? "some" : "wrong",
	    steps_without ? "no" : "yes");
	steps = 0;
	flags_set(0x202 | FLAG_TF);
	pid = RAW(SYS_getpid, 0, 0, 0, 0);
	asm volatile("nop; nop; nop; nop");
	after = flags_get();
	flags_set(0x202);
	say("  over a call: right %s, trapped on %s, flag %s", pid == getpid() ? "yes" : "no",
	    steps >= 6 ? "yes" : "no", after & FLAG_TF ? "kept" : "lost");
	steps = 0;
	flags_set(0x202 | FLAG_TF);
	RAW(SYS_nanosleep, &(struct timespec){.tv_nsec = 1000}, 0, 0, 0);
	asm volatile("nop; nop");
	flags_set(0x202);
	say("  over one that sleeps: %s", steps > 2 ? "yes" : "no");
}

static void step_uncaught(unsigned long unused)
{
	(void)unused;
	flags_set(0x202 | FLAG_TF);
	RAW(SYS_getpid, 0, 0, 0, 0);
	flags_set(0x202);
}

static void flags(void)
{
	child("direction flag", true, with_flag, FLAG_DF);
	child("nested task flag", true, with_flag, FLAG_NT);
	child("alignment check flag", true, with_flag, FLAG_AC);
	child("identification flag", true, with_flag, FLAG_ID);
	child("all of them", true, with_flag, FLAG_DF | FLAG_NT | FLAG_AC | FLAG_ID);
	child("an unaligned access that is checked", true, unaligned, 0);
	child("the same without a handler", false, unaligned, 0);
	child("trap flag", true, single_step, 0);
	child("trap flag without a handler", false, step_uncaught, 0);
}

/* --------------------------------------------------------------- segments */

static void gs_calls(void)
{
	long bad = calls();

	say("  calls that failed: %ld", bad);
	datagrams();
	say("  datagrams went");
}

static void load_gs(unsigned long selector)
{
	asm volatile("mov %0, %%gs" ::"r"((int)selector));
	gs_calls();
	asm volatile("mov %0, %%gs" ::"r"((int)selector));
	raise(SIGUSR2);
}

/* The instructions that read and write FS and GS bases are newer than the processor of a node. */
static unsigned long fs_base(void)
{
	unsigned long base;

	RAW(SYS_arch_prctl, ARCH_GET_FS, &base, 0, 0);
	return base;
}

static void load_others(unsigned long selector)
{
	unsigned long base = fs_base();
	long bad;

	asm volatile("mov %0, %%ds; mov %0, %%es; mov %0, %%fs" ::"r"((int)selector));
	RAW(SYS_arch_prctl, ARCH_SET_FS, 0, 0, 0);
	bad = calls();
	RAW(SYS_arch_prctl, ARCH_SET_FS, base, 0, 0);
	say("  calls that failed: %ld", bad);
}

static void set_fs(unsigned long to)
{
	unsigned long base = fs_base(), after;
	long bad;

	RAW(SYS_arch_prctl, ARCH_SET_FS, to, 0, 0);
	bad = calls();
	after = fs_base();
	RAW(SYS_arch_prctl, ARCH_SET_FS, base, 0, 0);
	say("  calls that failed: %ld, FS base %s", bad, after == to ? "kept" : "lost");
}

static void clone_with_tls(unsigned long tls)
{
	long pid;

	errno = 0;
	pid = syscall(SYS_clone, CLONE_SETTLS | SIGCHLD, 0, 0, 0, tls);
	if (!pid)
		RAW(SYS_exit, 0, 0, 0, 0);
	say("  clone: %s", pid == -1 ? error_name(errno) : "ok");
}

static void set_rsp_and_call(unsigned long rsp)
{
	long pid;

	asm volatile("mov %%rsp, %%rbx; mov %1, %%rsp; syscall; mov %%rbx, %%rsp"
		     : "=a"(pid)
		     : "r"(rsp), "a"(SYS_getpid)
		     : "rbx", "rcx", "r11", "memory");
	say("  right: %s", pid == getpid() ? "yes" : "no");
}

static void far_return(unsigned long rip)
{
	asm volatile("pushq $0x23; pushq %0; lretq" ::"r"(rip) : "memory");
}

static void segments(void)
{
	child("GS loaded with 0", false, load_gs, 0);
	child("GS loaded with 0x2b", false, load_gs, 0x2b);
	child("DS, ES and FS loaded with 0", true, load_others, 0);
	child("DS, ES and FS loaded with 0x2b", true, load_others, 0x2b);
	child("an FS base where nothing is", true, set_fs, 0x12340000);
	SHOW(syscall(SYS_arch_prctl, ARCH_SET_FS, NON_CANONICAL));
	SHOW(syscall(SYS_arch_prctl, ARCH_SET_FS, KERNEL_HALF));
	child("a thread's FS base non-canonical", true, clone_with_tls, NON_CANONICAL);
	child("a thread's FS base in the kernel", true, clone_with_tls, KERNEL_HALF);
	child("calls with rsp 1", true, set_rsp_and_call, 1);
	child("calls with rsp non-canonical", true, set_rsp_and_call, NON_CANONICAL);
	child("a far return to 32-bit code that is not there", true, far_return, 0x1230);
}

/* ---------------------------------------------------------- floating point */

static void with_mxcsr(unsigned long mxcsr)
{
	uint32_t word = mxcsr, after;

	/* Nothing here computes in floating point but what is meant to. */
	asm volatile("ldmxcsr %0" ::"m"(word));
	say("  calls that failed: %ld", calls());
	datagrams();
	if (!fork())
		_exit(0);
	wait(NULL);
	usleep(10000);
	asm volatile("stmxcsr %0" : "=m"(after));
	say("  mxcsr %#x", after & 0xffc0);
	asm volatile("xorps %%xmm0, %%xmm0; cvtsi2sd %0, %%xmm1; divsd %%xmm0, %%xmm1" ::"r"(1) : "xmm0", "xmm1");
}

static void with_x87(unsigned long control)
{
	uint16_t word = control, after;

	asm volatile("fldcw %0" ::"m"(word));
	asm volatile("fld1; fldz; fdivrp");
	say("  calls that failed: %ld", calls());
	datagrams();
	usleep(10000);
	asm volatile("fnstcw %0" : "=m"(after));
	say("  control word %#x", after);
	asm volatile("fwait");
}

static void floating_point(void)
{
	child("exceptions unmasked", true, with_mxcsr, 0);
	child("the same without a handler", false, with_mxcsr, 0);
	child("exceptions unmasked, rounding up, denormals to zero", true, with_mxcsr, 0x8040 | 0x4000);
	child("rounding to zero", true, with_mxcsr, 0x1f80 | 0x6000);
	child("an x87 exception pending", true, with_x87, 0x340);
	child("single precision on the x87, rounding up", true, with_x87, 0x87f);
}

int main(void)
{
	signal(SIGUSR2, SIG_IGN);
	handlers();
	frames();
	flags();
	segments();
	floating_point();
	return 0;
}
