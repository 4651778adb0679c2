// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The time that work takes.
 *
 * A program's system call takes effect at once, then the node's one CPU is busy for what the call costs, then the
 * program goes on. Meanwhile interrupts are taken at their times, with the softirqs they raise, and no other task runs:
 * one that became ready waits, as on Linux without kernel preemption, until the call is over and the scheduler chooses
 * it. What a program computes between its calls, interrupts, and the work of kernel threads and process 1 take no time.
 * Neither do the calls that are none on x86-64, where the vDSO answers them.
 */
#include <linux/bits.h>
#include <linux/kernel_stat.h>
#include <linux/sched.h>
#include <linux/time.h>
#include <asm/host.h>
#include <asm/ptrace.h>
#include <asm/unistd.h>

#define PS_PER_NS 1000UL
/* Those that the vDSO can read (include/vdso/datapage.h); of others it asks the kernel. */
#define VDSO_CLOCKS                                                                                           \
	(BIT(CLOCK_REALTIME) | BIT(CLOCK_MONOTONIC) | BIT(CLOCK_MONOTONIC_RAW) | BIT(CLOCK_REALTIME_COARSE) | \
	 BIT(CLOCK_MONOTONIC_COARSE) | BIT(CLOCK_BOOTTIME) | BIT(CLOCK_TAI))

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

/*
 * Whether a program on x86-64 would not have entered the kernel for this call (arch/x86/entry/vdso); what it copied is
 * forgotten then.
 */
static bool wt_vdso_call(const struct pt_regs *regs)
{
	switch (regs->orig_ax) {
	case __NR_clock_gettime:
	case __NR_clock_getres:
		if (regs->di >= BITS_PER_LONG || !(VDSO_CLOCKS & BIT(regs->di)))
			return false;
		if (!regs->ax)
			wt_copied -= min(wt_copied, sizeof(struct __kernel_timespec));
		return true;
	case __NR_gettimeofday:
	case __NR_time:
	case __NR_getcpu:
		return true;
	default:
		return false;
	}
}

/**
 * wt_cpu_pay_call - let the time pass that a system call of the running task takes
 * @regs: the caller's
 *
 * To be called at the end of a call, without locks. A task that got the CPU while another one made way for the host's
 * requests pays after that one.
 */
void wt_cpu_pay_call(const struct pt_regs *regs)
{
	u64 cost, until;

	if (wt_vdso_call(regs))
		return;
	cost = wt_call_cost();
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
