// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sleeps in read() with a buffer at a fixed address (built -no-pie), while other programs linked to the same addresses
 * run. argv: what to send (a letter), through a pair of fifos with the letter of the other.
 */
#include "../fork.h"

#include <fcntl.h>
#include <sys/stat.h>

#define ROUNDS 50

static char buffer[40000], pattern[40000];

int main(int argc, char **argv)
{
	char mine, path[32];
	int in, out;

	CHECK(argc == 3);
	mine = argv[1][0];
	memset(pattern, mine, sizeof(pattern));
	for (int i = 1; i < 3; i++) {
		snprintf(path, sizeof(path), "/tmp/fifo-%c", argv[i][0]);
		CHECK(mkfifo(path, 0600) == 0 || errno == EEXIST);
	}
	/* Read and write: opening does not wait, so both can. path is the other's now: what it sends is read there. */
	in = open(path, O_RDWR);
	snprintf(path, sizeof(path), "/tmp/fifo-%c", mine);
	out = open(path, O_RDWR);
	CHECK(in >= 0 && out >= 0);
	for (int round = 0; round < ROUNDS; round++) {
		size_t got = 0;

		memset(buffer, '-', sizeof(buffer));
		CHECK(write(out, pattern, sizeof(pattern)) == sizeof(pattern));
		while (got < sizeof(buffer)) {
			ssize_t count = read(in, buffer + got, sizeof(buffer) - got);

			CHECK(count > 0);
			got += count;
		}
		for (size_t i = 0; i < sizeof(buffer); i++)
			CHECK(buffer[i] == argv[2][0] && pattern[i] == mine);
	}
	say("%c read %d times %c", mine, ROUNDS, argv[2][0]);
	return 0;
}
