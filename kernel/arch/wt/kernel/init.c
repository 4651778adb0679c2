// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Process 1 of a node. It mounts the node's files as the root, then carries out the host's requests in order (system
 * calls, programs to start) and reaps every child, its own and the orphans.
 */
#include <linux/binfmts.h>
#include <linux/completion.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs_struct.h>
#include <linux/init.h>
#include <linux/init_syscalls.h>
#include <linux/mount.h>
#include <linux/namei.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/signal.h>
#include <linux/slab.h>
#include <linux/syscalls.h>
#include <linux/task_work.h>
#include <linux/wait.h>
#include <uapi/linux/mount.h>
#include <uapi/linux/wait.h>
#include <asm/host.h>
#include <asm/ioctls.h>
#include <asm/syscall.h>

static struct task_struct *wt_init_task;
static bool wt_ctl_pending;
static bool wt_ctl_at_work; /* requests have arrived and are not all done */
static DECLARE_WAIT_QUEUE_HEAD(wt_ctl_rest);

/* A program the host started, until it is reaped. */
struct spawned {
	struct spawned *next;
	pid_t pid;
	u64 key;
};
static struct spawned *spawned;

/* From the entry interrupt: requests wait in wt_entry->ctl_head. */
void wt_ctl_wake(void)
{
	wt_ctl_pending = true;
	wt_ctl_at_work = true;
	if (wt_init_task)
		wake_up_process(wt_init_task);
}

/**
 * wt_ctl_wait - sleep until the host's requests are done
 *
 * They are to be done in the entry that brings them: a task that keeps the CPU for a time makes way for them.
 */
void wt_ctl_wait(void)
{
	wait_event(wt_ctl_rest, !wt_ctl_at_work);
}

struct spawn_job {
	const struct wt_spawn *spec;
	struct completion done;
};

/* What becomes fd @i of a program. */
static struct file *spawn_file(const struct wt_spawn *spec, int i)
{
	static const char *const name[3] = {"stdin", "stdout", "stderr"};
	int flags = (i ? O_WRONLY | O_APPEND : O_RDONLY) | O_LARGEFILE;

	if (spec->fd[i] >= 0)
		return fget(spec->fd[i]) ?: ERR_PTR(-EBADF);
	if (spec->file[i])
		return wtfs_open_handle(spec->file[i], flags, name[i]);
	return filp_open("/dev/null", O_RDWR, 0);
}

/* All are held before the first is replaced: the child has process 1's descriptors, which may be these. Those are closed
 * by the exec. */
static int open_fds(const struct wt_spawn *spec)
{
	struct file *file[3];
	int i, n, err = 0;

	for (n = 0; n < 3; n++) {
		file[n] = spawn_file(spec, n);
		if (IS_ERR(file[n])) {
			err = PTR_ERR(file[n]);
			break;
		}
	}
	for (i = 0; i < n; i++) {
		if (!err)
			err = min(replace_fd(i, file[i], 0), 0);
		fput(file[i]);
	}
	if (!err && spec->flags & WT_SPAWN_TTY)
		err = sys_call_table[__NR_ioctl](0, TIOCSCTTY, 0, 0, 0, 0);
	return err;
}

static int enter_cwd(const char *cwd)
{
	struct path path;
	int err = kern_path(cwd, LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &path);

	if (err)
		return err;
	set_fs_pwd(current->fs, &path);
	path_put(&path);
	return 0;
}

static int become(const struct wt_spawn *spec)
{
	if (!spec->uid && !spec->gid)
		return 0;
	return sys_setresgid(spec->gid, spec->gid, spec->gid) ?: sys_setresuid(spec->uid, spec->uid, spec->uid);
}

