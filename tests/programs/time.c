// SPDX-License-Identifier: GPL-2.0-or-later
/* Clocks and timers: they agree, never go back, and waits are at least as long as asked, and not much longer. */
#include "show.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>

static long long now(clockid_t clock)
{
	struct timespec t;

	MUST(clock_gettime(clock, &t));
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Time since start, in the text that is the same on every machine that is not far too slow. */
static void took(const char *what, long long start, long ms)
{
	long long ns = now(CLOCK_MONOTONIC) - start;

	say("%s: %s", what,
	    ns < ms * 1000000LL		  ? "too short"
	    : ns > (ms + 500) * 1000000LL ? "too long"
					  : "as long as asked");
}

static void clocks(void)
{
	static const struct {
		const char *name;
		clockid_t clock;
	} all[] = {
		{"REALTIME", CLOCK_REALTIME},
		{"MONOTONIC", CLOCK_MONOTONIC},
		{"PROCESS_CPUTIME_ID", CLOCK_PROCESS_CPUTIME_ID},
		{"THREAD_CPUTIME_ID", CLOCK_THREAD_CPUTIME_ID},
		{"MONOTONIC_RAW", CLOCK_MONOTONIC_RAW},
		{"REALTIME_COARSE", CLOCK_REALTIME_COARSE},
		{"MONOTONIC_COARSE", CLOCK_MONOTONIC_COARSE},
		{"BOOTTIME", CLOCK_BOOTTIME},
		{"TAI", CLOCK_TAI},
		{"none", 77},
	};
	struct timespec t, resolution;
	struct timeval tv;
	long long last = 0, next;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		int result = clock_gettime(all[i].clock, &t);

		say("%s: %d %s", all[i].name, result, result ? error_name(errno) : "");
		result = clock_getres(all[i].clock, &resolution);
		if (!result && resolution.tv_nsec == 1)
			say("  to the nanosecond");
	}
	for (int i = 0; i < 1000; i++) {
		next = now(CLOCK_MONOTONIC);
		if (next < last)
			say("went back");
		last = next;
	}
	MUST(gettimeofday(&tv, NULL));
	SHOW_BOOL(llabs(tv.tv_sec * 1000000000LL + tv.tv_usec * 1000LL - now(CLOCK_REALTIME)) < 1000000000);
	SHOW_BOOL(llabs(time(NULL) - now(CLOCK_REALTIME) / 1000000000) <= 1);
	SHOW_BOOL(now(CLOCK_REALTIME) > 1700000000LL * 1000000000);
	SHOW_BOOL(llabs(now(CLOCK_BOOTTIME) - now(CLOCK_MONOTONIC)) >= 0);
	SHOW_BOOL(times(NULL) > 0);
	SHOW(syscall(SYS_time, NULL) > 1700000000);
	SHOW(syscall(SYS_gettimeofday, &tv, NULL));
	SHOW(syscall(SYS_clock_gettime, CLOCK_REALTIME, &t));
	SHOW(clock_settime(CLOCK_REALTIME, &t));
	SHOW(clock_settime(CLOCK_MONOTONIC, &t));
	SHOW(settimeofday(&tv, NULL));
}

static void sleeps(void)
{
	struct timespec t = {.tv_nsec = 20000000}, bad = {.tv_nsec = 1000000000}, until;
	struct pollfd p = {.fd = -1};
	long long start = now(CLOCK_MONOTONIC);

	SHOW(nanosleep(&t, NULL));
	took("nanosleep", start, 20);
	SHOW(nanosleep(&bad, NULL));
	bad = (struct timespec){.tv_sec = -1};
	SHOW(nanosleep(&bad, NULL));
	start = now(CLOCK_MONOTONIC);
	SHOW(clock_nanosleep(CLOCK_REALTIME, 0, &t, NULL));
	took("clock_nanosleep", start, 20);
	start = now(CLOCK_MONOTONIC);
	MUST(clock_gettime(CLOCK_MONOTONIC, &until));
	until.tv_sec += (until.tv_nsec + 30000000) / 1000000000;
	until.tv_nsec = (until.tv_nsec + 30000000) % 1000000000;
	SHOW(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL));
	took("to a point of time", start, 30);
	SHOW(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL));
	SHOW_ERROR(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &t, NULL));
	start = now(CLOCK_MONOTONIC);
	SHOW(poll(&p, 1, 25));
	took("poll", start, 25);
	start = now(CLOCK_MONOTONIC);
	SHOW(select(0, NULL, NULL, NULL, &(struct timeval){.tv_usec = 15000}));
	took("select", start, 15);
	start = now(CLOCK_MONOTONIC);
	SHOW(usleep(12000));
	took("usleep", start, 12);
	start = now(CLOCK_MONOTONIC);
	SHOW(sleep(1));
	took("sleep", start, 1000);
}

