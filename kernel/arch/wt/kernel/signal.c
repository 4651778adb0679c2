// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Signal frames as x86-64 programs know them (arch/x86 rt_sigframe, System V ABI): built on the program's stack and
 * taken back by rt_sigreturn.
 *
 * A call to be restarted cannot be restarted by stepping back over a `syscall` instruction: at a patched call site
 * there is none. Without a handler the call is made again before returning. With a handler the frame remembers the
 * call in two reserved words of the sigcontext, and rt_sigreturn makes it.
 */
#include <linux/entry-common.h>
#include <linux/sched/signal.h>
#include <linux/signal.h>
#include <linux/syscalls.h>
#include <linux/uaccess.h>
#include <asm/host.h>
#include <asm/syscall.h>
#include <uapi/asm/sigcontext.h>
#include <uapi/asm/ucontext.h>

#define WT_RESTART_MAGIC 0x5754524553544152UL /* in reserved1[0]; reserved1[1] holds the call's number */
#define FIX_FLAGS	 0x00050dd5UL	      /* flags a program may set: AC OF DF TF SF ZF AF PF CF RF */
#define RED_ZONE	 128

struct sigframe {
	char __user *pretcode;
	struct ucontext uc;
	struct siginfo info;
};

struct fxregs {
	u8 bytes[512];
} __aligned(16);

/* The program's x87 and SSE state, out of and into the registers. */
static void fxregs_get(struct fxregs *fx)
{
	wt_user_load(current);
	asm volatile("fxsave64 (%0)" : : "r"(fx) : "memory");
}

static void fxregs_set(struct fxregs *fx)
{
	*(u32 *)(fx->bytes + 24) &= 0xffff; /* reserved MXCSR bits would fault */
	wt_user_load(current);
	asm volatile("fxrstor64 (%0)" : : "r"(fx) : "memory");
}

static unsigned long frame_address(struct ksignal *ksig, struct pt_regs *regs, unsigned long *fp)
{
	unsigned long sp = regs->sp;

	if (!((ksig->ka.sa.sa_flags & SA_ONSTACK) && !on_sig_stack(sp)))
		sp -= RED_ZONE;
	sp = sigsp(sp, ksig);
	*fp = (sp - sizeof(struct fxregs)) & ~63UL;
	return ((*fp - sizeof(struct sigframe)) & ~15UL) - 8;
}

static int put_context(struct sigframe __user *frame, struct pt_regs *regs, unsigned long fp, long restart_nr)
{
	struct thread_struct *t = &current->thread;
	struct sigcontext sc = {
		.r8 = regs->r8,
		.r9 = regs->r9,
		.r10 = regs->r10,
		.r11 = regs->r11,
		.r12 = regs->r12,
		.r13 = regs->r13,
		.r14 = regs->r14,
		.r15 = regs->r15,
		.di = regs->di,
		.si = regs->si,
		.bp = regs->bp,
		.bx = regs->bx,
		.dx = regs->dx,
		.ax = regs->ax,
		.cx = regs->cx,
		.sp = regs->sp,
		.ip = regs->ip,
		.flags = regs->flags,
		.cs = regs->cs,
		.ss = regs->ss,
		.err = t->error_code,
		.trapno = t->trapno,
		.cr2 = t->cr2,
		.oldmask = sigmask_to_save()->sig[0],
		.fpstate = fp,
	};

	if (restart_nr >= 0) {
		sc.reserved1[0] = WT_RESTART_MAGIC;
		sc.reserved1[1] = restart_nr;
	}
	return copy_to_user(&frame->uc.uc_mcontext, &sc, sizeof(sc)) ? -EFAULT : 0;
}

