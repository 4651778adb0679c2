// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * System calls: Linux's own table, with the few that own host memory or registers replaced.
 */
#include <linux/entry-common.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mman.h>
#include <linux/prctl.h>
#include <linux/rseq.h>
#include <linux/sched/task.h>
#include <linux/syscalls.h>
#include <asm/host.h>
#include <asm/syscall.h>
#include <uapi/asm/prctl.h>

/**
 * wt_memory - have the host carry out a memory call of the running program
 * @nr: x86-64 number
 * @arg: its six arguments; of mmap with a file the fifth is the protection that it may ever have
 * @file: host handle of what is mapped, or 0
 */
long wt_memory(unsigned int nr, const u64 *arg, u64 file)
{
	struct mm_struct *mm = current->mm;
	long ret;

	if (!mm || !mm->context.as)
		return -ENOMEM;
	if (unlikely(!wt_within_limits(mm, nr, arg))) {
		/* brk answers where the break is. */
		return nr == __NR_brk ? wt_call(mem_call, mm->context.as, nr, (u64)(const u64[6]){}, 0) : -ENOMEM;
	}
	ret = wt_call(mem_call, mm->context.as, nr, (u64)arg, file);
	if (ret > 0 && (nr == __NR_mmap || nr == __NR_mremap))
		wt_reach_add(mm, ret, arg[nr == __NR_mmap ? 1 : 2]);
	if (unlikely(!list_empty(&wt_attached)))
		wt_attach_follow(nr, arg, ret);
	return ret;
}

#define WT_MEM_CALL(name, nr)                                                                                      \
	static long wt_##name(unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e, \
			      unsigned long f)                                                                     \
	{                                                                                                          \
		u64 arg[6] = {a, b, c, d, e, f};                                                                   \
                                                                                                                   \
		return wt_memory(nr, arg, 0);                                                                      \
	}

WT_MEM_CALL(munmap, __NR_munmap)
WT_MEM_CALL(mprotect, __NR_mprotect)
WT_MEM_CALL(mremap, __NR_mremap)
WT_MEM_CALL(brk, __NR_brk)
WT_MEM_CALL(madvise, __NR_madvise)
WT_MEM_CALL(msync, __NR_msync)
WT_MEM_CALL(mlock, __NR_mlock)
WT_MEM_CALL(mlock2, __NR_mlock2)
WT_MEM_CALL(munlock, __NR_munlock)
WT_MEM_CALL(mlockall, __NR_mlockall)
WT_MEM_CALL(munlockall, __NR_munlockall)

/* The host writes the vector: to an address where nothing is if it is not the program's. */
static long wt_mincore(unsigned long addr, unsigned long len, unsigned long vec, unsigned long d, unsigned long e,
		       unsigned long f)
{
	u64 arg[6] = {addr, len, wt_within_reach((void __user *)vec) ? vec : 0};

	return wt_memory(__NR_mincore, arg, 0);
}

/* mmap(2): files are those of wtfs; the host maps their contents. */
static long wt_mmap(unsigned long addr, unsigned long len, unsigned long prot, unsigned long flags, unsigned long fd,
		    unsigned long off)
{
	u64 arg[6] = {addr, len, prot, flags, fd, off};
	struct file *file;
	long ret;
	u64 handle;

	if (off & ~PAGE_MASK)
		return -EINVAL;
	if (flags & MAP_ANONYMOUS)
		return wt_memory(__NR_mmap, arg, 0);
	file = fget(fd);
	if (!file)
		return -EBADF;
	handle = wtfs_handle(file);
	ret = wtfs_may_map(file, prot, flags);
	if (ret < 0)
		goto out;
	if (handle) {
		wt_name_file(file, handle);
		arg[4] = ret;
		ret = wt_memory(__NR_mmap, arg, handle);
	} else if (S_ISCHR(file_inode(file)->i_mode) && file_inode(file)->i_rdev == MKDEV(1, 5)) {
		arg[3] |= MAP_ANONYMOUS;
		ret = wt_memory(__NR_mmap, arg, 0);
	} else {
		ret = wt_mmap_packet(file, arg);
		if (ret == -ENODEV)
			wt_report_unsupported(__NR_mmap, file_inode(file)->i_mode);
	}
out:
	fput(file);
	return ret;
}

