# SPDX-License-Identifier: GPL-2.0-or-later
"""What the code of a sweep's function is: its source, and what it uses of the script and of the modules beside it.

Text and not bytecode, so that the hash is the same for each version of Python; without comments and empty lines, so
that these may change. Where there is no text (`python3 -c`, `exec`), it is bytecode.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib.util
import inspect
import io
import re
import site
import sys
import sysconfig
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ._error import Error
from ._network import Network
from ._sweep_plan import canonical, canonical_json

_HERE = Path(__file__).resolve().parent


class Code:
    """The code that a function depends on.

    Attributes
    ----------
    parts : dict
        For each part what it is: source, the hash of a module, or a value. Equal parts mean equal code.
    unseen : list of str
        Values that it uses and that cannot be told apart: a change of one goes unnoticed.
    modules : list of module
        Modules of the user's own that it uses.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.parts: dict[str, str] = {}
        self.unseen: list[str] = []
        self.modules: list[ModuleType] = []
        # The same whether the script is run or read by the program.
        self._home = getattr(function, "__module__", None)
        self._visit("run", function)

    def _visit(self, name: str, value: Any) -> None:
        if name in self.parts:
            return
        self.parts[name] = ""
        fingerprint = getattr(value, "_fingerprint", None)
        if callable(fingerprint) and not inspect.isclass(value):
            self.parts[name] = canonical_json(fingerprint())
        elif isinstance(value, functools.partial):
            self._visit(f"{name}.func", value.func)
            self._data(f"{name}.arguments", [list(value.args), value.keywords])
        elif inspect.ismethod(value):
            self._visit(f"{name}.func", value.__func__)
            self._data(f"{name}.self", value.__self__)
        elif isinstance(value, FunctionType):
            self._function(name, value)
        elif inspect.isclass(value):
            self._class(name, value)
        elif isinstance(value, ModuleType):
            self._module(name, value)
        else:
            self._data(name, value)

    def _function(self, name: str, function: FunctionType) -> None:
        function = inspect.unwrap(function)
        if not _is_local(function.__module__):
            self.parts[name] = f"{function.__module__}.{function.__qualname__}"
            return
        self._own(function.__module__)
        source = _source(function)
        self.parts[name] = source or _bytecode(function.__code__)
        for number, default in enumerate(function.__defaults__ or ()):
            self._visit(f"{name}.default{number}", default)
        for key, default in (function.__kwdefaults__ or {}).items():
            self._visit(f"{name}.default.{key}", default)
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                self._visit(f"{name}.{key}", cell.cell_contents)
            except ValueError:
                # Not bound yet.
                continue
        self._names(source, function.__code__, function.__globals__)

    def _class(self, name: str, kind: type) -> None:
        if not _is_local(kind.__module__):
            self.parts[name] = f"{kind.__module__}.{kind.__qualname__}"
            return
        self._own(kind.__module__)
        source = _source(kind)
        self.parts[name] = source
        if not source:
            self.unseen.append(name)
        for base in kind.__bases__:
            self._visit(f"{self._place(base.__module__)}:{base.__qualname__}", base)
        module = sys.modules.get(kind.__module__)
        self._names(source, None, vars(module) if module else {})

    def _names(self, source: str, code: CodeType | None, known: dict[str, Any]) -> None:
        """Follows the global names that are used, and what is imported on the way."""
        if source:
            tree = ast.parse(source)
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            for module in sorted(_imports(tree, known.get("__package__") or "")):
                self._import(module)
        else:
            names = set(_names_of(code)) if code else set()
        where = self._place(known.get("__name__"))
        for name in sorted(names & set(known)):
            self._visit(f"{where}:{name}", known[name])

    def _place(self, module: str | None) -> str:
        return "" if module in (None, self._home) else str(module)

    def _import(self, name: str) -> None:
        if not _is_local(name):
            return
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            return
        if spec is not None and spec.origin:
            self._file(name, Path(spec.origin))

    def _module(self, name: str, module: ModuleType) -> None:
        if not _is_local(module.__name__):
            self.parts[name] = module.__name__
            return
        self._own(module.__name__)
        path = getattr(module, "__file__", None)
        self.parts[name] = module.__name__
        if path:
            self._file(module.__name__, Path(path))

    def _file(self, name: str, path: Path) -> None:
        """A module as a whole, and those that it imports."""
        key = f"module {name}"
        if key in self.parts:
            return
        try:
            content = path.read_bytes()
        except OSError:
            self.parts[key] = ""
            self.unseen.append(name)
            return
        self.parts[key] = hashlib.sha256(content).hexdigest()
        if path.suffix != ".py":
            return
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for module in sorted(_imports(ast.parse(content), package)):
            self._import(module)

    def _own(self, name: str) -> None:
        module = sys.modules.get(name)
        if module is not None and module not in self.modules and name != "__main__":
            self.modules.append(module)

    def _data(self, name: str, value: Any) -> None:
        try:
            self.parts[name] = canonical_json(_plain(value))
        except (Error, _Unseen, RecursionError):
            self.parts[name] = f"{type(value).__module__}.{type(value).__qualname__}"
            self.unseen.append(name.lstrip(":"))


