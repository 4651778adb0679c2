# SPDX-License-Identifier: GPL-2.0-or-later
"""What `windtunnel top` shows of a live run, and that the run does not feel it."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Program
from scenarios import Mapping, pair
from test_live import PATIENCE_S, Terminal, wait_for

# 300 kB/s for three seconds: a third of the link's rate.
TRANSFER = "iperf3 --client 10.0.0.2 --time 3 --bitrate 2.4M"


def transfer() -> Mapping:
    return pair(
        [{"exec": TRANSFER, "start": "100ms"}],
        [{"exec": "iperf3 --server --one-off"}],
        {"rate": "8Mbit", "delay": "5ms", "queue": "100p"},
        stop="60s",
    )


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    # The path of a socket must not be long.
    with tempfile.TemporaryDirectory(prefix="wt-") as runtime:
        yield {**os.environ, "XDG_RUNTIME_DIR": runtime}


def start(engine: Path, folder: Path, env: dict[str, str], *options: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    (folder / "s.yaml").write_text(json.dumps(transfer()), encoding="utf-8")
    command: list[str | Path] = [engine, "run", folder / "s.yaml", "--out", folder / "out", "--quiet", *options]
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
    wait_for(lambda: (folder / "out/control.sock").is_symlink() or process.poll() is not None)
    return process


def look(engine: Path, env: dict[str, str], *options: str) -> str:
    done = subprocess.run(
        [engine, "top", *options], env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE_S
    )
    return done.stdout


def digest(folder: Path) -> str:
    found: str = json.loads((folder / "out/summary.json").read_text(encoding="utf-8"))["digest"]
    return found


def test_looking_does_nothing_to_a_run(engine: Path, tmp_path: Path, env: dict[str, str]) -> None:
    alone = start(engine, tmp_path / "alone", env)
    assert alone.wait(timeout=PATIENCE_S) == 0
    watched = start(engine, tmp_path / "watched", env, "--realtime")
    lines = look(engine, env, "--json", "--count", "12", "--interval", "200ms").splitlines()
    assert watched.wait(timeout=PATIENCE_S) == 0
    assert digest(tmp_path / "watched") == digest(tmp_path / "alone")
    assert not (tmp_path / "watched/out/input.jsonl").exists()
    states = [json.loads(line) for line in lines]
    assert len(states) == 12 and states == sorted(states, key=lambda state: state["at_ns"])
    # Two connections of iperf3's, of which one sends, seen from both ends.
    connections = [row for row in states[-1]["tcp"] if row["state"] == "ESTABLISHED"]
    assert len(connections) == 4
    sent = [max(row["bytes_sent"] for row in state["tcp"] or [{"bytes_sent": 0}]) for state in states]
    assert sent == sorted(sent) and sent[-1] > 300_000
    [link] = states[-1]["links"]
    assert link["a"] == "h1:eth0" and link["a_to_b"]["frames"] > 200 and link["a_to_b_now"]["rate_bps"] == 8_000_000
    assert {node["node"]: [program["command"][1] for program in node["programs"]] for node in states[-1]["nodes"]} == {
        "h1": ["--client"],
        "h2": ["--server"],
    }


def test_once_it_is_text_with_rates(engine: Path, tmp_path: Path, env: dict[str, str]) -> None:
    process = start(engine, tmp_path / "run", env, "--realtime")
    look(engine, env, "--json", "--count", "2", "--interval", "1s")  # until the transfer goes on
    text = look(engine, env, "--once", "--interval", "1s")
    process.terminate()
    process.wait(timeout=PATIENCE_S)
    row = next(line for line in text.splitlines() if line.startswith("h1:eth0"))
    # 2.4 Mb/s of payload, and its headers, in blocks of 1 Mbit: two to four of them begin or end in a second.
    found = re.search(r"([\d.]+) Mbit/s +(\d+) %", row)
    assert found is not None and 1.5 < float(found[1]) < 4.5, text
    assert abs(int(found[2]) - float(found[1]) / 8 * 100) <= 1, text
    assert "10.0.0.2:5201" in text and "cubic" in text and TRANSFER in text


def test_the_view_shows_and_gives_the_terminal_back(engine: Path, tmp_path: Path, env: dict[str, str]) -> None:
    process = start(engine, tmp_path / "run", env, "--realtime")
    top = Terminal([engine, "top", "--interval", "100ms"], env, rows=40, columns=140)
    try:
        top.expect("THROUGHPUT")
        assert not top.restored()
        top.type("2")
        top.expect("10.0.0.2:5201")
        top.type("\r")
        top.expect("cwnd_packets")
        top.expect("bytes_acked")
        top.type("\x1b")
        top.type("3")
        top.expect("COMMAND")
        top.type("q")
        assert top.process.wait(timeout=PATIENCE_S) == 0
        assert top.restored()
    finally:
        top.close()
    top = Terminal([engine, "top", "--interval", "100ms"], env, rows=40, columns=140)
    try:
        top.expect("THROUGHPUT")
        process.terminate()
        process.wait(timeout=PATIENCE_S)
        top.expect("the run is over")
        assert top.process.wait(timeout=PATIENCE_S) == 0
        assert top.restored()
    finally:
        top.close()


def test_without_a_run_or_a_terminal_it_says_so(attempt: Callable[..., Program], env: dict[str, str]) -> None:
    done = attempt("top", **env)
    assert done.code == 2 and "the output is no terminal" in done.stderr and "--once" in done.stderr
    done = attempt("top", "--once", **env)
    assert done.code == 2 and "no run is live" in done.stderr
    done = attempt("top", "--interval", "1ms", "--once", **env)
    assert done.code == 2 and "too short" in done.stderr


def test_time_stands_still_where_a_condition_holds(engine: Path, tmp_path: Path, env: dict[str, str]) -> None:
    alone = start(engine, tmp_path / "alone", env)
    assert alone.wait(timeout=PATIENCE_S) == 0
    # Held at its start, so that the condition is there before the first segment.
    process = start(engine, tmp_path / "stopped", env, "--realtime")
    top = Terminal(
        [engine, "top", "--interval", "100ms", "--break", "cwnd > 12*mss && bytes_sent > 20000"],
        env,
        rows=40,
        columns=160,
    )
    try:
        top.expect("TIME STANDS")
        times = [json.loads(look(engine, env, "--json"))["at_ns"] for _ in range(2)]
        assert times[0] == times[1]
        states = json.loads(look(engine, env, "--json"))
        windows = [row["cwnd_packets"] for row in states["tcp"] if row["bytes_sent"] > 20000]
        assert max(windows) > 12
        top.type("q")
        assert top.process.wait(timeout=PATIENCE_S) == 0
    finally:
        top.close()
    # Nobody holds it any more.
    assert process.wait(timeout=PATIENCE_S) == 0
    assert digest(tmp_path / "stopped") == digest(tmp_path / "alone")


@pytest.mark.parametrize(
    ("condition", "fragment"),
    [("cwnd <", "a column, a number or `(` is expected"), ("colour == 3", "connections have no number `colour`")],
)
def test_what_is_no_condition_is_refused(
    engine: Path, tmp_path: Path, env: dict[str, str], condition: str, fragment: str
) -> None:
    process = start(engine, tmp_path / "run", env, "--realtime")
    top = Terminal([engine, "top", "--break", condition], env)
    try:
        top.expect(re.escape(fragment))
        assert top.process.wait(timeout=PATIENCE_S) == 2
    finally:
        top.close()
        process.terminate()
        process.wait(timeout=PATIENCE_S)
