# SPDX-License-Identifier: GPL-2.0-or-later
"""Sweeps: points, seeds, statistics, what is found again, what fails, and where cells are computed."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import windtunnel as wt
from test_python import other_pythons

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 300
NET = """
import sys, time
import windtunnel as wt

def cell(seed, loss):
    net = wt.Network("two", link={"rate": "10Mbit", "delay": "5ms", "loss": loss})
    h1, h2 = net.add_node("h1"), net.add_node("h2")
    net.add_link(h1, h2)
    with net.run(seed=seed) as run:
        out = h1.cmd("ping -c 20 -i 0.1 -W 1 h2")
    return {"received": int(out.split(" received")[0].split()[-1])}
"""
PLAIN = """
import json, os, sys, time
import windtunnel as wt

FACTOR = 10

def helper(x):
    return FACTOR * x

def cell(seed, x):
    return {"y": helper(x) + seed}
"""
Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def script(study_python: Path, engine: Path, tmp_path: Path) -> Script:
    """Runs a script with the study packages, in a folder of its own."""

    def runner(text: str, *, name: str = "study.py", code: int | None = 0) -> subprocess.CompletedProcess[str]:
        (tmp_path / name).write_text(text, encoding="utf-8")
        done = subprocess.run([study_python, name], cwd=tmp_path, env=environment(engine), **PIPES)
        assert code is None or done.returncode == code, done.stderr
        return done

    return runner


PIPES: dict[str, Any] = {
    "stdin": subprocess.DEVNULL,
    "capture_output": True,
    "text": True,
    "timeout": PATIENCE_S,
    "check": False,
}


def environment(engine: Path) -> dict[str, str]:
    own = {"PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1", "WINDTUNNEL_PROGRAM": str(engine)}
    return {**os.environ, **own}


EXECUTORS = {
    "one worker": "wt.LocalExecutor(1)",
    "two workers": "wt.LocalExecutor(2)",
    "threads": "concurrent.futures.ThreadPoolExecutor(2)",
    "dask": "wt.DaskExecutor(workers=2)",
    "slurm": 'wt.SlurmExecutor("jobs", cluster="local")',
}


def test_the_digest_is_the_same_whoever_computes(script: Script) -> None:
    main = f"""
import concurrent.futures
if __name__ == "__main__":
    for name, make in {{{", ".join(f"{name!r}: lambda: {make}" for name, make in EXECUTORS.items())}}}.items():
        found = wt.sweep(cell, {{"loss": [0, 0.1]}}, seeds=range(1, 4), executor=make(), out=name)
        print(found.digest, len(found.failed), len(found.records), found.found)
"""
    said = script(NET + main).stdout.split("\n")[:-1]
    assert len(said) == len(EXECUTORS)
    assert said[0].endswith(" 0 6 0")
    assert set(said) == {said[0]}


def test_statistics_are_those_of_the_textbook(script: Script, tmp_path: Path) -> None:
    main = """
def known(seed, x):
    return {"y": [4.0, 7.0, 1.0, 10.0][seed] + x, "z": None if seed else 3}
found = wt.sweep(known, {"x": [0, 100]}, seeds=range(4), workers=2)
print(json.dumps(found.table().rows()))
found.table().write_parquet("table.parquet")
import polars
print(polars.read_parquet("table.parquet").shape)
"""
    rows, shape = script(PLAIN + main).stdout.splitlines()
    first, lone, second, _ = json.loads(rows)
    # Student's factor for 3 degrees of freedom is 3.18245; the sample's deviation is the root of 15.
    assert (first["x"], first["value"], first["n"], first["mean"], first["median"]) == (0, "y", 4, 5.5, 5.5)
    assert first["std"] == pytest.approx(15**0.5)
    assert first["ci95_high"] - 5.5 == pytest.approx(3.18245 * 15**0.5 / 2, rel=1e-5)
    assert second["mean"] == 105.5
    assert (lone["n"], lone["mean"], lone["std"], lone["ci95_low"]) == (1, 3.0, None, None)
    assert shape == "(4, 8)"
    table = (tmp_path / "windtunnel-results/sweep-known/table.csv").read_text(encoding="utf-8").splitlines()
    assert table[0] == "x,value,n,mean,std,ci95_low,ci95_high,median"
    assert table[2] == "0,z,1,3.0,,,,3.0"


SLOW = (
    PLAIN
    + """
