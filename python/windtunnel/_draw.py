# SPDX-License-Identifier: GPL-2.0-or-later
"""What a notebook shows: a network as a drawing, a run as a table."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from ._error import Error

if TYPE_CHECKING:
    from ._network import Network
    from ._node import Node
    from ._run import Run

Point = tuple[float, float]

# Pixels of a link, more where nodes would cover each other.
SPACE = 120.0
SPACE_MAX = 220.0
NODE_WIDTH = 56.0
WIDTH_MAX = 900.0
LABELS_MAX = 40
MARGIN = 60.0
# So many nodes are looked at for the scale of a scenario's positions.
SCALED_MAX = 2000
ROUNDS = 150
# It takes that many until a chain of a few nodes is straight.
ROUNDS_MAX = 3000
# Colours that those with colour-blindness tell apart (Okabe and Ito).
FILL = {"host": "#56b4e9", "router": "#e69f00", "switch": "#009e73", "port": "#ffffff"}
ROWS_MAX = 20


def positions(network: Network) -> dict[str, Point]:
    """Where nodes and ports are drawn: nodes at their own positions, if all have one, else by the links between."""
    nodes = network.nodes
    own = {name: node._spec.get("position") for name, node in nodes.items()}
    ports = network._port_links()
    if nodes and all(own.values()):
        at = {name: (float(at[0]), float(at[1])) for name, at in own.items() if at}
        return {**at, **{port: _beside(node, at) for port, node, _ in ports}}
    links = [(link.a.node.name, link.b.node.name) for link in network.links]
    return spread([*nodes, *(port for port, _, _ in ports)], [*links, *((port, node) for port, node, _ in ports)])


def _beside(node: str, at: dict[str, Point]) -> Point:
    """A place for the port of a node that has a position: away from all others, as far as the next node."""
    here = at[node]
    others = [place for place in at.values() if place != here]
    if not others:
        return here[0] - SPACE, here[1]
    gap = min(math.dist(here, place) for place in others)
    x, y = (here[way] - math.fsum(place[way] for place in others) / len(others) for way in (0, 1))
    length = math.hypot(x, y)
    return (here[0] + gap * x / length, here[1] + gap * y / length) if length > gap / 100 else (here[0] - gap, here[1])


def port_text(spec: Any) -> str:
    """What is at the other end of a port, in a few words; `spec` is what the scenario says of it."""
    for kind, value in spec.items() if isinstance(spec, dict) else ():
        part = value if isinstance(value, dict) else {}
        words = {
            "tap": "host (TAP)" if value == "auto" else f"host (TAP {value})",
            "interface": f"host's {value}",
            "raw": f"host's {part.get('interface')}, some ports",
            "udp": f"UDP, {part.get('peer')}",
            "vxlan": f"VXLAN {part.get('vni')}, {part.get('peer')}",
            "stream": f"socket {value}",
        }
        if kind in words:
            return words[kind]
    return ""


def _distances(names: list[str], links: list[tuple[str, str]]) -> list[list[float]]:
    """Links between each two nodes; a little more than the longest way where there is none."""
    index = {name: number for number, name in enumerate(names)}
    near: list[list[int]] = [[] for _ in names]
    for ends in links:
        a, b = index[ends[0]], index[ends[1]]
        near[a].append(b)
        near[b].append(a)
    table: list[list[float]] = []
    for start in range(len(names)):
        row = [math.inf] * len(names)
        row[start] = 0.0
        queue = [start]
        for node in queue:
            for other in near[node]:
                if row[other] == math.inf:
                    row[other] = row[node] + 1
                    queue.append(other)
        table.append(row)
    finite = [value for row in table for value in row if value < math.inf]
    far = max(finite, default=0.0) + 1
    return [[min(value, far) for value in row] for row in table]


def spread(names: list[str], links: list[tuple[str, str]]) -> dict[str, Point]:
    """A layout by stress majorisation: each node moves to where its distances to all others are as they should be."""
    count = len(names)
    wanted = _distances(names, links)
    turn = 2 * math.pi / max(count, 1)
    radius = max(1.0, count / 4)
    at = [(radius * math.cos(turn * number), radius * math.sin(turn * number)) for number in range(count)]
    # Each round looks at all pairs: large networks get fewer.
    pairs = max(count * count, 1)
    for _ in range(max(5, min(ROUNDS, 2_000_000 // pairs), min(ROUNDS_MAX, 200_000 // pairs))):
        for here in range(count):
            total = x = y = 0.0
            for there in range(count):
                if there == here:
                    continue
                gap = wanted[here][there]
                dx, dy = at[here][0] - at[there][0], at[here][1] - at[there][1]
                length = math.hypot(dx, dy) or 1e-9
                weight = 1 / (gap * gap)
                total += weight
                x += weight * (at[there][0] + gap * dx / length)
                y += weight * (at[there][1] + gap * dy / length)
            if total:
                at[here] = (x / total, y / total)
    gaps = [math.dist(a, b) for number, a in enumerate(at) for b in at[:number]]
    at = _lain(at)
    scale = min(max(SPACE, NODE_WIDTH / max(min(gaps, default=1.0), 1e-9)), SPACE_MAX)
    return {name: (x * scale, y * scale) for name, (x, y) in zip(names, at)}


def _apart(at: dict[str, Point]) -> dict[str, Point]:
    """Positions of a scenario, in whatever unit: so large that most nodes cover no other, and not much larger."""
    places = list(at.values())
    if not 1 < len(places) <= SCALED_MAX:
        return at
    gaps = sorted(min(math.dist(here, there) for there in places if there is not here) for here in places)
    gap = gaps[len(gaps) // 2]
    if gap == 0 or NODE_WIDTH <= gap <= SPACE_MAX:
        return at
    scale = (NODE_WIDTH if gap < NODE_WIDTH else SPACE_MAX) / gap
    return {name: (x * scale, y * scale) for name, (x, y) in at.items()}


def _lain(at: list[Point]) -> list[Point]:
    """Turned so that the longest side lies, and the first node is on the left."""
    if not at:
        return at
    middle_x, middle_y = (math.fsum(values) / len(at) for values in zip(*at))
    moved = [(x - middle_x, y - middle_y) for x, y in at]
    xx, yy = math.fsum(x * x for x, _ in moved), math.fsum(y * y for _, y in moved)
    angle = 0.5 * math.atan2(2 * math.fsum(x * y for x, y in moved), xx - yy)
    along, across = math.cos(angle), math.sin(angle)
    turned = [(x * along + y * across, y * along - x * across) for x, y in moved]
    side = -1.0 if turned[0][0] > 0 else 1.0
    return [(x * side, y * side) for x, y in turned]


def network_svg(network: Network) -> str:
    """The network as a drawing in SVG."""
    at = positions(network)
    if all(node._spec.get("position") for node in network.nodes.values()):
        at = _apart(at)
    left = min((x for x, _ in at.values()), default=0.0) - MARGIN
    top = min((y for _, y in at.values()), default=0.0) - MARGIN
    width = max((x for x, _ in at.values()), default=0.0) - left + MARGIN
    height = max((y for _, y in at.values()), default=0.0) - top + MARGIN
    shown = min(width, WIDTH_MAX)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}" '
        f'width="{shown:.0f}" height="{shown * height / width:.0f}" '
        f'font-family="sans-serif" font-size="11" text-anchor="middle" '
        f'style="background: #fff">',
        f"<title>{escape(network.name)}</title>",
    ]
    # Names of both ends, as a title has them, the two that are joined, and what is written there.
    links = [(f"{link.a} - {link.b}", link.a.node.name, link.b.node.name, link._spec) for link in network.links]
    links += [(f"{port} - {end}", port, end.partition(":")[0], entry) for port, end, entry in network._outside]
    labels = [link_label(network, spec) for _, _, _, spec in links]
    alike = len(set(labels)) == 1 and len(labels) > 2
    if alike and labels[0]:
        x, y = left + width / 2, top + height - 12
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="#555">all links: {escape(labels[0])}</text>')
    for (ends, a, b, _), label in zip(links, labels):
        (ax, ay), (bx, by) = at[a], at[b]
        parts.append(
            f'<line x1="{ax:.1f}" y1="{ay:.1f}" x2="{bx:.1f}" y2="{by:.1f}" stroke="#888" stroke-width="1.5">'
            f"<title>{escape(ends)}</title></line>"
        )
        if label and not alike and len(labels) <= LABELS_MAX:
            x, y = (ax + bx) / 2, (ay + by) / 2 - 4
            parts.append(
                f'<text x="{x:.1f}" y="{y:.1f}" fill="#555" font-size="9" stroke="#fff" '
                f'stroke-width="3" paint-order="stroke">{escape(label)}</text>'
            )
    ports = network._spec.get("ports") or {}
    for name, (x, y) in at.items():
        if name not in network.nodes:
            parts.append(_port_box(name, port_text(ports.get(name)), x, y))
            continue
        node = network.nodes[name]
        round_ = 14 if node.kind == "host" else 4
        title = escape("\n".join([f"{name} ({node.kind})", *_addresses(node)]))
        parts.append(
            f'<g><title>{title}</title><rect x="{x - 22:.1f}" y="{y - 14:.1f}" width="44" height="28" rx="{round_}" '
            f'fill="{FILL.get(node.kind, "#ccc")}" stroke="#333"/>'
            f'<text x="{x:.1f}" y="{y + 4:.1f}" fill="#000">{escape(name)}</text></g>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _port_box(name: str, text: str, x: float, y: float) -> str:
    """A port: not of the run's own, so its box is dashed, and what is there stands below."""
    return (
        f"<g><title>{escape(f'{name} (port): {text}')}</title>"
        f'<rect x="{x - 22:.1f}" y="{y - 14:.1f}" width="44" height="28" fill="{FILL["port"]}" stroke="#333" '
        f'stroke-dasharray="4 3"/><text x="{x:.1f}" y="{y + 4:.1f}" fill="#000">{escape(name)}</text>'
        f'<text x="{x:.1f}" y="{y + 26:.1f}" fill="#555" font-size="9">{escape(text)}</text></g>'
    )


