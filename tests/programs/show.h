/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the programs of this folder share. They print what system calls answer, as text that is the same on every
 * Linux: no process ids, addresses, times of day, users or paths of the place they run in.
 *
 * Each line is one write(2), so that lines of several processes mix whole and nothing is printed twice after a fork.
 */
#ifndef SHOW_H
#define SHOW_H
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Exit status of a program whose preparations fail: there is nothing to compare then. */
#define SHOW_BROKEN 99
/* Exit status of a program that the host forbids to do what it is about: it says so on standard error. */
#define SHOW_FORBIDDEN 77

__attribute__((format(printf, 1, 2), unused)) static void say(const char *format, ...)
{
	int before = errno;
	char line[4096];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (len > (int)sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	if (write(STDOUT_FILENO, line, len) != len)
		_exit(SHOW_BROKEN);
	errno = before;
}

__attribute__((unused)) static const char *error_name(int error)
{
	const char *name = strerrorname_np(error);

	return name ? name : "unknown error";
}

/* Shows the result of the call just made, whose error is in errno; without its number if it is not `plain`. */
__attribute__((unused)) static long show(const char *text, long result, bool plain)
{
	if (result == -1)
		say("%s = -1 %s", text, error_name(errno));
	else if (plain)
		say("%s = %ld", text, result);
	else
		say("%s: ok", text);
	return result;
}

__attribute__((unused)) static long must_work(const char *text, long result, const char *file, int line)
{
	if (result == -1) {
		fprintf(stderr, "%s:%d: %s: %m\n", file, line, text);
		_exit(SHOW_BROKEN);
	}
	return result;
}

/* A call by its text, with its result and error. */
#define SHOW(call) (errno = 0, show(#call, (long)(call), true))
/* The same where the result itself differs from run to run: an address, a process id. */
#define SHOW_OK(call) (errno = 0, show(#call, (long)(call), false))
/* Something said of a value: a condition, true or not. */
#define SHOW_BOOL(condition) say("%s: %s", #condition, (condition) ? "yes" : "no")
/* The same for the numbers of pthread functions, which return the error. */
#define SHOW_ERROR(call)                                                  \
	do {                                                              \
		int error_ = (call);                                      \
		say("%s = %s", #call, error_ ? error_name(error_) : "0"); \
	} while (0)
/* A preparation: not shown, but the program ends if it fails. */
#define MUST(call) must_work(#call, (long)(call), __FILE__, __LINE__)

#endif
