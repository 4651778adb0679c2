"""`windtunnel prompt FILE`, as somebody at a terminal and as a file of commands meet it."""

import json
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE_S = 60
PROMPT = "windtunnel> "


class Terminal:
    """The prompt on a terminal, with somebody who types."""

    def __init__(self, engine: Path, folder: Path) -> None:
        self.side, theirs = pty.openpty()
        self.said = ""
        self.process = subprocess.Popen(
            [engine, "prompt", "net.yaml", "--out", "out"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**os.environ, "XDG_STATE_HOME": str(folder / "state"), "TERM": "dumb"},
            preexec_fn=lambda: os.login_tty(theirs) if hasattr(os, "login_tty") else _take_terminal(theirs),
        )
        os.close(theirs)

    def type(self, text: str) -> None:
        os.write(self.side, text.encode())

    def until(self, text: str) -> str:
        """What is printed up to this text."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in self.said:
            assert time.monotonic() < deadline_s, self.said
            if select.select([self.side], [], [], 1)[0]:
                try:
                    self.said += os.read(self.side, 65_536).decode(errors="replace")
                except OSError:
                    # The other side is closed.
                    assert text in self.said, self.said
        before, _, self.said = self.said.partition(text)
        return before


def _take_terminal(terminal: int) -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


@pytest.fixture
def folder(engine: Path, kernel: Path, tmp_path: Path) -> Path:
    subprocess.run(
        [
            *(engine, "generate", "leaf-spine", "2", "1", "--hosts-per-leaf=1", "--rate=10Mbit", "--stop=10000s"),
            *("-o", tmp_path / "net.yaml"),
        ],
        check=True,
    )
    return tmp_path


@pytest.fixture
def terminal(engine: Path, folder: Path) -> Iterator[Terminal]:
    there = Terminal(engine, folder)
    there.until(PROMPT)
    yield there
    there.process.kill()
    there.process.wait()
    os.close(there.side)


def test_ctrl_c_ends_a_command_and_no_more(terminal: Terminal, folder: Path) -> None:
    terminal.type("h1-1 ping -i 0.2 h2-1\r")
    terminal.until("icmp_seq=3")
    terminal.type("\x03")
    assert "packets transmitted" in terminal.until(PROMPT), "ping got the signal"
    # At the prompt it gives up a line.
    terminal.type("quit\x03")
    terminal.until(PROMPT)
    terminal.type("now\r")
    assert " s" in terminal.until(PROMPT)
    # What goes on by itself stops, too.
    terminal.type("h1-1 sleep 1000\r")
    terminal.until(PROMPT)
    terminal.type("h1-1 ping -i 0.01 h2-1 > /dev/null\r")
    time.sleep(0.3)
    terminal.type("\x03")
    terminal.until(PROMPT)
    terminal.type("\x04")
    terminal.until("results in")
    assert terminal.process.wait(PATIENCE_S) == 0
    summary = json.loads((folder / "out/summary.json").read_text(encoding="utf-8"))
    assert summary["digest"], "the end of the input ends the run, and its results are kept"


def test_names_are_completed_and_lines_kept(terminal: Terminal, engine: Path, folder: Path) -> None:
    terminal.type("pinga\t\r")
    assert "0% lost (2 of 2 answered)" in terminal.until(PROMPT)
    terminal.type("h1\t ping -c 1 h2\t\r")
    assert "1 received" in terminal.until(PROMPT), "names with a dash are one word"
    terminal.type("link leaf1 sp\tdo\t\r")
    terminal.until(PROMPT)
    terminal.type("h1-1 ping -c 1 -W 1 h2-1\r")
    assert "0 received" in terminal.until(PROMPT)
    terminal.type("quit\r")
    terminal.until("results in")
    terminal.process.wait(PATIENCE_S)
    kept = (folder / "state/windtunnel/prompt_history").read_text(encoding="utf-8")
    assert "link leaf1 spine1 down" in kept and kept.rstrip().endswith("quit")


def ask(engine: Path, folder: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [engine, "prompt", "net.yaml", "--out", "out"],
        cwd=folder,
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_what_mininet_users_type(engine: Path, folder: Path) -> None:
    words = ["net", "links", "iperf", "iperf h1-1 h2-1", "h1-1 cat", "link h1-1 leaf1 delay=50ms loss=0%"]
    done = ask(engine, folder, *words, "h1-1 ping -c 2 h2-1", "link h1-1:eth0 leaf1 down", "pingall", "help")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "h1-1  eth0:leaf1:eth0\n" in done.stdout
    assert "spine1  eth0:leaf1:eth1  eth1:leaf2:eth1\n" in done.stdout
    assert "h1-1:eth0 -> leaf1:eth0  " in done.stdout
    assert done.stdout.count("h1-1 -> h2-1: 9") == 2, "iperf takes the first and the last host"
    assert re.search(r"time=10\d ms", done.stdout), "twice 50 ms, once neighbours are known"
    assert "100% lost (0 of 2 answered)" in done.stdout
    for word in ("nodes", "net", "links", "pingall", "iperf", "link", "quit"):
        assert f"\n{word}" in done.stdout
    assert "EOF" not in done.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("xterm h1-1", "there is no command `xterm` here\nhint: `windtunnel run FILE"),
        ("link h1-1 h2-1 down", "there is no link between `h1-1` and `h2-1`\nhint: `net` lists links"),
        ("link h1-1 leaf9 down", "there is no node `leaf9`"),
        ("link h1-1 leaf1 sideways", "`sideways` is no change of a link; allowed: up, down, rate=..."),
        ("link h1-1 leaf1 delay=5", "write `5ms` or `5s`"),
        ("iperf h1-1", "iperf is between two nodes\nhint: as in `iperf h1 h2`"),
        ("iperf h1-1 h9", "there is no node `h9`"),
        ("h1-1", "say what h1-1 is to do"),
        ("help me", "there is no command `me`"),
        ("run soon", "soon"),
        ("link 'h1-1 leaf1 down", "quotation"),
    ],
)
def test_mistakes_are_told_and_the_prompt_goes_on(engine: Path, folder: Path, line: str, expected: str) -> None:
    done = ask(engine, folder, line, "h1-1 echo still here")
    assert done.returncode == 0
    assert expected in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert "still here\n" in done.stdout
