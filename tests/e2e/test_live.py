# SPDX-License-Identifier: GPL-2.0-or-later
"""A live run: shells and commands in its nodes, lists of processes and logs; and that it can be repeated."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from scenarios import Mapping, pair

LINK = {"rate": "1Gbit", "delay": "1ms"}
PATIENCE_S = 60
# What bash sends around each line that it reads, to a terminal that can bracket what is pasted.
BRACKETS = re.compile(r"\x1b\[\?2004[hl]\r?")


def two_hosts(stop: str = "2s") -> Mapping:
    scenario = pair(
        [{"exec": "ping -c 2 10.0.0.2", "start": "100ms", "expect": "any"}, {"exec": "sleep 100000", "expect": "any"}],
        [{"exec": "sleep 100000", "start": "250ms", "expect": "any"}],
        LINK,
        stop=stop,
    )
    scenario["name"] = "two"
    return scenario


@dataclass
class Run:
    """A run that waits for clients."""

    engine: Path
    scenario: Path
    out: Path
    env: dict[str, str]
    process: subprocess.Popen[str]
    digest: str = field(default="", init=False)

    def client(
        self, *arguments: str, stdin: str = "", timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.engine, *arguments],
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def input(self) -> str:
        log = self.out / "input.jsonl"
        return log.read_text(encoding="utf-8") if log.exists() else ""

    def end(self) -> dict[str, object]:
        """Ends it as Ctrl-C does; its summary."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=PATIENCE_S) == 0, self.process.communicate()
        summary: dict[str, object] = json.loads((self.out / "summary.json").read_text(encoding="utf-8"))
        return summary

    def replay(self) -> Path:
        """Repeats it from its log; the output folder."""
        out = self.out.with_name("replayed")
        done = self.client("run", str(self.scenario), "--out", str(out), "--replay", str(self.out / "input.jsonl"))
        assert done.returncode == 0, done.stderr
        return out


