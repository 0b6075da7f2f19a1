"""Neutrality: a program sees the same of its own graph with the journal as without it."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.output_parsers import CommaSeparatedListOutputParser, JsonOutputParser, StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableGenerator, RunnableLambda, RunnablePassthrough
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import JournalCallbackHandler, JournalSaver, RunJournal, attach, start_run
from tests.support.agents import Scripted, asks, by_hand, words
from tests.support.conversations import story
from tests.support.models import look

# --- handlers that tap the output of a chain ------------------------------------------------------------------------------


def _upper(chunks: Iterator[str]) -> Iterator[str]:
    for chunk in chunks:
        yield chunk.upper()


async def _aupper(chunks: AsyncIterator[str]) -> AsyncIterator[str]:
    async for chunk in chunks:
        yield chunk.upper()


def _asked(*said: str) -> Runnable[Any, Any]:
    model = Scripted(scripts=[words(*(said or ("red", ", gre", "en, ", "blue")))])
    return ChatPromptTemplate.from_messages([("human", "{question}")]) | model


async def _in_a_graph() -> Any:
    chain = _asked() | StrOutputParser()

    async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [("ai", await chain.ainvoke({"question": "?"}, config))]}

    said = _asked() | StrOutputParser() | (lambda text: {"messages": [("ai", text)]})
    builder = StateGraph(MessagesState).add_node("first", RunnableLambda(lambda _: {"question": "?"}) | said)
    return builder.add_node("second", answer).add_edge(START, "first").add_edge("first", "second").compile()


CHAINS: dict[str, Callable[..., Runnable[Any, Any]]] = {
    "text": lambda *ours: _asked() | StrOutputParser(),
    "list": lambda *ours: _asked() | CommaSeparatedListOutputParser(),
    "json": lambda *ours: _asked('{"a": ', "1, ", '"b": "two', '"}') | JsonOutputParser(),
    "generator": lambda *ours: _asked() | StrOutputParser() | RunnableGenerator(_upper, _aupper),
    "parallel": lambda *ours: RunnablePassthrough.assign(answer=_asked() | StrOutputParser()),
    "lambda": lambda *ours: RunnableLambda(lambda _: "go") | Scripted(scripts=[words("a", "b")]) | StrOutputParser(),
    "bound": lambda *ours: (_asked() | StrOutputParser()).with_config(callbacks=[*ours]),
    "bound inside": lambda *ours: RunnablePassthrough() | (_asked() | StrOutputParser()).with_config(callbacks=[*ours]),
    "graph": lambda *ours: asyncio.run(_in_a_graph()),
}
"""The chains with our handlers inside, where the chain holds the handlers."""


async def _events(chain: Runnable[Any, Any], config: Any, version: Any) -> list[Any]:
    events = [event async for event in chain.astream_events({"question": "?"}, config, version=version)]
    return [(event["event"], event["name"], repr(event["data"].get("chunk"))) for event in events]


async def _log(chain: Runnable[Any, Any], config: Any) -> list[Any]:
    patches = [patch async for patch in chain.astream_log({"question": "?"}, config)]
    ops = [op for patch in patches for op in patch.ops]
    return [(op["op"], op["path"], repr(op.get("value"))) for op in ops if "streamed_output" in op["path"]]


WAYS: dict[str, Callable[[Runnable[Any, Any], Any], Any]] = {
    "events v1": lambda chain, config: _events(chain, config, "v1"),
    "events v2": lambda chain, config: _events(chain, config, "v2"),
    "log": _log,
}


def _steady(seen: list[Any]) -> list[str]:
    """Return the events without ids, which differ in each run, and with the events of parallel branches in one order."""
    return sorted(re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", repr(one)) for one in seen)


@pytest.mark.filterwarnings("ignore:astream_log is deprecated")
@pytest.mark.filterwarnings("ignore:astream_events version")
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [1, 2])
def test_streams_of_events_keep_their_chunks(way: str, chain: str, count: int, journal: RunJournal) -> None:
    """`astream_events` and `astream_log` report the chunks of parsers and chains, wherever our streaming handler stands."""
    bare = _steady(asyncio.run(WAYS[way](CHAINS[chain](), {})))
    ours = [JournalCallbackHandler(journal, capture_invoke=True) for _ in range(count)]
    config = {} if chain.startswith("bound") else {"callbacks": ours}
    assert _steady(asyncio.run(WAYS[way](CHAINS[chain](*ours), config))) == bare
    assert any("stream" in line for line in bare)
    assert len(journal.runs()) == 1


class Tapping(BaseCallbackHandler, _StreamingCallbackHandler[Any]):
    """A third-party streaming handler, which notes the chunks that it gets."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        for chunk in output:
            self.seen.append(chunk)
            yield chunk

    async def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for chunk in output:
            self.seen.append(chunk)
            yield chunk


