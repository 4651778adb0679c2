#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes docs/reference: pages made from schemas, the program's own help, and docstrings. `make reference` runs it."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import reference_python

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/reference"
MADE = "<!-- Made by scripts/make_reference.py: do not edit. -->\n"

Schema = dict[str, Any]


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.replace("[`", "`").replace("`]", "`").split()).replace("|", "\\|")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell(text) for text in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def without_null(schema: Schema) -> Schema:
    """A value that may be left out is described as it is when it is there."""
    if "anyOf" in schema:
        rest = [part for part in schema["anyOf"] if part.get("type") != "null"]
        if len(rest) == 1:
            return {**schema, **without_null(rest[0]), "description": schema.get("description", "")}
    return schema


class Kinds:
    """Names kinds of values; objects and texts with a pattern have a section of their own."""

    def __init__(self, definitions: dict[str, Schema]) -> None:
        self.definitions = definitions

    def name(self, schema: Schema | bool) -> str:
        if isinstance(schema, bool):
            return "anything"
        schema = without_null(schema)
        if "$ref" in schema:
            name = str(schema["$ref"].rpartition("/")[2])
            return f"[{name}](#{name.lower()})"
        if "const" in schema:
            return f'`"{schema["const"]}"`'
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return " or ".join(dict.fromkeys(self.name(part) for part in schema[key]))
        kind = schema.get("type")
        if isinstance(kind, list):
            return " or ".join(self.name({**schema, "type": part}) for part in kind if part != "null")
        if kind == "array":
            return f"list of {self.name(schema['items'])}"
        if kind == "object":
            values = schema.get("additionalProperties")
            if isinstance(values, dict):
                return f"map of names to {self.name(values)}"
            keys = ", ".join(f"`{key}`: {self.name(value)}" for key, value in schema.get("properties", {}).items())
            return f"object with {keys}" if keys else "object"
        return str(kind or "anything")

    def keys(self, schema: Schema) -> str:
        """The table of an object's keys."""
        needed = schema.get("required", [])
        rows = []
        for key, value in schema.get("properties", {}).items():
            name = f"`{key}`" + (" (required)" if key in needed else "")
            rows.append([name, self.name(value), value.get("description", "")])
        return table(["key", "value", "meaning"], rows) if rows else ""

    def section(self, schema: Schema) -> str:
        """What is said of a definition."""
        text = f"{' '.join(schema.get('description', '').split())}\n\n".lstrip("\n")
        text += self.keys(schema)
        if "pattern" in schema:
            text += f"Pattern: `{schema['pattern']}`\n"
        alternatives = schema.get("oneOf") or schema.get("anyOf")
        if alternatives:
            rows = []
            for part in alternatives:
                if "properties" in part:
                    for key, value in part["properties"].items():
                        rows.append(
                            [f"`{key}`", self.name(value), part.get("description") or value.get("description", "")]
                        )
                else:
                    rows.append([self.name(part), "", part.get("description", "")])
            text += "\nOne of:\n\n" if schema.get("properties") else "One of:\n\n"
            text += table(["form", "value", "meaning"], rows)
        return text.rstrip("\n") + "\n"


def scenario() -> str:
    schema = json.loads((ROOT / "schema/scenario-v1.json").read_text(encoding="utf-8"))
    kinds = Kinds(schema["$defs"])
    text = f"""{MADE}
# Scenario files

Every key of a scenario, from `schema/scenario-v1.json`, which `windtunnel schema` prints. `windtunnel validate FILE`
checks a file, and `windtunnel validate FILE --plan` prints the addresses and routes that it leads to. Editors that know
JSON Schema complete keys if the first line of the file is `# yaml-language-server: $schema=PATH`.

## The file

{kinds.keys(schema)}"""
    for name, definition in schema["$defs"].items():
        text += f"\n## {name}\n\n{kinds.section(definition)}"
    return text


def protocol() -> str:
    path = max((ROOT / "schema").glob("protocol-v*.json"), key=lambda path: int(path.stem.rpartition("v")[2]))
    schema = json.loads(path.read_text(encoding="utf-8"))
    kinds = Kinds(schema["$defs"])
    text = f"""{MADE}
# Messages of the control protocol

All messages of version {schema["protocol"]}, from `schema/{path.name}`, which `windtunnel schema protocol` prints. How
they are framed, and what they mean for the time of a run, is in [The control protocol](../protocol.md). A client sends
[Request](#request) and reads [Reply](#reply); times end in `_ns` and are nanoseconds of virtual time.
"""
    for name, definition in schema["$defs"].items():
        text += f"\n## {name}\n\n{kinds.section(definition)}"
    return text


def output_of(engine: Path, *arguments: str) -> str:
    return subprocess.run([engine, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def verbs_in(helped: str) -> list[str]:
    """Names in the list of commands of a help text."""
    lines = helped.partition("\nCommands:\n")[2].partition("\n\n")[0].splitlines()
    return [word[1] for line in lines if (word := re.match(r"  ([a-z-]+) ", line)) and word[1] != "help"]


def verbs(engine: Path) -> str:
    whole = output_of(engine, "--help")
    text = f"""{MADE}
# Verbs

What `windtunnel VERB --help` prints. `windtunnel man` has the same as manual pages, and `windtunnel completions` the
words for a shell. What a scenario holds is in [Scenario files](scenario.md).

```text
{whole.strip()}
```
"""
    for verb in verbs_in(whole):
        helped = output_of(engine, verb, "--help")
        text += f"\n## {verb}\n\n```text\n{helped.strip()}\n```\n"
        for part in verbs_in(helped):
            text += f"\n### {verb} {part}\n\n```text\n{output_of(engine, verb, part, '--help').strip()}\n```\n"
    return text


def syscalls(engine: Path) -> str:
    calls = json.loads(output_of(engine, "syscalls", "--json"))
    rows = [[str(call["nr"]), f"`{call['name']}`", call["status"], call["note"]] for call in calls]
    return f"""{MADE}
# System calls

What `windtunnel syscalls` prints. Every call that is not listed is Linux's own, in the library kernel of the node.
What a program asked for in vain is in the `warnings` of the run's summary.

| status | means |
| --- | --- |
| full | all of what Linux does, by the host side |
| partial | some of it: the note says what differs |
| refused | none of it: the note says what the program sees |
| absent | none of it, as on a Linux without the hardware; no warning |

## The table

{table(["nr", "call", "status", "note"], rows)}"""


def pages(engine: Path) -> dict[Path, str]:
    return {
        FOLDER / "scenario.md": scenario(),
        FOLDER / "verbs.md": verbs(engine),
        FOLDER / "python.md": MADE + "\n" + reference_python.page(ROOT / "python"),
        FOLDER / "protocol.md": protocol(),
        FOLDER / "syscalls.md": syscalls(engine),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether they are current")
    parser.add_argument("--engine", type=Path, default=ROOT / "target/release/windtunnel", help="the program")
    args = parser.parse_args()
    stale = 0
    for path, text in pages(args.engine).items():
        text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
        if not args.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path.relative_to(ROOT)} is not current: run `make reference`", file=sys.stderr)
            stale += 1
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