@pytest.fixture
def live(engine: Path, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts runs that hold, and ends what is left of them."""
    runs: list[Run] = []

    def start(scenario: Mapping, *options: str) -> Run:
        folder = tmp_path / f"run{len(runs)}"
        folder.mkdir()
        file, out = folder / "s.yaml", folder / "out"
        file.write_text(json.dumps(scenario), encoding="utf-8")
        env = {**os.environ, "XDG_RUNTIME_DIR": runtime}
        process = subprocess.Popen(
            [engine, "run", file, "--out", out, "--hold", *options],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        run = Run(engine, file, out, env, process)
        runs.append(run)
        assert process.stderr is not None
        assert "control socket: " in process.stderr.readline()
        # There may be lines that tell of progress.
        assert any("waits for" in line for line in process.stderr)
        return run

    # The path of a socket must not be long.
    with tempfile.TemporaryDirectory(prefix="wt-") as runtime:
        yield start
        for run in runs:
            if run.process.poll() is None:
                run.process.kill()
            run.process.communicate()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.02)


class Terminal:
    """A program on a terminal of its own, and somebody who types."""

    def __init__(self, command: list[str | Path], env: dict[str, str], rows: int = 30, columns: int = 100) -> None:
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (rows, columns))
        self.before = termios.tcgetattr(self.slave)
        self.seen = ""
        self.process = subprocess.Popen(
            command,
            env={**env, "TERM": "xterm"},
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            preexec_fn=self.take_terminal,
        )

    def take_terminal(self) -> None:
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def expect(self, pattern: str) -> str:
        """Waits until this was shown; what was shown up to there is gone."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not (match := re.search(pattern, BRACKETS.sub("", self.seen))):
            assert time.monotonic() < deadline_s, f"no {pattern!r} in {self.seen!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        self.seen = BRACKETS.sub("", self.seen)[match.end() :]
        return match.group()

    def restored(self) -> bool:
        return termios.tcgetattr(self.slave) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(run: Run, *arguments: str) -> Terminal:
        opened.append(Terminal([run.engine, *arguments], run.env))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_a_shell_computes_and_gives_the_terminal_back(
    live: Callable[..., Run], terminal: Callable[..., Terminal]
) -> None:
    run = live(two_hosts())
    shell = terminal(run, "shell", "h1")
    shell.expect("[#$] ")
    assert not shell.restored()
    shell.type("echo $((6*7))\r")
    shell.expect(r"\n42\r")
    # The kernel's line discipline edits, echoes and turns newlines.
    shell.type("echo wrog\x7f\x7fong; echo $COLUMNS $LINES; tty </dev/tty\r")
    shell.expect(r"\nwrong\r\n100 30\r\n")
    termios.tcsetwinsize(shell.slave, (11, 77))
    shell.process.send_signal(signal.SIGWINCH)
    wait_for(lambda: "resize" in run.input())
    shell.type("\recho $COLUMNS:$LINES; \r")
    shell.expect("77:11")
    shell.type("exit 3\r")
    assert shell.process.wait(timeout=PATIENCE_S) == 3
    assert shell.restored()


def test_a_shell_that_is_killed_gives_the_terminal_back(
    live: Callable[..., Run], terminal: Callable[..., Terminal]
) -> None:
    run = live(two_hosts())
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        shell = terminal(run, "shell", "h1")
        shell.expect("[#$] ")
        shell.process.send_signal(number)
        assert shell.process.wait(timeout=PATIENCE_S) == 128 + number
        assert shell.restored()


def test_keys_leave_a_shell_that_hangs(live: Callable[..., Run], terminal: Callable[..., Terminal]) -> None:
    run = live(two_hosts())
    shell = terminal(run, "shell", "h1")
    shell.expect("[#$] ")
    shell.type("echo ~ a~.b\r")
    shell.expect(r"\n/root a~\.b\r")
    shell.expect("[#$] ")
    shell.type("trap '' INT QUIT; sleep 77777\r")
    wait_for(lambda: any(row["command"] == "sleep 77777" for row in processes(run, "h1")))
    shell.type("~.")
    assert shell.process.wait(timeout=PATIENCE_S) == 128 + signal.SIGHUP
    shell.expect("left node h1")
    assert shell.restored()
    wait_for(lambda: [row["command"] for row in processes(run, "h1")] == ["sleep 100000"])


def test_a_program_of_another_user(live: Callable[..., Run], terminal: Callable[..., Terminal]) -> None:
    run = live(two_hosts())
    script = "id -u; id -g; echo $HOME $USER; touch /root/x || echo no; echo again > /dev/stdout"
    for user, said in (("nobody", "65534\n65534\n/nonexistent nobody\n"), ("1234:77", "1234\n77\n/ 1234\n")):
        done = run.client("exec", "--user", user, "h1", "--", "sh", "-c", script)
        assert done.stdout == f"{said}no\nagain\n", done
    done = run.client("exec", "-u", "no-such-user", "h1", "--", "true")
    assert done.returncode == 2
    assert "no user `no-such-user`" in done.stderr
    shell = terminal(run, "shell", "--user", "1234", "h1")
    shell.expect("[#$] ")
    shell.type("echo $(id -u) >$(tty)\r")
    shell.expect(r"\n1234\r")
    run.end()
    assert '"user":"1234:77"' in run.input()
    assert (run.replay() / "summary.json").read_bytes() == (run.out / "summary.json").read_bytes()


def test_stop_ends_a_run_with_its_results(live: Callable[..., Run]) -> None:
    run = live(two_hosts())
    assert run.client("exec", "h2", "--", "sh", "-c", "echo seen; exit 4").returncode == 4
    done = run.client("stop")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    summary = json.loads((run.out / "summary.json").read_text(encoding="utf-8"))
    assert run.process.wait(timeout=PATIENCE_S) == 0
    assert summary["ended"] == "stop"
    assert ["client" in process for process in summary["processes"]] == [False, False, False, True]
    last = summary["processes"][-1]
    assert (last["node"], last["command"][0], last["exit"], last["client"]) == ("h2", "sh", 4, True)
    assert (run.out / last["stdout"]).read_text(encoding="utf-8") == "seen\n"
    assert run.replay().joinpath("summary.json").read_bytes() == (run.out / "summary.json").read_bytes()
    assert "no run is live" in run.client("stop").stderr


def test_a_client_that_vanishes_hangs_up(live: Callable[..., Run], terminal: Callable[..., Terminal]) -> None:
    run = live(two_hosts())
    shell = terminal(run, "shell", "h2")
    shell.expect("[#$] ")
    assert len(processes(run, "h2")) == 2
    shell.process.kill()
    wait_for(lambda: [row["command"] for row in processes(run, "h2")] == ["sleep 100000"])
    exec_ = subprocess.Popen([run.engine, "exec", "h2", "--", "sleep", "99"], env=run.env, stdin=subprocess.DEVNULL)
    wait_for(lambda: len(processes(run, "h2")) == 2)
    exec_.kill()
    exec_.wait()
    wait_for(lambda: len(processes(run, "h2")) == 1)
    assert run.client("exec", "h2", "--", "true").returncode == 0


def processes(run: Run, *node: str) -> list[dict[str, object]]:
    done = run.client("ps", "--json", *node)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, object]] = json.loads(done.stdout)
    return rows


