"""Parallel branches: single cases, each with a difficulty of its own."""

from __future__ import annotations

import asyncio
import contextlib
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import RemoveMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, RetryPolicy, Send, interrupt

from langchain_runjournal import JournalCallbackHandler, RunJournal, attach
from langchain_runjournal.capture.recorder import recorder_of
from tests.settle.test_branches import asserted
from tests.settle.test_settle import athread, model
from tests.support.agents import asks, words
from tests.support.attached import cancelled
from tests.support.branches import KINDS, THREAD, UNHEARD, Branch, Heard, Program, Shape
from tests.support.conversations import Gate, Recording, end_of, nothing_is_wrong, story


def say(text: str) -> Any:
    return {"messages": [("user", text)]}


async def stopped(agent: Any, given: Any, gates: list[Gate], config: Any = THREAD, **options: Any) -> None:
    """Run until all gates are reached, and cancel."""
    task = asyncio.ensure_future(agent.ainvoke(given, config, **options))
    waiting = [asyncio.ensure_future(gate.reached.wait()) for gate in gates]
    done, _ = await asyncio.wait([task, asyncio.gather(*waiting)], timeout=30, return_when=asyncio.FIRST_COMPLETED)
    assert done
    assert not task.done(), await task
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def run(scenario: Any) -> None:
    with nothing_is_wrong():
        asyncio.run(asyncio.wait_for(scenario, 60))


async def lines(agent: Any, config: Any = THREAD) -> list[str]:
    return story((await agent.aget_state(config)).values["messages"])


def speaking(model: Any) -> Any:
    async def speak(state: Any, config: RunnableConfig) -> Any:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    return speak


class Failing(InMemorySaver):
    """A checkpointer that fails once at one of the writes of a settlement: at the next one if `left` is 0."""

    left = -1

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if metadata["source"] == "update" and self.left >= 0:
            self.left -= 1
            if self.left < 0:
                raise OSError("full")
        return await super().aput(config, checkpoint, metadata, new_versions)


@contextlib.contextmanager
def names_only(journal: RunJournal, count: int) -> Iterator[None]:
    """Let the journal name only so many checkpoints of a run, as if the process were killed before it named the next one."""
    tell: Any = recorder_of(journal).applied
    left = count

    def telling(*about: Any) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            tell(*about)

    recorder_of(journal).applied = telling  # type: ignore[method-assign]
    yield
    recorder_of(journal).applied = tell  # type: ignore[method-assign]


HEARD = pytest.mark.skipif(UNHEARD, reason="asynchronous nodes hand on no callbacks before Python 3.11")


# --- the two cases of the issue -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_branch_beside_one_that_was_cut(kind: str, durability: str, journal: RunJournal) -> None:
    """The thread keeps A's last word, B's words, the result of B's finished tool, and B's partial answer."""

    async def scenario() -> None:
        gate = Gate()
        program = Program(Shape((Branch(()), Branch((1,))), kind), InMemorySaver())
        program.voices[1].scripts[1].insert(1, gate.apass)
        agent, heard = attach(program.graph, journal, capture_invoke=True), Heard()
        await stopped(agent, say("hi"), [gate], {**THREAD, "callbacks": [heard]}, durability=durability)
        assert await lines(agent) == [
            "U hi",
            "A b0.0.0 b0.0.1 ",
            "A b1.0.0 b1.0.1 (b1-0-0)",
            "T(b1-0-0) result of b1-0-0",
            "A~ b1.1.0 ",
        ]
        await asserted(program, agent, heard)

    run(scenario())


@pytest.mark.parametrize("kind", KINDS)
def test_three_of_six_were_cut(kind: str, journal: RunJournal) -> None:
    """The thread keeps all words of the three branches and all results of their tools."""

    async def scenario() -> None:
        gates = [Gate(), Gate(), Gate()]
        program = Program(Shape((Branch((1,)),) * 6, kind), InMemorySaver())
        for gate, voice in zip(gates, program.voices[3:], strict=True):
            voice.scripts[1].insert(1, gate.apass)
        agent, heard = attach(program.graph, journal, capture_invoke=True), Heard()
        await stopped(agent, say("hi"), gates, {**THREAD, "callbacks": [heard]})
        assert len(heard.results) == 6
        found = await lines(agent)
        # The order in which the branches began to speak depends on the machine.
        assert sorted(line for line in found if line.startswith("A~")) == [f"A~ b{place}.1.0 " for place in (3, 4, 5)]
        assert sum(line.startswith("T(") for line in found) == 6
        await asserted(program, agent, heard)

    run(scenario())


