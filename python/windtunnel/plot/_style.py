# SPDX-License-Identifier: GPL-2.0-or-later
"""How plots look, and how they become the same bytes each time.

The style does not depend on the user's matplotlibrc, locale or fonts: matplotlib's own defaults and font, and what is
here.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._error import Error, refuse
from .._extras import need
from ._data import Event, RunData

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

# Colours of Okabe and Ito, which those with colour-blindness tell apart, in an order whose greys differ; yellow is
# too pale for lines. With each goes a line style, so that they differ without any colour.
COLOURS = ("#0072b2", "#e69f00", "#000000", "#009e73", "#d55e00", "#56b4e9", "#cc79a7")
DASHES = (
    "solid",
    (0, (5, 1.5)),
    (0, (1.5, 1)),
    (0, (6, 1.5, 1.5, 1.5)),
    (0, (3, 1)),
    (0, (8, 2)),
    (0, (4, 1, 1, 1, 1, 1)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#767676"

COLUMN_IN = 3.5
"""Width of a figure in a column of a paper, inches."""
PAGE_IN = 7.16
"""Width of a figure across both columns."""
HEIGHT_IN = 2.5
DPI = 200
# Beyond so many points, curves in an SVG are drawn as a picture: files of many megabytes open nowhere.
VECTOR_MAX = 20_000
FORMATS = ("png", "svg", "pdf")

STYLE = {
    "axes.axisbelow": True,
    "axes.formatter.use_locale": False,
    "axes.grid": True,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "figure.dpi": 100,
    "figure.titlesize": 9,
    "font.family": ["DejaVu Sans"],
    "font.size": 8,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.1,
    "lines.markersize": 4,
    "savefig.dpi": DPI,
    "svg.fonttype": "path",
    "svg.hashsalt": "windtunnel",
    "text.usetex": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """While it lasts, matplotlib has this style and nothing of the user's."""
    style = need("matplotlib.style", "plots")
    with style.context(["default", STYLE]):
        yield


def _figure_class() -> Any:
    """matplotlib's Figure, which shows itself in a notebook; pyplot, which keeps figures, is left alone."""
    base: Any = need("matplotlib.figure", "plots").Figure

    class Shown(base):  # type: ignore[misc]
        def _repr_png_(self) -> bytes:
            return encode(self, "png")

        def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
            return {"image/png": encode(self, "png"), "text/plain": repr(self)}

    Shown.__name__ = Shown.__qualname__ = "Figure"
    return Shown


def axes(
    figure: FigureBase | None,
    ax: Axes | None,
    size: tuple[float, float] | None,
    count: int = 1,
    default: tuple[float, float] = (COLUMN_IN, HEIGHT_IN),
) -> tuple[FigureBase, list[Axes]]:
    """Where to draw: in the axes given, in the figure given, or in a new one of the given size in inches."""
    if ax is not None:
        if figure is not None or size is not None or count != 1:
            refuse("`ax` goes with neither `figure` nor `size`, and takes one plot", "say which one, or give `figure`")
        return ax.figure, [ax]
    if figure is None:
        figure = _figure_class()(figsize=size or default, layout="constrained")
    elif size is not None:
        refuse("`size` is that of a new figure", "leave out `figure`, or its `size`")
    return figure, list(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])


def finish(
    figure: FigureBase, drawn: Sequence[Axes], title: str, own: bool, legend: bool = True, note: str = ""
) -> Figure:
    """Title and legend, which lies outside of the data, with what it has to say besides."""
    if own:
        drawn[0].set_title(title)
        handles: dict[str, Any] = {}
        for ax in drawn:
            for handle, label in zip(*ax.get_legend_handles_labels()):
                handles.setdefault(label, handle)
        if handles and legend:
            widths_in = [0.06 * len(label) + 0.62 for label in handles]
            room_in = figure.bbox.width / figure.get_dpi() if hasattr(figure, "get_dpi") else COLUMN_IN
            all_fit = sum(widths_in) <= room_in
            columns = len(handles) if all_fit else max(1, min(len(handles), int(room_in / max(widths_in))))
            figure.legend(
                handles.values(),
                handles.keys(),
                loc="outside lower center",
                ncols=columns,
                title=note or None,
                title_fontsize=8,
            )
    elif legend:
        for ax in drawn:
            if ax.get_legend_handles_labels()[0]:
                ax.legend(loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0)
    found: Figure = drawn[0].get_figure(root=True)
    return found


