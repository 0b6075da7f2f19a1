"""The AI SDK dialect: a run as one assistant message, in the schema that all clients share."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_runjournal import Event
from langchain_runjournal.messages.transcript import transcript
from langchain_runjournal.server.dialects.ai_sdk.projector import AI_SDK
from langchain_runjournal.server.dialects.ai_sdk.shown import NO_RESULT
from langchain_runjournal.server.dialects.ai_sdk.ui_messages import ThreadMessage, ui_messages
from langchain_runjournal.server.frames import number
from tests.support.random_stories import RandomRun
from tests.support.ui_stream import UIMessage, essence, read


def frames_of(story: RandomRun) -> list[str]:
    """The whole stream of a run."""
    projector = AI_SDK.projector(story.run)
    found = [one.data for event in story.events for one in projector.event(event)]
    return found + [one.data for one in projector.control(control_of(story))]


def control_of(story: RandomRun) -> Any:
    status = str(story.run.status)
    return {"running": "interrupted", "paused": "paused"}.get(status, "over")


def thread_parts(story: RandomRun) -> Counter[str]:
    """The parts of the thread's own messages, as a page that loads the thread gets them."""
    messages = [ThreadMessage(one, story.run_id) for one in transcript(story.run_id, story.events)]
    found = [one for one in ui_messages("t", messages) if one["role"] == "assistant"]
    return essence([part for one in found for part in one["parts"]], NO_RESULT)


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 10**9))
def test_every_stream_is_legal_for_the_strictest_client(seed: int) -> None:
    """P43, P46: no orphan, no field and no chunk that `ai` 5.0.59 does not know, nothing behind the end."""
    message = read(frames_of(RandomRun(seed)))
    assert message.is_done


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 10**9))
def test_what_stands_at_the_end_is_what_the_thread_holds(seed: int) -> None:
    """S59, S60: live fold = settled fold. What was withdrawn does not stand, and nothing is lost or shown twice."""
    story = RandomRun(seed)
    if not story.run.ended:
        return
    shown = essence(read(frames_of(story)).standing(), NO_RESULT)
    assert {one: shown[one] for one in shown if "tool-" not in one or '"cut' not in one} == thread_parts(story), story


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9))
def test_a_replay_is_byte_for_byte_the_live_stream_cut_anywhere(seed: int) -> None:
    """S1, S8: after every frame, what was sent is a prefix of every later replay, with the same ids of parts."""
    story = RandomRun(seed)
    live, seen = AI_SDK.projector(story.run), list[bytes]()
    for at, event in enumerate(story.events):
        seen += [frame.encode() for frame in number(story.run_id, event.seq, live.event(event))]
        again = AI_SDK.projector(story.run)
        replayed = [
            frame.encode() for one in story.events[: at + 1] for frame in number(story.run_id, one.seq, again.event(one))
        ]
        assert replayed == seen


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9))
def test_no_error_text_of_the_program_reaches_the_page(seed: int) -> None:
    """P38: what a program raises is in the journal, not in the stream."""
    assert not [one for one in frames_of(RandomRun(seed)) if "secret" in one]


# --- single promises ----------------------------------------------------------------------------------------------------


class Story(RandomRun):
    """Events written by hand."""

    def _write(self) -> None:
        self.add("run.start", {"thread_id": "t", "name": "agent", "metadata": {}})

    def start(self, call: str, role: str = "answer", **more: Any) -> Story:
        self.add("llm.start", {"model": "m", "role": role, **more}, call)
        return self

    def says(self, call: str, *words: str) -> Story:
        for word in words:
            self.add("llm.ai.delta", {"text": word}, call)
        return self

    def whole(self, call: str, content: Any, **more: Any) -> Story:
        data = {"type": "ai", "content": content, "id": f"lc_run--{call}", **more}
        self.add("llm.ai.response", {"message": {"type": "ai", "data": data}}, call)
        return self

    def end(self, status: str = "completed", **more: Any) -> Story:
        self.add("run.end", {"status": status, **more})
        return self


