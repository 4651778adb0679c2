# SPDX-License-Identifier: GPL-2.0-or-later
"""Scenario files as Python values and back, without a change of meaning: YAML 1.2, as the engine reads it."""

from __future__ import annotations

import importlib
import re
from typing import Any

from ._error import Error

FLOW_MAX = 100
# What a plain scalar may look like in any context, unless it is a number or one of these words.
_PLAIN = re.compile(r"[A-Za-z0-9/_](?:[A-Za-z0-9 _./+%=~-]*[A-Za-z0-9/_+%=])?")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+.]?[0-9][0-9a-fox_.+-]*", re.IGNORECASE)
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}


class Plain(str):
    """A number whose spelling matters, such as 1e3 or 0x10: it is written as it was read."""


def scalar(text: str) -> Any:
    """The value of a plain scalar."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text.lower() in ("true", "false") and text in (text.lower(), text.upper(), text.capitalize()):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        try:
            number = float(text)
        except ValueError:
            return Plain(text)
        return number if repr(number) == text else Plain(text)
    return text


def load(text: str, name: str) -> Any:
    """The value of a YAML text; `name` is that of its file, for errors.

    >>> load("{epoch: 2026-01-01, at: 1:30, on: true}", "x.yaml")
    {'epoch': '2026-01-01', 'at': '1:30', 'on': True}
    """
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise Error("reading YAML needs the package PyYAML", hint="pip install PyYAML") from None
    try:
        return _value(yaml, yaml.compose(text, Loader=yaml.SafeLoader), name, text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Error(str(error.problem or error.context), where=_place(name, text, mark)) from None
    except yaml.YAMLError as error:
        raise Error(f"{name} is not YAML: {error}") from None


def _place(name: str, text: str, mark: Any) -> str | None:
    if mark is None:
        return None
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    return f"{name}:{mark.line + 1}:{mark.column + 1}\n{mark.line + 1:>5} | {line}"


def _value(yaml: Any, node: Any, name: str, text: str) -> Any:
    if node is None:
        return None
    if isinstance(node, yaml.ScalarNode):
        return scalar(node.value) if node.style is None else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_value(yaml, item, name, text) for item in node.value]
    result: dict[str, Any] = {}
    merged: list[Any] = []
    for key_node, value_node in node.value:
        value = _value(yaml, value_node, name, text)
        key = key_node.value
        if key == "<<" and key_node.style is None:
            merged.extend(value if isinstance(value, list) else [value])
            continue
        if not isinstance(key, str) or key in result:
            what = f"the key `{key}` is there twice" if isinstance(key, str) else "a key is not a text"
            raise Error(what, where=_place(name, text, key_node.start_mark))
        result[key] = value
    for other in merged:
        for key, value in other.items() if isinstance(other, dict) else ():
            result.setdefault(key, value)
    return result


def dump(value: Any) -> str:
    """The YAML text of a value; ends with a line feed.

    >>> print(dump({"version": 1, "rate": "10Mbit", "mode": "644", "text": "a: b"}), end="")
    version: 1
    rate: 10Mbit
    mode: "644"
    text: "a: b"
    """
    return "".join(_block(value, 0, top=True))


def _block(value: Any, indent: int, top: bool = False) -> list[str]:
    """Lines of a mapping or list, each with its line feed."""
    lines: list[str] = []
    margin = " " * indent
    if isinstance(value, dict):
        for key, item in value.items():
            lines.extend(_entry(f"{margin}{_text(str(key))}:", item, indent, wide=top))
    else:
        for item in value:
            if isinstance(item, dict) and item and not _fits(item, indent):
                inner = _block(item, indent + 2)
                lines.append(f"{margin}- {inner[0][indent + 2 :]}")
                lines.extend(inner[1:])
            else:
                lines.extend(_entry(f"{margin}-", item, indent))
    return lines


def _entry(head: str, item: Any, indent: int, wide: bool = False) -> list[str]:
    """A key or dash, and its value on the same line or below."""
    if isinstance(item, str) and not isinstance(item, Plain) and _is_block_text(item):
        kept = item.rstrip("\n")
        mark = {0: "-", 1: ""}.get(len(item) - len(kept), "+")
        margin = " " * (indent + 2)
        body = [f"{margin}{line}\n" if line else "\n" for line in item.split("\n")[: None if mark == "-" else -1]]
        return [f"{head} |{mark}\n", *body]
    spread = wide and isinstance(item, (dict, list)) and any(isinstance(part, (dict, list)) for part in _parts(item))
    if not isinstance(item, (dict, list)) or not item or (not spread and _fits(item, indent + len(head))):
        return [f"{head} {_flow(item)}\n"]
    return [f"{head}\n", *_block(item, indent + 2)]


def _parts(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value)


def _fits(value: Any, indent: int) -> bool:
    return "\n" not in str(value) and len(_flow(value)) + indent <= FLOW_MAX and not _has_block_text(value)


def _has_block_text(value: Any) -> bool:
    if isinstance(value, (dict, list)):
        return any(_has_block_text(part) for part in _parts(value))
    return isinstance(value, str) and _is_block_text(value)


def _is_block_text(text: str) -> bool:
    """Whether a text can stand as a literal block."""
    lines = text.split("\n")
    return (
        len(lines) > 2 and text[0] not in " \n" and bool(text.strip("\n")) and all(line.isprintable() for line in lines)
    )


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(str(key))}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Plain):
        return str(value)
    if isinstance(value, str):
        return _text(value)
    raise Error(f"{value!r:.60} cannot be in a scenario", hint="texts, numbers, lists and mappings can")


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS and not _looks_like_number(text):
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _looks_like_number(text: str) -> bool:
    if re.fullmatch(r"[0-9]+-[0-9]+(-.*)?", text):
        return True
    for read in (float, lambda digits: int(digits, 0), int):
        try:
            read(text)
            return True
        except ValueError:
            continue
    return False


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if 0xD800 <= code < 0xE000:
        raise Error(f"a text has the character U+{code:04X}, which is none")
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
