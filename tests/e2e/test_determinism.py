# SPDX-License-Identifier: GPL-2.0-or-later
"""The same version, scenario and seed give the same bytes, whatever the host, its user and its load."""

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import NEEDS_ROOT, Host, Outcome
from scenarios import Mapping, chain

SEED = 7
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def scenario() -> Mapping:
    """Three nodes, random loss and jitter, TCP and ICMP at once: much that could go differently."""
    link = {"rate": "100Mbit", "delay": "2ms", "jitter": "500us", "loss": "0.5%", "queue": "50p"}
    result = chain(3, link, stop="6s", capture="all", seed=SEED)
    result["nodes"]["n3"]["processes"] = [{"exec": "iperf3 --server --one-off"}]
    result["nodes"]["n1"]["processes"] = [
        {"exec": "iperf3 --client 10.0.2.2 --time 2 --json", "start": "1s"},
        {"exec": "ping -c 20 -i 0.1 10.0.2.2", "start": "1s", "expect": "any"},
        {"exec": "head -c 64 /dev/urandom"},
        {"exec": "date --iso-8601=ns", "start": "500ms"},
        {"exec": "env"},
        {"exec": "ip address show"},
        {"exec": "cat /proc/self/maps /proc/uptime /proc/sys/kernel/random/boot_id"},
    ]
    return result


@pytest.fixture(scope="module")
def host(engine: Path, debug_engine: Path, kernel: Path) -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="windtunnel-test-") as name:
        host = Host.prepare(Path(name), engine, kernel, scenario())
        shutil.copy(debug_engine, host.folder / "windtunnel-debug")
        yield host


@pytest.fixture(scope="module")
def reference(host: Host) -> Outcome:
    """The run that all others are held against."""
    outcome = host.run()
    # There is something to compare: captures, and output of programs.
    assert sum(name.endswith(".pcap") for name in outcome.files) == 4
    assert sum(len(data) for data in outcome.files.values()) > 1_000_000
    return outcome


def test_again(host: Host, reference: Outcome) -> None:
    host.run().assert_equal(reference)


def test_without_address_randomisation(host: Host, reference: Outcome) -> None:
    host.run(prefix=["setarch", "-R"]).assert_equal(reference)


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_STACK)[1] != resource.RLIM_INFINITY,
    reason="the stack's hard limit is in the way",
)
def test_with_a_stack_without_limit(host: Host, reference: Outcome) -> None:
    """Linux maps libraries elsewhere then."""
    host.run(prefix=["prlimit", "--stack=unlimited"]).assert_equal(reference)


@NEEDS_ROOT
def test_as_an_ordinary_user(host: Host, reference: Outcome) -> None:
    host.run(prefix=NOBODY).assert_equal(reference)


@NEEDS_ROOT
def test_on_a_host_of_another_name(host: Host, reference: Outcome) -> None:
    renamed = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh"]
    host.run(prefix=renamed).assert_equal(reference)


def test_elsewhere_with_another_environment(host: Host, reference: Outcome) -> None:
    env = {"LC_ALL": "C.UTF-8", "LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo", "PATH": "/usr/bin:/bin", "X": "y" * 10_000}
    host.run(cwd=Path("/usr/share"), env=env).assert_equal(reference)


def test_under_other_limits(host: Host, reference: Outcome) -> None:
    host.run(prefix=["prlimit", "--stack=1048576", "--nofile=512", "--core=0"]).assert_equal(reference)


def test_on_a_loaded_machine(host: Host, reference: Outcome) -> None:
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        host.run(prefix=["nice"]).assert_equal(reference)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_debug_build(host: Host, reference: Outcome) -> None:
    host.run(engine="windtunnel-debug").assert_equal(reference)


def test_another_seed_changes_it(host: Host, reference: Outcome) -> None:
    assert host.run(options=["--seed", str(SEED + 1)]).digest != reference.digest
