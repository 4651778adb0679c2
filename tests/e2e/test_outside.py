# SPDX-License-Identifier: GPL-2.0-or-later
"""Each kind of port with what it is made for at its other end, and the same run again in virtual time."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Program
from hosts import Host

PATIENCE_S = 60
NODE = """\
version: 1
name: end
run: {{mode: realtime, stop: 1h, seed: {seed}}}
ports: {{lan: {port}}}
defaults: {{link: {{rate: 1Gbit, delay: 1ms}}}}
nodes:
  h1:
    addresses: {{eth0: {address}}}
    processes:
{programs}
links: [{{endpoints: [lan, "h1:eth0"]}}]
"""
SERVER = "      - {exec: iperf3 -s, expect: any}"
# A server of HTTP that answers with what it was sent.
ECHO = """
import http.server, sys

class Echo(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Echo).serve_forever()
"""


def read(out: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return result


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen in {PATIENCE_S} s"
        time.sleep(0.1)


class End:
    """A run with one node behind a port."""

    def __init__(
        self,
        engine: Path,
        folder: Path,
        port: str,
        address: str,
        *,
        programs: str = SERVER,
        before: tuple[str, ...] = (),
        seed: int = 1,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.scenario, self.out = folder / "end.yaml", folder / "out"
        self.scenario.write_text(
            NODE.format(port=port, address=address, programs=programs, seed=seed), encoding="utf-8"
        )
        self.command = [*before, str(engine), "run", str(self.scenario), "--out", str(self.out), "--quiet", "--force"]
        self.process = self.start()

    def start(self) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: (self.out / "h1/kernel.log").exists() or self.process.poll() is not None, "the boot")
        return self.process

    def stop(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGINT)
        stderr = self.process.communicate(timeout=PATIENCE_S)[1]
        assert self.process.returncode == 128 + signal.SIGINT, stderr
        return read(self.out)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE_S)

    def repeats(self, attempt: Callable[..., Program]) -> None:
        """In virtual time it is the same run."""
        again = self.out.with_name("again")
        done = attempt("run", self.scenario, "--out", again, "--quiet", "--replay", self.out)
        assert done.code == 128 + signal.SIGINT, done.stderr
        live, replayed = read(self.out), read(again)
        assert (replayed["digest"], replayed["links"]) == (live["digest"], live["links"])


class Pair:
    """Two network namespaces with a cable between them: where the engine is, and what it meets."""

    def __init__(self, name: str) -> None:
        self.names = (f"{name}-engine", f"{name}-peer")

    def ip(self, side: int, *words: str) -> str:
        done = subprocess.run(["ip", "-n", self.names[side], *words], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def inside(self, side: int) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.names[side])

    def peer(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*self.inside(1), *words]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.fixture
def pair() -> Iterator[Pair]:
    if os.geteuid() != 0:
        pytest.skip("making network namespaces needs root")
    for tool in ("ip", "ping", "iperf3"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this host; scripts/setup-system run installs it")
    pair = Pair(f"wt-{os.getpid()}")
    try:
        for name in pair.names:
            made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True, text=True)
            if made.returncode != 0:
                pytest.skip(f"no network namespace can be made here: {made.stderr.strip()}")
        cable = ["ip", "link", "add", "cable", "netns", pair.names[0], "type", "veth", "peer", "cable"]
        made = subprocess.run([*cable, "netns", pair.names[1]], check=False, capture_output=True, text=True)
        if made.returncode != 0:
            pytest.skip(f"this host's kernel has no veth: {made.stderr.strip()}")
        for side in (0, 1):
            pair.ip(side, "link", "set", "lo", "up")
            pair.ip(side, "link", "set", "cable", "up")
        yield pair
    finally:
        for name in pair.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def talk(pair: Pair, node: str) -> None:
    """The peer pings the node, and sends and fetches TCP."""
    wait_until(lambda: pair.peer("ping", "-c", "1", "-W", "1", node).returncode == 0, "an answer")
    ping = pair.peer("ping", "-c", "5", "-i", "0.1", node)
    assert "5 received" in ping.stdout, ping.stdout
    times = [float(value) for value in re.findall(r"time=([0-9.]+)", ping.stdout)]
    # There and back is 2 ms of delay. It can only take longer, by how busy this host is.
    assert min(times) >= 2.0, times
    for way in ([], ["-R"]):
        done = pair.peer("iperf3", "-c", node, "-n", "2M", "-J", *way)
        assert done.returncode == 0, done.stdout
        # What is still on its way at the end was sent, and is not counted by the receiver.
        sums = json.loads(done.stdout)["end"]
        assert sums["sum_sent"]["bytes"] >= 2_000_000 and sums["sum_received"]["bytes"] > 100_000, sums


def test_a_node_at_an_interface_of_the_host(
    engine: Path, attempt: Callable[..., Program], pair: Pair, tmp_path: Path
) -> None:
    """With its offloads: what the peer's kernel sends as superframes without checksums comes as frames of a wire."""
    pair.ip(1, "address", "add", "10.9.0.1/24", "dev", "cable")
    before = pair.ip(0, "-d", "link", "show", "cable")
    end = End(engine, tmp_path / "end", "{interface: cable}", "10.9.0.2/24", before=pair.inside(0))
    try:
        talk(pair, "10.9.0.2")
        assert "promiscuity 1" in pair.ip(0, "-d", "link", "show", "cable")
        summary = end.stop()
    finally:
        end.kill()
    (port,) = summary["ports"]
    assert port["frames_in"] > 1000 and port["frames_out"] > 1000
    assert pair.ip(0, "-d", "link", "show", "cable") == before, "as it was"
    end.repeats(attempt)


