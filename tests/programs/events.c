// SPDX-License-Identifier: GPL-2.0-or-later
/* Waiting for descriptors: poll, select, epoll in all its modes; eventfd, timerfd, signalfd, inotify, pidfd. */
#include "show.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>

static void polls(void)
{
	struct timespec zero = {0}, bad = {.tv_nsec = -1};
	struct pollfd p[3];
	struct rlimit limit;
	fd_set in, out;
	int fd[2];

	MUST(pipe(fd));
	p[0] = (struct pollfd){.fd = fd[0], .events = POLLIN};
	p[1] = (struct pollfd){.fd = fd[1], .events = POLLOUT};
	p[2] = (struct pollfd){.fd = 99, .events = POLLIN};
	SHOW(poll(p, 3, 0));
	say("%#x %#x %#x", p[0].revents, p[1].revents, p[2].revents);
	p[2].fd = -1;
	SHOW(poll(p, 3, 10));
	say("%#x %#x %#x", p[0].revents, p[1].revents, p[2].revents);
	SHOW(poll(p, 1, 10));
	SHOW(ppoll(p, 1, &zero, NULL));
	SHOW(ppoll(p, 1, &bad, NULL));
	MUST(getrlimit(RLIMIT_NOFILE, &limit));
	SHOW(poll(p, limit.rlim_cur + 1, 0));
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fd[0], &in);
	FD_SET(fd[1], &out);
	SHOW(select(fd[1] + 1, &in, &out, NULL, &(struct timeval){0}));
	say("%d %d", FD_ISSET(fd[0], &in) != 0, FD_ISSET(fd[1], &out) != 0);
	FD_SET(30, &in);
	SHOW(select(31, &in, NULL, NULL, &(struct timeval){0}));
	SHOW(select(-1, &in, NULL, NULL, NULL));
	SHOW(select(1, NULL, NULL, NULL, &(struct timeval){.tv_usec = -1}));
	SHOW(select(0, NULL, NULL, NULL, &(struct timeval){.tv_usec = 1000}));
	close(fd[0]);
	close(fd[1]);
}

static void show_events(int ep, int timeout)
{
	struct epoll_event e[8];
	int count = epoll_wait(ep, e, 8, timeout);

	say("epoll_wait = %d%s", count, count < 0 ? error_name(errno) : "");
	for (int i = 0; i < count; i++)
		say("  %#x on %d", e[i].events, e[i].data.fd);
}

static long add(int ep, int op, int fd, uint32_t events)
{
	return epoll_ctl(ep, op, fd, &(struct epoll_event){.events = events, .data.fd = fd});
}