def test_exec_passes_everything_on(live: Callable[..., Run]) -> None:
    run = live(two_hosts())
    done = run.client("exec", "h1", "--", "cat", "/etc/hostname", "-", "/none", stdin="from here\n")
    assert (done.returncode, done.stdout) == (1, "h1\nfrom here\n")
    assert "/none: No such file" in done.stderr
    assert run.client("exec", "h1", "--", "sh", "-c", "exit 7").returncode == 7
    assert run.client("exec", "h1", "--", "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
    # More than pipes and queues hold, both ways.
    text = "".join(f"{number}\n" for number in range(400_000))
    done = run.client("exec", "h2", "--", "cat", stdin=text)
    assert done.stdout == text
    assert "2 received" in run.client("exec", "h2", "--", "ping", "-c", "2", "-i", "0.2", "10.0.0.1").stdout


def test_time_goes_with_the_wall_clock_while_somebody_is_there(live: Callable[..., Run]) -> None:
    run = live(two_hosts())
    start_s = time.monotonic()
    assert run.client("exec", "h1", "--", "sleep", "1.5").returncode == 0
    assert 1.4 < time.monotonic() - start_s < 10
    # And stands still while nobody is.
    before = run.client("exec", "h1", "--", "date", "+%s.%N").stdout
    time.sleep(1)
    after = run.client("exec", "h1", "--", "date", "+%s.%N").stdout
    assert 0 <= float(after) - float(before) < 0.9


def test_output_that_nobody_takes_stops_its_program_only(live: Callable[..., Run]) -> None:
    run = live(two_hosts())
    with subprocess.Popen([run.engine, "exec", "h1", "--", "yes"], env=run.env, stdout=subprocess.PIPE) as yes:
        wait_for(lambda: '"pause":true' in run.input())
        assert run.client("exec", "h1", "--", "echo", "still here").stdout == "still here\n"
        assert yes.stdout is not None
        assert yes.stdout.read(1 << 20) == b"y\n" * (1 << 19)
        yes.kill()


def test_ps_lists_processes_with_their_start(live: Callable[..., Run]) -> None:
    run = live(two_hosts())
    rows = processes(run)
    assert [(row["node"], row["command"], row["state"], row["parent"]) for row in rows] == [
        ("h1", "sleep 100000", "S", 1),
        ("h2", "sleep 100000", "S", 1),
    ]
    assert [row["start_ns"] for row in rows] == [0, 250_000_000]
    table = run.client("ps", "h2").stdout.splitlines()
    assert table[0].split() == ["NODE", "PID", "PARENT", "S", "START", "COMMAND"]
    assert len(table) == 2
    assert table[1].startswith("h2 ")


def test_logs_of_live_and_past_runs(live: Callable[..., Run]) -> None:
    run = live(two_hosts())
    assert "2 received" in run.client("logs", "h1/ping").stdout
    assert run.client("logs", "h1/ping-0").stdout == run.client("logs", "h1/ping").stdout
    several = run.client("logs", "h1").stdout
    assert "ping-0: PING 10.0.0.2" in several
    assert "Linux version" in run.client("logs", "h1/kernel").stdout
    command: list[str | Path] = [run.engine, "logs", "--follow", "h1"]
    with subprocess.Popen(command, env=run.env, stdout=subprocess.PIPE, text=True) as follow:
        script = "echo first; sleep 0.3; echo second"
        assert run.client("exec", "h1", "--", "sh", "-c", script).returncode == 0
        run.end()
        text, _ = follow.communicate(timeout=PATIENCE_S)
    assert follow.returncode == 0
    assert text.startswith(several)
    assert re.search(r"^sh-2: first\nsh-2: second\n", text, re.MULTILINE)
    past = run.client("logs", "h1/ping", "--run", str(run.out))
    assert "2 received" in past.stdout


def test_errors_say_what_to_do(live: Callable[..., Run], tmp_path: Path) -> None:
    run = live(two_hosts())

    def check(arguments: list[str], code: int, *fragments: str) -> None:
        done = run.client(*arguments)
        assert done.returncode == code, done
        for fragment in fragments:
            assert fragment in done.stderr, done.stderr

    check(["exec", "h3", "--", "true"], 2, "two has no node `h3`", "hint: did you mean `h")
    check(["ps", "router"], 2, "no node `router`", "hint: its nodes: h1, h2")
    check(["logs", "h1/pong"], 2, "no program `pong`", "ping-0, sleep-1")
    check(["shell", "h1"], 2, "standard input is not a terminal", "hint: without one")
    check(["exec", "h1", "--", "no-such-program"], 127, "`no-such-program` is in no folder of PATH")
    check(["exec", "h1", "--", "/etc/passwd"], 126, "/etc/passwd")
    check(["exec", "h1", "--run", str(tmp_path), "--", "true"], 2, "is not the output folder of a run", "hint:")
    other = live(two_hosts())
    check(["exec", "h1", "--", "true"], 2, "2 runs are live", str(run.out), str(other.out), "hint:", "--run DIR")
    assert "because:" not in run.client("exec", "h1", "--", "true").stderr, "a choice is no reason"
    assert run.client("exec", "h1", "--run", str(other.out), "--", "true").returncode == 0
    other.end()
    check(["exec", "h1", "--run", str(other.out), "--", "true"], 2, "is over", "it ended: stop", "--hold")
    run.process.kill()
    run.process.wait()
    check(["ps", "--run", str(run.out)], 2, "does not answer", "hint:")
    check(["ps"], 2, "no run is live", "hint:", "--hold")


def test_words_with_a_nul_are_refused(live: Callable[..., Run]) -> None:
    """No client of ours sends them; the run refuses them and goes on."""
    run = live(two_hosts())

    def ask(program: dict[str, object]) -> str:
        message = json.dumps({"open": {"node": "h1", "program": program}}).encode()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str((run.out / "control.sock").readlink()))
            connection.sendall(struct.pack(">IB", len(message), ord("m")) + message)
            replies = b""
            while b"refused" not in replies:
                got = connection.recv(65536)
                assert got, replies
                replies += got
            return replies.decode(errors="replace")

    assert "contains a NUL character" in ask({"argv": ["ls", "a\0b"]})
    assert "contains a NUL character" in ask({"argv": ["ls\0"]})
    assert "contains a NUL character" in ask({"argv": ["ls"], "user": "ro\0ot"})
    assert "contains a NUL character" in ask({"argv": ["ls"], "env": {"A": "\0"}})
    assert "cannot be a name in the environment" in ask({"argv": ["ls"], "env": {"A=B": "c"}})
    assert run.input() == "", "nothing of it entered the run"
    assert run.client("exec", "h1", "--", "true").returncode == 0


