// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* seccomp(2): strict mode, filters and what they can answer. Each rule is tried in a child, as nothing takes it back. */
#include "show.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

#define FIELD(name)		  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define SKIP_UNLESS(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (count))
#define ANSWER(action)		  BPF_STMT(BPF_RET | BPF_K, (action))

static long seccomp(unsigned int operation, unsigned int flags, void *args)
{
	return syscall(SYS_seccomp, operation, flags, args);
}

static long install(struct sock_filter *filter, unsigned short length, unsigned int flags)
{
	struct sock_fprog program = {.len = length, .filter = filter};

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	return seccomp(SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* All calls but one are allowed; that one gets an action. */
static long one_rule(int nr, unsigned int action, unsigned int flags)
{
	struct sock_filter filter[] = {
		FIELD(arch),	SKIP_UNLESS(AUDIT_ARCH_X86_64, 3), FIELD(nr), SKIP_UNLESS(nr, 1),
		ANSWER(action), ANSWER(SECCOMP_RET_ALLOW),
	};

	return install(filter, sizeof(filter) / sizeof(filter[0]), flags);
}

static void try(const char *what, void (*body)(void))
{
	pid_t child;
	int status;

	say("%s", what);
	child = MUST(fork());
	if (!child) {
		body();
		_exit(0);
	}
	MUST(waitpid(child, &status, 0));
	if (WIFSIGNALED(status))
		say("ended by signal %d", WTERMSIG(status));
	else
		say("ended with %d", WEXITSTATUS(status));
}

static void strict(void)
{
	SHOW(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
	say("may still write");
	syscall(SYS_exit, 7);
}

static void strict_kill(void)
{
	SHOW(seccomp(SECCOMP_SET_MODE_STRICT, 0, NULL));
	syscall(SYS_getppid);
	say("not reached");
}

static void not_permitted(void)
{
	struct sock_filter filter[] = {ANSWER(SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {.len = 1, .filter = filter}, none = {.len = 0, .filter = filter};

	SHOW(seccomp(SECCOMP_SET_MODE_FILTER, 0, &program));
	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	SHOW(seccomp(SECCOMP_SET_MODE_FILTER, 0, &none));
	SHOW(seccomp(SECCOMP_SET_MODE_FILTER, 0, NULL));
	SHOW(seccomp(SECCOMP_SET_MODE_FILTER, 1 << 20, &program));
	SHOW(seccomp(99, 0, &program));
	SHOW(seccomp(SECCOMP_SET_MODE_STRICT, 0, &program));
	filter[0].code = 0xffff;
	SHOW(seccomp(SECCOMP_SET_MODE_FILTER, 0, &program));
	filter[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
	SHOW(seccomp(SECCOMP_SET_MODE_FILTER, 0, &program));
}

static void available(void)
{
	static const uint32_t actions[] = {
		SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO,
		SECCOMP_RET_USER_NOTIF,	  SECCOMP_RET_TRACE,	   SECCOMP_RET_LOG,  SECCOMP_RET_ALLOW,
	};
	struct seccomp_notif_sizes sizes;
	uint32_t unknown = 0x12340000;

	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		SHOW(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, (void *)&actions[i]));
	SHOW(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &unknown));
	SHOW(seccomp(SECCOMP_GET_NOTIF_SIZES, 0, &sizes));
	say("%u %u %u", sizes.seccomp_notif, sizes.seccomp_notif_resp, sizes.seccomp_data);
}

static void status_lines(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[200];

	while (fgets(line, sizeof(line), status))
		if (!strncmp(line, "Seccomp:", 8) || !strncmp(line, "NoNewPrivs", 10))
			say("%.*s", (int)strcspn(line, "\n"), line);
	fclose(status);
}

static void errors(void)
{
	struct sock_filter by_argument[] = {
		FIELD(nr),
		SKIP_UNLESS(SYS_dup, 4),
		FIELD(args[0]),
		SKIP_UNLESS(1, 1),
		ANSWER(SECCOMP_RET_ERRNO | EBADMSG),
		ANSWER(SECCOMP_RET_ERRNO | 0),
		ANSWER(SECCOMP_RET_ALLOW),
	};

	SHOW(one_rule(SYS_getppid, SECCOMP_RET_ERRNO | EXDEV, 0));
	SHOW(syscall(SYS_getppid));
	SHOW(install(by_argument, sizeof(by_argument) / sizeof(by_argument[0]), 0));
	SHOW(dup(1));
	SHOW(dup(77));
	SHOW(syscall(SYS_getppid));
	/* The more severe of two filters counts, the later of two errors. */
	SHOW(one_rule(SYS_getppid, SECCOMP_RET_ERRNO | ENXIO, 0));
	SHOW(syscall(SYS_getppid));
	SHOW(one_rule(SYS_getppid, SECCOMP_RET_ALLOW, 0));
	SHOW(syscall(SYS_getppid));
	SHOW(one_rule(SYS_sched_yield, SECCOMP_RET_ERRNO | 5000, 0));
	errno = 0;
	SHOW(syscall(SYS_sched_yield));
	SHOW(prctl(PR_GET_SECCOMP));
	SHOW(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
	status_lines();
}

static void inherited(void)
{
	MUST(one_rule(SYS_getppid, SECCOMP_RET_ERRNO | EXDEV, 0));
	if (!MUST(fork())) {
		SHOW(syscall(SYS_getppid));
		_exit(0);
	}
	MUST(wait(NULL));
	execl("/proc/self/exe", "seccomp", "again", NULL);
}

static void kill_process(void)
{
	SHOW(one_rule(SYS_getppid, SECCOMP_RET_KILL_PROCESS, 0));
	signal(SIGSYS, SIG_IGN);
	syscall(SYS_getppid);
	say("not reached");
}

static void *ask(void *unused)
{
	(void)unused;
	SHOW(syscall(SYS_getppid));
	return NULL;
}

static void kill_thread(void)
{
	pthread_t thread;

	SHOW(one_rule(SYS_getppid, SECCOMP_RET_KILL_THREAD, 0));
	SHOW_ERROR(pthread_create(&thread, NULL, ask, NULL));
	/* Nobody is told of its end but by its thread id, which the kernel clears. */
	SHOW_ERROR(pthread_join(thread, NULL));
	say("the process goes on");
}

static void *filter_all(void *unused)
{
	SHOW(one_rule(SYS_getppid, SECCOMP_RET_ERRNO | EXDEV, SECCOMP_FILTER_FLAG_TSYNC));
	return unused;
}

static void all_threads(void)
{
	pthread_t thread;

	/* Not shown: it returns before or after the thread has said something. */
	pthread_create(&thread, NULL, filter_all, NULL);
	SHOW_ERROR(pthread_join(thread, NULL));
	SHOW(syscall(SYS_getppid));
}

static void on_sigsys(int signo, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	say("signal %d code %d errno %d call %d arch %x", signo, info->si_code, info->si_errno, info->si_syscall,
	    info->si_arch);
	SHOW_BOOL(info->si_call_addr != NULL);
	SHOW_BOOL(uc->uc_mcontext.gregs[REG_RAX] == info->si_syscall);
	say("arguments %lld %lld %lld", uc->uc_mcontext.gregs[REG_RDI], uc->uc_mcontext.gregs[REG_RSI],
	    uc->uc_mcontext.gregs[REG_RDX]);
	uc->uc_mcontext.gregs[REG_RAX] = 4321;
}

static void trap(void)
{
	struct sigaction action = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO};

	MUST(sigaction(SIGSYS, &action, NULL));
	SHOW(one_rule(SYS_getppid, SECCOMP_RET_TRAP | 17, 0));
	SHOW(syscall(SYS_getppid, 11, 22, 33));
	SHOW(syscall(SYS_getppid, 44, 55, 66));
}

static void trap_unhandled(void)
{
	SHOW(one_rule(SYS_getppid, SECCOMP_RET_TRAP, 0));
	syscall(SYS_getppid);
	say("not reached");
}

static void log_only(void)
{
	SHOW(one_rule(SYS_getppid, SECCOMP_RET_LOG, 0));
	SHOW_BOOL(syscall(SYS_getppid) > 0);
	SHOW(one_rule(SYS_sched_yield, SECCOMP_RET_TRACE, 0));
	SHOW(syscall(SYS_sched_yield));
}

/* Calls that Linux has not, and one that makes another task, pass the filter as well. */
static void strange_calls(void)
{
	SHOW(one_rule(499, SECCOMP_RET_ERRNO | EXDEV, 0));
	SHOW(syscall(499));
	SHOW(syscall(498));
	SHOW(one_rule(SYS_vfork, SECCOMP_RET_ERRNO | EXDEV, 0));
	SHOW(syscall(SYS_vfork));
	SHOW(one_rule(SYS_mmap, SECCOMP_RET_ERRNO | EXDEV, 0));
	SHOW(syscall(SYS_mmap, 0, 4096, 1, 0x22, -1, 0));
	SHOW(one_rule(SYS_execve, SECCOMP_RET_ERRNO | EXDEV, 0));
	SHOW(execl("/bin/true", "true", NULL));
}

static void supervised(void)
{
	struct seccomp_notif request = {};
	struct seccomp_notif_resp response = {};
	int listener = SHOW_OK(one_rule(SYS_getppid, SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER));
	pid_t child = MUST(fork());

	if (!child) {
		SHOW(syscall(SYS_getppid, 5, 6, 7));
		SHOW(syscall(SYS_getppid, 8, 9, 10));
		_exit(0);
	}
	for (int i = 0; i < 2; i++) {
		memset(&request, 0, sizeof(request));
		MUST(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request));
		say("asked for call %d, %llu %llu %llu", request.data.nr, request.data.args[0], request.data.args[1],
		    request.data.args[2]);
		SHOW_BOOL((pid_t)request.pid == child);
		SHOW(ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &request.id));
		response = (struct seccomp_notif_resp){.id = request.id, .val = 99, .error = i ? -EXDEV : 0};
		MUST(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response));
	}
	MUST(wait(NULL));
	SHOW(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response));
}

