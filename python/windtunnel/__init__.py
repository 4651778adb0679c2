# SPDX-License-Identifier: GPL-2.0-or-later
"""Real networks in a time you own: nodes are real Linux kernels, programs unmodified Linux programs.

>>> import windtunnel as wt
>>> net = wt.Network(seed=1)
>>> h1, h2 = net.add_node("h1"), net.add_node("h2")
>>> link = net.add_link(h1, h2, rate="10Mbit", delay="5ms")
>>> with net.run() as run:
...     print(h1.cmd("ping -c 3 h2").splitlines()[-2].split(", time")[0])
3 packets transmitted, 3 received, 0% packet loss
"""

from typing import TYPE_CHECKING, Any

from . import topology
from ._aio import AsyncRun
from ._error import Error
from ._link import Link
from ._mininet import Throughput
from ._network import Moment, Network
from ._node import Interface, Node
from ._process import Process
from ._program import version
from ._results import Results
from ._run import Run
from ._table import Table

if TYPE_CHECKING:
    from ._sweep import Sweep, sweep
    from ._sweep_executors import DaskExecutor, Executor, FuturesExecutor, LocalExecutor, SlurmExecutor
    from ._sweep_plan import Interval, LatinHypercube
    from ._sweep_table import SweepResults

__version__ = version()

__all__ = [
    "AsyncRun",
    "DaskExecutor",
    "Error",
    "Executor",
    "FuturesExecutor",
    "Interface",
    "Interval",
    "LatinHypercube",
    "Link",
    "LocalExecutor",
    "Moment",
    "Network",
    "Node",
    "Process",
    "Results",
    "Run",
    "SlurmExecutor",
    "Sweep",
    "SweepResults",
    "Table",
    "Throughput",
    "sweep",
    "topology",
]

# What only sweeps need takes as long to load as all the rest.
_LATE = {
    **dict.fromkeys(("Sweep", "sweep"), "_sweep"),
    **dict.fromkeys(
        ("DaskExecutor", "Executor", "FuturesExecutor", "LocalExecutor", "SlurmExecutor"), "_sweep_executors"
    ),
    **dict.fromkeys(("Interval", "LatinHypercube"), "_sweep_plan"),
    "SweepResults": "_sweep_table",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
