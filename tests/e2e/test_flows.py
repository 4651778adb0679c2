# SPDX-License-Identifier: GPL-2.0-or-later
"""flows.csv and the capture of a whole run: they agree with the links, with tools of others, and change nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import windtunnel as wt
from scenarios import pair
from simulate import Simulation

LINK = {"rate": "10Mbit", "delay": "5ms", "queue": "20p"}
BYTES = 2_000_000
PATIENCE_S = 60
SEND = f"import socket; s = socket.create_connection(('10.0.0.2', 5201)); s.sendall(bytes({BYTES})); s.close()"
TAKE = """
import socket
listener = socket.create_server(("", 5201))
peer = listener.accept()[0]
while peer.recv(65536):
    pass
"""
UPLOAD = {"exec": ["python3", "-c", SEND], "start": "1s"}
SERVER = {"exec": ["python3", "-c", TAKE]}


def test_flows_agree_with_the_link_and_change_nothing(run: Callable[..., Simulation]) -> None:
    scenario = pair([UPLOAD, {"exec": "ping -c 3 -i 0.2 10.0.0.2"}], [SERVER], LINK, stop="60s")
    plain, measured, again = run(scenario), run(scenario, ["--measure", "1s"]), run(scenario, ["--measure", "100ms"])
    assert plain.summary == measured.summary and not (plain.out / "flows.csv").exists()
    assert (measured.out / "flows.csv").read_bytes() == (again.out / "flows.csv").read_bytes()
    flows = wt.Results(measured.out).flows()
    assert flows["first_ns"] == sorted(flows["first_ns"])
    (data,) = tcp = flows.where(protocol="tcp").rows()
    assert (data["seen_at"], data["source"], data["destination"]) == ("h1:eth0", "10.0.0.1", "10.0.0.2")
    assert data["destination_port"] == 5201 and data["a_to_b_goodput_bytes"] == BYTES
    of_h1 = {"h1:eth0": "a_to_b", "h2:eth0": "b_to_a"}
    dropped = sum(row[f"{of_h1[row['seen_at']]}_dropped_frames"] for row in flows)
    assert dropped == measured.summary["links"][0]["a_to_b"]["drops"]["queue_full"]
    assert 0 < data["a_to_b_dropped_frames"] <= dropped
    assert data["a_to_b_retransmitted_segments"] >= data["a_to_b_dropped_frames"]
    assert data["a_to_b_payload_bytes"] > BYTES
    assert data["b_to_a_goodput_bytes"] == 0 and data["b_to_a_retransmitted_segments"] == 0
    assert data["a_to_b_tcp_flags"] == data["b_to_a_tcp_flags"] == "SYN|FIN"
    (ping,) = flows.where(protocol="icmp").rows()
    assert (ping["a_to_b_frames"], ping["b_to_a_frames"], ping["a_to_b_goodput_bytes"]) == (3, 3, None)
    # What is left is ARP and IPv6's own.
    link = measured.summary["links"][0]
    for direction in ("a_to_b", "b_to_a"):
        counted = sum(row[f"{direction}_frames"] for row in tcp) + 3
        assert 0 <= link[direction]["frames"] - counted < 30


def test_a_router_does_not_count_again(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDTUNNEL_PROGRAM", str(engine))
    net = wt.Network(seed=1)
    h1, r1, h2 = net.add_node("h1"), net.add_router("r1"), net.add_node("h2")
    net.add_link(h1, r1, rate="10Mbit", delay="5ms")
    net.add_link(r1, h2, rate="10Mbit", delay="5ms")
    with net.run(out=tmp_path / "out", measure="1s"):
        h1.cmd("ping -c 4 h2")
    # Neighbour discovery is between neighbours.
    echoes = wt.Results(tmp_path / "out").flows().filter(lambda row: row["b_to_a_frames"] == 4)
    assert echoes["seen_at"] == ["h1:eth0"] and echoes["protocol"][0] in ("icmp", "icmpv6")
    assert (echoes["a_to_b_frames"], echoes["b_to_a_frames"]) == ([4], [4])


def captured(run: Callable[..., Simulation]) -> Simulation:
    scenario = pair([UPLOAD], [SERVER], LINK, stop="60s")
    scenario["run"]["capture"] = "all"
    return run(scenario)


def tshark(path: Path, *fields: str) -> list[list[str]]:
    wanted = [word for field in fields for word in ("-e", field)]
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not on this host; scripts/setup-system examples runtimes installs it")
    command: list[str | Path] = ["tshark", "-n", "-r", path, "-T", "fields", *wanted]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_one_capture_has_all_frames_in_order(engine: Path, run: Callable[..., Simulation], tmp_path: Path) -> None:
    result = captured(run)
    first, second = tmp_path / "run.pcapng", tmp_path / "again.pcapng"
    done = subprocess.run(
        [engine, "export", result.out, "--pcapng", first], check=True, stdout=subprocess.PIPE, text=True
    )
    frames = wt.Results(result.out).write_pcapng(second)
    assert done.stdout == f"{first}: {frames} frames\n"
    assert first.read_bytes() == second.read_bytes() and not list(tmp_path.glob("*.tmp"))
    rows = tshark(first, "frame.time_epoch", "frame.interface_name", "frame.len")
    assert len(rows) == frames
    assert {row[1] for row in rows} == {"h1:eth0", "h2:eth0"}
    times = [row[0] for row in rows]
    assert times == sorted(times)
    for name in ("h1", "h2"):
        alone = tshark(result.out / f"pcap/{name}-eth0.pcap", "frame.time_epoch", "frame.len")
        assert alone == [[time, length] for time, interface, length in rows if interface == f"{name}:eth0"]
    assert f"seed 1, digest {result.summary['digest']}".encode() in first.read_bytes()


def test_a_run_leaves_one_capture_if_it_is_asked_to(
    engine: Path, run: Callable[..., Simulation], tmp_path: Path
) -> None:
    ping = [{"exec": "ping -c 2 10.0.0.2"}]
    plain = run(pair(ping, [], LINK, stop="5s"))
    scenario = pair(ping, [], LINK, stop="5s")
    by_option = run(scenario, ["--pcapng"])
    scenario["run"]["pcapng"] = True
    by_scenario = run(scenario)
    scenario["nodes"]["h1"]["interfaces"] = {"eth0": {"capture": True}}
    of_one = run(scenario)
    assert plain.summary == by_option.summary == by_scenario.summary == of_one.summary
    assert not (plain.out / "run.pcapng").exists() and not list(by_option.out.glob("*.tmp"))
    again = tmp_path / "again.pcapng"
    frames = wt.Results(by_option.out).write_pcapng(again)
    assert frames > 0 and (by_option.out / "run.pcapng").read_bytes() == again.read_bytes()
    assert (by_scenario.out / "run.pcapng").read_bytes() == again.read_bytes()
    assert [path.name for path in (of_one.out / "pcap").iterdir()] == ["h1-eth0.pcap"]
    # It is a result as any other: the next run in this folder removes it.
    path = tmp_path / "plain.yaml"
    path.write_text(json.dumps(pair(ping, [], LINK, stop="5s")), encoding="utf-8")
    command: list[str | Path] = [engine, "run", path, "--out", by_option.out, "--quiet", "--force"]
    subprocess.run(command, check=True)
    assert not (by_option.out / "run.pcapng").exists()
    # Without Python, all else is there.
    env = {**os.environ, "WINDTUNNEL_PYTHON": str(tmp_path / "none")}
    done = subprocess.run([*command, "--pcapng"], env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 2 and "WINDTUNNEL_PYTHON" in done.stderr
    assert wt.Results(by_option.out).summary["digest"] == plain.summary["digest"]


def test_an_interrupted_run_leaves_one_capture_too(engine: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "scenario.yaml", tmp_path / "out"
    ping = {"exec": "ping -i 0.001 10.0.0.2", "expect": "any"}
    path.write_text(json.dumps(pair([ping], [], LINK, stop="1000h")), encoding="utf-8")
    process = subprocess.Popen([engine, "run", path, "--out", out, "--quiet", "--pcapng"])
    deadline_s = time.monotonic() + PATIENCE_S
    printed = out / "h1/ping-0.stdout"
    while not printed.exists() or printed.stat().st_size < 10_000:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    again = tmp_path / "again.pcapng"
    assert wt.Results(out).write_pcapng(again) > 10
    assert (out / "run.pcapng").read_bytes() == again.read_bytes()


def test_what_cannot_be_exported_is_said(engine: Path, run: Callable[..., Simulation], tmp_path: Path) -> None:
    def refused(*arguments: str | Path) -> str:
        done = subprocess.run([engine, "export", *arguments], check=False, capture_output=True, text=True)
        assert done.returncode == 2
        return done.stderr

    plain = run(pair([], [], LINK, stop="1s"))
    out = tmp_path / "run.pcapng"
    assert "there is nothing to write" in refused(plain.out)
    assert "has no captures" in refused(plain.out, "--pcapng", out)
    assert "there is no folder" in refused(tmp_path / "none", "--pcapng", out)
    result = captured(run)
    assert "cannot write" in refused(result.out, "--pcapng", tmp_path / "none/run.pcapng")
    pcap = result.out / "pcap/h1-eth0.pcap"
    pcap.write_bytes(pcap.read_bytes()[:-1])
    assert "ends within a frame" in refused(result.out, "--pcapng", out)
    pcap.write_bytes(b"x")
    assert "its header is another" in refused(result.out, "--pcapng", out)
    assert list(tmp_path.glob("*.pcapng*")) == []


def test_all_tables_become_parquet(
    run: Callable[..., Simulation], engine: Path, study_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDTUNNEL_PYTHON", str(study_python))
    result = run(pair([{"exec": "ping -c 3 10.0.0.2"}], [], LINK, stop="9s"), ["--measure", "1s"])
    done = subprocess.run(
        [engine, "export", result.out, "--parquet", tmp_path / "tables"], check=True, stdout=subprocess.PIPE, text=True
    )
    names = [Path(line.partition(": ")[0]).name for line in done.stdout.splitlines()]
    tables = ("events", "flows", "links", "mptcp", "processes", "qdiscs", "tcp")
    assert names == [f"{table}.parquet" for table in tables]
    script = "import json, polars, sys; print(json.dumps(polars.read_parquet(sys.argv[1]).to_dict(as_series=False)))"
    command: list[str | Path] = [study_python, "-c", script, tmp_path / "tables/links.parquet"]
    loaded: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert loaded == wt.Results(result.out).links().to_dict()
