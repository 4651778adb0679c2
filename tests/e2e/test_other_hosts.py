# SPDX-License-Identifier: GPL-2.0-or-later
"""Another user's machine with the same packages gives the same bytes, and what a run read of it is in the manifest.

The other machine is this one with other files mounted over its own, in a mount namespace of the run only.
"""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from elsewhere import FOLDERS, OLD, Elsewhere, mounted
from hosts import NEEDS_ROOT, Host, Outcome
from scenarios import Mapping, pair

LINK = {"rate": "1Gbit", "delay": "1ms"}
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


@NEEDS_ROOT
def test_another_users_machine(host: Host, reference: Outcome, elsewhere: Elsewhere) -> None:
    there = host.run(prefix=elsewhere.prefix, env=elsewhere.env)
    there.assert_equal(reference)
    # It was another machine, and another user.
    look = (
        "cat /etc/timezone; id -u somebody; ls /srv; stat -c %Y /usr/share/perl5; hostname; id -u; umask; nproc; "
        "ulimit -s; ulimit -n; nice; cat /proc/self/personality"
    )
    seen = subprocess.run([*elsewhere.prefix, "bash", "-c", look], check=True, capture_output=True, text=True).stdout
    machine = ["Asia/Tokyo", "1000", "sub", str(OLD), "elsewhere"]
    assert seen.split() == [*machine, "65534", "0077", "1", "unlimited", "4096", "19", elsewhere.personality]
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
