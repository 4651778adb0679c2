# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that want all memory, files and output there are: they get errors inside, and the run a warning."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from conftest import ROOT, Program

Attempt = Callable[..., Program]

# Takes memory in pieces of 10 MiB and writes to all of it; "reserve" only reserves it, in ways that do not count.
HOG = r"""
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *piece(const char *how, size_t len)
{
	int reserve = !strcmp(how, "reserve"), shared = !strcmp(how, "shared");
	int flags = MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE) | (reserve ? MAP_NORESERVE : 0);

	if (!strcmp(how, "heap"))
		return sbrk(len);
	return mmap(NULL, len, PROT_READ | PROT_WRITE, flags, -1, 0);
}

int main(int argc, char **argv)
{
	size_t len = 10 << 20;
	int count = 0, most = atoi(argv[2]);

	for (; count < most; count++) {
		char *p = piece(argv[1], len);

		if (p == (char *)-1)
			break;
		if (strcmp(argv[1], "reserve"))
			memset(p, 1, len);
	}
	printf("%d pieces: %s\n", count, count < most ? strerror(errno) : "all");
	return 0;
}
"""


def program(folder: Path, source: str, name: str = "program") -> Mapping[str, object]:
    """The entry under `files` of a C program."""
    (folder / f"{name}.c").write_text(source, encoding="utf-8")
    subprocess.run(["cc", "-O1", "-w", "-D_GNU_SOURCE", "-o", folder / name, folder / f"{name}.c"], check=True)
    return {f"/opt/{name}": {"source": str(folder / name), "mode": "755"}}


def simulate(attempt: Attempt, folder: Path, scenario: Mapping[str, object]) -> tuple[Program, Path]:
    file, out = folder / "s.yaml", folder / "out"
    file.write_text(json.dumps({"version": 1, "name": "bounds", **scenario}), encoding="utf-8")
    return attempt("run", file, "--out", out, "--force"), out


def warnings(out: Path) -> dict[tuple[str, str], str]:
    """Texts by code and node."""
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return {(each["code"], node): each["text"] for each in summary["warnings"] for node in each["nodes"]}


def test_memory_ends_at_its_limit(attempt: Attempt, tmp_path: Path) -> None:
    """Private, shared and heap memory alike; reservations may be larger, and neighbours have their own."""
    kinds = ("private", "shared", "heap", "reserve")
    nodes = {
        kind: {"program_memory": "128MiB", "processes": [{"exec": ["/opt/program", kind, "100"]}]} for kind in kinds
    }
    nodes["free"] = {"processes": [{"exec": ["/opt/program", "private", "30"]}]}
    files = program(tmp_path, HOG)
    scenario = {"run": {"stop": "5s"}, "nodes": {name: {**node, "files": files} for name, node in nodes.items()}}
    result, out = simulate(attempt, tmp_path, scenario)
    assert result.code == 0, result
    said = {name: (out / name / "program-0.stdout").read_text(encoding="utf-8") for name in nodes}
    met = {name for code, name in warnings(out) if code == "program_memory_full"}
    assert said["free"] == "30 pieces: all\n"
    assert said["reserve"] == "100 pieces: all\n"
    for name in ("private", "shared", "heap"):
        assert said[name] == "12 pieces: Cannot allocate memory\n"
    assert met == {"private", "shared", "heap"}
    assert "`program_memory`, 128MiB" in warnings(out)["program_memory_full", "private"]


