# SPDX-License-Identifier: GPL-2.0-or-later
"""One cell of a sweep: the call of the function with its parameters and a seed, and the record of what came of it."""

from __future__ import annotations

import contextlib
import json
import math
import numbers
import shutil
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ._error import Error
from ._run import Run, watched

RECORD_VERSION = 1
ERROR_FILE = "error.txt"
NAMES_MAX = 1000
Record = dict[str, Any]
"""What is kept of a finished cell: see docs/sweeps.md."""
Sources = Mapping[Run, Mapping[tuple[str, str], str]]
Function = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class Cell:
    """A point with one seed.

    Attributes
    ----------
    key : str
        Hash of all its inputs.
    parameters : dict
        Value of each parameter.
    seed : int
    folder : str
        Where its runs leave their results.
    """

    key: str
    parameters: dict[str, Any]
    seed: int
    folder: str

    def __str__(self) -> str:
        return ", ".join([*(f"{name}={value}" for name, value in self.parameters.items()), f"seed={self.seed}"])


def perform(function: Function, cell: Cell) -> Record:
    """Calls the function; never raises but for what ends the process."""
    begin = time.monotonic()
    folder = Path(cell.folder)
    values: dict[str, float | None] | None = None
    error: dict[str, Any] | None = None
    runs: list[Run] = []
    sources: Sources = {}
    try:
        # Of an attempt that was broken off.
        shutil.rmtree(folder, ignore_errors=True)
        with watched(folder) as watch:
            runs, sources = watch.runs, watch.sources
            values = values_of(function(seed=cell.seed, **cell.parameters))
    except Exception as caught:
        error = describe(caught)
    except SystemExit as caught:
        error = describe(Error(f"the function ended the program: SystemExit({caught.code!r})"))
    made, unfinished = _runs_of(runs, sources, folder)
    if unfinished and error is None:
        error = describe(unfinished)
    if error is not None:
        values = None
        # The disk may be full.
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ERROR_FILE).write_text(error["traceback"], encoding="utf-8")
    return {
        "record_version": RECORD_VERSION,
        "key": cell.key,
        "parameters": cell.parameters,
        "seed": cell.seed,
        "values": values,
        "error": error,
        "runs": made,
        "wall_s": round(time.monotonic() - begin, 6),
    }


def lost(cell: Cell, message: str, hint: str | None = None) -> Record:
    """The record of a cell whose worker is gone."""
    error = {"type": "Error", "message": message, "hint": hint, "where": None, "traceback": f"{message}\n"}
    return {
        "record_version": RECORD_VERSION,
        "key": cell.key,
        "parameters": cell.parameters,
        "seed": cell.seed,
        "values": None,
        "error": error,
        "runs": [],
        "wall_s": 0.0,
    }


def values_of(returned: object) -> dict[str, float | None]:
    """What a function measured, as numbers that JSON can hold."""
    if not isinstance(returned, Mapping):
        raise Error(
            f"the function returned {returned!r:.60}, of type {type(returned).__name__}",
            hint='return what was measured, by name: {"goodput_bps": 9.4e6}',
        )
    if len(returned) > NAMES_MAX:
        raise Error(f"the function returned {len(returned)} values; at most {NAMES_MAX} are allowed")
    return {_name(name): _number(name, value) for name, value in returned.items()}


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise Error(f"{name!r:.60} is not the name of a value", hint="names are texts")
    return name


def _number(name: str, value: Any) -> float | None:
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        # A number of numpy.
        value = item()
    if value is None:
        return None
    if isinstance(value, numbers.Integral):
        return int(value)
    if not isinstance(value, numbers.Real):
        raise Error(
            f"the value `{name}` is {value!r:.60}, of type {type(value).__name__}",
            hint="a function returns numbers; None for what was not measured",
        )
    number = float(value)
    if not math.isfinite(number):
        raise Error(f"the value `{name}` is {number}", hint="return None for what was not measured")
    return number


def describe(caught: BaseException) -> dict[str, Any]:
    """An exception as a record has it."""
    is_ours = isinstance(caught, Error)
    return {
        "type": type(caught).__name__,
        "message": getattr(caught, "message", "") if is_ours else str(caught) or type(caught).__name__,
        "hint": getattr(caught, "hint", None) if is_ours else None,
        "where": getattr(caught, "where", None) if is_ours else None,
        "traceback": "".join(traceback.format_exception(type(caught), caught, caught.__traceback__)),
    }


def _runs_of(runs: list[Run], sources: Sources, folder: Path) -> tuple[list[dict[str, Any]], Error | None]:
    """Folder and digest of each run, in the order in which they began."""
    made = []
    broken: Error | None = None
    for run in runs:
        try:
            digest: str | None = run.digest
        except (Error, KeyError, json.JSONDecodeError) as error:
            digest = None
            broken = error if isinstance(error, Error) else Error(f"the run in {run.out} left no digest")
        try:
            place = str(run.out.relative_to(folder.absolute()))
        except ValueError:
            place = str(run.out)
        made.append({"folder": place, "digest": digest, **_host_files_of(run.out, sources[run])})
    return made, broken


def _host_files_of(out: Path, sources: Mapping[tuple[str, str], str]) -> dict[str, dict[str, str | None]]:
    """Host files that a run has used, with the hashes that its manifest has of them.

    `programs` are those that it executed or mapped, `files` those that its nodes read or the scenario gave them
    (`source`). A file has no hash if the run saw more than one state of it.
    """
    try:
        manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
        programs = {entry["path"]: entry["sha256"] for entry in manifest.get("programs", []) if entry.get("sha256")}
        files = {entry["path"]: entry["sha256"] for entry in manifest.get("files", [])}
        given = {
            (node, entry["path"]): entry["sha256"] for entry in manifest.get("sources", []) for node in entry["nodes"]
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {"programs": {}, "files": {}}
    for place, path in sources.items():
        # Of a file that the manifest does not know nobody can say whether it is still the same.
        sha256 = given.get(place)
        files[path] = sha256 if files.get(path, sha256) == sha256 else None
    return {"programs": programs, "files": files}
