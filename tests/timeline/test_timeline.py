"""What there is to draw of a run: calls, lanes, marks, the cut, the messages and where they come from."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import Event, JournalCallbackHandler, Run, RunJournal, attach
from langchain_runjournal.events.run_state import advance, begin
from langchain_runjournal.messages.marks import origin_of
from langchain_runjournal.messages.tool_results import stable_id
from langchain_runjournal.timeline.time_axis import lanes
from langchain_runjournal.timeline.timeline import Timeline, timeline
from langchain_runjournal.view import page
from tests.support.agents import Scripted, asks, by_hand, words
from tests.support.conversations import until, until_said

RUN = "01a1f114-0fc6-75e7-9f51-8483476f4d8e"
DAY = 86_400.0


class Story:
    """The events of a run, one after the other."""

    def __init__(self, run_id: str = RUN, at: float = 1_795_045_986.0) -> None:
        self.run_id, self.at = run_id, at
        self.events: list[Event] = []

    def add(self, kind: Any, data: Mapping[str, Any] | None = None, call: str | None = None, wait: float = 0.0) -> Story:
        self.at += wait
        seq, at = len(self.events) + 1, round(self.at, 3)
        self.events.append(Event(run_id=self.run_id, kind=kind, data=data or {}, call_id=call, seq=seq, at=at))
        return self

    def begin(self, text: str = "hi") -> Story:
        self.add("run.start", {"thread_id": "t", "name": "agent", "metadata": {}})
        return self.add("llm.human.input", message("human", text), wait=0.01)

    def says(self, call: str, *tokens: str, wait: float = 0.1, **about: Any) -> Story:
        """A model call that has begun and said something."""
        self.add("llm.start", {"model": "gpt", "role": "answer", **about}, call, wait=wait)
        for token in tokens:
            self.add("llm.ai.delta", {"text": token}, call, wait=wait)
        return self

    def answers(self, call: str, *tokens: str, tools: tuple[str, ...] = (), **about: Any) -> Story:
        """A model call that is complete."""
        self.says(call, *tokens, **about)
        calls = [{"id": id, "name": "search", "args": {"q": id}, "type": "tool_call"} for id in tools]
        return self.add(
            "llm.ai.response", message("ai", "".join(tokens), id=f"lc_run--{call}", tool_calls=calls), call, wait=0.1
        )

    def starts(self, *ids: str, wait: float = 0.0, **about: Any) -> Story:
        for id in ids:
            self.add(
                "tool.start", {"tool_call_id": id, "name": "search", "args": {"q": id}, **about}, f"run-{id}", wait=wait
            )
        return self

    def gives(self, *ids: str, wait: float = 0.5, **about: Any) -> Story:
        for id in ids:
            self.add("llm.tool.result", {"tool_call_id": id, **result(id), **about}, f"run-{id}", wait=wait)
        return self

    def ends(self, status: str = "completed", cause: str | None = None, wait: float = 0.05, **more: Any) -> Story:
        return self.add("run.end", {"status": status, "cause": cause, **more}, wait=wait)

    @property
    def run(self) -> Run:
        run = begin(self.run_id, self.events[0].at if self.events else 0.0, "owner")
        for event in self.events:
            run = advance(run, event)
        return replace(run, last_seq=len(self.events))

    @property
    def line(self) -> Timeline:
        return timeline(self.run, self.events)


def message(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"message": {"type": kind, "data": {"type": kind, "content": content, **more}}}


def result(id: str, content: str = "found", **more: Any) -> dict[str, Any]:
    return message("tool", content, tool_call_id=id, name="search", status="success", **more)


def settled(*messages: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    written = [{"id": id, "type": kind, "origin": origin} for id, kind, origin in messages]
    return {"outcome": "settled", "messages": written, "before": "checkpoint-1", "after": "checkpoint-2", **more}


def made_up(call: str, index: int, id: str) -> str:
    """The id of a result that a settlement has made up."""
    return stable_id("rjs-", f"lc_run--{call}|{index}|{id}")


def stopped() -> Story:
    """Three tools, stopped in the third."""
    story = (
        Story().begin().answers("m", "Look", "ing. ", tools=("c1", "c2", "c3")).starts("c1", "c2", "c3").gives("c1", "c2")
    )
    story.add("run.stop", {"cause": "stop"}, wait=0.2).add("run.checkpoint", {"before": "checkpoint-1"}, wait=0.01)
    written = (made_up("m", 2, "c3"), "tool", "synthetic"), (made_up("m", 0, "c1"), "tool", "recovered")
    return story.add("run.settled", settled(*written), wait=0.02).ends("interrupted", "stop")


def told(line: Timeline) -> list[str]:
    return [f"{one.kind} {one.origin} {one.text}" for one in line.messages]


# --- calls ------------------------------------------------------------------------------------------------------------


def test_a_model_call_says_what_came_and_when() -> None:
    """First token, how many, how much, the longest wait, what it cost, what it asked for."""
    story = Story().begin().says("m", "one ", "two ", node="model")
    story.add("llm.ai.delta", {"text": "three"}, "m", wait=2.0)
    calls = [{"id": "c", "name": "search", "args": {"q": 1}, "type": "tool_call"}]
    data = message("ai", "one two three", tool_calls=calls, usage_metadata={"input_tokens": 3, "output_tokens": 4})
    (call,) = story.add("llm.ai.response", data, "m", wait=0.1).ends().line.models
    assert (call.model, call.role, call.node, call.outcome) == ("gpt", "answer", "model", "complete")
    assert (call.deltas, call.characters, sum(call.flow)) == (3, 13, 3)
    assert call.began == pytest.approx(0.11)
    assert call.first == pytest.approx(0.21)
    assert call.silence == pytest.approx(2.0)
    assert call.ended == pytest.approx(2.41)
    assert call.usage == {"input_tokens": 3, "output_tokens": 4}
    assert [(one.id, one.name, json.loads(one.args), one.whole) for one in call.asked] == [("c", "search", {"q": 1}, True)]


def test_what_a_cut_off_call_had_said_is_put_together_from_its_tokens() -> None:
    """Words, thinking, and a request whose arguments were cut off."""
    story = Story().begin().says("m")
    story.add("llm.ai.delta", {"thinking": "let me ", "index": 0}, "m").add(
        "llm.ai.delta", {"thinking": "see", "index": 0}, "m"
    )
    story.add("llm.ai.delta", {"text": "Well", "index": 1}, "m")
    part = {"tool_calls": [{"name": "search", "args": '{"q": "x', "id": "c", "index": 2}]}
    (call,) = (
        story.add("llm.ai.delta", part, "m").add("llm.ai.partial", {"cause": "stop"}, "m").ends("interrupted").line.models
    )
    assert (call.outcome, call.cause, call.text, call.thinking) == ("partial", "stop", "Well", "let me see")
    assert [(one.name, one.args, one.whole) for one in call.asked] == [("search", '{"q": "x', False)]


def test_an_attempt_that_failed_is_replaced_by_the_next() -> None:
    """It is drawn, and marked, and not part of the conversation."""
    story = Story().begin().says("m1", "bad").add("llm.error", {"error": "ValueError: no"}, "m1")
    line = story.answers("m2", "good", attempt=2, replaces=["m1"]).ends().line
    assert [(call.outcome, call.attempt, call.replaced, call.error) for call in line.models] == [
        ("error", 1, True, "ValueError: no"),
        ("complete", 2, False, None),
    ]
    assert told(line) == ["human input hi", "ai streamed good"]


def test_what_is_said_after_the_end_counts_for_nothing() -> None:
    """The user has seen the end: a zombie's tokens are neither drawn nor part of what was said."""
    story = Story().begin().says("m", "one ").add("llm.ai.partial", {"cause": "stop"}, "m").ends("interrupted", "stop")
    story.add("llm.ai.delta", {"text": "two"}, "m", wait=1.0).add("llm.ai.response", message("ai", "one two"), "m")
    (call,) = story.line.models
    assert (call.outcome, call.text, call.deltas) == ("partial", "one ", 1)
    assert told(story.line) == ["human input hi", "ai partial one "]