@pytest.mark.parametrize("order", ["ours first", "ours last", "ours between"])
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("chain", ["text", "list", "json", "generator", "parallel"])
def test_another_streaming_handler_is_shown_the_output(chain: str, awaited: bool, order: str, journal: RunJournal) -> None:
    """The first streaming handler beside ours gets the chunks of `stream` and `astream`; the second one gets none, as
    without us."""

    def seen(handlers: list[Any], tapping: list[Tapping]) -> list[Any]:
        async def main() -> list[Any]:
            return [chunk async for chunk in CHAINS[chain]().astream({"question": "?"}, {"callbacks": handlers})]

        got = asyncio.run(main()) if awaited else list(CHAINS[chain]().stream({"question": "?"}, {"callbacks": handlers}))
        return [got, *(_steady(one.seen) for one in tapping)]

    ours, taps, bare = JournalCallbackHandler(journal, capture_invoke=True), [Tapping(), Tapping()], [Tapping(), Tapping()]
    place = {"ours first": 0, "ours between": 1, "ours last": 2}[order]
    expected = seen([*bare], bare)
    assert bare[0].seen
    assert seen([*taps[:place], ours, *taps[place:]], taps) == expected


# --- models in nodes ----------------------------------------------------------------------------------------------------


class TwoWays(BaseChatModel):
    """A model whose answers differ between invoke and stream, as with a mock, a cassette or an OpenAI-compatible
    endpoint."""

    candidates: int = 1

    @property
    def _llm_type(self) -> str:
        return "two-ways"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        usage: Any = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
        said = [AIMessage(content=f"whole {number}", usage_metadata=usage) for number in range(self.candidates)]
        return ChatResult(generations=[ChatGeneration(message=one) for one in said], llm_output={"model_name": "two-ways"})

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for number in range(self.candidates):
            for word in ("a ", "stream "):
                yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word}{number}"))


def _fake() -> BaseChatModel:
    call = {"name": "look", "args": {}, "id": "c1", "type": "tool_call"}
    return GenericFakeChatModel(messages=iter([AIMessage(content="", tool_calls=[call])]))


MODELS: dict[str, Callable[[], BaseChatModel]] = {
    "overridden _generate": TwoWays,
    "two candidates": lambda: TwoWays(candidates=2),
    "content of version v1": lambda: TwoWays(output_version="v1"),
    "a fake of LangChain": _fake,
    "a fake with content blocks": lambda: GenericFakeChatModel(
        messages=iter([AIMessage(content=[{"type": "text", "text": "a"}])])
    ),
}


def _answering(model: BaseChatModel) -> Any:
    """Return a graph whose node calls the model by `invoke`, or by `ainvoke` where that is awaited."""

    def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"], config)]}

    async def aanswer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    builder = StateGraph(MessagesState).add_node("answer", RunnableLambda(answer, aanswer)).add_edge(START, "answer")
    return builder.compile(checkpointer=InMemorySaver(), name="graph")


SAID: Any = {"messages": [("user", "hi")]}
THREAD: Any = {"configurable": {"thread_id": "1"}}


async def _astream(graph: Any, mode: str) -> list[Any]:
    return [chunk async for chunk in graph.astream(SAID, THREAD, stream_mode=mode)]


CALLS: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda graph: graph.invoke(SAID, THREAD),
    "ainvoke": lambda graph: asyncio.run(graph.ainvoke(SAID, THREAD)),
    "stream updates": lambda graph: list(graph.stream(SAID, THREAD, stream_mode="updates")),
    "stream values": lambda graph: list(graph.stream(SAID, THREAD, stream_mode="values")),
    "astream updates": lambda graph: asyncio.run(_astream(graph, "updates")),
    "astream values": lambda graph: asyncio.run(_astream(graph, "values")),
    "batch": lambda graph: graph.batch([SAID], THREAD),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("model", MODELS)
def test_a_model_in_a_node_answers_as_without_the_journal(model: str, call: str, journal: RunJournal) -> None:
    """`attach` makes no model stream: a node that calls `invoke` gets the same message, usage and id."""
    bare = _steady([CALLS[call](_answering(MODELS[model]()))])
    assert _steady([CALLS[call](attach(_answering(MODELS[model]()), journal))]) == bare
    (run,) = journal.runs()
    assert "llm.ai.delta" not in [event.kind for event in journal.read(run.run_id)]


