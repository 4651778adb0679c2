# SPDX-License-Identifier: GPL-2.0-or-later
"""Networks of regular, random and real topologies, as ``windtunnel generate`` makes them.

Each function takes, besides its own arguments, those of :func:`options`, and gives a :class:`windtunnel.Network` that
can be changed as any other.

Examples
--------
>>> from windtunnel import topology
>>> net = topology.fat_tree(4, rate="10Gbit")
>>> net
<Network fat-tree-4: 36 nodes, 48 links>
>>> with net.run():
...     print(net["host-0-0-2"].cmd("ping -c 1 host-3-1-3").splitlines()[1].split(" time=")[0])
64 bytes from host-3-1-3 (fd00:0:0:f::1): icmp_seq=1 ttl=59
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ._error import last_words, refuse
from ._find import find_program
from ._network import Network
from ._units import Queue, Rate, Time, queue_text, rate_text, time_text

__all__ = [
    "chain",
    "dumbbell",
    "fat_tree",
    "graphml",
    "grid",
    "leaf_spine",
    "options",
    "ring",
    "star",
    "tree",
    "waxman",
]

STOP = "1h"


def options(
    *,
    rate: Rate | None = None,
    delay: Time | None = None,
    queue: Queue | None = None,
    host_rate: Rate | None = None,
    host_delay: Time | None = None,
    routing: str | None = None,
    seed: int = 1,
    stop: Time = STOP,
    name: str | None = None,
) -> dict[str, Any]:
    """What all topologies take.

    Parameters
    ----------
    rate, delay, queue
        Of all links, as of :meth:`Network.add_link`: 1 Gb/s and 1 ms by default; 10 us in fat-tree and
        leaf-spine, and by distance in random and real networks.
    host_rate, host_delay
        Of links to hosts, where they differ.
    routing : {"auto", "ecmp", "none"}
        As of :class:`Network`; ``"ecmp"`` by default for fat-tree and leaf-spine.
    seed : int
        Of the run, and of what is random in the topology.
    stop : float or str
        Virtual time at which a run ends at the latest.
    name : str
        Name of the network; as in ``"fat-tree-4"`` by default.

    Returns
    -------
    dict
        The options that are there, as ``windtunnel generate`` has them.
    """
    return {
        "rate": None if rate is None else rate_text(rate),
        "delay": None if delay is None else time_text(delay, "delay"),
        "queue": None if queue is None else queue_text(queue),
        "host_rate": None if host_rate is None else rate_text(host_rate),
        "host_delay": None if host_delay is None else time_text(host_delay, "host_delay"),
        "routing": routing,
        "seed": seed,
        "stop": time_text(stop, "stop"),
        "name": name,
    }


def _network(kind: str, numbers: list[Any], own: dict[str, Any], common: dict[str, Any]) -> Network:
    """What ``windtunnel generate KIND`` says, as a network."""
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            refuse(f"`{number}` is not a number of something; allowed: a whole number")
    return _generated([kind, *(str(number) for number in numbers)], own, common)


def _generated(words: list[str], own: dict[str, Any], common: dict[str, Any]) -> Network:
    command = [str(find_program()), "generate", *words, "--json"]
    for key, value in {**own, **options(**common)}.items():
        option = f"--{key.replace('_', '-')}"
        if value is True:
            command.append(option)
        elif value is not None and value is not False:
            command.append(f"{option}={value}")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise last_words(done.stderr, done.returncode) from None
    sys.stderr.write(done.stderr)
    network = Network.__new__(Network)
    # As if it had been built by calls.
    network._set_up(json.loads(done.stdout), is_read=False)
    return network


def chain(n: int = 3, *, hosts_per_router: int | None = None, kind: str | None = None, **common: Any) -> Network:
    """Routers ``r1`` ... in a line, with hosts ``h1`` and ``h2`` at its ends.

    Parameters
    ----------
    n : int
        How many routers.
    hosts_per_router : int
        Hosts at each router, in place of those at the ends.
    kind : {"router", "switch"}
        What connects hosts.
    **common
        Those of :func:`options`.

    Examples
    --------
    >>> from windtunnel import topology
    >>> net = topology.chain(5, rate="100Mbit", delay="2ms")
    >>> list(net.nodes)
    ['r1', 'r2', 'r3', 'r4', 'r5', 'h1', 'h2']
    """
    return _network("chain", [n], {"hosts_per_router": hosts_per_router, "kind": kind}, common)


def star(n: int = 3, *, kind: str | None = None, **common: Any) -> Network:
    """Hosts ``h1`` ... around a switch: `n` of them; `kind` as of :func:`chain`, `common` as of :func:`options`."""
    return _network("star", [n], {"kind": kind}, common)


def ring(n: int = 4, *, hosts_per_router: int = 1, **common: Any) -> Network:
    """Routers ``r1`` ... in a ring: `n` of them, with hosts; `common` as of :func:`options`."""
    return _network("ring", [n], {"hosts_per_router": hosts_per_router}, common)


def tree(depth: int = 2, fanout: int = 2, *, kind: str | None = None, **common: Any) -> Network:
    """A tree of switches whose leaves are hosts.

    Parameters
    ----------
    depth : int
        Links from the root to each host.
    fanout : int
        Children of each switch.
    kind : {"switch", "router"}
        What connects hosts.
    **common
        Those of :func:`options`.
    """
    return _network("tree", [], {"depth": depth, "fanout": fanout, "kind": kind}, common)


def fat_tree(k: int = 4, *, hosts_per_edge: int | None = None, **common: Any) -> Network:
    """The fat-tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008) of switches with `k` ports, which are routers here.

    Names have the numbers of that paper's addresses: ``edge-P-S`` and ``aggr-P-S`` are 10.P.S.1, ``host-P-S-ID`` is
    10.P.S.ID, ``core-J-I`` is 10.k.J.I.

    Parameters
    ----------
    k : int
        Ports of a switch, an even number.
    hosts_per_edge : int
        Hosts at each edge switch; k/2 by default.
    **common
        Those of :func:`options`.
    """
    return _network("fat-tree", [k], {"hosts_per_edge": hosts_per_edge}, common)


def leaf_spine(leaves: int = 2, spines: int = 2, *, hosts_per_leaf: int = 4, **common: Any) -> Network:
    """Routers ``leaf1`` ... and ``spine1`` ..., each leaf connected with each spine.

    Hosts of leaf1 are ``h1-1``, ``h1-2`` ...; `common` as of :func:`options`.
    """
    return _network("leaf-spine", [leaves, spines], {"hosts_per_leaf": hosts_per_leaf}, common)


def grid(rows: int = 3, columns: int = 3, *, torus: bool = False, hosts_per_router: int = 1, **common: Any) -> Network:
    """Routers ``rR-C`` in rows and columns, with hosts ``hR-C``; in a `torus` their ends are connected."""
    return _network("grid", [rows, columns], {"torus": torus, "hosts_per_router": hosts_per_router}, common)


def dumbbell(
    left: int = 2,
    right: int | None = None,
    *,
    bottleneck_rate: Rate = "10Mbit",
    bottleneck_delay: Time = "10ms",
    bottleneck_queue: Queue | None = None,
    kind: str | None = None,
    **common: Any,
) -> Network:
    """Hosts ``left1`` ... and ``right1`` ... on both sides of a bottleneck from ``r1`` to ``r2``.

    Parameters
    ----------
    left, right : int
        How many hosts; as many on the right as on the left by default.
    bottleneck_rate, bottleneck_delay, bottleneck_queue
        Of the link between the routers.
    kind : {"router", "switch"}
        What connects hosts.
    **common
        Those of :func:`options`; rate and delay are those of the other links.

    Examples
    --------
    >>> from windtunnel import topology
    >>> net = topology.dumbbell(2, bottleneck_rate="5Mbit", bottleneck_queue="50p")
    >>> with net.run():
    ...     print(net.iperf(net["left1"], net["right2"], seconds=2))
    4.65 Mbit/s received, 5.8 Mbit/s sent
    """
    own = {
        "bottleneck_rate": rate_text(bottleneck_rate),
        "bottleneck_delay": time_text(bottleneck_delay, "bottleneck_delay"),
        "bottleneck_queue": None if bottleneck_queue is None else queue_text(bottleneck_queue),
        "kind": kind,
    }
    return _network("dumbbell", [left] if right is None else [left, right], own, common)


def waxman(
    n: int = 20,
    *,
    alpha: float = 0.4,
    beta: float = 0.15,
    side: float = 1000.0,
    hosts_per_router: int = 1,
    **common: Any,
) -> Network:
    """The random graph of Waxman (1988): the nearer two routers are, the likelier is a link.

    Its probability is alpha exp(-d / (beta L)), d being their distance and L the diagonal of the square that they are
    in. A graph in several parts is connected: the part of r1 gets the shortest link to another, until there is one.

    Parameters
    ----------
    n : int
        How many routers.
    alpha, beta : float
        More links, and longer links, for more of it; above 0, at most 1.
    side : float
        Length of a side of the square, km. Delays are those of light in fibre, 5 us a kilometre, unless `delay` is
        given.
    hosts_per_router : int
        Hosts at each router.
    **common
        Those of :func:`options`; `seed` decides on places and links.
    """
    own = {"alpha": alpha, "beta": beta, "side": side, "hosts_per_router": hosts_per_router}
    return _network("waxman", [n], own, common)


def graphml(
    file: str | os.PathLike[str], *, largest: bool = False, hosts_per_router: int = 1, **common: Any
) -> Network:
    """A network of the Internet Topology Zoo, or another GraphML file; its nodes are routers.

    Names come from labels, rates from link speeds, delays and places from coordinates;
    ``windtunnel generate graphml --help`` says how. What the file lacks is told on standard error.

    Parameters
    ----------
    file : path
        The file.
    largest : bool
        Whether the largest part is taken of a graph that is not connected.
    hosts_per_router : int
        Hosts at each router: that of London is ``h-London``.
    **common
        Those of :func:`options`.
    """
    # An absolute path is not taken for an option.
    own = {"largest": largest, "hosts_per_router": hosts_per_router}
    return _generated(["graphml", str(Path(file).absolute())], own, common)
