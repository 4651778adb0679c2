// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What this kernel knows of its TCP and MPTCP connections and its queueing disciplines, for the host, which asks between two
 * entries. It is what programs get over netlink (sock_diag, rtnetlink), read without a program: asking changes nothing.
 *
 * Nobody runs meanwhile, so that tables stand still and locks are free, but for those whose owner sleeps or waits for its CPU. Soft
 * interrupts stay off, as the end of a lock would run those that wait for the next entry.
 */
#include <linux/hashtable.h>
#include <linux/inet_diag.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/string.h>
#include <linux/tcp.h>
#include <net/gen_stats.h>
#include <net/inet_hashtables.h>
#include <net/mptcp.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>
#include <net/tcp.h>
#include <asm/host.h>
#include "../../../net/mptcp/protocol.h"

/* Where the next record goes; NULL once the host's room is full, which needs to know how many there are all the same. */
static void *wt_next(struct wt_sample *sample, size_t size)
{
	u32 index = sample->count++;
	void *record;

	if (index >= sample->capacity)
		return NULL;
	record = sample->records + index * size;
	memset(record, 0, size);
	return record;
}

static void wt_ends(struct wt_endpoints *ends, struct sock *sk)
{
	ends->family = 4;
	memcpy(ends->local, &sk->sk_rcv_saddr, sizeof(sk->sk_rcv_saddr));
	memcpy(ends->remote, &sk->sk_daddr, sizeof(sk->sk_daddr));
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		ends->family = 6;
		memcpy(ends->local, &sk->sk_v6_rcv_saddr, sizeof(sk->sk_v6_rcv_saddr));
		memcpy(ends->remote, &sk->sk_v6_daddr, sizeof(sk->sk_v6_daddr));
	}
#endif
	ends->local_port = sk->sk_num;
	ends->remote_port = ntohs(sk->sk_dport);
	ends->state = inet_sk_state_load(sk);
	ends->netns = sock_net(sk)->ns.inum;
}

/* The owner of a socket may be asleep, or wait for its CPU. The functions that tell of a socket would wait for him: for them it is
 * free, which it is, as long as nobody runs. */
static int wt_disown(struct sock *sk)
{
	int owned = sk->sk_lock.owned;

	sk->sk_lock.owned = 0;
	return owned;
}

static void wt_sample_congestion(struct wt_tcp_sample *record, struct sock *sk)
{
	const struct tcp_congestion_ops *ops = READ_ONCE(inet_csk(sk)->icsk_ca_ops);
	union tcp_cc_info info = {};
	int kind = INET_DIAG_NONE;
	size_t len = 0;

	BUILD_BUG_ON(sizeof(info) > sizeof(record->cc_info));
	if (!ops)
		return;
	strscpy(record->cc_name, ops->name, sizeof(record->cc_name));
	if (ops->get_info)
		len = ops->get_info(sk, ~0U, &kind, &info);
	len = min(len, sizeof(info));
	memcpy(record->cc_info, &info, len);
	record->cc_len = len;
	record->cc_kind = kind;
}

static void wt_sample_connection(struct wt_sample *sample, struct sock *sk)
{
	struct wt_tcp_sample *record = wt_next(sample, sizeof(*record));
	const struct tcp_sock *tp = tcp_sk(sk);
	struct tcp_info info;
	int owned;

	BUILD_BUG_ON(sizeof(info) > sizeof(record->info));
	if (!record)
		return;
	wt_ends(&record->ends, sk);
	record->recv_queue = max_t(int, tp->rcv_nxt - tp->copied_seq, 0);
	record->send_queue = tp->write_seq - tp->snd_una;
	owned = wt_disown(sk);
	tcp_get_info(sk, &info);
	sk->sk_lock.owned = owned;
	memcpy(record->info, &info, sizeof(info));
	record->info_len = sizeof(info);
	wt_sample_congestion(record, sk);
	if (IS_ENABLED(CONFIG_MPTCP) && sk_is_mptcp(sk)) {
		const struct mptcp_subflow_context *subflow = mptcp_subflow_ctx(sk);

		if (subflow && subflow->conn)
			record->ends.token = mptcp_sk(subflow->conn)->token;
	}
}

static void wt_sample_table(struct wt_sample *sample, struct inet_hashinfo *table)
{
	unsigned int slot;

	for (slot = 0; slot <= table->ehash_mask; slot++) {
		struct hlist_nulls_node *node;
		struct sock *sk;

		sk_nulls_for_each (sk, node, &table->ehash[slot].chain) {
			/* The others are not whole sockets. */
			if (sk_fullsock(sk) && sk->sk_protocol == IPPROTO_TCP)
				wt_sample_connection(sample, sk);
		}
	}
}

static void wt_sample_tcp(struct wt_sample *sample)
{
	struct net *net;

	wt_sample_table(sample, &tcp_hashinfo);
	for_each_net_rcu (net)
		/* sysctl tcp_child_ehash_entries gives a namespace its own. */
		if (net->ipv4.tcp_death_row.hashinfo && net->ipv4.tcp_death_row.hashinfo != &tcp_hashinfo)
			wt_sample_table(sample, net->ipv4.tcp_death_row.hashinfo);
}