def test_tools_stand_beside_each_other_while_they_overlap() -> None:
    """Each takes the first lane that is free, the same one each time."""
    story = Story().begin().starts("a", "b", "c", wait=0.1).gives("b").starts("d", wait=0.1).gives("a", "c", "d").ends()
    assert {tool.tool_call_id: tool.lane for tool in story.line.tools} == {"a": 0, "b": 1, "c": 2, "d": 1}
    assert story.line.lanes == 3


def test_how_tools_end() -> None:
    """A result, an error that it reports or raises, waiting for a human, never, and after the run."""
    story = Story().begin().starts("a", "b", "c", "d", "e", "f").gives("a")
    story.add("llm.tool.result", {"tool_call_id": "b", **message("tool", "no", tool_call_id="b", status="error")}, "run-b")
    story.add("tool.error", {"tool_call_id": "c", "error": "ValueError: x"}, "run-c")
    story.add("tool.error", {"tool_call_id": "d", "interrupted": True}, "run-d")
    story.ends("interrupted", "stop").gives("e", late=True)
    line = story.line
    assert [tool.outcome for tool in line.tools] == ["result", "error", "error", "interrupted", "result", "open"]
    assert [tool.late for tool in line.tools] == [False, False, False, False, True, False]
    assert line.tools[4].ended > line.ended
    assert line.tools[5].ended == line.cut