def test_capturing_invoke_is_asked_for(journal: RunJournal) -> None:
    """With `capture_invoke`, the same model streams inside `invoke`, as its docstring warns."""
    got = attach(_answering(TwoWays()), journal, capture_invoke=True).invoke(SAID, THREAD)["messages"][-1]
    assert (got.text, got.usage_metadata) == ("a 0stream 0", None)


async def _cut(agent: Any, how: str, held: asyncio.Event, journal: RunJournal) -> None:
    if how.startswith("start_run"):
        mode: Any = {"stream_mode": "messages"} if how == "start_run messages" else {}
        handle = await start_run(agent, SAID, THREAD, **mode)
        await held.wait()
        await journal.astop(handle.run_id, wait=True)
        return

    async def consume() -> None:
        if how == "ainvoke":
            await agent.ainvoke(SAID, THREAD)
        elif how == "events":
            async for _ in agent.astream_events(SAID, THREAD, version="v2"):
                pass
        else:
            async for _ in agent.astream(SAID, THREAD, stream_mode=how.split(",")):
                pass

    task = asyncio.ensure_future(consume())
    await held.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("how", "capture", "words_are_kept"),
    [
        ("ainvoke", False, False),
        ("updates", False, False),
        ("values", False, False),
        ("custom", False, False),
        ("start_run", False, False),
        ("messages", False, True),
        ("updates,messages", False, True),
        ("events", False, True),
        ("start_run messages", False, True),
        ("ainvoke", True, True),
        ("updates", True, True),
        ("start_run", True, True),
    ],
)
def test_a_stop_keeps_the_text_that_was_shown(how: str, capture: bool, words_are_kept: bool, journal: RunJournal) -> None:
    """A model that a node calls by `ainvoke` streams only where the program reads its tokens; finished messages and tools
    stay."""

    async def main() -> list[str]:
        held = asyncio.Event()
        scripts = [asks(("c1", "look", {})), [*words("so ", "far "), held.set, asyncio.Event().wait]]
        graph = by_hand(Scripted(scripts=scripts), [look]).builder.compile(checkpointer=InMemorySaver(), name="agent")
        agent = attach(graph, journal, capture_invoke=capture)
        await _cut(agent, how, held, journal)
        state = await agent.aget_state(THREAD)
        assert state.next == ()
        return story(state.values["messages"])

    kept = ["U hi", "A Looking. (c1)", "T(c1) seen"]
    assert asyncio.run(main()) == [*kept, *(["A~ so far "] if words_are_kept else [])]


# --- what is not an error -----------------------------------------------------------------------------------------------


class Once(MessagesState):
    one: int


def _never(left: list[int], right: list[int]) -> list[int]:
    raise ValueError("these do not go together")


class Reduced(MessagesState):
    one: Annotated[list[int], _never]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("state", [Once, Reduced])
