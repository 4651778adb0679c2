# SPDX-License-Identifier: GPL-2.0-or-later
"""An interactive prompt on a network: ``windtunnel prompt FILE``, then ``h1 ping -c 3 h2``."""

from __future__ import annotations

import cmd
import contextlib
import shlex
import signal
import sys
from typing import Any, Callable

from ._error import Error
from ._network import Network
from ._node import Node
from ._process import Process
from ._run import Run


class Prompt(cmd.Cmd):
    """Commands on nodes, and some words of its own. Virtual time stands still while nothing is asked for."""

    prompt = "windtunnel> "
    intro = "NODE COMMAND runs a command on a node; `help` lists what else there is, `quit` ends the run."

    def __init__(self, network: Network, run: Run) -> None:
        super().__init__()
        self.network = network
        self.run = run

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
        nodes = ", ".join(self.network.nodes)
        print(f"there is neither a node nor a command `{word}`; nodes: {nodes}; `help` lists commands", file=sys.stderr)

    def completenames(self, text: str, *ignored: object) -> list[str]:
        return [*super().completenames(text, *ignored), *(name for name in self.network.nodes if name.startswith(text))]

    def completedefault(self, text: str, *ignored: object) -> list[str]:
        return [name for name in self.network.nodes if name.startswith(text)]

    # Commands on nodes.

    def on_node(self, name: str, command: str) -> bool:
        """NODE COMMAND: runs a command on a node; Ctrl-C goes to it."""
        if not command.strip():
            print(f"say what {name} is to do, as in `{name} ip route`", file=sys.stderr)
            return False
        self.show(self.network[name].popen(command.strip(), shell=True))
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

    def do_link(self, line: str) -> None:
        """link A B up | down | NAME=VALUE ...: changes the link of two nodes, as in `link h1 h2 delay=5ms loss=1%`."""
        words = shlex.split(line)
        if len(words) < 3:
            raise Error("a link is named by its two nodes", hint="as in `link h1 h2 down` or `link h1 h2 delay=5ms`")
        a, b, *changes = words
        found = [link for link in self.network.links if {link.a.node.name, link.b.node.name} == {a, b}]
        if len(found) != 1:
            raise Error(f"there are {len(found)} links between `{a}` and `{b}`")
        simple: dict[str, Callable[[], None]] = {"up": found[0].up, "down": found[0].down}
        if len(changes) == 1 and changes[0] in simple:
            simple[changes[0]]()
            return
        values = dict(change.partition("=")[::2] for change in changes)
        self.run.change_link(found[0], values)

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
        """iperf A B: measures what gets from A to B in 5 s."""
        print(self.network.iperf([self.node(word) for word in line.split()]))

    def node(self, name: str) -> Node:
        return self.network[name]

    def do_quit(self, _: str) -> bool:
        """quit: ends the run."""
        return True

    do_exit = do_quit

    def do_EOF(self, _: str) -> bool:
        print()
        return True


def main(arguments: dict[str, Any]) -> int:
    """What ``windtunnel prompt`` does: `file` is the scenario, `out` the folder of the results or None."""
    network = Network.from_yaml(arguments["file"])
    with network.run(arguments["out"], check=False) as run:
        prompt = Prompt(network, run)
        with contextlib.suppress(KeyboardInterrupt):
            prompt.cmdloop(None if sys.stdin.isatty() else "")
    print(f"results in {run.out}")
    return 0
