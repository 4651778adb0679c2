# SPDX-License-Identifier: GPL-2.0-or-later
"""Series over virtual time: throughput, queues, round-trip times, congestion windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._error import refuse
from .._extras import need
from .._results import CAPTURE
from .._units import Time, time_ns
from ._data import Direction, RunData, Source, node_of, results
from ._style import COLUMN_IN, MARKERS, VECTOR_MAX, axes, colour, finish, mark_events, over_time, scale, styled
from ._tcp import Conversation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from ._data import Numbers

# Of directions that carry less than this part of the busiest, plots say only how many there are, unless asked for.
QUIET = 0.05
CURVES_MAX = 7


@dataclass(frozen=True)
class Curve:
    """One curve; `y` in the unit without prefix."""

    name: str
    x: Numbers
    y: Numbers
    style: str = "steps"
    """``steps`` holds for the interval before, ``line`` joins samples, ``dots`` are single measurements."""


def window(start: Time | None, end: Time | None) -> tuple[float | None, float | None]:
    """Both in seconds."""
    return (
        None if start is None else time_ns(start, "start") / 1e9,
        None if end is None else time_ns(end, "end") / 1e9,
    )


def pick(
    source: RunData, links: Sequence[str] | str | None, busy: str = "delivered_bytes"
) -> tuple[list[Direction], int]:
    """Directions to draw, and how many were left out: those asked for, else those that carry most."""
    directions = source.directions
    if links is not None:
        wanted = [links] if isinstance(links, str) else list(links)
        found = [one for name in wanted for one in _named(directions, name)]
        return list({one.name: one for one in found}.values()), 0
    totals = {one.name: float(one.columns[busy].sum()) for one in directions}
    least = max(totals.values(), default=0.0) * QUIET
    shown = sorted((one for one in directions if totals[one.name] > 0), key=lambda one: -totals[one.name])
    names = {one.name for one in shown[:CURVES_MAX] if totals[one.name] >= least}
    kept = [one for one in directions if one.name in names] or directions[:1]
    return kept, len(directions) - len(kept)


def _named(directions: list[Direction], name: str) -> list[Direction]:
    """`a>b` is one direction, `a-b` both; each end is a node or node:interface."""
    for mark, both in ((">", False), ("-", True)):
        for at in [number for number, letter in enumerate(name) if letter == mark]:
            ends = name[:at].strip(), name[at + 1 :].strip()
            wanted = [ends, ends[::-1]] if both else [ends]
            found = [one for one in directions if any(_fits(one, *pair) for pair in wanted)]
            if found:
                return found
    found = [one for one in directions if name in (one.sender, node_of(one.sender))]
    if found:
        return found
    refuse(
        f"no link is named `{name}`; allowed: {', '.join(f'{one.sender}>{one.receiver}' for one in directions)}",
        "`a>b` is one direction, `a-b` both, `a` all that a sends; a and b are nodes, ports or node:interface",
    )
    return None


def _fits(one: Direction, sender: str, receiver: str) -> bool:
    return all(wanted in (end, node_of(end)) for end, wanted in ((one.sender, sender), (one.receiver, receiver)))


def _short(directions: Sequence[Direction]) -> dict[str, str]:
    """Names of directions without interfaces, where that leaves them apart."""
    short = [f"{node_of(one.sender)} → {node_of(one.receiver)}" for one in directions]
    return {one.name: name if short.count(name) == 1 else one.name for one, name in zip(directions, short)}


def curves(source: RunData, column: str, factor: float, shown: Sequence[Direction]) -> list[Curve]:
    """One column of the series of some directions."""
    names = _short(shown)
    try:
        return [Curve(names[one.name], one.time_s, one.columns[column] * factor) for one in shown]
    except KeyError:
        refuse(f"links.csv of {source.path} has no column {column}", "repeat the run with this version")


def averaged(one: Curve, span: Time | None) -> Curve:
    """Means over longer intervals, each of a whole number of those measured."""
    if span is None or len(one.x) < 2:
        return one
    numpy = need("numpy", "plots")
    wanted_s = time_ns(span, "interval") / 1e9
    measured_s = float(one.x[0])
    if wanted_s < measured_s * 0.999999:
        refuse(f"interval `{span}` is shorter than what was measured, {measured_s:g} s", "measure after shorter spans")
    group = max(1, round(wanted_s / measured_s))
    # The last interval of a run, and so the last group, may be shorter than others.
    length = numpy.diff(one.x, prepend=0.0)
    starts = numpy.arange(0, len(one.x), group)
    ends = numpy.minimum(starts + group, len(one.x)) - 1
    sums = numpy.add.reduceat(one.y * length, starts)
    return Curve(one.name, one.x[ends], sums / numpy.add.reduceat(length, starts), one.style)


def draw(ax: Axes, lines: Sequence[Curve], unit: str, what: str) -> None:
    """Curves with their axis from 0."""
    numpy = need("numpy", "plots")
    largest = max((float(numpy.nanmax(one.y)) for one in lines if not numpy.isnan(one.y).all()), default=0.0)
    by, unit = scale(largest, unit)
    for number, one in enumerate(lines):
        options: dict[str, Any] = {"drawstyle": "steps-pre" if one.style == "steps" else "default", **colour(number)}
        if one.style == "dots":
            options.update(linestyle="none", marker=MARKERS[number % len(MARKERS)], markersize=1.6, markeredgewidth=0)
        ax.plot(one.x, one.y / by, label=one.name, rasterized=len(one.x) > VECTOR_MAX, **options)
    ax.set_ylabel(f"{what} ({unit})")
    ax.set_ylim(bottom=0, top=None if largest > 0 else 1)


def _note(left_out: int) -> str:
    return f"not shown: {left_out} quieter direction{'s' if left_out > 1 else ''}" if left_out else ""


def throughput(
    run: Source,
    links: Sequence[str] | str | None = None,
    *,
    interval: Time | None = None,
    start: Time | None = None,
    end: Time | None = None,
    figure: FigureBase | None = None,
    ax: Axes | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draws what each direction of links delivered over time: frames from the Ethernet header on, without FCS.

    Parameters
    ----------
    run : Run or path
        A run that has ended, or its folder.
    links : str or sequence of str, optional
        Which: ``a>b`` is one direction, ``a-b`` both, ``a`` all that a sends; by default those that carry most.
    interval : float or str, optional
        Mean over such spans of virtual time (seconds, or ``"100ms"``); by default as measured.
    start, end : float or str, optional
        Part of the run to show.
    figure, ax : optional
        matplotlib figure or axes to draw in; by default a new figure.
    size : tuple of float, optional
        Width and height of a new figure, inches.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; :func:`save` writes it.

    Raises
    ------
    Error
        Nothing was measured, or there is no such link.
    """
    source = results(run)
    shown, left_out = pick(source, links)
    lines = [averaged(one, interval) for one in curves(source, "throughput_bps", 1, shown)]
    with styled():
        where, drawn = axes(figure, ax, size)
        draw(drawn[0], lines, "b/s", "throughput")
        over_time(drawn, source, *window(start, end))
        done = finish(where, drawn, f"Throughput: {source.label}", ax is None, note=_note(left_out))
        mark_events(drawn, source.link_events)
        return done


