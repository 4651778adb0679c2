#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints the performance table: what was measured here and now, beside what must hold, the aim, and ns-3.

Costs are CPU seconds (user + system) of whole processes, the least of --repeat runs: what else the machine does can
only add to them. What is compared runs in turn, and so does ns-3 (libns3-dev) where it is installed. Times inside a
node are virtual and say nothing about cost, so all of it is measured from outside, as a difference of two runs where
something fixed has to be taken off.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import realtime
import scenarios
import validation
import web
from driving import Driven
from simulate import RunError, Simulation, private_dirty_bytes, run_command, simulate

HERE = Path(__file__).resolve().parent
NS3_LIBRARIES = ["applications", "internet", "point-to-point", "traffic-control", "bridge", "network", "stats", "core"]
GETPPID_CALLS = 20_000_000
FORKS = 1000
SWITCHES = 100_000
CHEAP_SWITCHES = 1_000_000
SPAWNS = 1000
PYTHONS = 100
PROGRAMS = 1536
PROGRAM_NODES = 32
DEFAULT_MAP_LIMIT = 65_530
REQUESTS = 5000
DIGEST_RUNS = 30
DRIVEN_RUNS = 10
IDLE_NODES = 50
INTERRUPT_GAP_US = 100
MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """One line of the table. `must` and `aim` are bounds: from above if `low_is_good`."""

    what: str
    measured: float
    unit: str
    must: float | None
    aim: float | None
    low_is_good: bool
    note: str = ""

    def verdict(self) -> str:
        def holds(bound: float) -> bool:
            return self.measured <= bound if self.low_is_good else self.measured >= bound

        if self.must is None:
            return ""
        if not holds(self.must):
            return "MISSED"
        return "aim" if self.aim is not None and holds(self.aim) else "must"


class Bench:
    """Where and how often to measure."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.engine: Path = Path(args.engine).absolute()
        self.repeat: int = args.repeat
        self.seconds: int = args.seconds
        self.chains: list[int] = [int(text) for text in args.chains.split(",")]
        self.folder = folder
        self.ns3 = None if args.no_peer else self.build_ns3()

    def build_ns3(self) -> Path | None:
        """Compiles the peer, where its library is."""
        if not Path("/usr/include/ns3/core-module.h").exists():
            say("ns-3 is not installed (scripts/setup-system bench): no peer figures")
            return None
        say("compiling the ns-3 peer")
        program = self.folder / "ns3chain"
        source = HERE / "ns3chain.cc"
        libraries = [f"-lns3-{name}" for name in NS3_LIBRARIES]
        run_command(["g++", "-O3", "-std=c++17", "-o", program, source, *libraries])
        return program

    def build(self, name: str) -> Path:
        """Compiles bench/NAME.c, once."""
        program = self.folder / name
        if not program.exists():
            run_command(["cc", "-O2", "-o", program, HERE / f"{name}.c"])
        return program

    def run(
        self,
        scenario: scenarios.Mapping,
        *options: str,
        watch: Callable[[int], None] | None = None,
        env: dict[str, str] | None = None,
    ) -> Simulation:
        out = self.folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        return simulate(self.engine, scenario, out, options, watch, env)

    def more_cpu_s(self, much: scenarios.Mapping, little: scenarios.Mapping) -> float:
        """What `much` costs beyond `little`, in turn."""
        costs = [(self.run(much).cpu_s, self.run(little).cpu_s) for _ in range(self.repeat)]
        return min(cost[0] for cost in costs) - min(cost[1] for cost in costs)


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def getppid_node(program: Path, calls: int, start: str) -> scenarios.Mapping:
    return {
        "files": {"/opt/getppid": {"source": str(program), "mode": "755"}},
        "processes": [{"exec": f"/opt/getppid {calls}", "start": start}],
    }


def measure_getppid(bench: Bench) -> Iterator[Row]:
    """CPU of a run with many calls, less that of one with none."""
    program = bench.build("getppid")

    def node(calls: int) -> scenarios.Mapping:
        return scenarios.scenario({"n1": getppid_node(program, calls, "0s")}, [], stop="1000s")

    each_ns = bench.more_cpu_s(node(GETPPID_CALLS), node(0)) / GETPPID_CALLS * 1e9
    yield Row("getppid from an unmodified program", each_ns, "ns", 80, 40, True)


def measure_rdtsc(bench: Bench) -> Iterator[Row]:
    """CPU of a run with many reads, less that of one with none."""
    program = bench.build("rdtsc")

    def node(reads: int) -> scenarios.Mapping:
        process = {"exec": f"/opt/rdtsc {reads}"}
        files = {"/opt/rdtsc": {"source": str(program), "mode": "755"}}
        return scenarios.scenario({"n1": {"files": files, "processes": [process]}}, [], stop="1000s")

    each_ns = bench.more_cpu_s(node(GETPPID_CALLS), node(0)) / GETPPID_CALLS * 1e9
    yield Row("rdtsc in an unmodified program", each_ns, "ns", 100, 50, True)


def idle_chain(count: int, stop: str) -> scenarios.Mapping:
    return scenarios.chain(count, {"rate": "1Gbit", "delay": "1ms"}, stop=stop)


def measure_boot(bench: Bench) -> Iterator[Row]:
    """CPU of a chain in which every node runs `true` once, less that of one such node."""

    def chain(count: int) -> scenarios.Mapping:
        return scenarios.with_each_node(idle_chain(count, "100ms"), {"exec": "true"})

    each_ms = bench.more_cpu_s(chain(IDLE_NODES + 1), chain(1)) / IDLE_NODES * 1e3
    yield Row("boot of a node to its first program (and that program, true)", each_ms, "ms", 12, 6, True)


def image_of(program: str, tar: Path) -> str:
    """Writes a root with a program of the host, its dynamic linker and libraries; the program's path there."""
    path = Path(program).resolve()
    files = {str(path): path}
    for line in run_command(["ldd", path]).stdout.splitlines():
        # "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)", "/lib64/ld-linux-x86-64.so.2 (0x...)", and the vDSO.
        for word in line.split():
            if word.startswith("/"):
                files[word] = Path(word).resolve()
    with tarfile.open(tar, "w") as archive:
        for name, source in files.items():
            archive.add(source, name)
    return str(path)


