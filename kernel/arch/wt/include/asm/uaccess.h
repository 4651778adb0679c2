/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef _ASM_WT_UACCESS_H
#define _ASM_WT_UACCESS_H
/*
 * Program memory is memory of this process. All accesses go through the few functions of usermem.S, so that the
 * host's fault handler can tell a bad pointer of a program from a fault of the kernel and go on at their one fixup.
 */
#include <linux/string.h>
#include <asm-generic/access_ok.h>

struct wt_uval {
	unsigned long err; /* 0, or not 0 after a fault */
	unsigned long val;
};

struct wt_uval wt_get_user_1(const void *from);
struct wt_uval wt_get_user_2(const void *from);
struct wt_uval wt_get_user_4(const void *from);
struct wt_uval wt_get_user_8(const void *from);
unsigned long wt_put_user_1(void *to, unsigned long val);
unsigned long wt_put_user_2(void *to, unsigned long val);
unsigned long wt_put_user_4(void *to, unsigned long val);
unsigned long wt_put_user_8(void *to, unsigned long val);
/* Bytes not copied or cleared. */
unsigned long wt_user_copy(void *to, const void *from, unsigned long n);
unsigned long wt_user_clear(void *to, unsigned long n);
/* Bytes copied without the NUL (count: none found), or negative after a fault. */
long wt_user_strncpy(char *to, const char *from, long count);
/* Length with the NUL, count + 1: none found, or negative after a fault. */
long wt_user_strnlen(const char *from, long count);

static __always_inline unsigned long raw_copy_from_user(void *to, const void __user *from, unsigned long n)
{
	return wt_user_copy(to, (const void __force *)from, n);
}

static __always_inline unsigned long raw_copy_to_user(void __user *to, const void *from, unsigned long n)
{
	return wt_user_copy((void __force *)to, from, n);
}
#define INLINE_COPY_FROM_USER
#define INLINE_COPY_TO_USER

static __always_inline int __get_user_fn(size_t size, const void __user *from, void *to)
{
	const void *p = (const void __force *)from;
	struct wt_uval v;

	switch (size) {
	case 1:
		v = wt_get_user_1(p);
		*(u8 *)to = v.val;
		break;
	case 2:
		v = wt_get_user_2(p);
		*(u16 *)to = v.val;
		break;
	case 4:
		v = wt_get_user_4(p);
		*(u32 *)to = v.val;
		break;
	default:
		v = wt_get_user_8(p);
		*(u64 *)to = v.val;
		break;
	}
	return v.err ? -EFAULT : 0;
}
#define __get_user_fn(sz, u, k) __get_user_fn(sz, u, k)

static __always_inline int __put_user_fn(size_t size, void __user *to, const void *from)
{
	void *p = (void __force *)to;
	unsigned long err;

	switch (size) {
	case 1:
		err = wt_put_user_1(p, *(const u8 *)from);
		break;
	case 2:
		err = wt_put_user_2(p, *(const u16 *)from);
		break;
	case 4:
		err = wt_put_user_4(p, *(const u32 *)from);
		break;
	default:
		err = wt_put_user_8(p, *(const u64 *)from);
		break;
	}
	return err ? -EFAULT : 0;
}
#define __put_user_fn(sz, u, k) __put_user_fn(sz, u, k)

static inline unsigned long __clear_user(void __user *to, unsigned long n)
{
	return wt_user_clear((void __force *)to, n);
}
#define __clear_user __clear_user

#define __get_kernel_nofault(dst, src, type, err_label)                                            \
	do {                                                                                       \
		if (__get_user_fn(sizeof(type), (const void __user __force *)(src), (dst)))        \
			goto err_label;                                                            \
	} while (0)

#define __put_kernel_nofault(dst, src, type, err_label)                                            \
	do {                                                                                       \
		if (__put_user_fn(sizeof(type), (void __user __force *)(dst), (src)))              \
			goto err_label;                                                            \
	} while (0)

#include <asm-generic/uaccess.h>

#undef __clear_user
long strncpy_from_user(char *dst, const char __user *src, long count);
long strnlen_user(const char __user *src, long count);
#endif
