#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What a chain carries by the wall clock, beside the host's own kernel: the CORE paper's measurements (Ahrenholz, MILCOM 2010) live.

    n1 ---- n2 ---- ... ---- nN       routers with static routes

Datagrams of 64 bytes: how many a second reach the other end, so that time is never given up (figures 4 and 5). TCP: the fastest
links on which a transfer goes as fast as the wall clock (figures 6 and 7). Beside both: network namespaces of the host, one for each node,
with virtual Ethernet between them, which is what CORE and Mininet do.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "bench")]

import core_chain  # noqa: E402
import namespaces  # noqa: E402
import publish  # noqa: E402
import realtime  # noqa: E402
import scenarios  # noqa: E402
from chain import write  # noqa: E402
from simulate import Simulation, simulate  # noqa: E402

ENGINE = HERE.parent / "target/release/windtunnel"
HOPS = [1, 5, 15, 45]
GUESS_PER_S = 150_000
RATES_MBPS = [1000, 750, 500, 350, 250, 150, 100, 70, 50, 30, 20, 10]
SECONDS = 2
# Later than this, 99 of 100, it does not keep up.
LATE_MAX_NS = 10_000_000

Row = dict[str, Any]


def transfer(hops: int, rate_mbps: int, seconds: int, folder: Path, *options: str) -> Simulation:
    scenario = scenarios.chain(hops + 1, {"rate": f"{rate_mbps}Mbit", "delay": "10us"}, stop=f"{seconds + 5}s")
    client = f"iperf3 --client 10.0.{hops}.2 --time {seconds} --json"
    scenario["nodes"]["n1"]["processes"] = [{"exec": client, "start": "1s"}]
    scenario["nodes"][f"n{hops + 1}"]["processes"] = [{"exec": "iperf3 --server --one-off"}]
    return simulate(ENGINE, scenario, folder / ("live" if options else "virtual"), ["--force", *options])


def bulk(hops: int, seconds: int, folder: Path, rates_mbps: list[int]) -> Row:
    """The fastest links on which TCP keeps up with the wall clock, and whether its bytes are those of virtual time."""
    for rate_mbps in rates_mbps:
        live = transfer(hops, rate_mbps, seconds, folder, "--realtime")
        lateness = live.summary["lateness"]
        if lateness["slips"] == 0 and lateness["p99_ns"] <= LATE_MAX_NS:
            same = live.summary["digest"] == transfer(hops, rate_mbps, seconds, folder).summary["digest"]
            goodput_bps = live.iperf("n1")["sum_received"]["bits_per_second"]
            return {
                "link_mbps": rate_mbps,
                "goodput_bps": goodput_bps,
                "late_p99_ms": lateness["p99_ns"] / 1e6,
                "digest_of_virtual_time": same,
            }
    return {"link_mbps": 0, "goodput_bps": 0.0, "late_p99_ms": 0.0, "digest_of_virtual_time": None}


def measured(hops: int, seconds: int, folder: Path, with_host: bool, before: Row | None) -> Row:
    """Looks near what the shorter chain before this one has reached."""
    keeps_up = functools.partial(realtime.keeps_up, ENGINE, folder, hops, seconds=seconds)
    guess = before["datagrams_per_s"] * before["hops"] / hops if before else GUESS_PER_S
    rates_mbps = [rate for rate in RATES_MBPS if not before or rate <= before["link_mbps"]]
    row: Row = {"hops": hops, "datagrams_per_s": realtime.most(keeps_up, guess)}
    row |= bulk(hops, seconds, folder, rates_mbps)
    if with_host:
        row["host_datagrams_per_s"] = realtime.namespaces_per_s(hops, seconds)
        row["host_goodput_bps"] = core_chain.host_iperf(hops)["goodput_bps"]
    print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return row


def page(out: Path, rows: list[Row]) -> None:
    def host(row: Row, name: str, by: float) -> str:
        return f"{row[name] / by:.0f}" if name in row else "-"

    frames = publish.markdown(
        [
            ["hops", "datagrams a second", "times hops", "namespaces"],
            *(
                [
                    str(row["hops"]),
                    f"{row['datagrams_per_s'] / 1e3:.1f} k",
                    f"{row['datagrams_per_s'] * row['hops'] / 1e3:.0f} k",
                    host(row, "host_datagrams_per_s", 1e3) + " k",
                ]
                for row in rows
            ),
        ]
    )
    streams = publish.markdown(
        [
            ["hops", "links (Mb/s)", "iperf3 (Mb/s)", "windows late by (99 of 100, ms)", "namespaces (Mb/s)"],
            *(
                [
                    str(row["hops"]),
                    str(row["link_mbps"]),
                    f"{row['goodput_bps'] / 1e6:.0f}",
                    f"{row['late_p99_ms']:.2f}",
                    host(row, "host_goodput_bps", 1e6),
                ]
                for row in rows
            ),
        ]
    )
    # Where nothing kept up nothing was compared.
    compared = [row["digest_of_virtual_time"] for row in rows if row["digest_of_virtual_time"] is not None]
    intro, _, setting = (__doc__ or "").strip().partition("\n\n")
    publish.page(
        out,
        "core-realtime",
        "The CORE paper's measurements by the wall clock",
        [
            intro,
            f"```text\n{setting}\n```",
            "Made by `figures/core_realtime.py`; all numbers: [core-realtime.csv](core-realtime.csv). They are of one machine with other load "
            "beside, of which a run uses one processor and the host's kernel all.",
            f"## Datagrams (figures 4 and 5)\n\n{frames}",
            f"In steps of {realtime.RATE_STEP:g}; {realtime.ARRIVES:.0%} of what is sent has to arrive. iperf3 sends and counts in both.",
            f"## TCP (figures 6 and 7)\n\n{streams}",
            "Here links have a rate, and iperf3 reports what it would on such a network; namespaces have none, so what is "
            "reported there is the host's speed.",
            f"Each of these transfers was made in virtual time as well: {sum(compared)} of {len(compared)} have its digest. As long as a run keeps up, ping, "
            "scp and all others report by the wall clock what they report in virtual time: [core-chain.md](../figures/core-chain.md) has "
            "their numbers (figures 8 to 10).",
            "## Beside the paper",
            "In CORE, what a user reads off falls with the load of the host and says nothing of it. Here the rates are the network's, and where "
            "the host is too slow for them the run says by how much.",
        ],
    )


def main() -> int:
    chosen = publish.options(__doc__)
    hops, seconds = ([2], 1) if chosen.quick else (HOPS, SECONDS)
    why_not = namespaces.possible() or realtime.missing()
    if why_not:
        print(f"without network namespaces: {why_not}")
    with tempfile.TemporaryDirectory(prefix="windtunnel-figure-") as name:
        rows: list[Row] = []
        for count in hops:
            rows.append(measured(count, seconds, Path(name), why_not is None, rows[-1] if rows else None))
    write(chosen.out / "core-realtime.csv", rows)
    page(chosen.out, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
