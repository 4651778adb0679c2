# SPDX-License-Identifier: GPL-2.0-or-later
"""What a program has in its registers harms it alone: see also tests/programs/registers.c."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT
from pcap import packets
from scenarios import Mapping, pair, scenario
from simulate import Simulation

# WINDTUNNEL_STORM_COUNT=N WINDTUNNEL_STORM_SEED=N: longer storms, others.
COUNT = int(os.environ.get("WINDTUNNEL_STORM_COUNT", "1000"))
SEED = int(os.environ.get("WINDTUNNEL_STORM_SEED", "1"))


def compile_c(folder: Path, source: Path | str) -> Path:
    """The program of a file, or of a text."""
    program = folder / "program"
    if isinstance(source, str):
        (folder / "program.c").write_text(source, encoding="utf-8")
        source = folder / "program.c"
    subprocess.run(["cc", "-std=gnu17", "-D_GNU_SOURCE", "-O1", "-o", program, source], check=True)
    return program


def alone(program: Path | str, exec_: str, stop_s: int = 20, **node: object) -> Mapping:
    files = {"/opt/program": {"source": str(program), "mode": "755"}}
    process = {"exec": exec_, "start": "100ms", "expect": "any"}
    return scenario({"n": {"files": files, "processes": [process], **node}}, [], f"{stop_s}s")


def storm_of(kind: str, folder: Path, seed: int, count: int) -> Mapping:
    """A quantum of the virtual time passes every 64 calls: 1 s is room for far more than a thousand programs."""
    source = ROOT / "tests/storms" / kind
    program = compile_c(folder, source) if source.suffix == ".c" else source
    interpreter = "" if source.suffix == ".c" else "python3 "
    return alone(program, f"{interpreter}/opt/program {seed} {count}", 10 + count // 100, memory="256MiB")


@pytest.mark.parametrize("kind", ["contexts.c", "images.py"])
def test_a_storm_of_programs_that_go_wrong(run: Callable[..., Simulation], tmp_path: Path, kind: str) -> None:
    storm = storm_of(kind, tmp_path, SEED, COUNT)
    first, second = run(storm), run(storm)
    said = first.stdout("n")
    assert said.startswith(f"{COUNT} ") and "sum" in said, said
    assert "by signal 11" in said or "signal 11" in said
    assert said == second.stdout("n")
    assert first.summary["digest"] == second.summary["digest"]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["contexts.c", "images.py"])
@pytest.mark.parametrize("seed", range(2, 22))
def test_a_long_storm(run: Callable[..., Simulation], tmp_path: Path, kind: str, seed: int) -> None:
    count = 20_000
    assert run(storm_of(kind, tmp_path, seed, count)).stdout("n").startswith(f"{count} ")


GS = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	asm volatile("mov %0, %%gs" ::"r"(argc > 1 ? 0x2b : 0));
	for (int i = 0; i < 3; i++)
		getppid();
	puts("went on");
	return 0;
}
"""


@pytest.mark.parametrize("argument", ["", " loaded"])
def test_a_program_that_sets_gs_is_named(run: Callable[..., Simulation], tmp_path: Path, argument: str) -> None:
    result = run(alone(compile_c(tmp_path, GS), f"/opt/program{argument}"))
    assert result.stdout("n") == "went on\n"
    (warning,) = result.summary["warnings"]
    assert warning["code"] == "partial_call"
    assert warning["programs"] == ["program"]
    assert warning["text"].startswith("called arch_prctl: "), warning
    assert "wrgsbase" in warning["text"]


OTHERS_CODE = """
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>
static unsigned long entry;
static void faulted(int signo, siginfo_t *info, void *context)
{
	printf("%d %d %d\\n", signo, info->si_code, (unsigned long)info->si_addr == entry);
	exit(0);
}
static void go(int signo, siginfo_t *info, void *context)
{
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = entry;
}
int main(int argc, char **argv)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO};

	/* Only here: where GS is the engine's, an address of its kernel is behind it. */
	asm volatile("mov %%gs:0, %0" : "=r"(entry));
	action.sa_sigaction = faulted;
	sigaction(SIGSEGV, &action, NULL);
	action.sa_sigaction = argc > 1 ? go : (void *)entry;
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	puts("went on");
	return 0;
}
"""