def colour(number: int) -> dict[str, Any]:
    """Colour and line style of the n-th curve."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))


def scale(largest: float, unit: str) -> tuple[float, str]:
    """The SI prefix with which values up to `largest` read best: what to divide by, and the unit with it.

    >>> scale(20e6, "b/s"), scale(0.024, "s"), scale(0, "s"), scale(3, "packets")
    ((1000000.0, 'Mb/s'), (0.001, 'ms'), (1.0, 's'), (1.0, 'packets'))
    """
    if not (largest > 0 and math.isfinite(largest)) or unit not in ("b/s", "s", "B"):
        return 1.0, unit
    for factor, prefix in _PREFIXES:
        if largest >= factor and (factor >= 1 or unit == "s"):
            return factor, f"{prefix}{unit}"
    return (1e-9, "ns") if unit == "s" else (1.0, unit)


def mark_events(drawn: Sequence[Axes], events: Sequence[Event]) -> None:
    """Events of links and nodes: a line each, time without one in grey; what it was stands above the topmost axes."""
    if not events:
        return
    low, high = drawn[0].get_xlim()
    for ax in drawn:
        down: dict[str, float] = {}
        for event in events:
            ax.axvline(event.time_s, color=GREY, linewidth=0.7, linestyle=(0, (2, 2)), zorder=1, gid="event")
            if event.kind == "down":
                down.setdefault(event.link, event.time_s)
            elif event.kind == "up" and event.link in down:
                ax.axvspan(down.pop(event.link), event.time_s, color="#e8e8e8", linewidth=0, zorder=0)
        for since in down.values():
            ax.axvspan(since, high, color="#e8e8e8", linewidth=0, zorder=0)
        ax.set_xlim(low, high)
    _name_events(drawn[0], events, low, high)


def _name_events(ax: Axes, events: Sequence[Event], low: float, high: float) -> None:
    """Texts in one row above the axes; where they would cover each other, numbers, which the row's end explains."""
    # That a link came up again is where the grey ends.
    inside = [event for event in events if low <= event.time_s <= high and event.kind != "up"]
    links = {event.link for event in inside}
    texts = [event.text if len(links) == 1 or event.of_node else f"{event.link} {event.label}" for event in inside]
    width_in = ax.figure.bbox.width / ax.figure.dpi * 0.8
    at_in = [(event.time_s - low) / (high - low) * width_in for event in inside]
    lanes: list[float] = []
    for x_in, text in zip(at_in, texts):
        lane = next((number for number, end in enumerate(lanes) if end < x_in), len(lanes))
        lanes[lane : lane + 1] = [x_in + 0.065 * len(text) + 0.1]
        if lane > 2:
            continue
        ax.annotate(
            text,
            (low + (high - low) * x_in / width_in, 1),
            xycoords=("data", "axes fraction"),
            xytext=(2, 2 + 9 * lane),
            textcoords="offset points",
            fontsize=8,
            color="#555555",
            annotation_clip=False,
        )
    ax.set_title(ax.get_title(loc="left"), loc="left", pad=5 + 10 * min(len(lanes), 3))


def over_time(drawn: Sequence[Axes], results: RunData, start_s: float | None, end_s: float | None) -> None:
    """The axis of virtual time: the whole run unless said otherwise."""
    low, high = start_s or 0.0, results.end_s if end_s is None else end_s
    if not low < high:
        refuse(f"there is no time from {low:g} s to {high:g} s in this run, which took {results.end_s:g} s")
    for ax in drawn:
        ax.set_xlim(low, high)
    drawn[-1].set_xlabel("virtual time (s)")


def encode(figure: Figure, form: str) -> bytes:
    """The bytes of a picture: the same for the same figure and the same version of matplotlib."""
    metadata: dict[str, Any] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    if form not in metadata:
        refuse(f"`{form}` is no format of pictures; allowed: {', '.join(FORMATS)}")
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format=form, dpi=DPI, metadata=metadata[form])
    return buffer.getvalue()


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Writes a figure as PNG, SVG or PDF, as the name ends; the same figure gives the same bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What a plot has returned.
    path : path
        File to write; one that exists is replaced.

    Returns
    -------
    pathlib.Path
        The file.
    """
    path = Path(path)
    content = encode(figure, path.suffix[1:].lower())
    try:
        path.write_bytes(content)
    except OSError as error:
        raise Error(f"cannot write {path}: {error.strerror}") from None
    return path
