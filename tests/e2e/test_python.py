# SPDX-License-Identifier: GPL-2.0-or-later
"""The Python package: networks that scripts build, and runs that they drive."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import json
import os
import pkgutil
import random
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import windtunnel as wt
from tmpfs import on_tmpfs

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 60


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WINDTUNNEL_PROGRAM", str(engine))
    monkeypatch.chdir(tmp_path)
    yield


def two(**options: Any) -> tuple[wt.Network, wt.Node, wt.Node]:
    """Two hosts and a router between them."""
    net = wt.Network("two", **options)
    h1, r1, h2 = net.add_node("h1"), net.add_router("r1"), net.add_node("h2")
    net.add_link(h1, r1, rate="10Mbit", delay="5ms", queue="100p")
    net.add_link(r1, h2, rate=10_000_000, delay=0.005, queue=100)
    return net, h1, h2


def python(script: str, *arguments: str | Path, program: str = sys.executable) -> subprocess.Popen[str]:
    """A script with the package, in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    command: list[str | Path] = [program, "-c", script, *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def is_gone(pid: int) -> bool:
    deadline_s = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


def test_the_examples_in_docstrings_hold() -> None:
    names = ["windtunnel", *(f"windtunnel.{module.name}" for module in pkgutil.iter_modules(wt.__path__))]
    found = [doctest.testmod(importlib.import_module(name)) for name in names if name != "windtunnel.__main__"]
    assert sum(result.attempted for result in found) > 40
    assert sum(result.failed for result in found) == 0


def test_types_of_messages_are_those_of_the_engine(engine: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/make_protocol.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    schema = subprocess.run([engine, "schema", "protocol"], capture_output=True, text=True, check=True).stdout
    files = sorted((ROOT / "schema").glob("protocol-v*.json"))
    assert schema in [file.read_text(encoding="utf-8") for file in files]


def test_the_import_is_quick() -> None:
    script = "import time; start = time.process_time(); import windtunnel; print(time.process_time() - start)"
    seconds = min(float(python(script).communicate()[0]) for _ in range(3))
    assert seconds < 0.3, "what is seldom needed is imported late"


def test_a_script_says_the_same_each_time_and_can_be_replayed(engine: Path, tmp_path: Path) -> None:
    def script(out: Path, sleeps: random.Random | None) -> wt.Run:
        def dawdle() -> None:
            if sleeps:
                time.sleep(sleeps.random() / 20)

        net, h1, h2 = two(seed=7)
        h2.run("iperf3 --server", expect="any")
        with net.run(out, check=False) as run:
            run.until("1s")
            dawdle()
            cat = h1.popen(["cat"])
            dawdle()
            cat.stdin.write("one\n")
            dawdle()
            assert cat.stdout.readline() == "one\n"
            client = h1.popen("iperf3 --client 10.0.1.2 --time 2")
            for _ in range(5):
                run.go(0.25)
                dawdle()
            h2.write_file("/tmp/x", "1")
            assert h2.sysctl("net.ipv4.tcp_congestion_control", "reno") == "reno"
            net.links[0].set(delay="9ms")
            dawdle()
            run.counters()
            run.step()
            run.processes("h1")
            client.wait()
            cat.stdin.close()
            cat.wait()
        return run

    quick, slow = script(tmp_path / "quick", None), script(tmp_path / "slow", random.Random())
    assert quick.ended == "driver"
    assert (quick.out / "summary.json").read_bytes() == (slow.out / "summary.json").read_bytes()
    assert (quick.out / "input.jsonl").read_bytes() == (slow.out / "input.jsonl").read_bytes()
    command: list[str | Path] = [engine, "run", quick.scenario, "--replay", quick.out / "input.jsonl", "--quiet"]
    subprocess.run([*command, "--out", tmp_path / "again"], check=False, timeout=PATIENCE_S)
    again = json.loads((tmp_path / "again/summary.json").read_text(encoding="utf-8"))
    assert again["digest"] == quick.digest


def test_programs_are_as_of_subprocess() -> None:
    net, h1, h2 = two()
    with net.run() as run:
        assert h1.popen(["sh", "-c", "cat; echo bad >&2; exit 3"]).communicate("in") == ("in", "bad\n")
        raw = h1.popen("cat", text=False)
        raw.stdin.write(b"\xff\x00")
        raw.stdin.close()
        assert raw.stdout.read() == b"\xff\x00"
        assert raw.wait() == 0 == raw.returncode
        text = "".join(f"{number}\n" for number in range(300_000))
        assert h1.popen("cat").communicate(text)[0] == text, "more than pipes hold"
        lines = h1.popen("seq 3")
        assert (lines.stdout.read(2), list(lines.stdout)) == ("1\n", ["2\n", "3\n"])
        assert h1.popen("printf '%s\\n' $A", shell=True, env={"A": "b c"}).stdout.read() == "b\nc\n"
        assert h1.popen(["id", "-u"], user=1234).stdout.read() == "1234\n"
        assert h1.popen(["pwd"], cwd="/usr/bin").stdout.read() == "/usr/bin\n"
        assert h1.popen(["./pwd"], cwd="/usr/bin", user=1234).stdout.read() == "/usr/bin\n"
        screen = h1.popen("stty size; exit 4", shell=True, terminal=(30, 100))
        assert (screen.wait(), screen.stdout.read()) == (4, "30 100\r\n")
        sleeper = h2.popen(["sleep", "1000"])
        assert sleeper.poll() is None
        before = run.now_ns
        with pytest.raises(wt.Error, match=r"`sleep 1000` on h2 had not ended within 1.5 s of virtual time"):
            sleeper.wait(timeout=1.5)
        assert run.now_ns == before + 1_500_000_000
        sleeper.terminate()
        assert sleeper.wait() == -signal.SIGTERM
        sleeper.kill()
        left = h1.popen(["sleep", "1000"])
        left.hang_up()
        assert left.wait() == -signal.SIGHUP
        deaf = h1.popen(["sh", "-c", "trap '' HUP; echo ready; sleep 3; exit 5"])
        assert deaf.stdout.readline() == "ready\n"
        deaf.hang_up()
        assert deaf.wait() == 5
        assert h1.cmd("echo out; echo err >&2; echo out; sleep 1000 &") == "out\nerr\nout\n"
        assert [row["command"] for row in h1.processes()] == ["sleep 1000"]
        assert h1.cmd(["echo", "a  b"], 5) == "a  b 5\n"
        with pytest.raises(wt.Error, match=r"had not ended within 1 s of virtual time"):
            h2.cmd("sleep 50; true", timeout=1)
        assert [row["command"] for row in h2.processes() if "sleep 50" in row["command"]] == []
        e_acute = h1.popen(["printf", "é€x"])
        assert (e_acute.stdout.read(1), e_acute.stdout.read(1), e_acute.stdout.read(5)) == ("é", "€", "x")
        assert h1.MAC() == "02:00:00:00:00:00"
        with pytest.raises(wt.Error, match="`exit 9` on h1 ended with 9") as failed:
            h1.check("exit 9")
        assert failed.value.exit_code == 9


def test_files_of_nodes() -> None:
    net, h1, _ = two()
    with net.run():
        h1.write_file("/tmp/tool", "#!/bin/sh\necho works\n", mode=0o755)
        assert h1.cmd("/tmp/tool") == "works\n"
        h1.write_file("/tmp/raw", bytes(range(256)))
        assert h1.read_bytes("/tmp/raw") == bytes(range(256))
        assert h1.read_file("/etc/hostname") == "h1\n"
        assert h1.sysctl("net.ipv4.ip_forward") == "0"
        assert h1.sysctl("net.ipv4.ip_forward", True) == "1"
        with pytest.raises(wt.Error, match="cannot open /none: No such file or directory"):
            h1.read_file("/none")


def test_links_change() -> None:
    net, h1, _ = two()
    with net.run() as run:
        assert "time=40." in h1.cmd("ping -c 1 10.0.1.2"), "neighbours are asked for, too"
        net.links[1].set(delay=0.1, b_to_a={"loss": 0})
        assert "time=210" in h1.cmd("ping -c 1 10.0.1.2")
        net.links[1].down()
        assert "100% packet loss" in h1.cmd("ping -c 1 -W 1 10.0.1.2")
        net.links[1].up()
        assert net.pingall(quiet=True) == 0
        assert net.links[0].counters()["a_to_b"]["frames"] > 3
        with pytest.raises(wt.Error, match="jitter"):
            net.links[0].set(jitter="1s")
        assert run.now > 1


def test_nodes_go_down_and_are_booted_again() -> None:
    net, h1, h2 = two()
    number = h2.run("echo hello", start="1s")
    h2.setup(["sh", "-c", "sleep 0.5; echo ready > /run/ready"])
    net.at("9s").down(h1)
    net.at("10s").up(h1)
    with net.run() as run:
        assert (h2.read_file("/run/ready"), h2.is_up) == ("ready\n", True)
        sleep = h2.popen("sleep 1000")
        h2.down()
        assert (sleep.wait(), h2.is_up, h1.is_up) == (-9, False, True)
        with pytest.raises(wt.Error, match="node `h2` is down already"):
            h2.down()
        with pytest.raises(wt.Error, match=r"node `h2` is down\nhint: .*up\(\)"):
            h2.cmd("true")
        run.until("4s")
        h2.up()
        assert (h2.read_file("/run/ready"), run.now > 4.5) == ("ready\n", True)
        run.until("9.5s")
        assert not h1.is_up
        run.until("11s")
        assert h1.is_up
    with pytest.raises(wt.Error, match="h2 does not run"):
        h2.down()
    assert run.stdout("h2", number) == ""
    assert run.stdout("h2", number, life=2) == "hello\n"
    downs = [(row["node"], row["by"]) for row in run.results.events() if row["event"] == "node_down"]
    assert downs == [("h2", "client"), ("h1", "scenario")]


def test_a_run_ends_as_the_scenario_says() -> None:
    net, h1, _ = two(stop="3s")
    number = h1.run(["echo", "a b"], start=0.5, expect={"exit": 0, "stdout": {"contains": "a b"}})
    net.at("1s").set(net.links[0], loss="100%").run(h1, "ping -c 1 -W 1 10.0.0.2", expect=1)
    with net.run() as run:
        run.to_end()
        assert not run.is_live
    assert (run.ended, run.stdout(h1, number)) == ("all_done", "a b\n")
    h1.run("false")
    with pytest.raises(wt.Error, match="an expectation failed: h1: `false`") as failed, net.run() as run:
        run.to_end()
    assert failed.value.exit_code == 1
    assert run.summary["ended"] == "all_done"
    with net.run(check=False) as run:
        run.until("1h")
        assert run.ended == "stop"
        run.go("1s")
        with pytest.raises(wt.Error, match="the run has come to its end"):
            h1.cmd("true")
    assert run.ended == "stop"


def test_an_exception_ends_the_run_and_keeps_results() -> None:
    net, h1, _ = two()
    h1.run("false")
    with pytest.raises(ZeroDivisionError), net.run() as run:
        run.until("1s")
        pid = run.pid
        _ = 1 / 0
    assert is_gone(pid)
    assert run.summary["ended"] == "driver"
    assert run.out == Path("windtunnel-results/two").absolute()
    assert json.loads((run.out / "manifest.json").read_text(encoding="utf-8"))["ended"] == "driver"
    with net.run(check=False) as again:
        pass
    assert again.out.name == "two-2"


SLEEPY = """
import sys, windtunnel as wt
net = wt.Network("sleepy")
h1, h2 = net.add_node("h1"), net.add_node("h2")
net.add_link(h1, h2)
with net.run("out") as run:
    run.until("1s")
    print(run.pid, flush=True)
    {then}
"""


def test_ctrl_c_ends_the_run_and_keeps_results(tmp_path: Path) -> None:
    # What never ends, and keeps the engine busy.
    script = python(SLEEPY.format(then="h1.cmd('while sleep 0.0001; do :; done')"))
    assert script.stdout is not None
    pid = int(script.stdout.readline())
    time.sleep(0.3)
    script.send_signal(signal.SIGINT)
    _, said = script.communicate(timeout=PATIENCE_S)
    assert "KeyboardInterrupt" in said
    assert is_gone(pid)
    assert json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))["ended"] == "driver"


