// SPDX-License-Identifier: GPL-2.0-or-later
/* Contents of regular files: reading, writing, positions, holes, sizes, allocation, copying between files. */
#include "show.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>

static char big[1 << 20];

static int fresh(const char *name)
{
	return MUST(open(name, O_RDWR | O_CREAT | O_TRUNC, 0644));
}

static long size_of(int fd)
{
	struct stat st;

	MUST(fstat(fd, &st));
	return st.st_size;
}

static void positions(void)
{
	char buf[32] = "";
	int fd = fresh("file");

	SHOW(write(fd, "0123456789", 10));
	SHOW(lseek(fd, 0, SEEK_CUR));
	SHOW(read(fd, buf, 5));
	SHOW(lseek(fd, 3, SEEK_SET));
	SHOW(read(fd, buf, 5));
	say("%.5s", buf);
	SHOW(lseek(fd, -2, SEEK_END));
	SHOW(read(fd, buf, 5));
	SHOW(lseek(fd, -100, SEEK_CUR));
	SHOW(lseek(fd, 100, SEEK_SET));
	SHOW(read(fd, buf, 5));
	SHOW(lseek(fd, 0, 77));
	SHOW(lseek(fd, -1, SEEK_SET));
	SHOW(pread(fd, buf, 3, 7));
	SHOW(pread(fd, buf, 3, 10));
	SHOW(pread(fd, buf, 3, -1));
	SHOW(pwrite(fd, "xyz", 3, 20));
	SHOW(size_of(fd));
	SHOW(lseek(fd, 0, SEEK_CUR));
	SHOW(pread(fd, buf, 13, 10));
	say("%d %.3s", buf[5], buf + 10);
	SHOW(readv(fd, (struct iovec[]){{buf, 1}, {buf, 1}}, -1));
	SHOW(readv(fd, NULL, 0));
	SHOW(preadv(fd, (struct iovec[]){{buf, 2}, {buf + 10, 20}}, 2, 4));
	say("%.2s %.4s", buf, buf + 10);
	SHOW(pwritev(fd, (struct iovec[]){{"A", 1}, {"BC", 2}}, 2, 1));
	SHOW(pwritev2(fd, (struct iovec[]){{"end", 3}}, 1, 0, RWF_APPEND));
	SHOW(preadv2(fd, (struct iovec[]){{buf, 32}}, 1, 0, 0));
	say("%.10s|%.3s", buf, buf + 23);
	SHOW(preadv2(fd, (struct iovec[]){{buf, 32}}, 1, 0, 0x10000));
	SHOW(lseek(fd, 0, SEEK_SET));
	SHOW(write(fd, NULL, 0));
	SHOW(read(fd, NULL, 0));
	SHOW(close(fd));
	SHOW(read(fd, buf, 1));
	SHOW(write(fd, buf, 1));
	SHOW(lseek(fd, 0, SEEK_SET));
	fd = MUST(open("file", O_WRONLY));
	SHOW(read(fd, buf, 1));
	close(fd);
	fd = MUST(open("file", O_RDONLY));
	SHOW(write(fd, buf, 1));
	SHOW(ftruncate(fd, 0));
	close(fd);
	fd = MUST(open(".", O_RDONLY));
	SHOW(read(fd, buf, 1));
	SHOW(lseek(fd, 0, SEEK_SET));
	close(fd);
}

static void appending(void)
{
	char buf[32] = "";
	int one = fresh("log"), two;

	close(one);
	one = MUST(open("log", O_WRONLY | O_APPEND));
	two = MUST(open("log", O_RDWR | O_APPEND));
	SHOW(write(one, "one ", 4));
	SHOW(write(two, "two ", 4));
	SHOW(write(one, "three", 5));
	SHOW(lseek(one, 0, SEEK_CUR));
	SHOW(pwrite(two, "!", 1, 0));
	SHOW(lseek(two, 0, SEEK_SET));
	SHOW(read(two, buf, sizeof(buf)));
	say("%.14s", buf);
	SHOW(fcntl(two, F_SETFL, 0));
	SHOW(pwrite(two, "ONE", 3, 0));
	SHOW(pread(two, buf, 4, 0));
	say("%.4s", buf);
	close(one);
	close(two);
}

