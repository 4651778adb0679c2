# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a module of somebody's test suite on the host and in a node, and compares test by test.

A suite is a table in tests/suites, `NAME.toml`:

    modules = ["MODULE", ...]
    [[skip]]    module, test, why: not run
    [[differs]] module, test, host, node, why: outcomes as the suite calls them, "missing" where the test did not run at
                all, "stopped" where the module ended in it

A trailing * of a test's name stands for anything. A row that is not true any more fails its module, too.
"""

import fnmatch
import os
import subprocess
import tempfile
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from conftest import ROOT
from scenarios import Mapping, pair, scenario
from simulate import Simulation

SUITES = ROOT / "tests/suites"
NOBODY = 65534
# Descriptors that a process of a node may have: soft and hard limit.
OPEN_FILES = "1024:4096"
# Virtual time that a module may take in a node, and true time on the host.
LIMIT_S = 1200


class Suite(ABC):
    """One table, and how its modules are run: by the same words on both sides."""

    # Whether its node has a network: one cable, at whose other end is a node that runs nothing.
    CABLE = False

    def __init__(self, name: str) -> None:
        self.name = name
        with (SUITES / f"{name}.toml").open("rb") as table:
            self.table: dict[str, Any] = tomllib.load(table)

    @abstractmethod
    def files(self, module: str) -> list[Path]:
        """What is put into a folder for the module; everybody may read and execute it there."""

    @abstractmethod
    def words(self, module: str, folder: str) -> list[str]:
        """The command that runs the module, with its files in that folder."""

    @abstractmethod
    def outcomes(self, stdout: str) -> dict[str, str]:
        """Test -> how it ended; `stopped` for one that did not."""

    def cwd(self, module: str) -> str:
        """Where the module runs."""
        return "/"

    def path(self) -> str:
        """The search path."""
        return "/usr/sbin:/usr/bin:/sbin:/bin"

    def rows(self, kind: str, module: str) -> list[dict[str, str]]:
        """A row of `MODULE` is one of `MODULE VARIANT`, too."""
        return [row for row in self.table.get(kind, []) if row["module"] in (module, module.split()[0])]

    def skipped(self, module: str) -> list[str]:
        return [row["test"] for row in self.rows("skip", module)]


def on_host(suite: Suite, module: str) -> dict[str, str]:
    identity: Mapping = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryDirectory(dir="/var/tmp", prefix="suites-") as folder:
        Path(folder).chmod(0o755)
        for file in suite.files(module):
            (Path(folder) / file.name).write_bytes(file.read_bytes())
            (Path(folder) / file.name).chmod(0o755)
        subprocess.run(
            ["prlimit", f"--nofile={OPEN_FILES}", *suite.words(module, folder)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            env={"HOME": "/", "LANG": "C.UTF-8", "PATH": suite.path()},
            cwd=suite.cwd(module),
            timeout=LIMIT_S,
            start_new_session=True,
            check=False,
            **identity,
        )
        stdout.seek(0)
        return suite.outcomes(stdout.read().decode(errors="replace"))


def in_node(suite: Suite, module: str, run: Callable[..., Simulation]) -> dict[str, str]:
    process: Mapping = {
        "exec": suite.words(module, "/opt"),
        "cwd": suite.cwd(module),
        "user": f"{os.getuid() or NOBODY}:{os.getgid() or NOBODY}",
        "env": {"HOME": "/", "PATH": suite.path()},
        "start": "1s",
        "stop": f"{LIMIT_S}s",
        "signal": "KILL",
        "expect": "any",
    }
    node: Mapping = {
        "memory": "512MiB",
        "files": {f"/opt/{file.name}": {"source": str(file), "mode": "755"} for file in suite.files(module)},
        "processes": [process],
    }
    if suite.CABLE:
        network = pair([], [], {"rate": "1Gbit", "delay": "1ms"}, stop=f"{LIMIT_S + 1}s")
        network["nodes"]["h1"] |= node
    else:
        network = scenario({"h1": node}, [], stop=f"{LIMIT_S + 1}s")
    return suite.outcomes(run(network).stdout("h1"))


def complaints(suite: Suite, module: str, host: dict[str, str], node: dict[str, str]) -> Sequence[str]:
    """The tests that end otherwise in the node, and no row says so; the rows that say so where it is not true."""
    known = suite.rows("differs", module)
    wrong = []
    used = set()
    for name in sorted(host.keys() | node.keys()):
        ends = host.get(name, "missing"), node.get(name, "missing")
        if ends[0] == ends[1]:
            continue
        fits = [
            index
            for index, row in enumerate(known)
            if fnmatch.fnmatchcase(name, row["test"]) and (row["host"], row["node"]) == ends
        ]
        used.update(fits)
        if not fits:
            wrong.append(f"{name}: {ends[0]} on the host, {ends[1]} in the node")
    return wrong + [
        f"{suite.name}.toml: {row['test']} does not differ so" for i, row in enumerate(known) if i not in used
    ]
