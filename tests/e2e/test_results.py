# SPDX-License-Identifier: GPL-2.0-or-later
"""Results as Python loads them: tables with their types, for any library; clear words where something is missing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import windtunnel as wt

ROOT = Path(__file__).resolve().parent.parent.parent
BIG = 2**64 - 1
COLUMNS: dict[str, list[Any]] = {
    "time_ns": [1, 2, 9_007_199_254_740_993],
    "node": ["1", "2", "3"],
    "srtt_ns": [None, 5, 6],
    "share": [0.5, None, 1.0],
    "is_up": [True, False, True],
    "most": [0, 1, BIG],
    "nothing": [None, None, None],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a run leaves, at the least."""
    (tmp_path / "manifest.json").write_text(json.dumps({"generator": "windtunnel", "ended": "stop"}))
    return tmp_path


def test_a_table_comes_back_as_it_was_written(folder: Path) -> None:
    wt.Table(COLUMNS).write_csv(folder / "tcp.csv")
    first = (folder / "tcp.csv").read_text(encoding="utf-8").splitlines()[:2]
    assert first == ["time_ns,node,srtt_ns,share,is_up,most,nothing", "1,1,,0.5,true,0,"]
    table = wt.Results(folder).tcp()
    assert table == wt.Table(COLUMNS)
    assert [type(value) for value in table.rows()[1].values()] == [int, str, int, type(None), bool, int, type(None)]
    assert len(table) == 3 and table.columns == list(COLUMNS) and "node" in table and "other" not in table


def test_rows_are_chosen_and_grouped() -> None:
    table = wt.Table({"from": ["a", "b", "a"], "frames": [1, 2, 3]}, "links.csv")
    assert table.where(**{"from": "a"})["frames"] == [1, 3]
    assert table.filter(lambda row: row["frames"] > 1)["from"] == ["b", "a"]
    assert {key: part["frames"] for key, part in table.by("from").items()} == {("a",): [1, 3], ("b",): [2]}
    assert len(table.where(frames=7)) == 0 and table.where(frames=7).columns == ["from", "frames"]
    with pytest.raises(wt.Error, match=r"links\.csv has no column `rate`; it has: from, frames"):
        table["rate"]
    with pytest.raises(wt.Error, match="different lengths: 1, 2"):
        wt.Table({"a": [1], "b": [1, 2]})


LOAD = """
import sys, windtunnel as wt
import pandas, polars, pyarrow, pyarrow.parquet
table = wt.Results(sys.argv[1]).tcp()
names = ["time_ns", "node", "srtt_ns", "share", "is_up", "most", "nothing"]
frame = table.to_pandas()
assert [str(frame[name].dtype) for name in names] == [
    "int64", frame["node"].dtype.name, "Int64", "float64", "bool", "uint64", "Int64"], frame.dtypes
assert frame["time_ns"].tolist() == [1, 2, 9007199254740993] and frame["most"].tolist()[2] == 2**64 - 1
assert frame["srtt_ns"].isna().tolist() == [True, False, False] and frame["node"].tolist() == ["1", "2", "3"]
polar = table.to_polars()
assert polar.schema == dict(zip(names, [polars.Int64, polars.String, polars.Int64, polars.Float64, polars.Boolean,
                                        polars.UInt64, polars.Int64])), polar.schema
assert polar.to_dict(as_series=False) == table.to_dict()
arrow = table.to_arrow()
assert arrow.to_pydict() == table.to_dict() and str(arrow.schema.field("most").type) == "uint64"
assert pyarrow.table(table).to_pydict() == table.to_dict()
path = sys.argv[1] + "/tcp.parquet"
table.write_parquet(path)
assert polars.read_parquet(path).equals(polar)
assert pyarrow.parquet.read_table(path).to_pydict() == table.to_dict()
"""


def test_pandas_polars_and_arrow_take_it_with_its_types(folder: Path, study_python: Path) -> None:
    wt.Table(COLUMNS).write_csv(folder / "tcp.csv")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([study_python, "-c", LOAD, folder], check=True, env=env)


WITHOUT = """
import sys, windtunnel as wt
for name in ("pandas", "polars", "pyarrow"):
    sys.modules[name] = None
for method in ("to_pandas", "to_polars", "to_arrow"):
    try:
        getattr(wt.Table({"a": [1]}), method)()
    except wt.Error as error:
        print(error.hint)
"""


def test_a_library_that_is_missing_is_named(study_python: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([study_python, "-c", WITHOUT], check=True, env=env, stdout=subprocess.PIPE, text=True)
    hints = ["pip install pandas", "pip install 'windtunnel[study]', or polars alone", "pip install pyarrow"]
    assert done.stdout.splitlines() == hints


def test_what_is_missing_or_damaged_is_said(folder: Path) -> None:
    with pytest.raises(wt.Error, match="there is no folder"):
        wt.Results(folder / "none")
    (folder / "other").mkdir()
    with pytest.raises(wt.Error, match=r"has no manifest\.json"):
        wt.Results(folder / "other")
    (folder / "other/manifest.json").write_text('{"generator": "something else"}')
    with pytest.raises(wt.Error, match="no run of windtunnel made"):
        wt.Results(folder / "other")
    results = wt.Results(folder)
    with pytest.raises(wt.Error, match=r"has no links\.csv; tables that it has: none\n.*--measure"):
        results.links()
    with pytest.raises(wt.Error, match=r"has no captures\n.*capture: all"):
        assert results.captures
    with pytest.raises(wt.Error, match=r"has no summary\.json"):
        assert results.summary
    (folder / "links.csv").write_text("time_ns,from\n1,a\n2\n")
    with pytest.raises(wt.Error, match="line 3 has 1 fields, not 2"):
        results.links()
    (folder / "flows.csv").write_text("")
    with pytest.raises(wt.Error, match="no line of names"):
        results.flows()
    (folder / "events.jsonl").write_text('{"time_ns": 1}\n[]\n')
    with pytest.raises(wt.Error, match="line 2 is no JSON object"):
        results.events()
    (folder / "summary.json").write_text("{")
    with pytest.raises(wt.Error, match=r"cannot read .*summary\.json"):
        assert results.summary
    assert results.series == ["flows", "links"]


def test_a_run_gives_its_results(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDTUNNEL_PROGRAM", str(engine))
    net = wt.Network(seed=1, capture="all")
    h1, h2 = net.add_node("h1"), net.add_node("h2")
    net.add_link(h1, h2, rate="10Mbit", delay="5ms")
    with net.run(out=tmp_path / "out", measure="100ms") as run:
        h1.popen("ping -c 3 -i 0.1 h2").wait()
        with pytest.raises(wt.Error, match="the run goes on"):
            assert run.results
    results = run.results
    assert results is run.results and results.path == run.out and results.digest == run.digest
    sent = results.links().where(**{"from": "h1:eth0"})
    assert sum(sent["offered_frames"]) == results.summary["links"][0]["a_to_b"]["frames"]
    assert [path.name for path in results.captures] == ["h1-eth0.pcap", "h2-eth0.pcap"]
    assert results.processes()["command"] == ["ping -c 3 -i 0.1 h2"]
