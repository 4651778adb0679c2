# SPDX-License-Identifier: GPL-2.0-or-later
"""Sweeps: a function over parameters and seeds."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor as FuturesPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from ._error import Error, refuse
from ._find import find_program
from ._program import version
from ._run import RESULTS
from ._sweep_cell import Cell, Function, Record, lost
from ._sweep_code import Code
from ._sweep_executors import Executor, Task, Work, adapted, executor_of
from ._sweep_plan import Interval, Parameters, Point, did_you_mean, hash_of, points_of, seeds_of
from ._sweep_progress import Progress
from ._sweep_store import Store, hash_of_file, write
from ._sweep_table import SweepResults, estimate, student

__all__ = ["Sweep", "sweep"]

PLAN = "sweep.json"
TABLE = "table.csv"
CELLS_TABLE = "cells.csv"
# After each, a waiting sweep shows how it stands.
WAIT_S = 0.5
_NAME = re.compile(r"\w[\w.-]{0,99}")
AnyExecutor = Union[str, Executor, FuturesPool]


class Sweep:
    """A sweep that is yet to be run: a function, the points at which it is called, and the seeds of each.

    Parameters
    ----------
    run : callable
        ``run(seed, **parameters)`` gives what was measured, by name: a mapping of numbers, with None for what could not
        be measured. All its randomness has to come from the seed.
    parameters : dict, list of dict or LatinHypercube
        A grid: a list of values for each parameter; or a list of points; or a Latin hypercube.
    seeds : iterable of int, optional
        Seeds of each point; 1 by default, and with `until` from 1 on.
    until : Interval, optional
        Repeats each point until the interval of a value is narrow.
    files : list of paths, optional
        Files that the function reads: their content is part of each cell's inputs.
    name : str, optional
        Its name; by default the function's.

    Examples
    --------
    >>> import windtunnel as wt
    >>> def run(seed, loss):
    ...     return {"sent": 100, "received": 100 - round(100 * loss)}
    >>> wt.Sweep(run, {"loss": [0, 0.01, 0.05]}, seeds=range(1, 3))
    <Sweep run: 3 points, 2 seeds>
    """

    def __init__(
        self,
        run: Function,
        parameters: Parameters,
        seeds: Iterable[int] | None = None,
        *,
        until: Interval | None = None,
        files: Sequence[str | os.PathLike[str]] = (),
        name: str | None = None,
    ) -> None:
        if not callable(run):
            refuse(
                f"{run!r:.60} is not a function", "as in `def run(seed, loss): return {...}`, named without parentheses"
            )
        if until is not None and not isinstance(until, Interval):
            refuse(f"until is {until!r:.60}", 'as in until=windtunnel.Interval("goodput_bps", relative=0.05)')
        self.function = run
        self.points = points_of(parameters)
        default = range(1, until.most + 1) if until is not None else [1]
        self.seeds = seeds_of(default if seeds is None else seeds)
        self.until = until
        if until is not None and len(self.seeds) < until.least:
            refuse(
                f"there are {len(self.seeds)} seeds, and until.least is {until.least}",
                "leave `seeds` out, or give more",
            )
        self.files = [Path(file) for file in files]
        self.name = name or getattr(run, "__name__", type(run).__name__).strip("<>")
        if not _NAME.fullmatch(self.name):
            refuse(f"`{self.name}` cannot be the name of a sweep; allowed: letters, digits, `.`, `_` and `-`")
        _check_signature(run, self.points[0])

    def run(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        workers: int | None = None,
        executor: AnyExecutor = "local",
        fresh: bool = False,
        progress: bool | None = None,
    ) -> SweepResults:
        """Computes all cells that are not there yet.

        Parameters
        ----------
        out : path
            Folder of the sweep; by default ``windtunnel-results/sweep-NAME``. Cells that were finished in it with the
            same inputs are taken from there.
        workers : int
            Processes; by default one for each processor.
        executor : str or Executor
            ``"local"``, ``"dask"``, ``"dask:ADDRESS"``, ``"slurm"``, ``"slurm:PARTITION"``, or an object: see
            :class:`windtunnel.Executor`.
        fresh : bool
            Whether all cells are computed anew.
        progress : bool
            Whether standard error shows how it goes; by default if it is a terminal.

        Returns
        -------
        SweepResults
            Also if cells have failed: `failed` has them, and standard error says so.
        """
        if self.until is not None or len(self.seeds) > 1:
            # Rather now than after an hour.
            student(1)
        folder = Path(out) if out is not None else RESULTS / f"sweep-{self.name}"
        code = Code(self.function)
        store = Store(folder)
        try:
            chosen = _executor(executor, workers, store)
            try:
                job = _Job(self, code, store, chosen, fresh, Progress(progress))
                results = job.finish()
            finally:
                chosen.close()
            _write_files(self, store, results)
        finally:
            store.close()
        return results

    def __repr__(self) -> str:
        return f"<Sweep {self.name}: {len(self.points)} points, {len(self.seeds)} seeds>"


def sweep(
    run: Function,
    parameters: Parameters,
    seeds: Iterable[int] | None = None,
    *,
    until: Interval | None = None,
    files: Sequence[str | os.PathLike[str]] = (),
    name: str | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    executor: AnyExecutor = "local",
    fresh: bool = False,
    progress: bool | None = None,
) -> SweepResults:
    """Calls a function at all points with all seeds, in as many processes as there are processors.

    What was finished before with the same inputs is taken from the sweep's folder. See :class:`Sweep` and
    :meth:`Sweep.run` for the parameters.
    """
    plan = Sweep(run, parameters, seeds, until=until, files=files, name=name)
    return plan.run(out, workers=workers, executor=executor, fresh=fresh, progress=progress)


def _check_signature(run: Function, point: Point) -> None:
    """Refuses parameters that the function does not take, and the lack of those that it needs."""
    if "seed" in point:
        refuse("`seed` is a parameter", "seeds=range(1, 7) gives each point its seeds")
    try:
        known = inspect.signature(run).parameters
    except (TypeError, ValueError):
        return
    takes_all = any(one.kind is one.VAR_KEYWORD for one in known.values())
    named = [one for one in known.values() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    names = [one.name for one in named]
    if "seed" not in names and not takes_all:
        refuse(f"the function takes no `seed`; it takes {', '.join(names) or 'nothing'}", "as in `def run(seed, loss)`")
    for name in point:
        if name not in names and not takes_all:
            allowed = ", ".join(one for one in names if one != "seed") or "none"
            refuse(f"the function takes no parameter `{name}`; it takes {allowed}", did_you_mean(name, names))
    for one in named:
        if one.default is one.empty and one.name != "seed" and one.name not in point:
            refuse(f"the function needs the parameter `{one.name}`, which the sweep does not have", "give it values")


def _executor(executor: AnyExecutor, workers: int | None, store: Store) -> Executor:
    if isinstance(executor, str):
        return executor_of(executor, workers, store.folder, store.leave)
    if workers is not None:
        refuse("workers go with an executor's name; this one is an object", "it has workers of its own")
    return adapted(executor)


def inputs_of(plan: Sweep, code: Code) -> dict[str, Any]:
    """What all cells of a sweep depend on, besides parameters and seed."""
    files = {}
    for file in plan.files:
        found = hash_of_file(file)
        if found is None:
            refuse(f"cannot read {file}, which `files` names")
        files[str(file)] = found
    package = Path(__file__).parent
    sources = {str(path.relative_to(package)): hash_of_file(path) for path in package.rglob("*.py")}
    own = {"windtunnel": version(), "package": hash_of(sources), **_engine()}
    return {"inputs_version": 1, "code": code.parts, "files": files, **own}


def _engine() -> dict[str, Any]:
    """The program and its kernels. A function that needs none may do without."""
    try:
        program = find_program()
    except Error:
        return {"program": None, "kernels": None}
    listed = subprocess.run(
        [program, "kernel", "list", "--json"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    try:
        kernels = {entry["series"]: (entry["current"] or {}).get("hash") for entry in json.loads(listed.stdout)}
    except (ValueError, KeyError, TypeError, AttributeError):
        kernels = {}
    return {"program": hash_of_file(program), "kernels": kernels}


@dataclass
class _Group:
    """A point on its way."""

    point: Point
    wanted: int
    asked: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    is_open: bool = True
    is_wide: bool = False


class _Job:
    """A sweep on its way."""

    def __init__(
        self, plan: Sweep, code: Code, store: Store, executor: Executor, fresh: bool, progress: Progress
    ) -> None:
        self._plan = plan
        self._store = store
        self._executor = executor
        self._fresh = fresh
        self._progress = progress
        self._base = hash_of(inputs_of(plan, code))
        self._work = Work(plan.function, code.modules)
        self._keep_in: Path | None = store.folder if getattr(executor, "shares_folder", False) else None
        until = plan.until
        first = len(plan.seeds) if until is None else until.least
        self._groups = [_Group(point, first) for point in plan.points]
        # Of groups of which more seeds are to be asked for.
        self._open = deque(self._groups)
        self._running: dict[Any, tuple[_Group, int, Cell]] = {}
        self._found = 0
        progress.begin(plan.name, len(self._groups) * first, store.folder)
        for name in code.unseen:
            progress.warn(
                f"`{name}` is not part of the cells' inputs: a change of it goes unnoticed; fresh=True computes anew"
            )

    def finish(self) -> SweepResults:
        """Computes what there is to compute."""
        try:
            while self._open or self._running:
                self._hand_out()
                if self._running:
                    for handle, outcome in self._executor.as_completed(WAIT_S):
                        self._take(handle, outcome)
                self._progress.tick()
        except BaseException as error:
            self._progress.broken_off(isinstance(error, KeyboardInterrupt))
            raise
        records = [group.records[seed] for group in self._groups for seed in self._plan.seeds[: group.wanted]]
        wide = [group.point for group in self._groups if group.is_wide]
        results = SweepResults(self._plan.name, self._store.folder, self._plan.points, records, self._found, wide)
        self._progress.end()
        return results

    def _hand_out(self) -> None:
        """Keeps the executor supplied."""
        while self._open and len(self._running) < self._executor.capacity:
            group = self._open[0]
            if group.asked == group.wanted:
                self._open.popleft()
                group.is_open = False
                continue
            seed = self._plan.seeds[group.asked]
            group.asked += 1
            cell = self._cell(group.point, seed)
            record = None if self._fresh else self._store.get(cell.key)
            if record is not None:
                self._found += 1
                self._note(group, seed, record, is_found=True)
                continue
            handle = self._executor.submit(Task(self._work, cell, self._keep_in))
            self._running[handle] = (group, seed, cell)

    def _cell(self, point: Point, seed: int) -> Cell:
        key = hash_of([self._base, point, seed])
        return Cell(key, point, seed, str(self._store.runs_of(key)))

    def _take(self, handle: Any, outcome: Record | BaseException) -> None:
        group, seed, cell = self._running.pop(handle)
        if isinstance(outcome, BaseException):
            what = outcome.message if isinstance(outcome, Error) else f"{type(outcome).__name__}: {outcome}"
            outcome = lost(cell, what, getattr(outcome, "hint", None))
        for name in outcome["values"] or ():
            if name in cell.parameters or name == "seed":
                outcome = lost(cell, f"the function returned `{name}`, which is a parameter", "give it another name")
                break
        self._store.put(outcome)
        if outcome["error"] is not None:
            self._progress.failed(outcome, self._store.runs_of(cell.key))
        self._note(group, seed, outcome, is_found=False)

    def _note(self, group: _Group, seed: int, record: Record, is_found: bool) -> None:
        group.records[seed] = record
        more = 0
        if len(group.records) == group.wanted:
            more = self._more(group)
            if more and not group.is_open:
                self._open.append(group)
                group.is_open = True
        self._progress.finished(is_found, record["error"] is not None, more)

    def _more(self, group: _Group) -> int:
        """How many further repetitions a point needs.

        All up to `wanted` are there, so the order of their ends is of no matter.
        """
        until = self._plan.until
        if until is None:
            return 0
        sample = []
        for record in group.records.values():
            if record["error"] is None:
                if until.value not in record["values"]:
                    names = ", ".join(record["values"]) or "nothing"
                    refuse(
                        f"`until` is about `{until.value}`, which the function did not return; it returned {names}",
                        did_you_mean(until.value, record["values"]),
                    )
                number = record["values"][until.value]
                if number is not None:
                    sample.append(number)
        if len(sample) >= until.least:
            now = estimate(sample)
            assert now.ci95_high is not None, "there are two at least"
            if until.is_narrow(now.mean, now.ci95_high - now.mean):
                return 0
        most = min(until.most, len(self._plan.seeds))
        count = min(most, until.next_count(group.wanted))
        if count == group.wanted or not sample:
            # Where nothing has come of any, nothing will.
            group.is_wide = True
            return 0
        more, group.wanted = count - group.wanted, count
        return more


def _write_files(plan: Sweep, store: Store, results: SweepResults) -> None:
    """What is read without this package: tables, and what the sweep was."""
    summary = {
        "sweep_version": 1,
        "name": plan.name,
        "windtunnel_version": version(),
        "digest": results.digest,
        "points": results.points,
        "seeds": plan.seeds if plan.until is None else None,
        "cells": [record["key"] for record in results.records],
        "failed": [record["key"] for record in results.failed],
        "wide": results.wide,
    }
    write(store.folder / PLAN, json.dumps(summary, indent=1) + "\n")
    write(store.folder / CELLS_TABLE, results.cells().to_csv())
    write(store.folder / TABLE, results.table().to_csv())
