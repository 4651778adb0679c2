# SPDX-License-Identifier: GPL-2.0-or-later
"""Scenarios that measurements and end-to-end tests share, as the mappings of a scenario file (JSON is YAML)."""

from typing import Any

Mapping = dict[str, Any]

UDP_RATE = "100M"
UDP_PAYLOAD_BYTES = 1470


def scenario(nodes: Mapping, links: list[Mapping], stop: str, **run: Any) -> Mapping:
    return {"version": 1, "run": {"stop": stop, **run}, "nodes": nodes, "links": links}


def pair(a: list[Mapping], b: list[Mapping], link: Mapping, stop: str, **run: Any) -> Mapping:
    """h1 (10.0.0.1, fd00::1) and h2 (10.0.0.2, fd00::2), their processes, and the cable between them."""
    nodes = {
        f"h{i}": {"addresses": {"eth0": [f"10.0.0.{i}/24", f"fd00::{i}/64"]}, "processes": processes}
        for i, processes in ((1, a), (2, b))
    }
    return scenario(nodes, [{"endpoints": ["h1:eth0", "h2:eth0"], "both": link}], stop, **run)


def chain(count: int, link: Mapping, stop: str, **run: Any) -> Mapping:
    """count nodes in a row, without processes.

       n1 ---- n2 ---- ... ---- nN        cable i: 10.0.i.0/24, node i has .1 (eth1), node i + 1 has .2 (eth0)

    Every node can reach the first and the last cable.
    """
    nodes: Mapping = {}
    last = count - 1  # number of the last cable
    for i in range(1, count + 1):
        node: Mapping = {"kind": "router" if 1 < i < count else "host", "addresses": {}, "routes": []}
        if i > 1:
            node["addresses"]["eth0"] = f"10.0.{i - 1}.2/24"
        if i < count:
            node["addresses"]["eth1"] = f"10.0.{i}.1/24"
        if i > 2:
            node["routes"].append(f"10.0.1.0/24 via 10.0.{i - 1}.1")
        if i < last:
            node["routes"].append(f"10.0.{last}.0/24 via 10.0.{i}.2")
        nodes[f"n{i}"] = node
    links = [{"endpoints": [f"n{i}:eth1", f"n{i + 1}:eth0"], "both": link} for i in range(1, count)]
    return scenario(nodes, links, stop, **run)


def udp_chain(count: int, seconds: int, rate: str = UDP_RATE) -> Mapping:
    """The chain of the DCE paper's figure 2: iperf3 sends 100 Mb/s of 1470-byte datagrams from end to end."""
    result = chain(count, {"rate": "1Gbit", "delay": "1ms"}, stop=f"{seconds + 5}s")
    client = f"iperf3 --client 10.0.{count - 1}.2 --udp --bitrate {rate} --length {UDP_PAYLOAD_BYTES}"
    result["nodes"][f"n{count}"]["processes"] = [{"exec": "iperf3 --server --one-off"}]
    result["nodes"]["n1"]["processes"] = [{"exec": f"{client} --time {seconds} --json", "start": "1s"}]
    return result


def tcp_pair(seconds: int, congestion_control: str = "cubic", interrupt_gap_us: int = 0) -> Mapping:
    """iperf3 over one cable of 1 Gb/s and 1 ms; interrupts of both NICs are that far apart at least."""
    client = f"iperf3 --client 10.0.0.2 --congestion {congestion_control} --time {seconds} --json"
    result = pair(
        [{"exec": client, "start": "1s"}],
        [{"exec": "iperf3 --server --one-off"}],
        {"rate": "1Gbit", "delay": "1ms"},
        stop=f"{seconds + 5}s",
    )
    if interrupt_gap_us:
        for node in result["nodes"].values():
            node["interfaces"] = {"eth0": {"interrupt_gap": f"{interrupt_gap_us}us"}}
    return result


def with_each_node(base: Mapping, process: Mapping) -> Mapping:
    """Adds a process to every node."""
    for node in base["nodes"].values():
        node.setdefault("processes", []).append(process)
    return base
