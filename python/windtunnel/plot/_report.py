# SPDX-License-Identifier: GPL-2.0-or-later
"""One self-contained page per run: what ran, on what, what came out, and plots that can be zoomed, without any network.

The plots are plotly's, whose package ships its script. It goes in compressed, which browsers undo
(DecompressionStream): 2 MB per page, not 5.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Callable

from .._error import Error, refuse
from .._extras import need
from ._data import RunData, Source, results
from ._picture import command, ended, topology
from ._sequence import one_conversation
from ._series import QUANTITIES, curves, cwnd_curves, pick, queue_curves, rtt_curves
from ._style import COLOURS, encode, scale

# A curve of more points is drawn by the least and the greatest of each of so many spans, which the page says.
POINTS_MAX = 8000
BYTES_SHOWN = 20_000
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def report(run: Source, path: str | os.PathLike[str] | None = None) -> Path:
    """Writes a report of a run or a sweep: one HTML file that needs nothing else, offline too.

    Parameters
    ----------
    run : Run or path
        A run that has ended, or its folder, or that of a sweep.
    path : path, optional
        File to write; ``report.html`` in the folder by default.

    Returns
    -------
    pathlib.Path
        The file.
    """
    if isinstance(run, (str, os.PathLike)) and (Path(run) / "sweep.json").is_file():
        from .._sweep_table import SweepResults
        from ._sweep import sweep_report

        return sweep_report(SweepResults.read(run), None if path is None else Path(path))
    source = results(run)
    target = source.path / "report.html" if path is None else Path(path)
    content = page(source.label, _body(source), *_plots(source))
    try:
        target.write_text(content, encoding="utf-8")
    except OSError as error:
        refuse(f"cannot write {target}: {error.strerror}")
    return target


def trace(number: int, name: str, x: Any, y: Any, style: str) -> dict[str, Any]:
    """A curve as plotly has it."""
    return {
        "x": x,
        "y": y,
        "name": name,
        "mode": "markers" if style in ("dots", "diamonds") else "lines",
        "marker": {"size": 8, "symbol": "diamond-open", "color": COLOURS[number % len(COLOURS)]}
        if style == "diamonds"
        else {"size": 3, "color": COLOURS[number % len(COLOURS)]},
        "line": {
            "shape": "vh" if style == "steps" else "linear",
            "width": 1.5,
            "color": COLOURS[number % len(COLOURS)],
            "dash": DASHES[number % len(DASHES)],
        },
    }


def _thin(x: Any, y: Any) -> tuple[list[float], list[float | None]]:
    """Least and greatest value of each span, in their order."""
    numpy = need("numpy", "reports")
    if len(x) <= POINTS_MAX:
        return x.tolist(), _gaps(y)
    kept: list[int] = []
    for part in numpy.array_split(numpy.arange(len(x)), POINTS_MAX // 2):
        # A gap stays one: argmin and argmax of NumPy give it.
        kept += sorted({int(part[y[part].argmin()]), int(part[y[part].argmax()])})
    return x[kept].tolist(), _gaps(y[kept])


def _gaps(y: Any) -> list[float | None]:
    """JSON has no NaN; none is a gap."""
    return [None if value != value else value for value in y.tolist()]


def _plot(source: RunData, title: str, lines: list[Any], unit: str, what: str) -> dict[str, Any]:
    """Traces and layout of one plot over time."""
    numpy = need("numpy", "reports")
    largest = max((float(numpy.nanmax(one.y)) for one in lines if not numpy.isnan(one.y).all()), default=0.0)
    by, unit = scale(largest, unit)
    traces = []
    for number, one in enumerate(lines):
        x, y = _thin(one.x, one.y / by)
        traces.append(trace(number, one.name, x, y, one.style))
    thinned = any(len(one.x) > POINTS_MAX for one in lines)
    note = " (long curves: least and greatest value of each span)" if thinned else ""
    return _layout(source, traces, f"{title}{note}", f"{what} ({unit})", "tozero")


def _layout(source: RunData, traces: list[dict[str, Any]], title: str, label: str, mode: str) -> dict[str, Any]:
    lines = [
        {"type": "line", "x0": one.time_s, "x1": one.time_s, "y0": 0, "y1": 1, "yref": "paper", "line": _EVENT_LINE}
        for one in source.link_events
    ]
    notes = [
        {"x": one.time_s, "y": 1, "yref": "paper", "text": escape(one.text), "showarrow": False, "textangle": -90}
        | {"xanchor": "right", "yanchor": "top", "font": {"size": 10, "color": "#555"}}
        for one in source.link_events
    ]
    layout = {
        "title": {"text": title, "x": 0, "xref": "paper", "font": {"size": 15}},
        "xaxis": {"title": {"text": "virtual time (s)"}, "gridcolor": "#ddd"},
        "yaxis": {"title": {"text": label}, "rangemode": mode, "gridcolor": "#ddd"},
        "legend": {"orientation": "h", "y": -0.25},
        "showlegend": True,
        "height": 400,
        "margin": {"l": 70, "r": 20, "t": 50, "b": 60},
        "shapes": lines,
        "annotations": notes,
    }
    return {"data": traces, "layout": layout}


_EVENT_LINE = {"color": "#767676", "width": 1, "dash": "dot"}


def _bars(bars: list[tuple[float, int, int]]) -> tuple[list[float | None], list[float | None]]:
    """Upright strokes as one curve with gaps."""
    x: list[float | None] = []
    y: list[float | None] = []
    for time_s, first, after in bars:
        x += [time_s, time_s, None]
        y += [first, after, None]
    return x, y


def _sequence(source: RunData) -> dict[str, Any]:
    from ._sequence import COLUMNS, are_joined, joined, span, thinned

    one = one_conversation(source, None)
    seen = source.sequence(one)
    low, high = span(seen, None, None)
    traces = []
    kinds = (("data", seen.new, 2), ("SACK block", seen.sacks, 6), ("retransmission", seen.again, 4))
    for name, bars, number in kinds:
        x, y = _bars(joined(bars, low, high))
        traces.append(trace(number, name, x, y, "line"))
        traces[-1]["line"]["dash"] = "solid"
    # Besides its colour: seen at any scale, and in grey. The legend has it once.
    again = [bar for bar in seen.again if low <= bar[0] <= high]
    if again:
        traces[-1] |= {"legendgroup": "again", "showlegend": False}
        middles = [(first + after) / 2 for _, first, after in again]
        traces.append(trace(4, "retransmission", [bar[0] for bar in again], middles, "diamonds"))
        traces[-1]["legendgroup"] = "again"
    for name, points, number in (("acknowledged", seen.acks, 0), ("advertised window", seen.windows, 3)):
        kept = thinned(points, low, high)
        traces.append(trace(number, name, [time_s for time_s, _ in kept], [at for _, at in kept], "line"))
        traces[-1]["line"]["shape"] = "hv"
    title = f"Time-sequence: {escape(one.name)}, seen at {escape(one.interface)}"
    if are_joined(seen, low, high):
        title += f"<br><sub>segments sent back to back within {(high - low) / COLUMNS * 1e3:.2g} ms are one bar</sub>"
    return _layout(source, traces, title, "position in the stream (B)", "normal")


def _plots(source: RunData) -> tuple[list[dict[str, Any]], list[str]]:
    """Those that the run has data for, and why others are not there."""

    def throughput() -> dict[str, Any]:
        shown, _ = pick(source, None)
        return _plot(source, "Throughput", curves(source, "throughput_bps", 1, shown), "b/s", "throughput")

    def queues(name: str) -> dict[str, Any]:
        shown, _ = pick(source, None, "mean_wait_ns")
        return _plot(source, f"Queues: {name}", queue_curves(source, name, None, shown), *QUANTITIES[name][2:])

    def rtt() -> dict[str, Any]:
        return _plot(source, "Round-trip time", rtt_curves(source, None, "auto"), "s", "round-trip time")

    def cwnd() -> dict[str, Any]:
        windows, thresholds = cwnd_curves(source, None)
        plot = _plot(source, "Congestion window", windows, "packets", "cwnd")
        for number, one in thresholds:
            plot["data"].append(trace(number, one.name, *_thin(one.x, one.y), one.style))
            plot["data"][-1]["line"] |= {"dash": "dot", "width": 1}
        return plot

    makers: list[Callable[[], dict[str, Any]]] = [
        throughput,
        *(partial(queues, name) for name in QUANTITIES),
        rtt,
        cwnd,
        partial(_sequence, source),
    ]
    found: list[dict[str, Any]] = []
    missing: list[str] = []
    for make in makers:
        try:
            found.append(make())
        except Error as error:
            if str(error) not in missing:
                missing.append(str(error))
    return found, missing


def html_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of texts."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _printed(source: RunData, name: str) -> str:
    """The begin of what a program printed."""
    try:
        with (source.path / name).open("rb") as file:
            text = file.read(BYTES_SHOWN + 1)
    except OSError:
        return ""
    if not text:
        return ""
    cut = "\n(cut here)" if len(text) > BYTES_SHOWN else ""
    shown = text[:BYTES_SHOWN].decode("utf-8", "replace") + cut
    return f"<details><summary>{escape(name)}</summary><pre>{escape(shown)}</pre></details>"


def _facts(source: RunData) -> str:
    summary, manifest = source.summary, source.manifest
    scenario = manifest.get("scenario") or {}
    rows: list[list[object]] = [
        ["scenario", f"{summary['scenario']} (sha256 {scenario.get('sha256')})"],
        ["seed", summary["seed"]],
        ["digest", summary["digest"] or "none"],
        ["ended", summary["ended"]],
        ["virtual time", f"{source.end_s:g} s"],
        ["frames", summary["frames"]],
        ["system calls", summary["syscalls"]],
        ["windtunnel", manifest.get("windtunnel_version")],
        ["kernels", ", ".join(f"{one['release']} (sha256 {one['sha256']})" for one in manifest.get("kernels", []))],
        ["host", f"{manifest['host']['os']}, Linux {manifest['host']['kernel_release']}" if "host" in manifest else ""],
    ]
    return html_table(["", ""], rows)


def _body(source: RunData) -> str:
    summary = source.summary
    problems = [*summary["failed_expectations"], *(_warning(one) for one in summary["warnings"])]
    warnings = "".join(f"<li>{escape(text)}</li>" for text in problems) or "<li>none</li>"
    programs: list[list[object]] = [
        [
            one["node"],
            command(one, 200),
            ended(one),
            "" if one["start_ns"] is None else f"{one['start_ns'] / 1e9:.6f}",
            "" if one["end_ns"] is None else f"{one['end_ns'] / 1e9:.6f}",
        ]
        for one in summary["processes"]
    ]
    printed = "".join(_printed(source, one[name]) for one in summary["processes"] for name in ("stdout", "stderr"))
    links: list[list[object]] = []
    for link in summary["links"]:
        for a, b, way in ((link["a"], link["b"], "a_to_b"), (link["b"], link["a"], "b_to_a")):
            one = link[way]
            drops = ", ".join(f"{cause} {count}" for cause, count in one["drops"].items()) or "0"
            links.append([f"{a} \u2192 {b}", one["frames"], one["delivered_frames"], one["delivered_bytes"], drops])
    ports: list[list[object]] = []
    for one in summary.get("ports", []):
        drops = ", ".join(f"{cause} {count}" for cause, count in one["drops"].items()) or "0"
        ports.append([one["name"], one["what"], one["frames_in"], one["frames_out"], drops])
    outside = html_table(["port", "what", "frames in", "frames out", "dropped frames"], ports) if ports else ""
    inputs: list[list[object]] = [
        [one["path"], one["sha256"]]
        for key in ("sources", "programs")
        for one in source.manifest.get(key, [])
        if isinstance(one, dict) and "sha256" in one
    ]
    drawing = base64.b64encode(encode(topology(source), "svg")).decode()
    return (
        f"<h1>{escape(source.label)}</h1>{_facts(source)}<h2>Warnings</h2><ul>{warnings}</ul>"
        f'<h2>Network</h2><img alt="the network" src="data:image/svg+xml;base64,{drawing}">'
        f"<h2>Plots</h2>\0<h2>Programs</h2>"
        f"{html_table(['node', 'command', 'end', 'start (s)', 'end (s)'], programs)}{printed}<h2>Links</h2>"
        f"{html_table(['direction', 'frames', 'delivered frames', 'delivered bytes', 'dropped frames'], links)}"
        f"{outside}"
        f"<h2>Inputs</h2><details><summary>{len(inputs)} files</summary>"
        f"{html_table(['file', 'sha256'], inputs)}</details>"
    )


def _warning(one: Any) -> str:
    if not isinstance(one, dict):
        return str(one)
    return ", ".join(f"{key}: {value}" for key, value in one.items() if value is not None)


_STYLE = (
    "body{font:15px/1.45 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#111}"
    "table{border-collapse:collapse;margin:.5em 0;display:block;overflow-x:auto}"
    "td,th{border-bottom:1px solid #ddd;padding:.25em .7em;text-align:left;overflow-wrap:anywhere}"
    "pre{background:#f5f5f5;padding:.7em;overflow:auto;max-height:30em}img{max-width:100%}"
)

_SCRIPT = """
(async () => {
  const packed = Uint8Array.from(atob(document.getElementById("library").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  const plots = JSON.parse(document.getElementById("plots").textContent);
  for (let i = 0; i < plots.length; i++)
    await Plotly.newPlot("plot" + i, plots[i].data, plots[i].layout, { responsive: true, displaylogo: false });
})().catch((error) => {
  document.getElementById("failed").textContent = "The plots need a browser of 2023 or later: " + error;
});
"""


def page(title: str, body: str, found: list[dict[str, Any]], missing: list[str]) -> str:
    """A page with plots, which stand where the body has a NUL, and why others are not there."""
    library = need("plotly.offline", "reports").get_plotlyjs().encode()
    packed = base64.b64encode(gzip.compress(library, 9, mtime=0)).decode()
    frames = "".join(f'<div id="plot{number}"></div>' for number in range(len(found)))
    frames += '<p id="failed"></p>' + "".join(f"<p>{escape(text)}</p>" for text in missing)
    # Within a script, `<` could end it.
    data = json.dumps(found, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>{body.replace(chr(0), frames, 1)}"
        f'<script type="text/plain" id="library">{packed}</script>'
        f'<script type="application/json" id="plots">{data}</script><script>{_SCRIPT}</script></body></html>\n'
    )
