// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/*
 * Rings of packet sockets in a program's memory (packet(7), PACKET_RX_RING), on the loopback of a network namespace of
 * its own: who maps a ring keeps it, and its socket, alive.
 */
#include "show.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define BLOCKS	 4
#define BLOCK	 4096
#define FRAME	 2048
#define FRAMES	 (BLOCKS * BLOCK / FRAME)
#define RING	 ((size_t)BLOCKS * BLOCK)
#define PORT	 7777
#define LOOPBACK 0x7f000001

static void loopback_up(void)
{
	int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	struct ifreq request = {.ifr_name = "lo"};

	MUST(ioctl(fd, SIOCGIFFLAGS, &request));
	request.ifr_flags |= IFF_UP;
	MUST(ioctl(fd, SIOCSIFFLAGS, &request));
	close(fd);
}

static int listening(void)
{
	struct sockaddr_ll here = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP)};
	int fd = MUST(socket(AF_PACKET, SOCK_RAW, 0)), version = TPACKET_V2;

	MUST(setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)));
	here.sll_ifindex = if_nametoindex("lo");
	MUST(bind(fd, (struct sockaddr *)&here, sizeof(here)));
	return fd;
}

static int set_ring(int fd, unsigned int blocks)
{
	struct tpacket_req request = {
		.tp_block_size = blocks ? BLOCK : 0,
		.tp_block_nr = blocks,
		.tp_frame_size = blocks ? FRAME : 0,
		.tp_frame_nr = blocks * (BLOCK / FRAME),
	};

	return setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof(request));
}

static void *map(int fd)
{
	void *ring = mmap(NULL, RING, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	MUST(ring == MAP_FAILED ? -1 : 0);
	return ring;
}

static void send_one(const char *text)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(LOOPBACK)};
	int fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));

	MUST(sendto(fd, text, strlen(text), 0, (struct sockaddr *)&to, sizeof(to)));
	close(fd);
}

/* The datagrams that the ring holds and nobody has read; between them are ICMP's answers to them. */
static void show_frames(char *ring)
{
	for (int i = 0; i < FRAMES; i++) {
		struct tpacket2_hdr *header = (struct tpacket2_hdr *)(ring + (size_t)i * FRAME);
		const char *ip = (const char *)header + header->tp_net;

		if (!(header->tp_status & TP_STATUS_USER) || ip[9] != IPPROTO_UDP)
			continue;
		say("frame %d: %u bytes, %.*s", i, header->tp_len, (int)header->tp_len - 42, ip + 28);
		header->tp_status = TP_STATUS_KERNEL;
	}
}

static void counted(void)
{
	int fd = listening();
	char *ring;
	pid_t child;

	SHOW(mmap(NULL, RING, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
	SHOW(set_ring(fd, BLOCKS));
	SHOW(mmap(NULL, RING / 2, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
	SHOW(mmap(NULL, RING, PROT_READ, MAP_SHARED, fd, BLOCK) == MAP_FAILED ? -1 : 0);
	ring = map(fd);
	SHOW(set_ring(fd, 0));
	SHOW(munmap(ring, RING));
	SHOW(set_ring(fd, 0));
	SHOW(set_ring(fd, BLOCKS));
	ring = map(fd);
	SHOW(munmap(ring + BLOCK, BLOCK));
	SHOW(set_ring(fd, 0));
	SHOW(munmap(ring, RING));
	SHOW(set_ring(fd, 0));
	SHOW(set_ring(fd, BLOCKS));
	ring = map(fd);
	child = MUST(fork());
	if (!child) {
		SHOW(munmap(ring, RING));
		SHOW(set_ring(fd, 0));
		_exit(0);
	}
	MUST(waitpid(child, NULL, 0));
	SHOW(munmap(ring, RING));
	SHOW(set_ring(fd, 0));
	close(fd);
}

static void received(void)
{
	int fd = listening();
	char *ring;
	pid_t child;

	MUST(set_ring(fd, BLOCKS));
	ring = map(fd);
	send_one("hello");
	show_frames(ring);
	child = MUST(fork());
	if (!child) {
		send_one("from the child");
		show_frames(ring);
		_exit(0);
	}
	MUST(waitpid(child, NULL, 0));
	send_one("to the parent");
	show_frames(ring);
	SHOW(close(fd));
	send_one("after close");
	show_frames(ring);
	SHOW(munmap(ring, RING));
}

int main(void)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
		fprintf(stderr, "no user namespaces: %m\n");
		return SHOW_FORBIDDEN;
	}
	loopback_up();
	counted();
	received();
	return 0;
}
