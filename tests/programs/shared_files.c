// SPDX-License-Identifier: GPL-2.0-or-later
/* Files that two processes map: what each sees of the other's stores, reads and writes, and of a changing size. */
#include "second.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PAGE 4096UL
#define RW   (PROT_READ | PROT_WRITE)
#define NAME "shared"

struct area {
	int stage;
	char text[100];
};

static sigjmp_buf fault;

static void on_fault(int signal)
{
	siglongjmp(fault, signal);
}

/* The signal that a load from an address raises, 0: none. */
static int load(const volatile char *address)
{
	int signal = sigsetjmp(fault, 1);

	if (!signal)
		(void)*address;
	return signal;
}

static int second(const char *role)
{
	int fd = MUST(open(NAME, O_RDWR));
	struct area *area, *own;
	char text[100];

	(void)role;
	MUST(mmap(NULL, 7 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	area = (struct area *)MUST(mmap(NULL, PAGE, RW, MAP_SHARED, fd, PAGE));
	own = (struct area *)MUST(mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, PAGE));
	strcpy(own->text, "private");
	strcat(area->text, ", stored by the second");
	tell(&area->stage, 1);
	await(&area->stage, 2);
	MUST(pread(fd, text, sizeof(text), PAGE + offsetof(struct area, text)));
	strcat(text, ", read by the second");
	MUST(pwrite(fd, text, strlen(text) + 1, PAGE + offsetof(struct area, text)));
	tell(&area->stage, 3);
	return strcmp(own->text, "private");
}

static void share(int fd)
{
	struct area *area = (struct area *)MUST(mmap(NULL, PAGE, RW, MAP_SHARED, fd, PAGE));
	char text[100];
	pid_t pid;

	strcpy(area->text, "stored by the first");
	pid = start_second("share");
	await(&area->stage, 1);
	say("mapped: %s", area->text);
	MUST(pread(fd, text, sizeof(text), PAGE + offsetof(struct area, text)));
	say("read: %s", text);
	MUST(pwrite(fd, "WRITTEN", 7, PAGE + offsetof(struct area, text)));
	tell(&area->stage, 2);
	await(&area->stage, 3);
	say("mapped: %s", area->text);
	say("the second ended with %d", end_of(pid));
	SHOW(msync(area, PAGE, MS_SYNC));
	SHOW(msync(area, PAGE, MS_ASYNC | MS_SYNC));
	SHOW(msync((char *)area + 1, PAGE, MS_SYNC));
	MUST(munmap(area, PAGE));
	SHOW(msync(area, PAGE, MS_SYNC));
}

static void rights(void)
{
	int reader = MUST(open(NAME, O_RDONLY)), writer = MUST(open(NAME, O_WRONLY)), both = MUST(open(NAME, O_RDWR));
	char *page;

	SHOW_OK(mmap(NULL, PAGE, RW, MAP_SHARED, reader, 0));
	SHOW_OK(mmap(NULL, PAGE, RW, MAP_PRIVATE, reader, 0));
	SHOW_OK(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, writer, 0));
	SHOW_OK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, writer, 0));
	SHOW_OK(mmap(NULL, PAGE, PROT_READ, 0, both, 0));
	SHOW_OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, both, 1));
	SHOW_OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, 99, 0));
	SHOW_OK(mmap(NULL, 0, PROT_READ, MAP_SHARED, both, 0));
	page = (char *)SHOW_OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reader, 0));
	SHOW(mprotect(page, PAGE, RW));
	SHOW(mprotect(page, PAGE, PROT_NONE));
	SHOW(mprotect(page, PAGE, PROT_READ));
	page = (char *)SHOW_OK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, reader, 0));
	SHOW(mprotect(page, PAGE, RW));
	page = (char *)SHOW_OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, both, 0));
	SHOW(mprotect(page, PAGE, RW));
	MUST(close(reader));
	MUST(close(writer));
	MUST(close(both));
}

static void sizes(int fd)
{
	char *pages, buffer[16];
	int zero = MUST(open("/dev/zero", O_RDONLY));

	MUST(ftruncate(fd, 3 * PAGE));
	pages = (char *)MUST(mmap(NULL, 5 * PAGE, RW, MAP_SHARED, fd, 0));
	strcpy(pages + 2 * PAGE, "third page");
	say("loads: %d %d %d", load(pages), load(pages + 2 * PAGE), load(pages + 3 * PAGE));
	SHOW(ftruncate(fd, PAGE + 1));
	say("loads: %d %d %d", load(pages), load(pages + PAGE), load(pages + 2 * PAGE));
	SHOW(read(zero, pages + 2 * PAGE, 16));
	SHOW(pwrite(fd, pages + 2 * PAGE, 16, 0));
	SHOW(ftruncate(fd, 5 * PAGE));
	say("loads: %d %d", load(pages + 2 * PAGE), load(pages + 4 * PAGE));
	SHOW_BOOL(pages[2 * PAGE] == 0);
	strcpy(pages + 4 * PAGE, "fifth page");
	SHOW(pread(fd, buffer, sizeof(buffer), 4 * PAGE));
	say("%s", buffer);
	SHOW(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4 * PAGE, PAGE));
	SHOW_BOOL(pages[4 * PAGE] == 0);
	SHOW(unlink(NAME));
	strcpy(pages, "no name");
	SHOW(pread(fd, buffer, sizeof(buffer), 0));
	say("%s", buffer);
	MUST(munmap(pages, 5 * PAGE));
	MUST(close(zero));
}

/* The same memory twice by mremap() of no length, of a file and of none. */
static void doubled(void)
{
	char *pages = (char *)MUST(mmap(NULL, 2 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	char *again = (char *)SHOW_OK(mremap(pages + PAGE, 0, PAGE, MREMAP_MAYMOVE));

	strcpy(pages + PAGE, "seen twice");
	say("%s", again);
	SHOW(munmap(pages, 2 * PAGE));
	say("%s", again);
	pages = (char *)MUST(mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	SHOW_OK(mremap(pages, 0, PAGE, MREMAP_MAYMOVE));
}

int main(int argc, char **argv)
{
	int fd;

	if (argc > 1)
		return second(argv[1]);
	signal(SIGBUS, on_fault);
	signal(SIGSEGV, on_fault);
	fd = MUST(open(NAME, O_RDWR | O_CREAT | O_EXCL, 0644));
	MUST(ftruncate(fd, 2 * PAGE));
	share(fd);
	rights();
	sizes(fd);
	doubled();
	return 0;
}
