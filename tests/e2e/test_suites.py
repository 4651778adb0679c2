# SPDX-License-Identifier: GPL-2.0-or-later
"""CPython's own tests, module by module, in a node and on the host: all tests end alike, or cpython.toml says why.

Needs Debian's libpython3.11-testsuite (setup-system full). The tests run as an ordinary user.
"""

import fnmatch
import os
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from scenarios import Mapping, scenario
from simulate import Simulation

SUITES = ROOT / "tests/suites"
PYTHON = "/usr/bin/python3.11"
INSTALLED = Path("/usr/lib/python3.11/test/test_select.py")
RUNNER = SUITES / "run_module.py"
NOBODY = 65534
# Descriptors that a process of a node may have: soft and hard limit.
OPEN_FILES = "1024:4096"
# Virtual time that a module may take in a node, and true time on the host.
LIMIT_S = 1200

with (SUITES / "cpython.toml").open("rb") as table:
    TABLE: dict[str, Any] = tomllib.load(table)

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not INSTALLED.exists(), reason="libpython3.11-testsuite is not installed"),
]


def rows(kind: str, module: str) -> list[dict[str, str]]:
    return [row for row in TABLE.get(kind, []) if row["module"] == module]


def arguments(module: str) -> list[str]:
    """What run_module.py is to do, but for tests that are left out."""
    return [*(f"--use={resource}" for resource in TABLE["resources"].get(module, [])), module]


def outcomes(text: str) -> dict[str, str]:
    """Test -> ok, failure, error or skipped; the one in which the module stopped is "stopped"."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "@@":
            found[words[2]] = "stopped" if words[1] == "start" else words[1]
    return found


def on_host(module: str) -> dict[str, str]:
    identity: Mapping = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
    # In a folder where everybody may read, as the processes that multiprocessing spawns read it again.
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryDirectory(dir="/var/tmp", prefix="suites-") as folder:
        Path(folder).chmod(0o755)
        subprocess.run(
            ["prlimit", f"--nofile={OPEN_FILES}", PYTHON, shutil.copy(RUNNER, folder), *arguments(module)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            env={"HOME": "/", "LANG": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            cwd="/",
            timeout=LIMIT_S,
            start_new_session=True,
            check=False,
            **identity,
        )
        stdout.seek(0)
        return outcomes(stdout.read().decode(errors="replace"))


def in_node(run: Callable[..., Simulation], module: str) -> dict[str, str]:
    skipped = [row["test"] for row in rows("skip", module)]
    user = os.getuid() or NOBODY
    node: Mapping = {
        "memory": "512MiB",
        "files": {"/opt/run_module.py": {"source": str(RUNNER)}},
        "processes": [
            {
                "exec": [PYTHON, "/opt/run_module.py", *arguments(module), *skipped],
                "user": f"{user}:{os.getgid() or NOBODY}",
                "env": {"HOME": "/"},
                "start": "1s",
                "stop": f"{LIMIT_S}s",
                "signal": "KILL",
                "expect": "any",
            }
        ],
    }
    return outcomes(run(scenario({"n": node}, [], f"{LIMIT_S + 1}s")).stdout("n"))


@pytest.mark.parametrize("module", TABLE["modules"])
def test_a_module_ends_as_on_the_host(module: str, run: Callable[..., Simulation]) -> None:
    host, node = on_host(module), in_node(run, module)
    assert host, f"no test of {module} ran on the host"
    skips = {row["test"] for row in rows("skip", module)}
    known = rows("differs", module)
    wrong = []
    used = set()
    for name in sorted(host.keys() | node.keys()):
        pair = host.get(name, "missing"), node.get(name, "missing")
        if pair[0] == pair[1] or name in skips:
            continue
        fits = [
            index
            for index, row in enumerate(known)
            if fnmatch.fnmatchcase(name, row["test"]) and (row["host"], row["node"]) == pair
        ]
        used.update(fits)
        if not fits:
            wrong.append(f"{name}: {pair[0]} on the host, {pair[1]} in the node")
    wrong += [f"cpython.toml: {row['test']} does not differ so" for i, row in enumerate(known) if i not in used]
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
