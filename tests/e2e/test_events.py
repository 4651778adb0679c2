# SPDX-License-Identifier: GPL-2.0-or-later
"""events.jsonl: what happened, in the order of virtual time; equal for equal runs, and there however a run ended."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import windtunnel as wt
from scenarios import pair
from simulate import Simulation

LINK = {"rate": "10Mbit", "delay": "5ms"}
PATIENCE_S = 60


def events(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "events.jsonl").read_text(encoding="utf-8").splitlines()]


def test_what_happened_is_told_in_order(run: Callable[..., Simulation]) -> None:
    programs: list[dict[str, Any]] = [
        {"exec": "ping -c 2 10.0.0.2", "start": "1s"},
        {"exec": "sleep 100", "start": "2s", "stop": "3s"},
        {"exec": ["sh", "-c", "exit 3"], "start": "3s", "expect": {"exit": 3}},
    ]
    scenario = pair(programs, [], LINK, stop="5s")
    scenario["events"] = [
        {"at": "4s", "link": ["h1", "h2"], "set": {"delay": "7ms", "loss": "1%"}},
        {"at": "4500ms", "link": ["h1", "h2"], "down": True},
    ]
    first, second = run(scenario), run(scenario)
    assert (first.out / "events.jsonl").read_bytes() == (second.out / "events.jsonl").read_bytes()
    told = events(first.out)
    times = [event["time_ns"] for event in told]
    assert times == sorted(times) and times[-1] == 4_500_000_000
    assert told[0] == {"time_ns": 0, "event": "run_started", "scenario": first.summary["scenario"], "seed": 1}
    assert told[-1] == {"time_ns": 4_500_000_000, "event": "run_ended", "ended": "all_done", "error": None}
    assert [event["node"] for event in told if event["event"] == "node_booted"] == ["h1", "h2"]
    assert len([event for event in told if event["event"] == "node_ready"]) == 2
    ended = {event["pid"]: event for event in told if event["event"] == "process_exited"}
    for process in first.summary["processes"][:3]:
        event = ended[process["pid"]]
        assert (event["time_ns"], event["exit"], event["signal"], event["command"]) == (
            process["end_ns"],
            process["exit"],
            process["signal"],
            process["command"],
        )
    assert [event["signal"] for event in ended.values()] == [None, 15, None]
    changed = [event for event in told if event["event"] == "link_changed"]
    values = {"delay_ns": 7_000_000, "loss_ppb": 10_000_000}
    assert [(event["time_ns"], event["by"], event["a_to_b"]) for event in changed] == [
        (4_000_000_000, "scenario", values),
        (4_500_000_000, "scenario", {"up": False}),
    ]
    assert [event["a"] for event in changed] == ["h1:eth0"] * 2 and changed[0]["b_to_a"] == values
    assert [event["held"] for event in told if event["event"] == "expectation"] == [True] * 3


def test_a_measured_and_a_captured_run_tell_the_same(run: Callable[..., Simulation]) -> None:
    scenario = pair([{"exec": "ping -c 2 10.0.0.2"}], [], LINK, stop="5s")
    plain, measured = run(scenario), run(scenario, ["--measure", "10ms"])
    assert plain.summary == measured.summary
    assert (plain.out / "events.jsonl").read_bytes() == (measured.out / "events.jsonl").read_bytes()


def test_an_expectation_that_fails_is_told(engine: Path, tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(pair([{"exec": "false"}], [], LINK, stop="1s")), encoding="utf-8")
    done = subprocess.run([engine, "run", path, "--out", tmp_path / "out", "--quiet"], check=False)
    assert done.returncode == 1
    (told,) = [event for event in events(tmp_path / "out") if event["event"] == "expectation"]
    assert not told["held"] and told["failures"] == ["h1: `false`: expected success, but it exited with 1"]


def test_an_interrupted_run_has_them(engine: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "scenario.yaml", tmp_path / "out"
    ping = {"exec": "ping -f 10.0.0.2", "expect": "any"}
    path.write_text(json.dumps(pair([ping], [], LINK, stop="1000h")), encoding="utf-8")
    process = subprocess.Popen([engine, "run", path, "--out", out, "--quiet"])
    deadline_s = time.monotonic() + PATIENCE_S
    while not list(out.glob("h1/ping-*.stdout")):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    process.wait(PATIENCE_S)
    told = events(out)
    assert told[-1]["event"] == "run_ended" and told[-1]["ended"] == "interrupted"
    assert [event["command"][0] for event in told if event["event"] == "process_started"] == ["ping"]


def test_what_a_driver_does_is_told(engine: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("WINDTUNNEL_PROGRAM", str(engine))
    net = wt.Network(seed=1)
    h1, h2 = net.add_node("h1"), net.add_node("h2")
    link = net.add_link(h1, h2, rate="10Mbit", delay="5ms")
    with net.run(out=tmp_path / "out") as run:
        h1.popen("true").wait()
        link.down()
    table = run.results.events()
    (changed,) = table.where(event="link_changed")
    assert changed["by"] == "client" and changed["a_to_b"] == '{"up": false}'
    (started,) = table.where(event="process_started")
    assert started["client"] is True and started["command"] == "true"
    assert table["time_ns"] == sorted(table["time_ns"])


def test_a_warning_has_the_time_of_its_first_occurrence(run: Callable[..., Simulation]) -> None:
    refused = "import ctypes; ctypes.CDLL(None).syscall(425, 1, 0)"
    memory = "import ctypes; ctypes.CDLL(None).syscall(28, 4096, 4096, 3)"
    programs = [
        {"exec": ["python3", "-c", refused], "start": "2s", "expect": "any"},
        {"exec": ["python3", "-c", refused], "start": "3s", "expect": "any"},
        {"exec": ["python3", "-c", "import ctypes; ctypes.string_at(0)"], "start": "4s", "expect": "any"},
        {"exec": ["python3", "-c", memory], "start": "5s", "expect": "any"},
    ]
    result = run(pair(programs, [], LINK, stop="20s"))
    told = [event for event in events(result.out) if event["event"] == "warning"]
    times_s = {event["code"]: event["time_ns"] / 1e9 for event in told}
    assert 2 <= times_s["unsupported_call"] < 2.1 and 4 <= times_s["program_fault"] < 4.1, told
    (twice,) = [event for event in told if event["code"] == "unsupported_call"]
    assert twice["count"] == 2
    assert [warning["time_ns"] for warning in result.summary["warnings"]] == [event["time_ns"] for event in told]


FAMILY = (
    "(echo a; sleep 1) | cat; sleep 3 & kill -9 $!; wait; (exec sleep 2 &); sh -c 'sleep 0.5; exit 3'; exec sleep 2"
)


def test_processes_that_programs_make_are_told(run: Callable[..., Simulation]) -> None:
    """Of a pipeline, of one that is killed, and of one whose parent has gone; with CPU time where work takes some."""
    scenario = pair(
        [{"exec": ["sh", "-c", FAMILY]}], [{"exec": ["sh", "-c", "/bin/true; sleep 0.1; /bin/true"]}], LINK, stop="8s"
    )
    scenario["nodes"]["h2"]["cpu"] = {"syscall": "10us"}
    first, second = run(scenario), run(scenario)
    assert (first.out / "events.jsonl").read_bytes() == (second.out / "events.jsonl").read_bytes()
    told = events(first.out)
    (shell,) = [event["pid"] for event in told if event["event"] == "process_started" and event["node"] == "h1"]
    forks = {event["pid"]: event for event in told if event["event"] == "process_forked" and event["node"] == "h1"}
    ends = {event["pid"]: event for event in told if event["event"] == "child_exited" and event["node"] == "h1"}
    names = {
        event["pid"]: event["name"] for event in told if event["event"] == "process_executed" and event["node"] == "h1"
    }
    assert all(fork["name"] == "sh" for fork in forks.values())
    echo, cat, killed, between, orphan, inner, last = forks
    assert [forks[pid]["parent"] for pid in forks] == [shell, shell, shell, shell, between, shell, inner]
    assert {pid: names.get(pid) for pid in (echo, cat, between, orphan, last)} == {
        echo: "sleep",
        cat: "cat",
        between: None,
        orphan: "sleep",
        last: "sleep",
    }
    assert names[shell] == "sleep", "the program became another one"
    assert (ends[killed]["exit"], ends[killed]["signal"]) == (None, 9)
    assert (ends[inner]["exit"], ends[inner]["signal"], ends[inner]["name"]) == (3, None, "sh")
    assert 1_000_000_000 <= ends[echo]["time_ns"] < 1_100_000_000
    assert ends[orphan]["time_ns"] - forks[orphan]["time_ns"] >= 2_000_000_000, "it outlived its parent"
    assert not any("user_ns" in event for event in told if event.get("node") == "h1")
    (busy,) = [event for event in told if event["event"] == "process_exited" and event["node"] == "h2"]
    taken = [busy, *(event for event in told if event["event"] == "child_exited" and event["node"] == "h2")]
    assert len(taken) > 2
    for event in taken:
        # A call takes 10 us, and none of these programs makes less than ten or more than a thousand.
        assert 100_000 <= event["user_ns"] + event["system_ns"] <= 10_000_000


def test_a_power_cut_ends_children(run: Callable[..., Simulation]) -> None:
    scenario = pair([{"exec": ["sh", "-c", "while true; do sleep 1.5; done"]}], [], LINK, stop="5s")
    scenario["events"] = [{"at": "2s", "node": "h1", "down": True}, {"at": "3s", "node": "h1", "up": True}]
    told = events(run(scenario).out)
    ends = [
        (event["time_ns"] // 1_000_000, event["exit"], event.get("power_off"))
        for event in told
        if event["event"] == "child_exited"
    ]
    assert ends == [(1500, 0, None), (2000, None, True), (4500, 0, None)]


def test_children_beyond_ten_thousand_are_counted(run: Callable[..., Simulation]) -> None:
    script = "i=0; while [ $i -lt 10123 ]; do (:); i=$((i + 1)); done"
    simulation = run(pair([{"exec": ["sh", "-c", script]}], [], LINK, stop="5s"))
    told = events(simulation.out)
    kinds = [event["event"] for event in told if event.get("node") == "h1"]
    assert (kinds.count("process_forked"), kinds.count("child_exited")) == (10_000, 10_000)
    assert [event["count"] for event in told if event["event"] == "children_not_told"] == [123]
    (warning,) = simulation.summary["warnings"]
    assert (warning["code"], warning["nodes"], warning["count"]) == ("events_not_told", ["h1"], 123)


# Becomes itself as often as its first argument says, then has a child that does so once.
BECOMES_ITSELF = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int left = atoi(argv[1]), child = argc > 2;
    if (left > 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", left - 1);
        execl(argv[0], argv[0], number, child ? "child" : NULL, NULL);
        return 1;
    }
    if (!child) {
        if (fork() == 0) {
            execl(argv[0], argv[0], "0", "child", NULL);
            _exit(1);
        }
        int status;
        return wait(&status) < 0 || status != 0;
    }
    return 0;
}
"""