def slow(seed, x):
    time.sleep(0.3)
    with open("calls", "a") as calls:
        calls.write(f"{os.getpid()}\\n")
    return {"y": helper(x) + seed}

found = wt.sweep(slow, {"x": list(range(8))}, seeds=[1, 2], workers=2, progress=True)
print(found.digest, found.found, len(found.records))
"""
)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_was_ended_goes_on_where_it_was(
    number: signal.Signals, script: Script, study_python: Path, engine: Path, tmp_path: Path
) -> None:
    (tmp_path / "study.py").write_text(SLOW, encoding="utf-8")
    calls = tmp_path / "calls"
    cells = tmp_path / "windtunnel-results/sweep-slow/cells"
    with subprocess.Popen(
        [study_python, "study.py"], cwd=tmp_path, env=environment(engine), stderr=subprocess.PIPE, text=True
    ) as sweep:
        wait_for(lambda: len(list(cells.glob("[!.]*.json"))) >= 4)
        sweep.send_signal(number)
        assert sweep.stderr is not None
        said = sweep.stderr.read()
    assert sweep.returncode != 0
    if number == signal.SIGINT:
        assert re.search(r"interrupted: \d+ of 16 cells are finished, and kept in ", said)
    workers = {int(line) for line in calls.read_text(encoding="ascii").splitlines()}
    assert len(workers) == 2, "workers last for the whole sweep"
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    kept = len(list(cells.glob("[!.]*.json")))
    assert 4 <= kept < 16
    calls.unlink()
    digest, found, total = script(SLOW).stdout.split()
    assert (int(found), total) == (kept, "16")
    assert len(calls.read_text(encoding="ascii").splitlines()) == 16 - kept
    shutil.rmtree(cells)
    assert script(SLOW).stdout.split() == [digest, "0", "16"]


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


BROKEN = (
    PLAIN
    + """
import signal

def broken(seed, how):
    if how == "raise" and seed == 2:
        raise ValueError("the dog ate it")
    if how == "exit":
        sys.exit(3)
    if how == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    values = {"nan": float("nan"), "text": "fast", "none": None, "object": open(os.devnull)}
    return {"x": values.get(how, seed), "y": 1} if how != "list" else [1]

ways = ["fine", "raise", "exit", "die", "nan", "text", "object", "none", "list"]
sweep = wt.Sweep(broken, {"how": ways}, seeds=[1, 2])
"""
)


def test_a_cell_that_fails_is_reported_and_the_rest_is_kept(study_python: Path, engine: Path, tmp_path: Path) -> None:
    (tmp_path / "study.py").write_text(BROKEN, encoding="utf-8")
    done = verb(study_python, engine, tmp_path, file="study.py", workers=2, json=True)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    failed = {(one["parameters"]["how"], one["seed"]): one for one in report["failed"]}
    ways = {key: one["message"] for key, one in failed.items()}
    assert ways == {
        ("raise", 2): "the dog ate it",
        **{("exit", seed): "the function ended the program: SystemExit(3)" for seed in (1, 2)},
        **{("die", seed): "its worker was ended by SIGSEGV" for seed in (1, 2)},
        **{("nan", seed): "the value `x` is nan" for seed in (1, 2)},
        **{("text", seed): "the value `x` is 'fast', of type str" for seed in (1, 2)},
        **{("object", seed): ways["object", seed] for seed in (1, 2)},
        **{("list", seed): "the function returned [1], of type list" for seed in (1, 2)},
    }
    assert ways["object", 1].endswith("of type TextIOWrapper")
    assert failed["nan", 1]["hint"] == "return None for what was not measured"
    trace = (Path(failed["raise", 2]["results"]) / "error.txt").read_text(encoding="utf-8")
    assert 'raise ValueError("the dog ate it")' in trace
    assert "failed: how=raise, seed=2: ValueError: the dog ate it" in done.stderr
    assert {(row["how"], row["value"]): row["n"] for row in report["table"]} == {
        ("fine", "x"): 2,
        ("fine", "y"): 2,
        ("raise", "x"): 1,
        ("raise", "y"): 1,
        ("none", "y"): 2,
    }
    again = json.loads(verb(study_python, engine, tmp_path, file="study.py", workers=1, json=True).stdout)
    assert (again["found"], again["digest"]) == (5, report["digest"]), "what has failed is tried again"


def verb(python: Path, engine: Path, folder: Path, **arguments: object) -> subprocess.CompletedProcess[str]:
    """What the program does for `windtunnel sweep`."""
    command: list[str | Path] = [python, "-m", "windtunnel._verb", "sweep", json.dumps(arguments)]
    return subprocess.run(command, cwd=folder, env=environment(engine), **PIPES)


def test_repetition_ends_when_the_interval_is_narrow_whoever_computes(script: Script) -> None:
    main = """
