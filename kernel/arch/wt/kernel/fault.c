// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Faults of programs, as the host's signal handler hands them over in wt_thread.fault.
 */
#include <linux/entry-common.h>
#include <linux/sched/signal.h>
#include <linux/signal.h>
#include <asm/host.h>
#include <asm/unistd.h>
#include <uapi/asm/prctl.h>

#define RDTSCP_BYTES 3

void wt_regs_from_fault(struct pt_regs *regs);
void wt_regs_from_fault(struct pt_regs *regs)
{
	const struct wt_regs *r = &wt_entry->thread->fault;

	*regs = (struct pt_regs){
		.r15 = r->r15,
		.r14 = r->r14,
		.r13 = r->r13,
		.r12 = r->r12,
		.bp = r->rbp,
		.bx = r->rbx,
		.r11 = r->r11,
		.r10 = r->r10,
		.r9 = r->r9,
		.r8 = r->r8,
		.ax = r->rax,
		.cx = r->rcx,
		.dx = r->rdx,
		.si = r->rsi,
		.di = r->rdi,
		.orig_ax = -1,
		.ip = r->rip,
		.cs = 0x33,
		.flags = r->rflags,
		.sp = r->rsp,
		.ss = 0x2b,
	};
}

/**
 * wt_report_gs - tell of a program that has put something into GS, which is the engine's
 *
 * To be called at each entry by way of the host's signal handler, which finds that out.
 */
void wt_report_gs(void)
{
	if (likely(!wt_entry->thread->gs_changed))
		return;
	wt_entry->thread->gs_changed = 0;
	wt_report_unsupported(__NR_arch_prctl, ARCH_SET_GS);
}

/* What rdtsc and rdtscp answer: virtual nanoseconds. Reading is a call to poll the clock, as clock_gettime() is. */
static void wt_read_counter(struct pt_regs *regs, unsigned int instruction_bytes)
{
	wt_count_call();
	regs->ax = (u32)wt_now();
	regs->dx = wt_now() >> 32;
	regs->ip += instruction_bytes;
	if (instruction_bytes == RDTSCP_BYTES)
		regs->cx = 0; /* the CPU */
}

/* Faults that Linux answers with a signal. */
static void wt_signal_fault(struct pt_regs *regs, const struct wt_thread *t)
{
	int signo = t->fault_signo;
	void (*handler)(int);

	current->thread.trapno = t->fault_trapno;
	current->thread.error_code = t->fault_err;
	current->thread.cr2 = t->fault_addr;
	if (signo == SIGKILL) {
		/* No fault: the host has no memory left, and this program has most of it. */
		pr_err("Out of memory of the host: Killed process %d (%s)\n", task_pid_nr(current), current->comm);
		wt_call(proc_event, WT_PROC_FAULT, 0, current->pid, signo);
		force_sig(SIGKILL);
		return;
	}
	handler = (void (*)(int))current->sighand->action[signo - 1].sa.sa_handler;
	if (handler == SIG_DFL || handler == SIG_IGN || sigismember(&current->blocked, signo)) {
		pr_info("%s[%d]: fatal fault, signal %d at %lx ip:%lx sp:%lx trap:%d error:%x\n", current->comm,
			task_pid_nr(current), signo, current->thread.cr2, regs->ip, regs->sp, t->fault_trapno,
			t->fault_err);
		wt_call(proc_event, WT_PROC_FAULT, 0, current->pid, signo);
	}
	force_sig_fault(signo, t->fault_code, (void __user *)t->fault_addr);
}

void wt_do_fault(struct pt_regs *regs);
void wt_do_fault(struct pt_regs *regs)
{
	const struct wt_thread *t = wt_entry->thread;

	wt_regs_from_fault(regs);
	irqentry_enter_from_user_mode(regs);
	local_irq_enable();
	wt_report_gs();
	if (t->fault_signo)
		wt_signal_fault(regs, t);
	else
		wt_read_counter(regs, t->fault_code);
	local_irq_disable();
	irqentry_exit_to_user_mode(regs);
	current->thread.full = 0;
	wt_user_load(current);
}
