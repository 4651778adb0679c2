// SPDX-License-Identifier: GPL-2.0-or-later
/* UDP over loopback: borders of datagrams, errors by ICMP, ancillary data, connected sockets, multicast, IPv6. */
#include "show.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static struct sockaddr_in any_port(void)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int bound(struct sockaddr_in *a)
{
	socklen_t len = sizeof(*a);
	int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));

	*a = any_port();
	MUST(bind(fd, (struct sockaddr *)a, sizeof(*a)));
	MUST(getsockname(fd, (struct sockaddr *)a, &len));
	return fd;
}

static void datagrams(void)
{
	static char big[70000];
	struct sockaddr_in a, b, from;
	socklen_t len = sizeof(from);
	char buf[16] = "";
	struct iovec vec = {buf, 4};
	struct msghdr msg = {.msg_iov = &vec, .msg_iovlen = 1};
	int one = bound(&a), two = bound(&b), size;

	SHOW(sendto(one, "first datagram", 14, 0, (struct sockaddr *)&b, sizeof(b)));
	SHOW(sendto(one, "", 0, 0, (struct sockaddr *)&b, sizeof(b)));
	SHOW(sendto(one, "third", 5, 0, (struct sockaddr *)&b, sizeof(b)));
	SHOW(ioctl(two, FIONREAD, &size));
	say("%d", size);
	SHOW(recvfrom(two, buf, 5, MSG_PEEK, (struct sockaddr *)&from, &len));
	SHOW_BOOL(from.sin_port == a.sin_port && len == sizeof(from));
	SHOW(recv(two, buf, 5, MSG_PEEK | MSG_TRUNC));
	SHOW(recvmsg(two, &msg, 0));
	say("%.4s flags %#x", buf, msg.msg_flags);
	SHOW(recv(two, buf, sizeof(buf), 0));
	SHOW(recv(two, buf, sizeof(buf), 0));
	SHOW(recv(two, buf, sizeof(buf), MSG_DONTWAIT));
	SHOW(sendto(one, big, 65507, 0, (struct sockaddr *)&b, sizeof(b)));
	SHOW(recv(two, big, sizeof(big), 0));
	SHOW(sendto(one, big, 65508, 0, (struct sockaddr *)&b, sizeof(b)));
	SHOW(send(one, "x", 1, 0));
	b.sin_port = 0;
	SHOW(sendto(one, "x", 1, 0, (struct sockaddr *)&b, sizeof(b)));
	b.sin_addr.s_addr = htonl(INADDR_BROADCAST);
	b.sin_port = 1;
	SHOW(sendto(one, "x", 1, 0, (struct sockaddr *)&b, sizeof(b)));
	SHOW(listen(one, 1));
	SHOW(accept(one, NULL, NULL));
	close(one);
	close(two);
}

static void connected(void)
{
	struct sockaddr_in a, b, c;
	struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	socklen_t len = sizeof(c);
	char buf[8];
	int one = bound(&a), two = bound(&b), three = bound(&c);

	SHOW(connect(one, (struct sockaddr *)&b, sizeof(b)));
	SHOW(send(one, "hi", 2, 0));
	SHOW(recv(two, buf, 8, 0));
	SHOW(sendto(three, "stranger", 8, 0, (struct sockaddr *)&a, sizeof(a)));
	SHOW(sendto(two, "friend", 6, 0, (struct sockaddr *)&a, sizeof(a)));
	SHOW(recv(one, buf, 8, 0));
	SHOW(recv(one, buf, 8, MSG_DONTWAIT));
	SHOW(sendto(one, "other", 5, 0, (struct sockaddr *)&c, sizeof(c)));
	SHOW(recv(three, buf, 8, 0));
	SHOW(shutdown(one, SHUT_WR));
	SHOW(send(one, "x", 1, MSG_NOSIGNAL));
	SHOW(connect(one, &nobody, sizeof(nobody)));
	SHOW(getpeername(one, (struct sockaddr *)&c, &len));
	close(one);
	one = bound(&a);
	MUST(connect(one, (struct sockaddr *)&b, sizeof(b)));
	close(two);
	SHOW(send(one, "x", 1, 0));
	SHOW(recv(one, buf, 8, 0));
	SHOW(recv(one, buf, 8, MSG_DONTWAIT));
	close(one);
	close(three);
}

static void error_queue(void)
{
	struct sockaddr_in a, gone;
	char buf[8], control[512];
	struct iovec vec = {buf, sizeof(buf)};
	struct msghdr msg = {
		.msg_iov = &vec, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct pollfd p;
	int fd = bound(&a), on = 1;

	close(bound(&gone));
	SHOW(recvmsg(fd, &msg, MSG_ERRQUEUE));
	MUST(setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on)));
	SHOW(sendto(fd, "lost", 4, 0, (struct sockaddr *)&gone, sizeof(gone)));
	p = (struct pollfd){.fd = fd, .events = POLLIN};
	SHOW(poll(&p, 1, 1000));
	say("%#x", p.revents);
	msg.msg_controllen = sizeof(control);
	SHOW(recvmsg(fd, &msg, MSG_ERRQUEUE));
	say("%.4s flags %#x", buf, msg.msg_flags);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		struct sock_extended_err *e = (struct sock_extended_err *)CMSG_DATA(c);

		say("level %d type %d length %zu: %s origin %d type %d code %d", c->cmsg_level, c->cmsg_type,
		    c->cmsg_len, error_name(e->ee_errno), e->ee_origin, e->ee_type, e->ee_code);
	}
	close(fd);
}

