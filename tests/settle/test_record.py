"""`record_partial_ai_message`: writes one cut-off answer once, through a graph or its bare checkpointer."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from langchain_runjournal import (
    RunJournal,
    arecord_partial_ai_message,
    attach,
    errors,
    is_partial,
    record_partial_ai_message,
)
from tests.settle.test_settle import CALLS, THREAD, Tools, made_by_hand, made_by_langchain, model, say, shown, thread
from tests.settle.test_settle_shapes import folded
from tests.support.agents import asks, words

TARGETS = ["graph", "attached", "memory", "sqlite"]
CUT = AIMessage("one two ", id="a2")


class Thread:
    """A thread with one turn, and the target through which a message is written to it."""

    def __init__(self, kind: str, journal: RunJournal, path: Path, build: Callable[..., Any] | None = None) -> None:
        self.stack = ExitStack()
        saver: Any = InMemorySaver()
        if kind == "sqlite":
            saver = self.stack.enter_context(SqliteSaver.from_conn_string(str(path)))
        self.asked = model(words("hello"), words("fine"))
        self.graph = (build or made_by_hand)(self.asked, [], checkpointer=saver)
        self.target: Any = {"graph": self.graph, "attached": attach(self.graph, journal)}.get(kind, saver)
        self.saver = saver

    def checkpoints(self) -> int:
        return len(list(self.saver.list(THREAD)))


@pytest.fixture(params=TARGETS)
def threads(request: pytest.FixtureRequest, journal: RunJournal, tmp_path: Path) -> Iterator[Thread]:
    found = Thread(request.param, journal, tmp_path / "threads.db")
    found.graph.invoke({"messages": [HumanMessage("hi", id="u1")]}, THREAD)
    with found.stack:
        yield found


# --- what it writes -----------------------------------------------------------------------------------------------------


def test_it_is_written_behind_the_others(threads: Thread) -> None:
    """It returns True, and writes a partial message with its cause and no task left to run. The next request includes it."""
    before = threads.graph.get_state(THREAD).values["messages"]
    assert record_partial_ai_message(threads.target, THREAD, CUT, cause="disconnect") is True
    state = threads.graph.get_state(THREAD)
    assert (state.values["messages"][:2], state.next, state.tasks) == (before, (), ())
    assert shown(state.values["messages"]) == ["U hi", "A hello", "A~ one two "]
    assert (state.values["messages"][2].id, is_partial(state.values["messages"][2])) == ("a2", True)
    assert state.values["messages"][2].additional_kwargs["runjournal"]["reason"] == "disconnect"
    threads.graph.invoke(say("next"), THREAD)
    assert shown(threads.asked.seen[-1]) == ["U hi", "A hello", "A~ one two ", "U next"]


def test_twice_is_once(threads: Thread) -> None:
    """A second call returns False and writes nothing, whatever message has that id."""
    assert record_partial_ai_message(threads.target, THREAD, CUT)
    checkpoints, found = threads.checkpoints(), thread(threads.graph)
    assert record_partial_ai_message(threads.target, THREAD, CUT) is False
    assert record_partial_ai_message(threads.target, THREAD, AIMessage("one two three", id="a2")) is False
    assert (threads.checkpoints(), thread(threads.graph)) == (checkpoints, found)


def test_an_answer_that_is_complete_stays(threads: Thread) -> None:
    """It returns False and writes nothing when the thread has the whole answer."""
    whole = threads.graph.get_state(THREAD).values["messages"][-1]
    checkpoints = threads.checkpoints()
    assert record_partial_ai_message(threads.target, THREAD, AIMessage("hel", id=whole.id)) is False
    assert (threads.graph.get_state(THREAD).values["messages"][-1], threads.checkpoints()) == (whole, checkpoints)


@pytest.mark.parametrize(
    "content", ["", "  \n", [], [{"type": "text", "text": " "}], [{"type": "thinking", "thinking": "hm"}]]
)
def test_what_shows_nothing_is_not_written(content: Any, threads: Thread) -> None:
    """It does not write a blank message, which providers refuse and no user has seen."""
    checkpoints = threads.checkpoints()
    assert record_partial_ai_message(threads.target, THREAD, AIMessage(content, id="a2")) is False
    assert threads.checkpoints() == checkpoints


def test_half_a_tool_call_is_no_tool_call(threads: Thread) -> None:
    """It mentions a cut-off tool call in a note and does not request it, although LangChain parses it as a whole call."""
    parts = [
        AIMessageChunk("one two ", id="a2"),
        AIMessageChunk("", tool_call_chunks=[tool_call_chunk(name="rm", args='{"path": "/tm', id="c1", index=0)]),
    ]
    message = parts[0] + parts[1]
    assert message.tool_calls, "LangChain has taken the half for a whole"
    assert record_partial_ai_message(threads.target, THREAD, message)
    written = threads.graph.get_state(THREAD).values["messages"][-1]
    assert (type(written), written.tool_calls, written.invalid_tool_calls, written.content) == (
        AIMessage,
        [],
        [],
        "one two ",
    )
    assert written.additional_kwargs["runjournal"]["calls"] == [{"id": "c1", "name": "rm", "final": False}]


def test_a_message_without_an_id_gets_one_of_its_own(threads: Thread) -> None:
    """Equal words get an equal id, so that a second call counts as one; other words get another id."""
    assert record_partial_ai_message(threads.target, THREAD, AIMessage("one two "))
    assert record_partial_ai_message(threads.target, THREAD, AIMessage("one two ")) is False
    assert record_partial_ai_message(threads.target, THREAD, AIMessage("three "))
    found = threads.graph.get_state(THREAD).values["messages"]
    assert shown(found)[2:] == ["A~ one two ", "A~ three "]
    assert len({one.id for one in found}) == 4


def test_what_came_of_a_transcript_is_written_as_it_is(threads: Thread, journal: RunJournal) -> None:
    """It writes a partial message of the journal unchanged."""
    agent = attach(made_by_hand(model([*words("one "), RuntimeError("boom")]), []), journal, capture_invoke=True)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"))
    message = journal.transcript(journal.runs()[0].run_id)[-1]
    assert isinstance(message, AIMessage)
    assert record_partial_ai_message(threads.target, THREAD, message, cause="stop")
    assert threads.graph.get_state(THREAD).values["messages"][-1] == message


def test_the_twin_does_the_same(journal: RunJournal, tmp_path: Path) -> None:
    """The async twin writes the same through a graph, an attached graph and the bare asynchronous saver."""

    async def scenario() -> None:
        for number in range(3):
            async with AsyncSqliteSaver.from_conn_string(str(tmp_path / f"{number}.db")) as saver:
                asked = model(words("hello"), words("fine"))
                graph = made_by_hand(asked, [], checkpointer=saver)
                target: Any = [graph, attach(graph, journal), saver][number]
                await graph.ainvoke(say("hi"), THREAD)
                assert await arecord_partial_ai_message(target, THREAD, CUT) is True
                assert await arecord_partial_ai_message(target, THREAD, CUT) is False
                state = await graph.aget_state(THREAD)
                assert (shown(state.values["messages"]), state.next) == (["U hi", "A hello", "A~ one two "], ())
                await graph.ainvoke(say("next"), THREAD)
                assert shown(asked.seen[-1])[2:] == ["A~ one two ", "U next"]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_twin_is_brought_to_its_end(journal: RunJournal) -> None:
    """The async twin completes its write even if the awaiting task is cancelled."""

    class Slow(InMemorySaver):
        def __init__(self) -> None:
            super().__init__()
            self.began, self.go, self.armed = asyncio.Event(), asyncio.Event(), False

        async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            if self.armed:
                self.began.set()
                await self.go.wait()
            return self.put(config, checkpoint, metadata, new_versions)

    async def scenario() -> None:
        saver = Slow()
        graph = made_by_hand(model(words("hello")), [], checkpointer=saver)
        await graph.ainvoke(say("hi"), THREAD)
        saver.armed = True
        others = asyncio.all_tasks()
        task = asyncio.create_task(arecord_partial_ai_message(graph, THREAD, CUT))
        await saver.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        saver.go.set()
        await asyncio.wait(asyncio.all_tasks() - others)
        assert thread(graph) == ["U hi", "A hello", "A~ one two "]

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("target", ["graph", "memory"])
@pytest.mark.parametrize("make", [made_by_hand, made_by_langchain], ids=["hand", "agent"])
def test_open_requests_before_it_are_answered(make: Any, target: str) -> None:
    """Open requests of a run get the real results that the thread has, and synthetic results otherwise."""
    tools = Tools()
    asked = model(CALLS, words("fine"))
    graph = make(asked, tools.all, checkpointer=tools.saver)
    with pytest.raises(RuntimeError, match="boom"):
        graph.invoke(say("hi"), tools.config)
    assert record_partial_ai_message(graph if target == "graph" else tools.saver, THREAD, CUT)
    first = "T* c1=unknown" if make is made_by_hand else "T c1=fast1"
    found = ["U hi", "A Looking. (c1,c2)", first, "T* c2=unknown", "A~ one two "]
    state = graph.get_state(THREAD)
    assert (shown(state.values["messages"]), state.next) == (found, ())
    graph.invoke(say("next"), THREAD)
    assert shown(asked.seen[-1]) == [*found, "U next"]


def test_an_unattached_graph_after_a_crash(tmp_path: Path) -> None:
    """A program that captures on its own can use it after the model was cut off, while its node is still to run."""
    asked = model([*words("one "), RuntimeError("boom")], words("fine"))
    graph = made_by_hand(asked, [], checkpointer=InMemorySaver())
    with pytest.raises(RuntimeError, match="boom"):
        graph.invoke(say("hi"), THREAD)
    assert graph.get_state(THREAD).next == ("model",)
    assert record_partial_ai_message(graph, THREAD, CUT)
    assert graph.get_state(THREAD).next == ()
    graph.invoke(say("next"), THREAD)
    assert shown(asked.seen[-1]) == ["U hi", "A~ one two ", "U next"]


def test_a_write_that_broke_in_the_middle_is_finished_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two supersteps are needed and the second one failed, the second call returns False and drops the node that was
    still to run."""
    monkeypatch.setattr("langchain_runjournal.settle.graph_thread._writing_alone", lambda *about: None)
    tools = Tools()
    graph = made_by_hand(model(words("hello")), [], checkpointer=tools.saver)
    graph.invoke(say("hi"), THREAD)
    left = [1]

    def before(source: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("no space left")

    tools.saver.before = before
    with pytest.raises(OSError, match="no space left"):
        record_partial_ai_message(graph, THREAD, CUT)
    tools.saver.before = lambda source: None
    assert thread(graph)[-1] == "A~ one two "
    record_partial_ai_message(graph, THREAD, CUT)
    assert (thread(graph)[2:], graph.get_state(THREAD).next) == (["A~ one two "], ())


# --- when it does nothing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "target"),
    # A bare checkpointer does not know breakpoints.
    [
        ("interrupt", "graph"),
        ("interrupt", "attached"),
        ("interrupt", "memory"),
        ("breakpoint", "graph"),
        ("breakpoint", "attached"),
    ],
)
def test_a_thread_that_waits_for_a_human_is_left_alone(how: str, target: str, journal: RunJournal) -> None:
    """It returns False when the thread waits for a human, and the answer of the human still works."""
    tools = Tools()
    asked = model(asks(("c1", "fast", {"x": 1}), ("c2", "human", {"x": 2})) if how == "interrupt" else CALLS, words("fine"))
    options = {} if how == "interrupt" else {"interrupt_before": ["tools"]}
    graph = made_by_hand(asked, tools.all, checkpointer=tools.saver, **options)
    agent = attach(graph, journal)
    tools.breaks = False
    agent.invoke(say("hi"), tools.config)
    found: Any = {"graph": graph, "attached": agent, "memory": tools.saver}[target]
    written = tools.saver.written
    assert record_partial_ai_message(found, THREAD, CUT) is False
    assert tools.saver.written == written
    agent.invoke(Command(resume="yes") if how == "interrupt" else None, tools.config)
    assert thread(agent)[-1] == "A fine"


