"""The words for causes stand in one table."""

from __future__ import annotations

import ast

from langchain_runjournal.events import CAUSES
from langchain_runjournal.messages.causes import CAUSES_OF_ANSWER, CAUSES_OF_TURN
from tests.support.imports import modules, room_of


def test_every_cause_has_words() -> None:
    """Those of a run, and an error: for a tool result and for a note."""
    assert set(CAUSES_OF_TURN) == set(CAUSES_OF_ANSWER) == {*CAUSES, "error"}


def test_no_other_module_has_such_a_table() -> None:
    """The demo may not import this room, and has shorter words of its own."""
    found = {
        module
        for module, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Dict)
        and {"stop", "superseded"} <= {key.value for key in node.keys if isinstance(key, ast.Constant)}
    }
    assert {module for module in found if room_of(module) != "demo"} == {"messages.causes"}
