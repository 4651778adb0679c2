// SPDX-License-Identifier: GPL-2.0-or-later
/* Names: making, linking, renaming and removing them, and what a directory lists. */
#include "show.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static void put(const char *path, const char *text)
{
	int fd = MUST(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644));

	MUST(write(fd, text, strlen(text)));
	MUST(close(fd));
}

static void show_file(const char *path)
{
	char text[64] = "";
	struct stat st;
	int fd;

	if (lstat(path, &st)) {
		say("%s: %s", path, error_name(errno));
		return;
	}
	if (S_ISREG(st.st_mode)) {
		fd = MUST(open(path, O_RDONLY));
		MUST(read(fd, text, sizeof(text) - 1));
		close(fd);
	}
	say("%s: mode %o, %lu links, %ld bytes, \"%s\"", path, st.st_mode, (unsigned long)st.st_nlink,
	    S_ISDIR(st.st_mode) ? 0 : (long)st.st_size, text);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a directory, sorted: their order is the file system's own business. */
static void list(const char *path)
{
	char text[1024] = "", *names[64];
	struct dirent *entry;
	DIR *dir = opendir(path);
	int count = 0;

	if (!dir) {
		say("%s: %s", path, error_name(errno));
		return;
	}
	while ((entry = readdir(dir)) && count < 64) {
		const char *type = entry->d_type == DT_DIR    ? "/"
				   : entry->d_type == DT_LNK  ? "@"
				   : entry->d_type == DT_FIFO ? "|"
							      : "";

		if (asprintf(&names[count++], "%s%s", entry->d_name, type) < 0)
			abort();
	}
	closedir(dir);
	qsort(names, count, sizeof(names[0]), by_name);
	for (int i = 0; i < count; i++) {
		strcat(strcat(text, " "), names[i]);
		free(names[i]);
	}
	say("%s:%s", path, text);
}

static void opening(void)
{
	int fd;

	SHOW(open("none", O_RDONLY));
	SHOW(open("", O_RDONLY));
	SHOW(open("none/", O_RDWR | O_CREAT, 0644));
	SHOW(open("none/file", O_RDWR | O_CREAT, 0644));
	fd = SHOW(open("file", O_RDWR | O_CREAT | O_EXCL, 0666));
	SHOW(write(fd, "text", 4));
	SHOW(close(fd));
	SHOW(open("file", O_RDWR | O_CREAT | O_EXCL, 0666));
	SHOW(open("file/", O_RDONLY));
	SHOW(open("file/x", O_RDONLY));
	SHOW(open("file", O_RDONLY | O_DIRECTORY));
	SHOW(open(".", O_WRONLY));
	SHOW(open(".", O_RDONLY | O_CREAT, 0644));
	SHOW(open("file", O_RDONLY | O_TRUNC | O_NOFOLLOW));
	show_file("file");
	fd = SHOW(open(".", O_PATH | O_DIRECTORY));
	SHOW(read(fd, NULL, 0));
	SHOW(fcntl(fd, F_GETFL));
	SHOW(openat(fd, "file", O_RDONLY));
	SHOW(close(fd + 1));
	SHOW(openat(fd, "none", O_RDONLY));
	SHOW(openat(99, "file", O_RDONLY));
	SHOW(openat(99, "/dev/null", O_RDONLY));
	SHOW(close(fd + 1));
	SHOW(close(fd));
	SHOW(close(fd));
}

static void too_long(void)
{
	char name[PATH_MAX + 10];

	memset(name, 'n', sizeof(name));
	name[NAME_MAX] = 0;
	SHOW(close(open(name, O_CREAT | O_WRONLY, 0600)));
	SHOW(unlink(name));
	memset(name, 'n', sizeof(name));
	name[NAME_MAX + 1] = 0;
	SHOW(open(name, O_CREAT | O_WRONLY, 0600));
	for (size_t i = 0; i < sizeof(name); i++)
		name[i] = i % 2 ? '/' : '.';
	name[PATH_MAX - 1] = 0;
	SHOW(access(name, F_OK));
	name[PATH_MAX - 1] = '/';
	name[PATH_MAX] = 0;
	SHOW(access(name, F_OK));
}

static void links(void)
{
	char text[64];

	put("one", "one");
	SHOW(link("one", "two"));
	SHOW(link("one", "two"));
	SHOW(link("none", "three"));
	SHOW(link(".", "three"));
	show_file("one");
	put("two", "changed by two");
	show_file("one");
	SHOW(unlink("one"));
	show_file("one");
	show_file("two");
	SHOW(symlink("two", "soft"));
	SHOW(symlink("two", "soft"));
	SHOW(symlink("", "empty"));
	show_file("soft");
	memset(text, '*', sizeof(text));
	SHOW(readlink("soft", text, sizeof(text)));
	say("%.5s", text);
	SHOW(readlink("soft", text, 2));
	SHOW(readlink("soft", text, 0));
	SHOW(readlink("two", text, sizeof(text)));
	SHOW(readlink("none", text, sizeof(text)));
	SHOW(open("soft", O_RDONLY | O_NOFOLLOW));
	SHOW(close(open("soft", O_RDONLY)));
	SHOW(linkat(AT_FDCWD, "soft", AT_FDCWD, "hard-soft", 0));
	show_file("hard-soft");
	SHOW(linkat(AT_FDCWD, "soft", AT_FDCWD, "hard-two", AT_SYMLINK_FOLLOW));
	show_file("hard-two");
	SHOW(symlink("nowhere", "dangling"));
	SHOW(access("dangling", F_OK));
	SHOW(open("dangling", O_RDWR | O_CREAT | O_EXCL, 0600));
	SHOW(close(open("dangling", O_RDWR | O_CREAT, 0600)));
	show_file("nowhere");
	SHOW(symlink("loop", "loop"));
	SHOW(access("loop", F_OK));
	SHOW(unlink("loop"));
	SHOW(unlink("dangling"));
	SHOW(unlink("nowhere"));
	SHOW(unlink("soft"));
	SHOW(unlink("hard-soft"));
	SHOW(unlink("hard-two"));
	SHOW(unlink("two"));
	SHOW(unlink("two"));
}

static void directories(void)
{
	struct stat st;

	SHOW(mkdir("dir", 0755));
	SHOW(mkdir("dir", 0755));
	SHOW(mkdir("dir/a/b", 0755));
	SHOW(mkdir("dir/a/", 01777));
	SHOW(mkdir("", 0755));
	put("dir/file", "x");
	list("dir");
	SHOW(rmdir("dir"));
	SHOW(rmdir("dir/file"));
	SHOW(rmdir("dir/."));
	SHOW(rmdir("dir/a/.."));
	SHOW(unlink("dir/a"));
	SHOW(unlink("dir/file"));
	SHOW(unlinkat(AT_FDCWD, "dir/a", 0));
	SHOW(unlinkat(AT_FDCWD, "dir/a", AT_REMOVEDIR));
	MUST(stat("dir", &st));
	say("mode %o", st.st_mode);
	SHOW(rmdir("dir/"));
	SHOW(chdir("dir"));
	SHOW(mkdir("dir", 0700));
	SHOW(chdir("dir"));
	SHOW(rmdir("../dir"));
	SHOW(mkdir("x", 0755));
	SHOW(open("x", O_CREAT | O_RDWR, 0600));
	SHOW_OK(syscall(SYS_getcwd, (char[PATH_MAX]){}, PATH_MAX));
	list(".");
	SHOW(chdir(".."));
	list(".");
}

static void renaming(void)
{
	put("a", "a");
	put("b", "b");
	SHOW(rename("a", "c"));
	SHOW(rename("a", "c"));
	SHOW(rename("c", "b"));
	show_file("b");
	SHOW(rename("b", "b"));
	SHOW(link("b", "same"));
	SHOW(rename("b", "same"));
	list(".");
	SHOW(unlink("same"));
	SHOW(mkdir("d", 0755));
	SHOW(mkdir("d/sub", 0755));
	SHOW(rename("b", "d"));
	SHOW(rename("d", "b"));
	SHOW(rename("d", "d/sub/x"));
	SHOW(rename("b", "d/sub/b"));
	SHOW(mkdir("e", 0755));
	SHOW(rename("d", "e"));
	list("e/sub");
	SHOW(mkdir("full", 0755));
	put("full/file", "x");
	SHOW(rename("e", "full"));
	SHOW(rename("e/.", "other"));
	put("p", "p");
	put("q", "q");
	SHOW(renameat2(AT_FDCWD, "p", AT_FDCWD, "q", RENAME_NOREPLACE));
	SHOW(renameat2(AT_FDCWD, "p", AT_FDCWD, "q", RENAME_EXCHANGE));
	show_file("p");
	SHOW(renameat2(AT_FDCWD, "p", AT_FDCWD, "none", RENAME_EXCHANGE));
	SHOW(renameat2(AT_FDCWD, "p", AT_FDCWD, "full", RENAME_EXCHANGE));
	list(".");
	list("p");
	SHOW(renameat2(AT_FDCWD, "p", AT_FDCWD, "r", RENAME_NOREPLACE | RENAME_EXCHANGE));
	SHOW(renameat2(AT_FDCWD, "p", AT_FDCWD, "r", 64));
	SHOW(rename("/proc/self/stat", "stat"));
	unlink("e/sub/b");
	rmdir("e/sub");
	rmdir("e");
	unlink("p/file");
	rmdir("p");
	unlink("q");
	unlink("full");
	list(".");
}

/* A directory whose entries change while it is read: those that stay are seen once. */
static void changing(void)
{
	char name[32];
	struct dirent *entry;
	int seen[40] = {0}, number, once = 0;
	DIR *dir;

	MUST(mkdir("many", 0755));
	for (int i = 0; i < 40; i++) {
		sprintf(name, "many/%d", i);
		put(name, "");
	}
	dir = opendir("many");
	while ((entry = readdir(dir)))
		if (sscanf(entry->d_name, "%d", &number) == 1)
			seen[number]++;
	for (int i = 0; i < 40; i++)
		once += seen[i] == 1;
	say("%d seen once", once);
	rewinddir(dir);
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			MUST(unlinkat(dirfd(dir), entry->d_name, 0));
	rewinddir(dir);
	for (number = 0; readdir(dir); number++)
		;
	say("%d left", number);
	closedir(dir);
	SHOW(rmdir("many"));
}

int main(void)
{
	opening();
	too_long();
	SHOW(unlink("file"));
	links();
	directories();
	renaming();
	changing();
	return 0;
}
