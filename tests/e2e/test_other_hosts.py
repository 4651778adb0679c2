# SPDX-License-Identifier: GPL-2.0-or-later
"""Another user's machine with the same packages gives the same bytes, and what a run read of it is in the manifest.

The other machine is this one with other files mounted over its own, in a mount namespace of the run only.
"""

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import NEEDS_ROOT, Host, Outcome
from scenarios import Mapping, pair

LINK = {"rate": "1Gbit", "delay": "1ms"}
# Of packages that every Debian system has.
FOLDERS = ("/usr/share/base-passwd", "/usr/share/common-licenses", "/usr/share/perl5")
OLD = 1_000_000_000
LOOKS = [
    "cat /etc/passwd /etc/group /etc/shadow /etc/subuid /etc/nsswitch.conf /etc/fstab /etc/mtab",
    "cat /etc/hostname /etc/hosts /etc/resolv.conf /etc/machine-id /var/lib/dbus/machine-id /etc/timezone",
    "cat /etc/environment /etc/default/locale /etc/pam.d/common-auth",
    "sha256sum /etc/ld.so.cache",
    "ls -la --time-style=full-iso /",
    "ls -laR --time-style=full-iso /etc /boot /home /media /mnt /opt /srv /var/log /usr/lib/locale",
    f"ls -laR --time-style=full-iso {' '.join(FOLDERS)}",
    "ls -lan /etc",
    "stat /etc/localtime /etc/passwd /etc/shadow /etc/ssh /usr/share/perl5",
    "getent passwd",
    "getent group",
    "id postgres",
    "id redis",
    "locale -a",
    "date",
    "date --date=2026-07-01 +%c",
    "cat /proc/self/maps",
    "python3 -c \"import os, pwd, ssl, time; print(time.tzname, pwd.getpwnam('redis'), os.stat('/etc').st_mtime)\"",
    "perl -e \"use POSIX; print POSIX::setlocale(LC_ALL, ''), scalar(localtime)\"",
]


def scenario() -> Mapping:
    # Some folders may be unreadable, here and there.
    processes = [{"exec": look, "expect": "any" if look.startswith("ls") else 0} for look in LOOKS]
    return pair(processes, [{"exec": "cat /etc/machine-id"}], LINK, stop="20s", seed=5)


