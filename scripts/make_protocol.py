#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes python/windtunnel/_protocol.py: the types of the control protocol's messages.

They come from the schema that the engine's own types make (`windtunnel schema protocol`)."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "python/windtunnel/_protocol.py"
SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
WIDTH = 116

Schema = dict[str, Any]


def newest_schema() -> Path:
    return max((ROOT / "schema").glob("protocol-v*.json"), key=lambda path: int(path.stem.rpartition("v")[2]))


class Writer:
    """Collects the classes that a schema's definitions become."""

    def __init__(self) -> None:
        self.classes: list[str] = []

    def type_of(self, schema: Schema | bool, name: str) -> str:
        """The annotation for a value; `name` is what a class made for it is called."""
        if isinstance(schema, bool):
            return "Any"
        if "$ref" in schema:
            return str(schema["$ref"].rpartition("/")[2])
        if "const" in schema:
            return f'Literal["{schema["const"]}"]'
        if "anyOf" in schema:
            return self.union(self.type_of(part, name) for part in schema["anyOf"])
        kind = schema.get("type")
        if isinstance(kind, list):
            return self.union(self.type_of({**schema, "type": part}, name) for part in kind)
        if kind == "array":
            return f"list[{self.type_of(schema['items'], name)}]"
        if kind == "object":
            if "properties" in schema:
                self.record(name, schema)
                return name
            values = schema.get("additionalProperties")
            return f"dict[str, {self.type_of(values, name) if isinstance(values, dict) else 'Any'}]"
        return SCALARS[kind] if kind else "Any"

    @staticmethod
    def union(parts: Any) -> str:
        found = list(dict.fromkeys(parts))
        return " | ".join(found)

    def define(self, name: str, schema: Schema) -> None:
        """One definition of the schema."""
        variants = schema.get("oneOf", [])
        objects = [variant for variant in variants if "properties" in variant]
        words = [variant["const"] for variant in variants if "const" in variant]
        if not variants or objects:
            # Of alternatives, each a key of its own, exactly one is there.
            merged = {key: value for variant in objects for key, value in variant["properties"].items()}
            one_of = {key: {**value, "one_of": True} for key, value in merged.items()}
            whole = {**schema, "properties": {**schema.get("properties", {}), **one_of}}
            self.record(f"{name}Object" if words else name, whole)
        if words:
            literal = "Literal[" + ", ".join(f'"{word}"' for word in words) + "]"
            alias = f"Union[{name}Object, {literal}]" if objects else literal
            self.classes.append(f"{name} = {alias}\n{quoted(schema.get('description', ''), '')}")

    def record(self, name: str, schema: Schema) -> None:
        """A class for an object: its required keys in a base class, since NotRequired is newer than Python 3.9."""
        fields: dict[bool, list[str]] = {True: [], False: []}
        for key, value in schema["properties"].items():
            needed = key in schema.get("required", [])
            kind = self.type_of(value, name + "".join(part.title() for part in key.split("_")))
            note = quoted(value.get("description", ""), "    ")
            fields[needed].append(f"    {key}: {kind}\n{note}")
        doc = quoted(schema.get("description", ""), "    ")
        required, optional = "".join(fields[True]), "".join(fields[False])
        if required and optional:
            self.classes.append(f"class _{name}Keys(TypedDict):\n{required}")
            self.classes.append(f"class {name}(_{name}Keys, total=False):\n{doc}\n{optional}")
        elif optional:
            self.classes.append(f"class {name}(TypedDict, total=False):\n{doc}\n{optional}")
        else:
            self.classes.append(f"class {name}(TypedDict):\n{doc}\n{required or '    pass' * (not doc)}")


def quoted(text: str, indent: str) -> str:
    """A docstring; links of the Rust documentation lose their marks."""
    if not text:
        return ""
    plain = " ".join(text.replace("[`", "`").replace("`]", "`").split())
    lines = textwrap.wrap(plain, WIDTH - len(indent) - 6, break_long_words=False)
    body = f"\n{indent}".join(lines)
    return f'{indent}"""{body}"""\n'


def ordered(definitions: dict[str, Schema]) -> list[str]:
    """Aliases are evaluated when they are made, so what they name comes first."""
    aliases = [name for name, schema in definitions.items() if any("const" in part for part in schema.get("oneOf", []))]
    return [name for name in definitions if name not in aliases] + aliases


def generated(schema: Schema) -> str:
    writer = Writer()
    for name in ordered(schema["$defs"]):
        writer.define(name, schema["$defs"][name])
    head = f'''# SPDX-License-Identifier: GPL-2.0-or-later
"""Messages of the control protocol. Made by scripts/make_protocol.py from the engine's own types: do not edit."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union

PROTOCOL = {schema["protocol"]}
"""Version of the protocol."""
'''
    return head + "".join(f"\n\n{text.rstrip()}\n" for text in writer.classes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    args = parser.parse_args()
    text = generated(json.loads(newest_schema().read_text(encoding="utf-8")))
    if not args.check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print(f"{TARGET.relative_to(ROOT)} is not current: run scripts/make_protocol.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
