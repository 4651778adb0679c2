#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Goodput against loss: reno, cubic and bbr over 10 Mb/s with a round trip of 50 ms.

Run it with `windtunnel sweep examples/sweep-loss.py`, or by Python. Expect: without loss all three fill the link, at 9
Mb/s and more. At 2 % reno and cubic get a small part of it, in the order of what Mathis et al. (1997) say,
1.22 * 1448 bytes / (50 ms * sqrt(loss)) = 2 Mb/s; bbr, which does not take loss for congestion, stays above 8.
"""

import json

import windtunnel as wt

SECONDS = 20


def run(seed: int, loss_percent: float, congestion_control: str) -> dict[str, float]:
    """One cell: a network of its own, a transfer over it, and what arrived."""
    net = wt.Network("loss", seed=seed)
    client, server = net.add_node("client"), net.add_node("server")
    net.add_link(
        client,
        server,
        rate="10Mbit",
        delay="25ms",
        queue="100p",
        a_to_b={"loss": f"{loss_percent}%"},
    )
    with net.run():
        client.sysctl("net.ipv4.tcp_congestion_control", congestion_control)
        server.popen("iperf3 --server --one-off")
        report = json.loads(client.cmd(f"iperf3 --client server --time {SECONDS} --omit 2 --json"))
    return {"goodput_bps": report["end"]["sum_received"]["bits_per_second"]}


sweep = wt.Sweep(
    run,
    {"congestion_control": ["reno", "cubic", "bbr"], "loss_percent": [0, 0.5, 1, 2, 5]},
    seeds=range(1, 4),
    name="loss",
)

if __name__ == "__main__":
    print(sweep.run(progress=True).table())
