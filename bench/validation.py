# SPDX-License-Identifier: GPL-2.0-or-later
"""How far the host's own kernel agrees with virtual time: the example with three clocks."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from realtime import Found
from simulate import RunError

EXAMPLE = Path(__file__).resolve().parent.parent / "examples/live/31-three-clocks"
PATIENCE_S = 180
MUST_PERCENT, AIM_PERCENT = 2, 1


def measure(engine: Path) -> Iterator[Found]:
    environment = {**os.environ, "WINDTUNNEL": str(engine.resolve())}
    # Its exit code says whether it is within the bound, which is what the table is for.
    done = subprocess.run(
        [EXAMPLE, "--json"], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    if not done.stdout:
        raise RunError(f"{EXAMPLE.name} ended with {done.returncode}:\n{done.stderr[-1500:]}")
    found = json.loads(done.stdout)
    reference = found["values"]["virtual"]
    for clock, row in found["values"].items():
        if clock == "virtual":
            continue
        for name, value in row.items():
            percent = abs(found["deviations"][clock][name]) * 100
            note = f"{value:.4g} against {reference[name]:.4g}"
            yield Found(f"{name}: {clock} against virtual time", percent, "%", MUST_PERCENT, AIM_PERCENT, True, note)