# --- what the graph took out --------------------------------------------------------------------------------------------


def _trimming(gate: Gate, saver: Any) -> Any:
    """Return a graph of two branches, a node that removes what they said, an answer, and another one, which waits."""

    def trim(state: Any) -> Any:
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), state["messages"][0]]}

    graph = StateGraph(MessagesState)
    for name in ("a", "b"):
        graph.add_node(name, speaking(Recording(scripts=[words(f"{name} ")])))
        graph.add_edge(START, name)
        graph.add_edge(name, "trim")
    graph.add_node("trim", trim)
    graph.add_node("one", speaking(Recording(scripts=[words("one ")])))
    graph.add_node("last", speaking(Recording(scripts=[[*words("last "), gate.apass]])))
    graph.add_edge("trim", "one")
    graph.add_edge("one", "last")
    return graph.compile(checkpointer=saver, name="trimming")


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_what_the_graph_took_out_stays_out(durability: str, journal: RunJournal) -> None:
    """The settlement does not put back the branches' messages, which were applied and removed; it keeps those behind
    them."""

    async def scenario() -> None:
        gate = Gate()
        agent = attach(_trimming(gate, InMemorySaver()), journal, capture_invoke=True)
        await stopped(agent, say("hi"), [gate], durability=durability)
        assert await lines(agent) == ["U hi", "A one ", "A~ last "]

    run(scenario())


@pytest.mark.parametrize("told", range(5))
def test_a_checkpoint_that_was_stored_and_not_named(told: int, journal: RunJournal) -> None:
    """A process that is killed after it stored its last checkpoint, and before its journal named it, loses nothing."""

    async def scenario() -> None:
        gate = Gate()
        saver = InMemorySaver()
        agent = attach(_trimming(gate, saver), journal, settle="never", capture_invoke=True)
        with names_only(journal, told):
            await stopped(agent, say("hi"), [gate], durability="sync")
        [report] = await journal.arecover(agent)
        assert report.outcome == "settled"
        found = await lines(agent)
        # A kill costs one name at most. If more names are missing, removed words come back, but no word is lost or doubled.
        back = {0: ["A a ", "A b "], 1: ["A a ", "A b "]}.get(told, [])
        assert found[:2] == ["U hi", "A one "]
        assert sorted(found[2:]) == sorted([*back, "A~ last "])

    run(scenario())


def test_a_run_that_only_a_handler_recorded(tmp_path: Path) -> None:
    """No event names the checkpoints of the run: the end of the transcript is written, and removed messages stay removed."""

    async def scenario() -> None:
        gate = Gate()
        graph = _trimming(gate, InMemorySaver())
        async with RunJournal(tmp_path / "runs.db") as journal:
            append = journal.append
            # The journal does not record the end of the run, as if the program were killed.
            journal.append = lambda event: None if event.kind == "run.end" else append(event)  # type: ignore[method-assign]
            handler = JournalCallbackHandler(journal, capture_invoke=True)
            await stopped(graph, say("hi"), [gate], {**THREAD, "callbacks": [handler]})
        async with RunJournal(tmp_path / "runs.db") as journal:
            assert [report.outcome for report in await journal.arecover(graph)] == ["settled"]
        assert await lines(graph) == ["U hi", "A one ", "A~ last "]

    run(scenario())


def test_a_state_that_a_program_has_updated_since(journal: RunJournal) -> None:
    """Behind a checkpoint of another writer, what the run had stored still counts as applied."""

    async def scenario() -> None:
        gate = Gate()
        agent = attach(_trimming(gate, InMemorySaver()), journal, settle="never", capture_invoke=True)
        await stopped(agent, say("hi"), [gate])
        await agent.aupdate_state(THREAD, {"messages": [("system", "noted")]}, as_node="trim")
        await journal.arecover(agent)
        assert await lines(agent) == ["U hi", "A one ", "A~ last "]

    run(scenario())


