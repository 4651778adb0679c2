# SPDX-License-Identifier: GPL-2.0-or-later
"""What the wheel ships besides Python: the program, its kernel, and the version of all of them.

A wheel installs the program itself as the command `windtunnel`: it starts without Python. What it needs is in
`lib/windtunnel` beside the `bin` that it is in, so it finds that by itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
# Only a wheel has it.
_VERSION = _PACKAGE / "VERSION"


def version() -> str:
    """The version of this package, which is the program's; in a source tree what its Cargo.toml says."""
    if _VERSION.exists():
        return _VERSION.read_text(encoding="ascii").strip()
    cargo = _PACKAGE.parent.parent / "Cargo.toml"
    found = re.search(r'(?m)^version = "([^"]+)"$', cargo.read_text(encoding="utf-8"))
    if not found:
        raise ValueError(f"{cargo} names no version")
    return found[1]


def program() -> Path | None:
    """The program that was installed with this package; none in a source tree."""
    candidates = _candidates() if _VERSION.exists() else iter(())
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def installed_files() -> Path | None:
    """The folder `lib/windtunnel` of the installation: `kernels`, and `kernel`, the sources they are built from."""
    found = program()
    return found.parent.parent / "lib" / "windtunnel" if found else None


def _candidates() -> Iterator[Path]:
    """As the installer's record has it: right for virtual environments, --user, --prefix and the system alike."""
    # Not needed to import the package, and slow to load.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        files = distribution("windtunnel").files or []
    except PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "windtunnel" and file.parent.name == "bin":
            yield Path(str(file.locate())).resolve()
    # pip install --target moves commands without saying so in its record.
    yield _PACKAGE.parent / "bin" / "windtunnel"
