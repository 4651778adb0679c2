// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which addresses a program may name: its own slots (WT_SLOT_SHIFT), whatever is mapped there.
 *
 * The memory of kernels, of the host and of other programs is in the same address space and would not fault. So all that
 * touches program memory for a program (usermem.S) compares with wt_window first: the run of its slots that it named last.
 * Most have a single slot; a pointer outside the window comes here. access_ok() says no more than elsewhere without an
 * MMU: a call that is given a bad pointer and has nothing to put there succeeds.
 */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/xarray.h>
#include <asm/host.h>
#include <asm/mmu_context.h>

/* For programs' signal frames: the x86 trap number of a page fault, and its error code for a fetch where nothing is. */
#define TRAP_PAGE_FAULT	 14
#define FAULT_USER_FETCH 0x14
#define SLOTS		 (1U << (WT_REGION_SHIFT - WT_SLOT_SHIFT))

/**
 * struct reach - what addresses are a program's own
 * @slots: a bit for each slot of the node's region
 * @fixed: those below WT_LOW_END, too
 */
struct reach {
	DECLARE_BITMAP(slots, SLOTS);
	bool fixed;
};

struct wt_window wt_window;
const struct mm_struct *wt_window_mm;

/* By address space. The host numbers those of a node from a multiple of 1 << 32 on. */
static DEFINE_XARRAY(reaches);

static struct reach *reach_of(const struct mm_struct *mm)
{
	return xa_load(&reaches, (u32)mm->context.as);
}

/* The number of an address's slot in the node's region; SLOTS: it is elsewhere. */
static unsigned int slot_of(unsigned long addr)
{
	if ((addr ^ wt_ram_base) >> WT_REGION_SHIFT)
		return SLOTS;
	return (addr >> WT_SLOT_SHIFT) % SLOTS;
}

/* The run of slots around one of them. */
static struct wt_window run_around(const unsigned long *slots, unsigned int slot)
{
	unsigned long region = wt_ram_base >> WT_REGION_SHIFT << WT_REGION_SHIFT;
	unsigned int first = slot, end = find_next_zero_bit(slots, SLOTS, slot);

	while (first > 0 && test_bit(first - 1, slots))
		first--;
	return (struct wt_window){
		.start = region + ((unsigned long)first << WT_SLOT_SHIFT),
		.size = (unsigned long)(end - first) << WT_SLOT_SHIFT,
	};
}

/**
 * wt_reach_new - a program has an address space
 * @mm: the program's, whose context.as is set
 * @parent: it has the same addresses as this one, by fork; NULL: none yet
 */
void wt_reach_new(struct mm_struct *mm, const struct mm_struct *parent)
{
	struct reach *reach = kzalloc(sizeof(*reach), GFP_KERNEL | __GFP_NOFAIL);

	if (parent)
		*reach = *reach_of(parent);
	xa_store(&reaches, (u32)mm->context.as, reach, GFP_KERNEL | __GFP_NOFAIL);
}

/* It goes; to be called before context.as is cleared. */
void wt_reach_forget(struct mm_struct *mm)
{
	kfree(xa_erase(&reaches, (u32)mm->context.as));
	if (wt_window_mm == mm)
		wt_window_mm = NULL;
}

/* It is linked to fixed addresses. */
void wt_reach_low(struct mm_struct *mm)
{
	reach_of(mm)->fixed = true;
}

/**
 * wt_reach_add - the host has given a program memory
 * @mm: the program's
 * @start: first address of the memory
 * @size: its bytes, not 0
 */
void wt_reach_add(struct mm_struct *mm, unsigned long start, unsigned long size)
{
	unsigned long at = start >> WT_SLOT_SHIFT << WT_SLOT_SHIFT;
	struct reach *reach = reach_of(mm);

	for (; at < start + size; at += 1UL << WT_SLOT_SHIFT) {
		if (slot_of(at) < SLOTS)
			__set_bit(slot_of(at), reach->slots);
	}
}

/**
 * wt_within_reach - whether a pointer leads to the running program's own addresses, mapped or not
 * @ptr: the pointer
 *
 * Without an address space it is process 1, whose pointers are the host's, or an exec halfway. Kernel threads have no
 * program to act for.
 */
bool wt_within_reach(const void __user *ptr)
{
	unsigned long addr = (unsigned long)ptr;
	struct mm_struct *mm = current->mm;
	struct wt_window window = {.start = 0, .size = WT_LOW_END};
	const struct reach *reach;
	unsigned int slot;

	if (!mm || !mm->context.as)
		return mm;
	reach = reach_of(mm);
	if (addr >= WT_LOW_END) {
		slot = slot_of(addr);
		if (slot >= SLOTS || !test_bit(slot, reach->slots))
			return false;
		window = run_around(reach->slots, slot);
	} else if (!reach->fixed) {
		return false;
	}
	wt_window = window;
	wt_window_mm = mm;
	return true;
}

/**
 * wt_check_ip - hold the running program back from code that is not its own
 * @regs: the registers that it is about to go on with, given by itself
 *
 * It gets what Linux gives for an address where nothing is mapped. Those that are no user addresses fault by themselves.
 */
void wt_check_ip(const struct pt_regs *regs)
{
	if (regs->ip >= TASK_SIZE || wt_within_reach((const void __user *)regs->ip))
		return;
	current->thread.trapno = TRAP_PAGE_FAULT;
	current->thread.error_code = FAULT_USER_FETCH;
	current->thread.cr2 = regs->ip;
	force_sig_fault(SIGSEGV, SEGV_MAPERR, (void __user *)regs->ip);
}

/* For usermem.S: of a copy that one end of which is the kernel's. */
bool wt_copy_within_reach(void *to, const void *from);
bool wt_copy_within_reach(void *to, const void *from)
{
	return wt_within_reach((void __user *)to) || wt_within_reach((const void __user *)from);
}

/* ------------------------------------------------- what is of no program */

/*
 * These take the place of mm/maccess.c's (ld --wrap, see the Makefile), which go the ways of program memory: kernel memory
 * that may not be there.
 */
long __wrap_copy_from_kernel_nofault(void *to, const void *from, size_t size);
long __wrap_copy_to_kernel_nofault(void *to, const void *from, size_t size);
long __wrap_strncpy_from_kernel_nofault(char *to, const void *from, long count);

unsigned long wt_copy_nofault(void *to, const void *from, unsigned long n);

long __wrap_copy_from_kernel_nofault(void *to, const void *from, size_t size)
{
	return wt_copy_nofault(to, from, size) ? -EFAULT : 0;
}

long __wrap_copy_to_kernel_nofault(void *to, const void *from, size_t size)
{
	return wt_copy_nofault(to, from, size) ? -EFAULT : 0;
}

long __wrap_strncpy_from_kernel_nofault(char *to, const void *from, long count)
{
	long len = 0;

	if (count <= 0)
		return 0;
	do {
		if (wt_copy_nofault(to + len, from + len, 1)) {
			to[len ? len - 1 : 0] = '\0';
			return -EFAULT;
		}
	} while (to[len++] && len < count);
	to[len - 1] = '\0';
	return len;
}
