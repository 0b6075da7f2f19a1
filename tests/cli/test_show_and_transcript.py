"""`runjournal show` and `runjournal transcript`: everything about one run, and its messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal
from tests.support.command_line import (
    FAILED,
    KEYS,
    STOPPED,
    WAITS,
    data,
    text,
)


def test_show_has_everything(journal: Path) -> None:
    """The run, its calls with their durations, its settlement, and what to do next."""
    found = data("show", STOPPED)[0]
    assert set(found) > KEYS
    assert [(call["kind"], call["name"], call["outcome"]) for call in found["calls"]] == [
        ("model", "gpt-x", "complete"),
        ("tool", "weather", "complete"),
        ("model", "gpt-x", "cut off"),
    ]
    assert found["settlements"][0]["messages"][0]["origin"] == "partial"
    assert found["next"] == []
    assert found["inputs"] == ["How is Rome?"]
    shown = text("show", STOPPED)
    for words in (STOPPED, "interrupted (stop)", 'weather(city="Rome")', "cut off (stop)", "settled", "ai, partial: "):
        assert words in shown


def test_show_says_what_to_do(journal: Path) -> None:
    """When the run waits for a human, or its thread is not settled."""
    assert "Book it?" in text("show", WAITS)
    assert "waits for a human" in data("show", WAITS)[0]["next"][0]
    failed = data("show", FAILED)[0]
    assert failed["problem"] == "the checkpointer is down"
    assert "recover --graph" in failed["next"][0]


def test_transcript_is_what_langchain_reads(journal: Path) -> None:
    """JSON is LangChain's own dicts; text marks what was cut off, and why."""
    from langchain_core.messages import messages_from_dict

    with RunJournal(journal) as opened:
        assert messages_from_dict(data("transcript", STOPPED)) == opened.transcript(STOPPED)
    shown = text("transcript", STOPPED)
    assert "ai (cut off: stop)\nIt is sunny\n" in shown
    assert '→ weather(city="Rome")' in shown
    assert "tool weather\nsunny\n" in shown


@pytest.mark.parametrize(
    ("of_tool", "ending", "said"),
    [
        (
            ("tool.error", {"error": "ValueError: no such city"}),
            {"status": "failed", "error": "x"},
            "failed: ValueError: no",
        ),
        (("tool.start", {"name": "weather"}), {"status": "interrupted", "cause": "timeout"}, "cut off: timeout"),
        (("tool.start", {"name": "weather"}), {"status": "failed", "error": "x"}, "cut off: error"),
        (("tool.start", {"name": "weather"}), None, "cut off: crash"),
        (None, {"status": "interrupted", "cause": "stop"}, "not begun: stop"),
        (None, {"status": "completed"}, "not run here: the caller answers it"),
        (("tool.error", {"interrupted": True}), {"status": "completed"}, "waited for a human"),
    ],
)
def test_a_request_without_a_result_is_marked(here: Path, of_tool: Any, ending: Any, said: str) -> None:
    """The mark says what became of the call. Without it, the next message would look like its result."""

    asked = [{"name": name, "args": {}, "id": name} for name in ("ready", "weather")]
    answer = {"message": {"type": "ai", "data": {"type": "ai", "content": "", "id": "m", "tool_calls": asked}}}
    ready = {"type": "tool", "data": {"type": "tool", "content": "yes", "name": "ready", "tool_call_id": "ready"}}
    with RunJournal(here / "runs.db") as opened:

        def put(kind: Any, data: Any) -> None:
            opened.append(Event(run_id="r", kind=kind, data=data, call_id="c"))

        put("llm.ai.response", answer)
        put("llm.tool.result", {"tool_call_id": "ready", "message": ready})
        if of_tool is not None:
            put(of_tool[0], {"tool_call_id": "weather", **of_tool[1]})
        opened.flush()
        assert "→ weather()\n← " in text("transcript", "r")
        if ending is not None:
            opened.append(Event(run_id="r", kind="run.end", data=ending))
    shown = text("transcript", "r")
    assert f"→ ready()\n→ weather()\n← {said}" in shown
    assert shown.count("←") == 1