def test_a_thread_on_which_a_run_goes_on_is_left_alone(journal: RunJournal) -> None:
    """It returns False while the journal of an attached graph shows a running run, which would lose the write."""
    began, go = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        assert go.wait(30)

    tools = Tools()
    agent = attach(made_by_hand(model([wait, *words("hello")]), [], checkpointer=tools.saver), journal)
    run = threading.Thread(target=lambda: agent.invoke(say("hi"), THREAD, durability="sync"))
    run.start()
    assert began.wait(30)
    written = tools.saver.written
    assert record_partial_ai_message(agent, THREAD, CUT) is False
    assert tools.saver.written == written
    go.set()
    run.join()
    assert record_partial_ai_message(agent, THREAD, CUT) is True
    assert thread(agent) == ["U hi", "A hello", "A~ one two "]


# --- what cannot be written ---------------------------------------------------------------------------------------------


class Notes(TypedDict):
    notes: Annotated[list[str], operator.add]


class Differences(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(folded)]


class Topics(MessagesState):
    topics: Annotated[list[str], operator.add]


def _noting(**options: Any) -> Any:
    graph = StateGraph(Notes)
    graph.add_node("note", lambda state: {"notes": ["noted"]})
    graph.add_edge(START, "note")
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("target", ["graph", "memory"])
def test_a_state_without_messages(target: str) -> None:
    """It writes nothing, and the error names the channels of the state."""
    graph = _noting()
    graph.invoke({"notes": ["hi"]}, THREAD)
    with pytest.raises(errors.NoMessages, match="notes"):
        record_partial_ai_message(graph if target == "graph" else graph.checkpointer, THREAD, CUT)
    assert len(list(graph.checkpointer.list(THREAD))) == 3