def test_an_interface_that_goes_and_a_run_that_is_killed(engine: Path, pair: Pair, tmp_path: Path) -> None:
    pair.ip(1, "address", "add", "10.9.0.1/24", "dev", "cable")
    before = pair.ip(0, "-d", "link", "show", "cable")
    end = End(engine, tmp_path / "end", "{interface: cable}", "10.9.0.2/24", before=pair.inside(0))
    try:
        wait_until(lambda: pair.peer("ping", "-c", "1", "-W", "1", "10.9.0.2").returncode == 0, "an answer")
        end.kill()
        assert pair.ip(0, "-d", "link", "show", "cable") == before, "as it was"
        end.start()
        wait_until(lambda: pair.peer("ping", "-c", "1", "-W", "1", "10.9.0.2").returncode == 0, "an answer")
        # A longer frame than the node's wire takes is lost there, and one of the node's is as before.
        pair.ip(1, "link", "set", "cable", "mtu", "4000")
        pair.ip(0, "link", "set", "cable", "mtu", "4000")
        assert pair.peer("ping", "-c", "1", "-W", "1", "-M", "do", "-s", "3000", "10.9.0.2").returncode != 0
        assert pair.peer("ping", "-c", "1", "-W", "2", "-s", "3000", "-M", "dont", "10.9.0.2").returncode in (0, 1)
        pair.ip(0, "link", "delete", "cable")
        time.sleep(0.5)
        summary = end.stop()
    finally:
        end.kill()
    (link,) = summary["links"]
    assert link["b_to_a"]["drops"]["longer_than_mtu"] >= 1, link
    texts = [warning["text"] for warning in summary["warnings"] if warning["code"] == "port"]
    assert texts and "cable" in texts[0], summary["warnings"]


def test_an_mtu_that_changes_in_mid_run_is_told_and_counted(engine: Path, pair: Pair, tmp_path: Path) -> None:
    pair.ip(1, "address", "add", "10.9.0.1/24", "dev", "cable")
    programs = "      - {exec: ping -i 0.1 -M do -s 1400 10.9.0.1, expect: any}"
    end = End(engine, tmp_path / "end", "{interface: cable}", "10.9.0.2/24", programs=programs, before=pair.inside(0))

    def port() -> dict[str, Any]:
        (found,) = read(end.out)["ports"]
        return dict(found)

    try:
        wait_until(lambda: answers(end) >= 3, "answers")
        pair.ip(0, "link", "set", "cable", "mtu", "1000")
        time.sleep(1)
        seen = answers(end)
        pair.ip(0, "link", "set", "cable", "mtu", "1500")
        wait_until(lambda: answers(end) >= seen + 3, "answers once more")
        pair.ip(0, "link", "delete", "cable")
        time.sleep(0.5)
        summary = end.stop()
    finally:
        end.kill()
    drops = port()["drops"]
    # Ten a second are sent, and after the interface has gone as many.
    assert 1 <= drops["out_too_long"] <= 30 and drops["out_down"] >= 1, drops
    texts = [warning["text"] for warning in summary["warnings"] if warning["code"] == "port"]
    assert any("the MTU of cable was 1500 bytes and is 1000 now" in text for text in texts), texts
    assert any("cable has vanished" in text for text in texts), texts


