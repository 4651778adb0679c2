# SPDX-License-Identifier: GPL-2.0-or-later
"""Plots and the report of a sweep: what they show, and what cannot be shown."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from test_sweep import PIPES, Script, environment, script  # noqa: F401  (a fixture)

SWEEP = """
import windtunnel as wt

def cell(seed, loss_percent, cc):
    if loss_percent == 9 and cc == "bbr":
        raise wt.Error("bbr did not come", hint="try <reno>")
    goodput_bps = 9e6 if cc == "bbr" else 9e6 / (1 + loss_percent)
    return {"goodput_bps": goodput_bps + 1e5 * seed, "lost_frames": loss_percent * seed}

parameters = {"loss_percent": [0, 1, 5, 9], "cc": ["reno", "bbr"]}
found = wt.sweep(cell, parameters, seeds=range(1, 5), out="sw", progress=False)
"""
DRAWN = """
figure = found.plot("loss_percent", "goodput_bps")
axes = figure.axes[0]
print(axes.get_xlabel(), "|", axes.get_ylabel())
for line in axes.containers:
    print(line.get_label(), [round(float(y), 3) for y in line.lines[0].get_ydata()])
one = found.plot("loss_percent", "goodput_bps", where={"cc": "reno"}, ylabel="bits", yfactor=1.0)
print(one.axes[0].get_ylabel(), len(one.axes[0].containers))
again = wt.SweepResults.read("sw")
print(again.digest == found.digest, len(again.failed))
wt.plot.save(figure, "a.svg"); wt.plot.save(again.plot(), "b.svg")
"""


def test_a_value_is_drawn_against_a_parameter(script: Script, tmp_path: Path) -> None:  # noqa: F811
    lines = script(SWEEP + DRAWN).stdout.splitlines()
    # Units by the ends of names; means of the four seeds.
    assert lines[0] == "loss (%) | goodput (Mb/s)"
    assert lines[1] == "cc=reno [9.25, 4.75, 1.75, 1.15]"
    # One of its points failed.
    assert lines[2] == "cc=bbr [9.25, 9.25, 9.25, nan]"
    assert lines[3] == "bits 1"
    assert lines[4] == "True 4"
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('found.plot("los_percent")', "the sweep has no parameter `los_percent`; it has loss_percent, cc"),
        ('found.plot(y="goodput")', "no cell returned `goodput`"),
        ('found.plot(where={"cc": "vegas"})', "no point has cc=vegas"),
        ('found.plot("loss_percent", series=[])', "several values of `cc`, which must not be mixed"),
        ('wt.SweepResults.read("nowhere")', "there is no nowhere"),
    ],
)
def test_what_cannot_be_drawn_is_said(script: Script, call: str, message: str) -> None:  # noqa: F811
    done = script(f"{SWEEP}\ntry:\n    {call}\nexcept wt.Error as error:\n    print(error.message, error.hint)\n")
    assert message in done.stdout


def with_study(engine: Path, study_python: Path) -> dict[str, str]:
    """An environment in which the verb finds what plots need."""
    return {**environment(engine), "PATH": f"{study_python.parent}:{os.environ['PATH']}"}


def test_the_verb_draws_all_and_writes_a_report(
    script: Script,  # noqa: F811
    study_python: Path,
    engine: Path,
    tmp_path: Path,
) -> None:
    script(SWEEP)
    env = with_study(engine, study_python)
    done = subprocess.run([engine, "plot", tmp_path / "sw", "--format", "svg,html"], env=env, **PIPES)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "sw/plots").iterdir())
    pairs = [f"{y}-{x}.svg" for y in ("goodput_bps", "lost_frames") for x in ("cc", "loss_percent")]
    assert names == sorted([*pairs, "report.html"])
    page = (tmp_path / "sw/plots/report.html").read_text(encoding="utf-8")
    for part in ("goodput_bps", "bbr did not come", "try &lt;reno&gt;", "0, 1, 5, 9", "1, 2, 3, 4"):
        assert part in page, part
    assert "try <reno>" not in page
    # It needs nothing else: no script, style or picture comes from elsewhere.
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="(?!data:)', page)
    failed = subprocess.run([engine, "plot", tmp_path / "sw", "--kind", "queue"], env=env, **PIPES)
    assert failed.returncode == 2 and "`queue` is no kind of plot of a sweep; allowed: mean, cdf" in failed.stderr


DISTRIBUTIONS = """
figure = found.cdf("goodput_bps", where={"loss_percent": 1})
axes = figure.axes[0]
print(axes.get_xlabel(), "|", axes.get_ylabel())
for line in axes.lines:
    print(line.get_label(), [round(float(x), 3) for x in line.get_xdata()], [float(y) for y in line.get_ydata()])