def test_whoever_catches_ctrl_c_goes_on() -> None:
    then = """
    try:
        h1.cmd('while sleep 0.0001; do :; done')
    except KeyboardInterrupt:
        print(h1.cmd('echo again').strip(), run.now > 1)
"""
    script = python(SLEEPY.format(then=then.strip()))
    assert script.stdout is not None
    script.stdout.readline()
    time.sleep(0.3)
    script.send_signal(signal.SIGINT)
    said, complaints = script.communicate(timeout=PATIENCE_S)
    assert (said, script.returncode) == ("again True\n", 0), complaints


def test_the_program_may_be_a_script_around_it(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\n"{engine}" "$@"\nexit $?\n', encoding="utf-8")
    wrapper.chmod(0o755)
    monkeypatch.setenv("WINDTUNNEL_PROGRAM", str(wrapper))
    net, h1, _ = two()
    with net.run() as run:
        assert h1.cmd("hostname") == "h1\n"
    assert run.ended == "driver"


def test_a_script_that_vanishes_takes_the_engine_with_it(tmp_path: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        script = python(SLEEPY.format(then="import time; time.sleep(1000)").replace('"out"', f'"{int(number)}"'))
        assert script.stdout is not None
        pid = int(script.stdout.readline())
        script.send_signal(number)
        script.communicate(timeout=PATIENCE_S)
        assert is_gone(pid)
        summary = json.loads((tmp_path / f"{int(number)}/summary.json").read_text(encoding="utf-8"))
        assert summary["ended"] == "interrupted"


def test_a_script_that_forgets_its_run_ends_it(tmp_path: Path) -> None:
    script = python(
        SLEEPY.replace("with net.run", "run = net.run").replace(" as run:", "\nif True:").format(then="pass")
    )
    said, complaints = script.communicate(timeout=PATIENCE_S)
    assert script.returncode == 0, complaints
    assert is_gone(int(said))
    assert json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))["ended"] == "driver"


