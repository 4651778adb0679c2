# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that run on and on without a system call: those that wait in loops, and those that compute."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Program
from scenarios import Mapping, scenario

LINK = {"rate": "1Gbit", "delay": "1ms"}
SECOND = 10**9

Attempt = Callable[..., Program]

# What every program of these tests begins with.
HEAD = """
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void nap(long ns) { nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL); }
#define pause() __builtin_ia32_pause()
"""

# A thread waits in a loop for what the main thread does after 3 ms, three times over.
TWO_THREADS = (
    HEAD
    + """
static atomic_int ready, taken, held;
static pthread_spinlock_t lock;
static volatile int work;
static void *waits(void *unused) {
    for (int round = 1; round <= 3; round++) {
        WAIT;
        printf("round %d after %.3f\\n", round, now());
        taken = round;
    }
    return NULL;
}
int main(void) {
    pthread_t thread;
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
    pthread_create(&thread, NULL, waits, NULL);
    for (int round = 1; round <= 3; round++) {
        nap(3000000);
        ready = round;
        while (taken < round)
            pause();
    }
    pthread_join(thread, NULL);
    printf("done after %.3f\\n", now());
    return 0;
}
"""
)

WAITS = {
    "plain": "while (ready < round) ;",
    "pause": "while (ready < round) pause();",
    "xchg": "atomic_exchange(&held, 1); while (atomic_exchange(&held, 1) && ready < round) ;",
    "back_off": "while (ready < round) for (int i = 0; i < 1000; i++) pause();",
    "calls": "while (pthread_spin_lock(&lock), ready < round) pthread_spin_unlock(&lock); pthread_spin_unlock(&lock);",
}

TIMER = (
    HEAD
    + """
static volatile sig_atomic_t alarms;
static void on_alarm(int signo) { alarms++; }
int main(void) {
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 5000}, {0, 5000}}, NULL);
    while (alarms < 4) ;
    printf("four alarms after %.4f\\n", now());
    return 0;
}
"""
)

FOREVER = HEAD + 'int main(void) { puts("for ever"); fflush(stdout); for (;;) ; }'

COUNTS = (
    HEAD
    + """
static volatile int flag;
static volatile unsigned long counter;
static void on_alarm(int signo) { flag = 1; }
__attribute__((noinline)) static void count(void) { while (!flag) counter++; }
int main(void) {
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 250000}}, NULL);
    count();
    printf("the alarm came\\n");
    return 0;
}
"""
)


def compiled(folder: Path, source: str, name: str = "program", optimize: str = "-O1") -> Path:
    (folder / f"{name}.c").write_text(source, encoding="utf-8")
    subprocess.run(["cc", optimize, "-pthread", "-o", folder / name, folder / f"{name}.c"], check=True)
    return folder / name


def alone(program: Path, stop: str = "3s", **run: object) -> Mapping:
    """One node that runs this program."""
    node = {
        "files": {"/opt/program": {"source": str(program), "mode": "755"}},
        "processes": [{"exec": "/opt/program"}],
    }
    return scenario({"h1": node}, [], stop, **run)


class Run:
    """A run and what it left."""

    def __init__(self, attempt: Attempt, folder: Path, mapping: Mapping, **env: str) -> None:
        file = folder / "s.yaml"
        file.write_text(json.dumps(mapping), encoding="utf-8")
        self.out = folder / "out"
        self.program = attempt("run", file, "--out", self.out, "--force", "--quiet", **env)
        self.summary = json.loads((self.out / "summary.json").read_text(encoding="utf-8"))
        self.manifest = json.loads((self.out / "manifest.json").read_text(encoding="utf-8"))

    def stdout(self, name: str = "program-0", node: str = "h1") -> str:
        return (self.out / node / f"{name}.stdout").read_text(encoding="utf-8")

    def warnings(self, code: str) -> list[Mapping]:
        return [warning for warning in self.summary["warnings"] if warning["code"] == code]