def _addresses(node: Node) -> list[str]:
    """Those of a node; a drawing of what is not finished has none."""
    try:
        return node.addresses
    except Error:
        return []


def link_label(network: Network, spec: dict[str, object]) -> str:
    """Rate and delay of a link, where both directions are alike."""
    if spec.get("a_to_b") or spec.get("b_to_a"):
        return ""
    defaults = (network._spec.get("defaults") or {}).get("link") or {}
    both = spec.get("both") or {}
    values = {**defaults, **(both if isinstance(both, dict) else {})}
    return ", ".join(str(values[key]) for key in ("rate", "delay") if key in values)


def run_table(run: Run) -> str:
    """A run as a table in HTML."""
    rows = [("virtual time", f"{run._now_ns / 1e9:g} s"), ("state", "live" if run._is_open else f"ended: {run.ended}")]
    links = []
    if run._is_open:
        links = run.counters()
    elif (run.out / "summary.json").exists():
        rows.append(("digest", run.digest))
        links = run.summary["links"]
    rows.append(("results", str(run.out)))
    head = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    body = ""
    for link in links[:ROWS_MAX]:
        for a, b, part in ((link["a"], link["b"], link["a_to_b"]), (link["b"], link["a"], link["b_to_a"])):
            lost = sum(part["drops"].values())
            cells = (f"{a} &rarr; {b}", part["frames"], part["bytes"], lost)
            body += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    if not body:
        return f"<table>{head}</table>"
    more = f"<p>and {len(links) - ROWS_MAX} further links</p>" if len(links) > ROWS_MAX else ""
    titles = "<tr><th>link</th><th>frames</th><th>bytes</th><th>dropped</th></tr>"
    return f"<table>{head}</table><table>{titles}{body}</table>{more}"