QUANTITIES = {
    "occupancy": ("queue_frames", 1, "packets", "queue"),
    "sojourn": ("mean_wait_ns", 1e-9, "s", "mean wait"),
    "drops": ("queue_full_frames", 1, "packets", "dropped"),
}


def queue_curves(
    source: RunData, quantity: str, links: Sequence[str] | str | None, shown: Sequence[Direction]
) -> list[Curve]:
    """Of the links' queues, and of the queueing disciplines before these in which anything waited or was dropped."""
    numpy = need("numpy", "plots")
    column, factor, _, _ = QUANTITIES[quantity]
    lines = curves(source, column, factor, shown)
    if not (source.path / "qdiscs.csv").is_file():
        return lines
    senders = {one.sender for one in shown}
    # One curve has one look in all three plots: what is not there is drawn as nothing.
    for one in source.queueing:
        waited, dropped = one.columns["queued_packets"], one.columns["dropped_packets"]
        if not (waited.any() or dropped.any()) or (links is not None and one.interface not in senders):
            continue
        if len(lines) >= CURVES_MAX:
            break
        if quantity == "occupancy":
            y = waited
        elif quantity == "drops":
            y = numpy.diff(dropped, prepend=0.0)
        else:
            y = one.columns.get("delay_us", numpy.full(len(waited), numpy.nan)) * 1e-6
        lines.append(Curve(one.name, one.time_s, y))
    return lines


