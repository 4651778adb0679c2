# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents: their code runs, what is generated is current, and what they name is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import documents
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md") if path.parent != DOCS / "reference")
# Pages with a test of their own.
CARRIED_OUT_ELSEWHERE = {"docs/sweeps.md": "tests/e2e/test_sweep.py"}
FRONT = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
# Programs of pages beyond those of `scripts/setup-system run`.
NEEDS_STUDY = re.compile(r"matplotlib|windtunnel (plot|sweep|compare .*--plot)")


@pytest.mark.parametrize("name", [*PAGES, "README.md"])
def test_what_a_page_shows_is_so(
    name: str,
    engine: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if test := CARRIED_OUT_ELSEWHERE.get(name):
        assert name in (ROOT / test).read_text(encoding="utf-8"), f"{test} does not carry {name} out"
        return
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    python = request.getfixturevalue("study_python") if NEEDS_STUDY.search(text) else Path("/usr/bin/python3")
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("WINDTUNNEL_PROGRAM", str(engine))
    environment = documents.environment(ROOT, engine, python, tmp_path / "bin")
    outcome = documents.Page(page, folder, environment).carry_out()
    print(f"{name}: {outcome.ran} blocks carried out, {len(outcome.not_run)} only shown")
    for line in outcome.not_run:
        print(f"  {line}")


def test_blocks_that_are_only_shown_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """What is not carried out is said, with its reason, in the output of a run of all tests."""
    shown = [
        f"{name}:{block.line}: {block.reason}"
        for name in [*PAGES, "README.md"]
        for block in documents.blocks_of(ROOT / name)
        if block.reason
    ]
    with capsys.disabled():
        print(f"\ndocuments: {len(shown)} blocks are shown and not carried out")
        for line in shown:
            print(f"  {line}")


def test_the_test_of_blocks_can_fail(tmp_path: Path) -> None:
    def carry_out(text: str) -> documents.Outcome:
        page = tmp_path / "page.md"
        page.write_text(text, encoding="utf-8")
        return documents.Page(page, tmp_path, {"PATH": "/usr/bin:/bin"}).carry_out()

    assert carry_out("```console\n$ echo a b; echo c\na ...\nc\n$ true\n```\n").ran == 1
    assert carry_out("```console\n$ seq 9\n1\n...\n9\n```\n").ran == 1
    assert carry_out('```text title="f"\nx\n```\n```console\n$ cat f\nx\n```\n').ran == 2
    assert carry_out("<!-- not run: no time -->\n```console\n$ false\nno\n```\n").not_run == ["page.md:2: no time"]
    for wrong in (
        "```console\n$ echo a\nb\n```\n",
        "```console\n$ echo a\n```\n",
        "```console\n$ no-such-program\n...\n```\n",
        "```python\nprint(1)\n```\n```text\n2\n```\n",
        "```python\nprint(1)\n```\n",
        "```brainfuck\n+\n```\n",
    ):
        with pytest.raises(AssertionError):
            carry_out(wrong)


def test_the_reference_is_current(engine: Path) -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts/make_reference.py", "--check", "--engine", engine]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", FRONT)
def test_links_of_the_front_pages_lead_somewhere(name: str) -> None:
    """Those of docs/ are looked at when the site is built: `make docs`."""
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / name).read_text(encoding="utf-8"))
    assert links or name == "CONTRIBUTING.md"
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert missing == []


def definition(suffix: str, name: str) -> re.Pattern[str]:
    """Where a file defines what is called so."""
    word = re.escape(name)
    if suffix == ".rs":
        return re.compile(rf"\b(fn|struct|enum|trait|const|static|type|mod|macro_rules!) (mut )?{word}\b")
    if suffix == ".py":
        return re.compile(rf"^\s*(def|class) {word}\b|^{word}\b.*=", re.MULTILINE)
    label = rf"\b(SYM_\w+|ENTRY)\({word}\)|^{word}:"
    macro = rf"^\s*#\s*define {word}\b|\bSYSCALL_DEFINE\d\({word}\b"
    declared = rf"^(?!return\b)[A-Za-z_][\w *]*\b{word}(\(|\[| =)|\b(struct|enum|union) {word}\b"
    return re.compile(rf"{label}|{macro}|{declared}", re.MULTILINE)


def test_what_internals_name_is_in_the_tree() -> None:
    """In `path/file.rs: one, two` the file has definitions of both; a path alone is a file or a folder."""
    named = re.compile(
        r"`((?:crates|kernel|python|scripts|tests|bench|examples|fuzz|schema)/[\w./-]*)(?:: ([\w, ]+))?`"
    )
    wrong = []
    count = 0
    for page in sorted(DOCS.rglob("*.md")):
        for path, names in named.findall(page.read_text(encoding="utf-8")):
            file = ROOT / path
            if not file.exists():
                wrong.append(f"{page.name}: {path} is not there")
                continue
            for name in filter(None, names.split(", ")):
                count += 1
                if not definition(file.suffix, name).search(file.read_text(encoding="utf-8")):
                    wrong.append(f"{page.name}: {path} does not define {name}")
    assert wrong == []
    assert count > 0 or not (DOCS / "internals").exists()


def test_the_test_of_names_can_fail() -> None:
    assert definition(".rs", "run").search("pub fn run(") and not definition(".rs", "run").search("fn runs(); run()")
    assert definition(".c", "wt_x").search("void __init wt_x(void)\n")
    assert not definition(".c", "wt_x").search("\treturn wt_x();\n")
    assert definition(".S", "wt_y").search("SYM_CODE_START(wt_y)\n")
