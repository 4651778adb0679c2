// SPDX-License-Identifier: GPL-2.0-or-later
/* Who a process is and what it may: users, capabilities, limits, priorities, scheduling, names of the system. */
#include "show.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static void users(void)
{
	uid_t real, effective, saved, uid = getuid();
	gid_t groups[64];

	SHOW(getresuid(&real, &effective, &saved));
	SHOW_BOOL(real == uid && effective == uid && saved == uid);
	SHOW_BOOL(getuid() == geteuid() && getgid() == getegid());
	SHOW_BOOL(uid != 0);
	SHOW(setuid(0));
	SHOW(setuid(uid));
	SHOW(seteuid(0));
	SHOW(setresuid(-1, -1, -1));
	SHOW(setresuid(0, -1, -1));
	SHOW(setgid(0));
	SHOW(setreuid(uid, uid));
	SHOW_BOOL(setfsuid(0) == (int)uid && setfsuid(-1) == (int)uid);
	SHOW(setgroups(0, NULL));
	SHOW_BOOL(getgroups(64, groups) >= 0);
	SHOW(getgroups(-1, groups));
}

static void capabilities(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	SHOW(syscall(SYS_capget, &head, data));
	say("effective %x permitted %x inheritable %x", data[0].effective, data[0].permitted, data[0].inheritable);
	data[0].effective = 1;
	SHOW(syscall(SYS_capset, &head, data));
	head.version = 77;
	SHOW(syscall(SYS_capget, &head, data));
	SHOW_BOOL(head.version == _LINUX_CAPABILITY_VERSION_3);
	SHOW(prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN));
	SHOW(prctl(PR_CAPBSET_READ, 99));
	SHOW(prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN));
}

static void forbidden(void)
{
	SHOW(mount("none", ".", "tmpfs", 0, NULL));
	SHOW(umount("/proc"));
	SHOW(sethostname("x", 1));
	SHOW(syscall(SYS_reboot, 0xfee1dead, 672274793, 0x01234567, 0));
	SHOW(syscall(SYS_pivot_root, ".", "."));
	SHOW(syscall(SYS_syslog, 5, NULL, 0));
	SHOW(nice(-5));
	SHOW(setpriority(PRIO_PROCESS, 1, 5));
	SHOW(kill(1, SIGKILL));
	SHOW(kill(1, 0));
}

