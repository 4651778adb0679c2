#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs scenarios and shows what their programs printed: demo.py ENGINE SCENARIO..."""

import json
import shlex
import subprocess
import sys
from pathlib import Path


def show(out: Path) -> None:
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    for process in summary["processes"]:
        text = (out / process["stdout"]).read_text(encoding="utf-8", errors="replace")
        print(f"\n{process['node']}$ {shlex.join(process['command'])}\n{text.rstrip()}")
    print(f"\n{summary['virtual_time_ns'] / 1e9:.3f} s of virtual time; digest {summary['digest']}")


def main(engine: str, scenarios: list[str]) -> int:
    for scenario in scenarios:
        out = Path("out") / Path(scenario).stem
        command = [engine, "run", scenario, "--out", str(out), "--force"]
        print(f"\n=== {shlex.join(command)}", flush=True)
        code = subprocess.run(command, check=False).returncode
        if code != 0:
            print(f"demo: windtunnel ended with exit code {code}", file=sys.stderr)
            return 1
        show(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
