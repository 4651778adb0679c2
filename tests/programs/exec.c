// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie no-pie static
/* Running programs: what passes through execve and what does not, its limits, scripts, other ways in. */
#include "show.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;
static char self[PATH_MAX];

/* The part of the program that is run by the other part. */
static int child(int argc, char **argv)
{
	sigset_t set;
	stack_t stack;
	struct sigaction action;

	if (!strncmp(argv[1], "arguments", 9)) {
		for (int i = 1; i < argc; i++)
			say("argument %d: \"%s\"", i, argv[i]);
		for (char **e = environ; *e; e++)
			say("environment: %s", *e);
	} else if (!strcmp(argv[1], "state")) {
		for (int fd = 3; fd < 12; fd++)
			if (fcntl(fd, F_GETFD) >= 0)
				say("fd %d is open", fd);
		sigprocmask(SIG_BLOCK, NULL, &set);
		say("SIGUSR1 blocked: %d, SIGUSR2 blocked: %d", sigismember(&set, SIGUSR1), sigismember(&set, SIGUSR2));
		sigpending(&set);
		say("SIGUSR1 pending: %d", sigismember(&set, SIGUSR1));
		sigaction(SIGTERM, NULL, &action);
		say("SIGTERM ignored: %d", action.sa_handler == SIG_IGN);
		sigaction(SIGHUP, NULL, &action);
		say("SIGHUP default: %d", action.sa_handler == SIG_DFL);
		sigaltstack(NULL, &stack);
		say("other stack: %d", stack.ss_flags);
		say("umask %o, priority %d", umask(0), getpriority(PRIO_PROCESS, 0));
		say("alone: %d", gettid() == getpid());
	} else if (!strcmp(argv[1], "count")) {
		size_t bytes = 0;

		for (int i = 0; i < argc; i++)
			bytes += strlen(argv[i]) + 1;
		say("%d arguments, %zu bytes", argc, bytes - strlen(argv[0]));
	} else if (!strcmp(argv[1], "name")) {
		say("execfn ends in %s", strrchr((const char *)getauxval(AT_EXECFN), '/'));
		say("secure %lu, page %lu", getauxval(AT_SECURE), getauxval(AT_PAGESZ));
	} else if (!strcmp(argv[1], "exit")) {
		return atoi(argv[2]);
	}
	return 0;
}

static void wait_for(pid_t pid)
{
	int status;

	MUST(waitpid(pid, &status, 0));
	if (WIFSIGNALED(status))
		say("killed by %d", WTERMSIG(status));
	else
		say("exit %d", WEXITSTATUS(status));
}

/* Runs a path with arguments by vfork and execve; says what execve answers if it fails. */
static int run(const char *path, char *const argv[], char *const envp[])
{
	static volatile int error;
	pid_t pid;

	error = 0;
	pid = vfork();
	if (pid == 0) {
		execve(path, argv, envp);
		error = errno;
		_exit(127);
	}
	MUST(pid);
	if (error)
		say("execve: %s", error_name(error));
	wait_for(pid);
	return error;
}

#define RUN(...) run(self, (char *[]){self, __VA_ARGS__, NULL}, (char *[]){"A=1", "B=two words", NULL})

static void put(const char *path, const char *text, mode_t mode)
{
	int fd = MUST(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));

	MUST(write(fd, text, strlen(text)));
	MUST(fchmod(fd, mode));
	MUST(close(fd));
}

static void passing(void)
{
	static char other_stack[16384];
	stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof(other_stack)}, none = {.ss_flags = SS_DISABLE};
	sigset_t set;
	int fd = MUST(open("/dev/null", O_RDONLY)), keep = MUST(fcntl(fd, F_DUPFD, 9));

	RUN("arguments", "", "with spaces", "\303\244\n");
	run(self, (char *[]){self, "arguments", NULL}, (char *[]){NULL});
	run(self, (char *[]){self, "arguments", NULL}, NULL);
	MUST(fcntl(fd, F_SETFD, FD_CLOEXEC));
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	MUST(sigprocmask(SIG_BLOCK, &set, NULL));
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, (void (*)(int))wait_for);
	MUST(sigaltstack(&stack, NULL));
	umask(031);
	RUN("state");
	umask(022);
	MUST(sigaltstack(&none, NULL));
	MUST(sigprocmask(SIG_UNBLOCK, &set, NULL));
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	close(fd);
	close(keep);
	RUN("name");
	RUN("exit", "42");
}

static void refusals(void)
{
	char *argv[] = {"x", NULL};

	run("none", argv, environ);
	run("", argv, environ);
	run("/", argv, environ);
	put("plain", "text", 0644);
	run("plain", argv, environ);
	put("text", "no interpreter is named here", 0755);
	run("text", argv, environ);
	put("empty", "", 0755);
	run("empty", argv, environ);
	put("elf", "\177ELF and then nothing", 0755);
	run("elf", argv, environ);
	run("plain/x", argv, environ);
	run((char *)8, argv, environ);
	run(self, (char **)8, environ);
	run(self, (char *[]){"x", (char *)8, NULL}, environ);
	run(self, argv, (char *[]){(char *)8, NULL});
	unlink("plain");
	unlink("text");
	unlink("empty");
	unlink("elf");
}

