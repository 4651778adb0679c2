# SPDX-License-Identifier: GPL-2.0-or-later
"""The picture of ``windtunnel compare --plot``: a TCP connection in two traces."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._error import refuse
from .._extras import need
from ._sequence import COLUMNS, Bar, joined, thinned
from ._style import COLOURS, PAGE_IN, VECTOR_MAX, axes, finish, save, scale, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, RED = COLOURS[0], COLOURS[4]
Point = tuple[float, float]


def main(arguments: dict[str, Any]) -> int:
    """Draws what standard input has of a connection in both traces; the exit code.

    Parameters
    ----------
    arguments : dict
        ``file``: where to; its ending is the format. ``a``, ``b``: names of the traces.
    """
    given = json.load(sys.stdin)
    file = Path(arguments["file"])
    if not file.absolute().parent.is_dir():
        refuse(f"there is no folder {file.parent}", "make it, or name another file with --plot")
    figure = sequences(given, *(Path(arguments[side]).name or arguments[side] for side in ("a", "b")))
    # Standard output may be JSON.
    print(save(figure, file), file=sys.stderr)
    return 0


def sequences(given: dict[str, Any], name_a: str, name_b: str) -> Figure:
    """Draws both time-sequence diagrams over each other, and by how much later each segment was in the second trace.

    Parameters
    ----------
    given : dict
        What the program found: ``name``, ``sender``; ``a`` and ``b`` with ``new``, ``again`` (time, first byte, the one
        after the last) and ``acks`` (time, position); ``differences`` (time in s, difference in ms).
    name_a, name_b : str
        Names of the traces.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    traces = [given["a"], given["b"]]
    bars = [[(bar[0], bar[1], bar[2]) for bar in trace["new"] + trace["again"]] for trace in traces]
    times = [bar[0] for drawn in bars for bar in drawn] + [ack[0] for trace in traces for ack in trace["acks"]]
    if not times:
        refuse("the largest connection carried no data", "choose another one with --connection")
    times += [point[0] for point in given["differences"]]
    low, high = min(times), max(times)
    by, unit = scale(max([bar[2] for drawn in bars for bar in drawn], default=1), "B")
    with styled():
        where, drawn_axes = axes(None, None, (PAGE_IN, 5.2), 2)
        above, below = drawn_axes
        looks = (("A", name_a, BLUE, "solid", 1.6), ("B", name_b, RED, (0, (3, 1)), 1.0))
        for trace, (letter, name, colour, dashes, width) in zip(traces, looks):
            _trace(above, trace, (low, high), by, f"{letter}: {name}", (colour, dashes, width))
        above.set_ylabel(f"position in the stream ({unit})")
        _differences(below, [(point[0], point[1]) for point in given["differences"]])
        below.set_ylabel("time in B less that in A (ms)")
        below.set_xlabel("time since the connection's start (s)")
        room = (high - low or 1e-3) * 0.02
        below.set_xlim(low - room, high + room)
        return finish(where, drawn_axes, f"What the {given['sender']} of {given['name']} sent", True)


def _trace(
    ax: Axes, trace: dict[str, Any], span: tuple[float, float], by: float, name: str, look: tuple[str, Any, float]
) -> None:
    """Segments as bars, what is acknowledged as steps, what was sent again with a mark."""
    collections = need("matplotlib.collections", "plots")
    colour, dashes, width = look
    new: list[Bar] = joined([(bar[0], bar[1], bar[2]) for bar in trace["new"]], *span)
    lines = [((time_s, first / by), (time_s, after / by)) for time_s, first, after in new]
    if lines:
        drawn = collections.LineCollection(
            lines, colors=colour, linewidths=width, label=f"{name}, data", rasterized=len(lines) > VECTOR_MAX
        )
        # Bars of one packet are shorter than a dot: butted ends would leave nothing of them.
        drawn.set_capstyle("projecting")
        ax.add_collection(drawn)
        ax.autoscale_view()
    acks = thinned([(ack[0], ack[1]) for ack in trace["acks"]], *span)
    if acks:
        ax.plot(
            [ack[0] for ack in acks],
            [ack[1] / by for ack in acks],
            drawstyle="steps-post",
            color=colour,
            linestyle=dashes,
            linewidth=0.7,
            label=f"{name}, acknowledged",
        )
    if trace["again"]:
        ax.plot(
            [bar[0] for bar in trace["again"]],
            [(bar[1] + bar[2]) / 2 / by for bar in trace["again"]],
            linestyle="none",
            marker="D" if colour == BLUE else "s",
            markersize=4,
            color=colour,
            markerfacecolor="none",
            markeredgewidth=0.8,
            label=f"{name}, sent again",
        )


def _differences(ax: Axes, points: Sequence[Point]) -> None:
    """A dot per segment that both have; of very many, the least and the greatest of each column."""
    shown = _extremes(points) if len(points) > 2 * COLUMNS else list(points)
    ax.plot(
        [point[0] for point in shown],
        [point[1] for point in shown],
        linestyle="none",
        marker=".",
        markersize=2.5,
        color=COLOURS[2],
        label="segment that both have",
        rasterized=len(shown) > VECTOR_MAX,
    )


def _extremes(points: Sequence[Point]) -> list[Point]:
    """The least and the greatest of each column of a picture.

    >>> _extremes([(0.0, 1.0), (0.0, 3.0), (0.0, 2.0), (1.0, 5.0)])
    [(0.0, 1.0), (0.0, 3.0), (1.0, 5.0)]
    """
    low, high = points[0][0], points[-1][0]
    wide = (high - low) / COLUMNS or 1.0
    columns: dict[int, list[Point]] = {}
    for point in points:
        columns.setdefault(int((point[0] - low) / wide), []).append(point)
    found: list[Point] = []
    for column in columns.values():
        ends = {min(column, key=lambda point: point[1]), max(column, key=lambda point: point[1])}
        found.extend(sorted(ends))
    return found
