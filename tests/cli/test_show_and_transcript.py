"""`runjournal show` and `runjournal transcript`: everything about one run, and its messages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal
from tests.support.command_line import (
    COMMAND,
    FAILED,
    KEYS,
    STOPPED,
    WAITS,
    data,
    example,
    on_terminal,
    run,
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


@pytest.mark.parametrize("width", [40, 45, 60, 80, 200])
def test_a_narrow_show_keeps_the_outcome(here: Path, width: int) -> None:
    """Of each call, on a terminal of its width. Tokens are what the models reported, and never a number of deltas."""
    example(here / "runs.db")
    code, said = on_terminal([*COMMAND, "show", STOPPED], here, width, NO_COLOR="1")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines()
    assert code == 0
    assert max(map(len, lines)) <= width
    calls = [line for line in lines if "complete" in line or "cut off (stop)" in line]
    assert [line.rstrip().endswith(("complete", "cut off (stop)")) for line in calls] == [True] * 3 or width > 72
    assert len(calls) == 3
    assert ("812 in, 97 out" in said) == (width > 72)
    assert ("deltas" in said) == (width > 110)
    assert any(line.startswith("tokens") for line in lines)


def test_one_call_is_one_call(here: Path) -> None:
    """Numbers agree with their nouns."""
    with RunJournal(here / "runs.db") as journal:
        for run_id, usage in {"told": {"input_tokens": 1, "calls": 1}, "silent": {"calls": 1, "incomplete": 1}}.items():
            journal.append(Event(run_id=run_id, kind="run.start"))
            journal.append(Event(run_id=run_id, kind="run.lost", data={"events": 1}))
            journal.append(Event(run_id=run_id, kind="run.end", data={"usage": {"m": usage}}))
    assert "m: 1 in, 0 out, 1 call\n" in re.sub(" +\n", "\n", text("show", "told"))
    assert "m: nothing reported, 1 call, which did not report\n" in re.sub(" +\n", "\n", text("show", "silent"))
    assert "1 event could not be kept" in text("show", "told")
    assert "lost 1 event that could not be kept" in run("follow", "told").stderr
    assert "1 event could not be kept" in run("check").stdout


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