def test_files_end_at_their_limit(attempt: Attempt, tmp_path: Path) -> None:
    """On whatever file system; what is removed can be written again; holes and overwriting are free."""
    fill = "dd if=/dev/zero of=/tmp/x bs=64k status=none; stat -c %s /tmp/x; "
    again = "rm /tmp/x; dd if=/dev/zero of=/dev/shm/y bs=64k status=none; stat -c %s /dev/shm/y; "
    edge = "dd if=/dev/zero of=/dev/shm/y bs=1M count=8 conv=notrunc status=none; truncate -s 1T /root/hole; echo $?; "
    full = "echo more > /root/z; echo $?; df --output=size / /dev/shm"
    nodes = {
        "full": {"disk": "32MiB", "processes": [{"exec": ["sh", "-c", fill + again + edge + full]}]},
        "free": {"processes": [{"exec": ["sh", "-c", "head -c 40M /dev/zero > /tmp/x; stat -c %s /tmp/x"]}]},
    }
    result, out = simulate(attempt, tmp_path, {"run": {"stop": "5s"}, "nodes": nodes})
    assert result.code == 0, result
    size = 32 << 20
    assert (out / "full/sh-0.stdout").read_text(
        encoding="utf-8"
    ) == f"{size}\n{size}\n0\n1\n1K-blocks\n    32768\n    32768\n"
    assert (out / "full/sh-0.stderr").read_text(encoding="utf-8").count("No space left on device") == 2
    assert (out / "free/sh-0.stdout").read_text(encoding="utf-8") == f"{40 << 20}\n"
    assert {key for key in warnings(out) if key[0] == "disk_full"} == {("disk_full", "full")}


def test_output_ends_at_its_limit(attempt: Attempt, tmp_path: Path) -> None:
    """Each of a program's two files by itself; the program sees a full disk."""
    talk = "head -c 90000 /dev/zero; yes >&2; echo $?"
    scenario = {
        "run": {"stop": "5s", "output_limit": "100kB"},
        "nodes": {"a": {"processes": [{"exec": ["sh", "-c", talk]}, {"exec": ["yes"], "expect": {"exit": 1}}]}},
    }
    result, out = simulate(attempt, tmp_path, scenario)
    assert result.code == 0, result
    assert (out / "a/sh-0.stdout").read_bytes() == bytes(90000) + b"1\n"
    assert (out / "a/sh-0.stderr").read_bytes() == b"y\n" * 50000
    assert (out / "a/yes-1.stdout").read_bytes() == b"y\n" * 50000
    texts = [text for (code, _), text in warnings(out).items() if code == "output_full"]
    assert texts
    assert "`output_limit`, 100kB" in texts[0]


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup of 3 GiB, version 1 or 2; where none can be made, the test says why and is skipped."""
    candidates = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))
    reasons = []
    for mount, limit in candidates:
        group = Path(mount) / f"windtunnel-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(3 << 30), encoding="ascii")
        except OSError as error:
            reasons.append(str(error))
            if group.is_dir():
                group.rmdir()
            continue
        yield group
        group.rmdir()
        return
    pytest.skip(f"no cgroup with a limit can be made here: {'; '.join(reasons)}")


def ring() -> tuple[dict[str, dict[str, object]], list[dict[str, object]]]:
    """Five nodes that talk to each other, compute and write files."""
    nodes: dict[str, dict[str, object]] = {}
    links: list[dict[str, object]] = []
    for number in range(5):
        work = f"ping -c 9 -i 0.2 10.0.{number}.2; seq 9999 | sha256sum; head -c 5M /dev/zero > /tmp/f"
        nodes[f"g{number}"] = {
            "addresses": {"eth0": f"10.0.{number}.1/24", "eth1": f"10.0.{(number + 1) % 5}.2/24"},
            "processes": [{"exec": ["sh", "-c", work], "start": "500ms"}],
        }
        ends = [f"g{number}:eth0", f"g{(number - 1) % 5}:eth1"]
        links.append({"endpoints": ends, "both": {"rate": "1Gbit", "delay": "1ms"}})
    return nodes, links


def test_a_host_too_small_harms_only_the_greedy(engine: Path, cgroup: Path, tmp_path: Path) -> None:
    """Bad programs take more than there is, run on and on, and set wild registers; five other nodes don't notice."""
    files = program(tmp_path, HOG)
    spin = program(tmp_path, "int main(void) { for (;;) ; }", "spin")
    wild = program(tmp_path, (ROOT / "tests/storms/contexts.c").read_text(encoding="utf-8"), "wild")
    good, links = ring()
    bad = {
        "malloc": {"files": files, "processes": [{"exec": ["/opt/program", "private", "10000"]}]},
        "shared": {"files": files, "processes": [{"exec": ["/opt/program", "shared", "10000"], "start": "700ms"}]},
        "files": {"processes": [{"exec": ["sh", "-c", "cat /dev/zero > /tmp/x"], "start": "1s"}]},
        "shm": {"processes": [{"exec": ["sh", "-c", "cat /dev/zero > /dev/shm/x"], "start": "1s"}]},
        "spin": {"files": spin, "processes": [{"exec": "/opt/spin"}]},
        "wild": {"files": wild, "processes": [{"exec": "/opt/wild 1 300"}]},
        "forks": {"processes": [{"exec": ["sh", "-c", "f() { f | f & }; f; sleep 1"], "start": "800ms"}]},
    }
    run = {"stop": "5s", "capture": "all"}
    results = []
    # Each as long as the other: one of the bad programs never ends.
    idle = {"idle": {"processes": [{"exec": "sleep 60"}]}}
    for name, nodes in (("alone", {**good, **idle}), ("beside", {**good, **bad})):
        file, out = tmp_path / f"{name}.yaml", tmp_path / name
        file.write_text(
            json.dumps({"version": 1, "name": "small", "run": run, "nodes": nodes, "links": links}), encoding="utf-8"
        )
        inside = [
            "sh",
            "-c",
            'echo $$ > "$0/cgroup.procs"; exec "$@"',
            *map(str, (cgroup, engine, "run", file, "--out", out)),
        ]
        done = subprocess.run(inside, check=False, capture_output=True, text=True)
        assert done.returncode == (0 if name == "alone" else 1), done
        results.append(out)
    alone, beside = results
    for out in results:
        assert (out / "summary.json").exists()
    told = {node for code, node in warnings(beside) if code == "host_memory"}
    assert {"malloc", "shared"} <= told <= {"malloc", "shared", "files", "shm"}, told
    assert told & {"files", "shm"}
    assert "Out of memory of the host: Killed process" in (beside / "malloc/kernel.log").read_text(encoding="utf-8")
    same = [
        path.relative_to(alone)
        for path in sorted(alone.rglob("*"))
        if path.suffix in (".stdout", ".stderr", ".pcap") and "idle" not in path.parts
    ]
    assert len(same) == 5 * 2 + 10
    for path in same:
        assert (alone / path).read_bytes() == (beside / path).read_bytes(), path


