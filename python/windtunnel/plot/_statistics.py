# SPDX-License-Identifier: GPL-2.0-or-later
"""A value against a parameter, with confidence intervals, and distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from .._error import refuse
from .._extras import need
from ._style import COLUMN_IN, HEIGHT_IN, MARKERS, axes, colour, finish, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from ._data import Numbers

Values = Sequence[float]
Samples = Union[Sequence[Values], Mapping[str, Sequence[Values]]]
"""Per parameter's value the samples of all seeds; of several series a mapping from their names to that."""


def interval(values: Values, confidence: float = 0.95) -> tuple[float, float]:
    """The mean of samples and half the width of its confidence interval, by Student's distribution.

    Parameters
    ----------
    values : sequence of float
        At least one sample; one alone has no interval.
    confidence : float
        Of the interval: between 0 and 1.

    Returns
    -------
    tuple of float
        Mean, and half width; NaN for one sample.
    """
    if not 0 < confidence < 1:
        refuse(f"confidence `{confidence}` is not allowed; allowed: a number between 0 and 1", "95 % is 0.95")
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, math.nan
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    quantile = float(need("scipy.stats", "confidence intervals").t.ppf((1 + confidence) / 2, count - 1))
    return mean, quantile * deviation / math.sqrt(count)


def _named(samples: Any, what: str) -> dict[str, Any]:
    found = dict(samples) if isinstance(samples, Mapping) else {"": samples}
    if not found:
        refuse(f"there are no {what}", "give at least one series")
    return found


def _finite(values: Any, where: str) -> Numbers:
    numpy = need("numpy", "plots")
    try:
        found = numpy.asarray(values, dtype=float).ravel()
    except (TypeError, ValueError):
        refuse(f"samples of {where} are not numbers: {values!r}")
    if not numpy.isfinite(found).all():
        refuse(f"samples of {where} have values that are not finite", "leave out cells that failed")
    return found


def value_against(
    x: Sequence[Any],
    samples: Samples,
    xlabel: str,
    ylabel: str,
    *,
    title: str = "",
    confidence: float = 0.95,
    show_samples: bool = False,
    xscale: str | None = None,
    from_zero: bool = True,
    join: bool = True,
    figure: FigureBase | None = None,
    ax: Axes | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draws means against a parameter, with the confidence interval of each mean (Student).

    Parameters
    ----------
    x : sequence
        The parameter's values; texts, such as names of algorithms, stand side by side in their order.
    samples : sequence of sequences of float, or mapping of names to these
        For each value of the parameter the samples of all seeds; an empty sequence leaves a gap. Several series by
        their names.
    xlabel, ylabel : str
        What the axes show, with units: ``"loss (%)"``, ``"goodput (Mb/s)"``.
    title : str
        What it is, and of which sweep.
    confidence : float
        Of the intervals; those of a single sample are not there.
    show_samples : bool
        Whether to draw each sample too.
    xscale : {"linear", "log"}, optional
        Of the parameter's axis.
    from_zero : bool
        Whether the values' axis starts at 0, where none is negative.
    join : bool
        Whether lines join the means of a series.
    figure, ax, size
        As of :func:`throughput`.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    numpy = need("numpy", "plots")
    series = _named(samples, "series")
    for name, groups in series.items():
        if len(groups) != len(x):
            refuse(
                f"series `{name}` has {len(groups)} groups of samples, for {len(x)} values of the parameter",
                "give one sequence of samples for each value of x, an empty one where there are none",
            )
    texts = any(isinstance(value, str) for value in x)
    if texts and xscale not in (None, "linear"):
        refuse(f"texts have no {xscale} scale", "leave out `xscale`")
    at = list(range(len(x))) if texts else _finite(x, "x").tolist()
    counts = {len(group) for groups in series.values() for group in groups if len(group)}
    with styled():
        where, drawn = axes(figure, ax, size, 1, (COLUMN_IN, HEIGHT_IN))
        here = drawn[0]
        if xscale:
            here.set_xscale(xscale)
        # Side by side, where several would cover each other.
        apart = 0.6 / max(len(series), 1) if texts else 0.0
        for number, (name, groups) in enumerate(series.items()):
            shift = apart * (number - (len(series) - 1) / 2)
            groups = [_finite(group, f"`{name}`" if name else "x") for group in groups]
            pairs = [interval(group.tolist(), confidence) if len(group) else (math.nan, math.nan) for group in groups]
            where_x = [value + shift for value in at]
            options = {**colour(number), "marker": MARKERS[number % len(MARKERS)]}
            if texts or not join:
                options["linestyle"] = "none"
            means = numpy.array([mean for mean, _ in pairs])
            widths = numpy.array([width for _, width in pairs])
            here.errorbar(where_x, means, yerr=widths, label=name or None, capsize=2.5, elinewidth=0.9, **options)
            if show_samples:
                points = [(where_x[row], value) for row, group in enumerate(groups) for value in group]
                dots = {"s": 5, "color": options["color"], "alpha": 0.45, "linewidths": 0}
                here.scatter([p[0] for p in points], [p[1] for p in points], **dots)
        if texts:
            here.set_xticks(at, [str(value) for value in x])
            here.set_xlim(-0.5, len(x) - 0.5)
        lowest = min((float(v) for groups in series.values() for g in groups for v in g), default=0.0)
        if from_zero and lowest >= 0:
            here.set_ylim(bottom=0)
        here.set_xlabel(xlabel)
        here.set_ylabel(ylabel)
        done = finish(where, drawn, title, ax is None)
        if ax is None and counts and max(counts) > 1:
            seeds = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
            here.set_title(
                f"mean of {seeds}, {100 * confidence:g} % interval", loc="right", fontsize=8, color="#555555"
            )
            if title:
                here.set_title("", loc="left")
                where.suptitle(title, x=0.01, ha="left")
        return done


def cdf(
    samples: Values | Mapping[str, Values],
    xlabel: str,
    *,
    title: str = "",
    xscale: str | None = None,
    figure: FigureBase | None = None,
    ax: Axes | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draws the empirical distribution of samples: which part of them is at most x.

    Parameters
    ----------
    samples : sequence of float, or mapping of names to these
        The samples, or several series by their names.
    xlabel : str
        What the samples are, with their unit: ``"flow completion time (ms)"``.
    title : str
        What it is, and of which run or sweep.
    xscale : {"linear", "log"}, optional
        Of the samples' axis.
    figure, ax, size
        As of :func:`throughput`.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    numpy = need("numpy", "plots")
    series = {name: numpy.sort(_finite(values, f"`{name}`")) for name, values in _named(samples, "samples").items()}
    empty = [name for name, values in series.items() if not len(values)]
    if empty:
        refuse(f"series `{empty[0]}` has no samples", "leave it out")
    with styled():
        where, drawn = axes(figure, ax, size)
        here = drawn[0]
        if xscale:
            here.set_xscale(xscale)
        for number, (name, values) in enumerate(series.items()):
            parts = numpy.arange(1, len(values) + 1) / len(values)
            # It rises from 0 at the least sample.
            here.plot(
                numpy.concatenate([values[:1], values]),
                numpy.concatenate([[0.0], parts]),
                drawstyle="steps-post",
                label=name or None,
                **colour(number),
            )
        here.set_ylim(0, 1.02)
        here.set_xlabel(xlabel)
        here.set_ylabel("part of samples ≤ x")
        return finish(where, drawn, title, ax is None)
