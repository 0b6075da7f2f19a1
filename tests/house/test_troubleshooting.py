"""docs/troubleshooting.md names each warning and each error that the package logs, as it is logged."""

from __future__ import annotations

import ast
import re

import pytest

from langchain_runjournal import errors
from tests.house.test_glossary import names, rows
from tests.support.imports import ROOT, modules

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
LEVELS = {"warning": "warning", "error": "error", "exception": "error", "critical": "error"}
HANDED_ON = {"log_failure": 1, "_warn_once": 0}
"""Functions that log a text of their caller: its place among their arguments."""
ANY = "%s"
"""Of file_access.py: sentences about permissions, which the page has as such."""


def logged() -> dict[str, str]:
    """Every text that the package logs as a warning or an error, with its level."""
    found: dict[str, str] = {}
    for path in modules().values():
        tree = ast.parse(path.read_text("utf-8"))
        values = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                for text, level in said_by(node, path.read_text("utf-8")):
                    one = values.get(text.id) if isinstance(text, ast.Name) else text
                    for part in [one.body, one.orelse] if isinstance(one, ast.IfExp) else [one]:
                        part = values.get(part.id) if isinstance(part, ast.Name) else part
                        if isinstance(part, ast.Constant | ast.JoinedStr):
                            found[as_logged(part)] = level
                        else:
                            handed_on = isinstance(text, ast.Name) and text.id in ("text", "what")
                            assert handed_on, f"{path.name}: {ast.unparse(node)}"
    return found


def as_logged(text: ast.Constant | ast.JoinedStr) -> str:
    """A text with %s for each value of an f-string."""
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else ANY for part in parts)


def said_by(call: ast.Call, source: str) -> list[tuple[ast.expr, str]]:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name in HANDED_ON and len(call.args) > HANDED_ON[name]:
        return [(call.args[HANDED_ON[name]], "warning")]
    if not isinstance(call.func, ast.Attribute) or ast.unparse(call.func.value) != "logger":
        return []
    if name == "log":
        level = call.args[0]
        is_warning = "WARNING" in (source if isinstance(level, ast.Name) else ast.unparse(level))
        return [(call.args[1], "warning")] if is_warning else []
    return [(call.args[0], LEVELS[name])] if name in LEVELS else []


LINES = {text: level for text, level in logged().items() if text != ANY}
QUOTED = {text: row[1] for row in rows(PAGE) if len(row) == 3 and row[1] in ("warning", "error") for text in names(row[0])}


def test_the_lines_are_found() -> None:
    """Also those of a constant, of a choice, and of a function that logs for others."""
    assert len(LINES) > 100
    given_by_name = "could not record an event: %.200r"
    handed_on = "run %s begins before what earlier runs left on its thread is settled: %s"
    f_string = "the runs of %s are journaled, and their threads left as they are: %s"
    assert {given_by_name, handed_on, f_string} <= LINES.keys()


@pytest.mark.parametrize("line", LINES)
def test_a_log_line_is_on_the_page(line: str) -> None:
    """With its level, so that a search for it finds what to do."""
    assert QUOTED.get(line) == LINES[line]


def test_the_page_has_no_other_lines() -> None:
    """A line that no release logs is never searched for."""
    assert QUOTED.keys() - LINES.keys() == set()


def test_the_errors_of_the_page_exist() -> None:
    """Names of exceptions, in the table of errors."""
    named = set(re.findall(r"^\| `([A-Z]\w+)`", PAGE, re.M))
    assert named
    assert named <= set(errors.__all__)
