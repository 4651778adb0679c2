# SPDX-License-Identifier: GPL-2.0-or-later
"""Linux is the oracle: each program of tests/programs says the same in a node as on the host it was built on.

A program is one C file, which is compiled as the distribution's programs are (dynamically linked and position
independent), or as the words after `// variants:` in its first lines say. It runs as an ordinary user in an empty
directory, first on the host, then in a node. Standard output and how it ended must be equal, but for the lines in
differences.toml.
"""

import difflib
import itertools
import json
import os
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT
from scenarios import Mapping, scenario
from simulate import RunError, simulate

PROGRAMS = ROOT / "tests/programs"
VARIANTS = {
    "pie": ["-fPIE", "-pie"],
    "no-pie": ["-fno-pie", "-no-pie"],
    "static": ["-fno-pie", "-no-pie", "-static"],
    "static-pie": ["-fPIE", "-static-pie"],
}
CFLAGS = ["-std=gnu17", "-D_GNU_SOURCE", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror"]
# Bad arguments are what many of the programs are about.
CFLAGS += ["-Wno-nonnull", "-Wno-stringop-overflow", "-Wno-stringop-overread"]
ENVIRONMENT = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}
NOBODY = 65534
# Exit status of a program whose preparations fail (show.h).
BROKEN = 99
# And of one that the host forbids to do what it is about.
FORBIDDEN = 77
# Seconds that a program may take, on either side; in a node of virtual time.
LIMIT_S = 30


@dataclass(frozen=True, order=True)
class Case:
    """A program as it is linked."""

    source: Path
    variant: str

    @property
    def name(self) -> str:
        return f"{self.source.stem}-{self.variant}"


@dataclass(frozen=True)
class Outcome:
    """How a program ended, and what it said. Status: as of subprocess, negative for a signal."""

    status: int
    stdout: str
    stderr: str


def cases() -> list[Case]:
    found = []
    for source in sorted(PROGRAMS.glob("*.c")):
        head = source.read_text(encoding="utf-8")[:500]
        words = re.search(r"^// variants: (.*)$", head, re.MULTILINE)
        found += [Case(source, variant) for variant in (words[1].split() if words else ["pie"])]
    return found


@dataclass(frozen=True)
class Credentials:
    """The ordinary user that the programs run as, on both sides: ours if we are one."""

    user: int
    group: int
    groups: tuple[int, ...]

    @staticmethod
    def ours() -> "Credentials":
        if os.getuid() == 0:
            return Credentials(NOBODY, NOBODY, ())
        return Credentials(os.getuid(), os.getgid(), tuple(os.getgroups()))

    def setpriv(self) -> list[str]:
        """What runs a command with them."""
        groups = ["--groups", ",".join(map(str, self.groups))] if self.groups else ["--clear-groups"]
        return ["setpriv", "--reuid", str(self.user), "--regid", str(self.group), *groups]


def compile_program(case: Case, folder: Path) -> str:
    """Makes folder/NAME; returns the compiler's complaints, empty if there are none."""
    command: list[str | Path] = ["cc", *CFLAGS, *VARIANTS[case.variant], "-o", folder / case.name, case.source, "-lm"]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False).stderr


def run_on_host(program: Path, cwd: Path) -> Outcome:
    """Runs a program as a node would: output in files, nothing to read, Linux's defaults all around."""
    identity: Mapping = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [program],
            cwd=cwd,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            umask=0o022,
            **identity,
        )
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return Outcome(BROKEN, "", f"still running after {LIMIT_S} s")
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode(errors="backslashreplace"))
        return Outcome(process.returncode, *texts)


def run_in_node(engine: Path, programs: Sequence[Path], folder: Path) -> dict[str, Outcome]:
    """Runs them one after the other in one node, as nice as we are and as the same user. By name of the program."""
    credentials = Credentials.ours()
    prefix = ["nice", "-n", str(os.nice(0)), *credentials.setpriv()]
    owner = f"{credentials.user}:{credentials.group}" if os.getuid() else "0:0"
    node: Mapping = {
        "memory": "256MiB",
        "files": {f"/opt/{path.name}": {"source": str(path), "mode": "755"} for path in programs},
        "setup": [
            ["mkdir", "-m", "777", *(f"/var/tmp/{path.name}" for path in programs)],
            ["chown", owner, *(f"/opt/{path.name}" for path in programs)],
        ],
        "processes": [
            {
                "exec": [*prefix, f"/opt/{path.name}"],
                "cwd": f"/var/tmp/{path.name}",
                "start": f"{at}s",
                "stop": f"{at + LIMIT_S}s",
                "signal": "KILL",
                "expect": "any",
            }
            for path, at in zip(programs, itertools.count(1, LIMIT_S + 1), strict=False)
        ],
    }
    result = simulate(engine, scenario({"n": node}, [], f"{len(programs) * (LIMIT_S + 1) + 1}s"), folder)
    outcomes = {}
    for path, row in zip(programs, result.summary["processes"], strict=True):
        status = row["exit"] if row["signal"] is None else -row["signal"]
        texts = [
            (result.out / row[name]).read_bytes().decode(errors="backslashreplace") for name in ("stdout", "stderr")
        ]
        outcomes[path.name] = Outcome(status, *texts)
    return outcomes


