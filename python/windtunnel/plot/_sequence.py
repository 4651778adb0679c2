# SPDX-License-Identifier: GPL-2.0-or-later
"""Time-sequence diagrams as tcptrace draws them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .._error import refuse
from .._extras import need
from .._units import Time
from ._data import RunData, Source, results
from ._series import chosen, window
from ._style import COLOURS, GREY, PAGE_IN, VECTOR_MAX, axes, finish, mark_events, scale, styled
from ._tcp import Conversation
from ._tcp import Sequence as Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

Bar = tuple[float, int, int]

BLUE, BLACK, GREEN, RED, PURPLE = COLOURS[0], COLOURS[2], COLOURS[3], COLOURS[4], COLOURS[6]
# A picture has about as many columns: what is sent one byte after the other within one is one bar.
COLUMNS = 3000


def joined(bars: Sequence[Bar], low: float, high: float) -> list[Bar]:
    """Bars in a span of time; where there are many more than a picture has columns, those that touch become one.

    >>> joined([(0.0, 0, 10), (0.5, 10, 20), (2.0, 20, 30)], 0.0, 1.0)
    [(0.0, 0, 10), (0.5, 10, 20)]
    """
    inside = [bar for bar in bars if low <= bar[0] <= high]
    if len(inside) <= COLUMNS:
        return inside
    wide = (high - low) / COLUMNS
    found: list[Bar] = []
    for time_s, first, after in inside:
        if found and found[-1][2] == first and int((found[-1][0] - low) / wide) == int((time_s - low) / wide):
            found[-1] = (found[-1][0], found[-1][1], after)
        else:
            found.append((time_s, first, after))
    return found


def are_joined(trace: Trace, low: float, high: float) -> bool:
    """Whether a diagram of this span of time has bars that are several segments."""
    return any(
        len(joined(bars, low, high)) < sum(low <= bar[0] <= high for bar in bars) for bars in (trace.new, trace.sacks)
    )


def thinned(points: Sequence[tuple[float, int]], low: float, high: float) -> list[tuple[float, int]]:
    """Steps in a span of time, with what held at its start; many within a column are the last, and all falls."""
    before = [point for point in points if point[0] < low]
    inside = [(low, before[-1][1])] if before else []
    inside += [point for point in points if low <= point[0] <= high]
    if len(inside) <= 2 * COLUMNS:
        return inside
    wide = (high - low) / COLUMNS
    found: list[tuple[float, int]] = []
    for point in inside:
        same = found and int((found[-1][0] - low) / wide) == int((point[0] - low) / wide)
        if same and point[1] >= found[-1][1]:
            found[-1] = point
        else:
            found.append(point)
    return found


def span(trace: Trace, start: float | None, end: float | None) -> tuple[float, float]:
    """Times to show: those asked for, else from the first to the last thing seen."""
    times = [bar[0] for bar in (*trace.new[:1], *trace.new[-1:], *trace.again[-1:])]
    times += [mark[0] for mark in trace.marks] + [ack[0] for ack in trace.acks[-1:]]
    low = min(times) if start is None else start
    high = max(times) if end is None else end
    if not low < high:
        refuse(f"there is no time from {low:g} s to {high:g} s in this connection")
    return low, high


def top(trace: Trace, low: float, high: float) -> tuple[int, int]:
    """Positions that the diagram has to show: those sent, acknowledged and allowed in a span of time."""
    seen = [edge for bar in (*trace.new, *trace.again) if low <= bar[0] <= high for edge in bar[1:]]
    seen += [position for time_s, position in trace.acks if low <= time_s <= high]
    return min(seen, default=0), max(seen, default=1)


def one_conversation(source: RunData, connection: str | None) -> Conversation:
    """The one asked for, of several that fit the largest."""
    return chosen(source, connection)[0]


def time_sequence(
    run: Source,
    connection: str | None = None,
    *,
    start: Time | None = None,
    end: Time | None = None,
    show_window: bool = True,
    figure: FigureBase | None = None,
    ax: Axes | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draws the time-sequence diagram of a TCP connection, as tcptrace does, from the capture at the sender.

    Each segment is a bar from its first to its last byte; below runs the line of what is acknowledged, above that of
    what the receiver
    lets the sender send (its acknowledgement plus its advertised window). Retransmissions and SACK blocks have their
    own colours.

    Parameters
    ----------
    run : Run or path
        A run that has ended, or its folder.
    connection : str, optional
        Part of the connection's name, as in ``":5201"``; of those that fit, the one that carried most.
    start, end : float or str, optional
        Part of the run to show, seconds or texts with units; by default the whole connection.
    show_window : bool
        Whether to draw the advertised window; without it the diagram may have more room for the data.
    figure, ax, size
        As of :func:`throughput`.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    Error
        There are no captures, or no such connection.
    """
    source = results(run)
    one = one_conversation(source, connection)
    trace = source.sequence(one)
    low, high = span(trace, *window(start, end))
    lowest, highest = top(trace, low, high)
    windows = thinned(trace.windows, low, high) if show_window else []
    by, unit = scale(max([highest, *(position for _, position in windows)]), "B")
    with styled():
        where, drawn = axes(figure, ax, size, 1, (PAGE_IN, 3.6))
        here = drawn[0]
        _steps(here, windows, by, "advertised window", color=GREEN, linestyle=(0, (4, 1.5)), linewidth=0.9)
        _bars(here, joined(trace.new, low, high), by, "data", BLACK, 0.9)
        _steps(here, thinned(trace.acks, low, high), by, "acknowledged", color=BLUE, linewidth=0.9)
        _bars(here, joined(trace.sacks, low, high), by, "SACK block", PURPLE, 0.7)
        _again(here, [bar for bar in trace.again if low <= bar[0] <= high], by)
        _flags(here, trace.marks, by, low, high)
        here.set_xlim(low - (high - low) * 0.02, high + (high - low) * 0.02)
        room = (max([highest, *(position for _, position in windows)]) - lowest) / by * 0.04
        here.set_ylim(lowest / by - room, None)
        here.set_xlabel("virtual time (s)")
        here.set_ylabel(f"position in the stream ({unit})")
        title = f"Time-sequence: {one.name}, seen at {one.interface}; {source.label}"
        done = finish(where, drawn, title, ax is None)
        mark_events(drawn, [event for event in source.link_events if low <= event.time_s <= high])
        return done


