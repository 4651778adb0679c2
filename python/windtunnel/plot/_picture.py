# SPDX-License-Identifier: GPL-2.0-or-later
"""The network as a drawing, and what ran when."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .._draw import FILL
from .._error import refuse
from .._extras import need
from .._network import Network
from .._units import Time
from ._data import Child, RunData, Source, network_places, places, results
from ._series import window
from ._style import COLOURS, GREY, PAGE_IN, axes, finish, mark_events, over_time, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

SHAPES = {
    "host": "round,pad=0.35,rounding_size=0.8",
    "router": "round,pad=0.35,rounding_size=0.05",
    "switch": "square,pad=0.35",
    "port": "square,pad=0.35",
}
LABELS_MAX = 40
CHILD_ROWS_MAX = 8
"""So many processes of one parent have rows of their own."""


def topology(
    network: Network | Source,
    *,
    labels: bool = True,
    figure: FigureBase | None = None,
    ax: Axes | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draws a network: nodes at their own positions if all have one, else apart by as many links as lie between them.

    Ports to the outside have a dashed box, with what is at their other end.

    Parameters
    ----------
    network : Network, Run or path
        A network, or the results of a run.
    labels : bool
        Whether to write rate and delay at links, where both directions are alike and there are few.
    figure, ax, size
        As of :func:`throughput`.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    if isinstance(network, Network):
        (at, kinds, links), title = network_places(network), network.name
    else:
        source = results(network)
        (at, kinds, links), title = places(source), str(source.summary["scenario"])
    if not at:
        refuse("the network has no nodes", "add some: net.add_node()")
    width, height = _extent(at)
    # As wide as a column, or as many nodes side by side need.
    nearest = min((math.dist(at[a], at[b]) for a, b, _ in links if at[a] != at[b]), default=width or 1.0)
    wide = min(max(3.5, 1.0 + 0.8 * width / nearest), PAGE_IN)
    tall = min(max(1.2, 0.8 + (wide - 0.8) * height / max(width, 1e-9)), 8.0) if width else 3.5
    with styled():
        where, drawn = axes(figure, ax, size, 1, (wide, tall))
        here = drawn[0]
        here.set_axis_off()
        texts = {label for _, _, label in links}
        alike = len(texts) == 1 and len(links) > 2
        _links(here, at, links, labels and not alike and len(links) <= LABELS_MAX)
        for name, (x, y) in at.items():
            kind, below = kinds[name]
            box = {
                "boxstyle": SHAPES.get(kind, SHAPES["host"]),
                "facecolor": FILL.get(kind, "#cccccc"),
                "linewidth": 0.8,
                "linestyle": "--" if kind == "port" else "-",
            }
            here.text(x, -y, name, ha="center", va="center", fontsize=8, bbox=box, zorder=3)
            if below:
                here.annotate(
                    below,
                    (x, -y),
                    xytext=(0, -11),
                    textcoords="offset points",
                    ha="center",
                    va="top",
                    fontsize=7,
                    color="#555555",
                    zorder=3,
                )
        margin = 0.12 * max(width, height, 1.0)
        here.set_xlim(min(x for x, _ in at.values()) - margin, max(x for x, _ in at.values()) + margin)
        here.set_ylim(-max(y for _, y in at.values()) - margin, -min(y for _, y in at.values()) + margin)
        here.set_aspect("equal")
        if labels and alike and (text := next(iter(texts))):
            here.annotate(
                f"all links: {text}",
                (0.5, 0),
                xycoords="axes fraction",
                xytext=(0, -4),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=8,
                color="#555555",
            )
        return finish(where, drawn, f"Network: {title}", ax is None, legend=False)


def _extent(at: dict[str, Any]) -> tuple[float, float]:
    xs, ys = [x for x, _ in at.values()], [y for _, y in at.values()]
    return max(xs) - min(xs), max(ys) - min(ys)


def _links(ax: Axes, at: dict[str, Any], links: list[tuple[str, str, str]], labelled: bool) -> None:
    """Lines; several between the same two nodes are bowed apart."""
    patches = need("matplotlib.patches", "plots")
    seen: dict[tuple[str, str], int] = {}
    pairs = [(min(a, b), max(a, b)) for a, b, _ in links]
    for (_a, _b, label), pair in zip(links, pairs):
        number, count = seen.get(pair, 0), pairs.count(pair)
        seen[pair] = number + 1
        bend = 0.25 * (number - (count - 1) / 2) * 2 / max(count - 1, 1) if count > 1 else 0.0
        (ax_, ay), (bx, by) = at[pair[0]], at[pair[1]]
        style = f"arc3,rad={bend}"
        ax.add_patch(
            patches.FancyArrowPatch(
                (ax_, -ay),
                (bx, -by),
                connectionstyle=style,
                arrowstyle="-",
                color=GREY,
                linewidth=1.1,
                zorder=1,
                shrinkA=0,
                shrinkB=0,
            )
        )
        if labelled and label:
            # The middle of the curve is half as far from the chord as its control point.
            x, y = (ax_ + bx) / 2 + bend * (-by + ay) / 2, -(ay + by) / 2 - bend * (bx - ax_) / 2
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            text = label.replace(", ", "\n")
            ax.text(
                x, y, text, ha="center", va="center", fontsize=8, color="#444444", bbox=box, zorder=2, linespacing=0.95
            )


def ended(process: dict[str, Any]) -> str:
    """How a program ended, in words."""
    if process["start_ns"] is None:
        return "never started"
    if process["signal"] is not None:
        return f"signal {process['signal']}"
    if process.get("power_off"):
        return "node off"
    return "still running" if process["exit"] is None else f"exit {process['exit']}"


def command(process: dict[str, Any], longest: int = 34) -> str:
    """What ran, cut to a length."""
    text = shlex.join(process["command"])
    return text if len(text) <= longest else text[: longest - 1] + "…"


def timeline(
    run: Source,
    *,
    start: Time | None = None,
    end: Time | None = None,
    figure: FigureBase | None = None,
    ax: Axes | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draws what ran when: a bar per program, from its start to its end, how it ended, and events of links and nodes.

    Below a program are the processes that it made, by start; more than eight of one parent share a row.

    Parameters
    ----------
    run, start, end, figure, ax, size
        As of :func:`throughput`.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    source = results(run)
    programs = [one for one in source.summary["processes"] if one["start_ns"] is not None]
    if not programs:
        refuse(f"no program ran in {source.path}", "a timeline shows the programs of a scenario")
    rows: list[_Row] = []
    for one in programs:
        rows.append(_Row(f"{one['node']}: {command(one)}", one["node"], [_bar(one)]))
        _add_children(rows, one["node"], source.children.get((one["node"], one["pid"], one["start_ns"]), []), 1)
    with styled():
        where, drawn = axes(figure, ax, size, 1, (PAGE_IN, min(1.0 + 0.21 * len(rows), 9.0)))
        here = drawn[0]
        nodes = list(dict.fromkeys(one.node for one in rows))
        for number, row in enumerate(rows):
            for bar in row.bars:
                _draw(here, source, number, bar, row, COLOURS[nodes.index(row.node) % len(COLOURS)])
        here.set_ylim(len(rows) - 0.4, -0.6)
        here.set_yticks(range(len(rows)), [row.label for row in rows])
        here.tick_params(axis="y", length=0)
        here.grid(visible=False, axis="y")
        over_time(drawn, source, *window(start, end))
        done = finish(where, drawn, f"Programs: {source.label}", ax is None, legend=False)
        mark_events(drawn, source.link_events)
        return done


@dataclass(frozen=True)
class _Bar:
    """From when to when something ran, s, and how it ended."""

    begin_s: float
    end_s: float | None
    failed: bool
    text: str


@dataclass
class _Row:
    label: str
    node: str
    bars: list[_Bar]
    depth: int = 0


def _bar(program: dict[str, Any]) -> _Bar:
    end_ns = program["end_ns"]
    return _Bar(
        program["start_ns"] / 1e9,
        None if end_ns is None else end_ns / 1e9,
        program["exit"] not in (None, 0) or program["signal"] not in (None, 15),
        "" if program["exit"] == 0 else ended(program),
    )


def _child_bar(child: Child) -> _Bar:
    how = {"start_ns": 0, "exit": child.exit, "signal": child.signal, "power_off": child.power_off}
    failed = child.exit not in (None, 0) or child.signal not in (None, 15)
    return _Bar(child.start_s, child.end_s, failed, "" if child.exit == 0 or child.end_s is None else ended(how))


def _add_children(rows: list[_Row], node: str, children: list[Child], depth: int) -> None:
    """Adds the rows of processes and of what they made in turn."""
    indent = "└" * depth + " "
    if len(children) <= CHILD_ROWS_MAX:
        for child in children:
            rows.append(_Row(f"{indent}{child.name} {child.pid}", node, [_child_bar(child)], depth))
            _add_children(rows, node, child.children, depth + 1)
        return
    everyone: list[Child] = []
    waiting = list(children)
    while waiting:
        child = waiting.pop()
        everyone.append(child)
        waiting.extend(child.children)
    everyone.sort(key=lambda child: (child.start_s, child.pid))
    names = list(dict.fromkeys(child.name for child in everyone))
    text = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    bars = [_child_bar(child) for child in everyone]
    rows.append(
        _Row(f"{indent}{len(everyone)} processes: {text}", node, [replace(bar, text="") for bar in bars], depth)
    )


def _draw(ax: Axes, source: RunData, number: int, bar: _Bar, row: _Row, colour: str) -> None:
    until = source.end_s if bar.end_s is None else bar.end_s
    height, alpha = (0.6, 0.75) if row.depth == 0 else (0.35, 0.45)
    ax.barh(
        number, until - bar.begin_s, left=bar.begin_s, height=height, color=colour, alpha=alpha, linewidth=0, zorder=2
    )
    size = 9 if row.depth == 0 else 5
    # A start is seen however short the program ran.
    ax.plot([bar.begin_s], [number], marker="|", markersize=size, color=colour, zorder=3)
    marker = (
        {"marker": "x", "color": "#d55e00", "markersize": 5 if row.depth == 0 else 3.5}
        if bar.failed
        else {"marker": "|", "color": colour, "markersize": size}
    )
    if bar.end_s is not None:
        ax.plot([until], [number], zorder=3, **marker)
    if bar.text:
        late = until > 0.85 * source.end_s
        ax.annotate(
            bar.text,
            (until, number),
            xytext=(-4 if late else 4, 0),
            textcoords="offset points",
            va="center",
            ha="right" if late else "left",
            fontsize=8 if row.depth == 0 else 7,
            color="black",
            zorder=4,
            clip_on=True,
        )
