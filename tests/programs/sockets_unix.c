// SPDX-License-Identifier: GPL-2.0-or-later
/* Unix sockets: pairs, names in files and abstract ones, descriptors and credentials as ancillary data. */
#include "show.h"

#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static struct sockaddr_un named(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	strcpy(a.sun_path, path);
	return a;
}

static void pairs(void)
{
	static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
	struct msghdr msg;
	struct iovec vec;
	char buf[16];
	int fd[2];

	for (int i = 0; i < 3; i++) {
		say("type %d", types[i]);
		SHOW(socketpair(AF_UNIX, types[i] | SOCK_CLOEXEC, 0, fd));
		SHOW(write(fd[0], "one", 3));
		SHOW(write(fd[0], "two", 3));
		SHOW(recv(fd[1], buf, 2, MSG_PEEK));
		vec = (struct iovec){buf, 2};
		msg = (struct msghdr){.msg_iov = &vec, .msg_iovlen = 1};
		SHOW(recvmsg(fd[1], &msg, 0));
		say("flags %#x", msg.msg_flags);
		SHOW(recv(fd[1], buf, sizeof(buf), MSG_TRUNC));
		SHOW(recv(fd[1], buf, sizeof(buf), MSG_DONTWAIT));
		SHOW(send(fd[0], "", 0, 0));
		SHOW(recv(fd[1], buf, sizeof(buf), MSG_DONTWAIT));
		SHOW(shutdown(fd[0], SHUT_WR));
		SHOW(send(fd[0], "x", 1, MSG_NOSIGNAL));
		SHOW(recv(fd[1], buf, sizeof(buf), MSG_DONTWAIT));
		SHOW(send(fd[1], "back", 4, 0));
		SHOW(close(fd[1]));
		SHOW(recv(fd[0], buf, sizeof(buf), MSG_DONTWAIT));
		SHOW(recv(fd[0], buf, sizeof(buf), MSG_DONTWAIT));
		SHOW(send(fd[0], "x", 1, MSG_NOSIGNAL));
		close(fd[0]);
	}
	SHOW(socketpair(AF_UNIX, SOCK_RAW, 0, fd));
	close(fd[0]);
	close(fd[1]);
	SHOW(socketpair(AF_INET, SOCK_STREAM, 0, fd));
	SHOW(socketpair(AF_UNIX, SOCK_STREAM, 5, fd));
}

static void names(void)
{
	struct sockaddr_un a = named("socket"), got = {};
	socklen_t len = sizeof(got);
	struct stat st;
	char buf[8];
	int server = MUST(socket(AF_UNIX, SOCK_STREAM, 0)), client = MUST(socket(AF_UNIX, SOCK_STREAM, 0)), peer;

	SHOW(connect(client, (struct sockaddr *)&a, sizeof(a)));
	SHOW(bind(server, (struct sockaddr *)&a, sizeof(a)));
	SHOW(bind(server, (struct sockaddr *)&a, sizeof(a)));
	MUST(stat("socket", &st));
	say("mode %o", st.st_mode);
	SHOW(open("socket", O_RDWR));
	SHOW(connect(client, (struct sockaddr *)&a, sizeof(a)));
	SHOW(listen(server, 1));
	SHOW(connect(client, (struct sockaddr *)&a, sizeof(a)));
	SHOW(connect(client, (struct sockaddr *)&a, sizeof(a)));
	peer = SHOW(accept(server, (struct sockaddr *)&got, &len));
	say("nameless peer: %u bytes", len);
	len = sizeof(got);
	SHOW(getpeername(client, (struct sockaddr *)&got, &len));
	say("%s, %u bytes", got.sun_path, len);
	SHOW(chmod("socket", 0));
	SHOW(unlink("socket"));
	SHOW(send(peer, "still", 5, 0));
	SHOW(recv(client, buf, 8, 0));
	close(server);
	close(client);
	close(peer);

	/* A name that is no file. */
	a = (struct sockaddr_un){.sun_family = AF_UNIX};
	strcpy(a.sun_path + 1, "windtunnel-test");
	len = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a.sun_path + 1);
	server = MUST(socket(AF_UNIX, SOCK_SEQPACKET, 0));
	SHOW(bind(server, (struct sockaddr *)&a, len));
	MUST(listen(server, 5));
	client = MUST(socket(AF_UNIX, SOCK_SEQPACKET, 0));
	SHOW(connect(client, (struct sockaddr *)&a, sizeof(a)));
	SHOW(connect(client, (struct sockaddr *)&a, len));
	peer = SHOW(accept(server, NULL, NULL));
	close(server);
	close(client);
	SHOW(recv(peer, buf, 8, 0));
	close(peer);

	/* A name that the kernel chooses. */
	server = MUST(socket(AF_UNIX, SOCK_DGRAM, 0));
	SHOW(bind(server, (struct sockaddr *)&a, sizeof(a.sun_family)));
	len = sizeof(got);
	SHOW(getsockname(server, (struct sockaddr *)&got, &len));
	say("%u bytes, starts with %d", len, got.sun_path[0]);
	close(server);
}

