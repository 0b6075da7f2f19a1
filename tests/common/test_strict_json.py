"""JSON has no NaN and no infinity: a strict parser reads whatever leaves the journal, and messages get their floats back."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.common.packed import is_same
from langchain_runjournal.events.encoding import encode_value
from langchain_runjournal.view import page
from tests.support.command_line import run

ODD = {"nan": math.nan, "inf": math.inf, "minus": -math.inf, "plain": 0.5}
WORDS = {"nan": "NaN", "inf": "Infinity", "minus": "-Infinity", "plain": 0.5}
ASKING = AIMessage(
    [{"type": "text", "text": "Looking.", "score": math.nan}],
    id="a1",
    tool_calls=[{"name": "f", "args": {"x": ODD, "words": "NaN", "list": [1, [math.inf]]}, "id": "c1"}],
    response_metadata={"logprobs": [{"token": "L", "logprob": -math.inf}]},
    additional_kwargs={"score": math.nan},
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.floats() | st.none(), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


def strict(text: str) -> Any:
    """Read JSON as the standard has it: Python's parser takes NaN as well."""
    return json.loads(text, parse_constant=pytest.fail)


def events() -> list[Event]:
    """A run full of floats that JSON does not have."""
    return [
        Event(run_id="r", kind="run.start", data={"thread_id": "t", "metadata": {"odd": ODD}}),
        Event(run_id="r", kind="llm.human.input", data={"message": HumanMessage("hi", additional_kwargs=ODD)}),
        Event(run_id="r", kind="llm.start", data={"role": "answer"}, call_id="m"),
        Event(run_id="r", kind="llm.ai.delta", data={"text": "Looking.", "metadata": ODD}, call_id="m"),
        Event(run_id="r", kind="llm.ai.response", data={"message": ASKING}, call_id="m"),
        Event(run_id="r", kind="tool.start", data={"tool_call_id": "c1", "name": "f", "args": ODD}),
        Event(run_id="r", kind="run.pause", data={"interrupts": [{"value": ODD}]}),
        Event(run_id="r", kind="run.end", data={"status": "completed", "usage": {"m": {"cost": math.nan}}}),
    ]


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A journal that holds it."""
    with RunJournal(tmp_path / "runs.db") as journal:
        for event in events():
            journal.append(event)
    return str(tmp_path / "runs.db")


@given(st.dictionaries(st.text(max_size=3), anything, max_size=3))
def test_whatever_is_in_an_event_is_json(data: dict[str, Any]) -> None:
    """As it is stored, and as it is handed out."""
    strict(encode_value("tool.start", data))
    event = Event(run_id="r", kind="tool.start", data=data)
    strict(json.dumps(event.to_dict()))
    strict(encode_value("llm.ai.delta", data))


def test_what_is_stored_is_json(db: str) -> None:
    """Every column of JSON, in the file itself."""
    with contextlib.closing(sqlite3.connect(db)) as con:
        bodies = con.execute("SELECT body FROM live UNION ALL SELECT body FROM segments").fetchall()
        runs = con.execute("SELECT rest FROM runs").fetchall()
    found = [value for (body,) in bodies for value in strict(f"[{body}]")]
    assert found[0][1]["metadata"] == {"odd": WORDS}
    assert strict(runs[0][0])["usage"] == {"m": {"cost": "NaN"}}


def test_what_is_handed_out_is_json(db: str) -> None:
    """Events, runs and pages, of a journal and of events that were never in one."""
    with RunJournal(db) as journal:
        found, about = journal.read("r"), journal.run("r")
    for event in (*found, *events()):
        again = strict(json.dumps(event.to_dict()))
        assert again["kind"] == event.kind
        if event.kind == "tool.start":
            assert again["data"]["args"] == WORDS
    strict(json.dumps([about.metadata, about.usage]))
    assert "NaN" in page([(about, found)])


@pytest.mark.parametrize("command", [["show", "r"], ["export", "r"], ["transcript", "r"], ["list"], ["follow", "r"]])
def test_what_the_command_says_is_json(db: str, command: list[str]) -> None:
    """Line by line."""
    done = run(*command, "--journal", db, "--json")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines
    for line in lines:
        strict(line)


def test_a_message_gets_its_floats_back(db: str) -> None:
    """And a text that only looks like one of them stays a text."""
    with RunJournal(db) as journal:
        asked, asking = journal.transcript("r")[:2]
    assert isinstance(asking, AIMessage)
    for field in ("content", "tool_calls", "response_metadata", "additional_kwargs", "id"):
        assert is_same(getattr(asking, field), getattr(ASKING, field)), field
    assert is_same(asked.additional_kwargs, ODD)


def test_a_journal_of_an_older_release_is_read(tmp_path: Path) -> None:
    """It holds the literals of Python."""
    with RunJournal(tmp_path / "runs.db") as journal:
        journal.append(Event(run_id="r", kind="run.start", data={"thread_id": "t", "metadata": {"x": "here"}}))
        journal.append(Event(run_id="r", kind="run.end", data={"status": "completed", "more": "here"}))
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as con:
        for table, column in (("live", "body"), ("segments", "body"), ("runs", "rest")):
            con.execute(f"UPDATE {table} SET {column} = replace({column}, '\"here\"', '[NaN,-Infinity]')")
        con.commit()
    with RunJournal(tmp_path / "runs.db") as journal:
        found = [strict(json.dumps(event.to_dict()))["data"] for event in journal.read("r")]
        assert found[0]["metadata"] == {"x": ["NaN", "-Infinity"]} == journal.run("r").metadata
    assert found[1]["more"] == ["NaN", "-Infinity"]


def test_the_server_answers_in_json() -> None:
    """Its events are `Event.to_dict`; of a thread, it shows the arguments that a model asked with."""
    pytest.importorskip("starlette")
    from langchain_runjournal.server.threads import message_json

    shown = message_json(ASKING, None)
    assert strict(json.dumps(shown))["tool_calls"][0]["args"]["x"] == WORDS