static void forbid_reading(int signal)
{
	(void)signal;
	MUST(one_rule(SYS_read, SECCOMP_RET_ERRNO | EXDEV, 0));
}

/* A call that is made again after a signal passes the filters again, also those that the handler brought. */
static void restarted(void)
{
	struct sigaction action = {.sa_handler = forbid_reading, .sa_flags = SA_RESTART};
	struct itimerval soon = {.it_value.tv_usec = 20000};
	char byte;
	int ends[2];

	MUST(pipe(ends));
	MUST(sigaction(SIGALRM, &action, NULL));
	MUST(setitimer(ITIMER_REAL, &soon, NULL));
	SHOW(read(ends[0], &byte, 1));
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		say("%s", argv[1]);
		SHOW(syscall(SYS_getppid));
		return 3;
	}
	available();
	try("strict", strict);
	try("strict, another call", strict_kill);
	try("not permitted", not_permitted);
	try("errors", errors);
	try("inherited", inherited);
	try("kill the process", kill_process);
	try("kill the thread", kill_thread);
	try("all threads", all_threads);
	try("trap", trap);
	try("trap without a handler", trap_unhandled);
	try("log and trace", log_only);
	try("strange calls", strange_calls);
	try("supervised", supervised);
	try("restarted", restarted);
	return 0;
}
