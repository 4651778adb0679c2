// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The network interfaces of a node: one net_device per NIC of the boot argument.
 *
 * Transmit: a packet is copied into frames of the host, which are real frames: checksums filled in, bursts (TSO, UDP GSO)
 * cut into segments, short frames padded. So much for the "hardware" offloads, which ethtool can switch off. The ring is
 * the count of frames that were handed over and have not left the wire's sender yet. The host says in struct wt_nic when
 * each frame left; the driver looks there at every transmit, and asks for an entry only where somebody waits: a socket
 * for its packet (WT_TX_IRQ), or a stopped queue for room (want_done_index).
 *
 * Receive: one NAPI context for all NICs takes the frames of an entry in the order of their arrival. The array of frames
 * is good until the entry ends, and the kernel runs until it has nothing to do, so it is read in place.
 *
 * What kind of NIC it is (rings, offloads, buffers, byte queue limits) the boot argument says. Interrupts that keep a
 * distance (ethtool -C rx-usecs), and the receive ring in which frames wait for them, are the host's part: the driver
 * writes its terms to struct wt_nic, and is not entered before the next interrupt.
 *
 * Locking: interrupts come only at the start of an entry, when the CPU was idle or a call is over but for the time it
 * takes; the interrupt functions here never meet a transmit half done.
 */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/if_vlan.h>
#include <linux/init.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <net/checksum.h>
#include <net/ip.h>
#include <net/tcp.h>

#include <asm/host.h>

#define WT_NIC_DEFAULT_RING 256u
/* Most segments of one burst; a ring may be overrun by one burst. */
#define WT_NIC_BURST 64u
/* Bytes that a received frame may have above the MTU: Ethernet header and two VLAN tags. */
#define WT_NIC_OVERHEAD (ETH_HLEN + 2 * VLAN_HLEN)

/**
 * struct wt_port_stats - what a NIC has counted
 * @rx_frames: frames given to the stack
 * @rx_bytes: their bytes, without FCS
 * @rx_damaged: of them, frames that a link had damaged
 * @rx_too_long: frames dropped because they were longer than the MTU allows
 * @rx_no_memory: frames dropped for want of memory
 * @rx_missed: frames that found the receive ring full, as the host has counted them
 * @tx_frames: frames handed to the host
 * @tx_bytes: their bytes, without FCS and padding
 * @tx_bursts: packets cut into several frames
 * @tx_stops: times the queue stopped, by ring or byte limit
 */
struct wt_port_stats {
	u64 rx_frames;
	u64 rx_bytes;
	u64 rx_damaged;
	u64 rx_too_long;
	u64 rx_no_memory;
	u64 rx_missed;
	u64 tx_frames;
	u64 tx_bytes;
	u64 tx_bursts;
	u64 tx_stops;
};

/**
 * struct wt_port - one NIC
 * @shared: the host's side of it
 * @dev: the device
 * @index: number of the NIC at the boundary
 * @ring: frames that may be under way before the queue stops
 * @head: number of the next frame to hand over
 * @tail: number of the oldest frame under way; @head: none is
 * @held: packets that sockets account for, until their last frame (struct wt_held) has left
 * @stats: counters
 * @bytes: bytes of the frames under way, by number modulo WT_NIC_RING
 * @conf: what kind of NIC it is; as long as the kernel is there
 * @rx_room: bytes of a frame that a receive buffer has room for
 * @rx_copybreak: longest frame that is copied to a buffer of its size, bytes
 * @bql: the stack is told of bytes under way
 */
struct wt_port {
	struct wt_nic *shared;
	struct net_device *dev;
	u32 index;
	u32 ring;
	u64 head;
	u64 tail;
	struct sk_buff_head held;
	struct wt_port_stats stats;
	u32 bytes[WT_NIC_RING];
	const struct wt_nic_conf *conf;
	u32 rx_room;
	u32 rx_copybreak;
	bool bql;
};

/**
 * struct wt_held - control block of a packet in wt_port.held
 * @last: number of its last frame
 */
