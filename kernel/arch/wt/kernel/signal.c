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

/* Where a signal frame keeps vector state: an XSAVE area in standard format (Intel SDM vol. 1, 13.4). */
#define FX_BYTES	  512UL
#define XSTATE_HEADER	  (FX_BYTES + 64)
#define XSTATE_MAX	  4096UL
#define FX_CONTROL	  0  /* offset of the x87 control word */
#define FX_MXCSR	  24 /* of MXCSR */
#define XCOMP_BV	  (FX_BYTES + 8)
#define XSTATE_CHECKED	  16 /* bytes from there that must be 0 in standard format */
#define MXCSR_BITS	  0xffffU
#define DEFAULT_CONTROL	  0x37f
#define DEFAULT_MXCSR	  0x1f80U
#define XSTATE_FP_SSE	  3UL
#define XSTATE_WITH_MXCSR 6UL /* SSE and AVX */
#define CPUID_XSTATE	  0xd
#define MIN_SIGNAL_STACK  2048UL /* the uapi's MINSIGSTKSZ */

/* One at a time is between a program's memory and its registers; nothing sleeps while it is there. */
static u8 xstate[XSTATE_MAX] __aligned(64);

static u64 *xstate_bv(void)
{
	return (u64 *)(xstate + FX_BYTES);
}

/* Bytes of a program's vector state in standard format. */
static unsigned long xstate_bytes(void)
{
	static unsigned long bytes;
	u32 size, offset, ecx, edx;
	int component;

	if (bytes)
		return bytes;
	bytes = wt_boot.xsave_mask ? XSTATE_HEADER : FX_BYTES;
	for (component = 2; component < 63; component++) {
		if (!(wt_boot.xsave_mask & BIT_ULL(component)))
			continue;
		asm("cpuid" : "=a"(size), "=b"(offset), "=c"(ecx), "=d"(edx) : "a"(CPUID_XSTATE), "c"(component));
		bytes = max(bytes, (unsigned long)offset + size);
	}
	if (bytes > XSTATE_MAX)
		panic("vector state of %lu bytes does not fit a signal frame", bytes);
	return bytes;
}

/* Bytes of it in a frame, with the second magic number. */
static unsigned long frame_xstate_bytes(void)
{
	return xstate_bytes() + (wt_boot.xsave_mask ? FP_XSTATE_MAGIC2_SIZE : 0);
}

/**
 * wt_min_signal_stack - bytes that a signal takes of the stack at most, for AT_MINSIGSTKSZ
 */
unsigned long wt_min_signal_stack(void)
{
	unsigned long most = RED_ZONE + sizeof(struct sigframe) + 16 + frame_xstate_bytes() + 63;

	return max(most, MIN_SIGNAL_STACK);
}

/* From the area into the registers: components that are not in it get their initial values. */
static void xstate_load(void)
{
	wt_user_load(current);
	if (wt_boot.xsave_mask)
		asm volatile("xrstor64 (%0)"
			     :
			     : "r"(xstate), "a"((u32)wt_boot.xsave_mask), "d"((u32)(wt_boot.xsave_mask >> 32))
			     : "memory");
	else
		asm volatile("fxrstor64 (%0)" : : "r"(xstate) : "memory");
}

/* What a handler starts with, as a new program does. */
static void xstate_init(void)
{
	memset(xstate, 0, XSTATE_HEADER);
	*(u16 *)(xstate + FX_CONTROL) = DEFAULT_CONTROL;
	*(u32 *)(xstate + FX_MXCSR) = DEFAULT_MXCSR;
	xstate_load();
}

static int xstate_put(unsigned long to)
{
	unsigned long bytes = xstate_bytes();
	struct _fpx_sw_bytes sw = {
		.magic1 = FP_XSTATE_MAGIC1,
		.extended_size = bytes + FP_XSTATE_MAGIC2_SIZE,
		.xfeatures = wt_boot.xsave_mask,
		.xstate_size = bytes,
	};
	u32 magic2 = FP_XSTATE_MAGIC2;

	wt_user_load(current);
	if (!wt_boot.xsave_mask) {
		memset(xstate, 0, FX_BYTES); /* FXSAVE leaves the last words alone */
		asm volatile("fxsave64 (%0)" : : "r"(xstate) : "memory");
		return copy_to_user((void __user *)to, xstate, FX_BYTES) ? -EFAULT : 0;
	}
	memset(xstate, 0, bytes);
	asm volatile("xsave64 (%0)"
		     :
		     : "r"(xstate), "a"((u32)wt_boot.xsave_mask), "d"((u32)(wt_boot.xsave_mask >> 32))
		     : "memory");
	memcpy(xstate + offsetof(struct _fpstate_64, sw_reserved), &sw, sizeof(sw));
	if (copy_to_user((void __user *)to, xstate, bytes) || put_user(magic2, (u32 __user *)(to + bytes)))
		return -EFAULT;
	return 0;
}

/* Whether the area in a frame says of itself that it is more than x87 and SSE; as check_xstate_in_sigframe() has it. */
static bool is_xstate(unsigned long from)
{
	struct _fpx_sw_bytes sw;
	u32 magic2;

	memcpy(&sw, xstate + offsetof(struct _fpstate_64, sw_reserved), sizeof(sw));
	return wt_boot.xsave_mask && sw.magic1 == FP_XSTATE_MAGIC1 && sw.xstate_size >= XSTATE_HEADER &&
	       sw.xstate_size <= xstate_bytes() && sw.xstate_size <= sw.extended_size &&
	       !get_user(magic2, (u32 __user *)(from + sw.xstate_size)) && magic2 == FP_XSTATE_MAGIC2;
}

/*
 * Takes back what a handler may have changed: all of it if the magic numbers are there, else x87 and SSE. What the
 * processor would not load is an error, as it is where Linux has it loaded from the frame.
 */
static int xstate_get(unsigned long from)
{
	unsigned long bytes = xstate_bytes();
	u64 asked = XSTATE_FP_SSE, features = XSTATE_FP_SSE;
	struct _fpx_sw_bytes sw;
	bool all;

	if (copy_from_user(xstate, (void __user *)from, FX_BYTES))
		return -EFAULT;
	all = is_xstate(from);
	if (!IS_ALIGNED(from, all ? 64 : 16))
		return -EINVAL;
	if (all) {
		memcpy(&sw, xstate + offsetof(struct _fpstate_64, sw_reserved), sizeof(sw));
		asked = sw.xfeatures & wt_boot.xsave_mask;
		memset(xstate + FX_BYTES, 0, bytes - FX_BYTES);
		if (copy_from_user(xstate + FX_BYTES, (void __user *)(from + FX_BYTES), sw.xstate_size - FX_BYTES))
			return -EFAULT;
		if (*xstate_bv() & ~wt_boot.xsave_mask || memchr_inv(xstate + XCOMP_BV, 0, XSTATE_CHECKED))
			return -EINVAL;
		features = *xstate_bv() & asked;
	}
	if (!(asked & XSTATE_WITH_MXCSR))
		*(u32 *)(xstate + FX_MXCSR) = DEFAULT_MXCSR;
	else if (*(u32 *)(xstate + FX_MXCSR) & ~MXCSR_BITS)
		return -EINVAL;
	memset(xstate + FX_BYTES, 0, XSTATE_HEADER - FX_BYTES);
	*xstate_bv() = features;
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
	*fp = (sp - frame_xstate_bytes()) & ~63UL;
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
	if (wt_boot.xsave_mask)
		flags |= UC_FP_XSTATE;
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
