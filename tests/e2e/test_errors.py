# SPDX-License-Identifier: GPL-2.0-or-later
"""Bad input gets an error that names place, value and remedy; and what a run has written stays."""

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Program
from scenarios import Mapping, pair, tcp_pair
from tmpfs import on_tmpfs

LINK = {"rate": "1Gbit", "delay": "1ms"}
GOOD = json.dumps(pair([{"exec": "true"}], [], LINK, stop="1s"))
EM_AARCH64 = 183

Attempt = Callable[..., Program]


def check(program: Program, *fragments: str) -> None:
    """It failed as the user's problem (exit code 2), in words that have all of this."""
    assert program.code == 2, program
    for fragment in fragments:
        assert re.search(fragment, program.stderr, re.IGNORECASE), f"no {fragment!r} in:\n{program.stderr}"


def test_good_scenario(attempt: Attempt, tmp_path: Path) -> None:
    """So that the errors below come from what was changed."""
    assert attempt("validate", write(tmp_path, json.loads(GOOD))).code == 0


@pytest.mark.parametrize(
    ("old", "new", "fragments"),
    [
        ('"stop": "1s"', '"stop": "1s", "sed": 4', ("unknown key `sed`", "seed")),
        ('"1Gbit"', '"1000"', ("`1000`", "Mbit")),
        ('"1Gbit"', '"1GB/s"', ("`1GB/s`", "8Gbit")),
        ('"1ms"', '"1"', ("`1`", "ms")),
        ('"h2:eth0"]', '"h3:eth0"]', ("no node `h3`", "h2")),
        ('"10.0.0.2/24"', '"10.0.0.1/24"', ("10.0.0.1", "h1")),
        ('"10.0.0.2/24"', '"10.0.0.2"', ("prefix length is missing", r"10\.0\.0\.2/24")),
        ('"exec": "true"', '"exec": "true | cat"', (r"`\|` means nothing", r"\[sh, -c")),
        ('"version": 1', '"version": 2', ("version `2`",)),
    ],
)
def test_bad_scenarios(attempt: Attempt, tmp_path: Path, old: str, new: str, fragments: tuple[str, ...]) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(GOOD.replace(old, new), encoding="utf-8")
    assert old in GOOD
    check(attempt("validate", file), r"s\.yaml:1:\d+", *fragments)
    check(attempt("run", file, "--out", tmp_path / "out"), *fragments)
    assert not (tmp_path / "out").exists()


def write(folder: Path, scenario: Mapping) -> Path:
    file = folder / "s.yaml"
    file.write_text(json.dumps(scenario), encoding="utf-8")
    return file


def run_program(attempt: Attempt, folder: Path, data: bytes | None) -> Program:
    """Runs /opt/program, with the given contents, on one of two nodes."""
    scenario = pair([{"exec": "/opt/program"}], [], LINK, stop="1s")
    if data is not None:
        (folder / "program").write_bytes(data)
        scenario["nodes"]["h1"]["files"] = {"/opt/program": {"source": "program", "mode": "755"}}
    return attempt("run", write(folder, scenario), "--out", folder / "out")


def test_missing_program(attempt: Attempt, tmp_path: Path) -> None:
    check(run_program(attempt, tmp_path, None), "h1", "/opt/program", "no such file|not found|does not exist")


def test_program_of_another_machine(attempt: Attempt, tmp_path: Path) -> None:
    identification = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 2, EM_AARCH64, 1, 0x400000, 64, 0, 0, 64, 56, 0, 64, 0, 0)
    check(run_program(attempt, tmp_path, identification + header), "h1", "/opt/program", "aarch64|arm64", "x86-64")


def test_script_without_interpreter(attempt: Attempt, tmp_path: Path) -> None:
    result = run_program(attempt, tmp_path, b"#!/no/such/interpreter\necho hello\n")
    check(result, "h1", "/opt/program", "/no/such/interpreter")


def test_missing_working_folder(attempt: Attempt, tmp_path: Path) -> None:
    """A set-up command could make it, so it is missed no earlier than at the start of the program."""
    scenario = pair([{"exec": "true", "cwd": "/no/such/folder"}], [], LINK, stop="1s")
    result = attempt("run", write(tmp_path, scenario), "--out", tmp_path / "out")
    assert result.code == 1, result
    assert "`true` could not be started: No such file or directory (in folder /no/such/folder)" in result.stdout


def test_quiet_tells_what_failed(attempt: Attempt, tmp_path: Path) -> None:
    scenario = pair([{"exec": "false"}], [], LINK, stop="1s")
    result = attempt("run", write(tmp_path, scenario), "--out", tmp_path / "out", "--quiet")
    assert (result.code, result.stdout) == (1, "")
    assert result.stderr == "failed: h1: `false`: expected success, but it exited with 1\n"


