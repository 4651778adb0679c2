# SPDX-License-Identifier: GPL-2.0-or-later
"""Plots and the report of a run: what is drawn is what was measured, and equal runs give equal pictures."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCENARIO = """\
version: 1
name: outage
run: {stop: 6s, seed: 1, capture: all, measure: 10ms}
defaults: {link: {rate: 1Gbit, delay: 1ms}}
addressing: auto
routing: auto
nodes:
  h1: {processes: [{exec: iperf3 -c h2 -t 3 -C cubic, start: 1s}]}
  r1: {kind: router}
  h2: {processes: [{exec: iperf3 -s -1, start: 500ms}]}
links:
  - {endpoints: ["h1:eth0", "r1:eth0"]}
  - {endpoints: ["r1:eth1", "h2:eth0"], both: {rate: 20Mbit, delay: 10ms, queue: 50p}}
events:
  - {at: 2s, link: [r1, h2], down: true}
  - {at: 2200ms, link: [r1, h2], up: true}
"""


def python(interpreter: Path, script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
    return subprocess.run([interpreter, "-c", script, *arguments], env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def measured(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plots")
    (folder / "outage.yaml").write_text(SCENARIO, encoding="utf-8")
    subprocess.run([engine, "run", folder / "outage.yaml", "--out", folder / "out", "--quiet"], check=True)
    return folder / "out"


INSPECT = """
import csv, json, sys
from windtunnel import plot
rows = [row for row in csv.DictReader(open(sys.argv[1] + "/links.csv")) if row["from"] == "r1:eth1"]
curve = plot.throughput(sys.argv[1], "r1>h2").axes[0]
line = next(line for line in curve.lines if line.get_label() == "r1 \u2192 h2")
same = all(abs(y * 1e6 - float(row["throughput_bps"])) < 1 for y, row in zip(line.get_ydata(), rows))
queue = plot.queue(sys.argv[1])
trace = plot.time_sequence(sys.argv[1])
print(json.dumps({
    "points": len(line.get_xdata()), "rows": len(rows), "same": same, "y": curve.get_ylabel(), "x": curve.get_xlabel(),
    "queue": [ax.get_ylabel() for ax in queue.axes], "rtt": plot.rtt(sys.argv[1]).axes[0].get_ylabel(),
    "events": sum(line.get_gid() == "event" for line in curve.lines),
    "trace": [*trace.axes[0].get_legend_handles_labels()[1]],
    "nodes": [text.get_text() for text in plot.topology(sys.argv[1]).axes[0].texts],
    "programs": [text.get_text() for text in plot.timeline(sys.argv[1]).axes[0].get_yticklabels()],
}))
"""


def test_plots_show_what_was_measured(measured: Path, study_python: Path) -> None:
    done = python(study_python, INSPECT, measured)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["points"] == seen["rows"] > 300 and seen["same"]
    assert (seen["x"], seen["y"]) == ("virtual time (s)", "throughput (Mb/s)")
    assert seen["queue"] == ["queue (packets)", "mean wait (ms)", "dropped (packets)"]
    assert seen["rtt"] == "round-trip time (ms)"
    assert seen["events"] == 2
    assert {"data", "acknowledged", "advertised window", "retransmission"} <= set(seen["trace"])
    assert {"h1", "r1", "h2"} <= set(seen["nodes"])
    assert seen["programs"] == ["h1: iperf3 -c h2 -t 3 -C cubic", "h2: iperf3 -s -1"]


def test_statistics_are_students(study_python: Path) -> None:
    script = """