def test_a_result_that_no_tool_reports_is_a_call_all_the_same() -> None:
    """A human's refusal, an unknown tool."""
    story = Story().begin().add("llm.tool.result", {"tool_call_id": "c", **result("c", "refused")}, wait=1.0).ends()
    (tool,) = story.line.tools
    assert (tool.name, tool.ran, tool.outcome, tool.text, tool.ended - tool.began) == (
        "search",
        False,
        "result",
        "refused",
        0.0,
    )


def test_what_happens_inside_of_a_tool_says_so() -> None:
    """A subagent's model call and its tools."""
    story = Story().begin().starts("a").answers("s", "x", role="subagent", inside="a").starts("n", inside="a")
    line = story.gives("n", inside="a").gives("a").ends().line
    assert [(call.role, call.inside) for call in line.models] == [("subagent", "a")]
    assert [tool.inside for tool in line.tools] == [None, "a"]


# --- the run ----------------------------------------------------------------------------------------------------------


def test_where_a_stop_cut_it_off() -> None:
    """Where it was first seen that it goes no further, not where its end was told."""
    line = stopped().line
    settled_at = next(mark.at for mark in line.marks if mark.kind == "checkpoint" and "before" in mark.data)
    assert line.cut == settled_at < line.ended
    assert [mark.kind for mark in line.marks if mark.kind != "checkpoint"] == ["start", "stop", "settled", "end"]


def test_where_a_crash_cut_it_off() -> None:
    """At the last that was heard of it, whenever somebody finds it."""
    line = Story().begin().says("m", "a", "b").ends("interrupted", "crash", wait=3600.0).line
    assert line.cut == pytest.approx(0.31)
    assert line.ended == pytest.approx(3600.31)
    assert line.models[0].ended == pytest.approx(0.31)


def test_a_run_that_goes_on_is_not_cut_off() -> None:
    """Nothing is told of an end that has not come."""
    line = Story().begin().says("m", "a").starts("c").line
    assert (line.cut, line.ended, line.models[0].outcome, line.tools[0].outcome) == (None, None, "open", "open")
    assert told(line) == ["human input hi", "ai partial a"]


def test_a_run_that_was_read_before_its_end() -> None:
    """What its events say of the end counts."""
    story = Story().begin().says("m", "a")
    early = story.run
    assert not early.ended
    line = timeline(early, story.ends("interrupted", "stop").events)
    assert (str(line.run.status), line.run.cause, line.run.thread_id) == ("interrupted", "stop", "t")


def test_the_order_is_that_of_seq_when_the_clock_jumps_back() -> None:
    """Time goes on from where it was; nothing lasts less than no time."""
    story = Story().begin().says("m", "a")
    story.at -= 7200
    line = story.answers("n", "b", "c").ends().line
    assert [call.call_id for call in line.models] == ["m", "n"]
    assert line.length == pytest.approx(0.21 + 0.2 + 0.1 + 0.05, abs=0.01)
    assert all(call.ended >= call.began for call in line.models)


