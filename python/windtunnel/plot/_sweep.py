# SPDX-License-Identifier: GPL-2.0-or-later
"""Plots of sweeps: a value against a parameter, and the report of all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._error import refuse
from .._sweep_plan import canonical, did_you_mean
from .._sweep_table import cell_text
from ._report import html_table, page, trace
from ._statistics import cdf, interval, value_against
from ._style import scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .._sweep_table import SweepResults

SERIES_MAX = 7
SWEEP_KINDS = ("mean", "cdf")
# Last words of names, as docs/sweeps.md asks for them: the unit without prefix, and what it is of it.
UNITS = {
    "bps": ("b/s", 1.0),
    "ns": ("s", 1e-9),
    "us": ("s", 1e-6),
    "ms": ("s", 1e-3),
    "s": ("s", 1.0),
    "bytes": ("B", 1.0),
    "percent": ("%", 1.0),
    "packets": ("packets", 1.0),
    "frames": ("frames", 1.0),
}


def labelled(name: str, values: Sequence[Any]) -> tuple[float, str]:
    """Factor and label of an axis, by the unit that ends a name.

    >>> labelled("goodput_bps", [9e6]), labelled("delay_ms", [5]), labelled("retries", [3])
    ((1e-06, 'goodput (Mb/s)'), (1.0, 'delay (ms)'), (1.0, 'retries'))
    """
    what, _, last = name.rpartition("_")
    if not what or last not in UNITS:
        return 1.0, name.replace("_", " ")
    unit, factor = UNITS[last]
    numbers = [abs(value) for value in values if isinstance(value, (int, float))]
    by, unit = scale(max(numbers, default=0.0) * factor, unit)
    return float(f"{factor / by:.12g}"), f"{what.replace('_', ' ')} ({unit})"


def series_of(
    found: SweepResults, value: str, x: str, series: Sequence[str] | None, where: Mapping[str, Any]
) -> tuple[list[Any], dict[str, list[list[float]]], bool]:
    """Values of a parameter, the samples at these by series, and whether they belong together as a line.

    Without names, a series is a combination of all other parameters; where there are too many of these, each point
    stands alone.
    """
    points, keys = _keyed(found, x, series, where)
    if series is None and len(set(keys)) > SERIES_MAX:
        return [point[x] for point in points], {"": [found.sample(value, **point) for point in points]}, False
    xs = list(dict.fromkeys(point[x] for point in points))
    if all(isinstance(one, (int, float)) for one in xs):
        xs.sort()
    samples: dict[str, list[list[float]]] = {key: [[] for _ in xs] for key in keys}
    for key, point in zip(keys, points):
        samples[key][xs.index(point[x])] = found.sample(value, **point)
    return xs, samples, True


def _keyed(
    found: SweepResults, x: str | None, series: Sequence[str] | None, where: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The points that are to be shown, and the name of the series of each."""
    points = [point for point in found.points if all(point[name] == wanted for name, wanted in where.items())]
    if not points:
        refuse(f"no point has {', '.join(f'{name}={wanted}' for name, wanted in where.items())}")
    others = [name for name in found.parameters if name != x and len({repr(point[name]) for point in points}) > 1]
    if series is not None and (rest := [name for name in others if name not in series]):
        value = next(point[rest[0]] for point in points)
        refuse(
            f"each point of one of these series has several values of `{rest[0]}`, which must not be mixed",
            f"name it in `series` (`--group`) too, or choose one: where={{{rest[0]!r}: {value!r}}} "
            f"(`--where {rest[0]}={value}`)",
        )
    names = others if series is None else list(series)
    return points, [", ".join(f"{name}={point[name]}" for name in names) for point in points]