def kinds(story: RandomRun) -> list[str]:
    return [json.loads(one)["type"] if one != "[DONE]" else one for one in frames_of(story)]


def message(story: RandomRun) -> UIMessage:
    return read(frames_of(story))


def texts(parts: list[dict[str, Any]]) -> list[str]:
    return [one["text"] for one in parts if one["type"] == "text"]


def test_an_answer_streams_token_by_token() -> None:
    """Each delta at its own event; the message has the id of its thread and run."""
    story = Story(0).start("a").says("a", "one ", "two").whole("a", "one two").end()
    assert kinds(story) == [
        *("start", "start-step", "text-start", "text-delta", "text-delta", "text-end", "finish-step", "finish", "[DONE]")
    ]
    assert message(story).id == f"t:{story.run_id}"
    assert message(story).metadata == {"threadId": "t", "runId": story.run_id, "status": "completed"}


@pytest.mark.parametrize("status", ["completed", "interrupted", "failed"])
def test_a_run_that_shows_nothing_begins_no_message(status: str) -> None:
    """P44, P45: a bare start would be an empty bubble, or wipe the answer before it. A failure is still an error."""
    story = Story(0).start("a").end(status)
    assert kinds(story) == ["error" if status == "failed" else "finish", "[DONE]"]


def test_a_helper_is_not_shown_and_an_answer_that_looked_like_one_is_shown_whole() -> None:
    """The task decides: a helper whose answer it gives is shown when it ends, once."""
    story = Story(0).start("router", "helper").says("router", "route: ", "a").whole("router", "route: a")
    story.start("b", "helper").says("b", "the ", "answer").whole("b", "the answer")
    story.add("task.end", {"gave": ["b"], "kept": ["router"]})
    assert texts(message(story.end()).parts) == ["the answer"]


def test_a_retry_takes_back_the_words_of_the_failed_attempt() -> None:
    """The schema has no removal: the parts are named in a data part, as soon as the next attempt has words."""
    story = Story(0).start("a").says("a", "half an ")
    story.add("llm.error", {"error": "boom"}, "a")
    story.add("llm.ai.partial", {"error": "boom"}, "a")
    story.start("b", replaces=["a"])
    assert "data-withdrawn" not in kinds(story)
    assert "data-withdrawn" in kinds(story.says("b", "whole"))
    found = message(story.whole("b", "whole").end())
    assert (texts(found.parts), texts(found.standing())) == (["half an ", "whole"], ["whole"])


def test_a_stopped_answer_says_so_with_its_cause() -> None:
    """P35: as data, never as words."""
    story = Story(0).start("a").says("a", "Stop ", "loses").end("interrupted", cause="stop")
    found = message(story)
    assert [one["data"] for one in found.parts if one["type"] == "data-partial"] == [{"cause": "stop"}]
    assert (texts(found.parts), found.metadata["cause"], found.error) == (["Stop loses"], "stop", None)


def test_a_failed_run_ends_with_an_error_after_its_words() -> None:
    """So that `useChat` has the status `error`, and keeps the message."""
    story = Story(0).start("a").says("a", "well").end("failed", error="KeyError: secret")
    found = message(story)
    assert (texts(found.parts), found.error) == (["well"], "The run failed. Its journal has the error.")


def test_a_question_is_data_and_its_answer_is_noted() -> None:
    """P30: a pause is not the end; the same part says later that the question was answered."""
    story = Story(0).start("a").says("a", "may I?").whole("a", "may I?")
    story.add("run.pause", {"interrupts": [{"id": "i", "value": {"tool": "rm"}}]})
    (asked,) = [one for one in message(story).parts if one["type"] == "data-question"]
    assert asked["data"] == {"runId": story.run_id, "id": "i", "value": {"tool": "rm"}}
    (answered,) = [one for one in message(story.end()).parts if one["type"] == "data-question"]
    assert answered == {**asked, "data": {**asked["data"], "answered": True}}


