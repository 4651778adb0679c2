# SPDX-License-Identifier: GPL-2.0-or-later
"""Scenario files as the Python package reads and writes them, and the addresses and routes that it adds."""

from __future__ import annotations

import copy
import itertools
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import windtunnel as wt
import yaml
from scenarios import pair
from simulate import simulate
from windtunnel._yaml import dump, load

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDTUNNEL_PROGRAM", str(engine))
    monkeypatch.chdir(tmp_path)


class Texts(yaml.SafeLoader):
    """Takes each scalar as it is spelled."""

    yaml_implicit_resolvers = {"<": [("tag:yaml.org,2002:merge", re.compile("<<"))]}  # noqa: RUF012 - as in yaml


def as_texts(text: str) -> Any:
    """What a file says, by PyYAML."""
    return yaml.load(text, Loader=Texts)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples_are_written_as_they_were_read(file: Path) -> None:
    net = wt.Network.from_yaml(file)
    text = net.to_yaml()
    assert as_texts(text) == as_texts(file.read_text(encoding="utf-8"))
    again = wt.Network.from_yaml(text)
    assert again.to_yaml() == text
    assert again.to_dict() == net.to_dict()
    for node in net.nodes.values():
        assert again[node.name].addresses == node.addresses, "the engine reads both"


def test_links_to_ports_are_kept_and_take_their_interface() -> None:
    file = ROOT / "examples/live/28-live.yaml"
    net = wt.Network.from_yaml(file)
    assert as_texts(net.to_yaml()) == as_texts(file.read_text(encoding="utf-8"))
    assert wt.Network.from_yaml(net.to_yaml()).to_dict() == net.to_dict()
    assert [str(link.a) for link in net.links] == ["r1:eth1", "r2:eth1"]
    assert net["r1"].addresses == ["10.9.0.2/24", "10.1.1.1/24"]
    assert str(net.add_link(net["r1"], net["web"]).a) == "r1:eth2"


def test_ports_are_drawn_as_what_they_are() -> None:
    net = wt.Network.from_yaml(ROOT / "examples/live/28-live.yaml")
    drawing = ET.fromstring(net._repr_svg_())
    texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"lan", "host (TAP wt0)", "r1", "100Mbit, 5ms"} <= set(texts), texts
    # At the side of its node, where nodes have positions.
    nodes = {"a": {"position": [0, 0]}, "b": {"position": [100, 0]}}
    kinds = {
        "host's eth0": {"interface": "eth0"},
        "host's eth1, some ports": {"raw": {"interface": "eth1", "tcp": 80}},
        "UDP, 192.0.2.2:7": {"udp": {"local": "192.0.2.1:7", "peer": "192.0.2.2:7"}},
        "VXLAN 42, 192.0.2.2": {"vxlan": {"vni": 42, "local": "192.0.2.1", "peer": "192.0.2.2"}},
        "socket /run/x": {"stream": "/run/x"},
        "host (TAP)": {"tap": "auto"},
    }
    for words, port in kinds.items():
        links = [{"endpoints": ["a:eth0", "b:eth0"]}, {"endpoints": ["out", "b:eth1"]}]
        spec = {"version": 1, "ports": {"out": port}, "nodes": nodes, "links": links}
        placed = wt.Network._of(copy.deepcopy(spec), None)
        drawing = ET.fromstring(placed._repr_svg_())
        found = {text.text: float(text.get("x", "")) for text in drawing.iter("{http://www.w3.org/2000/svg}text")}
        assert words in found and found["a"] < found["b"] < found["out"], found


@pytest.mark.parametrize("name", ["01-ping", "13-dhcp"])
def test_an_example_through_python_is_the_same_run(engine: Path, tmp_path: Path, name: str) -> None:
    file = ROOT / f"examples/{name}.yaml"
    plain = simulate(engine, yaml.safe_load(wt.Network.from_yaml(file).to_yaml()), tmp_path / "plain")
    with wt.Network.from_yaml(file).run(tmp_path / "driven") as run:
        run.to_end()
    assert run.digest == plain.summary["digest"]
    assert run.summary["processes"] == plain.summary["processes"]


