// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie no-pie static static-pie
/* Mappings: making, changing, moving and dropping them, their limits, and what files behind them do. */
#include "show.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PAGE	4096UL
#define RW	(PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static sigjmp_buf out;
static volatile sig_atomic_t fault_code, fault_signo;
static void *volatile fault_address;

static void on_fault(int signo, siginfo_t *info, void *context)
{
	(void)context;
	fault_signo = signo;
	fault_code = info->si_code;
	fault_address = info->si_addr;
	siglongjmp(out, 1);
}

/* What touching an address does: "fine", or the signal and its code. */
static const char *touch(volatile char *at, bool write)
{
	static char text[64];

	if (sigsetjmp(out, 1)) {
		snprintf(text, sizeof(text), "signal %d code %d%s", fault_signo, fault_code,
			 fault_address == (void *)at ? "" : " at another address");
		return text;
	}
	if (write)
		*at = 1;
	else
		(void)*at;
	return "fine";
}

static void catch_faults(void)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};

	MUST(sigaction(SIGSEGV, &action, NULL));
	MUST(sigaction(SIGBUS, &action, NULL));
}

static void anonymous(void)
{
	char *p;

	p = (char *)SHOW_OK(mmap(NULL, 5 * PAGE, RW, PRIVATE, -1, 0));
	say("zero: %d", p[0] | p[5 * PAGE - 1]);
	say("write: %s", touch(p, true));
	SHOW(mprotect(p + PAGE, PAGE, PROT_READ));
	say("read of read-only: %s", touch(p + PAGE, false));
	say("write to read-only: %s", touch(p + PAGE, true));
	SHOW(mprotect(p + 2 * PAGE, PAGE, PROT_NONE));
	say("read of nothing: %s", touch(p + 2 * PAGE, false));
	SHOW(munmap(p + 3 * PAGE, PAGE));
	say("read of a hole: %s", touch(p + 3 * PAGE, false));
	say("behind the hole: %s", touch(p + 4 * PAGE, true));
	SHOW(mprotect(p, 5 * PAGE, RW));
	SHOW(munmap(p, 5 * PAGE));
	SHOW(munmap(p, 5 * PAGE));
	say("after munmap: %s", touch(p, false));
}