@pytest.mark.parametrize("fails_at", [None, 1, 2, 3])
@pytest.mark.parametrize("told", [1, 2])
def test_a_fan_out_whose_messages_are_not_the_answer(told: int, fails_at: int | None, journal: RunJournal) -> None:
    """Workers write notes for a reducer, which is cut off: the settlement adds no words of the workers to the chat.

    That also holds if the journal could not name the last checkpoint, and if a first settlement is cut off.
    """

    class Notes(MessagesState):
        notes: Annotated[list[str], operator.add]

    async def scenario() -> None:
        gate, saver = Gate(), Failing()
        models = [Recording(scripts=[words(f"note {place} ")]) for place in range(3)]

        async def worker(state: Any, config: RunnableConfig) -> Any:
            return {"notes": [(await models[state["item"]].ainvoke("note!", config)).text]}

        graph: Any = StateGraph(Notes)
        graph.add_node("worker", worker)
        graph.add_node("sum", speaking(Recording(scripts=[[*words("the sum "), gate.apass]])))
        graph.add_conditional_edges(START, lambda state: [Send("worker", {"item": place}) for place in range(3)], ["worker"])
        graph.add_edge("worker", "sum")
        agent = attach(graph.compile(checkpointer=saver), journal, settle="never", capture_invoke=True)
        with names_only(journal, told):
            await stopped(agent, say("hi"), [gate])
        if fails_at is not None:
            saver.left = fails_at - 1
            await journal.arecover(agent)
            saver.left = -1
        await journal.arecover(agent)
        state = await agent.aget_state(THREAD)
        assert state.values["notes"] == ["note 0 ", "note 1 ", "note 2 "]
        assert story(state.values["messages"]) == ["U hi", "A~ the sum "]

    asyncio.run(asyncio.wait_for(scenario(), 60))


# --- steps --------------------------------------------------------------------------------------------------------------


@HEARD
def test_a_graph_that_a_node_calls_on_another_thread(journal: RunJournal) -> None:
    """The supersteps of an inner graph start from zero on its own thread, and the settlement does not compare them with the
    outer ones."""

    async def scenario() -> None:
        gate, calm = Gate(), Gate()
        calm.open()
        inner_model = Recording(scripts=[words("calm "), words("half "), [*words("rest "), gate.apass]])
        inner: Any = StateGraph(MessagesState)
        inner.add_node("first", speaking(inner_model))
        inner.add_node("second", speaking(inner_model))
        inner.add_edge(START, "first")
        inner.add_conditional_edges("first", lambda state: "second" if inner_model.turn == 2 else "__end__")
        called = inner.compile(checkpointer=InMemorySaver())

        async def node(state: Any, config: RunnableConfig) -> Any:
            # Call it as servers do: with the handlers of the run, and a thread of its own.
            own = {"configurable": {"thread_id": f"own {inner_model.turn}"}}
            found = await called.ainvoke({"messages": state["messages"][-1:]}, own)
            return {"messages": found["messages"][1:]}

        outer = StateGraph(MessagesState)
        outer.add_node("node", node)
        outer.add_node("beside", speaking(Recording(scripts=[words("beside ")])))
        outer.add_edge(START, "node")
        outer.add_edge(START, "beside")
        agent = attach(outer.compile(checkpointer=InMemorySaver()), journal, capture_invoke=True)
        await agent.ainvoke(say("hi"), THREAD)
        await stopped(agent, say("again"), [gate])
        found = await lines(agent)
        assert found[3:] == ["U again", "A beside ", "A half ", "A~ rest "]

    run(scenario())


