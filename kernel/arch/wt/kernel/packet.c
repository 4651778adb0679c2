// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Rings of AF_PACKET sockets in the memory of programs: what packet_mmap() (net/packet/af_packet.c) does with page
 * tables, the host does with the node's RAM.
 */
#include <linux/fs.h>
#include <linux/if_packet.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/net.h>
#include <net/sock.h>
#include <asm/host.h>
#include <asm/unistd.h>

#include "../../../net/packet/internal.h"

static u64 wt_ring_bytes(const struct packet_ring_buffer *ring)
{
	return ring->pg_vec ? (u64)ring->pg_vec_len * ring->pg_vec_pages * PAGE_SIZE : 0;
}

/* Maps the blocks of one packet ring from *at on. */
static long wt_map_ring(const struct packet_ring_buffer *ring, const u64 *arg, u64 *at)
{
	u64 size = (u64)ring->pg_vec_pages * PAGE_SIZE;
	unsigned int i;

	for (i = 0; ring->pg_vec && i < ring->pg_vec_len; i++, *at += size) {
		u64 block[6] = {*at,
				size,
				arg[2],
				MAP_SHARED | MAP_FIXED,
				PROT_READ | PROT_WRITE | PROT_EXEC,
				__pa(ring->pg_vec[i].buffer)};
		long ret = wt_memory(__NR_mmap, block, WT_FILE_RAM);

		if (ret < 0)
			return ret;
	}
	return 0;
}

static struct packet_sock *wt_packet_of(const struct file *file)
{
	return pkt_sk(((struct socket *)file->private_data)->sk);
}

/* As packet_mm_open() and packet_mm_close(); the mapping holds the file, so the socket is there. */
static void wt_ring_open(struct vm_area_struct *vma)
{
	atomic_long_inc(&wt_packet_of(vma->vm_file)->mapped);
}

static void wt_ring_close(struct vm_area_struct *vma)
{
	atomic_long_dec(&wt_packet_of(vma->vm_file)->mapped);
}

static const struct vm_operations_struct wt_ring_ops = {
	.open = wt_ring_open,
	.close = wt_ring_close,
};

/* The rings at an address of their own, or at arg's if that is fixed; counted. */
static long wt_map_rings(struct file *file, const u64 *arg)
{
	const struct packet_sock *po = wt_packet_of(file);
	u64 place[6] = {arg[0], arg[1], 0, MAP_PRIVATE | MAP_ANONYMOUS | (arg[3] & MAP_FIXED), ~0UL, 0};
	long ret = wt_memory(__NR_mmap, place, 0), err;
	u64 at = ret;

	if (ret < 0)
		return ret;
	err = wt_map_ring(&po->rx_ring, arg, &at) ?: wt_map_ring(&po->tx_ring, arg, &at);
	if (!err)
		err = wt_attach_add(file, ret, arg[1], &wt_ring_ops);
	if (err) {
		place[0] = ret;
		wt_memory(__NR_munmap, place, 0);
	}
	return err ?: ret;
}

/**
 * wt_mmap_packet - map the rings of a packet socket
 * @file: any file
 * @arg: mmap's arguments
 *
 * Returns: the address; -ENODEV if @file is no packet socket; -EINVAL, -ENOMEM as mmap(2).
 */
long wt_mmap_packet(struct file *file, const u64 *arg)
{
	struct socket *sock = sock_from_file(file);
	struct packet_sock *po;
	long ret = -EINVAL;

	if (!sock || !sock->sk || sock->sk->sk_family != PF_PACKET)
		return -ENODEV;
	po = pkt_sk(sock->sk);
	mutex_lock(&po->pg_vec_lock);
	if (!arg[5] && arg[1] && arg[1] == wt_ring_bytes(&po->rx_ring) + wt_ring_bytes(&po->tx_ring))
		ret = wt_map_rings(file, arg);
	mutex_unlock(&po->pg_vec_lock);
	return ret;
}
