// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie no-pie
/* setrlimit(2): what a program may map, how far its stack reaches, and what becomes of those over a limit. */
#include "show.h"

#include <alloca.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define MIB  (1UL << 20)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define RW   (PROT_READ | PROT_WRITE)

static void *map(size_t bytes, int prot, int flags)
{
	return mmap(NULL, bytes, prot, flags, -1, 0);
}

/* Kilobytes that /proc/self/status has in a line. */
static unsigned long kilobytes(const char *name)
{
	FILE *file = fopen("/proc/self/status", "r");
	unsigned long value = 0;
	char line[200];

	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			value = strtoul(line + strlen(name), NULL, 10);
	fclose(file);
	return value;
}

static void set(int which, unsigned long bytes)
{
	struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};

	MUST(setrlimit(which, &limit));
}

/* Room for `more` bytes besides what there is now; the stack counts differently here and there, by up to 10 MiB. */
static void leave(int which, const char *name, unsigned long more)
{
	set(which, kilobytes(name) * 1024 + more);
}

/* Runs in a child, as the limits are for good. */
static void try(const char *what, void (*body)(void))
{
	pid_t child;
	int status;

	say("%s", what);
	child = MUST(fork());
	if (!child) {
		body();
		_exit(0);
	}
	MUST(waitpid(child, &status, 0));
	if (WIFSIGNALED(status))
		say("ended by signal %d", WTERMSIG(status));
	else
		say("ended with %d", WEXITSTATUS(status));
}

