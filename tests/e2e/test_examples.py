# SPDX-License-Identifier: GPL-2.0-or-later
"""Every example does what its heading promises, by its own expectations, and the same on another user's machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Program, skip_where_missing
from elsewhere import Elsewhere
from hosts import Host, Outcome

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def host(engine: Path, kernel: Path) -> Iterator[Host]:
    """The examples and their own programs, where every user can read them."""
    with tempfile.TemporaryDirectory(prefix="windtunnel-test-") as name:
        host = Host.prepare(Path(name), engine, kernel)
        shutil.copytree(ROOT / "examples", host.folder / "examples")
        programs = host.folder / "target/examples"
        programs.mkdir(parents=True)
        for path in (ROOT / "target/examples").glob("*"):
            if path.is_file():
                shutil.copy(path, programs)
        yield host


@pytest.fixture(scope="module")
def there(request: pytest.FixtureRequest) -> Elsewhere:
    """Another user's machine; without root this one once more."""
    if os.geteuid() != 0:
        return Elsewhere([], {})
    imitated: Elsewhere = request.getfixturevalue("elsewhere")
    return imitated


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_expectations_hold_here_and_elsewhere(
    attempt: Callable[..., Program], host: Host, there: Elsewhere, example: Path, tmp_path: Path
) -> None:
    done = attempt("run", example, "--out", tmp_path / "out", "--quiet")
    skip_where_missing(done)
    assert done.code == 0, done.stderr
    here = Outcome.of(tmp_path / "out")
    assert here.digest and here.summary["processes"], "an example without programs shows nothing"
    other = host.run(there.prefix, env=there.env, scenario=f"examples/{example.name}")
    other.assert_equal(here)
    for kind in ("programs", "files", "directories"):
        assert other.inputs(kind) == here.inputs(kind), kind


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
