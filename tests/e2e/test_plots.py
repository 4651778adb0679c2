# SPDX-License-Identifier: GPL-2.0-or-later
"""Plots and the report of a run: what is drawn is what was measured, and equal runs give equal pictures."""

from __future__ import annotations

import json
import os
import re
import shutil
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


PORTS = """
import json, sys
import windtunnel as wt
from windtunnel import plot
net = wt.Network.from_yaml(sys.argv[1])
print(json.dumps([text.get_text() for text in plot.topology(net).axes[0].texts]))
"""


def test_the_topology_shows_ports(study_python: Path) -> None:
    done = python(study_python, PORTS, ROOT / "examples/live/28-live.yaml")
    assert done.returncode == 0, done.stderr
    assert {"lan", "host (TAP wt0)", "web", "100Mbit\n5ms"} <= set(json.loads(done.stdout)), done.stdout


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


FAMILY = """\
version: 1
name: family
nodes:
  h1: {processes: [{exec: [sh, -c, "sleep 1 | cat; (sleep 1; exit 3); sleep 1"]}]}
  h2: {processes: [{exec: [sh, -c, "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2; done; exec cat /dev/null"], expect: any}]}
events:
  - {at: 1500ms, node: h2, down: true}
  - {at: 2500ms, node: h2, up: true}
run: {stop: 3s}
"""


def test_a_timeline_shows_children_under_their_parent(engine: Path, study_python: Path, tmp_path: Path) -> None:
    (tmp_path / "family.yaml").write_text(FAMILY, encoding="utf-8")
    subprocess.run([engine, "run", tmp_path / "family.yaml", "--out", tmp_path / "out", "--quiet"], check=True)
    script = """
import json, re, sys
from windtunnel import plot
ax = plot.timeline(sys.argv[1]).axes[0]
labels = [re.sub(r" [0-9]+$", "", text.get_text()) for text in ax.get_yticklabels()]
print(json.dumps({"labels": labels, "texts": [text.get_text() for text in ax.texts]}))
"""
    done = python(study_python, script, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert [label for label in seen["labels"] if not label.startswith("h")] == [
        "└ sleep",
        "└ cat",
        "└ sh",
        "└└ sleep",
        "└ sleep",
        *["└ sleep"] * 8,
        *["└ sleep"] * 3,
    ]
    assert {"exit 3", "node off", "h2 off"} <= set(seen["texts"])


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
            assert not done.stderr
            del os.environ["MATPLOTLIBRC"]
            os.environ["MATPLOTLIBRC"] = "/dev/null"
    finally:
        os.environ.pop("MATPLOTLIBRC", None)
    files = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert len(files) == 8
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
        ("plot.throughput('.')", "has no manifest.json"),
        ("plot.cwnd(sys.argv[1], ':9')", "there are: h1 ["),
        ("plot.cwnd('unmeasured')", "--measure 10ms"),
        ("plot.throughput(sys.argv[1], 'h9')", "no link is named `h9`"),
        ("plot.rtt(sys.argv[1], ':9', origin='captures')", "no connection fits `:9`"),
        ("plot.cdf([], 'x')", "no samples"),
    ],
)
def test_missing_data_is_named(measured: Path, study_python: Path, call: str, said: str, tmp_path: Path) -> None:
    script = f"""
import os, sys, windtunnel
from windtunnel import plot
os.chdir({str(tmp_path)!r})
os.mkdir("unmeasured")
for name in ("manifest.json", "summary.json"):
    os.symlink(sys.argv[1] + "/" + name, "unmeasured/" + name)
try:
    {call}
except windtunnel.Error as error:
    print(error)
"""
    done = python(study_python, script, measured)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_windows_are_those_of_the_kernels(measured: Path, study_python: Path) -> None:
    script = """
import csv, sys
from windtunnel import plot
rows = [row for row in csv.DictReader(open(sys.argv[1] + "/tcp.csv")) if row["node"] == "h1"]
busiest = max(rows, key=lambda row: int(row["bytes_sent"] or 0))["local_port"]
rows = [row for row in rows if row["local_port"] == busiest]
ax = plot.cwnd(sys.argv[1]).axes[0]
window, threshold = [line for line in ax.lines if line.get_gid() != "event"]
assert window.get_label().startswith("h1 ") and f":{busiest} →" in window.get_label()
assert list(window.get_ydata()) == [int(row["cwnd_packets"]) for row in rows]
known = [value for value in threshold.get_ydata() if value == value]
assert known == [int(row["ssthresh_packets"]) for row in rows if row["ssthresh_packets"]] and known
assert ax.get_ylabel() == "cwnd (packets)"
ax = plot.rtt(sys.argv[1]).axes[0]
seen = [round(value * 1000) for value in ax.lines[0].get_ydata() if value == value]
assert seen == [int(row["srtt_us"]) for row in rows if row["srtt_us"] not in ("", "0")]
assert ax.get_ylabel() == "round-trip time (ms)"
"""
    done = python(study_python, script, measured)
    assert done.returncode == 0, done.stderr


