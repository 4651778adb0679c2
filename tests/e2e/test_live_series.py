# SPDX-License-Identifier: GPL-2.0-or-later
"""What a driver asks of a run that goes on: samples and series. The run is the same with and without."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import windtunnel as wt
from conftest import ROOT

KINDS = ("links", "tcp", "mptcp", "qdiscs")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WINDTUNNEL_PROGRAM", str(engine))
    monkeypatch.chdir(tmp_path)
    yield


def network(**options: Any) -> tuple[wt.Network, wt.Node, wt.Node]:
    net = wt.Network("live", seed=3, **options)
    h1, h2 = net.add_node("h1"), net.add_node("h2")
    h1.setup("tc qdisc replace dev eth0 root handle 1: fq_codel")
    net.add_link(h1, h2, rate="20Mbit", delay="10ms", queue="nic")
    return net, h1, h2


def transfer(look: bool, **options: Any) -> wt.Run:
    """iperf3 for a while, in steps of half a second, and whether the script asks what there is to ask."""
    net, h1, h2 = network()
    with net.run(**options) as run:
        h2.popen("iperf3 -s -1")
        h1.popen("iperf3 -c h2 -t 2")
        for step in range(1, 5):
            run.until(step * 0.5)
            if not look:
                continue
            for kind in KINDS:
                run.series(kind)
            before_ns = run.now_ns
            assert len(h1.tcp()) == len(run.tcp().where(node="h1")) > 0
            assert len(run.qdiscs()) >= 1 and len(run.mptcp()) == 0
            assert run.now_ns == before_ns
    return run


def test_asking_changes_nothing() -> None:
    plain, asked = transfer(False), transfer(True, measure="10ms")
    assert plain.digest == asked.digest
    assert (plain.out / "input.jsonl").read_bytes() == (asked.out / "input.jsonl").read_bytes()


def test_a_sample_is_what_the_series_has_at_that_time() -> None:
    net, h1, h2 = network(measure={"tcp": "100ms", "qdiscs": "100ms"})
    with net.run() as run:
        h2.popen("iperf3 -s -1")
        h1.popen("iperf3 -c h2 -t 2")
        run.until("1s")
        tcp, qdiscs = run.tcp(), run.qdiscs("h1")
        assert tcp == run.series("tcp").where(time_ns=1_000_000_000)
        assert qdiscs.rows() == run.series("qdiscs").where(time_ns=1_000_000_000, node="h1").rows()
        assert max(h1.tcp()["cwnd_packets"]) > 10 and set(tcp["node"]) == {"h1", "h2"}
        assert h1.tcp().columns == run.series("tcp").columns
        with pytest.raises(wt.Error, match="no node `h9`"):
            run.tcp("h9")
    at_end = run.results.tcp().where(time_ns=1_000_000_000)
    assert at_end == tcp


def test_a_series_is_complete_up_to_now_and_the_files_are_those_of_the_replay(engine: Path, tmp_path: Path) -> None:
    net, h1, h2 = network()
    with net.run(measure="100ms") as run:
        h2.popen("iperf3 -s -1")
        h1.popen("iperf3 -c h2 -t 1")
        for time_s in (0.35, 0.7, 5):
            run.until(time_s)
            so_far = run.series("links")
            assert max(so_far["time_ns"]) == int(time_s * 10 + 1e-9) * 100_000_000
        net.links[0].down()
    out = tmp_path / "again"
    command: list[str | Path] = [engine, "run", run.out / "scenario.yaml", "--replay", run.out / "input.jsonl"]
    subprocess.run([*command, "--measure", "100ms", "--out", out, "--quiet"], check=True)
    for kind in KINDS:
        assert (run.out / f"{kind}.csv").read_bytes() == (out / f"{kind}.csv").read_bytes(), kind
    assert so_far == wt.Table({name: run.results.links()[name][: len(so_far)] for name in so_far.columns})


def test_a_measurement_can_begin_in_the_middle() -> None:
    net, h1, h2 = network(measure={"tcp": "100ms"})
    with net.run() as run:
        h2.popen("iperf3 -s -1")
        h1.popen("iperf3 -c h2 -t 2")
        with pytest.raises(wt.Error, match="does not measure") as caught:
            run.series("links")
        assert caught.value.hint
        run.until("1050ms")
        run.measure("200ms", "links", "qdiscs")
        assert len(run.series("links")) == 0
        for names, fragment in ((("tcp",), "already"), (("flows",), "no series"), (("mptcp", "links"), "already")):
            with pytest.raises(wt.Error, match=fragment):
                run.measure("1s", *names)
        with pytest.raises(wt.Error, match="at least 1000 ns"):
            run.measure("1ns", "mptcp")
        run.until("2s")
        links = run.series("links").where(**{"from": "h1:eth0"})
        assert links["time_ns"] == [1_250_000_000, 1_450_000_000, 1_650_000_000, 1_850_000_000]
        # The link carries 20 Mb/s, and what it carried before is not counted: it had a second's worth.
        assert all(18_000_000 < rate <= 20_000_000 for rate in links["throughput_bps"])
    assert run.digest == transfer(False).digest
    assert not (run.out / "mptcp.csv").exists() and not (run.out / "flows.csv").exists()


def test_a_run_that_has_come_to_its_end_can_still_be_asked() -> None:
    net, h1, h2 = network()
    with net.run(measure="100ms", stop="1s") as run:
        h2.popen("iperf3 -s -1")
        h1.popen("iperf3 -c h2 -t 2")
        run.until("1s")
        run.go("1s")
        assert run.why == "end"
        assert len(run.tcp()) > 0 and max(run.series("links")["time_ns"]) == 1_000_000_000


def test_a_plot_can_be_drawn_while_the_run_goes_on(study_python: Path, tmp_path: Path) -> None:
    script = """
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import windtunnel as wt
net = wt.Network(seed=3)
h1, h2 = net.add_node("h1"), net.add_node("h2")
net.add_link(h1, h2, rate="20Mbit", delay="10ms")
with net.run(measure="100ms") as run:
    h2.popen("iperf3 -s -1"); h1.popen("iperf3 -c h2 -t 3")
    figure, ax = plt.subplots()
    for second in (1, 2):
        run.until(second)
        rows = run.series("links").where(**{"from": "h1:eth0"})
        ax.plot([t / 1e9 for t in rows["time_ns"]], rows["throughput_bps"])
        figure.savefig(f"live-{second}.png")
        print(len(rows), run.is_live, len(run.series("tcp").to_pandas()) > 0)
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([study_python, "-c", script], check=True, env=env, stdout=subprocess.PIPE, text=True)
    assert done.stdout == "10 True True\n20 True True\n"
    assert (tmp_path / "live-2.png").stat().st_size > 5000
