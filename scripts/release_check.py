#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs examples with the wheel's program, the Debian package's and a checkout's: release_check.py PROGRAM DIST-FOLDER.

All have to end well and give one digest each, with one kernel, byte for byte, although only the checkout's has a cache.
"""

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ("01-ping", "03-tcp")


def find(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SystemExit(
            f"release-check: {folder} has {len(found)} files {pattern}, not one\nhint: rm -r dist; make dist"
        )
    return found[0]


def install_wheel(wheel: Path, folder: Path) -> Path:
    """The program of a new virtual environment; no index is asked, for the wheel needs nothing else."""
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin/pip", "install", "--quiet", "--no-index", wheel], check=True)
    return folder / "bin/windtunnel"


def unpack_deb(package: Path, folder: Path) -> Path:
    subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    return folder / "usr/bin/windtunnel"


def outcome(program: Path, example: str, folder: Path, installed: bool) -> tuple[str, str]:
    """Digest and SHA-256 of the kernel of a run."""
    env = dict(os.environ)
    if installed:
        # Nothing of this user's: neither kernels nor sources.
        env = {"PATH": env["PATH"], "HOME": str(folder / "home")}
    out = folder / example
    command: list[str | Path] = [program, "run", ROOT / "examples" / f"{example}.yaml", "--out", out, "--quiet"]
    subprocess.run(command, env=env, check=True)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    return summary["digest"], manifest["kernels"][0]["sha256"]


def main(program: Path, dist: Path) -> int:
    same = True
    with tempfile.TemporaryDirectory(prefix="windtunnel-release-") as name:
        temp = Path(name)
        programs = {
            "checkout": program,
            "wheel": install_wheel(find(dist, "*.whl"), temp / "venv"),
            "package": unpack_deb(find(dist, "*.deb"), temp / "deb"),
        }
        for example in EXAMPLES:
            found = {}
            for origin, path in programs.items():
                found[origin] = outcome(path.absolute(), example, temp / f"out-{origin}", origin != "checkout")
                digest, kernel = found[origin]
                print(f"{example:<8}  {origin:<8}  digest {digest}  kernel {kernel[:16]}", flush=True)
            same = same and len(set(found.values())) == 1
    print("release-check: " + ("one digest, one kernel" if same else "DIFFERENT"))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
