# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs on the wall clock, with links that lead outside, and what is repeated of them in virtual time."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Program

EXAMPLE = ROOT / "examples/live/28-live.yaml"
OSPF = ROOT / "examples/live/29-ospf-live.yaml"
PATIENCE_S = 60
IDLE = """
version: 1
run: {mode: realtime, stop: 30s}
defaults: {link: {rate: 1Gbit, delay: 1ms}}
addressing: auto
nodes: {h1: {processes: [{exec: sleep 20}]}, h2: {}}
links: [{endpoints: ["h1:eth0", "h2:eth0"]}]
"""


def read(out: Path, name: str = "summary.json") -> dict[str, Any]:
    result: dict[str, Any] = json.loads((out / name).read_text(encoding="utf-8"))
    return result


class Namespace:
    """A network namespace of the host, which a port's TAP is made in."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ip(self, *words: str) -> str:
        done = subprocess.run(["ip", "-n", self.name, *words], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["ip", "netns", "exec", self.name, *words]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)

    def interfaces(self) -> list[str]:
        return re.findall(r"^\d+: ([^:@]+)", self.ip("link"), re.MULTILINE)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """One of the test's own; gone afterwards."""
    if os.geteuid() != 0:
        pytest.skip("making a network namespace and a TAP interface needs root")
    for tool in ("ip", "ping", "curl", "nginx"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this host; scripts/setup-system examples installs it")
    if not Path("/dev/net/tun").exists():
        pytest.skip("this host has no /dev/net/tun")
    name = f"wt-test-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no network namespace can be made here: {made.stderr.strip()}")
    try:
        namespace = Namespace(name)
        namespace.ip("link", "set", "lo", "up")
        yield namespace
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def in_namespace(namespace: Namespace, folder: Path, stop: str = "1h", example: Path = EXAMPLE) -> Path:
    """The example with its TAP in the namespace."""
    text = example.read_text(encoding="utf-8").replace("stop: 1h", f"stop: {stop}")
    text, taps = re.subn(r"(lan: \{tap: wt0, address: [0-9./]+)", rf"\1, netns: /run/netns/{namespace.name}", text)
    assert taps == 1
    path = folder / "live.yaml"
    path.write_text(text, encoding="utf-8")
    return path


