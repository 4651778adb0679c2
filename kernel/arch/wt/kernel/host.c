// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Host and kernel hand over to each other here: boot, one entry, calls out, and the idle task that stands between.
 */
#include <linux/entry-common.h>
#include <linux/hardirq.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/panic_notifier.h>
#include <linux/sched.h>
#include <linux/sched/task_stack.h>
#include <linux/start_kernel.h>
#include <linux/tick.h>
#include <linux/utsname.h>
#include <generated/utsrelease.h>
#include <asm/host.h>
#include <asm/irq_regs.h>
#include <asm/mmu_context.h>

struct wt_boot wt_boot;
struct wt_entry *wt_entry;
unsigned long wt_irq_on;
unsigned long wt_host_rsp;
unsigned long wt_idle_rsp;

void wt_enter_idle(void);
void wt_leave_idle(void);
void wt_boot_on(unsigned long stack_top);
u64 wt_on_host_stack(const void *fn, void *host, u64 a, u64 b, u64 c, u64 d);

static_assert(offsetof(struct wt_thread, in_user) == 240);
static_assert(offsetof(struct wt_thread, clock_ip) == 288);

u64 wt_host_call(const void *fn, u64 a, u64 b, u64 c, u64 d)
{
	wt_user_save();
	return wt_on_host_stack(fn, wt_boot.host, a, b, c, d);
}

unsigned long wt_now(void)
{
	return wt_entry ? wt_entry->now_ns : 0;
}

static unsigned long rdfsbase(void)
{
	unsigned long fs;

	asm volatile("rdfsbase %0" : "=r"(fs));
	return fs;
}

/* The host thread that is about to run programs learns this instance's addresses. */
static void wt_adopt_thread(struct wt_entry *entry)
{
	struct wt_thread *t = entry->thread;

	t->entry = (u64)wt_syscall_entry;
	t->fault_entry = (u64)wt_fault_entry;
	t->slow_entry = (u64)wt_slow_entry;
	t->clock_entry = (u64)wt_clock_entry;
	t->kernel_text[0] = (u64)_stext;
	t->kernel_text[1] = (u64)_etext;
	t->uaccess[0] = (u64)wt_uaccess_start;
	t->uaccess[1] = (u64)wt_uaccess_end;
	t->uaccess_fixup = (u64)wt_uaccess_fixup;
	t->now_ns = entry->now_ns;
	t->in_user = 0;
	t->host_fs = rdfsbase();
}

/**
 * wt_kernel_enter - run everything that is due, until the kernel is idle again
 * @entry: the instance's entry page
 */
static void wt_kernel_enter(struct wt_entry *entry)
{
	wt_adopt_thread(entry);
	wt_enter_idle();
}

/* The idle task stops here; the host's next wt_kernel_enter() returns from it. */
void wt_to_host(void)
{
	wt_user_save();
	wt_leave_idle();
}

/* All that arrived at this instant, as interrupts. Return: whether a timer was among it. */
static bool wt_interrupts(void)
{
	static struct pt_regs kernel_regs; /* what was interrupted: the idle task, or a task at work in the kernel */
	struct pt_regs *old = set_irq_regs(&kernel_regs);
	u32 events = wt_entry->events;
	bool timer = wt_timer_due();

	wt_entry->events = 0;
	irq_enter();
	if (timer)
		wt_timer_fire();
	if (events & WT_EV_TX_DONE)
		wt_nic_tx_done();
	if (wt_entry->rx_count)
		wt_nic_rx(wt_entry->rx, wt_entry->rx_count);
	if (events & WT_EV_LINK)
		wt_nic_link();
	if (events & WT_EV_CTL)
		wt_ctl_wake();
	irq_exit();
	set_irq_regs(old);
	return timer;
}

/**
 * arch_cpu_idle - wait for the next event: go to the host until it has one
 *
 * The idle loop around it has something to do only when a task is to run, or when the timer has to be set anew. While the
 * tick goes on it takes care of new timers.
 */
void arch_cpu_idle(void)
{
	bool timer;

	do {
		wt_to_host();
		timer = wt_interrupts();
	} while (!timer && !need_resched() && !tick_nohz_tick_stopped());
}

/**
 * wt_busy_entry - let the host deliver the next thing that is due while the running task keeps the CPU
 * @until: when the task has something to do again, ns
 *
 * Called where the task could sleep. Interrupts are taken, and their softirqs run, as they would be in the midst of the
 * task's work; no other task runs.
 */
void wt_busy_entry(u64 until)
{
	struct mm_struct *mm = current->mm;
	u64 timer;

	/* What ksoftirqd was left with: the frames of an entry are gone after it. */
	while (local_softirq_pending())
		do_softirq();
	local_irq_disable();
	timer = wt_entry->next_timer_ns;
	wt_entry->next_timer_ns = min(timer, until);
	wt_to_host();
	wt_entry->next_timer_ns = timer;
	wt_interrupts();
	local_irq_enable();
	/* A program of another node may have had the low addresses meanwhile. */
	if (mm && mm->context.low)
		wt_mm_activate(mm);
}

void wt_relax(void)
{
	static unsigned long spins, since;

	if (since != wt_now()) {
		since = wt_now();
		spins = 0;
	}
	if (++spins > 100000000UL)
		panic("kernel waits in a loop for something that needs time to pass");
	barrier();
}

static int wt_on_panic(struct notifier_block *nb, unsigned long event, void *message)
{
	wt_call(panic, (u64)message, strlen(message));
	return NOTIFY_DONE;
}

static struct notifier_block wt_panic_block = {
	.notifier_call = wt_on_panic,
	.priority = INT_MAX,
};

/**
 * wt_kernel_boot - start the kernel
 * @boot: the host's description of this instance; copied
 *
 * Return: 0 when the kernel is idle for the first time, -EINVAL for a host of another version.
 */
static s64 wt_kernel_boot(const struct wt_boot *boot)
{
	if (boot->version != WT_ABI_VERSION || boot->size != sizeof(*boot) || boot->ops->version != WT_ABI_VERSION ||
	    boot->ops->size != sizeof(*boot->ops))
		return -EINVAL;
	wt_boot = *boot;
	wt_entry = boot->entry;
	wt_entry->next_timer_ns = ~0ULL;
	wt_ram_base = (unsigned long)boot->ram;
	wt_adopt_thread(wt_entry);
	wt_current = &init_task;
	atomic_notifier_chain_register(&panic_notifier_list, &wt_panic_block);
	wt_boot_on((unsigned long)init_stack + THREAD_SIZE);
	return 0;
}

static const char *wt_current_comm(void)
{
	return current->comm;
}

extern const char linux_banner[];

/* The one exported symbol. */
__visible __attribute__((visibility("default"))) struct wt_kernel wt_kernel = {
	.version = WT_ABI_VERSION,
	.size = sizeof(struct wt_kernel),
	.boot = wt_kernel_boot,
	.enter = wt_kernel_enter,
	.release = UTS_RELEASE,
	.banner = linux_banner,
	.current_comm = wt_current_comm,
	.sample = wt_sample_take,
};
