# SPDX-License-Identifier: GPL-2.0-or-later
"""`windtunnel diff` finds a planted difference of each kind, and names the first."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import image_files as images
import pytest
from conftest import Program
from elsewhere import mounted
from hosts import NEEDS_ROOT
from scenarios import Mapping, pair, tcp_pair

LINK = {"rate": "100Mbit", "delay": "2ms", "jitter": "500us"}
Attempt = Callable[..., Program]
LICENCES = "/usr/share/common-licenses"


def scenario(capture: bool) -> Mapping:
    script = f"echo one; echo two; echo three >&2; cat {LICENCES}/BSD /opt/note > /dev/null; ls {LICENCES} > /dev/null"
    result = pair(
        [{"exec": ["sh", "-c", script]}, {"exec": "ping -c 5 -i 0.2 10.0.0.2"}],
        [{"exec": "sleep 1"}],
        LINK,
        stop="3s",
    )
    result["nodes"]["h1"]["files"] = {"/opt/note": {"source": "note"}}
    result["run"]["capture"] = "all" if capture else "none"
    return result


@pytest.fixture
def runner(attempt: Attempt, tmp_path: Path) -> Callable[..., Path]:
    (tmp_path / "note").write_text("a note\n", encoding="utf-8")

    def run(name: str, scenario: Mapping, *options: str, prefix: Sequence[str] = ()) -> Path:
        file = tmp_path / "s.yaml"
        file.write_text(json.dumps(scenario), encoding="utf-8")
        done = attempt("run", file, "--out", tmp_path / name, "--quiet", *options, prefix=prefix)
        assert done.code in {0, 1}, done
        return tmp_path / name

    return run


@pytest.fixture
def diff(attempt: Attempt) -> Callable[[Path, Path], Mapping]:
    def run(a: Path, b: Path) -> Mapping:
        text, data = attempt("diff", a, b), attempt("diff", a, b, "--json")
        assert text.code == data.code, (text, data)
        result: Mapping = json.loads(data.stdout)
        assert text.code == (0 if result["equal"] else 1), text
        assert len(text.stdout.splitlines()) <= 12
        for kind in ["inputs", "events"]:
            if result[kind]:
                assert f"first different {kind[:-1]}: {result[kind][0]['what']}" in text.stdout
        return result

    return run


Diff = Callable[[Path, Path], Mapping]


def test_equal_runs(runner: Callable[..., Path], diff: Diff, attempt: Attempt) -> None:
    a, b = runner("a", scenario(capture=True)), runner("b", scenario(capture=True))
    assert diff(a, b) == {"equal": True, "inputs": [], "events": []}
    assert attempt("diff", a, b).stdout.startswith("the runs are equal")


def edit(path: Path, change: Callable[[Mapping], object]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def replace(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def manifest(change: Callable[[Mapping], object]) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "manifest.json", change)


def summary(change: Callable[[Mapping], object]) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "summary.json", change)


def of(rows: list[Mapping], path: str) -> Mapping:
    (row,) = [row for row in rows if row["path"] == path]
    return row


INPUTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "version": (manifest(lambda m: m.update(windtunnel_version="9")), "windtunnel_version"),
    "scenario": (manifest(lambda m: m["scenario"].update(sha256="00")), "scenario sha256"),
    "seed": (manifest(lambda m: m.update(seed=99)), "seed"),
    "kernel": (manifest(lambda m: m["kernels"][0].update(sha256="00")), "kernels 6.12"),
    "program": (manifest(lambda m: m["programs"][-1].update(sha256="00")), "programs /"),
    "missing program": (manifest(lambda m: m["programs"].pop()), "programs /"),
    "file": (manifest(lambda m: of(m["files"], f"{LICENCES}/BSD").update(sha256="00")), f"files {LICENCES}/BSD"),
    "missing file": (manifest(lambda m: m["files"].pop()), "files /"),
    "file given": (manifest(lambda m: m["sources"][0].update(sha256="00")), "sources /opt/note of h1"),
    "directory": (manifest(lambda m: of(m["directories"], LICENCES).update(sha256="00")), f"directories {LICENCES}"),
    "root": (manifest(lambda m: m["roots"][0].update(kind="tar", sha256="00")), "roots of h1"),
    "file that changed": (manifest(lambda m: m["changed_files"].append("/x")), "changed_files 1"),
    "what is not known yet": (manifest(lambda m: m.update(charts=[{"path": "x.tar", "sha256": "1"}])), "charts x.tar"),
}

EVENTS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "exit code": (summary(lambda s: s["processes"][1].update(exit=3)), "program", r"h1: `ping .*` ends"),
    "end": (summary(lambda s: s["processes"][1].update(end_ns=5)), "program", r"h1: `ping .*` ends"),
    "start": (summary(lambda s: s["processes"][2].update(start_ns=5)), "program", "h2: `sleep 1` starts"),
    "missing program": (summary(lambda s: s["processes"].pop()), "program", "h2: `sleep 1` is in one run only"),
    "output": (lambda d: replace(d / "h1/sh-0.stdout", b"two", b"tWo"), "output", "line 2 of its output"),
    "error output": (lambda d: replace(d / "h1/sh-0.stderr", b"three", b""), "output", "line 1 of its error output"),
    "kernel log": (lambda d: replace(d / "h2/kernel.log", b"Linux", b"Minix"), "kernel_log", "h2: line 1 of its"),
    "counter": (summary(lambda s: s["links"][0]["a_to_b"].update(frames=0)), "total", "link h1:eth0 -> h2:eth0"),
    "sum": (summary(lambda s: s.update(syscalls=0)), "total", "syscalls"),
    "warning": (
        summary(
            lambda s: s["warnings"].append({"code": "c", "nodes": ["h1"], "programs": [], "text": "t", "count": 1})
        ),
        "warning",
        "a warning",
    ),
    "expectation": (summary(lambda s: s["failed_expectations"].append("x")), "total", "a failed expectation"),
    "ending": (summary(lambda s: s.update(ended="interrupted")), "total", "the end of the run"),
    "digest alone": (summary(lambda s: s.update(digest="00")), "total", "the digest"),
}


def test_planted_differences(runner: Callable[..., Path], diff: Diff, tmp_path: Path) -> None:
    """Each in a copy of one run's results, where nothing else differs."""
    original = runner("a", scenario(capture=False))
    for name, (plant, what) in INPUTS.items():
        copy = Path(shutil.copytree(original, tmp_path / "copy"))
        plant(copy)
        found = diff(original, copy)
        assert found["inputs"][0]["what"].startswith(what), name
        assert (len(found["inputs"]), found["events"]) == (1, []), name
        shutil.rmtree(copy)
    for name, (plant, kind, what) in EVENTS.items():
        copy = Path(shutil.copytree(original, tmp_path / "copy"))
        plant(copy)
        found = diff(original, copy)
        assert (found["inputs"], [row["kind"] for row in found["events"]]) == ([], [kind]), (name, found)
        assert re.search(what, found["events"][0]["what"]), (name, found)
        shutil.rmtree(copy)