def cache_folder() -> Path:
    """Where the engine finds built kernels: as kernel/build has it."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("WINDTUNNEL_CACHE") or Path(home) / "windtunnel").absolute()


def measure_image(bench: Bench) -> Iterator[Row]:
    """CPU of a run of a program from an image, less that of a run without it: with an empty cache folder, but for the
    kernel, and once more."""
    tar = bench.folder / "image.tar"
    program = image_of("/usr/bin/python3", tar)
    idle: scenarios.Mapping = {"n1": {}}
    busy: scenarios.Mapping = {"n1": {"root": str(tar), "processes": [{"exec": [program, "--version"]}]}}
    without: list[float] = []
    first: list[float] = []
    again: list[float] = []
    for number in range(bench.repeat):
        cache = bench.folder / f"cache-{number}"
        cache.mkdir()
        (cache / "kernels").symlink_to(cache_folder() / "kernels")
        env = {**os.environ, "WINDTUNNEL_CACHE": str(cache)}
        # It learns the kernel's hash.
        bench.run(scenarios.scenario(idle, [], stop="1s"), env=env)
        without.append(bench.run(scenarios.scenario(idle, [], stop="1s"), env=env).cpu_s)
        for costs in (first, again):
            run = bench.run(scenarios.scenario(busy, [], stop="1s"), env=env)
            if run.process("n1")["exit"] != 0:
                raise RunError(f"{program} --version failed: {run.process('n1')}")
            costs.append(run.cpu_s)
        shutil.rmtree(cache)
    note = f"python3 --version; the image has {tar.stat().st_size / MIB:.0f} MiB"
    first_ms, again_ms = ((min(costs) - min(without)) * 1e3 for costs in (first, again))
    yield Row("first start of a program from an image", first_ms, "ms", 120, 50, True, note)
    yield Row("the same when the image is unpacked and known", again_ms, "ms", 40, 20, True)


def measure_memory(bench: Bench) -> Iterator[Row]:
    """Private_Dirty while one node is kept busy and all others idle, less that of the busy node alone."""
    program = bench.build("getppid")

    def private_bytes(count: int) -> int:
        scenario = idle_chain(count, "1000s")
        scenario["nodes"]["n1"] |= getppid_node(program, 3 * GETPPID_CALLS, "5s")
        peak = 0

        def sample(pid: int) -> None:
            nonlocal peak
            while (now := private_dirty_bytes(pid)) > 0 or Path(f"/proc/{pid}/smaps_rollup").exists():
                peak = max(peak, now)
                time.sleep(0.05)
                if not running(pid):
                    return

        bench.run(scenario, watch=sample)
        return peak

    each_mib = (private_bytes(IDLE_NODES + 1) - private_bytes(1)) / IDLE_NODES / MIB
    yield Row("private memory of an idle node (Private_Dirty)", each_mib, "MiB", 4, 2.5, True)


def running(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def chain_hops(bench: Bench, count: int, *options: str) -> tuple[float, float]:
    """Packet-hops and CPU seconds of one run of the UDP chain; every packet must have arrived."""
    run = bench.run(scenarios.udp_chain(count, bench.seconds), *options)
    end = run.iperf("n1")
    sent, lost = end["sum_sent"]["packets"], end["sum_received"]["lost_packets"]
    if sent == 0 or lost != 0:
        raise RunError(f"chain of {count}: {lost} of {sent} packets lost")
    return sent * (count - 1), run.cpu_s


def ns3_hops(bench: Bench, count: int) -> tuple[float, float]:
    assert bench.ns3
    cost = run_command([bench.ns3, f"--nodes={count}", f"--seconds={bench.seconds}"])
    fields = dict(line.split() for line in cost.stdout.splitlines())
    return int(fields["received_packets"]) * (count - 1), cost.cpu_s


def rate(measured: Sequence[tuple[float, float]]) -> float:
    """The best of all, which other load disturbed least."""
    return max(amount / cpu_s for amount, cpu_s in measured)


def measure_chain(bench: Bench) -> Iterator[Row]:
    """Packet-hops per CPU second, ours and ns-3's in turn, and how the cost of one grows with the chain."""
    ours: dict[int, float] = {}
    for count in bench.chains:
        mine, peers = [], []
        for _ in range(bench.repeat):
            mine.append(chain_hops(bench, count))
            if bench.ns3:
                peers.append(ns3_hops(bench, count))
        ours[count] = rate(mine)
        note = f"{ours[count] / 1e3:.0f} k packet-hops per CPU-s"
        if peers:
            note += f"; ns-3 {rate(peers) / 1e3:.0f} k"
            yield Row(f"UDP chain, N = {count}, against ns-3", ours[count] / rate(peers), "x", 2.5, 6, False, note)
        else:
            yield Row(f"UDP chain, N = {count}", ours[count] / 1e3, "k/CPU-s", None, None, False, "no peer here")
    low, high = min(ours), max(ours)
    if low != high:
        what = f"cost of a packet-hop, N = {high} against N = {low}"
        yield Row(what, ours[low] / ours[high], "x", 1.6, 1.0, True)


