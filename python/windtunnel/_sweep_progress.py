# SPDX-License-Identifier: GPL-2.0-or-later
"""How a sweep gets on, on standard error: one line that changes at a terminal, else lines now and then."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from ._sweep_cell import Record
from ._sweep_table import cell_text

# Seconds between two looks.
TERMINAL_S = 0.2
PLAIN_S = 10.0
FAILED_MAX = 10
CLEAR = "\r\x1b[K"


class Progress:
    """Counts and says. `is_shown`: whether it says more than what went wrong; by default at a terminal."""

    def __init__(self, is_shown: bool | None) -> None:
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._is_shown = self._is_terminal if is_shown is None else is_shown
        self._total = 0
        self._found = 0
        self._computed = 0
        self._failed = 0
        self._folder = Path()
        self._name = ""
        self._begin = self._shown = time.monotonic()
        self._is_line_open = False

    def begin(self, name: str, total: int, folder: Path) -> None:
        """There are so many cells, for now."""
        self._name, self._total, self._folder = name, total, folder

    def finished(self, is_found: bool, is_failed: bool, more: int) -> None:
        """A cell is there, and so many more are needed now."""
        self._total += more
        if is_found:
            self._found += 1
        else:
            self._computed += 1
        self._failed += is_failed

    def failed(self, record: Record, folder: Path) -> None:
        """A cell has failed."""
        if self._failed < FAILED_MAX:
            error = record["error"]
            hint = f"\n  hint: {error['hint']}" if error["hint"] else ""
            what = error["message"] if error["type"] == "Error" else f"{error['type']}: {error['message']}"
            self._say(f"failed: {cell_text(record)}: {what}{hint}\n  results in {folder}")
        elif self._failed == FAILED_MAX:
            self._say("further cells have failed")

    def warn(self, text: str) -> None:
        """Something that the user has to know."""
        self._say(f"warning: {text}")

    def tick(self) -> None:
        """Some time has gone by."""
        now = time.monotonic()
        if self._is_shown and now - self._shown >= (TERMINAL_S if self._is_terminal else PLAIN_S):
            self._shown = now
            self._show(self._line(now))

    def end(self) -> None:
        """All is done."""
        if self._is_shown:
            self._show(self._line(time.monotonic()))
        self._close_line()

    def broken_off(self, is_interrupt: bool) -> None:
        """It ends before its time."""
        why = "interrupted: " if is_interrupt else ""
        self._say(
            f"{why}{self._found + self._computed} of {self._total} cells are finished, and kept in {self._folder}"
        )

    def _line(self, now: float) -> str:
        done = self._found + self._computed
        parts = [f"{self._name}: {done} of {self._total} cells"]
        if self._found:
            parts.append(f"{self._found} found")
        if self._failed:
            parts.append(f"{self._failed} failed")
        parts.append(_span(now - self._begin))
        if self._computed and done < self._total:
            parts.append(f"{_span((now - self._begin) / self._computed * (self._total - done))} to go")
        return ", ".join(parts)

    def _show(self, line: str) -> None:
        if self._is_terminal:
            self._write(f"{CLEAR}{line}")
            self._is_line_open = True
        else:
            self._write(f"{line}\n")

    def _close_line(self) -> None:
        if self._is_line_open:
            self._write("\n")
            self._is_line_open = False

    def _say(self, text: str) -> None:
        if self._is_line_open:
            self._write(CLEAR)
            self._is_line_open = False
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            # Nobody reads.
            return


def _span(seconds: float) -> str:
    """A time of the wall clock.

    >>> _span(4), _span(75), _span(7300)
    ('4 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
