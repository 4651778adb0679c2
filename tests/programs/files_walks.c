// SPDX-License-Identifier: GPL-2.0-or-later
/* Paths: current directory, .. and links on the way, /proc/self's ways into a process, openat2's limits. */
#include "show.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static void put(const char *path, const char *text)
{
	int fd = MUST(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644));

	MUST(write(fd, text, strlen(text)));
	MUST(close(fd));
}

static bool same(const char *a, const char *b)
{
	struct stat one, two;

	return !stat(a, &one) && !stat(b, &two) && one.st_ino == two.st_ino && one.st_dev == two.st_dev;
}

static void above_the_root(void)
{
	char path[PATH_MAX] = "";

	SHOW_BOOL(same("/", "/.."));
	SHOW_BOOL(same("/", "/../../.."));
	SHOW_BOOL(same("/etc", "/../../../etc/."));
	SHOW_BOOL(same("/", "/proc/self/root"));
	SHOW_BOOL(same("/", "/proc/self/root/.."));
	SHOW_BOOL(same("/", "/proc/self/root/../../proc/self/root"));
	SHOW_BOOL(same(".", "/proc/self/cwd"));
	SHOW_BOOL(same("..", "/proc/self/cwd/.."));
	for (int i = 0; i < 100; i++)
		strcat(path, "../");
	SHOW_BOOL(same("/", path));
	strcat(path, "etc/passwd");
	SHOW_BOOL(same("/etc/passwd", path));
	SHOW(readlink("/proc/self/root", path, sizeof(path)));
	say("%.1s", path);
	SHOW(symlink("../../../../../../../../../../..", "up"));
	SHOW_BOOL(same("/", "up"));
	SHOW_BOOL(same("/etc/passwd", "up/../../etc/passwd"));
	SHOW(symlink("/proc/self/cwd", "here"));
	SHOW_BOOL(same(".", "here"));
	SHOW_BOOL(same("..", "here/.."));
	SHOW(unlink("up"));
	SHOW(unlink("here"));
}

static void open_files(void)
{
	char path[PATH_MAX], cwd[PATH_MAX], want[PATH_MAX + 32], link[64], text[16] = "";
	int fd, again;

	MUST(getcwd(cwd, sizeof(cwd)) ? 0 : -1);
	put("open", "contents");
	fd = SHOW(open("open", O_RDONLY));
	sprintf(link, "/proc/self/fd/%d", fd);
	path[MUST(readlink(link, path, sizeof(path) - 1))] = 0;
	sprintf(want, "%s/open", cwd);
	SHOW_BOOL(!strcmp(path, want));
	again = SHOW(open(link, O_RDWR));
	SHOW(write(again, "CON", 3));
	SHOW(read(fd, text, 8));
	say("%.8s", text);
	close(again);
	SHOW(rename("open", "renamed"));
	path[MUST(readlink(link, path, sizeof(path) - 1))] = 0;
	sprintf(want, "%s/renamed", cwd);
	SHOW_BOOL(!strcmp(path, want));
	SHOW(unlink("renamed"));
	path[MUST(readlink(link, path, sizeof(path) - 1))] = 0;
	strcat(want, " (deleted)");
	SHOW_BOOL(!strcmp(path, want));
	again = SHOW(open(link, O_RDONLY));
	SHOW(pread(again, text, 8, 0));
	SHOW(linkat(AT_FDCWD, link, AT_FDCWD, "back", AT_SYMLINK_FOLLOW));
	close(again);
	close(fd);
	fd = MUST(open("/dev/null", O_RDWR));
	sprintf(link, "/dev/fd/%d", fd);
	path[MUST(readlink(link, path, sizeof(path) - 1))] = 0;
	say("%s", path);
	close(fd);
	SHOW(open(link, O_RDONLY));
	SHOW(open("/proc/self/fd/abc", O_RDONLY));
	path[MUST(readlink("/proc/self/exe", path, sizeof(path) - 1))] = 0;
	SHOW(access(path, X_OK));
	SHOW_BOOL(same(path, "/proc/self/exe"));
}