def test_threads_that_write_at_once_do_not_add_up() -> None:
    """Times that are apart by milliseconds, back and forth, are no time that has passed."""
    story = Story().begin()
    for _ in range(1000):
        story.add("llm.ai.delta", {"text": "x"}, "a", wait=0.005).add("llm.ai.delta", {"text": "x"}, "b", wait=-0.004)
    assert story.line.length == pytest.approx(1.0, abs=0.05)


def test_three_days_of_waiting_take_little_room() -> None:
    """The rest stays readable, and the break is told."""
    story = Story().begin().answers("m", "a", "b").add("run.pause", {"interrupts": [{"value": "ok?"}]})
    line = story.says("n", "c", wait=0.1).line
    assert not line.axis.breaks
    story = Story().begin().answers("m", *"abcdefgh").add("run.pause", {})
    story.at += 3 * DAY
    line = story.answers("n", *"abcdefgh").ends().line
    (gone,) = line.axis.breaks
    assert gone.ended - gone.began == pytest.approx(3 * DAY, abs=1)
    assert line.axis.place(gone.ended) - line.axis.place(gone.began) < 0.1
    assert line.axis.place(line.models[0].ended) - line.axis.place(line.models[0].began) > 0.3
    places = [line.axis.place(line.length * part / 50) for part in range(51)]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (0.0, 1.0)


def test_a_run_in_which_nothing_is_known_to_happen_is_as_long_as_it_was() -> None:
    """A bare chain that took a minute is no break with two ends."""
    line = Story().add("run.start").ends(wait=60.0).line
    assert (line.models, line.tools, line.axis.breaks, line.length) == ((), (), (), 60.0)


def test_tokens_are_counted_once_in_the_flow() -> None:
    """At most some hundred parts, whatever their number; together they are all of them."""
    line = Story().begin().says("m", *["x"] * 5000, wait=0.01).ends("interrupted", "crash").line
    assert 60 < len(line.models[0].flow) <= 120
    assert sum(line.models[0].flow) == 5000


def test_the_flow_ends_with_the_last_token() -> None:
    """Tokens that come evenly are an even flow, however long the call goes on without any."""
    story = Story().begin().says("m", *["x"] * 400, wait=0.05)
    (call,) = story.add("llm.ai.response", message("ai", "x" * 400), "m", wait=15.0).ends().line.models
    assert call.ended - (call.last or 0) == pytest.approx(15.0)
    assert max(call.flow) - min(call.flow) <= 2


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), max_size=60))
def test_lanes_never_overlap(spans: list[tuple[float, float]]) -> None:
    """Two spans in one lane: one ends before the other begins. There is no lane that nobody needs."""
    found = [(began, began + long) for began, long in spans]
    axis = Story().begin().ends(wait=110.0).line.axis
    taken = lanes(found, axis)
    for lane in set(taken):
        of_lane = sorted(span for span, its in zip(found, taken, strict=True) if its == lane)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(of_lane))
    assert set(taken) == set(range(len(set(taken))))


# --- messages ---------------------------------------------------------------------------------------------------------


def test_where_each_message_comes_from() -> None:
    """In the order of the thread: what a settlement has written stands at its end."""
    line = stopped().line
    assert [(one.kind, one.origin, one.tool_call_id) for one in line.messages] == [
        ("human", "input", None),
        ("ai", "streamed", None),
        ("tool", "tool", "c2"),
        ("tool", "synthetic", "c3"),
        ("tool", "recovered", "c1"),
    ]
    assert line.messages[1].call_id == "m"
    assert line.messages[3].state == "started"
    assert "the user stopped the turn" in line.messages[3].text


