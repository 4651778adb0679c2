// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Tasks: switching, birth, and the register state of programs that the kernel leaves in place.
 *
 * FS base and vector registers stay the program's while the kernel runs. wt_live names the task they belong to; they
 * are saved when the host or another program needs the registers, and loaded on the way back to a program.
 */
#include <linux/elf.h>
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/ptrace.h>
#include <linux/regset.h>
#include <linux/sched.h>
#include <linux/sched/debug.h>
#include <linux/sched/task.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/entry-common.h>
#include <linux/hrtimer.h>
#include <linux/init_task.h>
#include <linux/rseq.h>
#include <linux/task_work.h>
#include <asm/host.h>
#include <asm/switch_to.h>
#include <asm/mmu_context.h>
#include <asm/unistd.h>

struct task_struct *wt_current = &init_task;
unsigned long wt_kstack_top;
static struct task_struct *wt_live;
static struct kmem_cache *xstate_cache;

#define DEFAULT_MXCSR 0x1f80U
#define X87_PENDING   0x80 /* status: an exception that the next instruction raises */

struct task_struct *wt_switch_stacks(struct task_struct *prev, struct task_struct *next);

/*
 * Takes back what rseq_preempt() asks for at every switch (include/linux/rseq.h): to tell the program its CPU, which
 * never changes, and to abort its restartable sequence, which cannot contain a system call, the only place where
 * programs are switched. Elsewhere (a program stopped when it faulted) Linux does it.
 */
static __always_inline void rseq_stay(struct task_struct *prev)
{
#ifdef CONFIG_RSEQ
	if (!prev->rseq || task_pt_regs(prev)->orig_ax == -1UL || task_work_pending(prev))
		return;
	prev->rseq_event_mask = 0;
	clear_tsk_thread_flag(prev, TIF_NOTIFY_RESUME);
#endif
}

struct task_struct *__switch_to(struct task_struct *prev, struct task_struct *next)
{
	unsigned long copied = wt_copied;

	rseq_stay(prev);
	wt_current = next;
	prev = wt_switch_stacks(prev, next);
	wt_copied = copied; /* this task's again: it runs on its own stack */
	return prev;
}

static void xsave(void *area)
{
	u32 lo = wt_boot.xsave_mask, hi = wt_boot.xsave_mask >> 32;

	if (wt_boot.xsave_mask)
		asm volatile("xsavec64 (%0)" : : "r"(area), "a"(lo), "d"(hi) : "memory");
	else
		asm volatile("fxsave64 (%0)" : : "r"(area) : "memory");
}

static void xrstor(void *area)
{
	u32 lo = wt_boot.xsave_mask, hi = wt_boot.xsave_mask >> 32;

	if (wt_boot.xsave_mask)
		asm volatile("xrstor64 (%0)" : : "r"(area), "a"(lo), "d"(hi) : "memory");
	else
		asm volatile("fxrstor64 (%0)" : : "r"(area) : "memory");
}

static unsigned long xstate_size(void)
{
	return wt_boot.xsave_mask ? wt_boot.xsave_size : 512;
}

/* As after FNINIT and with MXCSR at its default (Intel SDM vol. 1, 13.6): compacted format, no component in use. */
static void xstate_init(void *area)
{
	memset(area, 0, xstate_size());
	*(u16 *)area = 0x37f;
	*(u32 *)(area + 24) = DEFAULT_MXCSR;
	if (wt_boot.xsave_mask)
		*(u64 *)(area + 520) = wt_boot.xsave_mask | (1ULL << 63);
}

/*
 * What the host computes with: its FS base, and floating point that rounds and traps as usual. Its code never uses x87
 * registers, but would find out about an exception of the program's that is pending there.
 */
static void host_registers(void)
{
	static const u32 mxcsr = DEFAULT_MXCSR;
	u16 status;

	asm volatile("wrfsbase %0" : : "r"(wt_entry->thread->host_fs));
	asm volatile("ldmxcsr %0" : : "m"(mxcsr));
	asm volatile("fnstsw %0" : "=a"(status));
	if (unlikely(status & X87_PENDING))
		asm volatile("fninit");
}

/* Put the registers of the program they belong to into memory, and the host's in place. */
void wt_user_save(void)
{
	struct task_struct *task = wt_live;

	if (!task)
		return;
	wt_live = NULL;
	asm volatile("rdfsbase %0" : "=r"(task->thread.fs));
	xsave(task->thread.xstate);
	host_registers();
}