static void receive_timeouts(void)
{
	struct timeval timeout = {.tv_usec = 30000};
	long long start;
	char c;
	int fd[2];

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
	MUST(setsockopt(fd[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)));
	start = now(CLOCK_MONOTONIC);
	SHOW(recv(fd[0], &c, 1, 0));
	took("recv", start, 30);
}

static volatile sig_atomic_t rings;
static volatile int code, value;

static void ring(int signo, siginfo_t *info, void *context)
{
	(void)signo;
	(void)context;
	rings++;
	code = info->si_code;
	value = info->si_value.sival_int;
}

static void interval_timers(void)
{
	struct itimerval spec = {.it_value = {.tv_usec = 10000}, .it_interval = {.tv_usec = 5000}}, old;
	struct sigaction action = {.sa_sigaction = ring, .sa_flags = SA_SIGINFO};
	long long start = now(CLOCK_MONOTONIC);

	MUST(sigaction(SIGALRM, &action, NULL));
	SHOW(setitimer(ITIMER_REAL, &spec, NULL));
	while (rings < 4)
		pause();
	took("four rings", start, 25);
	say("code %d", code);
	SHOW(getitimer(ITIMER_REAL, &old));
	SHOW(old.it_interval.tv_usec);
	SHOW(setitimer(ITIMER_REAL, &(struct itimerval){}, &old));
	SHOW(setitimer(77, &spec, NULL));
	spec.it_value.tv_usec = 1000000;
	SHOW(setitimer(ITIMER_REAL, &spec, NULL));
	SHOW(alarm(10));
	SHOW(alarm(1));
	start = now(CLOCK_MONOTONIC);
	SHOW(pause());
	took("alarm", start, 1000);
	SHOW(alarm(0));
}

static pthread_t notified_in;

static void notified(union sigval v)
{
	value = v.sival_int;
	notified_in = pthread_self();
	rings++;
}

static void posix_timers(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 1234};
	struct itimerspec spec = {.it_value = {.tv_nsec = 10000000}}, left;
	struct sigaction action = {.sa_sigaction = ring, .sa_flags = SA_SIGINFO};
	sigset_t set;
	timer_t timer;

	MUST(sigaction(SIGUSR1, &action, NULL));
	SHOW(timer_create(CLOCK_MONOTONIC, &event, &timer));
	SHOW(timer_settime(timer, 0, &spec, NULL));
	SHOW(timer_gettime(timer, &left));
	SHOW_BOOL(left.it_value.tv_nsec > 0 && left.it_value.tv_nsec <= 10000000);
	rings = 0;
	while (!rings)
		pause();
	say("code %d value %d overrun %d", code, value, timer_getoverrun(timer));
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	MUST(sigprocmask(SIG_BLOCK, &set, NULL));
	spec.it_interval.tv_nsec = 1000000;
	MUST(timer_settime(timer, 0, &spec, NULL));
	usleep(50000);
	MUST(sigprocmask(SIG_UNBLOCK, &set, NULL));
	SHOW_BOOL(timer_getoverrun(timer) >= 30);
	SHOW(timer_delete(timer));
	SHOW(syscall(SYS_timer_delete, 77));
	SHOW(timer_create(77, &event, &timer));
	event = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = notified};
	event.sigev_value.sival_int = 99;
	SHOW(timer_create(CLOCK_REALTIME, &event, &timer));
	rings = 0;
	spec.it_interval.tv_nsec = 0;
	MUST(timer_settime(timer, 0, &spec, NULL));
	while (!rings)
		usleep(1000);
	say("value %d, in a thread of its own: %s", value, notified_in != pthread_self() ? "yes" : "no");
}

int main(void)
{
	clocks();
	sleeps();
	receive_timeouts();
	interval_timers();
	posix_timers();
	return 0;
}