def test_results_that_cannot_be_applied_together(
    state: Any, awaited: bool, durability: Any, journal: RunJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """When two nodes write a channel that takes one value, the program gets its own error, and the thread is settled without
    a log line."""

    def said(name: str, value: Any) -> Any:
        model = Scripted(scripts=[words(f"{name} said")])

        def node(state: Any, config: RunnableConfig) -> dict[str, Any]:
            return {"messages": [model.invoke("?", config)], "one": value}

        async def anode(state: Any, config: RunnableConfig) -> dict[str, Any]:
            return {"messages": [await model.ainvoke("?", config)], "one": value}

        return RunnableLambda(node, anode)

    builder = StateGraph(state).add_node("a", said("a", [1])).add_node("b", said("b", [2]))
    builder.add_edge(START, "a").add_edge(START, "b")
    graph = attach(builder.compile(checkpointer=InMemorySaver(), name="graph"), journal)

    def run() -> None:
        with pytest.raises((InvalidUpdateError, ValueError), match=r"one value|do not go together"):
            if awaited:
                asyncio.run(graph.ainvoke(SAID, THREAD, durability=durability))
            else:
                graph.invoke(SAID, THREAD, durability=durability)

    with caplog.at_level(logging.INFO, "langchain_runjournal"):
        run()
        (first,) = journal.runs()
        assert (first.status, first.settled) == ("failed", True)
        snapshot = graph.get_state(THREAD)
        assert snapshot.next == ()
        said_first, *answers = story(snapshot.values["messages"])
        assert (said_first, sorted(answers)) == ("U hi", ["A a said", "A b said"])
        run()
        assert [one.settled for one in journal.runs()] == [True, True]
    assert caplog.messages == []


def test_a_reducer_that_always_raises(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """A thread that cannot be settled costs one log line without a traceback, and the run says why as well."""

    def refuse(left: list[Any], right: list[Any]) -> list[Any]:
        if right or left:
            raise ValueError("not in here")
        return []

    builder = StateGraph(Annotated[list, refuse]).add_node("a", lambda state: ["a"]).add_edge(START, "a")
    graph = attach(builder.compile(checkpointer=InMemorySaver(), name="graph"), journal)
    with pytest.raises(ValueError, match="not in here"):
        graph.invoke([("user", "hi")], THREAD)
    [run] = journal.runs()
    assert (run.settled, run.problem) == (False, "ValueError: not in here")
    said = [record for record in caplog.records if record.name == "langchain_runjournal"]
    assert ["ValueError: not in here" in record.getMessage() for record in said] == [True]
    assert [(record.levelname, record.exc_info) for record in said] == [("WARNING", None)]


async def call_without_loop(graph: Any, path: str) -> None:
    """Call a graph with an asynchronous saver synchronously."""
    async with AsyncSqliteSaver.from_conn_string(path) as graph.checkpointer:
        graph.invoke(SAID, THREAD)


async def call_on_loop(graph: Any, path: str) -> None:
    """Call a graph with a synchronous saver asynchronously."""
    with SqliteSaver.from_conn_string(path) as graph.checkpointer:
        await graph.ainvoke(SAID, THREAD)


async def call_too_late(graph: Any, path: str) -> None:
    """Call a graph whose saver is closed."""
    with SqliteSaver.from_conn_string(path) as graph.checkpointer:
        graph.checkpointer.setup()
    graph.invoke(SAID, THREAD)


@pytest.mark.parametrize("call", [call_without_loop, call_on_loop, call_too_late])
def test_a_checkpointer_that_cannot_be_read(
    call: Any, journal: RunJournal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that calls its checkpointer wrongly gets the same exception as without `attach`.

    The log has one line for each failure, without a traceback above DEBUG, and the run is not settled.
    """
    caplog.set_level(logging.DEBUG, logger="langchain_runjournal")
    plain = (
        StateGraph(MessagesState).add_node("a", lambda state: {"messages": []}).add_edge(START, "a").compile(name="graph")
    )
    raised = []
    for graph in (plain, attach(plain, journal)):
        with pytest.raises(Exception, match=r".") as found:
            asyncio.run(call(graph, str(tmp_path / "threads.db")))
        raised.append((found.type, str(found.value)))
    assert raised[0] == raised[1]
    [run] = journal.runs()
    assert (run.status, run.settled) == ("failed", False)
    ours = [record for record in caplog.records if record.name == "langchain_runjournal"]
    said = [record for record in ours if record.levelno > logging.DEBUG]
    assert [(record.levelname, record.exc_info) for record in said] == [("WARNING", None)] * 2
    before, after = (record.getMessage() for record in said)
    why = " ".join(f"{raised[0][0].__name__}: {raised[0][1]}".split())
    assert before == f"could not read or repair the thread of run {run.run_id} before the run began: {why.rstrip('.')}"
    assert after.startswith(f"could not settle run {run.run_id}: {why.rstrip('.')}. ")
    tracebacks = [record.exc_info for record in ours if record.levelno == logging.DEBUG and record.exc_info]
    assert [one[0] for one in tracebacks] == [raised[0][0]] * 2


class Down(InMemorySaver):
    """A checkpointer that cannot be written or read for a given number of times."""

    put_fails = reads_fail = 0

    def __init__(self) -> None:
        super().__init__()
        self.has_one = threading.Event()
        """Set when a task has written to the channel `one`. A neighbour that fails later does not remove that write."""

    def put(self, *args: Any, **kwargs: Any) -> Any:
        self.put_fails -= 1
        if self.put_fails >= 0:
            raise ConnectionError("down")
        return super().put(*args, **kwargs)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes, task_id, task_path)
        if any(channel == "one" for channel, _ in writes):
            self.has_one.set()

    def get_tuple(self, *args: Any, **kwargs: Any) -> Any:
        self.reads_fail -= 1
        if self.reads_fail >= 0:
            raise ConnectionError("down")
        return super().get_tuple(*args, **kwargs)


@pytest.mark.parametrize("failing", ["put_fails", "reads_fail"])
def test_what_can_be_applied_is_never_dropped(failing: str, journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """If the checkpointer fails once, the next settlement still applies what a finished task has written."""
    saver = Down()

    def finish(state: Once) -> dict[str, Any]:
        return {"one": 1}

    def fail(state: Once) -> None:
        assert saver.has_one.wait(30)
        setattr(saver, failing, 1)
        raise ValueError("the program's own")

    builder = StateGraph(Once).add_node("a", finish).add_node("b", fail).add_edge(START, "a").add_edge(START, "b")
    graph = attach(builder.compile(checkpointer=saver, name="graph"), journal)
    with pytest.raises(ValueError, match="the program's own"):
        graph.invoke(SAID, THREAD, durability="sync")
    assert [one.settled for one in journal.runs()] == [False]
    assert "could not settle run" in caplog.text
    assert [one.outcome for one in journal.recover(graph)] == ["settled"]
    assert graph.get_state(THREAD).values["one"] == 1


@pytest.mark.parametrize("attached", [True, False])
@pytest.mark.parametrize("awaited", [True, False])
def test_a_stream_that_is_collected_with_its_journal(
    awaited: bool, attached: bool, db: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream that is garbage-collected after its journal causes no error, and the next journal settles the run."""
    saver = InMemorySaver()
    model = Scripted(scripts=[words("said")])
    builder = StateGraph(MessagesState).add_node("a", lambda state, config: {"messages": [model.invoke("?", config)]})
    builder.add_node("b", lambda state: {}).add_edge(START, "a").add_edge("a", "b")
    graph = builder.compile(checkpointer=saver, name="graph")

    def begin() -> tuple[Any, list[Any]]:
        journal = RunJournal(db)
        config = THREAD if attached else {**THREAD, "callbacks": [JournalCallbackHandler(journal)]}
        used = attach(graph, journal) if attached else graph
        stream = (used.astream if awaited else used.stream)(SAID, config, stream_mode="updates")
        return stream, [stream, journal]

    def drop(everything: list[Any]) -> None:
        everything.append(everything)  # garbage, all at once

    async def main() -> None:
        stream, everything = begin()
        await anext(stream)
        del stream
        drop(everything)
        del everything
        gc.collect()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait([task])

    if awaited:
        asyncio.run(main())
    else:
        stream, everything = begin()
        next(stream)
        del stream
        drop(everything)
        del everything
        gc.collect()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    with RunJournal(db) as journal:
        agent = attach(graph, journal)
        assert story(agent.invoke(SAID, THREAD)["messages"]) == ["U hi", "A said", "U hi", "A said"]


# --- copies -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_journal_or_a_handler_is_the_same_one(how: Callable[[Any], Any], journal: RunJournal) -> None:
    """A copied config records the same runs in the same journal."""
    handlers = [JournalCallbackHandler(journal), JournalCallbackHandler(journal, capture_invoke=True)]
    for one in (journal, *handlers):
        assert how(one) is one
    assert how(JournalSaver(InMemorySaver(), journal)).journal is journal


def test_a_config_is_copied_with_what_is_in_it(journal: RunJournal) -> None:
    """`copy.deepcopy` works for a config that holds a handler and a journal, and the copy records in the same journal."""
    config: Any = {"callbacks": [JournalCallbackHandler(journal)], "configurable": {"journal": journal}}
    copied = copy.deepcopy(config)
    assert copied is not config
    assert copied == config
    TwoWays().invoke("?", copied)
    assert [run.status for run in journal.runs()] == ["completed"]


@pytest.mark.parametrize("attached", [False, True])
def test_a_node_copies_its_callbacks(attached: bool, journal: RunJournal) -> None:
    """`copy.deepcopy` works for the callbacks that a node of an attached graph gets, as without the journal."""

    def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [TwoWays().invoke("?", {"callbacks": copy.deepcopy(config["callbacks"])})]}

    graph: Any = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
    graph = graph.compile(checkpointer=InMemorySaver(), name="graph")
    graph = attach(graph, journal) if attached else graph
    assert story(graph.invoke(SAID, THREAD)["messages"]) == ["U hi", "A whole 0"]
    recorded = [[event.kind for event in journal.read(run.run_id)].count("llm.ai.response") for run in journal.runs()]
    assert recorded == ([1] if attached else [])
