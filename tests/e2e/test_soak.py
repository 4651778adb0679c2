# SPDX-License-Identifier: GPL-2.0-or-later
"""Two hundred programs of the examples' kinds for an hour of virtual time: nothing grows, and all is the same twice.

       h1 .. h10, each on a cable of its own ---- r1 ---- r2 ---- h11 .. h20          r1, r2: FRR's zebra and ospfd

Every host pings, and asks servers on the other side, from shells that fork for it. Loads are mostly idle, so that the
hour takes minutes. What the engine takes of its host is sampled on the way: memory (of programs, nodes and engine),
mappings, open files.
"""

import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from scenarios import Mapping, scenario
from simulate import Simulation, simulate

SECONDS = int(os.environ.get("WINDTUNNEL_SOAK_SECONDS", "3600"))
SIDE = 10
PROGRAMS = 200
MIB = 1 << 20
# The first half of the run is warm-up: caches of the nodes' kernels fill, collectors find their heap's size.
WARM = 0.5

NGINX = """
worker_processes 2;
daemon off;
pid /run/nginx.pid;
error_log stderr notice;
events { worker_connections 64; }
http { access_log off; server { listen 80; root /srv; } }
"""
OSPF = """
interface eth0
 ip ospf network point-to-point
router ospf
 network 10.0.0.0/8 area 0
"""
NODE_SERVER = """
require("http").createServer((request, response) => response.end("hello\\n")).listen(8080);
"""
JAVA_SERVER = """
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;

public class Hello {
    public static void main(String[] arguments) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(8080), 0);
        server.createContext("/", exchange -> {
            exchange.sendResponseHeaders(200, 6);
            exchange.getResponseBody().write("hello\\n".getBytes());
            exchange.close();
        });
        server.start();
    }
}
"""
PYTHON_CLIENT = """
import sys, threading, time, urllib.request

def ask(answers):
    answers.append(urllib.request.urlopen(sys.argv[1]).read())

while True:
    time.sleep(20)
    answers = []
    threads = [threading.Thread(target=ask, args=(answers,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 3, answers
"""
SSH_CONFIG = """
HostKey /etc/ssh/node_key
PermitRootLogin yes
PermitEmptyPasswords yes
UsePAM no
"""


def every(seconds: int, command: str) -> Mapping:
    """A shell that forks for a command again and again, and ends when that fails."""
    script = f'set -e; n=0; while sleep {seconds}; do answer=$({command}); test -n "$answer"; n=$((n + 1)); done'
    return {"exec": ["bash", "-c", script], "start": "60s", "expect": "running"}


def server(command: str, start: str = "2s", **env: str) -> Mapping:
    return {"exec": command, "start": start, "env": env, "expect": "running"}


def address(number: int) -> str:
    """Of host `number`, counted from 1."""
    return f"10.0.{number}.2"


def host(number: int) -> Mapping:
    """What all hosts do: three pings, three shells, a sleeper, and one that talks to a Python server opposite."""
    other = (number + SIDE - 1) % (2 * SIDE) + 1
    near = number % (2 * SIDE) + 1
    ping = {"start": "60s", "expect": "running"}
    return {
        "memory": "128MiB",
        "addresses": {"eth0": f"{address(number)}/24"},
        "routes": [f"default via 10.0.{number}.1"],
        "files": {"/srv/index.html": {"content": "hello\n"}, "/srv/client.py": {"content": PYTHON_CLIENT}},
        "processes": [
            {"exec": f"ping -q -i 1 {address(other)}", **ping},
            {"exec": f"ping -q -i 2 {address(near)}", **ping},
            {"exec": f"ping -q -i 5 -s 1400 10.0.{other}.1", **ping},
            every(30 + number, f"curl -sS http://{address(other)}:8000/index.html"),
            every(40 + number, "seq 20 | sort -rn | (read first; echo $first; cat >/dev/null)"),
            every(60 + number, "ls /proc/self/fd /tmp; date > /tmp/now; cat /tmp/now"),
            {"exec": f"python3 /srv/client.py http://{address(other)}:8000/", "start": "60s", "expect": "running"},
            server("python3 -m http.server --directory /srv 8000"),
            {"exec": f"sleep {SECONDS + 100}", "expect": "running"},
        ],
    }


def router(number: int) -> Mapping:
    first = (number - 1) * SIDE + 1
    cables = {f"eth{i + 1}": f"10.0.{first + i}.1/24" for i in range(SIDE)}
    return {
        "kind": "router",
        "memory": "128MiB",
        "addresses": {"eth0": f"10.1.0.{number}/24", **cables},
        "files": {"/etc/frr/ospfd.conf": {"content": OSPF}},
        "setup": ["install -d -o frr -g frr /run/frr"],
        "processes": [
            server("/usr/lib/frr/zebra -f /dev/null", "500ms"),
            server("/usr/lib/frr/ospfd -f /etc/frr/ospfd.conf", "1s"),
        ],
    }


