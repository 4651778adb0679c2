# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs commands and simulations, and says what they cost."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class RunError(Exception):
    """A command that failed, with what it said."""


@dataclass(frozen=True)
class Cost:
    """What a command took of the host."""

    cpu_s: float
    stdout: str


def run_command(
    command: Sequence[str | Path], env: dict[str, str] | None = None, watch: Callable[[int], None] | None = None
) -> Cost:
    """Runs to the end; CPU is user + system of it and its children. `watch` gets the pid, in a thread of its own."""
    words = [str(word) for word in command]
    with subprocess.Popen(
        words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        complaints: list[bytes] = []
        threads = [threading.Thread(target=lambda pipe=process.stderr: complaints.append(pipe.read()))]
        if watch:
            threads.append(threading.Thread(target=watch, args=(process.pid,)))
        for thread in threads:
            thread.start()
        stdout = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for thread in threads:
            thread.join()
    if process.returncode != 0:
        text = (stdout[-2000:] + b"".join(complaints)[-2000:]).decode(errors="replace")
        raise RunError(f"{' '.join(words)} ended with {process.returncode}:\n{text}")
    return Cost(usage.ru_utime + usage.ru_stime, stdout.decode(errors="replace"))


@dataclass(frozen=True)
class Simulation:
    """A finished run and its output folder."""

    out: Path
    cpu_s: float

    def json(self, name: str) -> Any:
        return json.loads((self.out / name).read_text(encoding="utf-8"))

    @property
    def summary(self) -> Any:
        return self.json("summary.json")

    def process(self, node: str, index: int = 0) -> Any:
        """The summary's row of the index-th program of a node."""
        return [row for row in self.summary["processes"] if row["node"] == node][index]

    def stdout(self, node: str, index: int = 0) -> str:
        """What a program wrote; bytes that are no UTF-8 are replaced."""
        name: str = self.process(node, index)["stdout"]
        return (self.out / name).read_bytes().decode(errors="replace")

    def iperf(self, node: str) -> Any:
        """The `end` part of an iperf3 client's JSON."""
        report = json.loads(self.stdout(node))
        if "error" in report:
            raise RunError(f"iperf3: {report['error']}")
        return report["end"]


def simulate(
    engine: Path,
    scenario: dict[str, Any],
    folder: Path,
    options: Sequence[str] = (),
    watch: Callable[[int], None] | None = None,
    env: dict[str, str] | None = None,
) -> Simulation:
    """Runs a scenario in folder/out."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "scenario.yaml"
    file.write_text(json.dumps(scenario, indent=1), encoding="utf-8")
    cost = run_command([engine, "run", file, "--out", folder / "out", *options], env, watch)
    return Simulation(folder / "out", cost.cpu_s)


def private_dirty_bytes(pid: int) -> int:
    """Private_Dirty of a process and its children; 0 once it has ended."""
    total = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                total += private_dirty_bytes(int(child))
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return total
    found = re.search(r"^Private_Dirty:\s+(\d+) kB", rollup, re.MULTILINE)
    return total + (int(found[1]) * 1024 if found else 0)
