#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The UDP chain of the DCE paper (Tazaki et al., CoNEXT 2013), figures 3, 4 and 5.

    n1 ---- n2 ---- ... ---- nN       all links 1 Gb/s and 1 ms; iperf3 sends datagrams of 1470 bytes from end to end

Figures 3 and 4: 100 Mb/s over chains of 2 to 64 nodes; beside us ns-3's own models, where libns3-dev is, and the host's kernel
in network namespaces, where root is. Figure 5: 5 to 100 Mb/s over 4 to 32 hops. What is counted in packets is the same each
time; seconds of the host are not.
"""

from __future__ import annotations

import csv
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "bench")]

import namespaces  # noqa: E402
import publish  # noqa: E402
import scenarios  # noqa: E402
from run import NS3_LIBRARIES  # noqa: E402
from simulate import run_command, simulate  # noqa: E402
from windtunnel import plot  # noqa: E402

ENGINE = HERE.parent / "target/release/windtunnel"
NODES = [2, 4, 8, 16, 32, 64]
HOPS = [4, 8, 16, 32]
RATES_MBPS = [5, 10, 20, 50, 100]
SECONDS = 50  # as in the paper
FIGURE_5_SECONDS = 100
WIDE = (5.0, 3.6)  # inches


Row = dict[str, Any]


def windtunnel(count: int, seconds: int, rate: str, folder: Path) -> Row:
    """Packets, and what they cost."""
    before = time.monotonic()
    run = simulate(ENGINE, scenarios.udp_chain(count, seconds, rate), folder, ["--force"])
    wall_s = time.monotonic() - before
    end = run.iperf("n1")
    sent, lost = end["sum_sent"]["packets"], end["sum_received"]["lost_packets"]
    return {"sent": sent, "received": sent - lost, "cpu_s": run.cpu_s, "wall_s": wall_s}


def ns3(program: Path, count: int, seconds: int) -> Row:
    before = time.monotonic()
    cost = run_command([program, f"--nodes={count}", f"--seconds={seconds}"])
    wall_s = time.monotonic() - before
    fields = {name: int(value) for name, value in (line.split() for line in cost.stdout.splitlines())}
    received = fields["received_packets"]
    return {"sent": received + fields["lost_packets"], "received": received, "cpu_s": cost.cpu_s, "wall_s": wall_s}


def host(count: int, seconds: int, rate: str) -> Row:
    """Real time is all there is; CPU time of softirqs is nobody's. `rate` as iperf3 has it, 0 for all it can."""
    client = f"iperf3 --client 10.0.{count - 1}.2 --udp --bitrate {rate} --length {scenarios.UDP_PAYLOAD_BYTES}"
    said = namespaces.chain(count, "iperf3 --server --one-off", f"{client} --time {seconds} --json", seconds + 30)
    end = json.loads(said)["end"]
    sent, lost = end["sum_sent"]["packets"], end["sum_received"]["lost_packets"]
    return {"sent": sent, "received": sent - lost, "cpu_s": None, "wall_s": end["sum_received"]["seconds"]}


def figures_3_and_4(peers: Peers, folder: Path, seconds: int, nodes: list[int]) -> list[Row]:
    """All systems in turn for each length, so that other load on this machine meets all of them."""
    rows: list[Row] = []

    def add(system: str, count: int, row: Row) -> None:
        rows.append({"system": system, "nodes": count, "hops": count - 1, **row})
        print(
            f"N = {count:2}  {system:22} {row['received']:>9} of {row['sent']} packets, {row['wall_s']:7.2f} s",
            flush=True,
        )

    for count in nodes:
        add("Windtunnel", count, windtunnel(count, seconds, scenarios.UDP_RATE, folder / "run"))
        if peers.ns3:
            add("ns-3", count, ns3(peers.ns3, count, seconds))
        if peers.namespaces:
            add("namespaces", count, host(count, seconds, scenarios.UDP_RATE))
            add("namespaces, all it can", count, host(count, min(seconds, 10), "0"))
    return rows


