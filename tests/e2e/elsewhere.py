# SPDX-License-Identifier: GPL-2.0-or-later
"""Another user's machine with the same packages, imitated: this one with other files mounted over its own.

In namespaces of the run only, under another name, for a user with another environment, other limits and one processor.
"""

import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Of packages that every Debian system has.
FOLDERS = ("/usr/share/base-passwd", "/usr/share/common-licenses", "/usr/share/perl5", "/usr/sbin")
OLD = 1_000_000_000
# What a login there brings along: of the user's language and place, and what would change the programs of the examples.
ENVIRONMENT = {
    "LC_ALL": "de_DE.UTF-8",
    "LANG": "de_DE.UTF-8",
    "TZ": "Asia/Tokyo",
    "USER": "somebody",
    "LOGNAME": "somebody",
    "SHELL": "/bin/bash",
    "TERM": "xterm-256color",
    "COLUMNS": "132",
    "POSIXLY_CORRECT": "1",
    "RES_OPTIONS": "ndots:7",
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.perturb=7",
    "LD_LIBRARY_PATH": "/nowhere",
    "GOMAXPROCS": "3",
    "GODEBUG": "http2client=0",
    "JAVA_TOOL_OPTIONS": "-Xmx64m",
    "NODE_OPTIONS": "--stack-size=900",
    "PERL5LIB": "/nowhere",
    "PGPORT": "5433",
    "PYTHONHASHSEED": "1",
    "PYTHONPATH": "/nowhere",
    "TOKIO_WORKER_THREADS": "3",
    # As on a processor that cannot fault on cpuid, if this one can.
    "WINDTUNNEL_CPUID_FAULTING": "off",
}


@dataclass(frozen=True)
class Elsewhere:
    """The other machine: what a command there begins with, and its environment."""

    prefix: list[str]
    env: dict[str, str]
    personality = "0fb60000"


def mounted(commands: list[str]) -> list[str]:
    """A prefix that mounts what the commands say, for what follows it only."""
    return ["unshare", "--mount", "--uts", "sh", "-c", "\n".join(["set -e", *commands, 'exec "$@"']), "sh"]


def walk(top: Path) -> Iterator[Path]:
    yield top
    yield from top.rglob("*")


def copy(folder: str, into: Path) -> Path:
    target = into / folder.strip("/").replace("/", "-")
    # Permissions and owners too, so that it is what this host could have been.
    subprocess.run(["cp", "-a", folder, target], check=True)
    return target


def renumber(etc: Path, trees: list[Path]) -> None:
    """Gives Debian's dynamic users and groups other numbers, as another order of installation does."""

    def other(number: int) -> int:
        return 1099 - number if 100 <= number <= 999 else number

    def renumbered(line: str) -> str:
        fields = line.split(":")
        fields[2:4] = [str(other(int(field))) if field.isdigit() else field for field in fields[2:4]]
        return ":".join(fields)

    for name in ("passwd", "group"):
        lines = (etc / name).read_text(encoding="utf-8").splitlines()
        (etc / name).write_text("".join(renumbered(line) + "\n" for line in lines), encoding="utf-8")
    for path in (path for tree in trees for path in walk(tree)):
        status = path.lstat()
        os.chown(path, other(status.st_uid), other(status.st_gid), follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(status.st_mode))  # chown takes setuid and setgid away


def change_etc(etc: Path) -> None:
    """What differs between hosts with the same packages."""
    for name in ("localtime", "mtab", "timezone", "machine-id", "resolv.conf", "hostname", "fstab"):
        (etc / name).unlink(missing_ok=True)
    (etc / "localtime").symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    (etc / "mtab").symlink_to("/proc/mounts")
    (etc / "timezone").write_text("Asia/Tokyo\n", encoding="utf-8")
    (etc / "machine-id").write_text(f"{'1' * 32}\n", encoding="utf-8")
    (etc / "resolv.conf").symlink_to("/run/elsewhere")
    (etc / "adjtime").write_text("0.0 0 0.0\n0\nLOCAL\n", encoding="utf-8")
    (etc / "environment").write_text("X=1\n", encoding="utf-8")
    (etc / "default").mkdir(exist_ok=True)
    (etc / "default/locale").write_text("LANG=de_DE.UTF-8\n", encoding="utf-8")
    (etc / "ssh").mkdir(exist_ok=True)
    (etc / "ssh/ssh_host_ed25519_key.pub").write_text("ssh-ed25519 AAAA root@elsewhere\n", encoding="utf-8")
    with (etc / "passwd").open("a", encoding="utf-8") as passwd:
        passwd.write("somebody:x:1000:1000::/home/somebody:/bin/bash\nzabbix:x:321:321::/:/usr/sbin/nologin\n")
    with (etc / "group").open("a", encoding="utf-8") as group:
        group.write("somebody:x:1000:\nzabbix:x:321:redis\n")
    with (etc / "nsswitch.conf").open("a", encoding="utf-8") as switch:
        switch.write("hosts: files mdns4_minimal [NOTFOUND=return] dns myhostname\n")
    with (etc / "pam.d/common-session").open("a", encoding="utf-8") as session:
        session.write("session optional pam_systemd.so\n")
    with (etc / "ld.so.cache").open("ab") as cache:
        cache.write(bytes(16 << 10))


def files_of_another(folder: Path) -> list[str]:
    """Commands that mount another machine's files; copies of the host's that they need are made in this folder."""
    etc, log, locale = (copy(name, folder) for name in ("/etc", "/var/log", "/usr/lib/locale"))
    copies = {"/etc": etc, "/var/log": log, "/usr/lib/locale": locale}
    copies |= {name: copy(name, folder) for name in FOLDERS}
    change_etc(etc)
    (log / "syslog").write_text("it happened here\n", encoding="utf-8")
    (locale / "locale-archive").write_bytes(bytes(4096))
    renumber(etc, list(copies.values()))
    for tree in copies.values():
        for path in walk(tree):
            if path.suffix != ".py":
                os.utime(path, (OLD, OLD), follow_symlinks=False)
    os.chown(copies[FOLDERS[0]], 1000, 1000)
    own = [
        f"mount -t tmpfs none {name} && mkdir {name}/sub && echo here > {name}/sub/file"
        for name in ("/opt", "/srv", "/mnt")
    ]
    return [*(f"mount --bind {tree} {name}" for name, tree in copies.items()), *own]


def imitate(folder: Path) -> Elsewhere:
    """The other machine, with its files in this folder; needs root."""
    last_cpu = str(max(os.sched_getaffinity(0)))
    return Elsewhere(
        [
            *mounted([*files_of_another(folder), "hostname elsewhere", "umask 077"]),
            *["prlimit", "--stack=unlimited", "--nofile=4096", "--core=0", "--nproc=500", "--memlock=0", "--"],
            *["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
            *["taskset", "--cpu-list", last_cpu, "nice", "--adjustment=19"],
            *["setarch", "--uname-2.6", "-RLXZ3BIST"],
        ],
        ENVIRONMENT,
    )
