// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * exec: the host maps the images, the kernel writes the stack a program starts with (System V ABI, x86-64, 3.4.1).
 */
#include <linux/binfmts.h>
#include <linux/cred.h>
#include <linux/elf.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/rseq.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/ptrace.h>
#include <linux/slab.h>
#include <linux/task_work.h>
#include <asm/host.h>
#include <asm/mmu_context.h>
#include <asm/processor.h>

#define AUXV_PAIRS 24

/* The interpreter named by the program, opened; NULL: none. */
static struct file *open_interpreter(struct linux_binprm *bprm, const struct elfhdr *eh)
{
	struct file *interp = NULL;
	struct elf_phdr ph;
	char *path;
	loff_t pos;
	int i;

	for (i = 0; i < eh->e_phnum; i++) {
		pos = eh->e_phoff + i * sizeof(ph);
		if (kernel_read(bprm->file, &ph, sizeof(ph), &pos) != sizeof(ph))
			return ERR_PTR(-ENOEXEC);
		if (ph.p_type != PT_INTERP)
			continue;
		if (ph.p_filesz < 2 || ph.p_filesz > PATH_MAX)
			return ERR_PTR(-ENOEXEC);
		path = kzalloc(ph.p_filesz + 1, GFP_KERNEL);
		if (!path)
			return ERR_PTR(-ENOMEM);
		pos = ph.p_offset;
		if (kernel_read(bprm->file, path, ph.p_filesz, &pos) == ph.p_filesz)
			interp = open_exec(path);
		else
			interp = ERR_PTR(-ENOEXEC);
		kfree(path);
		break;
	}
	return interp;
}

static int put_words(unsigned long *at, const unsigned long *words, size_t n)
{
	return copy_to_user((void __user *)at, words, n * sizeof(*words)) ? -EFAULT : 0;
}

/* argv or envp: n pointers to the strings that follow each other from *p, and a NULL. */
static int put_pointers(unsigned long **at, int n, unsigned long *p)
{
	long len;

	while (n-- > 0) {
		if (put_words((*at)++, p, 1))
			return -EFAULT;
		len = strnlen_user((const char __user *)*p, MAX_ARG_STRLEN);
		if (!len || len > MAX_ARG_STRLEN)
			return -EINVAL;
		*p += len;
	}
	len = 0;
	return put_words((*at)++, (unsigned long *)&len, 1);
}

static size_t fill_auxv(unsigned long *aux, struct linux_binprm *bprm, const struct wt_exec *x, unsigned long random,
			unsigned long platform)
{
	const struct cred *cred = current_cred();
	size_t n = 0;

#define AUX(id, value)                             \
	do {                                       \
		aux[n++] = (id);                   \
		aux[n++] = (unsigned long)(value); \
	} while (0)
	AUX(AT_MINSIGSTKSZ, wt_min_signal_stack());
	AUX(AT_HWCAP, ELF_HWCAP);
	AUX(AT_PAGESZ, PAGE_SIZE);
	AUX(AT_CLKTCK, USER_HZ);
	AUX(AT_PHDR, x->at_phdr);
	AUX(AT_PHENT, sizeof(struct elf_phdr));
	AUX(AT_PHNUM, x->at_phnum);
	AUX(AT_BASE, x->at_base);
	AUX(AT_FLAGS, 0);
	AUX(AT_ENTRY, x->at_entry);
	AUX(AT_UID, from_kuid_munged(cred->user_ns, cred->uid));
	AUX(AT_EUID, from_kuid_munged(cred->user_ns, cred->euid));
	AUX(AT_GID, from_kgid_munged(cred->user_ns, cred->gid));
	AUX(AT_EGID, from_kgid_munged(cred->user_ns, cred->egid));
	AUX(AT_SECURE, bprm->secureexec);
	AUX(AT_RANDOM, random);
	AUX(AT_HWCAP2, 0); /* no FSGSBASE: FS is set by arch_prctl */
	AUX(AT_EXECFN, bprm->exec);
	AUX(AT_PLATFORM, platform);
	AUX(AT_RSEQ_FEATURE_SIZE, offsetof(struct rseq, end));
	AUX(AT_RSEQ_ALIGN, __alignof__(struct rseq));
	AUX(AT_NULL, 0);
#undef AUX
	return n;
}

