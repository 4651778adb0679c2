// SPDX-License-Identifier: GPL-2.0-or-later
/* What a file is besides its contents: mode, owner, times, permission to use it, extended attributes. */
#include "show.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <time.h>
#include <utime.h>

#include <sys/stat.h>

static void touch(const char *name)
{
	MUST(close(MUST(open(name, O_WRONLY | O_CREAT, 0644))));
}

static void show_mode(const char *path)
{
	struct stat st;

	if (lstat(path, &st))
		say("%s: %s", path, error_name(errno));
	else
		say("%s: mode %o", path, st.st_mode);
}

static void modes(void)
{
	int fd;

	touch("file");
	SHOW(chmod("file", 04751));
	show_mode("file");
	SHOW(chmod("file", 0177777));
	show_mode("file");
	SHOW(chmod("none", 0));
	fd = MUST(open("file", O_RDWR));
	SHOW(fchmod(fd, 02640));
	show_mode("file");
	SHOW(write(fd, "x", 1));
	show_mode("file");
	SHOW(fchmod(fd, 06755));
	SHOW(write(fd, "x", 1));
	show_mode("file");
	SHOW(fchmod(fd, 06755));
	SHOW(ftruncate(fd, 0));
	show_mode("file");
	SHOW(fchmod(fd, 0600));
	close(fd);
	SHOW(fchmodat(AT_FDCWD, "file", 0444, 0));
	SHOW(open("file", O_WRONLY));
	SHOW(access("file", W_OK));
	SHOW(access("file", R_OK));
	SHOW(access("file", X_OK));
	SHOW(access("file", 077));
	SHOW(faccessat(AT_FDCWD, "file", W_OK, AT_EACCESS));
	SHOW(chmod("file", 0));
	SHOW(open("file", O_RDONLY));
	SHOW(close(open("file", O_PATH)));
	SHOW(unlink("file"));
	umask(027);
	touch("masked");
	show_mode("masked");
	SHOW(mkdir("dir", 01777));
	show_mode("dir");
	SHOW(umask(0));
	SHOW(umask(022));
	SHOW(chmod("dir", 0600));
	touch("x");
	SHOW(rename("x", "dir/x"));
	SHOW(access("dir/x", F_OK));
	SHOW(chdir("dir"));
	SHOW(chmod("dir", 0500));
	SHOW(mkdir("dir/sub", 0700));
	SHOW(chmod("dir", 02755));
	touch("dir/inherits");
	SHOW(mkdir("dir/sub", 0700));
	show_mode("dir/sub");
	SHOW(rmdir("dir/sub"));
	SHOW(unlink("dir/inherits"));
	SHOW(rmdir("dir"));
	SHOW(symlink("masked", "soft"));
	SHOW(chmod("soft", 0640));
	show_mode("masked");
	show_mode("soft");
	SHOW(unlink("soft"));
	SHOW(unlink("x"));
}

static void owners(void)
{
	struct stat st;

	MUST(stat("masked", &st));
	SHOW_BOOL(st.st_uid == geteuid());
	SHOW_BOOL(st.st_gid == getegid());
	SHOW(chown("masked", -1, -1));
	SHOW(chown("masked", getuid(), getgid()));
	SHOW(chown("masked", 0, -1));
	SHOW(chown("masked", -1, 0));
	SHOW(chown("none", -1, -1));
	SHOW(chmod("masked", 06755));
	SHOW(chown("masked", getuid(), getgid()));
	show_mode("masked");
	SHOW(chmod("/etc/passwd", 0666));
	SHOW(open("/etc/passwd", O_WRONLY));
	SHOW(unlink("/etc/passwd"));
	SHOW(open("/etc/new", O_WRONLY | O_CREAT, 0600));
	SHOW(rename("/etc/passwd", "/etc/other"));
	SHOW(utime("/etc/passwd", NULL));
	SHOW(link("/etc/passwd", "mine"));
	SHOW(mknod("device", S_IFCHR | 0600, makedev(1, 3)));
	SHOW(mknod("plain", S_IFREG | 0600, 0));
	SHOW(unlink("plain"));
	SHOW(chroot("."));
}

