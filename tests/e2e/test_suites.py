# SPDX-License-Identifier: GPL-2.0-or-later
"""The tests of CPython and of Go, module by module, in a node and on the host: all end alike, or a table says why.

Needs Debian's libpython3.11-testsuite and golang-1.19-src (setup-system full). The tests run as an ordinary user.
"""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from simulate import Simulation
from suites import LIMIT_S, SUITES, Suite, complaints, in_node, on_host

pytestmark = pytest.mark.full


class CPython(Suite):
    """A module is one of the package `test`, which run_module.py runs."""

    INSTALLED = Path("/usr/lib/python3.11/test/test_select.py")
    RUNNER = SUITES / "run_module.py"

    def files(self, module: str) -> list[Path]:
        return [self.RUNNER]

    def words(self, module: str, folder: str) -> list[str]:
        resources = [f"--use={resource}" for resource in self.table["resources"].get(module, [])]
        return ["/usr/bin/python3.11", f"{folder}/{self.RUNNER.name}", *resources, module, *self.skipped(module)]

    def outcomes(self, stdout: str) -> dict[str, str]:
        """ok, failure, error or skipped."""
        found: dict[str, str] = {}
        for line in stdout.splitlines():
            words = line.split()
            if len(words) == 3 and words[0] == "@@":
                found[words[2]] = "stopped" if words[1] == "start" else words[1]
        return found


class Go(Suite):
    """A module is a package of the standard library, built with its tests from Debian's unmodified sources.

    Words after the package's name are the environment of its build: `net CGO_ENABLED=0` is a static program.
    """

    CABLE = True
    ROOT = Path("/usr/lib/go-1.19")
    # What ROOT/src is a link to, as a test that asks for its folder is told.
    SOURCE = Path("/usr/share/go-1.19/src")
    INSTALLED = SOURCE / "net/net_test.go"
    # A home that `go build` can fill. The shell leads the session: a leader would get the
    # terminals that it opens for others.
    SHELL = 'HOME=$(mktemp -d) && export HOME && timeout --signal=QUIT "$@"; rm -rf "$HOME"'

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.programs: dict[str, Path] = {}

    def build(self, module: str, folder: Path) -> None:
        """Builds the module's test program into a folder."""
        package, *environment = module.split()
        path = folder / (re.sub(r"\W", "-", module) + ".test")
        settings = dict(word.split("=", 1) for word in ["CGO_ENABLED=1", *environment])
        kept = {name: value for name, value in os.environ.items() if name in ("HOME", "PATH", "XDG_CACHE_HOME")}
        subprocess.run(
            [self.ROOT / "bin/go", "test", "-c", "-vet=off", "-trimpath", "-o", path, package],
            env={**kept, "GOENV": "off", **settings},
            check=True,
        )
        self.programs[module] = path

    def skipped(self, module: str) -> list[str]:
        internet: list[str] = self.table["internet"].get(module.split()[0], [])
        return super().skipped(module) + internet

    def files(self, module: str) -> list[Path]:
        return [self.programs[module]]

    def words(self, module: str, folder: str) -> list[str]:
        tests = f"-test.run=^({'|'.join(self.chosen(module))})$"
        program = f"{folder}/{self.programs[module].name}"
        return ["sh", "-c", self.SHELL, "sh", str(LIMIT_S - 10), program, "-test.v", tests]

    def chosen(self, module: str) -> list[str]:
        """The tests and examples that are run."""
        command: list[str | Path] = [self.programs[module], "-test.list=.*"]
        listed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=self.cwd(module)).stdout
        names = [name for name in listed.split() if not name.startswith(("Benchmark", "Fuzz"))]
        unknown = set(self.skipped(module)) - set(names)
        assert not unknown, f"go.toml: {module} has no {', '.join(sorted(unknown))}"
        return [name for name in names if name not in self.skipped(module)]

    def outcomes(self, stdout: str) -> dict[str, str]:
        """pass, fail or skip."""
        found: dict[str, str] = {}
        for line in stdout.splitlines():
            if begun := re.match(r"=== RUN +(\S+)$", line):
                found.setdefault(begun[1], "stopped")
            elif ended := re.search(r"--- (PASS|FAIL|SKIP): (\S+) \([\d.]+s\)$", line):
                found[ended[2]] = ended[1].lower()
        return found

    def cwd(self, module: str) -> str:
        """The package's folder, where its testdata is."""
        return str(self.SOURCE / module.split()[0])

    def path(self) -> str:
        """Some tests call `go build`."""
        return f"{self.ROOT}/bin:{super().path()}"


CPYTHON = CPython("cpython")
GO = Go("go")


def check(suite: Suite, module: str, run: Callable[..., Simulation]) -> None:
    host, node = on_host(suite, module), in_node(suite, module, run)
    assert host, f"no test of {module} ran on the host"
    wrong = complaints(suite, module, host, node)
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


@pytest.mark.skipif(not CPython.INSTALLED.exists(), reason="libpython3.11-testsuite is not installed")
@pytest.mark.parametrize("module", CPYTHON.table["modules"])
def test_a_module_of_cpython_ends_as_on_the_host(module: str, run: Callable[..., Simulation]) -> None:
    check(CPYTHON, module, run)


@pytest.mark.skipif(not Go.INSTALLED.exists(), reason="golang-1.19-src is not installed")
@pytest.mark.parametrize("module", GO.table["modules"])
def test_a_module_of_go_ends_as_on_the_host(module: str, run: Callable[..., Simulation], tmp_path: Path) -> None:
    GO.build(module, tmp_path)
    check(GO, module, run)