static void refusals(void)
{
	char *p = (char *)MUST(mmap(NULL, 4 * PAGE, RW, PRIVATE, -1, 0));

	SHOW(mmap(NULL, 0, RW, PRIVATE, -1, 0));
	SHOW(mmap(NULL, PAGE, RW, MAP_ANONYMOUS, -1, 0));
	SHOW(mmap(NULL, PAGE, RW, MAP_PRIVATE, -1, 0));
	SHOW(mmap(NULL, ~0UL, RW, PRIVATE, -1, 0));
	SHOW(mmap(NULL, 1UL << 48, RW, PRIVATE, -1, 0));
	SHOW(mmap(p + 1, PAGE, RW, PRIVATE | MAP_FIXED, -1, 0));
	SHOW(mmap(p, PAGE, RW, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0));
	SHOW(munmap(p + 1, PAGE));
	SHOW(munmap(p, 0));
	SHOW(mprotect(p + 1, PAGE, RW));
	SHOW(mprotect(p, PAGE, 0x1000));
	SHOW(mprotect(p, 0, RW));
	SHOW(madvise(p + 1, PAGE, MADV_NORMAL));
	SHOW(madvise(p, PAGE, 12345));
	SHOW(msync(p, PAGE, MS_SYNC | MS_ASYNC));
	SHOW(mremap(p, PAGE, 0, MREMAP_MAYMOVE));
	SHOW(mremap(p + 1, PAGE, PAGE, MREMAP_MAYMOVE));
	SHOW(munmap(p, 4 * PAGE));
	SHOW(mprotect(p, PAGE, RW));
	SHOW(madvise(p, PAGE, MADV_DONTNEED));
	SHOW(msync(p, PAGE, MS_SYNC));
	SHOW(mremap(p, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
	SHOW(mlock(p, PAGE));
}

static void fixed(void)
{
	char *p = (char *)MUST(mmap(NULL, 4 * PAGE, RW, PRIVATE, -1, 0));

	memset(p, 'x', 4 * PAGE);
	SHOW_BOOL(mmap(p + PAGE, PAGE, RW, PRIVATE | MAP_FIXED, -1, 0) == p + PAGE);
	say("%c %d %c", p[0], p[PAGE], p[2 * PAGE]);
	MUST(munmap(p + PAGE, 2 * PAGE));
	SHOW_BOOL(mmap(p + PAGE, PAGE, RW, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0) == p + PAGE);
	SHOW_BOOL(mmap(p + 2 * PAGE, PAGE, RW, PRIVATE, -1, 0) == p + 2 * PAGE);
	MUST(munmap(p, 4 * PAGE));
}

static void moving(void)
{
	char *p = (char *)MUST(mmap(NULL, 8 * PAGE, RW, PRIVATE, -1, 0)), *q;

	memset(p, 'a', 4 * PAGE);
	MUST(munmap(p + 4 * PAGE, 4 * PAGE));
	SHOW_BOOL(mremap(p, 4 * PAGE, 8 * PAGE, 0) == p);
	say("grown: %c %d", p[4 * PAGE - 1], p[4 * PAGE]);
	SHOW_BOOL(mremap(p, 8 * PAGE, 2 * PAGE, 0) == p);
	say("shrunk: %s", touch(p + 2 * PAGE, false));
	MUST(mmap(p + 2 * PAGE, PAGE, RW, PRIVATE | MAP_FIXED, -1, 0));
	MUST(mprotect(p + 2 * PAGE, PAGE, PROT_READ));
	SHOW(mremap(p, 2 * PAGE, 4 * PAGE, 0));
	q = (char *)SHOW_OK(mremap(p, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE));
	SHOW_BOOL(q != p);
	say("moved: %c %d, old place: %s", q[PAGE], q[63 * PAGE], touch(p, false));
	p = (char *)MUST(mmap(NULL, 64 * PAGE, PROT_NONE, PRIVATE, -1, 0));
	SHOW_BOOL(mremap(q, 64 * PAGE, 64 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
	say("to a place: %c %d", p[0], p[63 * PAGE]);
	SHOW(mremap(p, 64 * PAGE, 64 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + PAGE));
	q = (char *)SHOW_OK(mremap(p, 64 * PAGE, 64 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP));
	say("without unmapping: %c, old place %d", q[0], p[0]);
	MUST(munmap(q, 64 * PAGE));
	MUST(munmap(p, 64 * PAGE));
}

static void advice(void)
{
	char *p = (char *)MUST(mmap(NULL, 16 * PAGE, RW, PRIVATE, -1, 0));
	unsigned char in_core[16];
	static const struct {
		const char *name;
		int advice;
	} all[] = {
		{"NORMAL", MADV_NORMAL},
		{"RANDOM", MADV_RANDOM},
		{"SEQUENTIAL", MADV_SEQUENTIAL},
		{"WILLNEED", MADV_WILLNEED},
		{"DONTFORK", MADV_DONTFORK},
		{"DOFORK", MADV_DOFORK},
		{"DONTDUMP", MADV_DONTDUMP},
		{"DODUMP", MADV_DODUMP},
		{"WIPEONFORK", MADV_WIPEONFORK},
		{"KEEPONFORK", MADV_KEEPONFORK},
		{"COLD", MADV_COLD},
		{"PAGEOUT", MADV_PAGEOUT},
		{"POPULATE_READ", MADV_POPULATE_READ},
		{"POPULATE_WRITE", MADV_POPULATE_WRITE},
	};

	memset(p, 'x', 16 * PAGE);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		int result = madvise(p, 16 * PAGE, all[i].advice);

		say("madvise %s = %d %s", all[i].name, result, result ? error_name(errno) : "");
	}
	say("kept: %c", p[5]);
	SHOW(madvise(p + PAGE, PAGE, MADV_DONTNEED));
	say("%c %d %c", p[0], p[PAGE], p[2 * PAGE]);
	SHOW(madvise(p, PAGE, MADV_REMOVE));
	SHOW(mincore(p, 16 * PAGE, in_core));
	say("in core: %d", in_core[0] & 1);
	SHOW(mincore(p + 1, PAGE, in_core));
	MUST(munmap(p + 3 * PAGE, PAGE));
	SHOW(mincore(p, 16 * PAGE, in_core));
	SHOW(madvise(p, 16 * PAGE, MADV_DONTNEED));
	say("%d %d", p[0], p[5 * PAGE]);
	SHOW(mlock(p, 2 * PAGE));
	SHOW(munlock(p, 2 * PAGE));
	SHOW(munlockall());
	MUST(munmap(p, 16 * PAGE));
}

static void files(void)
{
	int fd = MUST(open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600)), readonly;
	char *shared, *private, *executable, buf[8] = "";

	MUST(ftruncate(fd, 3 * PAGE + 10));
	MUST(pwrite(fd, "first", 5, 0));
	MUST(pwrite(fd, "last", 4, 3 * PAGE));
	shared = (char *)SHOW_OK(mmap(NULL, 5 * PAGE, RW, MAP_SHARED, fd, 0));
	private = (char *)SHOW_OK(mmap(NULL, 5 * PAGE, RW, MAP_PRIVATE, fd, 0));
	say("%.5s %.4s", shared, private + 3 * PAGE);
	say("behind the end, in its page: %d %s", shared[3 * PAGE + 10], touch(shared + 4 * PAGE - 1, true));
	say("a page behind the end: %s", touch(shared + 4 * PAGE, false));
	memcpy(shared, "FIRST", 5);
	MUST(pread(fd, buf, 5, 0));
	say("file: %.5s, private: %.5s", buf, private);
	memcpy(private, "OTHER", 5);
	MUST(pwrite(fd, "third", 5, 0));
	say("shared: %.5s, private: %.5s", shared, private);
	SHOW(msync(shared, 5 * PAGE, MS_SYNC));
	SHOW(close(fd));
	memcpy(shared + PAGE, "after close", 11);
	fd = MUST(open("mapped", O_RDWR));
	MUST(pread(fd, buf, 5, PAGE));
	say("file: %.5s", buf);
	MUST(ftruncate(fd, PAGE));
	say("after truncation: %s, %s", touch(shared, false), touch(shared + PAGE, false));
	MUST(ftruncate(fd, 2 * PAGE));
	say("after growth: %d %s", shared[PAGE], touch(shared + 2 * PAGE, false));
	readonly = MUST(open("mapped", O_RDONLY));
	SHOW(mmap(NULL, PAGE, RW, MAP_SHARED, readonly, 0));
	shared = (char *)SHOW_OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, readonly, 0));
	SHOW(mprotect(shared, PAGE, RW));
	SHOW_OK(mmap(NULL, PAGE, RW, MAP_PRIVATE, readonly, 0));
	SHOW(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, readonly, 1));
	SHOW_OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, readonly, 1UL << 40));
	close(fd);
	fd = MUST(open("mapped", O_WRONLY));
	SHOW(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0));
	SHOW(mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | 0x800000, readonly, 0));
	executable = (char *)SHOW_OK(mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, readonly, 0));
	say("%.5s", executable);
	MUST(unlink("mapped"));
	say("unlinked: %.5s", executable);
}