def test_a_dead_engine_is_told() -> None:
    net, h1, _ = two()
    with pytest.raises(wt.Error, match="the run broke off: the engine was ended by SIGKILL") as died, net.run() as run:
        os.kill(run.pid, signal.SIGKILL)
        h1.cmd("true")
    assert died.value.exit_code == 128 + signal.SIGKILL
    assert not run.is_live
    with pytest.raises(wt.Error, match="the run has ended"):
        run.go("1s")
    with pytest.raises(wt.Error, match="left no summary"):
        _ = run.summary
    with pytest.raises(wt.Error, match="h1 does not run"):
        h1.cmd("true")


def test_an_engine_that_dies_in_mid_request_is_told(tmp_path: Path) -> None:
    net, h1, _ = two()
    with pytest.raises(wt.Error, match="the run broke off: the engine was ended by SIGKILL") as died, net.run() as run:
        h1.cmd("echo kept")
        killer = threading.Timer(0.5, os.kill, (run.pid, signal.SIGKILL))
        killer.start()
        h1.cmd("while sleep 0.0001; do :; done")
    assert died.value.hint == f"what was written until then is in {run.out}"
    assert "kept\n" in [path.read_text(encoding="utf-8") for path in run.out.glob("h1/*.stdout")]


FULL_DISK = """
import windtunnel as wt
net = wt.Network("full")
h1, h2 = net.add_node("h1"), net.add_node("h2")
net.add_link(h1, h2)
try:
    with net.run("out") as run:
        h1.cmd("echo kept")
        h2.cmd("head -c 8000000 /dev/zero")
except wt.Error as error:
    print(error)
kept = [path.read_text() for path in sorted(run.out.glob("h1/*.stdout"))]
print(kept, run.is_live)
"""