@pytest.fixture(scope="module")
def host(engine: Path, kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Host:
    folder = tmp_path_factory.mktemp("host")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    return Host.prepare(folder, engine, kernel, scenario())


@pytest.fixture(scope="module")
def reference(host: Host) -> Outcome:
    return host.run()


def mounted(commands: list[str]) -> list[str]:
    """A prefix that mounts what the commands say, for what follows it only."""
    return ["unshare", "--mount", "sh", "-c", "\n".join(["set -e", *commands, 'exec "$@"']), "sh"]


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


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Mounts that make this host another one."""
    folder = tmp_path_factory.mktemp("elsewhere")
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


@NEEDS_ROOT
def test_another_users_machine(host: Host, reference: Outcome, elsewhere: list[str]) -> None:
    env = {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo", "USER": "somebody"}
    there = host.run(prefix=mounted(elsewhere), env=env)
    there.assert_equal(reference)
    # It was another machine.
    look = ["sh", "-c", "cat /etc/timezone; id -u somebody; ls /srv; stat -c %Y /usr/share/perl5"]
    seen = subprocess.run([*mounted(elsewhere), *look], check=True, capture_output=True, text=True).stdout
    assert seen.split() == ["Asia/Tokyo", "1000", "sub", str(OLD)]
    assert there.inputs("files") == reference.inputs("files")
    assert there.inputs("programs") == reference.inputs("programs")


def test_what_a_node_knows_of_itself(reference: Outcome) -> None:
    users = dict(line.split(":", 1) for line in reference.stdout("h1", LOOKS.index("getent passwd")).splitlines())
    assert users["root"] == "x:0:0:root:/root:/bin/bash"
    assert users["redis"].startswith("x:106:106:")
    assert "202(ssl-cert)" in reference.stdout("h1", LOOKS.index("id postgres"))
    assert reference.stdout("h1", LOOKS.index("date")) == "Thu Jan  1 00:00:00 UTC 2026\n"
    first, second = reference.stdout("h1", 1), reference.stdout("h2", 0)
    (own,) = [line for line in set(first.splitlines()) if len(line) == 32]
    assert first.splitlines().count(own) == 2, "D-Bus has the same"
    assert own != second.strip()


def digest_of(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_the_manifest_names_what_was_read(reference: Outcome) -> None:
    programs, files, directories = (reference.inputs(kind) for kind in ("programs", "files", "directories"))
    for path in ("/usr/bin/cat", "/usr/bin/python3.11"):
        if Path(path).exists():
            assert programs[path] == digest_of(path)
            assert path not in files
    assert not programs.keys() & files.keys()
    zone = "/usr/share/zoneinfo/Etc/UTC"
    assert not Path(zone).exists() or files[zone] == digest_of(zone)
    # Nothing that is the node's own.
    assert not files.keys() & {"/etc/passwd", "/etc/ld.so.cache", "/etc/machine-id", "/etc/timezone"}
    assert set(FOLDERS) <= directories.keys() and "/opt" not in directories
    names = sorted(os.scandir(FOLDERS[1]), key=lambda entry: os.fsencode(entry.name))
    types = [(os.fsencode(entry.name), entry.stat(follow_symlinks=False).st_mode & 0o170000) for entry in names]
    listing = b"".join(name + b"\0%o\n" % kind for name, kind in types)
    assert directories[FOLDERS[1]] == hashlib.sha256(listing).hexdigest()
    assert list(files) == sorted(files) and list(directories) == sorted(directories)


@NEEDS_ROOT
def test_a_changed_file_is_another_input(engine: Path, kernel: Path, tmp_path: Path) -> None:
    commands = [{"exec": "wc -l /usr/local/share/data"}, {"exec": "ls /usr/local/share"}]
    host = Host.prepare(tmp_path, engine, kernel, pair(commands, [], LINK, stop="5s"))

    def run(data: str, *more: str) -> Outcome:
        files = [f"echo {data} > /usr/local/share/data", *(f"touch /usr/local/share/{name}" for name in more)]
        return host.run(prefix=mounted(["mount -t tmpfs none /usr/local/share", *files]))

    one, two, three = run("one"), run("two"), run("one", ".more")
    one.assert_equal(two)
    one.assert_equal(three)
    data = "/usr/local/share/data"
    assert one.inputs("files")[data] == hashlib.sha256(b"one\n").hexdigest()
    assert two.inputs("files")[data] == hashlib.sha256(b"two\n").hexdigest()
    assert one.inputs("files") == three.inputs("files")
    folder = "/usr/local/share"
    assert one.inputs("directories")[folder] == two.inputs("directories")[folder] != three.inputs("directories")[folder]


@NEEDS_ROOT
def test_libraries_that_ld_so_conf_names_are_found(engine: Path, kernel: Path, tmp_path: Path) -> None:
    library, program = tmp_path / "libfar.so.1", tmp_path / "program"
    build = ["gcc", "-x", "c", "-", "-o"]
    source = "int far(void) { return 7; }"
    shared = ["-shared", "-fPIC", "-Wl,-soname,libfar.so.1"]
    subprocess.run([*build, library, *shared], input=source, text=True, check=True)
    source = "extern int far(void); int main(void) { return far(); }"
    subprocess.run([*build, program, f"-L{tmp_path}", "-l:libfar.so.1"], input=source, text=True, check=True)
    scenario = pair([{"exec": "/opt/program", "expect": 7}], [], LINK, stop="5s")
    scenario["nodes"]["h1"]["files"] = {"/opt/program": {"source": str(program), "mode": "755"}}
    host = Host.prepare(tmp_path, engine, kernel, scenario)
    there = ["mount -t tmpfs none /usr/local/lib", f"cp {library} /usr/local/lib"]
    outcome = host.run(prefix=mounted(there))
    assert outcome.inputs("programs")["/usr/local/lib/libfar.so.1"] == digest_of(str(library))
