# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run left in its folder, as the plots need it."""

from __future__ import annotations

import copy
import hashlib
import math
import os
from collections.abc import Mapping
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Union

from .._draw import Point, link_label, port_text, positions, spread
from .._error import Error, refuse
from .._extras import need
from .._network import Network
from .._results import Results
from .._table import Table
from .._units import rate_text, time_text
from .._yaml import load
from ._tcp import Conversation, Sequence, conversations, follow

Numbers = Any
"""An array of numpy, which is not there where these types are checked."""


class HasOut(Protocol):
    """A :class:`windtunnel.Run`, or whatever else has a folder of results."""

    @property
    def out(self) -> Path: ...


Source = Union[Results, HasOut, str, "os.PathLike[str]"]
"""What plots take: a run that has ended, or the folder of its results."""


@dataclass(frozen=True)
class Direction:
    """The series of one direction of a link; one value per interval."""

    sender: str
    receiver: str
    columns: dict[str, Numbers]

    @property
    def name(self) -> str:
        return f"{self.sender} → {self.receiver}"

    @property
    def time_s(self) -> Numbers:
        """Ends of the intervals."""
        return self.columns["time_ns"] / 1e9


_QDISC = ("node", "netns", "interface", "kind", "handle")
_QDISC_TEXTS = (*_QDISC, "parent", "internals")


@dataclass(frozen=True)
class Queueing:
    """The samples of one queueing discipline of a node's kernel."""

    interface: str
    """``node:interface``."""
    kind: str
    handle: str
    columns: dict[str, Numbers]

    @property
    def name(self) -> str:
        return f"{self.interface} {self.kind}" + ("" if self.handle == "0:" else f" {self.handle}")

    @property
    def time_s(self) -> Numbers:
        return self.columns["time_ns"] / 1e9


@dataclass(frozen=True)
class Event:
    """Something that happened to a link or to a node's power; it is marked in all plots over time."""

    time_s: float
    label: str
    link: str
    """Or the node."""
    kind: str
    """``up``, ``down`` or ``set``."""
    of_node: bool = False

    @property
    def text(self) -> str:
        """What is said of it by itself: a node is named, for its power is no link's."""
        return f"{self.link} {self.label}" if self.of_node else self.label


@dataclass
class Child:
    """A process that a program made, or a process of its."""

    pid: int
    name: str
    start_s: float
    end_s: float | None = None
    """None: it was there when the run ended."""
    exit: int | None = None
    signal: int | None = None
    power_off: bool = False
    children: list[Child] = field(default_factory=list)