def samples_of(
    found: SweepResults, value: str, series: Sequence[str] | None, where: Mapping[str, Any]
) -> dict[str, list[float]]:
    """What was measured over the seeds, by series: combinations of these parameters, or of all."""
    points, keys = _keyed(found, None, series, where)
    samples: dict[str, list[float]] = {key: [] for key in keys}
    for key, point in zip(keys, points):
        samples[key] += found.sample(value, **point)
    kept = {key: numbers for key, numbers in samples.items() if numbers}
    if not kept:
        refuse(f"none of these cells has measured `{value}`", "its failed cells say why: found.check()")
    if len(kept) > SERIES_MAX:
        refuse(
            f"{len(kept)} distributions are too many for one picture; allowed: up to {SERIES_MAX}",
            f"choose values of parameters, as in where={{{found.parameters[0]!r}: ...}} "
            f"(`--where {found.parameters[0]}=...`)",
        )
    return kept


def chosen(found: SweepResults, x: str | None, y: str | None) -> tuple[str, str]:
    """Parameter and value: those named, else the first."""
    if y is None and not found.values:
        refuse(f"no cell of the sweep {found.name} has measured anything", "its failed cells say why: found.check()")
    x, y = x or found.parameters[0], y or found.values[0]
    if x not in found.parameters:
        refuse(
            f"the sweep has no parameter `{x}`; it has {', '.join(found.parameters)}",
            did_you_mean(x, found.parameters),
        )
    if y not in found.values:
        refuse(f"no cell returned `{y}`; there are {', '.join(found.values)}", did_you_mean(y, found.values))
    return x, y


def against(
    found: SweepResults,
    x: str | None = None,
    y: str | None = None,
    series: str | Sequence[str] | None = None,
    *,
    where: Mapping[str, Any] | None = None,
    xfactor: float | None = None,
    yfactor: float | None = None,
    xlabel: str | None = None,
    ylabel: str | None = None,
    **options: Any,
) -> Figure:
    """As :meth:`windtunnel.SweepResults.plot` says."""
    x, y = chosen(found, x, y)
    names = [series] if isinstance(series, str) else series
    for name in [*(names or ()), *(where or ())]:
        chosen(found, name, y)
    wanted = {name: canonical(value, name) for name, value in (where or {}).items()}
    xs, samples, together = series_of(found, y, x, names, wanted)
    everything = [number for groups in samples.values() for group in groups for number in group]
    (by_x, label_x), (by_y, label_y) = labelled(x, xs), labelled(y, everything)
    by_x, by_y = xfactor or (1.0 if xlabel else by_x), yfactor or (1.0 if ylabel else by_y)
    label_x, label_y = (
        given or (name if factor else made)
        for given, name, factor, made in ((xlabel, x, xfactor, label_x), (ylabel, y, yfactor, label_y))
    )
    if not any(isinstance(value, str) for value in xs):
        xs = [value * by_x for value in xs]
    scaled = {name: [[number * by_y for number in group] for group in groups] for name, groups in samples.items()}
    given = scaled if len(scaled) > 1 else next(iter(scaled.values()))
    return value_against(xs, given, label_x, label_y, **{"title": found.name, "join": together, **options})


def distribution(
    found: SweepResults,
    y: str | None = None,
    series: str | Sequence[str] | None = None,
    *,
    where: Mapping[str, Any] | None = None,
    xfactor: float | None = None,
    xlabel: str | None = None,
    **options: Any,
) -> Figure:
    """As :meth:`windtunnel.SweepResults.cdf` says."""
    _, y = chosen(found, None, y)
    names = [series] if isinstance(series, str) else series
    for name in [*(names or ()), *(where or ())]:
        chosen(found, name, y)
    samples = samples_of(found, y, names, {name: canonical(value, name) for name, value in (where or {}).items()})
    factor, label = labelled(y, [number for numbers in samples.values() for number in numbers])
    factor, label = xfactor or (1.0 if xlabel else factor), xlabel or (y if xfactor else label)
    scaled = {name: [number * factor for number in numbers] for name, numbers in samples.items()}
    given = scaled if len(scaled) > 1 else next(iter(scaled.values()))
    return cdf(given, label, **{"title": found.name, **options})


