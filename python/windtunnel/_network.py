# SPDX-License-Identifier: GPL-2.0-or-later
"""A network, as scenario files describe one."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Union

from ._error import Error, last_words, refuse
from ._find import find_program
from ._link import Link, change_of, link_values
from ._mininet import MininetNames
from ._node import Expect, Interface, Node, node_fields
from ._run import SCENARIO, Command, Run, argv_of
from ._units import Probability, Queue, Rate, Size, Time, time_text, words
from ._yaml import dump, load

if TYPE_CHECKING:
    from ._aio import AsyncRun

__all__ = ["Moment", "Network"]

NodeName = Union[Node, Interface, str]
End = tuple[str, str]
"""Names of a node and an interface of it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_INTERFACE = re.compile(r"[!-~]{1,15}")
# Ports of a bridge that is up already do not listen first. The delay is the least that there is, in 10 ms.
SPANNING_TREE = (
    "ip link set br0 down",
    "ip link set br0 type bridge stp_state 1 forward_delay 200",
    "ip link set br0 up",
)
DEFAULT_LINK = {"rate": "1Gbit", "delay": "1ms"}


def _subject(what: Link | Node) -> dict[str, Any]:
    """Whom an event of a scenario is about."""
    return {"node": what.name} if isinstance(what, Node) else {"link": what.ends}


class Moment:
    """A time at which something happens in the scenario. Made by :meth:`Network.at`."""

    def __init__(self, network: Network, at: str) -> None:
        self._network = network
        self._at = at

    def _add(self, event: dict[str, Any]) -> Moment:
        self._network._must_not_be_live("events of the scenario are fixed", "change it now, at the right time")
        self._network._spec.setdefault("events", []).append({"at": self._at, **event})
        return self

    def set(
        self,
        link: Link,
        *,
        a_to_b: Mapping[str, Any] | None = None,
        b_to_a: Mapping[str, Any] | None = None,
        **both: Any,
    ) -> Moment:
        """A link gets other values: those of :meth:`Link.set`."""
        change = change_of(both, a_to_b, b_to_a, "set")
        if not change:
            refuse("nothing of the link is to change", 'name a value, as in net.at("5s").set(link, delay="5ms")')
        return self._add({"link": link.ends, **change})

    def down(self, what: Link | Node) -> Moment:
        """A link loses its carrier, or a node its power: see :meth:`Node.down`."""
        return self._add({**_subject(what), "down": True})

    def up(self, what: Link | Node) -> Moment:
        """A link gets its carrier back, or a node its power: it boots."""
        return self._add({**_subject(what), "up": True})

    def run(self, node: Node | str, command: Command, *, expect: Expect | None = None) -> Moment:
        """A program starts on a node."""
        event: dict[str, Any] = {
            "node": str(node),
            "exec": command if isinstance(command, str) else argv_of(command, False),
        }
        if expect is not None:
            event["expect"] = expect
        return self._add(event)


