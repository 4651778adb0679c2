// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Virtual time: a clock of exactly one tick per nanosecond, and one timer whose deadline the host reads.
 */
#include <linux/clockchips.h>
#include <linux/clocksource.h>
#include <linux/delay.h>
#include <linux/init.h>
#include <linux/sched/clock.h>
#include <linux/timekeeping.h>
#include <asm/host.h>

/*
 * What the counter is at virtual time 0: it jumps by WT_UPTIME_S when timekeeping_init() has read it. On real machines
 * no program runs in the first second after the boot, and some take a clock of no seconds for one they have not read
 * yet (ping would not wait between its packets).
 */
static u64 counter_base_ns;

static u64 wt_clock_read(struct clocksource *cs)
{
	return counter_base_ns + wt_entry->now_ns;
}

static struct clocksource wt_clocksource = {
	.name = "windtunnel",
	.rating = 500,
	.read = wt_clock_read,
	.mask = CLOCKSOURCE_MASK(64),
	.flags = CLOCK_SOURCE_IS_CONTINUOUS | CLOCK_SOURCE_VALID_FOR_HRES,
	.mult = 1 << 22,
	.shift = 22,
};

/* From the first instant, so that monotonic time follows the engine's to the nanosecond. */
struct clocksource *__init clocksource_default_clock(void)
{
	return &wt_clocksource;
}

unsigned long long notrace sched_clock(void)
{
	return wt_now();
}

/* When the timer last fired. */
static u64 fired_ns = ~0ULL;

/*
 * A timer that has fired at this instant and is set for it again fires at the next: a handler that waits until its time
 * has passed (etf's, which sends after the time of a packet) would not let it. On real machines time goes on by itself.
 */
static void set_deadline(u64 delta_ns)
{
	u64 now = wt_entry->now_ns;

	wt_entry->next_timer_ns = now + max(delta_ns, (u64)(fired_ns == now));
}

/* Monotonic time is the engine's only until a program adjusts the clock's frequency: count from what it is now. */
static int wt_set_next_ktime(ktime_t expires, struct clock_event_device *dev)
{
	s64 delta_ns = ktime_to_ns(ktime_sub(expires, ktime_get()));

	set_deadline(max(delta_ns, 0LL));
	return 0;
}

static int wt_set_next_event(unsigned long delta_ns, struct clock_event_device *dev)
{
	set_deadline(delta_ns);
	return 0;
}

static int wt_timer_stop(struct clock_event_device *dev)
{
	wt_entry->next_timer_ns = ~0ULL;
	return 0;
}

static struct clock_event_device wt_timer = {
	.name = "windtunnel",
	.features = CLOCK_EVT_FEAT_ONESHOT | CLOCK_EVT_FEAT_KTIME,
	.rating = 500,
	.set_next_ktime = wt_set_next_ktime,
	.set_next_event = wt_set_next_event,
	.set_state_shutdown = wt_timer_stop,
	.set_state_oneshot_stopped = wt_timer_stop,
	.min_delta_ns = 1,
	.max_delta_ns = LLONG_MAX,
	.min_delta_ticks = 1,
	.max_delta_ticks = ULONG_MAX,
	.mult = 1,
	.shift = 0,
	.irq = -1,
};

bool wt_timer_due(void)
{
	return wt_entry->next_timer_ns <= wt_entry->now_ns;
}

void wt_timer_fire(void)
{
	wt_entry->next_timer_ns = ~0ULL;
	fired_ns = wt_entry->now_ns;
	wt_timer.event_handler(&wt_timer);
}

void __init time_init(void)
{
	counter_base_ns = WT_UPTIME_S * NSEC_PER_SEC;
	__clocksource_register(&wt_clocksource);
	wt_timer.cpumask = cpumask_of(0);
	clockevents_register_device(&wt_timer);
}

void read_persistent_wall_and_boot_offset(struct timespec64 *wall, struct timespec64 *boot_offset)
{
	wall->tv_sec = wt_boot.epoch_s - WT_UPTIME_S;
	wall->tv_nsec = 0;
	*boot_offset = ns_to_timespec64(0);
}

void read_persistent_clock64(struct timespec64 *ts)
{
	*ts = ns_to_timespec64(wt_now());
	ts->tv_sec += wt_boot.epoch_s;
}

/* The kernel computes in no time: a delay loop has nothing to wait for. */
void __delay(unsigned long loops) {}

void __udelay(unsigned long usecs) {}

void __ndelay(unsigned long nsecs) {}

void __const_udelay(unsigned long xloops) {}
