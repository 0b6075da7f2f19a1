"""The command line reads everything that a journal can hold: any JSON as the data of any event, in any order."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.events import KINDS
from tests.support.command_line import EVIL, run

KEYS = re.findall(
    r"\w+",
    """args additional_kwargs blocks cause call_id calls content data error events graph id inside interrupted interrupts
    late message messages metadata model name origin outcome problem reason replaces restart role runjournal runjournal_graph
    settled status stop text thread_id tool_call_id tool_calls type unused usage usage_metadata value""",
)
WORDS = st.sampled_from(["a", "", "answer", "helper", "completed", "error", "human", "ai", "tool", "text", EVIL])
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | WORDS, inner, max_size=5),
    max_leaves=12,
)
DATA = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6)
CALLS = st.sampled_from([None, "c1", "c2"])
EVENTS = st.lists(st.tuples(st.sampled_from(sorted(KINDS)), DATA, CALLS), min_size=1, max_size=8)
SIGNS = {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), "\u202e"} - {"\n", "\t"}


def write(db: Path, run_id: str, events: list[Any]) -> None:
    with RunJournal(db) as journal:
        for kind, data, call_id in events:
            if kind == "run.end" and data.get("status", "completed") not in ("completed", "interrupted", "failed"):
                data = {key: value for key, value in data.items() if key != "status"}
            journal.append(Event(run_id=run_id, kind=kind, data=data, call_id=call_id))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EVENTS)
def test_whatever_a_run_holds_can_be_shown(events: list[Any]) -> None:
    """No data breaks a command, or reaches the terminal as an escape sequence."""
    with tempfile.TemporaryDirectory() as home:
        db = Path(home) / "runs.db"
        write(db, f"r {EVIL}", events)
        for command in ("list", "show", "follow", "export"):
            names = [] if command == "list" else ["@last"]
            for form in ("--json", "--no-json"):
                done = run(command, *names, form, "--journal", str(db))
                # `follow` exits with 1 for a run with a dead owner.
                assert done.exit_code == 0 or "is dead: its process ended" in done.stderr, (command, done.output)
                assert "This is a bug" not in done.stderr
                assert not SIGNS & set(done.output), command


def test_nothing_in_a_run_is_a_command(tmp_path: Path) -> None:
    """Control characters in every field: id, thread, name, error, tools, metadata, models."""
    db = tmp_path / "runs.db"
    message = {"type": "human", "data": {"type": "human", "content": EVIL}}
    tool = {"type": "tool", "data": {"type": "tool", "content": EVIL, "name": EVIL, "tool_call_id": EVIL}}
    asked = [{"name": EVIL, "args": {EVIL: EVIL}, "id": EVIL}]
    asking = {"type": "ai", "data": {"type": "ai", "content": EVIL, "tool_calls": asked}}
    ending = {"status": "failed", "cause": EVIL, "error": EVIL, "settled": False, "problem": EVIL, "usage": {EVIL: {}}}
    events: list[Any] = [
        ("run.start", {"thread_id": EVIL, "name": EVIL, "metadata": {EVIL: EVIL, "runjournal_graph": EVIL}}, None),
        ("llm.human.input", {"message": message}, None),
        ("llm.start", {"model": EVIL, "role": "answer"}, "c"),
        ("llm.ai.response", {"message": asking}, "c"),
        ("tool.start", {"tool_call_id": EVIL, "name": EVIL, "args": {EVIL: EVIL}}, None),
        ("llm.tool.result", {"tool_call_id": EVIL, "message": tool}, None),
        ("llm.start", {"model": EVIL, "role": EVIL}, "d"),
        ("llm.ai.delta", {"text": EVIL}, "d"),
        ("llm.ai.partial", {"cause": EVIL}, "d"),
        ("run.settled", {"outcome": EVIL, "reason": EVIL, "messages": [{"type": EVIL, "origin": EVIL, "id": EVIL}]}, None),
        ("run.end", ending, None),
    ]
    write(db, EVIL, events)
    for command in ("list", "show @last", "transcript @last", "follow @last", "stop @last", "check", "recover"):
        for form in ("--json", "--no-json"):
            done = run(*command.split(), form, "--journal", str(db))
            assert not SIGNS & set(done.output), (command, form)
            assert "This is a bug" not in done.stderr
    assert run("show", f"{EVIL} and more", "--journal", str(db)).exit_code == 1
    assert not SIGNS & set(run("show", f"{EVIL} and more", "--journal", str(db)).output)
