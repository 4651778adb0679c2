#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Goodput of MPTCP and of each of its paths alone against the size of buffers: figure 7 of the DCE paper (Tazaki et al., CoNEXT 2013).

          10.0.1.1   2 Mb/s, 10 ms, 100 packets      10.0.1.2
    phone   eth0 ------------------------------------- eth0   server     "Wi-Fi"
    phone   eth1 ------------------------------------- eth1   server     "LTE"
          10.0.2.1   1.1 Mb/s, 75 ms, 200 packets    10.0.2.2

All four limits that the paper names (tcp_rmem, tcp_wmem, rmem_max, wmem_max) are the size of the buffer; iperf3 sends for 60 s, and
begins at a moment of the first second that the seed draws.
"""

import json
import random
from typing import Any

import publish
import windtunnel as wt

DURATION_S = 60
WIFI: dict[str, Any] = {"rate": "2Mbit", "delay": "10ms", "queue": "100p"}
LTE: dict[str, Any] = {"rate": "1100kbit", "delay": "75ms", "queue": "200p"}


def goodput(seed: int, buffer_kB: int, path: str) -> dict[str, float]:
    """What iperf3's server counts, bits per second. `path` is `mptcp`, `wifi` or `lte`."""
    size = buffer_kB * 1000
    sysctls: dict[str, str | int] = {
        "net.core.rmem_max": size,
        "net.core.wmem_max": size,
        "net.ipv4.tcp_rmem": f"4096 {size} {size}",
        "net.ipv4.tcp_wmem": f"4096 {size} {size}",
    }
    net = wt.Network("mptcp-buffers", seed=seed, node={"sysctls": sysctls})
    phone = net.add_node("phone", setup=["ip mptcp limits set subflow 2 add_addr_accepted 2"])
    second_path = ["ip mptcp limits set subflow 2", "ip mptcp endpoint add 10.0.2.2 dev eth1 signal"]
    server = net.add_node("server", setup=second_path)
    net.add_link(phone, server, **WIFI, addresses=("10.0.1.1/24", "10.0.1.2/24"))
    net.add_link(phone, server, **LTE, addresses=("10.0.2.1/24", "10.0.2.2/24"))
    # iperf3 knows nothing of MPTCP: mptcpize has its sockets made as MPTCP's.
    iperf3 = "mptcpize run iperf3" if path == "mptcp" else "iperf3"
    to = "10.0.2.2" if path == "lte" else "10.0.1.2"
    with net.run() as run:
        server.popen(f"{iperf3} --server --one-off")
        run.go(random.Random(seed).random())
        said, _ = phone.popen(f"{iperf3} --client {to} --time {DURATION_S} --json").communicate()
        run.stop()
    return {"goodput_bps": json.loads(said)["end"]["sum_received"]["bits_per_second"]}


def main() -> None:
    chosen = publish.options(__doc__)
    grid = {
        "buffer_kB": [50, 200] if chosen.quick else [50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600],
        "path": ["mptcp", "wifi", "lte"],
    }
    publish.sweep_page(
        __doc__ or "",
        wt.Sweep(goodput, grid, seeds=range(1, 4 if chosen.quick else 31)),
        [
            publish.Curves(
                "goodput_bps",
                "buffer_kB",
                "path",
                "buffer (kB)",
                "goodput (Mb/s)",
                1e-6,
                {"mptcp": "MPTCP", "wifi": "TCP over Wi-Fi", "lte": "TCP over LTE"},
            )
        ],
        name="mptcp-buffers",
        title="MPTCP goodput against buffers",
        command="figures/mptcp_buffers.py",
        chosen=chosen,
        paper="""\
In the paper's figure 7 MPTCP goes from 2.2 to 2.9 Mb/s as buffers grow from 50 to 600 kB, and each path alone hardly changes (its table 3 has
1.85 Mb/s over Wi-Fi, 1.00 over LTE, 2.68 with both). Here MPTCP goes from 2.2 to 2.7 Mb/s, with a dip at 100 kB, and the paths alone are level. The paper's paths are ns-3's models of Wi-Fi and LTE, and its text gives
neither their rates nor their delays: the rates here are those that carry its table 3, the delays those of the experiment that it
repeats (round trips of 20 and 150 ms; Raiciu et al., NSDI 2012). Its MPTCP was the one outside of Linux (v0.86); here it is Linux 6.12's.""",
    )


if __name__ == "__main__":
    main()
