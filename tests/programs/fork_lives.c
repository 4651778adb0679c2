// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* Children that exit, exec, are killed, are stopped, and outlive their parent. */
#include "fork.h"

#include <signal.h>
#include <spawn.h>

extern char **environ;

static volatile sig_atomic_t died, poked;
static void *volatile nowhere;

static void on_child(int signo)
{
	died += signo == SIGCHLD;
}

static void on_poke(int signo, siginfo_t *info, void *context)
{
	poked += info->si_pid == getppid() && context && signo;
}

static void exec_and_wait(void)
{
	char *said[] = {"sh", "-c", "echo from sh $0; exit 6", "$x", NULL};
	int status, out[2];
	char text[64];
	pid_t pid;

	CHECK(pipe(out) == 0);
	pid = MUST(fork());
	if (!pid) {
		dup2(out[1], 1);
		execv("/bin/sh", said);
		_exit(98);
	}
	CHECK(reap(pid) == 6);
	status = read(out[0], text, sizeof(text));
	CHECK(status > 0);
	say("%.*s", status - 1, text);
	/* vfork and posix_spawn in a program that has forked, and in its child. */
	for (volatile int i = 0; i < 2; i++) {
		volatile pid_t forked = i ? MUST(fork()) : -1;

		if (forked > 0) {
			CHECK(reap(forked) == 4);
			continue;
		}
		CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, (char *[]){"true", NULL}, environ) == 0);
		CHECK(reap(pid) == 0);
		pid = vfork();
		if (!pid)
			_exit(44);
		CHECK(reap(pid) == 44);
		if (!forked)
			_exit(4);
	}
}

static void signals(void)
{
	struct sigaction poke = {.sa_sigaction = on_poke, .sa_flags = SA_SIGINFO};
	int ready[2], status;
	sigset_t usr1, old;
	pid_t pid;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	CHECK(pipe(ready) == 0 && sigaction(SIGUSR1, &poke, NULL) == 0);
	sigprocmask(SIG_BLOCK, &usr1, &old);
	pid = MUST(fork());
	if (!pid) {
		tell(ready[1]);
		sigsuspend(&old);
		CHECK(poked == 1);
		signal(SIGTERM, SIG_DFL);
		tell(ready[1]);
		for (;;)
			pause();
	}
	await(ready[0]);
	CHECK(kill(pid, SIGUSR1) == 0);
	await(ready[0]);
	CHECK(kill(pid, SIGSTOP) == 0 && waitpid(pid, &status, WUNTRACED) == pid);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	CHECK(kill(pid, SIGCONT) == 0 && waitpid(pid, &status, WCONTINUED) == pid && WIFCONTINUED(status));
	CHECK(kill(pid, SIGTERM) == 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	CHECK(poked == 0);
	sigprocmask(SIG_SETMASK, &old, NULL);
	pid = MUST(fork());
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile int *)nowhere = 1;
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	say("signals: %d children gone", died > 0);
}

static void orphan(void)
{
	int out[2];
	char text[32] = "";
	pid_t pid;

	CHECK(pipe(out) == 0);
	pid = MUST(fork());
	if (!pid) {
		pid_t parent = getpid();

		if (!MUST(fork())) {
			while (getppid() == parent)
				usleep(1000);
			CHECK(write(out[1], "a child of init", 15) == 15);
			_exit(0);
		}
		_exit(7);
	}
	CHECK(reap(pid) == 7);
	close(out[1]);
	CHECK(read(out[0], text, 15) == 15);
	/* The end of the pipe: it is gone. */
	CHECK(read(out[0], text + 20, 1) == 0);
	say("%s", text);
}

int main(void)
{
	struct sigaction child = {.sa_handler = on_child, .sa_flags = SA_RESTART};

	CHECK(sigaction(SIGCHLD, &child, NULL) == 0);
	exec_and_wait();
	signals();
	orphan();
	for (int i = 0; i < 3; i++)
		if (!MUST(fork()))
			_exit(i);
	while (wait(NULL) > 0)
		;
	CHECK(errno == ECHILD);
	say("lives: good");
	return 0;
}