def _bars(ax: Axes, bars: Iterable[Bar], by: float, label: str, colour: str, width: float) -> None:
    """Vertical bars, one per segment."""
    collections = need("matplotlib.collections", "plots")
    lines = [((time_s, first / by), (time_s, after / by)) for time_s, first, after in bars]
    if not lines:
        return
    drawn = collections.LineCollection(
        lines, colors=colour, linewidths=width, label=label, rasterized=len(lines) > VECTOR_MAX
    )
    # Bars of one packet are shorter than a dot: butted ends would leave nothing of them.
    drawn.set_capstyle("projecting")
    ax.add_collection(drawn)
    ax.autoscale_view()


def _again(ax: Axes, bars: Sequence[Bar], by: float) -> None:
    """Retransmissions have a mark besides their colour: seen at any scale, and in grey."""
    _bars(ax, bars, by, "", RED, 1.4)
    if bars:
        middles = [(first + after) / 2 / by for _, first, after in bars]
        ax.plot(
            [bar[0] for bar in bars],
            middles,
            linestyle="none",
            marker="D",
            markersize=3.2,
            color=RED,
            markerfacecolor="none",
            markeredgewidth=0.8,
            label="retransmission",
        )


def _steps(ax: Axes, points: Sequence[tuple[float, int]], by: float, label: str, **options: Any) -> None:
    if points:
        x, y = [time_s for time_s, _ in points], [position / by for _, position in points]
        ax.plot(x, y, drawstyle="steps-post", label=label, rasterized=len(x) > VECTOR_MAX, **options)


def _flags(ax: Axes, marks: Sequence[tuple[float, int, str]], by: float, low: float, high: float) -> None:
    for time_s, position, name in marks:
        if low <= time_s <= high:
            ax.plot([time_s], [position / by], linestyle="none", marker="_", markersize=6, color=GREY)
            ax.annotate(
                name,
                (time_s, position / by),
                xytext=(0, 5),
                textcoords="offset points",
                fontsize=8,
                color="#555555",
                ha="center",
            )