class RunData(Results):
    """The results of a run with what plots make of them; files are read when they are asked for, and once."""

    def _keep(self, name: str, make: Any) -> Any:
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    @property
    def label(self) -> str:
        """Which run it is, for titles."""
        return f"{self.summary['scenario']}, seed {self.summary['seed']}"

    @property
    def end_s(self) -> float:
        return float(self.summary["virtual_time_ns"]) / 1e9

    # Series.

    def samples(self, name: str, *columns: str) -> Table:
        """A table of what was measured at intervals; it has rows, and these columns."""
        self.summary  # noqa: B018 - of a run that has not ended, this says so
        found = self.table(name)
        path = self.path / f"{name}.csv"
        if not len(found):
            refuse(f"{path} has no lines: the run ended before the first interval did", "measure after shorter spans")
        for column in columns:
            if column not in found:
                refuse(f"{path} has no column {column}", "repeat the run with this version")
        return found

    @property
    def directions(self) -> list[Direction]:
        """Directions of links that were measured, in the scenario's order."""
        found: list[Direction] = self._keep("directions", self._directions)
        return found

    def _directions(self) -> list[Direction]:
        lines = self.samples("links", "time_ns", "from", "to")
        return [
            Direction(str(sender), str(receiver), _arrays(part, self.path / "links.csv", ("from", "to")))
            for (sender, receiver), part in lines.by("from", "to").items()
        ]

    @property
    def queueing(self) -> list[Queueing]:
        """Queueing disciplines that were sampled, in the file's order: roots, which count inner ones'."""
        found: list[Queueing] = self._keep("queueing", self._queueing)
        return found

    def _queueing(self) -> list[Queueing]:
        lines = self.samples("qdiscs", "time_ns", "parent", *_QDISC, "queued_packets", "dropped_packets")
        path = self.path / "qdiscs.csv"
        return [
            Queueing(f"{node}:{interface}", str(kind), str(handle), _arrays(part, path, _QDISC_TEXTS))
            for (node, _, interface, kind, handle), part in lines.where(parent="root").by(*_QDISC).items()
        ]

    # The scenario.

    @property
    def scenario(self) -> dict[str, Any] | None:
        """The scenario, if it is still there and is the one that ran, and PyYAML can read it."""
        found: dict[str, Any] | None = self._keep("scenario", self._scenario)
        return found

    def _scenario(self) -> dict[str, Any] | None:
        wanted = (self.manifest.get("scenario") or {}).get("sha256")
        given = str((self.manifest.get("scenario") or {}).get("path") or "")
        for path in (self.path / "scenario.yaml", Path(given)):
            try:
                content = path.read_bytes()
            except OSError:
                continue
            if hashlib.sha256(content).hexdigest() == wanted:
                try:
                    value = load(content.decode(), str(path))
                except (Error, UnicodeDecodeError):
                    return None
                return value if isinstance(value, dict) else None
        return None

    @property
    def link_events(self) -> list[Event]:
        """What happened to links and to the power of nodes, in the order of time."""
        found: list[Event] = self._keep("link_events", self._link_events)
        return found

    def _link_events(self) -> list[Event]:
        if not (self.path / "events.jsonl").is_file():
            return []
        events = []
        for one in self._lines("events.jsonl"):
            if one.get("event") == "link_changed":
                a, b = (node_of(str(one[end])) for end in ("a", "b"))
                events.append(_link_event(one["time_ns"] / 1e9, a, b, one["a_to_b"], one["b_to_a"]))
            elif one.get("event") == "node_down":
                events.append(Event(one["time_ns"] / 1e9, "off", one["node"], "down", of_node=True))
            elif one.get("event") == "node_booted" and one["time_ns"] > 0:
                events.append(Event(one["time_ns"] / 1e9, "on", one["node"], "up", of_node=True))
        return events

    @property
    def children(self) -> dict[tuple[str, int, int], list[Child]]:
        """What the programs of the summary forked, by node, process id and start in ns."""
        found: dict[tuple[str, int, int], list[Child]] = self._keep("children", self._children)
        return found

    def _children(self) -> dict[tuple[str, int, int], list[Child]]:
        found: dict[tuple[str, int, int], list[Child]] = {}
        if not (self.path / "events.jsonl").is_file():
            return found
        # By node and process id: those that are there, and the children of whoever has this id now.
        alive: dict[tuple[str, int], Child] = {}
        places: dict[tuple[str, int], list[Child]] = {}
        for one in self._lines("events.jsonl"):
            event, who = one.get("event"), (str(one.get("node")), int(one.get("pid") or 0))
            if event == "process_started":
                places[who] = found.setdefault((*who, one["time_ns"]), [])
            elif event == "process_forked":
                child = Child(who[1], one["name"], one["time_ns"] / 1e9)
                alive[who], places[who] = child, child.children
                # What programs of the set-up fork has no place among programs.
                places.get((who[0], one["parent"]), []).append(child)
            elif who in alive and event == "process_executed":
                alive[who].name = one["name"]
            elif who in alive and event == "child_exited":
                child = alive.pop(who)
                child.name, child.end_s = one["name"], one["time_ns"] / 1e9
                child.exit, child.signal, child.power_off = one["exit"], one["signal"], one.get("power_off", False)
        return found

    @property
    def network(self) -> Network | None:
        """The network, if the scenario is still there."""
        if self.scenario is None:
            return None
        try:
            network: Network | None = self._keep("network", lambda: Network._of(copy.deepcopy(self.scenario), None))
        except Error:
            return None
        return network

    # Captures.

    @property
    def epoch_ns(self) -> int:
        """What the nodes' clocks show at virtual time 0."""
        return int(self.manifest["scenario"]["epoch_s"]) * 10**9

    @property
    def conversations(self) -> list[Conversation]:
        """TCP connections in all captures, by descending payload."""
        found: list[Conversation] = self._keep("conversations", self._conversations)
        return found

    def _conversations(self) -> list[Conversation]:
        return conversations(self.captures)

    def sequence(self, connection: Conversation) -> Sequence:
        """What a connection sent and got back."""
        found: Sequence = self._keep(connection.name, lambda: follow(connection, self.epoch_ns))
        return found


