# SPDX-License-Identifier: GPL-2.0-or-later
"""What a process inherits from whoever starts it changes no result: it is shaken off, or refused by name."""

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from scenarios import Mapping, pair, tcp_pair

LINK = {"rate": "100Mbit", "delay": "2ms", "jitter": "500us", "loss": "1%"}
UNLIMITED = resource.RLIM_INFINITY


def scenario() -> Mapping:
    """Signals, children, files, maps and clocks: what would show a difference."""
    script = (
        "grep -E '^(Sig|Shd)' /proc/self/status; ulimit -a; umask; cat /proc/self/maps /proc/self/personality; "
        "ls -l /proc/self/fd; pwd; head -c 3000000 /dev/zero > /tmp/file; wc -c /tmp/file; "
        "sleep 1 & kill -USR2 $!; wait $!; echo $?; date +%s%N"
    )
    return pair(
        [{"exec": ["bash", "-c", script]}, {"exec": "ping -c 5 -i 0.2 10.0.0.2", "expect": "any"}], [], LINK, stop="4s"
    )


@dataclass
class Start:
    """How the engine is started."""

    prepare: Callable[[], None] | None = None
    prefix: Sequence[str] = ()
    options: Mapping = field(default_factory=dict)


@dataclass(frozen=True)
class Starter:
    engine: Path
    scenario: Path

    def run(self, start: Start, check: bool = True) -> tuple[str, subprocess.CompletedProcess[str]]:
        with tempfile.TemporaryDirectory() as name:
            out = Path(name) / "out"
            options: Mapping = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            done = subprocess.run(
                [*start.prefix, self.engine, "run", self.scenario, "--out", out],
                preexec_fn=start.prepare,
                check=False,
                text=True,
                timeout=120,
                **(options | start.options),
            )
            if check:
                assert done.returncode == 0, done
            summary = out / "summary.json"
            digest = json.loads(summary.read_text(encoding="utf-8"))["digest"] if summary.exists() else ""
            return digest, done


@pytest.fixture(scope="module")
def starter(engine: Path) -> Iterator[Starter]:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "s.yaml"
        file.write_text(json.dumps(scenario()), encoding="utf-8")
        yield Starter(engine, file)


@pytest.fixture(scope="module")
def reference(starter: Starter) -> str:
    digest, _ = starter.run(Start())
    return digest


def block_all() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def ignore_all() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)


def many_descriptors() -> None:
    for _ in range(200):
        os.set_inheritable(os.dup(0), True)


def removed_folder() -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    Path(folder).rmdir()


def strict_mask() -> None:
    os.umask(0o777)


def low_priority() -> None:
    os.nice(19)


STARTS = {
    "blocked signals": Start(block_all),
    "ignored signals": Start(ignore_all),
    "a mask that keeps everybody out": Start(strict_mask),
    "many descriptors": Start(many_descriptors, options={"close_fds": False}),
    "a folder that is gone": Start(removed_folder),
    "least priority": Start(low_priority),
    "no core files": Start(lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))),
    "little CPU time": Start(lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 60))),
    "small files at first": Start(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, UNLIMITED))),
    "another layout (setarch -L)": Start(prefix=["setarch", "-L"]),
    "all that is readable is executable (setarch -X)": Start(prefix=["setarch", "-X"]),
    "a page at 0 (setarch -Z)": Start(prefix=["setarch", "-Z"]),
    "three GiB (setarch -3)": Start(prefix=["setarch", "-3"]),
    "all of the personality": Start(prefix=["setarch", "-RLXZ3BIST", "--uname-2.6"]),
    "easily killed": Start(prefix=["choom", "-n", "900", "--"]),
    "one processor": Start(prefix=["taskset", "1"]),
}


@pytest.mark.parametrize("name", STARTS)
def test_same_digest(starter: Starter, reference: str, name: str) -> None:
    digest, _ = starter.run(STARTS[name])
    assert digest == reference


