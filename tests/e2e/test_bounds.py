# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that want all memory, files and output there are: they get errors inside, and the run a warning."""

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from conftest import Program

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


def program(folder: Path, source: str) -> Mapping[str, object]:
    """The entry under `files` of a C program."""
    (folder / "program.c").write_text(source, encoding="utf-8")
    subprocess.run(["cc", "-O1", "-o", folder / "program", folder / "program.c"], check=True)
    return {"/opt/program": {"source": str(folder / "program"), "mode": "755"}}


def simulate(attempt: Attempt, folder: Path, scenario: Mapping[str, object]) -> tuple[Program, Path]:
    file, out = folder / "s.yaml", folder / "out"
    file.write_text(json.dumps({"version": 1, "name": "bounds", **scenario}), encoding="utf-8")
    return attempt("run", file, "--out", out, "--force"), out


def warnings(out: Path) -> dict[tuple[str, str], str]:
    """Texts by code and node."""
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return {(each["code"], each["node"]): each["text"] for each in summary["warnings"]}


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
    full = "echo more > /root/z; echo $?"
    nodes = {
        "full": {"disk": "32MiB", "processes": [{"exec": ["sh", "-c", fill + again + edge + full]}]},
        "free": {"processes": [{"exec": ["sh", "-c", "head -c 40M /dev/zero > /tmp/x; stat -c %s /tmp/x"]}]},
    }
    result, out = simulate(attempt, tmp_path, {"run": {"stop": "5s"}, "nodes": nodes})
    assert result.code == 0, result
    size = 32 << 20
    assert (out / "full/sh-0.stdout").read_text(encoding="utf-8") == f"{size}\n{size}\n0\n1\n"
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
