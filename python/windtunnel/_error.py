# SPDX-License-Identifier: GPL-2.0-or-later
"""The one exception of this package."""

from __future__ import annotations

import re
import signal
from typing import NoReturn

__all__ = ["Error"]

_PLACE = re.compile(r"^(?P<place>.+?:\d+(?::\d+)?): (?P<what>.*)$", re.DOTALL)


class Error(Exception):
    """What went wrong: a wrong argument, a refusal of the engine, a program out of time, an engine that died.

    Attributes
    ----------
    message : str
        What happened, the value, and what is allowed.
    hint : str or None
        What to do about it.
    where : str or None
        Line of the scenario that it is about, as the engine prints it: file, line and column, then the line itself.
    exit_code : int
        As shells have it: 127 no such program, 126 it cannot be run, 1 an expectation failed, 2 the input or the host
        needs a change, 3 a crash of the engine, 128 plus its number for a signal.

    Examples
    --------
    >>> import windtunnel as wt
    >>> try:
    ...     wt.Network().add_node("a b")
    ... except wt.Error as error:
    ...     print(error.message)
    `a b` cannot be the name of a node
    """

    def __init__(self, message: str, *, hint: str | None = None, where: str | None = None, exit_code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where
        self.exit_code = exit_code

    def __str__(self) -> str:
        parts = [self.message]
        if self.where:
            parts.append(f"  at {self.where}")
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)

    def without_folder(self, folder: str) -> None:
        """Forgets the temporary folder that a scenario was in."""
        if self.where:
            self.where = self.where.replace(f"{folder}/", "", 1)

    def __reduce__(self) -> tuple[object, ...]:
        # Sweeps send errors from one process to another.
        return _restore, (self.message, self.hint, self.where, self.exit_code)


def _restore(message: str, hint: str | None, where: str | None, exit_code: int) -> Error:
    return Error(message, hint=hint, where=where, exit_code=exit_code)


def refuse(message: str, hint: str | None = None) -> NoReturn:
    """Raises an :class:`Error` about an argument, without the chain of what was tried inside."""
    raise Error(message, hint=hint) from None


def _ending(exit_code: int) -> str:
    names = {128 + number: number.name for number in signal.Signals}
    return f"was ended by {names[exit_code]}" if exit_code in names else f"ended with exit code {exit_code}"


def last_words(text: str, exit_code: int) -> Error:
    """What the engine printed before it ended, as an error.

    It prints ``error: [FILE:LINE:COLUMN: ]what``, the lines it is about, ``allowed: ...`` and ``hint: ...``.
    """
    lines = text.rstrip().splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    if not starts:
        how = _ending(exit_code)
        said = f", and said: {text.strip()}" if text.strip() else ""
        return Error(f"the engine {how}{said}", exit_code=exit_code)
    message = [lines[starts[-1]][len("error: ") :]]
    place: list[str] = []
    hints: list[str] = []
    for line in lines[starts[-1] + 1 :]:
        if line.startswith("hint: "):
            hints.append(line[len("hint: ") :])
        elif hints:
            hints.append(line)
        elif re.match(r"^\s+\d* *\|", line):
            place.append(line)
        else:
            message.append(line)
    where = None
    found = _PLACE.match(message[0])
    if found:
        message[0] = found["what"]
        where = "\n".join([found["place"], *place])
    return Error("\n".join(message), hint="\n".join(hints) or None, where=where, exit_code=exit_code)