import random
def noisy(seed, spread):
    time.sleep(random.Random(os.urandom(8)).random() / 50)
    return {"y": 100 + spread * random.Random(seed).gauss(0, 1)}
until = wt.Interval("y", relative=0.02, least=3, most=40)
points = {"spread": [0, 2, 5, 30]}
for workers in (1, 2, 3):
    found = wt.sweep(noisy, points, until=until, workers=workers, out=f"by-{workers}")
    print(json.dumps([found.digest, [row["n"] for row in found.table()], found.wide]))
    for row in found.table():
        half = (row["ci95_high"] - row["ci95_low"]) / 2
        assert (half <= 0.02 * row["mean"]) == (row["spread"] != 30), row
batches = wt.sweep(noisy, points, until=wt.Interval("y", absolute=2, least=4, most=40, step=5), out="batches")
print([row["n"] for row in batches.table()])
"""
    *lines, batches = script(PLAIN + main).stdout.splitlines()
    assert len(set(lines)) == 1
    _, counts, wide = json.loads(lines[0])
    assert counts[0] == 3
    assert counts[0] <= counts[1] < counts[2] < counts[3] == 40
    assert wide == [{"spread": 30}]
    assert all(count in (4, 9, 14, 19, 24, 29, 34, 39, 40) for count in json.loads(batches))


def test_what_is_found_again(script: Script, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def more(x):\n    return x\n", encoding="utf-8")
    (tmp_path / "data.txt").write_text("1", encoding="ascii")
    text = (
        PLAIN
        + """
from beside import more

def cell(seed, x, opt=1):
    # What a comment says does not count.
    return {"y": helper(x) + more(seed)}

def plot():
    return "red"

found = wt.sweep(cell, {"x": [1, 2.5]}, seeds=[1, 2], files=["data.txt"])
print(found.found)
"""
    )

    def found(change: str = "", by: str = "") -> int:
        assert not change or change in text
        return int(script(text.replace(change, by) if change else text).stdout)

    assert found() == 0
    assert found() == 4
    assert found("# What a comment", "# Whatever a comment") == 4
    assert found('"red"', '"blue"') == 4, "what the function does not use"
    assert found("[1, 2.5]", "[2.5, 1.0]") == 4, "the form of a number, and the order of points"
    assert found("[1, 2.5]", "[1, 2.5, 3]") == 4
    assert found("seeds=[1, 2]", "seeds=range(5)") == 4
    assert found("FACTOR = 10", "FACTOR = 11") == 0
    assert found("return FACTOR * x", "return FACTOR * x * 2") == 0
    assert found("more(seed)", "2 * more(seed)") == 0
    (tmp_path / "beside.py").write_text("def more(x):\n    return x + 1\n", encoding="utf-8")
    assert found() == 0
    (tmp_path / "data.txt").write_text("2", encoding="ascii")
    assert found() == 0
    assert found() == 4


def test_programs_of_the_host_are_inputs(script: Script, tmp_path: Path) -> None:
    text = NET + 'print(wt.sweep(cell, {"loss": [0]}).found)\n'
    assert [script(text).stdout, script(text).stdout] == ["0\n", "1\n"]
    (record,) = (tmp_path / "windtunnel-results/sweep-cell/cells").glob("*.json")
    kept = json.loads(record.read_text(encoding="utf-8"))
    (ping,) = [path for path in kept["runs"][0]["programs"] if path.endswith("/ping")]
    kept["runs"][0]["programs"][ping] = "0" * 64
    record.write_text(json.dumps(kept), encoding="utf-8")
    assert script(text).stdout == "0\n", "as if the host's ping had been another when the cell was computed"
    record.write_text(record.read_text(encoding="utf-8")[:100], encoding="utf-8")
    assert script(text).stdout == "0\n", "a record that is damaged"


def test_files_that_a_scenario_gives_are_inputs_whoever_names_them(
    script: Script, study_python: Path, engine: Path, tmp_path: Path
) -> None:
    scenario = {
        "version": 1,
        "run": {"stop": "1s"},
        "nodes": {
            "h1": {
                "files": {"/etc/number": {"source": "a"}},
                "processes": [{"exec": "cat /etc/number /usr/share/common-licenses/BSD"}],
            }
        },
    }
    sweep = {
        "version": 1,
        "scenario": "number.yaml",
        "parameters": {"file": {"set": 'nodes.h1.files["/etc/number"].source', "to": ["a", "b"]}},
        "seeds": [1],
        "values": {"number": {"stdout": "h1", "find": "^([0-9]+)$"}},
    }
    (tmp_path / "number.yaml").write_text(json.dumps(scenario), encoding="utf-8")
    (tmp_path / "sweep.yaml").write_text(json.dumps(sweep), encoding="utf-8")
    text = """