def _arrays(lines: Table, path: Path, texts: Sequence_[str]) -> dict[str, Numbers]:
    """Columns as arrays; where there is no value stands NaN."""
    numpy = need("numpy", "plots")
    found = {}
    for name in lines.columns:
        if name not in texts:
            try:
                found[name] = numpy.array([math.nan if value is None else float(value) for value in lines[name]])
            except ValueError as error:
                refuse(f"{path} is damaged: column {name}: {error}", "repeat the run")
    return found


def _link_event(time_s: float, a: str, b: str, a_to_b: dict[str, Any], b_to_a: dict[str, Any]) -> Event:
    """Of a line of events.jsonl: what is the same in both directions is said once."""
    if a_to_b == b_to_a:
        label, ups = _values(a_to_b), [a_to_b.get("up")]
    else:
        parts = [(f"{a} → {b}", a_to_b), (f"{b} → {a}", b_to_a)]
        label = "; ".join(f"{way}: {_values(values)}" for way, values in parts if values)
        ups = [a_to_b.get("up"), b_to_a.get("up")]
    kind = "down" if ups[0] is False else "up" if ups[0] else "set"
    return Event(time_s, label, f"{a}-{b}", kind if len(set(ups)) == 1 else "set")


def _values(values: Mapping[str, Any]) -> str:
    """Values of a link, as a scenario writes them."""
    texts = []
    for name, value in values.items():
        what, _, unit = name.rpartition("_")
        if name == "up":
            texts.append("up" if value else "down")
        elif unit == "bps":
            texts.append(f"{what} {rate_text(value)}")
        elif unit == "ns":
            texts.append(f"{what} {time_text(value / 1e9)}")
        elif unit == "ppb":
            texts.append(f"{what} {value / 1e7:g}%")
        else:
            texts.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(texts)


def node_of(end: str) -> str:
    """The node of an end of a link; a port is its own."""
    return end.rpartition(":")[0] or end


def results(source: Source) -> RunData:
    """The results that somebody names."""
    if isinstance(source, RunData):
        return source
    if isinstance(source, Results):
        return RunData(source.path)
    return RunData(source if isinstance(source, (str, os.PathLike)) else source.out)


Places = tuple[dict[str, Point], dict[str, tuple[str, str]], list[tuple[str, str, str]]]
"""Nodes and ports with where they are drawn, with their kinds and what is written below their names, and links with the
two that they join and labels."""


def network_places(network: Network) -> Places:
    """Of a network."""
    links = [(link.a.node.name, link.b.node.name, link_label(network, link._spec)) for link in network.links]
    links += [(port, node_of(end), link_label(network, entry)) for port, end, entry in network._outside]
    ports = network._spec.get("ports") or {}
    kinds = {name: (node.kind, "") for name, node in network.nodes.items()}
    kinds.update((port, ("port", port_text(ports.get(port)))) for port, _, _ in network._outside)
    return positions(network), kinds, links


def places(source: RunData) -> Places:
    """Of a run; without its scenario, kinds of nodes and values of links are unknown."""
    if source.network is not None:
        return network_places(source.network)
    ends = [(node_of(link["a"]), node_of(link["b"])) for link in source.summary["links"]]
    nodes = dict.fromkeys([name for pair in ends for name in pair])
    nodes.update(dict.fromkeys(process["node"] for process in source.summary["processes"]))
    # What a replay was cannot be seen without its scenario.
    ports = {one["name"]: one["what"].partition(" (")[0] for one in source.summary.get("ports", [])}
    kinds = {name: ("port", ports[name]) if name in ports else ("host", "") for name in nodes}
    return spread(list(nodes), ends), kinds, [(a, b, "") for a, b in ends]
