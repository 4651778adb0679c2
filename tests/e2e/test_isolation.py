# SPDX-License-Identifier: GPL-2.0-or-later
"""`--isolate`: a program's stray pointers reach no other node, and nothing else changes."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Program, skip_where_missing
from scenarios import Mapping, scenario
from simulate import simulate

Attempt = Callable[..., Program]
HERE = Path(__file__).parent
LINK = {"rate": "1Gbit", "delay": "1ms"}

# ARCHITECTURE.md, "Address map", and crates/engine/src/layout.rs.
REGIONS = 0x1000_0000_0000
STRIDE = 0x40_0000_0000
PAGE = 4096
B = 1
B_IMAGE = REGIONS + B * STRIDE + B * 37 * PAGE
B_RAM = REGIONS + B * STRIDE + (1 << 30) + B * 61 * PAGE

EXAMPLES = ["01-ping", "05-tools", "15-java", "20-python", "24-postgresql"]


def compiled(folder: Path, name: str, *options: str) -> Path:
    target = folder / "-".join([name, *options])
    if not target.exists():
        subprocess.run(["cc", "-O1", *options, "-o", target, HERE / f"{name}.c"], check=True)
    return target


def kernel_data(kernel: Path) -> range:
    """Offsets of the pages that a kernel writes, in its image: of its only writable segment."""
    image = kernel.read_bytes()
    (headers,) = struct.unpack_from("<Q", image, 32)
    (count,) = struct.unpack_from("<H", image, 56)
    for index in range(count):
        kind, flags, _, start, _, _, size, _ = struct.unpack_from("<IIQQQQQQ", image, headers + 56 * index)
        if kind == 1 and flags & 2:
            return range(start & -PAGE, start + size, PAGE)
    raise AssertionError("a kernel without data")


def three_nodes(folder: Path, targets: list[int], accesses: list[str], victim: Path) -> Mapping:
    """a has the stray pointers; b runs the victim, and it and c talk all the while."""
    listed = folder / "targets"
    listed.write_text("".join(f"{address:x}\n" for address in targets), encoding="ascii")
    files = {
        "/opt/stray": {"source": str(compiled(folder, "stray")), "mode": "755"},
        "/opt/targets": {"source": str(listed)},
    }
    strays = [
        {"exec": f"/opt/stray {how} /opt/targets", "start": f"{2 + number / 10}s"}
        for number, how in enumerate(accesses)
    ]
    nodes: Mapping = {
        "a": {"files": files, "processes": strays},
        "b": {
            "addresses": {"eth0": "10.0.0.1/24"},
            "files": {"/opt/victim": {"source": str(victim), "mode": "755"}},
            "processes": [{"exec": "/opt/victim"}],
        },
        "c": {"addresses": {"eth0": "10.0.0.2/24"}, "processes": [{"exec": "ping -i 0.1 -c 50 10.0.0.1"}]},
    }
    links = [{"endpoints": ["b:eth0", "c:eth0"], "both": LINK}]
    return scenario(nodes, links, "10s", capture="all")


def what_others_see(out: Path) -> dict[str, str]:
    """Everything that a run left of b and c."""
    files = [*out.glob("b/*"), *out.glob("c/*"), *out.glob("pcap/*")]
    return {str(file.relative_to(out)): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}


@pytest.mark.parametrize("linked", ["-pie", "-no-pie"])
def test_stray_writes_are_stopped_and_reported(
    engine: Path, attempt: Attempt, kernel: Path, tmp_path: Path, linked: str
) -> None:
    """500 writes to another node's memory that is there: its kernel's data, its RAM, its programs' memory."""
    victim = compiled(tmp_path, "victim", linked)
    quiet = simulate(engine, three_nodes(tmp_path, [], [], victim), tmp_path / "quiet", [])
    areas = [int(line, 16) for line in quiet.stdout("b").split()]
    assert len(areas) == 4
    # The data of a program with fixed addresses are at low ones, which belong to no node: there while it runs.
    assert [area for area in areas if area < REGIONS] == (areas[:1] if linked == "-no-pie" else [])
    program = [area + PAGE * (1 + number) for area in reversed(areas) for number in range(50)]
    data = [B_IMAGE + offset + 8 for offset in kernel_data(kernel)]
    ram = [B_RAM + 8 * PAGE * number + 64 for number in range(100)]
    targets = program + data[:200] + ram
    assert len(targets) == 500
    mapping = three_nodes(tmp_path, targets, ["w"], victim)

    isolated = simulate(engine, mapping, tmp_path / "isolated", ["--isolate"])
    assert isolated.stdout("a") == "stopped 500 of 500, 500 as on Linux\n"
    assert what_others_see(isolated.out) == what_others_see(quiet.out)
    (warning,) = isolated.summary["warnings"]
    assert (warning["code"], warning["nodes"], warning["programs"]) == ("wild_access", ["a"], ["stray"])
    assert warning["count"] == len([address for address in targets if address >= REGIONS])
    assert re.fullmatch(
        rf"\(pid \d+\) wrote to {targets[0]:#x}, memory of program /opt/victim of node b, at 2(\.0\d*)?s "
        r"in touch\+0x\w+ \(/opt/stray\+0x\w+\): it got SIGSEGV; "
        r"hint: without isolation nobody notices, so look for a stray pointer there",
        warning["text"],
    ), warning["text"]

    # The same without: nothing stops the program, and others see it.
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(mapping), encoding="utf-8")
    attempt("run", file, "--out", tmp_path / "lost")
    assert (tmp_path / "lost/a/stray-0.stdout").read_text(encoding="utf-8") == "stopped 0 of 500, 0 as on Linux\n"
    assert what_others_see(tmp_path / "lost") != what_others_see(quiet.out)


