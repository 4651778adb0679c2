// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the host hears of the processes of programs: birth, exec and end, with the CPU time that they took. Neither threads nor
 * the kernel's own processes are told of. It costs a call out at each of these, and nothing elsewhere.
 */
#include <linux/sched.h>
#include <linux/sched/cputime.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/string.h>
#include <asm/host.h>

void __real_wake_up_new_task(struct task_struct *p);
void __wrap_wake_up_new_task(struct task_struct *p);

/* The name of a task as two words, for a call out. */
struct name {
	u64 words[2];
};

static struct name name_of(const struct task_struct *task)
{
	struct name name = {};

	BUILD_BUG_ON(sizeof(name) != TASK_COMM_LEN);
	memcpy(&name, task->comm, strnlen(task->comm, sizeof(name)));
	return name;
}

/* The last step of every fork: the child has its process id, and its parent still is who made it. */
void __wrap_wake_up_new_task(struct task_struct *p)
{
	if (thread_group_leader(p) && !(p->flags & PF_KTHREAD)) {
		struct name name = name_of(p);

		wt_call(proc_event, WT_PROC_FORKED, name.words[0],
			task_pid_nr(p) | (u64)task_tgid_nr(p->real_parent) << 32, name.words[1]);
	}
	__real_wake_up_new_task(p);
}

/* The running process has begun another program. */
void wt_tell_exec(void)
{
	struct name name = name_of(current);

	wt_call(proc_event, WT_PROC_EXECED, name.words[0], task_tgid_nr(current), name.words[1]);
}

/**
 * wt_tell_exit - a thread ends, and its process with it if it is the last one
 * @task: the running one
 */
void wt_tell_exit(struct task_struct *task)
{
	struct signal_struct *signal = task->signal;
	u64 user, system;
	u32 status;

	if (task->flags & PF_KTHREAD || atomic_read(&signal->live))
		return;
	/* As wait(2) will have it: wait_task_zombie() of kernel/exit.c. */
	status = signal->flags & SIGNAL_GROUP_EXIT ? signal->group_exit_code : task->group_leader->exit_code;
	thread_group_cputime_adjusted(task, &user, &system);
	wt_call(proc_event, WT_PROC_GONE, user, task_tgid_nr(task) | (u64)status << 32, system);
}
