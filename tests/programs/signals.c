// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* Signals: actions and their flags, masks, queues, waiting for them, calls that they interrupt. */
#include "show.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31) /* linux/signal.h, which does not go with the C library's */
#endif

static volatile sig_atomic_t count, last, code, value, depth, deepest;

static void plain(int signo)
{
	count++;
	last = signo;
}

static void detailed(int signo, siginfo_t *info, void *context)
{
	(void)context;
	count++;
	last = signo;
	code = info->si_code;
	value = info->si_value.sival_int;
}

static void install(int signo, void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

	MUST(sigaction(signo, &action, NULL));
}

static void install_info(int signo, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};

	MUST(sigaction(signo, &action, NULL));
}

static void show_mask(void)
{
	sigset_t set;
	char text[256] = "blocked:";

	MUST(sigprocmask(SIG_BLOCK, NULL, &set));
	for (int i = 1; i < 65; i++)
		if (sigismember(&set, i) == 1)
			sprintf(text + strlen(text), " %d", i);
	say("%s", text);
}

static void block(int how, int signo)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, signo);
	MUST(sigprocmask(how, &set, NULL));
}

static void nested(int signo)
{
	depth++;
	if (depth > deepest)
		deepest = depth;
	if (++count < 4)
		raise(signo);
	depth--;
}

static void actions(void)
{
	struct sigaction action, old;

	SHOW(sigaction(SIGKILL, &(struct sigaction){.sa_handler = plain}, NULL));
	SHOW(sigaction(SIGSTOP, &(struct sigaction){.sa_handler = SIG_IGN}, NULL));
	SHOW(sigaction(0, NULL, &old));
	SHOW(sigaction(65, NULL, &old));
	SHOW(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4));
	SHOW(sigaction(SIGUSR1, NULL, &old));
	SHOW_BOOL(old.sa_handler == SIG_DFL);
	action = (struct sigaction){.sa_handler = plain, .sa_flags = SA_RESTART | SA_NODEFER};
	sigaddset(&action.sa_mask, SIGUSR2);
	SHOW(sigaction(SIGUSR1, &action, &old));
	SHOW(sigaction(SIGUSR1, NULL, &old));
	SHOW_BOOL(old.sa_handler == plain && old.sa_flags == (SA_RESTART | SA_NODEFER));
	SHOW(sigismember(&old.sa_mask, SIGUSR2));
	SHOW(raise(SIGUSR1));
	say("%d of %d", count, last);
	install(SIGUSR1, plain, SA_RESETHAND);
	raise(SIGUSR1);
	MUST(sigaction(SIGUSR1, NULL, &old));
	SHOW_BOOL(old.sa_handler == SIG_DFL);
	/* Masked while its own handler runs, or not. */
	install(SIGUSR1, nested, 0);
	deepest = count = 0;
	raise(SIGUSR1);
	say("without SA_NODEFER: %d deep", deepest);
	install(SIGUSR1, nested, SA_NODEFER);
	deepest = count = 0;
	raise(SIGUSR1);
	say("with SA_NODEFER: %d deep", deepest);
	install(SIGUSR1, SIG_IGN, 0);
	SHOW(raise(SIGUSR1));
	SHOW(kill(getpid(), 0));
	SHOW(kill(getpid(), 65));
	SHOW(kill(0x7ffffff, 0));
	SHOW(kill(1, SIGTERM));
	SHOW(syscall(SYS_tgkill, getpid(), 0x7ffffff, 0));
	SHOW(syscall(SYS_tgkill, getpid(), gettid(), 0));
	SHOW(syscall(SYS_tkill, gettid(), -1));
}

static void in_handler(int signo)
{
	say("handler of %d", signo);
	show_mask();
}

static void masks(void)
{
	struct sigaction action = {.sa_handler = in_handler};
	sigset_t set;

	show_mask();
	sigfillset(&set);
	SHOW(sigprocmask(SIG_SETMASK, &set, NULL));
	show_mask();
	sigemptyset(&set);
	SHOW(sigprocmask(SIG_SETMASK, &set, NULL));
	SHOW(sigprocmask(77, &set, NULL));
	SHOW(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, 4));
	sigaddset(&action.sa_mask, SIGUSR2);
	sigaddset(&action.sa_mask, SIGRTMIN + 3);
	MUST(sigaction(SIGUSR1, &action, NULL));
	raise(SIGUSR1);
	show_mask();
	block(SIG_BLOCK, SIGUSR1);
	raise(SIGUSR1);
	say("blocked");
	sigpending(&set);
	SHOW(sigismember(&set, SIGUSR1));
	block(SIG_UNBLOCK, SIGUSR1);
	sigpending(&set);
	SHOW(sigismember(&set, SIGUSR1));
	/* Several at once: the lowest number runs last, as each frame lies over the one before. */
	install(SIGUSR2, in_handler, 0);
	install(SIGRTMIN + 2, in_handler, 0);
	install(SIGRTMIN + 1, in_handler, 0);
	sigfillset(&set);
	MUST(sigprocmask(SIG_SETMASK, &set, NULL));
	raise(SIGRTMIN + 2);
	raise(SIGUSR2);
	raise(SIGRTMIN + 1);
	sigemptyset(&set);
	MUST(sigprocmask(SIG_SETMASK, &set, NULL));
	show_mask();
}

