// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Programs that run on and on without a system call.
 *
 * Time stands still while a program runs, and no other program of the node does, so one that waits in a loop for what
 * another one does, or for a signal, would wait for ever. The host interrupts it and looks (struct wt_look). Where the
 * loop cannot end by itself the program sleeps in it, at a place and for a time that depend on the loop and on virtual
 * time only: when the host looked never shows.
 */
#include <linux/hrtimer.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <asm/host.h>
#include <asm/ptrace.h>

/* A sleep in a loop is a quantum at first; each one that follows is twice as long, up to this many times. */
#define SPIN_DOUBLINGS 4ULL
#define SPIN_NS	       64000ULL /* where quanta are switched off */

static void wt_look_from_regs(struct wt_regs *to, const struct pt_regs *regs)
{
	*to = (struct wt_regs){
		.r15 = regs->r15,
		.r14 = regs->r14,
		.r13 = regs->r13,
		.r12 = regs->r12,
		.rbp = regs->bp,
		.rbx = regs->bx,
		.r11 = regs->r11,
		.r10 = regs->r10,
		.r9 = regs->r9,
		.r8 = regs->r8,
		.rax = regs->ax,
		.rcx = regs->cx,
		.rdx = regs->dx,
		.rsi = regs->si,
		.rdi = regs->di,
		.rip = regs->ip,
		.rflags = regs->flags,
		.rsp = regs->sp,
	};
}

static void wt_look_to_regs(struct pt_regs *regs, const struct wt_regs *from)
{
	regs->r15 = from->r15;
	regs->r14 = from->r14;
	regs->r13 = from->r13;
	regs->r12 = from->r12;
	regs->bp = from->rbp;
	regs->bx = from->rbx;
	regs->r11 = from->r11;
	regs->r10 = from->r10;
	regs->r9 = from->r9;
	regs->r8 = from->r8;
	regs->ax = from->rax;
	regs->cx = from->rcx;
	regs->dx = from->rdx;
	regs->si = from->rsi;
	regs->di = from->rdi;
	regs->ip = from->rip;
	regs->flags = from->rflags;
	regs->sp = from->rsp;
}

static void wt_sleep(unsigned int state, u64 ns)
{
	ktime_t until = ns_to_ktime(ns);

	set_current_state(state);
	schedule_hrtimeout_range(&until, 0, HRTIMER_MODE_REL);
}

/* A signal ends the sleep, as it would come in the midst of the loop. */
static void wt_spin(u64 row)
{
	struct thread_struct *t = &current->thread;

	wt_sleep(TASK_INTERRUPTIBLE, (wt_boot.quantum_ns ?: SPIN_NS) << min(row, SPIN_DOUBLINGS));
	t->spins = row + 1;
	t->spin_now = wt_now();
}

/**
 * wt_preempt - ask the host what is to become of a program that it interrupted
 * @regs: the program's
 *
 * If it goes on, its kernel has seen nothing: no time, no call, no signal that was not there before.
 */
void wt_preempt(struct pt_regs *regs)
{
	struct thread_struct *t = &current->thread;
	struct wt_look look = {};

	do {
		wt_look_from_regs(&look.regs, regs);
		wt_user_save();
		look.fs = t->fs;
		look.row = t->spin_now == wt_now() ? t->spins : 0;
		switch (wt_call(look, current->mm->context.as, (u64)&look)) {
		case WT_LOOK_SPINS:
			wt_look_to_regs(regs, &look.regs);
			wt_spin(look.row);
			look.again = 1;
			break;
		case WT_LOOK_SLEEPS:
			wt_sleep(TASK_INTERRUPTIBLE, look.sleep_ns);
			return;
		case WT_LOOK_STOPS:
			wt_sleep(TASK_KILLABLE, look.sleep_ns);
			return;
		case WT_LOOK_DIES:
			send_sig(SIGKILL, current, 1);
			return;
		default:
			return;
		}
	} while (!signal_pending(current));
}
