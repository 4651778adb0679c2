# SPDX-License-Identifier: GPL-2.0-or-later
"""A node whose CPU takes time: what calls and bytes cost is arithmetic, who has to wait for it is Linux's choice."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from scenarios import Mapping, pair, tcp_pair
from simulate import Simulation

LINK = {"rate": "1Gbit", "delay": "1ms"}
SECOND_NS = 1_000_000_000
PYTHON = "/usr/bin/python3"

# Prints what JSON-able `result` a snippet leaves; `now` is none: on Linux the vDSO answers it.
PRELUDE = """
import json, os, resource, socket, time
def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
"""


def python(code: str, **more: Any) -> Mapping:
    return {"exec": [PYTHON, "-c", f"{PRELUDE}{code}\nprint(json.dumps(result))"], **more}


def alone(cpu: Any, *processes: Mapping, stop: str = "30s") -> Mapping:
    """h1 with this CPU and these processes; h2 has nothing to do."""
    scenario = pair(list(processes), [], LINK, stop=stop)
    scenario["nodes"]["h1"]["cpu"] = cpu
    return scenario


def results(simulation: Simulation, node: str = "h1", index: int = 0) -> Any:
    return json.loads(simulation.stdout(node, index))


def test_calls_take_their_time(run: Callable[..., Simulation]) -> None:
    """Between the readings of a clock: N calls, and that of another clock. All of it is system time."""
    calls = 10_000
    code = f"""
start, used = now(), time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID)
for _ in range({calls}):
    os.getppid()
end = now()
usage = resource.getrusage(resource.RUSAGE_SELF)
result = [end - start, time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID) - used, usage.ru_utime, usage.ru_stime,
          time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID)]
"""
    elapsed_ns, used_ns, user_s, system_s, cpu_ns = results(run(alone({"syscall": "300ns"}, python(code))))
    # The clock of the process is a call, and was read a second time after another one.
    assert elapsed_ns == (calls + 1) * 300
    assert used_ns == (calls + 2) * 300
    assert user_s == 0
    assert 0 <= cpu_ns / SECOND_NS - system_s < 2e-6


def test_without_a_model_nothing_takes_time(run: Callable[..., Simulation]) -> None:
    # The sleep begins a quantum: what Python called before counts no more.
    code = "time.sleep(0.001)\nstart = now()\nfor _ in range(20):\n    os.getppid()\nresult = now() - start"
    scenario = alone("instant", python(code))
    scenario["defaults"] = {"node": {"cpu": {"syscall": "1us"}}}
    assert results(run(scenario)) == 0
    del scenario["nodes"]["h1"]["cpu"]
    assert results(run(scenario)) == 20_000


def test_bytes_take_their_time(run: Callable[..., Simulation]) -> None:
    """What is copied into the kernel, and out of it; and parts of a nanosecond add up."""
    code = """
source, sink = os.pipe()
data, room = b"x" * 60_000, bytearray(60_000)
for _ in range(2):  # the second time nothing is allocated
    start = now()
    os.write(sink, data)
    middle = now()
    os.readv(source, [room])
    end = now()
for _ in range(1000):
    os.write(sink, b"x")
result = [middle - start, end - middle, now() - end]
"""
    call = 1_000_000
    found = results(run(alone({"syscall": "1us", "copy": "0.25ns/B"}, python(code))))
    into, out, small = [ns * 1000 - call for ns in found[:2]] + [found[2] * 1000 - 1000 * call]
    assert abs(into - 60_000 * 250) < 1000
    assert abs(out - 60_000 * 250) < 1000
    assert abs(small - 1000 * 250) < 1000


def test_programs_share_the_cpu(run: Callable[..., Simulation]) -> None:
    """Each of two that only work gets half of the CPU, in slices of a tick of 4 ms."""
    code = """
start, gaps, last = now(), 0, 0
for _ in range(50_000):
    os.getppid()
    t = now()
    gaps += last and t - last > 1_000_000
    last = t
