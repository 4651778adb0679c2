# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the program `windtunnel` is."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path

from ._error import Error

VARIABLE = "WINDTUNNEL_PROGRAM"


def find_program() -> Path:
    """The program of ``$WINDTUNNEL_PROGRAM``, of this package, of the source tree that it lies in, or of the PATH."""
    named = os.environ.get(VARIABLE)
    if named:
        if os.access(named, os.X_OK):
            return Path(named)
        raise Error(
            f"{VARIABLE} names {named}, which cannot be run",
            hint=f"name the program windtunnel, or unset {VARIABLE}",
            exit_code=126,
        )
    found = _shipped() or _built() or shutil.which("windtunnel")
    if found is None:
        raise Error(
            "the program windtunnel was not found",
            hint=f"install the wheel, run `make build` in a clone, or set {VARIABLE}",
            exit_code=127,
        )
    return Path(found)


def _shipped() -> str | None:
    """What the wheel carries; in a source tree there is none."""
    try:
        module = importlib.import_module("windtunnel._program")
    except ImportError:
        return None
    for name in ("program", "find_program"):
        find = getattr(module, name, None)
        if callable(find):
            found = find()
            return str(found) if found and os.access(found, os.X_OK) else None
    return None


def _built() -> str | None:
    path = Path(__file__).resolve().parent.parent.parent / "target/release/windtunnel"
    return str(path) if os.access(path, os.X_OK) else None
