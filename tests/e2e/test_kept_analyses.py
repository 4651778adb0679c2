# SPDX-License-Identifier: GPL-2.0-or-later
"""What is kept in the cache folder makes runs quicker, and shows in nothing that they leave."""

import json
from pathlib import Path

import pytest
from hosts import Host, Outcome
from scenarios import Mapping, pair


def scenario() -> Mapping:
    link = {"rate": "1Gbit", "delay": "1ms"}
    looks = ["python3 -c 'import ssl; print(ssl.OPENSSL_VERSION)'", "cat /proc/self/maps", "ping -c 1 10.0.0.2"]
    return pair([{"exec": look} for look in looks], [], link, stop="5s")


@pytest.fixture(scope="module")
def host(engine: Path, kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host.prepare(tmp_path_factory.mktemp("kept"), engine, kernel, scenario())


@pytest.fixture(scope="module")
def first(host: Host) -> Outcome:
    """With nothing kept."""
    return host.run()


def kept(host: Host) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (host.folder / "cache/analyses").iterdir()}


def test_what_is_kept_is_used_and_makes_no_difference(host: Host, first: Outcome) -> None:
    before = {path: path.stat() for path in kept(host)}
    hashes = set(first.inputs("programs").values())
    # By the name: the hash of the file, then that of the code that looked at it.
    assert {path.name.partition("-")[0] for path in before} <= hashes
    assert len(before) >= 4, "python3, ping, libc and libcrypto at least"
    host.run().assert_equal(first)
    after = {path: path.stat() for path in kept(host)}
    assert {path: (s.st_ino, s.st_mtime_ns) for path, s in after.items()} == {
        path: (s.st_ino, s.st_mtime_ns) for path, s in before.items()
    }


def test_what_is_damaged_is_made_anew(host: Host, first: Outcome) -> None:
    whole = kept(host)
    others = iter([*list(whole.values())[1:], b"nothing"])
    for number, (path, data) in enumerate(whole.items()):
        middle, other = len(data) // 2, next(others)
        cut, flipped = data[:middle], data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        # The last is whole, but of another file.
        path.write_bytes((cut, flipped, b"", other)[number % 4])
    host.run().assert_equal(first)
    assert kept(host) == whole


def test_a_cache_that_cannot_be_written_is_done_without(host: Host, first: Outcome) -> None:
    folder = host.folder / "cache/analyses"
    aside = folder.rename(folder.with_name("aside"))
    folder.write_text("no folder")
    try:
        host.run().assert_equal(first)
    finally:
        folder.unlink()
        aside.rename(folder)


def test_no_program_made_in_a_run_is_kept(host: Host) -> None:
    """Or a run that compiles would fill the folder."""
    known = kept(host)
    program = "cp /bin/ping /tmp/own && printf x >> /tmp/own && /tmp/own -V"
    own = {"version": 1, "run": {"stop": "2s"}, "nodes": {"h1": {"processes": [{"exec": ["sh", "-c", program]}]}}}
    (host.folder / "s.yaml").write_text(json.dumps(own), encoding="utf-8")
    try:
        outcome = host.run()
    finally:
        (host.folder / "s.yaml").write_text(json.dumps(scenario()), encoding="utf-8")
    made = [sha256 for path, sha256 in outcome.inputs("programs").items() if "written in the run" in path]
    assert len(made) == 1, sorted(outcome.inputs("programs"))
    new = kept(host).keys() - known.keys()
    assert not [path for path in new if path.name.startswith(made[0])]