def figure_5(folder: Path, seconds: int, hops: list[int], rates_mbps: list[int]) -> list[Row]:
    rows = []
    for count in hops:
        for rate in rates_mbps:
            row = windtunnel(count + 1, seconds, f"{rate}M", folder / "run")
            rows.append({"hops": count, "rate_mbps": rate, **row})
            print(f"{count:2} hops, {rate:3} Mb/s: {row['wall_s']:7.2f} s for {seconds} s", flush=True)
    return rows


def line(points: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Slope, intercept and the square of the correlation of the straight line with the least squares."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    slope, intercept = statistics.linear_regression(xs, ys)
    return slope, intercept, statistics.correlation(xs, ys) ** 2


def write(path: Path, rows: list[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


@dataclass(frozen=True)
class Peers:
    """What else there is on this host: ns-3's program, and namespaces."""

    ns3: Path | None
    namespaces: bool

    @classmethod
    def here(cls, folder: Path) -> Peers:
        program = None
        if Path("/usr/include/ns3/core-module.h").exists():
            program = folder / "ns3chain"
            libraries = [f"-lns3-{name}" for name in NS3_LIBRARIES]
            run_command(["g++", "-O3", "-std=c++17", "-o", program, HERE.parent / "bench/ns3chain.cc", *libraries])
        else:
            print("without ns-3, which is not installed (scripts/setup-system bench)")
        why_not = namespaces.possible()
        if why_not:
            print(f"without network namespaces: {why_not}")
        return cls(program, why_not is None)


def per_second(rows: list[Row], clock: str) -> dict[str, list[list[float]]]:
    """Received packets per second of a clock, by system and number of nodes."""
    nodes = list(dict.fromkeys(row["nodes"] for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows if row[clock] is not None))
    by = {(row["system"], row["nodes"]): row for row in rows}
    return {
        system: [[by[system, count]["received"] / by[system, count][clock] / 1e3] for count in nodes]
        for system in systems
    }


def page_3_and_4(out: Path, rows: list[Row], seconds: int) -> None:
    nodes = [str(count) for count in dict.fromkeys(row["nodes"] for row in rows)]
    drawn = {"dce-3-packets.svg": "wall_s", "dce-3-packets-cpu.svg": "cpu_s"}
    for file, clock in drawn.items():
        label = f"packets (1000 per {'s' if clock == 'wall_s' else 'CPU-s'})"
        samples = per_second(rows, clock)
        plot.save(
            plot.value_against(nodes, samples, "nodes", label, title="UDP chain: received", size=WIDE), out / file
        )
    received = {
        system: [[row["received"] / row["sent"] * 100] for row in rows if row["system"] == system]
        for system in dict.fromkeys(row["system"] for row in rows)
    }
    figure = plot.value_against(nodes, received, "nodes", "received of sent (%)", title="UDP chain", size=WIDE)
    plot.save(figure, out / "dce-4-received.svg")
    head = ["nodes", "system", "sent", "received", "lost", "host's time (s)", "CPU (s)", "received per s", "per CPU-s"]
    lines = [head]
    for row in rows:
        cpu = row["cpu_s"]
        lines.append([
            str(row["nodes"]), row["system"], str(row["sent"]), str(row["received"]), str(row["sent"] - row["received"]),
            f"{row['wall_s']:.2f}", "-" if cpu is None else f"{cpu:.2f}", f"{row['received'] / row['wall_s']:.0f}",
            "-" if cpu is None else f"{row['received'] / cpu:.0f}",
        ])  # fmt: skip
    publish.page(
        out,
        "dce-3-4-chain",
        "The UDP chain: packets per second, sent and received",
        [
            "Figures 3 and 4 of the DCE paper (Tazaki et al., CoNEXT 2013): iperf3 sends 100 Mb/s in datagrams of 1470 bytes over a chain of nodes, "
            f"for {seconds} s. All links have 1 Gb/s and 1 ms.",
            "Made by `figures/chain.py`; all numbers: [dce-3-4-chain.csv](dce-3-4-chain.csv). Seconds are those of one host, with other load "
            "beside; what is compared ran in turn. Network namespaces run in real time: at 100 Mb/s they cannot be faster than what is "
            "sent; `all it can` sends without a limit for at most 10 s. Their CPU time is not known, as softirqs are charged to "
            "nobody.",
            "![received packets per second against nodes](dce-3-packets.svg)",
            "![received packets per CPU second against nodes](dce-3-packets-cpu.svg)",
            "![received of what was sent against nodes](dce-4-received.svg)",
            publish.markdown(lines),
            "## Beside the paper",
            """\
In the paper's figure 3 DCE handles more packets a second than Mininet-HiFi below 8 nodes, and fewer the longer the chain, as each
packet costs a hop more; Mininet-HiFi, in real time, stays level until the host is full. The shape is the same here. In its figure 4
Mininet-HiFi loses packets where there are more than 16 hops, and DCE none. In virtual time none is ever lost for want of
CPU: all that was sent is received, however long the chain and whatever else runs on the host.""",
        ],
    )


def page_5(out: Path, rows: list[Row], seconds: int) -> None:
    hops = list(dict.fromkeys(row["hops"] for row in rows))
    rates = list(dict.fromkeys(row["rate_mbps"] for row in rows))
    by = {(row["hops"], row["rate_mbps"]): row for row in rows}
    samples = {f"{count} hops": [[by[count, rate]["cpu_s"]] for rate in rates] for count in hops}
    figure = plot.value_against(
        rates, samples, "sent (Mb/s)", f"CPU time for {seconds} s (s)", title="UDP chain: time against rate", size=WIDE
    )
    plot.save(figure, out / "dce-5-time.svg")
    head = ["hops", *(f"{rate} Mb/s" for rate in rates), "line", "R²"]
    lines = [head]
    for count in hops:
        slope, intercept, square = line([(rate, by[count, rate]["cpu_s"]) for rate in rates])
        times = (f"{by[count, rate]['cpu_s']:.2f}" for rate in rates)
        lines.append([str(count), *times, f"{intercept:.2f} s + {slope * 1e3:.1f} ms per Mb/s", f"{square:.4f}"])
    work = [(count * rate, by[count, rate]["cpu_s"]) for count in hops for rate in rates]
    slope, intercept, square = line(work)
    publish.page(
        out,
        "dce-5-time",
        "The UDP chain: time against rate and hops",
        [
            f"Figure 5 of the DCE paper (Tazaki et al., CoNEXT 2013): the CPU time that {seconds} s of virtual time take, for rates from "
            f"{rates[0]} to {rates[-1]} Mb/s over {hops[0]} to {hops[-1]} hops.",
            "Made by `figures/chain.py`; all numbers, with the host's time: [dce-5-time.csv](dce-5-time.csv).",
            "![CPU time against rate](dce-5-time.svg)",
            "CPU time, seconds:\n\n" + publish.markdown(lines),
            f"Over all: {intercept:.2f} s and {slope * 1e3:.2f} ms for each Mb/s and hop, R² = {square:.4f}.",
            "## Beside the paper",
            f"""\
The paper finds the same straight lines, and runs that are faster than what they simulate where chains are short or slow, slower where
they are not. Its largest run is 32 hops at 100 Mb/s for {seconds} s. Here that run takes {by[hops[-1], rates[-1]]["cpu_s"]:.1f} s.""",
        ],
    )


def main() -> int:
    chosen = publish.options(__doc__)
    with tempfile.TemporaryDirectory(prefix="windtunnel-figure-") as name:
        folder = Path(name)
        peers = Peers.here(folder)
        seconds, nodes = (2, [2, 4]) if chosen.quick else (SECONDS, NODES)
        rows = figures_3_and_4(peers, folder, seconds, nodes)
        write(chosen.out / "dce-3-4-chain.csv", rows)
        page_3_and_4(chosen.out, rows, seconds)
        seconds, hops, rates = (2, [2, 4], [5, 10, 20]) if chosen.quick else (FIGURE_5_SECONDS, HOPS, RATES_MBPS)
        rows = figure_5(folder, seconds, hops, rates)
        write(chosen.out / "dce-5-time.csv", rows)
        page_5(chosen.out, rows, seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