static void shared_position(void)
{
	char buf[8] = "";
	int fd = fresh("file"), copy = MUST(dup(fd)), other = MUST(open("file", O_RDWR));

	SHOW(write(fd, "abcdef", 6));
	SHOW(lseek(copy, 2, SEEK_SET));
	SHOW(read(fd, buf, 2));
	say("%.2s", buf);
	SHOW(lseek(other, 0, SEEK_CUR));
	SHOW(fcntl(fd, F_SETFL, O_APPEND));
	SHOW((fcntl(copy, F_GETFL) & O_APPEND) != 0);
	SHOW((fcntl(other, F_GETFL) & O_APPEND) != 0);
	SHOW(fcntl(fd, F_SETFD, FD_CLOEXEC));
	SHOW(fcntl(copy, F_GETFD));
	SHOW(dup2(fd, 20));
	SHOW(fcntl(20, F_GETFD));
	SHOW(dup2(fd, fd));
	SHOW(dup2(99, 20));
	SHOW(dup3(fd, fd, 0));
	SHOW(dup3(fd, 21, O_CLOEXEC));
	SHOW(dup3(fd, 21, O_APPEND));
	SHOW(fcntl(21, F_GETFD));
	SHOW(fcntl(fd, F_DUPFD, 30));
	SHOW(fcntl(fd, F_DUPFD_CLOEXEC, 30));
	SHOW(fcntl(31, F_GETFD));
	SHOW(fcntl(fd, F_DUPFD, 1 << 30));
	SHOW(close_range(20, 25, 0));
	SHOW(fcntl(21, F_GETFD));
	SHOW(close_range(30, ~0U, CLOSE_RANGE_CLOEXEC));
	SHOW(fcntl(30, F_GETFD));
	SHOW(close_range(25, 20, 0));
	SHOW(close_range(3, ~0U, 0));
	SHOW(close(fd));
}

static void holes(void)
{
	int fd = fresh("sparse");
	struct stat st;
	char buf[8];

	SHOW(pwrite(fd, "start", 5, 0));
	SHOW(pwrite(fd, "end", 3, 10 << 20));
	SHOW(size_of(fd));
	MUST(fstat(fd, &st));
	SHOW_BOOL(st.st_blocks * 512 < 1 << 20);
	SHOW(pread(fd, buf, 8, 5 << 20));
	SHOW(lseek(fd, 0, SEEK_DATA));
	SHOW_BOOL(lseek(fd, 0, SEEK_HOLE) < 1 << 20);
	SHOW_BOOL(lseek(fd, 1 << 20, SEEK_DATA) > 9 << 20);
	SHOW(lseek(fd, 10 << 20, SEEK_HOLE));
	SHOW(lseek(fd, 11 << 20, SEEK_DATA));
	SHOW(lseek(fd, 11 << 20, SEEK_HOLE));
	SHOW(ftruncate(fd, 1L << 40));
	SHOW(size_of(fd));
	SHOW(pread(fd, buf, 8, (1L << 40) - 3));
	SHOW(pread(fd, buf, 8, 1L << 39));
	SHOW(ftruncate(fd, 3));
	SHOW(ftruncate(fd, 8));
	SHOW(pread(fd, buf, 8, 0));
	say("%.3s %d %d", buf, buf[3], buf[4]);
	SHOW(ftruncate(fd, -1));
	SHOW(truncate("sparse", 4));
	SHOW(truncate("none", 4));
	SHOW(truncate(".", 4));
	close(fd);
}

static void allocation(void)
{
	int fd = fresh("allocated");
	struct stat st;
	char buf[8] = "";

	SHOW(fallocate(fd, 0, 0, 100000));
	SHOW(size_of(fd));
	MUST(fstat(fd, &st));
	SHOW_BOOL(st.st_blocks * 512 >= 100000);
	SHOW(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 200000));
	SHOW(size_of(fd));
	memset(big, 'x', 100000);
	SHOW(pwrite(fd, big, 100000, 0));
	SHOW(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192));
	SHOW(pread(fd, buf, 4, 4094));
	say("%.2s %d %d", buf, buf[2], buf[3]);
	MUST(fstat(fd, &st));
	SHOW(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 4096));
	SHOW(fallocate(fd, 0, -1, 5));
	SHOW(fallocate(fd, 0, 0, 0));
	SHOW(posix_fallocate(fd, 0, 300000));
	SHOW(size_of(fd));
	SHOW(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	SHOW(posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED));
	SHOW(posix_fadvise(fd, 0, 0, 77));
	SHOW(posix_fadvise(99, 0, 0, POSIX_FADV_NORMAL));
	SHOW(readahead(fd, 0, 4096));
	SHOW(sync_file_range(fd, 0, 4096, SYNC_FILE_RANGE_WRITE));
	SHOW(fsync(fd));
	SHOW(fdatasync(fd));
	SHOW(syncfs(fd));
	SHOW(fsync(99));
	sync();
	close(fd);
	fd = MUST(open("allocated", O_RDONLY));
	SHOW(fallocate(fd, 0, 0, 10));
	close(fd);
}

