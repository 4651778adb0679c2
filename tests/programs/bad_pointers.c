// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* Pointers that lead nowhere, in every place where a call takes one: an error, never a signal. */
#include "show.h"

#include <dirent.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

/* Of an alternative signal stack that is not there. */
#define STACK_BYTES 65536

static int file, stream[2], pipe_fds[2], ep;
static char good[8192];

/* One round with one kind of bad pointer. CALL: the raw call, as the C library would touch the memory itself. */
#define CALL(name, ...) say("  %s(%s): %s", #name, #__VA_ARGS__, outcome(syscall(SYS_##name, __VA_ARGS__)))

static const char *outcome(long result)
{
	static char text[32];

	if (result < 0)
		return error_name(errno);
	snprintf(text, sizeof(text), "%ld", result);
	return text;
}

static void names(char *bad)
{
	CALL(open, bad, O_RDONLY);
	CALL(openat, AT_FDCWD, bad, O_RDONLY);
	CALL(stat, bad, good);
	CALL(stat, "/", bad);
	CALL(lstat, "/", bad);
	CALL(fstat, file, bad);
	CALL(newfstatat, AT_FDCWD, "/", bad, 0);
	CALL(statx, AT_FDCWD, "/", 0, 0, bad);
	CALL(statfs, bad, good);
	CALL(statfs, "/", bad);
	CALL(access, bad, F_OK);
	CALL(chdir, bad);
	CALL(mkdir, bad, 0700);
	CALL(rmdir, bad);
	CALL(unlink, bad);
	CALL(rename, bad, "x");
	CALL(rename, "pointers", bad);
	CALL(link, "pointers", bad);
	CALL(symlink, bad, "x");
	CALL(symlink, "x", bad);
	CALL(readlink, bad, good, 10);
	CALL(readlink, "/proc/self/exe", bad, 10);
	CALL(chmod, bad, 0700);
	CALL(chown, bad, -1, -1);
	CALL(truncate, bad, 0);
	CALL(utimensat, AT_FDCWD, bad, NULL, 0);
	CALL(utimensat, AT_FDCWD, "pointers", bad, 0);
	CALL(getcwd, bad, 4096);
	CALL(getdents64, MUST(open("/", O_RDONLY | O_DIRECTORY)), bad, 4096);
	CALL(getxattr, bad, "user.x", good, 10);
	CALL(getxattr, "pointers", bad, good, 10);
	CALL(setxattr, "pointers", "user.x", bad, 10, 0);
	CALL(inotify_add_watch, 3, bad, 1);
}

static void contents(char *bad)
{
	struct iovec vec[2] = {{good, 10}, {bad, 10}};

	CALL(read, file, bad, 10);
	CALL(write, file, bad, 10);
	CALL(pread64, file, bad, 10, 0);
	CALL(pwrite64, file, bad, 10, 0);
	CALL(readv, file, bad, 1);
	CALL(writev, file, bad, 1);
	CALL(readv, file, vec + 1, 1);
	CALL(writev, file, vec + 1, 1);
	CALL(sendfile, file, file, bad, 10);
	CALL(lseek, file, 0, SEEK_SET);
	CALL(read, MUST(open("/dev/zero", O_RDONLY)), bad, 10);
	CALL(read, MUST(open("/dev/urandom", O_RDONLY)), bad, 10);
	CALL(read, MUST(open("/proc/version", O_RDONLY)), bad, 10);
	CALL(write, pipe_fds[1], bad, 10);
	CALL(write, pipe_fds[1], good, 10);
	CALL(read, pipe_fds[0], bad, 10);
	CALL(read, pipe_fds[0], good, 10);
	CALL(pipe, bad);
	CALL(ioctl, pipe_fds[0], 0x541b, bad); /* FIONREAD */
	CALL(fcntl, file, F_GETLK, bad);
}

static void waits(char *bad)
{
	CALL(poll, bad, 1, 0);
	CALL(select, 4, bad, NULL, NULL, NULL);
	CALL(select, 0, NULL, NULL, NULL, bad);
	CALL(epoll_ctl, ep, EPOLL_CTL_ADD, pipe_fds[0], bad);
	CALL(epoll_wait, ep, bad, 1, 0);
	CALL(nanosleep, bad, NULL);
	CALL(clock_gettime, CLOCK_MONOTONIC, bad);
	CALL(clock_getres, CLOCK_MONOTONIC, bad);
	CALL(gettimeofday, bad, NULL);
	CALL(time, bad);
	CALL(times, bad);
	CALL(setitimer, ITIMER_REAL, bad, NULL);
	CALL(getitimer, ITIMER_REAL, bad);
	CALL(timer_create, CLOCK_MONOTONIC, bad, good);
	CALL(timer_create, CLOCK_MONOTONIC, NULL, bad);
	CALL(timerfd_settime, 0, 0, bad, NULL);
	CALL(futex, bad, 0, 0, NULL, NULL, 0);
	CALL(wait4, -1, bad, 0, NULL);
}

