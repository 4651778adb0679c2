# SPDX-License-Identifier: GPL-2.0-or-later
"""Every example does what its heading promises: its own expectations are the check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Program

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_expectations_hold(attempt: Callable[..., Program], example: Path, tmp_path: Path) -> None:
    done = attempt("run", example, "--out", tmp_path / "out", "--json")
    assert done.code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["digest"]
    assert summary["processes"], "an example without programs shows nothing"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
