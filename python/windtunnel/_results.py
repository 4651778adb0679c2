# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run left in its folder."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

from ._error import Error, refuse
from ._pcapng import merge
from ._table import Table, of_rows, read_csv

__all__ = ["Results"]

MEASURE = 'run it again with `--measure 10ms`, or net.run(measure="10ms"): measuring changes nothing in a run'
CAPTURE = 'run it again with `capture: all` under `run:` of the scenario, or Network(capture="all")'
# What to do for a series that is not there.
HINTS = dict.fromkeys(("links", "flows", "tcp", "mptcp", "qdiscs"), MEASURE)
SAMPLE = "what series there are, and what has them written, is in docs/results.md"


class Results:
    """The folder of a run that has ended, or was killed. Files are read when they are asked for, and once.

    Parameters
    ----------
    path : path
        The folder: ``windtunnel run --out DIR``, or :attr:`windtunnel.Run.out`.

    Attributes
    ----------
    path : pathlib.Path
        The folder.

    Raises
    ------
    Error
        There is no such folder, or no run of windtunnel made it.

    Examples
    --------
    >>> import windtunnel as wt
    >>> net = wt.Network(seed=1)
    >>> h1, h2 = net.add_node("h1"), net.add_node("h2")
    >>> link = net.add_link(h1, h2, rate="10Mbit", delay="5ms")
    >>> with net.run(measure="100ms") as run:
    ...     _ = h1.cmd("ping -c 3 -i 0.1 h2")
    >>> links = run.results.links()
    >>> sum(links.where(**{"from": "h1:eth0"})["lost_frames"])
    0
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._kept: dict[str, Any] = {}
        if not self.path.is_dir():
            refuse(f"there is no folder {self.path}", "name the folder of a run: `windtunnel run --out DIR`")
        if self.manifest.get("generator") != "windtunnel":
            refuse(f"no run of windtunnel made {self.path}", "name the folder of a run: `windtunnel run --out DIR`")

    # Documents.

    @property
    def manifest(self) -> dict[str, Any]:
        """What repeats the run, and the facts of the host: ``manifest.json``."""
        return self._document("manifest.json")

    @property
    def summary(self) -> dict[str, Any]:
        """What happened: ``summary.json``."""
        return self._document("summary.json")

    @property
    def digest(self) -> str | None:
        """Hash over all frames and all output with their times; None if switched off, or on the host's kernel."""
        found: str | None = self.summary["digest"]
        return found

    @property
    def trail(self) -> dict[str, Any]:
        """The digest of each interface on its way: ``trail.json``."""
        return self._document("trail.json")

    def _document(self, name: str) -> dict[str, Any]:
        if name not in self._kept:
            path = self.path / name
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                hint = "name the folder of a run that has ended: `windtunnel run --out DIR`"
                raise Error(f"{self.path} has no {name}", hint=hint) from None
            except (OSError, ValueError) as error:
                raise Error(f"cannot read {path}: {error}", hint="repeat the run") from None
            if not isinstance(found, dict):
                refuse(f"{path} is damaged: it is no JSON object", "repeat the run")
            self._kept[name] = found
        document: dict[str, Any] = self._kept[name]
        return document

    # Tables.

    @property
    def series(self) -> list[str]:
        """Names of the tables that the run left, by name: ``["flows", "links"]``."""
        return sorted(path.stem for path in self.path.glob("*.csv") if path.is_file())

    def table(self, name: str) -> Table:
        """The table ``NAME.csv``.

        Raises
        ------
        Error
            It is not there; the hint says what would have it written.
        """
        file = f"{name}.csv"
        if file not in self._kept:
            path = self.path / file
            if not path.is_file():
                there = ", ".join(self.series) or "none"
                refuse(f"{self.path} has no {file}; tables that it has: {there}", HINTS.get(name, SAMPLE))
            self._kept[file] = read_csv(path)
        found: Table = self._kept[file]
        return found

    def links(self) -> Table:
        """What each direction of each link did in each interval: ``links.csv``."""
        return self.table("links")

    def flows(self) -> Table:
        """A row for each conversation, at the interface that sent its first frame: ``flows.csv``."""
        return self.table("flows")

    def tcp(self) -> Table:
        """TCP sockets at intervals: ``tcp.csv``."""
        return self.table("tcp")

    def mptcp(self) -> Table:
        """MPTCP connections and subflows at intervals: ``mptcp.csv``."""
        return self.table("mptcp")

    def qdiscs(self) -> Table:
        """Queueing disciplines at intervals: ``qdiscs.csv``."""
        return self.table("qdiscs")

    def events(self) -> Table:
        """What happened, in the order of virtual time: ``events.jsonl``.

        Fields that an event does not have are None; commands are one text, other lists and objects are texts of JSON.
        """
        if "events" not in self._kept:
            rows = [{key: _flat(key, value) for key, value in row.items()} for row in self._lines("events.jsonl")]
            self._kept["events"] = of_rows(rows, "events.jsonl")
        found: Table = self._kept["events"]
        return found

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        rows = []
        try:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError(f"line {number} is no JSON object")
                rows.append(row)
        except FileNotFoundError:
            refuse(f"{self.path} has no {name}", "a version of windtunnel made it that wrote none: repeat the run")
        except (OSError, ValueError) as error:
            raise Error(f"cannot read {path}: {error}", hint="repeat the run") from None
        return rows

    def processes(self) -> Table:
        """Programs of the scenario and of clients, as in the summary, with the command as one text."""
        rows = [{**row, "command": shlex.join(row["command"])} for row in self.summary["processes"]]
        return of_rows(rows, "processes of summary.json")

    # Captures.

    @property
    def captures(self) -> list[Path]:
        """Captures of single interfaces, by name.

        Raises
        ------
        Error
            There are none; the hint says what would have them written.
        """
        found = sorted((self.path / "pcap").glob("*.pcap"))
        if not found:
            refuse(f"{self.path} has no captures", CAPTURE)
        return found

    def interface_captures(self) -> list[tuple[str, str, Path]]:
        """Node, interface and capture of each interface that has one, by node and interface."""
        there = {path.name: path for path in self.captures}
        ends = {end for link in self.summary["links"] for end in (link["a"], link["b"])}
        # An end without a node is a port to the outside.
        names = sorted((node, interface) for node, _, interface in (end.partition(":") for end in ends) if interface)
        found = []
        for node, interface in names:
            stem = f"{node}-{interface}"
            if len([name for name in names if "-".join(name) == stem]) > 1:
                # The engine numbers them in the order of the scenario, which is not known here.
                refuse(f"two interfaces have captures called {stem}.pcap", "give nodes names without hyphens")
            if f"{stem}.pcap" in there:
                found.append((node, interface, there.pop(f"{stem}.pcap")))
        return found

    def write_pcapng(self, path: str | os.PathLike[str]) -> int:
        """Writes one capture of the whole run, with the names of nodes and interfaces; the number of its frames.

        Frames are in the order of time; one is there for each interface it crossed that has a capture.

        Raises
        ------
        Error
            The run has no captures, or they cannot be read, or the file not be written.
        """
        manifest, summary = self.manifest, self.summary
        comment = f"scenario {summary['scenario']}, seed {summary['seed']}, digest {summary['digest'] or 'none'}"
        application = f"windtunnel {manifest['windtunnel_version']}"
        return merge(self.interface_captures(), path, application, comment)

    def __repr__(self) -> str:
        ended = self.manifest.get("ended") or "it is still running, or was killed"
        return f"<Results in {self.path}: {ended}; tables: {', '.join(self.series) or 'none'}>"


def _flat(key: str, value: Any) -> Any:
    """As a field of a table."""
    if key == "command" and isinstance(value, list):
        return shlex.join(value)
    return json.dumps(value) if isinstance(value, (list, dict)) else value
