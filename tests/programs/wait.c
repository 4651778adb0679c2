// SPDX-License-Identifier: GPL-2.0-or-later
/* Children: waiting for them in all ways, their ends, signals about them, groups, orphans. */
#include "show.h"

#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;
static volatile sig_atomic_t told, code;

static void on_child(int signo, siginfo_t *info, void *context)
{
	(void)signo;
	(void)context;
	told++;
	code = info->si_code;
}

static pid_t shell(const char *command)
{
	pid_t pid;

	MUST(posix_spawn(&pid, "/bin/sh", NULL, NULL, (char *[]){"sh", "-c", (char *)command, NULL}, environ) ? -1 : 0);
	return pid;
}

static void show_status(int status)
{
	if (WIFEXITED(status))
		say("exited %d", WEXITSTATUS(status));
	else if (WIFSIGNALED(status))
		say("killed by %d", WTERMSIG(status));
	else if (WIFSTOPPED(status))
		say("stopped by %d", WSTOPSIG(status));
	else if (WIFCONTINUED(status))
		say("continued");
}

static void ends(void)
{
	static const char *const commands[] = {"exit 0",	"exit 3",	 "exit 256",
					       "kill -TERM $$", "kill -KILL $$", "kill -SEGV $$"};
	struct rusage usage;
	int status;
	pid_t pid;

	SHOW(wait(&status));
	SHOW(waitpid(-1, &status, WNOHANG));
	SHOW(waitpid(1, &status, 0));
	for (int i = 0; i < 6; i++) {
		pid = shell(commands[i]);
		SHOW_BOOL(waitpid(pid, &status, 0) == pid);
		show_status(status & ~0x80);
	}
	SHOW(waitpid(pid, &status, 0));
	pid = shell("exit 7");
	SHOW_BOOL(wait4(pid, &status, 0, &usage) == pid);
	SHOW_BOOL(usage.ru_maxrss >= 0);
	SHOW(waitpid(-1, &status, 0x40));
	SHOW(waitpid(0x7ffffff, &status, 0));
}

static void by_id(void)
{
	siginfo_t info;
	pid_t pid = shell("exit 9");

	SHOW(waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
	say("code %d status %d, %s", info.si_code, info.si_status, info.si_pid == pid ? "of the child" : "of another");
	SHOW(waitid(P_PID, pid, &info, WEXITED));
	SHOW(waitid(P_PID, pid, &info, WEXITED));
	SHOW(waitid(P_PID, pid, &info, 0));
	SHOW(waitid(77, pid, &info, WEXITED));
	pid = shell("sleep 100");
	info.si_pid = 5;
	SHOW(waitid(P_ALL, 0, &info, WEXITED | WNOHANG));
	say("pid %d", info.si_pid);
	SHOW(kill(pid, SIGKILL));
	SHOW(waitid(P_ALL, 0, &info, WEXITED));
	say("code %d status %d", info.si_code, info.si_status);
}

static void stopping(void)
{
	pid_t pid = shell("sleep 100");
	int status;

	usleep(50000);
	SHOW(kill(pid, SIGSTOP));
	SHOW_BOOL(waitpid(pid, &status, WUNTRACED) == pid);
	show_status(status);
	SHOW(waitpid(pid, &status, WNOHANG | WUNTRACED));
	SHOW(kill(pid, SIGCONT));
	SHOW_BOOL(waitpid(pid, &status, WCONTINUED) == pid);
	show_status(status);
	SHOW(kill(pid, SIGSTOP));
	SHOW(kill(pid, SIGKILL));
	SHOW_BOOL(waitpid(pid, &status, 0) == pid);
	show_status(status);
}

static void telling(void)
{
	struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_NOCLDSTOP};
	sigset_t set, none;
	int status;
	pid_t pid;

	sigemptyset(&none);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	MUST(sigprocmask(SIG_BLOCK, &set, NULL));
	MUST(sigaction(SIGCHLD, &action, NULL));
	pid = shell("exit 4");
	SHOW(sigsuspend(&none));
	say("told %d, code %d", told, code);
	SHOW_BOOL(waitpid(pid, &status, WNOHANG) == pid);
	pid = shell("kill -KILL $$");
	SHOW(sigsuspend(&none));
	say("told %d, code %d", told, code);
	SHOW_BOOL(wait(&status) == pid);
	MUST(sigprocmask(SIG_UNBLOCK, &set, NULL));
	/* Nobody waits for the children of a process that ignores them. */
	signal(SIGCHLD, SIG_IGN);
	shell("exit 5");
	SHOW(wait(&status));
	action.sa_flags |= SA_NOCLDWAIT;
	MUST(sigaction(SIGCHLD, &action, NULL));
	shell("exit 5");
	do {
		errno = 0;
	} while (wait(&status) < 0 && errno == EINTR);
	say("%s", error_name(errno));
	signal(SIGCHLD, SIG_DFL);
}

static void groups(void)
{
	posix_spawnattr_t attr;
	int status;
	pid_t first, second;

	SHOW_BOOL(getpgrp() == getpgid(0) && getpgid(getpid()) == getpgrp());
	SHOW_BOOL(getsid(0) == getpid() && getpgrp() == getpid());
	SHOW(setsid());
	SHOW(setpgid(0, 0x7ffffff));
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
	MUST(posix_spawnp(&first, "sleep", NULL, &attr, (char *[]){"sleep", "100", NULL}, environ) ? -1 : 0);
	posix_spawnattr_setpgroup(&attr, first);
	MUST(posix_spawnp(&second, "sleep", NULL, &attr, (char *[]){"sleep", "100", NULL}, environ) ? -1 : 0);
	SHOW_BOOL(getpgid(first) == first && getpgid(second) == first);
	SHOW(setpgid(first, 0));
	SHOW(waitpid(0, &status, WNOHANG));
	SHOW(waitpid(-first, &status, WNOHANG));
	SHOW(kill(-first, SIGTERM));
	SHOW_BOOL(waitpid(-first, &status, 0) > 0);
	SHOW_BOOL(waitpid(-first, &status, 0) > 0);
	SHOW(waitpid(-first, &status, 0));
	SHOW(kill(-first, 0));
}

/* A grandchild that outlives its parent becomes ours if we ask for it. */
static void adoption(void)
{
	int status, count = 0;

	SHOW(prctl(PR_SET_CHILD_SUBREAPER, 1));
	shell("(sleep 0.2; exit 6) & exit 0");
	while (wait(&status) > 0) {
		count++;
		show_status(status);
	}
	say("%d of them", count);
}

int main(void)
{
	ends();
	by_id();
	stopping();
	telling();
	groups();
	adoption();
	return 0;
}
