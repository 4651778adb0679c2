// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Faults of programs, as the host's signal handler hands them over in wt_thread.fault.
 */
#include <linux/entry-common.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/signal.h>
#include <linux/uaccess.h>
#include <asm/host.h>
#include <asm/syscall.h>
#include <asm/unistd.h>
#include <uapi/asm/prctl.h>

#define RDTSCP_BYTES  3
#define TRAP_GP	      13
#define TRAP_PF	      14
#define VSYSCALL_ADDR 0xffffffffff500000UL /* where the host lets programs find the page at 0xffffffffff600000 */
#define PF_FETCH      0x10		   /* in a page fault's error code: an instruction was to be read */
#define SLOW_FLAGS    0x54100 /* AC, RF, NT, TF: set by iretq only, not by popfq in the kernel's own text */

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

static void wt_put_counter(struct pt_regs *regs)
{
	regs->ax = (u32)wt_now();
	regs->dx = wt_now() >> 32;
}

/* What rdtsc and rdtscp answer: virtual nanoseconds. Reading is a call to poll the clock, as clock_gettime() is. */
static void wt_read_counter(struct pt_regs *regs, unsigned int instruction_bytes)
{
	wt_count_call();
	wt_put_counter(regs);
	regs->ip += instruction_bytes;
	if (instruction_bytes == RDTSCP_BYTES)
		regs->cx = 0; /* the CPU */
}

/* From entry.S, where rdtsc was patched; true: return with all registers. */
bool wt_do_clock(struct pt_regs *regs);
bool wt_do_clock(struct pt_regs *regs)
{
	struct thread_struct *t = &current->thread;
	bool slow = regs->flags & SLOW_FLAGS;

	if (unlikely(t->calls + 1 >= wt_boot.quantum_calls && wt_boot.quantum_calls)) {
		irqentry_enter_from_user_mode(regs);
		local_irq_enable();
		wt_count_call();
		wt_put_counter(regs);
		local_irq_disable();
		irqentry_exit_to_user_mode(regs);
		wt_user_load(current);
		slow |= t->full;
		t->full = 0;
		return slow;
	}
	t->calls++;
	wt_put_counter(regs);
	return slow;
}

/* Random bytes for rdrand or rdseed. Like those, four bytes clear the upper half and two leave the rest. */
static void wt_put_random(struct pt_regs *regs, unsigned int reg, unsigned int bytes)
{
	static const u8 at[] = {
		offsetof(struct pt_regs, ax),  offsetof(struct pt_regs, cx),  offsetof(struct pt_regs, dx),
		offsetof(struct pt_regs, bx),  offsetof(struct pt_regs, sp),  offsetof(struct pt_regs, bp),
		offsetof(struct pt_regs, si),  offsetof(struct pt_regs, di),  offsetof(struct pt_regs, r8),
		offsetof(struct pt_regs, r9),  offsetof(struct pt_regs, r10), offsetof(struct pt_regs, r11),
		offsetof(struct pt_regs, r12), offsetof(struct pt_regs, r13), offsetof(struct pt_regs, r14),
		offsetof(struct pt_regs, r15),
	};
	void *to = (void *)regs + at[reg];

	if (bytes == sizeof(u16))
		*(u16 *)to = get_random_u16();
	else
		*(u64 *)to = bytes == sizeof(u32) ? get_random_u32() : get_random_u64();
}

/*
 * A call of what x86-64 has at fixed addresses for old programs (arch/x86/entry/vsyscall). As there, a bad pointer is a
 * fault and no error, and the call is none to those who trace or filter. Return: whether it was one, and is done.
 */
static bool wt_vsyscall(struct pt_regs *regs)
{
	static const u16 nrs[] = {__NR_gettimeofday, __NR_time, __NR_getcpu};
	unsigned long index = (regs->ip - VSYSCALL_ADDR) / 0x400, caller;
	long ret;

	if (regs->ip % 0x400 || index >= ARRAY_SIZE(nrs) || get_user(caller, (unsigned long __user *)regs->sp))
		return false;
	ret = sys_call_table[nrs[index]](regs->di, regs->si, regs->dx, 0, 0, 0);
	if (ret == -EFAULT)
		return false;
	wt_count_call();
	regs->ax = ret;
	regs->ip = caller;
	regs->sp += sizeof(caller);
	return true;
}

/* Whether the host has the program go on: see wt_host_ops.instruction. */
static bool wt_host_instruction(struct pt_regs *regs, const struct wt_thread *t)
{
	struct wt_regs r = t->fault;
	s64 done;

	if (t->fault_trapno == TRAP_PF && t->fault_err & PF_FETCH) {
		if (regs->ip >= TASK_SIZE)
			return wt_vsyscall(regs);
	} else if (t->fault_trapno != TRAP_GP) {
		return false;
	}
	if (!current->mm || !current->mm->context.as)
		return false;
	done = wt_call(instruction, current->mm->context.as, (u64)&r);
	if (done <= 0)
		return false;
	regs->ax = r.rax;
	regs->bx = r.rbx;
	regs->cx = r.rcx;
	regs->dx = r.rdx;
	regs->ip = r.rip;
	regs->flags = r.rflags;
	if (done > 1)
		wt_put_random(regs, WT_RANDOM_REG(done), WT_RANDOM_BYTES(done));
	return true;
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
	if (!t->fault_signo && t->fault_code == WT_FAULT_LOOK)
		wt_preempt(regs);
	else if (!t->fault_signo)
		wt_read_counter(regs, t->fault_code);
	else if (!wt_host_instruction(regs, t))
		wt_signal_fault(regs, t);
	local_irq_disable();
	irqentry_exit_to_user_mode(regs);
	current->thread.full = 0;
	wt_user_load(current);
}
