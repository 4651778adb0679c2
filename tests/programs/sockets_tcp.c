// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* TCP over loopback, IPv4 and IPv6: connecting, data, half-closing, resets, options and names. */
#include "show.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

static struct sockaddr_storage name;
static socklen_t name_len;

static struct sockaddr_in loopback(int port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int listener(void)
{
	struct sockaddr_in a = loopback(0);
	int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));

	MUST(bind(fd, (struct sockaddr *)&a, sizeof(a)));
	MUST(listen(fd, 5));
	name_len = sizeof(name);
	MUST(getsockname(fd, (struct sockaddr *)&name, &name_len));
	return fd;
}

static void pair(int fd[2])
{
	int server = listener();

	fd[0] = MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(connect(fd[0], (struct sockaddr *)&name, name_len));
	fd[1] = MUST(accept(server, NULL, NULL));
	close(server);
}

static void wait_for(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	int count = poll(&p, 1, 5000);

	say("poll %d: %#x", count, p.revents);
}

static void refusals(void)
{
	struct sockaddr_in a = loopback(0), b;
	socklen_t len = sizeof(b);
	int fd, taken;

	SHOW(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	SHOW(socket(AF_INET, 77, 0));
	SHOW(socket(77, SOCK_STREAM, 0));
	SHOW(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
	SHOW(socket(AF_PACKET, SOCK_RAW, 0));
	fd = SHOW(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	SHOW(fcntl(fd, F_GETFD));
	SHOW(fcntl(fd, F_GETFL));
	SHOW(accept(fd, NULL, NULL));
	SHOW(send(fd, "x", 1, MSG_NOSIGNAL));
	SHOW(recv(fd, &b, 1, 0));
	SHOW(shutdown(fd, SHUT_WR));
	SHOW(getpeername(fd, (struct sockaddr *)&b, &len));
	SHOW(bind(fd, (struct sockaddr *)&a, 3));
	a.sin_addr.s_addr = htonl(0x08080808);
	SHOW(bind(fd, (struct sockaddr *)&a, sizeof(a)));
	a = loopback(0);
	SHOW(bind(fd, (struct sockaddr *)&a, sizeof(a)));
	SHOW(bind(fd, (struct sockaddr *)&a, sizeof(a)));
	SHOW(getsockname(fd, (struct sockaddr *)&b, &len));
	SHOW(listen(fd, 1));
	SHOW(accept4(fd, NULL, NULL, 0x1000));
	SHOW(accept4(fd, NULL, NULL, SOCK_NONBLOCK));
	taken = MUST(socket(AF_INET, SOCK_STREAM, 0));
	SHOW(bind(taken, (struct sockaddr *)&b, sizeof(b)));
	SHOW(connect(fd, (struct sockaddr *)&b, sizeof(b)));
	SHOW(shutdown(fd, 5));
	close(fd);
	SHOW(connect(taken, (struct sockaddr *)&b, sizeof(b)));
	b.sin_family = 77;
	SHOW(connect(taken, (struct sockaddr *)&b, sizeof(b)));
	SHOW(connect(taken, (struct sockaddr *)&b, 2));
	SHOW(connect(taken, NULL, sizeof(b)));
	SHOW(connect(0, (struct sockaddr *)&b, sizeof(b)));
	SHOW(connect(99, (struct sockaddr *)&b, sizeof(b)));
	close(taken);
}

static void data(void)
{
	char buf[32] = "", more[32] = "";
	struct iovec vec[2] = {{buf, 2}, {more, sizeof(more)}};
	struct msghdr msg = {.msg_iov = vec, .msg_iovlen = 2};
	int fd[2], left;

	pair(fd);
	SHOW(send(fd[0], "hello, world", 12, 0));
	SHOW(recv(fd[1], buf, 5, MSG_PEEK));
	SHOW(ioctl(fd[1], FIONREAD, &left));
	say("%d: %.5s", left, buf);
	SHOW(recvmsg(fd[1], &msg, 0));
	say("%.2s|%.10s flags %#x", buf, more, msg.msg_flags);
	SHOW(recv(fd[1], buf, 1, MSG_DONTWAIT));
	SHOW(writev(fd[1], (struct iovec[]){{"a", 1}, {"bc", 2}, {"", 0}, {"def", 3}}, 4));
	SHOW(recv(fd[0], buf, 6, MSG_WAITALL));
	say("%.6s", buf);
	SHOW(send(fd[0], "123456", 6, MSG_MORE));
	SHOW(send(fd[0], "7", 1, 0));
	SHOW(recv(fd[1], buf, 7, MSG_WAITALL | MSG_TRUNC));
	SHOW(send(fd[0], "!", 1, MSG_OOB));
	SHOW(send(fd[0], "after", 5, 0));
	wait_for(fd[1], POLLIN | POLLPRI);
	SHOW(recv(fd[1], buf, 1, MSG_OOB));
	say("%c", buf[0]);
	SHOW(ioctl(fd[1], SIOCATMARK, &left));
	say("at mark: %d", left);
	SHOW(recv(fd[1], buf, sizeof(buf), 0));
	SHOW(sendto(fd[0], "x", 1, 0, (struct sockaddr *)&name, name_len));
	SHOW(recvfrom(fd[1], buf, 1, 0, (struct sockaddr *)&name, &name_len));
	say("no name with TCP: %u", name_len);
	close(fd[0]);
	close(fd[1]);
}

static void ends(void)
{
	struct linger at_once = {.l_onoff = 1};
	char buf[8];
	int fd[2];

	pair(fd);
	SHOW(send(fd[0], "last", 4, 0));
	SHOW(shutdown(fd[0], SHUT_WR));
	SHOW(send(fd[0], "x", 1, MSG_NOSIGNAL));
	wait_for(fd[1], POLLIN | POLLRDHUP);
	SHOW(recv(fd[1], buf, 8, 0));
	SHOW(recv(fd[1], buf, 8, 0));
	SHOW(send(fd[1], "answer", 6, 0));
	SHOW(recv(fd[0], buf, 8, 0));
	SHOW(shutdown(fd[1], SHUT_RDWR));
	wait_for(fd[0], POLLIN | POLLRDHUP);
	SHOW(shutdown(fd[1], SHUT_RD));
	close(fd[0]);
	close(fd[1]);

	pair(fd);
	MUST(setsockopt(fd[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)));
	SHOW(close(fd[0]));
	wait_for(fd[1], POLLIN | POLLRDHUP);
	SHOW(recv(fd[1], buf, 8, 0));
	SHOW(recv(fd[1], buf, 8, 0));
	SHOW(send(fd[1], "x", 1, MSG_NOSIGNAL));
	close(fd[1]);

	pair(fd);
	MUST(send(fd[0], "unread", 6, 0));
	wait_for(fd[1], POLLIN);
	SHOW(close(fd[1]));
	wait_for(fd[0], POLLIN);
	SHOW(recv(fd[0], buf, 8, 0));
	close(fd[0]);
}

static void not_blocking(void)
{
	static char big[1 << 20];
	socklen_t len = sizeof(int);
	int server = listener(), fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), peer, error = -1;
	long sent = 0, got = 0, count;

	SHOW(connect(fd, (struct sockaddr *)&name, name_len));
	SHOW(connect(fd, (struct sockaddr *)&name, name_len));
	SHOW(connect(fd, (struct sockaddr *)&name, name_len));
	wait_for(fd, POLLOUT);
	SHOW(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
	say("error %d", error);
	peer = SHOW(accept(server, NULL, NULL));
	SHOW(fcntl(peer, F_GETFL));
	SHOW(fcntl(peer, F_SETFL, O_NONBLOCK));
	while ((count = send(fd, big, sizeof(big), 0)) > 0)
		sent += count;
	say("full: %s", error_name(errno));
	for (;;) {
		struct pollfd p = {.fd = peer, .events = POLLIN};

		count = recv(peer, big, sizeof(big), 0);
		if (count > 0)
			got += count;
		else if (got == sent || !poll(&p, 1, 2000))
			break;
	}
	SHOW_BOOL(got == sent && sent > 10000);
	wait_for(fd, POLLOUT);
	close(fd);
	close(peer);
	/* Nobody listens: the refusal comes as an error of the socket. */
	close(server);
	fd = MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	SHOW(connect(fd, (struct sockaddr *)&name, name_len));
	wait_for(fd, POLLOUT);
	error = -1;
	SHOW(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
	say("%s", error_name(error));
	SHOW(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len));
	say("%s", error ? error_name(error) : "no error");
	close(fd);
}

static void show_int(int fd, int level, int option, const char *text)
{
	int value = -1;
	socklen_t len = sizeof(value);

	if (getsockopt(fd, level, option, &value, &len))
		say("%s: %s", text, error_name(errno));
	else
		say("%s: %d (%u bytes)", text, value, len);
}
#define SHOW_INT(fd, level, option) show_int(fd, level, option, #option)

static void set_int(int fd, int level, int option, int value, const char *text)
{
	if (setsockopt(fd, level, option, &value, sizeof(value)))
		say("set %s to %d: %s", text, value, error_name(errno));
	else
		show_int(fd, level, option, text);
}
#define SET_INT(fd, level, option, value) set_int(fd, level, option, value, #option)

static void options(void)
{
	struct timeval time = {.tv_usec = 50000};
	struct tcp_info info;
	char text[32] = "";
	socklen_t len;
	int fd[2];

	pair(fd);
	SHOW_INT(fd[0], SOL_SOCKET, SO_TYPE);
	SHOW_INT(fd[0], SOL_SOCKET, SO_DOMAIN);
	SHOW_INT(fd[0], SOL_SOCKET, SO_PROTOCOL);
	SHOW_INT(fd[0], SOL_SOCKET, SO_ACCEPTCONN);
	SHOW_INT(fd[0], SOL_SOCKET, SO_ERROR);
	SET_INT(fd[0], SOL_SOCKET, SO_REUSEADDR, 1);
	SET_INT(fd[0], SOL_SOCKET, SO_REUSEPORT, 1);
	SET_INT(fd[0], SOL_SOCKET, SO_KEEPALIVE, 7);
	SET_INT(fd[0], SOL_SOCKET, SO_BROADCAST, 1);
	SET_INT(fd[0], SOL_SOCKET, SO_OOBINLINE, 1);
	SET_INT(fd[0], SOL_SOCKET, SO_SNDBUF, 10000);
	SET_INT(fd[0], SOL_SOCKET, SO_RCVBUF, 1);
	SET_INT(fd[0], SOL_SOCKET, SO_RCVLOWAT, 5);
	SET_INT(fd[0], SOL_SOCKET, SO_SNDLOWAT, 5);
	SET_INT(fd[0], SOL_SOCKET, SO_PRIORITY, 3);
	SET_INT(fd[0], SOL_SOCKET, SO_PRIORITY, 7);
	SET_INT(fd[0], SOL_SOCKET, SO_MARK, 1);
	SET_INT(fd[0], SOL_SOCKET, SO_INCOMING_CPU, 0);
	SET_INT(fd[0], SOL_SOCKET, SO_ZEROCOPY, 1);
	SET_INT(fd[0], SOL_SOCKET, 12345, 1);
	SET_INT(fd[0], 12345, 1, 1);
	SET_INT(fd[0], IPPROTO_TCP, TCP_NODELAY, 1);
	SET_INT(fd[0], IPPROTO_TCP, TCP_CORK, 1);
	SET_INT(fd[0], IPPROTO_TCP, TCP_MAXSEG, 1000);
	SET_INT(fd[0], IPPROTO_TCP, TCP_KEEPIDLE, 10);
	SET_INT(fd[0], IPPROTO_TCP, TCP_KEEPINTVL, 11);
	SET_INT(fd[0], IPPROTO_TCP, TCP_KEEPCNT, 3);
	SET_INT(fd[0], IPPROTO_TCP, TCP_KEEPCNT, 1000);
	SET_INT(fd[0], IPPROTO_TCP, TCP_SYNCNT, 2);
	SET_INT(fd[0], IPPROTO_TCP, TCP_DEFER_ACCEPT, 3);
	SET_INT(fd[0], IPPROTO_TCP, TCP_USER_TIMEOUT, 1234);
	SET_INT(fd[0], IPPROTO_TCP, TCP_QUICKACK, 0);
	SET_INT(fd[0], IPPROTO_TCP, TCP_FASTOPEN, 5);
	SET_INT(fd[0], IPPROTO_TCP, TCP_LINGER2, 7);
	SET_INT(fd[0], IPPROTO_IP, IP_TOS, 0x10);
	SET_INT(fd[0], IPPROTO_IP, IP_TTL, 33);
	SET_INT(fd[0], IPPROTO_IP, IP_TTL, 256);
	SET_INT(fd[0], IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	SET_INT(fd[0], IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
	SHOW_INT(fd[0], IPPROTO_IP, IP_MTU);
	SHOW_INT(fd[0], IPPROTO_IPV6, IPV6_V6ONLY);
	len = sizeof(text);
	SHOW(setsockopt(fd[0], IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
	SHOW(getsockopt(fd[0], IPPROTO_TCP, TCP_CONGESTION, text, &len));
	say("%s (%u bytes)", text, len);
	SHOW(setsockopt(fd[0], IPPROTO_TCP, TCP_CONGESTION, "nonesuch", 8));
	SHOW(setsockopt(fd[0], SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
	SHOW(setsockopt(fd[0], SOL_SOCKET, SO_BINDTODEVICE, "nonesuch", 9));
	SHOW(setsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	SHOW(recv(fd[0], text, 1, 0));
	time.tv_usec = 2000000;
	SHOW(setsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)));
	SHOW(setsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &time, 1));
	SHOW(setsockopt(fd[0], SOL_SOCKET, SO_TYPE, &time, sizeof(int)));
	SHOW(getsockopt(fd[0], SOL_SOCKET, SO_TYPE, NULL, NULL));
	len = sizeof(info);
	SHOW(getsockopt(fd[0], IPPROTO_TCP, TCP_INFO, &info, &len));
	say("state %d", info.tcpi_state);
	close(fd[0]);
	close(fd[1]);
}

static void names(void)
{
	struct sockaddr_in mine, theirs;
	socklen_t len = sizeof(mine);
	int server = listener(), fd = MUST(socket(AF_INET, SOCK_STREAM, 0)), peer;
	char short_name[4];

	MUST(connect(fd, (struct sockaddr *)&name, name_len));
	MUST(getsockname(fd, (struct sockaddr *)&mine, &len));
	peer = MUST(accept(server, (struct sockaddr *)&theirs, &len));
	say("%s, %u bytes", inet_ntoa(theirs.sin_addr), len);
	SHOW_BOOL(mine.sin_port == theirs.sin_port);
	MUST(getpeername(fd, (struct sockaddr *)&theirs, &len));
	SHOW_BOOL(theirs.sin_port == ((struct sockaddr_in *)&name)->sin_port);
	len = sizeof(short_name);
	SHOW(getsockname(fd, (struct sockaddr *)short_name, &len));
	say("%u bytes", len);
	len = -1;
	SHOW(getsockname(fd, (struct sockaddr *)short_name, &len));
	close(peer);
	close(fd);
	close(server);
}

static void version_6(void)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT}, peer;
	struct sockaddr_in old = loopback(0);
	socklen_t len = sizeof(a);
	char text[INET6_ADDRSTRLEN], buf[4];
	int server = MUST(socket(AF_INET6, SOCK_STREAM, 0)), fd, got;

	SHOW_INT(server, IPPROTO_IPV6, IPV6_V6ONLY);
	MUST(bind(server, (struct sockaddr *)&a, sizeof(a)));
	SET_INT(server, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	MUST(listen(server, 5));
	MUST(getsockname(server, (struct sockaddr *)&a, &len));
	a.sin6_addr = in6addr_loopback;
	fd = MUST(socket(AF_INET6, SOCK_STREAM, 0));
	SHOW(connect(fd, (struct sockaddr *)&a, sizeof(a)));
	len = sizeof(peer);
	got = SHOW(accept(server, (struct sockaddr *)&peer, &len));
	say("%s %u", inet_ntop(AF_INET6, &peer.sin6_addr, text, sizeof(text)), len);
	SHOW(send(got, "six", 3, 0));
	SHOW(recv(fd, buf, 4, 0));
	close(fd);
	close(got);
	/* An IPv4 client of an IPv6 socket. */
	fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
	old.sin_port = a.sin6_port;
	SHOW(connect(fd, (struct sockaddr *)&old, sizeof(old)));
	got = SHOW(accept(server, (struct sockaddr *)&peer, &len));
	say("%s %u", inet_ntop(AF_INET6, &peer.sin6_addr, text, sizeof(text)), len);
	close(fd);
	close(got);
	close(server);
}

int main(void)
{
	refusals();
	data();
	ends();
	not_blocking();
	options();
	names();
	version_6();
	return 0;
}