import windtunnel as wt

def cell(seed, x):
    net = wt.Network.from_yaml("number.yaml")
    with net.run(seed=seed) as run:
        run.to_end()
    return {"number": int(run.stdout("h1").split()[0])}

found = wt.sweep(cell, {"x": [1]}, seeds=[1], out="by-script")
print(found.sample("number", x=1), found.found)
"""

    def by_file() -> tuple[list[float], int]:
        done = verb(study_python, engine, tmp_path, file="sweep.yaml", out="by-file", json=True)
        report = json.loads(done.stdout)
        return [row["mean"] for row in report["table"]], report["found"]

    def give(**numbers: int) -> None:
        for name, number in numbers.items():
            (tmp_path / name).write_text(f"{number}\n", encoding="ascii")

    give(a=7, b=8)
    assert (by_file(), script(text).stdout) == (([7, 8], 0), "[7] 0\n")
    assert (by_file(), script(text).stdout) == (([7, 8], 2), "[7] 1\n")
    give(b=80)
    assert by_file() == ([7, 80], 1), "a file that a parameter names, of that cell only"
    give(a=70)
    assert (by_file()[0], script(text).stdout) == ([70, 80], "[70] 0\n"), "a file that a script's scenario names"
    (record,) = (tmp_path / "by-script/cells").glob("*.json")
    kept = json.loads(record.read_text(encoding="utf-8"))
    (licence,) = [path for path in kept["runs"][0]["files"] if path.endswith("/BSD")]
    for state in ("0" * 64, None):
        kept["runs"][0]["files"][licence] = state
        record.write_text(json.dumps(kept), encoding="utf-8")
        assert script(text).stdout == "[70] 0\n", "as if what a program read had been another, or no one state"
    assert script(text).stdout == "[70] 1\n"


WRONG = {
    'wt.sweep(cell, {"y": [1]})': "the function takes no parameter `y`; it takes x",
    'wt.sweep(cell, {"xx": [1]})': "did you mean `x`?",
    "wt.sweep(cell, {})": "the function needs the parameter `x`",
    'wt.sweep(cell, {"x": []})': "parameter `x` has no values",
    'wt.sweep(cell, {"x": 3})': "parameter `x` is 3",
    'wt.sweep(cell, {"x": [1, 1.0]})': 'the point {"x":1} is there twice',
    'wt.sweep(cell, [{"x": 1}, {"y": 1}])': "not every point has the parameter `x`, `y`",
    'wt.sweep(cell, {"x": [float("inf")]})': "parameter `x` is inf",
    'wt.sweep(cell, {"x": [object]})': "of type type",
    'wt.sweep(cell, {"x": [1], "seed": [1]})': "`seed` is a parameter",
    'wt.sweep(cell, {"x": [1]}, seeds=6)': "seeds are 6",
    'wt.sweep(cell, {"x": [1]}, seeds=[1, 2, 1])': "the seed 1 is there twice",
    'wt.sweep(cell, {"x": [1]}, seeds=[1.5])': "1.5 is not a seed",
    'wt.sweep(cell, {"x": [1]}, workers=0)': "0 workers are not allowed",
    'wt.sweep(cell, {"x": [1]}, executor="dusk")': "there is no executor `dusk`; allowed: local, dask",
    'wt.sweep(cell, {"x": [1]}, executor=object())': "object is no executor: it has no `capacity`",
    'wt.sweep(cell, {"x": [1]}, executor="dask:tcp://127.0.0.1:1")': "there is no Dask scheduler at tcp://127.0.0.1:1",
    'wt.sweep(cell, {"x": [1]}, executor="slurm")': "Slurm cannot be used",
    'wt.sweep(cell, {"x": [1]}, files=["none"])': "cannot read none, which `files` names",
    'wt.sweep(cell, {"x": [1]}, out="/proc/none")': "cannot make /proc/none",
    'wt.sweep(lambda x: {}, {"x": [1]})': "the function takes no `seed`; it takes x",
    'wt.sweep(cell, {"x": [1]}, name="a/b")': "`a/b` cannot be the name of a sweep",
    'wt.sweep(3, {"x": [1]})': "3 is not a function",
    'wt.Interval("y")': "an interval needs a width above 0",
    'wt.Interval("y", relative=0.1, least=1)': "allowed: 2 <= least <= most",
    'wt.sweep(cell, {"x": [1]}, until=wt.Interval("yy", relative=0.1))': "did you mean `y`?",
    'wt.LatinHypercube({"x": (1, 0)}, count=3).points()': "the range (1, 0) of `x` is not allowed",
    'wt.LatinHypercube({"x": (0, 1, "log")}, count=3).points()': 'a "log" range is above 0',
    'wt.sweep(cell, {"x": [1]}, out="s").table("z")': "no cell returned `z`; there are y",
    'wt.sweep(cell, {"x": [1]}, out="s").sample("y", z=1)': "the sweep has no parameter `z`; it has x",
    'wt.sweep(lambda seed, x: {"x": 1}, {"x": [1]}, out="t").check()': "returned `x`, which is a parameter",
    'wt.sweep(lambda seed, x: {"y": lock}, {"x": [1]}, executor=pool)': "cannot be sent",
}


def test_what_is_wrong_is_said(script: Script) -> None:
    main = f"""