def test_what_was_written_by_a_settlement_stands_at_the_end() -> None:
    """In the order in which it was written: a thread is only ever added to."""
    story = Story().begin().answers("m", "Looking. ", tools=("c1", "c2", "c3")).starts("c1", "c2").gives("c2")
    written = [(made_up("m", at, f"c{at + 1}"), "tool", "synthetic") for at in (0, 2)]
    written.append(("lc_run--n", "ai", "partial"))
    line = story.says("n", "so").add("run.settled", settled(*written)).ends("interrupted", "stop").line
    assert [(one.origin, one.tool_call_id) for one in line.messages[2:]] == [
        ("tool", "c2"),
        ("synthetic", "c1"),
        ("synthetic", "c3"),
        ("partial", None),
    ]


def test_a_late_result_is_not_in_the_thread_before_it_is_settled_again() -> None:
    """What was made up still stands there; that the real one has come is said."""
    story = Story().begin().answers("m", "Looking. ", tools=("c1",)).starts("c1")
    story.add("run.settled", settled((made_up("m", 0, "c1"), "tool", "synthetic"))).ends("interrupted", "stop")
    last = story.gives("c1", late=True).line.messages[-1]
    assert (last.origin, last.state, last.outdated) == ("synthetic", "started", True)


@pytest.mark.parametrize(
    ("content", "kwargs"),
    [
        ([{"type": "thinking", "thinking": "deep"}, {"type": "text", "text": "x"}], {}),
        ([{"type": "reasoning", "reasoning": "deep"}], {}),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "deep"}]}], {}),
        ([{"type": "reasoning_content", "reasoning_content": {"text": "deep", "signature": "s"}}], {}),
        ("x", {"reasoning_content": "deep"}),
    ],
)
def test_thinking_is_found_where_providers_put_it(content: Any, kwargs: Any) -> None:
    """In its call and in the message, and not among the words."""
    story = Story().begin().says("m").add("llm.ai.response", message("ai", content, additional_kwargs=kwargs), "m")
    line = story.ends().line
    assert line.models[0].thinking == line.messages[-1].thinking == "deep"
    assert "deep" not in line.messages[-1].text


@pytest.mark.parametrize(
    ("given", "state", "words"),
    [
        ((), "never_started", "Not executed"),
        (("start",), "started", "Interrupted while running"),
        (("start", "error"), "failed", "ValueError: x"),
        (("start", "wait"), "waiting", "waiting for a human"),
    ],
)
def test_what_a_made_up_result_says(given: tuple[str, ...], state: str, words: str) -> None:
    """What was known when it was made up; what came later does not change it."""
    story = Story().begin().answers("m", "Looking. ", tools=("c1",))
    if "start" in given:
        story.starts("c1")
    if "error" in given:
        story.add("tool.error", {"tool_call_id": "c1", "error": "ValueError: x"}, "run-c1")
    if "wait" in given:
        story.add("tool.error", {"tool_call_id": "c1", "interrupted": True}, "run-c1")
    story.add("run.settled", settled((made_up("m", 0, "c1"), "tool", "synthetic"))).ends("interrupted", "stop")
    if not given:
        story.starts("c1")
    last = story.line.messages[-1]
    assert (last.origin, last.state) == ("synthetic", state)
    assert words in last.text


def test_a_synthetic_result_says_that_the_answer_was_cut_off_in_its_request() -> None:
    """As the thread has it: the request that was cut, and the one beside it. Both are part of the thread."""
    story = Story().begin().answers("m", "Looking. ", tools=("c1", "c2"))
    asking = story.events.pop()
    story.add("llm.ai.response", {**asking.data, "cut": {"cause": "length", "calls": ["c2"]}}, "m")
    written = [(made_up("m", at, f"c{at + 1}"), "tool", "synthetic") for at in (0, 1)]
    line = story.add("run.settled", settled(*written)).ends("interrupted", "stop").line
    assert [(one.kind, one.state) for one in line.messages] == [
        ("human", None),
        ("ai", None),
        ("tool", "beside_cut"),
        ("tool", "cut"),
    ]
    assert [len(line.messages[1].asked), line.messages[1].dropped] == [2, ()]
    assert "the answer ran into its token limit inside this call" in line.messages[3].text


