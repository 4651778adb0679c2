# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs of one scenario under different circumstances, and what they leave, to be held against each other."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import cache_with
from scenarios import Mapping

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user or host")


@dataclass(frozen=True)
class Outcome:
    """All that a run leaves; the manifest, which also tells of the host, apart."""

    digest: str
    files: dict[str, bytes]
    manifest: Mapping

    @classmethod
    def of(cls, out: Path) -> "Outcome":
        summary, manifest = (json.loads((out / f"{name}.json").read_bytes()) for name in ("summary", "manifest"))
        paths = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name != "manifest.json"]
        return cls(summary["digest"], {str(path.relative_to(out)): path.read_bytes() for path in paths}, manifest)

    def assert_equal(self, other: "Outcome") -> None:
        assert sorted(self.files) == sorted(other.files)
        differing = [name for name, data in self.files.items() if other.files[name] != data]
        assert not differing, f"these differ: {differing}"
        assert self.digest == other.digest

    @property
    def summary(self) -> Mapping:
        summary: Mapping = json.loads(self.files["summary.json"])
        return summary

    def stdout(self, node: str, number: int) -> str:
        """What program number `number` of a node wrote."""
        (name,) = [name for name in self.files if name.startswith(f"{node}/") and name.endswith(f"-{number}.stdout")]
        return self.files[name].decode()

    def inputs(self, kind: str) -> dict[str, str]:
        """Hashes in the manifest, by path; `kind`: programs, files or directories."""
        return {record["path"]: record["sha256"] for record in self.manifest[kind]}


@dataclass(frozen=True)
class Host:
    """A folder that any user can read, with program, kernel and, if one was given, scenario."""

    folder: Path

    @classmethod
    def prepare(cls, folder: Path, engine: Path, kernel: Path, scenario: Mapping | None = None) -> "Host":
        folder.chmod(0o755)
        shutil.copy(engine, folder / "windtunnel")
        cache_with(kernel, folder / "cache")
        if scenario is not None:
            (folder / "s.yaml").write_text(json.dumps(scenario), encoding="utf-8")
        return cls(folder)

    def run(
        self,
        prefix: Sequence[str | Path] = (),
        engine: str = "windtunnel",
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        options: Sequence[str] = (),
        scenario: str = "s.yaml",
    ) -> Outcome:
        with tempfile.TemporaryDirectory() as home:
            Path(home).chmod(0o777)
            out = Path(home) / "out"
            base = {"PATH": os.environ["PATH"], "HOME": home, "WINDTUNNEL_CACHE": str(self.folder / "cache")}
            command: list[str | Path] = [
                *prefix,
                self.folder / engine,
                "run",
                self.folder / scenario,
                "--out",
                out,
                *options,
            ]
            done = subprocess.run(
                command,
                cwd=cwd or home,
                env=base | (env or {}),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
            return Outcome.of(out)