static int setup_frame(struct ksignal *ksig, struct pt_regs *regs, long restart_nr)
{
	unsigned long fp, sp = frame_address(ksig, regs, &fp);
	struct sigframe __user *frame = (struct sigframe __user *)sp;
	struct fxregs fx;
	int err = 0;

	if (!(ksig->ka.sa.sa_flags & SA_RESTORER))
		return -EFAULT;
	fxregs_get(&fx);
	err |= copy_to_user((void __user *)fp, &fx, sizeof(fx)) ? -EFAULT : 0;
	err |= __put_user((unsigned long)(UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS), &frame->uc.uc_flags);
	err |= __put_user((unsigned long)0, (unsigned long __user *)&frame->uc.uc_link);
	err |= __save_altstack(&frame->uc.uc_stack, regs->sp);
	err |= __put_user((unsigned long)ksig->ka.sa.sa_restorer, (unsigned long __user *)&frame->pretcode);
	err |= put_context(frame, regs, fp, restart_nr);
	err |= copy_to_user(&frame->uc.uc_sigmask, sigmask_to_save(), sizeof(sigset_t)) ? -EFAULT : 0;
	if (ksig->ka.sa.sa_flags & SA_SIGINFO)
		err |= copy_siginfo_to_user(&frame->info, &ksig->info);
	if (err)
		return -EFAULT;
	regs->di = ksig->sig;
	regs->ax = 0;
	regs->si = (unsigned long)&frame->info;
	regs->dx = (unsigned long)&frame->uc;
	regs->ip = (unsigned long)ksig->ka.sa.sa_handler;
	regs->sp = sp;
	regs->flags &= ~(0x400UL | 0x100UL | 0x10000UL); /* DF, TF, RF */
	current->thread.full = 1;
	return 0;
}

SYSCALL_DEFINE0(rt_sigreturn)
{
	struct pt_regs *regs = current_pt_regs();
	struct sigframe __user *frame = (struct sigframe __user *)(regs->sp - 8);
	struct sigcontext sc;
	struct fxregs fx;
	sigset_t set;

	current->restart_block.fn = do_no_restart_syscall;
	if (copy_from_user(&sc, &frame->uc.uc_mcontext, sizeof(sc)) ||
	    copy_from_user(&set, &frame->uc.uc_sigmask, sizeof(set)))
		goto bad;
	if (sc.fpstate && copy_from_user(&fx, (void __user *)sc.fpstate, sizeof(fx)))
		goto bad;
	set_current_blocked(&set);
	if (restore_altstack(&frame->uc.uc_stack))
		goto bad;
	if (sc.fpstate)
		fxregs_set(&fx);
	regs->r8 = sc.r8;
	regs->r9 = sc.r9;
	regs->r10 = sc.r10;
	regs->r11 = sc.r11;
	regs->r12 = sc.r12;
	regs->r13 = sc.r13;
	regs->r14 = sc.r14;
	regs->r15 = sc.r15;
	regs->di = sc.di;
	regs->si = sc.si;
	regs->bp = sc.bp;
	regs->bx = sc.bx;
	regs->dx = sc.dx;
	regs->cx = sc.cx;
	regs->sp = sc.sp;
	regs->ip = sc.ip;
	regs->ax = sc.ax;
	regs->flags = (sc.flags & FIX_FLAGS) | 0x202;
	regs->orig_ax = -1;
	current->thread.full = 1;
	if (sc.reserved1[0] == WT_RESTART_MAGIC && sc.reserved1[1] < NR_syscalls) {
		regs->orig_ax = sc.reserved1[1];
		return wt_dispatch(regs, regs->orig_ax);
	}
	return regs->ax;
bad:
	force_sig(SIGSEGV);
	return 0;
}

/* Make an interrupted call again, in place of the `syscall` instruction it would have been stepped back to. */
static void restart_now(struct pt_regs *regs, long nr)
{
	regs->orig_ax = nr;
	regs->ax = wt_dispatch(regs, nr);
	/* Its own interruption is seen by the next turn of the exit loop: the signal that caused it is still pending. */
}

void arch_do_signal_or_restart(struct pt_regs *regs)
{
	long result = regs->ax, nr = regs->orig_ax, restart_nr = -1;
	bool in_call = nr != -1;
	struct ksignal ksig;

	if (get_signal(&ksig)) {
		if (in_call) {
			switch (result) {
			case -ERESTART_RESTARTBLOCK:
			case -ERESTARTNOHAND:
				regs->ax = -EINTR;
				break;
			case -ERESTARTSYS:
				if (!(ksig.ka.sa.sa_flags & SA_RESTART)) {
					regs->ax = -EINTR;
					break;
				}
				fallthrough;
			case -ERESTARTNOINTR:
				restart_nr = nr;
				regs->ax = nr;
				break;
			}
			regs->orig_ax = -1;
		}
		signal_setup_done(setup_frame(&ksig, regs, restart_nr), &ksig, false);
		return;
	}

	if (in_call) {
		switch (result) {
		case -ERESTARTNOHAND:
		case -ERESTARTSYS:
		case -ERESTARTNOINTR:
			restore_saved_sigmask();
			restart_now(regs, nr);
			return;
		case -ERESTART_RESTARTBLOCK:
			restore_saved_sigmask();
			restart_now(regs, __NR_restart_syscall);
			return;
		}
	}
	restore_saved_sigmask();
}