# Opens files of a tree and holds them open: how many it got.
HOLD = r"""
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static int count, most;

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)ftw;
	if (type == FTW_F && open(path, O_RDONLY) >= 0)
		count++;
	return count == most;
}

int main(int argc, char **argv)
{
	struct rlimit limit = {1 << 20, 1 << 20};

	setrlimit(RLIMIT_NOFILE, &limit);
	most = argc > 1 ? atoi(argv[1]) : 0;
	nftw("/usr", visit, 16, FTW_PHYS);
	printf("%d\n", count == most);
	return 0;
}
"""


def test_a_small_kernel_sees_all_files(attempt: Attempt, tmp_path: Path) -> None:
    """What a kernel knows of the host's files is given back when it needs the memory; what the node changed stays."""
    look = "chmod 600 /etc/passwd; find /usr -xdev -size +100k | sort | sha256sum; stat -c %a /etc/passwd"
    find = {"processes": [{"exec": ["sh", "-c", look]}]}
    nodes = {
        "small": {"memory": "20MiB", **find},
        "large": {"memory": "1GiB", **find},
        "holds": {"files": program(tmp_path, HOLD), "processes": [{"exec": ["/opt/program", "10000"]}]},
    }
    result, out = simulate(attempt, tmp_path, {"run": {"stop": "30s"}, "nodes": nodes})
    assert result.code == 0, result
    small, large = ((out / name / "sh-0.stdout").read_text(encoding="utf-8") for name in ("small", "large"))
    assert small == large
    assert small.endswith("\n600\n")
    assert (out / "holds/program-0.stdout").read_text(encoding="utf-8") == "1\n"
    assert "oom-kill" not in (out / "small/kernel.log").read_text(encoding="utf-8")