def test_a_run_from_an_older_checkpoint(journal: RunJournal) -> None:
    """The settlement accepts a run whose superstep numbers are smaller than those of the thread's last run."""

    async def scenario() -> None:
        gate = Gate()
        program = Program(Shape((Branch(()), Branch((1,))), "agents"), InMemorySaver())
        agent, heard = attach(program.graph, journal, capture_invoke=True), Heard()
        program.say_fine()
        for turn in range(3):
            await agent.ainvoke(say(f"turn {turn}"), THREAD)
        history = [one async for one in agent.aget_state_history(THREAD)]
        first = next(one for one in reversed(history) if not one.next)
        program.voices[0].say(words("done "))
        program.voices[1].say(asks(("c1", "work", {"what": "it"}), text="I look. "), [*words("one "), gate.apass])
        config: Any = {**first.config, "callbacks": [heard]}
        await stopped(agent, say("another way"), [gate], config)
        found = await lines(agent)
        assert found[-5:] == ["U another way", "A done ", "A I look. (c1)", "T(c1) result of it", "A~ one "]
        assert found[0] == "U turn 0"
        assert "U turn 1" not in found

    run(scenario())


def test_a_branch_that_is_tried_again(journal: RunJournal) -> None:
    """The settlement keeps the second attempt of a branch, once, and not the first one."""

    async def scenario() -> None:
        gate = Gate()
        model = Recording(scripts=[[*words("first "), OSError("lost")], words("second "), [*words("more "), gate.apass]])

        async def twice(state: Any, config: RunnableConfig) -> Any:
            said = [await model.ainvoke(state["messages"], config)]
            return {"messages": [*said, await model.ainvoke([*state["messages"], *said], config)]}

        graph = StateGraph(MessagesState)
        graph.add_node("a", speaking(Recording(scripts=[words("a ")])))
        graph.add_node("b", twice, retry_policy=RetryPolicy(initial_interval=0.001, jitter=False, retry_on=OSError))
        graph.add_edge(START, "a")
        graph.add_edge(START, "b")
        agent = attach(graph.compile(checkpointer=InMemorySaver()), journal, capture_invoke=True)
        await stopped(agent, say("hi"), [gate])
        assert await lines(agent) == ["U hi", "A a ", "A second ", "A~ more "]

    run(scenario())


def test_a_fan_out_that_is_resumed_and_cut_again(journal: RunJournal) -> None:
    """The thread keeps A's words of the first run and B's words of the second run, in which B alone runs again."""

    async def scenario() -> None:
        gates = [Gate(), Gate()]
        program = Program(Shape((Branch(()), Branch((1,))), "plain"), InMemorySaver())
        scripts = program.voices[1].scripts
        again = [*asks(("c2", "work", {"what": "it again"}), text="Again. ")]
        program.voices[1].say(scripts[0], [*words("half "), gates[0].apass], again, [*words("rest "), gates[1].apass])
        agent, heard = attach(program.graph, journal, capture_invoke=True), Heard()
        await stopped(agent, say("hi"), [gates[0]])
        [first] = await journal.aruns()
        await end_of(journal, first.run_id)
        config: Any = {**(await journal.aresume_config(first.run_id)), "callbacks": [heard]}
        await stopped(agent, None, [gates[1]], config)
        assert await lines(agent) == ["U hi", "A b0.0.0 b0.0.1 ", "A Again. (c2)", "T(c2) result of it again", "A~ rest "]
        await asserted(program, agent, heard)

    run(scenario())


def _asking_a_human(saver: Any) -> tuple[Any, Recording]:
    @tool
    async def fast(x: int) -> str:
        """Fast."""
        return f"fast{x}"

    @tool
    async def human(x: int) -> str:
        """Asks a human."""
        return f"human said {interrupt('may I?')}"

    model = Recording()
    graph = StateGraph(MessagesState)
    graph.add_node("agent", create_agent(model, [fast, human]))
    graph.add_node("beside", speaking(Recording(scripts=[words("beside ")])))
    graph.add_edge(START, "agent")
    graph.add_edge(START, "beside")
    return graph.compile(checkpointer=saver, name="asking"), model


