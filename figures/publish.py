# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of papers, made anew: what all of them share. Each has a file beside this one, which is its command.

    target/release/windtunnel and scripts/python-tools study come first: `make figures` sees to both
    figures/goodput_loss.py [--out DIR] [--workers N] [--quick]

A figure leaves NAME.md (what it is, its plot, its table, its digest), NAME.csv (a row per point) and NAME.svg in docs/figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python")]

import windtunnel as wt  # noqa: E402
from windtunnel import plot  # noqa: E402


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    out: Path
    workers: int | None
    quick: bool


def options(description: str | None) -> Options:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/figures", help="folder for page, table and plots")
    parser.add_argument("--workers", type=int, help="processes; by default one for each processor")
    parser.add_argument("--quick", action="store_true", help="few points and seeds, to try it")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    return Options(given.out, given.workers, given.quick)


@dataclass(frozen=True)
class Curves:
    """A value of a sweep against one of its parameters, a curve for each value of another.

    `factor` makes the sweep's unit that of the label.
    """

    value: str
    x: str
    series: str
    xlabel: str
    ylabel: str
    factor: float = 1.0
    names: dict[str, str] = field(default_factory=dict)

    def sample(self, results: wt.SweepResults, x: Any, series: Any) -> list[float]:
        return [number * self.factor for number in results.sample(self.value, **{self.x: x, self.series: series})]

    def draw(self, results: wt.SweepResults, title: str) -> Any:
        xs = _distinct(results, self.x)
        samples = {
            self.names.get(series, str(series)): [self.sample(results, x, series) for x in xs]
            for series in _distinct(results, self.series)
        }
        return plot.value_against(xs, samples, self.xlabel, self.ylabel, title=title)

    def table(self, results: wt.SweepResults) -> str:
        """Means and half intervals, a row for each value of the parameter."""
        series = _distinct(results, self.series)
        rows = [[self.xlabel, *(self.names.get(one, str(one)) for one in series)]]
        for x in _distinct(results, self.x):
            rows.append([f"{x:g}", *(_mean(self.sample(results, x, one)) for one in series)])
        return markdown(rows)


def _distinct(results: wt.SweepResults, parameter: str) -> list[Any]:
    """In the order in which the sweep names them."""
    return list(dict.fromkeys(point[parameter] for point in results.points))


def _mean(sample: Sequence[float]) -> str:
    if not sample:
        return "-"
    mean, half = plot.interval(sample)
    return f"{mean:.3f} ± {half:.3f}" if len(sample) > 1 else f"{mean:.3f}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its head."""
    head, *others = rows
    lines = [head, ["---"] * len(head), *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(out: Path, name: str, title: str, parts: Sequence[str]) -> None:
    text = "\n\n".join([f"# {title}", *(part.strip() for part in parts if part)])
    (out / f"{name}.md").write_text(f"{text}\n", encoding="utf-8")
    print(out / f"{name}.md")


def sweep_page(
    module_doc: str,
    sweep: wt.Sweep,
    curves: Sequence[Curves],
    *,
    name: str,
    title: str,
    command: str,
    paper: str,
    chosen: Options,
    ours: Callable[[wt.SweepResults], str] = lambda _: "",
) -> wt.SweepResults:
    """Runs a sweep and writes its page. `paper` is what the paper shows, `ours` what is seen here."""
    results = sweep.run(ROOT / "target/figures" / name, workers=chosen.workers)
    results.check()
    results.table().write_csv(chosen.out / f"{name}.csv")
    pictures, tables = [], []
    for number, one in enumerate(curves):
        file = f"{name}{'' if number == 0 else f'-{number + 1}'}.svg"
        plot.save(one.draw(results, title if number == 0 else ""), chosen.out / file)
        pictures.append(f"![{one.ylabel} against {one.xlabel}]({file})")
        tables.append(
            f"{one.ylabel}, mean and 95 % confidence interval of {len(sweep.seeds)} seeds:\n\n{one.table(results)}"
        )
    intro, _, setting = module_doc.strip().partition("\n\n")
    head = f"{intro}\n\n```text\n{setting}\n```" if setting else intro
    digest = f"Digest of the sweep's {len(results.records)} runs: `{results.digest}` (version {wt.__version__})."
    made = f"Made by `{command}`; all numbers: [{name}.csv]({name}.csv). {digest}"
    page(chosen.out, name, title, [head, made, *pictures, *tables, "## Beside the paper", paper, ours(results)])
    return results