static void epolls(void)
{
	char buf[8];
	int ep = SHOW(epoll_create1(EPOLL_CLOEXEC)), fd[2], inner;

	SHOW(epoll_create(0));
	SHOW(epoll_create1(77));
	MUST(pipe2(fd, O_NONBLOCK));
	SHOW(add(ep, EPOLL_CTL_ADD, fd[0], EPOLLIN));
	SHOW(add(ep, EPOLL_CTL_ADD, fd[0], EPOLLIN));
	SHOW(add(ep, EPOLL_CTL_MOD, fd[1], EPOLLOUT));
	SHOW(add(ep, EPOLL_CTL_DEL, fd[1], 0));
	SHOW(add(ep, EPOLL_CTL_ADD, ep, EPOLLIN));
	SHOW(add(ep, EPOLL_CTL_ADD, 99, EPOLLIN));
	SHOW(add(fd[0], EPOLL_CTL_ADD, fd[1], EPOLLIN));
	SHOW(add(ep, 77, fd[1], EPOLLIN));
	SHOW(add(ep, EPOLL_CTL_ADD, open("/etc/passwd", O_RDONLY), EPOLLIN));
	show_events(ep, 0);
	MUST(write(fd[1], "abc", 3));
	show_events(ep, -1);
	show_events(ep, -1);
	SHOW(add(ep, EPOLL_CTL_MOD, fd[0], EPOLLIN | EPOLLET));
	show_events(ep, 0);
	show_events(ep, 0);
	MUST(write(fd[1], "d", 1));
	show_events(ep, 0);
	MUST(read(fd[0], buf, 1));
	show_events(ep, 0);
	SHOW(add(ep, EPOLL_CTL_MOD, fd[0], EPOLLIN | EPOLLONESHOT));
	show_events(ep, 0);
	show_events(ep, 0);
	SHOW(add(ep, EPOLL_CTL_MOD, fd[0], EPOLLIN | EPOLLONESHOT));
	show_events(ep, 0);
	SHOW(add(ep, EPOLL_CTL_MOD, fd[0], EPOLLIN));
	SHOW(add(ep, EPOLL_CTL_ADD, fd[1], EPOLLOUT | EPOLLEXCLUSIVE));
	SHOW(add(ep, EPOLL_CTL_MOD, fd[1], EPOLLOUT));
	show_events(ep, 0);
	/* One set within another. */
	inner = MUST(epoll_create1(0));
	SHOW(add(inner, EPOLL_CTL_ADD, ep, EPOLLIN));
	SHOW(add(ep, EPOLL_CTL_ADD, inner, EPOLLIN));
	show_events(inner, 0);
	close(inner);
	close(fd[1]);
	show_events(ep, 0);
	close(fd[0]);
	show_events(ep, 10);
	SHOW(epoll_wait(ep, (struct epoll_event *)8, 8, 0));
	SHOW(epoll_wait(ep, (struct epoll_event[1]){}, 0, 0));
	SHOW(epoll_pwait2(ep, (struct epoll_event[1]){}, 1, &(struct timespec){.tv_nsec = 1000}, NULL));
	close(ep);
}

static void eventfds(void)
{
	uint64_t value = 0;
	int fd = SHOW(eventfd(3, EFD_NONBLOCK));

	SHOW(read(fd, &value, 8));
	say("%lu", value);
	SHOW(read(fd, &value, 8));
	value = 5;
	SHOW(write(fd, &value, 8));
	SHOW(write(fd, &value, 8));
	SHOW(read(fd, &value, 8));
	say("%lu", value);
	value = UINT64_MAX;
	SHOW(write(fd, &value, 8));
	value--;
	SHOW(write(fd, &value, 8));
	value = 1;
	SHOW(write(fd, &value, 8));
	SHOW(write(fd, &value, 4));
	SHOW(read(fd, &value, 4));
	close(fd);
	fd = SHOW(eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK));
	SHOW(read(fd, &value, 8));
	say("%lu", value);
	SHOW(read(fd, &value, 8));
	SHOW(read(fd, &value, 8));
	close(fd);
	SHOW(eventfd(0, 77));
}

static void timerfds(void)
{
	struct itimerspec spec = {.it_value = {.tv_nsec = 10000000}, .it_interval = {.tv_nsec = 5000000}}, left;
	struct pollfd p;
	uint64_t count;
	int fd = SHOW(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));

	SHOW(timerfd_create(77, 0));
	SHOW(read(fd, &count, 8));
	SHOW(timerfd_settime(fd, 0, &spec, NULL));
	SHOW(timerfd_gettime(fd, &left));
	SHOW_BOOL(left.it_value.tv_nsec > 0 && left.it_value.tv_nsec <= 10000000);
	SHOW(left.it_interval.tv_nsec);
	p = (struct pollfd){.fd = fd, .events = POLLIN};
	SHOW(poll(&p, 1, -1));
	SHOW(read(fd, &count, 8));
	say("%lu", count);
	SHOW(read(fd, &count, 8));
	usleep(21000);
	SHOW(read(fd, &count, 8));
	SHOW_BOOL(count >= 4);
	spec.it_value.tv_nsec = 0;
	SHOW(timerfd_settime(fd, 0, &spec, NULL));
	SHOW(poll(&p, 1, 20));
	spec = (struct itimerspec){.it_value = {.tv_nsec = 1}};
	SHOW(timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL));
	usleep(1000);
	SHOW(read(fd, &count, 8));
	say("%lu", count);
	spec.it_value.tv_nsec = 1000000000;
	SHOW(timerfd_settime(fd, 0, &spec, NULL));
	SHOW(read(fd, &count, 7));
	close(fd);
}

