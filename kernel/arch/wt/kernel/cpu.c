// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The time that work takes.
 *
 * A program's system call takes effect at once, then the node's one CPU is busy for what the call costs, then the
 * program goes on. Meanwhile interrupts are taken at their times, with the softirqs they raise, and no other task runs:
 * one that became ready waits, as on Linux without kernel preemption, until the call is over and the scheduler chooses
 * it. What a program computes between its calls, interrupts, and the work of kernel threads and process 1 take no time.
 */
#include <linux/kernel_stat.h>
#include <linux/sched.h>
#include <asm/host.h>

#define PS_PER_NS 1000UL

unsigned long wt_copied;
/* What was less than a nanosecond, for the next payment. */
static u64 wt_rest_ps;
/* When the CPU is done with all calls so far, ns. */
static u64 wt_busy_until;

/* What the running task owes for a call and the bytes that were copied since its last one, ns. */
static u64 wt_call_cost(void)
{
	u64 ps = wt_copied * wt_boot.cpu.copy_ps + wt_rest_ps;

	wt_copied = 0;
	wt_rest_ps = ps % PS_PER_NS;
	return wt_boot.cpu.syscall_ns + ps / PS_PER_NS;
}

/**
 * wt_cpu_pay_call - let the time pass that a system call of the running task takes
 *
 * To be called at the end of a call, without locks. A task that got the CPU while another one made way for the host's
 * requests pays after that one.
 */
void wt_cpu_pay_call(void)
{
	u64 cost = wt_call_cost(), until;

	if (!cost)
		return;
	/*
	 * All of it is system time. The scheduler knows how long a task ran, to the nanosecond; Linux divides that by
	 * the ticks that found the task in a call or in its program, and takes it for the program's while there are none.
	 */
	if (!current->stime)
		account_system_index_time(current, 1, CPUTIME_SYSTEM);
	until = max_t(u64, wt_busy_until, wt_now()) + cost;
	wt_busy_until = until;
	while (wt_now() < until) {
		wt_ctl_wait();
		wt_busy_entry(until);
	}
}
