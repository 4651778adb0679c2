# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures of papers, small and quick: what they leave, and that it reads as physics."""

import csv
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from test_platform_host import why_not

PATIENCE_S = 300


def make(python: Path, name: str, out: Path) -> str:
    """Runs figures/NAME.py; what it printed."""
    done = subprocess.run(
        [python, ROOT / "figures" / f"{name}.py", "--quick", "--workers", "1", "--out", out],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def mean(table: list[dict[str, str]], value: str, **point: object) -> float:
    """Of a sweep's table."""
    wanted = {"value": value, **{name: str(chosen) for name, chosen in point.items()}}
    [row] = [row for row in table if wanted.items() <= row.items()]
    return float(row["mean"])


def complete(out: Path, name: str) -> None:
    """The page is there, and all that it shows."""
    page = (out / f"{name}.md").read_text(encoding="utf-8")
    for piece in page.split("](")[1:]:
        target = piece.partition(")")[0]
        # Other pages of the documentation are not made here; `make docs` looks for them.
        assert target.startswith("../") or (out / target).stat().st_size > 0
    assert " nan " not in page


def test_loss_takes_goodput_but_from_bbr(study_python: Path, tmp_path: Path) -> None:
    make(study_python, "goodput_loss", tmp_path)
    complete(tmp_path, "goodput-loss")
    table = rows(tmp_path / "goodput-loss.csv")
    for algorithm in ("reno", "cubic"):
        none, some, much = (
            mean(table, "goodput_bps", loss_percent=loss, congestion_control=algorithm) for loss in (0, 1, 5)
        )
        # The link's rate; then about MSS / RTT * sqrt(1.5 / p) (Mathis et al. 1997), which is 0.7 Mb/s for 1 %.
        assert 1.8e6 < none < 1.9e6
        assert 0.4e6 < some < 1.0e6
        assert 0.15e6 < much < 0.4e6
    assert mean(table, "goodput_bps", loss_percent=5, congestion_control="bbr") > 1.5e6


def test_mptcp_carries_more_than_either_path(study_python: Path, tmp_path: Path) -> None:
    make(study_python, "mptcp_buffers", tmp_path)
    complete(tmp_path, "mptcp-buffers")
    table = rows(tmp_path / "mptcp-buffers.csv")
    both, wifi, lte = (mean(table, "goodput_bps", buffer_kB=200, path=path) for path in ("mptcp", "wifi", "lte"))
    assert 1.1 * wifi < both < wifi + lte
    assert 1.8e6 < wifi < 1.9e6 and 0.9e6 < lte < 1.1e6


def test_marking_keeps_queues_short(study_python: Path, tmp_path: Path) -> None:
    make(study_python, "datacenter", tmp_path)
    complete(tmp_path, "datacenter")
    table = rows(tmp_path / "datacenter.csv")
    for value in ("queue_p99", "short_p99_ms"):
        marked, dropped = (mean(table, value, load=0.6, congestion_control=one) for one in ("dctcp", "cubic"))
        assert marked < dropped / 2, value


def test_a_chain_loses_nothing(study_python: Path, tmp_path: Path) -> None:
    make(study_python, "chain", tmp_path)
    complete(tmp_path, "dce-3-4-chain")
    complete(tmp_path, "dce-5-time")
    ours = [row for row in rows(tmp_path / "dce-3-4-chain.csv") if row["system"] == "Windtunnel"]
    assert [row["nodes"] for row in ours] == ["2", "4"]
    # 100 Mb/s of 1470-byte datagrams for two seconds.
    assert {row["sent"] for row in ours} == {row["received"] for row in ours} and 16_990 < int(ours[0]["sent"]) < 17_010


def test_what_nodes_report_is_the_network(study_python: Path, tmp_path: Path) -> None:
    make(study_python, "core_chain", tmp_path)
    complete(tmp_path, "core-chain")
    measured = {
        (row["measurement"], row["quantity"], row["hops"]): float(row["value"])
        for row in rows(tmp_path / "core-chain.csv")
        if row["mss_bytes"] in ("", "1460")
    }
    # 98 bytes of a ping's frame and 24 of preamble, check sum and gap, at 1 Gb/s, and 10 us: each way, at each hop.
    for hops in (1, 3):
        assert measured["ping", "rtt_mean_ms", str(hops)] == pytest.approx(2 * hops * 0.0109, abs=0.002)
        assert 0.9e9 < measured["iperf3", "goodput_bps", str(hops)] < 0.95e9


def test_a_chain_keeps_up_with_the_wall_clock(study_python: Path, tmp_path: Path) -> None:
    make(study_python, "core_realtime", tmp_path)
    complete(tmp_path, "core-realtime")
    [row] = rows(tmp_path / "core-realtime.csv")
    # How much is the machine's, and what else it does.
    assert float(row["datagrams_per_s"]) > 1000
    assert row["digest_of_virtual_time"] == "True"
    assert 0.9 < float(row["goodput_bps"]) / (int(row["link_mbps"]) * 1e6) < 0.95


def test_the_hosts_kernel_does_what_virtual_time_says(study_python: Path, tmp_path: Path) -> None:
    if reason := why_not([]):
        pytest.skip(reason)
    make(study_python, "nsc_validation", tmp_path)
    complete(tmp_path, "nsc-validation")
    virtual, host = rows(tmp_path / "nsc-validation.csv")
    # 42 ms there and back, and what frames take at 2 Mb/s.
    assert float(virtual["connection_ms"]) == pytest.approx(42.8, abs=0.2)
    # A busy machine may be late by some, never early.
    assert 42.5 < float(host["connection_ms"]) < 80
    for row in (virtual, host):
        assert 1.5e6 < float(row["goodput_bps"]) < 1.883e6
        assert int(row["retransmissions"]) > 5, "slow start ends in a queue of ten"
    assert int(virtual["identical_prefix_packets"]) >= 2


def test_one_experiment_has_one_digest_in_all_environments(study_python: Path, tmp_path: Path) -> None:
    make(study_python, "digests", tmp_path)
    complete(tmp_path, "dce-table-3")
    table = rows(tmp_path / "dce-table-3.csv")
    for example in ("01-ping", "03-tcp", "10-mptcp"):
        found = [row for row in table if row["example"] == example]
        assert len(found) >= 6, "environments that need nothing of the host"
        assert len({(row["digest"], row["goodput_mbps"]) for row in found}) == 1, example
