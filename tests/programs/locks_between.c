// SPDX-License-Identifier: GPL-2.0-or-later
/* Locks on files between processes: flock, those of fcntl, and those of open file descriptions. */
#include "second.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#define NAME "locked"
#define PAGE 4096UL

static struct flock range(short type, off_t start, off_t len)
{
	return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
}

static int set(int fd, int command, short type, off_t start, off_t len)
{
	struct flock lock = range(type, start, len);

	return fcntl(fd, command, &lock);
}

/* What stands in the way of a lock. */
static void who(int fd, int command, short type, off_t start, off_t len, pid_t second)
{
	struct flock lock = range(type, start, len);

	MUST(fcntl(fd, command, &lock));
	if (lock.l_type == F_UNLCK)
		say("free");
	else
		say("%s of %s: %ld+%ld", lock.l_type == F_RDLCK ? "read lock" : "write lock",
		    lock.l_pid == second ? "the second"
		    : lock.l_pid == -1	 ? "nobody"
					 : "somebody",
		    (long)lock.l_start, (long)lock.l_len);
}

static int second(const char *role)
{
	int fd = MUST(open(NAME, O_RDWR));
	int *stage = (int *)MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));

	if (!strcmp(role, "hold")) {
		MUST(flock(fd, LOCK_EX));
		MUST(set(fd, F_SETLK, F_WRLCK, 100, 50));
		MUST(set(fd, F_SETLK, F_RDLCK, 200, 0));
		tell(stage, 1);
		await(stage, 2);
		/* Closing any descriptor of the file drops the process's record locks, but not the flock. */
		MUST(close(MUST(open(NAME, O_RDONLY))));
		tell(stage, 3);
		await(stage, 4);
		return 0;
	}
	if (!strcmp(role, "deadlock")) {
		MUST(set(fd, F_SETLK, F_WRLCK, 20, 10));
		tell(stage, 1);
		MUST(set(fd, F_SETLKW, F_WRLCK, 0, 10));
		return 5;
	}
	MUST(set(fd, F_OFD_SETLK, F_WRLCK, 0, 10));
	tell(stage, 1);
	await(stage, 2);
	MUST(close(MUST(open(NAME, O_RDONLY))));
	tell(stage, 3);
	sleep_ms(50);
	MUST(set(fd, F_OFD_SETLK, F_UNLCK, 0, 0));
	await(stage, 4);
	return 0;
}

static void held_by_another(int fd, int *stage)
{
	pid_t pid = start_second("hold");

	await(stage, 1);
	SHOW(flock(fd, LOCK_EX | LOCK_NB));
	SHOW(flock(fd, LOCK_SH | LOCK_NB));
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 101));
	SHOW(set(fd, F_SETLK, F_WRLCK, 0, 100));
	SHOW(set(fd, F_SETLK, F_RDLCK, 149, 1));
	SHOW(set(fd, F_SETLK, F_RDLCK, 300, 10));
	SHOW(set(fd, F_SETLK, F_WRLCK, 300, 10));
	who(fd, F_GETLK, F_RDLCK, 90, 20, pid);
	who(fd, F_GETLK, F_WRLCK, 1000, 1, pid);
	who(fd, F_GETLK, F_RDLCK, 1000, 1, pid);
	tell(stage, 2);
	await(stage, 3);
	who(fd, F_GETLK, F_WRLCK, 90, 0, pid);
	SHOW(flock(fd, LOCK_SH | LOCK_NB));
	tell(stage, 4);
	SHOW(flock(fd, LOCK_SH));
	say("the second ended with %d", end_of(pid));
	SHOW(set(fd, F_SETLK, F_UNLCK, 0, 0));
	SHOW(flock(fd, LOCK_UN));
}

static void deadlock(int fd, int *stage)
{
	pid_t pid;

	MUST(set(fd, F_SETLK, F_WRLCK, 0, 10));
	pid = start_second("deadlock");
	await(stage, 1);
	sleep_ms(50);
	SHOW(set(fd, F_SETLKW, F_WRLCK, 20, 10));
	SHOW(set(fd, F_SETLK, F_UNLCK, 0, 10));
	say("the second ended with %d", end_of(pid));
}

static void open_file_descriptions(int fd, int *stage)
{
	pid_t pid = start_second("ofd");
	int other = MUST(open(NAME, O_RDWR));

	await(stage, 1);
	SHOW(set(fd, F_OFD_SETLK, F_RDLCK, 5, 1));
	SHOW(set(fd, F_SETLK, F_RDLCK, 5, 1));
	who(fd, F_OFD_GETLK, F_RDLCK, 5, 1, pid);
	who(fd, F_GETLK, F_RDLCK, 5, 1, pid);
	tell(stage, 2);
	await(stage, 3);
	SHOW(set(fd, F_OFD_SETLKW, F_WRLCK, 5, 1));
	SHOW(set(other, F_OFD_SETLK, F_RDLCK, 0, 0));
	SHOW(set(other, F_OFD_SETLK, F_RDLCK, 0, 5));
	tell(stage, 4);
	say("the second ended with %d", end_of(pid));
	SHOW(close(other));
	SHOW(set(fd, F_OFD_SETLK, F_WRLCK, 0, 0));
}

int main(int argc, char **argv)
{
	int fd, *stage;

	if (argc > 1)
		return second(argv[1]);
	fd = MUST(open(NAME, O_RDWR | O_CREAT | O_EXCL, 0644));
	MUST(ftruncate(fd, PAGE));
	stage = (int *)MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	held_by_another(fd, stage);
	tell(stage, 0);
	deadlock(fd, stage);
	tell(stage, 0);
	open_file_descriptions(fd, stage);
	MUST(unlink(NAME));
	return 0;
}
