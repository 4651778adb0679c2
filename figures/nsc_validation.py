#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""One network in virtual time and on the host's own kernel: the validation of the NSC paper (Jansen and McGregor, WSC 2007).

    sender ---- 100 Mb/s ---- left ==== 2 Mb/s, 21 ms, 10 packets ==== right ---- 100 Mb/s ---- receiver

Table 1: 1000 pings of each size, 84 and 1500 bytes of IP. Figures 2, 4 and 5: one TCP connection from its first packet through slow
start into the first losses. Both sides have the same programs, link models, addresses and sysctls; the kernels are two versions.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import publish
from chain import write
from matplotlib.figure import Figure
from windtunnel import plot

ENGINE = publish.ROOT / "target/release/windtunnel"
CLOCKS = {"virtual time": (), "the host's kernel": ("--platform", "host")}
# Bytes of IP, and the paper's table 1: min, mean, max, standard deviation, and ns-2's.
SIZES = {84: (43.0, 43.6, 49.9, 0.588, 43.1), 1500: (53.3, 53.9, 61.1, 0.653, 54.4)}
PING_EVERY_S = 0.02
FIRST_PINGS = 5
START_S = 3.0
SLOW_START_S, LOSS_S = 0.7, 2.5
# What is another in each run, or known to be the clock's or the program's: the paper's reasons are the same.
IGNORED = "payload,push,timestamps,order"
# Kernels have other defaults by their memory.
SYSCTLS = {"net.ipv4.tcp_rmem": "4096 131072 6291456", "net.ipv4.tcp_wmem": "4096 16384 4194304"}

Row = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """Results of one scenario on both clocks."""

    virtual: Path
    host: Path

    def folders(self) -> dict[str, Path]:
        return dict(zip(CLOCKS, (self.virtual, self.host), strict=True))


def scenario(stop_s: float, client: str, server: str | None = None) -> Row:
    fast, slow = {"rate": "100Mbit", "delay": "0s"}, {"rate": "2Mbit", "delay": "21ms", "queue": "10p"}
    nodes: Row = {
        "sender": {"sysctls": SYSCTLS, "processes": [{"exec": client, "start": f"{START_S}s", "expect": 0}]},
        "left": {"kind": "router"},
        "right": {"kind": "router"},
        "receiver": {"sysctls": SYSCTLS, "processes": [{"exec": server, "start": "1s"}] if server else []},
    }
    links = [
        {"endpoints": ["sender:eth0", "left:eth0"], "both": fast},
        {"endpoints": ["left:eth1", "right:eth0"], "both": slow},
        {"endpoints": ["right:eth1", "receiver:eth0"], "both": fast},
    ]
    run = {"stop": f"{stop_s}s", "seed": 1, "capture": "all", "spin": "200us"}
    return {
        "version": 1,
        "name": "nsc-validation",
        "run": run,
        "addressing": "auto",
        "routing": "auto",
        "nodes": nodes,
        "links": links,
    }


def on_both(folder: Path, name: str, described: Row) -> Pair:
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(described), encoding="utf-8")
    outs = []
    for number, options in enumerate(CLOCKS.values()):
        outs.append(folder / f"{name}-{number}")
        command: list[str | Path] = [ENGINE, "run", path, "--out", outs[-1], "--quiet", *options]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
    return Pair(*outs)


def pings(folder: Path, size: int, count: int) -> dict[str, list[float]]:
    """Round trips in ms, without those at the beginning that wait while neighbours are looked for."""
    client = f"ping -4 -n -i {PING_EVERY_S} -s {size - 28} -c {count + FIRST_PINGS} receiver"
    pair = on_both(folder, f"ping-{size}", scenario(START_S + (count + FIRST_PINGS) * PING_EVERY_S + 5, client))
    return {
        clock: [float(ms) for ms in re.findall(r"time=([0-9.]+)", (out / "sender/ping-0.stdout").read_text())][
            FIRST_PINGS:
        ]
        for clock, out in pair.folders().items()
    }


def transfer(folder: Path, algorithm: str, seconds: int) -> Pair:
    client = f"iperf3 -4 -c receiver -C {algorithm} -t {seconds} -J"
    return on_both(folder, f"tcp-{algorithm}", scenario(START_S + seconds + 10, client, "iperf3 -s -1"))


def compared(pair: Pair) -> Row:
    """What `windtunnel compare` says of the connection with most packets."""
    command: list[str | Path] = [ENGINE, "compare", pair.virtual, pair.host, "--json", "--ignore", IGNORED]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    pairs: list[Row] = json.loads(done.stdout)["connections"]
    return max(pairs, key=lambda one: int(one["a"]["packets"]))


def goodput_bps(out: Path) -> float:
    end = json.loads((out / "sender/iperf3-0.stdout").read_text(encoding="utf-8"))["end"]
    return float(end["sum_received"]["bits_per_second"])


def host_kernel(pair: Pair) -> str:
    manifest = json.loads((pair.host / "manifest.json").read_text(encoding="utf-8"))
    return str(manifest["platform"]["kernel_release"]).partition("-")[0]


def draw(pair: Pair, span_s: tuple[float, float], title: str, path: Path) -> None:
    """Both sides' time-sequence diagrams, one above the other, on the same axes."""
    figure = Figure(figsize=(7.2, 5.6), layout="constrained")
    drawn = figure.subplots(2, 1, sharex=True, sharey=True)
    for ax, (clock, out) in zip(drawn, pair.folders().items(), strict=True):
        start, end = (START_S + edge for edge in span_s)
        plot.time_sequence(out, ":5201", start=start, end=end, show_window=False, ax=ax)
        ax.set_title(f"{title}: {clock}", fontsize="medium")
        ax.set_xlabel("")
    drawn[-1].set_xlabel("time of the run (s)")
    plot.save(figure, path)


