/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_HOST_H
#define _ASM_WT_HOST_H
/* The port's own declarations, and the way out to the host. */
#include <linux/types.h>
#include <windtunnel/boundary.h>

struct file;
struct mm_struct;
struct linux_binprm;
struct pt_regs;
struct task_struct;

extern struct wt_boot wt_boot;	  /* copy of the boot argument */
extern struct wt_entry *wt_entry; /* page shared with the host */

/* host.c: leave to the host's stack with the host's FS base and call fn(host, a, b, c, d). */
u64 wt_host_call(const void *fn, u64 a, u64 b, u64 c, u64 d);
#define wt_call_5(op, a, b, c, d, ...) wt_host_call(wt_boot.ops->op, (u64)(a), (u64)(b), (u64)(c), (u64)(d))
/* wt_call(op, up to four arguments): the host operation's result as s64. */
#define wt_call(op, ...) ((s64)wt_call_5(op, ##__VA_ARGS__, 0, 0, 0, 0))

void wt_to_host(void);
void wt_busy_entry(u64 until);
unsigned long wt_now(void);

/* process.c: which task's FS base and vector state are in the registers, if any. */
void wt_user_save(void);
void wt_user_load(struct task_struct *task);
void wt_user_drop(struct task_struct *task);
void wt_user_reset(struct task_struct *task);

/* cpu.c: the time that work takes, if wt_boot.cpu says that it takes any. */
extern unsigned long wt_copied; /* bytes copied between the running task's program and the kernel, not paid for yet */
void wt_cpu_pay_call(const struct pt_regs *regs);

static inline bool wt_cpu_costs(void)
{
	return wt_boot.cpu.syscall_ns || wt_boot.cpu.copy_ps;
}

/* time.c */
void wt_timer_init(void);
bool wt_timer_due(void);
void wt_timer_fire(void);

/* nic.c */
void wt_nic_init(void);
void wt_nic_rx(const struct wt_rx *rx, u32 count);
void wt_nic_tx_done(void);
void wt_nic_link(void);

/* sample.c */
s64 wt_sample_take(struct wt_sample *sample);

/* wtfs.c */
struct file *wtfs_open_handle(u64 handle, int flags, const char *name);
u64 wtfs_handle(struct file *file);
struct file *wtfs_memory_file(const char *name, u64 size, umode_t mode, int flags);
long wtfs_memfd_create(const char __user *uname, unsigned int flags);
long wtfs_fcntl_seals(struct file *file, unsigned int cmd, unsigned long arg);
long wtfs_may_map(struct file *file, unsigned long prot, unsigned long flags);

/* process.c */
void wt_quantum(void);

/* One more call of the running program that took no time. */
#define wt_count_call()                                                                                  \
	do {                                                                                             \
		if (unlikely(++current->thread.calls >= wt_boot.quantum_calls && wt_boot.quantum_calls)) \
			wt_quantum();                                                                    \
	} while (0)

/* preempt.c */
void wt_preempt(struct pt_regs *regs);

/* attach.c */
struct mm_struct;
struct vm_operations_struct;
extern struct list_head wt_attached;
int wt_attach_add(struct file *file, unsigned long start, unsigned long len, const struct vm_operations_struct *ops);
void wt_attach_follow(unsigned int nr, const u64 *arg, long ret);
void wt_attach_fork(struct mm_struct *mm, const struct mm_struct *parent);
void wt_attach_exit(struct mm_struct *mm);

/* packet.c */
#ifdef CONFIG_PACKET
long wt_mmap_packet(struct file *file, const u64 *arg);
#else
static inline long wt_mmap_packet(struct file *file, const u64 *arg)
{
	return -ENODEV;
}
#endif

/* proc.c */
void wt_name_file(struct file *file, u64 handle);
void wt_forget_usage(struct mm_struct *mm);

/* fault.c */
void wt_report_gs(void);

/* reach.c */
void wt_reach_new(struct mm_struct *mm, const struct mm_struct *parent);
void wt_reach_forget(struct mm_struct *mm);
void wt_reach_low(struct mm_struct *mm);
void wt_reach_add(struct mm_struct *mm, unsigned long start, unsigned long size);
bool wt_within_reach(const void __user *ptr);
void wt_check_ip(const struct pt_regs *regs);

/* limits.c */
bool wt_within_limits(struct mm_struct *mm, unsigned int nr, const u64 *arg);
bool wt_exec_within_limits(struct mm_struct *mm);

/* life.c */
void wt_tell_exec(void);
void wt_tell_exit(struct task_struct *task);

/* init.c: process 1 */
void wt_ctl_wake(void);
void wt_ctl_wait(void);
void wt_init_run(void);

/* signal.c, syscall.c */
long wt_memory(unsigned int nr, const u64 *arg, u64 file);
void wt_report_unsupported(unsigned int nr, unsigned long arg0);
long wt_dispatch(struct pt_regs *regs, unsigned long nr);

unsigned long wt_min_signal_stack(void);

/* exec.c */
long wt_exec_long(int dir, const char __user *name, const char __user *const __user *argv,
		  const char __user *const __user *envp, int flags);
int wt_put_long_args(struct linux_binprm *bprm, unsigned long *strings, int *argc, int *envc);

/* entry.S */
extern char wt_syscall_entry[], wt_fault_entry[], wt_slow_entry[], wt_clock_entry[];
extern char wt_uaccess_start[], wt_uaccess_end[], wt_uaccess_fixup[];
asmlinkage void ret_from_fork_asm(void);
s64 wt_boot_on_stack(unsigned long stack);
#endif