def same_whenever_looked(attempt: Attempt, folder: Path, mapping: Mapping) -> Run:
    """Runs it with looks at other times, and beside others that take the processor; the results must be equal."""
    first = Run(attempt, folder, mapping)
    assert first.program.code == 0, first.program
    assert "not_deterministic" not in first.manifest
    assert not first.warnings("preempted_by_clock")
    load = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(3)]
    try:
        for look_us in ("", "700", "31000"):
            again = Run(attempt, folder, mapping, WINDTUNNEL_LOOK_US=look_us)
            assert again.summary == first.summary, f"looks every {look_us or '?'} us"
    finally:
        for process in load:
            process.kill()
            process.wait()
    return first


@pytest.mark.parametrize("how", WAITS)
def test_a_thread_waits_in_a_loop_for_another(attempt: Attempt, tmp_path: Path, how: str) -> None:
    program = compiled(tmp_path, TWO_THREADS.replace("WAIT;", WAITS[how]))
    run = same_whenever_looked(attempt, tmp_path, alone(program))
    lines = run.stdout().splitlines()
    assert [line.split(" after ")[0] for line in lines] == ["round 1", "round 2", "round 3", "done"]
    # A wait of 3 ms takes that long, and at most one more sleep of a spin on each side.
    for number, line in enumerate(lines[:3], 1):
        assert 1 + 0.003 * number <= float(line.split()[-1]) < 1 + 0.006 * number, lines


def test_a_timer_reaches_a_program_that_waits_for_it(attempt: Attempt, tmp_path: Path) -> None:
    run = same_whenever_looked(attempt, tmp_path, alone(compiled(tmp_path, TIMER)))
    after = float(run.stdout().split()[-1])
    assert 1.02 <= after < 1.0205, "a signal ends a spin's sleep"


def test_an_interpreter_waits_in_a_loop(attempt: Attempt, tmp_path: Path) -> None:
    """Python's own loop is one as well, and whoever waits for its end gets tired of that in time."""
    script = """
import subprocess, sys, time
try:
    subprocess.call([sys.executable, "-c", "while True: pass"], timeout=0.1)
except subprocess.TimeoutExpired:
    print(f"{time.monotonic():.2f}")
"""
    node = {"processes": [{"exec": ["/usr/bin/python3", "-c", script]}]}
    run = same_whenever_looked(attempt, tmp_path, scenario({"h1": node}, [], "3s"))
    assert run.stdout("python3-0") == "1.10\n"


GO = """
package main

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

func main() {
	runtime.GOMAXPROCS(2)
	var ready, taken atomic.Int32
	go func() {
		for round := int32(1); round <= 3; round++ {
			for ready.Load() < round {
			}
			taken.Store(round)
		}
	}()
	for round := int32(1); round <= 3; round++ {
		time.Sleep(3 * time.Millisecond)
		ready.Store(round)
		for taken.Load() < round {
		}
	}
	fmt.Println("three rounds")
}
"""


def test_go_waits_in_a_loop(attempt: Attempt, tmp_path: Path) -> None:
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if not go:
        pytest.skip("there is no Go compiler on this host")
    (tmp_path / "spin.go").write_text(GO, encoding="utf-8")
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GO111MODULE": "off", "GOCACHE": str(tmp_path / "cache")}
    subprocess.run([go, "build", "-o", tmp_path / "program", tmp_path / "spin.go"], check=True, env=env, cwd=tmp_path)
    run = same_whenever_looked(attempt, tmp_path, alone(tmp_path / "program"))
    assert run.stdout() == "three rounds\n"


JAVA = """
public class Spin {
    static volatile int ready, taken;
    public static void main(String[] arguments) throws Exception {
        Thread waits = new Thread(() -> {
            for (int round = 1; round <= 3; round++) {
                while (ready < round) Thread.onSpinWait();
                taken = round;
            }
        });
        waits.start();
        for (int round = 1; round <= 3; round++) {
            Thread.sleep(20);
            ready = round;
            while (taken < round) Thread.onSpinWait();
        }
        System.out.println("three rounds");
    }
}
"""


