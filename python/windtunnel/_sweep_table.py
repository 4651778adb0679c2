# SPDX-License-Identifier: GPL-2.0-or-later
"""What a sweep has found: cells, statistics over seeds, and their files."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._error import Error, refuse
from ._extras import need
from ._sweep_cell import Record
from ._sweep_plan import Point, canonical, canonical_json, did_you_mean, hash_of
from ._sweep_store import RUNS, record_path
from ._table import Table

LEVEL = 0.95
STATISTICS = ("n", "mean", "std", "ci95_low", "ci95_high", "median")
Row = dict[str, Any]


@dataclass(frozen=True)
class Estimate:
    """What repetitions say of a value.

    Attributes
    ----------
    n : int
        How many there are.
    mean, median : float
    std : float or None
        Standard deviation of the sample (n - 1); none for a single repetition.
    ci95_low, ci95_high : float or None
        The 95 % interval of the mean, by Student's distribution of n - 1 degrees of freedom.
    """

    n: int
    mean: float
    std: float | None
    ci95_low: float | None
    ci95_high: float | None
    median: float


def estimate(sample: Sequence[float]) -> Estimate:
    """Statistics of a sample of one at least; its order does not matter, to the last bit.

    Examples
    --------
    >>> from windtunnel._sweep_table import estimate
    >>> one = estimate([1.0])
    >>> (one.n, one.mean, one.std, one.ci95_low)
    (1, 1.0, None, None)
    """
    count = len(sample)
    mean = math.fsum(sample) / count
    median = float(statistics.median(sample))
    if count < 2:
        return Estimate(count, mean, None, None, None, median)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in sample) / (count - 1))
    half = student(count - 1) * std / math.sqrt(count)
    return Estimate(count, mean, std, mean - half, mean + half, median)


def student(freedom: int) -> float:
    """How many standard errors the 95 % interval reaches to each side of the mean."""
    special = need("scipy.special", "intervals of means")
    return float(special.stdtrit(freedom, (1 + LEVEL) / 2))


def table_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], name: str) -> Table:
    """Rows as a table. What is neither a number nor a text becomes one, and so do all of a column that has both."""
    return Table({column: _unified([_scalar(row.get(column)) for row in rows]) for column in columns}, name)


def _scalar(value: Any) -> Any:
    return canonical_json(value) if isinstance(value, (list, dict)) else value


def _unified(column: list[Any]) -> list[Any]:
    kinds = {type(value) for value in column if value is not None}
    if len(kinds) > 1 and not kinds <= {int, float}:
        return [None if value is None else str(value) for value in column]
    return column


class SweepResults:
    """What a sweep has found.

    Attributes
    ----------
    name : str
    folder : pathlib.Path
        Where records and results are.
    points : list of dict
        The points, in their order.
    records : list of dict
        All cells by point and seed; see docs/sweeps.md.
    found : int
        How many cells were there already.
    wide : list of dict
        Points whose interval is still wide after as many repetitions as there may be.
    """

    def __init__(
        self, name: str, folder: Path, points: list[Point], records: list[Record], found: int, wide: list[Point]
    ) -> None:
        self.name = name
        self.folder = folder
        self.points = points
        self.records = records
        self.found = found
        self.wide = wide

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters."""
        return list(self.points[0])

    @property
    def values(self) -> list[str]:
        """Names of what was measured."""
        names: dict[str, None] = {}
        for record in self.records:
            names.update(dict.fromkeys(record["values"] or ()))
        return list(names)

    @property
    def failed(self) -> list[Record]:
        """Records of cells that have failed: their `error` says why, and :meth:`folder_of` where its results are."""
        return [record for record in self.records if record["error"] is not None]

    def folder_of(self, record: Record) -> Path:
        """Where the runs of a cell have left their results; of a failed one also what was raised, in ``error.txt``."""
        return self.folder / RUNS / str(record["key"])[:16]

    @property
    def digest(self) -> str:
        """SHA-256 of all points, seeds, values and digests of runs, in an order of its own: equal for equal results."""
        cells = [
            [
                record["parameters"],
                record["seed"],
                "failed" if record["error"] is not None else record["values"],
                [run["digest"] for run in record["runs"]] if record["error"] is None else [],
            ]
            for record in self.records
        ]
        return hash_of(sorted(cells, key=lambda cell: canonical_json(cell[:2])))

    def cells(self) -> Table:
        """A row for each cell that has not failed: parameters, seed, values."""
        rows = [
            {**record["parameters"], "seed": record["seed"], **record["values"]}
            for record in self.records
            if record["error"] is None
        ]
        return table_of(rows, [*self.parameters, "seed", *self.values], self.name)

    def sample(self, value: str, **parameters: Any) -> list[float]:
        """What was measured at the points that have these parameters, in the order of the seeds."""
        self._must_know(value)
        for name in parameters:
            if name not in self.parameters:
                refuse(
                    f"the sweep has no parameter `{name}`; it has {', '.join(self.parameters)}",
                    did_you_mean(name, self.parameters),
                )
        wanted = {name: canonical(chosen, name) for name, chosen in parameters.items()}
        return [
            number
            for record in self.records
            if all(record["parameters"][name] == chosen for name, chosen in wanted.items())
            for number in [(record["values"] or {}).get(value)]
            if number is not None
        ]

    def _must_know(self, value: str) -> None:
        if value not in self.values:
            refuse(f"no cell returned `{value}`; there are {', '.join(self.values)}", did_you_mean(value, self.values))

    def table(self, *values: str) -> Table:
        """Statistics over the seeds: a row for each point and value.

        Parameters
        ----------
        *values : str
            Which values; all by default.

        Returns
        -------
        Table
            Columns: the parameters, `value` (its name), and those of :class:`Estimate`.
        """
        for value in values:
            self._must_know(value)
        by_point: dict[str, list[Record]] = {}
        for record in self.records:
            by_point.setdefault(canonical_json(record["parameters"]), []).append(record)
        rows = []
        for point in self.points:
            measured = [record["values"] or {} for record in by_point.get(canonical_json(point), [])]
            for value in values or self.values:
                sample = [one[value] for one in measured if one.get(value) is not None]
                if sample:
                    rows.append({**point, "value": value, **vars(estimate(sample))})
        return table_of(rows, [*self.parameters, "value", *STATISTICS], self.name)

    def plot(
        self,
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
    ) -> Any:
        """Draws means of a value against a parameter, with their 95 % intervals (Student).

        Parameters
        ----------
        x, y : str, optional
            Parameter and value; the first of each by default.
        series : str or sequence of str, optional
            Parameters whose combinations are a series each; by default all others. Where that makes more than seven, as
            with Latin hypercubes, each point stands alone.
        where : mapping, optional
            Values of other parameters: only points that have these are shown.
        xfactor, yfactor : float, optional
            What to multiply by; by default what the unit in the name asks for: ``goodput_bps`` is shown in Mb/s.
        xlabel, ylabel : str, optional
            Other labels of the axes; then values are not scaled, unless there is a factor.
        **options
            As of :func:`windtunnel.plot.value_against`: ``title``, ``show_samples``, ``xscale``, ``ax`` ...

        Returns
        -------
        matplotlib.figure.Figure
            The figure; :func:`windtunnel.plot.save` writes it.
        """
        from .plot._sweep import against

        factors = {"xfactor": xfactor, "yfactor": yfactor}
        return against(self, x, y, series, where=where, xlabel=xlabel, ylabel=ylabel, **factors, **options)

    def cdf(
        self,
        y: str | None = None,
        series: str | Sequence[str] | None = None,
        *,
        where: Mapping[str, Any] | None = None,
        xfactor: float | None = None,
        xlabel: str | None = None,
        **options: Any,
    ) -> Any:
        """Draws the distribution of a value over the seeds: which part of them is at most x.

        Parameters
        ----------
        y : str, optional
            The value; the first by default.
        series : str or sequence of str, optional
            Parameters whose combinations are a curve each; by default all that differ. Seven at most.
        where : mapping, optional
            Values of other parameters: only points that have these are shown.
        xfactor : float, optional
            What to multiply by; by default what the unit in the name asks for: ``delay_ns`` is shown in ms or so.
        xlabel : str, optional
            Another label; then values are not scaled, unless there is a factor.
        **options
            As of :func:`windtunnel.plot.cdf`: ``title``, ``xscale``, ``ax`` ...

        Returns
        -------
        matplotlib.figure.Figure
            The figure; :func:`windtunnel.plot.save` writes it.
        """
        from .plot._sweep import distribution

        return distribution(self, y, series, where=where, xfactor=xfactor, xlabel=xlabel, **options)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> SweepResults:
        """What a sweep that has ended left in its folder.

        Raises
        ------
        Error
            It is no folder of a sweep, or the sweep has not ended, or it is damaged.
        """
        path = Path(folder)
        try:
            plan = json.loads((path / "sweep.json").read_text(encoding="utf-8"))
            records = [json.loads(record_path(path, key).read_text(encoding="utf-8")) for key in plan["cells"]]
            return cls(plan["name"], path, plan["points"], records, len(records), plan["wide"])
        except FileNotFoundError as error:
            refuse(f"there is no {error.filename}", "name the folder of a sweep that has ended; run it again to end it")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Error(f"cannot read the sweep in {path}: {error}", hint="run it again") from None

    def to_dict(self) -> dict[str, Any]:
        """All of it, as ``windtunnel sweep --json`` prints it."""
        return {
            "sweep_version": 1,
            "name": self.name,
            "folder": str(self.folder),
            "digest": self.digest,
            "cells": len(self.records),
            "found": self.found,
            "failed": [
                {
                    "parameters": record["parameters"],
                    "seed": record["seed"],
                    "message": record["error"]["message"],
                    "hint": record["error"]["hint"],
                    "results": str(self.folder_of(record)),
                }
                for record in self.failed
            ],
            "wide": self.wide,
            "table": self.table().rows(),
        }

    def check(self) -> None:
        """Raises an :class:`Error` if a cell has failed."""
        failed = self.failed
        if failed:
            first = failed[0]
            raise Error(
                f"{len(failed)} of {len(self.records)} cells failed; the first, {cell_text(first)}: "
                f"{first['error']['message']}",
                hint=f"what it left is in {self.folder_of(first)}",
                exit_code=1,
            )

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        counts = f"{len(self.points)} points, {len(self.records)} cells{failed}"
        return f"<SweepResults of {self.name}: {counts}, in {self.folder}>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def cell_text(record: Mapping[str, Any]) -> str:
    """A cell, for a message."""
    return ", ".join([*(f"{name}={value}" for name, value in record["parameters"].items()), f"seed={record['seed']}"])
