// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * execve with more arguments than a kernel without an MMU has room for.
 *
 * fs/exec.c collects the strings in MAX_ARG_PAGES (128 KiB), where Linux with an MMU takes a quarter of the stack's limit
 * (execve(2), "Limits on size of arguments and environment"). What does not fit goes another way: the strings but argv[0]
 * are kept here, the generic code sees argv[0] alone and does with it what it does (a script's interpreter takes its
 * place), and binfmt.c puts the others after it on the new stack.
 */
#include <linux/binfmts.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/resource.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/syscalls.h>
#include <asm/host.h>

#define ARGS_BYTES_MAX (_STK_LIM / 4 * 3)
#define ARGS_PAGES_MAX DIV_ROUND_UP(ARGS_BYTES_MAX, PAGE_SIZE)

/**
 * struct long_args - the strings of one execve in progress
 * @list: all of them, there is one for each task at most
 * @task: who is in execve
 * @argc: arguments besides argv[0]
 * @envc: environment strings
 * @bytes: of all strings with their NULs
 * @room: bytes that they may have
 * @page: the strings, one after the other
 */
struct long_args {
	struct list_head list;
	struct task_struct *task;
	int argc, envc;
	unsigned long bytes, room;
	void *page[ARGS_PAGES_MAX];
};

static LIST_HEAD(in_progress);

static struct long_args *long_args_of(const struct task_struct *task)
{
	struct long_args *args;

	list_for_each_entry (args, &in_progress, list)
		if (args->task == task)
			return args;
	return NULL;
}

static void long_args_free(struct long_args *args)
{
	unsigned long i;

	for (i = 0; i < ARGS_PAGES_MAX && args->page[i]; i++)
		free_page((unsigned long)args->page[i]);
	kvfree(args);
}

static int add_string(struct long_args *args, const char __user *string)
{
	long len = strnlen_user(string, MAX_ARG_STRLEN);

	if (!len)
		return -EFAULT;
	if (len > MAX_ARG_STRLEN || args->bytes + len > args->room)
		return -E2BIG;
	while (len > 0) {
		unsigned long offset = offset_in_page(args->bytes), part = min(len, PAGE_SIZE - offset);
		void **page = &args->page[args->bytes / PAGE_SIZE];

		if (!*page)
			*page = (void *)__get_free_page(GFP_KERNEL_ACCOUNT);
		if (!*page)
			return -ENOMEM;
		if (copy_from_user(*page + offset, string, part))
			return -EFAULT;
		args->bytes += part;
		string += part;
		len -= part;
	}
	return 0;
}

/* All strings of a vector; their number, or a negative errno. Each also takes a pointer's room on the stack. */
static int add_vector(struct long_args *args, const char __user *const __user *vector)
{
	const char __user *string;
	int count = 0, err;

	if (!vector)
		return 0;
	for (;; vector++, count++) {
		if (get_user(string, vector))
			return -EFAULT;
		if (!string)
			return count;
		if (args->room < sizeof(string))
			return -E2BIG;
		args->room -= sizeof(string);
		err = add_string(args, string);
		if (err)
			return err;
		if (fatal_signal_pending(current))
			return -EINTR;
	}
}

/* The path that execveat(2) means, as do_execveat_common() names it. */
static char *path_of(int dir, const char __user *name, int flags)
{
	char *path, *text = strndup_user(name, PATH_MAX);

	if (IS_ERR(text) || dir == AT_FDCWD || *text == '/')
		return text;
	if (flags & AT_SYMLINK_NOFOLLOW || (!*text && !(flags & AT_EMPTY_PATH)))
		path = ERR_PTR(-E2BIG);
	else
		path = kasprintf(GFP_KERNEL, *text ? "/dev/fd/%d/%s" : "/dev/fd/%d", dir, text) ?: ERR_PTR(-ENOMEM);
	kfree(text);
	return path;
}

static long exec_with(struct long_args *args, int dir, const char __user *name, const char __user *const __user *argv,
		      const char __user *const __user *envp, int flags)
{
	const char *first[2] = {}, *none[1] = {};
	const char __user *argv0;
	char *path;
	long ret;

	args->room = max_t(unsigned long, min(ARGS_BYTES_MAX, rlimit(RLIMIT_STACK) / 4), ARG_MAX);
	if (!argv || get_user(argv0, argv) || !argv0)
		return -E2BIG;
	ret = add_vector(args, argv + 1);
	if (ret < 0)
		return ret;
	args->argc = ret;
	ret = add_vector(args, envp);
	if (ret < 0)
		return ret;
	args->envc = ret;
	path = path_of(dir, name, flags);
	if (IS_ERR(path))
		return PTR_ERR(path);
	first[0] = strndup_user(argv0, MAX_ARG_STRLEN);
	ret = PTR_ERR_OR_ZERO(first[0]);
	if (!ret) {
		args->task = current;
		list_add(&args->list, &in_progress);
		ret = kernel_execve(path, first, none);
		list_del(&args->list);
		kfree(first[0]);
	}
	kfree(path);
	return ret;
}

/**
 * wt_exec_long - execve for which the generic code has no room
 * @dir: descriptor that @name is relative to, or AT_FDCWD
 * @name: path of the program
 * @argv: its arguments
 * @envp: its environment
 * @flags: AT_* as of execveat(2)
 *
 * Return: 0 with the registers of the new program, or a negative errno.
 */
long wt_exec_long(int dir, const char __user *name, const char __user *const __user *argv,
		  const char __user *const __user *envp, int flags)
{
	struct long_args *args = kvzalloc(sizeof(*args), GFP_KERNEL_ACCOUNT);
	long ret;

	if (!args)
		return -ENOMEM;
	ret = exec_with(args, dir, name, argv, envp, flags);
	long_args_free(args);
	return ret;
}

/**
 * wt_put_long_args - put the strings that were kept aside on a new program's stack
 * @bprm: the program; its own strings, arguments and then the path, are at *strings
 * @strings: start of all strings on the stack; moves down
 * @argc: number of arguments, to which ours are added
 * @envc: number of environment strings, likewise
 *
 * They go between the arguments and the path of @bprm, so that all follow each other as Linux has them.
 */
int wt_put_long_args(struct linux_binprm *bprm, unsigned long *strings, int *argc, int *envc)
{
	struct long_args *args = long_args_of(current);
	unsigned long own = bprm->exec - *strings, from = *strings, to, done;
	char *buffer;
	int err = 0;

	if (!args)
		return 0;
	buffer = (char *)__get_free_page(GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	to = from - args->bytes;
	*strings = to;
	for (done = 0; done < own && !err; done += PAGE_SIZE) {
		unsigned long part = min(own - done, PAGE_SIZE);

		err = copy_from_user(buffer, (void __user *)(from + done), part) ||
		      copy_to_user((void __user *)(to + done), buffer, part);
	}
	free_page((unsigned long)buffer);
	for (done = 0; done < args->bytes && !err; done += PAGE_SIZE)
		err = copy_to_user((void __user *)(to + own + done), args->page[done / PAGE_SIZE],
				   min(args->bytes - done, PAGE_SIZE));
	*argc += args->argc;
	*envc += args->envc;
	return err ? -EFAULT : 0;
}