def test_java_waits_in_a_loop(attempt: Attempt, tmp_path: Path) -> None:
    if not shutil.which("javac"):
        pytest.skip("there is no Java compiler on this host")
    (tmp_path / "Spin.java").write_text(JAVA, encoding="utf-8")
    subprocess.run(["javac", "Spin.java"], check=True, cwd=tmp_path)
    files = {f"/srv/{file.name}": {"source": str(file)} for file in tmp_path.glob("*.class")}
    nodes = {
        name: {"files": files, "processes": [{"exec": f"java {options} -cp /srv Spin"}]}
        for name, options in (("interpreted", "-Xint"), ("compiled", ""))
    }
    run = same_whenever_looked(attempt, tmp_path, scenario(nodes, [], "60s"))
    for name in nodes:
        assert run.stdout("java-0", name) == "three rounds\n"


def three(bad: Path | None) -> Mapping:
    """Two nodes that ping each other, and a third one, which may run a bad program, on no network at all."""
    nodes: Mapping = {
        "h1": {"addresses": {"eth0": "10.0.0.1/24"}, "processes": [{"exec": "ping -c 20 -i 0.1 10.0.0.2"}]},
        "h2": {"addresses": {"eth0": "10.0.0.2/24"}, "processes": [{"exec": "ping -c 20 -i 0.1 10.0.0.1"}]},
        # The run is as long either way.
        "bad": {"processes": [{"exec": "sleep 60"}]},
    }
    if bad:
        nodes["bad"] = {
            "files": {"/opt/program": {"source": str(bad), "mode": "755"}},
            "processes": [{"exec": "/opt/program"}],
        }
    links = [{"endpoints": ["h1:eth0", "h2:eth0"], "both": LINK}]
    return scenario(nodes, links, "3s", capture="all")


@pytest.mark.parametrize("source", [FOREVER, COUNTS.replace("250000", "2500000")], ids=["spins", "computes"])
def test_a_bad_program_harms_only_itself(attempt: Attempt, tmp_path: Path, source: str) -> None:
    """Frames and outputs of the others are those of a run without it."""
    kept = {}
    for bad in (None, compiled(tmp_path, source)):
        run = Run(attempt, tmp_path, three(bad), WINDTUNNEL_WATCHDOG_S="1")
        assert run.program.code == 0, run.program
        files = [*sorted(run.out.glob("h?/ping-0.stdout")), *sorted(run.out.glob("pcap/h?-*.pcap"))]
        kept[bad] = {file.name + file.parent.name: file.read_bytes() for file in files}
        assert len(files) == 4
    without, beside = kept.values()
    assert without == beside


def test_a_program_that_computes_makes_way_by_the_clock(attempt: Attempt, tmp_path: Path) -> None:
    run = Run(attempt, tmp_path, alone(compiled(tmp_path, COUNTS)), WINDTUNNEL_WATCHDOG_S="1")
    assert run.program.code == 0, run.program
    assert run.stdout() == "the alarm came\n"
    (warning,) = run.warnings("preempted_by_clock")
    text = (
        r"`program` \(pid \d+\) computed for 1 s of CPU time without a system call in count\+0x\w+ \(/opt/program\+0x"
    )
    assert re.match(text, warning["text"]), warning
    # 250 ms in slices of 100 ms.
    assert warning["count"] == 3
    (mark,) = run.manifest["not_deterministic"]
    assert mark.startswith("node h1: `program` (pid ") and mark.endswith("(times: 3)")


