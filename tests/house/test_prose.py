"""Plain English: phrases that cost a second reading stay out of docs, docstrings, comments, log lines and errors."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.imports import ROOT, modules

BANNED = re.compile(
    r"\bis no (?!longer|less|more|later|way\b)"
    r"|wherever that is noticed"
    r"|\b(?:brought|brings?|bringing) in\b"
    r"|\b(?:is|are|was|were|been) told\b"
    r"|\bmade[- ]up\b"
    r"|\btorn\b"
    r"|\bwhoever\b"
    r"|\b(?:nobody|somebody)\b"
    r"|\blets go of\b"
    r"|\b(?:takes?|taken|took|taking) up\b",
    re.IGNORECASE,
)
"""HOUSE rule, docs/design.md: name the actor, say the verb, use the term that a reader would search for."""
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Every string and comment of a module, with its line; a string of one word is a value, and not prose."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT) or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            if re.fullmatch(r"(['\"])\w+\1", token.string):
                continue
            yield token.start[0], token.string


def found_in(text: str) -> list[str]:
    """The banned phrases of a text, also across its line breaks; what stands in backticks is a name and not prose."""
    plain = re.sub(r"`[^`\n]+`", "", text)
    return [match[0] for match in BANNED.finditer(re.sub(r"\s*\n\s*(?:#\s*)?", " ", plain))]


@pytest.mark.parametrize("module", modules())
def test_a_module_is_written_in_plain_english(module: str) -> None:
    """Docstrings, comments, log lines and errors."""
    path = modules()[module]
    assert not [f"{path.name}:{line} {phrase}" for line, text in prose_of(path) for phrase in found_in(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_written_in_plain_english(page: Path) -> None:
    """README, docs, CHANGELOG and CONTRIBUTING."""
    assert not [f"{page.name}: {phrase}" for block in page.read_text("utf-8").split("\n\n") for phrase in found_in(block)]


def test_the_check_can_fail() -> None:
    """The phrases are found in whatever case and across a line break, and not in names."""
    assert found_in("Whoever\n    # brings\n    # in the spool") == ["Whoever", "brings in"]
    assert found_in("it is no tool, and is no longer one, see `made_up`") == ["is no "]


def test_every_public_docstring_ends_its_first_sentence() -> None:
    """So that the first line of `help()` says something whole."""
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
                doc = ast.get_docstring(node)
                assert doc is None or re.search(r"[.:)]", doc), (path, doc)
