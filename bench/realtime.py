# SPDX-License-Identifier: GPL-2.0-or-later
"""What runs by the wall clock reach: through a TAP, attached, along a chain; beside the host's kernel.

All of it happens in network namespaces made here, so it needs root. These are rates and times of the wall clock, which
other things that the machine does make worse.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import namespaces
import scenarios
from simulate import RunError

PATIENCE_S = 30
PAYLOAD_BYTES = 64
# Link of the TAP: of no account for the rate, and 10 us of the round trip each way.
LINK = {"rate": "100Gbit", "delay": "10us"}
LINK_RTT_MS = 0.02
TAP_GAP = "20us"
PINGS = 2000
STARTS = 20
LATENESS_NODES, LATENESS_FRAMES_PER_S = 20, 20_000
# A run keeps up if so much of what is sent arrives, and time is never given up.
ARRIVES = 0.99
RATE_STEP = 1.25


@dataclass(frozen=True)
class Found:
    """A value with its bounds, as of a row of the table."""

    what: str
    value: float
    unit: str
    must: float | None
    aim: float | None
    low_is_good: bool
    note: str = ""


def host(*words: str | Path, patience_s: float = PATIENCE_S) -> str:
    """What a command of the host prints."""
    command = [str(word) for word in words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=patience_s)
    if done.returncode != 0:
        raise RunError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-500:]}{done.stderr[-1500:]}")
    return done.stdout


def inside(name: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", name)


@contextmanager
def isles(count: int) -> Iterator[list[str]]:
    """Namespaces with names, one or two; two have a cable: 10.0.0.1 (`right`) and 10.0.0.2 (`left`)."""
    names = [f"wt-bench-{os.getpid()}-{number}" for number in range(count)]
    try:
        for name in names:
            host("ip", "netns", "add", name)
            host("ip", "-n", name, "link", "set", "lo", "up")
        for one, other in itertools.pairwise(names):
            host("ip", "link", "add", "right", "netns", one, "type", "veth", "peer", "left", "netns", other)
            for name, end, last in ((one, "right", 1), (other, "left", 2)):
                host("ip", "-n", name, "address", "add", f"10.0.0.{last}/24", "dev", end)
                host("ip", "-n", name, "link", "set", end, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@contextmanager
def background(*words: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command that is ended by SIGINT."""
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def wait_for(*words: str | Path) -> None:
    """Until the command succeeds."""
    end_s = time.monotonic() + PATIENCE_S
    command = [str(word) for word in words]
    while subprocess.run(command, check=False, capture_output=True).returncode != 0:
        if time.monotonic() > end_s:
            raise RunError(f"{' '.join(command)} did not succeed in {PATIENCE_S} s")
        time.sleep(0.05)


def iperf_bps(output: str) -> float:
    return float(json.loads(output)["end"]["sum_received"]["bits_per_second"])


def through_a_tap(engine: Path, folder: Path, seconds: int) -> Iterator[Found]:
    """TCP both ways, and round trips, between the host (a namespace) and a node; then with a gap between interrupts."""
    yield from tap_rates(engine, folder, "0s", seconds)
    for found in tap_rates(engine, folder, TAP_GAP, seconds):
        yield replace(found, what=f"{found.what}, {TAP_GAP} between interrupts")