def test_a_tool_that_an_earlier_run_asked_for_is_shown_with_its_arguments() -> None:
    """The run that continues after a pause executes it."""
    story = Story(0)
    story.add("tool.start", {"tool_call_id": "c", "name": "rm", "args": {"path": "/"}}, "t")
    data = {"content": "done", "tool_call_id": "c", "name": "rm", "type": "tool", "status": "success"}
    story.add("llm.tool.result", {"tool_call_id": "c", "message": {"type": "tool", "data": data}})
    (part,) = message(story.end()).parts
    assert (part["type"], part["input"], part["output"]) == ("tool-rm", {"path": "/"}, "done")


def test_two_calls_with_one_id_are_two_parts() -> None:
    """A second attempt may ask under the ids of the first."""
    story, calls = Story(0), [{"name": "ls", "args": {}, "id": "c", "type": "tool_call"}]
    story.start("a").whole("a", "", tool_calls=calls).start("b").whole("b", "", tool_calls=calls)
    data = {"content": "done", "tool_call_id": "c", "name": "ls", "type": "tool"}
    story.add("llm.tool.result", {"tool_call_id": "c", "message": {"type": "tool", "data": data}})
    found = [one for one in message(story.end()).parts if one["type"] == "tool-ls"]
    assert [(one["toolCallId"], one["state"]) for one in found] == [("c", "input-available"), ("c~2", "output-available")]


def test_sources_and_pictures_of_an_answer_are_parts() -> None:
    """A source once, however often it is cited; what no page may link to is left out."""
    cited = [
        {"type": "citation", "url": "https://example.org", "title": "E"},
        {"type": "url_citation", "url": "javascript:1"},
    ]
    content = [
        {"type": "text", "text": "seen", "annotations": cited},
        {"type": "text", "text": " twice", "annotations": [{"document_title": "A book", "cited_text": "x"}, cited[0]]},
        {"type": "image", "base64": "aGk=", "mime_type": "image/webp"},
        {"type": "file", "url": "file:///etc/passwd"},
    ]
    parts = message(Story(0).start("a").whole("a", content).end()).parts
    assert [{k: v for k, v in one.items() if k != "sourceId"} for one in parts[2:]] == [
        {"type": "source-url", "url": "https://example.org", "title": "E"},
        {"type": "source-document", "mediaType": "text/plain", "title": "A book"},
        {"type": "file", "url": "data:image/webp;base64,aGk=", "mediaType": "image/webp"},
    ]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["llm.start", "llm.ai.delta", "llm.ai.response", "task.end", "llm.tool.result", "run.pause", "run.end"]
            ),
            st.dictionaries(
                st.sampled_from(["message", "text", "role", "replaces", "gave", "kept", "messages", "blocks", "tool_calls"]),
                st.recursive(
                    st.none() | st.integers() | st.text(max_size=3),
                    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
                    max_leaves=6,
                ),
                max_size=3,
            ),
            st.sampled_from([None, "a", "b"]),
        ),
        max_size=12,
    )
)
def test_events_that_hold_any_json_make_a_legal_stream(events: list[tuple[Any, dict[str, Any], str | None]]) -> None:
    """A program may append anything: the page shows what can be shown, and its stream does not break."""
    story = Story(0)
    for kind, data, call in events:
        story.add(kind, data, call)
    read(frames_of(story))


def test_objects_that_the_clients_refuse_are_renamed() -> None:
    """Their JSON parser ends the stream at a key `__proto__`. Half of a surrogate pair is escaped."""
    story = Story(0).start("a").whole("a", "\ud83d", tool_calls=[{"name": "x", "args": {"__proto__": 1}, "id": "c"}])
    frames = frames_of(story.end())
    assert not [one for one in frames if '"__proto__"' in one]
    assert [one.encode() for one in frames]


def test_frames_of_one_event_are_numbered() -> None:
    """S1: the last frame of an event has its seq alone."""
    story = Story(0).start("a").says("a", "hi")
    projector = AI_SDK.projector(story.run)
    found = [frame for event in story.events for frame in number("r", event.seq, projector.event(event))]
    assert [frame.id for frame in found] == ["r:3.1", "r:3.2", "r:3.3", "r:3"]
    assert isinstance(story.events[0], Event)