def test_a_function_as_a_graph() -> None:
    """It refuses an entrypoint that has no place for a message."""

    @entrypoint(checkpointer=InMemorySaver())
    def echo(text: str) -> str:
        return text

    echo.invoke("hi", THREAD)
    with pytest.raises(errors.NoMessages, match="what the entrypoint `echo` saves is neither a list of messages"):
        record_partial_ai_message(echo, THREAD, CUT)


def test_messages_that_are_kept_as_differences() -> None:
    """It writes through the graph; with a bare checkpointer, which cannot read differences, it raises."""
    asked = model(words("hello"))

    def talk(state: Any, config: RunnableConfig) -> Any:
        return {"messages": [asked.invoke(state["messages"], config)]}

    talk.__annotations__ = {"config": RunnableConfig}
    builder = StateGraph(Differences)
    builder.add_node("talk", talk)
    builder.add_edge(START, "talk")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke(say("hi"), THREAD)
    with pytest.raises(errors.NoMessages, match="differences"):
        record_partial_ai_message(graph.checkpointer, THREAD, CUT)
    assert record_partial_ai_message(graph, THREAD, CUT)
    assert thread(graph) == ["U hi", "A hello", "A~ one two "]
    assert record_partial_ai_message(graph, THREAD, CUT) is False