class Network(MininetNames):
    """A network of nodes and links: a scenario, made by calls or read from a file.

    Parameters
    ----------
    name : str
        Its name, also that of the folder of results.
    seed : int
        Seed of everything random.
    stop : float or str
        Virtual time at which a run ends at the latest: seconds, or as in ``"1h"``.
    addressing : {"auto", "none"} or dict
        ``"auto"``: interfaces without addresses get some, 10.0.N.0/24 and fd00:0:0:N::/64 in the N-th network; or the
        networks to take them from: ``{"ipv4": "10.0.0.0/8", "ipv6": "none"}``.
    routing : {"auto", "ecmp", "none"}
        ``"auto"``: nodes get static routes along shortest paths, through routers; ``"ecmp"``: along all paths of the
        fewest hops, flow by flow. The sysctls ``net.ipv4.fib_multipath_hash_policy`` and ``net.ipv6. ...`` of routers
        say what a flow is.
    link : dict
        Values of links that do not give their own; 1 Gb/s and 1 ms by default.
    node : dict
        Values of nodes that do not give their own: those of :meth:`add_node`.
    capture : {"none", "all"}
        Whether interfaces get pcap files unless they say so themselves.
    measure : float, str or dict
        Span of virtual time after which, again and again, everything is measured, for ``links.csv``, ``tcp.csv``,
        ``mptcp.csv`` and ``qdiscs.csv`` in the results; or such spans for some of ``links``, ``tcp``, ``mptcp`` and
        ``qdiscs``.
    **options
        Further keys of ``run`` of a scenario: ``epoch``, ``preempt``, ``output_limit``, ``isolate``, ``pcapng``.

    Examples
    --------
    >>> import windtunnel as wt
    >>> net = wt.Network("two", seed=1)
    >>> h1, h2 = net.add_node("h1"), net.add_node("h2")
    >>> cable = net.add_link(h1, h2, rate="10Mbit", delay="5ms", queue="100p")
    >>> with net.run() as run:
    ...     print(h1.cmd("ping -c 1 h2").splitlines()[-1])
    rtt min/avg/max/mdev = 20.403/20.403/20.403/0.000 ms
    >>> run.now
    0.021
    """

    def __init__(
        self,
        name: str = "network",
        *,
        seed: int = 1,
        stop: Time = "1h",
        addressing: str | Mapping[str, str] = "auto",
        routing: Literal["auto", "ecmp", "none"] = "auto",
        link: Mapping[str, Any] | None = None,
        capture: str | None = None,
        measure: Time | Mapping[str, Time] | None = None,
        node: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if routing not in ("auto", "ecmp", "none"):
            refuse(f"routing `{routing}` is not allowed; allowed: auto, ecmp, none")
        known = ("epoch", "preempt", "output_limit", "isolate", "pcapng")
        for key in options:
            if key not in known:
                refuse(
                    f"a network has no option `{key}`; "
                    f"allowed: seed, stop, addressing, routing, link, node, capture, measure, {', '.join(known)}"
                )
        run: dict[str, Any] = {"stop": time_text(stop, "stop"), "seed": seed}
        if measure is not None:
            options["measure"] = _measures(measure)
        run.update({key: value for key, value in {"capture": capture, **options}.items() if value is not None})
        defaults: dict[str, Any] = {"link": {**DEFAULT_LINK, **link_values(link or {})}}
        if node:
            defaults["node"] = node_fields(node)
        head = {"version": 1, "name": name, "run": run, "addressing": addressing, "routing": routing}
        self._set_up({**head, "defaults": defaults, "nodes": {}, "links": []}, is_read=False)

    def _set_up(self, spec: dict[str, Any], is_read: bool) -> None:
        self._spec = spec
        # From a file, to which nothing is added.
        self._is_read = is_read
        self._nodes: dict[str, Node] = {name: Node(self, name) for name in spec.get("nodes") or {}}
        self._links: list[Link] = []
        self._ends: dict[str, Link] = {}
        self._first_address: dict[str, str] = {}
        self._plan: dict[End, list[str]] | None = None
        self._origin: tuple[Path, dict[str, Any]] | None = None
        self._live: Run | None = None
        # Links to ports, with port and interface: these lead outside, and are no links of the network's own.
        self._outside: list[tuple[str, str, dict[str, Any]]] = []
        for entry in spec.get("links") or []:
            if not self._leads_outside(entry):
                self._know(entry)

    # From and to scenario files.

    @classmethod
    def from_yaml(cls, source: str | os.PathLike[str]) -> Network:
        """Reads a scenario: the path of a file, or, if it has a line feed, its text.

        Nothing is added to it: its routes and addresses are what it says.

        Examples
        --------
        >>> import windtunnel as wt
        >>> net = wt.Network.from_yaml('''
        ... version: 1
        ... run: {stop: 10s}
        ... nodes: {h1: {}, h2: {}}
        ... links: [{endpoints: ["h1:eth0", "h2:eth0"], both: {rate: 1Gbit, delay: 5ms}}]
        ... ''')
        >>> net.links
        [<Link h1:eth0 -- h2:eth0>]
        """
        origin = None
        if isinstance(source, str) and "\n" in source:
            text, name = source, "text"
        else:
            origin, name = Path(source), str(source)
            try:
                text = origin.read_text(encoding="utf-8")
            except (OSError, ValueError) as error:
                refuse(f"cannot read {source}: {getattr(error, 'strerror', None) or error}")
        spec = load(text, name)
        try:
            network = cls._of(spec, origin)
        except (Error, AttributeError, TypeError):
            # The engine knows best what is wrong, and where.
            _refuse_as_engine(text, origin)
            raise
        if origin is not None:
            network._origin = (origin.absolute(), copy.deepcopy(network._spec))
        return network

    @classmethod
    def _of(cls, spec: Any, origin: Path | None) -> Network:
        """From the value of a file."""
        if not isinstance(spec, dict) or not isinstance(spec.get("nodes"), dict):
            refuse("this is not a scenario: it has no `nodes`", "a scenario begins with `version: 1`")
        if not spec.get("name"):
            spec = {"version": spec.pop("version", 1), "name": origin.stem if origin else "network", **spec}
        spec["nodes"] = {name: node or {} for name, node in spec["nodes"].items()}
        maps = [*spec["nodes"].values(), spec.get("defaults") or {}, spec.get("run") or {}]
        lists = [spec.get("links") or [], spec.get("events") or []]
        if not all(isinstance(value, dict) for value in maps) or not all(isinstance(value, list) for value in lists):
            refuse("this is not a scenario: mappings and lists are not where they belong")
        network = cls.__new__(cls)
        network._set_up(spec, is_read=True)
        return network

    def to_dict(self) -> dict[str, Any]:
        """The scenario, as a file has it."""
        spec = copy.deepcopy(self._spec)
        for name, node in spec["nodes"].items():
            if node.get("kind") == "router" and not self._is_read:
                node["sysctls"] = {**self._no_detection(name), **node.get("sysctls", {})}
        return spec

    def to_yaml(self) -> str:
        """The scenario as the text of a file."""
        return dump(self.to_dict())

    def _no_detection(self, name: str) -> dict[str, int]:
        """Sysctls of a router: it does not ask whether its link-local addresses are free.

        They are, and until it knew, for some two seconds, it would pass on no IPv6.
        """
        return {f"net.ipv6.conf.{scope}.accept_dad": 0 for scope in ["all", *self._interfaces_of(name)]}

    def validate(self) -> None:
        """Has the engine look at the scenario, without running it.

        Raises
        ------
        Error
            Something is wrong with it.
        """
        self._examine()

    def _examine(self, *options: str) -> str:
        """What `windtunnel validate` prints."""
        with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
            return _examined(folder, self._file_to_run(Path(folder) / SCENARIO), *options)

    def _file_to_run(self, path: Path) -> Path:
        """A file with the scenario: the one it was read from if nothing has changed, so that errors name its lines."""
        if not self._nodes:
            refuse("the network has no nodes", 'add one: net.add_node("h1")')
        if not self._is_read:
            self._refuse_rings()
        spec = self.to_dict()
        if self._origin is not None:
            origin, before = self._origin
            if before == spec and origin.exists():
                return origin
            _make_paths_absolute(spec, origin.parent)
        path.write_text(dump(spec), encoding="utf-8")
        return path

    def _sources(self, folder: Path) -> dict[tuple[str, str], str]:
        """Host files that nodes are given, by node and path in it; paths of the host count from `folder`."""
        return {
            (name, path): str((folder / file["source"]).absolute())
            for name, node in self._spec["nodes"].items()
            for path, file in (node.get("files") or {}).items()
            if "source" in (file or {})
        }

    def _refuse_rings(self) -> None:
        """Refuses switches in a ring without spanning tree: the first broadcast frame would go round for ever."""
        leader: dict[str, str] = {}

        def find(name: str) -> str:
            while leader.setdefault(name, name) != name:
                name = leader[name]
            return name

        for link in self._links:
            ends = (link.a.node, link.b.node)
            setups = " ".join(str(node._spec.get("setup") or "") for node in ends)
            if any(node.kind != "switch" for node in ends) or "stp_state 1" in setups:
                continue
            a, b = (find(node.name) for node in ends)
            if a == b:
                refuse(
                    f"the link {link} closes a ring of switches, in which broadcast frames would go round for ever",
                    "leave it out, or add the switches with stp=True",
                )
            leader[a] = b

    # Nodes and links.

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._spec["name"])

    @property
    def nodes(self) -> dict[str, Node]:
        """All nodes by name."""
        return dict(self._nodes)

    @property
    def links(self) -> list[Link]:
        """All links, in the order in which they were made."""
        return list(self._links)

    def __getitem__(self, name: str) -> Node:
        if name not in self._nodes:
            refuse(f"there is no node `{name}`; there are {', '.join(self._nodes) or 'none'}")
        return self._nodes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    def add_node(
        self,
        name: str,
        *,
        kind: Literal["host", "router", "switch"] | None = None,
        addresses: Mapping[str, str | list[str]] | None = None,
        routes: Iterable[str | Mapping[str, Any]] | None = None,
        sysctls: Mapping[str, str | int] | None = None,
        memory: Size | None = None,
        program_memory: Size | None = None,
        disk: Size | None = None,
        cpu: str | Mapping[str, str] | None = None,
        root: str | os.PathLike[str] | Mapping[str, str] | None = None,
        files: Mapping[str, str | Mapping[str, Any]] | None = None,
        setup: Iterable[str] | None = None,
        interfaces: Mapping[str, Mapping[str, Any]] | None = None,
        position: tuple[float, float] | None = None,
        kernel: str | None = None,
    ) -> Node:
        """Adds a node.

        Parameters
        ----------
        kind : {"host", "router", "switch"}
            A router forwards IPv4 and IPv6; a switch is a bridge over all its interfaces.
        addresses : dict
            Addresses with prefix length by interface; interfaces without get some from their link.
        routes : list of str
            As in ``"default via 10.0.0.1"``, besides the automatic ones.
        sysctls : dict
            Kernel parameters: ``{"net.ipv4.tcp_congestion_control": "bbr"}``.
        memory, program_memory, disk : int or str
            Bytes, or as in ``"64MiB"``.
        cpu : dict
            What work costs: ``{"syscall": "1us"}``; nothing by default.
        root : str or dict
            What it sees as ``/``: a folder or an image.
        interfaces : dict
            More about interfaces by name: values of :meth:`Interface.configure`, with units where they are texts.
        files : dict
            Texts by absolute path, or ``{"content": ..., "mode": "755"}``.
        setup : list of str
            Commands that run before any program.
        position : (float, float)
            Where a drawing shows it.
        """
        self._must_not_be_live("its nodes are fixed")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            refuse(
                f"`{name}` cannot be the name of a node",
                "1 to 63 letters, digits, `-`, `_` and `.`, beginning with a letter or digit",
            )
        if name in self._nodes:
            refuse(f"there is a node `{name}` already")
        fields = {
            "kind": kind, "position": position, "kernel": kernel, "memory": memory, "program_memory": program_memory,
            "disk": disk, "cpu": cpu, "root": root, "sysctls": sysctls, "files": files,
            "interfaces": None if interfaces is None else {key: dict(value) for key, value in interfaces.items()},
            "addresses": None if addresses is None else {key: words(value) for key, value in addresses.items()},
            "routes": None if routes is None else list(routes), "setup": None if setup is None else list(setup),
        }  # fmt: skip
        self._spec["nodes"][name] = node_fields(fields)
        self._nodes[name] = Node(self, name)
        self._changed()
        return self._nodes[name]

    def add_router(self, name: str, **options: Any) -> Node:
        """Adds a node that forwards: :meth:`add_node` with ``kind="router"``."""
        return self.add_node(name, kind="router", **options)

    def add_switch(self, name: str, *, stp: bool = False, **options: Any) -> Node:
        """Adds an Ethernet switch: a node whose interfaces are ports of a Linux bridge, ``br0``.

        With `stp` it speaks the spanning tree protocol, so that switches may be in a ring: the network works after some
        five seconds then.
        """
        if stp:
            options["setup"] = [*SPANNING_TREE, *(options.get("setup") or [])]
        return self.add_node(name, kind="switch", **options)

    def add_link(
        self,
        a: NodeName,
        b: NodeName,
        *,
        rate: Rate | None = None,
        delay: Time | None = None,
        jitter: Time | None = None,
        loss: Probability | None = None,
        duplicate: Probability | None = None,
        corrupt: Probability | None = None,
        reorder: bool | None = None,
        queue: Queue | None = None,
        a_to_b: Mapping[str, Any] | None = None,
        b_to_a: Mapping[str, Any] | None = None,
        addresses: tuple[str | list[str] | None, str | list[str] | None] = (None, None),
        model: str | tuple[str | None, str | None] | None = None,
    ) -> Link:
        """Adds a link between two nodes.

        Parameters
        ----------
        a, b : Node or str
            Its ends. A node's next free interface is taken, from eth0 on; ``"h1:eth3"`` names one.
        rate, delay, jitter, loss, duplicate, corrupt, reorder, queue, a_to_b, b_to_a
            As of :meth:`Link.set`; rate and delay are those of the network by default.
        addresses : (str, str)
            Addresses with prefix length of both ends, each one or a list; automatic ones for an end that has None.
        model : str or (str, str)
            Model of the NICs at its ends: ``"ideal"`` by default, ``"virtio"``, ``"e1000e"``, ``"igb"``, ``"mlx5"``;
            for more see :meth:`Interface.configure`.
        """
        self._must_not_be_live("its links are fixed", "take it down and up: link.down(), link.up()")
        both = {
            "rate": rate, "delay": delay, "jitter": jitter, "loss": loss, "duplicate": duplicate,
            "corrupt": corrupt, "reorder": reorder, "queue": queue,
        }  # fmt: skip
        values = change_of(both, a_to_b, b_to_a, "both")
        first = self._end(a, ())
        ends = [first, self._end(b, (first,))]
        entry = {"endpoints": [f"{node}:{interface}" for node, interface in ends], **values}
        models = model if isinstance(model, tuple) else (model, model)
        for (node, interface), wanted, kind in zip(ends, addresses, models):
            spec = self._nodes[node]._spec
            if kind is not None:
                spec.setdefault("interfaces", {}).setdefault(interface, {})["model"] = kind
            first_address = self._first_address.pop(node, None)
            wanted = first_address if wanted is None else wanted
            if wanted is not None:
                spec.setdefault("addresses", {})[interface] = words(wanted)
        self._spec.setdefault("links", []).append(entry)
        self._changed()
        return self._know(entry)

    def _end(self, end: NodeName, taken: tuple[End, ...]) -> End:
        node, _, interface = str(end).partition(":")
        self[node]
        there = set(self._interfaces_of(node)) | {name for owner, name in taken if owner == node}
        if not interface:
            interface = next(f"eth{number}" for number in range(len(there) + 1) if f"eth{number}" not in there)
        if not _INTERFACE.fullmatch(interface) or set(interface) & set("/:%"):
            refuse(
                f"`{interface}` cannot be the name of an interface",
                "1 to 15 characters without space, `/`, `:` and `%`",
            )
        if interface in there:
            refuse(f"{node}:{interface} has a link already", "leave the interface out, and the next free one is taken")
        return node, interface

    def _leads_outside(self, entry: dict[str, Any]) -> bool:
        """Whether a link ends at a port of the scenario; keeps it then."""
        ports = self._spec.get("ports") or {}
        ends = [end for end in entry.get("endpoints") or [] if isinstance(end, str)]
        port = next((end for end in ends if end in ports), None)
        if port is None:
            return False
        self._outside.extend((port, end, entry) for end in ends if end != port)
        return True

    def _port_links(self) -> list[tuple[str, str, str]]:
        """Port, node and interface of each link that leads outside."""
        return [(port, *end.partition(":")[::2]) for port, end, _ in self._outside]

    def _know(self, entry: dict[str, Any]) -> Link:
        endpoints = entry.get("endpoints") or []
        if len(endpoints) != 2 or not all(isinstance(end, str) and ":" in end for end in endpoints):
            refuse(f"`{endpoints}` are not the ends of a link", 'write `endpoints: ["h1:eth0", "h2:eth0"]`')
        named = [end.partition(":") for end in endpoints]
        a, b = (Interface(self[node], interface) for node, _, interface in named)
        link = Link(self, a, b, entry)
        self._links.append(link)
        self._ends.update(dict.fromkeys(endpoints, link))
        return link

    def measure(self, interval: Time | Mapping[str, Time]) -> Network:
        """Has every run measured after each `interval`: see the option of that name of :class:`Network`.

        Examples
        --------
        >>> import windtunnel as wt
        >>> wt.topology.star(3).measure({"qdiscs": "1ms"}).to_dict()["run"]["measure"]
        {'qdiscs': '1ms'}
        """
        self._must_not_be_live("what is measured is fixed")
        self._spec.setdefault("run", {})["measure"] = _measures(interval)
        self._changed()
        return self

    def at(self, time: Time) -> Moment:
        """A time of the scenario: ``net.at("5s").set(link, loss="1%")``."""
        return Moment(self, time_text(time, "at"))

    # What nodes, interfaces and links ask for.

    def _changed(self) -> None:
        self._plan = None

    def _must_not_be_live(self, why: str, hint: str = "end the run first: run.stop()") -> None:
        if self._live is not None:
            refuse(f"the network runs: {why}", hint)

    def _link_at(self, end: str) -> Link | None:
        return self._ends.get(end)

    def _interfaces_of(self, node: str) -> list[str]:
        ends = (end for link in self._links for end in (link.a, link.b))
        outside = (interface for _, owner, interface in self._port_links() if owner == node)
        return [*(end.name for end in ends if end.node.name == node), *sorted(outside)]

    def _addresses_of(self, node: str, interface: str) -> list[str]:
        return self._planned().get((node, interface), [])

    def _planned_interfaces(self, node: str) -> list[str]:
        return [interface for owner, interface in self._planned() if owner == node]

    def _planned(self) -> dict[End, list[str]]:
        """Addresses of all interfaces, as the engine gives them."""
        if self._plan is None:
            self._plan = {}
            node = ""
            for line in self._examine("--plan").splitlines():
                words = line.split()
                if not line.startswith(" "):
                    node = line
                elif "/" not in words[0]:
                    # Routes begin with a network.
                    self._plan[node, words[0]] = words[1:]
        return self._plan

    # Running.

    def run(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        seed: int | None = None,
        stop: Time | None = None,
        measure: Time | None = None,
        force: bool = False,
        check: bool = True,
        timeout: float | None = None,
    ) -> Run:
        """Starts a run, at time 0; nothing happens in it until it is told to go on. Use it as a context manager.

        Parameters
        ----------
        out : path
            Folder of the results; by default a new one in ``windtunnel-results``.
        seed, stop, measure
            In place of those of the network.
        force : bool
            Whether results of an earlier run in `out` are replaced.
        check : bool
            Whether an expectation that failed raises an :class:`Error` at the end.
        timeout : float
            Seconds of the wall clock after which a call that has not come back raises an :class:`Error`.
        """
        self._must_not_be_live("it can run once at a time")
        options = []
        if seed is not None:
            options += ["--seed", str(seed)]
        if stop is not None:
            options += ["--stop", time_text(stop, "stop")]
        if measure is not None:
            options += ["--measure", time_text(measure, "measure")]
        if force:
            options.append("--force")
        self._live = Run(self, out, options, check=check, timeout=timeout)
        return self._live

    def arun(self, out: str | os.PathLike[str] | None = None, **options: Any) -> AsyncRun:
        """A run for ``async with``; see :class:`windtunnel.AsyncRun`."""
        from ._aio import AsyncRun

        return AsyncRun(self, out, options)

    def _run_is_over(self, run: Run) -> None:
        if self._live is run:
            self._live = None

    def __enter__(self) -> Network:
        if self._live is None:
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, at)

    def __repr__(self) -> str:
        return f"<Network {self.name}: {len(self._nodes)} nodes, {len(self._links)} links>"

    def _repr_svg_(self) -> str:
        from ._draw import network_svg

        return network_svg(self)


