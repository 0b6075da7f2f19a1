"""Calls of an attached graph: in a chain, in a node, with the ids that a program chooses. Each run is settled."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from functools import partial
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

import langchain_runjournal
from langchain_runjournal import RunJournal
from tests.settle.test_settle import THREAD, athread, made, made_by_hand, model, say, shown, thread
from tests.support.agents import words
from tests.support.attached import HALF, ON_ITS_OWN, SETTLED, called_in_order, cancelled, handlers, warnings_of
from tests.support.conversations import Gate

# Most models here are called by `invoke`, and the tests look at what they have said.
attach = partial(langchain_runjournal.attach, capture_invoke=True)


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_handlers_in_any_order(
    order: tuple[int, ...], awaited: bool, journal: RunJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever order a chain calls the handlers, the thread is settled."""
    asked = model(HALF, words("fine"))
    agent = made("agent", asked, journal)
    ours = handlers(agent)
    seen = called_in_order(monkeypatch, [ours[place] for place in order])
    chain = RunnableLambda(say) | agent
    with pytest.raises(RuntimeError, match="boom"):
        asyncio.run(chain.ainvoke("hi", THREAD)) if awaited else chain.invoke("hi", THREAD)
    assert [ours[place] for place in order] in seen, "it was not called in this order"
    [run] = journal.runs()
    assert (run.name, run.thread_id, run.status, run.settled) == ("agent", "t", "failed", True)
    assert thread(agent) == SETTLED
    chain.invoke("next", THREAD)
    assert shown(asked.seen[-1]) == [*SETTLED, "U next"]


@ON_ITS_OWN
@pytest.mark.parametrize("around", ["plain", "attached", "attached, and called first"])
def test_a_graph_that_a_node_calls_on_a_thread_of_its_own(
    around: str, journal: RunJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inner graph is a separate run and its thread is settled, whether the surrounding graph is attached or not."""
    attached = around != "plain"

    async def scenario() -> None:
        reached = Gate()
        asked = model([*words("one "), reached.apass], words("fine"))
        inner = made("inner", asked, journal)

        async def call(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            # Pass the callbacks of the surrounding graph, as the context does where Python supports it.
            mine: RunnableConfig = {"configurable": {"thread_id": "mine"}, "callbacks": config["callbacks"]}
            found = await inner.ainvoke({"messages": state["messages"][-1:]}, mine)
            return {"messages": found["messages"][-1:]}

        outer: Any = StateGraph(MessagesState).add_node("call", call).add_edge(START, "call")
        outer = outer.compile(checkpointer=InMemorySaver(), name="outer")
        if attached:
            outer = attach(outer, journal)
            both = handlers(inner), handlers(outer)
            first, second = both if around == "attached" else both[::-1]
            called_in_order(monkeypatch, [*first, *second])
        task = asyncio.create_task(outer.ainvoke(say("hi"), THREAD))
        await reached.reached.wait()
        await cancelled(task)
        runs = {run.name: run for run in journal.runs()}
        assert set(runs) == ({"inner", "outer"} if attached else {"inner"})
        assert all(run.settled and run.status == "interrupted" for run in runs.values())
        assert runs["inner"].thread_id == "mine"
        assert await athread(inner, {"configurable": {"thread_id": "mine"}}) == SETTLED
        if attached:
            assert (await athread(outer), (await outer.aget_state(THREAD)).next) == (["U hi"], ())
        await outer.ainvoke(say("next"), THREAD)
        assert shown(asked.seen[-1]) == [*SETTLED, "U next"]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_run_id_that_was_used_before(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """A program that retries under one run id gets a run for each attempt, and each run is settled."""
    agent = made("agent", model(words("fine"), HALF), journal)
    config: RunnableConfig = {**THREAD, "run_id": uuid.UUID(int=1)}
    agent.invoke(say("hi"), config)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("next"), config)
    second, first = journal.runs()
    assert (first.run_id, first.status) == (str(config["run_id"]), "completed")
    assert (second.status, second.settled, second.metadata["runjournal_called"]) == ("failed", True, first.run_id)
    assert thread(agent) == ["U hi", "A fine", "U next", SETTLED[-1]]
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("saver", ["memory", "sqlite"])
@pytest.mark.parametrize("name", [uuid.UUID(int=7), 42, 4.5, ("a", 1), ""], ids=repr)
def test_threads_of_any_name(name: Any, saver: str, journal: RunJournal) -> None:
    """Every value that LangGraph accepts as a thread id works."""
    with SqliteSaver.from_conn_string(":memory:") as file:
        asked, config = model(HALF, words("fine")), {"configurable": {"thread_id": name}}
        graph = made_by_hand(asked, [], checkpointer=file if saver == "sqlite" else InMemorySaver(), name="agent")
        agent = attach(graph, journal)
        with pytest.raises(RuntimeError, match="boom"):
            agent.invoke(say("hi"), config)
        [run] = journal.runs(str(name))
        assert (run.thread_id, run.status, run.settled) == (str(name), "failed", True)
        assert (thread(agent, config), journal.recover(agent)) == (SETTLED, [])
        agent.invoke(say("next"), config)
        assert shown(asked.seen[-1]) == [*SETTLED, "U next"]


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("given", ["nothing", "a list", "a manager"])
def test_calls_inside_of_a_run_do_not_inherit_the_settling_handlers(given: str, awaited: bool, journal: RunJournal) -> None:
    """Nodes and models inherit the handler that records and the handlers of the program, in their order, and no other one:
    each further handler would cost time at every token."""
    seen: list[list[Any]] = []

    def node(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        callbacks: Any = config["callbacks"]
        seen.append(callbacks.handlers)
        raise RuntimeError("boom")

    own, first, second = BaseCallbackHandler(), BaseCallbackHandler(), BaseCallbackHandler()
    callbacks = {
        "nothing": None,
        "a list": [first, second],
        "a manager": BaseCallbackManager([first, second, BaseCallbackHandler()], [first, second]),
    }[given]
    graph: Any = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
    agent: Any = attach(graph.compile(checkpointer=InMemorySaver()), journal).with_config({"callbacks": [own]})
    recording, *settling = handlers(agent)
    assert len(settling) == 2
    config: Any = {**THREAD, "callbacks": callbacks}
    with pytest.raises(RuntimeError, match="boom"):
        asyncio.run(agent.ainvoke(say("hi"), config)) if awaited else agent.invoke(say("hi"), config)
    theirs = [] if callbacks is None else [first, second]
    # With a list, in the order in which LangGraph puts them; with a manager, ours and those of the graph follow.
    wanted = [*theirs, recording, own] if given == "a manager" else [own, recording, *theirs]
    assert [one for one in seen[0] if one in (own, first, second, *handlers(agent))] == wanted
    [run] = journal.runs()
    assert (run.status, run.settled) == ("failed", True)