struct wt_held {
	u64 last;
};

static struct wt_port **wt_ports;
static struct napi_struct wt_napi;
/* Frames of this entry; [wt_rx_next, wt_rx_count) are still to be received. */
static const struct wt_rx *wt_rx_frames;
static u32 wt_rx_next, wt_rx_count;

static struct wt_held *wt_held(struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct wt_held) > sizeof(skb->cb));
	return (struct wt_held *)skb->cb;
}

/* -------------------------------------------------------------- completion */

static u32 wt_port_under_way(const struct wt_port *port)
{
	return port->head - port->tail;
}

static bool wt_port_full(const struct wt_port *port)
{
	u32 under_way = wt_port_under_way(port);

	/* The host keeps WT_NIC_RING departure times: a burst must always fit. */
	return under_way >= port->ring || under_way > WT_NIC_RING - WT_NIC_BURST;
}

/*
 * The queue is stopped: ask for the entry that can start it again. A full ring waits until half of what is under way has
 * left, as an interrupt would be moderated; the byte limit until no more is under way than it allows.
 */
static void wt_port_wish(struct wt_port *port)
{
	const struct netdev_queue *queue = netdev_get_tx_queue(port->dev, 0);
	u32 under_way = wt_port_under_way(port), frames = 0;
	int excess = port->bql ? -netdev_queue_dql_avail(queue) : 0;

	if (!under_way)
		return;
	if (netif_tx_queue_stopped(queue))
		frames = under_way / 2;
	for (u64 i = port->tail; excess > 0 && i < port->head; i++) {
		excess -= port->bytes[i % WT_NIC_RING];
		frames = max_t(u32, frames, i + 1 - port->tail);
	}
	port->shared->want_done_index = port->tail + max(1u, frames) - 1;
}

/* Takes note of all frames that have left by now. Runs in interrupts and at transmits. */
static void wt_port_reclaim(struct wt_port *port)
{
	const struct wt_nic *shared = port->shared;
	struct netdev_queue *queue;
	struct sk_buff *skb;
	u64 now = wt_entry->now_ns, tail = port->tail;
	u32 bytes = 0;

	while (tail < shared->done_known && shared->done_ns[tail % WT_NIC_RING] <= now)
		bytes += port->bytes[tail++ % WT_NIC_RING];
	if (!bytes)
		return;

	queue = netdev_get_tx_queue(port->dev, 0);
	if (port->bql)
		netdev_tx_completed_queue(queue, tail - port->tail, bytes);
	port->tail = tail;
	while ((skb = skb_peek(&port->held)) && wt_held(skb)->last < tail) {
		__skb_unlink(skb, &port->held);
		dev_consume_skb_any(skb);
	}
	if (netif_tx_queue_stopped(queue) && !wt_port_full(port))
		netif_tx_wake_queue(queue);
}

/**
 * wt_nic_tx_done - frames that somebody waited for have left; hardirq context
 */
void wt_nic_tx_done(void)
{
	u32 i;

	for (i = 0; i < wt_boot.nic_count; i++) {
		struct wt_port *port = wt_ports[i];

		if (port->head == port->tail)
			continue;
		wt_port_reclaim(port);
		/* Not enough left yet to go on: again. */
		if (netif_xmit_stopped(netdev_get_tx_queue(port->dev, 0)))
			wt_port_wish(port);
	}
}

/* ---------------------------------------------------------------- transmit */

static struct wt_frame *wt_frame_take(u32 len)
{
	struct wt_frame_pool *pool = wt_entry->pool;

	if (likely(len <= WT_FRAME_SMALL && pool->count))
		return pool->slot[--pool->count];
	return (struct wt_frame *)wt_call(frame_alloc, len);
}

