# SPDX-License-Identifier: GPL-2.0-or-later
"""Plots of runs and sweeps, one call each; ``windtunnel plot DIR`` makes them too.

Each function returns a matplotlib figure, which shows itself in a notebook and which :func:`save` writes; ``ax=`` and
``figure=`` put it
into a figure of one's own. They need ``pip install 'windtunnel[study]'``.
"""

from ._main import main
from ._picture import timeline, topology
from ._report import report
from ._sequence import time_sequence
from ._series import cwnd, queue, rtt, throughput
from ._statistics import cdf, interval, value_against
from ._style import save

__all__ = [
    "cdf",
    "cwnd",
    "interval",
    "main",
    "queue",
    "report",
    "rtt",
    "save",
    "throughput",
    "time_sequence",
    "timeline",
    "topology",
    "value_against",
]