def tap_rates(engine: Path, folder: Path, gap: str, seconds: int) -> Iterator[Found]:
    with isles(1) as (name,):
        tap = {"tap": "wt0", "address": "10.9.0.1/24", "netns": f"/run/netns/{name}"}
        interface = {"addresses": "10.9.0.2/24", "interrupt_gap": gap}
        node = {"interfaces": {"eth0": interface}, "processes": [{"exec": "iperf3 -s", "expect": "any"}]}
        scenario = {
            "version": 1,
            "run": {"mode": "realtime", "stop": "1h"},
            "ports": {"lan": tap},
            "nodes": {"h1": node},
            "links": [{"endpoints": ["lan", "h1:eth0"], "both": LINK}],
        }
        path = folder / "tap.yaml"
        path.write_text(json.dumps(scenario), encoding="utf-8")
        with background(engine, "run", path, "--out", folder / "tap", "--force", "--quiet"):
            wait_for(*inside(name), "ping", "-c", "1", "-W", "1", "10.9.0.2")
            client = [*inside(name), "iperf3", "-c", "10.9.0.2", "-t", str(seconds), "-J"]
            for way, options in (("from the host into a node", ()), ("from a node to the host", ("-R",))):
                rate = iperf_bps(host(*client, *options, patience_s=seconds + PATIENCE_S))
                yield Found(f"iperf3 {way} through a TAP, TCP", rate / 1e9, "Gb/s", 2, 6, False)
            printed = host(*inside(name), "ping", "-i", "0.002", "-c", str(PINGS), "10.9.0.2")
    times = sorted(float(text) - LINK_RTT_MS for text in re.findall(r"time=([0-9.]+)", printed))
    note = f"{len(times)} of {PINGS} came back"
    yield Found("round trip added by a TAP, median", statistics.median(times), "ms", 0.15, 0.05, True, note)
    yield Found("round trip added by a TAP, 99th of 100", times[len(times) * 99 // 100], "ms", 1, 0.3, True)


def attached(engine: Path, folder: Path, seconds: int) -> Iterator[Found]:
    """A program on the host's own address (raw), against the same on the host's kernel; how soon a program begins."""
    with isles(2) as (ours, peer):
        attach: list[str | Path] = [
            *inside(ours),
            engine,
            "attach",
            "--quiet",
            "--mode",
            "raw",
            "--interface",
            "right",
            "--",
        ]
        client = ["iperf3", "-c", "10.0.0.2", "-t", str(seconds), "-J"]
        host("ip", "-n", ours, "route", "add", "default", "via", "10.0.0.2")
        with background(*inside(peer), "iperf3", "-s"):
            wait_for(*inside(ours), "iperf3", "-c", "10.0.0.2", "-n", "1K")
            for way, options in (("to a peer", ()), ("from a peer", ("-R",))):
                own = iperf_bps(host(*inside(ours), *client, *options, patience_s=seconds + PATIENCE_S))
                rate = iperf_bps(host(*attach, *client, *options, patience_s=seconds + PATIENCE_S))
                note = f"{rate / own * 100:.0f} % of the host's own {own / 1e9:.1f} Gb/s over veth; must 25 %, aim 50 %"
                yield Found(f"iperf3 {way}, attached (raw)", rate / 1e9, "Gb/s", 1, None, False, note)
    with isles(1) as (name,):
        begin: list[str | Path] = [*inside(name), engine, "attach", "--quiet", "--mode", "tap", "--"]
        times = [
            first_byte_s([*begin, "echo", "x"]) - first_byte_s([*inside(name), "echo", "x"]) for _ in range(STARTS)
        ]
    note = f"the median of {STARTS} is {statistics.median(times) * 1e3:.0f} ms"
    yield Found("start of an attached program to its first output", min(times) * 1e3, "ms", 50, 15, True, note)


def first_byte_s(command: list[Any]) -> float:
    begin_s = time.monotonic()
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if not process.stdout.read(1):
            raise RunError(f"{' '.join(map(str, command))} printed nothing")
        took_s = time.monotonic() - begin_s
        process.stdout.read()
    return took_s


def lateness(engine: Path, folder: Path, seconds: int) -> Iterator[Found]:
    """How late windows begin, in a chain that has so many packet-hops each second."""
    per_s = LATENESS_FRAMES_PER_S // (LATENESS_NODES - 1)
    summary = flood(engine, folder, LATENESS_NODES - 1, per_s, seconds)["summary"]["lateness"]
    note = f"the median is {summary['p50_ns'] / 1e6:.2g} ms, of {summary['windows']} windows"
    what = f"lateness of windows, {LATENESS_NODES} nodes, {LATENESS_FRAMES_PER_S} packet-hops/s, 99th of 100"
    yield Found(what, summary["p99_ns"] / 1e6, "ms", 1, 0.2, True, note)


def flood(engine: Path, folder: Path, hops: int, per_s: float, seconds: int) -> dict[str, Any]:
    """A run in real time in which iperf3 sends so many datagrams a second over so many links."""
    scenario = scenarios.chain(hops + 1, {"rate": "10Gbit", "delay": "100us"}, stop=f"{seconds + 3}s")
    client = f"iperf3 -c 10.0.{hops}.2 -u -b {per_s * PAYLOAD_BYTES * 8:.0f} -l {PAYLOAD_BYTES} -t {seconds} -J"
    nodes = scenario["nodes"]
    nodes[f"n{hops + 1}"]["processes"] = [{"exec": "iperf3 -s", "expect": "any"}]
    nodes["n1"]["processes"] = [{"exec": client, "start": "500ms", "expect": "any"}]
    path, out = folder / "flood.yaml", folder / "flood"
    path.write_text(json.dumps(scenario), encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    host(engine, "run", path, "--out", out, "--quiet", "--realtime", patience_s=60 + 20 * seconds)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    report = json.loads((out / summary["processes"][0]["stdout"]).read_text(encoding="utf-8"))
    return {"summary": summary, "sums": report["end"].get("sum")}


def keeps_up(engine: Path, folder: Path, hops: int, per_s: float, seconds: int) -> bool:
    run = flood(engine, folder, hops, per_s, seconds)
    sums = run["sums"]
    # Who is too slow to send so many has not kept up either.
    return (
        bool(sums)
        and run["summary"]["lateness"]["slips"] == 0
        and sums["lost_percent"] <= (1 - ARRIVES) * 100
        and sums["packets"] >= ARRIVES * per_s * seconds
    )


def most(keeps_up: Callable[[float], bool], guess: float) -> float:
    """The highest rate, in steps from the guess, that is kept up; 0: not even a hundredth of the guess."""
    rate = guess
    if keeps_up(rate):
        while keeps_up(rate * RATE_STEP):
            rate *= RATE_STEP
        return rate
    while rate > guess / 100:
        rate /= RATE_STEP
        if keeps_up(rate):
            return rate
    return 0.0


def along_a_chain(engine: Path, folder: Path, seconds: int) -> Iterator[Found]:
    """The most datagrams a second that a chain carries by the wall clock, beside namespaces of the host."""
    for hops, must in ((1, 100_000), (15, 30_000), (45, 10_000)):
        best = most(functools.partial(keeps_up, engine, folder, hops, seconds=seconds), float(must))
        own = namespaces_per_s(hops, seconds)
        note = f"in steps of {RATE_STEP:g}; namespaces of the host {own / 1e3:.0f} k"
        yield Found(
            f"datagrams/s over {hops} {'hop' if hops == 1 else 'hops'} in real time", best, "", must, own, False, note
        )


def namespaces_per_s(hops: int, seconds: int) -> float:
    """What arrives over a chain of the host's own namespaces, as many as iperf3 sends."""
    client = f"iperf3 -c 10.0.{hops}.2 -u -b 0 -l {PAYLOAD_BYTES} -t {seconds} -J"
    sums = json.loads(namespaces.chain(hops + 1, "iperf3 -s -1", client, seconds + PATIENCE_S))["end"]["sum"]
    return float((sums["packets"] - sums["lost_packets"]) / sums["seconds"])


def measure(engine: Path, folder: Path, seconds: int) -> Iterator[Found]:
    """All of it."""
    for part in (through_a_tap, attached, lateness, along_a_chain):
        yield from part(engine, folder, seconds)


def missing() -> str | None:
    """Why it cannot be measured here; None: it can."""
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    if not Path("/dev/net/tun").exists():
        return "this host has no /dev/net/tun"
    return None
