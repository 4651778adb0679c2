#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The measurements of the CORE paper (Ahrenholz, MILCOM 2010), figures 4 to 10, in virtual time.

    n1 ---- n2 ---- ... ---- nN       routers with static routes; all links 1 Gb/s and 10 us

Figures 4 and 5: how many packets a second of the host carries, by segment size and hops, and how much of a CPU it takes.
Figures 6 and 7: what iperf3 reports from end to end. Figure 8: round trips of 1000 pings. Figures 9 and 10: scp of a large file.
What a program in a node reports is in virtual time and the same on each host; what the host takes for it is not. Beside us the
host's own kernel in network namespaces, where root is: what CORE itself does.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "bench")]

import namespaces  # noqa: E402
import publish  # noqa: E402
import scenarios  # noqa: E402
from chain import write  # noqa: E402
from simulate import Simulation, simulate  # noqa: E402
from windtunnel import plot  # noqa: E402

ENGINE = HERE.parent / "target/release/windtunnel"
LINK = {"rate": "1Gbit", "delay": "10us"}
HOPS = [1, 5, 10, 15, 30, 45]
MSS_BYTES = [100, 500, 1000, 1460]
SEGMENTS = 100_000
PINGS = 1000
SCP_BYTES = 1 << 30

Row = dict[str, Any]


def measured(hops: int, first: list[Row], last: list[Row], stop: str, folder: Path) -> tuple[Simulation, Row]:
    """Runs programs on the first and the last node; the run, and what it cost."""
    scenario = scenarios.chain(hops + 1, LINK, stop)
    scenario["nodes"]["n1"]["processes"] = first
    scenario["nodes"][f"n{hops + 1}"]["processes"] = last
    before = time.monotonic()
    run = simulate(ENGINE, scenario, folder, ["--force"])
    return run, {"hops": hops, "cpu_s": run.cpu_s, "wall_s": time.monotonic() - before}


def iperf(hops: int, options: str, folder: Path) -> Row:
    """iperf3 over TCP, and the frames that all links carried."""
    client = f"iperf3 --client 10.0.{hops}.2 {options} --json"
    run, row = measured(hops, [{"exec": client, "start": "1s"}], [{"exec": "iperf3 --server --one-off"}], "1h", folder)
    frames = sum(link[way]["frames"] for link in run.summary["links"] for way in ("a_to_b", "b_to_a"))
    end = run.iperf("n1")
    return {
        **row,
        "frames": frames,
        "goodput_bps": end["sum_received"]["bits_per_second"],
        "seconds": end["sum_sent"]["seconds"],
    }


def ping(hops: int, folder: Path) -> Row:
    command = f"ping -c {PINGS} -i 0.01 -q 10.0.{hops}.2"
    run, row = measured(hops, [{"exec": command, "start": "1s"}], [], "1h", folder)
    found = re.search(r"= ([\d.]+)/([\d.]+)/([\d.]+)/([\d.]+) ms", run.stdout("n1"))
    assert found, run.stdout("n1")
    least, mean, most, deviation = map(float, found.groups())
    return {**row, "rtt_least_ms": least, "rtt_mean_ms": mean, "rtt_most_ms": most, "rtt_deviation_ms": deviation}


def scp(hops: int, folder: Path, size_bytes: int) -> Row:
    """OpenSSH over the chain, with the keys and settings of the example; what arrives has the sum of what was sent."""
    yaml = importlib.import_module("yaml")
    example = yaml.safe_load((HERE.parent / "examples/21-ssh.yaml").read_text(encoding="utf-8"))["nodes"]
    scenario = scenarios.chain(hops + 1, LINK, "1h")
    nodes = scenario["nodes"]
    server = f"10.0.{hops}.2"
    first, last = nodes["n1"], nodes[f"n{hops + 1}"]
    for node, model in ((first, example["laptop"]), (last, example["server"])):
        node.update({key: model[key] for key in ("files", "processes", "setup") if key in model})
        node["disk"] = "4GiB"
    last["processes"] = [one for one in last["processes"] if "sshd" in one["exec"]]
    first["setup"] = [f"truncate -s {size_bytes} /srv/file"]
    first["processes"] = [{"exec": f"scp -q /srv/file {server}:/srv/file", "start": "5s", "expect": 0}]
    before = time.monotonic()
    run = simulate(ENGINE, scenario, folder, ["--force"])
    row = run.process("n1")
    return {
        "hops": hops,
        "cpu_s": run.cpu_s,
        "wall_s": time.monotonic() - before,
        "elapsed_s": (row["end_ns"] - row["start_ns"]) / 1e9,
    }