def test_an_address_of_the_host_is_refused(engine: Path, pair: Pair, tmp_path: Path) -> None:
    """At the cable itself, behind a switch there, and of a TAP; behind a router it is another network's."""
    pair.ip(0, "address", "add", "10.9.0.2/24", "dev", "cable")

    def attempt(text: str) -> tuple[int, str]:
        path = tmp_path / "end.yaml"
        path.write_text(text, encoding="utf-8")
        command: list[str | Path] = [*pair.inside(0), engine, "run", path, "--out", tmp_path / "out", "--force"]
        command += ["--stop", "1s"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
        return done.returncode, done.stderr

    node = NODE.format(port="{interface: cable}", address="10.9.0.2/24", programs=SERVER, seed=1)
    code, told = attempt(node)
    assert code == 2 and "h1:eth0 has the address 10.9.0.2, which is this host's on cable as well" in told, told
    assert "hint: give one of them another address" in told, told
    behind = """\
version: 1
run: {mode: realtime, stop: 1s}
ports: {lan: {interface: cable}}
defaults: {link: {rate: 1Gbit, delay: 1ms}}
nodes:
  middle: {kind: KIND}
  h1: {addresses: {eth0: 10.9.0.2/24}}
links: [{endpoints: [lan, "middle:eth0"]}, {endpoints: ["h1:eth0", "middle:eth1"]}]
"""
    code, told = attempt(behind.replace("KIND", "switch"))
    assert code == 2 and "h1:eth0 has the address 10.9.0.2" in told, told
    assert attempt(behind.replace("KIND", "router"))[0] == 0
    if Path("/dev/net/tun").exists():
        tap = "{tap: wt0, address: 10.9.0.2/24}"
        code, told = attempt(NODE.format(port=tap, address="10.9.0.3/24", programs=SERVER, seed=1))
        assert code == 2 and "the host has the address 10.9.0.2 already, on interface cable" in told, told
        assert "hint: choose another address" in told, told


def test_a_flood_takes_no_memory_and_is_counted(engine: Path, pair: Pair, tmp_path: Path) -> None:
    """More than the link carries: it is lost, the run goes on, and its memory does not grow."""
    pair.ip(1, "address", "add", "10.9.0.1/24", "dev", "cable")
    port = "{interface: cable}"
    end = End(engine, tmp_path / "end", port, "10.9.0.2/24", before=pair.inside(0))
    slow = end.scenario.read_text(encoding="utf-8").replace("rate: 1Gbit", "rate: 1Mbit")
    end.kill()
    end.scenario.write_text(slow, encoding="utf-8")
    end.start()
    try:
        wait_until(lambda: pair.peer("ping", "-c", "1", "-W", "1", "10.9.0.2").returncode == 0, "an answer")
        before_kib = resident_kib(end.process.pid)
        flood = "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); e = time.monotonic() + 3\n"
        flood += "while time.monotonic() < e: s.sendto(bytes(1400), ('10.9.0.2', 9))"
        assert pair.peer("python3", "-c", flood).returncode == 0
        grown_kib = resident_kib(end.process.pid) - before_kib
        summary = end.stop()
    finally:
        end.kill()
    (port_summary,) = summary["ports"]
    assert port_summary["drops"].get("in_overflow", 0) > 1000, port_summary
    assert grown_kib < 32 << 10, f"{grown_kib} KiB more"


def resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0])


def test_a_node_on_a_vxlan_of_linux(engine: Path, attempt: Callable[..., Program], pair: Pair, tmp_path: Path) -> None:
    pair.ip(0, "address", "add", "192.0.2.1/24", "dev", "cable")
    pair.ip(1, "address", "add", "192.0.2.2/24", "dev", "cable")
    ends = ["local", "192.0.2.2", "remote", "192.0.2.1", "dstport", "4789"]
    command = ["ip", "-n", pair.names[1], "link", "add", "vx", "type", "vxlan", "id", "42", *ends]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"this host's kernel has no vxlan: {made.stderr.strip()}")
    pair.ip(1, "address", "add", "10.9.0.1/24", "dev", "vx")
    pair.ip(1, "link", "set", "vx", "up")
    port = "{vxlan: {vni: 42, local: 192.0.2.1, peer: 192.0.2.2}}"
    end = End(engine, tmp_path / "end", port, "10.9.0.2/24", before=pair.inside(0))
    try:
        talk(pair, "10.9.0.2")
        end.stop()
    finally:
        end.kill()
    end.repeats(attempt)