class Live:
    """A run in the background."""

    def __init__(self, engine: Path, scenario: Path, out: Path, *options: str) -> None:
        self.out = out
        command: list[str | Path] = [engine, "run", scenario, "--out", out, "--quiet", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        stderr = self.process.communicate(timeout=PATIENCE_S)[1]
        assert self.process.returncode == 128 + signal.SIGINT, stderr

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen in {PATIENCE_S} s"
        time.sleep(0.1)


def reach(namespace: Namespace) -> None:
    """Waits for the TAP and for nginx behind it."""
    wait_until(lambda: "wt0" in namespace.interfaces(), "the TAP")
    namespace.ip("route", "add", "10.1.0.0/16", "via", "10.9.0.2")
    answers = lambda: namespace.run("curl", "-s", "-m", "2", "http://10.1.2.2/").returncode == 0  # noqa: E731
    wait_until(answers, "an answer of nginx")


def test_the_host_talks_to_nodes_and_what_it_said_is_repeated_bit_by_bit(
    engine: Path, attempt: Callable[..., Program], namespace: Namespace, tmp_path: Path
) -> None:
    scenario, out = in_namespace(namespace, tmp_path), tmp_path / "live"
    live = Live(engine, scenario, out)
    try:
        reach(namespace)
        ping = namespace.run("ping", "-c", "5", "-i", "0.2", "10.1.2.2")
        page = namespace.run("curl", "-sS", "http://10.1.2.2/")
        live.stop()
    finally:
        live.kill()
    assert "5 received" in ping.stdout, ping.stdout
    assert page.stdout == "hello from inside\n", page.stderr
    times = [float(value) for value in re.findall(r"time=([0-9.]+)", ping.stdout)]
    # There and back is 20 ms of delay. It can only take longer, by how busy this host is.
    assert min(times) >= 20.0, times
    assert namespace.interfaces() == ["lo"], "nothing is left behind"
    summary = read(out)
    lateness, port = summary["lateness"], summary["ports"][0]
    assert (port["name"], port["frames_in"] > 0, port["frames_out"] > 0) == ("lan", True, True)
    assert lateness["windows"] == sum(count for _, count in lateness["histogram"])
    assert lateness["windows"] == sum(node["windows"] for node in lateness["nodes"])
    assert lateness["p50_ns"] <= lateness["p99_ns"] <= lateness["max_ns"]
    assert [node["node"] for node in lateness["nodes"]] == ["r1", "r2", "web"]
    assert not read(out, "manifest.json").get("not_deterministic")
    for number in (1, 2):
        again = tmp_path / f"again-{number}"
        done = attempt("run", scenario, "--out", again, "--quiet", "--replay", out)
        # It ends as that one did.
        assert done.code == 128 + signal.SIGINT, done.stderr
        replayed = read(again)
        assert replayed["digest"] == summary["digest"]
        assert replayed["links"] == summary["links"]
        assert "lateness" not in replayed
        assert (again / "trail.json").read_bytes() == (out / "trail.json").read_bytes()
        log = "web/nginx-0.stdout"
        assert (again / log).read_bytes() == (out / log).read_bytes() != b""


def test_links_to_ports_change_while_the_host_talks_and_do_so_again(
    engine: Path, attempt: Callable[..., Program], namespace: Namespace, tmp_path: Path
) -> None:
    scenario, out = in_namespace(namespace, tmp_path, stop="12s"), tmp_path / "live"
    events = """
events:
  - {at: 5s, link: [r1, lan], set: {delay: 45ms}}
  - {at: 7s, link: [lan, "r1:eth0"], down: true}
  - {at: 8s, link: [lan, r1], up: true}
"""
    scenario.write_text(scenario.read_text(encoding="utf-8") + events, encoding="utf-8")
    live = Live(engine, scenario, out)
    try:
        reach(namespace)
        ping = namespace.run("ping", "-i", "0.05", "-w", "10", "10.1.2.2")
        live.process.communicate(timeout=PATIENCE_S)
    finally:
        live.kill()
    times = [float(value) for value in re.findall(r"time=([0-9.]+)", ping.stdout)]
    assert any(time < 100.0 for time in times) and sum(time >= 100.0 for time in times) >= 5, ping.stdout
    summary = read(out)
    lost = [
        row.get("link_down", 0)
        for link in summary["links"]
        for row in (link["a_to_b"]["drops"], link["b_to_a"]["drops"])
    ]
    assert sum(lost) > 0, summary["links"]
    again = tmp_path / "again"
    done = attempt("run", scenario, "--out", again, "--quiet", "--replay", out)
    assert done.code == 0, done.stderr
    replayed = read(again)
    assert (replayed["digest"], replayed["links"]) == (summary["digest"], summary["links"])


def test_a_run_that_is_not_recorded_says_so_when_it_is_to_be_repeated(
    engine: Path, attempt: Callable[..., Program], namespace: Namespace, tmp_path: Path
) -> None:
    scenario, out = in_namespace(namespace, tmp_path, stop="2s"), tmp_path / "live"
    text = scenario.read_text(encoding="utf-8")
    scenario.write_text(text.replace("mode: realtime", "mode: realtime, record: false"), encoding="utf-8")
    live = Live(engine, scenario, out)
    try:
        reach(namespace)
        live.process.communicate(timeout=PATIENCE_S)
    finally:
        live.kill()
    assert read(out)["ports"][0]["frames_in"] > 0
    assert not (out / "outside.bin").exists()
    done = attempt("run", scenario, "--out", tmp_path / "again", "--quiet", "--replay", out)
    assert done.code == 2 and "is not recorded: `run: {record: false}`" in done.stderr


def test_a_killed_run_leaves_nothing_behind_and_its_recording_can_be_used(
    engine: Path, attempt: Callable[..., Program], namespace: Namespace, tmp_path: Path
) -> None:
    scenario, out = in_namespace(namespace, tmp_path), tmp_path / "live"
    live = Live(engine, scenario, out)
    try:
        reach(namespace)
        # So that what came before is in the file.
        time.sleep(1.5)
        namespace.run("ping", "-c", "1", "10.1.2.2")
    finally:
        live.kill()
    wait_until(lambda: namespace.interfaces() == ["lo"], "the end of the TAP")
    # There is no end in it, and nobody typed anything: the frames are all that there is.
    assert (out / "outside.bin").stat().st_size > 200
    done = attempt("run", scenario, "--out", tmp_path / "again", "--quiet", "--replay", out, "--stop", "5s")
    assert done.code == 0, done.stderr
    assert read(tmp_path / "again")["ports"][0]["frames_in"] > 0
    assert b"GET / " in (tmp_path / "again/web/nginx-0.stdout").read_bytes()


def test_a_network_converges_in_virtual_time_and_then_goes_live(
    engine: Path, attempt: Callable[..., Program], namespace: Namespace, tmp_path: Path
) -> None:
    if not Path("/usr/lib/frr/ospfd").exists():
        pytest.skip("FRR is not on this host; scripts/setup-system examples installs it")
    scenario, out = in_namespace(namespace, tmp_path, example=OSPF), tmp_path / "live"
    live = Live(engine, scenario, out)
    try:
        wait_until(lambda: "wt0" in namespace.interfaces(), "the TAP")
        namespace.ip("route", "add", "10.0.0.0/8", "via", "10.0.1.1")
        began = time.monotonic()
        # Sent again and again while the network gets ready, in less than the minute that this takes inside.
        wait_until(lambda: namespace.run("ping", "-c", "1", "-W", "1", "10.0.2.2").returncode == 0, "an answer")
        took_s = time.monotonic() - began
        first = namespace.run("ping", "-c", "1", "10.0.2.2")
        live.stop()
    finally:
        live.kill()
    assert "ttl=59" in first.stdout, first.stdout
    events = [json.loads(line) for line in (out / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    (event,) = [event for event in events if event["event"] == "run_live"]
    assert event["time_ns"] == 60_000_000_000
    assert event["after_wall_ns"] < 60_000_000_000, "it went faster than the clock"
    summary = read(out)
    # The second counts as well that went by until the first ping's answer would have come.
    assert summary["virtual_time_ns"] < (60 + took_s + PATIENCE_S) * 1e9
    drops = summary["ports"][0]["drops"]
    # OSPF is passive there, but IPv6 and ARP are not; what the host had sent before was too early as well.
    assert drops["out_before_live"] > 0 and drops["in_before_live"] > 0, drops
    (lan,) = [link for link in summary["links"] if "lan" in (link["a"], link["b"])]
    assert lan["b_to_a"]["frames"] == summary["ports"][0]["frames_in"]
    again = tmp_path / "again"
    done = attempt("run", scenario, "--out", again, "--quiet", "--replay", out)
    assert done.code == 128 + signal.SIGINT, done.stderr
    replayed = read(again)
    assert (replayed["digest"], replayed["links"]) == (summary["digest"], summary["links"])


def test_going_live_is_said_and_needs_a_time_before_the_end(attempt: Callable[..., Program], tmp_path: Path) -> None:
    scenario = tmp_path / "soon.yaml"
    text = IDLE.replace("sleep 20", "sleep 601").replace("mode: realtime, stop: 30s", "stop: 700s, live_at: 600s")
    scenario.write_text(text, encoding="utf-8")
    began = time.monotonic()
    done = attempt("run", scenario, "--out", tmp_path / "out")
    assert done.code == 0, done.stderr
    assert "live: from here on time goes with the wall clock" in done.stderr
    assert 1.0 <= time.monotonic() - began < 300, "ten minutes at once, and the last second by the clock"
    later = attempt("run", scenario, "--out", tmp_path / "later", "--live-at", "600.9s")
    assert later.code == 0 and read(tmp_path / "later")["digest"] == read(tmp_path / "out")["digest"]
    for old, new, what in (
        ("live_at: 600s", "live_at: 700s", "`700s` is not before the end of the run"),
        ("live_at: 600s", "live_at: 600s, mode: virtual", "a run in virtual time never goes with the wall clock"),
        ("live_at: 600s", "live_at: -1s", "`-1s`"),
    ):
        scenario.write_text(text.replace(old, new), encoding="utf-8")
        done = attempt("run", scenario, "--out", tmp_path / "bad")
        assert done.code == 2 and what in done.stderr, done.stderr
    scenario.write_text(text, encoding="utf-8")
    done = attempt("run", scenario, "--out", tmp_path / "bad", "--live-at", "15min")
    assert done.code == 2 and "before it would go live" in done.stderr, done.stderr


def test_a_port_needs_the_wall_clock(attempt: Callable[..., Program], tmp_path: Path) -> None:
    scenario = tmp_path / "virtual.yaml"
    scenario.write_text(EXAMPLE.read_text(encoding="utf-8").replace("mode: realtime, ", ""), encoding="utf-8")
    done = attempt("run", scenario, "--out", tmp_path / "out")
    assert done.code == 2
    assert "port `lan` leads outside" in done.stderr
    assert "hint: write `run: {mode: realtime}`" in done.stderr


def test_a_port_that_cannot_be_opened_is_told(attempt: Callable[..., Program], tmp_path: Path) -> None:
    scenario = tmp_path / "gone.yaml"
    text = EXAMPLE.read_text(encoding="utf-8").replace("lan: {tap: wt0, ", "lan: {tap: wt0, netns: gone, ")
    scenario.write_text(text, encoding="utf-8")
    done = attempt("run", scenario, "--out", tmp_path / "out")
    assert done.code == 2
    assert "port lan" in done.stderr and "gone" in done.stderr
    assert read(tmp_path / "out", "manifest.json")["ended"] == "error"


def test_an_idle_run_sleeps_and_keeps_its_time(engine: Path, attempt: Callable[..., Program], tmp_path: Path) -> None:
    scenario, out = tmp_path / "idle.yaml", tmp_path / "out"
    scenario.write_text(IDLE, encoding="utf-8")
    began = time.monotonic()
    process = subprocess.Popen([engine, "run", scenario, "--out", out, "--quiet"])
    wait_until(lambda: (out / "h2/kernel.log").exists(), "the start")
    time.sleep(2)
    before = cpu_seconds(process.pid)
    time.sleep(10)
    used = cpu_seconds(process.pid) - before
    assert process.wait(timeout=PATIENCE_S) == 0
    assert time.monotonic() - began >= 20
    # 1 % of a processor.
    assert used <= 0.1, used
    summary = read(out)
    assert summary["lateness"]["windows"] > 0
    done = attempt("run", scenario, "--out", tmp_path / "virtual", "--quiet", "--replay", record_of(out, tmp_path))
    assert done.code == 0, done.stderr
    assert read(tmp_path / "virtual")["digest"] == summary["digest"], "the clock changes nothing inside"


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def record_of(out: Path, folder: Path) -> Path:
    """A recording in which nothing happens, of this run."""
    manifest = read(out, "manifest.json")
    header = {"input_version": 2, "scenario_sha256": manifest["scenario"]["sha256"], "seed": manifest["seed"]}
    path = folder / "input.jsonl"
    path.write_text(json.dumps(header) + "\n", encoding="utf-8")
    return path


def test_a_stopped_engine_says_how_far_it_fell_behind(engine: Path, tmp_path: Path) -> None:
    scenario, out = tmp_path / "stopped.yaml", tmp_path / "out"
    scenario.write_text(IDLE.replace("sleep 20", "sh -c 'for i in 1 2 3 4 5 6 7 8; do sleep 0.5; done'"))
    process = subprocess.Popen([engine, "run", scenario, "--out", out, "--quiet"])
    wait_until(lambda: (out / "h2/kernel.log").exists(), "the start")
    time.sleep(1)
    process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=PATIENCE_S) == 0
    summary = read(out)
    lateness = summary["lateness"]
    assert lateness["slips"] >= 1
    assert lateness["slipped_ns"] >= 1_000_000_000
    codes = [warning["code"] for warning in summary["warnings"]]
    assert "clock_slipped" in codes, codes


def test_the_zero_of_the_hosts_clock_does_not_matter(
    engine: Path, attempt: Callable[..., Program], tmp_path: Path
) -> None:
    """Nor that it is another one than that of files' dates: in a time namespace it was booted ten years ago."""
    years = ["unshare", "--time", "--fork", "--monotonic", "315360000", "--boottime", "315360000"]
    if os.geteuid() != 0:
        years[1:1] = ["--user", "--map-root-user"]
    if subprocess.run([*years, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no time namespace can be made here")
    uptime = subprocess.run([*years, "cat", "/proc/uptime"], check=True, capture_output=True, text=True).stdout
    assert float(uptime.split()[0]) > 315360000
    scenario, out = tmp_path / "idle.yaml", tmp_path / "out"
    scenario.write_text(IDLE.replace("sleep 20", "ping -c 10 -i 0.2 h2"), encoding="utf-8")
    began = time.monotonic()
    subprocess.run([*years, engine, "run", scenario, "--out", out, "--quiet"], check=True, timeout=PATIENCE_S)
    assert 1.8 <= time.monotonic() - began < PATIENCE_S
    summary = read(out)
    assert summary["virtual_time_ns"] < 10**10 and summary["lateness"]["slipped_ns"] < 10**10, summary["lateness"]
    done = attempt("run", scenario, "--out", tmp_path / "virtual", "--quiet", "--replay", record_of(out, tmp_path))
    assert done.code == 0 and read(tmp_path / "virtual")["digest"] == summary["digest"], done.stderr


# It never ends, says how far it is, and waits for nothing: so it is no loop that could be found to wait.
COMPUTES = """
#include <stdio.h>
int main(void) {
    volatile unsigned long sum = 0;
    for (int round = 1;; round++) {
        for (unsigned long number = 0; number < ROUND; number++)
            sum += number * number;
        printf("%d\\n", round);
        fflush(stdout);
    }
}
"""

BUSY = """
version: 1
run: {mode: realtime, stop: 8s}
defaults: {link: {rate: 1Gbit, delay: 1ms}}
addressing: auto
nodes:
  h1: {processes: [{exec: "ping -i 0.02 -c 200 -q h2", start: 1s}]}
  h2: {}
  busy:
    files: {/opt/computes: {source: COMPUTES, mode: "755"}}
    processes: [{exec: /opt/computes, expect: running}, {exec: /opt/computes, start: 500ms, expect: running}]
links:
  - endpoints: ["h1:eth0", "h2:eth0"]
  - endpoints: ["busy:eth0", "h2:eth1"]
"""


def busy(folder: Path, text: str = BUSY) -> Path:
    """A scenario with programs that compute."""
    # A round takes some tens of milliseconds.
    (folder / "computes.c").write_text(COMPUTES.replace("ROUND", "20000000UL"), encoding="utf-8")
    program = folder / "computes"
    subprocess.run(["cc", "-O1", "-o", program, folder / "computes.c"], check=True)
    scenario = folder / "busy.yaml"
    scenario.write_text(text.replace("COMPUTES", str(program)), encoding="utf-8")
    return scenario


def codes(summary: dict[str, Any]) -> list[str]:
    return [warning["code"] for warning in summary["warnings"]]


def test_programs_that_compute_share_the_processor_and_keep_nobody_from_their_time(
    attempt: Callable[..., Program], tmp_path: Path
) -> None:
    scenario, out = busy(tmp_path), tmp_path / "out"
    began = time.monotonic()
    done = attempt("run", scenario, "--out", out, "--quiet")
    took = time.monotonic() - began
    assert done.code == 0, done.stderr
    # Without slices each of them would have 20 s of the processor before anything else happened.
    assert took < 20, took
    assert " 0% packet loss" in (out / "h1/ping-0.stdout").read_text(encoding="utf-8")
    rounds = [len((out / f"busy/computes-{number}.stdout").read_bytes().split()) for number in (0, 1)]
    assert min(rounds) >= 5 and max(rounds) <= 4 * min(rounds), rounds
    summary = read(out)
    lateness = {node["node"]: node for node in summary["lateness"]["nodes"]}
    preempted = {name: node["preempted_by_wall_clock"] for name, node in lateness.items()}
    assert preempted["h1"] == preempted["h2"] == 0 and preempted["busy"] > 1000, preempted
    assert summary["lateness"]["preempted_by_wall_clock"] == sum(preempted.values())
    # 1 ms where nothing else has the processors; this host may have more to do.
    assert lateness["h1"]["p50_ns"] <= 3_000_000, lateness["h1"]
    assert codes(summary).count("preempted_by_wall_clock") == 1
    assert "busy" in read(out, "manifest.json")["not_deterministic"][0]


def test_the_host_is_answered_while_a_program_computes(engine: Path, namespace: Namespace, tmp_path: Path) -> None:
    scenario = tmp_path / "live.yaml"
    text = BUSY.replace("stop: 8s", "stop: 1h").replace(
        "links:\n", f"ports: {{lan: {{tap: wt0, address: 10.9.0.1/24, netns: /run/netns/{namespace.name}}}}}\nlinks:\n"
    )
    text = text.replace("  h2: {}\n", "  h2: {interfaces: {eth2: {addresses: [10.9.0.2/24]}}}\n")
    text += '  - endpoints: [lan, "h2:eth2"]\n'
    scenario = busy(tmp_path, text)
    live = Live(engine, scenario, tmp_path / "out")
    try:
        wait_until(lambda: "wt0" in namespace.interfaces(), "the TAP")
        wait_until(lambda: namespace.run("ping", "-c", "1", "-W", "1", "10.9.0.2").returncode == 0, "an answer")
        ping = namespace.run("ping", "-c", "100", "-i", "0.02", "10.9.0.2")
        live.stop()
    finally:
        live.kill()
    times = sorted(float(value) for value in re.findall(r"time=([0-9.]+)", ping.stdout))
    assert len(times) >= 98, ping.stdout
    # There and back is 2 ms of delay; what the programs add is less than 2 ms, and more where this host has more to do.
    assert times[0] >= 2.0 and times[len(times) // 2] <= 8.0, times
    assert read(tmp_path / "out")["lateness"]["preempted_by_wall_clock"] > 100


def test_a_run_that_was_preempted_says_that_it_cannot_be_repeated(
    attempt: Callable[..., Program], tmp_path: Path
) -> None:
    # The program ends, so that a replay, in which it computes in no time, ends as well.
    ends = COMPUTES.replace("round = 1;;", "round = 1; round <= 20;")
    text = BUSY.replace(", expect: running", "")
    scenario, out = busy(tmp_path, text), tmp_path / "out"
    (tmp_path / "computes.c").write_text(ends.replace("ROUND", "20000000UL"), encoding="utf-8")
    subprocess.run(["cc", "-O1", "-o", tmp_path / "computes", tmp_path / "computes.c"], check=True)
    assert attempt("run", scenario, "--out", out, "--quiet").code == 0
    assert "preempted_by_wall_clock" in codes(read(out))
    recorded = record_of(out, out)
    again = attempt("run", scenario, "--out", tmp_path / "again", "--replay", recorded)
    assert again.code == 0, again.stderr
    assert "this replay can differ from it, also in its digest: node busy: " in again.stdout
    assert codes(read(tmp_path / "again")) == ["replay_not_exact"]
    # What of it does not depend on the host is the same.
    for name in ("h1/ping-0.stdout", "busy/computes-0.stdout"):
        assert (tmp_path / "again" / name).read_bytes() == (out / name).read_bytes()
    # One that nobody preempted repeats without a word.
    calm = tmp_path / "calm.yaml"
    calm.write_text(IDLE.replace("sleep 20", "sleep 1"), encoding="utf-8")
    assert attempt("run", calm, "--out", tmp_path / "calm", "--quiet").code == 0
    recorded = record_of(tmp_path / "calm", tmp_path / "calm")
    again = attempt("run", calm, "--out", tmp_path / "calm-again", "--replay", recorded)
    assert again.code == 0 and "this replay can differ" not in again.stdout, again.stderr
    assert read(tmp_path / "calm-again")["digest"] == read(tmp_path / "calm")["digest"]


def test_ps_and_top_say_how_late_a_run_is(engine: Path, attempt: Callable[..., Program], tmp_path: Path) -> None:
    scenario, out = tmp_path / "idle.yaml", tmp_path / "out"
    scenario.write_text(IDLE.replace("sleep 20", "ping -i 0.1 h2").replace("30s", "1h"), encoding="utf-8")
    live = Live(engine, scenario, out)
    try:
        wait_until(lambda: (out / "control.sock").is_symlink(), "the control socket")
        time.sleep(1)
        table = attempt("ps", "--run", out).stdout.splitlines()
        by_node = attempt("ps", "--run", out, "--lateness").stdout.splitlines()
        one = json.loads(attempt("ps", "--run", out, "--lateness", "--json", "h1").stdout)
        top = attempt("top", "--run", out, "--once", "--interval", "100ms").stdout
        state = json.loads(attempt("top", "--run", out, "--json").stdout)
        live.stop()
    finally:
        live.kill()
    assert table[0].split()[0] == "NODE" and "ping -i 0.1 h2" in table[1]
    words = r"late: 99 % within [\d.]+ \S+, most [\d.]+ \S+, \d+ of \d+ windows beyond 1.0 ms, \d+ slips"
    assert re.fullmatch(words, table[-1]) and re.fullmatch(words, by_node[-1]), (table, by_node)
    assert [row.split()[0] for row in by_node[:-1]] == ["NODE", "h1", "h2"]
    assert re.search(words, top.splitlines()[0]), top
    [node] = one["nodes"]
    assert node["node"] == "h1" and 0 < node["windows"] < one["windows"], one
    # What is shown last is what the summary goes on from.
    summary = read(out)["lateness"]
    assert one["windows"] <= state["lateness"]["windows"] <= summary["windows"]
    assert state["lateness"]["max_ns"] <= summary["max_ns"]


def test_a_run_in_virtual_time_is_not_late(engine: Path, attempt: Callable[..., Program], tmp_path: Path) -> None:
    scenario, out = tmp_path / "virtual.yaml", tmp_path / "out"
    scenario.write_text(IDLE.replace("mode: realtime, ", "").replace("sleep 20", "sleep 1"), encoding="utf-8")
    process = subprocess.Popen([engine, "run", scenario, "--out", out, "--quiet", "--hold"])
    try:
        wait_until(lambda: (out / "control.sock").is_symlink(), "the control socket")
        refused = attempt("ps", "--run", out, "--lateness")
        assert refused.code == 2 and "virtual time, in which nothing is late" in refused.stderr, refused.stderr
        assert "late" not in attempt("ps", "--run", out).stdout
        assert "lateness" not in json.loads(attempt("top", "--run", out, "--json").stdout)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=PATIENCE_S)


def policies(pid: int) -> set[tuple[int, int]]:
    """Scheduling policy and real-time priority of each thread of a process."""
    found = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        fields = stat.read_text(encoding="ascii").rsplit(")", 1)[1].split()
        found.add((int(fields[38]), int(fields[37])))
    return found


def without(capabilities: str) -> list[str]:
    """What a command begins with that has no such capabilities nor limits in their place."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None or shutil.which("prlimit") is None:
        pytest.skip("taking capabilities away needs root, setpriv and prlimit")
    limits = ["prlimit", "--rtprio=0", "--memlock=65536"]
    return [*limits, "setpriv", f"--bounding-set={capabilities}", f"--inh-caps={capabilities}"]


def test_priority_goes_before_ordinary_programs_and_leaves_them_something(
    engine: Path, attempt: Callable[..., Program], tmp_path: Path
) -> None:
    doctor = json.loads(attempt("doctor", "--json").stdout)
    [check] = [check for check in doctor["checks"] if check["name"] == "priority in real time"]
    if check["state"] != "ok":
        pytest.skip(f"this host grants no priority: {check['detail']}")
    scenario, out = busy(tmp_path), tmp_path / "out"
    process = subprocess.Popen([engine, "run", scenario, "--out", out, "--quiet", "--priority"])
    try:
        # The simulation, and the watchdog before it.
        wait_until(lambda: {(1, 10), (1, 11)} <= policies(process.pid), "SCHED_FIFO")
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        locked = re.search(r"^VmLck:\s+(\d+) kB", status, re.MULTILINE)
        assert locked is not None and int(locked[1]) > 1000, status
        time.sleep(1)
        before, began = cpu_seconds(process.pid), time.monotonic()
        time.sleep(3)
        share = (cpu_seconds(process.pid) - before) / (time.monotonic() - began)
        # Two programs compute without end in it.
        assert share <= 0.96, share
        assert process.wait(timeout=PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
    assert read(out)["lateness"]["preempted_by_wall_clock"] > 1000


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        ("-sys_nice", ("SCHED_FIFO", "CAP_SYS_NICE, or RLIMIT_RTPRIO of at least 11, which is 0", "ulimit -r")),
        (
            "-ipc_lock",
            ("lock its memory", "CAP_IPC_LOCK, or RLIMIT_MEMLOCK of `unlimited`, which is 65536", "ulimit -l"),
        ),
    ],
)
def test_priority_that_the_host_refuses_is_told_before_the_run(
    engine: Path, tmp_path: Path, lacks: str, words: tuple[str, ...]
) -> None:
    scenario, out = tmp_path / "idle.yaml", tmp_path / "out"
    scenario.write_text(IDLE.replace("mode: realtime", "mode: realtime, priority: true"), encoding="utf-8")
    prefix = without(lacks)
    command = [*prefix, str(engine), "run", str(scenario), "--out", str(out)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2 and not out.exists(), done.stderr
    assert all(word in done.stderr for word in words) and "hint:" in done.stderr, done.stderr
    doctor = subprocess.run([*prefix, engine, "doctor"], check=False, capture_output=True, text=True)
    line = next(line for line in doctor.stdout.splitlines() if "priority in real time" in line)
    assert line.startswith("limited") and words[1] in line, line


def test_priority_is_for_real_time(attempt: Callable[..., Program], tmp_path: Path) -> None:
    scenario = tmp_path / "virtual.yaml"
    scenario.write_text(IDLE.replace("mode: realtime, ", ""), encoding="utf-8")
    done = attempt("run", scenario, "--out", tmp_path / "out", "--priority")
    assert done.code == 2 and "`--priority` is for runs on the wall clock" in done.stderr
    assert "hint: write `run: {mode: realtime}`" in done.stderr
