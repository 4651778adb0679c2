# SPDX-License-Identifier: GPL-2.0-or-later
"""Verbs of the program that are written in Python: ``python3 -m windtunnel._verb NAME JSON``.

The program has parsed the arguments, and has the help, the man page and the completions of them; they come as one JSON
object.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, Callable

from ._error import Error

# The module of each; its function `main` takes the arguments and gives the exit code.
VERBS = {
    "compare": "windtunnel.plot._compare",
    "export": "windtunnel.export",
    "plot": "windtunnel.plot",
    "prompt": "windtunnel.prompt",
    "sweep": "windtunnel._sweep_file",
}


def main(name: str, arguments: str) -> int:
    """Does it; the exit code."""
    run: Callable[[dict[str, Any]], int] = importlib.import_module(VERBS[name]).main
    try:
        return run(json.loads(arguments))
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever reads has seen enough. What is still in the buffer goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