@pytest.mark.parametrize("argument", ["", " return"])
def test_no_signal_leads_to_code_of_others(run: Callable[..., Simulation], tmp_path: Path, argument: str) -> None:
    result = run(alone(compile_c(tmp_path, OTHERS_CODE), f"/opt/program{argument}"))
    assert result.stdout("n") == "11 1 1\n"


ROUNDING = """
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
int main(int argc, char **argv)
{
	/* Of the same length and number of calls either way: upwards and with all exceptions unmasked, or as usual. */
	unsigned int mxcsr = getenv("ODD")[0] == '1' ? 0x4000 : 0x1f80;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = inet_addr("10.0.0.2")};
	int out = socket(AF_INET, SOCK_DGRAM, 0);

	asm volatile("ldmxcsr %0" ::"m"(mxcsr));
	for (int i = 0; i < 300; i++) {
		sendto(out, "datagram", 8, 0, (struct sockaddr *)&to, sizeof(to));
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	return 0;
}
"""


def test_links_do_not_compute_with_a_programs_rounding(run: Callable[..., Simulation], tmp_path: Path) -> None:
    program = compile_c(tmp_path, ROUNDING)
    seen = []
    for odd in "01":
        sender = {"exec": "/opt/program", "env": {"ODD": odd}, "start": "100ms"}
        link = {"rate": "10Mbit", "delay": "5ms", "jitter": "1ms", "loss": "3.3%"}
        both = pair([sender], [], link, "2s", capture="all")
        both["nodes"]["h1"]["files"] = {"/opt/program": {"source": str(program), "mode": "755"}}
        seen.append(list(packets(run(both).out / "pcap/h2-eth0.pcap")))
    assert len(seen[0]) > 200
    assert seen[0] == seen[1]


# A datagram to be sent at a time of CLOCK_TAI (11), by SO_TXTIME and SCM_TXTIME (61).
AT_A_TIME = """
import socket, struct, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.SOL_SOCKET, 61, struct.pack("iI", 11, 0))
for delay_ms in (50, 60, 70):
    at = time.clock_gettime_ns(11) + delay_ms * 1_000_000
    out.sendmsg([b"x" * 50], [(socket.SOL_SOCKET, 61, struct.pack("Q", at))], 0, ("10.0.0.2", 9))
    print(at)
time.sleep(0.1)
"""
ETF_DELTA_NS = 200_000
MAC = "02:00:00:00:00:77"


def test_a_qdisc_that_waits_until_its_time_has_passed(run: Callable[..., Simulation]) -> None:
    """etf sets its timer for the time before which it may not send, and then waits for a later one."""
    sender = {"exec": "python3 /at.py", "start": "100ms"}
    both = pair([sender], [], {"rate": "1Gbit", "delay": "1ms"}, "1s", capture="all")
    both["nodes"]["h1"]["files"] = {"/at.py": {"content": AT_A_TIME}}
    both["nodes"]["h2"]["interfaces"] = {"eth0": {"mac": MAC}}
    # It drops all that has no time, such as questions for an Ethernet address.
    both["nodes"]["h1"]["setup"] = [
        f"ip neigh replace 10.0.0.2 lladdr {MAC} dev eth0",
        f"tc qdisc replace dev eth0 root etf clockid CLOCK_TAI delta {ETF_DELTA_NS}",
    ]
    result = run(both)
    due = [int(line) - ETF_DELTA_NS for line in result.stdout("h1").split()]
    sent = [packet.time_ns for packet in packets(result.out / "pcap/h1-eth0.pcap") if len(packet.frame) == 92]
    assert [at - due_at for at, due_at in zip(sent, due, strict=True)] == [1, 1, 1]