/* Hands over a frame of len bytes, to be accounted as such; one below the minimum goes padded. */
static void wt_port_post(struct wt_port *port, struct wt_frame *frame, u32 len, u32 flags)
{
	struct wt_entry *entry = wt_entry;
	struct wt_tx *tx;

	frame->len = len;
	frame->flags = 0;
	if (len < ETH_ZLEN) {
		memset(frame->data + len, 0, ETH_ZLEN - len);
		frame->len = ETH_ZLEN;
	}
	if (unlikely(entry->tx_count == WT_TX_MAX))
		wt_call(tx_flush);
	tx = &entry->tx[entry->tx_count++];
	tx->frame = frame;
	tx->nic = port->index;
	tx->flags = flags;
	port->bytes[port->head++ % WT_NIC_RING] = len;
	port->stats.tx_frames++;
}

/* Sends a packet that is one frame. Return: its bytes. */
static u32 wt_port_send(struct wt_port *port, struct sk_buff *skb, u32 flags)
{
	u32 len = skb->len;
	struct wt_frame *frame = wt_frame_take(max_t(u32, len, ETH_ZLEN));

	skb_copy_bits(skb, 0, frame->data, len);
	if (skb->ip_summed == CHECKSUM_PARTIAL) {
		u32 start = skb_checksum_start_offset(skb);
		/* The field holds the sum of the pseudo header, and is summed with the rest. */
		__sum16 sum = csum_fold(csum_partial(frame->data + start, len - start, 0));

		/* Zero means "none" to UDP; the other zero is the same number to everybody else. */
		*(__sum16 *)(frame->data + start + skb->csum_offset) = sum ? sum : CSUM_MANGLED_0;
	}
	wt_port_post(port, frame, len, flags);
	return len;
}

/**
 * struct wt_burst - a TCP or UDP packet to be cut
 * @skb: the packet, CHECKSUM_PARTIAL
 * @network: offset of the IP header, bytes
 * @transport: offset of the TCP or UDP header
 * @headers: bytes of all headers
 * @size: payload bytes of a segment
 * @pseudo: sum of the pseudo header without its length
 * @udp: UDP, else TCP
 */
struct wt_burst {
	struct sk_buff *skb;
	u32 network;
	u32 transport;
	u32 headers;
	u32 size;
	__wsum pseudo;
	bool udp;
};

/* Makes the copied headers of a burst those of its segment number index; len is the length of the frame. */
static void wt_burst_headers(const struct wt_burst *burst, u8 *data, u32 len, u32 index, bool last)
{
	struct iphdr *ip = (struct iphdr *)(data + burst->network);
	struct tcphdr *tcp = (struct tcphdr *)(data + burst->transport);
	struct udphdr *udp = (struct udphdr *)tcp;
	u32 transport_len = len - burst->transport;
	__sum16 *check = burst->udp ? &udp->check : &tcp->check;
	__sum16 sum;

	if (ip->version == 4) {
		ip->tot_len = htons(len - burst->network);
		if (!(skb_shinfo(burst->skb)->gso_type & SKB_GSO_TCP_FIXEDID))
			ip->id = htons(ntohs(ip->id) + index);
		ip_send_check(ip);
	} else {
		((struct ipv6hdr *)ip)->payload_len = htons(len - burst->network - sizeof(struct ipv6hdr));
	}
	if (burst->udp) {
		udp->len = htons(transport_len);
	} else {
		tcp->seq = htonl(ntohl(tcp->seq) + index * burst->size);
		if (index)
			tcp->cwr = 0;
		if (!last) {
			tcp->fin = 0;
			tcp->psh = 0;
		}
	}
	*check = 0;
	sum = csum_fold(
		csum_partial(tcp, transport_len, csum_add(burst->pseudo, (__force __wsum)htonl(transport_len))));
	*check = sum ? sum : CSUM_MANGLED_0;
}