def test_values_of_all_kinds_survive() -> None:
    texts = [
        "",
        " a",
        "a ",
        "a: b",
        "#x",
        "- a",
        "1e3",
        "0x10",
        "0o7",
        "017",
        "1_000",
        "yes",
        "No",
        "null",
        "~",
        "2026-01-01",
    ]
    texts += [
        "1:30",
        ".inf",
        "nan",
        "a\nb",
        "a\nb\n",
        "a\n\nb\n\n",
        "\n",
        "  a\n b\n",
        "tab\there",
        "\x00\x1b\x7f",
        "é€😀",
        "\u2028",
    ]
    texts += [
        "'",
        '"',
        "\\",
        "{a}",
        "[a]",
        "a,b",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "<<",
        "=",
        "10Mbit",
        "1%",
        "10.0.0.1/24",
    ]
    value = {
        "texts": texts,
        "numbers": [0, -5, 1.5, 6.12, 10**20],
        "others": [True, False, None, [], {}, [[1], {"a": [{}]}]],
    }
    value["keys"] = {text: text for text in texts}
    text = dump(value)
    assert load(text, "x") == value
    # By somebody else, except what YAML 1.1 and 1.2 take differently.
    assert yaml.safe_load(text) == value
    assert load("a: 1e3\nb: 0x10\nc: .5\nd: +1", "x") == {"a": "1e3", "b": "0x10", "c": ".5", "d": "+1"}
    assert dump(load("a: 1e3\nb: 0x10\nc: '1e3'\n", "x")) == 'a: 1e3\nb: 0x10\nc: "1e3"\n'
    assert load("a: &x {b: 1}\nc: {<<: *x, d: 2}", "x")["c"] == {"b": 1, "d": 2}


def test_odd_texts_reach_the_engine_unchanged() -> None:
    net = wt.Network()
    content = "#!/bin/sh\n\tprintf '%s' \"é😀 \x1b[0m\" # a: b\n\n  indented\n"
    h1 = net.add_node("h1", files={"/tmp/a: b": content, "/tmp/1e3": "1e3"})
    with net.run():
        assert h1.read_file("/tmp/a: b") == content
        assert h1.read_file("/tmp/1e3") == "1e3"


def test_paths_count_from_the_file_that_names_them(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "motd").write_text("from the host\n", encoding="utf-8")
    scenario = pair([], [], {"rate": "1Gbit", "delay": "1ms"}, "1s")
    scenario["nodes"]["h1"]["files"] = {"/etc/motd": {"source": "motd"}}
    (folder / "s.yaml").write_text(dump(scenario), encoding="utf-8")
    net = wt.Network.from_yaml(folder / "s.yaml")
    with net.run() as run:
        assert net["h1"].read_file("/etc/motd") == "from the host\n"
    assert run.scenario == folder / "s.yaml"
    net["h1"].run("true")
    with net.run() as run:
        assert net["h1"].read_file("/etc/motd") == "from the host\n"
    assert run.scenario == run.out / "scenario.yaml"


def test_rings_of_switches() -> None:
    def ring(**options: Any) -> wt.Network:
        net = wt.Network()
        switches = [net.add_switch(f"s{number}", **options) for number in range(3)]
        for number, switch in enumerate(switches):
            net.add_link(net.add_node(f"h{number}"), switch)
            net.add_link(switch, switches[(number + 1) % 3])
        return net

    with pytest.raises(wt.Error, match="the link s2:eth2 -- s0:eth2 closes a ring of switches"):
        ring().run()
    net = ring(stp=True)
    with net.run() as run:
        run.until("6s")
        assert net.pingall(quiet=True) == 0


def test_measuring_changes_nothing() -> None:
    digests = []
    for measure, files in ((None, []), (0.01, ["flows", "links", "mptcp", "qdiscs", "tcp"]), ({"tcp": 0.001}, ["tcp"])):
        net = wt.Network(measure=measure)
        h1, h2 = net.add_node("h1"), net.add_node("h2")
        net.add_link(h1, h2, rate="1Mbit", queue=10)
        with net.run() as run:
            h1.cmd("ping -c 2 -i 0.3 -s 1400", h2.ip)
            run.go("1s")
        digests.append(run.digest)
        assert sorted(path.stem for path in run.out.glob("*.csv")) == files
    assert digests[0] == digests[1] == digests[2]


def test_units_are_written_out() -> None:
    net = wt.Network(stop=90, isolate=True)
    a = net.add_node("a", memory=128 << 20, disk="1GiB")
    b = net.add_node("b")
    net.add_link(a, b, rate=1.5e6, delay=0.0005, jitter="1us", loss=0.001, queue=64, b_to_a={"rate": 10**9})
    spec = net.to_dict()
    assert spec["run"] == {"stop": "90s", "seed": 1, "isolate": True}
    assert spec["nodes"]["a"]["memory"] == "128MiB"
    both = {"rate": "1500kbit", "delay": "500us", "jitter": "1us", "loss": "1000000ppb", "queue": "64p"}
    assert spec["links"][0] == {"endpoints": ["a:eth0", "b:eth0"], "both": both, "b_to_a": {"rate": "1Gbit"}}
    net.links[0].set(rate="2Mbit", a_to_b={"loss": 0})
    assert net.to_dict()["links"][0]["b_to_a"] == {"rate": "2Mbit"}
    assert net.to_dict()["links"][0]["a_to_b"] == {"loss": "0%"}
    net.validate()