def measure_digest(bench: Bench) -> Iterator[Row]:
    """A short chain with and without the digest, in turn, more often: it is a small share."""
    count = bench.chains[0]
    plain, without = [], []
    for _ in range(max(DIGEST_RUNS, bench.repeat)):
        plain.append(chain_hops(bench, count)[1])
        without.append(chain_hops(bench, count, "--no-digest")[1])
    share = (1 - min(without) / min(plain)) * 100
    yield Row(f"digest, share of the chain's CPU, N = {count}", share, "%", 8, 3, True)


def measure_preempt(bench: Bench) -> Iterator[Row]:
    """A short chain whose programs may be preempted, and with that off, in turn, as often as for the digest."""
    count = bench.chains[0]
    costs: dict[str, list[float]] = {"auto": [], "off": []}
    for _ in range(max(DIGEST_RUNS, bench.repeat)):
        for how, spent in costs.items():
            scenario = scenarios.udp_chain(count, bench.seconds)
            scenario["run"]["preempt"] = how
            spent.append(bench.run(scenario).cpu_s)
    share = (min(costs["auto"]) / min(costs["off"]) - 1) * 100
    medians = statistics.median(costs["auto"]) / statistics.median(costs["off"])
    note = f"of the chain's CPU, N = {count}; medians {(medians - 1) * 100:+.1f} %"
    yield Row("preemption, for programs that never spin", share, "%", 2, 0, True, note)


