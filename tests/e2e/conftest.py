# SPDX-License-Identifier: GPL-2.0-or-later
"""What the end-to-end tests share: they run the built program on scenarios and look at what it leaves."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from driving import Driven
from elsewhere import Elsewhere, imitate
from scenarios import Mapping
from simulate import Simulation, simulate

# Whoever starts tests in the background of a shell, or by nohup, has these ignored, and so would what the tests start,
# which respects that. Here they are to be as in the foreground.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent.parent
SERIES = "6.12"


@dataclass(frozen=True)
class Program:
    """How a run ended that was allowed to fail."""

    code: int
    stdout: str
    stderr: str


# What the engine says of a program that this host does not have, or that is yet to be built; and what mends it.
MISSING = {
    "is the package installed on this host?": "scripts/setup-system examples runtimes installs it",
    "/../target/examples/": "examples/build builds it, where there is a toolchain",
}


def skip_where_missing(done: Program) -> None:
    """Skips a test of an example whose programs are not on this host."""
    for sign, remedy in MISSING.items():
        if done.code == 2 and sign in done.stderr:
            pytest.skip(f"{done.stderr.splitlines()[0].removeprefix('error: ')}; {remedy}")


def cache_with(image: Path, folder: Path) -> Path:
    """Makes folder a cache whose current kernel is this one; it is readable by everybody."""
    series = folder / "kernels" / SERIES
    build_hash = json.loads((image.parent / "build.json").read_text(encoding="utf-8"))["hash"]
    shutil.copytree(image.parent, series / build_hash)
    (series / "current").write_text(f"{build_hash}\n", encoding="ascii")
    return folder


@pytest.fixture(scope="session")
def engine() -> Path:
    """The release build."""
    path = ROOT / "target/release/windtunnel"
    assert path.exists(), "make build comes first"
    return path


@pytest.fixture(scope="session")
def debug_engine() -> Path:
    path = ROOT / "target/x86_64-unknown-linux-gnu/debug/windtunnel"
    assert path.exists(), "make test builds it first"
    return path


@pytest.fixture(scope="session")
def kernel() -> Path:
    """The shared object that runs use: the cached build of this tree's kernel."""
    built = subprocess.run([ROOT / "kernel/build", SERIES], check=True, stdout=subprocess.PIPE, text=True)
    return Path(built.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def study_python() -> Path:
    """An interpreter with what plots, sweeps and notebooks need (scripts/requirements-study.txt)."""
    made = subprocess.run([ROOT / "scripts/python-tools", "study"], check=True, stdout=subprocess.PIPE, text=True)
    return Path(made.stdout.strip()) / "python"


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    """Another user's machine, for tests that have root."""
    return imitate(tmp_path_factory.mktemp("elsewhere"))


@pytest.fixture
def run(engine: Path, tmp_path: Path) -> Callable[..., Simulation]:
    """Runs a scenario that has to succeed, each time in a folder of its own."""
    count = 0

    def runner(scenario: Mapping, options: Sequence[str] = ()) -> Simulation:
        nonlocal count
        count += 1
        return simulate(engine, scenario, tmp_path / f"run{count}", options)

    return runner


@pytest.fixture
def attempt(engine: Path) -> Callable[..., Program]:
    """Runs the program with arguments; it may fail."""

    def runner(*arguments: str | Path, prefix: Sequence[str | Path] = (), **env: str) -> Program:
        done = subprocess.run(
            [*prefix, engine, *arguments],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Program(done.returncode, done.stdout, done.stderr)

    return runner


@pytest.fixture
def begin(engine: Path, tmp_path: Path) -> Iterator[Callable[..., Driven]]:
    """Begins a run that waits for its driver."""
    runs: list[Driven] = []

    def make(scenario: Mapping, *options: str) -> Driven:
        folder = tmp_path / f"driven{len(runs)}"
        folder.mkdir()
        path = folder / "scenario.yaml"
        path.write_text(json.dumps(scenario), encoding="utf-8")
        runs.append(Driven(engine, path, folder / "out", *options))
        return runs[-1]

    yield make
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
