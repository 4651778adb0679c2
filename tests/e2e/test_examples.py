# SPDX-License-Identifier: GPL-2.0-or-later
"""Every example does what its heading promises, twice the same: its own expectations are the check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Program

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
# What the engine says of a program that this host does not have.
NOT_INSTALLED = "is the package installed on this host?"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_expectations_hold(attempt: Callable[..., Program], example: Path, tmp_path: Path) -> None:
    digests = []
    for name in ("first", "second"):
        done = attempt("run", example, "--out", tmp_path / name, "--json")
        if done.code == 2 and NOT_INSTALLED in done.stderr:
            missing = done.stderr.splitlines()[0].removeprefix("error: ")
            pytest.skip(f"{missing}; scripts/setup-system examples installs it")
        assert done.code == 0, done.stderr
        summary = json.loads(done.stdout)
        assert summary["processes"], "an example without programs shows nothing"
        digests.append(summary["digest"])
    assert digests[0] and digests[0] == digests[1]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