def test_quiet_tells_the_cause(attempt: Attempt, tmp_path: Path) -> None:
    scenario = pair([{"exec": "true", "cwd": "/no/such/folder"}], [], LINK, stop="1s")
    result = attempt("run", write(tmp_path, scenario), "--out", tmp_path / "out", "--quiet")
    assert (result.code, result.stdout) == (1, "")
    assert (
        "warning: h1: `true` could not be started: No such file or directory (in folder /no/such/folder)"
        in result.stderr
    )


def test_one_warning_for_one_cause(attempt: Attempt, tmp_path: Path) -> None:
    """Two hundred programs of different names do the same unsupported thing on two nodes."""
    script = (
        "import ctypes, os\nlibc = ctypes.CDLL(None)\nfor i in range(200):\n if os.fork() == 0:\n"
        "  libc.prctl(15, b'program%d' % i)\n  libc.syscall(425, 1, 0)\n  os._exit(0)\n os.wait()\n"
    )
    programs = [{"exec": ["python3", "-c", script]}]
    file = write(tmp_path, pair(programs, programs, LINK, stop="10s"))
    result = attempt("run", file, "--out", tmp_path / "out")
    assert result.code == 0, result
    warnings = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))["warnings"]
    (warning,) = [row for row in warnings if "io_uring_setup" in row["text"]]
    assert (warning["count"], warning["nodes"], len(warning["programs"])) == (400, ["h1", "h2"], 17)
    assert warning["programs"][0] == "program0"
    assert warning["programs"][-1] == "..."
    assert (
        "warning: h1, h2: `program0`, `program1`, `program2`, `program3`, others called io_uring_setup" in result.stdout
    )


def test_setup_that_never_ends(attempt: Attempt, tmp_path: Path) -> None:
    scenario = pair([{"exec": "true"}], [], LINK, stop="1s")
    scenario["nodes"]["h1"]["setup"] = ["true", "tail -f /dev/null"]
    result = attempt("run", write(tmp_path, scenario), "--out", tmp_path / "out")
    check(
        result,
        "node h1: set-up command `tail -f /dev/null` had not ended when the run did, at 1.000000000s",
        "hint:.*processes",
    )
    manifest = json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))
    assert manifest["ended"] == "error"
    assert "tail -f /dev/null" in manifest["error"]