def test_everybody_reaches_everybody_in_both_families() -> None:
    net = wt.Network("grid", link={"delay": "10us"})
    size = range(3)
    for x, y in itertools.product(size, size):
        net.add_router(f"r{x}{y}")
    for x, y in itertools.product(size, size[:-1]):
        net.add_link(f"r{x}{y}", f"r{x}{y + 1}")
        net.add_link(f"r{y}{x}", f"r{y + 1}{x}")
    ends = [net.add_node(name) for name in ("a", "b", "c")]
    for end, router in zip(ends, ("r00", "r22", "r20"), strict=True):
        net.add_link(end, router)
    with net.run():
        assert net.pingall(quiet=True) == 0
        for a, b in itertools.permutations(ends, 2):
            assert a.cmd("ping -6 -c 1 -W 1", b.ip6).count("1 received") == 1, "at time 0 already"
        assert "ttl=59" in ends[0].cmd("ping -c 1", ends[1].ip), "five routers on the shortest way"


def test_addresses_are_those_of_the_engine() -> None:
    net = wt.Network()
    s1 = net.add_switch("s1")
    hosts = [net.add_node(f"h{number}") for number in range(3)]
    for host in hosts:
        net.add_link(host, s1)
    assert [host.addresses for host in hosts[:2]] == [["10.0.0.1/24", "fd00::1/64"], ["10.0.0.2/24", "fd00::2/64"]]
    assert (s1.addresses, s1.ip, s1.kind) == ([], None, "switch")
    a, b = net.add_node("a"), net.add_router("b")
    link = net.add_link(a, b, addresses=("192.168.7.77/24", None))
    assert (link.a.ip, link.b.ip, link.b.ip6) == ("192.168.7.77", "192.168.7.1", "fd00:0:0:1::2")
    link.b.configure(addresses="192.168.7.2/24", mtu=9000, capture=True)
    assert b.IP("eth0") == "192.168.7.2"
    assert net.to_dict()["nodes"]["b"]["interfaces"] == {"eth0": {"mtu": 9000, "capture": True}}
    with net.run() as run:
        assert "192.168.7.2/24" in b.cmd("ip address show eth0")
        assert "1 received" in hosts[0].cmd("ping -c 1", hosts[2].ip)
    assert (run.out / "pcap/b-eth0.pcap").exists()
    none = wt.Network(addressing="none", routing="none")
    none.add_link(none.add_node("a"), none.add_node("b"))
    assert none["a"].addresses == []
    with none.run(), pytest.raises(wt.Error, match="b has no address"):
        none.pingall(quiet=True)
    read = wt.Network.from_yaml(ROOT / "examples/26-campus.yaml")
    assert (read["h3"].ip, read["s1"].kind) == ("10.0.1.1", "switch")


def test_models_of_nics_go_to_a_file_and_come_back(tmp_path: Path) -> None:
    net = wt.Network("nics", node={"model": "virtio"})
    a, b = net.add_node("a", interfaces={"eth1": {"tx_ring": 64}}), net.add_node("b")
    link = net.add_link(a, b, model="e1000e")
    net.add_link(a, b, model=(None, "igb"))
    link.a.configure(interrupt_gap=100e-6, rx_ring=512, rx_buffer=4096, tso=False, bql=False)
    interfaces = net.to_dict()["nodes"]
    values = {"rx_ring": 512, "bql": False, "rx_buffer": "4KiB", "tso": False, "interrupt_gap": "100us"}
    assert interfaces["a"]["interfaces"] == {"eth0": {"model": "e1000e", **values}, "eth1": {"tx_ring": 64}}
    assert interfaces["b"]["interfaces"] == {"eth0": {"model": "e1000e"}, "eth1": {"model": "igb"}}

    file = tmp_path / "nics.yaml"
    file.write_text(net.to_yaml(), encoding="utf-8")
    again = wt.Network.from_yaml(file)
    assert again.to_dict() == net.to_dict()
    with again.run():
        drivers = [again[node].cmd(f"ethtool -i {name} | head -1") for node in "ab" for name in ("eth0", "eth1")]
        asked = again["a"].cmd("ethtool -c eth0 | grep ^rx-usecs:; ethtool -k eth0 | grep ^tcp-seg")
    assert drivers == [f"driver: {name}\n" for name in ("e1000e", "virtio_net", "e1000e", "igb")]
    assert asked == "rx-usecs: 100\ntcp-segmentation-offload: off\n"


def test_a_model_that_there_is_not_is_refused() -> None:
    net = wt.Network()
    net.add_link(net.add_node("a"), net.add_node("b"), model="e1000")
    with pytest.raises(wt.Error, match="`e1000` is not a model of a NIC") as caught:
        net.validate()
    assert "did you mean `e1000e`?" in str(caught.value)
