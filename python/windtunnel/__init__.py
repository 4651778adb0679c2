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

from ._aio import AsyncRun
from ._error import Error
from ._link import Link
from ._mininet import Throughput
from ._network import Moment, Network
from ._node import Interface, Node
from ._process import Process
from ._program import version
from ._run import Run

__version__ = version()

__all__ = ["AsyncRun", "Error", "Interface", "Link", "Moment", "Network", "Node", "Process", "Run", "Throughput"]
