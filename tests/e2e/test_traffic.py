# SPDX-License-Identifier: GPL-2.0-or-later
"""Unmodified iperf3 over real stacks: nothing is lost that nothing takes, and TCP fills the wire."""

from collections.abc import Callable

import pytest
from scenarios import UDP_PAYLOAD_BYTES, tcp_pair, udp_chain
from simulate import Simulation

# Of 1538 bytes on the wire per full frame, 1448 are payload (20 IP, 32 TCP with time stamps, 14 + 24 Ethernet).
TCP_GOODPUT_BPS = 1e9 * 1448 / 1538


@pytest.mark.parametrize("count", [2, 3, 8, 32, 64])
def test_chain_delivers_every_datagram(run: Callable[..., Simulation], count: int) -> None:
    result = run(udp_chain(count, seconds=1))
    end = result.iperf("n1")
    sent = end["sum_sent"]["packets"]
    assert sent == pytest.approx(100e6 / 8 / UDP_PAYLOAD_BYTES, rel=0.01)
    assert end["sum_received"]["packets"] == sent
    assert end["sum_received"]["lost_packets"] == 0
    assert len(result.summary["links"]) == count - 1
    for link in result.summary["links"]:
        assert link["a_to_b"]["delivered_frames"] == link["a_to_b"]["frames"] >= sent
        assert link["a_to_b"]["drops"] == link["b_to_a"]["drops"] == {}


@pytest.mark.parametrize("congestion_control", ["cubic", "bbr", "reno"])
def test_tcp_fills_the_wire(run: Callable[..., Simulation], congestion_control: str) -> None:
    end = run(tcp_pair(4, congestion_control)).iperf("h1")
    assert end["sender_tcp_congestion"] == congestion_control
    # Start-up costs a part of so short a transfer; BBR also leaves room on purpose.
    assert end["sum_received"]["bits_per_second"] <= TCP_GOODPUT_BPS
    assert end["sum_received"]["bits_per_second"] >= TCP_GOODPUT_BPS * (0.9 if congestion_control == "bbr" else 0.99)


def test_moderated_interrupts_merge_segments(run: Callable[..., Simulation]) -> None:
    """Segments that wait together are received as one: as fast, with a fraction of the acknowledgements."""
    scenario = tcp_pair(2)
    scenario["nodes"]["h2"]["setup"] = ["ethtool -C eth0 rx-usecs 100 rx-frames 16"]
    result = run(scenario)
    link = result.summary["links"][0]
    assert link["b_to_a"]["frames"] * 4 < link["a_to_b"]["frames"]
    assert result.iperf("h1")["sum_received"]["bits_per_second"] >= TCP_GOODPUT_BPS * 0.98


def test_loss_is_seen_by_tcp(run: Callable[..., Simulation]) -> None:
    scenario = tcp_pair(2)
    scenario["links"][0]["both"]["loss"] = "1%"
    result = run(scenario)
    dropped = result.summary["links"][0]["a_to_b"]["drops"]["loss"]
    end = result.iperf("h1")
    assert dropped > 0
    assert end["sum_sent"]["retransmits"] >= dropped * 0.5
    assert end["sum_received"]["bits_per_second"] < TCP_GOODPUT_BPS * 0.9
