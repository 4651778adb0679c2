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
        ``format``: ``png``, ``svg``, ``pdf``, ``html``; ``out``: folder of the files, DIR/plots if it is None; and of a
        sweep ``x``, ``y``, ``group`` and ``where``, as :func:`._sweep.pictures_of` has them.
    """
    if (Path(arguments["dir"]) / "sweep.json").is_file():
        return _sweep(arguments)
    for option in ("x", "y", "group", "where"):
        if arguments.get(option):
            refuse(f"--{option} is for sweeps, and {arguments['dir']} is a run", "leave it out, or choose by --kind")
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
    """Values of a sweep against parameters, or their distributions, and its report."""
    from .._sweep_table import SweepResults
    from ._sweep import pictures_of, sweep_report

    found = SweepResults.read(arguments["dir"])
    forms = _words(arguments.get("format")) or ["png", "html"]
    for form in forms:
        if form not in (*FORMATS, "html"):
            refuse(f"`{form}` is no format; allowed: {', '.join((*FORMATS, 'html'))}")
    pictures = pictures_of(
        found,
        _words(arguments.get("kind")) or ["mean"],
        arguments.get("x"),
        _words(arguments.get("y")),
        _words(arguments.get("group")),
        arguments.get("where") or [],
    )
    drawn = [form for form in forms if form != "html"]
    out = _folder(arguments, found.folder)
    for picture in pictures if drawn else []:
        figure = picture.draw(found)
        for form in drawn:
            print(save(figure, out / f"{picture.name}.{form}"))
    if "html" in forms:
        print(sweep_report(found, out / "report.html", pictures))
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
