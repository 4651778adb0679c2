# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of the host whose sockets are a library kernel's, beside the same programs on the host's own kernel."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT
from hosts import Host

PATIENCE_S = 60
# Somebody who may do nothing.
ORDINARY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
# Of the host's end and of the node's.
HOST, NODE = "10.9.0.1", "10.9.0.2"
PAGE = "hello from the host\n" * 500
LARGE_BYTES = 8_000_000
# A server that has one answer, for one client.
SERVE = "import socket; s = socket.create_server({}); print('ready', flush=True); s.accept()[0].sendall({})"
GO_PROGRAM = """
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	answer, err := http.Get(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	body, _ := io.ReadAll(answer.Body)
	fmt.Println(answer.StatusCode, len(body))
}
"""


@dataclass
class Site:
    """A network namespace that stands for the host, with servers in it."""

    name: str
    engine: Path
    folder: Path

    def command(self, *words: str | Path) -> list[str]:
        return ["ip", "netns", "exec", self.name, *map(str, words)]

    def attached(self, *words: str | Path, options: tuple[str, ...] = ()) -> list[str]:
        """The command line that attaches a program."""
        options = options if "--mode" in options else ("--mode", "tap", "--address", f"{NODE}/30", *options)
        return self.command(self.engine, "attach", *options, "--", *words)

    def run(self, command: list[str], stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            input=stdin,
            env={**os.environ, **env},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    def as_ordinary_user(self, host: Host, *words: str) -> list[str]:
        """The command line by which a user without rights calls the program, from `/`."""
        cache = f"WINDTUNNEL_CACHE={host.folder}/cache"
        return self.command("env", "-C", "/", cache, *ORDINARY, host.folder / "windtunnel", *words)

    def attach(self, *words: str | Path, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.attached(*words), stdin, **env)

    def ip(self, *words: str) -> str:
        done = subprocess.run(["ip", "-n", self.name, *words], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def programs(self) -> list[str]:
        """Short names of all that runs in it."""
        pids = subprocess.run(["ip", "netns", "pids", self.name], check=True, stdout=subprocess.PIPE, text=True).stdout
        files = [Path(f"/proc/{pid}/comm") for pid in pids.split()]
        return [file.read_text(encoding="ascii") for file in files if file.exists()]

    def interfaces(self) -> list[str]:
        return re.findall(r"^\d+: ([^:@]+)", self.ip("link"), re.MULTILINE)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen in {PATIENCE_S} s"
        time.sleep(0.05)


@pytest.fixture
def site(engine: Path, tmp_path: Path) -> Iterator[Site]:
    if os.geteuid() != 0:
        pytest.skip("making a network namespace and a TAP interface needs root")
    for tool in ("ip", "curl", "iperf3", "python3"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on this host; scripts/setup-system examples installs it")
    if not Path("/dev/net/tun").exists():
        pytest.skip("this host has no /dev/net/tun")
    name = f"wt-attach-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no network namespace can be made here: {made.stderr.strip()}")
    try:
        site = Site(name, engine, tmp_path)
        site.ip("link", "set", "lo", "up")
        yield site
        assert site.interfaces() == ["lo"], "an interface was left behind"
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.fixture(scope="module")
def of_all(engine: Path, kernel: Path) -> Iterator[Host]:
    """Program and kernel where every user can read them."""
    with tempfile.TemporaryDirectory() as folder:
        yield Host.prepare(Path(folder), engine, kernel)


@pytest.fixture
def page(site: Site) -> Iterator[int]:
    """A web server of the host, which everybody reaches; its port."""
    (site.folder / "page.txt").write_text(PAGE, encoding="ascii")
    (site.folder / "large.bin").write_bytes(bytes(LARGE_BYTES))
    command = site.command("python3", "-u", "-m", "http.server", "8000", "--directory", site.folder)
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    assert "8000" in server.stdout.readline()
    yield 8000
    server.kill()
    server.communicate()


def test_what_a_program_is_on_the_host_it_is_attached(site: Site) -> None:
    script = "pwd; id; hostname; echo $0 $1 $GREETING; cat; cat page; echo to stderr >&2; exit 7"
    (site.folder / "page").write_text("a file of the host\n", encoding="ascii")
    words = ("sh", "-c", script, "zero", "one two")
    done = site.attach(*words, stdin="typed\n", GREETING="grüße")
    plain = site.run(site.command(*words), stdin="typed\n", GREETING="grüße")
    assert (done.returncode, done.stdout) == (7, plain.stdout)
    said, rest = done.stderr.split("\n", 1)
    assert re.fullmatch(
        r"attach: the wire speaks linux-6\.12, not the host's kernel; "
        rf"address {NODE}/30 and fd57:7474:756e:[0-9a-f]+::2/64, "
        rf"the host is {HOST} and fd57:7474:756e:[0-9a-f]+::1 on wt-\d+, mode tap; "
        "what is written reaches the host's files at the end",
        said,
    )
    assert rest == plain.stderr == "to stderr\n"
    kernel = site.attach("uname", "-r").stdout
    assert kernel.startswith("6.12.") and kernel != os.uname().release


def test_the_clock_is_that_of_the_host(site: Site) -> None:
    before = time.time()
    shown = float(site.attach("date", "+%s.%N").stdout)
    assert before - 0.5 < shown < time.time() + 0.5


def test_exit_codes_are_those_of_a_shell(site: Site) -> None:
    assert site.attach("sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
    missing = site.attach("no-such-program")
    assert missing.returncode == 127 and "`no-such-program` is in no folder of PATH" in missing.stderr
    assert site.attach("/etc/passwd").returncode == 126
    assert site.attach("false").returncode == 1


def test_curl_and_python_fetch_what_they_do_on_the_host(site: Site, page: int) -> None:
    fetch = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1]).read().decode())"
    for words in (("curl", "-sS"), ("python3", "-c", fetch)):
        plain = site.run(site.command(*words, f"http://127.0.0.1:{page}/page.txt"))
        done = site.attach(*words, f"http://{HOST}:{page}/page.txt")
        assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
        assert done.stdout == PAGE


