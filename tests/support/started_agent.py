"""An agent for conversations, whose runs `start_run` begins, for tests of how they continue and how they end."""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from langchain_runjournal import Run, RunHandle, RunJournal, attach, start_run
from langchain_runjournal.capture.recorder import recorder_of
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.runs.admission import lines_of
from langchain_runjournal.settle.settlements import settlements_of
from tests.support.agents import words
from tests.support.conversations import (
    PATIENCE,
    Gate,
    Recording,
    build,
    nothing_is_wrong,
    open_saver,
    story,
    the_rest,
    tools_of,
)
from tests.support.places import place_of

# On Python 3.10, the node of `create_agent` does not pass its config on, so LangChain reports its model calls to no handler.
KINDS = ("by hand",) if sys.version_info < (3, 11) else ("agent", "by hand")
SAVERS = ("memory", "file")


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run the test on a loop of its own. Check that nothing is logged as an error, and that no task is left."""

    @functools.wraps(test)
    def run(*args: Any, **given: Any) -> None:
        async def whole() -> None:
            await test(*args, **given)
            await the_rest()
            assert asyncio.all_tasks() == {asyncio.current_task()}

        with nothing_is_wrong():
            asyncio.run(whole())

    return run


def everywhere(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Do the same, with each kind of agent on each saver."""
    each_kind = pytest.mark.parametrize("kind", KINDS)(on_a_loop(test))
    found: Callable[..., None] = pytest.mark.parametrize("saver", SAVERS)(each_kind)
    return found


def say(text: str) -> dict[str, Any]:
    return {"messages": [("user", text)]}


def on(thread: str | None, **more: Any) -> Any:
    return {"configurable": {} if thread is None else {"thread_id": thread}, **more}


@dataclass
class Talk:
    """An agent for conversations, on any number of threads."""

    journal: RunJournal
    saver: Any
    kind: str = "by hand"
    gate: Gate = field(default_factory=Gate)
    model: Recording = field(default_factory=Recording)
    tools: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tools = self.tools or tools_of(self.gate)
        self.plain = build(self.kind, self.model, self.tools, self.saver)
        self.agent = attach(self.plain, self.journal, capture_invoke=True)

    async def start(self, text: str = "go", thread: str = "t", **options: Any) -> RunHandle:
        return await start_run(self.agent, say(text), on(thread), **options)

    async def start_held(self, *script: Any, **options: Any) -> RunHandle:
        """Start a run whose model has said a few words, and waits at the gate. It ends after that."""
        self.gate.reached.clear()
        self.model.say([*words("one ", "two "), self.gate.apass, *script, *words("three")])
        handle = await self.start(**options)
        await asyncio.wait_for(self.gate.reached.wait(), PATIENCE)
        return handle

    async def start_claimed_by(self, other: RunJournal) -> RunHandle:
        """Start a run that another journal claims while its model speaks. The model would never end."""
        handle = await self.start_held(*words("three ") * 3, asyncio.Event().wait)
        await self.journal.aflush()
        assert core_of(other).store.claim(handle.run_id, other.owner_id, 1)
        self.gate.open()
        return handle

    async def thread(self, thread: str = "t") -> list[str]:
        """Return the messages of the thread. Check that no task is left to run there."""
        state = await self.agent.aget_state(on(thread))
        assert (state.next, state.tasks) == ((), ())
        return story(state.values.get("messages", []))

    async def goes_on(self, *left: str, thread: str = "t", heals: tuple[str, ...] | None = None) -> None:
        """Check that the thread holds this, and that the next message is answered by a model that sees it (or `heals`: what
        came late)."""
        assert await self.thread(thread) == list(left)
        self.model.say(words("fi", "ne"))
        run = await (await self.start("next", thread)).wait()
        assert facts(run) == ("completed", None, True)
        sees = [*(left if heals is None else heals), "U next"]
        assert story(self.model.seen[-1]) == sees
        assert await self.thread(thread) == [*sees, "A fine"]


def facts(run: Run) -> tuple[str, str | None, bool]:
    return run.status.value, run.cause, run.settled


@asynccontextmanager
async def talking(
    tmp_path: Path,
    saver: str = "memory",
    kind: str = "by hand",
    tools: list[Any] | None = None,
    model: Any = None,
    **options: Any,
) -> AsyncIterator[Talk]:
    """Yield an agent for conversations. Afterwards, the journal holds nothing in memory."""
    place = place_of(tmp_path)
    path = None if saver == "memory" else place.threads
    async with open_saver(InMemorySaver(), path) as opened, place.open(**options) as journal:
        talk = Talk(journal, opened, kind, tools=tools or [], model=model or Recording())
        try:
            yield talk
        finally:
            talk.gate.open()
            await the_rest()
        nothing_is_left(journal)


def nothing_is_left(journal: RunJournal) -> None:
    """Check that no run of the journal is running, and that nothing is kept of the ended ones."""
    gc.collect()
    capture, threads = recorder_of(journal), recorder_of(journal).threads
    assert len(core_of(journal).local_runs) == 0
    assert lines_of(journal).last == {}
    assert capture.tracker.nodes == {}
    assert (threads._turns, settlements_of(journal).active, threads._open) == ({}, {}, {})
    assert (core_of(journal).stops._callbacks, core_of(journal).stops._early) == ({}, {})


def asking(talk: Talk) -> Any:
    """Return an attached graph whose node asks the user, and then lets a model speak."""

    async def node(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        interrupt("may I?")
        return {"messages": [await talk.model.ainvoke(state["messages"], config)]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return attach(graph.compile(checkpointer=talk.saver, name="asking"), talk.journal, capture_invoke=True)


needs_config = pytest.mark.skipif("agent" not in KINDS, reason="no model streams in a node of `create_agent` there")
"""For tests whose agent must stream."""
needs_311 = pytest.mark.skipif("agent" not in KINDS, reason="LangGraph cannot interrupt there in asynchronous code")