/* Sends a TSO or UDP GSO packet as frames of its segment size. Return: their bytes. */
static u32 wt_port_send_burst(struct wt_port *port, struct sk_buff *skb, u32 flags)
{
	struct wt_burst burst = {
		.skb = skb,
		.network = skb_network_offset(skb),
		.transport = skb_transport_offset(skb),
		.size = skb_shinfo(skb)->gso_size,
		.udp = skb_shinfo(skb)->gso_type & SKB_GSO_UDP_L4,
	};
	__sum16 check = burst.udp ? udp_hdr(skb)->check : tcp_hdr(skb)->check;
	u32 at, part, index = 0, total = 0;

	burst.headers = burst.transport + (burst.udp ? sizeof(struct udphdr) : tcp_hdrlen(skb));
	burst.pseudo = csum_sub(csum_unfold(check), (__force __wsum)htonl(skb->len - burst.transport));
	for (at = burst.headers; at < skb->len; at += part) {
		struct wt_frame *frame;
		bool last;

		part = min(burst.size, skb->len - at);
		last = at + part == skb->len;
		frame = wt_frame_take(max_t(u32, burst.headers + part, ETH_ZLEN));
		skb_copy_bits(skb, 0, frame->data, burst.headers);
		skb_copy_bits(skb, at, frame->data + burst.headers, part);
		wt_burst_headers(&burst, frame->data, burst.headers + part, index++, last);
		wt_port_post(port, frame, burst.headers + part, last ? flags : 0);
		total += burst.headers + part;
	}
	port->stats.tx_bursts++;
	return total;
}

static netdev_tx_t wt_port_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct wt_port *port = netdev_priv(dev);
	struct netdev_queue *queue = netdev_get_tx_queue(dev, 0);
	/* Somebody counts on this packet to go; a pure ACK is counted only for form. */
	bool held = skb->destructor && !skb_is_tcp_pure_ack(skb);
	u32 flags = held ? WT_TX_IRQ : 0;
	u32 bytes;

	wt_port_reclaim(port);
	skb_tx_timestamp(skb);
	if (skb_is_gso(skb))
		bytes = wt_port_send_burst(port, skb, flags);
	else
		bytes = wt_port_send(port, skb, flags);
	port->stats.tx_bytes += bytes;
	if (port->bql)
		netdev_tx_sent_queue(queue, bytes);
	if (held) {
		wt_held(skb)->last = port->head - 1;
		__skb_queue_tail(&port->held, skb);
	} else {
		/* Budget 0 says that interrupts may be off, as netconsole sends. */
		napi_consume_skb(skb, !irqs_disabled());
	}
	if (unlikely(wt_port_full(port)))
		netif_tx_stop_queue(queue);
	if (unlikely(netif_xmit_stopped(queue))) {
		port->stats.tx_stops++;
		wt_port_wish(port);
	}
	return NETDEV_TX_OK;
}

/* A burst is cut by wt_port_send_burst() only if it comes as the local stack and GRO make it. */
static netdev_features_t wt_port_features_check(struct sk_buff *skb, struct net_device *dev, netdev_features_t features)
{
	if (skb_is_gso(skb) && skb->ip_summed != CHECKSUM_PARTIAL)
		features &= ~NETIF_F_GSO_MASK;
	return vlan_features_check(skb, features);
}

/* ----------------------------------------------------------------- receive */

/* Copies a frame into a packet, or drops and counts it. */
static struct sk_buff *wt_port_receive(struct wt_port *port, const struct wt_frame *frame)
{
	struct net_device *dev = port->dev;
	struct sk_buff *skb;
	u32 room = frame->len;

	if (!netif_running(dev))
		return NULL;
	if (unlikely(frame->len > dev->mtu + WT_NIC_OVERHEAD || frame->len < ETH_HLEN)) {
		port->stats.rx_too_long++;
		return NULL;
	}
	/* A real one lies in the buffer that was made ready for it, whatever its length. */
	if (frame->len > port->rx_copybreak)
		room = max(room, port->rx_room);
	skb = napi_alloc_skb(&wt_napi, room);
	if (unlikely(!skb)) {
		port->stats.rx_no_memory++;
		return NULL;
	}
	skb_put_data(skb, frame->data, frame->len);
	skb->protocol = eth_type_trans(skb, dev);
	if (unlikely(frame->flags & WT_FRAME_DAMAGED)) {
		port->stats.rx_damaged++;
	} else if (dev->features & NETIF_F_RXCSUM) {
		/* All checksums in the frame, of inner packets as well. */
		skb->ip_summed = CHECKSUM_UNNECESSARY;
		skb->csum_level = SKB_MAX_CSUM_LEVEL;
	}
	port->stats.rx_frames++;
	port->stats.rx_bytes += frame->len;
	return skb;
}

