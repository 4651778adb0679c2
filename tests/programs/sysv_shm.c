// SPDX-License-Identifier: GPL-2.0-or-later
/* System V shared memory: segments by key and id, who is attached, rights, removal, and parts of a mapping. */
#include "second.h"

#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

#define PAGE 4096UL
#define KEY  0x57540001
#define SIZE (3 * PAGE + 56)

struct area {
	int stage;
	int value;
};

static long attached(int id)
{
	struct shmid_ds stat;

	return shmctl(id, IPC_STAT, &stat) == -1 ? -1 : (long)stat.shm_nattch;
}

static int second(const char *role)
{
	int id = MUST(shmget(KEY, SIZE, 0));
	struct area *area = (struct area *)MUST(shmat(id, NULL, 0));

	if (!strcmp(role, "write")) {
		area->value += 41;
		tell(&area->stage, 1);
		await(&area->stage, 2);
		return shmdt(area) ? 1 : 0;
	}
	/* "leave": the end of the process detaches. */
	tell(&area->stage, 3);
	await(&area->stage, 4);
	return 0;
}

static void share(int id)
{
	struct area *area = (struct area *)SHOW_OK(shmat(id, NULL, 0));
	struct area *again = (struct area *)SHOW_OK(shmat(id, NULL, SHM_RDONLY));
	struct shmid_ds stat;
	pid_t pid;

	MUST(shmctl(id, IPC_STAT, &stat));
	say("size %zu attached %ld mode %o", stat.shm_segsz, (long)stat.shm_nattch, stat.shm_perm.mode);
	SHOW_BOOL(stat.shm_cpid == getpid() && stat.shm_lpid == getpid());
	area->value = 1;
	pid = start_second("write");
	await(&area->stage, 1);
	say("value %d %d attached %ld", area->value, again->value, attached(id));
	tell(&area->stage, 2);
	say("the second ended with %d, attached %ld", end_of(pid), attached(id));
	MUST(shmctl(id, IPC_STAT, &stat));
	SHOW_BOOL(stat.shm_lpid == pid && stat.shm_dtime > 0);
	pid = start_second("leave");
	await(&area->stage, 3);
	say("attached %ld", attached(id));
	tell(&area->stage, 4);
	say("the second ended with %d", end_of(pid));
	say("attached %ld", attached(id));

	SHOW(mprotect(again, PAGE, PROT_READ | PROT_WRITE));
	SHOW(shmdt(again));
	SHOW(shmdt(again));
	SHOW(shmdt((char *)area + PAGE));
	SHOW(shmdt((char *)area + 1));
	SHOW(shmdt(area));
	say("attached %ld", attached(id));
}

/* Mappings that are cut, moved and replaced by other calls. */
static void parts(int id)
{
	char *place = (char *)MUST(mmap(NULL, 32 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	char *at, *moved;

	SHOW_OK(shmat(id, place + PAGE, 0));
	SHOW_OK(shmat(id, place + PAGE + 1, 0));
	MUST(munmap(place, 32 * PAGE));
	SHOW_BOOL(shmat(id, place + PAGE, 0) == place + PAGE);
	SHOW_BOOL(shmat(id, place + 10 * PAGE + 100, SHM_RND) == place + 10 * PAGE);
	say("attached %ld", attached(id));
	SHOW_OK(shmat(id, place + 3 * PAGE, 0));
	SHOW_BOOL(shmat(id, place + 3 * PAGE, SHM_REMAP) == place + 3 * PAGE);
	say("attached %ld", attached(id));
	SHOW(munmap(place + 11 * PAGE, PAGE));
	say("attached %ld", attached(id));
	SHOW(shmdt(place + 10 * PAGE));
	say("attached %ld", attached(id));
	SHOW(shmdt(place + PAGE));
	say("attached %ld", attached(id));

	at = place + 3 * PAGE;
	strcpy(at + 2 * PAGE, "in page 2");
	moved = (char *)SHOW_OK(mremap(at, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + 20 * PAGE));
	say("%s, attached %ld", moved + 2 * PAGE, attached(id));
	SHOW_OK(mmap(moved, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	say("attached %ld", attached(id));
	SHOW(munmap(moved, 4 * PAGE));
	say("attached %ld", attached(id));
}

static void removal(int id)
{
	struct area *area = (struct area *)MUST(shmat(id, NULL, 0));
	struct shmid_ds stat;
	pid_t pid = start_second("leave");

	await(&area->stage, 3);
	SHOW(shmctl(id, IPC_RMID, NULL));
	SHOW(shmget(KEY, 0, 0));
	MUST(shmctl(id, IPC_STAT, &stat));
	SHOW_BOOL(stat.shm_perm.mode & SHM_DEST);
	SHOW_BOOL(stat.shm_perm.__key == IPC_PRIVATE);
	say("attached %ld", attached(id));
	tell(&area->stage, 4);
	say("the second ended with %d", end_of(pid));
	say("attached %ld", attached(id));
	area->value = 7;
	SHOW(shmdt(area));
	SHOW(shmctl(id, IPC_STAT, &stat));
	SHOW(shmat(id, NULL, 0));
}

static void errors(void)
{
	int id = MUST(shmget(IPC_PRIVATE, 1, 0600 | IPC_CREAT));

	SHOW(shmget(KEY, 1, 0));
	SHOW(shmget(IPC_PRIVATE, 0, 0600 | IPC_CREAT));
	SHOW_OK(shmat(id, (void *)1, 0));
	SHOW_OK(shmat(id, NULL, SHM_REMAP));
	SHOW_OK(shmat(-1, NULL, 0));
	SHOW(shmctl(id, 99, NULL));
	SHOW(shmctl(id, IPC_RMID, NULL));
	SHOW(shmctl(id, IPC_RMID, NULL));
}

int main(int argc, char **argv)
{
	int id;

	if (argc > 1)
		return second(argv[1]);
	shmctl(shmget(KEY, 0, 0), IPC_RMID, NULL);
	id = SHOW_OK(shmget(KEY, SIZE, 0640 | IPC_CREAT | IPC_EXCL));
	SHOW(shmget(KEY, SIZE, 0640 | IPC_CREAT | IPC_EXCL));
	SHOW(shmget(KEY, SIZE + PAGE, 0));
	SHOW_BOOL(shmget(KEY, 100, 0) == id);
	share(id);
	parts(id);
	removal(id);
	errors();
	return 0;
}
