# SPDX-License-Identifier: GPL-2.0-or-later
"""gdb knows the symbols of every kernel and of every program, and which node runs."""

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import Program
from scenarios import Mapping, pair
from test_crashes import write

LINK = {"rate": "1Gbit", "delay": "1ms"}
SOURCE = """
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) long say(int number) { return write(1, "x\\n", 2) + number; }
int main(void) {
    long sum = 0;
    for (int number = 0; number < 3; number++) {
        sum += say(number);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return sum == 0;
}
"""

Debug = Callable[[Mapping, Sequence[str]], str]


@pytest.fixture
def debug(attempt: Callable[..., Program], tmp_path: Path) -> Debug:
    """What gdb prints when it runs a scenario with these commands."""

    def runner(scenario: Mapping, commands: Sequence[str]) -> str:
        options = [word for command in commands for word in ("-ex", command)]
        out = tmp_path / "out"
        result = attempt("gdb", write(tmp_path, scenario), "--out", out, "--", "-batch", "-nx", *options)
        assert result.code == 0, result
        return result.stdout

    return runner


@pytest.fixture
def program(tmp_path: Path) -> Path:
    source = tmp_path / "say.c"
    source.write_text(SOURCE, encoding="utf-8")
    subprocess.run(["cc", "-g", "-O1", "-o", tmp_path / "say", source], check=True)
    return tmp_path / "say"


def test_one_breakpoint_of_a_program_stops_in_the_wanted_node(debug: Debug, program: Path) -> None:
    """Then one of the kernel: the way back from there leads through the C library to main."""
    scenario = pair([{"exec": "/opt/say"}], [{"exec": "true"}, {"exec": "/opt/say", "start": "1s"}], LINK, stop="3s")
    for node in scenario["nodes"].values():
        node["files"] = {"/opt/say": {"source": str(program), "mode": "755"}}
    printed = debug(
        scenario,
        [
            "run",
            'break say if $node == "h2"',
            "continue",
            "print $node",
            "print number",
            "break ksys_write",
            "continue",
            "backtrace",
            "delete",
            "break say if number == 2",
            "continue",
            "print number",
            "delete",
            "continue",
        ],
    )
    assert '$1 = "h2"' in printed
    assert "$2 = 0" in printed
    chain = re.findall(r"^#\d+ .*?\b(\w+) \(", printed, re.MULTILINE)
    assert chain[0] == "ksys_write"
    assert "wt_do_syscall" in chain
    assert chain.index("wt_do_syscall") < chain.index("say") < chain.index("main")
    assert "at say.c:" in printed or "say.c:4" in printed
    assert "$3 = 2" in printed
    assert "exited normally" in printed
    assert "digest" in printed


def test_programs_one_after_the_other(debug: Debug, program: Path) -> None:
    """Each has its own symbols, and those that are gone are not listed."""
    commands = ["true", "/opt/say", "true", "/opt/say"]
    processes = [{"exec": command, "start": f"{number}s"} for number, command in enumerate(commands)]
    scenario = pair(processes, [], LINK, stop="9s")
    scenario["nodes"]["h1"]["files"] = {"/opt/say": {"source": str(program), "mode": "755"}}
    printed = debug(scenario, ["run", "break say if number == 0", *["continue", "windtunnel-images"] * 2, "continue"])
    lists = re.split(r"hit Breakpoint 1\S*, say", printed)[1:]
    assert len(lists) == 2, printed
    for text in lists:
        images = re.findall(r"^0x[0-9a-f]{16}  h1 +(\S+)$", text, re.MULTILINE)
        assert not any(path.endswith("/true") for path in images)
        assert sum("/fd/" in path for path in images) == 1, "the program of the run itself"
    assert "exited normally" in printed