def host_iperf(hops: int) -> Row:
    """The same on the host's kernel, for five seconds of real time: as fast as it can, offloads as virtual Ethernet has them."""
    client = f"iperf3 --client 10.0.{hops}.2 --time 5 --json"
    end = json.loads(namespaces.chain(hops + 1, "iperf3 --server --one-off", client, 30))["end"]
    return {"hops": hops, "goodput_bps": end["sum_received"]["bits_per_second"]}


def host_ping(hops: int) -> Row:
    said = namespaces.chain(hops + 1, "", f"ping -c {PINGS} -i 0.002 -q 10.0.{hops}.2", 60)
    found = re.search(r"= ([\d.]+)/([\d.]+)/([\d.]+)/([\d.]+) ms", said)
    assert found, said
    return {"hops": hops, "rtt_mean_ms": float(found[2]), "rtt_most_ms": float(found[3])}


def show(what: str, row: Row) -> Row:
    values = ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
    )
    print(f"{what}: {values}", flush=True)
    return row


def page(out: Path, by_size: list[Row], bulk: list[Row], pings: list[Row], copies: list[Row], hosts: list[Row]) -> None:
    hops = list(dict.fromkeys(row["hops"] for row in by_size))
    sizes = list(dict.fromkeys(row["mss_bytes"] for row in by_size))
    carried = {(row["hops"], row["mss_bytes"]): row["frames"] / row["cpu_s"] / 1e3 for row in by_size}
    samples = {f"{size}-byte segments": [[carried[count, size]] for count in hops] for size in sizes}
    label = "frames (1000 per CPU-s)"
    plot.save(
        plot.value_against(hops, samples, "hops", label, title="Frames over all links", size=(5.0, 3.6)),
        out / "core-4-frames.svg",
    )
    rtts = {"Windtunnel": [[row["rtt_mean_ms"]] for row in pings]}
    if hosts:
        rtts["namespaces"] = [[row["rtt_mean_ms"]] for row in hosts]
    figure = plot.value_against(
        [row["hops"] for row in pings], rtts, "hops", "round trip, mean of 1000 (ms)", title="ping"
    )
    plot.save(figure, out / "core-8-ping.svg")
    busy = [row["cpu_s"] / row["wall_s"] for row in by_size]
    four = publish.markdown(
        [
            ["hops", *(f"{size} bytes" for size in sizes)],
            *([str(count), *(f"{carried[count, size]:.0f}" for size in sizes)] for count in hops),
        ]
    )
    six = publish.markdown(
        [
            ["hops", "iperf3 reports (Mb/s)", "host's time (s)", "CPU (s)", "bits per CPU second (Mb/s)", "namespaces (Mb/s)"],
            *(
                [
                    str(row["hops"]), f"{row['goodput_bps'] / 1e6:.1f}", f"{row['wall_s']:.2f}", f"{row['cpu_s']:.2f}",
                    f"{row['bytes'] * 8 / row['cpu_s'] / 1e6:.0f}",
                    f"{hosts[number]['goodput_bps'] / 1e6:.0f}" if hosts else "-",
                ]
                for number, row in enumerate(bulk)
            ),
        ]
    )  # fmt: skip
    eight = publish.markdown(
        [
            ["hops", "least (ms)", "mean (ms)", "most (ms)", "namespaces: mean (ms)", "namespaces: most (ms)"],
            *(
                [
                    str(row["hops"]), f"{row['rtt_least_ms']:.3f}", f"{row['rtt_mean_ms']:.3f}", f"{row['rtt_most_ms']:.3f}",
                    *([f"{hosts[number][key]:.3f}" for key in ("rtt_mean_ms", "rtt_most_ms")] if hosts else ["-", "-"]),
                ]
                for number, row in enumerate(pings)
            ),
        ]
    )  # fmt: skip
    nine = publish.markdown(
        [
            ["hops", "elapsed (s)", "host's time (s)", "CPU (s)"],
            *(
                [str(row["hops"]), f"{row['elapsed_s']:.2f}", f"{row['wall_s']:.2f}", f"{row['cpu_s']:.2f}"]
                for row in copies
            ),
        ]
    )
    intro, _, setting = (__doc__ or "").strip().partition("\n\n")
    publish.page(
        out,
        "core-chain",
        "The measurements of the CORE paper",
        [
            intro,
            f"```text\n{setting}\n```",
            "Made by `figures/core_chain.py`; all numbers: [core-chain.csv](core-chain.csv). Seconds of the host are those of one machine with "
            "other load beside. Namespaces run in real time, with neither rate nor delay on their links.",
            "## Frames per second (figures 4 and 5)",
            "![frames per CPU second against hops](core-4-frames.svg)",
            f"Thousands of frames that all links carried in a CPU second, data and acknowledgements, {SEGMENTS} segments of each size:\n\n{four}",
            f"One processor does all of it: a run takes {min(busy):.0%} to {max(busy):.0%} of one (the rest is waiting for one).",
            "## iperf3 from end to end (figures 6 and 7)",
            six,
            "What iperf3 reports is the links' rate less headers, at any length: routers take no virtual time. How long the host takes is "
            "what grows. The paper's `loopback` row has no counterpart: without `cpu:` a copy takes no virtual time.",
            "## Round trips of ping (figure 8)",
            "![round trip against hops](core-8-ping.svg)",
            eight,
            "A round trip here is its links' delay and the time on the wire, to the nanosecond; the longest is the first, which asks for "
            "addresses (ARP).",
            f"## scp of {SCP_BYTES / 2**30:g} GiB (figures 9 and 10)",
            nine,
            "OpenSSH as Debian ships it. Elapsed is what a user in the node would see: the links' rate, as encryption takes no virtual time.",
            "## Beside the paper",
            """\
CORE forwards some number of packets a second that hardly depends on their size or the number of hops (its figure 4); so does a host
that runs Windtunnel, as a frame costs what it costs. What CORE users read from iperf, ping and scp falls and rises with the host, its load and
the virtualisation (figures 6, 8 and 9: OpenVZ, namespaces and jails differ). In virtual time it is a property of the network alone.""",
        ],
    )