def _measures(interval: Time | Mapping[str, Time]) -> str | dict[str, str]:
    if isinstance(interval, Mapping):
        return {kind: time_text(each, f"measure {kind}") for kind, each in interval.items()}
    return time_text(interval, "measure")


def _examined(folder: str, file: Path, *options: str) -> str:
    """What `windtunnel validate` prints of a file, which may be in a folder that is soon gone."""
    command: list[str | Path] = [find_program(), "validate", *options, file]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        error = last_words(done.stderr, done.returncode)
        error.without_folder(folder)
        raise error from None
    return done.stdout


def _refuse_as_engine(text: str, origin: Path | None) -> None:
    """Raises what the engine says of a file, if that is something."""
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
        file = Path(folder) / SCENARIO
        file.write_text(text, encoding="utf-8")
        _examined(folder, origin or file)


def _make_paths_absolute(spec: dict[str, Any], folder: Path) -> None:
    """Paths of a scenario count from its folder, and this one is going to be elsewhere."""
    holders = [*spec["nodes"].values(), (spec.get("defaults") or {}).get("node")]
    for holder in filter(None, holders):
        root = holder.get("root")
        if isinstance(root, str) and root != "host":
            holder["root"] = str(folder / root)
        elif isinstance(root, dict) and "image" in root:
            root["image"] = str(folder / root["image"])
        for file in (holder.get("files") or {}).values():
            if "source" in (file or {}):
                file["source"] = str(folder / file["source"])
