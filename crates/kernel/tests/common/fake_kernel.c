/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A kernel image without Linux: it does what the frames and requests it is given say, to try the host's side of the
 * boundary. Built like the real one: no libc, RELR relocations only, one exported symbol.
 */
#include <windtunnel/boundary.h>

#ifndef EXPORT
#define EXPORT __attribute__((visibility("default")))
#endif
#define COMMAND(entry) ((entry)->rx[0].frame->data[0])

static const struct wt_boot *boot_arguments;
static const struct wt_host_ops *ops;
static void *host;
static wt_u64 boots;             /* bss */
static char comm[16] = "fake-program";
/* Pointers in data: to be relocated. */
static const char *names[] = { "zero", "one", "two" };
static const char **names_again = names;

static wt_u64 length(const char *text)
{
	wt_u64 n = 0;

	while (text[n])
		n++;
	return n;
}

static void say(const char *text)
{
	ops->console(host, text, length(text));
}

static wt_s64 boot(const struct wt_boot *b)
{
	boot_arguments = b;
	ops = b->ops;
	host = b->host;
	boots++;
	if (b->version != WT_ABI_VERSION || b->size != sizeof(*b) || ops->size != sizeof(*ops) || boots != 1)
		return -22;
	if (b->cmdline[0] == 'E')
		return -12; /* ENOMEM */
	if (b->cmdline[0] == 'P')
		ops->panic(host, "cannot mount root", 17);
	((wt_u64 *)b->ram)[b->ram_size / 8 - 1] = 42;
	say(names_again[1]);
	say(names[2]);
	b->entry->next_timer_ns = b->epoch_s;
	return 0;
}

/* A frame as the driver makes one: small from the pool, large from the host. */
static struct wt_frame *new_frame(struct wt_entry *e, wt_u32 len)
{
	struct wt_frame *f;

	if (len <= WT_FRAME_SMALL && e->pool->count)
		f = e->pool->slot[--e->pool->count];
	else
		f = ops->frame_alloc(host, len);
	f->len = len;
	return f;
}

static void transmit(struct wt_entry *e, wt_u32 nic, struct wt_frame *f, wt_u32 flags)
{
	if (e->tx_count == WT_TX_MAX)
		ops->tx_flush(host);
	e->tx[e->tx_count++] = (struct wt_tx){ f, nic, flags };
}

static void echo(struct wt_entry *e)
{
	for (wt_u32 i = 0; i < e->rx_count; i++) {
		const struct wt_frame *in = e->rx[i].frame;
		struct wt_frame *out = new_frame(e, in->len);

		for (wt_u32 b = 0; b < in->len; b++)
			out->data[b] = in->data[b];
		out->flags = in->flags;
		transmit(e, e->rx[i].nic, out, WT_TX_IRQ);
	}
}

static void many(struct wt_entry *e)
{
	for (wt_u32 i = 0; i < 2500; i++) {
		struct wt_frame *f = new_frame(e, 60);

		f->data[0] = i & 0xff;
		f->data[1] = i >> 8;
		transmit(e, 0, f, 0);
	}
}

static void requests(struct wt_entry *e)
{
	for (struct wt_ctl *c = e->ctl_head, *next; c; c = next) {
		next = c->next;
		if (c->kind == WT_CTL_SPAWN) {
			c->result = 100 + c->spawn->uid;
			ops->proc_event(host, WT_PROC_STARTED, c->spawn->key, c->result, length(c->spawn->argv[1]));
		} else {
			char *buffer = (char *)c->arg[1];

			buffer[0] = 'k';
			c->result = -(wt_s64)c->nr;
		}
		c->done = 1;
		e->ctl_done++;
	}
	e->ctl_head = 0;
}

__attribute__((noinline)) static void fault(void)
{
	*(volatile wt_u64 *)0x18 = 1;
	say("still here");
}

static void enter(struct wt_entry *e)
{
	e->thread->now_ns = e->now_ns;
	e->thread->pid = 7;
	e->thread->kernel_text[0] = (wt_u64)&boot & ~0xfffull;
	e->thread->kernel_text[1] = e->thread->kernel_text[0] + 0x4000;
	e->syscalls++;
	e->next_timer_ns = ~0ull;
	if (e->events & WT_EV_CTL)
		requests(e);
	if (e->events & WT_EV_TX_DONE)
		say("done");
	e->events = 0;
	if (!e->rx_count)
		return;
	switch (COMMAND(e)) {
	case 'm':
		many(e);
		break;
	case 'p':
		/* Registers as a kernel leaves them: nothing the host can rely on. */
		__asm__ volatile("fldz; fldz; std; cld");
		ops->panic(host, "Oops: made up", 13);
		break;
	case 'f':
		fault();
		break;
	case 'j':
		((void (*)(void))0x20)();
		break;
	case 'h':
		ops->as_create(host); /* panics in the host */
		say("still here");
		break;
	case 'w':
		boot_arguments->nics[0].shared->want_done_index = 3;
		break;
	default:
		echo(e);
	}
}

static const char *current_comm(void)
{
	return comm;
}

/* More connections than a host makes room for at first; each has the number of its record as its port. */
static wt_s64 sample(struct wt_sample *sample)
{
	struct wt_tcp_sample *records = sample->records;
	wt_u32 i;

	if (sample->kind != WT_SAMPLE_TCP)
		return -22;
	sample->count = 100;
	for (i = 0; i < sample->count && i < sample->capacity; i++)
		records[i].ends.local_port = i;
	return 0;
}

EXPORT struct wt_kernel wt_kernel = {
	.version = WT_ABI_VERSION,
	.size = sizeof(struct wt_kernel),
	.boot = boot,
	.enter = enter,
	.release = "6.12.0-fake",
	.banner = "Not Linux version 6.12.0-fake",
	.current_comm = current_comm,
	.sample = sample,
};
