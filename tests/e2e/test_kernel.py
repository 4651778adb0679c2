# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel is the package's source plus one folder, and its build depends on nothing but its inputs."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, SERIES, cache_with
from scenarios import tcp_pair
from simulate import Simulation

BUILD = ROOT / "kernel/build"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def test_no_generic_file_differs_from_the_package() -> None:
    done = subprocess.run([BUILD, "--verify-source", SERIES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "additions only under arch/wt" in done.stderr


def test_a_changed_generic_file_is_noticed(tmp_path: Path) -> None:
    """The comparison itself can fail: a tree that holds nothing but our folder is no kernel."""
    (tmp_path / "source/arch/wt").mkdir(parents=True)
    done = subprocess.run(
        [BUILD, "--verify-source", "--work", tmp_path, SERIES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "is missing" in done.stderr


def test_the_record_of_the_build(kernel: Path, run: Callable[..., Simulation]) -> None:
    record = json.loads((kernel.parent / "build.json").read_text(encoding="utf-8"))
    used = run(tcp_pair(1)).json("manifest.json")["kernels"]
    assert [row["series"] for row in used] == [SERIES]
    assert used[0]["build_hash"] == record["hash"] == kernel.parent.name
    assert used[0]["sha256"] == record["image_sha256"]
    assert record["version"].startswith(used[0]["release"])


def build(out: Path, work: Path, *options: str, prefix: tuple[str, ...] = (), kernel: Path = BUILD, **env: str) -> Path:
    command: list[str | Path] = [*prefix, kernel, "--rebuild", "--out", out, "--work", work, *options, SERIES]
    done = subprocess.run(command, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.splitlines()[-1])


@pytest.mark.full
def test_another_folder_user_and_day_give_the_same_bytes(
    kernel: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("rebuild")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o777)
    # A checkout and a cache that the other user can use.
    shutil.copytree(ROOT / "kernel", folder / "clone/kernel")
    env = {"WINDTUNNEL_CACHE": str(folder / "cache"), "HOME": str(folder), "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"}
    prefix = tuple(NOBODY) if os.geteuid() == 0 else ()
    other = build(
        folder / "out", folder / "a/longer/path", "--jobs=3", prefix=prefix, kernel=folder / "clone/kernel/build", **env
    )
    for name in (kernel.name, f"{kernel.name}.debug", "config"):
        assert (kernel.parent / name).read_bytes() == (other.parent / name).read_bytes(), name


@pytest.mark.full
@pytest.mark.parametrize("options", [("--kcflags=-O1 -fno-profile-use",), ("--cc=gcc-11",)])
def test_another_compilation_gives_the_same_digest(
    run: Callable[..., Simulation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    scenario = tcp_pair(1)
    reference = run(scenario)
    other = build(tmp_path / "out", tmp_path / "work", *options)
    monkeypatch.setenv("WINDTUNNEL_CACHE", str(cache_with(other, tmp_path / "cache")))
    again = run(scenario)
    kernels = [result.json("manifest.json")["kernels"][0]["sha256"] for result in (reference, again)]
    assert kernels[0] != kernels[1], "the other compiler made the same bytes: this proves nothing"
    assert again.summary == reference.summary
