"""Threads that were broken before this package saw them: the next message of an attached graph adds the missing results,
once.

The model of these tests refuses what a provider refuses. The letters for the messages of a thread are those of test_settle.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.channels import Topic
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from langchain_runjournal import RunJournal, attach, is_synthetic
from langchain_runjournal.capture.graph_identity import identity
from langchain_runjournal.capture.thread_slots import ThreadSlot
from langchain_runjournal.messages.tool_results import CallKnowledge
from langchain_runjournal.settle.repair_plan import is_broken, plan_repair, rewritten
from tests.settle.test_settle import CALLS, THREAD, Asked, Tools, cut_off, made_by_hand, made_by_langchain, shown
from tests.settle.test_settle_shapes import STATES, Growing, Whole, messages_of, talking
from tests.support.agents import asks, words


class Refused(Exception):
    """The error of a provider: 400, tool_calls must be followed by tool messages."""


class Strict(Asked):
    """A model that refuses tool calls without results directly behind them, and results without a request."""

    def _stream(self, *args: Any, **kwargs: Any) -> Any:
        check(*args[:1])
        return super()._stream(*args, **kwargs)

    async def _astream(self, *args: Any, **kwargs: Any) -> Any:
        check(*args[:1])
        async for chunk in super()._astream(*args, **kwargs):
            yield chunk

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        check(messages)
        return super()._generate(messages)

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        check(messages)
        return await super()._agenerate(messages)


def check(messages: Sequence[Any] = ()) -> None:
    due: set[str] = set()
    for one in messages:
        if one.type == "tool":
            if one.tool_call_id not in due:
                raise Refused(f"{one.tool_call_id} answers nothing")
            due.remove(one.tool_call_id)
        elif due:
            raise Refused(f"{due} are not answered")
        due |= {call["id"] for call in getattr(one, "tool_calls", ())}
    if due:
        raise Refused(f"{due} are not answered")


def strict(*scripts: list[Any]) -> Strict:
    return Strict(scripts=list(scripts), seen=[])


def messages(text: str, *, ids: bool = True) -> list[Any]:
    """Parse letters such as `U:hi A:x A(c1,c2) T(c1)`."""
    found: list[Any] = []
    for place, one in enumerate(text.split()):
        kind, id = one[0], f"m{place}" if ids else None
        said = one.partition(":")[2]
        calls = one.partition("(")[2].rstrip(")").split(",") if "(" in one else []
        if kind == "U":
            found.append(HumanMessage(said, id=id))
        elif kind == "T":
            found.append(ToolMessage(f"real {calls[0]}", tool_call_id=calls[0], name="fast", id=id))
        else:
            asked = [{"id": call, "name": "fast", "args": {"x": 1}, "type": "tool_call"} for call in calls]
            found.append(AIMessage(said, id=id, tool_calls=asked))
    return found


BROKEN = {
    "last": ("U:hi A(c1)", "U hi|A (c1)|T* c1=unknown"),
    "middle": ("U:hi A(c1) U:so", "U hi|A (c1)|T* c1=unknown|U so"),
    "later turns": ("U:hi A(c1) U:so A:x U:b A:y", "U hi|A (c1)|T* c1=unknown|U so|A x|U b|A y"),
    "several": (
        "U:hi A(c1,c2) U:so A(c3) U:b",
        "U hi|A (c1,c2)|T* c1=unknown|T* c2=unknown|U so|A (c3)|T* c3=unknown|U b",
    ),
    "batch": ("U:hi A(c1,c2) T(c2)", "U hi|A (c1,c2)|T c2=real c2|T* c1=unknown"),
    "batch in the middle": ("U:hi A(c1,c2) T(c2) U:so", "U hi|A (c1,c2)|T c2=real c2|T* c1=unknown|U so"),
    "too late": ("U:hi A(c1) U:so T(c1)", "U hi|A (c1)|T c1=real c1|U so"),
    "one id twice": ("U:hi A(c1) T(c1) U:so A(c1) U:b", "U hi|A (c1)|T c1=real c1|U so|A (c1)|T* c1=unknown|U b"),
    "side by side": ("U:hi A(c1) A(c2) T(c2)", "U hi|A (c1)|T* c1=unknown|A (c2)|T c2=real c2"),
}
SHAPES = {
    **{name: STATES[name][0] for name in ("pydantic", "dataclass", "root", "grows", "differences")},
    "state": MessagesState,
}


def one_node(schema: Any, asked: Asked, saver: Any) -> Any:
    graph = StateGraph(schema)
    graph.add_node("talk", talking(asked, is_root=schema is STATES["root"][0]))
    graph.add_edge(START, "talk")
    return graph.compile(checkpointer=saver)


def put(schema: Any, found: list[Any]) -> Any:
    return found if schema is STATES["root"][0] else {"messages": found}


def updates(saver: Any, config: RunnableConfig = THREAD) -> int:
    """Return how many checkpoints were written by hand, as a settlement does."""
    return sum(one.metadata["source"] == "update" for one in saver.list(config))


@pytest.mark.guarantee("history")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", BROKEN)
def test_a_thread_that_was_broken_before(case: str, shape: str, journal: RunJournal) -> None:
    """The repair adds a result directly behind every request, once, and changes no other message."""
    schema, (before, after) = SHAPES[shape], BROKEN[case]
    asked, saver = strict(words("fine"), words("well")), InMemorySaver()
    plain = one_node(schema, asked, saver)
    seed = messages(before)
    if shape == "differences":
        # LangGraph 1.2.4 loses what a program writes by hand into a new thread that holds differences.
        with pytest.raises(Refused):
            plain.invoke({"messages": seed}, THREAD)
    else:
        plain.update_state(THREAD, put(schema, seed), as_node="talk")
    with pytest.raises(Refused):
        asked.invoke([*seed, HumanMessage("now")])
    old = saver.get_tuple(THREAD)
    assert old is not None
    agent = attach(plain, journal)

    agent.invoke(put(schema, [HumanMessage("now")]), THREAD)
    assert "|".join(shown(asked.seen[-1])) == f"{after}|U now"
    thread = messages_of(agent.get_state(THREAD).values)
    assert "|".join(shown(thread)) == f"{after}|U now|A fine"
    assert sorted((one for one in thread if one in seed), key=seed.index) == seed
    for one in thread:
        if is_synthetic(one):
            assert one.status == "error"
            assert one.content.startswith("No result was recorded")
            assert one.additional_kwargs["runjournal"]["origin"] == "synthetic"
    assert messages_of(plain.get_state(old.config).values) == seed

    written = updates(saver)
    agent.invoke(put(schema, [HumanMessage("more")]), THREAD)
    assert updates(saver) == written
    assert "|".join(shown(asked.seen[-1])) == f"{after}|U now|A fine|U more"


def _threads(parts: list[tuple[str, int]]) -> list[Any]:
    """Generate whole turns in which some results are missing, or stand behind the next words of the user."""
    found: list[Any] = []
    late: list[Any] = []
    for place, (fate, calls) in enumerate(parts):
        found += messages(f"U:{place}")
        found += late
        late = []
        ids = [f"c{place}-{number}" for number in range(calls)]
        if not ids:
            found += messages("A:x")
            continue
        found += messages(f"A({','.join(ids)})")
        results = [one for id in ids for one in messages(f"T({id})")]
        found += results if fate == "whole" else results[1:]
        late = results[:1] if fate == "late" else []
    return [one.model_copy(update={"id": f"m{place}"}) for place, one in enumerate(found)]


@pytest.mark.guarantee("history")
@given(st.lists(st.tuples(st.sampled_from(["whole", "open", "late"]), st.integers(0, 3)), max_size=6))
def test_any_thread(parts: list[tuple[str, int]]) -> None:
    """A provider accepts any repaired thread; the repair loses and changes nothing; and a second repair does nothing."""
    thread = _threads(parts)
    done = plan_repair(thread, lambda message, request: CallKnowledge())
    whole = rewritten(thread, done, list)
    check(whole)
    assert not is_broken(whole)
    added = {id(one) for one in done.added}
    assert sorted(id(one) for one in whole if id(one) not in added) == sorted(map(id, thread))
    kept = [one for one in whole if one.type != "tool"]
    assert kept == [one for one in thread if one.type != "tool"]
    if done.at_end:
        assert whole == [*thread, *done.added]
    assert plan_repair(whole, lambda message, request: CallKnowledge()).order == list(range(len(whole)))


@pytest.mark.parametrize("case", ["last", "middle"])
def test_messages_without_ids(case: str, journal: RunJournal) -> None:
    """The repair works in a list that only grows, in which no message has an id."""
    asked, saver = strict(words("fine")), InMemorySaver()
    plain = one_node(Growing, asked, saver)
    plain.update_state(THREAD, {"messages": messages(BROKEN[case][0], ids=False)}, as_node="talk")
    agent = attach(plain, journal)
    for text in ("now", "more"):
        agent.invoke({"messages": [HumanMessage(text)]}, THREAD)
    assert "|".join(shown(asked.seen[-1])) == f"{BROKEN[case][1]}|U now|A fine|U more"


def test_a_list_without_a_reducer(journal: RunJournal) -> None:
    """An input with the whole list replaces the thread without a repair; any other input finds the thread repaired."""
    asked, saver = strict(words("fine")), InMemorySaver()
    graph = StateGraph(Whole)
    graph.add_node("talk", talking(asked, keeps_all=True))
    graph.add_edge(START, "talk")
    plain = graph.compile(checkpointer=saver)
    seed = messages("U:hi A(c1) U:so")
    plain.update_state(THREAD, {"messages": seed}, as_node="talk")
    written = updates(saver)
    agent = attach(plain, journal)
    agent.invoke({"messages": [HumanMessage("anew")]}, THREAD)
    assert (shown(asked.seen[-1]), updates(saver)) == (["U anew"], written)
    other: RunnableConfig = {"configurable": {"thread_id": "other"}}
    plain.update_state(other, {"messages": seed}, as_node="talk")
    agent.invoke({"mood": "good"}, other)
    assert shown(asked.seen[-1]) == ["U hi", "A (c1)", "T* c1=unknown", "U so"]


# --- what another program has left ------------------------------------------------------------------------------------


def users(found: Sequence[Any]) -> list[str]:
    return shown([one for one in found if one.type != "system"])


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("again", [0, 1, 2])
@pytest.mark.parametrize("make", [made_by_hand, made_by_langchain])
def test_what_plain_langgraph_has_left(make: Any, again: int, is_async: bool, journal: RunJournal) -> None:
    """The repair works on a thread that a program without a journal broke in a tool, and that a provider refused several
    times."""
    asked, tools = strict(CALLS, words("fine")), Tools()
    plain = make(asked, tools.all, checkpointer=tools.saver)
    cut_off(plain, tools)
    for _ in range(again):
        with pytest.raises(Refused):
            plain.invoke({"messages": [("user", "hello?")]}, THREAD)
    agent = attach(plain, journal)
    if is_async:
        asyncio.run(agent.ainvoke({"messages": [("user", "now")]}, THREAD))
    else:
        agent.invoke({"messages": [("user", "now")]}, THREAD)
    found = shown(asked.seen[-1])
    # An agent's tools are separate tasks: the thread holds what the finished one wrote until a new message discards it.
    first = "T c1=fast1" if make is made_by_langchain and not again else "T* c1=unknown"
    assert found == ["U hi", "A Looking. (c1,c2)", first, "T* c2=unknown", *["U hello?"] * again, "U now"]
    state = agent.get_state(THREAD)
    assert (shown(state.values["messages"]), state.next) == ([*found, "A fine"], ())


def test_what_plain_deepagents_has_left(journal: RunJournal) -> None:
    """The graph reads messages that are kept as differences, and the repair rewrites their order with `Overwrite`."""
    create_deep_agent = pytest.importorskip("deepagents", reason="needs Python 3.11").create_deep_agent

    asked, tools = strict(CALLS, words("fine"), words("well")), Tools()
    plain = create_deep_agent(asked, tools=tools.all, checkpointer=tools.saver)
    cut_off(plain, tools)
    agent = attach(plain, journal)
    agent.invoke({"messages": [("user", "now")]}, THREAD)
    cut = ["U hi", "A Looking. (c1,c2)", "T c1=fast1", "T* c2=unknown", "U now"]
    assert users(asked.seen[-1]) == cut
    agent.invoke({"messages": [("user", "more")]}, THREAD)
    assert users(asked.seen[-1]) == [*cut, "A fine", "U more"]


def test_a_result_that_a_run_of_the_journal_has(journal: RunJournal) -> None:
    """The repair uses the real result that the journal has, although no settlement wrote it into the thread."""
    asked, tools = strict(CALLS, words("fine")), Tools()
    plain = made_by_hand(asked, tools.all, checkpointer=tools.saver)
    cut_off(attach(plain, journal, settle="never"), tools)
    with pytest.raises(Refused):
        plain.invoke({"messages": [("user", "hello?")]}, THREAD)
    attach(plain, journal).invoke({"messages": [("user", "now")]}, THREAD)
    found = shown(asked.seen[-1])
    assert found[:2] == ["U hi", "A Looking. (c1,c2)"]
    assert found[2:4] == ["T+ c1=fast1", "T* c2=failed"]


# --- what is not touched ----------------------------------------------------------------------------------------------


def test_a_whole_thread_is_not_touched(journal: RunJournal) -> None:
    """The repair writes no checkpoint to a whole thread, even if a task is left in it."""
    asked, saver = strict(words("fine")), InMemorySaver()
    plain = one_node(MessagesState, asked, saver)
    plain.update_state(THREAD, {"messages": messages("U:hi A(c1) T(c1)")}, as_node=START)
    assert plain.get_state(THREAD).next == ("talk",)
    written = updates(saver)
    attach(plain, journal).invoke({"messages": [("user", "now")]}, THREAD)
    assert updates(saver) == written


def test_results_in_blocks_of_a_message(journal: RunJournal) -> None:
    """A result in Anthropic's form, as a block of a user's message, counts as a result."""
    saver = InMemorySaver()
    plain = one_node(MessagesState, Asked(scripts=[words("fine")], seen=[]), saver)
    block = {"type": "tool_result", "tool_use_id": "c1", "content": "seen"}
    plain.update_state(THREAD, {"messages": [*messages("U:hi A(c1)"), HumanMessage([block])]}, as_node="talk")
    written = updates(saver)
    attach(plain, journal).invoke({"messages": [("user", "now")]}, THREAD)
    assert updates(saver) == written


class Counting(InMemorySaver):
    """A checkpointer that counts its reads."""

    reads = 0

    def get_tuple(self, config: Any) -> Any:
        self.reads += 1
        return super().get_tuple(config)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_thread_is_read_once(is_async: bool, journal: RunJournal) -> None:
    """The check of a whole thread costs no extra read: LangGraph gets the checkpoint that it would read next."""
    found = []
    for attached in (False, True):
        saver = Counting()
        graph = one_node(MessagesState, strict(words("fine"), words("well")), saver)
        agent = attach(graph, journal) if attached else graph
        for text in ("first", "second"):
            value = {"messages": [HumanMessage(text, id=text)]}
            asyncio.run(agent.ainvoke(value, THREAD)) if is_async else agent.invoke(value, THREAD)
        found.append((saver.reads, shown(graph.get_state(THREAD).values["messages"])))
    assert found[0][1] == found[1][1] == ["U first", "A fine", "U second", "A well"]
    assert found[1][0] <= found[0][0] + 1  # a thread without a checkpoint has nothing to pass on


def test_what_was_read_is_not_used_after_a_while(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that was read too long ago is not reused: while a handler blocked the run, another process may have
    written."""
    saver = Counting()
    plain = one_node(MessagesState, strict(words("fine"), words("well")), saver)
    plain.invoke({"messages": [HumanMessage("first")]}, THREAD)
    monkeypatch.setattr("langchain_runjournal.capture.thread_slots._FRESH_FOR", 0.0)
    before = saver.reads
    attach(plain, journal).invoke({"messages": [HumanMessage("second")]}, THREAD)
    assert saver.reads == before + 2