static int wt_nic_poll(struct napi_struct *napi, int budget)
{
	/* A frame that came alone has nothing to be merged with. */
	bool merge = wt_rx_count > 1;
	int done = 0;

	while (done < budget && wt_rx_next < wt_rx_count) {
		const struct wt_rx *rx = &wt_rx_frames[wt_rx_next++];
		struct wt_port *port = wt_ports[rx->nic];
		struct sk_buff *skb = wt_port_receive(port, rx->frame);

		done++;
		if (!skb)
			continue;
		if (merge)
			napi_gro_receive(napi, skb);
		else
			netif_receive_skb(skb);
	}
	if (done < budget)
		napi_complete_done(napi, done);
	return done;
}

/**
 * wt_nic_rx - frames arrive; hardirq context
 * @rx: the frames, in order; good until the entry ends
 * @count: their number
 */
void wt_nic_rx(const struct wt_rx *rx, u32 count)
{
	/* The kernel did not run until it was idle: an entry without its end. */
	WARN_ON_ONCE(wt_rx_next != wt_rx_count);
	wt_rx_frames = rx;
	wt_rx_next = 0;
	wt_rx_count = count;
	napi_schedule(&wt_napi);
}

/* ------------------------------------------------------------------ device */

static void wt_port_update_carrier(struct wt_port *port)
{
	if (port->shared->carrier)
		netif_carrier_on(port->dev);
	else
		netif_carrier_off(port->dev);
}

/**
 * wt_nic_link - carriers have changed; hardirq context
 */
void wt_nic_link(void)
{
	u32 i;

	for (i = 0; i < wt_boot.nic_count; i++)
		wt_port_update_carrier(wt_ports[i]);
}

static int wt_port_open(struct net_device *dev)
{
	wt_port_update_carrier(netdev_priv(dev));
	netif_start_queue(dev);
	return 0;
}

/* Frames under way stay so, but the ring forgets them, as one that is reset. */
static int wt_port_stop(struct net_device *dev)
{
	struct wt_port *port = netdev_priv(dev);

	netif_stop_queue(dev);
	port->tail = port->head;
	__skb_queue_purge(&port->held);
	netdev_reset_queue(dev);
	return 0;
}

static void wt_port_get_stats64(struct net_device *dev, struct rtnl_link_stats64 *to)
{
	const struct wt_port *port = netdev_priv(dev);
	const struct wt_port_stats *from = &port->stats;

	to->rx_packets = from->rx_frames;
	to->rx_bytes = from->rx_bytes;
	to->rx_errors = from->rx_too_long;
	to->rx_length_errors = from->rx_too_long;
	to->rx_dropped = from->rx_no_memory;
	to->rx_missed_errors = port->shared->rx_missed;
	to->tx_packets = from->tx_frames;
	to->tx_bytes = from->tx_bytes;
}

static const struct net_device_ops wt_port_ops = {
	.ndo_open = wt_port_open,
	.ndo_stop = wt_port_stop,
	.ndo_start_xmit = wt_port_xmit,
	.ndo_features_check = wt_port_features_check,
	.ndo_get_stats64 = wt_port_get_stats64,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

/* ----------------------------------------------------------------- ethtool */

static const struct {
	char name[ETH_GSTRING_LEN];
	size_t offset;
} wt_port_counters[] = {
#define WT_COUNTER(field)                                     \
	{                                                     \
#field, offsetof(struct wt_port_stats, field) \
	}
	WT_COUNTER(rx_frames),	  WT_COUNTER(rx_bytes),	 WT_COUNTER(rx_damaged), WT_COUNTER(rx_too_long),
	WT_COUNTER(rx_no_memory), WT_COUNTER(rx_missed), WT_COUNTER(tx_frames),	 WT_COUNTER(tx_bytes),
	WT_COUNTER(tx_bursts),	  WT_COUNTER(tx_stops),
#undef WT_COUNTER
};

static void wt_port_get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	const struct wt_port *port = netdev_priv(dev);

	strscpy(info->driver, "windtunnel", sizeof(info->driver));
	if (!port->conf->driver[0])
		return;
	/* What scripts ask for is the name of the driver; that it is a model of one is told beside it. */
	strscpy(info->driver, port->conf->driver, sizeof(info->driver));
	strscpy(info->fw_version, "windtunnel-model", sizeof(info->fw_version));
}

