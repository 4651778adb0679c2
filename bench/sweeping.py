#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A sweep of many short cells: prints which part of their time its workers spent in cells, and how many there were.

Each cell takes 0.1 s of a processor. The part of its time that a worker has one does not depend on what else the
machine does.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

import windtunnel as wt

CELLS = 1000
CELL_S = 0.1


def spin(seed: int, number: int) -> dict[str, float]:
    end_s = time.process_time() + CELL_S
    while time.process_time() < end_s:
        pass
    return {"square": number**2}


def main() -> None:
    executor = wt.LocalExecutor()
    with tempfile.TemporaryDirectory(prefix="windtunnel-bench-") as folder:
        begin = time.monotonic()
        found = wt.sweep(spin, {"number": range(CELLS)}, out=folder, executor=executor)
        elapsed_s = time.monotonic() - begin
    found.check()
    share = sum(record["wall_s"] for record in found.records) / (executor.workers * elapsed_s)
    print(share, executor.workers)


if __name__ == "__main__":
    main()