static void deep(void)
{
	char path[PATH_MAX * 2], *at;
	int depth = 0;

	SHOW(mkdir("deep", 0755));
	SHOW(chdir("deep"));
	for (depth = 0; depth < 30; depth++) {
		memset(path, 'd', 200);
		path[200] = 0;
		MUST(mkdir(path, 0755));
		MUST(chdir(path));
	}
	SHOW(syscall(SYS_getcwd, path, PATH_MAX));
	at = getcwd(NULL, 0);
	SHOW_BOOL(!at || strlen(at) > PATH_MAX);
	free(at);
	SHOW(syscall(SYS_getcwd, path, 10));
	for (depth = 0; depth < 30; depth++) {
		memset(path, 'd', 200);
		path[200] = 0;
		MUST(chdir(".."));
		MUST(rmdir(path));
	}
	SHOW(chdir(".."));
	SHOW(rmdir("deep"));
}

static void chains(void)
{
	char name[16], target[16];

	put("end", "end");
	for (int i = 0; i < 42; i++) {
		sprintf(name, "l%d", i);
		sprintf(target, "l%d", i - 1);
		MUST(symlink(i ? target : "end", name));
	}
	SHOW(access("l38", F_OK));
	SHOW(access("l39", F_OK));
	SHOW(access("l40", F_OK));
	SHOW(access("l41", F_OK));
	for (int i = 0; i < 42; i++) {
		sprintf(name, "l%d", i);
		MUST(unlink(name));
	}
	MUST(unlink("end"));
}

static long openat2_with(int dir, const char *path, unsigned long long resolve)
{
	struct open_how how = {.flags = O_RDONLY, .resolve = resolve};
	int fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static void bounded(void)
{
	struct open_how how = {.flags = O_RDONLY, .mode = 0600};
	int dir;

	MUST(mkdir("jail", 0755));
	put("jail/file", "x");
	put("outside", "x");
	MUST(symlink("file", "jail/inner"));
	MUST(symlink("../outside", "jail/escape"));
	MUST(symlink("/etc/passwd", "jail/absolute"));
	dir = MUST(open("jail", O_PATH | O_DIRECTORY));
	SHOW(openat2_with(dir, "file", RESOLVE_BENEATH));
	SHOW(openat2_with(dir, "inner", RESOLVE_BENEATH));
	SHOW(openat2_with(dir, "escape", RESOLVE_BENEATH));
	SHOW(openat2_with(dir, "absolute", RESOLVE_BENEATH));
	SHOW(openat2_with(dir, "../outside", RESOLVE_BENEATH));
	SHOW(openat2_with(dir, "../outside", 0));
	SHOW(openat2_with(dir, "../file", RESOLVE_IN_ROOT));
	SHOW(openat2_with(dir, "absolute", RESOLVE_IN_ROOT));
	SHOW(openat2_with(dir, "inner", RESOLVE_NO_SYMLINKS));
	SHOW(openat2_with(AT_FDCWD, "/proc/self/exe", RESOLVE_NO_MAGICLINKS));
	SHOW(openat2_with(AT_FDCWD, "/proc/version", RESOLVE_NO_XDEV));
	SHOW(openat2_with(dir, "file", 0x1000));
	SHOW(syscall(SYS_openat2, dir, "file", &how, sizeof(how)));
	SHOW(syscall(SYS_openat2, dir, "file", &how, 3));
	close(dir);
	unlink("jail/file");
	unlink("jail/inner");
	unlink("jail/escape");
	unlink("jail/absolute");
	unlink("outside");
	SHOW(rmdir("jail"));
}

int main(void)
{
	above_the_root();
	open_files();
	deep();
	chains();
	bounded();
	return 0;
}
