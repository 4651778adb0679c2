# SPDX-License-Identifier: GPL-2.0-or-later
"""What is told when a kernel panics, a program faults, and a program never comes back."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from conftest import Program
from scenarios import Mapping, pair, scenario

LINK = {"rate": "1Gbit", "delay": "1ms"}

Attempt = Callable[..., Program]


def write(folder: Path, scenario: Mapping) -> Path:
    file = folder / "s.yaml"
    file.write_text(json.dumps(scenario), encoding="utf-8")
    return file


def with_program(folder: Path, source: str, *options: str, **process: object) -> Mapping:
    """A pair whose first node runs this C program as /opt/program after a second."""
    (folder / "program.c").write_text(source, encoding="utf-8")
    subprocess.run(["cc", *options, "-o", folder / "program", folder / "program.c"], check=True)
    scenario = pair([{"exec": "/opt/program", "start": "1s", **process}], [], LINK, stop="5s")
    scenario["nodes"]["h1"]["files"] = {"/opt/program": {"source": str(folder / "program"), "mode": "755"}}
    return scenario


def test_a_kernel_panics(attempt: Attempt, tmp_path: Path) -> None:
    """A program asks for it, as on any Linux; the report names node, time and the way to the panic."""
    crash = ["sh", "-c", "sleep 2; echo last words; echo c > /proc/sysrq-trigger"]
    scenario = pair([{"exec": crash}], [{"exec": "ping -c 9 10.0.0.1", "start": "1s"}], LINK, stop="20s", capture="all")
    out = tmp_path / "out"
    result = attempt("run", write(tmp_path, scenario), "--out", out)
    assert result.code == 3, result
    for fragment in (
        r"kernel of node h1 crashed at 2\.\d+s \(seed 1\)",
        "kernel panic: sysrq triggered crash",
        r"in sh \(pid \d+\)",
        r"\bpanic\+0x",
        r"\bksys_write\+0x",
        "Kernel panic - not syncing: sysrq triggered crash",
        "hint: a program of the node asked for it",
    ):
        assert re.search(fragment, result.stderr), f"no {fragment!r} in:\n{result.stderr}"
    # What there was until then is kept.
    assert (out / "h1/sh-0.stdout").read_text(encoding="utf-8") == "last words\n"
    assert "64 bytes from 10.0.0.1" in (out / "h2/ping-0.stdout").read_text(encoding="utf-8")
    assert "sysrq: Trigger a crash" in (out / "h1/kernel.log").read_text(encoding="utf-8")
    assert (out / "pcap/h1-eth0.pcap").stat().st_size > 500
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["ended"] == "crash"
    assert 2 * 10**9 <= summary["virtual_time_ns"] < 3 * 10**9
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["ended"] == "crash"
    assert "sysrq triggered crash" in manifest["error"]


def test_a_kernel_has_no_memory_left(attempt: Attempt, tmp_path: Path) -> None:
    """No bug of ours, and the node's `memory` is what to change."""
    # The shell itself may not be ended, and the others are gone before there is too little.
    protect = "echo -1000 > /proc/self/oom_score_adj"
    eater = ["sh", "-c", f"{protect}; for i in $(seq 400); do ip link add d$i type dummy; done"]
    node: Mapping = {"memory": "16MiB", "processes": [{"exec": eater}]}
    result = attempt("run", write(tmp_path, scenario({"n": node}, [], "1min")), "--out", tmp_path / "out")
    assert result.code == 2, result
    assert "kernel panic: System is deadlocked on memory" in result.stderr
    assert result.stderr.endswith("hint: its kernel had no memory left: give the node more `memory`\n"), result.stderr


FAULT = """
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) int compare(const void *a, const void *b) {
    return *(volatile int *)*(int *const *)a = b != 0;
}
__attribute__((noinline)) int sort(void) {
    int *numbers[2] = {NULL, NULL};
    qsort(numbers, 2, sizeof(numbers[0]), compare);
    return numbers[0] != NULL;
}
int main(void) { return sort() + 1; }
"""


def test_a_program_faults(attempt: Attempt, tmp_path: Path) -> None:
    """The call chain goes through the C library, which calls back; with and without frame pointers."""
    for option in ("-fomit-frame-pointer", "-fno-omit-frame-pointer"):
        folder = tmp_path / option
        folder.mkdir()
        scenario = with_program(folder, FAULT, "-O1", option, "-fno-optimize-sibling-calls", expect={"signal": "SEGV"})
        result = attempt("run", write(folder, scenario), "--out", folder / "out", "--quiet")
        assert result.code == 0, result
        first, *lines = result.stderr.splitlines()
        assert re.match(
            r"h1: `program` \(pid \d+\) was ended by SIGSEGV at 1(\.0\d*)?s: "
            r"a write to 0x0 in compare\+0x\w+ \(/opt/program\+0x",
            first,
        ), result.stderr
        assert re.match(r"  rip [0-9a-f]{16}  rsp [0-9a-f]{16}  rbp ", lines[0])
        chain = [line.split()[1].split("+")[0] for line in lines if line.startswith("  #")]
        assert chain[0] == "compare"
        assert chain.index("compare") < chain.index("sort") < chain.index("main")
        assert "(/usr/lib/x86_64-linux-gnu/libc.so.6+0x" in result.stderr or "/libc.so.6+0x" in result.stderr
        warnings = json.loads((folder / "out/summary.json").read_text(encoding="utf-8"))["warnings"]
        assert [row["code"] for row in warnings] == ["program_fault"]
        assert f"h1: {warnings[0]['text']}\n" == result.stderr


def test_a_program_that_jumps_to_nowhere_and_has_no_stack(attempt: Attempt, tmp_path: Path) -> None:
    """There is little to tell, and that little is told."""
    source = 'int main(void) { __asm__ volatile("xor %esp, %esp; xor %ebp, %ebp; jmp *%rsp"); return 0; }'
    scenario = with_program(tmp_path, source, expect={"signal": "SEGV"})
    result = attempt("run", write(tmp_path, scenario), "--out", tmp_path / "out", "--quiet")
    assert result.code == 0, result
    assert "was ended by SIGSEGV" in result.stderr
    assert "a jump to 0x0 in 0x0" in result.stderr
    assert "#1" not in result.stderr


SPIN = """
#include <stdio.h>
__attribute__((noinline)) void spin(volatile int *forever) { while (*forever) ; }
int main(void) { volatile int forever = 1; puts("going to spin"); fflush(stdout); spin(&forever); return 0; }
"""


def test_a_program_that_never_comes_back(attempt: Attempt, tmp_path: Path) -> None:
    """The run ends if the scenario wants that."""
    scenario = with_program(tmp_path, SPIN, "-O1")
    scenario["run"]["preempt"] = "off"
    file = write(tmp_path, scenario)
    result = attempt("run", file, "--out", tmp_path / "out", "--quiet", WINDTUNNEL_WATCHDOG_S="1")
    assert result.code == 3, result
    for fragment in (
        r"error: node h1: `program` \(pid \d+\) has computed for 1 s of CPU time without a system call",
        r" at 1(\.0\d*)?s \(seed 1\)",
        r"\n  at spin\+0x\w+ \(/opt/program\+0x\w+\)\n  at main\+0x",
        "hint:.*WINDTUNNEL_WATCHDOG_S",
    ):
        assert re.search(fragment, result.stderr), f"no {fragment!r} in:\n{result.stderr}"
    assert (tmp_path / "out/h1/program-0.stdout").read_text(encoding="utf-8") == "going to spin\n"
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    assert summary["ended"] == "error"
    assert "has computed for 1 s" in summary["failed_expectations"][0]
