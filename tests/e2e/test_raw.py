# SPDX-License-Identifier: GPL-2.0-or-later
"""A node on the host's own address, beside the host's programs. A network namespace of the test's own is the host."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PATIENCE_S = 60
# Somebody who may do nothing.
ORDINARY = 65534
HOST, PEER = "192.0.2.1", "192.0.2.2"
FILE_BYTES = 20_000_000
# What refuses or resets a connection, as the peer sees it.
RESETS = "add table inet t; add chain inet t c { type filter hook prerouting priority -400; }; \
add rule inet t c tcp flags & rst == rst counter; add rule inet t c icmp type destination-unreachable counter"
SCENARIO = """
version: 1
run: {{mode: realtime, stop: {stop}}}
ports: {{wire: {{raw: {{interface: eth0, tcp: [40000-40099], udp: [40000-40099]{broker}}}}}}}
nodes:
  h1:
    interfaces: {{eth0: {{mac: "{mac}", addresses: {host}/24}}}}
    sysctls: {{net.ipv4.ip_local_port_range: "40000 40099", net.ipv6.conf.all.disable_ipv6: 1}}
    processes:
      - {exec}
links: [{{endpoints: ["h1:eth0", wire], both: {{rate: 100Gbit, delay: 0s}}}}]
"""


@dataclass
class Site:
    """The host and its peer, with a cable between them."""

    host: str
    peer: str

    def command(self, where: str, *words: str | Path) -> list[str]:
        return ["ip", "netns", "exec", where, *map(str, words)]

    def run(self, where: str, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(where, *words), check=check, capture_output=True, text=True, timeout=PATIENCE_S
        )

    def mac(self) -> str:
        words = self.run(self.host, "ip", "-brief", "link", "show", "eth0").stdout.split()
        return words[2]

    def state(self) -> str:
        """All of the host that a run could change."""
        looks = [
            "nft list ruleset",
            "ip -details link",
            "ip -brief address",
            "ip route",
            "ss -Hlntu",
            "ss -Hanp --packet",
        ]
        return "".join(self.run(self.host, *look.split()).stdout for look in looks)

    def scenario(self, folder: Path, exec_: str, stop: str = "8s", broker: Path | None = None) -> Path:
        path = folder / "raw.yaml"
        process = json.dumps({"exec": ["sh", "-c", exec_]})
        by = f", broker: {broker}" if broker else ""
        text = SCENARIO.format(mac=self.mac(), host=HOST, stop=stop, exec=process, broker=by)
        path.write_text(text, encoding="utf-8")
        return path


@pytest.fixture
def site() -> Iterator[Site]:
    if os.geteuid() != 0:
        pytest.skip("making network namespaces needs root")
    for tool in ("ip", "ss", "nft", "curl", "python3"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    site = Site(f"wt-raw-{os.getpid()}", f"wt-peer-{os.getpid()}")
    made = subprocess.run(["ip", "netns", "add", site.host], check=False, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no network namespace can be made here: {made.stderr.strip()}")
    try:
        subprocess.run(["ip", "netns", "add", site.peer], check=True)
        pair = f"link add eth0 type veth peer name eth0 netns {site.peer}"
        subprocess.run(["ip", "-n", site.host, *pair.split()], check=True)
        for name, address in ((site.host, HOST), (site.peer, PEER)):
            site.run(name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            site.run(name, "ip", "address", "add", f"{address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                site.run(name, "ip", "link", "set", interface, "up")
        site.run(site.peer, "nft", RESETS)
        yield site
    finally:
        for name in (site.host, site.peer):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.fixture
def page(site: Site, tmp_path: Path) -> Iterator[str]:
    """A file that the peer serves; its address."""
    folder = tmp_path / "www"
    folder.mkdir()
    (folder / "file").write_bytes(os.urandom(FILE_BYTES))
    server = subprocess.Popen(
        site.command(site.peer, "python3", "-m", "http.server", "8000", "-d", folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + PATIENCE_S
    while ":8000" not in site.run(site.peer, "ss", "-Htln").stdout:
        assert time.monotonic() < end and server.poll() is None
        time.sleep(0.05)
    yield f"http://{PEER}:8000/file"
    server.kill()
    server.wait()


def wait_for_table(site: Site, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while "windtunnel-" not in site.run(site.host, "nft", "list", "ruleset").stdout:
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)


def test_a_node_and_the_host_share_an_address(engine: Path, site: Site, page: str, tmp_path: Path) -> None:
    before = site.state()
    curl = f"curl -sS -o /dev/null -w '%{{size_download}} %{{local_ip}} %{{local_port}}' {page}"
    # A server of the node's, too, and a port of it where nobody listens.
    serve = "import socket; s = socket.create_server(('', 40050)); s.accept()[0].sendall(b'from the node')"
    scenario = site.scenario(tmp_path, f'{curl}; python3 -c "{serve}"')
    out = tmp_path / "out"
    run = subprocess.Popen(
        site.command(site.host, engine, "run", scenario, "--out", out, "--quiet"), stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for_table(site, run)
        host = site.run(site.host, *curl.replace("'", "").split()[:4], "-w", "%{size_download} %{local_port}", page)
        size, port = host.stdout.split()
        assert int(size) == FILE_BYTES
        assert not 40_000 <= int(port) <= 40_099, "the host is not given an owned port"
        take = "import socket; socket.create_server(('', {}))"
        refused = site.run(site.host, "python3", "-c", take.format(40_001), check=False)
        assert "Address already in use" in refused.stderr
        site.run(site.host, "python3", "-c", take.format(40_100))
        read = f"import socket; print(socket.create_connection(('{HOST}', 40050), 5).recv(99))"
        end = time.monotonic() + PATIENCE_S
        while "from the node" not in (answer := site.run(site.peer, "python3", "-c", read, check=False)).stdout:
            assert time.monotonic() < end, answer.stderr
            time.sleep(0.2)
        run.wait(PATIENCE_S)
        assert run.returncode == 0, run.stderr.read() if run.stderr else ""
    finally:
        run.kill()
        run.wait()
    logs = "".join(path.read_text(encoding="utf-8") for path in sorted(out.rglob("*.stdout*")))
    size, address, port = logs.split()[:3]
    assert (int(size), address) == (FILE_BYTES, HOST)
    assert 40_000 <= int(port) <= 40_099
    assert site.state() == before


def test_nothing_resets_what_is_the_nodes(engine: Path, site: Site, page: str, tmp_path: Path) -> None:
    """The host would: it knows nothing of these connections."""
    scenario = site.scenario(tmp_path, f"curl -sS -o /dev/null {page}")
    command = site.command(site.host, engine, "run", scenario, "--out", tmp_path / "out", "--quiet")
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    counters = site.run(site.peer, "nft", "list", "ruleset").stdout
    assert counters.count("packets 0 ") == 2, counters


def test_a_wrong_source_is_dropped_and_counted(engine: Path, site: Site, tmp_path: Path) -> None:
    send = "from socket import *; s = socket(AF_INET, SOCK_DGRAM); s.bind(('', {})); s.sendto(b'x', ('192.0.2.2', 9))"
    scenario = site.scenario(tmp_path, f'python3 -c "{send.format(53)}"; python3 -c "{send.format(40_005)}"; sleep 1')
    command = site.command(site.host, engine, "run", scenario, "--out", tmp_path / "out", "--quiet")
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    (port,) = summary["ports"]
    assert port["drops"].get("out_foreign") == 1, port


def test_kill_leaves_nothing(engine: Path, site: Site, tmp_path: Path) -> None:
    before = site.state()
    scenario = site.scenario(tmp_path, "sleep 50", stop="60s")
    run = subprocess.Popen(
        site.command(site.host, engine, "run", scenario, "--out", tmp_path / "out", "--quiet"),
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        wait_for_table(site, run)
        assert site.state() != before
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    end = time.monotonic() + PATIENCE_S
    while (after := site.state()) != before and time.monotonic() < end:
        time.sleep(0.1)
    assert after == before


@pytest.fixture
def broker(engine: Path, site: Site) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """One that lends to an ordinary user, below a folder that everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="wt-broker-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        rule = (
            f"[[allow]]\nusers = ['{ORDINARY}']\ninterfaces = ['eth0']\ntcp = ['40000-40099']\nudp = ['40000-40099']\n"
        )
        (folder / "broker.toml").write_text(rule, encoding="utf-8")
        words = (engine, "broker", "--config", folder / "broker.toml", "--socket", folder / "socket")
        process = subprocess.Popen(site.command(site.host, *words), stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("broker: listens at")
        yield folder / "socket", process
        process.kill()
        process.wait()


def test_an_ordinary_user_borrows_ports_and_death_leaves_nothing(
    engine: Path, site: Site, page: str, broker: tuple[Path, subprocess.Popen[str]], tmp_path: Path
) -> None:
    before = site.state()
    socket, daemon = broker
    work = socket.parent / "work"
    work.mkdir()
    os.chown(work, ORDINARY, ORDINARY)
    scenario = site.scenario(
        work, f"curl -sS -o /dev/null -w '%{{size_download}} %{{time_total}}' {page}; sleep 500", "500s", socket
    )
    # What the engine reads may lie in a folder that is its owner's only.
    cache = Path(os.environ.get("WINDTUNNEL_CACHE", Path.home() / ".cache/windtunnel"))
    ours = shutil.copytree(cache / "kernels", work / "cache/kernels").parent
    program = shutil.copy(engine, work / "windtunnel")
    user = (
        "setpriv",
        f"--reuid={ORDINARY}",
        f"--regid={ORDINARY}",
        "--clear-groups",
        "--no-new-privs",
        "--inh-caps=-all",
    )
    environment = ("env", f"WINDTUNNEL_CACHE={ours}", f"HOME={work}", f"XDG_RUNTIME_DIR={work}")
    command = site.command(site.host, *user, *environment, program, "run", scenario, "--out", work / "out", "--quiet")
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_table(site, run)
        end = time.monotonic() + PATIENCE_S
        log = work / "out/h1/sh-0.stdout"
        while not log.exists() or not log.read_text(encoding="utf-8").startswith(str(FILE_BYTES)):
            assert time.monotonic() < end and run.poll() is None
            time.sleep(0.1)
        daemon.kill()
        daemon.wait()
        while (after := site.state()) != before and time.monotonic() < end:
            time.sleep(0.1)
        assert after == before, "while the run goes on"
        time.sleep(0.5)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 130, errors
        print(log.read_text(encoding="utf-8"))
    finally:
        run.kill()
        run.wait()
    warnings = json.loads((work / "out/summary.json").read_text(encoding="utf-8"))["warnings"]
    assert any("the broker has ended" in warning["text"] for warning in warnings), warnings


def test_a_program_is_attached_to_the_hosts_addresses_of_ipv6(engine: Path, site: Site, tmp_path: Path) -> None:
    """Its router is known by a link-local address, as routers are that announce themselves; the peer is behind it."""
    (tmp_path / "page").write_text("over IPv6\n", encoding="ascii")
    for name, address in ((site.host, "2001:db8::7/64"), (site.peer, "2001:db8:1::1/128")):
        site.run(name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.eth0.accept_dad=0")
        site.run(name, "ip", "address", "add", address, "dev", "eth0", "nodad")
    site.run(site.peer, "ip", "address", "add", "fe80::1/64", "dev", "eth0", "nodad")
    site.run(site.peer, "ip", "route", "add", "2001:db8::/64", "dev", "eth0")
    site.run(site.host, "ip", "route", "add", "default", "via", "fe80::1", "dev", "eth0")
    site.run(site.host, "ip", "address", "delete", f"{HOST}/24", "dev", "eth0")
    end = time.monotonic() + PATIENCE_S
    while site.run(site.host, "ping", "-c", "1", "-W", "1", "2001:db8:1::1", check=False).returncode != 0:
        assert time.monotonic() < end
    before = site.state()
    words = ("python3", "-u", "-m", "http.server", "8000", "--bind", "::", "-d", tmp_path)
    server = subprocess.Popen(
        site.command(site.peer, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        assert "8000" in server.stdout.readline()
        # Longer than a neighbour counts as reachable, so it is asked again.
        script = "curl -sS http://[2001:db8:1::1]:8000/page; sleep 1; curl -sS http://[2001:db8:1::1]:8000/page"
        options = ("--mode", "raw", "--sysctl", "net.ipv6.neigh.eth0.base_reachable_time_ms=200")
        done = site.run(site.host, engine, "attach", *options, "--", "sh", "-c", script, check=False)
        assert (done.returncode, done.stdout) == (0, "over IPv6\nover IPv6\n"), done.stderr
        assert "address 2001:db8::7, the host's own on eth0" in done.stderr
    finally:
        server.kill()
        log = server.communicate()[1]
    assert log.count("2001:db8::7 - - ") == 2, log
    assert site.state() == before
    assert site.run(site.peer, "nft", "list", "ruleset").stdout.count("packets 0 ") == 2


def test_an_attached_kernel_follows_the_hosts_addresses_and_routes(engine: Path, site: Site, page: str) -> None:
    """While a program runs: the default route, an address that comes, one that goes, also of IPv6."""

    def ip(*words: str) -> None:
        site.run(site.host, "ip", *words)

    site.run(site.host, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0")
    ip("address", "add", "2001:db8::7/64", "dev", "eth0", "nodad")
    ip("route", "add", "default", "via", PEER)
    before = site.state()
    name = f"follows-{os.getpid()}"
    first = subprocess.Popen(
        site.command(
            site.host, engine, "attach", "--mode", "raw", "--name", name, "--", "sh", "-c", "echo ready; read line"
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def inside(*words: str) -> str:
        return site.run(site.host, engine, "attach", "--quiet", "--name", name, "--", *words, check=False).stdout

    def wait_for(holds: Callable[[str], bool], *look: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds(shown := inside(*look)):
            assert time.monotonic() < end and first.poll() is None, shown

    addresses = ("ip", "-brief", "address", "show", "eth0")
    fetch = ("curl", "-sS", "-m", "10", "-o", "/dev/null", "-w", "%{size_download} %{local_ip}", page)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        assert f"default via {PEER} " in inside("ip", "route")
        ip("route", "replace", "default", "via", "192.0.2.77")
        wait_for(lambda shown: "default via 192.0.2.77 " in shown and PEER not in shown, "ip", "route")
        ip("route", "add", "2001:db8:5::/48", "via", "2001:db8::9")
        wait_for(lambda shown: "2001:db8:5::/48 via 2001:db8::9 " in shown, "ip", "-6", "route")
        # The port takes the new address too, and no longer the old one.
        ip("address", "add", "192.0.2.9/24", "dev", "eth0")
        ip("address", "add", "2001:db8::8/64", "dev", "eth0", "nodad")
        ip("address", "delete", "2001:db8::7/64", "dev", "eth0")
        wait_for(lambda shown: "192.0.2.9/24" in shown and "2001:db8::7/" not in shown, *addresses)
        assert "2001:db8::8/64" in inside(*addresses)
        assert inside(*fetch) == f"{FILE_BYTES} {HOST}"
        assert inside(*fetch, "--interface", "192.0.2.9") == f"{FILE_BYTES} 192.0.2.9"
        # With the first address of a subnet Linux takes the others away.
        ip("address", "delete", f"{HOST}/24", "dev", "eth0")
        ip("address", "add", "192.0.2.9/24", "dev", "eth0")
        wait_for(lambda shown: "192.0.2.9/24" in shown and f"{HOST}/" not in shown, *addresses)
        assert inside(*fetch) == f"{FILE_BYTES} 192.0.2.9"
    finally:
        _, said = first.communicate("go on\n", timeout=PATIENCE_S)
    assert first.returncode == 0 and "warning" not in said, said
    # As the test has changed it.
    ip("address", "delete", "192.0.2.9/24", "dev", "eth0")
    ip("address", "delete", "2001:db8::8/64", "dev", "eth0")
    ip("address", "add", f"{HOST}/24", "dev", "eth0")
    ip("address", "add", "2001:db8::7/64", "dev", "eth0", "nodad")
    ip("route", "add", "default", "via", PEER)
    assert site.state() == before


def test_a_program_is_attached_to_the_hosts_address(engine: Path, site: Site, page: str) -> None:
    before = site.state()
    curl = ("curl", "-sS", "-o", "/dev/null", "-w", "%{size_download} %{local_ip} %{local_port}", page)
    site.run(site.host, "ip", "route", "add", "default", "via", PEER)
    for options in (("--ports", "40000-40009"), ()):
        done = site.run(site.host, engine, "attach", "--mode", "raw", *options, "--", *curl, check=False)
        assert done.returncode == 0, done.stderr
        size, address, port = done.stdout.split()
        assert (int(size), address) == (FILE_BYTES, HOST)
        assert not options or 40_000 <= int(port) <= 40_009
        assert "the host's own on eth0" in done.stderr
    site.run(site.host, "ip", "route", "delete", "default")
    assert site.state() == before
    assert site.run(site.peer, "nft", "list", "ruleset").stdout.count("packets 0 ") == 2
