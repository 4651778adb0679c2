# SPDX-License-Identifier: GPL-2.0-or-later
"""Code blocks of the documents, carried out.

A page is read from top to bottom, in a folder of its own:

- a block with `title="NAME"` is the file NAME from there on;
- `console`: each `$ command` runs in bash, with `windtunnel` and `python3` in PATH, and prints what stands after it;
  `...` stands for anything;
- `python` without a title runs in the page's interpreter, and prints what the `text` block right after it says;
- `yaml` without a title is a scenario that `windtunnel validate` has to accept;
- after `<!-- not run: REASON -->` a block is only shown. It is counted, and the reason is in the test's output.

Languages that cannot be carried out (`text`, `c`, ...) need neither.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

CARRIED_OUT = {"console", "python", "yaml"}
SHOWN = {"", "c", "css", "json", "pycon", "rust", "text"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)(?: +title=\"(?P<title>[^\"]+)\")?(?P<rest>.*)$")
NOT_RUN = re.compile(r"^ *<!-- not run: (.+) -->$")
TIMEOUT_S = 240


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    line: int
    language: str
    title: str | None
    text: str
    reason: str | None
    """Why it is not carried out, if so."""
    is_right_after: bool
    """Whether nothing stands between it and the block before."""


@dataclass
class Outcome:
    """What was done with a page's blocks."""

    ran: int = 0
    not_run: list[str] = field(default_factory=list)


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").split("\n")
    reason = None
    nothing_since = False
    number = 0
    while number < len(lines):
        line = lines[number]
        start = FENCE.match(line)
        if start:
            assert not start["rest"], f"{page}:{number + 1}: `{line}` is no fence that this test knows"
            indent = start["indent"]
            end = lines.index(f"{indent}```", number + 1)
            text = "".join(f"{inner.removeprefix(indent)}\n" for inner in lines[number + 1 : end])
            found.append(Block(number + 1, start["language"], start["title"], text, reason, nothing_since))
            number, reason, nothing_since = end, None, True
        elif mark := NOT_RUN.match(line):
            reason = mark[1]
        elif line.strip():
            assert reason is None, f"{page}:{number + 1}: `not run` stands right before its block"
            nothing_since = False
        number += 1
    return found


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Commands of a console block, and what each is to print."""
    command: str | None = None
    expected: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command, "".join(f"{part}\n" for part in expected)
            command, expected = line[2:], []
        elif line.startswith("> ") and not expected:
            command = f"{command}\n{line[2:]}"
        else:
            expected.append(line)
    assert command is not None, "a console block begins with `$ `"
    yield command, "".join(f"{part}\n" for part in expected)


def agrees(expected: str, printed: str) -> bool:
    """Whether it was printed as shown; `...` stands for anything, also for lines, also for none."""
    # An ellipsis alone on its line takes the line's end with it.
    pattern = re.escape(expected).replace(r"\.\.\.", ".*").replace(".*\\\n", "(?:.*\\\n)?")
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


class Page:
    """A page being carried out in a folder."""

    def __init__(self, page: Path, folder: Path, environment: dict[str, str]) -> None:
        self.page = page
        self.folder = folder
        self.environment = environment
        self.names: dict[str, object] = {}

    def carry_out(self) -> Outcome:
        outcome = Outcome()
        blocks = blocks_of(self.page)
        for block, following in itertools.zip_longest(blocks, blocks[1:]):
            where = f"{self.page.name}:{block.line}"
            assert block.language in CARRIED_OUT | SHOWN, f"{where}: language `{block.language}`"
            if block.reason:
                outcome.not_run.append(f"{where}: {block.reason}")
            elif block.title:
                path = self.folder / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
                outcome.ran += 1
            elif block.language in CARRIED_OUT:
                shown = (
                    following.text if following and following.language == "text" and following.is_right_after else ""
                )
                getattr(self, block.language)(where, block, shown)
                outcome.ran += 1
        return outcome

    def run(self, command: str, where: str) -> str:
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert done.returncode < 126, f"{where}: {command}\n{done.stdout}"
        return done.stdout

    def console(self, where: str, block: Block, _: str) -> None:
        for command, expected in commands(block.text):
            printed = self.run(command, where)
            if printed and not printed.endswith("\n"):
                printed += "\n"
            assert agrees(expected, printed), f"{where}: $ {command}\nshown:\n{expected}\nprinted:\n{printed}"

    def yaml(self, where: str, block: Block, _: str) -> None:
        path = self.folder / "shown.yaml"
        path.write_text(block.text, encoding="utf-8")
        said = self.run(f"windtunnel validate {path.name} || echo FAILED", where)
        assert not said.endswith("FAILED\n"), f"{where}: a scenario that is not valid:\n{said}"

    def python(self, where: str, block: Block, expected: str) -> None:
        code = compile("\n" * block.line + block.text, str(self.page), "exec")
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, self.names)
        assert agrees(expected, printed.getvalue()), f"{where}:\nshown:\n{expected}\nprinted:\n{printed.getvalue()}"


def environment(root: Path, engine: Path, python: Path, bin_folder: Path) -> dict[str, str]:
    """What commands of a page find: the program, an interpreter, the package."""
    bin_folder.mkdir(exist_ok=True)
    for name, target in {"windtunnel": engine, "python3": python}.items():
        if not (bin_folder / name).exists():
            # Interpreters look for their environment beside the name that they were called by.
            (bin_folder / name).write_text(f'#!/bin/sh\nexec {target} "$@"\n', encoding="utf-8")
            (bin_folder / name).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(root / "python"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "WINDTUNNEL_PROGRAM": str(engine),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": "100",
    }
