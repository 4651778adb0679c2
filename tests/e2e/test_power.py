# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes whose power goes, and that are booted again."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from driving import Client, Driven
from pcap import packets
from scenarios import Mapping, chain, pair
from simulate import Simulation

LINK = {"rate": "10Mbit", "delay": "20ms"}
SECOND_NS = 1_000_000_000
EPOCH_NS = 1_767_225_600 * SECOND_NS
HOST_FROM = 0x5000_0000_0000
"""Addresses below belong to nodes."""
Begin = Callable[..., Driven]

SERVER = """
import socket
listener = socket.create_server(("10.0.0.2", 80))
while True:
    connection, _ = listener.accept()
    connection.sendall(b"welcome")
"""
CLIENT = """
import socket, sys
connection = socket.create_connection(("10.0.0.2", 80))
print(connection.recv(100).decode(), flush=True)
for line in sys.stdin:
    try:
        connection.sendall(line.encode())
        print("read", connection.recv(100), flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


def output(client: Client, node: str, *argv: str) -> str:
    """What a program prints, to its end."""
    program = client.start(node, *argv)
    client("run", programs=[program])
    return (client.output.get((program, "O"), b"") + client.output.get((program, "E"), b"")).decode()


def ping(client: Client, node: str, address: str, *options: str) -> bool:
    return " 0% packet loss" in output(client, node, "ping", "-c", "1", "-W", "1", *options, address)


def up(client: Client) -> dict[str, tuple[bool, bool, int]]:
    return {state["node"]: (state["up"], state["ready"], state["life"]) for state in client("nodes")["nodes"]}


def two_hosts(stop: str = "60s", **run: object) -> Mapping:
    scenario = pair(
        [],
        [
            {"exec": ["sh", "-c", "echo alive; sleep 1000 & wait"], "start": "100ms", "expect": "running"},
            {"exec": "echo early", "start": "200ms", "stop": "300ms"},
            {"exec": "echo late", "start": "9s"},
        ],
        LINK,
        stop=stop,
        **run,
    )
    scenario["nodes"]["h2"]["interfaces"] = {"eth0": {"capture": True}}
    scenario["nodes"]["h2"]["setup"] = [["sh", "-c", "sleep 0.05; date +%s.%N > /etc/booted"]]
    return scenario


def a_life_and_a_second(client: Client, pause: Callable[[], None]) -> list[str]:
    seen = []
    client("run", until_ns=2 * SECOND_NS)
    assert ping(client, "h1", "10.0.0.2")
    shell = ["sh", "-c", "cat /etc/booted /proc/sys/kernel/random/boot_id; ls /root /tmp; cut -d. -f1 /proc/uptime"]
    assert "done" in client("write_file", node="h2", path="/root/mine", content={"text": "x"})
    assert "done" in client("write_file", node="h2", path="/tmp/mine", content={"text": "x"})
    seen.append(output(client, "h2", *shell))
    # Frames of both directions are on the link.
    flood = client("start", node="h1", program={"argv": ["ping", "-i", "0.002", "10.0.0.2"]})["started"]
    client("run", until_ns=3 * SECOND_NS)
    left = client.start("h2", "sleep", "1000")
    pause()
    assert "done" in client("power", node="h2", up=False)
    assert client.ended[left] == {"program": left, "exit": None, "signal": 9}
    assert up(client) == {"h1": (True, True, 1), "h2": (False, False, 1)}
    pause()
    client("run", until_ns=4 * SECOND_NS)
    assert "done" in client("signal", node="h1", pid=flood["pid"], signal=2)
    client("run", programs=[flood["program"]])
    assert not ping(client, "h1", "10.0.0.2")
    assert "NO-CARRIER" in output(client, "h1", "ip", "link")
    client("run", until_ns=7_300_000_000)
    assert "done" in client("power", node="h2", up=True)
    assert up(client) == {"h1": (True, True, 1), "h2": (True, False, 2)}
    # Waits for the set-up of this life.
    seen.append(output(client, "h2", *shell))
    pause()
    assert up(client)["h2"] == (True, True, 2)
    assert ping(client, "h1", "10.0.0.2")
    assert ping(client, "h2", "fd00::1")
    client("run", until_ns=10 * SECOND_NS)
    return seen


def test_two_lives_are_the_same_each_time_and_in_a_replay(begin: Begin, engine: Path) -> None:
    outcomes = []
    for seed in (1, 2):
        rng = random.Random(seed)
        run = begin(two_hosts(measure={"links": "100ms", "tcp": "100ms", "qdiscs": "100ms"}))
        client = run.driver()
        seen = a_life_and_a_second(client, lambda rng=rng: time.sleep(rng.random() / 20))  # type: ignore[misc]
        client.stop()
        assert run.end() == (0, "")
        logs = [(run.out / name).read_bytes() for name in ("input.jsonl", "events.jsonl", "h2/kernel.log", "links.csv")]
        outcomes.append((seen, run.summary(), logs))
    assert outcomes[0] == outcomes[1]
    seen, summary, _ = outcomes[0]
    assert run.replay(engine) == summary

    first, second = (text.split() for text in seen)
    assert [text.split(".")[0] for text in (first[0], second[0])] == ["1767225600", "1767225607"]
    assert second[0].startswith("1767225607.35"), "the clock goes on, and the setup has run again"
    assert first[1] != second[1], "random numbers are others"
    assert [name for name in first if "mine" in name] == ["mine", "mine"]
    assert "mine" not in second
    assert (first[-1], second[-1]) == ("3", "1"), "the uptime begins anew"

    of_scenario = [row for row in summary["processes"] if not row.get("client")]
    assert [row.get("life", 1) for row in of_scenario] == [1, 1, 1, 2, 2, 2]
    cut, done, never, again, skipped, late = of_scenario
    assert (cut["power_off"], cut["exit"], cut["signal"], cut["end_ns"]) == (True, None, None, 3_000_000_001)
    assert (done["exit"], never["start_ns"], skipped["start_ns"]) == (0, None, None)
    assert 7_350_000_000 < again["start_ns"] < 7_360_000_000
    assert (again["end_ns"], late["start_ns"], late["exit"]) == (None, 9 * SECOND_NS, 0)
    texts = [(run.out / row["stdout"]).read_text() for row in (cut, again, late)]
    assert texts == ["alive\n", "alive\n", "late\n"]
    assert summary["failed_expectations"] == []
    assert [warning["text"] for warning in summary["warnings"]] == []

    events = [json.loads(line) for line in (run.out / "events.jsonl").read_text().splitlines()]
    of_h2 = [event for event in events if event.get("node") == "h2" and event["event"].startswith("node")]
    assert [event["event"] for event in of_h2] == [
        "node_booted",
        "node_ready",
        "node_down",
        "node_booted",
        "node_ready",
    ]
    assert (of_h2[2]["time_ns"], of_h2[2]["by"], of_h2[3]["time_ns"]) == (3_000_000_001, "client", 7_300_000_000)
    for direction in ("a_to_b", "b_to_a"):
        counts = summary["links"][0][direction]
        assert counts["drops"]["node_down"] > 0
        assert counts["frames"] == counts["delivered_frames"] + sum(counts["drops"].values())
    times = [packet.time_ns - EPOCH_NS for packet in packets(run.out / "pcap" / "h2-eth0.pcap")]
    assert times == sorted(times)
    assert any(time_ns < 3 * SECOND_NS for time_ns in times)
    assert any(time_ns > 7 * SECOND_NS for time_ns in times)
    assert not any(3_000_000_001 < time_ns < 7_300_000_000 for time_ns in times)


def test_a_connection_to_a_host_that_was_cut_is_reset_after_its_boot(begin: Begin) -> None:
    client = begin(pair([], [{"exec": ["python3", "-c", SERVER], "expect": "running"}], LINK, "60s")).driver()
    client("run", until_ns=2 * SECOND_NS)
    peer = client.start("h1", "python3", "-uc", CLIENT)
    client("run", output=[peer])
    assert client.output[peer, "O"] == b"welcome\n"
    client("power", node="h2", up=False)
    client("run", until_ns=4 * SECOND_NS)
    client("power", node="h2", up=True)
    client("run", until_ns=6 * SECOND_NS)
    client.send_input(peer, b"are you there?\n")
    client("run", output=[peer], until_ns=20 * SECOND_NS)
    assert client.output[peer, "O"] == b"welcome\nConnectionResetError\n"


def test_a_router_of_a_chain_is_cut(begin: Begin, engine: Path) -> None:
    run = begin(chain(4, {"rate": "1Gbit", "delay": "1ms"}, "60s"))
    client = run.driver()
    for _ in range(5):
        assert ping(client, "n1", "10.0.3.2")
        client("power", node="n2", up=False)
        assert not ping(client, "n1", "10.0.3.2")
        assert ping(client, "n4", "10.0.3.1"), "the others do not care"
        # A link that changes meanwhile is as it was made when the router is there again.
        client("link", change={"link": ["n2", "n3"], "set": {"up": False}})
        client("power", node="n2", up=True)
        assert not ping(client, "n1", "10.0.3.2")
        client("link", change={"link": ["n2", "n3"], "set": {"up": True}})
    # Both ends of a cable without power.
    client("power", node="n2", up=False)
    client("power", node="n3", up=False)
    client("power", node="n2", up=True)
    assert "NO-CARRIER" in output(client, "n2", "ip", "link", "show", "eth1")
    assert "NO-CARRIER" not in output(client, "n2", "ip", "link", "show", "eth0")
    client("power", node="n3", up=True)
    assert ping(client, "n1", "10.0.3.2")
    client.stop()
    assert run.end() == (0, "")
    assert run.replay(engine) == run.summary()


def test_what_a_node_had_is_given_back(begin: Begin) -> None:
    scenario = two_hosts(stop="1000s")
    busy = (
        "import os, threading, mmap\nfor _ in range(3): os.fork()\nm = mmap.mmap(-1, 1 << 24); threading.Event().wait()"
    )
    scenario["nodes"]["h2"]["processes"] += [
        {"exec": ["python3", "-c", busy], "expect": "running"},
        {"exec": ["sh", "-c", "dd if=/dev/zero of=/tmp/x bs=1M count=8; cat | sleep 1000"], "expect": "running"},
    ]
    scenario["nodes"]["h2"]["disk"] = "32MiB"
    run = begin(scenario)
    client = run.driver()
    mappings, files = [], []
    for _ in range(8):
        client("run", until_ns=client("counters")["at_ns"] + 2 * SECOND_NS)
        assert "sleep" in json.dumps(client("processes", node="h2"))
        client("power", node="h2", up=False)
        host = Path("/proc") / str(run.process.pid)
        starts = [int(line.partition("-")[0], 16) for line in (host / "maps").read_text().splitlines()]
        mappings.append(sum(start < HOST_FROM for start in starts))
        files.append(sum(1 for _ in (host / "fd").iterdir()))
        client("power", node="h2", up=True)
    assert len(set(mappings)) == 1, mappings
    assert files[-1] <= files[2] + 5, files
    client("run", until_ns=client("counters")["at_ns"] + 2 * SECOND_NS)
    client.stop()
    code, error = run.end()
    # Setting up takes a moment at time 0, too.
    assert (code, {warning["code"] for warning in run.summary()["warnings"]}) == (0, {"late_start"}), error


def test_it_can_be_cut_at_any_moment(begin: Begin, engine: Path) -> None:
    scenario = pair(
        [{"exec": "iperf3 -c 10.0.0.2 -t 100", "start": "100ms", "expect": "any"}],
        [{"exec": "iperf3 -s", "expect": "any"}],
        {"rate": "50Mbit", "delay": "1ms"},
        "20s",
    )
    scenario["nodes"]["h2"] |= {"cpu": {"syscall": "50us"}, "interfaces": {"eth0": {"model": "e1000e"}}}
    digests = set()
    for options in ([], ["--isolate"]):
        run = begin(scenario, *options)
        client = run.driver()
        rng = random.Random(1)
        at_ns = SECOND_NS
        for _ in range(10):
            for state in (False, True):
                at_ns += rng.randrange(SECOND_NS // 10, SECOND_NS // 2)
                client("run", until_ns=at_ns)
                assert "done" in client("power", node="h2", up=state)
        client("run", until_ns=15 * SECOND_NS)
        client.stop()
        assert run.end() == (0, "")
        digests.add(run.summary()["digest"])
    assert len(digests) == 1
    assert run.replay(engine)["digest"] in digests


def test_a_scenario_cuts_the_power(run: Callable[..., Simulation]) -> None:
    scenario = two_hosts(stop="20s")
    scenario["nodes"]["h1"]["processes"] = [
        {"exec": "ping -c 1 -W 1 10.0.0.2", "start": start, "expect": {"exit": code}}
        for start, code in (("1s", 0), ("5s", 1), ("9s", 0))
    ]
    scenario["events"] = [{"at": "7.3s", "node": "h2", "up": True}, {"at": "4s", "node": "h2", "down": True}]
    first, second = run(scenario), run(scenario)
    assert first.summary == second.summary
    rows = [row for row in first.summary["processes"] if row["node"] == "h2"]
    assert [row.get("life", 1) for row in rows] == [1, 1, 1, 2, 2, 2]
    assert (rows[0]["end_ns"], rows[0]["power_off"]) == (4 * SECOND_NS, True)
    events = [json.loads(line) for line in (first.out / "events.jsonl").read_text().splitlines()]
    changes = [(event["time_ns"], event["event"]) for event in events if event.get("node") == "h2"]
    assert (4 * SECOND_NS, "node_down") in changes
    assert (7_300_000_000, "node_booted") in changes
    assert next(event["by"] for event in events if event["event"] == "node_down") == "scenario"


def test_what_cannot_be_is_refused(begin: Begin) -> None:
    run = begin(two_hosts())
    client = run.driver()

    def refused(command: str, **arguments: object) -> str:
        answer = client(command, **arguments)
        return f"{answer['refused']['message']} {answer['refused'].get('hint')}"

    assert "no node `h9`" in refused("power", node="h9", up=False)
    assert "h2` is up already" in refused("power", node="h2", up=True)
    assert "done" in client("power", node="h2", up=False)
    assert "h2` is down already" in refused("power", node="h2", up=False)
    is_down = "node `h2` is down a driver boots it"
    assert is_down in refused("start", node="h2", program={"argv": ["true"]})
    assert is_down in refused("signal", node="h2", pid=7, signal=9)
    assert is_down in refused("read_file", node="h2", path="/etc/hostname")
    assert is_down in refused("write_file", node="h2", path="/etc/hostname", content={"text": ""})
    assert is_down in refused("processes", node="h2")
    assert client("processes")["processes"] == []
    assert "done" in client("power", node="h1", up=False)
    assert client("processes")["processes"] == []
    assert client("run", until_ns=2 * SECOND_NS)["time"]["why"] == "until"
    other = run.client()
    other.send({"open": {"node": "h2", "program": {"argv": ["true"]}}})
    assert "node `h2` is down" in other.message()["refused"]["message"]
    client("run")
    assert "end" in refused("power", node="h2", up=True)
    client.stop()
    assert run.end() == (0, "")
