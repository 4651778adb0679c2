# SPDX-License-Identifier: GPL-2.0-or-later
"""Models of NICs: what ethtool says of them, what they do to times, and what they lose."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import windtunnel as wt
from pcap import packets
from scenarios import Mapping, pair, tcp_pair
from simulate import Simulation

LINK = {"rate": "1Gbit", "delay": "1ms"}
# Twice the delay, and 98 bytes with 24 of overhead at 1 Gb/s.
ROUND_TRIP_NS = 2 * (1_000_000 + (98 + 24) * 8)
TCP_GOODPUT_BPS = 1e9 * 1448 / 1538
UDP = 17
STATISTICS = "/sys/class/net/eth0/statistics"
ECHO_PORT = (7).to_bytes(2, "big")


@dataclass(frozen=True)
class Expected:
    """What ethtool shows: from the drivers of Linux 6.12, not from the engine's table."""

    driver: str
    rings: tuple[str, str]
    gap_us: str
    frames: str
    features: Mapping


ALL_ON = {"tcp-segmentation-offload": "on", "rx-checksumming": "on", "tx-checksumming": "on"}
MODELS = {
    "ideal": Expected("windtunnel", ("n/a", "256"), "0", "0", {**ALL_ON, "tx-udp-segmentation": "on"}),
    "virtio": Expected("virtio_net", ("256", "256"), "0", "0", {**ALL_ON, "tx-udp-segmentation": "off"}),
    "e1000e": Expected("e1000e", ("256", "256"), "50", "0", {**ALL_ON, "tx-udp-segmentation": "off [fixed]"}),
    "igb": Expected("igb", ("256", "256"), "49", "0", {**ALL_ON, "tx-udp-segmentation": "on"}),
    "mlx5": Expected("mlx5_core", ("1024", "1024"), "8", "128", {**ALL_ON, "tx-udp-segmentation": "on"}),
}


def with_nics(scenario: Mapping, **nic: object) -> Mapping:
    """Gives both nodes of a pair this NIC."""
    for node in scenario["nodes"].values():
        node["interfaces"] = {"eth0": nic}
    return scenario


