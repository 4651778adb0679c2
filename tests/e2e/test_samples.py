# SPDX-License-Identifier: GPL-2.0-or-later
"""Samples of TCP, MPTCP and queueing disciplines: they are what tools print, and a run with them is the run without."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from scenarios import pair, scenario
from simulate import Simulation

Row = dict[str, str]
KINDS = ("links", "tcp", "mptcp", "qdiscs")
LINK = {"rate": "20Mbit", "delay": "10ms", "queue": "nic"}
CLIENT = {"exec": "iperf3 -c 10.0.0.2 -t 3", "start": "1s", "expect": "any"}
SERVER = {"exec": "iperf3 -s -1", "expect": "any"}


def rows(result: Simulation, kind: str) -> list[Row]:
    with (result.out / f"{kind}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def transfer(**run: Any) -> dict[str, Any]:
    """iperf3 through fq_codel, for three seconds."""
    made = pair([CLIENT], [SERVER], LINK, stop="6s", **run)
    made["nodes"]["h1"]["setup"] = ["tc qdisc replace dev eth0 root handle 1: fq_codel"]
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", ["plain", "cpu", "isolate"])
def test_a_sampled_run_is_the_run(run: Callable[..., Simulation], kind: str, variant: str) -> None:
    """Also where kernels are asked while their CPU is busy, and where their memory is closed between entries."""
    summaries = []
    for measure in ({}, {"measure": {kind: "1ms"}}):
        made = transfer(isolate=variant == "isolate", **measure)
        if variant == "cpu":
            made["defaults"] = {"node": {"cpu": {"syscall": "20us", "copy": "5ns/B"}}}
        result = run(made)
        summaries.append((result.out / "summary.json").read_bytes())
        for other in KINDS:
            assert (result.out / f"{other}.csv").exists() == bool(measure and other == kind)
    assert summaries[0] == summaries[1]
    if kind != "mptcp":
        assert len(rows(result, kind)) > 1000


@pytest.mark.parametrize("example", ["10-mptcp", "09-wireguard"])
def test_a_sampled_example_is_the_example(engine: Path, tmp_path: Path, example: str) -> None:
    summaries = []
    for options in ([], ["--measure", "10ms"]):
        out = tmp_path / f"out{len(options)}"
        command: list[str | Path] = [
            engine,
            "run",
            ROOT / f"examples/{example}.yaml",
            "--out",
            out,
            "--quiet",
            *options,
        ]
        subprocess.run(command, check=True)
        summaries.append((out / "summary.json").read_bytes())
        for kind in KINDS:
            assert (out / f"{kind}.csv").exists() == bool(options)
    assert summaries[0] == summaries[1]


def ss_value(line: str, name: str) -> str:
    """What `ss -i` prints as name:value or as name value; 0 where it prints nothing."""
    found = re.search(rf"(?:^|\s){name}[: ](\S+)", line)
    return found.group(1) if found else "0"


@pytest.mark.parametrize("control", ["cubic", "bbr", "dctcp", "vegas"])
def test_a_sample_is_what_ss_prints_at_that_time(run: Callable[..., Simulation], control: str) -> None:
    """A link that is down keeps a connection as it is, with packets in flight, lost and sent again."""
    client = {"exec": f"iperf3 -c 10.0.0.2 -t 5 -C {control}", "start": "1s", "expect": "any"}
    show = {"exec": "ss -tinHO dport = 5201", "start": "3050ms", "expect": 0}
    made = pair([client, show], [SERVER], LINK, stop="4s", measure={"tcp": "50ms"})
    made["events"] = [{"at": "2500ms", "link": ["h1", "h2"], "down": True}]
    result = run(made)
    sampled = {
        row["local_port"]: row for row in rows(result, "tcp") if (row["time_ns"], row["node"]) == ("3050000000", "h1")
    }
    printed = result.stdout("h1", 1).splitlines()
    assert len(sampled) == len(printed) == 2, (sampled, printed)
    for line in printed:
        local, remote = re.findall(r"(\d+\.\d+\.\d+\.\d+:\d+)\s", line)[:2]
        row = sampled[local.split(":")[1]]
        assert f"{row['local_address']}:{row['local_port']}" == local
        assert f"{row['remote_address']}:{row['remote_port']}" == remote
        assert row["congestion_control"] in line.split()
        for column, name in (
            ("cwnd_packets", "cwnd"),
            ("ssthresh_packets", "ssthresh"),
            ("mss_bytes", "mss"),
            ("unacked_packets", "unacked"),
            ("lost_packets", "lost"),
            ("sacked_packets", "sacked"),
            ("bytes_acked", "bytes_acked"),
            ("bytes_sent", "bytes_sent"),
            ("bytes_retransmitted", "bytes_retrans"),
            ("bytes_received", "bytes_received"),
            ("not_sent_bytes", "notsent"),
        ):
            assert int(row[column] or "0") == int(ss_value(line, name)), (column, row, line)
        for column, name in (("pacing_rate_bps", "pacing_rate"), ("delivery_rate_bps", "delivery_rate")):
            assert int(row[column]) == int(ss_value(line, name).removesuffix("bps")), (column, row, line)
        srtt, rttvar = ss_value(line, "rtt").split("/")
        assert (f"{int(row['srtt_us']) / 1000:g}", f"{int(row['rttvar_us']) / 1000:g}") == (srtt, rttvar)
        assert f"{int(row['min_rtt_us']) / 1000:g}" == ss_value(line, "minrtt")
        assert f"{int(row['rto_us']) / 1000:g}" == ss_value(line, "rto")
        out, total = (ss_value(line, "retrans") if "retrans:" in line.replace("bytes_retrans:", "") else "0/0").split(
            "/"
        )
        assert (row["retransmitted_packets"], row["retransmits_total"]) == (out, total), (row, line)
        queues = [int(word) for word in line.split()[1:3]]
        assert queues == [int(row["recv_queue_bytes"]), int(row["send_queue_bytes"])]
    data = max(sampled.values(), key=lambda row: int(row["bytes_sent"]))
    assert int(data["unacked_packets"]) > 0 and int(data["retransmits_total"]) > 0
    internals = json.loads(data["internals"] or "{}")
    expected = {"bbr": "bandwidth_bps", "dctcp": "alpha", "vegas": "min_rtt_us"}.get(control)
    assert expected in internals if expected else not internals


def test_qdiscs_are_what_tc_prints_at_that_time(run: Callable[..., Simulation]) -> None:
    """A link that is down holds packets in the queue: they do not change any more."""
    show = {"exec": "tc -s -j qdisc show", "start": "3050ms", "expect": 0}
    made = pair([{**CLIENT, "exec": "iperf3 -c 10.0.0.2 -u -b 50M -t 1"}, show], [SERVER], LINK, stop="4s")
    made["run"]["measure"] = {"qdiscs": "50ms"}
    made["nodes"]["h1"]["setup"] = [
        "tc qdisc replace dev eth0 root handle 1: tbf rate 5mbit burst 5kb latency 50ms",
        "tc qdisc add dev eth0 parent 1:1 handle 2: codel limit 20",
    ]
    result = run(made)
    sampled = [row for row in rows(result, "qdiscs") if (row["time_ns"], row["node"]) == ("3050000000", "h1")]
    printed = [row for row in json.loads(result.stdout("h1", 1)) if row["kind"] != "noqueue"]
    assert [row["kind"] for row in sampled] == [row["kind"] for row in printed] == ["tbf", "codel"]
    for row, told in zip(sampled, printed, strict=True):
        assert row["interface"] == told["dev"] == "eth0"
        assert (row["handle"], row["parent"]) == (told["handle"], told.get("parent", "root"))
        for column, name in (
            ("queued_packets", "qlen"),
            ("queued_bytes", "backlog"),
            ("sent_packets", "packets"),
            ("sent_bytes", "bytes"),
            ("dropped_packets", "drops"),
            ("overlimits", "overlimits"),
            ("requeues", "requeues"),
        ):
            assert int(row[column]) == told[name], (column, row, told)
    codel = json.loads(sampled[1]["internals"])
    assert (int(sampled[1]["delay_us"]), codel["count"]) == (printed[1]["ldelay"], printed[1]["count"])
    assert int(sampled[0]["dropped_packets"]) > 0
    busy = [
        row
        for row in rows(result, "qdiscs")
        if row["kind"] == "codel" and 1_200_000_000 < int(row["time_ns"]) < 1_900_000_000
    ]
    assert max(int(row["queued_packets"]) for row in busy) == 20
    assert max(int(row["delay_us"]) for row in busy) > 5000


def test_mptcp_connections_and_their_subflows(run: Callable[..., Simulation]) -> None:
    paths = [{"endpoints": [f"a:eth{i}", f"b:eth{i}"], "both": {"rate": "10Mbit", "delay": "5ms"}} for i in (0, 1)]
    nodes = {
        name: {
            "addresses": {f"eth{i}": f"10.0.{i}.{number}/24" for i in (0, 1)},
            "setup": ["ip mptcp limits set subflow 2 add_addr_accepted 2", *more],
            "processes": processes,
        }
        for name, number, more, processes in (
            (
                "a",
                1,
                [],
                [
                    {"exec": "mptcpize run iperf3 -c 10.0.0.2 -t 3", "start": "1s", "expect": "any"},
                    {"exec": "ss -MinHO dport = 5201", "start": "3500ms", "expect": 0},
                ],
            ),
            (
                "b",
                2,
                ["ip mptcp endpoint add 10.0.1.2 dev eth1 signal"],
                [{"exec": "mptcpize run iperf3 -s -1", "expect": "any"}],
            ),
        )
    }
    made = scenario(nodes, paths, "8s", measure={"tcp": "500ms", "mptcp": "500ms"})
    made["events"] = [
        {"at": "3s", "link": ["a:eth0", "b:eth0"], "down": True},
        {"at": "3s", "link": ["a:eth1", "b:eth1"], "down": True},
    ]
    result = run(made)
    at = [row for row in rows(result, "mptcp") if (row["time_ns"], row["node"]) == ("3500000000", "a")]
    printed = result.stdout("a", 1).splitlines()
    assert len(at) == len(printed) == 2, (at, printed)
    for row in at:
        line = next(line for line in printed if f":{row['local_port']} " in line)
        assert ss_value(line, "token") == f"{int(row['token']):x}"
        for column, name in (
            ("subflows", "subflows_total"),
            ("bytes_sent", "bytes_sent"),
            ("bytes_acked", "bytes_acked"),
            ("bytes_received", "bytes_received"),
            ("bytes_retransmitted", "bytes_retrans"),
        ):
            if f"{name}:" in line:
                assert row[column] == ss_value(line, name), (column, row, line)
        flows = [
            flow
            for flow in rows(result, "tcp")
            if (flow["time_ns"], flow["mptcp_token"]) == ("3500000000", row["token"])
        ]
        assert {flow["remote_address"] for flow in flows} == {"10.0.0.2", "10.0.1.2"}, flows
        assert len(flows) == int(row["subflows"])
    assert max(int(row["bytes_sent"]) for row in at) > 1_000_000


def test_a_file_without_lines_names_its_columns(run: Callable[..., Simulation]) -> None:
    result = run(pair([], [], {"rate": "1Gbit", "delay": "1ms"}, stop="1s", measure="300ms"))
    assert rows(result, "tcp") == [] and rows(result, "mptcp") == []
    assert (result.out / "tcp.csv").read_text(encoding="utf-8").startswith("time_ns,node,netns,local_address,")
    assert (result.out / "mptcp.csv").read_text(encoding="utf-8").startswith("time_ns,node,netns,token,")


@pytest.mark.parametrize("value", [{"tcp": "10ns"}, {"tpc": "10ms"}, {"qdiscs": "often"}, []])
def test_what_is_no_measure_is_refused(engine: Path, tmp_path: Path, value: Any) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(pair([], [], LINK, stop="1s", measure=value)), encoding="utf-8")
    result = subprocess.run(
        [engine, "run", path, "--out", tmp_path / "out"], check=False, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "scenario.yaml" in result.stderr, result.stderr