import concurrent.futures, threading
if __name__ == "__main__":
    lock = threading.Lock()
    pool = concurrent.futures.ProcessPoolExecutor(1)
    for text in {list(WRONG)!r}:
        try:
            exec(text)
            print(json.dumps("nothing"))
        except wt.Error as error:
            print(json.dumps(str(error)))
"""
    said = [json.loads(line) for line in script(PLAIN + main).stdout.splitlines()]
    assert len(said) == len(WRONG)
    for (text, expected), found in zip(WRONG.items(), said, strict=True):
        assert expected in found, text


def test_two_sweeps_do_not_work_in_one_folder(script: Script) -> None:
    main = """
import fcntl
wt.sweep(cell, {"x": [1]}, out="one")
with open("one/sweep.lock", "a") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        wt.sweep(cell, {"x": [1]}, out="one")
    except wt.Error as error:
        print(error)
print(wt.sweep(cell, {"x": [1]}, out="one").found)
"""
    said = script(PLAIN + main).stdout
    assert re.search(r"another sweep, process \d+, is at work in .*/one\nhint: .*\n1\n", said)


def test_a_full_disk_keeps_what_is_there(script: Script, study_python: Path, engine: Path, tmp_path: Path) -> None:
    main = """
found = wt.sweep(cell, {"x": list(range(400))}, seeds=[1, 2], workers=2, out="full/sweep")
print(found.found, len(found.records), len(found.failed))
"""
    (tmp_path / "study.py").write_text(PLAIN + main, encoding="utf-8")
    (tmp_path / "full").mkdir()
    small = "mount -t tmpfs -o size=1m none full && { python study.py; ls full/sweep/cells | wc -l; }"
    again = "mount -o remount,size=64m full && python study.py"
    command = ["unshare", "-rm", "sh", "-c", f"{small}; {again}".replace("python", str(study_python))]
    done = subprocess.run(command, cwd=tmp_path, env=environment(engine), **PIPES)
    if "unshare:" in done.stderr:
        pytest.skip(f"this host lets no user mount: {done.stderr.strip()}")
    kept, last = done.stdout.splitlines()
    assert "the disk is full" in done.stderr
    assert "finished cells are kept: make room" in done.stderr
    assert int(kept) > 100
    assert last == f"{kept} 800 0"


def test_functions_need_no_module(script: Script, study_python: Path, engine: Path, tmp_path: Path) -> None:
    """Those of a notebook, of a text that is run, of `python3 -c`, closures and lambdas; here and on Dask."""
    body = """