bits = found.cdf("goodput_bps", "loss_percent", where={"cc": "bbr"}, xlabel="bits")
lines = bits.axes[0].lines
print(bits.axes[0].get_xlabel(), [line.get_label() for line in lines], lines[0].get_xdata()[-1])
for call in ({"series": ["cc"]}, {}, {"where": {"cc": "bbr", "loss_percent": 9}}):
    try:
        found.cdf("goodput_bps", **call)
    except wt.Error as error:
        print(error)
"""


def test_distributions_are_over_the_seeds(script: Script) -> None:  # noqa: F811
    lines = script(SWEEP + DISTRIBUTIONS).stdout.splitlines()
    assert lines[0] == "goodput (Mb/s) | part of samples \u2264 x"
    parts = "[0.0, 0.25, 0.5, 0.75, 1.0]"
    assert lines[1] == f"cc=reno [4.6, 4.6, 4.7, 4.8, 4.9] {parts}"
    assert lines[2] == f"cc=bbr [9.1, 9.1, 9.2, 9.3, 9.4] {parts}"
    # That whose cells have failed has no samples.
    assert lines[3] == "bits ['loss_percent=0', 'loss_percent=1', 'loss_percent=5'] 9400000.0"
    assert "several values of `loss_percent`, which must not be mixed" in lines[4]
    rest = "\n".join(lines[5:])
    assert "none of these cells has measured `goodput_bps`" in rest


def test_the_verb_draws_what_is_chosen(
    script: Script,  # noqa: F811
    study_python: Path,
    engine: Path,
    tmp_path: Path,
) -> None:
    script(SWEEP)
    env = with_study(engine, study_python)

    def plot(*options: str) -> tuple[list[str], str]:
        out = tmp_path / "chosen"
        shutil.rmtree(out, ignore_errors=True)
        done = subprocess.run([engine, "plot", tmp_path / "sw", "--out", out, *options], env=env, **PIPES)
        return sorted(path.name for path in out.iterdir()) if out.exists() else [], done.stderr

    svg = ("--format", "svg")
    assert plot(*svg, "--x", "loss_percent", "--y", "goodput_bps")[0] == ["goodput_bps-loss_percent.svg"]
    both, _ = plot(*svg, "--group", "cc")
    assert both == ["goodput_bps-loss_percent-by-cc.svg", "lost_frames-loss_percent-by-cc.svg"]
    of_reno = ("--where", "cc=reno", "--y", "goodput_bps")
    names, _ = plot("--format", "svg,html", "--kind", "mean,cdf", *of_reno, "--x", "loss_percent")
    assert names == ["cdf-goodput_bps-cc_reno.svg", "goodput_bps-loss_percent-cc_reno.svg", "report.html"]
    page = (tmp_path / "chosen/report.html").read_text(encoding="utf-8")
    assert "distribution of goodput_bps over seeds, cc=reno" in page and "lost_frames against" not in page
    # Numbers however they are written.
    assert plot(*svg, "--kind", "cdf", "--y", "goodput_bps", "--where", "loss_percent=5.0")[0] == [
        "cdf-goodput_bps-loss_percent_5.svg"
    ]
    for options, message in [
        (("--x", "los_percent"), "the sweep has no parameter `los_percent`; it has loss_percent, cc"),
        (("--y", "goodput"), "no cell returned `goodput`"),
        (("--group", "ccc"), "the sweep has no parameter `ccc`"),
        (("--where", "cc"), "--where `cc` has no value"),
        (("--where", "cc=vegas"), "no point has cc=vegas; values of `cc`: reno, bbr"),
        (("--where", "cc=reno", "--where", "cc=bbr"), "--where names `cc` twice"),
        (("--x", "cc", "--group", "cc"), "`cc` is on the x axis already"),
        (("--kind", "cdf", "--x", "cc"), "a distribution has the value itself on its x axis"),
        (("--kind", "cdf", "--group", "cc"), "(`--where loss_percent=0`)"),
        (("--group", "cc,loss_percent"), "no parameter is left for the x axis"),
    ]:
        names, complaint = plot(*svg, *options)
        assert message in complaint and not names, (options, complaint)


def test_choices_of_sweeps_are_not_for_runs(engine: Path, study_python: Path, tmp_path: Path) -> None:
    env = with_study(engine, study_python)
    done = subprocess.run([engine, "plot", tmp_path, "--x", "loss"], env=env, **PIPES)
    assert done.returncode == 2 and "--x is for sweeps" in done.stderr and "hint:" in done.stderr, done.stderr
