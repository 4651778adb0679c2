// SPDX-License-Identifier: GPL-2.0-or-later
/* Events from one process to another: eventfd, timerfd, signalfd, inotify, and descriptors with credentials in between. */
#include "second.h"

#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#define SOCKET	    9
#define DESCRIPTORS 3
#define PAGE	    4096UL

enum { MEMORY, COUNTER, TIMER };

static void send_descriptors(const int *fds, int count)
{
	char byte = 'd';
	struct iovec iov = {&byte, 1};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = CMSG_SPACE(count * sizeof(int))};

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	MUST(sendmsg(SOCKET, &message, 0));
}

/* Whose message it is, and the descriptors in it. */
static struct ucred receive(int socket, int *fds, char *text, size_t room)
{
	struct iovec iov = {text, room};
	char control[256];
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct ucred who = {0, 0, 0};

	memset(text, 0, room);
	MUST(recvmsg(socket, &message, MSG_CMSG_CLOEXEC));
	for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
		if (part->cmsg_type == SCM_RIGHTS)
			memcpy(fds, CMSG_DATA(part), part->cmsg_len - CMSG_LEN(0));
		if (part->cmsg_type == SCM_CREDENTIALS)
			memcpy(&who, CMSG_DATA(part), sizeof(who));
	}
	return who;
}

static int second(const char *role)
{
	int fds[DESCRIPTORS], *page;
	struct itimerspec in_20_ms = {.it_value.tv_nsec = 20000000};
	uint64_t count;
	char text[64];

	if (!strcmp(role, "files")) {
		int fd = MUST(open("watched/new", O_CREAT | O_WRONLY, 0644));

		MUST(write(fd, "x", 1));
		MUST(close(fd));
		MUST(rename("watched/new", "watched/renamed"));
		MUST(chmod("watched/renamed", 0600));
		MUST(unlink("watched/renamed"));
		return 0;
	}
	receive(SOCKET, fds, text, sizeof(text));
	page = (int *)MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[MEMORY], 0));
	MUST(read(fds[COUNTER], &count, sizeof(count)));
	page[0] = count * 2;
	MUST(timerfd_settime(fds[TIMER], 0, &in_20_ms, NULL));
	MUST(sigqueue(getppid(), SIGUSR1, (union sigval){.sival_int = 1234}));
	MUST(send(SOCKET, "done", 5, 0));
	return 0;
}

static void descriptors(void)
{
	int pair[2], fds[DESCRIPTORS], got[DESCRIPTORS], signals, *page;
	struct signalfd_siginfo info;
	struct ucred who, peer;
	socklen_t len = sizeof(peer);
	uint64_t count = 21;
	sigset_t set;
	char text[64];
	pid_t pid;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = SHOW_OK(signalfd(-1, &set, SFD_CLOEXEC));
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	MUST(dup2(pair[1], SOCKET));
	pid = start_second("descriptors");
	MUST(dup2(pair[0], SOCKET));
	MUST(setsockopt(SOCKET, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)));
	fds[MEMORY] = MUST(memfd_create("passed", MFD_CLOEXEC));
	fds[COUNTER] = MUST(eventfd(0, EFD_CLOEXEC));
	fds[TIMER] = MUST(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
	MUST(ftruncate(fds[MEMORY], PAGE));
	page = (int *)MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[MEMORY], 0));
	send_descriptors(fds, DESCRIPTORS);
	SHOW(write(fds[COUNTER], &count, sizeof(count)));
	SHOW(read(signals, &info, sizeof(info)));
	SHOW_BOOL(info.ssi_signo == SIGUSR1 && info.ssi_code == SI_QUEUE && (pid_t)info.ssi_pid == pid);
	say("value %d", info.ssi_int);
	who = receive(SOCKET, got, text, sizeof(text));
	say("%s", text);
	SHOW_BOOL(who.pid == pid && who.uid == getuid() && who.gid == getgid());
	SHOW(getsockopt(SOCKET, SOL_SOCKET, SO_PEERCRED, &peer, &len));
	SHOW_BOOL(peer.pid == getpid());
	say("page %d", page[0]);
	SHOW(read(fds[TIMER], &count, sizeof(count)));
	say("expirations %lu", (unsigned long)count);
	say("the second ended with %d", end_of(pid));
	SHOW(recv(SOCKET, text, sizeof(text), MSG_DONTWAIT));
}

static void files(void)
{
	int watch = SHOW_OK(inotify_init1(IN_CLOEXEC)), poller = MUST(epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN};
	char buffer[4096] __attribute__((aligned(8)));
	pid_t pid;

	MUST(mkdir("watched", 0755));
	SHOW(inotify_add_watch(watch, "watched", IN_ALL_EVENTS & ~(IN_OPEN | IN_ACCESS | IN_CLOSE_NOWRITE)));
	MUST(epoll_ctl(poller, EPOLL_CTL_ADD, watch, &event));
	SHOW(epoll_wait(poller, &event, 1, 0));
	pid = start_second("files");
	say("the second ended with %d", end_of(pid));
	SHOW(epoll_wait(poller, &event, 1, 0));
	for (ssize_t len = MUST(read(watch, buffer, sizeof(buffer))), at = 0; at < len;) {
		struct inotify_event *one = (struct inotify_event *)(buffer + at);

		say("%#x %s%s", one->mask, one->len ? one->name : "", one->cookie ? " with a cookie" : "");
		at += sizeof(*one) + one->len;
	}
	SHOW(rmdir("watched"));
	MUST(read(watch, buffer, sizeof(buffer)));
	say("%#x", ((struct inotify_event *)buffer)->mask);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return second(argv[1]);
	descriptors();
	files();
	return 0;
}