def test_a_full_disk_is_told_and_results_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    prefix = on_tmpfs("size=2m", out)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*prefix, sys.executable, "-c", FULL_DISK]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert "the run broke off: " in done.stdout and "No space left on device" in done.stdout, done.stdout
    assert "hint: " in done.stdout
    assert "['kept\\n'] False" in done.stdout.splitlines()


def test_what_is_wrong_with_a_scenario_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("version: 1\nrun: {stop: 1s}\nnodes:\n  h1: {memry: 64MiB}\n", encoding="utf-8")
    with pytest.raises(wt.Error) as failed:
        wt.Network.from_yaml(file).run("out")
    error = failed.value
    assert error.message.startswith("unknown key `memry`")
    assert error.where is not None
    assert error.where.splitlines()[0] == f"{file}:4:8"
    assert "4 |   h1: {memry: 64MiB}" in error.where
    assert error.hint == "did you mean `memory`?"
    assert not (tmp_path / "out").exists()
    with pytest.raises(wt.Error, match="jitter"):
        two(link={"jitter": "1s"})[0].validate()
    net, h1, _ = two()
    h1.run("true", start="5mx")
    with pytest.raises(wt.Error, match="5mx"):
        net.run("out2")
    net, _, _ = two()
    net.validate()
    with net.run("out"):
        pass
    with pytest.raises(wt.Error, match=r"not empty|holds|results") as failed:
        net.run("out")
    assert failed.value.hint
    with net.run("out", force=True):
        pass
    file.write_text("version: 1\nnodes: {a: {}, a: {}}\n", encoding="utf-8")
    with pytest.raises(wt.Error, match="the key `a` is there twice") as failed:
        wt.Network.from_yaml(file)
    assert str(failed.value.where).startswith(f"{file}:2:16")
    shapes = [
        "nodes: [a]",
        "nodes: {a: [1]}",
        "nodes: {a: x}",
        "links: 5",
        "links: [5]",
        "links: [{endpoints: a}]",
        "5",
        "",
    ]
    shapes += ["links: [{endpoints: [a, b]}]", 'links: [{endpoints: ["a:b", "c:d"]}]', "nodes: {a: {addresses: 5}}"]
    for shape in shapes:
        file.write_text(f"version: 1\nrun: {{stop: 1s}}\n{shape}\n", encoding="utf-8")
        with pytest.raises(wt.Error) as failed:
            wt.Network.from_yaml(file).run("never")
        assert failed.value.where, shape
    file.write_text("version: [1\n", encoding="utf-8")
    with pytest.raises(wt.Error) as failed:
        wt.Network.from_yaml(file)
    assert f"{file}:2" in str(failed.value.where)


