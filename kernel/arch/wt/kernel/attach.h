/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef WT_ATTACH_H
#define WT_ATTACH_H
#include <linux/list.h>
#include <linux/mm_types.h>

/**
 * struct wt_attach - one mapping that its file counts
 * @node: in wt_attached
 * @vma: mm, addresses, file, and the operations that count
 */
struct wt_attach {
	struct list_head node;
	struct vm_area_struct *vma;
};

/* Of all programs of the node: there are few. New ones go to the head (asm/host.h), so a walk does not meet what it
 * adds. */
#define for_each_attach(attach, of_mm)                     \
	list_for_each_entry ((attach), &wt_attached, node) \
		if ((attach)->vma->vm_mm == (of_mm))
#define for_each_attach_safe(attach, next, of_mm)                       \
	list_for_each_entry_safe ((attach), (next), &wt_attached, node) \
		if ((attach)->vma->vm_mm == (of_mm))

void wt_attach_drop(struct wt_attach *attach);
#endif
