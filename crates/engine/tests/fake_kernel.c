/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A kernel image without Linux, to try the engine as a whole: it takes any configuration, forwards frames from each NIC
 * to its neighbour (NIC number xor 1) if there is one, and its "programs" do what their first argument says:
 *   say TEXT            writes to standard output and exits with 0
 *   exit CODE           exits with CODE
 *   stay                runs until it gets a signal
 *   deaf                runs until it gets SIGKILL
 *   send COUNT PERIOD   sends COUNT frames, one every PERIOD ns, then exits with 0
 *   panic               makes the kernel panic
 *   reach ADDRESS       has its memory made active, and the kernel read there
 */
#include <windtunnel/boundary.h>

#define NONE (~0ull)
#define PROGRAMS 16
#define FRAME_BYTES 1000u

enum { NR_WRITE = 1, NR_OPEN = 2, NR_SOCKET = 41, NR_SENDTO = 44, NR_RECVFROM = 45, NR_KILL = 62 };

struct program {
	wt_u64 key;
	int alive, deaf;
};

static const struct wt_host_ops *ops;
static const struct wt_boot *boot_arguments;
static void *host;
static struct program programs[PROGRAMS];
static wt_u32 program_count;
static unsigned char request[64];
static wt_u64 send_left, send_period, send_number, send_pid;

static int equal(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static wt_u64 number(const char *text)
{
	wt_u64 n = 0;

	while (*text)
		n = n * 10 + (*text++ - '0');
	return n;
}

static wt_u64 length(const char *text)
{
	wt_u64 n = 0;

	while (text[n])
		n++;
	return n;
}

static void put32(unsigned char *at, wt_u32 value)
{
	for (int i = 0; i < 4; i++)
		at[i] = value >> (8 * i);
}

static void ended(wt_u64 pid, wt_u64 status)
{
	struct program *p = &programs[pid - 2];

	if (!p->alive)
		return;
	p->alive = 0;
	ops->proc_event(host, WT_PROC_EXITED, p->key, pid, status);
}

/* Acknowledges the last netlink message; a question for a link gets interface 2. */
static wt_s64 answer(unsigned char *to)
{
	int link = request[4] == 18;

	for (int i = 0; i < 36; i++)
		to[i] = 0;
	put32(to, link ? 32 : 36);
	to[4] = link ? 16 : 2;
	for (int i = 8; i < 12; i++)
		to[i] = request[i];
	if (link)
		put32(to + 20, 2);
	return link ? 32 : 36;
}

static wt_s64 system_call(const struct wt_ctl *c)
{
	switch (c->nr) {
	case NR_SOCKET:
	case NR_OPEN:
		return 5;
	case NR_WRITE:
		return c->arg[2];
	case NR_SENDTO:
		for (wt_u64 i = 0; i < c->arg[2] && i < sizeof(request); i++)
			request[i] = ((const unsigned char *)c->arg[1])[i];
		return c->arg[2];
	case NR_RECVFROM:
		return answer((unsigned char *)c->arg[1]);
	case NR_KILL:
		if (c->arg[1] == 9 || !programs[c->arg[0] - 2].deaf)
			ended(c->arg[0], c->arg[1]);
		return 0;
	}
	return 0;
}

static wt_s64 spawn(struct wt_entry *e, const struct wt_spawn *s)
{
	const char *command = s->argv[1];
	wt_u64 pid = program_count + 2;
	struct program *p = &programs[program_count++];

	*p = (struct program){ s->key, 1, equal(command, "deaf") };
	ops->proc_event(host, WT_PROC_STARTED, s->key, pid, 0);
	e->syscalls++;
	if (equal(command, "say")) {
		ops->fs_write(host, s->file[1], s->argv[2], length(s->argv[2]), 0);
		ended(pid, 0);
	} else if (equal(command, "exit")) {
		ended(pid, number(s->argv[2]) << 8);
	} else if (equal(command, "send")) {
		send_left = number(s->argv[2]);
		send_period = number(s->argv[3]);
		send_pid = pid;
		e->next_timer_ns = e->now_ns + send_period;
	} else if (equal(command, "panic")) {
		ops->panic(host, "made up", 7);
	} else if (equal(command, "reach")) {
		ops->as_activate(host, 1);
		(void)*(volatile wt_u64 *)number(s->argv[2]);
		ended(pid, 0);
	}
	return pid;
}

static void transmit(struct wt_entry *e, wt_u32 nic, const unsigned char *data, wt_u32 len)
{
	struct wt_frame *f;

	if (e->pool->count)
		f = e->pool->slot[--e->pool->count];
	else
		f = ops->frame_alloc(host, len);
	f->len = len;
	f->flags = 0;
	__builtin_memcpy(f->data, data, len);
	e->tx[e->tx_count++] = (struct wt_tx){ f, nic, 0 };
}

static void send_next(struct wt_entry *e)
{
	static unsigned char data[FRAME_BYTES];

	put32(data + 14, send_number++);
	transmit(e, 0, data, FRAME_BYTES);
	e->next_timer_ns = --send_left ? e->now_ns + send_period : NONE;
	if (!send_left)
		ended(send_pid, 0);
}

static void enter(struct wt_entry *e)
{
	if (e->next_timer_ns <= e->now_ns)
		send_next(e);
	for (wt_u32 i = 0; i < e->rx_count; i++) {
		const struct wt_rx *rx = &e->rx[i];

		if ((rx->nic ^ 1) < boot_arguments->nic_count)
			transmit(e, rx->nic ^ 1, rx->frame->data, rx->frame->len);
	}
	if (e->events & WT_EV_CTL) {
		for (struct wt_ctl *c = e->ctl_head, *next; c; c = next) {
			next = c->next;
			c->result = c->kind == WT_CTL_SPAWN ? spawn(e, c->spawn) : system_call(c);
			c->done = 1;
			e->ctl_done++;
		}
	}
	e->events = 0;
}

static wt_s64 boot(const struct wt_boot *b)
{
	boot_arguments = b;
	ops = b->ops;
	host = b->host;
	b->entry->next_timer_ns = NONE;
	ops->console(host, "made-up kernel\n", 15);
	return 0;
}

void *memcpy(void *to, const void *from, unsigned long len)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len) : : "memory");
	return to;
}

void *memset(void *to, int byte, unsigned long len)
{
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(len) : "a"(byte) : "memory");
	return to;
}

static const char comm[16] = "made-up";

static const char *current_comm(void)
{
	return comm;
}

/* No connections and no queues. */
static wt_s64 sample(struct wt_sample *sample)
{
	sample->count = 0;
	return 0;
}

__attribute__((visibility("default"))) struct wt_kernel wt_kernel = {
	.version = WT_ABI_VERSION,
	.size = sizeof(struct wt_kernel),
	.boot = boot,
	.enter = enter,
	.release = "0.0.0-made-up",
	.banner = "made-up kernel",
	.current_comm = current_comm,
	.sample = sample,
};
