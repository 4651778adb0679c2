# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of a run's results, for whatever library somebody prefers."""

from __future__ import annotations

import csv
import html
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._error import Error, refuse
from ._extras import need

__all__ = ["Table"]

# Columns of names and the like: what is in them is text, whatever it looks like.
# fmt: off
TEXT = frozenset((
    "algorithm", "command", "congestion_control", "destination", "dev", "event", "family", "flags", "from",
    "interface", "kind", "link", "name", "node", "process", "program", "protocol", "qdisc", "seen_at", "source",
    "state", "text", "to",
))
# fmt: on
INT64_MAX = 2**63 - 1
# As many lines are shown in a notebook.
SHOWN_ROWS = 10


class Table:
    """Columns of equal length by name, in the order of the file; units are in the names.

    A value is an ``int``, a ``float``, a ``str``, a ``bool``, or None where there is none; all of a column are of one
    type. Times in nanoseconds stay whole numbers.

    Parameters
    ----------
    columns : mapping of str to sequence
        Values of each column.
    name : str
        What it is a table of, for errors.

    Examples
    --------
    >>> import windtunnel as wt
    >>> table = wt.Table({"time_ns": [10, 20], "node": ["h1", "h2"]})
    >>> len(table), table.columns, table["time_ns"]
    (2, ['time_ns', 'node'], [10, 20])
    >>> table.where(node="h2").rows()
    [{'time_ns': 20, 'node': 'h2'}]
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]], name: str = "table") -> None:
        self.name = name
        self._columns = {column: list(values) for column, values in columns.items()}
        lengths = {len(values) for values in self._columns.values()}
        if len(lengths) > 1:
            refuse(f"the columns of {name} have different lengths: {', '.join(map(str, sorted(lengths)))}")

    # What is in it.

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __contains__(self, column: object) -> bool:
        return column in self._columns

    def __getitem__(self, column: str) -> list[Any]:
        """Values of a column."""
        try:
            return self._columns[column]
        except KeyError:
            refuse(f"{self.name} has no column `{column}`; it has: {', '.join(self._columns)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and list(self._columns.items()) == list(other._columns.items())

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Rows, each as a dict."""
        names = list(self._columns)
        return (dict(zip(names, row)) for row in zip(*self._columns.values()))

    def rows(self) -> list[dict[str, Any]]:
        """All rows, each as a dict."""
        return list(self)

    def to_dict(self) -> dict[str, list[Any]]:
        """Lists by the names of the columns; they are copies."""
        return {column: list(values) for column, values in self._columns.items()}

    # Parts of it.

    def where(self, **values: Any) -> Table:
        """Rows in which these columns have these values.

        ``from`` is a word of Python's: ``links.where(**{"from": "h1:eth0"})``.
        """
        wanted = [(self[column], value) for column, value in values.items()]
        return self._take([row for row in range(len(self)) if all(of[row] == value for of, value in wanted)])

    def filter(self, keep: Callable[[dict[str, Any]], bool]) -> Table:
        """Rows for which the function gives true."""
        return self._take([number for number, row in enumerate(self) if keep(row)])

    def by(self, *columns: str) -> dict[tuple[Any, ...], Table]:
        """A table for each combination of values of these columns, in the order of the first row of each."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for number, key in enumerate(zip(*(self[column] for column in columns))):
            groups.setdefault(key, []).append(number)
        return {key: self._take(numbers) for key, numbers in groups.items()}

    def _take(self, numbers: Iterable[int]) -> Table:
        numbers = list(numbers)
        return Table({name: [values[row] for row in numbers] for name, values in self._columns.items()}, self.name)

    # As others have it.

    def to_pandas(self) -> Any:
        """A :class:`pandas.DataFrame`. Whole numbers are ``int64``, or ``Int64`` where some are missing."""
        pandas = need("pandas", "data frames of pandas")
        return pandas.DataFrame(
            {name: pandas.Series(values, dtype=_pandas_type(values)) for name, values in self._columns.items()}
        )

    def to_polars(self) -> Any:
        """A :class:`polars.DataFrame`."""
        polars = need("polars", "data frames of Polars")
        types = {
            "bool": polars.Boolean,
            "int": polars.Int64,
            "uint": polars.UInt64,
            "float": polars.Float64,
            "text": polars.String,
        }
        return polars.DataFrame(
            [polars.Series(name, values, dtype=types[_kind(values)]) for name, values in self._columns.items()]
        )

    def to_arrow(self) -> Any:
        """A :class:`pyarrow.Table`."""
        arrow = need("pyarrow", "tables of Arrow")
        types = {
            "bool": arrow.bool_(),
            "int": arrow.int64(),
            "uint": arrow.uint64(),
            "float": arrow.float64(),
            "text": arrow.string(),
        }
        return arrow.table(
            {name: arrow.array(values, type=types[_kind(values)]) for name, values in self._columns.items()}
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """For whatever takes the PyCapsule interface of Arrow (DuckDB, pyarrow, nanoarrow ...), by way of Polars."""
        return self.to_polars().__arrow_c_stream__(requested_schema)

    # As a file.

    def to_csv(self) -> str:
        """The text of a CSV file, as the engine writes it: a line of names, then one for each row; nothing for None."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self._columns)
        writer.writerows(zip(*([_field(value) for value in values] for values in self._columns.values())))
        return text.getvalue()

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes what :meth:`to_csv` gives."""
        try:
            with Path(path).open("w", newline="", encoding="utf-8") as file:
                file.write(self.to_csv())
        except OSError as error:
            raise Error(f"cannot write {path}: {error.strerror}") from None

    def write_parquet(self, path: str | os.PathLike[str]) -> None:
        """Writes it as Parquet, which Polars does."""
        frame = self.to_polars()
        try:
            frame.write_parquet(os.fspath(path))
        except OSError as error:
            raise Error(f"cannot write {path}: {error}") from None

    def __str__(self) -> str:
        """All rows, aligned; as wide as its columns need."""
        cells = [self.columns, *([_short(value) for value in row] for row in zip(*self._columns.values()))]
        widths = [max(map(len, column)) for column in zip(*cells)]
        return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)

    def __repr__(self) -> str:
        return f"<Table of {self.name}: {len(self)} rows of {', '.join(self._columns)}>"

    def _repr_html_(self) -> str:
        def row(tag: str, values: Iterable[Any]) -> str:
            shown = ("" if value is None else html.escape(str(value)) for value in values)
            return f"<tr>{''.join(f'<{tag}>{value}</{tag}>' for value in shown)}</tr>"

        rows = [row("td", values) for _, values in zip(range(SHOWN_ROWS), zip(*self._columns.values()))]
        more = len(self) - SHOWN_ROWS
        rest = f"<p>{more} more rows</p>" if more > 0 else ""
        return f"<table><thead>{row('th', self._columns)}</thead><tbody>{''.join(rows)}</tbody></table>{rest}"


def read_csv(path: Path, length: int = -1) -> Table:
    """Reads a table that the engine wrote; of one that it goes on writing, so many bytes.

    Raises
    ------
    Error
        It cannot be read, or its lines are not all equally long.
    """
    try:
        with path.open("rb") as file:
            text = io.StringIO(file.read(length).decode("utf-8"), newline="")
        lines = csv.reader(text, strict=True)
        names = next(lines, None)
        rows = list(lines)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Error(f"cannot read {path}: {error}") from None
    if not names:
        refuse(f"{path} is damaged: it has no line of names", "repeat the run")
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            refuse(
                f"{path} is damaged: line {number} has {len(row)} fields, not {len(names)}",
                "a run that was killed, or has not ended, leaves half a line at most; repeat it",
            )
    values = list(zip(*rows)) if rows else [()] * len(names)
    return Table({name: _parsed(name, column) for name, column in zip(names, values)}, path.name)


def of_rows(rows: Sequence[Mapping[str, Any]], name: str) -> Table:
    """A table of rows that need not have the same fields: columns are in the order of their first use."""
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    return Table({column: [row.get(column) for row in rows] for column in names}, name)


def _parsed(name: str, values: Sequence[str]) -> list[Any]:
    """Values of a column: numbers if all are, text if not."""
    if name not in TEXT:
        for parse in (int, float, _boolean):
            try:
                return [parse(value) if value else None for value in values]
            except ValueError:
                continue
    return list(values)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _field(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)


def _kind(values: Sequence[Any]) -> str:
    """What a column's values are. One without any has whole numbers: those are what is missing in results."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool} and kinds:
        return "bool"
    if kinds <= {int}:
        largest = max((value for value in values if value is not None), default=0)
        return "uint" if largest > INT64_MAX else "int"
    return "float" if kinds <= {int, float} else "text"


def _pandas_type(values: Sequence[Any]) -> str:
    kind = _kind(values)
    if None in values:
        return {"bool": "boolean", "int": "Int64", "uint": "UInt64", "float": "float64", "text": "object"}[kind]
    return {"bool": "bool", "int": "int64", "uint": "uint64", "float": "float64", "text": "object"}[kind]
