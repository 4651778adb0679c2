# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/bare-root with programs in the place of debootstrap and others: it says why it cannot, and leaves nothing."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import ROOT
from hosts import NEEDS_ROOT

SOURCE = "deb http://deb.debian.org/debian/ bookworm main"
# A machine where it works, as far as debootstrap.
PROGRAMS = {
    "id": "echo 0",
    "apt-get": f'[ "$1" != indextargets ] || echo "{SOURCE}"',
    "df": "echo Avail; echo 100000",
    "unshare": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
    "debootstrap": "echo one; echo two; exit 1",
}


def start(folder: Path, programs: dict[str, str]) -> subprocess.Popen[str]:
    for name, script in (PROGRAMS | programs).items():
        if script:
            (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            (folder / name).chmod(0o755)
    (folder / "place").mkdir()
    return subprocess.Popen(
        [ROOT / "scripts/bare-root", "true"],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(folder / "place")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


CASES = {
    "another user": ({"id": "echo 1000"}, "it needs root"),
    "a container": ({"unshare": "exit 1"}, "mount and process namespaces are needed, which a container may forbid"),
    "another release": ({"apt-get": f'echo "{SOURCE}" | sed s/bookworm/trixie/'}, "no source of Debian 12 (bookworm)"),
    "no sources": ({"apt-get": "exit 0"}, "no source of Debian 12 (bookworm)"),
    "no room": ({"df": "echo Avail; echo ' 99'"}, "has 99 MiB free of the 10000 that it takes"),
    "no network": ({}, "one\ntwo\nbare-root: not possible here: debootstrap failed"),
}


@pytest.mark.parametrize("name", CASES)
def test_says_why_it_cannot(tmp_path: Path, name: str) -> None:
    programs, reason = CASES[name]
    process = start(tmp_path, programs)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (75, ""), stderr
    assert "bare-root: not possible here: " in stderr and reason in stderr
    assert list((tmp_path / "place").iterdir()) == []


def test_asks_for_lists_where_there_are_none(tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    apt = f'case $1 in update) touch {lists} ;; indextargets) [ ! -e {lists} ] || echo "{SOURCE}" ;; esac'
    _, stderr = start(tmp_path, {"apt-get": apt}).communicate(timeout=60)
    assert "not possible here: debootstrap failed" in stderr


def running(text: str) -> list[str]:
    """Processes whose command line has this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if text.encode() in line:
            found.append(path.parent.name)
    return found


@NEEDS_ROOT
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Where a file system is mounted in its folder and processes would run on, one in a session of its own."""
    name = f"98765.{os.getpid()}{number.value}"
    script = f"""
        root=$4
        mkdir $root/proc && mount -t tmpfs tmpfs $root/proc && echo x > $root/proc/file || exit 1
        setsid sleep {name} &
        touch {tmp_path}/started
        sleep {name}
    """
    process = start(tmp_path, {"unshare": "", "id": "", "debootstrap": script})
    deadline_s = time.monotonic() + 60
    while not (tmp_path / "started").exists():
        assert process.poll() is None and time.monotonic() < deadline_s, process.communicate(timeout=60)
        time.sleep(0.05)
    while len(running(name)) < 2:
        assert process.poll() is None and time.monotonic() < deadline_s, process.communicate(timeout=60)
        time.sleep(0.05)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), stderr
    deadline_s = time.monotonic() + 30
    while running(name) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert running(name) == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    # Nobody can take the folder away after SIGKILL.
    assert len(list((tmp_path / "place").iterdir())) == int(number == signal.SIGKILL)