def test_what_users_do_wrong_is_one_exception() -> None:
    net, h1, h2 = two()
    run = net.run()
    link = net.links[0]
    wrong: dict[str, Callable[[], object]] = {
        "contains a NUL character": lambda: h1.popen(["ls", "a\0b"]),
        "is the path|NUL": lambda: h1.read_file("/a\0b"),
        "`nonesuch` is in no folder of PATH": lambda: h1.popen("nonesuch"),
        "no user `nobody-here`": lambda: h1.popen("id", user="nobody-here"),
        "popen has no option `stdout`": lambda: h1.popen("ls", stdout=subprocess.PIPE),  # type: ignore[call-overload]
        "lines and columns": lambda: h1.popen("ls", terminal=(1, 2, 3)),  # type: ignore[arg-type]
        "the working directory `/none`: No such file": lambda: h1.popen("ls", cwd="/none"),
        "the working directory `/etc/passwd`: Not a dir": lambda: h1.popen("ls", cwd="/etc/passwd"),
        "the working directory `tmp` is not absolute": lambda: h1.popen("ls", cwd="tmp"),
        "the working directory .* contains a NUL": lambda: h1.popen("ls", cwd="/\0"),
        "the command is empty": lambda: h1.popen([]),
        "No closing quotation": lambda: h1.popen("echo 'a"),
        "is not absolute": lambda: h1.read_file("etc/hostname"),
        "is past": lambda: run.until(0),
        "time `5` is not allowed": lambda: run.until("5"),
        "time `-1` is not allowed": lambda: run.go(-1),
        "time `nan` is not allowed": lambda: run.go(float("nan")),
        "not the number of a signal": lambda: h1.popen("sleep 1").send_signal(99),
        "the network runs: its nodes are fixed": lambda: net.add_node("h3"),
        "the network runs: its links are fixed": lambda: net.add_link(h1, h2),
        "it can run once at a time": lambda: net.run(),
        "no node `zz`": lambda: run.processes("zz"),
        "there is no node `zz`; there are h1, r1, h2": lambda: net["zz"],
        "nothing of the link is to change": lambda: link.set(),
        "loss `1.5` is not allowed": lambda: link.set(loss=1.5),
        "the run goes on": lambda: run.digest,
        "this cannot be sent to the engine": lambda: h1.write_file("/tmp/x", "\ud800"),
        "longer than|too many": lambda: h1.write_file("/tmp/x", b"x" * (5 << 20)),
        "has no interface `eth7`; it has eth0": lambda: h1.IP("eth7"),
    }
    for text, do in wrong.items():
        with pytest.raises(wt.Error, match=text):
            do()
    assert h1.cmd("echo fine") == "fine\n", "the run goes on"
    run.stop()
    with pytest.raises(wt.Error, match="the run has ended"):
        run.until("5s")
    unbuilt: dict[str, Callable[[], object]] = {
        "`a b` cannot be the name of a node": lambda: net.add_node("a b"),
        "there is a node `h1` already": lambda: net.add_node("h1"),
        "h1:eth0 has a link already": lambda: net.add_link("h1:eth0", h2),
        "`e/0` cannot be the name of an interface": lambda: net.add_link("h1:e/0", h2),
        "a link has no value `speed`": lambda: net.add_link(h1, h2, a_to_b={"speed": 1}),
        "prefix length": lambda: net.add_link(h1, h2, addresses=("10.0.9.1", None)).a.ip,
        "routing `ospf` is not allowed": lambda: wt.Network(routing="ospf"),  # type: ignore[arg-type]
        "no option `sede`": lambda: wt.Network(sede=1),
        "the network has no nodes": lambda: wt.Network().run(),
        "there are no controllers": lambda: net.addController("c0"),
        "cannot read none.yaml: No such file": lambda: wt.Network.from_yaml("none.yaml"),
    }
    for text, do in unbuilt.items():
        with pytest.raises(wt.Error, match=text):
            do()


