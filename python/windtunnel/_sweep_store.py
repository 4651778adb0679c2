# SPDX-License-Identifier: GPL-2.0-or-later
"""The folder of a sweep: a record for each finished cell, named by the hash of the cell's inputs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import json
import os
from pathlib import Path
from typing import Any

from ._error import Error
from ._sweep_cell import RECORD_VERSION, Record

CELLS = "cells"
RUNS = "runs"
LOCK = "sweep.lock"


class Store:
    """The records of a sweep. Each is written to a file of its own, which is there as a whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        try:
            (self.folder / CELLS).mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Error(f"cannot make {self.folder}: {error.strerror}", hint="name another folder with `out`") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            os.close(self._lock)
            raise Error(
                f"another sweep, process {holder or 'unknown'}, is at work in {self.folder}",
                hint="wait for its end, or name another folder with `out`",
            ) from None
        with contextlib.suppress(OSError):
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        self._hashes: dict[str, str | None] = {}

    def leave(self) -> None:
        """In a fork of this process: has no part in it."""
        os.close(self._lock)

    def close(self) -> None:
        """Lets others use the folder."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        os.close(self._lock)

    def runs_of(self, key: str) -> Path:
        """Where runs of a cell leave their results."""
        return self.folder / RUNS / key[:16]

    def get(self, key: str) -> Record | None:
        """The record of a cell that has finished well, unless host files that it used are others now."""
        try:
            record = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(record, dict) or record.get("record_version") != RECORD_VERSION or record.get("key") != key:
            return None
        if record.get("error") is not None or not isinstance(record.get("values"), dict):
            return None
        if any(self._has_changed(run) for run in record["runs"]):
            return None
        return record

    def _has_changed(self, run: dict[str, Any]) -> bool:
        for path, sha256 in itertools.chain(run.get("programs", {}).items(), run.get("files", {}).items()):
            if path not in self._hashes:
                self._hashes[path] = hash_of_file(path)
            if sha256 is None or self._hashes[path] != sha256:
                return True
        return False

    def put(self, record: Record) -> None:
        """Keeps a record.

        Raises
        ------
        Error
            It cannot be written; those before it are kept.
        """
        write(self._path(record["key"]), record_text(record))

    def _path(self, key: str) -> Path:
        return record_path(self.folder, key)


def record_path(folder: Path, key: str) -> Path:
    """Where a cell's record is."""
    return folder / CELLS / f"{key}.json"


def record_text(record: Record) -> str:
    """A record as its file has it."""
    return json.dumps(record, indent=1) + "\n"


def write(path: Path, text: str) -> None:
    """Writes a file so that it is there as a whole or not at all."""
    passing = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with passing.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fdatasync(file.fileno())
        passing.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            passing.unlink()
        what = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        raise Error(
            f"cannot write {path}: {what}",
            hint="finished cells are kept: make room, and the same command goes on where this one ended",
        ) from None


def hash_of_file(path: str | os.PathLike[str]) -> str | None:
    """SHA-256 of a file; none if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()
