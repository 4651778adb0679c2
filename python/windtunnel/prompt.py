# SPDX-License-Identifier: GPL-2.0-or-later
"""An interactive prompt on a network: ``windtunnel prompt FILE``, then ``h1 ping -c 3 h2``."""

from __future__ import annotations

import cmd
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ._error import Error, refuse
from ._link import Link
from ._network import Network
from ._node import Node
from ._process import Process
from ._run import Run

# What Mininet's prompt has, and this one has not.
ELSEWHERE = {
    "dump": "`nodes` lists nodes and addresses",
    "gterm": "`windtunnel run FILE --realtime` and `windtunnel shell NODE` give a terminal in a node",
    "intfs": "`net` lists interfaces",
    "sh": "this prompt has commands of nodes only",
    "switch": "switches are Linux bridges: `s1 bridge link` shows one",
    "x": "there is no display",
    "xterm": "`windtunnel run FILE --realtime` and `windtunnel shell NODE` give a terminal in a node",
}
LINK_VALUES = ("rate", "delay", "jitter", "loss", "duplicate", "corrupt", "queue")
HISTORY_LINES = 1000


def split(line: str) -> list[str]:
    """The words of a line, as a shell sees them."""
    try:
        return shlex.split(line)
    except ValueError as error:
        refuse(f"the line has no end: {str(error).lower()}")


class Prompt(cmd.Cmd):
    """Commands on nodes, and some words of its own. Virtual time stands still while nothing is asked for."""

    prompt = "windtunnel> "
    intro = "NODE COMMAND runs a command on a node; `help` lists what else there is, `quit` ends the run."

    def __init__(self, network: Network, run: Run) -> None:
        super().__init__()
        self.network = network
        self.run = run

    def converse(self) -> None:
        """Asks for commands until the run is over. Ctrl-C at the prompt gives a new line."""
        intro: str | None = self.intro
        while True:
            try:
                self.cmdloop(intro)
                return
            except KeyboardInterrupt:
                print()
                intro = ""

    # What the base class asks for.

    def emptyline(self) -> bool:
        return False

    def onecmd(self, line: str) -> bool:
        try:
            # A node comes before a word of this prompt: names are the user's.
            name = line.split(maxsplit=1)[0] if line.strip() else ""
            done = self.on_node(name, line.strip()[len(name) :]) if name in self.network else super().onecmd(line)
        except Error as error:
            print(error, file=sys.stderr)
            return not self.run.is_live
        except KeyboardInterrupt:
            print()
            return False
        return bool(done) or not self.run.is_live

    def default(self, line: str) -> None:
        word = line.split()[0]
        if word in ELSEWHERE:
            refuse(f"there is no command `{word}` here", ELSEWHERE[word])
        nodes = ", ".join(self.network.nodes)
        print(f"there is neither a node nor a command `{word}`; nodes: {nodes}; `help` lists commands", file=sys.stderr)

    def complete(self, text: str, state: int) -> str | None:  # type: ignore[override]
        """What readline asks for: the only one is followed by a space. (Types of the base class say a list.)"""
        found = cast("str | None", super().complete(text, state))
        is_only = len(self.completion_matches or ()) == 1
        return f"{found} " if found and is_only and not found.endswith("=") else found

    def completenames(self, text: str, *_: object) -> list[str]:
        return [name for name in (*WORDS, *self.network.nodes) if name.startswith(text)]

    def completedefault(self, text: str, *_: object) -> list[str]:
        return [name for name in self.network.nodes if name.startswith(text)]

    def complete_link(self, text: str, line: str, begin: int, _: int) -> list[str]:
        """Nodes first; those that have a link with the first; then what there is to change."""
        words = line[:begin].split()[1:]
        if not words:
            return self.completedefault(text)
        if len(words) == 1:
            ends = ({link.a.node.name, link.b.node.name} for link in self.network.links)
            near = {name for end in ends if words[0] in end for name in end - {words[0]}}
            return sorted(name for name in near if name.startswith(text))
        changes = ("up", "down", *(f"{name}=" for name in LINK_VALUES))
        return [change for change in changes if change.startswith(text)]

    def complete_help(self, text: str, *_: object) -> list[str]:
        return [name for name in WORDS if name.startswith(text)]

    def do_help(self, line: str) -> None:
        """help [WORD]: lists commands, or says what one does."""
        words = line.split() or list(WORDS)
        if not line:
            print("NODE COMMAND: runs a command on a node, by a shell there; Ctrl-C goes to it")
        for word in words:
            if word not in WORDS:
                refuse(f"there is no command `{word}`; allowed: {', '.join(WORDS)}")
            print(getattr(self, f"do_{word}").__doc__.splitlines()[0])

    # Commands on nodes.

    def on_node(self, name: str, command: str) -> bool:
        """NODE COMMAND: runs a command on a node; Ctrl-C goes to it."""
        if not command.strip():
            print(f"say what {name} is to do, as in `{name} ip route`", file=sys.stderr)
            return False
        process = self.network[name].popen(command.strip(), shell=True)
        # It cannot be typed to, and would wait for it until the end of the run.
        process.stdin.close()
        self.show(process)
        return False

    def show(self, process: Process[str]) -> None:
        """Prints what a program prints, until it ends."""
        asked = 0
        while process.returncode is None:
            try:
                process.next_output()
                print(process.stdout.read_available(), end="", flush=True)
                print(process.stderr.read_available(), end="", file=sys.stderr, flush=True)
            except KeyboardInterrupt:
                asked += 1
                process.send_signal(signal.SIGINT if asked == 1 else signal.SIGKILL, group=True)
        print(process.stdout.read_available(), end="", flush=True)
        print(process.stderr.read_available(), end="", file=sys.stderr, flush=True)

    # Words of the prompt.

    def do_nodes(self, _: str) -> None:
        """nodes: lists nodes and their addresses."""
        for node in self.network.nodes.values():
            print(f"{node}  {node.kind}  {' '.join(node.addresses)}".rstrip())

    def do_links(self, _: str) -> None:
        """links: lists links with what they have carried."""
        for row in self.run.counters():
            for a, b, part in ((row["a"], row["b"], row["a_to_b"]), (row["b"], row["a"], row["b_to_a"])):
                lost = sum(part["drops"].values())
                print(f"{a} -> {b}  {part['frames']} frames, {part['bytes']} bytes, {lost} dropped")

    def do_net(self, _: str) -> None:
        """net: lists nodes with their interfaces, and what is at the other end."""
        for node in self.network.nodes.values():
            ends = [(link.a, link.b) for link in self.network.links]
            ends += [(b, a) for a, b in ends]
            print(f"{node}  {'  '.join(f'{near.name}:{far}' for near, far in ends if near.node is node)}".rstrip())

    def do_link(self, line: str) -> None:
        """link A B up | down | NAME=VALUE ...: changes the link of two nodes, as in `link h1 h2 delay=5ms loss=1%`."""
        words = split(line)
        if len(words) < 3:
            raise Error("a link is named by its two nodes", hint="as in `link h1 h2 down` or `link h1 h2 delay=5ms`")
        a, b, *changes = words
        found = self.links_of(a, b)
        if changes in (["up"], ["down"]):
            for link in found:
                getattr(link, changes[0])()
            return
        for change in changes:
            if change.partition("=")[0] not in LINK_VALUES or "=" not in change:
                allowed = ", ".join(f"{name}=..." for name in LINK_VALUES)
                refuse(f"`{change}` is no change of a link; allowed: up, down, {allowed}")
        for link in found:
            self.run.change_link(link, dict(change.partition("=")[::2] for change in changes))

    def links_of(self, a: str, b: str) -> list[Link]:
        """Those between two nodes, or the one between two interfaces."""

        def is_at(end: Any, name: str) -> bool:
            return name in (end.node.name, str(end))

        for name in (a, b):
            self.node(name.partition(":")[0])
        found = [
            link
            for link in self.network.links
            if (is_at(link.a, a) and is_at(link.b, b)) or (is_at(link.a, b) and is_at(link.b, a))
        ]
        if not found:
            refuse(f"there is no link between `{a}` and `{b}`", "`net` lists links")
        return found

    def do_run(self, line: str) -> None:
        """run TIME: lets virtual time go on, as in `run 5s`."""
        if not line:
            raise Error("say for how long, as in `run 5s`")
        self.run.go(line)
        self.do_now("")

    def do_now(self, _: str) -> None:
        """now: prints the virtual time."""
        print(f"{self.run.now:g} s")

    def do_ps(self, line: str) -> None:
        """ps [NODE]: lists processes."""
        for row in self.run.processes(line or None):
            print(f"{row['node']}  {row['pid']}  {row['state']}  {row['command']}")

    def do_pingall(self, _: str) -> None:
        """pingall: has each host ping each other."""
        self.network.pingall()

    def do_iperf(self, line: str) -> None:
        """iperf [A B]: measures what gets from A to B in 5 s; from the first to the last host if none are named."""
        nodes = [self.node(word) for word in line.split()]
        if not nodes and len(self.network.hosts) > 1:
            nodes = [self.network.hosts[0], self.network.hosts[-1]]
        if len(nodes) != 2:
            raise Error("iperf is between two nodes", hint="as in `iperf h1 h2`")
        print(f"{nodes[0]} -> {nodes[1]}: {self.network.iperf(nodes)}")

    def node(self, name: str) -> Node:
        return self.network[name]

    def do_quit(self, _: str) -> bool:
        """quit: ends the run."""
        return True

    do_exit = do_quit

    def do_EOF(self, _: str) -> bool:
        print()
        return True