#define SHOW_MAP(call)                                                              \
	({                                                                          \
		void *at_ = (call);                                                 \
		say("%s: %s", #call, at_ == MAP_FAILED ? error_name(errno) : "ok"); \
		at_;                                                                \
	})

static void address_space(void)
{
	char *one, *two;

	leave(RLIMIT_AS, "VmSize:", 100 * MIB);
	one = SHOW_MAP(map(60 * MIB, RW, ANON));
	SHOW_MAP(map(60 * MIB, RW, ANON));
	SHOW_MAP(map(60 * MIB, PROT_NONE, ANON));
	SHOW_MAP(map(60 * MIB, PROT_READ, MAP_SHARED | MAP_ANONYMOUS));
	SHOW_MAP(mmap(one, 60 * MIB, PROT_NONE, ANON | MAP_FIXED, -1, 0));
	SHOW_MAP(mmap(one, 60 * MIB, RW, ANON | MAP_FIXED, -1, 0));
	SHOW_MAP(mremap(one, 60 * MIB, 120 * MIB, MREMAP_MAYMOVE));
	SHOW_BOOL(malloc(120 * MIB) == NULL);
	SHOW_BOOL(calloc(1000, 1000) != NULL);
	SHOW(munmap(one, 60 * MIB));
	two = SHOW_MAP(map(80 * MIB, RW, ANON));
	two = SHOW_MAP(mremap(two, 80 * MIB, 20 * MIB, 0));
	SHOW_BOOL(sbrk(70 * MIB) == (void *)-1);
	SHOW_BOOL(sbrk(65536) != (void *)-1);
	SHOW_MAP(mremap(two, 20 * MIB, 40 * MIB, MREMAP_MAYMOVE));
}

static void data(void)
{
	char *readable, *shared;

	leave(RLIMIT_DATA, "VmData:", 50 * MIB);
	SHOW_MAP(map(80 * MIB, RW, ANON));
	readable = SHOW_MAP(map(80 * MIB, PROT_READ, ANON));
	shared = SHOW_MAP(map(80 * MIB, RW, MAP_SHARED | MAP_ANONYMOUS));
	SHOW(mprotect(readable, 80 * MIB, RW));
	SHOW(mprotect(readable, 20 * MIB, RW));
	SHOW(mprotect(shared, 80 * MIB, PROT_READ));
	SHOW(mprotect(shared, 80 * MIB, RW));
	SHOW(mprotect(readable, 20 * MIB, PROT_READ));
	SHOW_MAP(map(30 * MIB, RW, ANON));
	SHOW_MAP(map(30 * MIB, RW, ANON));
	SHOW_BOOL(sbrk(40 * MIB) == (void *)-1);
	SHOW_BOOL(malloc(40 * MIB) == NULL);
}

static void brk_limit(void)
{
	char *before = sbrk(0);

	set(RLIMIT_DATA, 4 * MIB);
	SHOW_BOOL(sbrk(8 * MIB) == (void *)-1);
	SHOW_BOOL(sbrk(0) == before);
	SHOW_BOOL(sbrk(65536) == before);
	SHOW_BOOL(sbrk(0) == before + 65536);
	SHOW_BOOL(sbrk(-65536) == before + 65536);
}

/* Bytes of stack below here that are there. */
static void use_stack(unsigned long bytes)
{
	volatile char *block = alloca(bytes);

	for (unsigned long i = 0; i < bytes; i += 4096)
		block[bytes - 1 - i] = 1;
	say("%lu KiB of stack", bytes >> 10);
}

static void exec_again(const char *how)
{
	execl("/proc/self/exe", "limits", how, NULL);
	say("exec: %s", error_name(errno));
}

static void small_stack(void)
{
	set(RLIMIT_STACK, 1 * MIB);
	exec_again("small");
}

static void large_stack(void)
{
	set(RLIMIT_STACK, 32 * MIB);
	exec_again("large");
}

static void exec_in_too_little(void)
{
	set(RLIMIT_AS, 300 * 1024);
	exec_again("limits");
}

static void inherited(void)
{
	leave(RLIMIT_AS, "VmSize:", 30 * MIB);
	exec_again("limits");
}

static int again(const char *how)
{
	struct rlimit limit;

	say("again, %s", how);
	if (!strcmp(how, "limits")) {
		SHOW_BOOL(malloc(100 * MIB) == NULL);
		SHOW_BOOL(malloc(10 * MIB) != NULL);
		return 0;
	}
	MUST(getrlimit(RLIMIT_STACK, &limit));
	say("limit %lu KiB", (unsigned long)limit.rlim_cur >> 10);
	use_stack(500 * 1024);
	use_stack(strcmp(how, "small") ? 20 * MIB : 3 * MIB);
	return 0;
}

static void refused(void)
{
	struct rlimit above = {.rlim_cur = 2, .rlim_max = 1}, low = {.rlim_cur = 10, .rlim_max = 10};
	struct rlimit high = {.rlim_cur = 10, .rlim_max = 20};

	SHOW(setrlimit(RLIMIT_AS, &above));
	SHOW(setrlimit(99, &low));
	SHOW(setrlimit(RLIMIT_NOFILE, &low));
	SHOW(setrlimit(RLIMIT_NOFILE, &high));
	SHOW(open("/dev/null", O_RDONLY) >= 0);
	SHOW(dup2(1, 10));
	SHOW(dup2(1, 9));
}

static void file_size(void)
{
	char block[4096] = {};
	int file = MUST(open("limited", O_RDWR | O_CREAT | O_TRUNC, 0600));

	signal(SIGXFSZ, SIG_IGN);
	set(RLIMIT_FSIZE, 6000);
	SHOW(write(file, block, 4096));
	SHOW(write(file, block, 4096));
	SHOW(write(file, block, 4096));
	SHOW(ftruncate(file, 7000));
	signal(SIGXFSZ, SIG_DFL);
	unlink("limited");
	SHOW(write(file, block, 4096));
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return again(argv[1]);
	try("address space", address_space);
	try("data", data);
	try("program break", brk_limit);
	try("small stack", small_stack);
	try("large stack", large_stack);
	try("exec in too little", exec_in_too_little);
	try("inherited", inherited);
	try("refused", refused);
	try("file size", file_size);
	return 0;
}