static void times(void)
{
	struct timespec now, set[2] = {{.tv_sec = 1000000000, .tv_nsec = 123456789}, {.tv_sec = 5, .tv_nsec = 7}};
	struct stat before, st;
	struct utimbuf old = {.actime = 11, .modtime = 22};
	char buf[4];
	int fd;

	touch("timed");
	MUST(clock_gettime(CLOCK_REALTIME_COARSE, &now));
	MUST(stat("timed", &st));
	SHOW_BOOL(st.st_mtim.tv_sec - now.tv_sec <= 1 && now.tv_sec - st.st_mtim.tv_sec <= 1);
	SHOW(utimensat(AT_FDCWD, "timed", set, 0));
	MUST(stat("timed", &st));
	say("%ld.%09ld %ld.%09ld", st.st_atim.tv_sec, st.st_atim.tv_nsec, st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	SHOW_BOOL(st.st_ctim.tv_sec > 1000000000);
	set[0].tv_nsec = UTIME_OMIT;
	set[1].tv_nsec = UTIME_NOW;
	SHOW(utimensat(AT_FDCWD, "timed", set, 0));
	before = st;
	MUST(stat("timed", &st));
	SHOW_BOOL(st.st_atim.tv_sec == before.st_atim.tv_sec);
	SHOW_BOOL(st.st_mtim.tv_sec > 1000000000);
	set[0].tv_nsec = 1000000000;
	SHOW(utimensat(AT_FDCWD, "timed", set, 0));
	SHOW(utimensat(AT_FDCWD, "none", NULL, 0));
	SHOW(utime("timed", &old));
	MUST(stat("timed", &st));
	say("%ld %ld", st.st_atim.tv_sec, st.st_mtim.tv_sec);
	fd = MUST(open("timed", O_RDWR));
	SHOW(futimens(fd, (struct timespec[]){{.tv_sec = 1}, {.tv_sec = 2}}));
	MUST(write(fd, "x", 1));
	MUST(fstat(fd, &st));
	SHOW_BOOL(st.st_mtim.tv_sec > 1000000000 && st.st_atim.tv_sec == 1);
	SHOW(futimens(fd, (struct timespec[]){{.tv_sec = 1}, {.tv_sec = 2}}));
	MUST(pread(fd, buf, 1, 0));
	MUST(fstat(fd, &st));
	SHOW_BOOL(st.st_mtim.tv_sec == 2);
	close(fd);
	SHOW(symlink("timed", "soft"));
	SHOW(utimensat(AT_FDCWD, "soft", (struct timespec[]){{.tv_sec = 3}, {.tv_sec = 4}}, AT_SYMLINK_NOFOLLOW));
	MUST(lstat("soft", &st));
	say("%ld", st.st_mtim.tv_sec);
	MUST(stat("soft", &st));
	say("%ld", st.st_mtim.tv_sec);
	unlink("soft");
	unlink("timed");
}

static void extended_stat(void)
{
	struct statx x;
	struct stat st;

	touch("file");
	MUST(truncate("file", 5000));
	SHOW(statx(AT_FDCWD, "file", 0, STATX_BASIC_STATS, &x));
	SHOW_BOOL((x.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
	say("mode %o, %u links, %llu bytes", x.stx_mode, x.stx_nlink, (unsigned long long)x.stx_size);
	MUST(stat("file", &st));
	SHOW_BOOL(x.stx_ino == st.st_ino && makedev(x.stx_dev_major, x.stx_dev_minor) == st.st_dev);
	SHOW_BOOL(st.st_blksize >= 512);
	SHOW(statx(AT_FDCWD, "none", 0, STATX_ALL, &x));
	SHOW(statx(AT_FDCWD, "", 0, STATX_ALL, &x));
	SHOW(statx(1, "", AT_EMPTY_PATH, STATX_ALL, &x));
	SHOW(statx(AT_FDCWD, "file", 0x10000, STATX_ALL, &x));
	SHOW(statx(AT_FDCWD, "file", 0, 0x80000000, &x));
	MUST(stat("/dev/null", &st));
	say("null: mode %o device %u:%u", st.st_mode, major(st.st_rdev), minor(st.st_rdev));
	MUST(stat("/proc/self", &st));
	say("proc: mode %o", st.st_mode);
	MUST(stat("/tmp", &st));
	say("tmp: mode %o", st.st_mode);
	MUST(stat("/", &st));
	say("root: mode %o uid %u", st.st_mode & S_IFMT, st.st_uid);
	unlink("file");
}

static void extended_attributes(void)
{
	char value[64] = "", list[128];
	ssize_t len;

	touch("file");
	SHOW(getxattr("file", "user.none", value, sizeof(value)));
	SHOW(setxattr("file", "user.one", "first", 5, 0));
	SHOW(setxattr("file", "user.one", "again", 5, XATTR_CREATE));
	SHOW(setxattr("file", "user.two", "second", 6, XATTR_REPLACE));
	SHOW(setxattr("file", "user.one", "changed", 7, XATTR_REPLACE));
	SHOW(getxattr("file", "user.one", value, sizeof(value)));
	say("%s", value);
	SHOW(getxattr("file", "user.one", value, 3));
	SHOW(getxattr("file", "user.one", NULL, 0));
	len = SHOW(listxattr("file", list, sizeof(list)));
	for (char *at = list; at < list + len; at += strlen(at) + 1)
		say("%s", at);
	SHOW(removexattr("file", "user.one"));
	SHOW(removexattr("file", "user.one"));
	SHOW(setxattr("file", "trusted.one", "x", 1, 0));
	SHOW(setxattr("file", "nonsense.one", "x", 1, 0));
	SHOW(setxattr("file", "nonsense", "x", 1, 0));
	SHOW(setxattr("file", "user.", "x", 1, 0));
	SHOW(symlink("file", "soft"));
	SHOW(lsetxattr("soft", "user.one", "x", 1, 0));
	SHOW(unlink("soft"));
	SHOW(unlink("file"));
}

static void file_system(void)
{
	struct statfs fs;
	struct statvfs vfs;

	SHOW(statfs(".", &fs));
	SHOW_BOOL(fs.f_bsize > 0 && fs.f_blocks > 0 && fs.f_bavail <= fs.f_bfree && fs.f_bfree <= fs.f_blocks);
	SHOW_BOOL(fs.f_namelen == 255);
	SHOW_BOOL(fs.f_files > 0 && fs.f_ffree > 0);
	SHOW(statvfs(".", &vfs));
	SHOW_BOOL(vfs.f_frsize > 0);
	SHOW(statfs("/proc", &fs));
	say("proc: type %#lx", (long)fs.f_type);
	SHOW(statfs("/dev/shm", &fs));
	say("shm: type %#lx", (long)fs.f_type);
	SHOW(statfs("/sys", &fs));
	say("sys: type %#lx", (long)fs.f_type);
	SHOW(statfs("none", &fs));
	SHOW(pathconf(".", _PC_NAME_MAX));
	SHOW(pathconf(".", _PC_PATH_MAX));
	SHOW(pathconf(".", _PC_PIPE_BUF));
}

int main(void)
{
	modes();
	owners();
	times();
	extended_stat();
	extended_attributes();
	file_system();
	return 0;
}