def test_link_events_are_those_that_happened(study_python: Path) -> None:
    script = """
from windtunnel.plot._data import _link_event
down = _link_event(1.0, "a", "b", {"up": False}, {"up": False})
assert (down.kind, down.label, down.link) == ("down", "down", "a-b")
both = {"rate_bps": 10_000_000, "delay_ns": 5_000_000, "loss_ppb": 15_000_000}
assert _link_event(1.0, "a", "b", both, both).label == "rate 10Mbit, delay 5ms, loss 1.5%"
assert _link_event(1.0, "a", "b", {}, {"queue": "9p"}).label == "b → a: queue 9p"
"""
    done = python(study_python, script)
    assert done.returncode == 0, done.stderr


# What a sender does at random, written down twice: as segments, and as what a time-sequence diagram has to show.
RANDOM = r"""
import random, struct
from pathlib import Path
from windtunnel.plot._tcp import dissect, follow, conversations
import sys

def frame(random, to_server, seq, ack, flags, payload, options):
    a, b = b"\x0a\0\0\x01", b"\x0a\0\0\x02"
    source, target, ports = (a, b, (1000, 80)) if to_server else (b, a, (80, 1000))
    options += b"\x01" * (-len(options) % 4)
    tcp = struct.pack(">HHIIBBHHH", *ports, seq % 2**32, ack % 2**32, (5 + len(options) // 4) << 4, flags, 500, 0, 0)
    body = tcp + options + bytes(payload)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0x4000, 64, 6, 0) + source + target
    # Short frames are padded, which is no payload.
    return (bytes(12) + (b"\x81\0\0\x05" if random.random() < 0.2 else b"") + b"\x08\0" + ip + body).ljust(60, b"\0")

for seed in range(40):
    random_ = random.Random(seed)
    isn, peer = random_.choice([0, 2**31 - 3000, 2**32 - 2000, random_.randrange(2**32)]), random_.randrange(2**32)
    scale = random_.choice([None, 0, 7, 14])
    syn = b"" if scale is None else bytes([3, 3, scale])
    out = [(10, frame(random_, True, isn, 0, 2, 0, syn)), (20, frame(random_, False, peer, isn + 1, 18, 0, syn))]
    new, again, acks, windows, sacks = [], [], [0], [500], []
    sent = 0
    for number in range(300):
        at = 100 + number * 10
        if random_.random() < 0.6:
            first = random_.randrange(sent + 1) if sent and random_.random() < 0.2 else sent
            size = random_.randrange(1, 1461)
            (again if first < sent else new).append((first, first + size))
            sent = max(sent, first + size)
            out.append((at, frame(random_, True, isn + 1 + first, peer + 1, 16, size, b"")))
        elif sent:
            ack = random_.randrange(acks[-1], sent + 1)
            edges = sorted(random_.randrange(ack, sent + 1) for _ in range(2 * random_.randrange(4)))
            blocks = list(zip(edges[::2], edges[1::2]))
            words = [(isn + 1 + edge) % 2**32 for edge in edges]
            option = struct.pack(f">BB{len(words)}I", 5, 2 + 4 * len(words), *words) if words else b""
            out.append((at, frame(random_, False, peer + 1, isn + 1 + ack, 16, 0, option)))
            acks.append(ack); windows.append(ack + (500 << (scale or 0))); sacks += blocks
    path = Path(sys.argv[1]) / f"{seed}.pcap"
    path.write_bytes(struct.pack("<IHHiIII", 0xa1b23c4d, 2, 4, 0, 0, 65535, 1) + b"".join(
        struct.pack("<IIII", 1000, at, len(data), len(data)) + data for at, data in out))
    one = conversations([path])[0]
    trace = follow(one, 1000 * 10**9)
    assert [bar[1:] for bar in trace.new] == new, seed
    assert [bar[1:] for bar in trace.again] == again, seed
    assert [ack for _, ack in trace.acks] == acks, seed
    assert [edge for _, edge in trace.windows] == windows, seed
    assert [bar[1:] for bar in trace.sacks] == sacks, seed
    # Whatever is cut off or flipped: a segment or none, never an exception.
    for _, data in out:
        broken = bytearray(data)
        for _ in range(3):
            broken[random_.randrange(len(broken))] = random_.randrange(256)
        dissect(0, bytes(broken))
        dissect(0, data[:random_.randrange(len(data))])
"""