static void in_order(int signo, siginfo_t *info, void *context)
{
	(void)context;
	say("signal %d code %d value %d from %s", signo - SIGRTMIN, info->si_code, info->si_value.sival_int,
	    info->si_pid == getpid() ? "this process" : "elsewhere");
}

static void queues(void)
{
	siginfo_t info = {.si_code = SI_TKILL};

	install_info(SIGRTMIN + 5, in_order, 0);
	block(SIG_BLOCK, SIGRTMIN + 5);
	for (int i = 0; i < 4; i++)
		MUST(sigqueue(getpid(), SIGRTMIN + 5, (union sigval){.sival_int = i}));
	MUST(kill(getpid(), SIGRTMIN + 5));
	block(SIG_UNBLOCK, SIGRTMIN + 5);
	/* The old ones do not queue. */
	install_info(SIGUSR1, detailed, 0);
	count = 0;
	block(SIG_BLOCK, SIGUSR1);
	for (int i = 0; i < 4; i++)
		MUST(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = i + 10}));
	block(SIG_UNBLOCK, SIGUSR1);
	say("%d of them, code %d, value %d", count, code, value);
	raise(SIGUSR1);
	say("raise: code %d", code);
	kill(getpid(), SIGUSR1);
	say("kill: code %d", code);
	SHOW(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &info));
	info.si_code = SI_USER;
	SHOW(syscall(SYS_rt_sigqueueinfo, 1, SIGUSR1, &info));
}

static void waiting(void)
{
	struct timespec zero = {0}, soon = {.tv_nsec = 20000000}, bad = {.tv_nsec = 2000000000};
	siginfo_t info;
	sigset_t set, none;
	int signo;

	sigemptyset(&none);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN);
	MUST(sigprocmask(SIG_BLOCK, &set, NULL));
	SHOW(sigtimedwait(&set, &info, &zero));
	SHOW(sigtimedwait(&set, &info, &soon));
	SHOW(sigtimedwait(&set, &info, &bad));
	sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 42});
	raise(SIGUSR1);
	SHOW(sigwaitinfo(&set, &info));
	say("code %d", info.si_code);
	SHOW(sigwaitinfo(&set, &info) == SIGRTMIN);
	say("value %d", info.si_value.sival_int);
	raise(SIGUSR1);
	SHOW(sigwait(&set, &signo));
	say("%d", signo);
	/* Another signal interrupts the wait, and so does one that sigsuspend lets in. */
	install(SIGALRM, plain, 0);
	ualarm(10000, 0);
	SHOW(sigwaitinfo(&set, &info));
	install(SIGUSR1, plain, 0);
	count = 0;
	raise(SIGUSR1);
	say("handled %d", count);
	SHOW(sigsuspend(&none));
	say("handled %d", count);
	show_mask();
	ualarm(10000, 0);
	SHOW(pause());
	MUST(sigprocmask(SIG_UNBLOCK, &set, NULL));
}

static int pipe_fds[2];

static void alarm_in(long usec)
{
	struct itimerval timer = {.it_value = {.tv_usec = usec}};

	MUST(setitimer(ITIMER_REAL, &timer, NULL));
}

static void feed(int signo)
{
	(void)signo;
	count++;
	if (write(pipe_fds[1], "x", 1) != 1)
		_exit(SHOW_BROKEN);
}