@dataclass(frozen=True)
class Picture:
    """One picture of a sweep: a value against a parameter, or, without one, its distribution."""

    y: str
    x: str | None = None
    series: tuple[str, ...] | None = None
    where: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For a file."""
        parts = [self.y, self.x] if self.x else ["cdf", self.y]
        parts += ["by", *self.series] if self.series else []
        parts += [f"{name}_{value}" for name, value in self.where.items()]
        return "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in "-".join(map(str, parts)))

    def draw(self, found: SweepResults) -> Figure:
        """With matplotlib."""
        if self.x is None:
            return distribution(found, self.y, self.series, where=self.where, title=found.name + _of(self.where))
        return against(found, self.x, self.y, self.series, where=self.where, title=found.name + _of(self.where))

    def trace(self, found: SweepResults) -> dict[str, Any]:
        """For the report."""
        if self.x is None:
            return _cdf_plot(found, self.y, self.series, self.where)
        return _plot(found, self.x, self.y, self.series, self.where)


def pictures_of(
    found: SweepResults,
    kinds: Sequence[str] = ("mean",),
    x: str | None = None,
    ys: Sequence[str] = (),
    group: Sequence[str] = (),
    where: Sequence[str] = (),
) -> list[Picture]:
    """What the words of a command line ask for: by default each value against each parameter."""
    for kind in kinds:
        if kind not in SWEEP_KINDS:
            refuse(f"`{kind}` is no kind of plot of a sweep; allowed: {', '.join(SWEEP_KINDS)}")
    if x is not None and "mean" not in kinds:
        refuse(f"a distribution has the value itself on its x axis, not `{x}`", "leave out --x")
    for name in ([x] if x is not None else []) + list(group):
        chosen(found, name, None)
    if x is not None and x in group:
        refuse(f"`{x}` is on the x axis already", "leave it out of --group")
    fixed = _fixed(found, where)
    series = tuple(group) or None
    pictures = []
    for y in ys or found.values:
        chosen(found, None, y)
        if "mean" in kinds:
            free = [name for name in found.parameters if name not in group and name not in fixed]
            pictures += [Picture(y, one, series, fixed) for one in ([x] if x is not None else free)]
        if "cdf" in kinds:
            pictures.append(Picture(y, None, series, fixed))
    if not pictures:
        chosen(found, None, None)
        refuse("no parameter is left for the x axis", "name one with --x, or draw distributions: --kind cdf")
    return pictures


def _fixed(found: SweepResults, where: Sequence[str]) -> dict[str, Any]:
    """Values of parameters, each as in ``cc=bbr``."""
    fixed: dict[str, Any] = {}
    for word in where:
        name, mark, text = word.partition("=")
        if not mark:
            refuse(f"--where `{word}` has no value", "as in --where cc=bbr")
        chosen(found, name, None)
        if name in fixed:
            refuse(f"--where names `{name}` twice", "a picture has points of one value of it, or of all")
        known = list({str(point[name]): point[name] for point in found.points}.items())
        value = [value for shown, value in known if shown == text or _is_number(text, value)]
        if not value:
            refuse(
                f"no point has {word}; values of `{name}`: {', '.join(shown for shown, _ in known)}",
                did_you_mean(text, [shown for shown, _ in known]),
            )
        fixed[name] = value[0]
    return fixed


def _is_number(text: str, value: Any) -> bool:
    try:
        return isinstance(value, (int, float)) and float(text) == value
    except ValueError:
        return False


def sweep_report(found: SweepResults, path: Path | None = None, pictures: Sequence[Picture] | None = None) -> Path:
    """Writes a report of a sweep: one HTML file that needs nothing else.

    Without `pictures` it has each value against each parameter.
    """
    target = path or found.folder / "report.html"
    if pictures is None:
        pictures = [Picture(y, x) for y in found.values for x in found.parameters]
    plots = [picture.trace(found) for picture in pictures]
    try:
        target.write_text(page(f"sweep {found.name}", _body(found), plots, []), encoding="utf-8")
    except OSError as error:
        refuse(f"cannot write {target}: {error.strerror}")
    return target


def _cdf_plot(found: SweepResults, y: str, series: Sequence[str] | None, where: Mapping[str, Any]) -> dict[str, Any]:
    samples = samples_of(found, y, series, where)
    factor, label = labelled(y, [number for numbers in samples.values() for number in numbers])
    traces = []
    for number, (name, numbers) in enumerate(samples.items()):
        at = sorted(value * factor for value in numbers)
        # It rises from 0 at the least sample.
        one = trace(number, name or y, [at[0], *at], [row / len(at) for row in range(len(at) + 1)], "line")
        one["line"]["shape"] = "hv"
        traces.append(one)
    layout = _layout(f"distribution of {y} over seeds{_of(where)}", label, "part of samples ≤ x", len(traces))
    return {"data": traces, "layout": layout}


def _of(where: Mapping[str, Any]) -> str:
    """Which points a title is of."""
    return f", {', '.join(f'{name}={value}' for name, value in where.items())}" if where else ""


def _layout(title: str, xlabel: str, ylabel: str, count: int) -> dict[str, Any]:
    return {
        "title": {"text": escape(title), "x": 0, "xref": "paper"},
        "xaxis": {"title": {"text": escape(xlabel)}, "gridcolor": "#ddd"},
        "yaxis": {"title": {"text": escape(ylabel)}, "rangemode": "tozero", "gridcolor": "#ddd"},
        "legend": {"orientation": "h", "y": -0.25},
        "showlegend": count > 1,
        "height": 400,
        "margin": {"l": 70, "r": 20, "t": 50, "b": 60},
    }


def _plot(
    found: SweepResults, x: str, y: str, series: Sequence[str] | None, where: Mapping[str, Any]
) -> dict[str, Any]:
    xs, samples, together = series_of(found, y, x, series, where)
    everything = [number for groups in samples.values() for group in groups for number in group]
    (by_x, label_x), (by_y, label_y) = labelled(x, xs), labelled(y, everything)
    texts = any(isinstance(value, str) for value in xs)
    at = [str(value) if texts else value * by_x for value in xs]
    traces = []
    for number, (name, groups) in enumerate(samples.items()):
        pairs = [interval(group) if group else None for group in groups]
        means = [None if pair is None else pair[0] * by_y for pair in pairs]
        one = trace(number, name or y, at, means, "line")
        one["mode"] = "lines+markers" if together and not texts else "markers"
        one["marker"]["size"] = 6
        widths = [0.0 if pair is None or math.isnan(pair[1]) else pair[1] * by_y for pair in pairs]
        one["error_y"] = {"type": "data", "array": widths, "thickness": 1}
        traces.append(one)
    layout = _layout(f"{y} against {x}{_of(where)}: mean and 95 % interval", label_x, label_y, len(traces))
    if texts:
        layout["xaxis"]["type"] = "category"
    return {"data": traces, "layout": layout}


def _body(found: SweepResults) -> str:
    table = found.table()
    rows = [
        ["" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row.values()]
        for row in table
    ]
    facts: list[list[object]] = []
    for name in found.parameters:
        facts.append([name, ", ".join(dict.fromkeys(str(point[name]) for point in found.points))])
    facts += [
        ["seeds", ", ".join(str(seed) for seed in sorted({record["seed"] for record in found.records}))],
        ["digest", found.digest],
        ["points", len(found.points)],
        ["cells", len(found.records)],
        ["failed cells", len(found.failed)],
    ]
    failed: list[list[object]] = [
        [cell_text(one), one["error"]["message"], one["error"]["hint"] or "", found.folder_of(one)]
        for one in found.failed
    ]
    wide = "".join(f"<li>{escape(', '.join(f'{k}={v}' for k, v in point.items()))}</li>" for point in found.wide)
    return (
        f"<h1>sweep {escape(found.name)}</h1>{html_table(['', ''], facts)}"
        + (f"<h2>Failed cells</h2>{html_table(['cell', 'error', 'hint', 'results'], failed)}" if failed else "")
        + (f"<h2>Intervals that are still wide</h2><ul>{wide}</ul>" if wide else "")
        + f"<h2>Plots</h2>\0<h2>Table</h2>{html_table(table.columns, rows)}"
    )
