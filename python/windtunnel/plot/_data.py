# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run left in its folder, as the plots need it."""

from __future__ import annotations

import copy
import csv
import hashlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Union

from .._draw import Point, link_label, positions, spread
from .._error import Error, refuse
from .._extras import need
from .._network import Network
from .._units import time_ns
from .._yaml import load
from ._tcp import Conversation, Sequence, conversations, follow

Numbers = Any
"""An array of numpy, which is not there where these types are checked."""


class HasOut(Protocol):
    """A :class:`windtunnel.Run`, or whatever else has a folder of results."""

    @property
    def out(self) -> Path: ...


Source = Union["Results", HasOut, str, "os.PathLike[str]"]
"""What plots take: a run that has ended, or the folder of its results."""

MEASURE_HINT = 'run it again with `--measure 10ms`, or net.run(measure="10ms"): measuring changes nothing'
CAPTURE_HINT = 'run it again with `capture: all` under `run:` of the scenario, or Network(capture="all")'


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


@dataclass(frozen=True)
class Event:
    """Something that happened to a link; it is marked in all plots over time."""

    time_s: float
    label: str
    link: str
    kind: str
    """``up``, ``down`` or ``set``."""


class Results:
    """The folder of a run; files are read when they are asked for, and once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: dict[str, Any] = {}

    def _keep(self, name: str, make: Any) -> Any:
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def _json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            refuse(
                f"{self.folder} has no {name}", "name the folder of a run that has ended: `windtunnel run --out DIR`"
            )
        except OSError as error:
            refuse(f"cannot read {path}: {error.strerror}")
        except ValueError as error:
            refuse(f"{path} is damaged: {error}", "repeat the run")
        if not isinstance(found, dict):
            refuse(f"{path} is no summary of a run", "repeat the run")
        return found

    @property
    def summary(self) -> dict[str, Any]:
        """What summary.json has."""
        found: dict[str, Any] = self._keep("summary", lambda: self._json("summary.json"))
        return found

    @property
    def manifest(self) -> dict[str, Any]:
        """What manifest.json has."""
        found: dict[str, Any] = self._keep("manifest", lambda: self._json("manifest.json"))
        return found

    @property
    def label(self) -> str:
        """Which run it is, for titles."""
        return f"{self.summary['scenario']}, seed {self.summary['seed']}"

    @property
    def end_s(self) -> float:
        return float(self.summary["virtual_time_ns"]) / 1e9

    # Series.

    def table(self, name: str, hint: str) -> list[dict[str, str]]:
        """The lines of a CSV file of the run."""
        found: list[dict[str, str]] = self._keep(name, lambda: self._table(name, hint))
        return found

    def _table(self, name: str, hint: str) -> list[dict[str, str]]:
        path = self.folder / name
        try:
            with path.open(encoding="utf-8", newline="") as file:
                lines = list(csv.DictReader(file))
        except FileNotFoundError:
            self.summary  # noqa: B018 - a folder that is none of ours says so first
            refuse(f"{self.folder} has no {name}: nothing was measured", hint)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            refuse(f"cannot read {path}: {error}")
        if not lines:
            refuse(f"{path} has no lines: the run ended before the first interval did", "measure after shorter spans")
        return lines

    @property
    def directions(self) -> list[Direction]:
        """Directions of links that were measured, in the scenario's order."""
        found: list[Direction] = self._keep("directions", self._directions)
        return found

    def _directions(self) -> list[Direction]:
        numpy = need("numpy", "plots")
        lines = self.table("links.csv", MEASURE_HINT)
        by_ends: dict[tuple[str, str], list[dict[str, str]]] = {}
        for line in lines:
            by_ends.setdefault((line["from"], line["to"]), []).append(line)
        names = [name for name in lines[0] if name not in ("from", "to")]
        path = self.folder / "links.csv"
        try:
            return [
                Direction(*ends, {name: numpy.array([float(line[name]) for line in of]) for name in names})
                for ends, of in by_ends.items()
            ]
        except (TypeError, ValueError) as error:
            refuse(f"{path} is damaged: {error}", "repeat the run")

    # The scenario.

    @property
    def scenario(self) -> dict[str, Any] | None:
        """The scenario, if it is still there and is the one that ran, and PyYAML can read it."""
        found: dict[str, Any] | None = self._keep("scenario", self._scenario)
        return found

    def _scenario(self) -> dict[str, Any] | None:
        wanted = (self.manifest.get("scenario") or {}).get("sha256")
        given = str((self.manifest.get("scenario") or {}).get("path") or "")
        for path in (self.folder / "scenario.yaml", Path(given)):
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
    def events(self) -> list[Event]:
        """What happened to links, in the order of time."""
        found: list[Event] = self._keep("events", self._events)
        return found

    def _events(self) -> list[Event]:
        events = []
        for one in (self.scenario or {}).get("events") or []:
            ends = one.get("link")
            if not ends:
                continue
            link = "-".join([ends] if isinstance(ends, str) else [str(end) for end in ends])
            kind = "down" if one.get("down") else "up" if one.get("up") else "set"
            sets = {**(one.get("set") or {}), **(one.get("a_to_b") or {}), **(one.get("b_to_a") or {})}
            label = ", ".join(f"{key} {value}" for key, value in sets.items()) or kind
            at = seconds(str(one.get("at")))
            if at <= self.end_s:
                events.append(Event(at, label, link, kind))
        return sorted(events, key=lambda event: event.time_s)

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
        return int(self._keep("epoch", lambda: self._json("trail.json"))["epoch_s"]) * 10**9

    @property
    def conversations(self) -> list[Conversation]:
        """TCP connections in all captures, by descending payload."""
        found: list[Conversation] = self._keep("conversations", self._conversations)
        return found

    def _conversations(self) -> list[Conversation]:
        self.summary  # noqa: B018 - a folder that is none of ours says so first
        paths = sorted((self.folder / "pcap").glob("*.pcap"))
        if not paths:
            refuse(f"{self.folder} has no captures", CAPTURE_HINT)
        return conversations(paths)

    def sequence(self, connection: Conversation) -> Sequence:
        """What a connection sent and got back."""
        found: Sequence = self._keep(connection.name, lambda: follow(connection, self.epoch_ns))
        return found


