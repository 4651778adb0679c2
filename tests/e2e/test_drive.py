# SPDX-License-Identifier: GPL-2.0-or-later
"""A driven run: time is in the hands of one client, and what it did can be repeated without it."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from driving import Client, Driven
from scenarios import Mapping, pair
from simulate import Simulation

LINK = {"rate": "10Mbit", "delay": "1ms"}
SECOND_NS = 1_000_000_000
Begin = Callable[..., Driven]


def two_hosts(stop: str = "20s") -> Mapping:
    return pair([], [], LINK, stop=stop)


def a_session(client: Client, pause: Callable[[], None]) -> list[bytes]:
    """Does one of everything; what came of it."""
    seen = []
    pause()
    assert client("run", until_ns=SECOND_NS // 2)["at_ns"] == SECOND_NS // 2
    cat = client.start("h1", "cat")
    client.send_input(cat, b"one\n")
    pause()
    assert client("run", output=[cat])["time"]["why"] == "output"
    seen.append(client.output[cat, "O"])
    client.send_input(cat, b"caf\xe9\n")
    assert "done" in client("end_input", program=cat)
    assert client("run", programs=[cat], until_ns=SECOND_NS)["time"]["why"] == "programs"
    seen.append(client.output[cat, "O"])
    assert client.ended[cat] == {"program": cat, "exit": 0, "signal": None}
    pause()
    assert "done" in client("write_file", node="h2", path="/proc/sys/net/ipv4/ip_forward", content={"text": "1\n"})
    assert client("read_file", node="h2", path="/proc/sys/net/ipv4/ip_forward")["file"] == {"text": "1\n"}
    assert "done" in client("write_file", node="h2", path="/tmp/x", content={"hex": "00ff"}, mode=0o751)
    assert client("read_file", node="h2", path="/tmp/x")["file"] == {"hex": "00ff"}
    ls = client.start("h2", "stat", "-c", "%a %s", "/tmp/x")
    assert "done" in client("link", change={"link": ["h1", "h2"], "set": {"delay": "50ms"}})
    ping = client.start("h1", "ping", "-c", "2", "10.0.0.2")
    sleep = client("start", node="h2", program={"argv": ["sleep", "100"]})["started"]
    assert "done" in client("signal", node="h2", pid=sleep["pid"], signal=9)
    pause()
    client("run", programs=[ls, ping, sleep["program"]])
    assert client.ended[sleep["program"]]["signal"] == 9
    seen += [client.output[ls, "O"], client.output[ping, "O"]]
    terminal = {"argv": ["sh", "-c", "stty size; read line; stty size"], "terminal": {"rows": 24, "columns": 80}}
    shell = client("start", node="h1", program=terminal)["started"]["program"]
    client("run", output=[shell])
    assert "done" in client("resize", program=shell, size={"rows": 50, "columns": 132})
    client.send_input(shell, b"\n")
    client("run", programs=[shell])
    seen.append(client.output[shell, "O"])
    top = client.start("h1", "sleep", "1000")
    assert len(client("processes", node="h1")["processes"]) == 1
    assert "done" in client("hang_up", program=top)
    client("run", programs=[top])
    assert client.ended[top] == {"program": top, "exit": None, "signal": 1}
    step = client("step")
    assert (step["at_ns"] > SECOND_NS, step["time"]["why"]) == (True, "window")
    links = client("counters")["links"]
    seen.append(json.dumps(links).encode())
    pause()
    client("run", until_ns=10 * SECOND_NS)
    return seen


def test_what_a_driver_did_is_the_same_each_time_and_without_it(begin: Begin, engine: Path) -> None:
    outcomes = []
    for seed in (1, 2):
        rng = random.Random(seed)
        run = begin(two_hosts())
        client = run.driver()
        seen = a_session(client, lambda rng=rng: time.sleep(rng.random() / 20))  # type: ignore[misc]
        client.stop()
        assert run.end() == (0, "")
        outcomes.append((seen, run.summary(), (run.out / "input.jsonl").read_bytes()))
    assert outcomes[0] == outcomes[1]
    seen, summary, _ = outcomes[0]
    assert seen[:3] == [b"one\n", b"one\ncaf\xe9\n", b"751 2\n"]
    assert b"time=100 ms" in seen[3] or b"time=101 ms" in seen[3], seen[3]
    assert seen[4].split() == [b"24", b"80", b"50", b"132"]
    assert summary["ended"] == "driver"
    assert [process["client"] for process in summary["processes"]] == [True] * len(summary["processes"])
    assert run.replay(engine) == summary


def slow_setup(seconds: float) -> Mapping:
    """Two hosts, of which h1 takes that long to be set up."""
    scenario = two_hosts()
    scenario["nodes"]["h1"]["setup"] = [["sh", "-c", f"sleep {seconds}; echo ready > /run/file"]]
    return scenario


def test_what_a_driver_does_finds_nodes_set_up(begin: Begin, engine: Path) -> None:
    outcomes = []
    for _ in range(2):
        run = begin(slow_setup(1))
        client = run.driver()
        # Who has no setup command is ready at once; lists of processes and signals are for those in trouble.
        assert client("start", node="h2", program={"argv": ["true"]})["at_ns"] == 0
        assert "sleep" in json.dumps(client("processes", node="h1"))
        assert client("counters")["at_ns"] < SECOND_NS // 2
        started = client("start", node="h1", program={"argv": ["cat", "/run/file"]})
        assert SECOND_NS < started["at_ns"] < 1.1 * SECOND_NS
        cat = started["started"]["program"]
        client("run", programs=[cat])
        assert (client.output[cat, "O"], client.ended[cat]["exit"]) == (b"ready\n", 0)
        client.stop()
        assert run.end() == (0, "")
        outcomes.append((run.summary(), (run.out / "input.jsonl").read_bytes()))
    assert outcomes[0] == outcomes[1]
    assert run.replay(engine) == outcomes[0][0]


def test_files_wait_for_the_setup_too(begin: Begin) -> None:
    client = begin(slow_setup(1)).driver()
    assert client("read_file", node="h1", path="/run/file")["file"] == {"text": "ready\n"}
    client = begin(slow_setup(1)).driver()
    written = client("write_file", node="h1", path="/run/file", content={"text": "mine\n"})
    assert written["at_ns"] > SECOND_NS
    client("run", until_ns=5 * SECOND_NS)
    assert client("read_file", node="h1", path="/run/file")["file"] == {"text": "mine\n"}


def test_a_setup_without_end_is_told(begin: Begin) -> None:
    client = begin(slow_setup(1000)).driver()
    start = client.begin("start", node="h1", program={"argv": ["true"]})
    pause = client.begin("pause")
    # The pause may be heard before the start has begun, while it waits, or when the run is at its end.
    answers = {answer["id"]: answer for answer in (client.message()["answer"] for _ in range(2))}
    assert "done" in answers[pause]
    assert re.search(r"before node `h1` was set up|while node `h1` was being set up", str(answers[start]["refused"]))
    client = begin(slow_setup(1000)).driver()
    refused = client("start", node="h1", program={"argv": ["true"]})
    assert "while node `h1` was being set up" in refused["refused"]["message"]
    assert "end" in client("start", node="h1", program={"argv": ["true"]})["refused"]["message"]


def test_a_run_in_a_thousand_steps_is_the_run_in_one_go(begin: Begin, run: Callable[..., Simulation]) -> None:
    scenario = pair([{"exec": "ping -c 3 -i 0.2 10.0.0.2", "start": "100ms"}], [], LINK, stop="5s")
    scenario["events"] = [{"at": "300ms", "link": ["h1", "h2"], "set": {"delay": "3ms"}}]
    whole = run(scenario)
    for steps in (0, 1000):
        driven = begin(scenario)
        client = driven.driver()
        for step in range(steps):
            assert client("run", until_ns=(step + 1) * 500_000)["time"] == {"why": "until", "ended": None}
        last = client("run")
        assert last["time"] == {"why": "end", "ended": "all_done"}
        # Nothing can happen any more, but what has happened can be looked at.
        assert "end" in client("start", node="h1", program={"argv": ["true"]})["refused"]["message"]
        assert client("run", until_ns=4 * SECOND_NS)["time"] == {"why": "end", "ended": "all_done"}
        assert len(client("counters")["links"]) == 1
        client.stop()
        assert driven.end() == (0, "")
        assert driven.summary() == whole.summary


def test_a_run_goes_to_its_stop_and_no_further(begin: Begin) -> None:
    run = begin(two_hosts("2s"))
    client = run.driver()
    sleep = client.start("h1", "sleep", "100")
    assert client("run", until_ns=2 * SECOND_NS) | {"id": 0} == {
        "id": 0,
        "at_ns": 2 * SECOND_NS,
        "time": {"why": "until", "ended": None},
    }
    assert client("run", programs=[sleep])["time"] == {"why": "end", "ended": "stop"}
    assert client("run")["at_ns"] == 2 * SECOND_NS
    client.stop()
    assert run.end()[0] == 0
    assert (run.summary()["ended"], run.summary()["virtual_time_ns"]) == ("stop", 2 * SECOND_NS)


def test_a_run_can_be_paused(begin: Begin) -> None:
    run = begin(two_hosts("100000h"))
    client = run.driver()
    busy = client.start("h1", "ping", "-q", "-i", "0.01", "10.0.0.2")
    going = client.begin("run", until_ns=90_000 * 3600 * SECOND_NS)
    time.sleep(0.2)
    pause = client.begin("pause")
    stopped = client.answer(going)
    assert 0 < stopped["at_ns"] < 90_000 * 3600 * SECOND_NS
    assert stopped["time"] == {"why": "paused", "ended": None}
    assert client.answer(pause)["done"] == {}
    assert client("run", until_ns=stopped["at_ns"] + 5)["at_ns"] == stopped["at_ns"] + 5
    assert "done" in client("hang_up", program=busy)
    client.stop()
    assert run.end()[0] == 0


def test_a_run_that_nobody_drives_says_so_and_can_be_ended(engine: Path, tmp_path: Path) -> None:
    scenario, out = tmp_path / "scenario.yaml", tmp_path / "out"
    scenario.write_text(json.dumps(two_hosts()), encoding="utf-8")
    command: list[str | Path] = [engine, "run", scenario, "--out", out, "--drive"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"waiting for a driver at {out}/control.sock (Ctrl-C ends the run)\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert json.loads((out / "summary.json").read_text(encoding="utf-8"))["ended"] == "interrupted"


REFUSED: list[tuple[str, Mapping, str]] = [
    ("run", {"until_ns": 5}, "5 ns is past: it is 1000 ns"),
    ("run", {"programs": [7]}, "no program with the number 7"),
    ("end_input", {"program": 7}, "no program with the number 7"),
    ("start", {"node": "h9", "program": {"argv": ["true"]}}, "there is no node `h9`"),
    ("start", {"node": "h1", "program": {"argv": ["nonesuch"]}}, "`nonesuch` is in no folder of PATH"),
    ("start", {"node": "h1", "program": {"argv": ["a\0b"]}}, "contains a NUL character"),
    ("processes", {"node": "h9"}, "there is no node `h9`"),
    ("signal", {"node": "h1", "pid": 1, "signal": 9}, "process 1 works for the engine"),
    ("signal", {"node": "h1", "pid": 999, "signal": 9}, "No such process"),
    ("read_file", {"node": "h1", "path": "/nonesuch"}, "cannot open /nonesuch: No such file"),
    ("read_file", {"node": "h1", "path": "/etc"}, "/etc is a folder"),
    ("read_file", {"node": "h1", "path": "/dev/zero"}, "/dev/zero is no regular file"),
    ("read_file", {"node": "h1", "path": "etc/passwd"}, "is not absolute"),
    ("write_file", {"node": "h1", "path": "/proc/version", "content": {"text": "x"}}, "cannot write /proc/version"),
    ("write_file", {"node": "h1", "path": "/a", "content": {"hex": "abc"}}, "two hexadecimal digits"),
    ("link", {"change": {"link": ["h1", "h3"], "down": True}}, "no link ends at `h3`; allowed: h1, h2"),
    ("link", {"change": {"link": ["h1", "h2"], "set": {"delay": "5"}}}, "the unit is missing"),
    ("link", {"change": {"link": ["h1", "h2"], "set": {"jitter": "5ms"}}}, "jitter `5ms` is more than the delay"),
    ("link", {"change": {"link": ["h1", "h2"], "sett": {}}}, "unknown key `sett`"),
    ("link", {"change": {"link": ["h1", "h2"]}}, "the event changes nothing"),
]


def test_what_cannot_be_done_is_refused_and_the_run_goes_on(begin: Begin) -> None:
    run = begin(two_hosts())
    client = run.driver()
    client("run", until_ns=1000)
    for command, arguments, text in REFUSED:
        answer = client(command, **arguments)
        assert text in answer["refused"]["message"], answer
    other = run.client()
    other.send("drive")
    assert "somebody else drives" in other.message()["refused"]["message"]
    stranger = run.client()
    stranger.begin("step")
    assert "`drive` comes first" in stranger.message()["refused"]["message"]
    assert "time" in client("step")
    client.stop()
    assert run.end() == (0, "")


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\1I\0", b"\0\0\0\2m{}"])
def test_a_driver_that_breaks_off_ends_the_run_and_results_are_kept(begin: Begin, garbage: bytes) -> None:
    run = begin(pair([{"exec": "sleep 100000", "expect": "any"}], [], LINK, stop="100000s"))
    client = run.driver()
    client.start("h1", "sh", "-c", "echo here; sleep 100")
    client("run", until_ns=SECOND_NS)
    # In mid-request, and without a word of goodbye.
    client.begin("run")
    client.socket.sendall(garbage)
    client.socket.close()
    code, _ = run.end()
    assert code == 130
    summary = run.summary()
    assert summary["ended"] == "interrupted"
    (program,) = [process for process in summary["processes"] if process.get("client")]
    assert (run.out / program["stdout"]).read_text(encoding="utf-8") == "here\n"