static void heap(void)
{
	char *start = sbrk(0), *p;

	SHOW_BOOL(sbrk(10 * PAGE) == start);
	SHOW_BOOL(sbrk(0) == start + 10 * PAGE);
	say("%d %s", start[0], touch(start + 10 * PAGE - 1, true));
	SHOW_BOOL(brk(start + PAGE) == 0);
	say("behind the break: %s", touch(start + 3 * PAGE, false));
	SHOW_BOOL(brk(start + 10 * PAGE) == 0);
	say("zero again: %d", start[10 * PAGE - 1]);
	SHOW(brk(start + (1UL << 46)));
	p = malloc(100 << 20);
	memset(p, 1, 100 << 20);
	free(p);
}

static void reservations(void)
{
	const unsigned long size = 64UL << 30;
	char *p = (char *)SHOW_OK(mmap(NULL, size, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0));

	SHOW(mprotect(p + (32UL << 30), 16 * PAGE, RW));
	say("in the middle: %s", touch(p + (32UL << 30) + 5, true));
	say("elsewhere: %s", touch(p, false));
	SHOW(munmap(p, size));
	p = (char *)SHOW_OK(mmap(NULL, size, RW, PRIVATE | MAP_NORESERVE, -1, 0));
	say("first and last: %s, %s", touch(p, true), touch(p + size - 1, true));
	SHOW(madvise(p, size, MADV_DONTNEED));
	say("%d", p[size - 1]);
	SHOW(munmap(p, size));
}

int main(void)
{
	catch_faults();
	anonymous();
	refusals();
	fixed();
	moving();
	advice();
	files();
	heap();
	reservations();
	return 0;
}
