"""What was found by people who tried to break it: how graphs are called, what their threads are named, what goes on beside.

Their faults of endings that are torn, blocked or slow have a file of their own, `test_settle_torn.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import uuid
from functools import partial
from importlib.metadata import version
from typing import Any, TypedDict

import pytest
from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

import langchain_runjournal
from langchain_runjournal import RunJournal
from langchain_runjournal.capture.recorder import recorder_of
from langchain_runjournal.settle.attached_graph import attachments_of
from tests.settle.test_settle import (
    CALLS,
    CUT,
    THREAD,
    Asked,
    Tools,
    athread,
    both,
    cut_off,
    kinds,
    made_by_hand,
    model,
    say,
    shown,
    thread,
    without_recovered,
)
from tests.support.agents import asks, words
from tests.support.conversations import Gate

# Most models here are called by `invoke`, and what they have said is part of what is looked at.
attach = partial(langchain_runjournal.attach, capture_invoke=True)


HALF = [*words("one "), RuntimeError("boom")]
SETTLED = ["U hi", "A~ one "]


def made(name: str, asked: Asked, journal: RunJournal, *tools: Any, **options: Any) -> Any:
    """An attached graph of a name, with a saver of its own."""
    return attach(made_by_hand(asked, tools, checkpointer=InMemorySaver(), name=name), journal, **options)


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def handlers(agent: Any) -> list[Any]:
    """What a call of an attached graph is given."""
    return [handler for one in attachments_of(agent) for handler in one.handlers]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [record for record in caplog.records if record.name == "langchain_runjournal"]
    return [record.getMessage() for record in records if record.levelno >= logging.WARNING]


def called_in_order(monkeypatch: pytest.MonkeyPatch, order: list[Any]) -> list[list[Any]]:
    """LangChain hands handlers on as a set. Have it keep to an order; and the orders in which it has called them."""
    merge, seen = BaseCallbackManager.merge, []

    def ordered(self: Any, other: Any) -> Any:
        found = merge(self, other)
        for handlers in (found.handlers, found.inheritable_handlers):
            handlers.sort(key=lambda one: order.index(one) if one in order else -1)
        seen.append([one for one in found.handlers if one in order])
        return found

    monkeypatch.setattr(BaseCallbackManager, "merge", ordered)
    return seen


# --- who calls, and how -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_handlers_in_any_order(
    order: tuple[int, ...], awaited: bool, journal: RunJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a chain they are called as it happens. Whichever is called first, the thread is settled."""
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


# Seen with 1.2.4: there the config of a graph that a node calls still has the outer graph's checkpointer in it.
ON_ITS_OWN = pytest.mark.skipif(
    tuple(int(part) for part in version("langgraph").split(".")[:3]) < (1, 2, 22), reason="a part of the outer graph there"
)