static void sockets(char *bad)
{
	struct iovec vec = {bad, 10}, ok = {good, 10};
	struct msghdr bad_data = {.msg_iov = &vec, .msg_iovlen = 1},
		      bad_vec = {.msg_iov = (void *)bad, .msg_iovlen = 1};
	struct msghdr bad_name = {.msg_name = bad, .msg_namelen = 16, .msg_iov = &ok, .msg_iovlen = 1};
	struct msghdr bad_control = {.msg_iov = &ok, .msg_iovlen = 1, .msg_control = bad, .msg_controllen = 64};
	int length = 16;

	CALL(socketpair, AF_UNIX, SOCK_STREAM, 0, bad);
	CALL(bind, stream[0], bad, 16);
	CALL(connect, stream[0], bad, 16);
	CALL(accept, stream[0], bad, &length);
	CALL(getsockname, stream[0], bad, &length);
	CALL(getsockname, stream[0], good, bad);
	CALL(getpeername, stream[0], bad, &length);
	CALL(setsockopt, stream[0], SOL_SOCKET, SO_SNDBUF, bad, 4);
	CALL(getsockopt, stream[0], SOL_SOCKET, SO_SNDBUF, bad, &length);
	CALL(getsockopt, stream[0], SOL_SOCKET, SO_SNDBUF, good, bad);
	CALL(sendto, stream[0], bad, 10, 0, NULL, 0);
	CALL(sendmsg, stream[0], bad, 0);
	CALL(sendmsg, stream[0], &bad_data, 0);
	CALL(sendmsg, stream[0], &bad_vec, 0);
	CALL(sendmsg, stream[0], &bad_name, 0);
	CALL(sendmsg, stream[0], &bad_control, 0);
	CALL(write, stream[0], good, 10);
	CALL(recvfrom, stream[1], bad, 10, MSG_DONTWAIT, NULL, NULL);
	CALL(recvmsg, stream[1], bad, MSG_DONTWAIT);
	CALL(recvmsg, stream[1], &bad_data, MSG_DONTWAIT);
	CALL(recvmsg, stream[1], &bad_vec, MSG_DONTWAIT);
	CALL(recvfrom, stream[1], good, 10, MSG_DONTWAIT, NULL, NULL);
	CALL(recvmmsg, stream[1], bad, 1, MSG_DONTWAIT, NULL);
}

static void processes(char *bad)
{
	CALL(rt_sigaction, SIGUSR1, bad, NULL, 8);
	CALL(rt_sigaction, SIGUSR1, NULL, bad, 8);
	CALL(rt_sigprocmask, SIG_BLOCK, bad, NULL, 8);
	CALL(rt_sigprocmask, SIG_BLOCK, NULL, bad, 8);
	CALL(rt_sigpending, bad, 8);
	CALL(rt_sigsuspend, bad, 8);
	CALL(rt_sigtimedwait, bad, NULL, NULL, 8);
	CALL(rt_sigqueueinfo, getpid(), SIGUSR1, bad);
	CALL(sigaltstack, bad, NULL);
	CALL(sigaltstack, NULL, bad);
	CALL(execve, bad, NULL, NULL);
	CALL(execve, "/bin/true", bad, NULL);
	CALL(uname, bad);
	CALL(sysinfo, bad);
	CALL(getrlimit, RLIMIT_STACK, bad);
	CALL(setrlimit, RLIMIT_STACK, bad);
	CALL(prlimit64, 0, RLIMIT_STACK, NULL, bad);
	CALL(getrusage, RUSAGE_SELF, bad);
	CALL(getresuid, bad, good, good);
	CALL(getgroups, 10, bad);
	CALL(sched_getparam, 0, bad);
	CALL(sched_getaffinity, 0, 128, bad);
	CALL(sched_setaffinity, 0, 128, bad);
	CALL(getrandom, bad, 10, 0);
	CALL(capget, bad, NULL);
	CALL(prctl, 16, bad); /* PR_GET_NAME */
	CALL(mincore, good - (unsigned long)good % 4096, 4096, bad);
	CALL(memfd_create, bad, 0);
	CALL(arch_prctl, 0x1003, bad); /* ARCH_GET_FS */
	CALL(getcpu, bad, NULL, NULL);
	CALL(set_robust_list, bad, 24);
}