def test_the_socket_is_for_its_user_only(live: Callable[..., Run]) -> None:
    run = live(two_hosts())
    link = (run.out / "control.sock").readlink()
    assert link.stat().st_mode & 0o777 == 0o600
    assert link.parent.stat().st_mode & 0o777 == 0o700
    run.end()
    assert not (run.out / "control.sock").is_symlink()
    assert not link.exists()


def test_the_end_of_the_run_ends_its_clients(live: Callable[..., Run], terminal: Callable[..., Terminal]) -> None:
    run = live(two_hosts())
    shell = terminal(run, "shell", "h1")
    shell.expect("[#$] ")
    run.end()
    assert shell.process.wait(timeout=PATIENCE_S) == 2
    shell.expect("the run has ended")
    assert shell.restored()


@pytest.mark.parametrize("options", [[], ["--isolate"]])
def test_a_replay_is_the_same_run(
    live: Callable[..., Run], terminal: Callable[..., Terminal], options: list[str]
) -> None:
    """Also if the first had its nodes isolated from each other."""
    run = live(two_hosts(), *options)
    shell = terminal(run, "shell", "h1")
    shell.expect("[#$] ")
    for number in range(3):
        shell.type(f"echo $(({number} + 40))\r")
        shell.expect(rf"\n{number + 40}\r")
    assert "3 received" in run.client("exec", "h2", "--", "ping", "-c", "3", "-i", "0.05", "10.0.0.1").stdout
    processes(run)
    assert run.client("exec", "h2", "--", "sh", stdin="echo \xfc $RANDOM; date +%N; exit 4\n").returncode == 4
    shell.type("ec")
    vanished = subprocess.Popen([run.engine, "exec", "h1", "--", "cat"], env=run.env, stdin=subprocess.PIPE)
    wait_for(lambda: len(processes(run, "h1")) == 3)
    vanished.kill()
    vanished.communicate()
    wait_for(lambda: len(processes(run, "h1")) == 2)
    run.end()
    replayed = run.replay()
    for name in ("summary.json", "input.jsonl", "h1/kernel.log", "h1/bash-2.stdout", "h2/sh-2.stdout"):
        assert (replayed / name).read_bytes() == (run.out / name).read_bytes(), name
    assert not (replayed / "control.sock").is_symlink()
    # It was something else than the run without a visitor.
    plain = run.client("run", str(run.scenario), "--out", str(run.out.with_name("plain")), "--json")
    digest = json.loads((replayed / "summary.json").read_text(encoding="utf-8"))["digest"]
    assert json.loads(plain.stdout)["digest"] != digest