@HEARD
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_an_agent_in_a_node_that_a_human_has_allowed_to_go_on(durability: str, journal: RunJournal) -> None:
    """A task that began in one run and was cut off in the next keeps what it said and did in the first run."""

    async def scenario() -> None:
        gate = Gate()
        graph, model = _asking_a_human(InMemorySaver())
        model.say(asks(("c1", "fast", {"x": 1})), asks(("c2", "human", {"x": 2})), [*words("last "), gate.apass])
        agent: Any = attach(graph, journal, capture_invoke=True)
        await agent.ainvoke(say("hi"), THREAD, durability=durability)
        await stopped(agent, Command(resume="yes"), [gate], durability=durability)
        assert await lines(agent) == [
            "U hi",
            "A beside ",
            "A Looking. (c1)",
            "T(c1) fast1",
            "A Looking. (c2)",
            "T(c2) human said yes",
            "A~ last ",
        ]

    run(scenario())


@HEARD
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_an_agent_in_a_node_that_was_resumed_and_cut_again(durability: str, journal: RunJournal) -> None:
    """The thread has a repeated message once, and keeps what the first run did before it."""

    async def scenario() -> None:
        gates = [Gate(), Gate()]
        graph, model = _asking_a_human(InMemorySaver())
        first, second = [*words("half "), gates[0].apass], [*words("other half "), gates[1].apass]
        model.say(asks(("c1", "fast", {"x": 1})), first, second)
        agent: Any = attach(graph, journal, capture_invoke=True)
        await stopped(agent, say("hi"), [gates[0]], durability=durability)
        start = ["U hi", "A beside ", "A Looking. (c1)", "T(c1) fast1"]
        assert await lines(agent) == [*start, "A~ half "]
        [run_id] = [one.run_id for one in await journal.aruns()]
        await stopped(agent, None, [gates[1]], await journal.aresume_config(run_id), durability=durability)
        assert await lines(agent) == [*start, "A~ other half "]

    run(scenario())


# --- a settlement that is cut -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_settlement_that_is_cut_and_done_again(fails_at: int, journal: RunJournal) -> None:
    """Wherever a settlement fails, the next one leaves the same thread, and ignores the checkpoints of the failed one."""

    async def scenario() -> None:
        gate, saver = Gate(), Failing()
        program = Program(Shape((Branch(()), Branch((1,))), "agents"), saver)
        program.voices[1].scripts[1].insert(1, gate.apass)
        agent, heard = attach(program.graph, journal, settle="never", capture_invoke=True), Heard()
        await stopped(agent, say("hi"), [gate], {**THREAD, "callbacks": [heard]})
        saver.left = fails_at - 1
        [cut] = await journal.arecover(agent)
        saver.left = -1
        if cut.outcome == "failed":
            [done] = await journal.arecover(agent)
            assert done.outcome == "settled"
        # Two checkpoints where the other branch has left its result by then, and else one.
        assert (cut.outcome == "failed") == (fails_at < 2) or fails_at == 2
        assert (await lines(agent))[2:] == ["A b1.0.0 b1.0.1 (b1-0-0)", "T(b1-0-0) result of b1-0-0", "A~ b1.1.0 "]
        await asserted(program, agent, heard)

    asyncio.run(asyncio.wait_for(scenario(), 60))


# --- one branch has ended, another one was cut --------------------------------------------------------------------------


class Answers(InMemorySaver):
    """A checkpointer that sets an event when it receives the answer of a task."""

    def __init__(self) -> None:
        super().__init__()
        self.given = asyncio.Event()

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.put_writes(config, writes, task_id, task_path)
        if any(channel == "messages" and value[-1].type == "ai" for channel, value in writes):
            self.given.set()


@pytest.mark.parametrize("first", ["slow", "quick"])
def test_half_an_answer_of_a_branch_beside_a_whole_one(first: str, journal: RunJournal) -> None:
    """The settlement keeps the partial answer of one branch beside the whole answer of another, in either order."""

    async def scenario() -> None:
        # `begun` is set when the branch that is to be the first has begun.
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
        agent = attach(graph, journal, capture_invoke=True)
        task = asyncio.create_task(agent.ainvoke(say("hi"), THREAD, durability="sync"))
        await gate.reached.wait()
        await saver.given.wait()
        await cancelled(task)
        assert await athread(agent) == ["U hi", "A whole quick", "A~ half of slow "]

    asyncio.run(asyncio.wait_for(scenario(), 60))
