# SPDX-License-Identifier: GPL-2.0-or-later
"""What a sweep has found: cells, statistics over seeds, and their files."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._error import Error, refuse
from ._extras import need
from ._sweep_cell import Record
from ._sweep_plan import Point, canonical, canonical_json, did_you_mean, hash_of
from ._sweep_store import RUNS, write

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


class Table:
    """Rows with the same columns. Iterate over it, index it, or write it to a file.

    Attributes
    ----------
    rows : list of dict
    columns : list of str
    """

    def __init__(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        self.columns = list(columns)
        self.rows: list[Row] = [{name: row.get(name) for name in self.columns} for row in rows]

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Row:
        return self.rows[number]

    def column(self, name: str) -> list[Any]:
        """One column."""
        if name not in self.columns:
            refuse(
                f"there is no column `{name}`; there are {', '.join(self.columns)}", did_you_mean(name, self.columns)
            )
        return [row[name] for row in self.rows]

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The text of a CSV file, which is written if a path is given. A value that is not there is empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_cell(row[name]) for name in self.columns] for row in self.rows)
        return self._written(text.getvalue(), path)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """A JSON list of the rows, which is written if a path is given."""
        return self._written(json.dumps(self.rows, indent=1) + "\n", path)

    def to_polars(self) -> Any:
        """As a data frame of Polars; its `to_pandas` and `to_arrow` lead on."""
        polars = need("polars", "data frames")
        columns = {name: [_scalar(row[name]) for row in self.rows] for name in self.columns}
        return polars.DataFrame({name: _unified(column) for name, column in columns.items()})

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes a Parquet file."""
        frame = self.to_polars()
        try:
            frame.write_parquet(path)
        except OSError as error:
            raise Error(f"cannot write {path}: {error.strerror or error}") from None

    def _written(self, text: str, path: str | os.PathLike[str] | None) -> str:
        if path is not None:
            write(Path(path), text)
        return text

    def __str__(self) -> str:
        cells = [self.columns, *([_short(row[name]) for name in self.columns] for row in self.rows)]
        widths = [max(len(line[number]) for line in cells) for number in range(len(self.columns))]
        return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        lines = (
            "<tr>" + "".join(f"<td>{escape(_short(row[name]))}</td>" for name in self.columns) + "</tr>"
            for row in self.rows
        )
        return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    return "" if value is None else _scalar(value)


def _scalar(value: Any) -> Any:
    return canonical_json(value) if isinstance(value, (list, dict)) else value


def _unified(column: list[Any]) -> list[Any]:
    """Of one type: numbers as they are, all else as text."""
    kinds = {type(value) for value in column if value is not None}
    if kinds <= {int, float} and float in kinds:
        return [None if value is None else float(value) for value in column]
    if len(kinds) > 1:
        return [None if value is None else str(value) for value in column]
    return column


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(_scalar(value))


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
        return Table(rows, [*self.parameters, "seed", *self.values])

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
        return Table(rows, [*self.parameters, "value", *STATISTICS])

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
            "table": self.table().rows,
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
