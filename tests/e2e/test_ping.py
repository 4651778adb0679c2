# SPDX-License-Identifier: GPL-2.0-or-later
"""Round-trip times are arithmetic: twice the delay and the time on the wire, and nothing else."""

import re
from collections.abc import Callable

import pytest
from pcap import Packet, packets
from scenarios import pair
from simulate import RunError, Simulation

DELAY_NS = 5_000_000
RATE_BPS = 1_000_000_000
# Frame check sequence, preamble and inter-frame gap: what a frame costs on the wire beyond its own bytes.
WIRE_OVERHEAD_BYTES = 4 + 8 + 12
ETHERNET_BYTES = 14
PAYLOAD_BYTES = 56
ICMP_HEADER_BYTES = 8
COUNT = 5

FAMILIES = {
    # address, bytes of IP header, Ethernet type, offset of the ICMP type, types of request and reply
    "IPv4": ("10.0.0.2", 20, 0x0800, 34, (8, 0)),
    "IPv6": ("fd00::2", 40, 0x86DD, 54, (128, 129)),
}


def round_trip_ns(ip_header_bytes: int) -> int:
    frame = ETHERNET_BYTES + ip_header_bytes + ICMP_HEADER_BYTES + PAYLOAD_BYTES
    return 2 * (DELAY_NS + (frame + WIRE_OVERHEAD_BYTES) * 8 * 10**9 // RATE_BPS)


@pytest.mark.parametrize("family", FAMILIES)
def test_round_trip_is_exact(run: Callable[..., Simulation], family: str) -> None:
    address, ip_header_bytes, ethertype, type_at, (request, reply) = FAMILIES[family]
    scenario = pair(
        [{"exec": f"ping -c {COUNT} -i 0.2 {address}", "start": "3s"}],
        [],
        {"rate": "1Gbit", "delay": "5ms"},
        stop="6s",
        capture="all",
    )
    result = run(scenario)
    expected_ns = round_trip_ns(ip_header_bytes)

    # On the wire: to the nanosecond.
    seen = [packet for packet in packets(result.out / "pcap/h1-eth0.pcap") if packet.ethertype == ethertype]

    def times(kind: int) -> list[int]:
        return [packet.time_ns for packet in seen if is_icmp(packet, ip_header_bytes) and packet.frame[type_at] == kind]

    trips = [back - out for out, back in zip(times(request), times(reply), strict=True)]
    assert trips == [expected_ns] * COUNT

    # In ping's own words: to the microsecond (it cuts, and its clock need not stand on a full one). The first one
    # waits for the neighbour's address as well, so the least counts.
    text = result.stdout("h1")
    assert f"{COUNT} packets transmitted, {COUNT} received, 0% packet loss" in text
    least = re.search(r"rtt min/avg/max/mdev = ([\d.]+)/", text)
    assert least, text
    assert abs(float(least[1]) * 1000 - expected_ns / 1000) <= 1
    assert result.process("h1")["exit"] == 0


def test_interrupts_with_a_gap_do_not_delay_the_first_frame(run: Callable[..., Simulation]) -> None:
    """ethtool -C: interrupts keep a distance, which a frame after a quiet time does not notice."""
    gaps_us = {"h1": 30, "h2": 200}
    scenario = pair(
        [{"exec": f"ping -c {COUNT} -i 0.2 10.0.0.2", "start": "3s"}],
        [],
        {"rate": "1Gbit", "delay": "5ms"},
        stop="6s",
    )
    for node, gap_us in gaps_us.items():
        scenario["nodes"][node]["setup"] = [f"ethtool -C eth0 rx-usecs {gap_us}"]
    least = re.search(r"rtt min/avg/max/mdev = ([\d.]+)/", run(scenario).stdout("h1"))
    assert least
    assert abs(float(least[1]) * 1000 - round_trip_ns(20) / 1000) <= 1


def is_icmp(packet: Packet, ip_header_bytes: int) -> bool:
    protocol_at = ETHERNET_BYTES + (9 if ip_header_bytes == 20 else 6)
    return packet.frame[protocol_at] in (1, 58)


def test_missing_answers_fail_the_run(run: Callable[..., Simulation]) -> None:
    """Expectations have teeth: a ping without answers exits with 1, so the run must not succeed."""
    scenario = pair(
        [{"exec": "ping -c 1 -W 1 10.0.0.9", "expect": {"exit": 1}}], [], {"rate": "1Gbit", "delay": "5ms"}, stop="6s"
    )
    assert run(scenario).process("h1")["exit"] == 1
    scenario["nodes"]["h1"]["processes"][0]["expect"] = "success"
    with pytest.raises(RunError, match="ended with 1"):
        run(scenario)