def test_what_a_finished_task_wrote_elsewhere_would_be_lost() -> None:
    """A bare checkpointer cannot apply writes to other channels, so it raises; the graph applies them."""
    saver = InMemorySaver()
    builder = StateGraph(Topics)
    builder.add_node("topic", lambda state: {"topics": ["weather"]})

    def breaks(state: Any) -> Any:
        raise RuntimeError("boom")

    builder.add_node("breaks", breaks)
    builder.add_edge(START, "topic")
    builder.add_edge(START, "breaks")
    graph = builder.compile(checkpointer=saver)
    with pytest.raises(RuntimeError, match="boom"):
        graph.invoke(say("hi"), THREAD)
    writes = saver.get_tuple(THREAD).pending_writes
    if not any(channel == "topics" for _, channel, _ in writes):
        saver.put_writes(saver.get_tuple(THREAD).config, [("topics", ["weather"])], "finished")
    with pytest.raises(errors.NoMessages, match="'topics'"):
        record_partial_ai_message(saver, THREAD, CUT)
    assert record_partial_ai_message(graph, THREAD, CUT)
    assert thread(graph) == ["U hi", "A~ one two "]


def test_a_thread_that_a_bare_checkpointer_does_not_know() -> None:
    """A bare checkpointer needs a checkpoint to add to; through the graph, a new thread begins."""
    graph = made_by_hand(model(words("hello")), [], checkpointer=InMemorySaver())
    with pytest.raises(errors.NoMessages, match="no checkpoint"):
        record_partial_ai_message(graph.checkpointer, THREAD, CUT)
    assert record_partial_ai_message(graph, THREAD, CUT)
    assert thread(graph) == ["A~ one two "]