def test_the_dissector_finds_what_was_sent(study_python: Path, tmp_path: Path) -> None:
    done = python(study_python, RANDOM, tmp_path)
    assert done.returncode == 0, done.stderr


TSHARK_FIELDS = ("tcp.dstport", "tcp.seq_raw", "tcp.len", "tcp.options.sack_le", "tcp.options.sack_re")


def test_the_dissector_agrees_with_tshark(measured: Path, study_python: Path) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not on this host; scripts/setup-system examples installs it")
    capture = measured / "pcap/h1-eth0.pcap"
    names = [word for name in TSHARK_FIELDS for word in ("-e", name)]
    shown = subprocess.run(
        [tshark, "-r", capture, "-Y", "tcp", "-o", "tcp.relative_sequence_numbers:false", "-T", "fields", *names],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    script = """
import json, sys
from pathlib import Path
from windtunnel.plot._tcp import dissect, frames
for time_ns, frame in frames(Path(sys.argv[1])):
    one = dissect(time_ns, frame)
    if one is not None:
        edges = [",".join(str(block[side]) for block in one.sack) for side in (0, 1)]
        print(one.target.port, one.seq, one.length, *edges, sep="\t")
"""
    done = python(study_python, script, capture)
    assert done.returncode == 0, done.stderr
    # Versions of tshark show edges of SACK blocks from the first byte on, or as they are sent: lengths are the same.
    assert compared(done.stdout) == compared(shown)
    assert any(sizes for _, _, _, sizes in compared(shown)), "no SACK block to compare"
    again = subprocess.run(
        [
            tshark,
            "-r",
            capture,
            "-Y",
            "tcp.dstport == 5201 && tcp.len > 0 && "
            "(tcp.analysis.retransmission || tcp.analysis.fast_retransmission || tcp.analysis.spurious_retransmission "
            "|| tcp.analysis.out_of_order)",
            "-T",
            "fields",
            "-e",
            "frame.number",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    script = """
import sys
from windtunnel.plot._data import results
run = results(sys.argv[1])
print(sum(len(run.sequence(one).again) for one in run.conversations
          if one.target.port == 5201 and one.interface == "h1-eth0"))
"""
    done = python(study_python, script, measured)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(again) > 0


def compared(lines: str) -> list[tuple[str, str, str, list[int]]]:
    """Of each segment: port, sequence number, length, and lengths of SACK blocks."""
    found = []
    for line in lines.splitlines():
        port, seq, length, left, right = (line + "\t" * 4).split("\t")[:5]
        lows, highs = ([int(edge) for edge in side.split(",") if edge] for side in (left, right))
        found.append((port, seq, length, [(high - lows[at]) % 2**32 for at, high in enumerate(highs)]))
    return found
