# SPDX-License-Identifier: GPL-2.0-or-later
"""What is told when a kernel panics."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from conftest import Program
from scenarios import Mapping, pair

LINK = {"rate": "1Gbit", "delay": "1ms"}

Attempt = Callable[..., Program]


def write(folder: Path, scenario: Mapping) -> Path:
    file = folder / "s.yaml"
    file.write_text(json.dumps(scenario), encoding="utf-8")
    return file


def test_a_kernel_panics(attempt: Attempt, tmp_path: Path) -> None:
    """A program asks for it, as on any Linux; the report names node, time and the way to the panic."""
    crash = ["sh", "-c", "sleep 2; echo last words; echo c > /proc/sysrq-trigger"]
    scenario = pair([{"exec": crash}], [{"exec": "ping -c 9 10.0.0.1", "start": "1s"}], LINK, stop="20s", capture="all")
    out = tmp_path / "out"
    result = attempt("run", write(tmp_path, scenario), "--out", out)
    assert result.code == 3, result
    for fragment in (
        r"kernel of node h1 crashed at 2\.\d+s \(seed 1\)",
        "kernel panic: sysrq triggered crash",
        r"in sh \(pid \d+\)",
        r"\bpanic\+0x",
        r"\bksys_write\+0x",
        "Kernel panic - not syncing: sysrq triggered crash",
        "hint: a program of the node asked for it",
    ):
        assert re.search(fragment, result.stderr), f"no {fragment!r} in:\n{result.stderr}"
    # What there was until then is kept.
    assert (out / "h1/sh-0.stdout").read_text(encoding="utf-8") == "last words\n"
    assert "64 bytes from 10.0.0.1" in (out / "h2/ping-0.stdout").read_text(encoding="utf-8")
    assert "sysrq: Trigger a crash" in (out / "h1/kernel.log").read_text(encoding="utf-8")
    assert (out / "pcap/h1-eth0.pcap").stat().st_size > 500
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["ended"] == "crash"
    assert 2 * 10**9 <= summary["virtual_time_ns"] < 3 * 10**9
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["ended"] == "crash"
    assert "sysrq triggered crash" in manifest["error"]