def queue(
    run: Source,
    links: Sequence[str] | str | None = None,
    quantity: str | None = None,
    *,
    start: Time | None = None,
    end: Time | None = None,
    figure: FigureBase | None = None,
    ax: Axes | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draws queues over time: how many packets wait, how long they waited, and how many were dropped.

    These are the queues of links, and, where qdiscs.csv is there, the queueing disciplines of the nodes' kernels in
    which anything waited; of these, only some measure how long.

    Parameters
    ----------
    run, start, end, figure, ax, size
        As of :func:`throughput`.
    links : str or sequence of str, optional
        As of :func:`throughput`; by default those in which packets waited most.
    quantity : {"occupancy", "sojourn", "drops"}, optional
        One of them alone: packets at the end of each interval, mean time that those sent in the interval had waited
        for the wire,
        packets dropped in the interval as the queue was full. By default all three.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    source = results(run)
    if quantity is not None and quantity not in QUANTITIES:
        refuse(f"`{quantity}` is no quantity of a queue; allowed: {', '.join(QUANTITIES)}")
    wanted = list(QUANTITIES) if quantity is None else [quantity]
    shown, left_out = pick(source, links, "mean_wait_ns")
    with styled():
        where, drawn = axes(figure, ax, size, len(wanted), (COLUMN_IN, 1.1 + 1.4 * len(wanted)))
        for name, here in zip(wanted, drawn):
            draw(here, queue_curves(source, name, links, shown), *QUANTITIES[name][2:])
        over_time(drawn, source, *window(start, end))
        done = finish(where, drawn, f"Queues: {source.label}", ax is None, note=_note(left_out))
        mark_events(drawn, source.link_events)
        return done


# TCP as the kernels see it.


_ENDS = ("node", "netns", "local_address", "local_port", "remote_address", "remote_port")


def _connection(node: str, _netns: int, local: str, local_port: int, remote: str, remote_port: int) -> str:
    """Which connection rows of tcp.csv are about, and at which end."""
    ends = [
        f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        for address, port in ((local, local_port), (remote, remote_port))
    ]
    return f"{node} {ends[0]} → {ends[1]}"


def _tcp_curves(source: RunData, column: str, factor: float, connection: str | None) -> list[Curve]:
    """One column of tcp.csv, one curve per end of a connection: those that fit a text, else those that send most.

    Where the samples have no value, and between two connections of the same addresses and ports, the curve has a gap.
    """
    numpy = need("numpy", "plots")
    ends = source.samples("tcp", "time_ns", "bytes_sent", column, *_ENDS).by(*_ENDS)
    found = {key: (_connection(*key), part) for key, part in ends.items()}
    fitting = [key for key, (name, _) in found.items() if connection is None or connection in name]
    if not fitting:
        names = ", ".join(name for name, _ in list(found.values())[:10])
        refuse(
            f"no connection of {source.path / 'tcp.csv'} fits `{connection}`; there are: {names}",
            "give a part of one of these, as in `:5201`",
        )
    if connection is None:
        sent = {key: max((value or 0 for value in found[key][1]["bytes_sent"]), default=0) for key in fitting}
        fitting = sorted(fitting, key=lambda key: -sent[key])[:CURVES_MAX]
        fitting = [key for key in fitting if sent[key] and sent[key] >= QUIET * sent[fitting[0]]] or fitting[:1]
    curves_ = []
    for name, part in (found[key] for key in fitting):
        x = numpy.array(part["time_ns"], dtype=float) / 1e9
        y = numpy.array([numpy.nan if value is None else value * factor for value in part[column]], dtype=float)
        starts = [i for i in range(1, len(x)) if (part["bytes_sent"][i] or 0) < (part["bytes_sent"][i - 1] or 0)]
        x, y = numpy.insert(x, starts, x[starts]), numpy.insert(y, starts, numpy.nan)
        curves_.append(Curve(name, x, y, "line"))
    return curves_


def chosen(source: RunData, connection: str | None) -> list[Conversation]:
    """Connections that fit a text: all whose name has it, else the largest few."""
    found = source.conversations
    if connection is not None:
        fitting = [one for one in found if connection in one.name or connection == one.interface]
        if not fitting:
            names = ", ".join(one.name for one in found[:10]) or "none, for no capture has TCP payload"
            refuse(
                f"no connection fits `{connection}`; there are: {names}", "give a part of one of these, as in `:5201`"
            )
        return fitting
    if not found:
        refuse(f"no capture of {source.path} has TCP payload", "another plot, or a run in which TCP carries data")
    least = found[0].bytes * QUIET
    return [one for one in found[:CURVES_MAX] if one.bytes >= least]


def rtt_curves(source: RunData, connection: str | None, origin: str) -> list[Curve]:
    """Round-trip times from the kernels' own estimates or from captures."""
    if origin not in ("auto", "kernel", "captures"):
        refuse(f"`{origin}` is no origin of round-trip times; allowed: auto, kernel, captures")
    if origin == "auto":
        origin = "kernel" if (source.path / "tcp.csv").exists() else "captures"
    if origin == "kernel":
        numpy = need("numpy", "plots")
        # A kernel that has measured none yet says 0.
        found = _tcp_curves(source, "srtt_us", 1e-6, connection)
        return [Curve(one.name, one.x, numpy.where(one.y > 0, one.y, numpy.nan), one.style) for one in found]
    numpy = need("numpy", "plots")
    lines = []
    for one in chosen(source, connection):
        rtts = source.sequence(one).rtts
        lines.append(Curve(one.name, numpy.array([x for x, _ in rtts]), numpy.array([y for _, y in rtts]), "dots"))
    return lines


def rtt(
    run: Source,
    connection: str | None = None,
    *,
    origin: str = "auto",
    start: Time | None = None,
    end: Time | None = None,
    figure: FigureBase | None = None,
    ax: Axes | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draws round-trip times of TCP connections over time.

    Parameters
    ----------
    run, start, end, figure, ax, size
        As of :func:`throughput`.
    connection : str, optional
        Part of the connection's name, ``10.0.0.1:39908 → 10.0.0.2:5201``; by default those that carry most.
    origin : {"auto", "kernel", "captures"}
        The sender's smoothed estimate (tcp.csv), or each acknowledgement in the sender's capture against the last
        segment that it
        acknowledges, without those sent twice (Karn). By default the first that there is.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    source = results(run)
    lines = rtt_curves(source, connection, origin)
    if not any(len(one.x) for one in lines):
        refuse(f"nothing in {source.path} shows a round-trip time", CAPTURE)
    with styled():
        where, drawn = axes(figure, ax, size)
        draw(drawn[0], lines, "s", "round-trip time")
        over_time(drawn, source, *window(start, end))
        done = finish(where, drawn, f"Round-trip time: {source.label}", ax is None)
        mark_events(drawn, source.link_events)
        return done


def cwnd(
    run: Source,
    connection: str | None = None,
    *,
    ssthresh: bool = True,
    start: Time | None = None,
    end: Time | None = None,
    figure: FigureBase | None = None,
    ax: Axes | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draws congestion windows of TCP connections over time, as their kernels have them, and slow-start thresholds.

    Parameters
    ----------
    run, start, end, figure, ax, size
        As of :func:`throughput`.
    connection : str, optional
        Part of a connection's name.
    ssthresh : bool
        Whether to draw the thresholds too; those that are not set yet are left out.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    source = results(run)
    lines, thresholds = cwnd_curves(source, connection)
    with styled():
        where, drawn = axes(figure, ax, size)
        draw(drawn[0], lines, "packets", "cwnd")
        if ssthresh:
            for number, one in thresholds:
                dotted = {**colour(number), "linestyle": (0, (1, 2)), "linewidth": 0.9}
                # Once in the legend: whose it is, its colour says.
                label = "ssthresh" if one is thresholds[0][1] else None
                drawn[0].plot(one.x, one.y, label=label, rasterized=len(one.x) > VECTOR_MAX, **dotted)
        over_time(drawn, source, *window(start, end))
        done = finish(where, drawn, f"Congestion window: {source.label}", ax is None)
        mark_events(drawn, source.link_events)
        return done


def cwnd_curves(source: RunData, connection: str | None) -> tuple[list[Curve], list[tuple[int, Curve]]]:
    """Windows, and thresholds with the number of their window; those that no loss has set yet have no value."""
    numpy = need("numpy", "plots")
    thresholds = enumerate(_tcp_curves(source, "ssthresh_packets", 1, connection))
    return (
        _tcp_curves(source, "cwnd_packets", 1, connection),
        [
            (number, Curve(f"ssthresh, {one.name}", one.x, one.y, one.style))
            for number, one in thresholds
            if not numpy.isnan(one.y).all()
        ],
    )
