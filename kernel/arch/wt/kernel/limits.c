// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * RLIMIT_AS and RLIMIT_DATA, counted as mm/mmap.c counts them: what a call would add is known before the host makes it.
 *
 * Hardly any program has such a limit, so nothing is kept for them: where there is one, the mappings are counted again for
 * each call.
 */
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/resource.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <asm/host.h>
#include <asm/unistd.h>

/* What a new program's stack counts for. The host maps all that it may grow to; Linux this much (setup_arg_pages()). */
#define STACK_COUNTED (128UL << 10)

/**
 * struct tally - mappings in a range of addresses, bytes
 * @total: all of them
 * @data: those that RLIMIT_DATA is about: private and writable, but for the stack
 * @heap: of the program break
 * @idle: private and not writable, but for the stack: data if they become writable
 */
struct tally {
	u64 total, data, heap, idle;
};

static bool is_private(const struct wt_map *map)
{
	return !(map->flags & (WT_MAP_SHARED | WT_MAP_STACK));
}

static void add_map(struct tally *t, const struct wt_map *map, u64 bytes)
{
	t->total += map->flags & WT_MAP_STACK ? min(bytes, STACK_COUNTED) : bytes;
	if (map->flags & WT_MAP_HEAP)
		t->heap += bytes;
	if (is_private(map) && map->prot & PROT_WRITE)
		t->data += bytes;
	else if (is_private(map))
		t->idle += bytes;
}

static int count(struct mm_struct *mm, u64 start, u64 end, struct tally *t)
{
	struct wt_map *map = kmalloc(sizeof(*map), GFP_KERNEL);

	memset(t, 0, sizeof(*t));
	if (!map)
		return -ENOMEM;
	while (start < end && wt_call(as_map, mm->context.as, start, (u64)map) == 1 && map->start < end) {
		add_map(t, map, min(map->end, end) - max(map->start, start));
		start = map->end;
	}
	kfree(map);
	return 0;
}

/* may_expand_vm() of mm/mmap.c. */
static bool may_expand(const struct tally *all, u64 bytes, bool data)
{
	if (all->total + bytes > rlimit(RLIMIT_AS))
		return false;
	if (!data || all->data + bytes <= rlimit(RLIMIT_DATA))
		return true;
	/* As Valgrind wants it: a soft limit of 0 stands for the hard one. */
	return !rlimit(RLIMIT_DATA) && all->data + bytes <= rlimit_max(RLIMIT_DATA);
}

static bool may_mmap(struct mm_struct *mm, const struct tally *all, const u64 *arg)
{
	u64 len = PAGE_ALIGN(arg[1]);
	bool data = arg[2] & PROT_WRITE && (arg[3] & MAP_TYPE) == MAP_PRIVATE;
	struct tally old = {};

	if (arg[3] & MAP_FIXED && count(mm, arg[0], arg[0] + len, &old))
		return false;
	return len <= old.total || may_expand(all, len - old.total, data);
}

static bool may_brk(struct mm_struct *mm, const struct tally *all, const u64 *arg)
{
	u64 old = PAGE_ALIGN(mm->start_brk) + all->heap, new = PAGE_ALIGN(arg[0]);

	if (arg[0] < mm->start_brk || new <= old)
		return true;
	return !check_data_rlimit(rlimit(RLIMIT_DATA), arg[0], mm->start_brk, mm->end_data, mm->start_data) &&
	       may_expand(all, new - old, true);
}

static bool may_mremap(struct mm_struct *mm, const struct tally *all, const u64 *arg)
{
	u64 old_len = PAGE_ALIGN(arg[1]), new_len = PAGE_ALIGN(arg[2]);
	u64 more = arg[3] & MREMAP_DONTUNMAP ? new_len : new_len - min(old_len, new_len);
	struct tally old;

	if (!more)
		return true;
	if (count(mm, arg[0], arg[0] + PAGE_SIZE, &old))
		return false;
	return may_expand(all, more, old.data);
}

/* Memory that becomes data; that there is too much mapped already is no reason to refuse. */
static bool may_mprotect(struct mm_struct *mm, const struct tally *all, const u64 *arg)
{
	struct tally range;

	if (!(arg[2] & PROT_WRITE))
		return true;
	if (count(mm, arg[0], arg[0] + PAGE_ALIGN(arg[1]), &range))
		return false;
	return !range.idle || may_expand(all, range.idle, true) || !may_expand(all, range.idle, false);
}

/**
 * wt_within_limits - whether a program's limits permit what a memory call would add
 * @mm: its memory
 * @nr: x86-64 number of the call
 * @arg: its arguments
 */
bool wt_within_limits(struct mm_struct *mm, unsigned int nr, const u64 *arg)
{
	struct tally all;

	if (likely(rlimit(RLIMIT_AS) == RLIM_INFINITY && rlimit(RLIMIT_DATA) == RLIM_INFINITY))
		return true;
	if (nr != __NR_mmap && nr != __NR_brk && nr != __NR_mremap && nr != __NR_mprotect)
		return true;
	if (count(mm, 0, TASK_SIZE, &all))
		return false;
	switch (nr) {
	case __NR_mmap:
		return may_mmap(mm, &all, arg);
	case __NR_brk:
		return may_brk(mm, &all, arg);
	case __NR_mremap:
		return may_mremap(mm, &all, arg);
	default:
		return may_mprotect(mm, &all, arg);
	}
}

/**
 * wt_exec_within_limits - whether they permit a program whose images have been mapped
 * @mm: its memory
 */
bool wt_exec_within_limits(struct mm_struct *mm)
{
	struct tally all;

	if (likely(rlimit(RLIMIT_AS) == RLIM_INFINITY && rlimit(RLIMIT_DATA) == RLIM_INFINITY))
		return true;
	return !count(mm, 0, TASK_SIZE, &all) && may_expand(&all, 0, true);
}