def free_ports() -> tuple[int, int]:
    """Two UDP ports of the loopback that nobody has now."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two,
    ):
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


PINGS = "      - {exec: ping -i 0.2 10.9.0.%d, expect: any}"


def answers(end: End) -> int:
    return (end.out / "h1/ping-0.stdout").read_text(encoding="utf-8").count("bytes from")


@pytest.mark.parametrize("sealed", [False, True])
def test_two_engines_are_one_network(
    engine: Path, attempt: Callable[..., Program], sealed: bool, tmp_path: Path
) -> None:
    """By UDP, as any user. One of them is killed and comes back, and they find each other again."""
    numbers = free_ports()
    key = ""
    if sealed:
        (tmp_path / "key").write_text("0123456789abcdef" * 4 + "\n", encoding="ascii")
        (tmp_path / "key").chmod(0o600)
        key = f", key: {tmp_path / 'key'}"

    def port(own: int) -> str:
        return f"{{udp: {{local: 127.0.0.1:{numbers[own]}, peer: 127.0.0.1:{numbers[1 - own]}{key}}}}}"

    ends = [
        End(
            engine, tmp_path / f"end-{own}", port(own), f"10.9.0.{own + 1}/24", programs=PINGS % (2 - own), seed=own + 1
        )
        for own in (0, 1)
    ]
    try:
        wait_until(lambda: all(answers(end) >= 3 for end in ends), "answers both ways")
        ends[1].kill()
        seen = answers(ends[0])
        ends[1].start()
        wait_until(lambda: answers(ends[0]) >= seen + 3 and answers(ends[1]) >= 3, "answers after a restart")
        summaries = [end.stop() for end in ends]
    finally:
        for end in ends:
            end.kill()
    assert all(summary["ports"][0]["frames_in"] > 5 for summary in summaries)
    for end in ends:
        end.repeats(attempt)


def test_the_example_of_two_engines_needs_no_rights(
    engine: Path, kernel: Path, attempt: Callable[..., Program], tmp_path: Path
) -> None:
    """One command of an ordinary user; and each of both runs again in virtual time."""
    for tool in ("ping", "iperf3"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this host; scripts/setup-system run installs it")
    with tempfile.TemporaryDirectory() as name:
        host = Host.prepare(Path(name), engine, kernel)
        shutil.copytree(ROOT / "examples/live", host.folder / "live")
        results = host.folder / "results"
        results.mkdir()
        prefix: tuple[str, ...] = ()
        if os.geteuid() == 0:
            prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
            os.chown(results, 65534, 65534)
        done = subprocess.run(
            [*prefix, host.folder / "live/32-udp", results],
            cwd="/",
            env={**os.environ, "WINDTUNNEL": f"{name}/windtunnel", "WINDTUNNEL_CACHE": f"{name}/cache", "HOME": name},
            capture_output=True,
            text=True,
            check=False,
            timeout=3 * PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "5 packets transmitted, 5 received" in done.stdout and "receiver" in done.stdout, done.stdout
        # There and back is 30 ms of delay. It can only take longer, by how busy this host is.
        assert min(float(value) for value in re.findall(r"time=([0-9.]+) ms", done.stdout)) >= 30.0, done.stdout
        assert ((results / "32-udp.key").stat().st_mode & 0o777) == 0o600
        ports = {}
        for side in ("left", "right"):
            again = tmp_path / side
            command = ("run", results / f"32-udp-{side}.yaml", "--out", again, "--quiet", "--replay", results / side)
            repeated = attempt(*command)
            assert repeated.code == 0, repeated.stderr
            assert read(again)["digest"] == read(results / side)["digest"]
            (ports[side],) = read(results / side)["ports"]
    for port, other in (("left", "right"), ("right", "left")):
        assert "(sealed)" in ports[port]["what"]
        assert 1000 < ports[port]["frames_in"] <= ports[other]["frames_out"], ports


def test_who_has_another_key_stays_outside(engine: Path, tmp_path: Path) -> None:
    numbers = free_ports()
    ends = []
    try:
        for own in (0, 1):
            key = tmp_path / f"key-{own}"
            key.write_text(f"{own}" * 64 + "\n", encoding="ascii")
            key.chmod(0o600)
            udp = f"local: 127.0.0.1:{numbers[own]}, peer: 127.0.0.1:{numbers[1 - own]}, key: {key}"
            folder = tmp_path / f"end-{own}"
            ends.append(End(engine, folder, f"{{udp: {{{udp}}}}}", f"10.9.0.{own + 1}/24", programs=PINGS % (2 - own)))
        time.sleep(4)
        summaries = [end.stop() for end in ends]
    finally:
        for end in ends:
            end.kill()
    assert [answers(end) for end in ends] == [0, 0]
    for summary in summaries:
        (port,) = summary["ports"]
        assert port["frames_in"] == 0 and port["drops"]["in_forged"] > 0, port


def test_two_engines_at_a_stream_socket(engine: Path, attempt: Callable[..., Program], tmp_path: Path) -> None:
    """As QEMU and passt speak it: one listens, the other connects, and connects anew when the first was away."""
    path = tmp_path / "socket"
    listens = End(engine, tmp_path / "listens", f"{{stream: {path}, listen: true}}", "10.9.0.1/24", programs=PINGS % 2)
    connects = End(engine, tmp_path / "connects", f"{{stream: {path}}}", "10.9.0.2/24", programs=PINGS % 1)
    try:
        wait_until(lambda: answers(listens) >= 3 and answers(connects) >= 3, "answers both ways")
        listens.kill()
        seen = answers(connects)
        listens.start()
        wait_until(lambda: answers(connects) >= seen + 3, "answers after a restart")
        assert (path.stat().st_mode & 0o777) == 0o600
        listens.stop()
        connects.stop()
    finally:
        listens.kill()
        connects.kill()
    connects.repeats(attempt)
    listens.repeats(attempt)


@pytest.mark.parametrize(
    ("port", "told"),
    [
        ("{interface: nosuch0}", "nosuch0"),
        ("{stream: /nonexistent/folder/socket, listen: true}", "/nonexistent/folder/socket"),
        ("{vxlan: {vni: 5, local: 203.0.113.9, peer: 192.0.2.2}}", "203.0.113.9"),
        ("{udp: {local: 203.0.113.9:7, peer: 192.0.2.2:7}}", "203.0.113.9"),
    ],
)
def test_a_port_that_the_host_does_not_have_is_named(
    attempt: Callable[..., Program], port: str, told: str, tmp_path: Path
) -> None:
    scenario = tmp_path / "bad.yaml"
    scenario.write_text(NODE.format(port=port, address="10.9.0.2/24", programs=SERVER, seed=1), encoding="utf-8")
    done = attempt("run", scenario, "--out", tmp_path / "out")
    assert done.code == 2
    assert "port lan" in done.stderr and told in done.stderr and "hint:" in done.stderr, done.stderr


def test_an_address_in_use_and_a_missing_right_are_told(
    engine: Path, attempt: Callable[..., Program], tmp_path: Path
) -> None:
    scenario = tmp_path / "bad.yaml"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = f"{{udp: {{local: 127.0.0.1:{taken.getsockname()[1]}, peer: 127.0.0.1:9}}}}"
        scenario.write_text(NODE.format(port=port, address="10.9.0.2/24", programs=SERVER, seed=1), encoding="utf-8")
        done = attempt("run", scenario, "--out", tmp_path / "out")
        assert done.code == 2 and "in use" in done.stderr, done.stderr
    if os.geteuid() != 0:
        pytest.skip("the rest takes a right from root")
    if shutil.which("capsh") is None:
        pytest.skip("capsh is not on this host; Debian's libcap2-bin has it")
    for port, right in (("{tap: wtx0}", "CAP_NET_ADMIN"), ("{interface: eth0}", "CAP_NET_RAW")):
        scenario.write_text(NODE.format(port=port, address="10.9.0.2/24", programs=SERVER, seed=1), encoding="utf-8")
        command = f"{engine} run {scenario} --out {tmp_path / 'out'} --force"
        without = ["capsh", "--drop=cap_net_admin,cap_net_raw", "--", "-c", command]
        plain = subprocess.run(without, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
        assert plain.returncode == 2 and right in plain.stderr and "hint:" in plain.stderr, plain.stderr


def test_a_virtual_machine_is_part_of_the_network(
    engine: Path, attempt: Callable[..., Program], tmp_path: Path
) -> None:
    """The example: a Linux in QEMU pings and fetches, and is fetched from; and what it sent is repeated without it."""
    for tool in ("qemu-system-x86_64", "busybox", "nginx", "curl", "apt-get"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this host; scripts/setup-system vm examples installs it")
    example = ROOT / "examples/live/30-vm"
    env = {**os.environ, "WINDTUNNEL": str(engine)}
    done = subprocess.run(
        [example, tmp_path / "out"], check=False, capture_output=True, text=True, timeout=5 * PATIENCE_S, env=env
    )
    if "cannot fetch" in done.stderr or "the distribution offers no" in done.stderr:
        pytest.skip(f"no kernel for the machine: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert "5 packets received" in done.stdout and "hello from the node" in done.stdout, done.stdout
    assert min(float(value) for value in re.findall(r"time=([0-9.]+) ms", done.stdout)) >= 22.0, done.stdout
    pages = re.findall(r"^(?:vm|node): page ([0-9a-f]{64})", done.stdout, re.MULTILINE)
    assert len(pages) == 2 and pages[0] == pages[1], done.stdout
    scenario = example.with_name("30-vm.yaml")
    again = attempt("run", scenario, "--out", tmp_path / "again", "--quiet", "--replay", tmp_path / "out")
    assert again.code == 128 + signal.SIGINT, again.stderr
    assert read(tmp_path / "again")["digest"] == read(tmp_path / "out")["digest"]


def test_a_node_reaches_the_host_by_passt(
    engine: Path, attempt: Callable[..., Program], pair: Pair, tmp_path: Path
) -> None:
    """passt makes a connection of the host's of one of the node's."""
    if shutil.which("passt") is None:
        pytest.skip("passt is not on this host; Debian's package passt has it")
    pair.ip(0, "address", "add", "192.0.2.1/24", "dev", "cable")
    pair.ip(1, "address", "add", "192.0.2.2/24", "dev", "cable")
    # Its interface towards the world is that of the default route.
    pair.ip(0, "route", "add", "default", "via", "192.0.2.2")
    # Of itself it becomes `nobody`, who has to get at the socket.
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        Path(folder).chmod(0o777)
        path = Path(folder) / "socket"
        node = ["-a", "10.9.0.2", "-n", "24", "-g", "10.9.0.1"]
        command = [*pair.inside(0), "passt", "--foreground", "--stderr", "--one-off", "--socket", str(path), *node]
        passt = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        stack.callback(passt.communicate)
        stack.callback(passt.kill)
        wait_until(lambda: path.exists() or passt.poll() is not None, "passt's socket")
        assert passt.poll() is None, passt.communicate()
        # The gateway stands for the host's loopback.
        page = random.Random(1).randbytes(2_000_000)
        (tmp_path / "page").write_bytes(page)
        serve = ["python3", "-c", ECHO, "127.0.0.1", "5202"]
        server = subprocess.Popen([*pair.inside(0), *serve], stdin=subprocess.PIPE)
        stack.callback(server.communicate)
        stack.callback(server.kill)
        # The page goes to the host, and comes back.
        there_and_back = "curl -m 20 -sS -H Expect: --data-binary @/tmp/page -o /tmp/back http://10.9.0.1:5202/"
        client = f"sh -c 'until {there_and_back}; do sleep 0.5; done; sha256sum </tmp/back'"
        files = f"    files: {{/tmp/page: {{source: {tmp_path}/page}}}}"
        programs = f'{SERVER}\n      - {{exec: "{client}", expect: any}}\n{files}'
        end = End(engine, tmp_path / "end", f"{{stream: {path}}}", "10.9.0.2/24", programs=programs)
        stack.callback(end.kill)
        said = end.out / "h1/sh-1.stdout"
        digest = hashlib.sha256(page).hexdigest()
        wait_until(lambda: said.exists() and digest in said.read_text(encoding="utf-8"), "a transfer both ways")
        summary = end.stop()
    (port,) = summary["ports"]
    assert port["bytes_in"] > len(page) and port["bytes_out"] > len(page)
    end.repeats(attempt)


def test_a_storm_of_damaged_frames_comes_through_a_tap(
    engine: Path, attempt: Callable[..., Program], pair: Pair, tmp_path: Path
) -> None:
    """Node and run go on, and the host's interface is gone at the end."""
    if not Path("/dev/net/tun").exists():
        pytest.skip("this host has no /dev/net/tun")
    frames = 5_000
    tap = f"{{tap: eth0, address: 10.9.0.1/24, netns: /run/netns/{pair.names[1]}}}"
    end = End(engine, tmp_path / "end", tap, "10.9.0.2/24")
    try:
        wait_until(lambda: pair.peer("ping", "-c", "1", "-W", "1", "10.9.0.2").returncode == 0, "an answer")
        mac = pair.ip(1, "neighbour", "show", "10.9.0.2").split("lladdr ")[1].split()[0]
        noise = pair.peer("python3", str(ROOT / "tests/frames/noise.py"), "1", str(frames), mac)
        assert noise.returncode == 0, noise.stderr
        ping = pair.peer("ping", "-c", "3", "-i", "0.2", "10.9.0.2")
        assert "3 received" in ping.stdout, ping.stdout
        summary = end.stop()
    finally:
        end.kill()
    (port,) = summary["ports"]
    assert port["frames_in"] + sum(port["drops"].values()) >= frames, port
    log = (end.out / "h1/kernel.log").read_text(encoding="utf-8")
    assert not re.search(r"WARNING|BUG|Oops|refcount|use-after-free", log), log
    assert "eth0" not in pair.ip(1, "link")
    end.repeats(attempt)