def test_a_late_result_takes_the_place_of_the_made_up_one() -> None:
    """The truth in one place, as in the thread."""
    story = Story().begin().answers("m", "Looking. ", tools=("c1",)).starts("c1")
    id = made_up("m", 0, "c1")
    story.add("run.settled", settled((id, "tool", "synthetic"))).ends("interrupted", "stop").gives("c1", late=True)
    line = story.add("run.settled", settled((id, "tool", "recovered"))).line
    assert told(line)[-1] == "tool recovered found"
    assert [mark.late for mark in line.marks if mark.kind == "settled"] == [False, True]


def test_messages_that_had_no_id_are_recovered_from_the_end() -> None:
    """What a thread lacks is the end of a run."""
    story = Story().begin().add("llm.human.input", message("human", "and this"))
    story.says("m", "half").add("llm.ai.partial", {"cause": "crash"}, "m")
    story.add("run.settled", settled(("rjs-1", "human", "recovered"), ("lc_run--m", "ai", "partial")))
    line = story.ends("interrupted", "crash").line
    assert told(line) == ["human input hi", "human recovered and this", "ai partial half"]
    assert line.messages[2].reason == "crash"


def test_a_cut_off_answer_says_what_it_was_about_to_ask() -> None:
    """Its requests are not part of the thread."""
    story = Story().begin().says("m", "Looking. ")
    part = {"tool_calls": [{"name": "search", "args": "{}", "id": "c", "index": 0}]}
    line = (
        story.add("llm.ai.delta", part, "m").add("llm.ai.partial", {"cause": "stop"}, "m").ends("interrupted", "stop").line
    )
    assert (line.messages[-1].asked, [one.name for one in line.messages[-1].dropped]) == ((), ["search"])


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("llm.human.input", {"message": 7}),
        ("llm.human.input", {}),
        ("llm.start", {"replaces": 5}),
    ],
)
def test_data_that_the_journal_does_not_record_is_said(kind: str, data: dict[str, Any]) -> None:
    """A program may append any JSON: the calls and the marks are shown, and the page says why there are no messages."""
    story = Story().begin().add(kind, data, "x").answers("m", "good").ends()
    line = story.line
    assert (line.messages, line.is_unreadable, [call.text for call in line.models][-1]) == ((), True, "good")
    html = page([(story.run, story.events)])
    assert "The messages cannot be shown: an event has data that the journal does not record." in html
    assert "0 messages" not in html


# --- real runs --------------------------------------------------------------------------------------------------------


def an_agent(model: Any, tools: list[Any]) -> Any:
    return create_agent(model, tools, checkpointer=InMemorySaver())


def by_its_hand(model: Any, tools: list[Any]) -> Any:
    graph = by_hand(model, tools)
    graph.checkpointer = InMemorySaver()
    return graph


# On Python 3.10 LangChain cannot hand on the config in asynchronous code.
AGENTS = [by_its_hand] if sys.version_info < (3, 11) else [an_agent, by_its_hand]


def agrees(line: Timeline, thread: list[Any]) -> None:
    """The picture shows the thread, message by message, and knows what was added to it."""
    assert [(one.kind, one.text) for one in line.messages] == [(one.type, one.text) for one in thread]
    ours = ("partial", "recovered", "synthetic")
    assert [one.origin if one.origin in ours else None for one in line.messages] == [origin_of(one) for one in thread]