static void signalfds(void)
{
	struct signalfd_siginfo info;
	struct pollfd p;
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN);
	MUST(sigprocmask(SIG_BLOCK, &set, NULL));
	fd = SHOW(signalfd(-1, &set, SFD_NONBLOCK));
	SHOW(read(fd, &info, sizeof(info)));
	sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 77});
	p = (struct pollfd){.fd = fd, .events = POLLIN};
	SHOW(poll(&p, 1, 0));
	SHOW(read(fd, &info, sizeof(info)));
	say("signal %d code %d value %d", info.ssi_signo - SIGRTMIN, info.ssi_code, info.ssi_int);
	SHOW_BOOL(info.ssi_pid == (uint32_t)getpid() && info.ssi_uid == getuid());
	raise(SIGUSR1);
	SHOW(read(fd, &info, 10));
	SHOW(read(fd, &info, sizeof(info)));
	sigdelset(&set, SIGUSR1);
	SHOW(signalfd(fd, &set, 0));
	raise(SIGUSR1);
	SHOW(read(fd, &info, sizeof(info)));
	SHOW(signalfd(0, &set, 0));
	close(fd);
	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR1, SIG_DFL);
	MUST(sigprocmask(SIG_UNBLOCK, &set, NULL));
}

static void show_watch(int fd)
{
	char buf[4096] __attribute__((aligned(8)));
	ssize_t len = read(fd, buf, sizeof(buf));

	if (len < 0)
		say("no more: %s", error_name(errno));
	for (char *at = buf; at < buf + len;) {
		struct inotify_event *e = (struct inotify_event *)at;

		say("  watch %d mask %#x %s%s", e->wd, e->mask, e->len ? e->name : "", e->cookie ? " moved" : "");
		at += sizeof(*e) + e->len;
	}
}

static void watches(void)
{
	int fd = SHOW(inotify_init1(IN_NONBLOCK)), file, dir;

	MUST(mkdir("watched", 0755));
	dir = SHOW(inotify_add_watch(fd, "watched", IN_ALL_EVENTS));
	SHOW(inotify_add_watch(fd, "none", IN_ALL_EVENTS));
	SHOW(inotify_add_watch(fd, "watched", 0));
	show_watch(fd);
	file = MUST(open("watched/file", O_RDWR | O_CREAT, 0644));
	MUST(write(file, "x", 1));
	MUST(fchmod(file, 0600));
	MUST(close(file));
	MUST(rename("watched/file", "watched/other"));
	MUST(mkdir("watched/sub", 0755));
	MUST(unlink("watched/other"));
	MUST(rmdir("watched/sub"));
	show_watch(fd);
	SHOW(inotify_rm_watch(fd, dir));
	SHOW(inotify_rm_watch(fd, dir));
	show_watch(fd);
	SHOW(inotify_add_watch(fd, "watched", IN_DELETE_SELF | IN_ONESHOT));
	MUST(rmdir("watched"));
	show_watch(fd);
	show_watch(fd);
	close(fd);
}

static void pidfds(void)
{
	extern char **environ;
	struct pollfd p;
	siginfo_t info;
	pid_t child;
	int fd;

	MUST(posix_spawnp(&child, "sleep", NULL, NULL, (char *[]){"sleep", "100", NULL}, environ) ? -1 : 0);
	fd = SHOW(pidfd_open(child, 0));
	SHOW(pidfd_open(-1, 0));
	SHOW(pidfd_open(child, 77));
	p = (struct pollfd){.fd = fd, .events = POLLIN};
	SHOW(poll(&p, 1, 10));
	SHOW(pidfd_send_signal(fd, SIGKILL, NULL, 0));
	SHOW(poll(&p, 1, 5000));
	SHOW(waitid(P_PIDFD, fd, &info, WEXITED));
	say("code %d status %d", info.si_code, info.si_status);
	SHOW(pidfd_send_signal(fd, SIGKILL, NULL, 0));
	close(fd);
}

int main(void)
{
	polls();
	epolls();
	eventfds();
	timerfds();
	signalfds();
	watches();
	pidfds();
	return 0;
}