from windtunnel import plot
mean, half = plot.interval([1, 2, 3, 4])
assert mean == 2.5 and abs(half - 2.0542) < 1e-3, half
ax = plot.value_against([0, 1], {"a": [[1, 2], [3]], "b": [[], [2, 2]]}, "loss (%)", "goodput (Mb/s)").axes[0]
assert (ax.get_xlabel(), ax.get_ylabel()) == ("loss (%)", "goodput (Mb/s)")
line = plot.cdf([3, 1, 2], "time (s)").axes[0].lines[0]
assert list(line.get_xdata()) == [1, 1, 2, 3] and list(line.get_ydata())[-1] == 1
"""
    done = python(study_python, script)
    assert done.returncode == 0, done.stderr


def test_equal_runs_give_equal_pictures(measured: Path, study_python: Path, tmp_path: Path) -> None:
    script = "import sys; from windtunnel import _verb; sys.exit(_verb.main('plot', sys.argv[1]))"
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\nfont.size: 30\n", encoding="utf-8")
    os.environ["MATPLOTLIBRC"] = str(tmp_path)
    try:
        for number in "12":
            arguments = {"dir": str(measured), "out": str(tmp_path / number), "format": ["svg", "html"]}
            done = python(study_python, script, json.dumps(arguments))
            assert done.returncode == 0, done.stderr
            assert "no cwnd" in done.stderr
            del os.environ["MATPLOTLIBRC"]
            os.environ["MATPLOTLIBRC"] = "/dev/null"
    finally:
        os.environ.pop("MATPLOTLIBRC", None)
    files = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert len(files) == 7
    for name in files:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


def test_the_report_needs_nothing_else(measured: Path, study_python: Path, tmp_path: Path) -> None:
    script = "import sys; from windtunnel import plot; plot.report(sys.argv[1], sys.argv[2])"
    done = python(study_python, script, measured, tmp_path / "report.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", page)
    assert len(page) < 4_000_000
    summary = json.loads((measured / "summary.json").read_text(encoding="utf-8"))
    assert summary["digest"] in page and "r1:eth1" in page
    plots = json.loads(page.split('id="plots">')[1].split("</script>")[0])
    titles = [plot["layout"]["title"]["text"] for plot in plots]
    assert titles[:2] == ["Throughput", "Queues: occupancy"] and titles[-1].startswith("Time-sequence")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("plot.throughput('nowhere')", "there is no folder nowhere"),
        ("plot.throughput('.')", "has no summary.json"),
        ("plot.cwnd(sys.argv[1])", "--measure 10ms"),
        ("plot.throughput(sys.argv[1], 'h9')", "no link is named `h9`"),
        ("plot.rtt(sys.argv[1], ':9')", "no connection fits `:9`"),
        ("plot.cdf([], 'x')", "no samples"),
    ],
)
def test_missing_data_is_named(measured: Path, study_python: Path, call: str, said: str, tmp_path: Path) -> None:
    script = f"""
import os, sys, windtunnel
from windtunnel import plot
os.chdir({str(tmp_path)!r})
try:
    {call}
except windtunnel.Error as error:
    print(error)
"""
    done = python(study_python, script, measured)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_windows_are_those_of_the_kernels(measured: Path, study_python: Path, tmp_path: Path) -> None:
    columns = "time_ns,node,local_address,local_port,remote_address,remote_port,cwnd_packets,ssthresh_packets,srtt_us"
    lines = [
        columns,
        "1000000,h1,10.0.0.1,99,10.0.1.2,5201,10,,20000",
        "2000000,h1,10.0.0.1,99,10.0.1.2,5201,14,7,24000",
    ]
    (tmp_path / "tcp.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "summary.json").write_bytes((measured / "summary.json").read_bytes())
    (tmp_path / "manifest.json").write_bytes((measured / "manifest.json").read_bytes())
    script = """
import sys
from windtunnel import plot
ax = plot.cwnd(sys.argv[1]).axes[0]
window, threshold = [line for line in ax.lines if line.get_gid() != "event"]
assert window.get_label() == "h1 10.0.0.1:99 → 10.0.1.2:5201" and list(window.get_ydata()) == [10, 14]
assert list(threshold.get_ydata()) == [7] and ax.get_ylabel() == "congestion window (packets)"
ax = plot.rtt(sys.argv[1]).axes[0]
assert ax.get_ylabel() == "round-trip time (ms)" and list(ax.lines[0].get_ydata()) == [20, 24]
"""
    done = python(study_python, script, tmp_path)
    assert done.returncode == 0, done.stderr