scale = 3
def run(seed, x):
    return {"y": scale * x + seed}
def results(executor):
    by = 5
    inner = lambda seed, x: {"y": by * x}
    for function in (run, inner):
        found = wt.sweep(function, {"x": [1, 2]}, seeds=[1, 2], executor=executor(), out=f"o{os.urandom(4).hex()}")
        print([row["mean"] for row in found.table()], found.digest)
"""
    notebook = f"""
import os, sys
from IPython.core.interactiveshell import InteractiveShell
import windtunnel as wt
shell = InteractiveShell.instance()
for text in ("import os, windtunnel as wt", {body!r}, "results(lambda: wt.LocalExecutor(2))"):
    assert shell.run_cell(text).success
if __name__ == "__main__":
    assert shell.run_cell("results(lambda: wt.DaskExecutor(workers=2))").success
"""
    lines = script(notebook).stdout.splitlines()
    assert len(lines) == 4 and lines[:2] == lines[2:]
    assert lines[0].startswith("[4.5, 7.5] ")
    text = f"import os, windtunnel as wt\n{body}\nresults(lambda: wt.LocalExecutor(2))"
    done = subprocess.run([study_python, "-c", text], cwd=tmp_path, env=environment(engine), **PIPES)
    assert done.stdout.splitlines() == lines[:2], done.stderr


SCENARIO = """\
version: 1
run: {stop: 20s, measure: 100ms}
addressing: auto
routing: auto
defaults:
  link: {rate: 10Mbit, delay: 5ms, queue: 50p}
nodes:
  client:
    processes: [{exec: iperf3 -c server -t 3 -f k, start: 2s, expect: 0}]
  server:
    processes: [{exec: iperf3 -s -1 -f k, start: 1s, expect: 0}]
links:
  - endpoints: ["client:eth0", "server:eth0"]
"""
FILE = """\
version: 1
scenario: transfer.yaml
parameters:
  loss_percent: {set: links.0.both.loss, to: [0, 3], as: "{}%"}
  congestion_control:
    set: nodes.client.sysctls["net.ipv4.tcp_congestion_control"]
    to: [reno, bbr]
seeds: 1-2
values:
  goodput_bps: {stdout: client, find: "([0-9.]+) Kbits/sec +receiver", times: 1000}
  lost_frames: {summary: "links[0].a_to_b.drops", take: sum}
  queue_frames: {link: "client:eth0", column: queue_frames, take: max}