static void datagrams(void)
{
	struct sockaddr_un a = named("receiver"), b = named("sender"), got = {};
	socklen_t len = sizeof(got);
	char buf[8];
	int one = MUST(socket(AF_UNIX, SOCK_DGRAM, 0)), two = MUST(socket(AF_UNIX, SOCK_DGRAM, 0)), count;

	MUST(bind(one, (struct sockaddr *)&a, sizeof(a)));
	SHOW(sendto(two, "anonymous", 9, 0, (struct sockaddr *)&a, sizeof(a)));
	SHOW(recvfrom(one, buf, 8, 0, (struct sockaddr *)&got, &len));
	say("%u bytes of name", len);
	MUST(bind(two, (struct sockaddr *)&b, sizeof(b)));
	SHOW(connect(two, (struct sockaddr *)&a, sizeof(a)));
	SHOW(send(two, "x", 1, 0));
	len = sizeof(got);
	SHOW(recvfrom(one, buf, 8, 0, (struct sockaddr *)&got, &len));
	say("%s", got.sun_path);
	for (count = 0; send(two, "x", 1, MSG_DONTWAIT) == 1; count++)
		;
	say("queue of %d: %s", count, error_name(errno));
	close(one);
	SHOW(send(two, "x", 1, 0));
	SHOW(sendto(two, "x", 1, 0, (struct sockaddr *)&a, sizeof(a)));
	close(two);
	unlink("receiver");
	unlink("sender");
}

static ssize_t send_fds(int fd, const int *fds, int count)
{
	char control[CMSG_SPACE(8 * sizeof(int))] = "";
	struct iovec vec = {"fds", 3};
	struct msghdr msg = {.msg_iov = &vec,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(c), fds, count * sizeof(int));
	return sendmsg(fd, &msg, 0);
}

static void receive_fds(int fd, size_t room, int flags)
{
	char control[256], buf[8];
	struct iovec vec = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_iov = &vec, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};

	SHOW(recvmsg(fd, &msg, flags));
	say("flags %#x", msg.msg_flags);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		int fds[8], count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		say("level %d type %d, %d of them", c->cmsg_level, c->cmsg_type, count);
		memcpy(fds, CMSG_DATA(c), count * sizeof(int));
		for (int i = 0; i < count; i++) {
			say("fd %d flags %d", fds[i], fcntl(fds[i], F_GETFD));
			close(fds[i]);
		}
	}
}

static void descriptors(void)
{
	int fd[2], file = MUST(open("passed", O_RDWR | O_CREAT, 0600)), fds[3] = {file, 0, 1}, bad[1] = {99};
	char buf[8];

	MUST(write(file, "content", 7));
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
	SHOW(send_fds(fd[0], fds, 3));
	receive_fds(fd[1], 256, 0);
	SHOW(send_fds(fd[0], fds, 1));
	receive_fds(fd[1], 256, MSG_CMSG_CLOEXEC);
	SHOW(send_fds(fd[0], fds, 3));
	receive_fds(fd[1], CMSG_LEN(sizeof(int)), 0);
	SHOW(send_fds(fd[0], fds, 1));
	receive_fds(fd[1], 0, 0);
	SHOW(send_fds(fd[0], bad, 1));
	/* A descriptor on the way keeps its file. */
	SHOW(send_fds(fd[0], fds, 1));
	close(file);
	MUST(unlink("passed"));
	receive_fds(fd[1], 256, 0);
	/* A socket in its own queue. */
	SHOW(send_fds(fd[0], fd + 1, 1));
	SHOW(send_fds(fd[0], fd, 2));
	SHOW(recv(fd[1], buf, 8, 0));
	close(fd[0]);
	close(fd[1]);
}

static void credentials(void)
{
	char control[256], buf[8];
	struct iovec vec = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_iov = &vec, .msg_iovlen = 1, .msg_control = control, .msg_controllen = 256};
	struct ucred peer;
	socklen_t len = sizeof(peer);
	struct cmsghdr *c;
	int fd[2], on = 1;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
	SHOW(getsockopt(fd[0], SOL_SOCKET, SO_PEERCRED, &peer, &len));
	SHOW_BOOL(peer.pid == getpid() && peer.uid == getuid() && peer.gid == getgid());
	SHOW(setsockopt(fd[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)));
	MUST(write(fd[0], "x", 1));
	SHOW(recvmsg(fd[1], &msg, 0));
	c = CMSG_FIRSTHDR(&msg);
	say("level %d type %d length %zu", c->cmsg_level, c->cmsg_type, c->cmsg_len);
	memcpy(&peer, CMSG_DATA(c), sizeof(peer));
	SHOW_BOOL(peer.pid == getpid() && peer.uid == getuid() && peer.gid == getgid());
	/* Nobody may claim to be another. */
	peer.pid = 1;
	c->cmsg_len = CMSG_LEN(sizeof(peer));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_CREDENTIALS;
	memcpy(CMSG_DATA(c), &peer, sizeof(peer));
	msg.msg_controllen = CMSG_SPACE(sizeof(peer));
	SHOW(sendmsg(fd[0], &msg, 0));
	close(fd[0]);
	close(fd[1]);
}

static void buffers(void)
{
	static char big[1 << 20];
	struct pollfd p;
	int fd[2], size;
	long total = 0, count;

	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd));
	while ((count = write(fd[0], big, 1000)) > 0)
		total += count;
	SHOW_BOOL(total > 50000);
	p = (struct pollfd){.fd = fd[0], .events = POLLOUT};
	SHOW(poll(&p, 1, 0));
	SHOW(ioctl(fd[1], FIONREAD, &size));
	SHOW_BOOL(size == total);
	SHOW(ioctl(fd[0], TIOCOUTQ, &size));
	SHOW_BOOL(size >= total);
	while (read(fd[1], big, sizeof(big)) > 0)
		;
	SHOW(poll(&p, 1, 0));
	close(fd[0]);
	close(fd[1]);
}

int main(void)
{
	pairs();
	names();
	datagrams();
	descriptors();
	credentials();
	buffers();
	return 0;
}
