"""Text from a run cannot command a terminal, and JSON comes back as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_runjournal.cli.terminal_text import ago, clean, number, one_line, to_json, tokens
from langchain_runjournal.common.wording import duration
from tests.support.command_line import (
    EVIL,
    FAILED,
    run,
)


@pytest.mark.parametrize("command", ["list", "show", "transcript", "follow", "check"])
def test_what_a_run_contains_is_not_obeyed(journal: Path, command: str) -> None:
    """No escape sequence reaches the terminal, no markup is interpreted, and no character reverses the direction of text."""
    names = [] if command in ("list", "check") else [FAILED]
    done = run(command, *names)
    for sign in ("\x1b", "\x07", "\x9b", "\u202e"):
        assert sign not in done.output
    if names:
        assert "[red]not red[/red]" in done.output
    raw = run(command, *names, "--json").output
    assert not any(sign in raw for sign in ("\x1b", "\x07", "\x9b", "\u202e"))


@given(st.text())
def test_no_text_can_command_a_terminal(said: str) -> None:
    """The cleaned text has no control characters, can be encoded, and fits a length."""
    for sign in clean(said):
        assert sign in "\n\t" or not 0 <= ord(sign) < 32
        assert not 0x7F <= ord(sign) < 0xA0
    clean(said).encode()
    assert "\n" not in one_line(said)
    assert len(one_line(said, 5)) <= 5


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(st.characters()), st.lists))
def test_json_comes_back_as_it_was(value: Any) -> None:
    """Also with lone surrogates and control characters; one value is one line."""
    line = to_json(value)
    line.encode()
    assert len(line.splitlines()) == 1
    assert json.loads(line) == value


def test_clean_leaves_text_alone() -> None:
    """Line feeds, tabs and every language stay."""
    assert clean("a\tb\n日本語 العربية 👩‍👩‍👧\r\n") == "a\tb\n日本語 العربية 👩‍👩‍👧\n"
    assert clean(EVIL).startswith("␛]0;owned␇ [red]")


def test_times_and_numbers_read_well() -> None:
    """They are short and rounded."""
    assert [ago(0, 0.5), ago(0, 42), ago(0, 600), ago(0, 7_200), ago(0, 3 * 86_400)] == [
        "now",
        "42 s ago",
        "10 min ago",
        "2 h ago",
        "3 days ago",
    ]
    assert [duration(0.04), duration(2.345), duration(63), duration(7_300), duration(-1)] == [
        "40 ms",
        "2.3 s",
        "1 min 3 s",
        "2 h 1 min",
        "0 ms",
    ]
    assert [number(12), number(12_345), number(1_234_567)] == ["12", "12.3k", "1.23M"]
    assert tokens({"m": {"calls": 1, "incomplete": 1}}) == ""