"""


def test_a_file_describes_a_sweep_of_a_scenario(study_python: Path, engine: Path, tmp_path: Path) -> None:
    (tmp_path / "transfer.yaml").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "loss.yaml").write_text(FILE, encoding="utf-8")
    command: list[str | Path] = [engine, "sweep", "loss.yaml", "--out", "out"]
    env = {**environment(engine), "WINDTUNNEL_PYTHON": str(study_python)}
    done = subprocess.run([*command, "--json"], cwd=tmp_path, env=env, **PIPES)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    means = {(row["loss_percent"], row["congestion_control"], row["value"]): row["mean"] for row in report["table"]}
    assert means[0, "reno", "goodput_bps"] > 9e6 > means[3, "bbr", "goodput_bps"] > 8e6
    assert means[3, "reno", "goodput_bps"] < 8e6
    assert (means[0, "reno", "queue_frames"], means[0, "bbr", "lost_frames"]) == (50, 0)
    again = subprocess.run(command, cwd=tmp_path, env=env, **PIPES)
    assert f"digest {report['digest']}\n" in again.stdout
    assert "loss: 8 of 8 cells, 8 found" in again.stderr, "plain lines, where there is no terminal"
    other = verb(study_python, engine, tmp_path, file="loss.yaml", out="dask", executor="dask", json=True)
    assert json.loads(other.stdout)["digest"] == report["digest"]
    (tmp_path / "transfer.yaml").write_text(SCENARIO.replace("50p", "40p"), encoding="utf-8")
    changed = json.loads(verb(study_python, engine, tmp_path, file="loss.yaml", out="out", json=True).stdout)
    assert changed["found"] == 0


MISTAKES = {
    ("stdout:", "stdot:"): "hint: did you mean `stdout`?",
    ("seeds:", "seed:"): "the file has no key `seed`; allowed: version, name, scenario",
    ("seeds: 1-2", "seeds: 2"): "hint: seeds: [2], or seeds: 1-2",
    ("seeds: 1-2", "seeds: 2-1"): "seeds are `2-1`",
    ("version: 1", "version: 2"): "version `2` is not allowed; allowed: 1",
    ("to: [0, 3]", "to: 3"): "parameters.loss_percent.to is not a list: 3",
    ("to: [0, 3]", "range: [0, 3]"): "parameters.loss_percent has a `range`, and the sweep no `latin`",
    ("set: links.0.both.loss", "set: links.7.both.loss"): "`links.7.both.loss`: what links.7 is in has 1 entries",
    ("set: links.0.both.loss", "set: links.0.both.los"): "unknown key `los`",
    ("set: nodes.client", "set: nodes.clint"): "hint: did you mean `client`?",
    ("([0-9.]+) Kbits", "[0-9.]+ Kbits"): "values.goodput_bps.find has 0 groups; one is needed",
    ("take: sum", "take: summ"): "hint: did you mean `sum`?",
    ("times: 1000", "times: many"): "values.goodput_bps.times is `many`: it is a number",
    ("values:", "until: {value: goodput, relative: 5%}\nvalues:"): "hint: did you mean `goodput_bps`?",
    ("transfer.yaml", "none.yaml"): "cannot read none.yaml",
}


def test_mistakes_in_a_file_are_said_before_the_first_cell(study_python: Path, engine: Path, tmp_path: Path) -> None:
    (tmp_path / "transfer.yaml").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "none.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "bad.py").write_text("x = 1 / 0\n", encoding="utf-8")

    def said(file: str) -> str:
        done = verb(study_python, engine, tmp_path, file=file, out="out")
        assert (done.returncode, done.stdout) == (2, ""), file
        assert done.stderr.startswith("error: ")
        assert not (tmp_path / "out").exists()
        return done.stderr

    for (text, other), expected in MISTAKES.items():
        assert text in FILE
        (tmp_path / "bad.yaml").write_text(FILE.replace(text, other), encoding="utf-8")
        assert expected.replace("none.yaml", str(tmp_path / "none.yaml")) in said("bad.yaml"), other
    assert "this is not a sweep: it names no `scenario`" in said("transfer.yaml")
    assert "none.py has no sweep" in said("none.py")
    assert "ZeroDivisionError: division by zero" in said("bad.py")
    assert "cannot read gone.py" in said("gone.py")
    assert "cannot read gone.yaml" in said("gone.yaml")
    assert "gone.txt is neither a .yaml nor a .py file" in said("gone.txt")


def test_the_schema_of_sweep_files_is_that_of_the_reader(study_python: Path, engine: Path, tmp_path: Path) -> None:
    schema = subprocess.run([engine, "schema", "sweep"], capture_output=True, check=True).stdout
    assert schema == (ROOT / "schema/sweep-v1.json").read_bytes()
    script = """
import json, jsonschema, sys, yaml
from windtunnel import _sweep_scenario as reader
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
assert not list(validator.iter_errors(yaml.safe_load(sys.argv[2])))
assert list(validator.iter_errors(yaml.safe_load(sys.argv[2].replace("seeds", "seed"))))
keys = schema["properties"]
assert set(keys) == set(reader.KEYS)
assert set(keys["parameters"]["additionalProperties"]["properties"]) == set(reader.PARAMETER_KEYS)
assert set(keys["latin"]["properties"]) == set(reader.LATIN_KEYS)
assert set(keys["until"]["properties"]) == set(reader.UNTIL_KEYS)
for one in keys["values"]["additionalProperties"]["oneOf"]:
    source = one["required"][0]
    assert set(one["properties"]) == {source, *reader.SOURCES[source]}
    assert one["properties"].get("take", {"enum": list(reader.TAKES)})["enum"] == list(reader.TAKES)