static void ancillary(void)
{
	struct sockaddr_in a, b;
	char buf[8], control[512];
	struct iovec vec = {buf, sizeof(buf)};
	struct msghdr msg = {
		.msg_iov = &vec, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	int one = bound(&a), two = bound(&b), on = 1, ttl = 9, tos = 0x20;

	MUST(setsockopt(two, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)));
	MUST(setsockopt(two, IPPROTO_IP, IP_RECVTTL, &on, sizeof(on)));
	MUST(setsockopt(two, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on)));
	MUST(setsockopt(two, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)));
	MUST(setsockopt(one, IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl)));
	MUST(setsockopt(one, IPPROTO_IP, IP_TOS, &tos, sizeof(tos)));
	MUST(sendto(one, "x", 1, 0, (struct sockaddr *)&b, sizeof(b)));
	SHOW(recvmsg(two, &msg, 0));
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		say("level %d type %d length %zu", c->cmsg_level, c->cmsg_type, c->cmsg_len);
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL)
			say("ttl %d", *(int *)CMSG_DATA(c));
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
			say("tos %d", *CMSG_DATA(c));
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO)
			say("to %s", inet_ntoa(((struct in_pktinfo *)CMSG_DATA(c))->ipi_addr));
	}
	/* Too little room for it. */
	MUST(sendto(one, "x", 1, 0, (struct sockaddr *)&b, sizeof(b)));
	msg.msg_controllen = CMSG_LEN(4);
	SHOW(recvmsg(two, &msg, 0));
	say("flags %#x", msg.msg_flags);
	close(one);
	close(two);
}

static void many_at_once(void)
{
	struct sockaddr_in a, b;
	char buf[4][8];
	struct iovec vec[4] = {{"a", 1}, {"bb", 2}, {"ccc", 3}, {"", 0}};
	struct mmsghdr m[4] = {};
	struct timespec timeout = {.tv_nsec = 10000000};
	int one = bound(&a), two = bound(&b);

	for (int i = 0; i < 4; i++)
		m[i].msg_hdr =
			(struct msghdr){.msg_name = &b, .msg_namelen = sizeof(b), .msg_iov = &vec[i], .msg_iovlen = 1};
	SHOW(sendmmsg(one, m, 4, 0));
	for (int i = 0; i < 4; i++) {
		vec[i] = (struct iovec){buf[i], 8};
		m[i].msg_hdr.msg_name = NULL;
	}
	SHOW(recvmmsg(two, m, 3, 0, &timeout));
	say("%u %u %u", m[0].msg_len, m[1].msg_len, m[2].msg_len);
	SHOW(recvmmsg(two, m, 3, MSG_DONTWAIT, NULL));
	SHOW(recvmmsg(two, m, 3, MSG_DONTWAIT, NULL));
	close(one);
	close(two);
}

static void multicast(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET}, group;
	struct ip_mreqn join = {.imr_ifindex = if_nametoindex("lo")};
	socklen_t len = sizeof(a);
	unsigned char ttl = 5, off = 0;
	char buf[8];
	int receiver = MUST(socket(AF_INET, SOCK_DGRAM, 0)), sender = MUST(socket(AF_INET, SOCK_DGRAM, 0));

	MUST(bind(receiver, (struct sockaddr *)&a, sizeof(a)));
	MUST(getsockname(receiver, (struct sockaddr *)&a, &len));
	join.imr_multiaddr.s_addr = inet_addr("239.1.2.3");
	SHOW(setsockopt(receiver, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof(join)));
	SHOW(setsockopt(receiver, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof(join)));
	SHOW(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &join, sizeof(join)));
	SHOW(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, 1));
	group = a;
	group.sin_addr = join.imr_multiaddr;
	SHOW(sendto(sender, "to all", 6, 0, (struct sockaddr *)&group, sizeof(group)));
	SHOW(recv(receiver, buf, 8, MSG_DONTWAIT));
	SHOW(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_LOOP, &off, 1));
	SHOW(setsockopt(receiver, IPPROTO_IP, IP_DROP_MEMBERSHIP, &join, sizeof(join)));
	SHOW(setsockopt(receiver, IPPROTO_IP, IP_DROP_MEMBERSHIP, &join, sizeof(join)));
	join.imr_multiaddr.s_addr = inet_addr("10.1.2.3");
	SHOW(setsockopt(receiver, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof(join)));
	close(receiver);
	close(sender);
}

static void version_6(void)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}, from;
	socklen_t len = sizeof(a);
	char buf[8], control[256], text[INET6_ADDRSTRLEN];
	struct iovec vec = {buf, sizeof(buf)};
	struct msghdr msg = {.msg_name = &from,
			     .msg_namelen = sizeof(from),
			     .msg_iov = &vec,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	int fd = MUST(socket(AF_INET6, SOCK_DGRAM, 0)), on = 1, hops = 12;

	MUST(bind(fd, (struct sockaddr *)&a, sizeof(a)));
	MUST(getsockname(fd, (struct sockaddr *)&a, &len));
	SHOW(setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on)));
	SHOW(setsockopt(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof(on)));
	SHOW(setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &hops, sizeof(hops)));
	SHOW(sendto(fd, "six", 3, 0, (struct sockaddr *)&a, sizeof(a)));
	SHOW(recvmsg(fd, &msg, 0));
	say("from %s", inet_ntop(AF_INET6, &from.sin6_addr, text, sizeof(text)));
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		say("level %d type %d length %zu", c->cmsg_level, c->cmsg_type, c->cmsg_len);
		if (c->cmsg_type == IPV6_HOPLIMIT)
			say("hops %d", *(int *)CMSG_DATA(c));
	}
	close(fd);
}

int main(void)
{
	datagrams();
	connected();
	error_queue();
	ancillary();
	many_at_once();
	multicast();
	version_6();
	return 0;
}