def measure_driven(bench: Bench) -> Iterator[Row]:
    """A TCP transfer driven in 1,000 steps, and one measured each 10 ms, beside one left to itself, in turn."""

    def driven(scenario: scenarios.Mapping, steps: int) -> float:
        folder = bench.folder / "driven"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        path = folder / "scenario.yaml"
        path.write_text(json.dumps(scenario), encoding="utf-8")
        run = Driven(bench.engine, path, folder / "out")
        client = run.driver()
        for step in range(steps):
            client("run", until_ns=(step + 1) * bench.seconds * 1_000_000)
        client("run")
        client.stop()
        run.end()
        manifest = json.loads((folder / "out/manifest.json").read_text(encoding="utf-8"))
        return float(manifest["cost"]["cpu_time_ns"]) / 1e9

    scenario = scenarios.tcp_pair(bench.seconds)

    def measured(kind: str) -> scenarios.Mapping:
        return scenario | {"run": scenario["run"] | {"measure": {kind: "10ms"}}}

    costs: dict[str, list[float]] = {"whole": [], "steps": [], "links": [], "tcp": []}
    for _ in range(max(DRIVEN_RUNS, bench.repeat)):
        costs["whole"].append(driven(scenario, 0))
        costs["steps"].append(driven(scenario, 1000))
        costs["links"].append(driven(measured("links"), 0))
        costs["tcp"].append(driven(measured("tcp"), 0))
    whole = min(costs["whole"])
    note = f"of {whole:.2f} CPU-s, TCP at 1 Gb/s"
    yield Row("a run driven in 1,000 steps costs more", (min(costs["steps"]) / whole - 1) * 100, "%", 10, 3, True, note)
    for kind, what in (("links", "measuring links"), ("tcp", "sampling TCP")):
        share = (min(costs[kind]) / whole - 1) * 100
        yield Row(f"{what} each 10 ms costs more", share, "%", 5, 1, True, note)


def measure_sweep(_: Bench) -> Iterator[Row]:
    """Which part of their time the workers of a sweep spend in cells of 0.1 s, from its begin to its end."""
    share, workers = run_command([sys.executable, HERE / "sweeping.py"]).stdout.split()
    note = f"{workers} workers, 1,000 cells of 0.1 s of a processor"
    yield Row("workers of a sweep are busy", float(share) * 100, "%", 85, 95, False, note)


def measure_tcp(bench: Bench) -> Iterator[Row]:
    """Simulated seconds per CPU second of a bulk transfer at line rate."""
    mine, moderated, peers = [], [], []
    goodput_mbps = moderated_mbps = 0.0
    for _ in range(bench.repeat):
        run = bench.run(scenarios.tcp_pair(bench.seconds))
        goodput_mbps = run.iperf("h1")["sum_received"]["bits_per_second"] / 1e6
        mine.append((bench.seconds, run.cpu_s))
        run = bench.run(scenarios.tcp_pair(bench.seconds, interrupt_gap_us=INTERRUPT_GAP_US))
        moderated_mbps = run.iperf("h1")["sum_received"]["bits_per_second"] / 1e6
        moderated.append((bench.seconds, run.cpu_s))
        if bench.ns3:
            cost = run_command([bench.ns3, "--mode=tcp", f"--seconds={bench.seconds}"])
            peers.append((bench.seconds, cost.cpu_s))
    median = statistics.median(amount / cpu_s for amount, cpu_s in mine)
    note = f"{goodput_mbps:.1f} Mb/s; the median run {median:.2f}"
    if peers:
        note += f"; {rate(mine) / rate(peers):.0f} times ns-3's {rate(peers):.2f}"
    yield Row("iperf3 TCP at 1 Gb/s, simulated s per CPU-s", rate(mine), "", 3, 8, False, note)
    what = f"the same with {INTERRUPT_GAP_US} us between interrupts of both NICs, times"
    note = f"{rate(moderated):.2f} simulated s per CPU-s; {moderated_mbps:.1f} Mb/s"
    yield Row(what, rate(moderated) / rate(mine), "", 2, 2.5, False, note)


