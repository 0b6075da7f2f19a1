"""The AG-UI dialect: every stream of a run is a legal one, wherever a client comes, and all clients end with one page."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_runjournal.messages.transcript import transcript
from langchain_runjournal.server.dialects.ag_ui.messages import ui_messages
from langchain_runjournal.server.dialects.ag_ui.projector import AgUi, AgUiProjector, Opening
from tests.server.test_ai_sdk_projector import Story, control_of
from tests.support.ag_ui_client import Client
from tests.support.random_stories import RandomRun

HISTORY = [
    {"type": "human", "data": {"type": "human", "content": "before", "id": "h0"}},
    {"type": "ai", "data": {"type": "ai", "content": [{"type": "reasoning", "reasoning": "hm"}, "yes"], "id": "a0"}},
]
SAID = {"type": "human", "data": {"type": "human", "content": "hi", "id": "h"}}


def projector(story: RandomRun, **opening: Any) -> AgUiProjector:
    return AgUi(Opening(**{"history": HISTORY, **opening})).projector(story.run)


def frames_of(story: RandomRun, **opening: Any) -> list[str]:
    """The whole stream of a run."""
    found = projector(story, **opening)
    frames = [one.data for event in story.events for one in found.event(event)]
    return frames + [one.data for one in found.control(control_of(story))]


def page(story: RandomRun) -> Client:
    """A page that has sent the message of the user, if the run has got it."""
    has_input = any(event.kind == "llm.human.input" for event in story.events)
    return Client(ui_messages("t", [*HISTORY, SAID][: 3 if has_input else 2]))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9))
def test_the_page_always_holds_what_it_is_taken_to_hold(seed: int) -> None:
    """The projector knows each client's messages, after each event: so that its snapshots and what it adds are right."""
    story = RandomRun(seed)
    client = page(story)
    found = projector(story)
    for event in story.events:
        for frame in found.event(event):
            client.add(frame.data)
        if event.seq > 1:
            assert client.messages == found._page.messages(), event


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9))
def test_the_last_snapshot_is_what_the_thread_holds(seed: int) -> None:
    """S59, S60: the answers that stand, whole or cut off, with their results, and nothing of failed attempts and helpers."""
    story = RandomRun(seed)
    client = page(story).read(frames_of(story))
    assert client.end is not None
    if story.run.ended:
        thread = ui_messages("t", [*HISTORY, *transcript(story.run_id, story.events)])
        assert client.shown() == thread


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9), st.data())
def test_a_client_that_comes_late_has_the_same_page(seed: int, data: Any) -> None:
    """S1, S6, P56: whenever it comes, also if it was cut off before, and whatever it holds of the run: a legal prefix, then
    the rest. At each event, it holds what a client that stayed holds."""
    story = RandomRun(seed)
    attach = data.draw(st.integers(1, len(story.events)))
    live = frames_of(story)
    cut = page(story).read(live[: data.draw(st.integers(0, len(live)))])
    late = frames_of(story, attach=attach)
    stayed = page(story).read(live)
    for client in (Client(), cut):
        client.read(late)
        assert client.end == stayed.end
        assert client.shown() == stayed.shown()
    first = json.loads(late[1])
    assert first["type"] == "MESSAGES_SNAPSHOT"


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**9))
def test_a_late_client_is_at_once_where_a_client_is_that_stayed(seed: int) -> None:
    """After the prefix, both hold the same, and the same is open."""
    story = RandomRun(seed)
    live, stayed = projector(story), page(story)
    for event in story.events:
        for frame in live.event(event):
            stayed.add(frame.data)
        late, came = projector(story, attach=event.seq), Client()
        for one in story.events[: event.seq]:
            for frame in late.event(one):
                came.add(frame.data)
        if event.seq > 1:
            assert came.messages == stayed.messages, event
            assert came.customs == stayed.customs
            assert came.open == stayed.open or stayed.end


def test_an_answer_streams_token_by_token() -> None:
    """Each delta at its own event, and the whole answer in the last snapshot."""
    story = Story(0).start("a").says("a", "one ", "two").whole("a", "one two").end()
    assert [json.loads(one)["type"] for one in frames_of(story)] == [
        *("RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("MESSAGES_SNAPSHOT", "RUN_FINISHED"),
    ]
