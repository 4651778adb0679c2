# SPDX-License-Identifier: GPL-2.0-or-later
"""File systems of their own for folders of results: small ones, and some that refuse to be written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def on_tmpfs(options: str, folder: Path) -> list[str]:
    """A command prefix: with a file system of its own on the folder; prints the manifest at the end."""
    script = (
        'mount -t tmpfs -o "$0" tmpfs "$1" || exit 99; folder=$1; shift; "$@"; code=$?; '
        'cat "$folder/manifest.json" 2>/dev/null; exit $code'
    )
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    prefix = ["unshare", "--mount", *user, "sh", "-c", script, options, str(folder)]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 99:
        pytest.skip("this host gives no mount namespace")
    return prefix