def measure_fork(bench: Bench) -> Iterator[Row]:
    """CPU of a run in which one program starts many processes, less that of one with few."""
    program = bench.build("fork")

    def each_s(what: str, count: int, *more: object) -> float:
        def node(times: int) -> scenarios.Mapping:
            command = ["/opt/fork", what, str(times), *map(str, more)]
            # Two programs that meet are the two ends.
            commands = [[*command, "1"], [*command, "0"]] if what == "meet" else [command]
            return scenarios.scenario({"n1": fork_node(program, *commands)}, [], stop="1000s")

        few = count // 10
        return bench.more_cpu_s(node(count), node(few)) / (count - few)

    yield Row("fork, exit and wait, small process", each_s("fork", FORKS) * 1e3, "ms", 1.5, 0.3, True)
    yield Row("fork, exit and wait, 4 MiB written", each_s("fork", FORKS, 4 * MIB) * 1e3, "ms", 1.5, 0.3, True)
    switch_us = each_s("pingpong", SWITCHES // 2) / 2 * 1e6
    yield Row("switch between parent and forked child through a pipe", switch_us, "us", 15, 15, True)
    switch_us = each_s("threads", CHEAP_SWITCHES // 2) / 2 * 1e6
    yield Row("switch between two threads through a pipe", switch_us, "us", 0.6, 0.3, True)
    switch_us = each_s("meet", CHEAP_SWITCHES // 2, "/tmp") / 2 * 1e6
    yield Row("switch between two programs of a node through a FIFO", switch_us, "us", 1, 0.5, True)
    spawn_ms = each_s("spawn", SPAWNS, "/bin/true") * 1e3
    yield Row("posix_spawn of /bin/true to its end", spawn_ms, "ms", 3, 1, True)
    python_ms = each_s("spawn", PYTHONS, "/usr/bin/python3", "-c", "pass") * 1e3
    yield Row("python3 start to exit", python_ms, "ms", 60, 25, True)


def fork_node(program: Path, *commands: list[str]) -> scenarios.Mapping:
    return {
        "memory": "512MiB",
        "files": {"/opt/fork": {"source": str(program), "mode": "755"}},
        "processes": [{"exec": command} for command in commands],
    }


def measure_programs(bench: Bench) -> Iterator[Row]:
    """Runs many programs at a time, and counts what they take of the host's limit on mappings, the nearest one."""
    program = bench.build("fork")

    def most_mappings(nodes: scenarios.Mapping) -> int:
        most = 0

        def sample(pid: int) -> None:
            nonlocal most
            while running(pid):
                most = max(most, mapping_count(pid))
                time.sleep(0.05)

        run = bench.run(scenarios.scenario(nodes, [], stop="100s"), watch=sample)
        failed = [row for row in run.summary["processes"] if row["exit"] != 0]
        if failed:
            raise RunError(f"{len(failed)} of {len(run.summary['processes'])} programs failed: {failed[0]}")
        return most

    def row(what: str, nodes: Callable[[int], scenarios.Mapping]) -> Row:
        few = PROGRAMS // 4
        most = most_mappings(nodes(PROGRAMS))
        each = (most - most_mappings(nodes(few))) / (PROGRAMS - few)
        possible = (DEFAULT_MAP_LIMIT - most) / each + PROGRAMS
        note = f"{PROGRAMS} ran at a time; {each:.1f} mappings each, by which the default limit allows this many"
        return Row(what, possible, "", 1500, 5000, False, note)

    def separate(count: int) -> scenarios.Mapping:
        sleeper = {"exec": "sleep 50", "env": {"LC_ALL": "C"}}
        each = count // PROGRAM_NODES
        return {f"n{i}": {"processes": [sleeper] * each} for i in range(PROGRAM_NODES)}

    def forked(count: int) -> scenarios.Mapping:
        return {"n1": fork_node(program, ["/opt/fork", "children", str(count)])}

    yield row(f"programs at a time in {PROGRAM_NODES} nodes (sleep)", separate)
    yield row("children of one program at a time in one node", forked)


def measure_web(bench: Bench) -> Iterator[Row]:
    """CPU of requests of curl to nginx in two nodes, against the same programs on the host, in turn."""
    few = REQUESTS // 10
    for keep_alive, how in ((True, "over one connection"), (False, "with a connection each")):
        ours: dict[int, list[float]] = {few: [], REQUESTS + few: []}
        host: dict[int, list[float]] = {few: [], REQUESTS + few: []}
        for _ in range(bench.repeat):
            for count in ours:
                run = bench.run(web.web_nodes(count, keep_alive))
                if run.process("client")["exit"] != 0:
                    raise RunError(f"curl failed: {run.process('client')}")
                ours[count].append(run.cpu_s)
                host[count].append(web.host_cpu_s(bench.folder, count, keep_alive))
        ours_us, host_us = ((min(cpu_s[REQUESTS + few]) - min(cpu_s[few])) / REQUESTS * 1e6 for cpu_s in (ours, host))
        note = f"{ours_us:.0f} us of CPU each; the host, over its loopback without delay, {host_us:.0f} us"
        what = f"nginx + curl, requests {how}, against the host"
        yield Row(what, ours_us / host_us, "x", 2, 1, True, note)


def mapping_count(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


def measure_realtime(bench: Bench) -> Iterator[Row]:
    """Rates and times of runs by the wall clock, beside the host's kernel."""
    if reason := realtime.missing():
        say(f"left out: runs by the wall clock: {reason}")
        return
    for found in realtime.measure(bench.engine, bench.folder, bench.seconds):
        bounds = (found.must, found.aim, found.low_is_good)
        yield Row(found.what, found.value, found.unit, *bounds, found.note)


def measure_validation(bench: Bench) -> Iterator[Row]:
    """The same scenario on the host's own kernel, and in real time, against virtual time."""
    if reason := realtime.missing():
        say(f"left out: validation against the host's kernel: {reason}")
        return
    for found in validation.measure(bench.engine):
        bounds = (found.must, found.aim, found.low_is_good)
        yield Row(found.what, found.value, found.unit, *bounds, found.note)


MEASUREMENTS = {
    "fork": measure_fork,
    "programs": measure_programs,
    "web": measure_web,
    "getppid": measure_getppid,
    "rdtsc": measure_rdtsc,
    "boot": measure_boot,
    "image": measure_image,
    "memory": measure_memory,
    "chain": measure_chain,
    "tcp": measure_tcp,
    "digest": measure_digest,
    "preempt": measure_preempt,
    "driven": measure_driven,
    "sweep": measure_sweep,
    "realtime": measure_realtime,
    "validation": measure_validation,
}


def table(rows: list[Row]) -> str:
    def number(value: float | None, row: Row) -> str:
        if value is None:
            return ""
        return f"{'<=' if row.low_is_good else '>='} {value:g}"

    lines = ["| what | measured | must | aim | reached | note |", "|---|---|---|---|---|---|"]
    for row in rows:
        measured = f"{row.measured:.3g} {row.unit}".rstrip()
        bounds = f"{number(row.must, row)} | {number(row.aim, row)}"
        lines.append(f"| {row.what} | {measured} | {bounds} | {row.verdict()} | {row.note} |")
    return "\n".join(lines)


def host() -> str:
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs, Linux {platform.release()}"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--engine", default="target/release/windtunnel", help="the program to measure")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each, of which the least counts")
    parser.add_argument("--seconds", type=int, default=5, help="simulated seconds of traffic")
    parser.add_argument("--chains", default="8,16,32,64", help="lengths of the UDP chain")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="only this measurement")
    parser.add_argument("--no-peer", action="store_true", help="leave ns-3 out")
    parser.add_argument("--json", metavar="FILE", help="write the rows there, too")
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    rows: list[Row] = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="windtunnel-bench-") as folder:
        bench = Bench(args, Path(folder))
        for name in args.only or MEASUREMENTS:
            say(f"measuring: {name}")
            try:
                for row in MEASUREMENTS[name](bench):
                    say(f"{row.what}: {row.measured:.3g} {row.unit}")
                    rows.append(row)
            except RunError as err:
                say(f"{name} failed: {err}")
                failed = True
    print(f"{host()}; the least of {args.repeat} runs, {args.seconds} s of traffic\n\n{table(rows)}")
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
