# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs see one processor on every host, whatever they ask it, and random numbers of their node."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT
from scenarios import Mapping, scenario
from simulate import Simulation

SOURCES = [ROOT / "tests/e2e/processor.c", ROOT / "tests/e2e/around_rdtsc.S"]
# Compiler options by the way a program is linked; in a stripped one only call frames say where functions are.
LINKS = {"pie": [], "static": ["-static"], "stripped": ["-static", "-s", "-fno-asynchronous-unwind-tables"]}
CPUID = """\
00000000: 00000007 756e6547 6c65746e 49656e69
00000001: 000206c1 00010800 00982201 078bfbff
00000002: 76036301 00f0b5ff 00000000 00c30000
00000004: 00000121 01c0003f 0000003f 00000000
00000007: 00000000 00000000 00000000 00000000
0000000b: 00000000 00000000 00000000 00000000
0000000d: 00000000 00000000 00000000 00000000
80000000: 80000008 00000000 00000000 00000000
80000001: 00000000 00000000 00000001 28100800
80000002: 646e6957 6e6e7574 76206c65 75747269
80000006: 00000000 00000000 01006040 00000000
80000007: 00000000 00000000 00000000 00000100
80000008: 0000302e 00000000 00000000 00000000
"""
UNDEFINED = {
    "xgetbv": "ILL",
    "rdpid %%rax": "ILL",
    "rdfsbase %%rax": "ILL",
    "rdgsbase %%rax": "ILL",
    "wrgsbase %%rax": "ILL",
    "rdpkru": "ILL",
    ".byte 0x0f, 0x01, 0xfd": "ILL",
    "invd": "SEGV",
    "lldt %%ax": "SEGV",
    "hlt": "SEGV",
}


@pytest.fixture(params=LINKS)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The program of all tests, linked in each way."""
    path = tmp_path / str(request.param)
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", *LINKS[request.param], "-o", path, *SOURCES], check=True)
    return path


def with_program(program: Path, *arguments: str, nodes: int = 1) -> Mapping:
    node = {
        "files": {"/opt/processor": {"source": str(program), "mode": "755"}},
        "processes": [{"exec": f"/opt/processor {argument}"} for argument in arguments],
    }
    return scenario({f"n{i + 1}": node for i in range(nodes)}, [], stop="1s")


def test_cpuid_shows_the_virtual_cpu(run: Callable[..., Simulation], program: Path) -> None:
    result = run(with_program(program, "cpuid"))
    assert result.stdout("n1") == CPUID
    assert result.summary["warnings"] == []


def test_results_are_the_same_without_cpuid_faulting_and_on_any_cpu(
    run: Callable[..., Simulation], program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapping = with_program(program, "cpuid", "random", "undefined", "made", "vsyscalls")
    digests = set()
    allowed = os.sched_getaffinity(0)
    try:
        for cpu, switch in ((min(allowed), "on"), (max(allowed), "off")):
            os.sched_setaffinity(0, {cpu})
            monkeypatch.setenv("WINDTUNNEL_CPUID_FAULTING", switch)
            digests.add(run(mapping).summary["digest"])
    finally:
        os.sched_setaffinity(0, allowed)
    assert len(digests) == 1


def test_random_numbers_are_the_nodes(run: Callable[..., Simulation], program: Path) -> None:
    mapping = with_program(program, "random", "random", nodes=2)
    first, second = run(mapping), run(mapping)
    texts = [first.stdout(node, index) for node in ("n1", "n2") for index in (0, 1)]
    assert texts == [second.stdout(node, index) for node in ("n1", "n2") for index in (0, 1)]
    wide = [number for text in texts for number in re.findall(r"^rd\w+ %0 (\w{16})", text, re.MULTILINE)]
    assert len(wide) == 12 and len(set(wide)) == 12, wide
    for text in texts:
        assert re.fullmatch(
            r"(rd\w+ %0 \w{16} flags 1\n|rd\w+ %k0 0{8}\w{8} flags 1\n|rd\w+ %w0 5{12}\w{4} flags 1\n)+", text
        ), text
    other = run(mapping, ["--seed", "2"])
    assert other.stdout("n1") != texts[0]


def test_what_the_virtual_cpu_lacks_is_undefined(run: Callable[..., Simulation], program: Path) -> None:
    result = run(with_program(program, "undefined"))
    assert result.stdout("n1") == "".join(f"{name}: SIG{signal}\n" for name, signal in UNDEFINED.items())


def test_constants_stay_as_they_are(run: Callable[..., Simulation], program: Path) -> None:
    assert run(with_program(program, "constants")).stdout("n1") == "a20fa20f f8c70ff3\n"


def test_a_read_of_the_counter_changes_nothing_else(run: Callable[..., Simulation], program: Path) -> None:
    lines = run(with_program(program, "counter")).stdout("n1").splitlines()
    assert lines[:2] == ["rdtsc: 0 wrong, 0 earlier", "rdtscp: 0 wrong, 0 earlier"]
    # In a program at fixed addresses any constant may be the address of a label after rdtscp, and it stays.
    assert lines[2] == "jumps: 1 1" or (program.name != "pie" and lines[2] == "jumps: 1 0")


def test_who_waits_by_the_counter_gets_on(run: Callable[..., Simulation], program: Path) -> None:
    calls = int(run(with_program(program, "wait")).stdout("n1"))
    # A microsecond of virtual time for each read, in quanta of 64.
    assert 900 <= calls <= 1100


def test_code_made_by_a_program_is_looked_at(run: Callable[..., Simulation], program: Path) -> None:
    expected = "always executable: 206c1 1\nexecutable later: 206c1 1\ninvd: SIGSEGV\n"
    assert run(with_program(program, "made")).stdout("n1") == expected


def test_vsyscalls_tell_virtual_time(run: Callable[..., Simulation], program: Path) -> None:
    result = run(with_program(program, "vsyscalls"))
    epoch = re.match(r"gettimeofday 0: (\d+)\.(\d+)\ntime: (\d+)\ngetcpu 0: 0 0\n", result.stdout("n1"))
    assert epoch is not None, result.stdout("n1")
    now = subprocess.run(["date", "+%s"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert epoch[1] == epoch[3] and abs(int(epoch[1]) - int(now)) > 1000
    assert result.stdout("n1").endswith("bad pointer: SIGSEGV\n")


def test_random_device_of_the_c_plus_plus_library(run: Callable[..., Simulation], tmp_path: Path) -> None:
    source, program = tmp_path / "device.cc", tmp_path / "processor"
    lines = ["#include <cstdio>", "#include <random>", "std::random_device device;"]
    lines.append(r'int main() { std::printf("%u %u\n", device(), device()); }')
    source.write_text("\n".join([*lines, ""]))
    subprocess.run(["c++", "-O1", "-o", program, source], check=True)
    mapping = with_program(program, "", nodes=2)
    first, second = run(mapping), run(mapping)
    assert first.stdout("n1") == second.stdout("n1") != first.stdout("n2")
    assert re.fullmatch(r"\d+ \d+\n", first.stdout("n1"))
