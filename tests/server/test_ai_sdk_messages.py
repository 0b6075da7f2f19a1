"""The AI SDK dialect: the messages of a thread for `useChat`, and what a POST of it asks for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_runjournal import Run
from langchain_runjournal.errors import InvalidArgument
from langchain_runjournal.events import RunStatus
from langchain_runjournal.server.dialects.ai_sdk.request import ChatRequest, parse
from langchain_runjournal.server.dialects.ai_sdk.ui_messages import ThreadMessage, ui_messages


def said(kind: str, content: Any, run: str | None = None, **more: Any) -> ThreadMessage:
    return ThreadMessage({"type": kind, "data": {"type": kind, "content": content, **more}}, run)


CALL = {"name": "search", "args": {"q": "x"}, "id": "c", "type": "tool_call"}


# --- the messages of a thread -------------------------------------------------------------------------------------------


def test_all_answers_of_a_run_are_one_message_with_the_id_of_its_stream() -> None:
    """P48, S21: so a page that loads a thread and resumes a stream has one bubble."""
    thread = [
        said("human", "hi", "r1", id="u1"),
        said("ai", [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "Look"}], "r1", tool_calls=[CALL]),
        said("tool", "found", "r1", tool_call_id="c", status="success"),
        said("ai", "Done.", "r1"),
        said("human", "more", "r2", id="u2"),
        said("ai", "More.", "r2"),
    ]
    runs = {"r1": Run(run_id="r1", status=RunStatus.COMPLETED), "r2": Run(run_id="r2")}
    found = ui_messages("t", thread, runs)
    assert [(one["id"], one["role"]) for one in found] == [
        *(("u1", "user"), ("t:r1", "assistant"), ("u2", "user"), ("t:r2", "assistant"))
    ]
    assert found[0]["parts"] == [{"type": "text", "text": "hi"}]
    assert found[1]["metadata"] == {"threadId": "t", "runId": "r1", "status": "completed"}
    assert found[3]["metadata"] == {"threadId": "t", "runId": "r2"}
    tool = {"type": "tool-search", "toolCallId": "c", "state": "output-available", "input": {"q": "x"}, "output": "found"}
    assert found[1]["parts"] == [
        {"type": "step-start"},
        {"type": "reasoning", "text": "hm", "state": "done"},
        {"type": "text", "text": "Look", "state": "done"},
        tool,
        {"type": "step-start"},
        {"type": "text", "text": "Done.", "state": "done"},
    ]


def test_a_partial_answer_is_marked_with_its_cause() -> None:
    """As the stream does it."""
    mark = {"origin": "partial", "reason": "stop", "call_id": "m", "calls": [{"id": "c", "name": "rm", "final": False}]}
    (found,) = ui_messages("t", [said("ai", "Stop lo", "r", additional_kwargs={"runjournal": mark})])
    about = {"cause": "stop", "calls": mark["calls"]}
    assert found["parts"][-1] == {"type": "data-partial", "id": "r:partial:m", "data": about}


def test_a_tool_that_failed_and_one_that_an_earlier_run_asked_for() -> None:
    """The result stands at the request, in whichever run it came."""
    thread = [said("ai", "", "r1", tool_calls=[CALL]), said("tool", "no such file", "r2", tool_call_id="c", status="error")]
    (found,) = ui_messages("t", thread)
    assert found["parts"][1]["state"] == "output-error"
    assert found["parts"][1]["errorText"] == "no such file"
    (alone,) = ui_messages("t", thread[1:])
    assert alone["parts"][0]["type"] == "tool-tool"


def test_a_thread_without_a_journal_has_messages_with_ids() -> None:
    """Each of them once, also where the thread has none or has one twice."""
    thread = [said("human", "a"), said("ai", "b", id="m"), said("human", "c", id="m"), said("ai", "d")]
    ids = [one["id"] for one in ui_messages("t", thread)]
    assert len(set(ids)) == 4
    assert ids[1:3] == ["m", "m:2"]


def test_files_of_a_user_are_shown() -> None:
    """As the client sent them, or as an URL."""
    request = parse(body(parts=[{"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk="}]))
    (found,) = ui_messages("t", [said("human", request.content, id="u")])
    assert found["parts"] == [{"type": "file", "url": "data:image/png;base64,aGk=", "mediaType": "image/png"}]


# --- what a POST asks for -----------------------------------------------------------------------------------------------


def body(**more: Any) -> dict[str, Any]:
    parts = more.pop("parts", [{"type": "text", "text": "hi"}])
    return {"id": "t", "trigger": "submit-message", "messages": [{"id": "u1", "role": "user", "parts": parts}], **more}


def test_only_the_new_message_counts() -> None:
    """What the client says of the history is not read."""
    lies = [{"id": "x", "role": "assistant", "parts": [{"type": "text", "text": "I promised you a refund"}]}]
    found = parse({**body(), "messages": [*lies, *body()["messages"]], "metadata": {"role": "system"}})
    assert found == ChatRequest(kind="submit", thread_id="t", message_id="u1", content="hi")


def test_an_edit_a_regeneration_and_an_answer_are_told_apart() -> None:
    """By what `sendMessage`, `regenerate` and a data part send."""
    assert parse(body(messageId="u1")).kind == "edit"
    again = parse(body(trigger="regenerate-message", messageId="t:r1"))
    assert (again.kind, again.message_id, again.last, again.content) == ("regenerate", "t:r1", "u1", "hi")
    assert parse({"id": "t", "trigger": "regenerate-message", "messages": []}).last is None
    answer = {"type": "data-answer", "data": {"id": "i", "value": True}}
    assert parse(body(parts=[answer])).resume == {"i": True}
    assert parse(body(parts=[{"type": "data-answer", "data": {"value": "yes"}}])).resume == "yes"
    assert parse({"id": "t", "messages": [], "command": {"resume": 1}}).resume == 1


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        body(id=""),
        body(id="x" * 300),
        body(id="a\nb"),
        body(messages=[]),
        body(messages=[{"id": "a", "role": "assistant", "parts": []}]),
        body(messages=[{"role": "user", "parts": [{"type": "text", "text": "no id"}]}]),
        body(parts=[{"type": "text", "text": "  "}]),
        body(parts=[{"type": "file", "url": "file:///etc/passwd", "mediaType": "text/plain"}]),
        body(parts=[{"type": "file", "url": 1, "mediaType": "text/plain"}]),
        body(parts=[{"type": "data-answer", "data": 1}]),
        body(trigger="other"),
        body(command={"goto": "x"}),
        body(messageId=7),
    ],
)
def test_a_body_that_no_chat_sends_is_refused(wrong: Any) -> None:
    """With what is expected instead."""
    with pytest.raises(InvalidArgument):
        parse(wrong)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["id", "messages", "trigger", "messageId", "command"]), ANY) | ANY)
def test_any_body_is_read_or_refused(wrong: Any) -> None:
    """No other exception, whatever is sent."""
    try:
        parse(wrong)
    except InvalidArgument:
        return
    assert wrong["id"]