FAKE = """#!{python}
import json, os, socket, struct, sys, time
out = sys.argv[sys.argv.index("--out") + 1]
os.makedirs(out, exist_ok=True)
here = socket.socket(socket.AF_UNIX)
here.bind(out + "/s")
here.listen()
os.symlink(out + "/s", out + "/control.sock")
there, _ = here.accept()
hello = {{"protocol": {version}, "version": "9", "scenario": "x", "out": out, "pid": os.getpid(), "nodes": []}}
hello = json.dumps({{"hello": hello}})
there.sendall(struct.pack(">IB", len(hello), ord("m")) + hello.encode())
time.sleep(1000)
"""


def test_an_engine_of_another_version_or_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "fake"
    monkeypatch.setenv("WINDTUNNEL_PROGRAM", str(program))
    with pytest.raises(wt.Error, match="WINDTUNNEL_PROGRAM names"):
        two()[0].run("out")
    program.write_text(FAKE.format(python=sys.executable, version=99), encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(wt.Error, match=r"version 99 of the control protocol, this package version [0-9]+"):
        two()[0].run("o1")
    version = importlib.import_module("windtunnel._protocol").PROTOCOL
    program.write_text(FAKE.format(python=sys.executable, version=version), encoding="utf-8")
    with pytest.raises(wt.Error, match=r"has not answered for 0\.5 s of the wall clock"):
        two()[0].run("o2", timeout=0.5)
    program.write_text(
        "#!/bin/sh\necho 'error: it is broken' >&2\necho 'hint: mend it' >&2\nexit 3\n", encoding="utf-8"
    )
    with pytest.raises(wt.Error, match=r"^it is broken\nhint: mend it$") as failed:
        two()[0].run("o3")
    assert failed.value.exit_code == 3


def test_another_thread_can_pause() -> None:
    net, h1, _ = two()
    with net.run() as run:
        busy = h1.popen("while sleep 0.0001; do :; done", shell=True)
        threading.Timer(0.2, run.pause).start()
        run.until("50min")
        assert 0 < run.now < 3000
        threading.Timer(0.2, run.pause).start()
        with pytest.raises(wt.Error, match="had not ended when the run was paused"):
            busy.wait()
        busy.kill()
        assert busy.wait() == -signal.SIGKILL


def test_asyncio() -> None:
    net, h1, h2 = two()

    async def main() -> tuple[tuple[str, str], float]:
        async with net.arun() as live:
            await live.until("1s")
            both = await asyncio.gather(live.call(h1.cmd, "hostname"), live.call(h2.cmd, "hostname"))
            endless = asyncio.create_task(live.call(h1.cmd, "while sleep 0.0001; do :; done"))
            await asyncio.sleep(0.2)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless
            await live.go("1ms")
            return (both[0], both[1]), live.run.now

    both, now = asyncio.run(main())
    assert both == ("h1\n", "h2\n")
    assert now > 1
    assert net.name in repr(net)


def test_mininet_users_feel_at_home(capsys: pytest.CaptureFixture[str]) -> None:
    net = wt.Network()
    h1 = net.addHost("h1", ip="10.0.0.7/24", mac="02:00:00:00:00:07")
    h2, s1, s2 = net.addHost("h2"), net.addSwitch("s1"), net.addSwitch("s2")
    h3 = net.addHost("h3")
    for a, b in ((h1, s1), (h2, s1), (s1, s2), (s2, h3)):
        net.addLink(a, b, bw=10, delay="1ms", loss=0, max_queue_size=50)
    assert [net.get("h1"), *net.hosts[1:]] == [h1, h2, h3]
    assert (h1.IP(), h2.IP(), h3.IP()) == ("10.0.0.7", "10.0.0.1", "10.0.0.2"), "one segment, one prefix"
    net.start()
    assert net.pingAll() == 0
    assert capsys.readouterr().out.startswith("h1 -> h2 h3\n")
    assert "02:00:00:00:00:07" in h1.cmd("ip link show eth0")
    assert "10.0.0.0/24 dev eth0" in h1.cmd("ip route")
    found = net.iperf((h1, h3), seconds=1)
    assert 8e6 < found.received_bps < 10e6
    datagrams = net.iperf(h1, h3, seconds=1, udp=True, rate="2M")
    assert 1.9e6 < datagrams.received_bps <= 2.1e6
    net.configLinkStatus("s2", "h3", "down")
    assert round(net.pingall(quiet=True), 1) == 66.7
    net.stop()
    net.stop()


def test_notebooks_show_networks_and_runs() -> None:
    net, h1, _ = two()
    drawing = ET.fromstring(net._repr_svg_())
    texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"h1", "h2", "r1", "10Mbit, 5ms"} <= set(texts)
    ET.fromstring(wt.Network()._repr_svg_())
    with net.run() as run:
        h1.cmd("ping -c 1 h2")
        assert "live" in run._repr_html_()
    table = run._repr_html_()
    assert run.digest in table
    assert "h1:eth0 &rarr; r1:eth0" in table


