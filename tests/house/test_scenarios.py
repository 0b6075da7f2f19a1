"""The table of docs/server.md: each scenario has tests, which exist, or a reason why it does not apply."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = re.findall(r"^\| (S\d+) \| (.+) \| (.+) \|$", (ROOT / "docs" / "server.md").read_text("utf-8"), re.MULTILINE)


@cache
def names_in(name: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / name).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_scenarios_are_all_there() -> None:
    """S1 to S60, in their order."""
    assert [number for number, _, _ in TABLE] == [f"S{number}" for number in range(1, 61)]


@pytest.mark.parametrize(("number", "cell"), [(number, cell) for number, _, cell in TABLE])
def test_a_scenario_has_tests(number: str, cell: str) -> None:
    """Each test that is named exists."""
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", cell)
    assert named or cell.startswith("Does not apply: ")
    assert [test for file, test in named if test not in names_in(file)] == []