static int make_stack(struct linux_binprm *bprm, const struct wt_exec *x, unsigned long *sp_out)
{
	static const char platform[] = ELF_PLATFORM;
	unsigned long aux[2 * AUXV_PAIRS], sp = x->stack_top, strings, platform_at, random_at, *at;
	int argc = bprm->argc, envc = bprm->envc, err;
	u8 random[16];
	size_t n;

	err = transfer_args_to_stack(bprm, &sp) ?: wt_put_long_args(bprm, &sp, &argc, &envc);
	if (err)
		return err;
	strings = sp;
	sp = (sp - sizeof(platform)) & ~15UL;
	platform_at = sp;
	sp -= sizeof(random);
	random_at = sp;
	get_random_bytes(random, sizeof(random));
	if (copy_to_user((void __user *)platform_at, platform, sizeof(platform)) ||
	    copy_to_user((void __user *)random_at, random, sizeof(random)))
		return -EFAULT;
	n = fill_auxv(aux, bprm, x, random_at, platform_at);
	memcpy(current->mm->saved_auxv, aux, min(n * sizeof(long), sizeof(current->mm->saved_auxv)));

	sp -= (1 + argc + 1 + envc + 1 + n) * sizeof(long);
	sp &= ~15UL;
	at = (unsigned long *)sp;
	current->mm->arg_start = strings;
	err = put_words(at++, (unsigned long[]){argc}, 1) ?: put_pointers(&at, argc, &strings);
	if (err)
		return err;
	current->mm->arg_end = current->mm->env_start = strings;
	err = put_pointers(&at, envc, &strings) ?: put_words(at, aux, n);
	current->mm->env_end = strings;
	*sp_out = sp;
	return err;
}

static void init_work(struct callback_head *head)
{
	wt_init_run();
}

/* Process 1: no program, but the kernel's end of the host's requests, run on the way back from its exec. */
static int load_init(struct linux_binprm *bprm)
{
	static struct callback_head work;
	int err = begin_new_exec(bprm);

	if (err)
		return err;
	setup_new_exec(bprm);
	set_binfmt(NULL);
	wt_user_reset(current);
	finalize_exec(bprm);
	start_thread(current_pt_regs(), 0, 0);
	init_task_work(&work, init_work);
	return task_work_add(current, &work, TWA_RESUME);
}

static struct linux_binfmt wt_format;

static int load_binary(struct linux_binprm *bprm)
{
	const struct elfhdr *eh = (const struct elfhdr *)bprm->buf;
	struct pt_regs *regs = current_pt_regs();
	struct mm_struct *mm;
	struct file *interp;
	struct wt_exec x = {};
	unsigned long sp;
	s64 ret;

	if (is_global_init(current) && !strcmp(bprm->filename, "/init"))
		return load_init(bprm);
	if (memcmp(eh->e_ident, ELFMAG, SELFMAG) || eh->e_ident[EI_CLASS] != ELFCLASS64 || !elf_check_arch(eh) ||
	    (eh->e_type != ET_EXEC && eh->e_type != ET_DYN) || eh->e_phentsize != sizeof(struct elf_phdr) ||
	    eh->e_phnum < 1 || eh->e_phnum > 64)
		return -ENOEXEC;
	interp = open_interpreter(bprm, eh);
	if (IS_ERR(interp))
		return PTR_ERR(interp);
	x.file = wtfs_handle(bprm->file);
	x.interp = interp ? wtfs_handle(interp) : 0;
	x.stack_size = min(rlimit(RLIMIT_STACK), 64UL << 20);
	ret = -ENOEXEC;
	if (!x.file || (interp && !x.interp))
		goto out;
	wt_name_file(bprm->file, x.file);
	if (interp)
		wt_name_file(interp, x.interp);

	ret = begin_new_exec(bprm);
	if (ret)
		goto out;
	setup_new_exec(bprm);
	mm = current->mm;
	ret = wt_call(as_create);
	if (ret < 0)
		goto out;
	mm->context.as = ret;
	wt_reach_new(mm, NULL);
	ret = wt_call(exec_map, mm->context.as, (u64)&x);
	if (ret < 0)
		goto out;
	mm->context.low = x.low;
	if (x.low)
		wt_reach_low(mm);
	wt_reach_add(mm, x.stack_base, x.stack_top - x.stack_base);
	wt_reach_add(mm, interp ? x.at_base : x.code[0], 1);
	if (x.low)
		wt_mm_activate(mm);
	mm->start_code = x.code[0];
	mm->end_code = x.code[1];
	mm->start_data = x.data[0];
	mm->end_data = x.data[1];
	mm->start_brk = mm->brk = x.brk;
	mm->start_stack = x.stack_top;
	ret = -ENOMEM;
	if (!wt_exec_within_limits(mm))
		goto out;
	set_binfmt(&wt_format);
	ret = make_stack(bprm, &x, &sp);
	if (ret)
		goto out;
	finalize_exec(bprm);
	start_thread(regs, x.entry, sp);
	wt_check_ip(regs);
	wt_tell_exec();
out:
	if (interp)
		fput(interp);
	return ret;
}

static struct linux_binfmt wt_format = {
	.module = NULL,
	.load_binary = load_binary,
};

static int __init wt_binfmt_init(void)
{
	register_binfmt(&wt_format);
	return 0;
}
core_initcall(wt_binfmt_init);