static int wt_port_get_link_ksettings(struct net_device *dev, struct ethtool_link_ksettings *settings)
{
	const struct wt_port *port = netdev_priv(dev);

	ethtool_link_ksettings_zero_link_mode(settings, supported);
	ethtool_link_ksettings_zero_link_mode(settings, advertising);
	settings->base.speed = port->shared->speed_mbps ? port->shared->speed_mbps : SPEED_UNKNOWN;
	settings->base.duplex = DUPLEX_FULL;
	settings->base.port = PORT_OTHER;
	settings->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static void wt_port_get_ringparam(struct net_device *dev, struct ethtool_ringparam *ring,
				  struct kernel_ethtool_ringparam *kernel_ring, struct netlink_ext_ack *extack)
{
	const struct wt_port *port = netdev_priv(dev);

	/* Without a receive ring at first, there is none: any number of frames may wait. */
	ring->rx_max_pending = port->shared->rx_ring ? WT_NIC_RX_RING_MAX : 0;
	ring->rx_pending = port->shared->rx_ring;
	ring->tx_max_pending = WT_NIC_RING;
	ring->tx_pending = port->ring;
}

static int wt_port_set_ringparam(struct net_device *dev, struct ethtool_ringparam *ring,
				 struct kernel_ethtool_ringparam *kernel_ring, struct netlink_ext_ack *extack)
{
	struct wt_port *port = netdev_priv(dev);
	struct netdev_queue *queue = netdev_get_tx_queue(dev, 0);

	if (!ring->tx_pending) {
		NL_SET_ERR_MSG(extack, "the transmit ring needs at least one frame");
		return -EINVAL;
	}
	if (!ring->rx_pending && port->shared->rx_ring) {
		NL_SET_ERR_MSG(extack, "the receive ring needs at least one frame");
		return -EINVAL;
	}
	port->shared->rx_ring = ring->rx_pending;
	netif_tx_lock_bh(dev);
	port->ring = ring->tx_pending;
	/* A smaller ring stops the queue at the next transmit. */
	if (netif_running(dev) && netif_tx_queue_stopped(queue) && !wt_port_full(port))
		netif_tx_wake_queue(queue);
	netif_tx_unlock_bh(dev);
	return 0;
}

static int wt_port_get_coalesce(struct net_device *dev, struct ethtool_coalesce *coalesce,
				struct kernel_ethtool_coalesce *kernel_coalesce, struct netlink_ext_ack *extack)
{
	const struct wt_port *port = netdev_priv(dev);

	coalesce->rx_coalesce_usecs = DIV_ROUND_UP_ULL(port->shared->irq_gap_ns, NSEC_PER_USEC);
	coalesce->rx_max_coalesced_frames = port->shared->irq_frames;
	return 0;
}

static int wt_port_set_coalesce(struct net_device *dev, struct ethtool_coalesce *coalesce,
				struct kernel_ethtool_coalesce *kernel_coalesce, struct netlink_ext_ack *extack)
{
	struct wt_port *port = netdev_priv(dev);

	if (coalesce->rx_coalesce_usecs > WT_NIC_GAP_MAX / NSEC_PER_USEC) {
		NL_SET_ERR_MSG_FMT(extack, "rx-usecs is at most %llu", WT_NIC_GAP_MAX / NSEC_PER_USEC);
		return -ERANGE;
	}
	port->shared->irq_gap_ns = (u64)coalesce->rx_coalesce_usecs * NSEC_PER_USEC;
	port->shared->irq_frames = coalesce->rx_max_coalesced_frames;
	return 0;
}

static int wt_port_get_tunable(struct net_device *dev, const struct ethtool_tunable *tunable, void *to)
{
	const struct wt_port *port = netdev_priv(dev);

	if (tunable->id != ETHTOOL_RX_COPYBREAK)
		return -EOPNOTSUPP;
	*(u32 *)to = port->rx_copybreak;
	return 0;
}

static int wt_port_set_tunable(struct net_device *dev, const struct ethtool_tunable *tunable, const void *from)
{
	struct wt_port *port = netdev_priv(dev);

	if (tunable->id != ETHTOOL_RX_COPYBREAK)
		return -EOPNOTSUPP;
	port->rx_copybreak = *(const u32 *)from;
	return 0;
}

static int wt_port_get_sset_count(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? ARRAY_SIZE(wt_port_counters) : -EOPNOTSUPP;
}

static void wt_port_get_strings(struct net_device *dev, u32 set, u8 *to)
{
	size_t i;

	if (set != ETH_SS_STATS)
		return;
	for (i = 0; i < ARRAY_SIZE(wt_port_counters); i++)
		memcpy(to + i * ETH_GSTRING_LEN, wt_port_counters[i].name, ETH_GSTRING_LEN);
}

static void wt_port_get_ethtool_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *to)
{
	struct wt_port *port = netdev_priv(dev);
	size_t i;

	port->stats.rx_missed = port->shared->rx_missed;
	for (i = 0; i < ARRAY_SIZE(wt_port_counters); i++)
		to[i] = *(const u64 *)((const u8 *)&port->stats + wt_port_counters[i].offset);
}

