# SPDX-License-Identifier: GPL-2.0-or-later
"""The verb `windtunnel sweep`: sweeps that a file describes, or a script makes."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ._error import Error
from ._run import RESULTS
from ._sweep import Sweep
from ._sweep_cell import describe
from ._sweep_table import SweepResults

EXIT_FAILED = 1


def main(arguments: dict[str, Any]) -> int:
    """Runs the sweeps of a file; the exit code: 0, or 1 if a cell has failed.

    Parameters
    ----------
    arguments : dict
        ``file``, ``out``, ``workers``, ``executor``, ``fresh``, ``json``, as the program has them.
    """
    path = Path(arguments["file"])
    sweeps = _sweeps_of(path)
    out = Path(arguments["out"]) if arguments.get("out") else None
    done: list[SweepResults] = []
    for plan in sweeps:
        folder = out or RESULTS / f"sweep-{plan.name}"
        if out is not None and len(sweeps) > 1:
            folder = out / plan.name
        results = plan.run(
            folder,
            workers=arguments.get("workers"),
            executor=arguments.get("executor") or "local",
            fresh=bool(arguments.get("fresh")),
            progress=True,
        )
        done.append(results)
        if not arguments.get("json"):
            _report(results)
    if arguments.get("json"):
        found = [results.to_dict() for results in done]
        print(json.dumps(found[0] if len(found) == 1 else found, indent=1))
    return EXIT_FAILED if any(results.failed for results in done) else 0


def _report(results: SweepResults) -> None:
    table = results.table()
    if len(table):
        print(table)
    for point in results.wide:
        said = ", ".join(f"{name}={value}" for name, value in point.items())
        print(f"warning: the interval of {said} is still wide", file=sys.stderr)
    if results.failed:
        print(f"{len(results.failed)} of {len(results.records)} cells failed", file=sys.stderr)
    print(f"digest {results.digest}")
    print(f"results in {results.folder}")


def _sweeps_of(path: Path) -> list[Sweep]:
    if path.suffix in (".yaml", ".yml"):
        from ._sweep_scenario import read

        return [read(path)]
    if path.suffix != ".py":
        raise Error(f"{path} is neither a .yaml nor a .py file")
    module = _module_of(path)
    found: list[Sweep] = []
    for name, value in vars(module).items():
        if isinstance(value, Sweep) and value not in found:
            if value.name in (one.name for one in found):
                value.name = name
            found.append(value)
    if not found:
        raise Error(
            f"{path} has no sweep",
            hint='make one at the top level: sweep = windtunnel.Sweep(run, {"loss": [0, 0.01]}, seeds=range(1, 7))',
        )
    return found


def _module_of(path: Path) -> ModuleType:
    """Reads a script as a module, whose `__name__` is that of its file."""
    name = re.sub(r"\W", "_", path.stem) or "script"
    if name in sys.modules:
        # Not what a worker would find by this name.
        name = f"_sweep_{name}"
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    assert spec is not None and spec.loader is not None, "it ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
    except Error:
        raise
    except FileNotFoundError as error:
        if error.filename != str(path.absolute()):
            raise Error(f"{path} failed:\n{describe(error)['traceback'].rstrip()}") from None
        raise Error(f"cannot read {path}: {error.strerror}") from None
    except (Exception, SystemExit) as error:
        raise Error(f"{path} failed:\n{describe(error)['traceback'].rstrip()}") from None
    return module