static void scripts(void)
{
	char text[PATH_MAX + 64];

	sprintf(text, "#!%s arguments and more  \n", self);
	put("script", text, 0755);
	run("./script", (char *[]){"zero", "one", "two", NULL}, (char *[]){NULL});
	sprintf(text, "#!  %s\n", self);
	put("script", text, 0755);
	run("script", (char *[]){"zero", "exit", "3", NULL}, (char *[]){NULL});
	put("nested", "#!script\n", 0755);
	run("nested", (char *[]){"zero", NULL}, (char *[]){NULL});
	put("script", "#!/no/such/interpreter\n", 0755);
	run("script", (char *[]){"zero", NULL}, (char *[]){NULL});
	put("script", "#!\n", 0755);
	run("script", (char *[]){"zero", NULL}, (char *[]){NULL});
	put("loop", "#!loop\n", 0755);
	run("loop", (char *[]){"zero", NULL}, (char *[]){NULL});
	put("script", "#!/bin/sh\necho \"shell: $0 $1\" >&1\nexit 5\n", 0755);
	run("./script", (char *[]){"zero", "one", NULL}, (char *[]){NULL});
	unlink("script");
	unlink("nested");
	unlink("loop");
}

static void limits(void)
{
	enum { MANY = 20000 };
	static char *argv[MANY + 4];
	char *big = malloc(200000);

	argv[0] = self;
	argv[1] = "count";
	for (int i = 2; i < MANY; i++)
		argv[i] = "an argument of some length";
	run(self, argv, (char *[]){NULL});
	/* One string may have 32 pages. */
	memset(big, 'x', 200000);
	big[131071] = 0;
	run(self, (char *[]){self, "count", big, NULL}, (char *[]){NULL});
	big[131071] = 'x';
	big[131072] = 0;
	run(self, (char *[]){self, "count", big, NULL}, (char *[]){NULL});
	/* And all together a quarter of the stack's limit, 2 MiB of the usual 8. */
	big[131072] = 'x';
	big[120000] = 0;
	for (int i = 2; i < 16; i++)
		argv[i] = big;
	argv[16] = NULL;
	run(self, argv, (char *[]){NULL});
	for (int i = 16; i < 40; i++)
		argv[i] = big;
	argv[40] = NULL;
	run(self, argv, (char *[]){NULL});
	free(big);
}

static void other_ways(void)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t set;
	pid_t pid;
	int fd = MUST(open(self, O_RDONLY | O_CLOEXEC)), dir, copy;
	char buf[65536];
	ssize_t len;

	pid = vfork();
	if (pid == 0) {
		fexecve(fd, (char *[]){"x", "exit", "6", NULL}, environ);
		_exit(127);
	}
	wait_for(pid);
	pid = vfork();
	if (pid == 0) {
		syscall(SYS_execveat, fd, "", (char *[]){"x", "exit", "7", NULL}, environ, 0);
		_exit(errno == ENOENT ? 100 : 101);
	}
	wait_for(pid);
	dir = MUST(open("/bin", O_PATH | O_DIRECTORY | O_CLOEXEC));
	pid = vfork();
	if (pid == 0) {
		syscall(SYS_execveat, dir, "true", (char *[]){"true", NULL}, environ, 0);
		_exit(100);
	}
	wait_for(pid);
	/* A program that is written to cannot run, and one that runs cannot be written to. */
	copy = MUST(open("copy", O_RDWR | O_CREAT | O_CLOEXEC, 0755));
	while ((len = read(fd, buf, sizeof(buf))) > 0)
		MUST(write(copy, buf, len));
	run("copy", (char *[]){"copy", "exit", "9", NULL}, environ);
	close(copy);
	run("copy", (char *[]){"copy", "exit", "9", NULL}, environ);
	/* To run a program, nobody has to be allowed to read it. */
	MUST(chmod("copy", 0111));
	SHOW(open("copy", O_RDONLY));
	run("copy", (char *[]){"copy", "exit", "10", NULL}, environ);
	MUST(chmod("copy", 0444));
	run("copy", (char *[]){"copy", "exit", "11", NULL}, environ);
	MUST(chmod("copy", 06755));
	run("copy", (char *[]){"copy", "name", NULL}, environ);
	SHOW(open(self, O_WRONLY));
	unlink("copy");
	close(dir);
	close(fd);

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 7, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, 7, 8);
	posix_spawn_file_actions_addclose(&actions, 7);
	posix_spawn_file_actions_addchdir_np(&actions, "/");
	posix_spawnattr_init(&attr);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	posix_spawnattr_setsigmask(&attr, &set);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
	MUST(posix_spawn(&pid, self, &actions, &attr, (char *[]){self, "state", NULL}, environ) ? -1 : 0);
	wait_for(pid);
	SHOW_ERROR(posix_spawn(&pid, "none", NULL, NULL, (char *[]){"x", NULL}, environ));
	SHOW_ERROR(posix_spawnp(&pid, "true", NULL, NULL, (char *[]){"x", NULL}, environ));
	wait_for(pid);
}

static void *hang(void *argument)
{
	for (;;)
		pause();
	return argument;
}

static void *replace(void *argument)
{
	execve(self, (char *[]){self, "state", NULL}, (char *[]){NULL});
	return argument;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	self[MUST(readlink("/proc/self/exe", self, sizeof(self) - 1))] = 0;
	if (argc > 1)
		return child(argc, argv);
	passing();
	refusals();
	scripts();
	limits();
	other_ways();
	/* Of several threads, the one that calls execve becomes the process. */
	pthread_create(&thread, NULL, hang, NULL);
	pthread_create(&thread, NULL, replace, NULL);
	hang(NULL);
}
