"""A checkpointer that is set later: runs are settled through the one that LangGraph uses when a run begins."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import set_config_context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from pydantic import BaseModel

import langchain_runjournal
from langchain_runjournal import JournalSaver, RunJournal, errors, start_run
from langchain_runjournal.settle.attached_graph import attachments_of
from tests.settle.test_settle import THREAD, made_by_hand, model, say, shown
from tests.support.agents import words
from tests.support.conversations import Gate

# Most models here are called by `invoke`, and the tests look at what they have said.
attach = partial(langchain_runjournal.attach, capture_invoke=True)


HALF = [*words("one "), RuntimeError("boom")]
SETTLED = ["U hi", "A~ one "]
LENT = "__pregel_checkpointer"

Way = Callable[[Any, Any], tuple[Any, dict[str, Any]]]


def assigned(agent: Any, saver: Any) -> tuple[Any, dict[str, Any]]:
    agent.checkpointer = saver
    return agent, {}


def replaced(agent: Any, saver: Any) -> tuple[Any, dict[str, Any]]:
    agent.checkpointer = InMemorySaver()
    agent.checkpointer = saver
    return agent, {}


def assigned_to_a_copy(agent: Any, saver: Any) -> tuple[Any, dict[str, Any]]:
    agent = agent.with_config({"tags": ["mine"]})
    agent.checkpointer = saver
    return agent, {}


def copied(agent: Any, saver: Any) -> tuple[Any, dict[str, Any]]:
    return agent.copy(update={"checkpointer": saver, "name": "served"}), {}


def shallow_copied(agent: Any, saver: Any) -> tuple[Any, dict[str, Any]]:
    agent = copy.copy(agent)
    agent.checkpointer = saver
    return agent, {}


def lent(agent: Any, saver: Any) -> tuple[Any, dict[str, Any]]:
    return agent, {LENT: saver}


def lent_for_good(agent: Any, saver: Any) -> tuple[Any, dict[str, Any]]:
    return agent.with_config({"configurable": {LENT: saver}}), {}


WAYS: list[Way] = [assigned, replaced, assigned_to_a_copy, copied, shallow_copied, lent, lent_for_good]


def late(asked: Any, journal: RunJournal, **options: Any) -> Any:
    """Return a graph that is attached before it has a checkpointer, and that has no name of its own."""
    return attach(made_by_hand(asked, ()), journal, **options)


def in_it(saver: Any) -> list[str]:
    """Return what a plain graph without a journal finds in a checkpointer."""
    plain = made_by_hand(model(words("never")), (), checkpointer=saver)
    state = plain.get_state(THREAD)
    assert state.next == ()
    return shown(state.values["messages"])


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_checkpointer_that_comes_later(way: Way, awaited: bool, journal: RunJournal) -> None:
    """Whichever way sets the checkpointer, a run that is cut off is settled in it, and the next message works."""
    asked, saver = model(HALF, words("fine")), InMemorySaver()
    agent, more = way(late(asked, journal), saver)
    config: Any = {"configurable": {"thread_id": "t", **more}}

    def call(text: str) -> Any:
        return asyncio.run(agent.ainvoke(say(text), config)) if awaited else agent.invoke(say(text), config)

    with pytest.raises(RuntimeError, match="boom"):
        call("hi")
    [run] = journal.runs()
    assert (run.thread_id, run.status, run.settled, run.problem) == ("t", "failed", True, None)
    assert in_it(saver) == SETTLED
    call("next")
    assert shown(asked.seen[-1]) == [*SETTLED, "U next"]
    assert in_it(saver) == [*SETTLED, "U next", "A fine"]


def test_a_checkpointer_that_the_context_lends(journal: RunJournal) -> None:
    """A server may lend its checkpointer through the context of the call instead of its config."""
    asked, saver = model(HALF), InMemorySaver()
    agent = late(asked, journal)
    with (
        set_config_context({"configurable": {LENT: saver, "thread_id": "t"}}) as context,
        pytest.raises(RuntimeError, match="boom"),
    ):
        context.run(agent.invoke, say("hi"))
    assert journal.runs()[0].settled
    assert in_it(saver) == SETTLED


def test_two_checkpointers_in_turn(journal: RunJournal) -> None:
    """Each run is settled in the checkpointer that it has used."""
    asked, savers = model(HALF, HALF), [InMemorySaver(), InMemorySaver()]
    agent = late(asked, journal)
    for saver in savers:
        agent.checkpointer = saver
        with pytest.raises(RuntimeError, match="boom"):
            agent.invoke(say("hi"), THREAD)
    assert [in_it(saver) for saver in savers] == [SETTLED, SETTLED]


def test_a_graph_that_is_started_and_gets_its_checkpointer_later(journal: RunJournal) -> None:
    """`start_run` attaches a graph itself, and uses the checkpointer that the graph has by then."""
    asked, saver = model(words("first"), HALF), InMemorySaver()
    graph = made_by_hand(asked, ())

    async def scenario() -> None:
        await (await start_run(graph, say("hello"), journal=journal)).wait()
        graph.checkpointer = saver
        run = await (await start_run(graph, say("hi"), THREAD, journal=journal, stream_mode="messages")).wait()
        assert (run.status, run.settled) == ("failed", True)

    asyncio.run(scenario())
    assert in_it(saver) == SETTLED


def test_what_is_assigned_is_wrapped_once(journal: RunJournal) -> None:
    """A program that assigns the saver of another copy, or the same saver again, gets the one `JournalSaver` that counts its
    writes."""
    agent, saver = late(model(), journal), InMemorySaver()
    agent.checkpointer = saver
    mine = agent.checkpointer
    assert isinstance(mine, JournalSaver)
    assert mine.saver is saver
    agent.checkpointer = mine
    assert agent.checkpointer is mine
    agent.checkpointer = saver
    assert agent.checkpointer is mine
    assert agent.with_config(tags=["x"]).checkpointer is mine
    agent.checkpointer = None
    assert agent.checkpointer is None


# --- what cannot be settled says so -------------------------------------------------------------------------------------


def test_a_thread_without_a_checkpointer(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """When no checkpointer keeps the thread, the run says so, and a warning says so once."""
    agent = late(model(HALF, HALF), journal)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="boom"):
            agent.invoke(say("hi"), THREAD)
    for run in journal.runs():
        assert (run.settled, run.given_up) == (False, True)
        assert run.problem == "the graph has no checkpointer: LangGraph keeps nothing of this thread"
    assert [record.levelno for record in caplog.records if "no checkpointer" in record.getMessage()] == [logging.WARNING]


def test_no_thread_at_all(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """A call without a thread id causes no warning."""
    agent = late(model(HALF), journal)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"))
    [run] = journal.runs()
    assert (run.thread_id, run.settled, caplog.records) == (None, True, [])


@pytest.mark.parametrize("own", [None, True], ids=["inherits", "persistent"])
def test_inside_of_a_graph_that_is_not_attached(own: Any, journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """The thread belongs to the surrounding graph: the run says so, and a warning names the remedy."""
    inner = attach(made_by_hand(model(HALF), (), checkpointer=own, name="inner"), journal)
    outer: Any = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner")
    outer = outer.compile(checkpointer=InMemorySaver(), name="outer")
    with pytest.raises(RuntimeError, match="boom"):
        outer.invoke(say("hi"), THREAD)
    [run] = journal.runs()
    assert (run.name, run.settled, run.given_up) == ("inner", False, True)
    assert run.problem is not None
    assert run.problem.endswith("attach the outermost graph")
    [warning] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "attach the outermost graph" in warning
    assert journal.recover(outer) == []


def test_inside_of_a_graph_that_is_attached(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """An inner graph is a part of the surrounding run, and is settled with it."""
    inner = attach(made_by_hand(model(HALF), (), name="inner"), journal)
    outer: Any = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner")
    agent = attach(outer.compile(name="outer"), journal)
    saver = agent.checkpointer = InMemorySaver()
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"), THREAD)
    [run] = journal.runs()
    assert (run.name, run.settled, caplog.records) == ("outer", True, [])
    assert shown(outer.compile(checkpointer=saver).get_state(THREAD).values["messages"]) == SETTLED


def test_a_checkpointer_that_is_switched_off(journal: RunJournal) -> None:
    """`checkpointer=False` stays as it is."""
    agent = attach(made_by_hand(model(HALF), (), checkpointer=False), journal)
    assert agent.checkpointer is False
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"), THREAD)
    assert not journal.runs()[0].settled


def test_recover_asks_for_a_checkpointer(journal: RunJournal) -> None:
    """`recover` with a graph without a checkpointer raises an error that says what to do."""
    with pytest.raises(errors.InvalidArgument, match="compiled with the checkpointer"):
        journal.recover(late(model(), journal))


# --- nothing of ours stands where a program looks -----------------------------------------------------------------------


def test_no_snapshot_holds_our_handlers(journal: RunJournal) -> None:
    """The config of a snapshot can be serialized as JSON, as without the journal."""
    agent = late(model(words("fine")), journal)
    agent.checkpointer = InMemorySaver()
    agent.invoke(say("hi"), THREAD)
    assert agent.config is None
    past = list(agent.get_state_history(THREAD))
    for state in (agent.get_state(THREAD), agent.get_state(past[-1].config), *past):
        json.dumps(state.config)


def test_callbacks_of_the_program_stay(journal: RunJournal) -> None:
    """The callbacks of the graph and of the call are called as without the journal."""
    from langchain_core.callbacks import BaseCallbackHandler

    class Ears(BaseCallbackHandler):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def on_chain_start(self, serialized: Any, inputs: Any, *, name: str | None = None, **about: Any) -> None:
            self.heard.append(str(name))

    def heard(attached: bool) -> list[list[str]]:
        graphs, calls = Ears(), Ears()
        graph = made_by_hand(model(words("fine")), ()).with_config(callbacks=[graphs])
        agent = attach(graph, journal) if attached else graph
        agent.invoke(say("hi"), {"callbacks": [calls]})
        return [graphs.heard, calls.heard]

    assert heard(True) == heard(False)


def test_a_deep_copy(journal: RunJournal) -> None:
    """An attached graph can be deep-copied, and the copy shares its journal. Deep copies of plain graphs do not run in
    LangGraph."""
    graph = made_by_hand(model(), ())
    for one in (graph, attach(graph, journal)):
        twin = copy.deepcopy(one)
        assert (type(twin), twin.get_name()) == (type(one), "LangGraph")
    assert [one.journal for one in attachments_of(twin)] == [journal]


class Typed(BaseModel):
    messages: Annotated[list[BaseMessage], add_messages] = []
    mood: str = "good"


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
def test_typed_states_stay_typed(awaited: bool, journal: RunJournal) -> None:
    """`version="v2"` returns the state in its own class, as without the journal."""
    builder: Any = StateGraph(Typed).add_node("node", lambda state: {"mood": "better"}).add_edge(START, "node")

    def call(graph: Any) -> Any:
        done = asyncio.run(graph.ainvoke({}, version="v2")) if awaited else graph.invoke({}, version="v2")
        return done.value

    plain = call(builder.compile())
    assert type(plain) is Typed
    assert call(attach(builder.compile(), journal)) == plain


# --- what LangGraph Server does -----------------------------------------------------------------------------------------


class UserRollback(Exception):
    """The exception by whose name LangGraph Server cancels a run in order to remove its checkpoints."""


def test_a_run_that_is_rolled_back_is_not_settled(journal: RunJournal) -> None:
    """A caller that rolls a run back gets an unchanged thread, and the run says why."""
    gate = Gate()
    agent = late(model([*words("one "), gate.apass]), journal)
    saver = agent.checkpointer = InMemorySaver()

    async def scenario() -> None:
        task = asyncio.create_task(agent.ainvoke(say("hi"), THREAD))
        await gate.reached.wait()
        task.cancel(UserRollback())  # type: ignore[arg-type]
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    [run] = journal.runs()
    assert (run.status, run.settled, run.given_up) == ("interrupted", False, True)
    assert run.problem == "the caller took the run back, and removes its checkpoints"
    state = made_by_hand(model(), (), checkpointer=saver).get_state(THREAD)
    assert (shown(state.values["messages"]), state.next) == (["U hi"], ("model",))
