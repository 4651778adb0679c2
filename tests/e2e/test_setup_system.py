# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/setup-system, with programs in the place of dpkg and apt-get."""

import os
import subprocess
from pathlib import Path

from conftest import ROOT

LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 12 (apt-get)"


def set_up(folder: Path, apt: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Runs it where nothing is installed and apt-get is this script; how it went, and the verbs apt-get was given."""
    calls = folder / "calls"
    programs = {
        "dpkg-query": "exit 1",
        "id": "echo 0",
        "sleep": "true",
        "apt-get": f'verb=$(printf "%s\\n" "$@" | grep -E "^(install|update)$"); echo "$verb" >> {calls}\n{apt}',
    }
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts/setup-system", "lint"],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done, calls.read_text(encoding="utf-8").split()


def test_waits_for_another_apt(tmp_path: Path) -> None:
    """The lock is free at the fourth attempt; lists are out of date as well."""
    apt = (
        f'count=$(wc -l < {tmp_path}/calls); [ $count -gt 3 ] || {{ echo "{LOCKED}" >&2; exit 100; }}\n'
        'case "$verb,$count" in install,4) echo "E: Unable to locate package" >&2; exit 100 ;; esac'
    )
    done, calls = set_up(tmp_path, apt)
    assert done.returncode == 0, done
    assert calls == ["install"] * 4 + ["update", "install"]
    assert done.stderr.count("setup-system: another apt is at work; waiting for it, at most 10 minutes") == 1


def test_waits_no_longer_than_it_says(tmp_path: Path) -> None:
    done, calls = set_up(tmp_path, f'echo "{LOCKED}" >&2; exit 100')
    assert done.returncode == 1
    assert calls.count("install") > 100
    assert "setup-system: apt-get could not install: " in done.stderr


def test_other_errors_are_not_waited_for(tmp_path: Path) -> None:
    done, calls = set_up(tmp_path, 'echo "E: Unable to locate package" >&2; exit 100')
    assert done.returncode == 1
    assert calls == ["install", "update", "install"]
    assert "another apt" not in done.stderr