/* The child: everything a shell would set up, then exec. */
static int run_spawn(void *arg)
{
	struct spawn_job *job = arg;
	const struct wt_spawn *spec = job->spec;
	u64 key = spec->key;
	int err;

	spin_lock_irq(&current->sighand->siglock);
	flush_signal_handlers(current, 1);
	spin_unlock_irq(&current->sighand->siglock);
	ksys_setsid();
	err = open_fds(spec) ?: enter_cwd(spec->cwd) ?: become(spec) ?:
	      kernel_execve(spec->path, spec->argv, spec->envp);
	if (wt_cpu_costs())
		sched_set_normal(current, 0);
	if (!err)
		wt_call(proc_event, WT_PROC_STARTED, key, current->pid, 0);
	else
		wt_call(proc_event, WT_PROC_FAILED, key, current->pid, -err);
	complete(&job->done);
	if (err)
		do_exit(127 << 8);
	return 0;
}

static s64 start_program(const struct wt_spawn *spec)
{
	struct spawn_job job = {.spec = spec};
	struct spawned *s = kmalloc(sizeof(*s), GFP_KERNEL);
	pid_t pid;

	if (!s)
		return -ENOMEM;
	init_completion(&job.done);
	pid = user_mode_thread(run_spawn, &job, SIGCHLD);
	if (pid < 0) {
		kfree(s);
		return pid;
	}
	*s = (struct spawned){.next = spawned, .pid = pid, .key = spec->key};
	spawned = s;
	wait_for_completion(&job.done);
	return pid;
}

static s64 system_call(const struct wt_ctl *ctl)
{
	if (ctl->nr >= NR_syscalls)
		return -ENOSYS;
	return sys_call_table[ctl->nr](ctl->arg[0], ctl->arg[1], ctl->arg[2], ctl->arg[3], ctl->arg[4], ctl->arg[5]);
}

static void run_requests(void)
{
	struct wt_ctl *ctl = wt_entry->ctl_head, *next;

	wt_ctl_pending = false;
	wt_entry->ctl_head = NULL;
	for (; ctl; ctl = next) {
		next = ctl->next;
		ctl->result = ctl->kind == WT_CTL_SPAWN ? start_program(ctl->spawn) : system_call(ctl);
		ctl->done = 1;
		wt_entry->ctl_done++;
		task_work_run(); /* files closed by the call: process 1 never returns to a program */
	}
}

static bool reap(void)
{
	struct spawned **at, *s;
	int status;
	pid_t pid = kernel_wait4(-1, (int __user *)&status, WNOHANG | __WALL, NULL);

	if (pid <= 0)
		return false;
	for (at = &spawned; *at && (*at)->pid != pid; at = &(*at)->next)
		;
	s = *at;
	if (s) {
		*at = s->next;
		wt_call(proc_event, WT_PROC_EXITED, s->key, pid, status);
		kfree(s);
	}
	return true;
}

/**
 * wt_init_run - the life of process 1
 */
void __ref wt_init_run(void)
{
	DECLARE_WAITQUEUE(child, current);

	wt_init_task = current;
	/* It works for the host, which no program makes wait, and what it does takes no time. */
	if (wt_cpu_costs())
		sched_set_fifo(current);
	init_unlink("/init");
	add_wait_queue(&current->signal->wait_chldexit, &child);
	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (wt_ctl_pending) {
			__set_current_state(TASK_RUNNING);
			run_requests();
			wt_ctl_at_work = wt_ctl_pending;
			if (!wt_ctl_at_work)
				wake_up(&wt_ctl_rest);
			continue;
		}
		__set_current_state(TASK_RUNNING);
		if (reap())
			continue;
		if (signal_pending(current))
			flush_signals(current);
		set_current_state(TASK_INTERRUPTIBLE);
		schedule();
	}
}

/* Before the generic code looks for an init: the root, and a file to exec that load_binary() knows. */
static int __init wt_mount_root(void)
{
	struct file *init;
	int err;

	wt_nic_init();
	err = init_mount("none", "/root", "wtfs", MS_SILENT, NULL) ?:
	      init_chdir("/root") ?:
	      init_mount(".", "/", NULL, MS_MOVE, NULL) ?:
	      init_chroot(".");
	if (err)
		panic("cannot mount the node's files: %d", err);
	init = filp_open("/init", O_CREAT | O_RDONLY, 0700);
	if (IS_ERR(init))
		panic("cannot make /init: %ld", PTR_ERR(init));
	fput(init);
	return 0;
}
late_initcall_sync(wt_mount_root);
