# SPDX-License-Identifier: GPL-2.0-or-later
"""Puts the program, its kernel and what belongs to them into the wheel."""

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Neither the program nor the kernel links a shared library (scripts/dist.py checks it), so any C library will do; no
# system with a new enough kernel has an older one than 2.17.
TAG = "py3-none-manylinux_2_17_x86_64"


class PlatformFiles(BuildHookInterface):  # type: ignore[type-arg]
    """$WINDTUNNEL_DIST_ROOT is a folder with bin, lib and share, which are installed as they are."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # windtunnel/_program.py finds the checkout's program
        root = os.environ.get("WINDTUNNEL_DIST_ROOT")
        if not root:
            raise RuntimeError("the wheel needs the program and its kernel\nhint: make dist; or pip install -e python")
        build_data["tag"] = TAG
        build_data["pure_python"] = False
        build_data["shared_scripts"][f"{root}/bin/windtunnel"] = "windtunnel"
        for folder in ("lib", "share"):
            for path in sorted(Path(root, folder).rglob("*")):
                if path.is_file():
                    build_data["shared_data"][str(path)] = path.relative_to(root).as_posix()
        build_data["force_include"][f"{root}/VERSION"] = "windtunnel/VERSION"