def test_a_mark_of_the_trail(runner: Callable[..., Path], diff: Diff, tmp_path: Path) -> None:
    """Frames that no capture shows: the first of an interface's marks that differs, and the one before."""
    original = runner("a", scenario(capture=False))
    trail = json.loads((original / "trail.json").read_text(encoding="utf-8"))
    (number,) = [index for index, row in enumerate(trail["interfaces"]) if row["node"] == "h2"]
    marks = trail["interfaces"][number]["marks"]
    for row in marks[3:]:
        row[2] = f"{int(row[2], 16) ^ 1:016x}"
    trail["interfaces"][number]["digest"] = "0" * 32
    copy = Path(shutil.copytree(original, tmp_path / "b"))
    (copy / "trail.json").write_text(json.dumps(trail), encoding="utf-8")
    (event,) = diff(original, copy)["events"]
    assert (event["kind"], event["from_ns"], event["to_ns"]) == ("interval", marks[3][1], marks[3][1])
    assert event["what"] == f"h2:eth0: frame {marks[3][0]}"
    del trail["interfaces"][number]
    (copy / "trail.json").write_text(json.dumps(trail), encoding="utf-8")
    (event,) = diff(original, copy)["events"]
    assert (event["what"], event["b"]) == ("h2:eth0: the interface", "-")


