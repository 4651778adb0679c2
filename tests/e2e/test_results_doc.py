# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/results.md says what a run leaves: every file, and every column in order, no more and no less."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT
from scenarios import pair
from simulate import Simulation

DOCUMENT = (ROOT / "docs/results.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", DOCUMENT, re.MULTILINE))


def first_column(section: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", SECTIONS[section], re.MULTILINE)


def test_the_files_and_their_columns(run: Callable[..., Simulation]) -> None:
    scenario = pair([{"exec": "ping -c 1 10.0.0.2"}], [], {"rate": "10Mbit", "delay": "5ms"}, stop="9s", measure="1s")
    scenario["run"]["pcapng"] = True
    out = run(scenario).out
    tables = [path.name for path in out.glob("*.csv")]
    assert {f"`{name}`" for name in tables} == {name for name in SECTIONS if name.endswith(".csv`")}
    for name in tables:
        header = (out / name).read_text(encoding="utf-8").splitlines()[0]
        assert first_column(f"`{name}`") == header.split(",")

    def as_documented(path: Path) -> str:
        name = re.sub(r"^h[12]/", "NODE/", str(path.relative_to(out)))
        name = re.sub(r"(?<=NODE/).*(?=\.std)", "NAME-INDEX", name)
        return re.sub(r"^pcap/h[12]-eth0", "pcap/NODE-INTERFACE", name)

    left = {as_documented(path) for path in out.rglob("*") if path.is_file() and not path.is_symlink()}
    # A client, or a script, makes these.
    # Of runs that somebody visits or repeats, and of those with ports.
    assert left | {"input.jsonl", "scenario.yaml", "outside.bin"} == set(first_column("Files"))


def test_the_events(engine: Path) -> None:
    done = subprocess.run([engine, "schema", "events"], check=True, stdout=subprocess.PIPE)
    kinds = [kind["properties"]["event"]["const"] for kind in json.loads(done.stdout)["oneOf"]]
    assert sorted(first_column("`events.jsonl`")) == sorted(kinds)
