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
#include <linux/rseq.h>
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
#define TRAP_PROTECTION	 13 /* x86 trap number of a general protection fault */
#define USER_CS		 0x33
#define USER_SS		 0x2b

struct sigframe {
	char __user *pretcode;
	struct ucontext uc;
	struct siginfo info;
};

/*
 * The vector state in a signal frame: x87 and SSE, as FXSAVE stores them (Intel SDM vol. 1, 10.5). It is all that
 * programs are told of, on every processor, so that frames have one size. wt_boot.xsave_mask is about switches only.
 */
#define FX_BYTES	 512UL
#define FX_CONTROL	 0  /* offset of the x87 control word */
#define FX_MXCSR	 24 /* of MXCSR */
#define MXCSR_BITS	 0xffffU
#define DEFAULT_CONTROL	 0x37f
#define DEFAULT_MXCSR	 0x1f80U
#define MIN_SIGNAL_STACK 2048UL /* the uapi's MINSIGSTKSZ */

/* One at a time is between a program's memory and its registers; nothing sleeps while it is there. */
static u8 xstate[FX_BYTES] __aligned(16);

/**
 * wt_min_signal_stack - bytes that a signal takes of the stack at most, for AT_MINSIGSTKSZ
 */
unsigned long wt_min_signal_stack(void)
{
	unsigned long most = RED_ZONE + sizeof(struct sigframe) + 16 + FX_BYTES + 63;

	return max(most, MIN_SIGNAL_STACK);
}

/* From the area into the registers. */
static void xstate_load(void)
{
	wt_user_load(current);
	asm volatile("fxrstor64 (%0)" : : "r"(xstate) : "memory");
}

/* What a handler starts with, as a new program does. */
static void xstate_init(void)
{
	memset(xstate, 0, FX_BYTES);
	*(u16 *)(xstate + FX_CONTROL) = DEFAULT_CONTROL;
	*(u32 *)(xstate + FX_MXCSR) = DEFAULT_MXCSR;
	xstate_load();
}

static int xstate_put(unsigned long to)
{
	wt_user_load(current);
	memset(xstate, 0, FX_BYTES); /* FXSAVE leaves the last words alone */
	asm volatile("fxsave64 (%0)" : : "r"(xstate) : "memory");
	return copy_to_user((void __user *)to, xstate, FX_BYTES) ? -EFAULT : 0;
}

/* Takes back what a handler may have changed. What the processor would not load is an error, as it is for Linux. */
static int xstate_get(unsigned long from)
{
	if (!IS_ALIGNED(from, 16))
		return -EINVAL;
	if (copy_from_user(xstate, (void __user *)from, FX_BYTES))
		return -EFAULT;
	if (*(u32 *)(xstate + FX_MXCSR) & ~MXCSR_BITS)
		return -EINVAL;
	xstate_load();
	return 0;
}

/* Where the frame goes, and *fp, the vector state above it; 0: the signal stack is too small. */
static unsigned long frame_address(struct ksignal *ksig, struct pt_regs *regs, unsigned long *fp)
{
	unsigned long sp = regs->sp - RED_ZONE;
	bool on_stack = on_sig_stack(regs->sp);

	if (ksig->ka.sa.sa_flags & SA_ONSTACK && !sas_ss_flags(sp)) {
		sp = current->sas_ss_sp + current->sas_ss_size;
		on_stack = true;
	}
	*fp = (sp - FX_BYTES) & ~63UL;
	sp = ((*fp - sizeof(struct sigframe)) & ~15UL) - 8;
	return on_stack && !__on_sig_stack(sp) ? 0 : sp;
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
	unsigned long flags = UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS;
	int err;

	if (!sp || !(ksig->ka.sa.sa_flags & SA_RESTORER))
		return -EFAULT;
	rseq_signal_deliver(ksig, regs);
	err = xstate_put(fp);
	err |= __put_user(flags, &frame->uc.uc_flags);
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
	xstate_init();
	current->thread.full = 1;
	wt_check_ip(regs);
	return 0;
}

/* Make an interrupted call again, in place of the `syscall` instruction it would have been stepped back to. */
static void call_again(struct pt_regs *regs, long nr)
{
	regs->orig_ax = nr;
	regs->ax = -ENOSYS;
	nr = syscall_enter_from_user_mode_work(regs, nr); /* filters see it again */
	if (nr != -1)
		regs->ax = wt_dispatch(regs, nr);
}

/*
 * Whether a frame has the segment selectors of 64-bit programs. With others Linux goes to 32-bit code, which does not exist
 * here, or raises a fault.
 */
static bool selectors_stay(const struct sigcontext *sc, unsigned long uc_flags)
{
	bool strict = uc_flags & UC_SIGCONTEXT_SS && uc_flags & UC_STRICT_RESTORE_SS;

	return (sc->cs | 3) == USER_CS && (!strict || (sc->ss | 3) == USER_SS);
}

SYSCALL_DEFINE0(rt_sigreturn)
{
	struct pt_regs *regs = current_pt_regs();
	struct sigframe __user *frame = (struct sigframe __user *)(regs->sp - 8);
	struct sigcontext sc;
	unsigned long flags;
	sigset_t set;

	current->restart_block.fn = do_no_restart_syscall;
	if (copy_from_user(&sc, &frame->uc.uc_mcontext, sizeof(sc)) ||
	    copy_from_user(&set, &frame->uc.uc_sigmask, sizeof(set)) || get_user(flags, &frame->uc.uc_flags))
		goto bad;
	set_current_blocked(&set);
	if (restore_altstack(&frame->uc.uc_stack))
		goto bad;
	if (!sc.fpstate)
		xstate_init();
	else if (xstate_get(sc.fpstate))
		goto bad;
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
	regs->flags = (regs->flags & ~FIX_FLAGS) | (sc.flags & FIX_FLAGS);
	regs->orig_ax = -1;
	current->thread.full = 1;
	if (!selectors_stay(&sc, flags)) {
		current->thread.trapno = TRAP_PROTECTION;
		current->thread.error_code = 0;
		force_sig_fault(SIGSEGV, SI_KERNEL, NULL);
		return regs->ax;
	}
	wt_check_ip(regs);
	if (sc.reserved1[0] == WT_RESTART_MAGIC && sc.reserved1[1] < NR_syscalls)
		call_again(regs, sc.reserved1[1]);
	return regs->ax;
bad:
	force_sig(SIGSEGV);
	return 0;
}

static void restart_now(struct pt_regs *regs, long nr)
{
	call_again(regs, nr);
	if (unlikely(wt_cpu_costs()))
		wt_cpu_pay_call(regs);
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