def test_a_peer_of_another_version_is_told(engine: Path, tmp_path: Path) -> None:
    """It speaks a later version of the protocol, and nothing of it gets in."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(PATIENCE_S)
        theirs = peer.getsockname()[1]
        own, _ = free_ports()
        port = f"{{udp: {{local: 127.0.0.1:{own}, peer: 127.0.0.1:{theirs}}}}}"
        end = End(engine, tmp_path / "end", port, "10.9.0.1/24", programs=PINGS % 2)
        try:
            hello = bytearray(peer.recv(1 << 16))
            assert hello[:4] == b"WTUP"
            hello[4] += 1
            peer.sendto(hello, ("127.0.0.1", own))
            time.sleep(1)
            summary = end.stop()
        finally:
            end.kill()
    (told,) = summary["ports"]
    assert (told["frames_in"], told["drops"]["in_version"]) == (0, 1), told
    texts = [warning["text"] for warning in summary["warnings"] if warning["code"] == "port"]
    assert any(f"speaks version {hello[4]} of the port protocol" in text for text in texts), texts


def test_what_comes_in_is_among_the_flows(
    engine: Path, attempt: Callable[..., Program], pair: Pair, tmp_path: Path
) -> None:
    """A conversation that begins outside was first seen at the port, live and when it is repeated."""
    pair.ip(1, "address", "add", "10.9.0.1/24", "dev", "cable")
    end = End(engine, tmp_path / "end", "{interface: cable}", "10.9.0.2/24", before=pair.inside(0))
    end.kill()
    text = end.scenario.read_text(encoding="utf-8").replace("stop: 1h", "stop: 1h, measure: {links: 1s}")
    end.scenario.write_text(text, encoding="utf-8")
    end.start()
    try:
        wait_until(lambda: pair.peer("ping", "-c", "1", "-W", "1", "10.9.0.2").returncode == 0, "an answer")
        assert pair.peer("iperf3", "-c", "10.9.0.2", "-n", "1M").returncode == 0
        end.stop()
    finally:
        end.kill()
    with (end.out / "flows.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["protocol"] == "tcp"]
    # Its control connection, and that of the data.
    assert len(rows) == 2, rows
    for row in rows:
        assert (row["seen_at"], row["source"], row["destination"]) == ("lan", "10.9.0.1", "10.9.0.2"), row
        assert row["destination_port"] == "5201"
    # What was still on its way at the end is not there.
    assert sum(int(row["a_to_b_payload_bytes"]) for row in rows) > 100_000, rows
    end.repeats(attempt)
    again = end.out.with_name("again")
    assert (again / "flows.csv").read_bytes() == (end.out / "flows.csv").read_bytes()


def test_the_plan_shows_ports(attempt: Callable[..., Program]) -> None:
    done = attempt("validate", "--plan", ROOT / "examples/live/28-live.yaml")
    assert done.code == 0, done.stderr
    assert done.stdout.endswith("lan\n  tap, outside of r1:eth0; the host has 10.9.0.1/24\n"), done.stdout


def read_links(out: Path) -> list[dict[str, str]]:
    with (out / "links.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_links_to_ports_are_in_the_series(engine: Path, attempt: Callable[..., Program], tmp_path: Path) -> None:
    """As any other link, in both directions, live and when the run is repeated."""
    numbers = free_ports()
    ends = []
    try:
        for own in (0, 1):
            udp = f"{{udp: {{local: 127.0.0.1:{numbers[own]}, peer: 127.0.0.1:{numbers[1 - own]}}}}}"
            end = End(engine, tmp_path / f"end-{own}", udp, f"10.9.0.{own + 1}/24", programs=PINGS % (2 - own))
            ends.append(end)
            end.kill()
            text = end.scenario.read_text(encoding="utf-8").replace("stop: 1h", "stop: 1h, measure: {links: 100ms}")
            end.scenario.write_text(text.replace("delay: 1ms", "delay: 30ms"), encoding="utf-8")
            end.start()
        wait_until(lambda: all(answers(end) >= 10 for end in ends), "answers both ways")
        state = json.loads(attempt("top", "--run", ends[0].out, "--json").stdout)
        shown = attempt("top", "--run", ends[0].out, "--once", "--interval", "100ms").stdout
        summaries = [end.stop() for end in ends]
    finally:
        for end in ends:
            end.kill()
    seen, (port,) = state["links"], state["ports"]
    assert [(link["a"], link["b"]) for link in seen] == [("h1:eth0", "lan")]
    assert seen[0]["b_to_a"]["frames"] >= 10 and seen[0]["a_to_b_now"]["delay_ns"] == 30_000_000, seen
    assert re.search(r"^lan +h1:eth0 ", shown, re.MULTILINE), shown
    # Each tells the other once a second that it is there.
    peer = port["peer"]
    assert port["frames_in"] >= 10 and (peer["connected"], peer["name"]) == (True, "lan"), port
    assert peer["seen_ago_ns"] < 10e9 and peer["lost_in_frames"] is not None, peer
    assert re.search(
        r"^lan +\d+ +\d+ +lan \(windtunnel \S+\), heard .* ago, lost \d+ in, \d+ out", shown, re.MULTILINE
    ), shown
    for end, summary in zip(ends, summaries, strict=True):
        rows = read_links(end.out)
        assert {(row["from"], row["to"]) for row in rows} == {("h1:eth0", "lan"), ("lan", "h1:eth0")}
        (link,) = summary["links"]
        for (sender, receiver), way in ((("h1:eth0", "lan"), "a_to_b"), (("lan", "h1:eth0"), "b_to_a")):
            mine = [row for row in rows if (row["from"], row["to"]) == (sender, receiver)]
            for column, total in (("offered_frames", "frames"), ("delivered_bytes", "delivered_bytes")):
                assert sum(int(row[column]) for row in mine) == link[way][total] > 0, (way, column, link)
        # A ping is sent each 200 ms, and what it sends arrives 30 ms later: no interval has more than a few.
        assert max(int(row["offered_frames"]) for row in rows) < 30
        end.repeats(attempt)
        assert read_links(end.out.with_name("again")) == rows


def test_power_cut_loses_what_is_on_its_way_to_a_port(
    engine: Path, attempt: Callable[..., Program], tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    end = End(engine, tmp_path / "end", f"{{stream: {path}}}", "10.9.0.1/24", programs=PINGS % 2)
    end.kill()
    text = end.scenario.read_text(encoding="utf-8").replace("delay: 1ms", "delay: 2s").replace("stop: 1h", "stop: 6s")
    text += "events: [{at: 3500ms, node: h1, down: true}]\n"
    end.scenario.write_text(text, encoding="utf-8")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        end.start()
        try:
            peer = listener.accept()[0]
            with peer:
                frames = 0
                while size := peer.recv(4, socket.MSG_WAITALL):
                    frames += bool(peer.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
            assert end.process.wait(timeout=PATIENCE_S) == 0
        finally:
            end.kill()
    summary = read(end.out)
    (link,), (port,) = summary["links"], summary["ports"]
    sent = link["a_to_b"]
    # It asks for its neighbour once a second.
    assert sent["drops"]["node_down"] >= 1 and sent["delivered_frames"] >= 1, sent
    assert sent["frames"] == sent["delivered_frames"] + sent["drops"]["node_down"]
    assert frames == port["frames_out"] <= sent["delivered_frames"]
    again = tmp_path / "again"
    assert attempt("run", end.scenario, "--out", again, "--quiet", "--replay", end.out).code == 0
    assert (read(again)["digest"], read(again)["links"]) == (summary["digest"], summary["links"])
