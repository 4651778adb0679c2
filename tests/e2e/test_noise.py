# SPDX-License-Identifier: GPL-2.0-or-later
"""A node that gets a storm of damaged frames goes on, and the storm is the same each time."""

import os
import re
from collections.abc import Callable

import pytest
from conftest import ROOT
from scenarios import Mapping, pair
from simulate import Simulation

# WINDTUNNEL_NOISE_FRAMES=N WINDTUNNEL_NOISE_SEED=N: a longer storm, another one.
FRAMES = int(os.environ.get("WINDTUNNEL_NOISE_FRAMES", "20000"))
SEED = int(os.environ.get("WINDTUNNEL_NOISE_SEED", "1"))
MAC = "02:00:00:00:00:77"
# Each of these puts a parser of its own behind the interface.
RECEIVER = [
    "ip link add link eth0 name vlan7 type vlan id 7",
    "ip link set vlan7 up",
    "ip link add vx0 type vxlan id 7 dev eth0 dstport 4789 local 10.0.0.2 remote 10.0.0.1",
    "ip link set vx0 up",
    "ip link add gre7 type gre local 10.0.0.2 remote 10.0.0.1",
    "ip link set gre7 up",
    "ip link add ipip7 type ipip local 10.0.0.2 remote 10.0.0.1",
    "ip link set ipip7 up",
    "ip link add sit7 type sit local 10.0.0.2 remote 10.0.0.1",
    "ip link set sit7 up",
    "nft add table inet t",
    "nft add chain inet t in '{ type filter hook input priority 0; }'",
    "nft add rule inet t in ct state invalid counter",
    "nft add rule inet t in tcp option maxseg size 1-500 counter",
    "nft add rule inet t in exthdr rt exists counter",
    "sysctl -w net.mpls.platform_labels=1000",
    "sysctl -w net.mpls.conf.eth0.input=1",
    "sysctl -w net.ipv4.conf.all.accept_source_route=1",
    "sysctl -w net.ipv6.conf.all.accept_source_route=1",
]


def storm() -> Mapping:
    seconds = 2 + FRAMES // 50_000
    sender = {"exec": f"python3 /noise.py {SEED} {FRAMES} {MAC}", "start": "1s"}
    checks = [f"ping -c 3 -i 0.2 {to}" for to in ("10.0.0.2", "fd00::2")]
    later = [{"exec": check, "start": f"{seconds}s"} for check in checks]
    receiver = [{"exec": "iperf3 --server", "expect": "running"}, {"exec": "nft list ruleset", "start": f"{seconds}s"}]
    result = pair([sender, *later], receiver, {"rate": "1Gbit", "delay": "1ms"}, stop=f"{seconds + 5}s")
    result["nodes"]["h1"]["files"] = {"/noise.py": {"source": str(ROOT / "tests/frames/noise.py")}}
    result["nodes"]["h2"]["setup"] = RECEIVER
    result["nodes"]["h2"]["interfaces"] = {"eth0": {"mac": MAC}}
    return result


@pytest.mark.parametrize("offload", ["on", "off"])
def test_a_storm_of_damaged_frames(run: Callable[..., Simulation], offload: str) -> None:
    scenario = storm()
    scenario["nodes"]["h2"]["setup"] = [*RECEIVER, f"ethtool -K eth0 gro {offload} rx {offload}"]
    result = run(scenario)
    assert result.stdout("h1") == f"sent {FRAMES} frames\n"
    log = (result.out / "h2/kernel.log").read_text(encoding="utf-8")
    assert not re.search(r"WARNING|BUG|Oops|refcount|use-after-free", log), log
    # The noise got as far as the rules, so it was not all dropped at the door.
    counted = [int(count) for count in re.findall(r"counter packets (\d+)", result.stdout("h2", 1))]
    assert counted and counted[0] > FRAMES // 200, result.stdout("h2", 1)


def test_the_storm_is_the_same_each_time(run: Callable[..., Simulation]) -> None:
    assert run(storm()).summary["digest"] == run(storm()).summary["digest"]