def test_a_static_program_is_attached(site: Site, page: int) -> None:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("there is no Go toolchain here")
    (site.folder / "get.go").write_text(GO_PROGRAM, encoding="ascii")
    program = site.folder / "get"
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOCACHE": str(site.folder / "cache")}
    subprocess.run([go, "build", "-o", program, site.folder / "get.go"], check=True, env=env, cwd=site.folder)
    done = site.attach(program, f"http://{HOST}:{page}/page.txt")
    assert (done.returncode, done.stdout) == (0, f"200 {len(PAGE)}\n"), done.stderr


def test_children_by_fork_and_exec_have_the_same_kernel(site: Site, page: int) -> None:
    fetch = f"curl -sS http://{HOST}:{page}/page.txt | md5sum & wait; (uname -r | cut -c1-4)"
    done = site.attach("bash", "-c", fetch)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1] == "6.12" and len(done.stdout.split()[0]) == 32


def test_iperf3_measures_a_stream(site: Site) -> None:
    server = subprocess.Popen(site.command("iperf3", "-s", "-1"), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: ":5201 " in site.run(site.command("ss", "-ltn")).stdout, "iperf3 listening")
        done = site.attach("iperf3", "-c", HOST, "-t", "2", "-J")
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] > 20e6
    finally:
        server.kill()
        server.wait()


