// SPDX-License-Identifier: GPL-2.0-or-later
/* Locks on files: of processes, of open files, flock's; leases are left out. */
#include "show.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>

static struct flock range(short type, off_t start, off_t len)
{
	return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
}

static void show_lock(int fd, int command, short type, off_t start, off_t len)
{
	struct flock lock = range(type, start, len);

	if (fcntl(fd, command, &lock))
		say("get: %s", error_name(errno));
	else if (lock.l_type == F_UNLCK)
		say("get: free");
	else
		say("get: type %d from %ld, %ld bytes, %s", lock.l_type, (long)lock.l_start, (long)lock.l_len,
		    lock.l_pid == getpid() ? "of this process"
		    : lock.l_pid == -1	   ? "of an open file"
					   : "of another");
}

static void of_processes(int fd, int other)
{
	struct flock lock = range(F_WRLCK, 10, 10), whole = range(F_RDLCK, 0, 0), free_it = range(F_UNLCK, 13, 2);
	struct flock bad = range(F_WRLCK, -1, 5), odd = range(77, 0, 1), back = range(F_WRLCK, 30, -5);

	SHOW(fcntl(fd, F_SETLK, &lock));
	SHOW(fcntl(other, F_SETLK, &lock));
	show_lock(other, F_GETLK, F_WRLCK, 0, 0);
	show_lock(other, F_OFD_GETLK, F_WRLCK, 0, 0);
	SHOW(fcntl(fd, F_SETLK, &free_it));
	show_lock(other, F_OFD_GETLK, F_WRLCK, 12, 0);
	show_lock(other, F_OFD_GETLK, F_WRLCK, 14, 0);
	SHOW(fcntl(fd, F_SETLK, &whole));
	show_lock(other, F_OFD_GETLK, F_RDLCK, 0, 0);
	show_lock(other, F_OFD_GETLK, F_WRLCK, 0, 0);
	SHOW(fcntl(fd, F_SETLK, &bad));
	SHOW(fcntl(fd, F_SETLK, &odd));
	SHOW(fcntl(fd, F_SETLK, &back));
	show_lock(other, F_OFD_GETLK, F_WRLCK, 25, 5);
	/* Closing any descriptor of the file gives all of the process's locks on it up. */
	close(dup(fd));
	show_lock(other, F_OFD_GETLK, F_WRLCK, 0, 0);
}

static void of_open_files(int fd, int other)
{
	struct flock lock = range(F_WRLCK, 0, 10), read = range(F_RDLCK, 0, 10), not_ours = range(F_RDLCK, 0, 10);

	SHOW(fcntl(fd, F_OFD_SETLK, &lock));
	SHOW(fcntl(other, F_OFD_SETLK, &lock));
	SHOW(fcntl(other, F_OFD_SETLK, &read));
	show_lock(other, F_OFD_GETLK, F_RDLCK, 0, 0);
	SHOW(fcntl(fd, F_OFD_SETLK, &read));
	SHOW(fcntl(other, F_OFD_SETLK, &read));
	not_ours.l_pid = getpid();
	SHOW(fcntl(fd, F_OFD_SETLK, &not_ours));
	read.l_type = F_UNLCK;
	SHOW(fcntl(fd, F_OFD_SETLK, &read));
	SHOW(fcntl(other, F_OFD_SETLK, &read));
}

static void of_flock(int fd, int other)
{
	SHOW(flock(fd, LOCK_SH));
	SHOW(flock(other, LOCK_SH | LOCK_NB));
	SHOW(flock(other, LOCK_EX | LOCK_NB));
	SHOW(flock(fd, LOCK_UN));
	SHOW(flock(other, LOCK_EX | LOCK_NB));
	SHOW(flock(fd, LOCK_SH | LOCK_NB));
	SHOW(flock(other, LOCK_UN));
	SHOW(flock(fd, 0));
	SHOW(flock(99, LOCK_SH));
}

static int shared_fd;

static void *unlock_later(void *unused)
{
	(void)unused;
	usleep(20000);
	say("unlocking");
	flock(shared_fd, LOCK_UN);
	return NULL;
}

static void on_alarm(int signo)
{
	(void)signo;
}

static void waiting(int fd, int other)
{
	struct sigaction action = {.sa_handler = on_alarm};
	struct flock lock = range(F_WRLCK, 0, 10);
	pthread_t thread;

	MUST(flock(fd, LOCK_EX));
	shared_fd = fd;
	pthread_create(&thread, NULL, unlock_later, NULL);
	SHOW(flock(other, LOCK_EX));
	pthread_join(thread, NULL);
	MUST(sigaction(SIGALRM, &action, NULL));
	ualarm(20000, 0);
	SHOW(flock(fd, LOCK_EX));
	MUST(fcntl(fd, F_OFD_SETLK, &lock));
	ualarm(20000, 0);
	SHOW(fcntl(other, F_OFD_SETLKW, &lock));
}

int main(void)
{
	int fd = MUST(open("locked", O_RDWR | O_CREAT, 0600)), other = MUST(open("locked", O_RDWR)), reader;
	struct flock lock = range(F_WRLCK, 0, 1);

	of_processes(fd, other);
	of_open_files(fd, other);
	of_flock(fd, other);
	waiting(fd, other);
	reader = MUST(open("locked", O_RDONLY));
	SHOW(fcntl(reader, F_SETLK, &lock));
	SHOW(fcntl(99, F_SETLK, &lock));
	SHOW(lockf(fd, F_TEST, 0));
	unlink("locked");
	return 0;
}