def add_servers(nodes: Mapping) -> None:
    """Servers on the hosts of the first router, a client of each on the other side."""

    def put(number: int, servers: list[Mapping], client: Mapping, **files: Mapping) -> None:
        nodes[f"h{number}"]["processes"] += servers
        nodes[f"h{number}"]["files"] |= files
        nodes[f"h{number + SIDE}"]["processes"].append(client)

    put(
        1,
        [server("nginx")],
        every(15, f"curl -sS http://{address(1)}/"),
        **{"/etc/nginx/nginx.conf": {"content": NGINX}},
    )
    redis = server("redis-server --protected-mode no --save '' --appendonly no")
    put(2, [redis], every(15, f"redis-cli -h {address(2)} INCR count"))
    put(3, [server("iperf3 --server")], every(600, f"iperf3 --client {address(3)} --time 1 --bitrate 10M"))
    js = {"/srv/server.js": {"content": NODE_SERVER}}
    put(4, [server("node /srv/server.js")], every(60, f"curl -sS http://{address(4)}:8080/"), **js)
    java = server("java -Xms32m -Xmx32m -XX:+UseSerialGC /srv/Hello.java")
    put(5, [java], every(60, f"curl -sS http://{address(5)}:8080/"), **{"/srv/Hello.java": {"content": JAVA_SERVER}})
    sshd = server("/usr/sbin/sshd -D -e")
    put(6, [sshd], every(300, f"ssh -o StrictHostKeyChecking=accept-new {address(6)} hostname"))
    nodes["h6"]["files"]["/etc/ssh/sshd_config"] = {"content": SSH_CONFIG}
    nodes["h6"]["files"]["/etc/shadow"] = {"content": "root::20000::::::\n", "mode": "600"}
    nodes["h6"]["setup"] = ["mkdir -p /run/sshd", "ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/node_key"]


def soak() -> Mapping:
    nodes: Mapping = {f"h{number}": host(number) for number in range(1, 2 * SIDE + 1)}
    nodes |= {f"r{number}": router(number) for number in (1, 2)}
    add_servers(nodes)
    links = [
        {"endpoints": [f"h{number}:eth0", f"r{(number - 1) // SIDE + 1}:eth{(number - 1) % SIDE + 1}"]}
        for number in range(1, 2 * SIDE + 1)
    ]
    links.append({"endpoints": ["r1:eth0", "r2:eth0"]})
    cables = [link | {"both": {"rate": "1Gbit", "delay": "1ms"}} for link in links]
    started = sum(len(node["processes"]) for node in nodes.values())
    for number in range(PROGRAMS - started):
        nodes[f"h{number % (2 * SIDE) + 1}"]["processes"].append(
            {"exec": f"sleep {SECONDS + 100}", "expect": "running"}
        )
    return scenario(nodes, cables, f"{SECONDS}s")


@dataclass(frozen=True)
class Sample:
    """What the engine takes of the host at one moment."""

    memory_bytes: int
    mappings: int
    files: int


def take_sample(pid: int) -> Sample | None:
    """None: it is not there any more."""
    folder = Path(f"/proc/{pid}")
    try:
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        own = sum(int(status[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))
        mappings = (folder / "maps").read_bytes().count(b"\n")
        return Sample(own, mappings, len(list((folder / "fd").iterdir())))
    except (OSError, KeyError):
        return None


@dataclass(frozen=True)
class Soaked:
    """A run and its samples, at even intervals of the host's time."""

    result: Simulation
    samples: list[Sample]

    def typical(self, start: float, end: float, of: Callable[[Sample], int]) -> float:
        """The median between two parts of the run."""
        count = len(self.samples)
        return statistics.median(of(sample) for sample in self.samples[int(count * start) : int(count * end)])


def run_soak(engine: Path, folder: Path) -> Soaked:
    samples: list[Sample] = []

    def watch(pid: int) -> None:
        while sample := take_sample(pid):
            samples.append(sample)
            time.sleep(0.25)

    return Soaked(simulate(engine, soak(), folder, watch=watch), samples)


@pytest.mark.full
def test_nothing_grows_in_an_hour(engine: Path, tmp_path: Path) -> None:
    runs = [run_soak(engine, tmp_path / name) for name in ("first", "second")]
    for run in runs:
        summary = run.result.summary
        assert len(summary["processes"]) >= PROGRAMS
        assert not summary["failed_expectations"], json.dumps(summary["failed_expectations"], indent=1)
        warnings = Counter(row["code"] for row in summary["warnings"])
        assert set(warnings) <= {"late_start", "unsupported_call"}, warnings
        assert len(run.samples) > 40, "too short to tell"

        def growth(of: Callable[[Sample], int], run: Soaked = run) -> float:
            return run.typical(0.9, 1, of) - run.typical(WARM, WARM + 0.1, of)

        figures = {
            "memory, MiB": growth(lambda sample: sample.memory_bytes) / MIB,
            "mappings": growth(lambda sample: sample.mappings),
            "files": growth(lambda sample: sample.files),
        }
        print(figures, "of", run.samples[-2])
        assert figures["memory, MiB"] < 0.02 * run.typical(0.9, 1, lambda sample: sample.memory_bytes) / MIB, figures
        assert figures["mappings"] < 0.01 * run.typical(0.9, 1, lambda sample: sample.mappings), figures
        assert figures["files"] < 10, figures
    assert runs[0].result.summary["digest"] == runs[1].result.summary["digest"]
