# SPDX-License-Identifier: GPL-2.0-or-later
"""The page of the Python package's reference, from its source: signatures as they are written, and docstrings.

It reads, and does not import: what the page says depends on the package alone, not on the Python that makes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
FIELD_SECTIONS = {"Parameters", "Attributes", "Returns", "Raises", "Yields", "Other Parameters"}
ROLE = re.compile(r":\w+:`~?(?:windtunnel\.)?([^`]+)`")
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def modules(package: Path) -> dict[str, ast.Module]:
    return {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.glob("*.py"))}


def exported(init: ast.Module) -> list[tuple[str, str]]:
    """Module and name of what the package gives, in the order of its `__all__`."""
    homes = {
        alias.name: node.module or ""
        for node in ast.walk(init)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    for node in init.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return [(homes[name], name) for name in ast.literal_eval(node.value) if name in homes]
    raise ValueError("the package has no __all__")


def definition(tree: ast.Module, name: str) -> ast.stmt | None:
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, *Function)) and node.name == name:
            return node
    return None


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, drops_first: bool) -> str:
    """As it is written; long ones have a parameter a line."""
    arguments = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    if drops_first and (arguments.args.posonlyargs or arguments.args.args):
        (arguments.args.posonlyargs or arguments.args.args).pop(0)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    start = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    whole = f"{start}{name}({ast.unparse(arguments.args)}){returns}"
    if len(whole) <= 100:
        return whole
    parts = parameters(arguments.args)
    return f"{start}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def parameters(arguments: ast.arguments) -> list[str]:
    """Each parameter as text."""
    parts = []
    positional = arguments.posonlyargs + arguments.args
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    for argument, default in zip(positional, [*defaults, *arguments.defaults], strict=True):
        parts.append(ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else ""))
    if arguments.vararg:
        parts.append(f"*{ast.unparse(arguments.vararg)}")
    elif arguments.kwonlyargs:
        parts.append("*")
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        parts.append(ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else ""))
    if arguments.kwarg:
        parts.append(f"**{ast.unparse(arguments.kwarg)}")
    return parts


def prose(text: str) -> str:
    """reStructuredText's marks become Markdown's."""
    return ROLE.sub(r"`\1`", text).replace("``", "`")


def fields(text: str) -> str:
    """The entries of a section such as Parameters as a list."""
    lines: list[str] = []
    is_header = False
    for line in text.strip("\n").splitlines():
        if line.strip() and not line.startswith(" "):
            name, _, kind = line.partition(" : ")
            lines.append(f"- `{name}`" + (f" ({prose(kind)})" if kind else ""))
            is_header = True
        elif line.strip():
            lines[-1] += (": " if is_header else " ") + prose(line.strip())
            is_header = False
    return "\n".join(lines) + "\n"


def examples(text: str) -> str:
    """Sessions become blocks; what is between them stays prose."""
    blocks = re.split(r"((?:^(?:>>>|\.\.\.).*\n(?:(?!>>>)\S.*\n)*)+)", text.strip("\n") + "\n", flags=re.MULTILINE)
    made = ""
    for block in blocks:
        if block.startswith(">>>"):
            made += f"```pycon\n{block.rstrip()}\n```\n\n"
        elif block.strip():
            made += prose(block.strip()) + "\n\n"
    return made.rstrip("\n") + "\n"


def docstring(node: ast.AST) -> str:
    """A docstring in numpydoc's form as Markdown."""
    assert isinstance(node, (ast.Module, ast.ClassDef, *Function))
    text = ast.get_docstring(node) or ""
    parts = SECTION.split(text)
    made = split_examples(parts[0])
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        content = fields(body) if title in FIELD_SECTIONS else examples(body)
        made += f"\n**{title}**\n\n{content}"
    return made


def split_examples(text: str) -> str:
    return (examples(text) if ">>>" in text else prose(text.strip()) + "\n") if text.strip() else ""


def is_shown(node: ast.stmt) -> bool:
    return isinstance(node, Function) and not node.name.startswith("_") and bool(ast.get_docstring(node))


def bases_in(node: ast.ClassDef, trees: dict[str, ast.Module]) -> list[ast.ClassDef]:
    """The class, and those of the package that it is made of."""
    found = [node]
    for base in node.bases:
        for tree in trees.values():
            inner = definition(tree, ast.unparse(base))
            if isinstance(inner, ast.ClassDef):
                found.extend(bases_in(inner, trees))
    return found


def members(node: ast.ClassDef, trees: dict[str, ast.Module]) -> str:
    made = ""
    seen = set()
    for part in bases_in(node, trees):
        for member in part.body:
            if not isinstance(member, Function) or not is_shown(member) or member.name in seen:
                continue
            seen.add(member.name)
            decorators = [ast.unparse(item) for item in member.decorator_list]
            name = f"{node.name}.{member.name}"
            made += f"\n### {name}\n\n"
            if "property" in decorators:
                made += f"Property: `{ast.unparse(member.returns) if member.returns else 'Any'}`. "
            else:
                made += f"```python\n{signature(member, name, 'staticmethod' not in decorators)}\n```\n\n"
            made += docstring(member)
    return made


def constructor(node: ast.ClassDef) -> str:
    """How one is made, if its docstring says with what."""
    if "Parameters\n---" not in (ast.get_docstring(node) or ""):
        return ""
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            return f"```python\n{signature(member, f'windtunnel.{node.name}', True)}\n```\n\n"
    return ""


def functions(tree: ast.Module, module: str) -> str:
    """Those of a module that is exported as a whole."""
    made = ""
    for node in tree.body:
        if isinstance(node, Function) and is_shown(node):
            name = f"{module}.{node.name}"
            made += f"\n### {name}\n\n```python\n{signature(node, name, False)}\n```\n\n{docstring(node)}"
    return made


def page(folder: Path) -> str:
    """Markdown for all that the package exports."""
    trees = modules(folder / "windtunnel")
    init = trees["__init__"]
    text = f"""# Python API

All that `import windtunnel` gives, from its docstrings; their examples are tests. [Python](../python.md) is a tour.

{docstring(init)}"""
    for home, name in exported(init):
        if not home:
            text += f"\n## {name}\n\n{docstring(trees[name])}{functions(trees[name], name)}"
            continue
        node = definition(trees[home], name)
        if isinstance(node, ast.ClassDef):
            text += f"\n## {name}\n\n{constructor(node)}{docstring(node)}{members(node, trees)}"
        elif isinstance(node, Function):
            text += (
                f"\n## {name}\n\n```python\n{signature(node, f'windtunnel.{name}', False)}\n```\n\n{docstring(node)}"
            )
    return text
