// SPDX-License-Identifier: GPL-2.0-or-later
// Traffic of a data centre, one program per host: flows HOST SEED LOAD RATE_BPS SECONDS ADDRESS...
//
// Serves others, and sends them flows: the time between two is exponential, so that all flows of this host take LOAD (0 to 1) of
// its link's RATE_BPS; sizes are those of web search (table below). A flow is done when the receiver, having got all of it, says
// so. Prints a line per flow that began in the given time: size in bytes, begin, and how long it took, both in nanoseconds; then
// `done`. Ends when its standard input does: until then it serves.
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT	    5001
#define FLOWS_MAX   100000
#define STACK_BYTES (64 << 10)

// How large flows are, bytes, and which part of them is not larger: web search as Alizadeh et al. measured it (DCTCP, SIGCOMM
// 2010, figure 4), in rough steps; a flow's size is drawn evenly between two of them.
static const struct {
	double bytes, part;
} sizes[] = {
	{1e3, 0},     {6e3, 0.15},  {13e3, 0.3},   {19e3, 0.4},	   {33e3, 0.53},   {53e3, 0.6},
	{133e3, 0.7}, {667e3, 0.8}, {1333e3, 0.9}, {3333e3, 0.95}, {6667e3, 0.98}, {20e6, 1},
};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

struct flow {
	struct sockaddr_in to;
	int64_t bytes, began_ns, took_ns;
};

static struct flow flows[FLOWS_MAX];
static char chunk[1 << 16];
static pthread_attr_t small_stack;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// xorshift64*: the same numbers with any C library. Above 0, at most 1.
static double draw(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return ((*state * 0x2545F4914F6CDD1DULL >> 11) + 1) / 9007199254740992.0;
}

static int64_t draw_size(uint64_t *state)
{
	double at = draw(state);
	size_t i = 1;

	while (i < SIZES - 1 && at > sizes[i].part)
		i++;
	at = (at - sizes[i - 1].part) / (sizes[i].part - sizes[i - 1].part);
	return sizes[i - 1].bytes + (sizes[i].bytes - sizes[i - 1].bytes) * at;
}

static double mean_size(void)
{
	double total = 0;

	for (size_t i = 1; i < SIZES; i++)
		total += (sizes[i].bytes + sizes[i - 1].bytes) / 2 * (sizes[i].part - sizes[i - 1].part);
	return total;
}

static void *receive(void *socket)
{
	int fd = (intptr_t)socket;
	char buffer[1 << 14];
	ssize_t got;

	while ((got = read(fd, buffer, sizeof(buffer))) > 0)
		;
	if (got < 0 || write(fd, "!", 1) != 1)
		die("receiving");
	close(fd);
	return NULL;
}

static void start(pthread_t *thread, void *(*function)(void *), void *argument)
{
	errno = pthread_create(thread, &small_stack, function, argument);
	if (errno)
		die("a thread");
}

static void *serve(void *listener)
{
	pthread_t thread;

	for (;;) {
		int fd = accept((intptr_t)listener, NULL, NULL);

		if (fd < 0)
			die("accept");
		start(&thread, receive, (void *)(intptr_t)fd);
		pthread_detach(thread);
	}
}

static void *send_flow(void *argument)
{
	struct flow *flow = argument;
	int64_t left = flow->bytes;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char answer;

	flow->began_ns = now_ns();
	if (fd < 0 || connect(fd, (struct sockaddr *)&flow->to, sizeof(flow->to)))
		die("connect");
	while (left > 0) {
		ssize_t sent = write(fd, chunk, left < (int64_t)sizeof(chunk) ? left : (int64_t)sizeof(chunk));

		if (sent < 0)
			die("sending");
		left -= sent;
	}
	shutdown(fd, SHUT_WR);
	if (read(fd, &answer, 1) != 1)
		die("the receiver's answer");
	flow->took_ns = now_ns() - flow->began_ns;
	close(fd);
	return NULL;
}

static int listen_here(void)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof(here)) || listen(fd, 1024))
		die("listen");
	return fd;
}

static struct sockaddr_in address(const char *text)
{
	struct sockaddr_in other = {.sin_family = AF_INET, .sin_port = htons(PORT)};

	if (inet_pton(AF_INET, text, &other.sin_addr) != 1) {
		fprintf(stderr, "%s is no IPv4 address\n", text);
		exit(2);
	}
	return other;
}

int main(int argc, char **argv)
{
	static pthread_t threads[FLOWS_MAX];
	struct sockaddr_in others[256];
	double load, rate_bps, seconds, mean_gap_s;
	uint64_t state;
	int64_t at_ns, end_ns;
	int count = 0, peers = argc - 6;
	char end;

	if (peers < 1 || peers > 256) {
		fprintf(stderr, "usage: flows HOST SEED LOAD RATE_BPS SECONDS ADDRESS...\n");
		return 2;
	}
	state = strtoull(argv[2], NULL, 10) * 0x9E3779B97F4A7C15ULL;
	for (const char *letter = argv[1]; *letter; letter++)
		state = (state ^ *letter) * 0x100000001B3ULL;
	load = strtod(argv[3], NULL);
	rate_bps = strtod(argv[4], NULL);
	seconds = strtod(argv[5], NULL);
	for (int i = 0; i < peers; i++)
		others[i] = address(argv[6 + i]);
	pthread_attr_init(&small_stack);
	pthread_attr_setstacksize(&small_stack, STACK_BYTES);
	start(&threads[0], serve, (void *)(intptr_t)listen_here());

	mean_gap_s = mean_size() * 8 / (load * rate_bps);
	at_ns = 3000000000LL; // of virtual time: all serve by then
	end_ns = at_ns + seconds * 1e9;
	for (;;) {
		struct timespec at;

		at_ns += -log(draw(&state)) * mean_gap_s * 1e9;
		if (at_ns >= end_ns || count == FLOWS_MAX)
			break;
		at.tv_sec = at_ns / 1000000000;
		at.tv_nsec = at_ns % 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		flows[count].to = others[(int)(draw(&state) * peers) % peers];
		flows[count].bytes = draw_size(&state);
		start(&threads[count], send_flow, &flows[count]);
		count++;
	}
	for (int i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
		printf("%lld %lld %lld\n", (long long)flows[i].bytes, (long long)flows[i].began_ns,
		       (long long)flows[i].took_ns);
	}
	puts("done");
	fflush(stdout);
	while (read(0, &end, 1) > 0)
		;
	return 0;
}
