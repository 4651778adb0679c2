# SPDX-License-Identifier: GPL-2.0-or-later
"""A run sees one state of each host file, small files cost no descriptor, and no program notices the host's limits."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Program
from scenarios import Mapping, pair
from simulate import Simulation, simulate

LINK = {"rate": "1Gbit", "delay": "1ms"}
PATIENCE_S = 60
# Where nodes see the folder that a test changes; the host's own stays as it is, for it is mounted in a namespace.
PLACE = Path("/usr/local/share")
MOUNTED = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'mount --bind "$0" {PLACE} && exec "$@"']
SMALL = 5000
LARGE = 20 << 20  # more than is copied

# Reads the first bytes, says so, and reads all a few seconds later: by read(), and by a mapping made at the start.
READER = f"""
import hashlib, mmap, os, time
file = open("{PLACE}/data", "rb", buffering=0)
size = os.fstat(file.fileno()).st_size
view = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE)
print("first", file.read(6), flush=True)
time.sleep(3)
data = file.read()
while more := file.read():
    data += more
print("read", hashlib.sha256(data).hexdigest())
print("mapped", hashlib.sha256(view[6:size]).hexdigest() if IS_MAPPED else None)
print("size", os.stat("{PLACE}/data").st_size)
"""
LATER = f"import hashlib; print(hashlib.sha256(open('{PLACE}/data', 'rb').read()).hexdigest())"


def text(size: int) -> bytes:
    return (b"before" * (size // 6 + 1))[:size]


@dataclass(frozen=True)
class Host:
    """A folder of the host's that nodes see."""

    folder: Path

    def path(self, name: str = "data") -> Path:
        return self.folder / name

    def write(self, data: bytes, name: str = "data") -> None:
        self.path(name).write_bytes(data)
        self.path(name).chmod(0o644)

    def rewrite(self) -> None:
        """In place, with other bytes."""
        with self.path().open("r+b") as file:
            file.write(b"AFTER!" * (self.path().stat().st_size // 6))

    def shorten(self) -> None:
        os.truncate(self.path(), 3)

    def lengthen(self) -> None:
        with self.path().open("ab") as file:
            file.write(b"AFTER!")

    def replace(self) -> None:
        self.write(b"AFTER!", "new")
        self.path("new").rename(self.path())

    def remove(self) -> None:
        self.path().unlink()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    folder = tmp_path / "host"
    folder.mkdir()
    folder.chmod(0o755)
    return Host(folder)


@pytest.fixture
def mounted_engine(engine: Path, host: Host, tmp_path: Path) -> Path:
    """The engine, with the folder mounted where nodes look."""
    script = tmp_path / "engine"
    words = " ".join(f"'{word}'" for word in [*MOUNTED, host.folder, engine])
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return script


def two_readers(mapped: bool) -> Mapping:
    python = sys.executable if sys.executable.startswith("/usr/") else "python3"
    reader = READER.replace("IS_MAPPED", str(mapped))
    return pair(
        [{"exec": [python, "-c", reader], "expect": "any"}],
        [{"exec": [python, "-c", LATER], "start": "4s", "expect": "any"}],
        LINK,
        stop="5s",
    )


def run_while(engine: Path, folder: Path, scenario: Mapping, change: Callable[[], None]) -> Simulation:
    """Runs in step with the wall clock, and changes the host once the first program has read its first bytes."""
    problems = ["nothing was changed"]

    def watch(_pid: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            said = "".join(path.read_text() for path in folder.glob("out/h1/*.stdout"))
            if "first" in said:
                change()
                said = "".join(path.read_text() for path in folder.glob("out/h1/*.stdout"))
                problems[:] = ["the change came too late"] if "read" in said else []
                return
            time.sleep(0.02)

    result = simulate(engine, scenario, folder, ["--realtime"], watch=watch)
    assert problems == []
    return result


def digest(data: bytes) -> str:
    return subprocess.run(["sha256sum"], input=data, stdout=subprocess.PIPE, check=True).stdout.split()[0].decode()


CHANGES = {
    "rewritten": Host.rewrite,
    "shortened": Host.shorten,
    "lengthened": Host.lengthen,
    "replaced": Host.replace,
    "removed": Host.remove,
}


def warned(result: Simulation) -> list[str]:
    return [row["text"] for row in result.summary["warnings"] if row["code"] == "host_file_changed"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_small_file_stays_what_it_was(mounted_engine: Path, host: Host, tmp_path: Path, change: str) -> None:
    """For all programs of all nodes, however they read it, whenever they open it."""
    before = text(SMALL)
    host.write(before)
    result = run_while(mounted_engine, tmp_path / "run", two_readers(True), lambda: CHANGES[change](host))
    rest = digest(before[6:])
    assert result.stdout("h1").splitlines() == [
        f"first {before[:6]!r}",
        f"read {rest}",
        f"mapped {rest}",
        f"size {SMALL}",
    ]
    assert result.stdout("h2") == f"{digest(before)}\n"
    assert result.json("manifest.json")["changed_files"] == []
    assert warned(result) == []


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_a_large_file_is_held(mounted_engine: Path, host: Host, tmp_path: Path, change: str) -> None:
    before = text(LARGE)
    host.write(before)
    result = run_while(mounted_engine, tmp_path / "run", two_readers(True), lambda: CHANGES[change](host))
    rest = digest(before[6:])
    assert result.stdout("h1").splitlines()[1:] == [f"read {rest}", f"mapped {rest}", f"size {LARGE}"]
    assert result.stdout("h2") == f"{digest(before)}\n"
    assert result.json("manifest.json")["changed_files"] == []
    assert warned(result) == []


@pytest.mark.parametrize("change", ["rewritten", "shortened", "lengthened"])
def test_a_change_that_cannot_be_hidden_is_told(mounted_engine: Path, host: Host, tmp_path: Path, change: str) -> None:
    host.write(text(LARGE))
    result = run_while(mounted_engine, tmp_path / "run", two_readers(False), lambda: CHANGES[change](host))
    assert result.json("manifest.json")["changed_files"] == [f"{PLACE}/data"]
    [warning] = warned(result)
    assert f"{PLACE}/data" in warning
    errors = (result.out / "h1").glob("*.stderr")
    told = "".join(path.read_text() for path in errors)
    # What is gone is an error for the program, not the end of the file.
    assert ("Input/output error" in told) == (change == "shortened"), told


def test_an_untouched_large_file_is_no_news(mounted_engine: Path, host: Host, tmp_path: Path) -> None:
    host.write(text(LARGE))
    result = run_while(mounted_engine, tmp_path / "run", two_readers(True), lambda: None)
    assert result.stdout("h2") == f"{digest(text(LARGE))}\n"
    assert result.json("manifest.json")["changed_files"] == []
    assert warned(result) == []


def test_many_small_files_cost_no_descriptors(attempt: Callable[..., Program], tmp_path: Path) -> None:
    """The files stay, and what one node makes does not keep another from anything."""
    make = (
        "import os\n"
        "os.mkdir('/tmp/d')\n"
        "for number in range(30000):\n"
        "    with open(f'/tmp/d/{number}', 'w') as file: file.write(str(number % 10))\n"
        "print(sum(int(open(f'/tmp/d/{number}').read()) for number in range(30000)), len(os.listdir('/tmp/d')))\n"
    )
    nodes = pair([{"exec": ["python3", "-c", make]}], [{"exec": "ping -c 1 10.0.0.1", "start": "1s"}], LINK, stop="20s")
    nodes["nodes"]["h1"]["memory"] = "256MiB"
    file = tmp_path / "many.yaml"
    file.write_text(json.dumps(nodes), encoding="utf-8")
    out = tmp_path / "out"
    done = attempt("run", file, "--out", out, prefix=["prlimit", "--nofile=256:256"])
    assert done.code == 0, done
    assert Simulation(out, 0).stdout("h1") == "135000 30000\n"
    assert " 0% packet loss" in Simulation(out, 0).stdout("h2")


# A few programs that fork, load libraries, list folders and take memory.
BUSY = pair(
    [
        {"exec": ["sh", "-c", "for i in 1 2 3; do (sleep 1; ls /usr/lib | md5sum) & done; wait"]},
        {"exec": ["python3", "-c", "import ssl, json, subprocess; print(subprocess.run(['true']).returncode)"]},
    ],
    [{"exec": ["python3", "-c", "import asyncio, email; print(len(bytearray(400 << 20)))"]}],
    LINK,
    stop="5s",
)


@pytest.fixture(scope="module")
def reference(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    found: str = simulate(engine, BUSY, tmp_path_factory.mktemp("reference")).summary["digest"]
    return found


@pytest.mark.parametrize(
    ("limit", "works", "remedy"),
    [
        (["prlimit", "--nofile=40:40"], False, "ulimit -Hn"),
        (["prlimit", "--nofile=64:64"], None, "ulimit -Hn"),
        (["prlimit", "--nofile=80:80"], None, "ulimit -Hn"),
        (["prlimit", "--nofile=256:256"], True, ""),
        (["prlimit", f"--data={64 << 20}:{64 << 20}"], False, "ulimit -d unlimited"),
        (["prlimit", f"--data={300 << 20}:{300 << 20}"], False, "RLIMIT_DATA is 314572800"),
        (["prlimit", f"--data={300 << 20}:{4 << 30}"], True, ""),
        ([*MOUNTED[:6], 'mount -t tmpfs none /proc && exec "$@"', "sh"], False, "mount /proc|mount -t proc"),
    ],
)
def test_no_program_notices_the_hosts_limits(
    attempt: Callable[..., Program], tmp_path: Path, reference: str, limit: list[str], works: bool | None, remedy: str
) -> None:
    """The same digest, or an error that says what to raise; `works` is None where either may be."""
    file, out = tmp_path / "busy.yaml", tmp_path / "out"
    file.write_text(json.dumps(BUSY), encoding="utf-8")
    done = attempt("run", file, "--out", out, prefix=limit)
    if done.code == 0:
        assert works is not False
        assert Simulation(out, 0).summary["digest"] == reference
    else:
        assert not works, done
        assert done.code == 2, done
        assert re.search("error: host: cannot|this host cannot run scenarios", done.stderr), done.stderr
        assert re.search(f"hint: .*({remedy})", done.stderr), done.stderr