@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]], ids=str)
def test_closed_descriptors(starter: Starter, reference: str, closed: list[int]) -> None:
    """No file of the results may take the number of one that is closed: the report would be written into it."""

    def close() -> None:
        for number in closed:
            os.close(number)

    digest, _ = starter.run(Start(close))
    assert digest == reference


def test_output_that_does_not_wait(starter: Starter) -> None:
    """A pipe that is full and says so at once: the summary still arrives whole."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    with tempfile.TemporaryDirectory() as name:
        command: list[str | Path] = [starter.engine, "run", starter.scenario, "--out", f"{name}/out", "--json"]
        with subprocess.Popen(command, stdout=writing) as process:
            os.close(writing)
            time.sleep(2)
            with os.fdopen(reading, "rb") as pipe:
                text = pipe.read()
            assert process.wait(timeout=60) == 0
        assert text == (Path(name) / "out/summary.json").read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become a user who cannot raise limits")
def test_a_limit_on_files_is_refused_by_name(starter: Starter) -> None:
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "prlimit", "--fsize=1000000", "--"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        scenario_file = folder / "s.yaml"
        scenario_file.write_bytes(starter.scenario.read_bytes())
        program = folder / "windtunnel"
        program.write_bytes(starter.engine.read_bytes())
        program.chmod(0o755)
        _, done = Starter(program, scenario_file).run(Start(prefix=prefix), check=False)
    assert done.returncode == 2, done
    assert "file size: RLIMIT_FSIZE is 1000000 bytes" in done.stderr
    assert "hint: lift the limit: ulimit -f unlimited" in done.stderr


# Makes itself and what it starts unable to execute memory that was written, for good: PR_SET_MDWE.
# Exits with 77 where Linux has no such call, which came with 6.3.
NO_WRITTEN_CODE = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) != 0:
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_memory_that_cannot_become_executable_is_refused_by_name(starter: Starter) -> None:
    """A program's own compiler would get a fault, or an error that Linux does not have, and go another way."""
    _, done = starter.run(Start(prefix=[sys.executable, "-c", NO_WRITTEN_CODE]), check=False)
    if done.returncode == 77:
        pytest.skip("this Linux has no PR_SET_MDWE")
    assert done.returncode == 2, done
    assert "executable memory: memory that was written cannot become executable" in done.stderr
    assert "hint: start it without PR_SET_MDWE" in done.stderr


def test_the_end_of_the_cpu_time_keeps_the_results(engine: Path, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(tcp_pair(10_000)), encoding="utf-8")
    prefix = ["prlimit", "--cpu=8", "--"]
    command: list[str | Path] = [*prefix, engine, "run", file, "--out", tmp_path / "out", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 128 + signal.SIGXCPU, done
    assert "limit of CPU time (ulimit -t) is reached" in done.stderr
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    assert summary["ended"] == "interrupted"


def test_a_relative_path_in_a_folder_that_is_gone(engine: Path) -> None:
    command: list[str | Path] = [engine, "run", "s.yaml", "--out", "out"]
    done = subprocess.run(command, preexec_fn=removed_folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "the current folder cannot be found" in done.stderr
    assert "absolute paths" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_signals_end_a_run_with_its_results(engine: Path, tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(tcp_pair(10_000)), encoding="utf-8")
    with subprocess.Popen([engine, "run", file, "--out", tmp_path / "out", "--quiet"]) as process:
        wait_for(tmp_path / "out/h1/kernel.log")
        process.send_signal(number)
        assert process.wait(timeout=30) == 128 + number
    assert json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))["ended"] == "interrupted"


def test_nohup(engine: Path, tmp_path: Path) -> None:
    """A hang-up that the user has asked to be ignored does not end the run; SIGTERM does."""
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(tcp_pair(10_000)), encoding="utf-8")
    command: list[str | Path] = ["nohup", engine, "run", file, "--out", tmp_path / "out", "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        wait_for(tmp_path / "out/h1/kernel.log")
        process.send_signal(signal.SIGHUP)
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 128 + signal.SIGTERM


def wait_for(path: Path) -> None:
    deadline_s = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert path.exists()
