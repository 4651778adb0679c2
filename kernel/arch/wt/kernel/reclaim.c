// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reclaim where time stands still.
 *
 * Dentries, inodes, open files and much else are freed after an RCU grace period. On a machine the clock's interrupt
 * ends one while the reclaimer still works; here there is none within an entry, so what the shrinkers give up would stay
 * allocated until the caller sleeps, and the out-of-memory killer would strike before. A reclaimer may sleep, so it reads
 * nothing under RCU: with one CPU that is a quiescent state, and its callbacks can run at once, in its own context, where
 * the pages that they free count as its progress.
 */
#include <linux/bottom_half.h>
#include <linux/init.h>
#include <linux/rcupdate.h>
#include <linux/shrinker.h>

static unsigned long wt_rcu_count(struct shrinker *shrinker, struct shrink_control *sc)
{
	return 2; /* with no cost to make anew: one is asked for at any priority */
}

static unsigned long wt_rcu_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	local_bh_disable();
	rcu_qs();
	local_bh_enable();
	return SHRINK_STOP;
}

/* After the file systems', as far as they are mounted by now: what they give up is freed in the same round. */
static int __init wt_reclaim_init(void)
{
	struct shrinker *shrinker = shrinker_alloc(0, "wt-rcu");

	if (!shrinker)
		return -ENOMEM;
	shrinker->count_objects = wt_rcu_count;
	shrinker->scan_objects = wt_rcu_scan;
	shrinker->seeks = 0;
	shrinker->batch = 1;
	shrinker_register(shrinker);
	return 0;
}
late_initcall(wt_reclaim_init);