static void wt_sample_mptcp(struct wt_sample *sample)
{
#if IS_ENABLED(CONFIG_MPTCP)
	struct net *net;

	for_each_net_rcu (net) {
		long slot = 0, number = 0;
		struct mptcp_sock *msk;

		while ((msk = mptcp_token_iter_next(net, &slot, &number))) {
			struct wt_mptcp_sample *record = wt_next(sample, sizeof(*record));
			struct sock *sk = (struct sock *)msk;
			struct mptcp_info info;
			int owned;

			BUILD_BUG_ON(sizeof(info) > sizeof(record->info));
			if (record) {
				wt_ends(&record->ends, sk);
				record->ends.token = msk->token;
				owned = wt_disown(sk);
				mptcp_diag_fill_info(msk, &info);
				sk->sk_lock.owned = owned;
				memcpy(record->info, &info, sizeof(info));
				record->info_len = sizeof(info);
			}
			/* Not the last: it is in the table. */
			sock_put(sk);
		}
	}
#endif
}

/* What dump_stats of the kinds below tells, which read only. They write an attribute to a socket buffer: to one on the stack here. */
static void wt_sample_xstats(struct wt_qdisc_sample *record, struct Qdisc *q)
{
	static const char *const kinds[] = {"codel", "fq_codel", "pie", "fq_pie", "red", "fq"};
	u8 room[256] __aligned(8) = {};
	const struct nlattr *attribute = (const struct nlattr *)room;
	struct sk_buff skb = {};
	struct gnet_dump dump = {};
	int left;

	if (!q->ops->dump_stats || match_string(kinds, ARRAY_SIZE(kinds), q->ops->id) < 0)
		return;
	skb.head = room;
	skb.data = room;
	skb_reset_tail_pointer(&skb);
	skb.end = sizeof(room);
	dump.skb = &skb;
	dump.tail = (struct nlattr *)room;
	if (q->ops->dump_stats(q, &dump) < 0)
		return;
	nla_for_each_attr (attribute, (const struct nlattr *)room, skb.len, left) {
		if (nla_type(attribute) != TCA_STATS_APP)
			continue;
		record->xstats_len = min_t(u32, nla_len(attribute), sizeof(record->xstats));
		memcpy(record->xstats, nla_data(attribute), record->xstats_len);
	}
}

static void wt_sample_qdisc(struct wt_sample *sample, struct net_device *dev, struct Qdisc *q)
{
	struct gnet_stats_basic_sync basic = {};
	struct gnet_stats_queue queue = {};
	struct wt_qdisc_sample *record;
	bool percpu;

	if (q->flags & (TCQ_F_BUILTIN | TCQ_F_INVISIBLE) || !strcmp(q->ops->id, "noqueue"))
		return;
	record = wt_next(sample, sizeof(*record));
	if (!record)
		return;
	strscpy(record->device, dev->name, sizeof(record->device));
	strscpy(record->kind, q->ops->id, sizeof(record->kind));
	record->netns = dev_net(dev)->ns.inum;
	record->handle = q->handle;
	record->parent = q->parent;
	percpu = qdisc_is_percpu_stats(q);
	gnet_stats_basic_sync_init(&basic);
	gnet_stats_add_basic(&basic, percpu ? q->cpu_bstats : NULL, &q->bstats, false);
	gnet_stats_add_queue(&queue, percpu ? q->cpu_qstats : NULL, &q->qstats);
	record->bytes = u64_stats_read(&basic.bytes);
	record->packets = u64_stats_read(&basic.packets);
	record->queued = qdisc_qlen_sum(q);
	record->backlog = queue.backlog;
	record->drops = queue.drops;
	record->requeues = queue.requeues;
	record->overlimits = queue.overlimits;
	wt_sample_xstats(record, q);
}

static void wt_sample_device(struct wt_sample *sample, struct net_device *dev)
{
	struct netdev_queue *ingress = rcu_dereference_raw(dev->ingress_queue);
	struct Qdisc *root = rcu_dereference_raw(dev->qdisc);
	struct Qdisc *q;
	int bucket;

	if (root) {
		wt_sample_qdisc(sample, dev, root);
		if (qdisc_dev(root))
			hash_for_each (qdisc_dev(root)->qdisc_hash, bucket, q, hash) {
				wt_sample_qdisc(sample, dev, q);
			}
	}
	if (ingress && rcu_access_pointer(ingress->qdisc_sleeping))
		wt_sample_qdisc(sample, dev, rcu_dereference_raw(ingress->qdisc_sleeping));
}

static void wt_sample_qdiscs(struct wt_sample *sample)
{
	/* Functions of net/sched make sure that somebody holds it. Where somebody does, he stands still. */
	int locked = rtnl_trylock();
	struct net_device *dev;
	struct net *net;

	for_each_net_rcu (net) {
		for_each_netdev_rcu (net, dev)
			wt_sample_device(sample, dev);
	}
	if (locked)
		__rtnl_unlock();
}

/**
 * wt_sample_take - tell the host what this kernel knows
 * @sample: what is asked, and where the answer goes
 *
 * Runs on the host's stack, between entries.
 *
 * Return: 0, or -EINVAL for a kind that this kernel does not know.
 */
s64 wt_sample_take(struct wt_sample *sample)
{
	s64 result = 0;

	sample->count = 0;
	preempt_count_add(SOFTIRQ_DISABLE_OFFSET);
	rcu_read_lock();
	switch (sample->kind) {
	case WT_SAMPLE_TCP:
		wt_sample_tcp(sample);
		break;
	case WT_SAMPLE_MPTCP:
		wt_sample_mptcp(sample);
		break;
	case WT_SAMPLE_QDISC:
		wt_sample_qdiscs(sample);
		break;
	default:
		result = -EINVAL;
	}
	rcu_read_unlock();
	preempt_count_sub(SOFTIRQ_DISABLE_OFFSET);
	return result;
}
