# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that take turns at their addresses: forked ones, and those linked to fixed addresses."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT
from scenarios import Mapping, scenario
from simulate import Simulation


def on_one_node(commands: list[str | list[str]], files: Mapping | None = None, **options: object) -> Mapping:
    node: Mapping = {"memory": "256MiB", "processes": [{"exec": command} for command in commands]}
    if files:
        node["files"] = files
    return scenario({"n": node}, [], "20s", **options)


def test_memory_at_fixed_addresses_is_there_when_a_sleeping_call_ends(
    run: Callable[..., Simulation], tmp_path: Path
) -> None:
    """The kernel writes to the buffer of a `read` before its program goes on, while the other one had the addresses."""
    reader = tmp_path / "reader"
    source = ROOT / "tests/programs/apart/low_reader.c"
    subprocess.run(["cc", "-O2", "-static", "-no-pie", "-fno-pie", "-o", reader, source], check=True)
    files = {"/opt/reader": {"source": str(reader), "mode": "755"}}
    result = run(on_one_node(["/opt/reader a b", "/opt/reader b a"], files))
    assert [result.stdout("n", index) for index in range(2)] == ["a read 50 times b\n", "b read 50 times a\n"]


SHELLS = {
    "pipeline": ("printf '3\\n1\\n2\\n' | sort | head -n 2 | tr '\\n' ' '", "1 2 "),
    "subshell": ("x=1; (x=2; echo in $x); echo out $x", "in 2\nout 1\n"),
    "substitution": ('a=$(echo one; echo two >&2 2>/dev/null); b=$(echo "<$a>"); echo "$b"', "<one>\n"),
    "background": ("for i in 1 2 3; do (exit $i) & p=$!; wait $p; echo $?; done", "1\n2\n3\n"),
    "while": ("seq 200 | while read n; do echo $((n * n)); done | tail -n 1", "40000\n"),
    "signal": ("sleep 100 & p=$!; kill $p; wait $p; echo $?", "143\n"),
    "trap": ("trap 'echo bye' EXIT; (trap - EXIT; true); echo $(echo hi)", "hi\nbye\n"),
}


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox sh"])
def test_shells(run: Callable[..., Simulation], shell: str) -> None:
    commands: list[str | list[str]] = [[*shell.split(), "-c", script] for script, _ in SHELLS.values()]
    result = run(on_one_node(commands))
    said = {name: result.stdout("n", index) for index, name in enumerate(SHELLS)}
    assert said == {name: expected for name, (_, expected) in SHELLS.items()}
    assert not result.summary["warnings"]


PYTHON = """
import multiprocessing, os, subprocess, sys, threading

def square(queue, number):
    queue.put(number * number)

memory = list(range(1000))
pid = os.fork()
if pid == 0:
    memory[0] = 1
    os._exit(sum(memory) % 256)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), sum(memory) % 256)
print(subprocess.run("echo $((6 * 7)) | cat", shell=True, capture_output=True, text=True).stdout.strip())
print(subprocess.run(["sh", "-c", "exit 5"], preexec_fn=lambda: os.nice(1)).returncode)
receiver, sender = multiprocessing.Pipe()
child = multiprocessing.get_context("fork").Process(target=lambda: sender.send({"pid": os.getppid()}))
child.start()
print(receiver.recv()["pid"] == os.getpid(), child.join(), child.exitcode)
"""


def test_python(run: Callable[..., Simulation]) -> None:
    result = run(on_one_node([["python3", "-c", PYTHON]]))
    assert result.stdout("n") == f"{(sum(range(1000)) + 1) % 256} {sum(range(1000)) % 256}\n42\n5\nTrue None 0\n"


def test_too_many_forks_are_refused_as_linux_does(run: Callable[..., Simulation]) -> None:
    """The kernel has tasks in proportion to its memory (kernel.threads-max); what is there goes on."""
    script = (
        "import os, signal\npids = []\n"
        "try:\n while True:\n  pid = os.fork()\n  if pid == 0: signal.pause()\n  pids.append(pid)\n"
        "except OSError as error:\n print(error.strerror, len(pids) > 10)\n"
        "for pid in pids: os.kill(pid, 9); os.waitpid(pid, 0)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)[1]))\n"
    )
    result = run(on_one_node([["python3", "-c", script]]))
    assert result.stdout("n") == "Resource temporarily unavailable True\n0\n"
    assert result.summary["warnings"] == []