def seconds(text: str) -> float:
    """Seconds of a time as a scenario has it; NaN if it is none."""
    try:
        return time_ns(text) / 1e9
    except Error:
        return math.nan


def results(source: Source) -> Results:
    """The results that somebody names."""
    if isinstance(source, Results):
        return source
    folder = Path(source) if isinstance(source, (str, os.PathLike)) else Path(source.out)
    if not folder.is_dir():
        refuse(f"there is no folder {folder}", "name the folder of a run that has ended: `windtunnel run --out DIR`")
    return Results(folder)


Places = tuple[dict[str, Point], dict[str, str], list[tuple[str, str, str]]]
"""Nodes with where they are drawn, nodes with their kinds, and links with their two nodes and labels."""


def network_places(network: Network) -> Places:
    """Of a network."""
    links = [(link.a.node.name, link.b.node.name, link_label(network, link._spec)) for link in network.links]
    return positions(network), {name: node.kind for name, node in network.nodes.items()}, links


def places(source: Results) -> Places:
    """Of a run; without its scenario, kinds of nodes and values of links are unknown."""
    if source.network is not None:
        return network_places(source.network)
    ends = [(link["a"].rpartition(":")[0], link["b"].rpartition(":")[0]) for link in source.summary["links"]]
    nodes = dict.fromkeys([name for pair in ends for name in pair])
    nodes.update(dict.fromkeys(process["node"] for process in source.summary["processes"]))
    return spread(list(nodes), ends), dict.fromkeys(nodes, "host"), [(a, b, "") for a, b in ends]
