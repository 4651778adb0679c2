// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What memory a shared futex is in.
 *
 * Program memory has no struct page here. get_futex_key() takes one only to read its mapping and index, at once and
 * without sleeping, so one page stands for whichever was asked for last: for private memory it looks anonymous, for
 * shared contents it is a page of an inode whose sequence number is the host's number of the contents.
 *
 * No other user of get_user_pages() comes here: the bytes of this page are not the program's.
 */
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <asm/host.h>

static struct inode wt_futex_inode;
static struct address_space wt_futex_mapping = {.host = &wt_futex_inode};
static struct page *wt_futex_standin;

/**
 * wt_futex_page - get_user_pages_fast() for get_futex_key()
 * @address: of the page
 * @nr_pages: 1
 * @gup_flags: FOLL_WRITE or 0
 * @page: the page that stands for it, with a reference
 *
 * Return: 1, or -EFAULT if the program may not access the address so.
 */
int wt_futex_page(unsigned long address, int nr_pages, unsigned int gup_flags, struct page **page);
int wt_futex_page(unsigned long address, int nr_pages, unsigned int gup_flags, struct page **page)
{
	struct mm_struct *mm = current->mm;
	struct wt_mem_key key;

	if (!mm || !mm->context.as ||
	    wt_call(as_key, mm->context.as, address, !!(gup_flags & FOLL_WRITE), (u64)&key) < 0)
		return -EFAULT;
	if (key.content) {
		wt_futex_standin->mapping = &wt_futex_mapping;
		wt_futex_standin->index = key.page;
		atomic64_set(&wt_futex_inode.i_sequence, key.content);
	} else {
		wt_futex_standin->mapping = (void *)PAGE_MAPPING_ANON;
	}
	get_page(wt_futex_standin);
	*page = wt_futex_standin;
	return 1;
}

static int __init wt_futex_init(void)
{
	wt_futex_standin = alloc_page(GFP_KERNEL);
	return wt_futex_standin ? 0 : -ENOMEM;
}
core_initcall(wt_futex_init);