def test_the_prompt(engine: Path, tmp_path: Path) -> None:
    net, _, _ = two()
    (tmp_path / "two.yaml").write_text(net.to_yaml(), encoding="utf-8")
    words = (
        "nodes\nh1 ping -c 3 h2\nrun 5s\nh1 sh -c 'exit 3'\nnone\nlink h1 r1 delay=50ms\nh1 ping -c 2 10.0.1.2\nquit\n"
    )
    done = subprocess.run(
        [engine, "prompt", "two.yaml", "--out", "out"],
        input=words,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "h1  host  10.0.0.1/24 fd00::1/64\n" in done.stdout
    assert "3 packets transmitted, 3 received" in done.stdout
    assert "time=110 ms" in done.stdout
    assert "neither a node nor a command `none`" in done.stderr
    assert (tmp_path / "out/summary.json").exists()


def other_pythons() -> list[str]:
    """Interpreters of the versions that the package is for, where there are some."""
    folders = [*map(Path, os.environ["PATH"].split(":")), *Path.home().glob(".pyenv/versions/*/bin")]
    found: dict[int, str] = {}
    for minor in range(9, 14):
        for folder in folders:
            program = folder / f"python3.{minor}"
            # Those of pyenv's shims only say that they are not chosen.
            if "shims" not in folder.parts and os.access(program, os.X_OK):
                found.setdefault(minor, str(program))
    return list(found.values())


@pytest.mark.parametrize("program", other_pythons())
def test_it_works_with_python(program: str) -> None:
    script = SLEEPY.format(then="print(h1.cmd('ping -c 1 h2').count('1 received'), net._repr_svg_()[:4])")
    said, complaints = python(script, program=program).communicate(timeout=PATIENCE_S)
    assert said.splitlines()[1:] == ["1 <svg"], complaints