/* A buffer whose end is not there. */
static void half(char *page)
{
	char *edge = page + 4096 - 5;

	MUST(pwrite(file, "0123456789", 10, 0));
	memset(edge, '-', 5);
	SHOW(pread(file, edge, 10, 0));
	say("%.5s", edge);
	memset(edge, 'x', 5);
	SHOW(pwrite(file, edge, 10, 0));
	SHOW(pread(file, good, 10, 0));
	say("%.10s", good);
	MUST(write(pipe_fds[1], "0123456789", 10));
	SHOW(read(pipe_fds[0], edge, 10));
	SHOW(read(pipe_fds[0], good, 10));
	SHOW(write(pipe_fds[1], edge, 10));
	SHOW(read(pipe_fds[0], good, 10));
	MUST(write(stream[0], "0123456789", 10));
	SHOW(read(stream[1], edge, 10));
	SHOW(recv(stream[1], good, 10, MSG_DONTWAIT));
	SHOW(write(stream[0], edge, 10));
	SHOW(recv(stream[1], good, 10, MSG_DONTWAIT));
	memcpy(edge, "abcde", 5);
	SHOW(open(edge, O_RDONLY));
	SHOW(stat("/", (struct stat *)edge));
	memcpy(edge, "/tmp", 5);
	SHOW(access(edge, F_OK));
}

/*
 * Where a node has the memory of other programs, among them the child that has a copy of `good`: its first slot is here,
 * each is 4 GiB, and they are used from offsets like those of the low addresses. On the host nothing is there.
 */
static void others(void)
{
	const unsigned long first = 0x100000000000, slot = 1UL << 32;
	int read_from = 0, wrote_to = 0;
	pid_t child = MUST(fork());

	if (!child)
		for (;;)
			pause();
	for (int i = 0; i < 64; i++) {
		char *at = (char *)(first + i * slot + (unsigned long)good % slot);

		if (at == good)
			continue;
		read_from += write(pipe_fds[1], at, 1) == 1;
		wrote_to += pread(file, at, 1, 0) == 1;
	}
	say("of others: read from %d, wrote to %d", read_from, wrote_to);
	MUST(kill(child, SIGKILL));
	MUST(waitpid(child, NULL, 0));
}

/* A signal's frame goes to the stack: if that is nowhere, or another's, the program ends and nothing is written. */
static void no_stack(char *stack)
{
	struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_ONSTACK};
	stack_t alternative = {.ss_sp = stack, .ss_size = STACK_BYTES};
	int status;
	pid_t child = MUST(fork());

	if (!child) {
		action.sa_handler = (void (*)(int)) & _exit;
		MUST(sigaltstack(&alternative, NULL));
		MUST(sigaction(SIGUSR1, &action, NULL));
		raise(SIGUSR1);
		_exit(1);
	}
	MUST(waitpid(child, &status, 0));
	say("a signal without a stack: %d", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
}

int main(void)
{
	/* A page, a hole, a page, and nothing for longer than an alternative stack, whatever else is mapped. */
	char *page = mmap(NULL, 4096 * 3 + STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct {
		const char *name;
		char *at;
	} kinds[] = {
		{"low", (char *)8},
		{"hole", page + 4096},
		{"kernel", (char *)0xffffffff81000000},
		{"not canonical", (char *)0x8000000000000000},
		{"all ones", (char *)-1},
		{"a node's kernel", (char *)0x100000100000},
		{"a node's kernel memory", (char *)0x100040200000},
	};

	MUST(mprotect(page, 4096 * 3, PROT_READ | PROT_WRITE));
	MUST(munmap(page + 4096, 4096));
	file = MUST(open("pointers", O_RDWR | O_CREAT, 0600));
	MUST(write(file, good, 100));
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, stream));
	MUST(pipe2(pipe_fds, O_NONBLOCK));
	ep = MUST(epoll_create1(0));
	MUST(epoll_ctl(ep, EPOLL_CTL_ADD, MUST(eventfd(1, 0)), &(struct epoll_event){.events = EPOLLIN}));
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		say("%s", kinds[i].name);
		names(kinds[i].at);
		contents(kinds[i].at);
		waits(kinds[i].at);
		sockets(kinds[i].at);
		processes(kinds[i].at);
		no_stack(kinds[i].at);
	}
	others();
	half(page);
	unlink("pointers");
	return 0;
}
