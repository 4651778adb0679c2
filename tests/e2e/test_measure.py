# SPDX-License-Identifier: GPL-2.0-or-later
"""Measurements of links: what they show is what the physics says, and the run with them is the run without."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT
from scenarios import pair
from simulate import Simulation

Row = dict[str, str]
COUNTS = ("offered_frames", "offered_bytes", "delivered_frames", "delivered_bytes", "queue_full_frames", "lost_frames")


def rows(out: Path) -> list[Row]:
    with (out / "links.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def column(table: list[Row], name: str, sender: str) -> list[int]:
    return [int(row[name]) for row in table if row["from"] == sender]


@pytest.mark.parametrize("example", ["01-ping", "20-python", "26-campus"])
@pytest.mark.parametrize("interval", ["1ms", "3333us", "7s"])
def test_a_measured_run_is_the_run(engine: Path, tmp_path: Path, example: str, interval: str) -> None:
    summaries = []
    for options in ([], ["--measure", interval]):
        out = tmp_path / f"out{len(options)}"
        command: list[str | Path] = [
            engine,
            "run",
            ROOT / f"examples/{example}.yaml",
            "--out",
            out,
            "--quiet",
            *options,
        ]
        subprocess.run(command, check=True)
        summaries.append((out / "summary.json").read_bytes())
        assert (out / "links.csv").exists() == bool(options)
    assert summaries[0] == summaries[1]


def test_intervals_add_up_to_the_summary_and_show_the_queue(run: Callable[..., Simulation]) -> None:
    """100 Mb/s into a link of 10 Mb/s: it carries its rate; its queue is full; a frame waits for all of it."""
    sender = {"exec": "iperf3 -c 10.0.0.2 -u -b 100M -l 1472 -t 2", "start": "1s", "expect": "any"}
    link = {"rate": "10Mbit", "delay": "5ms", "queue": "50p"}
    scenario = pair([sender], [{"exec": "iperf3 -s -1", "expect": "any"}], link, stop="10s", measure="100ms")
    result = run(scenario)
    table = rows(result.out)
    summary = result.summary["links"][0]
    for name in ("frames", "bytes"):
        assert sum(column(table, f"offered_{name}", "h1:eth0")) == summary["a_to_b"][name]
        assert sum(column(table, f"delivered_{name}", "h1:eth0")) == summary["a_to_b"][f"delivered_{name}"]
    assert sum(column(table, "queue_full_frames", "h1:eth0")) == summary["a_to_b"]["drops"]["queue_full"]
    times = column(table, "time_ns", "h1:eth0")
    assert times[:-1] == [100_000_000 * (number + 1) for number in range(len(times) - 1)]
    assert times[-1] == result.summary["virtual_time_ns"]
    busy = [row for row in table if row["from"] == "h1:eth0" and 1_200_000_000 < int(row["time_ns"]) <= 2_900_000_000]
    for row in busy:
        # Frames of 1514 bytes take 1538 on the wire: 1.2304 ms.
        assert abs(int(row["throughput_bps"]) - 10_000_000 * 1514 / 1538) < 125_000, row
        assert int(row["queue_frames"]) in (49, 50)
        # One of them may be of iperf3's control connection.
        assert 0 <= 1514 * int(row["queue_frames"]) - int(row["queue_bytes"]) < 1514
        assert 50 * 1_230_400 - 1_300_000 < int(row["max_wait_ns"]) < 51 * 1_230_400
        assert int(row["mean_wait_ns"]) > 45 * 1_230_400
        assert abs(int(row["wait_ns"]) - int(row["queue_frames"]) * 1_230_400) < 1_300_000
    assert all(name in table[0] for name in COUNTS)


def test_a_run_that_nothing_happens_in_is_measured_to_its_end(run: Callable[..., Simulation]) -> None:
    scenario = pair([], [], {"rate": "1Gbit", "delay": "1ms"}, stop="1s", measure="300ms")
    table = rows(run(scenario).out)
    assert column(table, "time_ns", "h2:eth0") == [300_000_000, 600_000_000, 900_000_000, 1_000_000_000]


@pytest.mark.parametrize(("where", "value"), [("scenario", "10ns"), ("option", "10ns"), ("scenario", "often")])
def test_an_interval_that_is_none_is_refused(engine: Path, tmp_path: Path, where: str, value: str) -> None:
    run = {"measure": value} if where == "scenario" else {}
    scenario = pair([], [], {"rate": "1Gbit", "delay": "1ms"}, stop="1s", **run)
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(scenario), encoding="utf-8")
    options = ["--measure", value] if where == "option" else []
    command: list[str | Path] = [engine, "run", path, "--out", tmp_path / "out", *options]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 2
    assert value in result.stderr and "allowed" in result.stderr, result.stderr