async def stopped_in_a_tool(make: Any, durability: Any, *, late: bool) -> None:
    """Three tools, of which the second never ends, or ends when the run is over; compared with the thread, before and after
    the next turn."""
    held, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    async def quick(q: str) -> str:
        """Quick."""
        return f"quick {q}"

    @tool
    async def slow(q: str) -> str:
        """Slow."""
        held.set()
        await asyncio.Event().wait()
        return "never"

    @tool
    def blocking(q: str) -> str:
        """Nobody can stop it."""
        loop.call_soon_threadsafe(held.set)
        go_on.wait(30)
        return "late result"

    calls = ("c1", "quick", {"q": "1"}), ("c2", "blocking" if late else "slow", {"q": "2"}), ("c3", "quick", {"q": "3"})
    model = Scripted(scripts=[asks(*calls), words("so ", "it is")])
    async with RunJournal(":memory:") as journal:
        graph = attach(make(model, [quick, slow, blocking]), journal)
        config: Any = {"configurable": {"thread_id": "t"}}
        task = asyncio.create_task(graph.ainvoke({"messages": [("user", "hi")]}, config, durability=durability))
        await held.wait()
        (run,) = await journal.aruns()
        await until_said(journal, run.run_id, "llm.tool.result", 2)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

        async def compare(messages: int | None = None) -> Timeline:
            line = timeline(await journal.arun(run.run_id), await journal.aread(run.run_id))
            agrees(line, (await graph.aget_state(config)).values["messages"][:messages])
            return line

        line = await compare()
        assert {tool.tool_call_id: tool.outcome for tool in line.tools} == {"c1": "result", "c2": "open", "c3": "result"}
        assert (str(line.run.status), line.messages[-1].outdated) == ("interrupted", False)
        if late:
            go_on.set()
            await until(lambda: journal.read(run.run_id)[-1].kind == "llm.tool.result")
            line = await compare()
            assert [one.outdated for one in line.messages if one.origin == "synthetic"] == [True]
            assert [tool.tool_call_id for tool in line.tools if tool.late] == ["c2"]
            assert "late result" in page([(line.run, await journal.aread(run.run_id))])
        before = len(line.messages)
        await graph.ainvoke({"messages": [("user", "and now")]}, config)
        line = await compare(before)
        assert [one.origin for one in line.messages].count("synthetic") == (0 if late else 1)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("make", AGENTS, ids=lambda make: make.__name__)
def test_an_agent_that_was_stopped_in_a_tool(make: Any, durability: str, late: bool) -> None:
    """As it was recorded and settled, not as we think that it is: the picture agrees with the thread."""
    asyncio.run(asyncio.wait_for(stopped_in_a_tool(make, durability, late=late), 60))


def test_an_agent_that_was_cut_off_in_its_answer() -> None:
    """A partial answer is the one that stands in the thread."""
    journal = RunJournal(":memory:")
    model = Scripted(scripts=[[*words("one ", "two "), RuntimeError("boom")]])
    agent = attach(create_agent(model, [], checkpointer=InMemorySaver()), journal)
    config: Any = {"configurable": {"thread_id": "t"}}
    with pytest.raises(RuntimeError):
        for _ in agent.stream({"messages": [("user", "hi")]}, config, stream_mode="messages"):
            pass
    (run,) = journal.runs()
    line = timeline(run, journal.read(run.run_id))
    thread = agent.get_state(config).values["messages"]
    journal.close()
    agrees(line, thread)
    assert [one.origin for one in line.messages] == ["input", "partial"]
    assert line.models[0].outcome == "error"
    assert line.run.error is not None


def test_a_bare_chain() -> None:
    """Neither model nor tool: a picture all the same."""
    journal = RunJournal(":memory:")
    RunnableLambda(len).invoke([1], {"callbacks": [JournalCallbackHandler(journal)]})
    (run,) = journal.runs()
    line = timeline(run, journal.read(run.run_id))
    journal.close()
    assert (line.models, line.tools, str(line.run.status)) == ((), (), "completed")
    assert "Completed" in page([(run, ())])


def test_chunks_of_a_model_are_what_is_counted() -> None:
    """Of a chain with a model: as many tokens as it has said."""
    journal = RunJournal(":memory:")
    model = Scripted(scripts=[[AIMessageChunk(content=f"w{number} ") for number in range(40)]])
    list(model.stream("hi", {"callbacks": [JournalCallbackHandler(journal)]}))
    (run,) = journal.runs()
    (call,) = timeline(run, journal.read(run.run_id)).models
    journal.close()
    assert call.text == "".join(f"w{number} " for number in range(40))
    assert call.deltas in (40, 41)  # LangChain may add one that says only that it was the last


def test_what_the_program_reports_is_work() -> None:
    """A run that was killed worked until then."""
    story = Story().begin().says("m", "a").add("run.custom", {"value": 1}, wait=2.0)
    at = story.at - story.events[0].at
    story.ends("interrupted", "crash", wait=60.0)
    assert story.line.cut == pytest.approx(at)
    assert [mark.data["value"] for mark in story.line.marks_of("custom")] == [1]