def test_what_is_left_in_sockets_is_still_sent(site: Site) -> None:
    """The program ends long before a slow reader has read all that it wrote."""
    bytes_sent = 2_000_000
    read_slowly = (
        "import socket, time; s = socket.create_server(('', 9000)); print('ready', flush=True)\n"
        "c = s.accept()[0]; n = 0\n"
        "while data := c.recv(65536): n += len(data); time.sleep(0.02)\n"
        "print(n)"
    )
    reader = subprocess.Popen(site.command("python3", "-c", read_slowly), stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    write = (
        f"import socket; s = socket.socket(); s.setsockopt(1, 7, 8 << 20); s.connect(('{HOST}', 9000)); "
        f"s.sendall(bytes({bytes_sent}))"
    )
    done = site.attach("python3", "-c", write)
    assert done.returncode == 0, done.stderr
    assert reader.communicate(timeout=PATIENCE_S)[0] == f"{bytes_sent}\n"


def test_sysctls_choose_the_stack(site: Site) -> None:
    name = "net.ipv4.tcp_congestion_control"
    command = site.attached("sysctl", "-n", name, options=("--sysctl", f"{name}=bbr", "--quiet"))
    done = site.run(command)
    assert (done.stdout, done.stderr) == ("bbr\n", "")
    bad = site.run(site.attached("true", options=("--sysctl", "net.no.such=1")))
    assert bad.returncode == 2 and "net.no.such" in bad.stderr


def test_signals_reach_the_program(site: Site) -> None:
    script = (
        "import signal, sys, time\ndef end(number, _):\n    print('got', number, flush=True); sys.exit(number)\n"
        + ("for number in (2, 15, 10): signal.signal(number, end)\nprint('ready', flush=True)\ntime.sleep(60)")
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        process = subprocess.Popen(
            site.attached("python3", "-c", script), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, stdout) == (number, f"got {int(number)}\n"), stderr


def test_a_reader_that_has_seen_enough_ends_it(site: Site) -> None:
    line = " ".join(site.attached("yes", options=("--quiet",))) + " | head -2; echo ${PIPESTATUS[0]}"
    done = site.run(["bash", "-c", line])
    assert done.stdout == f"y\ny\n{128 + signal.SIGPIPE}\n", done.stderr


def test_a_terminal_is_the_programs_own(site: Site) -> None:
    near, far = pty.openpty()
    os.set_blocking(near, False)
    script = "stty size; test -t 0 -a -t 1 -a -t 2 && echo on a terminal; cat"
    subprocess.run(["stty", "rows", "33", "cols", "111"], stdin=far, check=True)
    process = subprocess.Popen(site.attached("sh", "-c", script), stdin=far, stdout=far, stderr=far, cwd=site.folder)
    os.close(far)
    shown = b""

    def read_until(text: bytes) -> None:
        nonlocal shown
        deadline = time.monotonic() + PATIENCE_S
        while text not in shown:
            assert time.monotonic() < deadline, shown
            if select.select([near], [], [], 1)[0]:
                shown += os.read(near, 4096)

    read_until(b"33 111\r\non a terminal\r\n")
    os.write(near, b"typed\r")
    read_until(b"typed\r\ntyped\r\n")
    # The program's terminal makes a signal of it.
    os.write(near, b"\x03")
    assert process.wait(timeout=PATIENCE_S) == 128 + signal.SIGINT
    os.close(near)


def test_a_kernel_of_a_name_is_shared(site: Site) -> None:
    name = f"shared-{os.getpid()}"
    serve = SERVE.format(("127.0.0.1", 7777), b"shared")
    server = subprocess.Popen(
        site.attached("python3", "-c", serve, options=("--name", name)), stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    fetch = "import socket; print(socket.create_connection(('127.0.0.1', 7777)).recv(99).decode())"
    join = site.command(site.engine, "attach", "--name", name, "--", "python3", "-c", fetch)
    done = site.run(join)
    assert (done.returncode, done.stdout) == (0, "shared\n"), done.stderr
    assert f"shares the library kernel `{name}`" in done.stderr
    assert server.wait(timeout=PATIENCE_S) == 0


def test_programs_that_start_at_the_same_time_share_one_kernel(site: Site) -> None:
    name = f"at-once-{os.getpid()}"
    # None ends before all have begun.
    script = "echo ready; read line; ip -brief address show eth0"
    words = ("attach", "--name", name, "--", "sh", "-c", script)
    programs = [
        subprocess.Popen(
            site.command(site.engine, *words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go on\n")
        program.stdin.flush()
    ends = [program.communicate(timeout=PATIENCE_S) for program in programs]
    assert [program.returncode for program in programs] == [0] * 4, ends
    assert len({address for address, _ in ends}) == 1, ends
    assert sum(f"shares the library kernel `{name}`" in said for _, said in ends) == 3, ends
    # The lock is no more than that.
    places = [Path(os.environ.get("XDG_RUNTIME_DIR", "/nowhere"), "windtunnel"), Path(f"/tmp/windtunnel-{os.getuid()}")]
    assert not [found for place in places for found in place.glob(f"*{name}*")]


def test_a_shared_kernel_that_is_killed_is_told_of(site: Site) -> None:
    name = f"killed-{os.getpid()}"
    words = ("attach", "--name", name, "--", "sh", "-c", "echo ready; sleep 60")

    def start() -> subprocess.Popen[str]:
        command = site.command(site.engine, *words)
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        return program

    first, second = start(), start()
    first.kill()
    first.communicate()
    said = second.communicate(timeout=PATIENCE_S)[1]
    assert second.returncode == 2
    assert f"the library kernel `{name}` has ended before this program: process {first.pid}" in said, said
    # The name is free again.
    done = site.run(site.command(site.engine, "attach", "--name", name, "--", "true"))
    assert done.returncode == 0 and "the wire speaks" in done.stderr, done.stderr


def test_a_shared_kernel_outlives_its_first_program(site: Site) -> None:
    name = f"outlived-{os.getpid()}"
    first = subprocess.Popen(
        site.attached("sh", "-c", "echo ready; cat", options=("--name", name)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert first.stdin is not None and first.stdout is not None and first.stderr is not None
    assert first.stdout.readline() == "ready\n"
    join = site.command(site.engine, "attach", "--name", name, "--", "sh", "-c", "echo joined; read line; uname -r")
    second = subprocess.Popen(join, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert second.stdout is not None
    assert second.stdout.readline() == "joined\n"
    first.stdin.close()
    first.stderr.readline()
    assert "stays until its last program ends" in first.stderr.readline()
    assert second.communicate("go on\n", timeout=PATIENCE_S)[0].startswith("6.12.")
    assert first.wait(timeout=PATIENCE_S) == 0


def test_nobody_has_to_wait_for_a_peer_that_does_not_read(site: Site) -> None:
    deaf = (
        "import socket, time; s = socket.create_server(('', 9000)); print('ready', flush=True)\n"
        "c = s.accept(); time.sleep(60)"
    )
    peer = subprocess.Popen(site.command("python3", "-c", deaf), stdout=subprocess.PIPE, text=True)
    assert peer.stdout is not None
    assert peer.stdout.readline() == "ready\n"
    write = (
        f"import socket; s = socket.socket(); s.setsockopt(1, 7, 64 << 20); s.connect(('{HOST}', 9000)); "
        "s.settimeout(1)\ntry: s.sendall(bytes(40_000_000))\nexcept TimeoutError: pass\nprint('over', flush=True)"
    )
    process = subprocess.Popen(
        site.attached("python3", "-c", write), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "over\n"
    began = time.monotonic()
    time.sleep(1)
    assert process.poll() is None, "what was written is still on its way"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE_S) == 0 and time.monotonic() < began + 8
    peer.kill()
    peer.communicate()


def test_writes_reach_the_host_when_the_program_has_ended(site: Site) -> None:
    """In two folders that are alike, one command attached and one on the host: they are alike afterwards."""
    script = """
        echo new > kept; echo more >> linked; echo made > made; mkdir -p a/b/c; echo deep > a/b/c/f; rm gone
        mv d e; rm link; ln -s /etc/passwd link; mv moved moved2; rm -r full; chmod 751 mode; : > trunc
        mkdir times; touch -d 2001-01-01 times/t; rm tofile; mkdir tofile; echo q > tofile/q
        rm -r tofolder; echo f > tofolder
        echo over > temporary; mv temporary replaced; head -c 3000000 /dev/urandom > big; cp -p big copy; rm big
        chmod 700 times; cat untouched; mv log log.1; echo fresh > log
        mv table chair; mkdir table; echo leg > table/leg; mkdir -m 500 closed
        ln untouched name; touch -r back stamp; echo BACK > back; touch -r stamp back; rm stamp
    """
    stamp = {}
    for folder in (site.folder / "attached", site.folder / "host"):
        folder.mkdir()
        for name in (
            "kept",
            "linked",
            "gone",
            "moved",
            "mode",
            "trunc",
            "tofile",
            "replaced",
            "untouched",
            "log",
            "table",
            "back",
        ):
            (folder / name).write_text(f"{name}\n", encoding="ascii")
        for name in ("d", "full", "tofolder"):
            (folder / name).mkdir()
            for part in ("seen", "unseen"):
                (folder / name / part).write_text(part, encoding="ascii")
        (folder / "link").symlink_to("kept")
        os.link(folder / "linked", folder / "linked2")
        stamp[folder.name] = (folder / "untouched").stat()

    def state(folder: Path) -> list[tuple[str, int, str]]:
        def contents(path: Path) -> str:
            if path.is_symlink():
                return os.readlink(path)
            if path.is_dir():
                return ""
            return "random" if path.name == "copy" else path.read_text(encoding="ascii")

        found = [(path, path.lstat()) for path in sorted(folder.rglob("*"))]
        return [(str(path.relative_to(folder)), stat.st_mode, contents(path)) for path, stat in found]

    done = site.run(["env", "-C", f"{site.folder}/attached", *site.attached("sh", "-c", script, options=("--quiet",))])
    plain = site.run(["env", "-C", f"{site.folder}/host", "sh", "-c", script])
    assert (done.stderr, done.stdout, done.returncode) == (plain.stderr, plain.stdout, 0)
    attached = site.folder / "attached"
    assert state(attached) == state(site.folder / "host")
    assert (attached / "copy").stat().st_size == 3_000_000
    assert (attached / "linked2").read_text(encoding="ascii") == "linked\nmore\n"
    assert (attached / "times/t").stat().st_mtime == (site.folder / "host/times/t").stat().st_mtime
    # Another name is nothing that it would have to be written for.
    before, after = stamp["attached"], (attached / "untouched").stat()
    assert (after.st_mtime_ns, after.st_ctime_ns, after.st_ino) == (
        before.st_mtime_ns,
        before.st_ctime_ns,
        before.st_ino,
    )


def test_what_cannot_reach_the_host_is_told(site: Site) -> None:
    (site.folder / "kept").write_text("old\n", encoding="ascii")
    (site.folder / "gone").write_text("old\n", encoding="ascii")
    hosts = Path("/etc/hosts").read_text(encoding="utf-8")
    script = "echo new > kept; rm gone; mkfifo pipe; echo lost >> /etc/hosts; echo ready; read line"
    process = subprocess.Popen(
        site.attached("sh", "-c", script, options=("--quiet",)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=site.folder,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    # Somebody else has been there meanwhile.
    for name in ("kept", "gone"):
        (site.folder / name).write_text("of another\n", encoding="ascii")
    stderr = process.communicate("go on\n", timeout=PATIENCE_S)[1]
    assert process.returncode == 0
    assert (site.folder / "kept").read_text(encoding="ascii") == "new\n"
    assert (site.folder / "gone").read_text(encoding="ascii") == "of another\n"
    assert Path("/etc/hosts").read_text(encoding="utf-8") == hosts
    for text in (
        "kept: it was changed on the host meanwhile; now it is as the program has written it",
        "gone: the program has removed it, and it is left: it was changed on the host meanwhile",
        "pipe: sockets, pipes and devices are not brought to the host",
        "/etc/hosts: it is the node's own, and what was written to it is dropped",
    ):
        assert text in stderr, stderr


def test_a_write_that_the_host_refuses_is_an_error(site: Site) -> None:
    folder = site.folder / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=True)
    try:
        (folder / "kept").write_text("kept\n", encoding="ascii")
        done = site.attach("sh", "-c", f"cd {folder}; head -c 200000 /dev/zero > big; rm kept")
        assert done.returncode == 2
        assert f"{folder}/big could not be brought to the host's files: No space left on device" in done.stderr
        # Nothing is removed where something is missing: it may have been moved.
        assert (folder / "kept").exists()
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_mount_in_the_node_hides_nothing_of_the_host(site: Site) -> None:
    (site.folder / "d").mkdir()
    (site.folder / "d/precious").write_text("precious\n", encoding="ascii")
    script = "cat d/precious; mount -t tmpfs none d; cat d/precious; echo lost > d/made"
    done = site.attach("sh", "-c", script)
    assert done.stdout == "precious\n" and "d: a file system was mounted there" in done.stderr
    assert [path.name for path in (site.folder / "d").iterdir()] == ["precious"]


def test_writes_stay_apart_where_asked(site: Site) -> None:
    (site.folder / "kept").write_text("old\n", encoding="ascii")
    script = "echo new > kept; echo more > made; cat kept made"
    done = site.run(site.attached("sh", "-c", script, options=("--files", "layer")))
    assert done.stdout == "new\nmore\n" and "what is written is dropped at the end" in done.stderr
    assert (site.folder / "kept").read_text(encoding="ascii") == "old\n"
    assert not (site.folder / "made").exists()


def test_results_are_kept_where_asked(site: Site) -> None:
    out = site.folder / "out"
    done = site.run(site.attached("echo", "hello", options=("--out", str(out))))
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert [process["command"] for process in summary["processes"]] == [["echo", "hello"]]
    assert list((out / "pcap").glob("*.pcap"))
    again = site.run(site.attached("true", options=("--out", str(out))))
    assert again.returncode == 2 and "out" in again.stderr


def test_nothing_is_left_behind_after_kill_9(site: Site) -> None:
    process = subprocess.Popen(
        site.attached("sh", "-c", "echo ready; sleep 60"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert len(site.interfaces()) == 2
    process.kill()
    process.communicate()
    wait_until(lambda: site.interfaces() == ["lo"], "the end of the interface")
    assert site.attach("true").returncode == 0


@contextlib.contextmanager
def web_server(inside: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A web server by both versions of IP, at port 8000."""
    command = [*inside, "python3", "-u", "-m", "http.server", "8000", "--bind", "::", "-d", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        assert "8000" in server.stdout.readline()
        yield server
    finally:
        server.kill()


@dataclass
class Beyond:
    """Another machine, which the host has a way to; it knows nothing of the library kernel."""

    name: str
    address: str
    address_v6: str


@pytest.fixture
def beyond(site: Site) -> Iterator[Beyond]:
    if shutil.which("nft") is None:
        pytest.skip("nft is not on this host; scripts/setup-system run installs it")
    name = f"{site.name}-beyond"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        site.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", name)
        site.ip("address", "add", "192.0.2.7/24", "dev", "v0")
        site.ip("link", "set", "v0", "up")
        site.ip("address", "add", "2001:db8::7/64", "dev", "v0", "nodad")
        for address in ("192.0.2.1/24", "2001:db8::1/64"):
            subprocess.run(["ip", "-n", name, "address", "add", address, "dev", "v1", "nodad"], check=True)
        subprocess.run(["ip", "-n", name, "link", "set", "v1", "up"], check=True)
        for address in ("192.0.2.1", "2001:db8::1"):
            site.ip("route", "add", "default", "via", address)
        yield Beyond(name, "192.0.2.1", "2001:db8::1")
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)
        wait_until(lambda: "v0" not in site.interfaces(), "the end of the cable")


def test_what_lies_beyond_is_reached_where_the_host_forwards(site: Site, beyond: Beyond) -> None:
    (site.folder / "page.txt").write_text(PAGE, encoding="ascii")
    # Each version of IP for itself, then both.
    settings = ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding")
    places = (beyond.address, f"[{beyond.address_v6}]")
    with web_server(["ip", "netns", "exec", beyond.name], site.folder) as server:
        for number, (setting, place) in enumerate(zip(settings, places, strict=True)):
            fetch = ("curl", "-sS", "-m", "3", f"http://{place}:8000/page.txt")
            refused = site.attach(*fetch)
            assert refused.returncode != 0 and f"it does not forward (`sysctl -w {setting}=1`" in refused.stderr
            site.run(site.command("sysctl", "-w", f"{setting}=1"))
            done = site.attach(*fetch)
            assert (done.returncode, done.stdout) == (0, PAGE), done.stderr
            hidden = rf"which hides {NODE}{' and fd57:[0-9a-f:]+::2' * number} from what lies beyond \(NAT\)"
            assert re.search(hidden, done.stderr), done.stderr
    # It was the host's addresses that came.
    log = server.communicate()[1]
    assert re.search(r"^::ffff:192\.0\.2\.7 - - ", log, re.MULTILINE), log
    assert re.search(r"^2001:db8::7 - - ", log, re.MULTILINE), log

    def tables() -> str:
        return site.run(site.command("nft", "list", "tables")).stdout

    assert tables() == ""
    process = subprocess.Popen(
        site.attached("sh", "-c", "echo ready; sleep 60"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert "windtunnel-" in tables()
    process.kill()
    process.communicate()
    wait_until(lambda: tables() == "", "the end of the table")


def test_the_host_is_reached_by_ipv6(site: Site) -> None:
    (site.folder / "page.txt").write_text(PAGE, encoding="ascii")
    own = ("--mode", "tap", "--address", f"{NODE}/30", "--address", "fd00:9::2/64")
    with web_server(site.command(), site.folder) as server:
        done = site.run(site.attached("curl", "-sS", "http://[fd00:9::1]:8000/page.txt", options=own))
        assert (done.returncode, done.stdout) == (0, PAGE), done.stderr
        assert f"address {NODE}/30 and fd00:9::2/64, the host is {HOST} and fd00:9::1 on wt-" in done.stderr
    assert "fd00:9::2 - - " in server.communicate()[1]
    # A host without IPv6 is not asked for it.
    site.run(site.command("sysctl", "-w", "net.ipv6.conf.default.disable_ipv6=1"))
    done = site.attach("true")
    assert done.returncode == 0 and f"address {NODE}/30, the host is {HOST} on wt-" in done.stderr
    done = site.run(site.attached("true", options=own))
    assert done.returncode == 2 and "fd00:9::2/64 cannot be reached: this host has no IPv6" in done.stderr


def test_frames_in_udp_join_two_attached_programs(site: Site, of_all: Host) -> None:
    """Of a user who may do nothing."""
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not on this host")
    ends = ("127.0.0.1:7001", "127.0.0.1:7002")

    def end(local: str, peer: str, *words: str) -> list[str]:
        options = ("attach", "--mode", "udp", "--local", local, "--peer", peer, "--")
        return site.as_ordinary_user(of_all, *options, *words)

    serve = SERVE.format(("", 8080), b"over udp")
    server = subprocess.Popen(end(*ends, "python3", "-c", serve), stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    fetch = "import os, socket; print(os.getuid(), socket.create_connection(('10.213.0.1', 8080)).recv(99).decode())"
    done = site.run(end(*reversed(ends), "python3", "-c", fetch))
    assert (done.returncode, done.stdout) == (0, "65534 over udp\n"), done.stderr
    assert server.wait(timeout=PATIENCE_S) == 0


def captured(capture: bytes) -> Iterator[bytes]:
    """The frames of a pcap file of this host's byte order."""
    at = 24
    while at < len(capture):
        length = int.from_bytes(capture[at + 8 : at + 12], "little")
        yield capture[at + 16 : at + 16 + length]
        at += 16 + length


def test_passt_leads_beyond_by_both_versions_of_ip(site: Site, beyond: Beyond) -> None:
    if shutil.which("passt") is None:
        pytest.skip("passt is not on this host; scripts/setup-system test installs it")
    (site.folder / "page.txt").write_text(PAGE, encoding="ascii")
    places = (beyond.address, f"[{beyond.address_v6}]")
    script = "; ".join(f"curl -sS -m 10 http://{place}:8000/page.txt" for place in places)

    def fetch(*options: str) -> subprocess.CompletedProcess[str]:
        return site.run(site.attached("sh", "-c", script, options=("--mode", "host", *options)))

    with web_server(["ip", "netns", "exec", beyond.name], site.folder) as server:
        done = fetch("--out", str(site.folder / "out"))
        assert (done.returncode, done.stdout) == (0, 2 * PAGE), done.stderr
        # passt takes the last source for the node's address, and answers to that.
        (capture,) = (site.folder / "out/pcap").glob("*.pcap")
        frames = captured(capture.read_bytes())
        sources = {frame[22:38] for frame in frames if frame[12:14] == b"\x86\xdd"}
        assert sources and bytes(16) not in sources, sources
        # Only what the host has a way for.
        site.ip("route", "delete", "default")
        done = fetch()
        assert (done.returncode, done.stdout) == (0, PAGE), done.stderr
        assert re.search(r"address fd57:[0-9a-f:]+::2/64, the host's loopback is fd57:[0-9a-f:]+::1,", done.stderr)
    # It was the host's addresses that came.
    log = server.communicate()[1]
    assert "::ffff:192.0.2.7 - - " in log and "2001:db8::7 - - " in log, log


def test_passt_leads_to_the_host(site: Site, page: int) -> None:
    if shutil.which("passt") is None:
        pytest.skip("passt is not on this host; scripts/setup-system test installs it")
    without = site.run(site.attached("true", options=("--mode", "host")))
    assert without.returncode == 2 and "needs a default route" in without.stderr
    site.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
    try:
        site.ip("address", "add", "192.0.2.7/24", "dev", "v0")
        for interface in ("v0", "v1"):
            site.ip("link", "set", interface, "up")
        site.ip("route", "add", "default", "via", "192.0.2.1")
        # Its gateway is the host's loopback.
        options = ("--mode", "host", "--address", f"{NODE}/30")
        done = site.run(site.attached("curl", "-sS", f"http://{HOST}:{page}/page.txt", options=options))
        assert (done.returncode, done.stdout) == (0, PAGE), done.stderr
        assert "the wire speaks this host's own kernel (passt)" in done.stderr
        # More than any window or buffer on the way.
        script = f"import sys, urllib.request as r; print(len(r.urlopen('http://{HOST}:{page}/large.bin').read()))"
        done = site.run(site.attached("python3", "-c", script, options=options))
        assert (done.returncode, done.stdout) == (0, f"{LARGE_BYTES}\n"), done.stderr
        process = subprocess.Popen(
            site.attached("sh", "-c", "echo ready; sleep 60", options=options), stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        process.communicate()
        wait_until(lambda: not any(name.startswith("passt") for name in site.programs()), "the end of passt")
    finally:
        site.ip("link", "delete", "v0")


def test_bad_input_is_told_with_a_remedy(site: Site) -> None:
    for options, text in [
        (("--mode", "udp"), "mode udp needs both ends"),
        (("--mode", "tap", "--peer", "127.0.0.1:1"), "`--peer` is not for mode tap"),
        (("--mode", "tap", "--address", "10.9.0.0/30"), "first or last address"),
        (("--mode", "tap", "--address", "10.9.0.1/30", "--address", "10.8.0.1/30"), "both addresses of IPv4"),
        (("--mode", "tap", "--sysctl", "nothing"), "NAME=VALUE"),
        (("--mode", "tap", "--kernel", "1.0"), "1.0"),
    ]:
        done = site.run(site.attached("true", options=options))
        assert done.returncode == 2 and text in done.stderr, done.stderr
    site.ip("address", "add", f"{HOST}/32", "dev", "lo")
    done = site.attach("true")
    assert done.returncode == 2 and f"the host has the address {HOST} already" in done.stderr
    site.ip("address", "delete", f"{HOST}/32", "dev", "lo")


def test_an_ordinary_user_is_told_what_is_missing(site: Site, of_all: Host) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not on this host")
    done = site.run(site.as_ordinary_user(of_all, "attach", "--mode", "tap", "--", "true"))
    assert done.returncode == 2
    assert "needs CAP_NET_ADMIN" in done.stderr and "--mode host" in done.stderr, done.stderr


def test_an_ordinary_user_may_do_what_they_may_on_the_host(site: Site, of_all: Host) -> None:
    """In a network of their own."""
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not on this host")
    command = site.as_ordinary_user(of_all, "attach", "--quiet", "--", "sh", "-c")
    inside = ["unshare", "--user", "--map-root-user", "--net", "--"]
    at = command.index("setpriv") + len(ORDINARY)
    if site.run([*command[:at], *inside, "true"]).returncode != 0:
        pytest.skip("no user namespace can be made here")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        os.chown(folder, 65534, 65534)
        script = f"cd {folder}; echo made > made; echo no > /etc/not-theirs; ip -brief link show eth0 | cut -c1-4"
        done = site.run([*command[:at], *inside, *command[at:], script])
        # The program is root in its node, so it is the host that refuses, at the end.
        refused = "/etc/not-theirs could not be brought to the host's files: Permission denied"
        assert (done.returncode, done.stdout) == (2, "eth0\n") and refused in done.stderr, done.stderr
        made = folder / "made"
        assert made.read_text(encoding="ascii") == "made\n" and made.stat().st_uid == 65534


def test_the_example_shows_the_same_beside_the_host(engine: Path) -> None:
    allowed = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "true"], check=False, capture_output=True
    )
    if allowed.returncode != 0:
        pytest.skip(f"no user namespace can be made here: {allowed.stderr.decode().strip()}")
    done = subprocess.run(
        [ROOT / "examples/live/27-attach"],
        env={**os.environ, "WINDTUNNEL": str(engine)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    sections = {part.partition(":")[0]: part.splitlines() for part in done.stdout.split("== ")[1:]}
    for name in ("curl", "python", "git"):
        (own, attached) = sections[name][1:]
        assert own and own == attached, name
    assert [line.rpartition(" ")[2] for line in sections["iperf3"][1:]] == ["receiver", "receiver"]
    # What a toolchain or root is needed for says so.
    (heading, *fetched) = sections["go, static"]
    assert [line.split()[:2] for line in fetched] == [["1000", "requests"]] * 2 or "no Go toolchain" in heading
    (heading, *seen) = sections["ssh"]
    assert seen == ["127.0.0.1", "10.9.0.2"] or "left out: " in heading
    assert bool(seen) == (os.geteuid() == 0 and shutil.which("sshd", path="/usr/sbin:/usr/bin") is not None)
    (own, attached) = sections["kernel"][1:]
    assert own == os.uname().release and attached.startswith("6.12.")
