"""`windtunnel run --platform host`: the same scenario in namespaces of the host's kernel."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from image_files import APPLETS, BUSYBOX

ROOT = Path(__file__).resolve().parent.parent.parent
ENGINE = ROOT / "target" / "release" / "windtunnel"
PING = """
version: 1
name: ping
run: {stop: 20s, capture: all}
nodes:
  h1:
    addresses: {eth0: 10.0.0.1/24}
    processes:
      - exec: ping -c 4 -i 0.3 h2
        start: 100ms
        expect: {exit: EXIT, stdout: {contains: 4 received}}
  h2: {addresses: {eth0: 10.0.0.2/24}}
links:
  - endpoints: ["h1:eth0", "h2:eth0"]
    both: {rate: 1Gbit, delay: 5ms}
"""


def why_not(prefix: list[str]) -> str | None:
    """Why this host cannot do it, if it cannot."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun cannot be opened"
    user = [] if os.geteuid() == 0 and not prefix else ["--user", "--map-root-user"]
    unshare = ["unshare", *user, "--net", "--mount", "--pid", "--fork", "true"]
    made = subprocess.run([*prefix, *unshare], capture_output=True, check=False)
    return None if made.returncode == 0 else f"namespaces are refused: {made.stderr.decode().strip()}"


def start(tmp_path: Path, text: str, *options: str, prefix: list[str] | None = None) -> subprocess.Popen[str]:
    reason = why_not(prefix or [])
    if reason:
        pytest.skip(reason)
    (tmp_path / "net.yaml").write_text(text)
    command = [str(ENGINE), "run", "net.yaml", "--out", "out", "--platform", "host", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen([*(prefix or []), *command], cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)


def finish(run: subprocess.Popen[str], tmp_path: Path, code: int = 0) -> dict[str, Any]:
    out, err = run.communicate(timeout=120)
    assert run.returncode == code, out + err
    summary: dict[str, Any] = json.loads((tmp_path / "out" / "summary.json").read_text())
    return summary


def rtts_ms(tmp_path: Path) -> list[float]:
    text = (tmp_path / "out" / "h1" / "ping-0.stdout").read_text()
    return [float(ms) for ms in re.findall(r"time=([\d.]+) ms", text)]


def test_a_ping_takes_twice_the_delay(tmp_path: Path) -> None:
    summary = finish(start(tmp_path, PING.replace("EXIT", "0")), tmp_path)
    times = rtts_ms(tmp_path)
    # The host may be late, but never early; the best of four is not late by much.
    assert len(times) == 4 and min(times) >= 10.0 and min(times) < 40.0, times
    assert summary["ended"] == "all_done" and summary["digest"] is None
    assert summary["delivery_lateness"]["deliveries"] >= 8
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["platform"]["name"] == "host" and manifest["platform"]["kernel_release"] == os.uname().release
    assert {path.name for path in (tmp_path / "out" / "pcap").iterdir()} == {"h1-eth0.pcap", "h2-eth0.pcap"}
    assert (tmp_path / "out" / "pcap" / "h1-eth0.pcap").stat().st_size > 800
    events = [json.loads(line)["event"] for line in (tmp_path / "out" / "events.jsonl").read_text().splitlines()]
    assert events[0] == "run_started" and events[-1] == "run_ended" and "process_exited" in events


def test_an_expectation_that_fails_is_exit_code_1(tmp_path: Path) -> None:
    summary = finish(start(tmp_path, PING.replace("EXIT", "7")), tmp_path, code=1)
    assert "expected exit code 7" in summary["failed_expectations"][0]


def test_an_ordinary_user_can(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        for folder in [tmp_path, *tmp_path.parents[:2]]:
            folder.chmod(0o777)
        prefix = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
    else:
        prefix = []
    finish(start(tmp_path, PING.replace("EXIT", "0"), prefix=prefix), tmp_path)
    assert min(rtts_ms(tmp_path)) >= 10.0


def test_what_the_host_cannot_do_is_told(tmp_path: Path) -> None:
    text = PING.replace("EXIT", "0").replace("h2: {", "h2: {cpu: {syscall: 1us}, memory: 32MiB, ")
    text = text.replace("stop: 20s", "stop: 20s, epoch: 2026-02-01, output_limit: 1MiB")
    run = start(tmp_path, text)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, out + err
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    told = {warning["code"]: warning["nodes"] for warning in summary["warnings"] if warning["code"] != "late"}
    told.pop("host_read_only", None)
    assert told == {"host_epoch": [], "host_output_limit": [], "host_cpu": ["h2"], "host_memory": ["h2"]}
    assert "`memory` has no effect" in out, "the report has them as well"
    run = start(tmp_path, PING.replace("h2: {", "h2: {sysctls: {kernel.panic: 1}, ").replace("EXIT", "0"), "--force")
    _, err = run.communicate(timeout=60)
    assert run.returncode == 2 and "kernel.panic" in err and "hint:" in err


def test_nodes_have_the_names_that_they_have_in_virtual_time(tmp_path: Path) -> None:
    command = "cat /etc/hostname /etc/hosts /etc/machine-id /etc/resolv.conf"
    text = PING.replace("ping -c 4 -i 0.3 h2", command).replace("4 received", "h2").replace("EXIT", "0")
    finish(start(tmp_path, text), tmp_path)
    run = [str(ENGINE), "run", "net.yaml", "--out", "virtual", "--quiet"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    texts = [(tmp_path / out / "h1" / "cat-0.stdout").read_text() for out in ("out", "virtual")]
    assert texts[0] == texts[1]


def doctor_row(prefix: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        [*prefix, str(ENGINE), "doctor", "--json"], capture_output=True, text=True, check=False, timeout=60
    )
    [row] = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "platform host"]
    return dict(row)


def test_doctor_says_whether_it_works() -> None:
    prefixes = [[], ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]] if os.geteuid() == 0 else [[]]
    for prefix in prefixes:
        row = doctor_row(prefix)
        assert (row["state"] == "ok") == (why_not(prefix) is None), row
        assert row["state"] == "ok" or row["hint"], row
    without_device = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/net && exec "$@"', "sh"]
    if os.geteuid() != 0:
        without_device[1:1] = ["--user", "--map-root-user"]
    reason = why_not([])
    if reason:
        pytest.skip(reason)
    row = doctor_row(without_device)
    assert row["state"] == "limited" and "open /dev/net/tun" in row["detail"], row
    assert "modprobe tun" in row["hint"], row


def test_a_terminal_shows_how_far_it_is(tmp_path: Path) -> None:
    reason = why_not([])
    if reason:
        pytest.skip(reason)
    (tmp_path / "net.yaml").write_text(PING.replace("EXIT", "0").replace("-i 0.3", "-i 1"))
    command = [str(ENGINE), "run", "net.yaml", "--out", "out", "--platform", "host"]
    ours, theirs = pty.openpty()
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=theirs, check=False, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0, shown
    assert re.search(r"\[#+-+\] [1-3]\.\d of 20\.0 s on the host's kernel, \d+ frames", shown), shown


LOOK = (
    "ls / /sub; cat /etc/hostname /top /sub/file; id -u; echo new > /etc/new && cat /etc/new; echo new > /top; cat /top"
)
ROOT_OF_ITS_OWN = f"""
version: 1
name: root
run: {{stop: 20s}}
nodes:
  h1:
    root: a root
    addresses: {{eth0: 10.0.0.1/24}}
    processes:
      - exec: [sh, -c, "{LOOK}"]
        expect: {{exit: 0}}
      - {{exec: ping -c 2 h2, expect: {{exit: 0}}}}
  h2: {{addresses: {{eth0: 10.0.0.2/24}}}}
links:
  - endpoints: ["h1:eth0", "h2:eth0"]
    both: {{rate: 1Gbit, delay: 5ms}}
"""


@pytest.mark.parametrize("ordinary", [False, True])
def test_a_folder_can_be_the_root(tmp_path: Path, ordinary: bool) -> None:
    root = tmp_path / "a root"
    for name in ("bin", "etc", "sub"):
        (root / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin" / "busybox")
    for applet in APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    (root / "top").write_text("at the top\n")
    (root / "sub" / "file").write_text("below\n")
    prefix = []
    if ordinary and os.geteuid() == 0:
        # The folder is root's, who is nobody there.
        for folder in [tmp_path, *tmp_path.parents[:2]]:
            folder.chmod(0o777)
        prefix = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
    finish(start(tmp_path, ROOT_OF_ITS_OWN, prefix=prefix), tmp_path)
    seen = (tmp_path / "out" / "h1" / "sh-0.stdout").read_text()
    # What is nobody's cannot be changed.
    last = "at the top" if prefix else "new"
    top = "/:\nbin\ndev\netc\nproc\nrun\nsub\nsys\ntmp\ntop\n\n/sub:\nfile\n"
    assert seen == f"{top}h1\nat the top\nbelow\n0\nnew\n{last}\n"
    assert not (root / "etc" / "new").exists() and (root / "top").read_text() == "at the top\n"
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [(one["kind"], one["nodes"]) for one in manifest["roots"]] == [("directory", ["h1"]), ("host", ["h2"])]
    if not ordinary:
        run = [str(ENGINE), "run", "net.yaml", "--out", "virtual", "--quiet"]
        subprocess.run(run, cwd=tmp_path, check=True, timeout=120)
        assert (tmp_path / "virtual" / "h1" / "sh-0.stdout").read_text() == seen


def test_what_is_mounted_in_a_root_is_seen(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount something there")
    root = tmp_path / "a root"
    for name in ("bin", "sub"):
        (root / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin" / "busybox")
    sub = root / "sub"
    shell = f'mount -t tmpfs none "{sub}" && echo mounted > "{sub}/file" && exec "$@"'
    text = ROOT_OF_ITS_OWN.replace(LOOK, "x").replace("sh, -c,", "/bin/busybox, cat,").replace('"x"', "/sub/file")
    text = text.replace("ping -c", "/bin/busybox ping -c")
    finish(start(tmp_path, text, prefix=["unshare", "--mount", "sh", "-c", shell, "sh"]), tmp_path)
    assert (tmp_path / "out" / "h1" / "busybox-0.stdout").read_text() == "mounted\n"
    assert not (sub / "file").exists(), "it was mounted for the run only"


def test_a_root_that_cannot_be_is_refused(tmp_path: Path) -> None:
    run = start(tmp_path, ROOT_OF_ITS_OWN)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 2 and "there is nothing of that name" in err and "hint: name a folder" in err
    (tmp_path / "a root").write_text("a tar, say")
    run = start(tmp_path, ROOT_OF_ITS_OWN, "--force")
    _, err = run.communicate(timeout=60)
    assert run.returncode == 2 and "has the image" in err and "hint: name a folder" in err


def test_files_take_no_more_than_the_disk(tmp_path: Path) -> None:
    command = "dd if=/dev/zero of=FILE bs=1M count=3"
    for file in ("/tmp/big", "/usr/big"):
        text = PING.replace("ping -c 4 -i 0.3 h2", command.replace("FILE", file)).replace("EXIT", "1")
        text = text.replace("    addr", "    disk: 2MiB\n    addr").replace(", stdout: {contains: 4 received}", "")
        finish(start(tmp_path, text, "--force"), tmp_path)
        assert "No space left on device" in (tmp_path / "out" / "h1" / "dd-0.stderr").read_text()


def test_the_captures_are_put_together(tmp_path: Path) -> None:
    text = PING.replace("EXIT", "0").replace(", capture: all", "")
    finish(start(tmp_path, text, "--pcapng"), tmp_path)
    assert (tmp_path / "out" / "run.pcapng").stat().st_size > 1600


def test_the_host_is_not_changed(tmp_path: Path) -> None:
    probe = f"/etc/windtunnel-probe-{os.getpid()}"
    command = f'[sh, -c, "echo 4 received > {probe}; cat {probe}"]'
    text = PING.replace("ping -c 4 -i 0.3 h2", command).replace("EXIT", "0")
    finish(start(tmp_path, text), tmp_path)
    assert not Path(probe).exists()


def test_nothing_is_left_after_kill_9(tmp_path: Path) -> None:
    marker = f"{3600 + os.getpid()}.5"
    text = PING.replace("ping -c 4 -i 0.3 h2", f"sleep {marker}").replace("EXIT", "0")

    def left() -> set[str]:
        found = set()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes()
                if marker.encode() in words:
                    found.add(os.readlink(entry / "ns" / "net"))
            except OSError:
                continue
        return found

    def all_namespaces() -> set[str]:
        found = set()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                found.add(os.readlink(entry / "ns" / "net"))
            except OSError:
                continue
        return found

    def until(condition) -> bool:  # type: ignore[no-untyped-def]
        end = time.monotonic() + 30
        while not condition() and time.monotonic() < end:
            time.sleep(0.1)
        return bool(condition())

    run = start(tmp_path, text)
    assert until(left), "the program runs"
    namespaces = left()
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert until(lambda: not left()), "its programs end with it"
    assert until(lambda: not namespaces & all_namespaces()), "nobody is in its namespaces"


def test_three_clocks_agree(engine: Path, tmp_path: Path) -> None:
    reason = why_not([])
    if reason:
        pytest.skip(reason)
    # How closely is the benchmark's to say: here other tests are at work.
    done = subprocess.run(
        [ROOT / "examples/live/31-three-clocks", "--out", tmp_path, "--json", "--bound", "0.2"],
        env={**os.environ, "WINDTUNNEL": str(engine)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    found = json.loads(done.stdout)
    assert list(found["values"]) == ["virtual", "real time", "host's kernel"]
    # 2 Mb/s are 1.883 Mb/s of payload in full segments; 42 ms there and back, and what serialization takes.
    virtual = found["values"]["virtual"]
    assert 1.8 < virtual["goodput, Mb/s"] < 1.883
    assert 42 < virtual["round-trip time (ping, median), ms"] < 44
    # With nothing from outside a run by the wall clock sends what it sends in virtual time, at the same times.
    pair = found["packets"]["real time"]
    assert pair["identical_prefix"] > 2000 and len({pair["identical_prefix"], *(pair[x]["packets"] for x in "ab")}) == 1
    digests = [json.loads((tmp_path / run / "summary.json").read_text())["digest"] for run in ("virtual", "real-time")]
    assert digests[0] == digests[1]
    other = found["packets"]["host's kernel"]
    assert 0.8 < other["b"]["packets"] / other["a"]["packets"] < 1.25