static const struct ethtool_ops wt_port_ethtool_ops = {
	.supported_coalesce_params = ETHTOOL_COALESCE_RX_USECS | ETHTOOL_COALESCE_RX_MAX_FRAMES,
	.get_drvinfo = wt_port_get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = wt_port_get_link_ksettings,
	.get_ringparam = wt_port_get_ringparam,
	.set_ringparam = wt_port_set_ringparam,
	.get_coalesce = wt_port_get_coalesce,
	.set_coalesce = wt_port_set_coalesce,
	.get_tunable = wt_port_get_tunable,
	.set_tunable = wt_port_set_tunable,
	.get_sset_count = wt_port_get_sset_count,
	.get_strings = wt_port_get_strings,
	.get_ethtool_stats = wt_port_get_ethtool_stats,
	.get_ts_info = ethtool_op_get_ts_info,
};

/* -------------------------------------------------------------------- init */

/* What the boot argument calls offloads, as Linux does; without what is done in software. */
static netdev_features_t __init wt_features(u32 offloads)
{
	static const struct {
		u32 offload;
		netdev_features_t features;
	} table[] __initconst = {
		{WT_NIC_SG, NETIF_F_SG},	   {WT_NIC_TX_CSUM, NETIF_F_HW_CSUM},
		{WT_NIC_RX_CSUM, NETIF_F_RXCSUM},  {WT_NIC_TSO, NETIF_F_TSO | NETIF_F_TSO6},
		{WT_NIC_TSO_ECN, NETIF_F_TSO_ECN}, {WT_NIC_TSO_MANGLEID, NETIF_F_TSO_MANGLEID},
		{WT_NIC_USO, NETIF_F_GSO_UDP_L4},  {WT_NIC_FRAGLIST, NETIF_F_FRAGLIST},
	};
	netdev_features_t features = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(table); i++)
		if (offloads & table[i].offload)
			features |= table[i].features;
	return features;
}