WORDS = tuple(
    name[len("do_") :] for name in Prompt.__dict__ if name.startswith("do_") and name not in ("do_EOF", "do_exit")
)


def history_file() -> Path:
    """Where lines are kept that were typed, for the next time."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state) / "windtunnel/prompt_history"


@contextlib.contextmanager
def editing() -> Iterator[None]:
    """Names with dashes are completed as a whole, and history is kept. Without readline lines are just read."""
    try:
        import readline
    except ImportError:
        yield
        return
    before = readline.get_completer_delims()
    readline.set_completer_delims(" \t\n;|&<>()\"'`")
    with contextlib.suppress(OSError):
        readline.read_history_file(history_file())
    try:
        yield
    finally:
        readline.set_completer_delims(before)
        _keep_history(readline)


def _keep_history(readline: ModuleType) -> None:
    """A home that cannot be written to is no reason to complain."""
    with contextlib.suppress(OSError):
        history_file().parent.mkdir(parents=True, exist_ok=True)
        readline.set_history_length(HISTORY_LINES)
        readline.write_history_file(history_file())


def main(arguments: dict[str, Any]) -> int:
    """What ``windtunnel prompt`` does: `file` is the scenario, `out` the folder of the results or None."""
    network = Network.from_yaml(arguments["file"])
    with network.run(arguments["out"], check=False) as run:
        prompt = Prompt(network, run)
        if sys.stdin.isatty():
            with editing():
                prompt.converse()
        else:
            with contextlib.suppress(KeyboardInterrupt):
                prompt.cmdloop("")
    print(f"results in {run.out}")
    return 0
