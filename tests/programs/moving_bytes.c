// SPDX-License-Identifier: GPL-2.0-or-later
/* splice, tee, sendfile and copy_file_range between files, pipes, FIFOs, memory files and sockets. */
#include "second.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define BIG (3 * 65536 + 77)

static unsigned sum_of(const unsigned char *bytes, size_t len)
{
	unsigned sum = 2166136261u;

	while (len--)
		sum = (sum ^ *bytes++) * 16777619u;
	return sum;
}

static int file_with(const char *name, size_t len)
{
	int fd = MUST(open(name, O_RDWR | O_CREAT | O_TRUNC, 0644));
	unsigned char *bytes = malloc(len);

	for (size_t i = 0; i < len; i++)
		bytes[i] = i * 31 + i / 251;
	if (MUST(write(fd, bytes, len)) != (ssize_t)len)
		_exit(SHOW_BROKEN);
	free(bytes);
	MUST(lseek(fd, 0, SEEK_SET));
	return fd;
}

static void show_file(const char *what, int fd)
{
	off_t len = MUST(lseek(fd, 0, SEEK_END));
	unsigned char *bytes = malloc(len + 1);

	MUST(pread(fd, bytes, len, 0));
	say("%s: %ld bytes, sum %08x", what, (long)len, sum_of(bytes, len));
	free(bytes);
}

/* Everything that comes, as a sum. */
static int second(const char *role)
{
	int in = MUST(open("fifo", O_RDONLY)), out = MUST(open("received", O_RDWR | O_CREAT | O_TRUNC, 0644));
	int middle[2];
	ssize_t len;

	(void)role;
	MUST(pipe(middle));
	while ((len = MUST(splice(in, NULL, middle[1], NULL, 65536, 0))) > 0)
		while (len > 0)
			len -= MUST(splice(middle[0], NULL, out, NULL, len, 0));
	return 0;
}

static void through_a_fifo(int file)
{
	int fifo;
	pid_t pid;
	loff_t at = 0;
	ssize_t len;

	MUST(mkfifo("fifo", 0600));
	pid = start_second("fifo");
	fifo = MUST(open("fifo", O_WRONLY));
	while ((len = MUST(splice(file, &at, fifo, NULL, 100000, 0))) > 0)
		;
	say("offset %ld, position %ld", (long)at, (long)lseek(file, 0, SEEK_CUR));
	MUST(close(fifo));
	say("the second ended with %d", end_of(pid));
	show_file("received", MUST(open("received", O_RDONLY)));
}

static void pipes(int file)
{
	int a[2], b[2], out = file_with("out", 10);
	char text[64] = "";
	loff_t at = 5;

	MUST(pipe2(a, O_NONBLOCK));
	MUST(pipe2(b, O_NONBLOCK));
	SHOW(splice(file, &at, a[1], NULL, 10, 0));
	SHOW(tee(a[0], b[1], 100, 0));
	SHOW(tee(a[0], b[1], 4, 0));
	SHOW(splice(a[0], NULL, b[1], NULL, 6, SPLICE_F_MOVE));
	SHOW(read(a[0], text, sizeof(text)));
	SHOW(read(b[0], text, sizeof(text)));
	say("sum %08x", sum_of((unsigned char *)text, 20));
	SHOW(read(b[0], text, sizeof(text)));
	SHOW(splice(a[0], NULL, b[1], NULL, 6, SPLICE_F_NONBLOCK));
	SHOW(splice(file, NULL, out, NULL, 6, 0));
	SHOW(splice(a[0], &at, b[1], NULL, 6, 0));
	SHOW(tee(file, b[1], 6, 0));
	MUST(write(a[1], "0123456789", 10));
	at = 4;
	SHOW(splice(a[0], NULL, out, &at, 10, 0));
	show_file("out", out);
	SHOW(fcntl(a[0], F_SETPIPE_SZ, 8192));
	SHOW(splice(file, NULL, a[1], NULL, 100000, 0));
	SHOW(splice(file, NULL, a[1], NULL, 100000, SPLICE_F_NONBLOCK));
	MUST(close(a[0]));
	signal(SIGPIPE, SIG_IGN);
	SHOW(splice(file, NULL, a[1], NULL, 10, 0));
}

static void sending(int file)
{
	int out = file_with("sent", 0), sockets[2], memory = MUST(memfd_create("copy", 0));
	unsigned char text[5000];
	off_t at = 100;

	SHOW(sendfile(out, file, &at, 5000));
	say("offset %ld, position %ld", (long)at, (long)lseek(file, 0, SEEK_CUR));
	MUST(lseek(file, BIG - 10, SEEK_SET));
	SHOW(sendfile(out, file, NULL, 5000));
	SHOW(sendfile(out, file, NULL, 5000));
	show_file("sent", out);
	MUST(lseek(file, 0, SEEK_SET));
	while (MUST(sendfile(memory, file, NULL, 1 << 20)) > 0)
		;
	show_file("memory", memory);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	at = 0;
	SHOW(sendfile(sockets[0], file, &at, 5000));
	SHOW(recv(sockets[1], text, sizeof(text), MSG_WAITALL));
	say("sum %08x", sum_of(text, sizeof(text)));
	SHOW(sendfile(file, sockets[0], NULL, 10));
	SHOW(sendfile(out, MUST(open("sent", O_WRONLY)), NULL, 10));
	SHOW(sendfile(MUST(open("sent", O_RDONLY)), file, NULL, 10));
	SHOW(sendfile(MUST(open("sent", O_WRONLY | O_APPEND)), file, NULL, 10));
}

static void copying(int file)
{
	int out = file_with("copied", 0);
	loff_t from = 1000, to = 0;

	SHOW(copy_file_range(file, &from, out, &to, 70000, 0));
	say("from %ld to %ld", (long)from, (long)to);
	show_file("copied", out);
	from = BIG;
	SHOW(copy_file_range(file, &from, out, &to, 10, 0));
	from = 0;
	to = 10;
	SHOW(copy_file_range(out, &from, out, &to, 20, 0));
	to = 100000;
	SHOW(copy_file_range(out, &from, out, &to, 20, 0));
	show_file("copied", out);
	SHOW(copy_file_range(file, &from, out, &to, 20, 1));
	SHOW(copy_file_range(file, NULL, MUST(open("copied", O_RDONLY)), NULL, 20, 0));
}

int main(int argc, char **argv)
{
	int file;

	if (argc > 1)
		return second(argv[1]);
	file = file_with("source", BIG);
	show_file("source", file);
	MUST(lseek(file, 0, SEEK_SET));
	through_a_fifo(file);
	pipes(file);
	sending(file);
	copying(file);
	for (int i = 0; i < 6; i++)
		MUST(unlink((const char *[]){"source", "fifo", "received", "out", "sent", "copied"}[i]));
	return 0;
}