def main() -> int:
    chosen = publish.options(__doc__)
    hops = [1, 3] if chosen.quick else HOPS
    segments = 2_000 if chosen.quick else SEGMENTS
    why_not = namespaces.possible()
    if why_not:
        print(f"without network namespaces: {why_not}")
    with tempfile.TemporaryDirectory(prefix="windtunnel-figure-") as name:
        folder = Path(name)
        by_size, bulk, pings, copies, hosts = [], [], [], [], []
        for count in hops:
            for mss in MSS_BYTES:
                row = iperf(count, f"--set-mss {mss} --bytes {segments * mss}", folder)
                by_size.append(show("iperf3", {"mss_bytes": mss, "bytes": segments * mss, **row}))
            bulk.append(by_size[-1])
            pings.append(show("ping", ping(count, folder)))
            copies.append(show("scp", scp(count, folder, SCP_BYTES >> 10 if chosen.quick else SCP_BYTES)))
            if not why_not:
                hosts.append(show("namespaces", {**host_iperf(count), **host_ping(count)}))
    rows = [
        {
            "measurement": kind,
            "quantity": quantity,
            "hops": row["hops"],
            "mss_bytes": row.get("mss_bytes"),
            "value": value,
        }
        for kind, group in (("iperf3", by_size), ("ping", pings), ("scp", copies), ("namespaces", hosts))
        for row in group
        for quantity, value in row.items()
        if quantity not in ("hops", "mss_bytes")
    ]
    write(chosen.out / "core-chain.csv", rows)
    page(chosen.out, by_size, bulk, pings, copies, hosts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