/**
 * wt_user_load - make the registers and the host thread those of a program thread
 * @task: the running task, about to return to its program
 */
void wt_user_load(struct task_struct *task)
{
	struct wt_thread *t = wt_entry->thread;

	if (wt_live == task)
		return;
	wt_user_save();
	wt_kstack_top = task_top_of_stack(task);
	t->fault_stack = wt_kstack_top;
	t->pid = task_pid_nr(task);
	t->comm = (u64)task->comm;
	xrstor(task->thread.xstate);
	asm volatile("wrfsbase %0" : : "r"(task->thread.fs));
	wt_live = task;
}

/* Forget the register state of a task without saving it. */
void wt_user_drop(struct task_struct *task)
{
	if (wt_live == task) {
		wt_live = NULL;
		host_registers();
	}
}

/* A new program begins: registers as at exec. */
void wt_user_reset(struct task_struct *task)
{
	wt_user_drop(task);
	if (!task->thread.xstate)
		task->thread.xstate = kmem_cache_alloc(xstate_cache, GFP_KERNEL | __GFP_NOFAIL);
	xstate_init(task->thread.xstate);
	task->thread.fs = 0;
}

void __init arch_task_cache_init(void)
{
	xstate_cache = kmem_cache_create("wt_xstate", xstate_size(), 64, SLAB_PANIC, NULL);
}

int arch_dup_task_struct(struct task_struct *dst, struct task_struct *src)
{
	wt_user_save();
	*dst = *src;
	if (!src->thread.xstate)
		return 0;
	dst->thread.xstate = kmem_cache_alloc(xstate_cache, GFP_KERNEL);
	if (!dst->thread.xstate)
		return -ENOMEM;
	memcpy(dst->thread.xstate, src->thread.xstate, xstate_size());
	return 0;
}

void arch_release_task_struct(struct task_struct *task)
{
	wt_user_drop(task);
	if (task->thread.xstate)
		kmem_cache_free(xstate_cache, task->thread.xstate);
}

/* Every exec: nothing of the old program's registers stays. */
void flush_thread(void)
{
	wt_user_reset(current);
}

void exit_thread(struct task_struct *task)
{
	struct mm_struct *mm = task->active_mm;

	wt_user_drop(task);
	if (task == current)
		wt_tell_exit(task);
	/* This task holds its mm until the next one runs, for which the host would put away memory nobody needs. */
	if (task == current && !task->mm && mm && !atomic_read(&mm->mm_users))
		wt_mm_destroy(mm);
}

/* What ret_from_fork_asm finds on a new task's stack, below its pt_regs. */
struct fork_frame {
	unsigned long r15, r14, r13, r12, bx, bp;
	unsigned long ret;
	unsigned long pad[2];
};

int copy_thread(struct task_struct *p, const struct kernel_clone_args *args)
{
	struct pt_regs *regs = task_pt_regs(p);
	struct fork_frame *frame = (struct fork_frame *)regs - 1;

	if (args->flags & CLONE_SETTLS && args->tls >= TASK_SIZE)
		return -EPERM;
	memset(frame, 0, sizeof(*frame));
	frame->ret = (unsigned long)ret_from_fork_asm;
	p->thread.sp = (unsigned long)frame;
	p->thread.full = 1;
	p->thread.calls = 0;
	if (args->fn) {
		memset(regs, 0, sizeof(*regs));
		frame->bx = (unsigned long)args->fn;
		frame->r12 = (unsigned long)args->fn_arg;
		if (p->flags & PF_KTHREAD)
			return 0;
		regs->cs = 0x33;
		regs->ss = 0x2b;
		return 0;
	}
	*regs = *current_pt_regs();
	regs->ax = 0;
	if (args->stack)
		regs->sp = args->stack;
	if (args->flags & CLONE_SETTLS)
		p->thread.fs = args->tls;
	return 0;
}

/* Called by ret_from_fork_asm on the new task's stack. */
void wt_ret_from_fork(struct task_struct *prev, int (*fn)(void *), void *arg, struct pt_regs *regs);
void wt_ret_from_fork(struct task_struct *prev, int (*fn)(void *), void *arg, struct pt_regs *regs)
{
	wt_copied = 0;
	schedule_tail(prev);
	if (fn)
		fn(arg); /* a kernel thread never returns; a user-mode one has done its exec */
	syscall_exit_to_user_mode(regs);
	current->thread.full = 0;
	wt_user_load(current);
}

