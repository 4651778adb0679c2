// SPDX-License-Identifier: GPL-2.0-or-later
/* System V semaphores and message queues: blocking operations between processes, undo, removal under a waiter. */
#include "second.h"

#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

#define KEY 0x57540002

struct message {
	long type;
	char text[64];
};

union semun {
	int val;
	struct semid_ds *buf;
	unsigned short *array;
};

static int operate(int id, int number, int add, int flags)
{
	struct sembuf one = {number, add, flags};

	return semop(id, &one, 1);
}

static int second(const char *role)
{
	int sem = semget(KEY, 0, 0), queue = MUST(msgget(KEY, 0));
	struct message message;

	if (!strcmp(role, "semaphore")) {
		MUST(operate(sem, 0, -1, 0));
		MUST(operate(sem, 1, 5, SEM_UNDO));
		MUST(operate(sem, 2, 1, 0));
		MUST(operate(sem, 3, 0, 0));
		return 7;
	}
	if (!strcmp(role, "removed"))
		return operate(sem, 4, -1, 0) == -1 && errno == EIDRM ? 8 : 1;
	if (!strcmp(role, "reader")) {
		MUST(msgrcv(queue, &message, sizeof(message.text), 5, 0));
		strcat(message.text, " and back");
		message.type = 6;
		MUST(msgsnd(queue, &message, strlen(message.text) + 1, 0));
		return msgrcv(queue, &message, sizeof(message.text), 99, 0) == -1 && errno == EIDRM ? 9 : 1;
	}
	return 1;
}

/* Until `count` processes wait for semaphore `number` to grow (or to be zero). */
static void await_waiters(int id, int number, int command, int count)
{
	while (MUST(semctl(id, number, command)) != count)
		sleep_ms(1);
}

static void semaphores(int id)
{
	unsigned short values[5] = {0, 0, 0, 1, 0};
	struct sembuf two[2] = {{0, 2, 0}, {4, -1, IPC_NOWAIT}};
	struct timespec soon = {0, 10000000};
	struct semid_ds stat;
	pid_t pid;

	SHOW(semctl(id, 0, SETALL, (union semun){.array = values}));
	pid = start_second("semaphore");
	await_waiters(id, 0, GETNCNT, 1);
	SHOW(operate(id, 0, 1, 0));
	SHOW(operate(id, 2, -1, 0));
	await_waiters(id, 3, GETZCNT, 1);
	SHOW(semctl(id, 1, GETVAL));
	SHOW_BOOL(semctl(id, 1, GETPID) == pid);
	SHOW(operate(id, 3, -1, 0));
	say("the second ended with %d", end_of(pid));
	SHOW(semctl(id, 1, GETVAL));
	SHOW(semop(id, two, 2));
	SHOW(semctl(id, 0, GETVAL));
	SHOW(semtimedop(id, &(struct sembuf){0, -1, 0}, 1, &soon));
	SHOW(operate(id, 9, 1, 0));
	SHOW(operate(id, 0, -1, IPC_NOWAIT));
	SHOW(semctl(id, 0, SETVAL, (union semun){.val = 40000}));
	SHOW(semctl(id, 2, SETVAL, (union semun){.val = 4}));
	SHOW(semctl(id, 0, GETALL, (union semun){.array = values}));
	say("%d %d %d %d %d", values[0], values[1], values[2], values[3], values[4]);
	MUST(semctl(id, 0, IPC_STAT, (union semun){.buf = &stat}));
	say("semaphores %ld mode %o", (long)stat.sem_nsems, stat.sem_perm.mode);
	pid = start_second("removed");
	await_waiters(id, 4, GETNCNT, 1);
	SHOW(semctl(id, 0, IPC_RMID));
	say("the second ended with %d", end_of(pid));
	SHOW(semctl(id, 0, GETVAL));
}

static void messages(int id)
{
	struct message message = {5, "there"};
	pid_t pid = start_second("reader");
	struct msqid_ds stat;

	SHOW(msgsnd(id, &message, 6, 0));
	SHOW(msgrcv(id, &message, sizeof(message.text), 6, 0));
	say("type %ld: %s", message.type, message.text);
	for (int i = 3; i > 0; i--) {
		message.type = i;
		sprintf(message.text, "number %d", i);
		MUST(msgsnd(id, &message, 20, 0));
	}
	SHOW(msgrcv(id, &message, 4, -2, 0));
	SHOW(msgrcv(id, &message, 4, -2, MSG_NOERROR));
	say("type %ld: %.4s", message.type, message.text);
	SHOW(msgrcv(id, &message, 64, 3, MSG_EXCEPT));
	say("type %ld: %s", message.type, message.text);
	SHOW(msgrcv(id, &message, 64, 0, 0));
	SHOW(msgrcv(id, &message, 64, 0, IPC_NOWAIT));
	SHOW(msgsnd(id, &(struct message){0, ""}, 1, 0));
	SHOW(msgsnd(id, &message, 1 << 20, IPC_NOWAIT));
	MUST(msgctl(id, IPC_STAT, &stat));
	say("messages %ld bytes %ld of %ld", (long)stat.msg_qnum, (long)stat.__msg_cbytes, (long)stat.msg_qbytes);
	sleep_ms(20);
	SHOW(msgctl(id, IPC_RMID, NULL));
	say("the second ended with %d", end_of(pid));
	SHOW(msgsnd(id, &message, 1, 0));
}

int main(int argc, char **argv)
{
	int sem, queue;

	if (argc > 1)
		return second(argv[1]);
	semctl(semget(KEY, 0, 0), 0, IPC_RMID);
	msgctl(msgget(KEY, 0), IPC_RMID, NULL);
	SHOW(semget(KEY, 5, 0));
	SHOW(msgget(KEY, 0));
	sem = SHOW_OK(semget(KEY, 5, IPC_CREAT | IPC_EXCL | 0600));
	queue = SHOW_OK(msgget(KEY, IPC_CREAT | IPC_EXCL | 0600));
	SHOW(semget(KEY, 6, 0));
	SHOW(msgget(KEY, IPC_CREAT | IPC_EXCL | 0600));
	semaphores(sem);
	messages(queue);
	return 0;
}
