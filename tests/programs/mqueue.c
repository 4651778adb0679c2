// SPDX-License-Identifier: GPL-2.0-or-later
/* POSIX message queues: priorities, limits, blocking readers and writers, notification, the queue as a file. */
#include "second.h"

#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <sys/stat.h>

#define NAME "/windtunnel-test-queue"

static int second(const char *role)
{
	mqd_t queue = MUST(mq_open(NAME, O_RDWR));
	char text[64];
	unsigned priority;
	ssize_t len;

	if (!strcmp(role, "notify")) {
		sleep_ms(50);
		return MUST(mq_send(queue, "wake", 4, 1));
	}
	len = MUST(mq_receive(queue, text, sizeof(text), &priority));
	return len == 5 && priority == 7 && !memcmp(text, "first", 5) ? 0 : 1;
}

static void priorities(mqd_t queue)
{
	char text[64];
	unsigned priority;
	struct mq_attr attr;

	SHOW(mq_send(queue, "low", 3, 1));
	SHOW(mq_send(queue, "high", 4, 9));
	SHOW(mq_send(queue, "high too", 8, 9));
	MUST(mq_getattr(queue, &attr));
	say("flags %ld at most %ld of %ld bytes, now %ld", attr.mq_flags, attr.mq_maxmsg, attr.mq_msgsize,
	    attr.mq_curmsgs);
	for (int i = 0; i < 3; i++) {
		ssize_t len = MUST(mq_receive(queue, text, sizeof(text), &priority));

		say("%u: %.*s", priority, (int)len, text);
	}
	SHOW(mq_receive(queue, text, 10, NULL));
	SHOW(mq_send(queue, text, 65, 0));
	SHOW(mq_send(queue, text, 1, 40000));
}

static void limits(mqd_t queue)
{
	struct timespec past = {1, 0};
	struct pollfd poll_for = {queue, POLLIN | POLLOUT, 0};
	char text[64];

	MUST(mq_send(queue, "1", 1, 0));
	MUST(mq_send(queue, "2", 1, 0));
	SHOW(poll(&poll_for, 1, 0));
	say("events %#x", poll_for.revents);
	MUST(mq_send(queue, "3", 1, 0));
	MUST(mq_send(queue, "4", 1, 0));
	SHOW(poll(&poll_for, 1, 0));
	say("events %#x", poll_for.revents);
	SHOW(mq_timedsend(queue, "5", 1, 0, &past));
	SHOW(mq_setattr(queue, &(struct mq_attr){.mq_flags = O_NONBLOCK}, NULL));
	SHOW(mq_send(queue, "5", 1, 0));
	for (int i = 0; i < 4; i++)
		MUST(mq_receive(queue, text, sizeof(text), NULL));
	SHOW(mq_receive(queue, text, sizeof(text), NULL));
	SHOW(mq_setattr(queue, &(struct mq_attr){.mq_flags = 0}, NULL));
	SHOW(mq_timedreceive(queue, text, sizeof(text), NULL, &past));
}

static void notification(mqd_t queue)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 77};
	siginfo_t info;
	sigset_t set;
	char text[64];
	pid_t pid;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	SHOW(mq_notify(queue, &event));
	SHOW(mq_notify(queue, &event));
	pid = start_second("notify");
	SHOW(sigwaitinfo(&set, &info) == SIGUSR1);
	SHOW_BOOL(info.si_code == SI_MESGQ && info.si_pid == pid);
	say("value %d", info.si_value.sival_int);
	SHOW(mq_receive(queue, text, sizeof(text), NULL));
	say("the second ended with %d", end_of(pid));
	SHOW(mq_notify(queue, NULL));
}

int main(int argc, char **argv)
{
	struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 64};
	struct stat st;
	mqd_t queue;
	pid_t pid;

	if (argc > 1)
		return second(argv[1]);
	mq_unlink(NAME);
	SHOW(mq_open(NAME, O_RDWR));
	queue = SHOW_OK(mq_open(NAME, O_RDWR | O_CREAT | O_EXCL, 0620, &attr));
	SHOW(mq_open(NAME, O_RDWR | O_CREAT | O_EXCL, 0600, &attr));
	SHOW(mq_open("/no/such", O_RDWR | O_CREAT, 0600, &attr));
	SHOW(mq_open("no-slash", O_RDWR | O_CREAT, 0600, &attr));
	MUST(fstat(queue, &st));
	say("mode %o", st.st_mode);
	priorities(queue);
	limits(queue);
	pid = start_second("receive");
	sleep_ms(20);
	SHOW(mq_send(queue, "first", 5, 7));
	say("the second ended with %d", end_of(pid));
	notification(queue);
	SHOW(mq_unlink(NAME));
	SHOW(mq_unlink(NAME));
	SHOW(mq_send(queue, "still open", 10, 0));
	SHOW(mq_close(queue));
	SHOW(mq_close(queue));
	return 0;
}
