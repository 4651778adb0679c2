#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Fails when a Rust dependency's licence does not go with GPL-2.0, the kernel's, which ours is linked with."""

import re
import subprocess
import sys

# Licences that may be combined with GPL-2.0-only code. Apache-2.0 alone, GPL-3.0 and MPL-1.1 may not.
COMPATIBLE = {
    "0BSD",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "GPL-2.0",
    "GPL-2.0-only",
    "GPL-2.0-or-later",
    "ISC",
    "LGPL-2.1-only",
    "LGPL-2.1-or-later",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
}
TARGET = "x86_64-unknown-linux-gnu"


def compatible(expression: str) -> bool:
    """Whether an SPDX expression leaves a compatible choice. The old form "MIT/Apache-2.0" means OR."""
    tokens: list[str] = re.findall(r"\(|\)|[^\s()/]+|/", expression)
    position = 0

    def peek() -> str:
        return tokens[position] if position < len(tokens) else ""

    def take() -> str:
        nonlocal position
        position += 1
        return tokens[position - 1]

    def term() -> bool:
        if peek() == "(":
            take()
            value = either()
            if take() != ")":
                raise ValueError(f"unbalanced: {expression}")
            return value
        name = take()
        if peek() == "WITH":
            name = f"{name} {take()} {take()}"
        return name in COMPATIBLE

    def both() -> bool:
        value = term()
        while peek() == "AND":
            take()
            value = term() and value
        return value

    def either() -> bool:
        value = both()
        while peek() in ("OR", "/"):
            take()
            value = both() or value
        return value

    value = either()
    if position != len(tokens):
        raise ValueError(f"cannot read licence expression: {expression}")
    return value


def main() -> int:
    # Not `cargo metadata`: it lists crates that weak features name but nothing builds.
    command = [
        "cargo",
        "tree",
        "--workspace",
        f"--target={TARGET}",
        "--edges=normal,build,dev",
        "--prefix=none",
        "--format={p}|{l}",
    ]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    packages = {line.removesuffix(" (*)") for line in listed.splitlines() if line}
    bad = []
    for package in sorted(packages):
        name, _, licence = package.partition("|")
        if not licence or not compatible(licence):
            bad.append(f"{name}: {licence or 'no licence named'}")
    for line in bad:
        print(f"licence not compatible with GPL-2.0: {line}", file=sys.stderr)
    if not bad:
        print(f"licences: {len(packages)} packages, all compatible with GPL-2.0")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