def test_what_a_stray_write_can_have_done_says_how_to_find_out(
    engine: Path, attempt: Attempt, kernel: Path, tmp_path: Path
) -> None:
    """Every word of the first half of a kernel's data is overwritten: it crashes, which looks like a bug of ours."""
    victim = compiled(tmp_path, "victim")
    pages = kernel_data(kernel)
    words = range(B_IMAGE + pages.start, B_IMAGE + pages[len(pages) // 2], 8)
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(three_nodes(tmp_path, list(words), ["w"], victim)), encoding="utf-8")
    lost = attempt("run", file, "--out", tmp_path / "lost")
    assert lost.code == 3, lost
    assert "the kernel of node b crashed at 2" in lost.stderr
    assert re.search(r"hint: this is a bug: .*; or a program .*: run it with `--isolate`, which", lost.stderr), (
        lost.stderr
    )
    found = attempt("run", file, "--out", tmp_path / "found", "--isolate")
    assert found.code == 0, found
    assert "warning: a: `stray` (pid " in found.stdout
    assert f"({len(words)} times)" in found.stdout


def test_reads_and_jumps_are_stopped_too(engine: Path, kernel: Path, tmp_path: Path) -> None:
    """And reported once for each program, with what it did and whose memory it was."""
    victim = compiled(tmp_path, "victim")
    data = [B_IMAGE + offset for offset in kernel_data(kernel)][:3]
    # Where nothing is mapped, and where everybody may read: no other's memory.
    nobodys = [B_RAM - 2 * PAGE, B_IMAGE]
    mapping = three_nodes(tmp_path, data + nobodys[:1], ["r", "j"], victim)
    mapping["run"]["isolate"] = True
    run = simulate(engine, mapping, tmp_path / "run", [])
    assert [run.stdout("a", index) for index in (0, 1)] == ["stopped 4 of 4, 4 as on Linux\n"] * 2
    texts = [warning["text"] for warning in run.summary["warnings"] if warning["code"] == "wild_access"]
    assert [re.sub(r"^\(pid \d+\) (.*), at .*", r"\1", text) for text in texts] == [
        f"{did} {data[0]:#x}, memory of the kernel of node b" for did in ("read", "jumped to")
    ]
    alone = simulate(engine, three_nodes(tmp_path, nobodys, ["r"], victim), tmp_path / "alone", ["--isolate"])
    assert alone.stdout("a") == "stopped 1 of 2, 1 as on Linux\n"
    assert alone.summary["warnings"] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_isolation_changes_no_result(attempt: Attempt, tmp_path: Path, example: str) -> None:
    file = ROOT / "examples" / f"{example}.yaml"
    results: list[dict[str, str]] = []
    for options in ([], ["--isolate"]):
        out = tmp_path / f"out{len(results)}"
        done = attempt("run", file, "--out", out, "--quiet", *options)
        skip_where_missing(done)
        assert done.code == 0, done.stderr
        left = sorted(path for path in out.rglob("*") if path.is_file() and path.name != "manifest.json")
        results.append({str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in left})
    assert results[0] == results[1]