class _Unseen(Exception):
    """A value that cannot be told from others."""


def _plain(value: Any) -> Any:
    """A value as JSON can hold it, with what tells it from others."""
    if isinstance(value, Network):
        return {"network": value.to_yaml()}
    network = getattr(value, "_network", None)
    if isinstance(network, Network):
        return {"of": repr(value), "network": network.to_yaml()}
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, re.Pattern):
        return {"pattern": value.pattern, "flags": value.flags}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(canonical_json(_plain(part)) for part in value)}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {
            "map": sorted([canonical_json(_plain(key)), canonical_json(_plain(part))] for key, part in value.items())
        }
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"of": type(value).__qualname__, **fields}
    if isinstance(value, (FunctionType, type)) and not _is_local(value.__module__):
        return f"{value.__module__}.{value.__qualname__}"
    if callable(value) or isinstance(value, ModuleType):
        raise _Unseen
    return canonical(value, "value")


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Full names of modules that a text imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".") if package else []
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            name = ".".join(part for part in (base, node.module) if part)
            if name:
                yield name
                # What is taken may be a module itself.
                yield from (f"{name}.{alias.name}" for alias in node.names)


@functools.cache
def _foreign_folders() -> tuple[Path, ...]:
    """Where what is installed lies."""
    folders = {*(sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib"))}
    folders.update(site.getsitepackages() if hasattr(site, "getsitepackages") else ())
    folders.add(site.getusersitepackages() if hasattr(site, "getusersitepackages") else "")
    return (*(Path(folder).resolve() for folder in folders if folder), _HERE, Path("/usr/lib/python3"))


def _is_local(name: str | None) -> bool:
    """Whether a module is of the user's own, and not of an installed package."""
    top = (name or "").partition(".")[0]
    if top in ("__main__", ""):
        return True
    module = sys.modules.get(name or "") or sys.modules.get(top)
    path = getattr(module, "__file__", None)
    if module is None:
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError, AttributeError):
            return False
        path = spec.origin if spec else None
        if spec is None:
            return False
    if not path or (not Path(path).is_absolute() and not Path(path).exists()):
        # Built into the interpreter, or made by a program.
        return module is not None and top not in sys.builtin_module_names and getattr(module, "__spec__", None) is None
    resolved = Path(path).resolve()
    return not any(folder in resolved.parents for folder in _foreign_folders())


def _source(value: Any) -> str:
    """The text of a function or class without comments; empty if there is none."""
    try:
        text = textwrap.dedent(inspect.getsource(value))
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError):
        return ""
    names = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    # Texts that are run as if they came from a file name lines of something else.
    is_it = names == [value.__name__] or value.__name__ == "<lambda>"
    return _without_comments(text) if is_it else ""


def _without_comments(text: str) -> str:
    lines = text.splitlines()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column]
    except (tokenize.TokenError, IndentationError):
        return text
    return "\n".join(line.rstrip() for line in lines if line.strip()) + "\n"


def _bytecode(code: CodeType) -> str:
    consts = [_bytecode(const) if isinstance(const, CodeType) else repr(const) for const in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {consts}"


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names_of(const)