def test_a_frame_in_captures(runner: Callable[..., Path], diff: Diff, tmp_path: Path) -> None:
    original = runner("a", scenario(capture=True))
    copy = Path(shutil.copytree(original, tmp_path / "b"))
    capture = copy / "pcap/h2-eth0.pcap"
    data = bytearray(capture.read_bytes())
    data[-1] ^= 1
    capture.write_bytes(data)
    (event,) = diff(original, copy)["events"]
    assert event["kind"] == "frame"
    assert event["from_ns"] == event["to_ns"] > 800_000_000
    assert re.fullmatch(r"h2:eth0: frame \d+", event["what"])
    assert "from byte 97 on" in event["a"]
    assert event["a"] != event["b"]
    capture.write_bytes(data[:24])
    (event,) = diff(original, copy)["events"]
    assert (event["what"], event["b"]) == ("h2:eth0: frame 1", "-")


def test_another_seed_without_captures(runner: Callable[..., Path], diff: Diff) -> None:
    """Jitter makes frames arrive at other times; in a short run the trail shows which frame was the first."""
    a, b = runner("a", scenario(capture=False)), runner("b", scenario(capture=False), "--seed", "2")
    without = diff(a, b)
    assert [row["what"] for row in without["inputs"]] == ["seed"]
    exact = diff(runner("c", scenario(capture=True)), runner("d", scenario(capture=True), "--seed", "2"))
    # Kernels may log something else before the first frame differs.
    frames = [[row for row in found["events"] if row["kind"] in {"frame", "interval"}] for found in (without, exact)]
    assert [row["what"] for row in frames[0]] == [row["what"] for row in frames[1]]
    assert [row["from_ns"] for row in frames[0]] == [row["from_ns"] for row in frames[1]]


def test_a_long_run_without_captures(runner: Callable[..., Path], diff: Diff, tmp_path: Path) -> None:
    """A change in mid-run lies between two marks of the trail, and before what differs for certain."""
    changed = tcp_pair(6)
    changed["events"] = [{"at": "3s", "link": ["h1", "h2"], "set": {"delay": "1.5ms"}}]
    a, b = runner("a", tcp_pair(6)), runner("b", changed)
    found = diff(a, b)
    assert found["inputs"][0]["what"] == "scenario sha256"
    first = found["events"][0]
    assert first["kind"] == "interval", found["events"][:3]
    assert first["from_ns"] <= 3_010_000_000
    assert first["to_ns"] >= 3_000_000_000
    assert first["to_ns"] - first["from_ns"] < 200_000_000
    assert (a / "trail.json").stat().st_size < 50_000
    # And with the trail only of one of them there is still the summary.
    (tmp_path / "b/trail.json").unlink()
    assert diff(a, b)["events"]


def test_another_program(runner: Callable[..., Path], diff: Diff, tmp_path: Path) -> None:
    """The same scenario on two hosts whose programs differ in nothing that shows."""
    program = tmp_path / "program"
    given = pair([{"exec": "/opt/program"}], [], LINK, stop="1s")
    given["nodes"]["h1"]["files"] = {"/opt/program": {"source": "program", "mode": "755"}}
    shutil.copy("/bin/true", program)
    a = runner("a", given)
    with program.open("ab") as file:
        file.write(b"x")
    found = diff(a, runner("b", given))
    # Which is also in the list of files that were opened, where manifests have one.
    assert "programs /opt/program" in [row["what"] for row in found["inputs"]]
    assert all("/opt/program" in row["what"] for row in found["inputs"])
    assert found["events"] == []


@NEEDS_ROOT
def test_files_and_directories_of_two_hosts(runner: Callable[..., Path], diff: Diff) -> None:
    """What a program read is named, and when it shows, that too; what nobody looked at is no difference."""
    folder = "/usr/local/share"

    def run(name: str, command: str, *files: str) -> Path:
        given = pair([{"exec": ["sh", "-c", command]}], [], LINK, stop="1s")
        there = [f"mount -t tmpfs none {folder}", *(f"echo {file} > {folder}/{file[0]}" for file in files)]
        return runner(name, given, prefix=mounted(there))

    def rows(found: Mapping) -> tuple[list[str], list[str]]:
        return [row["what"] for row in found["inputs"]], [row["kind"] for row in found["events"]]

    reading = f"cat {folder}/x"
    one = run("one", reading, "x")
    assert rows(diff(one, run("two", reading, "xy"))) == ([f"files {folder}/x"], ["output"])
    assert diff(one, run("three", reading, "x", "y"))["equal"]
    silent = f"cat {folder}/x > /dev/null; ls {folder} > /dev/null"
    four = run("four", silent, "xa")
    assert rows(diff(four, run("five", silent, "xb"))) == ([f"files {folder}/x"], [])
    assert rows(diff(four, run("six", silent, "xa", "y"))) == ([f"directories {folder}"], [])


