#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Table 3 of the DCE paper (Tazaki et al., CoNEXT 2013): one experiment in many environments, as digests.

Each row is the same three examples, run by another user, with other addresses, files, environment, processor or load, or by the
program as somebody else gets it. A digest is over every frame at every interface with its time, and all that programs print.
The second table is `windtunnel demo` in minimal roots of other distributions. What needs root, `make dist` or debootstrap
is said not to have run where these are missing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "scripts")]

import publish  # noqa: E402
import release_check  # noqa: E402
from elsewhere import imitate  # noqa: E402

ENGINE = ROOT / "target/release/windtunnel"
DIST = ROOT / "dist"
SERIES = "6.12"
EXAMPLES = ("01-ping", "03-tcp", "10-mptcp")
SUITES = ("bookworm", "trixie", "noble")
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
DIGEST = re.compile(r"digest .*: ([0-9a-f]{64})$", re.MULTILINE)
T = TypeVar("T")


@dataclass(frozen=True)
class Environment:
    """Where the examples run: what the command begins with, its environment, and how many busy programs are beside it."""

    name: str
    prefix: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    program: Path | None = None
    load: int = 0


@dataclass(frozen=True)
class Missing:
    """An environment that cannot be had here."""

    name: str
    why: str


@dataclass(frozen=True)
class Result:
    digest: str
    goodput_mbps: str = ""


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many programs that compute all the time."""
    with ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


def environments(temp: Path) -> list[Environment | Missing]:
    root = os.geteuid() == 0
    unprivileged = Environment("an ordinary user", NOBODY if root else [])
    found: list[Environment | Missing] = [
        Environment("root") if root else Missing("root", "this is an ordinary user"),
        unprivileged,
        Environment("the same once more", unprivileged.prefix),
        Environment("addresses not randomised", [*unprivileged.prefix, "setarch", "--addr-no-randomize"]),
        Environment("one processor of the host", ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]),
        Environment("four busy programs beside it", load=4),
        Environment("as on a processor that cannot fault on cpuid", env={"WINDTUNNEL_CPUID_FAULTING": "off"}),
    ]
    other = "another machine, imitated: its /etc, owners, dates, limits, locale, time zone"
    if root:
        imitated = imitate(temp)
        found.append(Environment(other, imitated.prefix, imitated.env))
    else:
        found.append(Missing(other, "mounting needs root"))
    wheels, packages = sorted(DIST.glob("*.whl")), sorted(DIST.glob("*.deb"))
    if len(wheels) == len(packages) == 1:
        found.append(Environment("the wheel", program=release_check.install_wheel(wheels[0], temp / "venv")))
        found.append(
            Environment("the Debian package", program=release_check.unpack_deb(packages[0], temp / "deb").absolute())
        )
    else:
        found += [Missing(name, "`make dist` comes first") for name in ("the wheel", "the Debian package")]
    return found


def kernel_cache(temp: Path) -> Path:
    """A cache with the kernel of this checkout that every user may read."""
    built = subprocess.run([ROOT / "kernel/build", SERIES], check=True, stdout=subprocess.PIPE, text=True)
    folder = Path(built.stdout.splitlines()[-1]).parent
    series = temp / "cache/kernels" / folder.parent.name
    build_hash = json.loads((folder / "build.json").read_text(encoding="utf-8"))["hash"]
    shutil.copytree(folder, series / build_hash)
    (series / "current").write_text(f"{build_hash}\n", encoding="ascii")
    return temp / "cache"


def run(where: Environment, example: str, temp: Path, cache: Path) -> Result:
    """Runs an example there, in a folder that its user owns."""
    with tempfile.TemporaryDirectory(dir=temp) as name:
        folder = Path(name)
        folder.chmod(0o777)
        program = where.program or temp / "windtunnel"
        # An installed program brings its own kernel, and finds nobody's cache.
        kernel = {"HOME": str(folder)} if where.program else {"WINDTUNNEL_CACHE": str(cache)}
        out = folder / "out"
        with busy(where.load):
            done = subprocess.run(
                [*where.prefix, program, "run", temp / "examples" / f"{example}.yaml", "--out", out, "--quiet"],
                env={**os.environ, **where.env, **kernel},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode != 0:
            raise SystemExit(f"{example}, {where.name}: exit code {done.returncode}\n{done.stderr}")
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        printed = [(out / row["stdout"]).read_text(encoding="utf-8") for row in summary["processes"] if row["stdout"]]
        found = re.search(r"([\d.]+) Mbits/sec +receiver", "\n".join(printed))
        return Result(summary["digest"], found[1] if found else "")


def demo_digests(quick: bool) -> list[list[str]]:
    """Of `windtunnel demo`: here, and as the wheel and the package do it in minimal roots. Rows of a table."""
    with tempfile.TemporaryDirectory() as name:
        done = subprocess.run(
            [ENGINE, "demo", "--out", Path(name) / "demo"], check=True, stdout=subprocess.PIPE, text=True
        )
    rows = [["this checkout, on its host", *DIGEST.findall(done.stdout)]]
    for suite in () if quick else SUITES:
        tried = subprocess.run(
            [ROOT / "scripts/bare-install", suite],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if tried.returncode in (2, 75):
            reason = tried.stderr.strip().splitlines()[-1].removeprefix("bare-install: ")
            rows.append([suite, f"not run: {reason}"])
            continue
        if tried.returncode != 0:
            raise SystemExit(f"bare-install {suite}: exit code {tried.returncode}\n{tried.stdout}{tried.stderr}")
        system = re.search(rf"bare-install: {suite}: (.+), (Python .+)$", tried.stdout, re.MULTILINE)
        digests = DIGEST.findall(tried.stdout)
        if system is None or len(digests) != 2:
            raise SystemExit(f"bare-install {suite} printed what is not known:\n{tried.stdout}")
        wheel, package = digests
        rows += [[f"{system[1]}, wheel", wheel], [f"{system[1]}, package", package]]
    return rows


def measure(temp: Path) -> list[tuple[Environment | Missing, dict[str, Result]]]:
    temp.chmod(0o755)
    shutil.copy(ENGINE, temp / "windtunnel")
    shutil.copytree(ROOT / "examples", temp / "examples")
    cache = kernel_cache(temp)
    found: list[tuple[Environment | Missing, dict[str, Result]]] = []
    for where in environments(temp):
        results = {}
        if isinstance(where, Environment):
            results = {example: run(where, example, temp, cache) for example in EXAMPLES}
            print(where.name, *(result.digest[:16] for result in results.values()), flush=True)
        found.append((where, results))
    return found


def same(values: list[T]) -> bool:
    return len(set(values)) == 1


def main() -> None:
    chosen = publish.options(__doc__)
    with tempfile.TemporaryDirectory(prefix="windtunnel-digests-") as name:
        measured = measure(Path(name))
    demos = demo_digests(chosen.quick)
    rows = [["environment", *EXAMPLES, "goodput of 10-mptcp (Mb/s)"]]
    lines = [["environment", "example", "digest", "goodput_mbps"]]
    for where, results in measured:
        if isinstance(where, Missing):
            rows.append([where.name, f"not run: {where.why}", "", "", ""])
            continue
        shown = [f"`{result.digest[:12]}`" for result in results.values()]
        rows.append([where.name, *shown, results["10-mptcp"].goodput_mbps])
        lines += [[where.name, example, one.digest, one.goodput_mbps] for example, one in results.items()]
    lines += [[where, "demo", digest, ""] for where, digest in demos if not digest.startswith("not run")]
    (chosen.out / "dce-table-3.csv").write_text(
        "".join(",".join(f'"{cell}"' if "," in cell else cell for cell in line) + "\n" for line in lines),
        encoding="utf-8",
    )
    one_each = all(same([line[2] for line in lines if line[1] == example]) for example in (*EXAMPLES, "demo"))
    shown_demos = [[where, digest if digest.startswith("not run") else f"`{digest[:12]}`"] for where, digest in demos]
    intro, _, setting = (__doc__ or "").partition("\n\n")
    publish.page(
        chosen.out,
        "dce-table-3",
        "One experiment in many environments",
        [
            f"{intro}\n\n{setting.strip()}",
            "Made by `figures/digests.py`; whole digests: [dce-table-3.csv](dce-table-3.csv).",
            publish.markdown(rows),
            publish.markdown([["`windtunnel demo` in", "digest"], *shown_demos]),
            "## Beside the paper",
            "The paper runs its MPTCP experiment on Ubuntu 12.04 and 12.10 and CentOS 6.2, on a machine and in KVM, and finds the "
            "same goodput to the last digit. A goodput can be equal while packets differ, so that what is compared here is every "
            "frame with its nanosecond. Programs of another release of a distribution are other programs: "
            "[pinned roots](../images.md) make an experiment with them the same everywhere; the demo needs Perl only, whose "
            "releases here differ and do the same.",
        ],
    )
    if not one_each:
        raise SystemExit("digests: DIFFERENT digests of one example; see the page")


if __name__ == "__main__":
    main()