# --- arguments ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"configurable": {}},
        {"configurable": {"thread_id": ""}},
        {"configurable": None},
        None,
        {"configurable": {"thread_id": "t", "checkpoint_ns": "inner"}},
    ],
)
def test_a_config_names_a_thread(config: Any) -> None:
    """It refuses a config that does not name a thread, or that names an inner namespace."""
    graph = made_by_hand(model(words("hello")), [], checkpointer=InMemorySaver())
    with pytest.raises(errors.InvalidArgument, match="config must be"):
        record_partial_ai_message(graph, config, CUT)


@pytest.mark.parametrize("target", [None, "graph", RunnableLambda(lambda x: x), "without"])
def test_a_target_has_a_checkpointer(target: Any) -> None:
    """It refuses a target that neither has nor is a checkpointer."""
    if target == "without":
        target = made_by_hand(model(words("hello")), [])
    with pytest.raises(errors.InvalidArgument, match="target must be a compiled graph with a checkpointer"):
        record_partial_ai_message(target, THREAD, CUT)


@pytest.mark.parametrize("message", [None, "one two", HumanMessage("one two"), {"role": "assistant", "content": "one"}])
def test_a_message_is_an_ai_message(message: Any) -> None:
    """It refuses anything but an AIMessage or the sum of its chunks."""
    graph = made_by_hand(model(words("hello")), [], checkpointer=InMemorySaver())
    with pytest.raises(errors.InvalidArgument, match="message must be an AIMessage"):
        record_partial_ai_message(graph, THREAD, message)
    with pytest.raises(errors.InvalidArgument, match="message must be an AIMessage"):
        asyncio.run(arecord_partial_ai_message(graph, THREAD, message))


def test_a_cause_is_one_of_the_known() -> None:
    """It refuses an unknown cause."""
    graph = made_by_hand(model(words("hello")), [], checkpointer=InMemorySaver())
    wrong: Any = "boredom"
    with pytest.raises(errors.InvalidArgument, match=r"cause does not know the value 'boredom'\. It knows: 'stop', "):
        record_partial_ai_message(graph, THREAD, CUT, cause=wrong)


def test_it_may_be_called_from_inside_a_node(journal: RunJournal) -> None:
    """A node may call it for another thread, and the surrounding run does not record that write."""
    target = made_by_hand(model(words("hello")), [], checkpointer=InMemorySaver())
    wrote: list[bool] = []

    @tool
    def note(x: int) -> str:
        """Notes."""
        wrote.append(record_partial_ai_message(target, THREAD, CUT))
        return "noted"

    outer = made_by_hand(model(asks(("c1", "note", {"x": 1})), words("fine")), [note], checkpointer=InMemorySaver())
    agent = attach(outer, journal)
    agent.invoke(say("hi"), {"configurable": {"thread_id": "other"}})
    assert wrote == [True]
    assert thread(target) == ["A~ one two "]
    assert len(journal.runs()) == 1
