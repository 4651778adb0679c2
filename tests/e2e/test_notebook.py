"""The notebook that takes users of Mininet to a figure: it runs, and prints what it shows, each time."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOK = ROOT / "examples/notebook.ipynb"
PATIENCE_S = 500
# In the environment of the study packages: it executes a notebook, and writes it down with its outputs.
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=400, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


NUMBER = re.compile(r"\d+(?:\.\d+)?")


def executed(python: Path, engine: Path, folder: Path) -> list[dict[str, Any]]:
    """The cells of code, with what came of them in a new folder."""
    folder.mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "WINDTUNNEL_PROGRAM": str(engine)}
    env |= {"PATH": f"{python.parent}:{os.environ['PATH']}", "JUPYTER_DATA_DIR": str(folder / "jupyter")}
    subprocess.run(
        [python, "-c", EXECUTE, NOTEBOOK, folder / "executed.ipynb"],
        cwd=folder,
        env=env,
        check=True,
        timeout=PATIENCE_S,
    )
    return cells(folder / "executed.ipynb")


def cells(file: Path) -> list[dict[str, Any]]:
    notebook = json.loads(file.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed(cell: dict[str, Any]) -> str:
    """What a cell has printed; not what it shows."""
    streams = (output for output in cell["outputs"] if output["output_type"] == "stream" and output["name"] == "stdout")
    return "".join("".join(stream["text"]) for stream in streams)


def without_digest(text: str) -> str:
    """Other kernels, programs and versions have others."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("digest "))


def test_the_notebook_shows_what_it_says(engine: Path, kernel: Path, study_python: Path, tmp_path: Path) -> None:
    stored = cells(NOTEBOOK)
    assert len(stored) == 10
    found = executed(study_python, engine, tmp_path / "first")
    # Which files a host has shifts programs by microseconds, and so the last digits of what they measure.
    for ours, theirs in zip(found, stored, strict=True):
        ours_said, theirs_said = (without_digest(printed(cell)) for cell in (ours, theirs))
        assert NUMBER.sub("N", ours_said) == NUMBER.sub("N", theirs_said)
        numbers = (list(map(float, NUMBER.findall(said))) for said in (ours_said, theirs_said))
        for here, there in zip(*numbers, strict=True):
            assert here == pytest.approx(there, rel=0.05)
    shown = [set().union(*(output.get("data", {}) for output in cell["outputs"])) for cell in found]
    assert "image/svg+xml" in shown[1], "the network is a drawing"
    assert "image/png" in shown[7] and "image/png" in shown[9], "and the figures are there"
    assert "digest " in printed(found[6])
    shutil.rmtree(tmp_path / "first/windtunnel-results")
    again = executed(study_python, engine, tmp_path / "again")
    assert [printed(cell) for cell in again] == [printed(cell) for cell in found], "digest and numbers come again"
