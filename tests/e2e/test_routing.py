"""Several next hops of equal cost (`routing: ecmp`): the kernel chooses by flow, the same way in each run."""

from pathlib import Path

import pytest
import windtunnel as wt

SPINES = 4
SERVERS = 8
# Sends a datagram from each of 32 ports.
SEND = """
import socket, sys
for port in range(1001, 1033):
    family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.bind(("", port))
        sender.sendto(b"x", (sys.argv[1], 9))
"""


@pytest.fixture(autouse=True)
def program(engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDTUNNEL_PROGRAM", str(engine))


def fabric(**sysctls: int) -> wt.Network:
    """A client and a server, each behind a leaf, and four spines between these."""
    net = wt.Network("fabric", routing="ecmp", link={"rate": "1Gbit", "delay": "10us"})
    leaves = [net.add_router(name, sysctls=sysctls) for name in ("leaf1", "leaf2")]
    for number in range(SPINES):
        spine = net.add_router(f"spine{number}")
        for leaf in leaves:
            net.add_link(leaf, spine)
    net.add_link(net.add_node("client"), leaves[0])
    for number in range(SERVERS):
        net.add_link(net.add_node(f"server{number}"), leaves[1])
    return net


def frames_up(run: wt.Run) -> list[int]:
    """Frames from leaf1 to each spine."""
    return [link["a_to_b"]["frames"] for link in run.counters() if link["a"].startswith("leaf1:")][:SPINES]


def test_flows_are_spread_over_all_paths_the_same_way_in_each_run(kernel: Path, tmp_path: Path) -> None:
    found, digests = {}, {}
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        net = fabric()
        with net.run(tmp_path / name, seed=seed) as run:
            for server in range(SERVERS):
                for option in ("-4", "-6"):
                    assert "1 received" in net["client"].cmd(f"ping {option} -c 1 server{server}")
            found[name] = frames_up(run)
        digests[name] = run.digest
    assert (found["first"], digests["first"]) == (found["again"], digests["again"])
    assert found["first"] != found["other"], "the hash has its key from the seed"
    assert all(frames > 0 for frames in found["first"]), found


def paths_taken(family: str, folder: Path, labels: int, **sysctls: int) -> int:
    """Over how many spines the datagrams of 32 ports go."""
    net = fabric(**sysctls)
    with net.run(folder) as run:
        server, client = net["server0"], net["client"]
        client.sysctl("net.ipv6.auto_flowlabels", labels)
        run.go("10ms")
        before = frames_up(run)
        address = server.ip if family == "ipv4" else server.ip6
        client.cmd(["python3", "-c", SEND, str(address)])
        after = frames_up(run)
    # One or two may ask for the address of a neighbour.
    return sum(now - then > 2 for then, now in zip(before, after, strict=True))


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_the_hash_policy_says_what_a_flow_is(family: str, kernel: Path, tmp_path: Path) -> None:
    """By default a pair of hosts is a flow, and in IPv6 each flow label; with policy 1 each connection is."""
    assert paths_taken(family, tmp_path / "hosts", 0) == 1
    assert paths_taken(family, tmp_path / "ports", 0, **{f"net.{family}.fib_multipath_hash_policy": 1}) == SPINES
    assert paths_taken(family, tmp_path / "labels", 1) == (1 if family == "ipv4" else SPINES)
