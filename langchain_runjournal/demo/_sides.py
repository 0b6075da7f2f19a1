"""One agent twice: as it is, and attached to a journal. What both were told and what is left of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from ..errors import RequestRefused
from ..journal.run_journal import RunJournal
from ..messages.loading import is_synthetic
from ..settle.attach import attach
from ..testing.scripted_model import ScriptedChatModel
from ._agent import GO_ON, Travel, graph_of
from ._place import DemoFailed, open_threads

_LONG: Final = 30.0
"""Seconds after which something has gone wrong."""


@dataclass
class Left:
    """What is left of a turn that was cut off."""

    thread: list[BaseMessage]
    """The thread, before anybody says anything more."""
    sent: list[BaseMessage] = field(default_factory=list)
    """What the model was sent with the next message."""
    answer: str = ""
    refused: RequestRefused | None = None

    def characters(self, shown: str) -> int:
        """How many of the characters that were shown the model still knows of."""
        return max((_common(one.text, shown) for one in self.sent if one.type == "ai"), default=0)

    def results(self, finished: list[str]) -> int:
        """How many of the results that were there the model still knows of."""
        real = [one.text for one in self.sent if one.type == "tool" and not is_synthetic(one)]
        return sum(one in real for one in finished)

    def gone(self) -> list[BaseMessage]:
        """What stood in the thread, and was not sent."""
        sent = {one.id for one in self.sent}
        return [one for one in self.thread if one.id not in sent]


def _common(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@dataclass
class Heard:
    """What a user has seen of a turn."""

    show: Callable[[str, str], None] | None = None
    """Called with "words" and the words, "asks" and the name of a tool, "result" and what it says."""
    text: str = ""
    results: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, chunk: Any) -> None:
        """The next chunk of the stream."""
        if isinstance(chunk, ToolMessage):
            self.results.append(chunk.text)
            self._show("result", chunk.text)
        elif isinstance(chunk, AIMessageChunk):
            if chunk.text:
                self.text += chunk.text
                self._show("words", chunk.text)
            for call in chunk.tool_call_chunks:
                if call["name"]:
                    self._show("asks", call["name"])
        self.changed.set()

    def _show(self, what: str, words: str) -> None:
        if self.show is not None:
            self.show(what, words)


@dataclass
class Side:
    """One of the two."""

    agent: Any
    model: ScriptedChatModel

    async def say(self, thread_id: str, words: str, heard: Heard) -> None:
        """A message of the user's, and the answer as it streams."""
        asked = {"messages": [("user", words)]}
        async for chunk, _ in self.agent.astream(asked, _config(thread_id), stream_mode="messages"):
            heard.hear(chunk)

    async def left(self, thread_id: str) -> Left:
        """What the thread holds."""
        state = await self.agent.aget_state(_config(thread_id))
        return Left(list(state.values.get("messages", [])))

    async def go_on(self, thread_id: str, left: Left) -> None:
        """Really send the next message, and see what the model is given for it."""
        self.model.pace = 0.0
        before = len(self.model.requests)
        try:
            ended = await self.agent.ainvoke({"messages": [("user", GO_ON)]}, _config(thread_id))
            left.answer = ended["messages"][-1].text
        except RequestRefused as refused:
            left.refused = refused
        left.sent = self.model.requests[before]


def _config(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}}


@dataclass
class Pair:
    """Both, side by side."""

    without: Side
    attached: Side
    journal: RunJournal

    async def say(self, thread_id: str, words: str, heard: tuple[Heard, Heard]) -> list[asyncio.Task[None]]:
        """Begin the same turn on both."""
        sides = zip((self.without, self.attached), heard, strict=True)
        return [asyncio.create_task(side.say(thread_id, words, one)) for side, one in sides]

    async def left(self, thread_id: str) -> tuple[Left, Left]:
        """What is left on both, and what the next message makes of it."""
        found = await self.without.left(thread_id), await self.attached.left(thread_id)
        await self.without.go_on(thread_id, found[0])
        await self.attached.go_on(thread_id, found[1])
        return found


@asynccontextmanager
async def open_pair(directory: Path, pace: float) -> AsyncIterator[Pair]:
    """The same agent twice, each with a SQLite file for its threads. The one line between them is `attach`."""
    plain, mine = Travel(pace), Travel(pace)
    async with (
        open_threads(directory / "threads-without.db") as threads_without,
        open_threads(directory / "threads.db") as threads,
        RunJournal(directory / "runs.db") as journal,
    ):
        without = graph_of(plain.model, plain.tools()).compile(checkpointer=threads_without, name="travel")
        agent = graph_of(mine.model, mine.tools()).compile(checkpointer=threads, name="travel")
        agent = attach(agent, journal)
        yield Pair(Side(without, plain.model), Side(agent, mine.model), journal)


async def until(enough: Callable[[], bool], heard: tuple[Heard, Heard], tasks: list[asyncio.Task[None]]) -> None:
    """Return when the user has seen enough. Raises `DemoFailed` if an agent ends before that."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + _LONG
    while not enough():
        changes = [asyncio.ensure_future(one.changed.wait()) for one in heard]
        await asyncio.wait([*changes, *tasks], timeout=give_up - loop.time(), return_when=asyncio.FIRST_COMPLETED)
        for one, change in zip(heard, changes, strict=True):
            change.cancel()
            one.changed.clear()
        for task in tasks:
            if task.done() and not enough():
                raise DemoFailed(f"The agent came to an end before it could be stopped: {task.exception()!r}")
        if loop.time() > give_up:
            raise DemoFailed(f"The agent said nothing for {_LONG:.0f} seconds.")


async def cut(tasks: list[asyncio.Task[None]]) -> None:
    """What a Stop button does in a server: cancel the task of the answer, and wait until it is over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
