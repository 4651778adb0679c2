# SPDX-License-Identifier: GPL-2.0-or-later
"""Every example does what its heading promises, twice the same: its own expectations are the check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Program

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
# What the engine says of a program that this host does not have, or that is yet to be built; and what mends it.
MISSING = {
    "is the package installed on this host?": "scripts/setup-system examples runtimes installs it",
    "/../target/examples/": "examples/build builds it, where there is a toolchain",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_expectations_hold(attempt: Callable[..., Program], example: Path, tmp_path: Path) -> None:
    digests = []
    for name in ("first", "second"):
        done = attempt("run", example, "--out", tmp_path / name, "--json")
        for sign, remedy in MISSING.items():
            if done.code == 2 and sign in done.stderr:
                pytest.skip(f"{done.stderr.splitlines()[0].removeprefix('error: ')}; {remedy}")
        assert done.code == 0, done.stderr
        summary = json.loads(done.stdout)
        assert summary["processes"], "an example without programs shows nothing"
        digests.append(summary["digest"])
    assert digests[0] and digests[0] == digests[1]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
