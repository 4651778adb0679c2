#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Flow completion times and queues of DCTCP, CUBIC and BBR in a data centre: a fat-tree of k = 4, links of 1 Gb/s and 10 us.

16 hosts and 20 routers (Al-Fares et al., SIGCOMM 2008); all equal paths are used, flow by flow. Each host sends the others flows whose
sizes are those of web search (figures/flows.c), for half a second, at a given load of its link. Where DCTCP runs, queues mark from 20
packets on, as its authors have it (Alizadeh et al., SIGCOMM 2010); those of the others drop at their end. All hold 250 packets.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from pathlib import Path

import publish
import windtunnel as wt

HERE = Path(__file__).resolve().parent
RATE_BPS = 1e9
SECONDS = 0.5
QUEUE_PACKETS = 250
FRAME_BYTES = 1500
MARK_BYTES = 20 * FRAME_BYTES
# RED whose thresholds are one, and which looks at the queue of now: the step that DCTCP asks for. What cannot be marked stays.
MARKING = f"""red limit {QUEUE_PACKETS * FRAME_BYTES} min {MARK_BYTES} max {MARK_BYTES + 1} avpkt {FRAME_BYTES} burst 21
    bandwidth 1gbit probability 1 ecn nodrop""".split()
DROPPING = f"pfifo limit {QUEUE_PACKETS}".split()
# What counts as a short flow, and as a long one.
SHORT_BYTES, LONG_BYTES = 100_000, 1_000_000


def program() -> Path:
    """figures/flows.c, compiled once. Position-independent: what insists on its addresses costs more in nodes side by side."""
    path: Path = publish.ROOT / "target/figures/flows"
    source = HERE / "flows.c"
    if not path.exists() or path.stat().st_mtime < source.stat().st_mtime:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / "flows"
            subprocess.run(["cc", "-O2", "-static-pie", "-o", made, source, "-lm", "-pthread"], check=True)
            made.replace(path)
    return path


def flows(seed: int, load: float, congestion_control: str) -> dict[str, float | None]:
    """Times from connect() to the receiver's answer, and what the routers' queues did."""
    sysctls: dict[str, str | int] = {
        "net.ipv4.tcp_congestion_control": congestion_control,
        "net.ipv4.tcp_ecn": int(congestion_control == "dctcp"),
        "net.ipv4.fib_multipath_hash_policy": 1,  # ports, too
    }
    net = wt.topology.fat_tree(k=4, rate="1Gbit", delay="10us", seed=seed, routing="ecmp").measure({"qdiscs": "1ms"})
    hosts = [node for node in net.nodes.values() if node.kind == "host"]
    for node in net.nodes.values():
        for key, value in sysctls.items():
            node.setup(["sysctl", "-q", f"{key}={value}"])
        for interface in node.interfaces:
            qdisc = MARKING if congestion_control == "dctcp" else DROPPING
            node.setup(["tc", "qdisc", "replace", "dev", interface, "root", *qdisc])
    with net.run() as run:
        programs = []
        run.until("1s")  # by then the set-up commands have ended
        for host in hosts:
            host.write_file("/srv/flows", program().read_bytes(), mode=0o755)
            others = [str(other.ip) for other in hosts if other is not host]
            command = ["/srv/flows", str(host), str(seed), str(load), str(RATE_BPS), str(SECONDS), *others]
            programs.append(host.popen(command))
        said = [list(iter(one.stdout.readline, "done\n")) for one in programs]
        run.stop()
    took_ms = [(int(size), int(took_ns) / 1e6) for lines in said for size, _, took_ns in map(str.split, lines)]
    short = [took for size, took in took_ms if size < SHORT_BYTES]
    long = [took for size, took in took_ms if size >= LONG_BYTES]
    return {
        "flows": len(took_ms),
        "short_mean_ms": statistics.fmean(short),
        "short_p99_ms": statistics.quantiles(short, n=100)[98],
        "long_mean_ms": statistics.fmean(long) if long else None,
        **queues(wt.Results(run.out), {str(host) for host in hosts}),
    }


def queues(results: wt.Results, hosts: set[str]) -> dict[str, float]:
    """Packets in the routers' queues at each millisecond in which their interface sends: mean and 99th percentile."""
    samples = results.qdiscs()
    before: dict[tuple[str, str], int] = {}
    queued = []
    for node, interface, packets, sent in zip(
        samples["node"], samples["interface"], samples["queued_packets"], samples["sent_packets"], strict=True
    ):
        if node in hosts:
            continue
        if packets or sent > before.get((node, interface), 0):
            queued.append(packets)
        before[node, interface] = sent
    return {"queue_mean": statistics.fmean(queued), "queue_p99": statistics.quantiles(queued, n=100)[98]}


def main() -> None:
    chosen = publish.options(__doc__)
    grid = {
        "load": [0.2, 0.6] if chosen.quick else [0.2, 0.4, 0.6, 0.8],
        "congestion_control": ["dctcp", "cubic", "bbr"],
    }
    names = {"dctcp": "DCTCP", "cubic": "CUBIC", "bbr": "BBR"}

    def against_load(value: str, label: str) -> publish.Curves:
        return publish.Curves(value, "load", "congestion_control", "load of each host's link", label, names=names)

    publish.sweep_page(
        __doc__ or "",
        wt.Sweep(flows, grid, seeds=range(1, 2 if chosen.quick else 6), files=[HERE / "flows.c"]),
        [
            against_load("short_mean_ms", "flows below 100 kB, mean (ms)"),
            against_load("short_p99_ms", "flows below 100 kB, 99th percentile (ms)"),
            against_load("long_mean_ms", "flows from 1 MB on, mean (ms)"),
            against_load("queue_mean", "routers' queues, mean (packets)"),
            against_load("queue_p99", "routers' queues, 99th percentile (packets)"),
        ],
        name="datacenter",
        title="A data centre: DCTCP, CUBIC and BBR",
        command="figures/datacenter.py",
        chosen=chosen,
        paper=PAPER,
    )


PAPER = """\
The DCTCP paper has this comparison from a testbed of its own, with TCP of its day in place of CUBIC and BBR. What it says holds here with
Linux 6.12's own DCTCP: its queues stay near the mark of 20 packets, where those of the others fill what there is, and so short flows are
done in a fraction of the time. The worst of the others' short flows take a second: a SYN that finds the queue full is sent again after one
second. BBR does worst: it was made for longer paths, and most of these flows are over before it has measured theirs."""


if __name__ == "__main__":
    main()
