# SPDX-License-Identifier: GPL-2.0-or-later
"""The clocks of a node: where they start, and what becomes of them when a program sets or slews them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from scenarios import Mapping, pair
from simulate import Simulation

LINK = {"rate": "1Gbit", "delay": "1ms"}
MS_NS = 1_000_000
SECOND_NS = 1_000_000_000
# 2026-01-01T00:00:00Z, where runs begin that do not say otherwise.
EPOCH_S = 1_767_225_600
# A node has been up for a second when virtual time begins (boundary.h, WT_UPTIME_S).
UPTIME_S = 1

# Prints what JSON-able `result` a snippet leaves. slew(ppm) is adjtimex(2) with ADJ_FREQUENCY.
PRELUDE = """
import ctypes, json, time
def slew(ppm):
    timex = (ctypes.c_uint64 * 26)()
    timex[0], timex[2] = 2, ctypes.c_uint64(int(ppm * 65536)).value
    assert ctypes.CDLL(None).adjtimex(timex) == 5
def now(clock):
    return time.clock_gettime_ns(clock)
def sleeps(count, seconds):
    time.sleep(0.001)  # what Python called before counts no more: no quantum ends between two readings
    taken = []
    for _ in range(count):
        start = now(time.CLOCK_MONOTONIC), now(time.CLOCK_MONOTONIC_RAW)
        time.sleep(seconds)
        taken.append((now(time.CLOCK_MONOTONIC) - start[0], now(time.CLOCK_MONOTONIC_RAW) - start[1]))
    return taken
"""


def python(code: str, **more: Any) -> Mapping:
    return {"exec": ["/usr/bin/python3", "-c", f"{PRELUDE}{code}\nprint(json.dumps(result))"], **more}


def test_where_clocks_start(run: Callable[..., Simulation]) -> None:
    code = """
time.sleep(0.001)  # begins a quantum, which the calls below do not use up
result = [now(clock) for clock in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW,
                                   time.CLOCK_BOOTTIME)]
result += [open("/proc/uptime").read().split()[0], now(time.CLOCK_REALTIME) - result[0]]
"""
    simulation = run(pair([python(code, start="2500ms")], [], LINK, stop="5s"))
    real, monotonic, raw, boot, uptime, later = json.loads(simulation.stdout("h1"))
    # Python makes more calls at one instant than a program may without a pause, and sleeps once itself.
    assert later == 0
    asked = real - EPOCH_S * SECOND_NS
    assert 2500 * MS_NS <= asked < 2600 * MS_NS
    assert monotonic == raw == boot == asked + UPTIME_S * SECOND_NS
    assert uptime == f"{monotonic // 10_000_000 / 100:.2f}"


def test_ping_waits_between_packets_in_the_first_second(run: Callable[..., Simulation]) -> None:
    """It takes a clock of no seconds for one that it has not read yet."""
    simulation = run(pair([{"exec": "ping -c 3 -i 0.4 10.0.0.2"}], [], LINK, stop="5s"))
    (ping,) = simulation.summary["processes"]
    assert (ping["start_ns"], ping["exit"]) == (0, 0)
    assert 800 * MS_NS <= ping["end_ns"] < 810 * MS_NS


@pytest.mark.parametrize("ppm", [-400, -100, -0.01, 0.01, 100, 400])
def test_a_slewed_clock_runs_at_its_pace(run: Callable[..., Simulation], ppm: float) -> None:
    """Sleeps are no shorter than asked on the clock they are asked of; the raw clock, like the run, is not slewed.

    As on a real machine the timer's hardware is not slewed either: with a faster clock a sleep is longer by as much.
    """
    count, seconds = 50, 0.1
    result = run(pair([python(f"slew({ppm})\nresult = sleeps({count}, {seconds})")], [], LINK, stop="60s"))
    taken = json.loads(result.stdout("h1"))
    asked_ns, timer_slack_ns = seconds * SECOND_NS, 60_000
    for slewed, raw in taken:
        assert asked_ns <= slewed <= asked_ns * (1 + max(ppm, 0) * 1e-6) + timer_slack_ns
        # The kernel slews tick by tick, by a multiple of the clock's resolution (mult of kernel/arch/wt/kernel/time.c).
        assert abs(raw * (1 + ppm * 1e-6) - slewed) < 4 * MS_NS * abs(ppm) * 1e-6 + asked_ns / (1 << 22) + 1
    (process,) = result.summary["processes"]
    assert process["end_ns"] - process["start_ns"] >= count * seconds * SECOND_NS * (1 - ppm * 1e-6)


def test_setting_the_clock_wakes_who_waits_for_it(run: Callable[..., Simulation]) -> None:
    """A timer of the real time clock goes off when that time is set; those of other clocks do not notice."""
    code = """
import threading
woken = []
def wait(name, clock, at):
    request = (ctypes.c_int64 * 2)(at // 10**9, at % 10**9)
    assert ctypes.CDLL(None).clock_nanosleep(clock, 1, request, None) == 0
    woken.append((name, now(time.CLOCK_MONOTONIC_RAW) - begin))
begin = now(time.CLOCK_MONOTONIC_RAW)
waiters = [
    threading.Thread(target=wait, args=("real", 0, now(time.CLOCK_REALTIME) + 10 * 10**9)),
    threading.Thread(target=wait, args=("monotonic", 1, now(time.CLOCK_MONOTONIC) + 5 * 10**9)),
]
for waiter in waiters:
    waiter.start()
time.sleep(1)
time.clock_settime_ns(time.CLOCK_REALTIME, now(time.CLOCK_REALTIME) + 60 * 10**9)
for waiter in waiters:
    waiter.join()
result = woken
"""
    simulation = run(pair([python(code)], [], LINK, stop="30s"))
    (first, first_ns), (second, second_ns) = json.loads(simulation.stdout("h1"))
    assert (first, second) == ("real", "monotonic")
    assert SECOND_NS <= first_ns < 1.01 * SECOND_NS
    assert 5 * SECOND_NS <= second_ns < 5.01 * SECOND_NS


def test_control_groups_are_there(run: Callable[..., Simulation]) -> None:
    """Names of files that are made at the boot are there later (cgroup2's own were not)."""
    script = "mount -t cgroup2 none /sys/fs/cgroup && cd /sys/fs/cgroup && ls && mkdir a && cat a/cgroup.type"
    listing = run(pair([{"exec": ["sh", "-c", script]}], [], LINK, stop="5s")).stdout("h1").split()
    assert "cgroup.controllers" in listing and "cgroup.procs" in listing
    assert listing[-1] == "domain"