result = [start, now(), gaps]
"""
    worker = python(code, start="1s")
    one = results(run(alone({"syscall": "10us"}, worker)))
    assert one[2] == 0
    assert one[1] - one[0] == 500_000_000
    simulation = run(alone({"syscall": "10us"}, worker, worker))
    both = [results(simulation, index=index) for index in (0, 1)]
    for start, end, gaps in both:
        assert 950_000_000 < end - start < 1_010_000_000
        assert 100 < gaps < 130
    assert abs(both[0][1] - both[1][1]) < 20_000_000
    # The whole machine says the same: a second of system time, and idle otherwise.
    stat = run(alone({"syscall": "10us"}, worker, worker, {"exec": "cat /proc/stat", "start": "5s"}))
    user, _, system, idle = [int(word) for word in stat.stdout("h1", 2).split()[1:5]]
    assert user == 0
    assert 95 <= system <= 110
    assert 385 <= idle <= 410


def test_a_receiver_gets_what_it_has_time_for(run: Callable[..., Simulation]) -> None:
    """20,000 datagrams in a second to a receiver with 100 us a call: half is left, and dropped at its socket."""
    sent, cost_ns = 20_000, 100_000
    receiver = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 7))
s.settimeout(None)
s.recv(10)
start, count, end = now(), 1, 0
try:
    while s.recv(10) != b"end":
        count += 1
        end = 0
except OSError:
    pass
udp = open("/proc/net/snmp").read().split("Udp: ")[2].split()
result = [count, now() - start, int(udp[4])]
"""
    sender = f"""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("10.0.0.2", 7))
start = now()
for n in range({sent}):
    s.send(b"datagram")
    while now() < start + (n + 1) * 50_000:
        time.sleep(0.00001)
time.sleep(1)
s.send(b"end")
result = [now() - start]
"""
    scenario = pair([python(sender, start="1s")], [python(receiver)], LINK, stop="10s")
    scenario["nodes"]["h2"]["cpu"] = {"syscall": f"{cost_ns}ns"}
    simulation = run(scenario)
    count, elapsed_ns, dropped = results(simulation, "h2")
    took_ns = results(simulation)[0] - SECOND_NS
    assert count + dropped == sent
    # While they come one a call, and then what waits in the socket's buffer.
    waiting = count - took_ns // cost_ns
    assert 100 < waiting < 400
    assert elapsed_ns > took_ns


@pytest.mark.parametrize("node", ["h1", "h2"])
def test_bytes_bound_a_transfer(run: Callable[..., Simulation], node: str) -> None:
    """20 ns a byte is 400 Mb/s at either end, of a cable that carries a gigabit."""
    scenario = tcp_pair(2)
    scenario["nodes"][node]["cpu"] = {"copy": "20ns/B"}
    end = run(scenario).iperf("h1")
    assert 370e6 < end["sum_received"]["bits_per_second"] <= 400e6
    assert end["sum_sent"]["retransmits"] == 0


def test_interrupts_do_not_wait(run: Callable[..., Simulation]) -> None:
    """An echo is answered by the kernel at once, however busy the node is; a program's own call takes effect first."""
    ping = {"exec": "ping -c 5 -i 0.2 10.0.0.2", "start": "2s"}
    busy = {"exec": [PYTHON, "-c", "import os\nwhile True: os.getppid()"], "start": "1s", "expect": "any"}

    def trips(of_h1: Any, of_h2: Any) -> list[str]:
        scenario = pair([ping], [busy], LINK, stop="4s", capture="all")
        scenario["nodes"]["h1"]["cpu"] = of_h1
        scenario["nodes"]["h2"]["cpu"] = of_h2
        return re.findall(r"time=([\d.]+) ms", run(scenario).stdout("h1"))[1:]

    alone_ms = trips("instant", "instant")
    assert alone_ms == ["2.00"] * 4
    assert trips("instant", {"syscall": "1ms"}) == alone_ms
    # ping reads the clock and sends: the one is no call, and the other takes effect at once.
    assert trips({"syscall": "30us"}, {"syscall": "1ms"}) == alone_ms


def test_programs_start_in_time_on_a_busy_node(run: Callable[..., Simulation]) -> None:
    """The engine does not wait for the CPU: programs start at their times, in the midst of another one's call."""
    busy = {"exec": [PYTHON, "-c", "import os\nwhile True: os.getppid()"], "start": "1s", "expect": "any"}
    late = [{"exec": "true", "start": f"{start}us"} for start in (2_000_123, 2_500_456)]
    simulation = run(alone({"syscall": "10ms"}, busy, *late, stop="10s"))
    rows = [simulation.process("h1", index) for index in (1, 2)]
    assert [row["start_ns"] for row in rows] == [2_000_123_000, 2_500_456_000]
    assert all(row["exit"] == 0 and row["end_ns"] > row["start_ns"] + 50_000_000 for row in rows)


def test_a_run_on_busy_nodes_repeats(run: Callable[..., Simulation]) -> None:
    def once() -> Simulation:
        scenario = tcp_pair(1)
        scenario["defaults"] = {"node": {"cpu": {"syscall": "700ns", "copy": "1.3ns/B"}}}
        code = "import subprocess\nresult = subprocess.run(['sh', '-c', 'ls / | sort | wc -l']).returncode"
        scenario["nodes"]["h2"]["processes"].append(python(code, start="1s"))
        return run(scenario)

    first, second = once(), once()
    assert first.summary["digest"] == second.summary["digest"]
    assert first.iperf("h1")["sum_received"]["bits_per_second"] < 8e9 / 1.3
