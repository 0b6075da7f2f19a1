"""How the code of users type-checks: `make lint` runs mypy over it, strictly. It is never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.graph.state import CompiledStateGraph
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import assert_type

from langchain_runjournal import (
    Event,
    JournalCallbackHandler,
    JournalSaver,
    Run,
    RunHandle,
    RunJournal,
    RunJournalError,
    RunStatus,
    Settlement,
    ToolPairGuard,
    arecord_partial_ai_message,
    attach,
    because,
    is_partial,
    is_synthetic,
    mark_partial,
    record_partial_ai_message,
    repair_tool_pairs,
    start_run,
)
from langchain_runjournal.server import Limits, create_app, event_source, event_stream
from langchain_runjournal.stores import Store
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import Call, FakeClock, FaultyStore, Reasoning, ScriptedChatModel, Step, Wait
from langchain_runjournal.view import page


def sync(path: Path) -> None:
    with RunJournal(path, synchronous="full", clock=FakeClock()) as journal:
        assert_type(journal, RunJournal)
        journal.append(Event(run_id="r", kind="run.start", data={"thread_id": "t"}))
        journal.flush(timeout=1)
        assert_type(journal.run("r"), Run)
        assert_type(journal.runs(status=RunStatus.RUNNING), list[Run])
        assert_type(journal.read("r", after=1), list[Event])
        assert_type(journal.follow("r"), Iterator[Event])
        assert_type(journal.follow_thread("t", after=("r", 1)), Iterator[Event])
        assert_type(journal.stop("r", cause="timeout").stop, str | None)
        assert_type(journal.claim("r"), bool)
        assert_type(journal.prune(keep_last=1, vacuum=True), list[str])
        assert_type(journal.delete(thread_id="t", force=True), list[str])
        with because("stop"):
            pass


async def in_a_loop(journal: RunJournal) -> None:
    async with journal as opened:
        assert_type(opened, RunJournal)
        await opened.aflush()
        assert_type(opened.afollow("r"), AsyncIterator[Event])
        assert_type(opened.afollow_thread("t", after="r:1"), AsyncIterator[Event])
        async for event in opened.afollow("r"):
            assert_type(event.seq, int)
        assert_type(await opened.aruns(), list[Run])
        assert_type(await opened.atranscript("r"), list[BaseMessage])


def captured(journal: RunJournal) -> RunnableConfig:
    messages = journal.transcript("r")
    assert_type(messages, list[BaseMessage])
    assert_type(mark_partial(messages), list[BaseMessage])
    assert_type([is_partial(message) or is_synthetic(message) for message in messages], list[bool])
    return {"callbacks": [JournalCallbackHandler(journal), JournalCallbackHandler(journal, capture_invoke=True)]}


def settled(graph: CompiledStateGraph[MessagesState], journal: RunJournal) -> CompiledStateGraph[MessagesState]:
    attached = attach(graph, journal, settle="on_stop", capture_invoke=False, wait_for_owner=5.0)
    assert_type(attached, CompiledStateGraph[MessagesState])
    assert_type(journal.recover(attached), list[Settlement])
    assert_type(journal.resume_config("r"), RunnableConfig)
    saver = JournalSaver(InMemorySaver(), journal)
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    assert_type(record_partial_ai_message(attached, config, AIMessage("half"), cause="disconnect"), bool)
    assert_type(record_partial_ai_message(saver, config, AIMessageChunk(content="half")), bool)
    assert_type(
        repair_tool_pairs([], evidence={"c1": ToolMessage("done", tool_call_id="c1")}, bridge=True), list[BaseMessage]
    )
    create_agent(GenericFakeChatModel(messages=iter(())), middleware=[ToolPairGuard(journal, notes=False, bridge="auto")])
    attach(graph, journal, settle="sometimes")  # type: ignore[arg-type]
    attach(GenericFakeChatModel(messages=iter(())), journal)  # type: ignore[type-var]
    return attached


async def settled_later(graph: CompiledStateGraph[MessagesState], journal: RunJournal) -> None:
    assert_type(await journal.arecover(graph), list[Settlement])
    assert_type(await journal.aresume_config("r"), RunnableConfig)
    assert_type(await arecord_partial_ai_message(graph, {"configurable": {"thread_id": "t"}}, AIMessage("half")), bool)


async def started(graph: CompiledStateGraph[MessagesState], journal: RunJournal) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    handle = await start_run(graph, {"messages": []}, config, journal=journal, if_busy="stop", timeout=60)
    assert_type(handle, RunHandle)
    assert_type(handle.thread_id, str | None)
    assert_type(await handle.wait(), Run)
    assert_type(await handle.stop("timeout"), Run)
    assert_type((await handle.wait()).continues, str | None)
    async for event in handle.events(after=3):
        assert_type(event, Event)
    async for _ in handle.stream():
        break
    assert_type(await journal.astop(handle.run_id, wait=True, timeout=5), Run)
    assert_type(journal.stop(handle.run_id, "shutdown"), Run)
    await start_run(graph, None, config, if_busy="queue")  # type: ignore[arg-type]


def looked_at(journal: RunJournal) -> str:
    assert_type(journal.prune(keep_last=100, dry_run=True), list[str])
    runs = [(run, journal.read(run.run_id)) for run in journal.runs()]
    return page(runs, title="Today")


def scripted() -> ScriptedChatModel:
    ScriptedChatModel(lambda messages: f"You said {messages[-1].text}")
    ScriptedChatModel(["Hello", ["a ", 7]])  # type: ignore[list-item]
    answer: list[Step] = [
        Reasoning("Hm."),
        "Let me look. ",
        Call("weather", {"city": "Oslo"}),
        Wait(0.1),
        ValueError("boom"),
    ]
    return ScriptedChatModel([answer, "Sunny."], pace=0.01)


def stores(path: Path) -> list[Store]:
    memory: Store = MemoryStore()
    sqlite: Store = SqliteStore(path)
    faulty = FaultyStore(memory)
    RunJournal(faulty)
    return [memory, sqlite]


async def may(request: Request, action: str, thread_id: str | None) -> bool:
    return thread_id is None or request.user.name == thread_id


def served(graph: CompiledStateGraph[MessagesState], journal: RunJournal) -> Starlette:
    create_app({"one": graph, "two": graph}, journal, authorize=lambda request, action, thread_id: True)
    return create_app(graph, journal, authorize=may, limits=Limits(body=1_000), hosts=["chat.example"])


async def streamed(journal: RunJournal, request: Request) -> Response:
    async for chunk in event_source(journal, "r", request.headers.get("last-event-id"), merge=True):
        assert_type(chunk, bytes)
    return await event_stream(journal, "r", request, dialect="native")


def errors(journal: RunJournal) -> str:
    try:
        journal.flush()
    except RunJournalError as exc:
        return str(exc)
    return ""


Event(run_id="r", kind="llm.ai.token")  # type: ignore[arg-type]  # a kind that does not exist is a type error
RunJournal("runs.db", synchronous="off")  # type: ignore[arg-type]