static void prctls(void)
{
	char name[17] = "";
	int value = -1;

	SHOW(prctl(PR_SET_NAME, "a name that is too long"));
	SHOW(prctl(PR_GET_NAME, name));
	say("%s", name);
	SHOW(prctl(PR_GET_DUMPABLE));
	SHOW(prctl(PR_SET_DUMPABLE, 0));
	SHOW(prctl(PR_GET_DUMPABLE));
	SHOW(prctl(PR_SET_DUMPABLE, 2));
	SHOW(prctl(PR_SET_DUMPABLE, 1));
	SHOW(prctl(PR_SET_PDEATHSIG, SIGHUP));
	SHOW(prctl(PR_GET_PDEATHSIG, &value));
	say("%d", value);
	SHOW(prctl(PR_SET_PDEATHSIG, 77));
	SHOW(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	SHOW(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	SHOW(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	SHOW(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
	SHOW(prctl(PR_GET_KEEPCAPS));
	SHOW(prctl(PR_SET_KEEPCAPS, 1));
	SHOW(prctl(PR_GET_SECUREBITS));
	SHOW(prctl(PR_SET_TIMERSLACK, 12345));
	SHOW(prctl(PR_GET_TIMERSLACK));
	SHOW(prctl(PR_SET_TIMERSLACK, 0));
	SHOW(prctl(PR_GET_CHILD_SUBREAPER, &value));
	say("%d", value);
	SHOW(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
	SHOW(prctl(PR_GET_SECCOMP));
	SHOW(prctl(77777));
	SHOW(prctl(PR_SET_NAME, (char *)8));
	SHOW(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
}

static void limits(void)
{
	static const int all[] = {RLIMIT_CORE,	RLIMIT_CPU,	 RLIMIT_DATA,  RLIMIT_FSIZE,	 RLIMIT_MEMLOCK,
				  RLIMIT_NICE,	RLIMIT_NOFILE,	 RLIMIT_NPROC, RLIMIT_RSS,	 RLIMIT_RTPRIO,
				  RLIMIT_STACK, RLIMIT_MSGQUEUE, RLIMIT_AS,    RLIMIT_SIGPENDING};
	struct rlimit limit, other;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (getrlimit(all[i], &limit) || limit.rlim_cur > limit.rlim_max)
			say("limit %d is odd", all[i]);
	MUST(getrlimit(RLIMIT_STACK, &limit));
	SHOW(limit.rlim_cur);
	MUST(getrlimit(RLIMIT_CORE, &limit));
	limit.rlim_cur = 0;
	SHOW(setrlimit(RLIMIT_CORE, &limit));
	MUST(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 20;
	SHOW(setrlimit(RLIMIT_NOFILE, &limit));
	SHOW(dup2(0, 20));
	SHOW(dup2(0, 19));
	for (int i = 0; i < 30; i++)
		if (dup(0) < 0) {
			say("%d of them: %s", i, error_name(errno));
			break;
		}
	SHOW(getdtablesize());
	other = limit;
	other.rlim_max = limit.rlim_cur - 1;
	SHOW(setrlimit(RLIMIT_NOFILE, &other));
	other = limit;
	other.rlim_max++;
	SHOW(setrlimit(RLIMIT_NOFILE, &other));
	SHOW(getrlimit(77, &limit));
	SHOW(prlimit(0, RLIMIT_NOFILE, NULL, &other));
	SHOW_BOOL(other.rlim_cur == 20);
	SHOW(prlimit(1, RLIMIT_NOFILE, &other, NULL));
	for (int i = 3; i < 20; i++)
		close(i);
}

static void scheduling(void)
{
	struct sched_param param = {.sched_priority = 0};
	struct timespec interval;
	cpu_set_t set;

	SHOW(getpriority(PRIO_PROCESS, 0));
	SHOW(nice(5));
	SHOW(getpriority(PRIO_PROCESS, 0));
	SHOW(setpriority(PRIO_PROCESS, 0, 100));
	SHOW(getpriority(PRIO_PROCESS, 0));
	SHOW(setpriority(PRIO_PROCESS, 0, 0));
	SHOW(getpriority(77, 0));
	SHOW(sched_getscheduler(0));
	SHOW(sched_setscheduler(0, SCHED_BATCH, &param));
	SHOW(sched_getscheduler(0));
	param.sched_priority = 5;
	SHOW(sched_setscheduler(0, SCHED_FIFO, &param));
	SHOW(sched_setscheduler(0, SCHED_OTHER, &param));
	SHOW(sched_getparam(0, &param));
	SHOW(param.sched_priority);
	SHOW(sched_get_priority_max(SCHED_FIFO));
	SHOW(sched_get_priority_min(SCHED_RR));
	SHOW(sched_rr_get_interval(0, &interval));
	SHOW(sched_yield());
	SHOW(sched_getaffinity(0, sizeof(set), &set));
	SHOW_BOOL(CPU_COUNT(&set) >= 1);
	SHOW(sched_setaffinity(0, sizeof(set), &set));
	CPU_ZERO(&set);
	SHOW(sched_setaffinity(0, sizeof(set), &set));
	SHOW(sched_getaffinity(0, 1, &set));
	SHOW_BOOL(sched_getcpu() >= 0);
	SHOW_BOOL(sysconf(_SC_NPROCESSORS_ONLN) >= 1);
}

static void names(void)
{
	struct utsname name;
	struct sysinfo info;
	unsigned char a[64], b[64] = {0};

	SHOW(uname(&name));
	say("%s %s", name.sysname, name.machine);
	SHOW_BOOL(strlen(name.release) > 3 && strlen(name.version) > 3 && strlen(name.nodename) > 0);
	SHOW(sysinfo(&info));
	SHOW_BOOL(info.totalram > info.freeram && info.procs > 0 && info.mem_unit > 0);
	SHOW(personality(0xffffffff));
	SHOW(personality(ADDR_NO_RANDOMIZE));
	SHOW(personality(0xffffffff));
	SHOW(getrandom(a, sizeof(a), 0));
	SHOW(getrandom(b, sizeof(b), GRND_NONBLOCK));
	SHOW_BOOL(memcmp(a, b, sizeof(a)) != 0);
	SHOW(getrandom(a, 8, 77));
	SHOW(getrandom((void *)8, 8, 0));
	SHOW(getentropy(a, 300));
	SHOW(sysconf(_SC_PAGESIZE));
	SHOW(sysconf(_SC_CLK_TCK));
	SHOW(sysconf(_SC_OPEN_MAX) > 0);
	SHOW(sysconf(_SC_ARG_MAX));
	SHOW(gethostname((char *)a, 1));
	SHOW_BOOL(getpid() > 1 && getppid() >= 0 && gettid() == getpid());
	SHOW(syscall(SYS_getcpu, NULL, NULL, NULL));
	SHOW(syscall(5000));
	SHOW(syscall(-1L));
	SHOW(syscall(SYS_uselib, "x"));
	SHOW(syscall(SYS_nfsservctl));
	SHOW(syscall(SYS_set_tid_address, NULL) == gettid());
}

int main(void)
{
	users();
	capabilities();
	forbidden();
	prctls();
	limits();
	scheduling();
	names();
	return 0;
}
