"""Generated topologies run: the hosts that are farthest apart reach each other, in both families."""

import json
import re
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
import windtunnel as wt
from windtunnel import topology

ROOT = Path(__file__).resolve().parent.parent.parent
TOWNS = ROOT / "crates/scenario/tests/towns.graphml"


@pytest.fixture(autouse=True)
def program(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDTUNNEL_PROGRAM", str(engine))
    monkeypatch.chdir(tmp_path)


def farthest(net: wt.Network) -> tuple[str, str, int]:
    """The first two hosts with the most links between them, and how many these are."""
    near: dict[str, list[str]] = {name: [] for name in net.nodes}
    for link in net.links:
        near[link.a.node.name].append(link.b.node.name)
        near[link.b.node.name].append(link.a.node.name)
    best = ("", "", 0)
    for start in net.hosts:
        hops = {start.name: 0}
        queue = deque([start.name])
        while queue:
            here = queue.popleft()
            for there in near[here]:
                if there not in hops:
                    hops[there] = hops[here] + 1
                    queue.append(there)
        assert len(hops) == len(net.nodes), "it is connected"
        for host in net.hosts:
            if hops[host.name] > best[2]:
                best = (start.name, host.name, hops[host.name])
    return best


# How many links the longest shortest way of two hosts has.
KINDS: dict[str, tuple[Callable[[], wt.Network], int]] = {
    "chain": (lambda: topology.chain(4), 5),
    "chain-switches": (lambda: topology.chain(3, hosts_per_router=2, kind="switch"), 4),
    "star": (lambda: topology.star(3), 2),
    "ring": (lambda: topology.ring(5), 4),
    "tree": (lambda: topology.tree(3, 2), 6),
    "fat-tree": (lambda: topology.fat_tree(4), 6),
    "leaf-spine": (lambda: topology.leaf_spine(3, 2, hosts_per_leaf=1), 4),
    "grid": (lambda: topology.grid(3, 2), 5),
    "torus": (lambda: topology.grid(3, 3, torus=True), 4),
    "dumbbell": (lambda: topology.dumbbell(2, 1), 3),
    "waxman": (lambda: topology.waxman(8, seed=3), 0),
    "graphml": (lambda: topology.graphml(TOWNS), 5),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_farthest_hosts_reach_each_other(kind: str, kernel: Path) -> None:
    make, expected_links = KINDS[kind]
    net = make()
    a, b, links = farthest(net)
    assert links == expected_links or kind == "waxman", (a, b)
    routers = links - 1 if net[net.links[0].b.node.name].kind == "router" else 0
    with net.run():
        for option in ("-4", "-6"):
            said = net[a].cmd(f"ping {option} -n -c 1 -W 2 {b}")
            assert "1 received" in said, said
            assert f"ttl={64 - routers}" in said, "it takes the shortest way"


def test_what_python_has_is_what_the_verb_writes(engine: Path) -> None:
    words = ["grid", "2", "3", "--rate", "5Mbit", "--host-delay", "2ms", "--seed", "4", "--stop", "1h"]
    subprocess.run([engine, "generate", *words, "-o", "grid.yaml"], check=True)
    read = wt.Network.from_yaml("grid.yaml")
    made = topology.grid(2, 3, rate="5Mbit", host_delay="2ms", seed=4)
    assert made.to_dict() == read.to_dict()
    said = subprocess.run([engine, "generate", *words, "--json"], check=True, stdout=subprocess.PIPE).stdout
    assert json.loads(said) == read.to_dict()
    made.add_link(made.add_node("more"), "r1-1")
    with made.run():
        assert "1 received" in made["more"].cmd("ping -c 1 h2-3")


def test_a_position_changes_no_run() -> None:
    digests = []
    for placed in (True, False):
        net = topology.ring(3)
        if not placed:
            for node in net.nodes.values():
                del node._spec["position"]
        with net.run() as run:
            net["h1"].cmd("ping -c 1 h2")
        digests.append(run.digest)
    assert digests[0] == digests[1]


def test_errors_are_the_engines(tmp_path: Path) -> None:
    with pytest.raises(wt.Error, match=r"a fat-tree of k = 3 is not possible.*\nhint: choose 2 or 4"):
        topology.fat_tree(3)
    with pytest.raises(wt.Error, match=r"`2\.5` is not a number of something"):
        topology.star(2.5)  # type: ignore[arg-type]
    with pytest.raises(wt.Error, match=r"cannot read .*none.graphml"):
        topology.graphml("none.graphml")
    parts = TOWNS.read_text(encoding="utf-8").replace('<edge source="1" target="4" />', "")
    (tmp_path / "-o").write_text(parts, encoding="utf-8")
    with pytest.raises(wt.Error, match=r"the graph is in 2 parts.*\nhint: --largest"):
        topology.graphml("-o")
    assert len(topology.graphml("-o", largest=True).nodes) == 10


def test_drawings_have_nodes_where_the_scenario_puts_them() -> None:
    """Whatever the unit of positions, no node covers another."""
    for unit in (0.001, 1, 1000):
        net = wt.Network()
        for name, at in {"a": (0, 0), "b": (100, 0), "c": (100, 50)}.items():
            net.add_node(name, position=(at[0] * unit, at[1] * unit))
        net.add_link("a", "b")
        text = net._repr_svg_()
        found = {
            name: (float(x), float(y)) for x, y, name in re.findall(r'<text x="(.*?)" y="(.*?)".*?>(\w)</text>', text)
        }
        (ax, ay), (bx, by), (cx, cy) = (found[name] for name in "abc")
        assert (ay, cx) == (by, bx), found
        assert bx - ax == pytest.approx(2 * (cy - by), rel=0.02), found
        assert 55 <= cy - by <= 221, found
    for make, _ in KINDS.values():
        assert len(re.findall("<rect", make()._repr_svg_())) == len(make().nodes)