@pytest.fixture(scope="module")
def workshop() -> Iterator[Path]:
    """A folder where the ordinary user can go, as pytest's own are closed."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="conformance-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, engine: Path, workshop: Path) -> dict[str, tuple[Outcome, Outcome]]:
    """What the host and a node answer, for the selected programs, all in one run."""
    chosen: set[Case] = {
        item.callspec.params["case"]  # type: ignore[misc]
        for item in request.session.items
        if isinstance(item, pytest.Function) and "case" in item.fixturenames
    }
    on_host = {}
    programs = []
    for case in sorted(chosen):
        program = workshop / case.name
        complaints = compile_program(case, workshop)
        if complaints:
            on_host[case.name] = Outcome(BROKEN, "", complaints)
            continue
        programs.append(program)
        cwd = workshop / f"{program.name}.cwd"
        cwd.mkdir()
        cwd.chmod(0o777)
        on_host[program.name] = run_on_host(program, cwd)
    try:
        in_node = run_in_node(engine, programs, workshop / "all")
    except RunError:
        # One of them ended the run: find out which.
        in_node = {}
        for program in programs:
            try:
                in_node |= run_in_node(engine, [program], workshop / f"{program.name}.run")
            except RunError as error:
                in_node[program.name] = Outcome(-1000, "", str(error))
    return {name: (outcome, in_node.get(name, outcome)) for name, outcome in on_host.items()}


def known_differences(program: str) -> list[dict[str, str]]:
    """Lines of a program where a node does not do what Linux does, each with the reason."""
    with (PROGRAMS / "differences.toml").open("rb") as file:
        rows: list[dict[str, str]] = tomllib.load(file).get(program, [])
    return rows


def expected(case: Case, host: Outcome) -> list[str]:
    """The lines of the host, with the known differences put in; every one of them has to apply."""
    lines = host.stdout.splitlines()
    for row in known_differences(case.source.stem):
        assert row["host"] in lines, f"differences.toml: the host does not say {row['host']!r}"
        lines = [row["node"] if line == row["host"] else line for line in lines]
    return lines


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_program_sees_linux(case: Case, outcomes: dict[str, tuple[Outcome, Outcome]]) -> None:
    host, node = outcomes[case.name]
    if host.status == BROKEN:
        last = host.stdout[-500:]
        pytest.fail(f"the program cannot do its work on the host:\n{last}{host.stderr}", pytrace=False)
    if host.status == FORBIDDEN:
        pytest.skip(f"nothing to compare with: the host forbids it ({host.stderr.strip()})")
    difference = list(difflib.unified_diff(expected(case, host), node.stdout.splitlines(), "host", "node", lineterm=""))
    if difference or node.status != host.status:
        ends = f"on the host it ended with {host.status}, in the node with {node.status}"
        pytest.fail("\n".join([*difference, ends, node.stderr]), pytrace=False)


def test_refusals_are_as_documented(engine: Path, workshop: Path) -> None:
    """Each call that `windtunnel syscalls` says is refused or absent with an error answers that error."""
    table = subprocess.run([engine, "syscalls", "--json"], check=True, stdout=subprocess.PIPE).stdout
    refused = [row for row in json.loads(table) if row["status"] in ("refused", "absent")]
    expected = {row["name"]: row["note"].split(":")[0] for row in refused if re.match(r"E[A-Z]+(:|$)", row["note"])}
    assert len(expected) > 20
    calls = "".join(
        f'\terrno = 0; syscall({row["nr"]}, 0, 0, 0, 0, 0, 0); printf("{row["name"]} %s\\n", strerrorname_np(errno));\n'
        for row in refused
    )
    source = workshop / "refused.c"
    headers = "".join(f"#include <{name}.h>\n" for name in ("errno", "stdio", "string", "unistd"))
    source.write_text(f"{headers}int main(void)\n{{\n{calls}\treturn 0;\n}}\n", encoding="utf-8")
    assert compile_program(Case(source, "pie"), workshop) == ""
    outcome = run_in_node(engine, [workshop / "refused-pie"], workshop / "refusals")["refused-pie"]
    assert outcome.status == 0
    answers = dict(line.split() for line in outcome.stdout.splitlines())
    assert {name: answers[name] for name in expected} == expected
