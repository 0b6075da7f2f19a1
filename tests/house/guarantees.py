"""The table of docs/guarantees.md: each guarantee of the README with the tests that prove it.

``python -m tests.house.guarantees`` writes the page anew. A test names what it proves with a marker,
``@pytest.mark.guarantee("history")``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "guarantees.md"
_ROW: Final = re.compile(r"^\| \*\*([^*]+)\*\* \|", re.MULTILINE)
_HEAD: Final = """# Guarantees and their tests

Each row of "What is guaranteed" in the [README](../README.md) has tests that prove it.
`python -m tests.house.guarantees` generates this page from the marker `@pytest.mark.guarantee(...)` of the tests.
A test fails when the page is out of date, when a guarantee has no test, or when a test names a guarantee that the README
does not give.

| guarantee | tests |
|---|---|
"""


def guarantees() -> list[str]:
    """Return the names of the guarantees, in the order of the README."""
    return _ROW.findall((ROOT / "README.md").read_text("utf-8"))


def marked() -> Iterator[tuple[str, str]]:
    """Yield a guarantee and the test that names it, for every marker under tests/. A marked module counts as one test."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                for guarantee in _named(node.value):
                    yield guarantee, name
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for decorator in node.decorator_list:
                    for guarantee in _named(decorator):
                        yield guarantee, f"{name}::{node.name}"


def _named(node: ast.AST) -> Iterator[str]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.guarantee":
            yield from (ast.literal_eval(argument) for argument in call.args)


def page() -> str:
    """Return the page as it should be."""
    tests: dict[str, list[str]] = {}
    for guarantee, test in marked():
        tests.setdefault(guarantee, []).append(test)
    rows = [f"| **{name}** | {'<br>'.join(f'`{test}`' for test in tests.get(name, []))} |" for name in guarantees()]
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
