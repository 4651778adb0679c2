// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie no-pie static static-pie
/* Pipes and FIFOs: order, capacity, atomic writes, ends that go, splice and tee. */
#include "show.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

static char big[1 << 20];

static void basics(void)
{
	struct stat st;
	char buf[16];
	int fd[2], left;

	SHOW(pipe(fd));
	SHOW(write(fd[1], "hello", 5));
	SHOW(ioctl(fd[0], FIONREAD, &left));
	say("%d bytes to read", left);
	SHOW(read(fd[0], buf, 3));
	SHOW(read(fd[0], buf + 3, sizeof(buf) - 3));
	say("%.5s", buf);
	SHOW(lseek(fd[0], 0, SEEK_CUR));
	SHOW(pread(fd[0], buf, 1, 0));
	SHOW(read(fd[1], buf, 1));
	SHOW(write(fd[0], buf, 1));
	MUST(fstat(fd[0], &st));
	SHOW_BOOL(S_ISFIFO(st.st_mode));
	say("mode %o, %lu links", st.st_mode & 07777, (unsigned long)st.st_nlink);
	SHOW(fcntl(fd[0], F_GETFL));
	SHOW(fcntl(fd[1], F_GETFL));
	SHOW(ftruncate(fd[1], 0));
	SHOW(fsync(fd[1]));
	SHOW(close(fd[1]));
	SHOW(read(fd[0], buf, 1));
	SHOW(close(fd[0]));
}

static void flags(void)
{
	char buf[4096];
	int fd[2];

	SHOW(pipe2(fd, O_CLOEXEC | O_NONBLOCK));
	SHOW(fcntl(fd[0], F_GETFD));
	SHOW(read(fd[0], buf, 1));
	SHOW(fcntl(fd[0], F_GETPIPE_SZ));
	SHOW(write(fd[1], big, sizeof(big)));
	SHOW(write(fd[1], big, 1));
	SHOW(read(fd[0], big, 4095));
	SHOW(write(fd[1], big, 4096));
	SHOW(read(fd[0], big, 4097));
	SHOW(write(fd[1], big, 4096));
	SHOW(fcntl(fd[0], F_SETPIPE_SZ, 4096));
	while (read(fd[0], big, sizeof(big)) > 0)
		;
	SHOW(fcntl(fd[0], F_SETPIPE_SZ, 5000));
	SHOW(write(fd[1], big, sizeof(big)));
	SHOW(fcntl(fd[0], F_SETPIPE_SZ, 0));
	SHOW(pipe2(fd, O_APPEND));
	close(fd[0]);
	close(fd[1]);
	/* Packets: a read takes one at most, and what does not fit is lost. */
	SHOW(pipe2(fd, O_DIRECT));
	SHOW(write(fd[1], "one", 3));
	SHOW(write(fd[1], "second", 6));
	SHOW(read(fd[0], buf, 2));
	SHOW(read(fd[0], buf, sizeof(buf)));
	close(fd[0]);
	close(fd[1]);
}

static volatile sig_atomic_t caught;

static void on_signal(int signo)
{
	caught = signo;
}

static void broken(void)
{
	struct pollfd p;
	int fd[2];

	MUST(pipe(fd));
	p = (struct pollfd){.fd = fd[1], .events = POLLOUT};
	SHOW(poll(&p, 1, 0));
	say("writer: %#x", p.revents);
	close(fd[0]);
	SHOW(poll(&p, 1, 0));
	say("writer without reader: %#x", p.revents);
	signal(SIGPIPE, SIG_IGN);
	SHOW(write(fd[1], "x", 1));
	signal(SIGPIPE, on_signal);
	SHOW(write(fd[1], "x", 1));
	say("signal %d", caught);
	close(fd[1]);
	MUST(pipe(fd));
	p = (struct pollfd){.fd = fd[0], .events = POLLIN};
	SHOW(poll(&p, 1, 0));
	SHOW(write(fd[1], "x", 1));
	SHOW(poll(&p, 1, 0));
	say("reader: %#x", p.revents);
	close(fd[1]);
	SHOW(poll(&p, 1, 0));
	say("reader without writer: %#x", p.revents);
	close(fd[0]);
}

static void fifos(void)
{
	char buf[16];
	int in, out;

	SHOW(mkfifo("fifo", 0600));
	SHOW(mkfifo("fifo", 0600));
	SHOW(open("fifo", O_WRONLY | O_NONBLOCK));
	in = SHOW(open("fifo", O_RDONLY | O_NONBLOCK));
	SHOW(read(in, buf, 1));
	out = SHOW(open("fifo", O_WRONLY));
	SHOW(read(in, buf, 1));
	SHOW(write(out, "fifo", 4));
	SHOW(read(in, buf, sizeof(buf)));
	close(in);
	close(out);
	in = SHOW(open("fifo", O_RDWR));
	SHOW(write(in, "both", 4));
	SHOW(read(in, buf, sizeof(buf)));
	close(in);
	SHOW(unlink("fifo"));
}

static void splices(void)
{
	int a[2], b[2], file;
	char buf[64] = "";
	struct iovec vec[2] = {{buf, 3}, {buf + 10, 20}};
	loff_t at = 2;

	MUST(pipe(a));
	MUST(pipe(b));
	file = MUST(open("spliced", O_RDWR | O_CREAT | O_TRUNC, 0600));
	MUST(write(file, "0123456789", 10));
	SHOW(splice(file, &at, a[1], NULL, 5, 0));
	say("offset %ld", (long)at);
	SHOW(tee(a[0], b[1], 3, 0));
	SHOW(read(b[0], buf, sizeof(buf)));
	say("%.3s", buf);
	SHOW(readv(a[0], vec, 2));
	say("%.3s %.2s", buf, buf + 10);
	SHOW(writev(a[1], vec, 2));
	SHOW(lseek(file, 0, SEEK_SET));
	SHOW(splice(a[0], NULL, file, NULL, 100, 0));
	SHOW(lseek(file, 0, SEEK_CUR));
	SHOW(splice(a[0], NULL, b[1], NULL, 100, SPLICE_F_NONBLOCK));
	SHOW(splice(file, NULL, file, NULL, 1, 0));
	SHOW(tee(a[0], file, 1, 0));
	SHOW(unlink("spliced"));
}

int main(void)
{
	basics();
	flags();
	broken();
	fifos();
	splices();
	return 0;
}