def test_sources_that_are_no_files(attempt: Attempt, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", (1 << 30) + 1)
    for source, fragment in [
        ("/dev/zero", "character device, not a regular file"),
        ("fifo", "FIFO, not a regular file"),
        ("huge", "larger than the 1024 MiB"),
        (".", "is a directory"),
        ("none", "no such file"),
    ]:
        scenario = json.loads(GOOD)
        scenario["nodes"]["h1"]["files"] = {"/etc/x": {"source": source}}
        file = write(tmp_path, scenario)
        check(attempt("run", file, "--out", tmp_path / "out", "--force"), "node h1: file /etc/x", fragment, "hint:")


def test_endless_input_files(attempt: Attempt, tmp_path: Path) -> None:
    file = write(tmp_path, json.loads(GOOD))
    os.mkfifo(tmp_path / "fifo")
    for path in ["/dev/zero", tmp_path / "fifo"]:
        result = attempt("run", file, "--out", tmp_path / "out", "--replay", path)
        check(result, "cannot read", "not a regular file", "hint: name the output folder of a run")
    check(attempt("validate", "/dev/zero"), "cannot read /dev/zero", "larger than the 64 MiB")


def test_seeds_that_are_none(attempt: Attempt, tmp_path: Path) -> None:
    file = write(tmp_path, json.loads(GOOD))
    for seed in ["-1", "1.5", "99999999999999999999", "one"]:
        result = attempt("run", file, "--out", tmp_path / "out", "--seed", seed)
        check(result, f"invalid value '{seed}' for '--seed <N>'", "whole number from 0 to 18446744073709551615")


@pytest.mark.parametrize("again", [False, True], ids=["removed", "replaced"])
def test_results_removed_in_mid_run(engine: Path, tmp_path: Path, again: bool) -> None:
    """The end says so; and nothing is written into a folder that another run made at the same place."""
    file, out = write(tmp_path, tcp_pair(10_000)), tmp_path / "out"
    command: list[str | Path] = [engine, "run", file, "--out", out, "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline_s = time.monotonic() + 60
        while not (out / "h2/iperf3-0.stdout").exists() and time.monotonic() < deadline_s:
            time.sleep(0.05)
        shutil.rmtree(out)
        if again:
            out.mkdir()
            (out / "precious").write_text("mine", encoding="utf-8")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2, stderr
    assert f"error: output folder {out} was removed or replaced while the run was going on" in stderr
    assert "hint: run it again" in stderr
    assert [path.name for path in tmp_path.glob("out/*")] == (["precious"] if again else [])


def test_unknown_kernel(attempt: Attempt, tmp_path: Path) -> None:
    scenario = json.loads(GOOD)
    scenario["defaults"] = {"node": {"kernel": "9.9"}}
    check(attempt("run", write(tmp_path, scenario), "--out", tmp_path / "out"), r"9\.9", r"6\.12")


def test_kernel_not_built(attempt: Attempt, tmp_path: Path) -> None:
    file = write(tmp_path, json.loads(GOOD))
    result = attempt("run", file, "--out", tmp_path / "out", WINDTUNNEL_CACHE=str(tmp_path / "empty"))
    check(result, "kernel 6.12 is not built", "hint: windtunnel kernel build")


def test_output_folder_below_a_file(attempt: Attempt, tmp_path: Path) -> None:
    file = write(tmp_path, json.loads(GOOD))
    check(attempt("run", file, "--out", file / "out"), "not a folder", "hint:")


def test_output_folder_in_use(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/precious").write_text("mine", encoding="utf-8")
    file = write(tmp_path, json.loads(GOOD))
    check(attempt("run", file, "--out", tmp_path / "out"), "not empty", "hint:")
    check(attempt("run", file, "--out", tmp_path / "out", "--force"), "not results of an earlier run")
    assert (tmp_path / "out/precious").read_text(encoding="utf-8") == "mine"


def test_output_folder_not_writable(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    file = write(tmp_path, json.loads(GOOD))
    check(
        attempt("run", file, "--out", tmp_path / "out", prefix=on_tmpfs("ro", tmp_path / "out")),
        "cannot write",
        "hint:",
    )


def captured() -> Mapping:
    """Fills a disk with a capture."""
    scenario = tcp_pair(2)
    scenario["run"]["capture"] = "all"
    return scenario


def talkative() -> Mapping:
    """Fills a disk with what a program says, which must not be told of a disk that is not its own."""
    return pair([{"exec": "dd if=/dev/zero bs=64k count=100", "expect": "any"}], [{"exec": "sleep 3"}], LINK, stop="5s")


@pytest.mark.parametrize(
    ("scenario", "fragment", "program"),
    [(captured(), "disk full", "iperf3"), (talkative(), r"h1/dd-0\.stdout: no space left", "dd")],
    ids=["capture", "output"],
)
def test_disk_full_in_mid_run(attempt: Attempt, tmp_path: Path, scenario: Mapping, fragment: str, program: str) -> None:
    (tmp_path / "out").mkdir()
    file = write(tmp_path, scenario)
    prefix = on_tmpfs("size=1m", tmp_path / "out")
    result = attempt("run", file, "--out", tmp_path / "out", "--quiet", prefix=prefix)
    check(result, fragment, "kept", "hint:.*free some space")
    manifest = json.loads(result.stdout)
    assert manifest["ended"] == "error"
    assert re.search(fragment, manifest["error"], re.IGNORECASE)
    # What is known besides still found its place.
    assert program in {Path(row["path"]).name for row in manifest["programs"]}


def test_host_without_syscall_user_dispatch(attempt: Attempt, tmp_path: Path) -> None:
    """A seccomp filter refuses the prctl, as a kernel before 5.11 does."""
    source = Path(__file__).with_name("without_dispatch.c")
    subprocess.run(["cc", "-o", tmp_path / "without_dispatch", source], check=True)
    file = write(tmp_path, json.loads(GOOD))
    result = attempt("run", file, "--out", tmp_path / "out", prefix=[tmp_path / "without_dispatch"])
    check(result, "syscall user dispatch", r"5\.11", "hint:")
    report = attempt("doctor", prefix=[tmp_path / "without_dispatch"])
    assert report.code != 0
    assert re.search("syscall user dispatch", report.stdout + report.stderr, re.IGNORECASE)


def test_address_space_limit(attempt: Attempt, tmp_path: Path) -> None:
    file = write(tmp_path, json.loads(GOOD))
    result = attempt("run", file, "--out", tmp_path / "out", prefix=["prlimit", f"--as={1 << 30}"])
    check(result, "address space", "ulimit -v|RLIMIT_AS", "hint:")


def test_interrupt_keeps_the_results(engine: Path, tmp_path: Path) -> None:
    """Ctrl-C ends a long run soon, with exit code 130 and a summary of what there was."""
    scenario = tcp_pair(10_000)
    scenario["nodes"]["h1"]["processes"].append({"exec": "ping -c 1 10.0.0.2", "start": "1s"})
    file = write(tmp_path, scenario)
    answered = tmp_path / "out/h1/ping-1.stdout"
    with subprocess.Popen([engine, "run", file, "--out", tmp_path / "out", "--quiet"]) as process:
        deadline_s = time.monotonic() + 60
        while not (answered.exists() and answered.stat().st_size) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    assert summary["ended"] == "interrupted"
    assert 0 < summary["virtual_time_ns"] < 10_000 * 10**9
    assert summary["links"][0]["a_to_b"]["frames"] > 0