void start_thread(struct pt_regs *regs, unsigned long ip, unsigned long sp)
{
	memset(regs, 0, sizeof(*regs));
	regs->ip = ip;
	regs->sp = sp;
	regs->cs = 0x33;
	regs->ss = 0x2b;
	regs->flags = 0x202;
	regs->orig_ax = -1;
	current->thread.full = 1;
}

/* A new mm starts empty; one copied for fork gets a copy of the memory, which takes turns with the parent's. */
int wt_mm_init(struct mm_struct *mm)
{
	s64 as;

	if (!mm->context.as)
		return 0;
	as = wt_call(as_fork, mm->context.as);
	mm->context.as = 0;
	if (as < 0) {
		wt_report_unsupported(__NR_fork, 0);
		return as;
	}
	mm->context.as = as;
	wt_reach_new(mm, current->mm);
	mm->context.low = 1;
	current->mm->context.low = 1;
	wt_entry->thread->active_as = current->mm->context.as;
	if (!list_empty(&wt_attached))
		wt_attach_fork(mm, current->mm);
	return 0;
}

/**
 * wt_mm_activate - bring the memory of an mm that takes turns to its addresses
 * @mm: the mm that runs next
 */
void wt_mm_activate(struct mm_struct *mm)
{
	struct wt_thread *t = wt_entry->thread;

	if (t->active_as == mm->context.as)
		return;
	wt_call(as_activate, mm->context.as);
	t->active_as = mm->context.as;
}

void wt_mm_destroy(struct mm_struct *mm)
{
	if (!mm->context.as)
		return;
	wt_forget_usage(mm);
	wt_attach_exit(mm); /* of a fork that failed halfway; after a program it is done: deactivate_mm() */
	if (wt_entry->thread->active_as == mm->context.as)
		wt_entry->thread->active_as = 0;
	wt_call(as_destroy, mm->context.as);
	wt_reach_forget(mm);
	mm->context.as = 0;
}

unsigned long __get_wchan(struct task_struct *p)
{
	return 0;
}

void show_stack(struct task_struct *task, unsigned long *sp, const char *loglvl)
{
	/* The host prints the backtrace: it has the symbols. */
}

void show_regs(struct pt_regs *regs)
{
	pr_info("pid %d comm %s ip %lx sp %lx\n", current->pid, current->comm, regs->ip, regs->sp);
}

/* One quantum in eight is up to 15 calls shorter than wt_boot says. */
#define QUANTUM_SPREAD	    16
#define QUANTUM_SPREAD_BITS 7

/**
 * wt_quantum - let time pass for a program that calls and calls at one instant
 *
 * Programs compute in no time, so one that polls without blocking would never let the clock move. After
 * wt_boot.quantum_calls system calls at the same virtual instant it sleeps wt_boot.quantum_ns.
 *
 * Others run only while it sleeps. So that it does not always do so at the same call of a loop, such as one where it holds
 * the lock that they wait for, a quantum now and then is some calls shorter, irregularly.
 */
void wt_quantum(void)
{
	struct thread_struct *t = &current->thread;
	unsigned int spread;
	ktime_t until;

	t->calls = 0;
	if (t->calls_now != wt_now()) {
		t->calls_now = wt_now();
		return;
	}
	until = ktime_set(0, wt_boot.quantum_ns);
	set_current_state(TASK_KILLABLE);
	schedule_hrtimeout_range(&until, 0, HRTIMER_MODE_REL);
	t->calls_now = wt_now();
	spread = hash_64(t->calls_now, QUANTUM_SPREAD_BITS);
	if (spread < QUANTUM_SPREAD)
		t->calls = spread % wt_boot.quantum_calls;
}

/* ptrace(2) is refused (see syscall.c), but generic code links against these. */
void user_disable_single_step(struct task_struct *task) {}

void ptrace_disable(struct task_struct *task) {}

long arch_ptrace(struct task_struct *task, long request, unsigned long addr, unsigned long data)
{
	return -EIO;
}

static const struct user_regset_view no_regsets = {
	.name = "x86_64",
	.e_machine = EM_X86_64,
};

const struct user_regset_view *task_user_regset_view(struct task_struct *task)
{
	return &no_regsets;
}