"""
    arguments: list[str | Path] = [study_python, "-c", script, ROOT / "schema/sweep-v1.json", FILE]
    done = subprocess.run(arguments, cwd=tmp_path, env=environment(engine), **PIPES)
    assert done.returncode == 0, done.stderr


def test_what_the_document_shows_is_so(study_python: Path, engine: Path, tmp_path: Path) -> None:
    """Blocks of YAML are files, named by their first line; Python and commands print what the block after them says."""
    document = (ROOT / "docs/sweeps.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    mark = "--- end of a block ---\n"
    env = {**environment(engine), "WINDTUNNEL_PYTHON": str(study_python)}
    script, printed = "", []
    for (language, text), (following, expected) in itertools.pairwise([*blocks, ("", "")]):
        if language == "yaml":
            (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text, encoding="utf-8")
        elif language == "python":
            script += f"{text}\nprint({mark!r}, end='')\n"
            printed.append(expected if following == "text" else "")
        elif language == "console":
            name, command, *rest = text.splitlines(keepends=True)[0].split()
            assert (name, command) == ("$", "windtunnel")
            done = subprocess.run([engine, *rest], cwd=tmp_path, env=env, **PIPES)
            assert done.returncode == 0, done.stderr
            assert done.stdout.split("digest ")[0] == "".join(text.splitlines(keepends=True)[1:])
    (tmp_path / "study.py").write_text(script, encoding="utf-8")
    done = subprocess.run([study_python, "study.py"], cwd=tmp_path, env=env, **PIPES)
    assert done.returncode == 0, done.stderr
    assert len(printed) == 2
    assert done.stdout.split(mark) == [*printed, ""]


def test_the_example_shows_what_it_says(study_python: Path, engine: Path, tmp_path: Path) -> None:
    done = verb(study_python, engine, tmp_path, file=str(ROOT / "examples/sweep-loss.py"), json=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["table"]
    means = {(row["congestion_control"], row["loss_percent"]): row["mean"] / 1e6 for row in rows}
    assert all(means[name, 0] > 9 for name in ("reno", "cubic", "bbr"))
    assert all(1 < means[name, 2] < 3 for name in ("reno", "cubic"))
    assert means["bbr", 2] > 8


KEYS = """
import windtunnel as wt
BY = {"a": 2}
class Helper:
    def __init__(self, x):
        self.x = x
    def twice(self):
        return self.x * BY["a"]
def cell(seed, x):
    return {"y": Helper(x).twice() + seed}
found = wt.sweep(cell, {"x": [1, 2.5]}, out="out")
print([row["mean"] for row in found.table()], found.digest, found.found)
"""


def test_cells_are_the_same_for_each_version_of_python(engine: Path, tmp_path: Path) -> None:
    """And nothing but the standard library is needed, where there is nothing to be estimated."""
    (tmp_path / "keys.py").write_text(KEYS, encoding="utf-8")
    said = []
    for number, program in enumerate([sys.executable, *other_pythons()]):
        done = subprocess.run([program, "keys.py"], cwd=tmp_path, env=environment(engine), **PIPES)
        assert done.returncode == 0, done.stderr
        words, found = done.stdout.rsplit(maxsplit=1)
        assert found == ("2" if number else "0"), program
        said.append(words)
    assert said[0].startswith("[3.0, 6.0]")
    assert set(said) == {said[0]}


def test_a_latin_hypercube_has_one_point_in_each_part() -> None:
    ranges: dict[str, Any] = {"a": (0, 20), "b": (1, 1024, "log"), "c": ["x", "y"]}
    points = wt.LatinHypercube(ranges, count=10, seed=3).points()
    assert points == wt.LatinHypercube(ranges, count=10, seed=3).points()
    assert points != wt.LatinHypercube(ranges, count=10, seed=4).points()
    assert sorted(int(point["a"] / 2) for point in points) == list(range(10))
    assert sorted(int(math.log2(point["b"])) for point in points) == list(range(10))
    assert sorted(point["c"] for point in points) == ["x"] * 5 + ["y"] * 5
    fewer = wt.LatinHypercube({"a": (0, 20)}, count=10, seed=3).points()
    assert [point["a"] for point in fewer] == [point["a"] for point in points], "parameters do not touch each other"
