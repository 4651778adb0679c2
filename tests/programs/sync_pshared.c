// SPDX-License-Identifier: GPL-2.0-or-later
/* POSIX synchronization between processes: mutexes of every kind, conditions, barriers, locks, named semaphores. */
#include "second.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define AREA	  "/windtunnel-test-area"
#define SEMAPHORE "/windtunnel-test-semaphore"
#define ROUNDS	  2000

struct area {
	pthread_mutex_t mutex, inherit, robust;
	pthread_cond_t condition;
	pthread_rwlock_t lock;
	pthread_barrier_t barrier;
	sem_t ping, pong;
	int stage, counter, turns, errors;
};

static struct area *map_area(int flags)
{
	int fd = MUST(shm_open(AREA, flags, 0600));

	if (flags & O_CREAT)
		MUST(ftruncate(fd, sizeof(struct area)));
	return (struct area *)MUST(mmap(NULL, sizeof(struct area), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
}

static void prepare(struct area *area)
{
	pthread_mutexattr_t attr;
	pthread_condattr_t cond;
	pthread_rwlockattr_t lock;
	pthread_barrierattr_t barrier;

	pthread_mutexattr_init(&attr);
	SHOW_ERROR(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
	SHOW_ERROR(pthread_mutex_init(&area->mutex, &attr));
	SHOW_ERROR(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
	SHOW_ERROR(pthread_mutex_init(&area->inherit, &attr));
	SHOW_ERROR(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_NONE));
	SHOW_ERROR(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
	SHOW_ERROR(pthread_mutex_init(&area->robust, &attr));
	pthread_condattr_init(&cond);
	pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
	SHOW_ERROR(pthread_cond_init(&area->condition, &cond));
	pthread_rwlockattr_init(&lock);
	pthread_rwlockattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
	SHOW_ERROR(pthread_rwlock_init(&area->lock, &lock));
	pthread_barrierattr_init(&barrier);
	pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
	SHOW_ERROR(pthread_barrier_init(&area->barrier, &barrier, 2));
	SHOW(sem_init(&area->ping, 1, 0));
	SHOW(sem_init(&area->pong, 1, 0));
}

/* A counter that only a lock keeps whole: the reader of it lets others run before the write. */
static void count(struct area *area, pthread_mutex_t *mutex)
{
	for (int i = 0; i < ROUNDS; i++) {
		int value;

		area->errors += pthread_mutex_lock(mutex) != 0;
		value = area->counter;
		if (i % 64 == 0)
			sched_yield();
		area->counter = value + 1;
		area->errors += pthread_mutex_unlock(mutex) != 0;
	}
}

static void take_turns(struct area *area, int mine)
{
	pthread_mutex_lock(&area->mutex);
	for (int i = 0; i < 200; i++) {
		while (area->turns % 2 != mine)
			pthread_cond_wait(&area->condition, &area->mutex);
		area->turns++;
		pthread_cond_broadcast(&area->condition);
	}
	pthread_mutex_unlock(&area->mutex);
}

static int second(const char *role)
{
	struct area *area = map_area(O_RDWR);
	sem_t *named;

	if (!strcmp(role, "die")) {
		pthread_mutex_lock(&area->robust);
		tell(&area->stage, 10);
		sleep_ms(50);
		_exit(3);
	}
	pthread_barrier_wait(&area->barrier);
	count(area, &area->mutex);
	pthread_barrier_wait(&area->barrier);
	count(area, &area->inherit);
	pthread_barrier_wait(&area->barrier);
	take_turns(area, 1);
	for (int i = 0; i < 200; i++) {
		sem_wait(&area->ping);
		sem_post(&area->pong);
	}
	named = sem_open(SEMAPHORE, 0);
	if (named == SEM_FAILED)
		return 1;
	sem_post(named);
	pthread_barrier_wait(&area->barrier);
	pthread_rwlock_rdlock(&area->lock);
	tell(&area->stage, 1);
	await(&area->stage, 2);
	pthread_rwlock_unlock(&area->lock);
	return 0;
}

static void named_semaphore(sem_t *named)
{
	struct timespec until;
	int value;

	SHOW(sem_wait(named));
	SHOW(sem_getvalue(named, &value));
	say("value %d", value);
	SHOW(sem_trywait(named));
	MUST(clock_gettime(CLOCK_REALTIME, &until));
	until.tv_nsec += 20000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	SHOW(sem_timedwait(named, &until));
	SHOW(sem_close(named));
}

static void dead_owner(struct area *area)
{
	pid_t pid = start_second("die");

	await(&area->stage, 10);
	SHOW_ERROR(pthread_mutex_trylock(&area->robust));
	SHOW_ERROR(pthread_mutex_lock(&area->robust));
	say("the second ended with %d", end_of(pid));
	SHOW_ERROR(pthread_mutex_consistent(&area->robust));
	SHOW_ERROR(pthread_mutex_unlock(&area->robust));
	SHOW_ERROR(pthread_mutex_lock(&area->robust));
	SHOW_ERROR(pthread_mutex_unlock(&area->robust));
	area->stage = 0;
	pid = start_second("die");
	await(&area->stage, 10);
	SHOW_ERROR(pthread_mutex_lock(&area->robust));
	say("the second ended with %d", end_of(pid));
	SHOW_ERROR(pthread_mutex_unlock(&area->robust));
	SHOW_ERROR(pthread_mutex_lock(&area->robust));
}

int main(int argc, char **argv)
{
	struct area *area;
	sem_t *named;
	pid_t pid;

	if (argc > 1)
		return second(argv[1]);
	shm_unlink(AREA);
	sem_unlink(SEMAPHORE);
	SHOW(shm_open(AREA, O_RDWR, 0));
	area = map_area(O_RDWR | O_CREAT | O_EXCL);
	prepare(area);
	named = sem_open(SEMAPHORE, O_CREAT | O_EXCL, 0600, 0);
	SHOW_BOOL(named != SEM_FAILED);
	SHOW_BOOL(sem_open(SEMAPHORE, O_CREAT | O_EXCL, 0600, 0) == SEM_FAILED && errno == EEXIST);
	pid = start_second("work");
	pthread_barrier_wait(&area->barrier);
	count(area, &area->mutex);
	pthread_barrier_wait(&area->barrier);
	count(area, &area->inherit);
	pthread_barrier_wait(&area->barrier);
	say("counter %d errors %d", area->counter, area->errors);
	take_turns(area, 0);
	for (int i = 0; i < 200; i++) {
		sem_post(&area->ping);
		sem_wait(&area->pong);
	}
	say("turns %d", area->turns);
	named_semaphore(named);
	pthread_barrier_wait(&area->barrier);
	await(&area->stage, 1);
	SHOW_ERROR(pthread_rwlock_trywrlock(&area->lock));
	SHOW_ERROR(pthread_rwlock_tryrdlock(&area->lock));
	SHOW_ERROR(pthread_rwlock_unlock(&area->lock));
	tell(&area->stage, 2);
	SHOW_ERROR(pthread_rwlock_wrlock(&area->lock));
	say("the second ended with %d", end_of(pid));
	dead_owner(area);
	SHOW(shm_unlink(AREA));
	SHOW(sem_unlink(SEMAPHORE));
	SHOW(sem_unlink(SEMAPHORE));
	return 0;
}