class Cloning(Counting):
    """A checkpointer that keeps the savers that LangGraph derives from it, one for each run."""

    clones: list[Any]

    def with_allowlist(self, extra_allowlist: Any) -> Any:
        clone = copy.copy(self)
        clone.reads = 0
        self.clones.append(clone)
        return clone


def test_a_saver_that_langgraph_makes_for_a_run(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """With LANGGRAPH_STRICT_MSGPACK, a run has a saver of its own, which reads the thread once."""
    saver = Cloning()
    saver.clones = []
    plain = one_node(MessagesState, strict(words("fine"), words("well")), saver)
    plain.invoke({"messages": [HumanMessage("first")]}, THREAD)
    monkeypatch.setattr("langgraph._internal._serde.STRICT_MSGPACK_ENABLED", True)
    agent = attach(plain, journal)
    agent._serde_allowlist = {("some", "Thing")}
    before = saver.reads
    agent.invoke({"messages": [HumanMessage("second")]}, THREAD)
    assert (sum(clone.reads for clone in saver.clones), saver.reads) == (1, before)


def test_what_another_saver_has_read_is_not_used() -> None:
    """A saver does not reuse the read of another saver, because a stricter saver loads fewer types from a checkpoint."""
    turn, saver = ThreadSlot("t", identity(one_node(MessagesState, strict(), None)), None, "always", 1), InMemorySaver()
    for other, found in ((InMemorySaver(), None), (saver, "read")):
        turn.keep_read("read", saver)
        assert turn.take_read(other) == found
        assert turn.take_read(other) is None


GIVEN: dict[str, tuple[list[Any], list[str]]] = {
    "its result": (
        [ToolMessage("mine", tool_call_id="c1"), ToolMessage("too", tool_call_id="c2")],
        ["T c1=mine", "T c2=too"],
    ),
    "its message anew": ([AIMessage("never mind", id="m1")], []),
    "its removal": ([RemoveMessage(id="m1")], []),
    "as dicts": (
        [{"role": "tool", "tool_call_id": id, "content": "mine"} for id in ("c1", "c2")],
        ["T c1=mine", "T c2=mine"],
    ),
}


@pytest.mark.parametrize("says", GIVEN)
def test_what_the_new_input_answers_itself(says: str, journal: RunJournal) -> None:
    """The repair adds no result for a tool of the client, nor for a message that the input replaces or removes."""
    asked, saver = strict(words("fine")), InMemorySaver()
    plain = one_node(MessagesState, asked, saver)
    plain.update_state(THREAD, {"messages": messages("U:hi A(c1,c2)")}, as_node="talk")
    written = updates(saver)
    attach(plain, journal).invoke({"messages": GIVEN[says][0]}, THREAD)
    assert not [one for one in asked.seen[-1] if is_synthetic(one)]
    assert updates(saver) == written
    assert [line for line in shown(asked.seen[-1]) if line.startswith("T")] == GIVEN[says][1]


def test_results_of_a_client_that_come_one_by_one(journal: RunJournal) -> None:
    """The repair waits for the other results of a batch until the user says something else."""
    asked, saver = strict(words("fine")), InMemorySaver()

    def waits(state: MessagesState) -> str:
        due = {call["id"] for one in state["messages"] for call in getattr(one, "tool_calls", ())}
        return "talk" if due <= {getattr(one, "tool_call_id", "") for one in state["messages"]} else END

    graph = StateGraph(MessagesState)
    graph.add_node("gate", lambda state: {})
    graph.add_node("talk", talking(asked))
    graph.add_edge(START, "gate")
    graph.add_conditional_edges("gate", waits, ["talk", END])
    plain = graph.compile(checkpointer=saver)
    plain.update_state(THREAD, {"messages": messages("U:hi A(c1,c2,c3)")}, as_node="talk")
    agent = attach(plain, journal)
    agent.invoke({"messages": [ToolMessage("one", tool_call_id="c1")]}, THREAD)
    assert shown(agent.get_state(THREAD).values["messages"])[2:] == ["T c1=one"]
    agent.invoke({"messages": [ToolMessage("two", tool_call_id="c2"), HumanMessage("go on")]}, THREAD)
    assert shown(asked.seen[-1])[2:] == ["T c1=one", "T* c3=unknown", "T c2=two", "U go on"]


def for_a_client(asked: Asked, *, pauses: bool, breaks: bool) -> Any:
    """Return a graph whose tools run in the browser, so that it ends with open requests.

    It may ask a human before that, and may be cut off behind it.
    """

    def allow(state: MessagesState) -> None:
        if pauses and getattr(state["messages"][-1], "tool_calls", ()):
            interrupt("may it?")
            if breaks:
                raise RuntimeError("boom")

    graph = StateGraph(MessagesState).add_node("talk", talking(asked)).add_node("allow", allow)
    return graph.add_edge(START, "talk").add_edge("talk", "allow").compile(checkpointer=InMemorySaver(), name="agent")


@pytest.mark.parametrize("pauses", [False, True])
def test_a_tool_of_the_client_that_gave_no_result(pauses: bool, journal: RunJournal) -> None:
    """The synthetic result does not claim that the tool never started: a completed run does not know what its client did."""
    asked = strict(asks(("c1", "order", {"x": 1})), words("fine"))
    agent = attach(for_a_client(asked, pauses=pauses, breaks=False), journal)
    agent.invoke({"messages": [("user", "hi")]}, THREAD)
    if pauses:
        agent.invoke(Command(resume="yes"), THREAD)
    assert {one.status for one in journal.runs()} == {"completed"}
    agent.invoke({"messages": [("user", "did it work?")]}, THREAD)
    assert shown(asked.seen[-1]) == ["U hi", "A Looking. (c1)", "T* c1=unknown", "U did it work?"]
    assert asked.seen[-1][2].text.startswith("No result was recorded for this call.")


def test_a_tool_behind_a_question_that_was_answered_and_cut_off(journal: RunJournal) -> None:
    """A run that a resume completes ended before the tool began, so the synthetic result says that the tool did not
    start."""
    asked = strict(asks(("c1", "order", {"x": 1})), words("fine"))
    agent = attach(for_a_client(asked, pauses=True, breaks=True), journal)
    agent.invoke({"messages": [("user", "hi")]}, THREAD)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(Command(resume="yes"), THREAD)
    agent.invoke({"messages": [("user", "next")]}, THREAD)
    assert shown(asked.seen[-1]) == ["U hi", "A Looking. (c1)", "T* c1=never_started", "U next"]


def test_resuming_is_not_a_new_message(journal: RunJournal) -> None:
    """`invoke(None)`, a `Command` and a checkpoint in the past find the thread unchanged."""
    asked, tools = strict(CALLS, words("fine")), Tools()
    plain = made_by_langchain(asked, tools.all, checkpointer=tools.saver)
    cut_off(plain, tools)
    tools.breaks = False
    attach(plain, journal).invoke(None, THREAD)
    assert shown(asked.seen[-1]) == ["U hi", "A Looking. (c1,c2)", "T c1=fast1", "T c2=slow2"]
    assert updates(tools.saver) == 0


@pytest.mark.parametrize("answers", [True, False])
def test_a_thread_that_waits_for_a_human(answers: bool, journal: RunJournal) -> None:
    """An answer finds the thread unchanged; a new message instead of an answer finds the request with a result."""

    @tool
    def human(x: int) -> str:
        """Asks."""
        return f"human said {interrupt('may I?')}"

    asked, saver = strict(asks(("c1", "human", {"x": 1})), words("fine")), InMemorySaver()
    plain = made_by_langchain(asked, [human], checkpointer=saver)
    plain.invoke({"messages": [("user", "hi")]}, THREAD)
    agent = attach(plain, journal)
    agent.invoke(Command(resume="yes") if answers else {"messages": [("user", "now")]}, THREAD)
    end = ["T c1=human said yes"] if answers else ["T* c1=unknown", "U now"]
    assert shown(asked.seen[-1]) == ["U hi", "A Looking. (c1)", *end]
    assert updates(saver) == (0 if answers else 2)


def test_never_means_never(journal: RunJournal) -> None:
    """`settle="never"` leaves a thread unchanged."""
    asked, saver = strict(words("fine")), InMemorySaver()
    plain = one_node(MessagesState, asked, saver)
    plain.update_state(THREAD, {"messages": messages("U:hi A(c1)")}, as_node="talk")
    with pytest.raises(Refused):
        attach(plain, journal, settle="never").invoke({"messages": [("user", "now")]}, THREAD)


# --- recover, and what cannot be repaired -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["state", "grows", "differences"])
def test_recover_repairs_the_thread_of_a_run(shape: str, journal: RunJournal) -> None:
    """`recover` settles a run on a thread that was broken before, and repairs the thread too."""
    schema: Any = SHAPES[shape]
    asked, saver = strict(words("fine")), InMemorySaver()
    plain = one_node(schema, asked, saver)
    with pytest.raises(Refused):
        plain.invoke({"messages": messages("U:hi A(c1) U:so")}, THREAD)
    with pytest.raises(Refused):
        attach(plain, journal, settle="never").invoke({"messages": [HumanMessage("now")]}, THREAD)
    [found] = journal.recover(attach(plain, journal))
    assert (found.outcome, [one["type"] for one in found.messages]) == ("settled", ["tool"])
    assert shown(plain.get_state(THREAD).values["messages"]) == ["U hi", "A (c1)", "T* c1=unknown", "U so", "U now"]


class Piled(TypedDict):
    messages: Annotated[list[Any], Topic(Any, accumulate=True)]


def test_a_list_that_cannot_be_written_anew(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """A list that cannot be rewritten is left, the log names the remedy once, and `recover` does not report it as whole."""
    asked, saver = strict(words("fine")), InMemorySaver()
    plain = one_node(Piled, asked, saver)
    plain.update_state(THREAD, {"messages": messages("U:hi A(c1) U:so")}, as_node="talk")
    agent = attach(plain, journal)
    for _ in range(2):
        with pytest.raises(Refused):
            agent.invoke({"messages": [HumanMessage("now")]}, THREAD)
    said = [one.getMessage() for one in caplog.records if "without results" in one.getMessage()]
    assert len(said) == 1
    assert "ToolPairGuard(journal)" in said[0]
    assert "repair_tool_pairs" in said[0]
    for run in journal.runs():
        settled = [event.data for event in journal.read(run.run_id) if event.kind == "run.settled"]
        assert [data["outcome"] for data in settled] == ["left_alone"]
        assert "cannot be rewritten" in settled[0]["reason"]


def only_words(left: list[Any], right: list[Any]) -> list[Any]:
    """A reducer that drops the results of tools."""
    return [one for one in add_messages(left or [], right) if one.type != "tool"]  # type: ignore[union-attr]


class Words(TypedDict):
    messages: Annotated[list[Any], only_words]


def test_a_reducer_that_does_not_keep_answers(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """The repair reads the thread again, and reports a result that the reducer dropped."""
    asked, saver = strict(words("fine")), InMemorySaver()
    plain = one_node(Words, asked, saver)
    plain.update_state(THREAD, {"messages": messages("U:hi A(c1)")}, as_node="talk")
    with pytest.raises(Refused):
        attach(plain, journal).invoke({"messages": [HumanMessage("now")]}, THREAD)
    assert "does not keep the results of open tool requests" in caplog.text
    assert "ToolPairGuard(journal)" in caplog.text


def test_a_run_that_goes_on_is_not_written_over(journal: RunJournal) -> None:
    """While another run works on a thread, the repair writes nothing, because the run would lose it."""
    asked, saver = strict(words("fine")), InMemorySaver()
    plain = one_node(MessagesState, asked, saver)
    plain.update_state(THREAD, {"messages": messages("U:hi A(c1)")}, as_node="talk")
    agent = attach(plain, journal)
    refused: list[BaseException | None] = []

    def within(state: MessagesState) -> dict[str, Any]:
        # Call it on a thread of its own, where LangGraph does not regard it as a part of this run.
        with ThreadPoolExecutor(1) as pool:
            refused.append(pool.submit(agent.invoke, {"messages": [("user", "at once")]}, THREAD).exception(30))
        return {}

    within.__annotations__ = {}
    graph = StateGraph(MessagesState)
    graph.add_node("within", within)
    graph.add_edge(START, "within")
    attach(graph.compile(checkpointer=InMemorySaver(), name="outer"), journal).invoke({"messages": messages("U:x")}, THREAD)
    assert isinstance(refused[0], Refused)
    agent.invoke({"messages": [("user", "now")]}, THREAD)
    assert shown(asked.seen[-1]) == ["U hi", "A (c1)", "T* c1=unknown", "U at once", "U now"]


def test_a_late_result_takes_the_place_of_the_synthetic_one() -> None:
    """A client's result that comes behind later words is moved to its request, and replaces the synthetic result."""
    mark = {"runjournal": {"v": 1, "origin": "synthetic", "reason": "unknown"}}
    thread = [
        HumanMessage("hi"),
        AIMessage("", id="a", tool_calls=[{"id": "c1", "name": "order", "args": {}}]),
        ToolMessage("No result was recorded.", tool_call_id="c1", status="error", additional_kwargs=mark),
        HumanMessage("And?"),
        AIMessage("We shall see."),
        ToolMessage("ordered", tool_call_id="c1"),
    ]
    done = plan_repair(thread, lambda message, request: CallKnowledge())
    assert [thread[one].content for one in done.order] == ["hi", "", "ordered", "And?", "We shall see."]
    assert not done.at_end
    whole = [thread[one] for one in done.order]
    assert not is_broken(whole)
