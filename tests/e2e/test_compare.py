# SPDX-License-Identifier: GPL-2.0-or-later
"""`windtunnel compare`: runs beside each other, and beside the same transfer on the host's own kernel."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Program
from scenarios import Mapping

Attempt = Callable[..., Program]
BYTES = 300_000
# Equal payload in every run, from a port that is always the same.
SERVER = f"""
import socket
listener = socket.create_server(("10.0.0.2", 80))
peer, _ = listener.accept()
count = 0
while data := peer.recv(65536):
    count += len(data)
assert count == {BYTES}, count
"""
CLIENT = f"""
import socket
peer = socket.create_connection(("10.0.0.2", 80), source_address=("10.0.0.1", 40000))
peer.sendall(bytes(range(250)) * {BYTES // 250})
peer.shutdown(socket.SHUT_WR)
peer.recv(1)
"""
HOST = """
set -e
mount -t tmpfs none /run
mkdir /run/netns
ip netns add server
ip link add eth0 type veth peer name eth0 netns server
ip addr add 10.0.0.1/24 dev eth0
ip -n server addr add 10.0.0.2/24 dev eth0
ip link set eth0 up
ip -n server link set eth0 up
ethtool -K eth0 tso off gso off gro off > /dev/null
nsenter --net=/run/netns/server ethtool -K eth0 tso off gso off gro off > /dev/null
echo prepared
tcpdump -Z root -i eth0 -U -w "$1" tcp 2> "$1.log" &
capture=$!
for _ in {1..100}; do grep -q listening "$1.log" && break; sleep 0.1; done
grep -q listening "$1.log"
nsenter --net=/run/netns/server python3 -c "$2" &
server=$!
for _ in {1..100}; do nsenter --net=/run/netns/server ss -tln | grep -q :80 && break; sleep 0.1; done
python3 -c "$3"
wait $server
sleep 1
kill $capture
wait $capture
"""


def transfer(loss: str = "0%") -> Mapping:
    return {
        "version": 1,
        "name": "transfer",
        "run": {"stop": "30s", "capture": "all"},
        "nodes": {
            "client": {
                "addresses": {"eth0": "10.0.0.1/24"},
                "processes": [
                    {"exec": ["python3", "-c", CLIENT], "start": "2s", "expect": 0},
                    {"exec": "ping -c 5 -i 0.2 10.0.0.2"},
                ],
            },
            "server": {
                "addresses": {"eth0": "10.0.0.2/24"},
                "processes": [{"exec": ["python3", "-c", SERVER], "start": "1s", "expect": 0}],
            },
        },
        "links": [
            {"endpoints": ["client:eth0", "server:eth0"], "both": {"rate": "100Mbit", "delay": "5ms", "loss": loss}}
        ],
    }


@pytest.fixture
def runner(attempt: Attempt, tmp_path: Path) -> Callable[..., Path]:
    def run(name: str, scenario: Mapping, *options: str) -> Path:
        file = tmp_path / f"{name}.yaml"
        file.write_text(json.dumps(scenario), encoding="utf-8")
        done = attempt("run", file, "--out", tmp_path / name, "--quiet", *options)
        assert done.code == 0, done
        return tmp_path / name

    return run


@pytest.fixture
def compare(attempt: Attempt) -> Callable[..., Mapping]:
    def run(a: Path, b: Path, *options: str | Path) -> Mapping:
        text, data = attempt("compare", a, b, *options), attempt("compare", a, b, "--json", *options)
        result: Mapping = json.loads(data.stdout)
        assert text.code == data.code == (0 if result["equal"] else 1), (text, data)
        assert text.stdout.splitlines()[-1].startswith("equal: " if result["equal"] else "different: ")
        return result

    return run


def test_runs_of_one_seed_are_identical(runner: Callable[..., Path], compare: Callable[..., Mapping]) -> None:
    a, b = runner("a", transfer("1%")), runner("b", transfer("1%"))
    found = compare(a, b, "--time-tolerance", "0s")
    (pair,) = found["connections"]
    assert found["equal"] and pair["first_difference"] is None
    assert pair["identical_prefix"] == pair["a"]["packets"] > 200
    assert pair["a"]["seen_at"] == "client-eth0" and pair["a"]["name"] == "10.0.0.1:40000 > 10.0.0.2:80"
    assert pair["time_difference_ms"]["min"] == pair["time_difference_ms"]["max"] == 0
    assert pair["a"]["metrics"]["client"]["acked_bytes"] == BYTES
    assert pair["a"]["metrics"]["client"]["retransmissions"] > 0
    # What the flows of the run say is what its capture says.
    (ping,) = found["flows"]
    assert ping["protocol"] == "echo" and ping["a"]["packets"] == [5, 5]


def test_another_loss_is_the_first_difference(
    runner: Callable[..., Path], compare: Callable[..., Mapping], attempt: Attempt
) -> None:
    a, b = runner("a", transfer()), runner("b", transfer("3%"), "--seed", "3")
    found = compare(a, b, "--connection", ":80")
    (pair,) = found["connections"]
    first = pair["first_difference"]
    assert not found["equal"] and 0 < pair["identical_prefix"] < pair["a"]["packets"]
    assert first["packet_a"] == pair["identical_prefix"] + 1 and first["fields"]
    assert pair["ratio"]["client"]["goodput"] < 1
    assert pair["b"]["metrics"]["client"]["retransmissions"] > pair["a"]["metrics"]["client"]["retransmissions"] == 0
    assert pair["client"]["additional"] > 0
    text = attempt("compare", a, b, "--connection", ":80").stdout
    assert f"first difference: packet {first['packet_a']}: {first['text']}" in text
    for field in first["fields"]:
        assert f"{field['field']}: A has {field['a']}, B has {field['b']}" in text


def test_a_capture_of_tcpdump_is_compared(
    runner: Callable[..., Path], compare: Callable[..., Mapping], tmp_path: Path
) -> None:
    """The same transfer on the host's kernel: how far it agrees is the kernels' matter, that it is found is ours."""
    if os.geteuid() != 0:
        pytest.skip("needs root: tcpdump gives up its privileges, which nobody can in a user namespace of one user")
    if missing := [name for name in ("tcpdump", "ethtool", "ip", "nsenter") if not shutil.which(name)]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    capture = tmp_path / "host.pcap"
    namespaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
    command = [*namespaces, "bash", "-c", HOST, "host", str(capture), SERVER, CLIENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if "prepared" not in done.stdout:
        pytest.skip(f"the host makes no network namespaces: {done.stderr.strip()}")
    assert done.returncode == 0, done
    run = runner("a", transfer())
    accepted = "push,window,window-scale,timestamps,order"
    found = compare(run, capture, "--connection", ":80", "--ignore", accepted, "--timestamp-tolerance", "1")
    (pair,) = found["connections"]
    assert pair["matched_by"] == "ports"
    assert pair["identical_prefix"] >= 3, pair["first_difference"]
    for side in (pair["a"], pair["b"]):
        assert side["metrics"]["client"]["acked_bytes"] == BYTES
        assert side["metrics"]["client"]["larger_than_mss"] == 0
    assert pair["a"]["metrics"]["handshake_ms"] == pytest.approx(10, rel=0.01)
    assert found["unmatched"] == {"a": [], "b": []}
    assert found["b"]["warnings"] == []


def test_the_schema_fits(runner: Callable[..., Path], compare: Callable[..., Mapping], attempt: Attempt) -> None:
    schema = json.loads(attempt("schema", "compare").stdout)
    a = runner("a", transfer())
    found = compare(a, a)
    assert set(found) == set(schema["required"])
    assert set(found["connections"][0]) == set(schema["$defs"]["Pair"]["properties"])


def test_a_picture_of_both(runner: Callable[..., Path], attempt: Attempt, study_python: Path, tmp_path: Path) -> None:
    a, b = runner("a", transfer("1%")), runner("b", transfer("1%"), "--seed", "3")
    pictures = [tmp_path / f"{name}.svg" for name in "12"]
    for picture in pictures:
        done = attempt("compare", a, b, "--json", "--plot", picture, WINDTUNNEL_PYTHON=str(study_python))
        assert done.code == 1 and json.loads(done.stdout), done
    first, second = (picture.read_bytes() for picture in pictures)
    assert first == second and first.startswith(b"<?xml")


def test_what_cannot_be_compared_is_told(runner: Callable[..., Path], attempt: Attempt, tmp_path: Path) -> None:
    scenario = transfer()
    a = runner("a", scenario)
    scenario["run"]["capture"] = "none"
    without = runner("b", scenario)
    text = tmp_path / "notes.txt"
    text.write_text("these are notes of mine\n", encoding="utf-8")
    for options, what, hint in [
        ((a, without), f"error: the run in {without} has no captures", "capture: all"),
        ((a, tmp_path / "none"), f"error: cannot read {tmp_path / 'none'}", "No such file"),
        ((a, text), "starts with the bytes 74 68 65 73", "neither pcap nor pcapng"),
        ((a, a, "--at", "client:eth7"), "no capture of client:eth7", "client-eth0, server-eth0"),
        ((text, text, "--at", "client:eth0"), "neither A nor B is one", "leave it out"),
        ((a, a, "--connection", ":99"), "no connection of either has `:99`", "hint: "),
        ((a, a, "--plot", "x.gif"), "`x.gif` is no name of a picture", ".png, .svg, .pdf"),
    ]:
        done = attempt("compare", *options)
        assert done.code == 2 and done.stdout == "", done
        assert what in done.stderr and hint in done.stderr, done