static void __init wt_port_set_features(struct net_device *dev, const struct wt_nic_conf *conf)
{
	netdev_features_t can = wt_features(conf->offloads);

	dev->hw_features = can;
	dev->features = (can & wt_features(conf->enabled)) | NETIF_F_HIGHDMA;
	dev->vlan_features = can & ~NETIF_F_RXCSUM;
	/* Tunnels and labels: checksums, but no cutting of inner packets. */
	dev->hw_enc_features = can & (NETIF_F_SG | NETIF_F_FRAGLIST | NETIF_F_HW_CSUM);
	dev->mpls_features = dev->hw_enc_features;
	netif_set_tso_max_segs(dev, WT_NIC_BURST);
	if (conf->tso_max_size)
		netif_set_tso_max_size(dev, conf->tso_max_size);
}

/* Registration switches on what Linux does in software. */
static void __init wt_port_limit_software(struct net_device *dev, const struct wt_nic_conf *conf)
{
	netdev_features_t off = 0;

	if (!(conf->enabled & WT_NIC_GSO))
		off |= NETIF_F_GSO;
	if (!(conf->enabled & WT_NIC_GRO))
		off |= NETIF_F_GRO;
	if (!off)
		return;
	rtnl_lock();
	dev->wanted_features &= ~off;
	netdev_update_features(dev);
	rtnl_unlock();
}

static int __init wt_port_register(u32 index)
{
	const struct wt_nic_conf *conf = &wt_boot.nics[index];
	struct net_device *dev = alloc_etherdev(sizeof(struct wt_port));
	struct wt_port *port;
	int err;

	if (!dev)
		return -ENOMEM;
	port = netdev_priv(dev);
	port->dev = dev;
	port->conf = conf;
	port->shared = conf->shared;
	port->shared->irq_gap_ns = conf->irq_gap_ns;
	port->shared->irq_frames = conf->irq_frames;
	port->shared->rx_ring = conf->rx_ring;
	/* What remains of it, as napi_alloc_skb() counts. */
	if (conf->rx_buffer > SKB_TRUESIZE(NET_SKB_PAD + NET_IP_ALIGN))
		port->rx_room = conf->rx_buffer - SKB_TRUESIZE(NET_SKB_PAD + NET_IP_ALIGN);
	port->rx_copybreak = conf->rx_copybreak;
	port->bql = !conf->no_bql;
	port->index = index;
	port->ring = clamp(conf->ring ? conf->ring : WT_NIC_DEFAULT_RING, 1u, WT_NIC_RING);
	__skb_queue_head_init(&port->held);
	wt_ports[index] = port;

	strscpy(dev->name, conf->name, sizeof(dev->name));
	eth_hw_addr_set(dev, conf->mac);
	dev->netdev_ops = &wt_port_ops;
	dev->ethtool_ops = &wt_port_ethtool_ops;
	dev->mtu = conf->mtu;
	dev->min_mtu = ETH_MIN_MTU;
	dev->max_mtu = ETH_MAX_MTU;
	/* Every address is let through; and a link may be up when its address changes. */
	dev->priv_flags |= IFF_UNICAST_FLT | IFF_LIVE_ADDR_CHANGE;
	wt_port_set_features(dev, conf);
	wt_port_update_carrier(port);
	err = register_netdev(dev);
	if (err)
		free_netdev(dev);
	else
		wt_port_limit_software(dev, conf);
	return err;
}

/**
 * wt_nic_init - make the NICs of the boot argument
 *
 * A node without its NICs is of no use: panics if it cannot.
 */
void __init wt_nic_init(void)
{
	struct net_device *anchor = alloc_netdev_dummy(0);
	u32 i;

	wt_ports = kcalloc(wt_boot.nic_count, sizeof(*wt_ports), GFP_KERNEL);
	if (!anchor || !wt_ports)
		panic("windtunnel: no memory for %u interfaces", wt_boot.nic_count);
	/* Busy polling would wait for frames that cannot come while time stands still. */
	set_bit(NAPI_STATE_NO_BUSY_POLL, &wt_napi.state);
	netif_napi_add(anchor, &wt_napi, wt_nic_poll);
	napi_enable(&wt_napi);
	for (i = 0; i < wt_boot.nic_count; i++) {
		int err = wt_port_register(i);

		if (err)
			panic("windtunnel: interface %.16s: error %d", wt_boot.nics[i].name, err);
	}
}