def test_a_file_that_the_scenario_gives(runner: Callable[..., Path], diff: Diff, tmp_path: Path) -> None:
    """It is an input whether or not a program opens it, in each node that has it."""
    given = pair([{"exec": "cat /opt/note"}], [], LINK, stop="1s")
    for node in ("h1", "h2"):
        given["nodes"][node]["files"] = {"/opt/note": {"source": "note"}}
    given["nodes"]["h2"]["files"]["/opt/other"] = {"source": "other"}
    (tmp_path / "other").write_text("A", encoding="utf-8")
    a = runner("a", given)
    sources = json.loads((a / "manifest.json").read_text(encoding="utf-8"))["sources"]
    hashes = [images.digest(data) for data in (b"a note\n", b"A")]
    assert sources == [
        {"path": "/opt/note", "sha256": hashes[0], "nodes": ["h1", "h2"]},
        {"path": "/opt/other", "sha256": hashes[1], "nodes": ["h2"]},
    ]
    (tmp_path / "other").write_text("B", encoding="utf-8")
    found = diff(a, runner("b", given))
    assert ([row["what"] for row in found["inputs"]], found["events"]) == (["sources /opt/other of h2"], [])
    (tmp_path / "note").write_text("b note\n", encoding="utf-8")
    found = diff(a, runner("c", given))
    assert [row["what"] for row in found["inputs"]] == ["sources /opt/note of h1", "sources /opt/other of h2"]
    assert [row["kind"] for row in found["events"]] == ["output"]


def test_roots(runner: Callable[..., Path], diff: Diff, tmp_path: Path) -> None:
    """An image that was made anew is another input; where it lies is none."""

    def run(name: str, number: int, *more: images.Member) -> Path:
        folder = tmp_path / f"place{number}"
        folder.mkdir()
        layers = [images.tar(images.base()), images.tar([*images.upper(), *more])]
        images.docker_save(folder / "docker.tar", {"web:1": (layers, images.config(layers, {}))})
        images.oci_folder(folder / "oci", images.oci_files(layers, images.config(layers, {}), "web:1"))
        given = pair([{"exec": "cat /data/two", "user": "0"}], [], LINK, stop="1s")
        given["nodes"]["h1"]["root"] = f"{folder.name}/docker.tar"
        given["nodes"]["h2"]["root"] = f"{folder.name}/oci"
        # The same text, from another folder each time.
        text = json.dumps(given).replace(folder.name, "place")
        (tmp_path / "place").unlink(missing_ok=True)
        (tmp_path / "place").symlink_to(folder)
        file: Mapping = json.loads(text)
        return runner(name, file)

    a = run("a", 1)
    manifest_path = run("b", 2) / "manifest.json"
    edit(manifest_path, lambda m: [row.update(path=f"/elsewhere{row['path']}") for row in m["roots"]])
    assert diff(a, manifest_path.parent)["equal"]
    found = diff(a, run("c", 3, images.Member("data/three", b"3")))
    assert ([row["what"] for row in found["inputs"]], found["events"]) == (["roots of h1", "roots of h2"], [])


def test_what_cannot_be_compared(runner: Callable[..., Path], attempt: Attempt, tmp_path: Path) -> None:
    a = runner("a", scenario(capture=False))

    def check(folder: Path, *fragments: str) -> None:
        done = attempt("diff", a, folder)
        assert (done.code, done.stdout) == (2, "")
        for fragment in fragments:
            assert fragment in done.stderr, done.stderr

    check(tmp_path / "none", "does not hold the results of a run", "No such file", "hint:")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/manifest.json").write_text("{}", encoding="utf-8")
    check(tmp_path / "other", "does not hold the results of a run", "not by windtunnel")
    killed = Path(shutil.copytree(a, tmp_path / "killed"))
    edit(killed / "manifest.json", lambda m: m.update(ended=None))
    check(killed, "is not over, or was killed", "hint:")
    edit(killed / "manifest.json", lambda m: m.update(ended="stop"))
    (killed / "summary.json").write_text("{", encoding="utf-8")
    check(killed, "summary.json")