static void copying(void)
{
	int from = fresh("from"), to = fresh("to");
	off_t at = 3;
	loff_t in = 1, out = 100;
	char buf[16] = "";

	MUST(write(from, "0123456789", 10));
	SHOW(sendfile(to, from, &at, 100));
	say("%ld", (long)at);
	SHOW(lseek(from, 0, SEEK_CUR));
	SHOW(lseek(to, 0, SEEK_CUR));
	SHOW(copy_file_range(from, &in, to, &out, 4, 0));
	say("%ld %ld", (long)in, (long)out);
	SHOW(size_of(to));
	SHOW(pread(to, buf, 16, 100));
	say("%.4s", buf);
	SHOW(copy_file_range(from, &in, to, &out, 4, 1));
	in = 0;
	out = 2;
	SHOW(copy_file_range(from, &in, from, &out, 4, 0));
	SHOW(sendfile(to, 99, NULL, 1));
	SHOW(sendfile(from, to, (off_t[]){-1}, 1));
	close(from);
	close(to);
}

static void limits(void)
{
	const long most = 1 << 20; /* this program's own output has to fit */
	struct rlimit limit;
	int fd = fresh("limited");

	MUST(getrlimit(RLIMIT_FSIZE, &limit));
	limit.rlim_cur = most;
	signal(SIGXFSZ, SIG_IGN);
	SHOW(setrlimit(RLIMIT_FSIZE, &limit));
	SHOW(pwrite(fd, big, 1500, most - 1000));
	SHOW(pwrite(fd, big, 1, most));
	SHOW(ftruncate(fd, most + 1));
	SHOW(ftruncate(fd, most));
	limit.rlim_cur = limit.rlim_max;
	SHOW(setrlimit(RLIMIT_FSIZE, &limit));
	SHOW(pwrite(fd, "x", 1, 0x7fffffffffffffff));
	close(fd);
}

static void large(void)
{
	int fd = fresh("large");

	memset(big, 'L', sizeof(big));
	for (int i = 0; i < 8; i++)
		MUST(write(fd, big, sizeof(big)));
	SHOW(size_of(fd));
	MUST(lseek(fd, 0, SEEK_SET));
	SHOW(read(fd, big, sizeof(big)));
	SHOW(lseek(fd, -10, SEEK_END));
	SHOW(read(fd, big, sizeof(big)));
	SHOW(unlink("large"));
	SHOW(pread(fd, big, 10, 1 << 20));
	close(fd);
}

static void without_a_name(void)
{
	char path[64], buf[8] = "";
	struct stat st;
	int fd = SHOW(open(".", O_TMPFILE | O_RDWR, 0640));

	SHOW(write(fd, "hidden", 6));
	MUST(fstat(fd, &st));
	say("mode %o, %lu links", st.st_mode, (unsigned long)st.st_nlink);
	sprintf(path, "/proc/self/fd/%d", fd);
	SHOW(linkat(AT_FDCWD, path, AT_FDCWD, "shown", AT_SYMLINK_FOLLOW));
	MUST(stat("shown", &st));
	say("mode %o, %lu links", st.st_mode, (unsigned long)st.st_nlink);
	close(fd);
	fd = MUST(open("shown", O_RDONLY));
	SHOW(read(fd, buf, 8));
	close(fd);
	SHOW(unlink("shown"));
	fd = SHOW(open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600));
	sprintf(path, "/proc/self/fd/%d", fd);
	SHOW(linkat(AT_FDCWD, path, AT_FDCWD, "shown", AT_SYMLINK_FOLLOW));
	close(fd);
	SHOW(open(".", O_TMPFILE | O_RDONLY, 0600));
	SHOW(open("none", O_TMPFILE | O_RDWR, 0600));
	SHOW(open("file", O_TMPFILE | O_RDWR, 0600));
}

int main(void)
{
	positions();
	appending();
	shared_position();
	holes();
	allocation();
	copying();
	limits();
	large();
	without_a_name();
	return 0;
}