def values(text: str) -> Mapping:
    """Lines of `name: value`; of those with one name, the last."""
    return dict(re.findall(r"^\s*([^:\n]+):[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))


@pytest.mark.parametrize("model", MODELS)
def test_a_model_shows_in_ethtool_and_keeps_time(run: Callable[..., Simulation], model: str) -> None:
    expected = MODELS[model]
    asked = [{"exec": f"ethtool -{option} eth0"} for option in "icgk"]
    ping = {"exec": "ping -c 5 -i 0.2 10.0.0.2", "start": "3s"}
    client = {"exec": "iperf3 --client 10.0.0.2 --time 1 --json", "start": "5s"}
    server = {"exec": "iperf3 --server --one-off"}
    scenario = with_nics(pair([*asked, ping, client], [server], LINK, stop="10s"), model=model)
    # Buffers of virtio's size fill the windows that Linux has in 64 MiB, the default, before the link is full.
    scenario["defaults"] = {"node": {"memory": "256MiB"}}
    result = run(scenario)
    about, coalescing, rings, features = (values(result.stdout("h1", index)) for index in range(4))

    assert about["driver"] == expected.driver
    assert about["firmware-version"] == ("" if model == "ideal" else "windtunnel-model")
    assert (coalescing["rx-usecs"], coalescing["rx-frames"]) == (expected.gap_us, expected.frames)
    assert (rings["RX"], rings["TX"]) == expected.rings
    assert {name: features[name] for name in expected.features} == expected.features

    # The first frame after a quiet time is not delayed, whatever the model.
    least = re.search(r"rtt min/avg/max/mdev = ([\d.]+)/", result.stdout("h1", 4))
    assert least
    assert abs(float(least[1]) * 1000 - ROUND_TRIP_NS / 1000) <= 1

    received = json.loads(result.stdout("h1", 5))["end"]["sum_received"]["bits_per_second"]
    assert 0.9 * TCP_GOODPUT_BPS <= received <= TCP_GOODPUT_BPS
    assert "rx_ring_full" not in result.summary["links"][0]["a_to_b"]["drops"]


# What sends datagrams 2 ms apart whatever comes back, and what sends them back.
CLOCK = (
    "import socket, sys, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); began = time.monotonic()\n"
    "for i in range(int(sys.argv[1])):\n"
    "  time.sleep(max(0, began + i * 0.002 - time.monotonic())); s.sendto(bytes(100), ('10.0.0.2', 7))"
)
ECHO = (
    "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 7)); s.settimeout(4); n = 0\n"
    "try:\n  while True: s.sendto(*s.recvfrom(2000)); n += 1\n"
    "except TimeoutError: print(n)"
)


def echo(count: int, nic: Mapping, *more: str) -> Mapping:
    """h1 sends datagrams every 2 ms from 2 s on, h2 sends them back; neither asks for an address.

    Without BQL: what it lets into the ring would wait for the interrupt that says that room is there.
    """
    scenario = pair(
        [{"exec": ["python3", "-c", CLOCK, str(count)], "start": "2s"}],
        [{"exec": ["python3", "-c", ECHO]}, *({"exec": command, "start": "4s"} for command in more)],
        LINK,
        stop="9s",
        capture="all",
    )
    scenario["nodes"]["h1"]["setup"] = ["ip neigh add 10.0.0.2 lladdr 02:00:00:01:00:00 dev eth0"]
    scenario["nodes"]["h2"]["setup"] = ["ip neigh add 10.0.0.1 lladdr 02:00:00:00:00:00 dev eth0"]
    scenario["nodes"]["h2"]["interfaces"] = {"eth0": {"bql": False, **nic}}
    return scenario


def udp_times(result: Simulation) -> tuple[list[int], list[int]]:
    """When datagrams arrived at h2, and when they went back, ns."""
    seen = [p for p in packets(result.out / "pcap/h2-eth0.pcap") if p.ethertype == 0x0800 and p.frame[23] == UDP]
    requests, replies = ([p.time_ns for p in seen if p.frame[at : at + 2] == ECHO_PORT] for at in (36, 34))
    return requests, replies


def test_what_comes_within_the_gap_waits_for_its_end(run: Callable[..., Simulation]) -> None:
    """Of datagrams 2 ms apart the first goes back at once, and those of the next 17 ms together at their end."""
    requests, replies = udp_times(run(echo(8, {"interrupt_gap": "17ms"})))
    assert len(requests) == 8
    assert requests[-1] < requests[0] + 17_000_000
    assert replies == [requests[0]] + [requests[0] + 17_000_000] * 7


def test_many_frames_do_not_wait(run: Callable[..., Simulation]) -> None:
    scenario = echo(9, {})
    scenario["nodes"]["h2"]["setup"].append("ethtool -C eth0 rx-usecs 100000 rx-frames 4")
    requests, replies = udp_times(run(scenario))
    assert len(requests) == 9
    assert replies == [requests[0]] + [requests[4]] * 4 + [requests[8]] * 4


def test_a_full_receive_ring_loses_frames_and_counts_them(run: Callable[..., Simulation]) -> None:
    count, ring = 60, 4
    nic = {"model": "e1000e", "rx_ring": ring, "interrupt_gap": "48500us"}
    programs = (f"cat {STATISTICS}/rx_missed_errors", "ethtool -S eth0", "ethtool -g eth0")
    result = run(echo(count, nic, *programs), ["--measure", "10ms"])
    missed = int(values(result.stdout("h2", 2))["rx_missed"])
    direction = result.summary["links"][0]["a_to_b"]
    # Of 60 from 0 to 118 ms the first interrupts; four each wait until 48.5 ms, 97 ms and 145.5 ms.
    assert missed == 47
    assert int(result.stdout("h2", 1)) == missed
    assert values(result.stdout("h2", 3))["RX"] == str(ring)
    assert direction["drops"] == {"rx_ring_full": missed}
    links = wt.Results(result.out).links()
    assert sum(links.where(**{"from": "h1:eth0"})["rx_ring_full_frames"]) == missed
    assert sum(links.where(**{"from": "h2:eth0"})["rx_ring_full_frames"]) == 0
    assert direction["delivered_frames"] == direction["frames"] - missed
    # Those that were lost were never received: neither by the program nor in the capture.
    assert int(result.stdout("h2")) == len(udp_times(result)[0]) == count - missed


# Receives nothing until all has come, then says how many datagrams its buffer had room for.
RECEIVER = (
    "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 9)); "
    "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50000); time.sleep(2); s.setblocking(False); n = 0\n"
    "try:\n  while s.recv(2000): n += 1\n"
    "except BlockingIOError: print(n, s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))"
)
SENDER = (
    "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    "for i in range(300): s.sendto(bytes(300), ('10.0.0.2', 9)); time.sleep(0.001)"
)


@pytest.mark.parametrize(
    ("nic", "truesize"),
    [
        ({"model": "igb"}, 2304),
        ({"model": "e1000e"}, 2176),
        ({"model": "e1000e", "rx_copybreak": "400B"}, 1280),
        ({"rx_buffer": "4096B"}, 4096),
        # As much as Linux takes for a frame of 342 bytes.
        ({"model": "ideal"}, 1280),
    ],
)
def test_received_frames_count_as_their_buffers(run: Callable[..., Simulation], nic: Mapping, truesize: int) -> None:
    """A socket's buffer takes a datagram as long as what it has taken is no more than SO_RCVBUF (net/ipv4/udp.c)."""
    scenario = pair(
        [{"exec": ["python3", "-c", SENDER], "start": "1s"}], [{"exec": ["python3", "-c", RECEIVER]}], LINK, stop="5s"
    )
    scenario["nodes"]["h2"]["interfaces"] = {"eth0": nic}
    taken, room = map(int, run(scenario).stdout("h2").split())
    assert room == 100_000
    assert abs(taken - room / truesize) <= 2


def test_tcp_costs_less_and_says_the_same_twice(run: Callable[..., Simulation]) -> None:
    """A gap of 100 us: an eighth of the acknowledgements, the goodput of before, and equal digests."""
    results = [run(tcp_pair(1, interrupt_gap_us=100)) for _ in range(2)]
    link = results[0].summary["links"][0]
    assert link["b_to_a"]["frames"] * 6 < link["a_to_b"]["frames"]
    assert results[0].iperf("h1")["sum_received"]["bits_per_second"] >= TCP_GOODPUT_BPS * 0.97
    assert results[0].summary["digest"] == results[1].summary["digest"]


def test_offloads_and_limits_can_be_given_alone(run: Callable[..., Simulation]) -> None:
    """Without its offloads a NIC sends and receives the same, made by Linux."""
    scenario = tcp_pair(1)
    asked = [{"exec": "ethtool -k eth0"}, {"exec": "ip -d link show eth0"}, {"exec": "ethtool -S eth0", "start": "4s"}]
    scenario["nodes"]["h1"]["processes"] += asked
    nic = {
        "tx_checksum": False,
        "gso": False,
        "gro": False,
        "rx_checksum": False,
        "gso_max_size": "16KiB",
        "bql": False,
    }
    result = run(with_nics(scenario, **nic))
    features = values(result.stdout("h1", 1))
    off = ("tx-checksumming", "rx-checksumming", "tcp-segmentation-offload", "generic-receive-offload")
    assert [features[name] for name in off] == ["off"] * 4
    assert "gso_max_size 16384" in result.stdout("h1", 2)
    assert values(result.stdout("h1", 3))["tx_bursts"] == "0"
    assert result.iperf("h1")["sum_received"]["bits_per_second"] >= TCP_GOODPUT_BPS * 0.95