@ON_ITS_OWN
@pytest.mark.parametrize("around", ["plain", "attached", "attached, and called first"])
def test_a_graph_that_a_node_calls_on_a_thread_of_its_own(
    around: str, journal: RunJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a run of its own, and its thread is settled, whether the graph around it is attached or not."""
    attached = around != "plain"

    async def scenario() -> None:
        reached = Gate()
        asked = model([*words("one "), reached.apass], words("fine"))
        inner = made("inner", asked, journal)

        async def call(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            # With the callbacks of the graph around, as context has it anyway where Python can.
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


@pytest.mark.parametrize("saver", ["memory", "sqlite"])
@pytest.mark.parametrize("name", [uuid.UUID(int=7), 42, 4.5, ("a", 1), ""], ids=repr)
def test_threads_of_any_name(name: Any, saver: str, journal: RunJournal) -> None:
    """What LangGraph takes for the id of a thread, we take as well."""
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


@both
def test_a_graph_inside_that_remembers_gives_each_result_once(make: Any, journal: RunJournal) -> None:
    """What it has given is found again under the ids of its own memory, also two turns later."""
    tools, asked = Tools(), model(CALLS, words("fine"), words("more"))
    inner = make(asked, tools.all, checkpointer=True, name="inner")
    graph: Any = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner")
    agent = attach(graph.compile(checkpointer=tools.saver, name="outer"), journal)
    cut_off(agent, tools)
    agent.invoke(say("next"), THREAD)
    agent.invoke(say("again"), THREAD)
    assert without_recovered(thread(agent)) == [*CUT, "U next", "A fine", "U again", "A more"]
    for messages in (agent.get_state(THREAD).values["messages"], *asked.seen[1:]):
        results = [one.tool_call_id for one in messages if one.type == "tool"]
        assert results == ["c1", "c2"]


# --- what is said -------------------------------------------------------------------------------------------------------


def test_a_run_id_that_was_used_before(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """A program that tries again under one run id has a run for each attempt, and each of them is settled."""
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


class Notes(TypedDict):
    note: str


def test_a_graph_that_cannot_be_settled_says_so_once(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """The report of a run may be read by nobody: the log says it, once for a graph and not for each of its runs."""

    def broken(state: Any) -> Any:
        raise RuntimeError("boom")

    for name in ("first", "second"):
        graph: Any = StateGraph(Notes).add_node("broken", broken).add_edge(START, "broken")
        agent = attach(graph.compile(checkpointer=InMemorySaver(), name=name), journal)
        for number in range(3):
            with pytest.raises(RuntimeError, match="boom"):
                agent.invoke({"note": "hi"}, {"configurable": {"thread_id": f"{number % 2}"}})
    first, second = warnings_of(caplog)
    assert "'first' are journaled, and their threads left as they are" in first
    assert "'second' are journaled" in second
    assert [kinds(journal, run.run_id).count("run.settled") for run in journal.runs()] == [1] * 6


# --- two graphs, each with a thread of the same name --------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("cut", ["the older", "the newer"])
def test_two_threads_of_one_name(cut: str, durability: Any, journal: RunJournal) -> None:
    """What is known of the checkpoints of one is not said of the other, however their runs overlap."""

    async def scenario() -> None:
        gates = Gate(), Gate()
        a = made("A", model([*words("one "), gates[0].apass]), journal)
        b = made("B", model(words("b"), [*words("b1 "), gates[1].apass]), journal)
        if cut == "the newer":
            await b.ainvoke(say("to B"), THREAD)
        older = asyncio.create_task(a.ainvoke(say("to A"), THREAD, durability=durability))
        await gates[0].reached.wait()
        newer = asyncio.create_task(b.ainvoke(say("again to B"), THREAD, durability=durability))
        if cut == "the older":
            await newer
        else:
            await gates[1].reached.wait()
            await cancelled(newer)
            assert await athread(b) == ["U to B", "A b", "U again to B", "A~ b1 "]
            stored = set() if durability == "exit" else {"stored"}
            assert _checkpoints(journal, "B") == {"base", "before", "applied"} | stored
        await cancelled(older)
        assert await athread(a) == ["U to A", "A~ one "]
        assert all(run.settled for run in journal.runs())

    asyncio.run(asyncio.wait_for(scenario(), 60))


def _checkpoints(journal: RunJournal, name: str) -> set[str]:
    run = next(run for run in journal.runs() if run.name == name)
    return {word for event in journal.read(run.run_id) if event.kind == "run.checkpoint" for word in event.data} - {"step"}


@ON_ITS_OWN
def test_a_graph_that_a_tool_calls_on_a_thread_of_the_same_name(journal: RunJournal) -> None:
    """Each is settled in its own, with its own words."""

    async def scenario() -> None:
        gate = Gate()
        b = made("B", model(words("b0"), [*words("b half "), gate.apass]), journal)

        @tool
        async def delegate(x: int, config: RunnableConfig) -> str:
            """Asks the other one."""
            mine: RunnableConfig = {**THREAD, "callbacks": config["callbacks"]}
            return str((await b.ainvoke(say("please"), mine))["messages"][-1].content)

        scripts = asks(("c1", "delegate", {"x": 1})), words("a1"), asks(("c2", "delegate", {"x": 2}))
        a = made("A", model(*scripts), journal, delegate)
        await a.ainvoke(say("hi"), THREAD)
        task = asyncio.create_task(a.ainvoke(say("again"), THREAD))
        await gate.reached.wait()
        await cancelled(task)
        answered = ["U hi", "A Looking. (c1)", "T c1=b0", "A a1"]
        assert await athread(a) == [*answered, "U again", "A Looking. (c2)", "T* c2=started"]
        assert await athread(b) == ["U please", "A b0", "U please", "A~ b half "]

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("between", [False, True], ids=["alone", "another-between"])
def test_a_late_result_waits_for_its_own_graph(between: bool, journal: RunJournal) -> None:
    """A message to the other graph does not use it up."""

    async def scenario() -> None:
        gate, ended = Gate(), threading.Event()

        @tool
        def plod() -> str:
            """On a thread."""
            gate.hold()
            return "really done"

        asked = model(asks(("c1", "plod", {})), words("fine"))
        a, b = made("A", asked, journal, plod), made("B", model(words("b")), journal)
        late = recorder_of(journal).threads.came_late

        def came_late(*given: Any) -> None:
            late(*given)
            ended.set()

        recorder_of(journal).threads.came_late = came_late  # type: ignore[method-assign]
        task = asyncio.create_task(a.ainvoke(say("hi"), THREAD))
        await asyncio.to_thread(gate.held.wait, 30)
        await cancelled(task)
        gate.open()
        assert await asyncio.to_thread(ended.wait, 30)
        if between:
            await b.ainvoke(say("to b"), THREAD)
        await a.ainvoke(say("next"), THREAD)
        assert shown(asked.seen[-1]) == ["U hi", "A Looking. (c1)", "T+ c1=really done", "U next"]

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("runs", [3, 12])
def test_what_was_left_is_found_behind_many_runs_of_another_graph(runs: int, db: Any) -> None:
    """Also by a program that has not seen it itself."""
    with RunJournal(db) as journal:
        tools, asked = Tools(), model(CALLS, words("fine"))
        graph = made_by_hand(asked, tools.all, checkpointer=tools.saver, name="A")
        cut_off(attach(graph, journal, settle="on_stop"), tools)
    with RunJournal(db) as journal:
        b = made("B", model(words("b")), journal)
        for _ in range(runs):
            b.invoke(say("hi"), THREAD)
        attach(graph, journal, settle="on_stop").invoke(say("next"), THREAD)
        assert without_recovered(shown(asked.seen[-1])) == [*CUT, "U next"]


# --- what stands for what -----------------------------------------------------------------------------------------------


class Answers(InMemorySaver):
    """Tells when it was given the answer of a task."""

    def __init__(self) -> None:
        super().__init__()
        self.given = asyncio.Event()

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.put_writes(config, writes, task_id, task_path)
        if any(channel == "messages" and value[-1].type == "ai" for channel, value in writes):
            self.given.set()


@pytest.mark.parametrize("first", ["slow", "quick"])
def test_half_an_answer_of_a_branch_beside_a_whole_one(first: str, journal: RunJournal) -> None:
    """It is kept, whichever of the two began first."""

    async def scenario() -> None:
        # Set when the branch has begun that is to be the first.
        begun, gate, saver = asyncio.Event(), Gate(), Answers()
        models = {"slow": model([begun.set, *words("half of slow "), gate.apass])}
        models["quick"] = model([begun.set, *words("whole quick")])

        def branch(name: str) -> Any:
            async def answer(state: MessagesState, config: RunnableConfig) -> Any:
                if name != first:
                    await begun.wait()
                return {"messages": [await models[name].ainvoke(state["messages"], config)]}

            return answer

        graph: Any = StateGraph(MessagesState)
        for name in models:
            graph = graph.add_node(name, branch(name)).add_edge(START, name)
        graph = graph.compile(checkpointer=saver)
        agent = attach(graph, journal)
        task = asyncio.create_task(agent.ainvoke(say("hi"), THREAD, durability="sync"))
        await gate.reached.wait()
        await saver.given.wait()
        await cancelled(task)
        assert await athread(agent) == ["U hi", "A whole quick", "A~ half of slow "]

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("again", [words("second try "), []], ids=["with-words", "without"])
def test_the_words_of_a_try_that_was_taken_up_are_not_brought_back(again: list[Any], journal: RunJournal) -> None:
    """With "on_stop" a run that failed is taken up, and fails again: the next message finds what the last try has left."""
    ran: list[str] = []

    @tool
    def quick() -> str:
        """Quick."""
        ran.append("quick")
        return "done"

    scripts = [*words("first try "), RuntimeError("boom")], asks(("c1", "quick", {})), [*again, RuntimeError("boom")]
    asked = model(*scripts, words("fine"))
    agent = made("agent", asked, journal, quick, settle="on_stop")
    for given in (say("hi"), None):
        with pytest.raises(RuntimeError, match="boom"):
            agent.invoke(given, THREAD)
    agent.invoke(say("next"), THREAD)
    left = ["A~ second try "] if again else []
    assert shown(asked.seen[-1]) == ["U hi", "A Looking. (c1)", "T c1=done", *left, "U next"]
    assert (ran, [run.settled for run in journal.runs()]) == (["quick"], [True, True, True])