def table_one(found: dict[int, dict[str, list[float]]]) -> str:
    rows = [["bytes of IP", "", "min (ms)", "mean (ms)", "max (ms)", "standard deviation (ms)"]]
    for size, times in found.items():
        for clock, ms in times.items():
            spread = [min(ms), statistics.mean(ms), max(ms), statistics.pstdev(ms)]
            rows.append([str(size), f"{clock}, {len(ms)} pings", *(f"{value:.3f}" for value in spread)])
        low, mean, high, deviation, simulated = SIZES[size]
        rows.append([str(size), "paper, Dummynet", f"{low}", f"{mean}", f"{high}", f"{deviation}"])
        rows.append([str(size), "paper, ns-2", "", f"{simulated}", "", ""])
    return publish.markdown(rows)


def transfer_rows(pairs: dict[str, Pair]) -> list[Row]:
    rows = []
    for algorithm, pair in pairs.items():
        found = compared(pair)
        for side, (clock, out) in zip("ab", pair.folders().items(), strict=True):
            metrics = found[side]["metrics"]
            rows.append(
                {
                    "congestion_control": algorithm,
                    "clock": clock,
                    "goodput_bps": goodput_bps(out),
                    "connection_ms": metrics["handshake_ms"],
                    "rtt_median_ms": metrics["client"]["rtt_ms"]["median"],
                    "packets": found[side]["packets"],
                    "retransmissions": metrics["client"]["retransmissions"],
                    "identical_prefix_packets": found["identical_prefix"],
                }
            )
    return rows


def transfer_table(rows: list[Row]) -> str:
    table = [
        [
            "congestion control",
            "",
            "goodput (Mb/s)",
            "connection time (ms)",
            "median round trip (ms)",
            "packets",
            "sent again",
        ]
    ]
    for row in rows:
        table.append(
            [
                row["congestion_control"],
                row["clock"],
                f"{row['goodput_bps'] / 1e6:.4f}",
                f"{row['connection_ms']:.2f}",
                f"{row['rtt_median_ms']:.2f}",
                str(row["packets"]),
                str(row["retransmissions"]),
            ]
        )
    return publish.markdown(table)


def said(rows: list[Row]) -> str:
    """How far they agree, of each congestion control in words."""
    lines = []
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        apart = {
            name: abs(other[key] / one[key] - 1)
            for name, key in (("goodput", "goodput_bps"), ("connection time", "connection_ms"))
        }
        lines.append(
            f"- {one['congestion_control']}: the first {one['identical_prefix_packets']} packets are the same; "
            + ", ".join(f"{name} is {value:.1%} apart" for name, value in apart.items())
            + "."
        )
    return "\n".join(lines)


def algorithms(quick: bool) -> tuple[list[str], str]:
    """Those that both kernels have, and what is to be said of the others."""
    path = "/proc/sys/net/ipv4/tcp_available_congestion_control"
    here = Path(path).read_text(encoding="ascii").split()
    wanted = ["reno"] if quick else ["reno", "cubic", "bbr"]
    missing = [name for name in wanted if name not in here]
    note = f"The host's kernel has no {', '.join(missing)}, so it is not compared." if missing else ""
    return [name for name in wanted if name in here], note


def main() -> None:
    chosen = publish.options(__doc__)
    names, note = algorithms(chosen.quick)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        count, seconds = (20, 5) if chosen.quick else (1000, 20)
        found = {size: pings(folder, size, count) for size in SIZES}
        pairs = {name: transfer(folder, name, seconds) for name in names}
        first = next(iter(pairs.values()))
        kernel = host_kernel(first)
        pictures = []
        for name, pair in pairs.items():
            for what, span_s in (("slow start", (0.0, SLOW_START_S)), ("first losses", (SLOW_START_S, LOSS_S))):
                file = f"nsc-validation-{name}-{what.replace(' ', '-')}.png"
                draw(pair, span_s, f"{name}, {what}", chosen.out / file)
                pictures.append(f"![{name}, {what}, in virtual time and on the host's kernel]({file})")
        rows = transfer_rows(pairs)
    write(chosen.out / "nsc-validation.csv", rows)
    intro, _, setting = (__doc__ or "").strip().partition("\n\n")
    publish.page(
        chosen.out,
        "nsc-validation",
        "The host's kernel against virtual time",
        [
            f"{intro}\n\n```text\n{setting}\n```",
            "Made by `figures/nsc_validation.py`; the transfers' numbers: [nsc-validation.csv](nsc-validation.csv). What is "
            "in virtual time is the same on each machine and in each run. The other half is a measurement: of Linux "
            f"{kernel} on {os.cpu_count()} processors, once, by the wall clock.",
            f"## Round trips of ping (table 1)\n\n{table_one(found)}",
            "The paper's machines had Dummynet, which counts milliseconds, between them. Its sizes are of IP; the link here "
            "counts Ethernet's 38 bytes around each packet as well.",
            f"## One connection (figures 2, 4 and 5)\n\n{transfer_table(rows)}",
            said(rows),
            "Packets are compared by `windtunnel compare --ignore "
            + IGNORED
            + "`, in relative numbers. The paper's bound for "
            "goodput is 2 %. From the first packet that differs on, both go on by themselves: a loss that falls upon another "
            "packet is another trace, and neither is wrong.",
            note,
            *pictures,
        ],
    )


if __name__ == "__main__":
    main()