static long wt_memfd_create(unsigned long uname, unsigned long flags, unsigned long c, unsigned long d, unsigned long e,
			    unsigned long f)
{
	return wtfs_memfd_create((const char __user *)uname, flags);
}

/* Linux's own, but for the seals of memory files. */
static long wt_fcntl(unsigned long fd, unsigned long cmd, unsigned long arg, unsigned long d, unsigned long e,
		     unsigned long f)
{
	struct file *file;
	long ret;

	if (cmd != F_ADD_SEALS && cmd != F_GET_SEALS)
		return sys_fcntl(fd, cmd, arg);
	file = fget(fd);
	if (!file)
		return -EBADF;
	ret = wtfs_fcntl_seals(file, cmd, arg);
	fput(file);
	return ret;
}

static long wt_arch_prctl(unsigned long option, unsigned long addr, unsigned long c, unsigned long d, unsigned long e,
			  unsigned long f)
{
	unsigned long base;

	switch (option) {
	case ARCH_SET_FS:
		if (addr >= TASK_SIZE)
			return -EPERM;
		wt_user_load(current);
		asm volatile("wrfsbase %0" : : "r"(addr));
		return 0;
	case ARCH_GET_FS:
		wt_user_load(current);
		asm volatile("rdfsbase %0" : "=r"(base));
		return put_user(base, (unsigned long __user *)addr);
	case ARCH_SET_GS:
		wt_report_unsupported(__NR_arch_prctl, option);
		return -EPERM;
	case ARCH_GET_GS:
		return put_user(0UL, (unsigned long __user *)addr);
	default:
		return -EINVAL;
	}
}

static long wt_fork(unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e,
		    unsigned long f)
{
	struct kernel_clone_args args = {.exit_signal = SIGCHLD};

	return kernel_clone(&args);
}

static long wt_execve(unsigned long name, unsigned long argv, unsigned long envp, unsigned long d, unsigned long e,
		      unsigned long f)
{
	long ret = sys_execve((const char __user *)name, (const char __user *const __user *)argv,
			      (const char __user *const __user *)envp);

	if (ret == -E2BIG)
		ret = wt_exec_long(AT_FDCWD, (const char __user *)name, (const char __user *const __user *)argv,
				   (const char __user *const __user *)envp, 0);
	return ret;
}

static long wt_execveat(unsigned long dir, unsigned long name, unsigned long argv, unsigned long envp,
			unsigned long flags, unsigned long f)
{
	long ret = sys_execveat(dir, (const char __user *)name, (const char __user *const __user *)argv,
				(const char __user *const __user *)envp, flags);

	if (ret == -E2BIG)
		ret = wt_exec_long(dir, (const char __user *)name, (const char __user *const __user *)argv,
				   (const char __user *const __user *)envp, flags);
	return ret;
}

/* Calls that no instance carries out; listed with the reason by `windtunnel syscalls`. */
static long wt_refused(unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e,
		       unsigned long f)
{
	struct pt_regs *regs = current_pt_regs();

	wt_report_unsupported(regs->orig_ax, a);
	return -ENOSYS;
}

/* Linux's own, and the CPU's number at once: rseq_stay() takes the flag back that would give it on the way out. */
static long wt_rseq(unsigned long area, unsigned long len, unsigned long flags, unsigned long sig, unsigned long e,
		    unsigned long f)
{
	long ret = sys_rseq((struct rseq __user *)area, len, flags, sig);

	if (!ret && current->rseq)
		__rseq_handle_notify_resume(NULL, NULL);
	return ret;
}

static long wt_not_permitted(unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e,
			     unsigned long f)
{
	wt_report_unsupported(current_pt_regs()->orig_ax, a);
	return -EPERM;
}

asmlinkage long sys_rt_sigreturn(void);

/* Linux's two string accessors, over usermem.S. */
long strncpy_from_user(char *dst, const char __user *src, long count)
{
	long len = wt_user_strncpy(dst, (const char __force *)src, count);

	return len < 0 ? -EFAULT : len;
}

