# SPDX-License-Identifier: GPL-2.0-or-later
"""``windtunnel export``: what a run left, in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ._error import Error, refuse
from ._results import Results

__all__ = ["main"]


def main(arguments: dict[str, Any]) -> int:
    """Does what the program's arguments ask for; the exit code."""
    results = Results(arguments["dir"])
    pcapng, parquet = arguments.get("pcapng"), arguments.get("parquet")
    if not pcapng and not parquet:
        refuse("there is nothing to write", "name what: --pcapng FILE, --parquet DIR")
    if pcapng:
        print(f"{pcapng}: {results.write_pcapng(pcapng)} frames")
    if parquet:
        for path, rows in _parquet(results, Path(parquet)):
            print(f"{path}: {rows} rows")
    return 0


def _parquet(results: Results, folder: Path) -> list[tuple[Path, int]]:
    """Every table of the run as a file of its own."""
    tables = {name: results.table(name) for name in results.series}
    tables["events"] = results.events()
    tables["processes"] = results.processes()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Error(f"cannot make {folder}: {error.strerror}") from None
    written = []
    for name, table in sorted(tables.items()):
        path = folder / f"{name}.parquet"
        table.write_parquet(path)
        written.append((path, len(table)))
    return written
