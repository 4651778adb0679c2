# SPDX-License-Identifier: GPL-2.0-or-later
"""The programs are the distribution's, they cannot touch the host, and what they ask for in vain is reported."""

import hashlib
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Program
from scenarios import Mapping, pair, tcp_pair
from simulate import Simulation

LINK = {"rate": "1Gbit", "delay": "1ms"}


def packaged_md5() -> dict[str, str]:
    """Path -> MD5 sum of every file that a package brought, by the package manager's own lists."""
    sums = {}
    for listing in Path("/var/lib/dpkg/info").glob("*.md5sums"):
        for line in listing.read_text(encoding="utf-8").splitlines():
            digest, _, name = line.partition("  ")
            sums[f"/{name}"] = digest
    return sums


def test_programs_are_the_packages_files(run: Callable[..., Simulation]) -> None:
    scenario = tcp_pair(1)
    scenario["nodes"]["h2"]["processes"].append({"exec": "ping -c 1 10.0.0.1", "start": "1s"})
    programs = run(scenario).json("manifest.json")["programs"]
    assert {"iperf3", "ping", "libc.so.6"} <= {Path(row["path"]).name for row in programs}
    md5 = packaged_md5()
    for row in programs:
        data = Path(row["path"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == row["sha256"], row["path"]
        # Packages name /bin and /lib by their old places; libraries are links to their versions.
        real = str(Path(row["path"]).resolve())
        known = md5.get(real) or md5.get(real.removeprefix("/usr"))
        assert known == hashlib.md5(data, usedforsecurity=False).hexdigest(), f"{real} is not as its package brought it"


def test_a_node_cannot_change_the_host(run: Callable[..., Simulation]) -> None:
    before = {path: Path(path).read_bytes() for path in ("/usr/bin/ping", "/etc/passwd")}
    commands = [
        "cp /bin/true /usr/bin/ping",
        "sh -c 'echo x >> /etc/passwd'",
        "rm -rf /usr/share/doc",
        "touch /tmp/made-in-a-node",
    ]
    result = run(pair([{"exec": command} for command in commands], [], LINK, stop="1s"))
    assert [row["exit"] for row in result.summary["processes"]] == [0] * len(commands)
    assert {path: Path(path).read_bytes() for path in before} == before
    assert Path("/usr/share/doc/libc6").is_dir()
    assert not Path("/tmp/made-in-a-node").exists()


def test_nodes_see_their_own_files_and_clock(run: Callable[..., Simulation]) -> None:
    scenario = pair(
        [{"exec": "cat /etc/hostname /etc/greeting"}, {"exec": "date -u +%s.%N", "start": "250ms"}, {"exec": "nproc"}],
        [{"exec": "cat /etc/greeting", "expect": {"exit": 1}}],
        LINK,
        stop="1s",
        epoch="2026-01-01",
    )
    scenario["nodes"]["h1"]["files"] = {"/etc/greeting": {"content": "hello\n"}}
    result = run(scenario)
    assert result.stdout("h1") == "h1\nhello\n"
    assert result.stdout("h1", 1) == "1767225600.250000000\n"
    assert result.stdout("h1", 2) == "1\n"


@pytest.mark.parametrize("given", [{}, {"stdin": "hello\n"}], ids=["nothing", "text"])
def test_standard_input_cannot_be_written_to(run: Callable[..., Simulation], given: Mapping) -> None:
    script = "cat; grep flags /proc/self/fdinfo/0; echo x >&0 || echo refused"
    result = run(pair([{"exec": ["bash", "-c", script], **given}], [], LINK, stop="1s"))
    access_mode = r"flags:\t0\d*0\n"
    assert re.fullmatch(given.get("stdin", "") + access_mode + "refused\n", result.stdout("h1"))
    error = (result.out / result.process("h1")["stderr"]).read_text(encoding="utf-8")
    assert "Bad file descriptor" in error


def test_unsupported_calls_are_warned_of_once(run: Callable[..., Simulation], tmp_path: Path) -> None:
    source = tmp_path / "uring.c"
    source.write_text(
        "#include <sys/syscall.h>\n#include <unistd.h>\n"
        "int main(void) { for (int i = 0; i < 3; i++) syscall(SYS_io_uring_setup, 1, 0); return 0; }\n",
        encoding="utf-8",
    )
    subprocess.run(["cc", "-o", tmp_path / "uring", source], check=True)
    scenario = pair([{"exec": "/opt/uring"}], [], LINK, stop="1s")
    scenario["nodes"]["h1"]["files"] = {"/opt/uring": {"source": str(tmp_path / "uring"), "mode": "755"}}
    warnings = [row for row in run(scenario).summary["warnings"] if "io_uring_setup" in json.dumps(row)]
    assert len(warnings) == 1
    assert warnings[0]["count"] == 3


def test_a_fault_ends_that_program_only(run: Callable[..., Simulation], tmp_path: Path) -> None:
    source = tmp_path / "fault.c"
    source.write_text("int main(void) { *(volatile int *)8 = 1; return 0; }\n", encoding="utf-8")
    subprocess.run(["cc", "-o", tmp_path / "fault", source], check=True)
    processes: list[Mapping] = [
        {"exec": "/opt/fault", "expect": {"signal": "SEGV"}},
        {"exec": "ping -c 2 10.0.0.2", "start": "1s"},
    ]
    scenario = pair(processes, [], LINK, stop="4s")
    scenario["nodes"]["h1"]["files"] = {"/opt/fault": {"source": str(tmp_path / "fault"), "mode": "755"}}
    result = run(scenario)
    assert (result.process("h1")["exit"], result.process("h1")["signal"]) == (None, 11)
    assert "2 received" in result.stdout("h1", 1)


def test_memory_is_the_nodes_own(run: Callable[..., Simulation]) -> None:
    """A node that runs out of it kills the program that took it, as Linux does, and works on; so do the others."""
    processes: list[Mapping] = [
        {"exec": "dd if=/dev/zero of=/mnt/file bs=1M count=200", "expect": {"signal": "KILL"}},
        {"exec": "ping -c 1 10.0.0.2", "start": "1s"},
    ]
    scenario = pair(processes, [], LINK, stop="4s")
    # A ramfs has no limit, and its pages cannot be reclaimed: that leaves the program next to nothing.
    scenario["nodes"]["h1"] |= {"memory": "64MiB", "setup": ["mount -t ramfs none /mnt"]}
    result = run(scenario)
    assert result.process("h1")["signal"] == 9
    assert "1 received" in result.stdout("h1", 1)
    log = (result.out / "h1/kernel.log").read_text(encoding="utf-8")
    assert re.search(r"Out of memory: Killed process \d+ \(dd\)", log)


TMPFS_SCRIPT = """
d=/mnt/t; mkdir -p $d
mount -t tmpfs -o size=64k,nr_inodes=5,mode=750 none $d
stat -c '%a %F' $d; stat -f -c '%T %s %b %f %c %d' $d
grep -o 'size=64k,nr_inodes=5,mode=750' /proc/mounts
head -c 40000 /dev/zero > $d/a; stat -f -c '%b %f %c %d' $d
head -c 40000 /dev/zero > $d/b || stat -c '%s' $d/b; stat -f -c '%b %f' $d
rm $d/a; stat -f -c '%f %d' $d
touch $d/c $d/e; mkdir $d/f; touch $d/g || ln $d/c $d/h || stat -f -c '%c %d' $d
truncate -s 1M $d/b; stat -f -c '%f' $d; truncate -s 0 $d/b; stat -f -c '%f' $d
fallocate -l 100k $d/b || fallocate -l 50k $d/b; stat -f -c '%f' $d
mount -o remount,size=20k $d || mount -o remount,size=128k $d; df -k $d | tail -1 | tr -s ' '
umount $d
mount -t tmpfs -o size=8k,uid=7,gid=8 none $d; stat -c '%u %g %a' $d
dd if=/dev/zero of=$d/x bs=1k count=100 2>/dev/null || stat -c %s $d/x
umount $d; mount -t tmpfs -o size=1x none $d || echo refused
mount -t tmpfs none $d
python3 -c '
import mmap, os
f = os.open("/mnt/t/m", os.O_RDWR | os.O_CREAT); os.ftruncate(f, 8192); m = mmap.mmap(f, 8192)
if os.fork() == 0:
    mmap.mmap(os.open("/mnt/t/m", os.O_RDWR), 8192)[5:8] = b"abc"; os._exit(0)
os.wait(); print(m[5:8], os.pread(f, 3, 5)); m[0:1] = b"z"; print(os.pread(f, 1, 0))'
"""

# What Linux prints.
TMPFS_OUTPUT = """750 directory
tmpfs 4096 16 16 5 4
size=64k,nr_inodes=5,mode=750
16 6 5 3
24576
16 0
10 3
5 0
10
16
3
none 128 52 76 41% /mnt/t
7 8 1777
8192
refused
b'abc' b'abc'
b'z'
"""


def test_a_tmpfs_has_limits_and_shared_mappings(run: Callable[..., Simulation], tmp_path: Path) -> None:
    script = tmp_path / "tmpfs.sh"
    script.write_text(TMPFS_SCRIPT, encoding="utf-8")
    scenario: Mapping = {
        "version": 1,
        "name": "tmpfs",
        "run": {"stop": "10s"},
        "nodes": {
            "h1": {
                "files": {"/opt/tmpfs.sh": {"source": str(script)}},
                "processes": [{"exec": "sh /opt/tmpfs.sh"}],
            }
        },
    }
    done = run(scenario)
    assert done.stdout("h1") == TMPFS_OUTPUT


def test_the_table_of_host_side_calls_is_printed(attempt: Callable[..., Program]) -> None:
    result = attempt("syscalls")
    assert result.code == 0
    for name in ("mmap", "brk", "execve", "io_uring_setup"):
        assert re.search(rf"\b{name}\b", result.stdout), name