def test_a_program_that_computes_is_ended(attempt: Attempt, tmp_path: Path) -> None:
    """With `spin` it is its own end only: the run goes on."""
    program = compiled(tmp_path, COUNTS)
    mapping = alone(program, preempt="spin")
    mapping["nodes"]["h1"]["processes"][0]["expect"] = {"signal": "KILL"}
    mapping["nodes"]["h1"]["processes"].append({"exec": "echo I live", "start": "2s"})
    run = Run(attempt, tmp_path, mapping, WINDTUNNEL_WATCHDOG_S="1")
    assert run.program.code == 0, run.program
    assert run.stdout("echo-1") == "I live\n"
    assert run.summary["processes"][0]["signal"] == signal.SIGKILL
    (warning,) = run.warnings("computed_too_long")
    for fragment in (
        r"^`program` \(pid \d+\) was ended at 0\.\d+s: it computed for 1 s of CPU time without a system call in count",
        r"\n  rip [0-9a-f]{16}  rsp ",
        r"\n  #0 count\+0x\w+ \(/opt/program\+0x\w+\)\n  #1 main\+0x",
        "hint: with `preempt: auto`",
    ):
        assert re.search(fragment, warning["text"]), f"no {fragment!r} in:\n{warning['text']}"
    assert len(run.manifest["not_deterministic"]) == 1


def test_spins_are_found_without_the_clock_too(attempt: Attempt, tmp_path: Path) -> None:
    """`spin` has nothing against loops that wait."""
    run = Run(attempt, tmp_path, alone(compiled(tmp_path, FOREVER), preempt="spin"), WINDTUNNEL_WATCHDOG_S="1")
    assert (run.program.code, run.summary["ended"], run.summary["warnings"]) == (0, "stop", [])


@pytest.mark.parametrize("preempt", ["auto", "off"])
@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_whatever_computes(engine: Path, tmp_path: Path, preempt: str, signo: int) -> None:
    mapping = alone(compiled(tmp_path, COUNTS.replace("250000", "0")), stop="60s", preempt=preempt)
    file = tmp_path / "s.yaml"
    file.write_text(json.dumps(mapping), encoding="utf-8")
    out = tmp_path / "out"
    with subprocess.Popen([engine, "run", file, "--out", out, "--quiet"], stderr=subprocess.PIPE) as process:
        time.sleep(3)
        assert process.poll() is None
        asked = time.monotonic()
        process.send_signal(signo)
        code = process.wait(timeout=30)
        took_s = time.monotonic() - asked
    assert code == 128 + signo
    assert took_s < 2, f"it took {took_s:.1f} s"
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["ended"] == "interrupted"


BUSY = (
    HEAD
    + """
#include <fenv.h>
#include <math.h>
/* Computes with all kinds of registers, and says what came out. */
int main(void) {
    double sum = 0;
    unsigned long hash = 1469598103934665603UL;
    long double precise = 0;
    fesetround(FE_UPWARD);
    for (int i = 1; i < 3000000; i++) {
        sum += sqrt(i) / 3;
        precise += 1.0L / i;
        hash = (hash ^ i) * 1099511628211UL;
        if (i % 500000 == 0)
            printf("%.17g %.20Lg %lx %d %.6f\\n", sum, precise, hash, fegetround(), now());
    }
    return 0;
}
"""
)


def test_a_look_changes_nothing(attempt: Attempt, tmp_path: Path) -> None:
    """Programs that are looked at every millisecond compute and call as if nobody had looked."""
    (tmp_path / "busy.c").write_text(BUSY, encoding="utf-8")
    subprocess.run(["cc", "-O2", "-o", tmp_path / "busy", tmp_path / "busy.c", "-lm"], check=True)
    script = "import hashlib, json; print(hashlib.sha256(b'x' * 10**6).hexdigest(), len(json.dumps([*range(10**5)])))"
    node = {
        "files": {"/opt/busy": {"source": str(tmp_path / "busy"), "mode": "755"}},
        "processes": [
            {"exec": "/opt/busy"},
            {"exec": ["python3", "-c", script]},
            {"exec": ["sh", "-c", "for i in 1 2 3 4 5; do date +%N; done | sort"]},
        ],
    }
    mapping = scenario({"h1": node}, [], "5s")
    first = Run(attempt, tmp_path, mapping)
    assert first.program.code == 0, first.program
    for look_us in ("1000", "300"):
        again = Run(attempt, tmp_path, mapping, WINDTUNNEL_LOOK_US=look_us)
        assert again.summary == first.summary, f"looks every {look_us} us"
