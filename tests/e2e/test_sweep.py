# SPDX-License-Identifier: GPL-2.0-or-later
"""Sweeps: points, seeds, statistics, what is found again, what fails, and where cells are computed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 300
NET = """
import sys, time
import windtunnel as wt

def cell(seed, loss):
    net = wt.Network("two", link={"rate": "10Mbit", "delay": "5ms", "loss": loss})
    h1, h2 = net.add_node("h1"), net.add_node("h2")
    net.add_link(h1, h2)
    with net.run(seed=seed) as run:
        out = h1.cmd("ping -c 20 -i 0.1 -W 1 h2")
    return {"received": int(out.split(" received")[0].split()[-1])}
"""
PLAIN = """
import json, os, sys, time
import windtunnel as wt

FACTOR = 10

def helper(x):
    return FACTOR * x

def cell(seed, x):
    return {"y": helper(x) + seed}
"""
Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def script(study_python: Path, engine: Path, tmp_path: Path) -> Script:
    """Runs a script with the study packages, in a folder of its own."""

    def runner(text: str, *, name: str = "study.py", code: int | None = 0) -> subprocess.CompletedProcess[str]:
        (tmp_path / name).write_text(text, encoding="utf-8")
        done = subprocess.run([study_python, name], cwd=tmp_path, env=environment(engine), **PIPES)
        assert code is None or done.returncode == code, done.stderr
        return done

    return runner


PIPES: dict[str, Any] = {
    "stdin": subprocess.DEVNULL,
    "capture_output": True,
    "text": True,
    "timeout": PATIENCE_S,
    "check": False,
}


def environment(engine: Path) -> dict[str, str]:
    own = {"PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1", "WINDTUNNEL_PROGRAM": str(engine)}
    return {**os.environ, **own}


EXECUTORS = {
    "one worker": "wt.LocalExecutor(1)",
    "two workers": "wt.LocalExecutor(2)",
    "threads": "concurrent.futures.ThreadPoolExecutor(2)",
    "dask": "wt.DaskExecutor(workers=2)",
    "slurm": 'wt.SlurmExecutor("jobs", cluster="local")',
}


def test_the_digest_is_the_same_whoever_computes(script: Script) -> None:
    main = f"""
import concurrent.futures
if __name__ == "__main__":
    for name, make in {{{", ".join(f"{name!r}: lambda: {make}" for name, make in EXECUTORS.items())}}}.items():
        found = wt.sweep(cell, {{"loss": [0, 0.1]}}, seeds=range(1, 4), executor=make(), out=name)
        print(found.digest, len(found.failed), len(found.records), found.found)
"""
    said = script(NET + main).stdout.split("\n")[:-1]
    assert len(said) == len(EXECUTORS)
    assert said[0].endswith(" 0 6 0")
    assert set(said) == {said[0]}


def test_statistics_are_those_of_the_textbook(script: Script, tmp_path: Path) -> None:
    main = """
def known(seed, x):
    return {"y": [4.0, 7.0, 1.0, 10.0][seed] + x, "z": None if seed else 3}
found = wt.sweep(known, {"x": [0, 100]}, seeds=range(4), workers=2)
print(json.dumps(found.table().rows))
found.table().to_parquet("table.parquet")
import polars
print(polars.read_parquet("table.parquet").shape)
"""
    rows, shape = script(PLAIN + main).stdout.splitlines()
    first, lone, second, _ = json.loads(rows)
    # Student's factor for 3 degrees of freedom is 3.18245; the sample's deviation is the root of 15.
    assert (first["x"], first["value"], first["n"], first["mean"], first["median"]) == (0, "y", 4, 5.5, 5.5)
    assert first["std"] == pytest.approx(15**0.5)
    assert first["ci95_high"] - 5.5 == pytest.approx(3.18245 * 15**0.5 / 2, rel=1e-5)
    assert second["mean"] == 105.5
    assert (lone["n"], lone["mean"], lone["std"], lone["ci95_low"]) == (1, 3.0, None, None)
    assert shape == "(4, 8)"
    table = (tmp_path / "windtunnel-results/sweep-known/table.csv").read_text(encoding="utf-8").splitlines()
    assert table[0] == "x,value,n,mean,std,ci95_low,ci95_high,median"
    assert table[2] == "0,z,1,3.0,,,,3.0"
