// SPDX-License-Identifier: GPL-2.0-or-later
// variants: pie static
/* Threads: starting and joining, their own storage, locks of all kinds, cancelling, signals to one of them. */
#include "show.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

static __thread int own = 5;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int shared, turn;

static pthread_t start(void *(*function)(void *), void *argument)
{
	pthread_t thread;
	int error = pthread_create(&thread, NULL, function, argument);

	if (error) {
		errno = error;
		MUST(-1);
	}
	return thread;
}

static struct timespec soon(long ms)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += ms * 1000000;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

static void *with_storage(void *argument)
{
	int before = own;

	own += (long)argument;
	sched_yield();
	return (void *)(long)(before * 1000 + own);
}

static void storage(void)
{
	pthread_t threads[4];
	void *result;

	for (long i = 0; i < 4; i++)
		threads[i] = start(with_storage, (void *)i);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &result);
		say("thread %d: %ld", i, (long)result);
	}
	say("here: %d", own);
}

static void *count_up(void *argument)
{
	(void)argument;
	for (int i = 0; i < 200; i++) {
		pthread_mutex_lock(&lock);
		shared++;
		if (i % 100 == 0)
			sched_yield();
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void many(void)
{
	static pthread_t threads[100];

	for (int i = 0; i < 100; i++)
		threads[i] = start(count_up, NULL);
	for (int i = 0; i < 100; i++)
		pthread_join(threads[i], NULL);
	say("counted to %d", shared);
}

static void *take_turns(void *argument)
{
	for (int i = 0; i < 3; i++) {
		pthread_mutex_lock(&lock);
		while (turn % 3 != (long)argument)
			pthread_cond_wait(&changed, &lock);
		say("turn %d of thread %ld", turn, (long)argument);
		turn++;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void conditions(void)
{
	struct timespec until;
	pthread_t threads[3];

	for (long i = 0; i < 3; i++)
		threads[i] = start(take_turns, (void *)i);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	pthread_mutex_lock(&lock);
	until = soon(20);
	SHOW_ERROR(pthread_cond_timedwait(&changed, &lock, &until));
	SHOW_ERROR(pthread_mutex_trylock(&lock));
	pthread_mutex_unlock(&lock);
}

static pthread_mutex_t special;

static void *try_it(void *argument)
{
	struct timespec until = soon(20);

	(void)argument;
	SHOW_ERROR(pthread_mutex_trylock(&special));
	SHOW_ERROR(pthread_mutex_timedlock(&special, &until));
	return NULL;
}

static void *die_with_it(void *argument)
{
	pthread_mutex_lock(&special);
	return argument;
}

static void *lock_and_release(void *argument)
{
	SHOW_ERROR(pthread_mutex_lock(&special));
	SHOW_ERROR(pthread_mutex_unlock(&special));
	return argument;
}

static void mutexes(void)
{
	static const int types[] = {PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_RECURSIVE};
	pthread_mutexattr_t attr;
	pthread_t waiter;
	int released;

	for (int i = 0; i < 2; i++) {
		pthread_mutexattr_init(&attr);
		pthread_mutexattr_settype(&attr, types[i]);
		pthread_mutex_init(&special, &attr);
		say("type %d", types[i]);
		SHOW_ERROR(pthread_mutex_lock(&special));
		SHOW_ERROR(pthread_mutex_lock(&special));
		pthread_join(start(try_it, NULL), NULL);
		SHOW_ERROR(pthread_mutex_unlock(&special));
		SHOW_ERROR(pthread_mutex_unlock(&special));
		SHOW_ERROR(pthread_mutex_unlock(&special));
	}
	for (int protocol = 0; protocol < 2; protocol++) {
		pthread_mutexattr_init(&attr);
		pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
		pthread_mutexattr_setprotocol(&attr, protocol ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE);
		SHOW_ERROR(pthread_mutex_init(&special, &attr));
		pthread_join(start(die_with_it, NULL), NULL);
		SHOW_ERROR(pthread_mutex_lock(&special));
		SHOW_ERROR(pthread_mutex_consistent(&special));
		waiter = start(lock_and_release, NULL);
		usleep(100000);
		/* Said after the waiter's part: it may run before this returns. */
		released = pthread_mutex_unlock(&special);
		pthread_join(waiter, NULL);
		say("released: %d", released);
		pthread_join(start(die_with_it, NULL), NULL);
		SHOW_ERROR(pthread_mutex_lock(&special));
		SHOW_ERROR(pthread_mutex_unlock(&special));
		SHOW_ERROR(pthread_mutex_lock(&special));
	}
}

static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;

static void *try_rw(void *argument)
{
	struct timespec until = soon(20);

	say("read: %s", error_name(pthread_rwlock_tryrdlock(&rw)));
	say("write: %s", error_name(pthread_rwlock_trywrlock(&rw)));
	say("write in time: %s", error_name(pthread_rwlock_timedwrlock(&rw, &until)));
	return argument;
}

static pthread_barrier_t barrier;

static void *meet(void *argument)
{
	int result = pthread_barrier_wait(&barrier);

	if (result == PTHREAD_BARRIER_SERIAL_THREAD)
		__atomic_fetch_add(&shared, 1, __ATOMIC_SEQ_CST);
	return argument;
}

static sem_t semaphore;

static void *post(void *argument)
{
	usleep(5000);
	sem_post(&semaphore);
	return argument;
}

static void other_locks(void)
{
	struct timespec until;
	pthread_t threads[3];
	int value;

	SHOW_ERROR(pthread_rwlock_wrlock(&rw));
	pthread_join(start(try_rw, NULL), NULL);
	SHOW_ERROR(pthread_rwlock_unlock(&rw));
	shared = 0;
	pthread_barrier_init(&barrier, NULL, 3);
	for (int i = 0; i < 3; i++)
		threads[i] = start(meet, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	say("%d of the three went last", shared);
	sem_init(&semaphore, 0, 1);
	SHOW(sem_wait(&semaphore));
	SHOW(sem_trywait(&semaphore));
	until = soon(10);
	SHOW(sem_timedwait(&semaphore, &until));
	threads[0] = start(post, NULL);
	SHOW(sem_wait(&semaphore));
	pthread_join(threads[0], NULL);
	sem_getvalue(&semaphore, &value);
	say("value %d", value);
}

static void cleanup(void *argument)
{
	say("cleaning up %s", (const char *)argument);
}

static void *sleep_forever(void *argument)
{
	pthread_cleanup_push(cleanup, argument);
	pause();
	pthread_cleanup_pop(0);
	return NULL;
}

static void *spin_forever(void *argument)
{
	(void)argument;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;)
		sched_yield();
	return NULL;
}

static void *not_now(void *argument)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	usleep(300000);
	say("not cancelled");
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	pthread_testcancel();
	say("not reached");
	return argument;
}

static void cancelling(void)
{
	void *(*const functions[])(void *) = {sleep_forever, spin_forever, not_now};
	void *result;

	for (int i = 0; i < 3; i++) {
		pthread_t thread = start(functions[i], "a sleeper");

		usleep(100000);
		SHOW_ERROR(pthread_cancel(thread));
		SHOW_ERROR(pthread_join(thread, &result));
		SHOW_BOOL(result == PTHREAD_CANCELED);
	}
}

static volatile pid_t handled_by;
static sem_t ready, handled;

static void on_signal(int signo)
{
	(void)signo;
	handled_by = gettid();
	sem_post(&handled);
}

static void wait_handled(void)
{
	while (sem_wait(&handled))
		;
}

static void *with_signal(void *argument)
{
	sigset_t set;

	(void)argument;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sem_post(&ready);
	wait_handled();
	say("handled here: %s", handled_by == gettid() ? "yes" : "no");
	sem_post(&ready);
	wait_handled();
	say("blocked here: %s", handled_by == getpid() ? "the first thread took it" : "nobody took it");
	return NULL;
}

static void signals(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	pthread_t thread;
	int sent;

	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	thread = start(with_signal, NULL);
	sem_wait(&ready);
	sent = pthread_kill(thread, SIGUSR1);
	sem_wait(&ready);
	say("pthread_kill: %d", sent);
	/* Said when the other thread has said its part: it may run before kill() returns. */
	sent = kill(getpid(), SIGUSR2);
	pthread_join(thread, NULL);
	say("kill: %d", sent);
}

static void *detached(void *argument)
{
	usleep(1000);
	say("detached");
	return argument;
}

static void *leave(void *argument)
{
	usleep(200000);
	say("the last thread leaves");
	return argument;
}

static void attributes(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	size_t size;
	void *stack;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	SHOW_ERROR(pthread_attr_setstacksize(&attr, 1 << 20));
	SHOW_ERROR(pthread_attr_setstacksize(&attr, 100));
	SHOW_ERROR(pthread_create(&thread, &attr, detached, NULL));
	usleep(200000);
	SHOW_ERROR(pthread_getattr_np(pthread_self(), &attr));
	SHOW_ERROR(pthread_attr_getstack(&attr, &stack, &size));
	SHOW_BOOL((char *)&size > (char *)stack && (char *)&size < (char *)stack + size);
	SHOW_BOOL(gettid() == getpid());
	SHOW_ERROR(pthread_setname_np(pthread_self(), "a-name"));
	SHOW_ERROR(pthread_setname_np(pthread_self(), "a-name-that-is-too-long"));
	SHOW_ERROR(pthread_join(pthread_self(), NULL));
	start(leave, NULL);
	say("the first thread leaves");
	pthread_exit(NULL);
}

int main(void)
{
	storage();
	many();
	conditions();
	mutexes();
	other_locks();
	cancelling();
	signals();
	attributes();
	return 7;
}