static void interrupted(void)
{
	struct timespec second = {.tv_sec = 1}, left = {0};
	struct pollfd p;
	fd_set set;
	char c;

	MUST(pipe(pipe_fds));
	install(SIGALRM, plain, 0);
	alarm_in(10000);
	SHOW(read(pipe_fds[0], &c, 1));
	install(SIGALRM, feed, SA_RESTART);
	alarm_in(10000);
	SHOW(read(pipe_fds[0], &c, 1));
	/* These are never restarted. */
	install(SIGALRM, plain, SA_RESTART);
	alarm_in(10000);
	SHOW(nanosleep(&second, &left));
	SHOW_BOOL(left.tv_sec == 0 && left.tv_nsec <= 999000000);
	alarm_in(10000);
	SHOW(clock_nanosleep(CLOCK_MONOTONIC, 0, &second, &left));
	p = (struct pollfd){.fd = pipe_fds[0], .events = POLLIN};
	alarm_in(10000);
	SHOW(poll(&p, 1, -1));
	FD_ZERO(&set);
	FD_SET(pipe_fds[0], &set);
	alarm_in(10000);
	SHOW(select(pipe_fds[0] + 1, &set, NULL, NULL, NULL));
	alarm_in(10000);
	SHOW(pause());
	/* A timeout that is no error although a signal came: ignored ones interrupt nothing. */
	install(SIGALRM, SIG_IGN, 0);
	alarm_in(10000);
	SHOW(poll(&p, 1, 50));
	alarm_in(10000);
	second = (struct timespec){.tv_nsec = 30000000};
	SHOW(nanosleep(&second, &left));
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

/* One handler with SA_RESTART and one without: either way the call ends as its own handler says. */
static void both_kinds(void)
{
	struct itimerval none = {0};
	char c;

	MUST(pipe(pipe_fds));
	install(SIGALRM, feed, SA_RESTART);
	install(SIGUSR1, plain, 0);
	block(SIG_BLOCK, SIGALRM);
	count = 0;
	alarm_in(5000);
	usleep(10000);
	block(SIG_UNBLOCK, SIGALRM);
	say("fed %d", count);
	SHOW(read(pipe_fds[0], &c, 1));
	MUST(setitimer(ITIMER_REAL, &none, NULL));
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

static char other_stack[65536];
static volatile sig_atomic_t on_other;

static void where(int signo)
{
	stack_t now;
	char here;

	(void)signo;
	MUST(sigaltstack(NULL, &now));
	on_other = &here >= other_stack && &here < other_stack + sizeof(other_stack);
	say("on the other stack: %d, flags %d", on_other, now.ss_flags);
	say("change it now: %s", sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) ? error_name(errno) : "done");
}

static void other_stacks(void)
{
	stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof(other_stack)}, old;

	SHOW(sigaltstack(NULL, &old));
	say("flags %d", old.ss_flags);
	SHOW(sigaltstack(&stack, NULL));
	install(SIGUSR1, where, SA_ONSTACK);
	raise(SIGUSR1);
	install(SIGUSR1, where, 0);
	raise(SIGUSR1);
	SHOW(sigaltstack(&(stack_t){.ss_sp = other_stack, .ss_size = 10}, NULL));
	SHOW(sigaltstack(&(stack_t){.ss_flags = 77}, NULL));
	MUST(sigaltstack(&stack, NULL));
	MUST(sigaltstack(NULL, &old));
	SHOW_BOOL(old.ss_sp == other_stack && old.ss_size == sizeof(other_stack));
	stack.ss_flags = SS_AUTODISARM;
	SHOW(sigaltstack(&stack, NULL));
	install(SIGUSR1, where, SA_ONSTACK);
	raise(SIGUSR1);
	stack.ss_flags = SS_DISABLE;
	SHOW(sigaltstack(&stack, NULL));
}

static sigjmp_buf jump;

static void leap(int signo)
{
	siglongjmp(jump, signo);
}

static void jumps(void)
{
	static int i;

	for (i = 0; i < 3; i++) {
		install(SIGUSR1, leap, 0);
		if (!sigsetjmp(jump, 1))
			raise(SIGUSR1);
		else
			say("jumped");
	}
	show_mask();
	if (!sigsetjmp(jump, 0))
		raise(SIGUSR1);
	show_mask();
	block(SIG_UNBLOCK, SIGUSR1);
}

/* The signals that wait for processes of our user, ours or not: the limit is on all of them. */
static rlim_t queued(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];
	unsigned long count = 0;

	if (!status)
		MUST(-1);
	while (fgets(line, sizeof(line), status) && sscanf(line, "SigQ: %lu/", &count) != 1)
		;
	fclose(status);
	return count;
}

static void limited(void)
{
	struct rlimit limit;

	MUST(getrlimit(RLIMIT_SIGPENDING, &limit));
	limit.rlim_cur = queued() + 3;
	MUST(setrlimit(RLIMIT_SIGPENDING, &limit));
	block(SIG_BLOCK, SIGRTMIN + 7);
	for (int i = 0; i < 5; i++)
		if (sigqueue(getpid(), SIGRTMIN + 7, (union sigval){.sival_int = i}) < 0)
			say("full: %s", error_name(errno));
	limit.rlim_cur = limit.rlim_max;
	MUST(setrlimit(RLIMIT_SIGPENDING, &limit));
}

int main(void)
{
	actions();
	masks();
	queues();
	waiting();
	interrupted();
	both_kinds();
	other_stacks();
	jumps();
	limited();
	say("and the end by a signal");
	signal(SIGTERM, SIG_DFL);
	raise(SIGTERM);
	return 0;
}
