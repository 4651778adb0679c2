#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of this tree that no other linter knows; each message says what to do about it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINES_MAX = 1000
# Where `unsafe` may stand. A new entry needs a reason in ARCHITECTURE.md.
UNSAFE_ROOMS = (
    "crates/cli/src/debug.rs",
    "crates/kernel/",
    "crates/platform/src/sys.rs",
    "crates/ports/src/sys.rs",
    "crates/process/src/files/",
    "crates/process/src/space/",
    "crates/process/src/sys.rs",
    "crates/process/src/sys/",
    "crates/process/src/trap",
)
UNSAFE = re.compile(r"\bunsafe\s*(\{|fn\b|impl\b|extern\b|trait\b)|unsafe\(")
# Time has one owner, and randomness one source: neither may leak from the host into these.
PURE = ("crates/base/src/", "crates/links/src/", "crates/scenario/src/")
IMPURE = re.compile(r"\b(SystemTime|Instant)::now\b|\bthread_rng\b|\bHash(Map|Set)\b|\bgetrandom\b")
# What goes by the wall clock goes by the monotonic one: the host's date may be set while a run goes on.
PACED = ("crates/engine/src/", "crates/platform/src/", "crates/ports/src/", "crates/process/src/trap")
DATE = re.compile(r"\bSystemTime::now\b|\bCLOCK_(REALTIME|TAI)")
# It sets the clock of a node.
SETS_DATE = "crates/engine/src/configure.rs"
TEXT = {".rs", ".c", ".h", ".S", ".py", ".sh", ".toml", ".yaml", ".yml", ".md", ".cc", ".lds", ""}
NO_LIMIT = {"LICENSE", "Cargo.lock"}
GENERATED = ("docs/reference/",)


def tracked_files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    return [name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


def code_of(line: str) -> str:
    """The line without its comment, so that prose may name what code may not do."""
    return line.split("//", 1)[0]


def faults(name: str, lines: list[str]) -> Iterator[tuple[int, str]]:
    if len(lines) > LINES_MAX and Path(name).name not in NO_LIMIT and not name.startswith(GENERATED):
        yield LINES_MAX, f"file has {len(lines)} lines; split it (limit {LINES_MAX})"
    rust = name.endswith(".rs")
    unsafe_allowed = name.startswith(UNSAFE_ROOMS)
    here, home = str(ROOT) + "/", str(Path.home()) + "/"
    for number, line in enumerate(lines, 1):
        if rust and not unsafe_allowed and UNSAFE.search(code_of(line)):
            yield number, "unsafe outside its rooms; see ARCHITECTURE.md, 'Unsafe code'"
        if rust and name.startswith(PURE) and IMPURE.search(code_of(line)):
            yield number, "host time, host randomness or unordered iteration in a pure crate"
        if rust and name.startswith(PACED) and name != SETS_DATE and DATE.search(code_of(line)):
            yield number, "the host's date where time is kept, which may jump; use the monotonic clock"
        if here in line or (home in line and home not in ("/", "/root/")):
            yield number, "names a folder of this machine"
        if line.rstrip("\n") != line.rstrip():
            yield number, "white space at the end of the line"


def main() -> int:
    count = 0
    files = [name for name in tracked_files() if Path(name).suffix in TEXT]
    for name in files:
        try:
            lines = (ROOT / name).read_text(encoding="utf-8").split("\n")
        except UnicodeDecodeError:
            continue
        if lines[-1]:
            print(f"{name}: no newline at the end of the file", file=sys.stderr)
            count += 1
        for number, text in faults(name, lines[:-1] or lines):
            print(f"{name}:{number}: {text}", file=sys.stderr)
            count += 1
    if count == 0:
        print(f"style: {len(files)} files")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