def test_what_cannot_be_replayed_is_told(live: Callable[..., Run], tmp_path: Path) -> None:
    run = live(two_hosts())
    assert run.client("exec", "h2", "--", "true").returncode == 0
    run.end()
    log = str(run.out / "input.jsonl")
    again = ["run", str(run.scenario), "--out", str(tmp_path / "again"), "--force", "--replay"]
    done = run.client(*again, log, "--seed", "99")
    assert done.returncode == 2
    assert "seed 1, and this run has 99" in done.stderr
    assert "hint:" in done.stderr
    done = run.client(*again, str(run.scenario))
    assert done.returncode == 2
    assert "s.yaml:1: not the start of an input log" in done.stderr


def test_realtime_changes_nothing(live: Callable[..., Run], tmp_path: Path) -> None:
    run = live(two_hosts(stop="1500ms"))
    start_s = time.monotonic()
    paced = run.client("run", str(run.scenario), "--out", str(tmp_path / "paced"), "--json", "--realtime")
    assert time.monotonic() - start_s > 1.4
    plain = run.client("run", str(run.scenario), "--out", str(tmp_path / "plain"), "--json")
    assert plain.returncode == 0
    # How late it was is the host's; all else is not.
    summaries = [json.loads(run.stdout) for run in (paced, plain)]
    late = summaries[0].pop("lateness")
    assert late["windows"] > 0 and late["max_ns"] >= late["p50_ns"]
    summaries[0]["warnings"] = [one for one in summaries[0]["warnings"] if one["code"] != "late"]
    assert summaries[0] == summaries[1]


def test_words_are_completed(live: Callable[..., Run]) -> None:
    run = live(two_hosts())

    def complete(*words: str) -> list[str]:
        env = {**run.env, "WINDTUNNEL_COMPLETE": "bash", "_CLAP_COMPLETE_INDEX": str(len(words) - 1), "_CLAP_IFS": "\n"}
        command: list[str | Path] = [run.engine, "--", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
        return [word for word in done.stdout.splitlines() if not word.startswith("-")]

    assert complete("windtunnel", "shell", "h") == ["h1", "h2"]
    assert complete("windtunnel", "exec", "--run", str(run.out), "") == ["h1", "h2"]
    assert complete("windtunnel", "logs", "h1/") == ["h1/ping-0", "h1/sleep-1", "h1/kernel"]
    assert "shell" in complete("windtunnel", "sh")
    script = subprocess.run([run.engine, "completions", "bash"], capture_output=True, text=True, check=True).stdout
    assert "WINDTUNNEL_COMPLETE" in script
