// SPDX-License-Identifier: GPL-2.0-or-later
/* Seals of memory files: each of them, against each way to change a file. */
#include "second.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x20
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#define MFD_EXEC	16U
#endif
#define PAGE 4096UL
#define RW   (PROT_READ | PROT_WRITE)

static int sealed(int seals)
{
	int fd = MUST(memfd_create("sealed", MFD_ALLOW_SEALING));

	MUST(ftruncate(fd, PAGE + 100));
	say("-- seals %#x", seals);
	SHOW(fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

/* Every change that a seal may forbid; what is mapped is left mapped. */
static void try_all(int fd)
{
	static char data[3 * PAGE];

	SHOW(pwrite(fd, "x", 1, 0));
	SHOW(pwrite(fd, data, sizeof(data), 10));
	MUST(lseek(fd, 0, SEEK_END));
	SHOW(write(fd, data, 1));
	SHOW(ftruncate(fd, 2 * PAGE));
	SHOW(ftruncate(fd, PAGE));
	SHOW(fallocate(fd, 0, 0, 5 * PAGE));
	SHOW(fallocate(fd, 0, 0, PAGE));
	SHOW(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
	SHOW(fchmod(fd, 0666));
	SHOW(fchmod(fd, 0777));
	SHOW_OK(mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0));
	SHOW_OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0));
	SHOW_OK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0));
	SHOW(fcntl(fd, F_GET_SEALS));
	MUST(close(fd));
}

/* Somebody who could still write keeps the seal away. */
static void writers(void)
{
	int fd = MUST(memfd_create("writers", MFD_ALLOW_SEALING)), reader;
	char path[64], *readable, *writable;

	MUST(ftruncate(fd, PAGE));
	sprintf(path, "/proc/self/fd/%d", fd);
	reader = MUST(open(path, O_RDONLY));
	writable = (char *)MUST(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0));
	SHOW(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	SHOW(mprotect(writable, PAGE, PROT_READ));
	SHOW(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	SHOW(munmap(writable, PAGE));
	readable = (char *)MUST(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reader, 0));
	SHOW(mprotect(readable, PAGE, RW));
	SHOW(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	SHOW(fcntl(reader, F_ADD_SEALS, F_SEAL_GROW));
	SHOW(fcntl(reader, F_GET_SEALS));
	SHOW(close(reader));

	fd = MUST(memfd_create("future", MFD_ALLOW_SEALING));
	MUST(ftruncate(fd, PAGE));
	writable = (char *)MUST(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0));
	SHOW(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
	writable[0] = 'y';
	SHOW_OK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0));
	readable = (char *)MUST(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0));
	say("%c", readable[0]);
	SHOW(mprotect(readable, PAGE, RW));
	SHOW(write(fd, "z", 1));
}

static void show_mode(int fd)
{
	struct stat st;
	char path[64], target[64];
	ssize_t len;

	MUST(fstat(fd, &st));
	sprintf(path, "/proc/self/fd/%d", fd);
	len = MUST(readlink(path, target, sizeof(target)));
	say("mode %o links %ld seals %#x %.*s", st.st_mode, (long)st.st_nlink, fcntl(fd, F_GET_SEALS), (int)len,
	    target);
}

int main(void)
{
	char path[] = "file";

	try_all(sealed(0));
	try_all(sealed(F_SEAL_SEAL));
	try_all(sealed(F_SEAL_SHRINK));
	try_all(sealed(F_SEAL_GROW));
	try_all(sealed(F_SEAL_WRITE));
	try_all(sealed(F_SEAL_FUTURE_WRITE));
	try_all(sealed(F_SEAL_EXEC));
	SHOW(fcntl(sealed(0x4000), F_GET_SEALS));
	writers();
	show_mode(MUST(memfd_create("", 0)));
	show_mode(MUST(memfd_create("exec", MFD_EXEC)));
	show_mode(MUST(memfd_create("noexec", MFD_NOEXEC_SEAL)));
	SHOW(memfd_create("both", MFD_EXEC | MFD_NOEXEC_SEAL));
	SHOW(memfd_create((char *)1, 0));
	SHOW(fcntl(STDIN_FILENO, F_GET_SEALS));
	SHOW(fcntl(99, F_GET_SEALS));
	SHOW(fcntl(MUST(open(path, O_CREAT | O_RDWR, 0600)), F_GET_SEALS));
	MUST(unlink(path));
	return 0;
}