long strnlen_user(const char __user *src, long count)
{
	long len = wt_user_strnlen((const char __force *)src, count);

	return len < 0 ? 0 : len;
}

#undef __SYSCALL
#define __SYSCALL(nr, sym)	    [nr] = (sys_call_ptr_t)(void *)(sym),
#define __SYSCALL_NORETURN(nr, sym) __SYSCALL(nr, sym)
#define sys_mmap		    wt_mmap
#define sys_munmap		    wt_munmap
#define sys_mprotect		    wt_mprotect
#define sys_mremap		    wt_mremap
#define sys_brk			    wt_brk
#define sys_madvise		    wt_madvise
#define sys_msync		    wt_msync
#define sys_mincore		    wt_mincore
#define sys_mlock		    wt_mlock
#define sys_mlock2		    wt_mlock2
#define sys_munlock		    wt_munlock
#define sys_mlockall		    wt_mlockall
#define sys_munlockall		    wt_munlockall
#define sys_memfd_create	    wt_memfd_create
#define sys_fcntl		    wt_fcntl
#define sys_arch_prctl		    wt_arch_prctl
#define sys_fork		    wt_fork
#define sys_execve		    wt_execve
#define sys_execveat		    wt_execveat
#define sys_ptrace		    wt_refused
#define sys_io_uring_setup	    wt_refused
#define sys_io_uring_enter	    wt_refused
#define sys_io_uring_register	    wt_refused
#define sys_userfaultfd		    wt_refused
#define sys_process_vm_readv	    wt_refused
#define sys_process_vm_writev	    wt_refused
#define sys_perf_event_open	    wt_refused
#define sys_modify_ldt		    wt_refused
#define sys_iopl		    wt_refused
#define sys_ioperm		    wt_refused
#define sys_remap_file_pages	    wt_refused
#define sys_rseq		    wt_rseq
#define sys_reboot		    wt_not_permitted
sys_call_ptr_t sys_call_table[NR_syscalls] = {
	[0 ... NR_syscalls - 1] = (sys_call_ptr_t)(void *)sys_ni_syscall,
#include <asm/syscall_table_64.h>
};

void wt_report_unsupported(unsigned int nr, unsigned long arg0)
{
	wt_call(unsupported, nr, arg0, (u64)current->comm);
}

/**
 * wt_dispatch - carry out one system call
 * @regs: the caller's registers, arguments in place
 * @nr: x86-64 number
 */
long wt_dispatch(struct pt_regs *regs, unsigned long nr)
{
	sys_call_ptr_t call;

	if (unlikely(nr >= NR_syscalls))
		return -ENOSYS;
	call = sys_call_table[nr];
	if (unlikely(call == (sys_call_ptr_t)(void *)sys_ni_syscall))
		wt_report_unsupported(nr, regs->di);
	return call(regs->di, regs->si, regs->dx, regs->r10, regs->r8, regs->r9);
}

static __always_inline void wt_syscall(struct pt_regs *regs)
{
	struct task_struct *task = current;
	long nr;

	wt_entry->syscalls++;
	nr = syscall_enter_from_user_mode(regs, regs->orig_ax);
	if (likely(nr != -1 || regs->orig_ax == -1))
		regs->ax = wt_dispatch(regs, nr);
	if (unlikely(wt_cpu_costs()))
		wt_cpu_pay_call(regs);
	wt_count_call();
	syscall_exit_to_user_mode(regs);
	wt_user_load(task);
}

/* From entry.S; true: return with all registers. */
bool wt_do_syscall(struct pt_regs *regs);
bool wt_do_syscall(struct pt_regs *regs)
{
	struct task_struct *task = current;

	wt_syscall(regs);
	if (likely(!task->thread.full))
		return false;
	task->thread.full = 0;
	return true;
}

void wt_regs_from_fault(struct pt_regs *regs);

void wt_do_slow_syscall(struct pt_regs *regs);
void wt_do_slow_syscall(struct pt_regs *regs)
{
	wt_regs_from_fault(regs);
	regs->orig_ax = regs->ax;
	regs->ax = -ENOSYS;
	wt_report_gs();
	wt_syscall(regs);
	current->thread.full = 0;
}