def test_execs_beyond_ten_thousand_are_counted(run: Callable[..., Simulation], tmp_path: Path) -> None:
    """Each that was made is told or counted, those of a program and of its child."""
    source, program = tmp_path / "becomes.c", tmp_path / "becomes"
    source.write_text(BECOMES_ITSELF, encoding="utf-8")
    subprocess.run(["cc", "-O1", "-o", program, source], check=True)
    scenario = pair([{"exec": "/opt/becomes 10122"}], [{"exec": "/opt/becomes 3"}], LINK, stop="30s")
    for node in scenario["nodes"].values():
        node["files"] = {"/opt/becomes": {"source": str(program), "mode": "755"}}
    first, second = run(scenario), run(scenario)
    assert (first.out / "events.jsonl").read_bytes() == (second.out / "events.jsonl").read_bytes()
    told = events(first.out)
    kinds = [(event.get("node"), event["event"]) for event in told]
    assert (kinds.count(("h1", "process_executed")), kinds.count(("h2", "process_executed"))) == (10_000, 4)
    (untold,) = [event for event in told if event["event"] == "execs_not_told"]
    assert (untold["node"], untold["count"]) == ("h1", 10_123 - 10_000)
    assert ("h1", "children_not_told") not in kinds
    (warning,) = first.summary["warnings"]
    assert (warning["code"], warning["nodes"], warning["count"]) == ("events_not_told", ["h1"], 123)
    last = max(event["time_ns"] for event in told if event["event"] == "process_executed" and event["node"] == "h1")
    assert untold["time_ns"] == warning["time_ns"] >= last
