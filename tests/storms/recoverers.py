"""Servers that are killed while they run, stop, settle, recover and prune on the same threads.

Each message has a tag, and each word of its answer names the tag, so that a check can tell the words in a thread apart. A
process notes each acknowledgement that it gets (a run that has begun, words that were shown) in a file, with one system
call, so that a kill leaves no partly written line.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sqlite3
import time
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import agenerate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_runjournal import attach, errors, repair_tool_pairs, start_run
from tests.storms._judge import Case, Wrong
from tests.support.places import place_of

THREADS = ("t0", "t1", "t2")
WORKERS = 2
EXPECTED = (
    errors.ThreadBusy,
    errors.RunAbandoned,
    errors.StopTimeout,
    errors.SettlementTimeout,
    errors.RunFenced,
    sqlite3.OperationalError,  # "database is locked", from the checkpointer
)
LAST = "last"


class Speaker(BaseChatModel):
    """A model that answers with words that name the message which they answer; first with a tool request, if the tag asks
    for one."""

    @property
    def _llm_type(self) -> str:
        return "speaker"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return await agenerate_from_stream(self._astream(*args, **kwargs))

    async def _astream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        asked = [at for at, message in enumerate(messages) if message.type == "human"][-1]
        tag = messages[asked].text
        if repair_tool_pairs(messages) is not messages and [*repair_tool_pairs(messages)] != messages:
            raise ValueError(f"a provider would refuse this history: {[message.type for message in messages]}")
        draw = random.Random(f"{tag}:{len(messages) - asked}")
        for number in range(draw.randrange(2, 25)):
            yield _chunk(AIMessageChunk(content=f"{tag}.{number} "))
            await asyncio.sleep(draw.choice((0, 0, 0.001, 0.004)))
        if tag.endswith("tool") and len(messages) - asked == 1:
            calls = [
                tool_call_chunk(name="look", args=json.dumps({"tag": tag, "at": at}), id=f"{tag}-call{at}", index=at)
                for at in range(2)
            ]
            yield _chunk(AIMessageChunk(content="", tool_call_chunks=calls))


def _chunk(message: AIMessageChunk) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=message)


@tool
async def look(tag: str, at: int) -> str:
    """Look."""
    await asyncio.sleep(0.003 * at)
    return f"found {tag}"


def graph_of(saver: Any) -> Any:
    model = Speaker()

    async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", answer)
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver, name="storm")


class Notes:
    """The acknowledgements of a process, one line each, written by one system call."""

    def __init__(self, home: Path) -> None:
        self._fd = os.open(home / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, **about: Any) -> None:
        os.write(self._fd, (json.dumps(about) + "\n").encode())


async def work(home: Path, name: str, seed: str) -> None:
    """Run one process, which does several things at once, for ever."""
    draw, notes = random.Random(seed), Notes(home)
    place = place_of(home)
    async with place.asaver("pool") as saver, place.open() as journal:
        graph = attach(graph_of(saver), journal)
        notes.add(up=name)

        async def repeat(at: int) -> None:
            for number in range(1_000_000):
                what = draw.choices((talk, call, stop, recover, prune), (6, 2, 3, 2, 1))[0]
                try:
                    await what(f"{name}x{at}n{number}{draw.choice(('', 'tool'))}")
                except EXPECTED as exc:
                    notes.add(said=type(exc).__name__)
                except Exception as exc:
                    traceback.print_exc()
                    notes.add(wrong=f"{what.__name__}: {type(exc).__name__}: {exc}")
                await asyncio.sleep(0)

        async def talk(tag: str) -> None:
            thread = draw.choice(THREADS)
            busy = draw.choice(("reject", "stop", "wait"))
            patience = draw.choice((0, 3, 1_000))
            handle = await start_run(graph, _asked(tag), _config(thread), if_busy=busy, stream_mode="messages")
            notes.add(began=handle.run_id, thread=thread, tag=tag)
            seen = ""
            async for chunk, _ in handle.stream():
                if isinstance(chunk, AIMessageChunk) and chunk.text:
                    seen += chunk.text
                    notes.add(tag=tag, seen=seen)
                    patience -= 1
                    if patience < 0:
                        break
            if draw.random() < 0.3:
                await handle.stop()

        async def call(tag: str) -> None:
            # On a thread of its own: LangGraph does not separate simultaneous calls on one thread.
            running = asyncio.create_task(graph.ainvoke(_asked(tag), _config(tag.partition("n")[0])))
            done, _ = await asyncio.wait([running], timeout=draw.choice((0.01, 0.05, 5)))
            if not done:
                running.cancel()
                await asyncio.wait([running])
            elif running.exception() is not None:
                raise running.exception()  # type: ignore[misc]

        async def stop(tag: str) -> None:
            for run in (await journal.aruns(draw.choice(THREADS), "running"))[:1]:
                try:
                    await journal.astop(run.run_id, wait=draw.random() < 0.5, timeout=20)
                except errors.RunNotFound:
                    pass  # another process has pruned the run meanwhile

        async def recover(tag: str) -> None:
            await journal.arecover(graph)

        async def prune(tag: str) -> None:
            gone = await journal.aprune(keep_last=draw.choice((0, 5)))
            notes.add(pruned=gone)

        await asyncio.gather(*(repeat(at) for at in range(3)))


def _asked(tag: str) -> Any:
    return {"messages": [HumanMessage(tag, id=f"h-{tag}")]}


def _config(thread: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread}}


def storm(case: Case) -> None:
    """Run processes on one journal and one checkpointer. They are killed one after the other, while the others continue."""
    draw, home = case.random, case.home
    rounds = draw.randrange(3, 7)
    alive: list[int] = []
    names: dict[int, str] = {}
    for number in range(rounds):
        while len(alive) < WORKERS:
            name = f"p{number}{len(alive)}"
            seed = f"{case.seed}:{case.number}:{name}"
            pid = case.fork(lambda name=name, seed=seed: asyncio.run(work(home, name, seed)))
            alive.append(pid)
            names[pid] = name
        if draw.random() < 0.8:
            _wait_until_up(home, [names[pid] for pid in alive])
        case.kill(alive.pop(draw.randrange(len(alive))), draw.choice((draw.uniform(0, 0.1), draw.uniform(0.05, 0.6))))
    for pid in alive:
        case.kill(pid)
    asyncio.run(judge(case))


def _wait_until_up(home: Path, names: list[str]) -> None:
    until = time.monotonic() + 30
    while not {*names} <= {note.get("up") for note in _notes(home)}:
        if time.monotonic() > until:
            raise Wrong(f"not all of {names} began")
        time.sleep(0.01)


async def judge(case: Case) -> None:
    """Start the next server, which settles all threads. Then each thread takes a message, and holds all that was
    acknowledged."""
    home, notes = case.home, _notes(case.home)
    case.counts["messages"] += sum("began" in note for note in notes)
    case.counts["words shown"] += sum("seen" in note for note in notes)
    for note in notes:
        if "wrong" in note:
            raise Wrong(note["wrong"])
    place = place_of(home)
    async with place.asaver("pool") as saver, place.open() as journal:
        graph = attach(graph_of(saver), journal)
        begun = time.monotonic()
        await journal.arecover(graph)
        for thread in THREADS:
            handle = await start_run(graph, _asked(f"{LAST}{thread}"), _config(thread))
            run = await handle.wait()
            if run.status != "completed":
                raise Wrong(f"a message on {thread} ended as {run.status}: {run.error or run.cause}")
        if time.monotonic() - begun > 30:
            raise Wrong(f"recovery and three messages took {time.monotonic() - begun:.0f} s")
        for run in await journal.aruns(limit=None):
            if not run.ended or not (run.settled or run.given_up):
                raise Wrong(f"run {run.run_id} of {run.thread_id} is {run.status}, settled: {run.settled} ({run.problem})")
            if run.given_up and run.started_at and run.problem:
                raise Wrong(f"run {run.run_id} of {run.thread_id} is given up: {run.problem}")
        for thread in {*THREADS, *(str(run.thread_id) for run in await journal.aruns(limit=None))}:
            state = await graph.aget_state(_config(thread))
            if state.next:
                raise Wrong(f"thread {thread} has {state.next} next")
            check(thread, state.values.get("messages", []), notes)


def _notes(home: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in (home / "notes").read_text().splitlines()]
    except FileNotFoundError:
        return []


def check(thread: str, messages: list[BaseMessage], notes: list[dict[str, Any]]) -> None:
    """Check that a thread holds each message once, each with its own answer behind it, and of the answer at least the words
    that were shown."""
    tags = [message.text for message in messages if message.type == "human"]
    if len(set(tags)) != len(tags):
        raise Wrong(f"thread {thread} has a message twice: {tags}")
    ids = [message.id for message in messages]
    if len(set(ids)) != len(ids):
        raise Wrong(f"thread {thread} has an id twice")
    answers: dict[str, str] = {}
    tag = ""
    for message in messages:
        if message.type == "human":
            tag = message.text
            answers[tag] = ""
        elif isinstance(message, AIMessage):
            answers[tag] += message.text
        elif isinstance(message, ToolMessage) and not message.tool_call_id.startswith(f"{tag}-"):
            raise Wrong(f"thread {thread}: behind {tag} stands the result for {message.tool_call_id}")
    for tag, answer in answers.items():
        if not re.fullmatch(rf"({re.escape(tag)}\.\d+ )*", answer):
            raise Wrong(f"thread {thread}: behind {tag} stands {answer[:300]!r}")
    if [*repair_tool_pairs(messages)] != messages:
        raise Wrong(f"thread {thread} has requests without results: {[message.type for message in messages]}")
    began = {note["tag"]: note["thread"] for note in notes if "began" in note}
    for tag, where in began.items():
        if where == thread and tag not in answers:
            raise Wrong(f"thread {thread} has lost message {tag}, which had begun; it has {list(answers)}")
    for note in notes:
        if "seen" in note and began.get(note["tag"]) == thread and not answers[note["tag"]].startswith(note["seen"]):
            tag, answer = note["tag"], answers[note["tag"]]
            raise Wrong(f"thread {thread}: of the answer to {tag}, {note['seen']!r} was shown, {answer!r} is there")
