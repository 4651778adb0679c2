# SPDX-License-Identifier: GPL-2.0-or-later
"""``windtunnel plot``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Callable

from .._error import Error, refuse
from ._data import RunData, results
from ._picture import timeline, topology
from ._report import report
from ._sequence import time_sequence
from ._series import cwnd, queue, rtt, throughput
from ._style import FORMATS, save

KINDS: dict[str, Callable[..., Any]] = {
    "throughput": throughput,
    "queue": queue,
    "rtt": rtt,
    "cwnd": cwnd,
    "time-sequence": time_sequence,
    "topology": topology,
    "timeline": timeline,
}


def main(arguments: dict[str, Any]) -> int:
    """Makes plots of a run; the exit code.

    Parameters
    ----------
    arguments : dict
        ``dir``: folder of a run or a sweep; ``kind``: names of plots, all that the run has data for if there are none;
        ``format``: ``png``, ``svg``, ``pdf``, ``html``; ``out``: folder of the files, DIR/plots if it is None.
    """
    if (Path(arguments["dir"]) / "sweep.json").is_file():
        return _sweep(arguments)
    source = results(arguments["dir"])
    kinds, forms = _words(arguments.get("kind")), _words(arguments.get("format")) or ["png", "html"]
    for kind in kinds:
        if kind not in KINDS:
            refuse(f"`{kind}` is no kind of plot; allowed: {', '.join(KINDS)}")
    for form in forms:
        if form not in (*FORMATS, "html"):
            refuse(f"`{form}` is no format; allowed: {', '.join((*FORMATS, 'html'))}")
    out = _folder(arguments, source.path)
    pictures = [form for form in forms if form != "html"]
    if pictures:
        _pictures(source, kinds, pictures, out)
    if "html" in forms:
        print(report(source, out / "report.html"))
    return 0


def _sweep(arguments: dict[str, Any]) -> int:
    """Each value of a sweep against each parameter, and its report."""
    from .._sweep_table import SweepResults
    from ._sweep import against, sweep_report

    if _words(arguments.get("kind")):
        refuse("a sweep has no kinds of plots: each value is drawn against each parameter", "leave out --kind")
    found = SweepResults.read(arguments["dir"])
    forms = _words(arguments.get("format")) or ["png", "html"]
    for form in forms:
        if form not in (*FORMATS, "html"):
            refuse(f"`{form}` is no format; allowed: {', '.join((*FORMATS, 'html'))}")
    out = _folder(arguments, found.folder)
    for y in found.values:
        for x in found.parameters:
            for form in forms:
                if form != "html":
                    name = "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in f"{y}-{x}")
                    print(save(against(found, x, y), out / f"{name}.{form}"))
    if "html" in forms:
        print(sweep_report(found, out / "report.html"))
    return 0


def _folder(arguments: dict[str, Any], folder: Path) -> Path:
    out = Path(arguments.get("out") or folder / "plots")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        refuse(f"cannot make {out}: {error.strerror}", "name another folder with --out")
    return out


def _words(given: Any) -> list[str]:
    return [word for item in given or [] for word in str(item).split(",") if word]


def _pictures(source: RunData, kinds: list[str], forms: list[str], out: Path) -> None:
    """What was asked for has to be there; of all kinds, those without data are named and left out."""
    for kind in kinds or KINDS:
        try:
            figure = KINDS[kind](source)
        except Error as error:
            if kinds:
                raise
            print(f"no {kind}: {error}", file=sys.stderr)
            continue
        for form in forms:
            print(save(figure, out / f"{kind}.{form}"))
