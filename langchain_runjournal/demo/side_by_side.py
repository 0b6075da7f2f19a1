"""One agent twice: plain, and attached to a journal. What the user sees of both, and what is left of it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from .. import RunJournal, attach, is_synthetic
from ..errors import RequestRefused
from ..testing import ScriptedChatModel
from .agent import GO_ON, Travel, graph_of
from .directory import DemoFailed

_TIMEOUT: Final = 30.0


@dataclass
class Left:
    """What is left of a turn that was cut off."""

    thread: list[BaseMessage]
    """The thread, before the user's next message."""
    sent: list[BaseMessage] = field(default_factory=list)
    """What the model was sent with the next message."""
    answer: str = ""
    refused: RequestRefused | None = None

    def characters(self, shown: str) -> int:
        """Count the characters of `shown` that the model was sent again."""
        return max((_common(one.text, shown) for one in self.sent if one.type == "ai"), default=0)

    def results(self, finished: list[str]) -> int:
        """Count the results in `finished` that the model was sent again."""
        real = [one.text for one in self.sent if one.type == "tool" and not is_synthetic(one)]
        return sum(one in real for one in finished)

    def missing(self) -> list[BaseMessage]:
        """List the messages of the thread that the model was not sent."""
        sent = {one.id for one in self.sent}
        return [one for one in self.thread if one.id not in sent]


def _common(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@dataclass
class Heard:
    """What a user has seen of a turn."""

    show: Callable[[str, str], None] | None = None
    """Called with "words" and the words, "asks" and the name of a tool, "result" and the text of a result."""
    text: str = ""
    results: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, chunk: Any) -> None:
        """Add the next chunk of the stream."""
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
    """One of the two agents."""

    agent: Any
    model: ScriptedChatModel

    async def say(self, thread_id: str, words: str, heard: Heard) -> None:
        """Send a message of the user, and pass the streamed answer to `heard`."""
        question = {"messages": [("user", words)]}
        async for chunk, _ in self.agent.astream(question, _config(thread_id), stream_mode="messages"):
            heard.hear(chunk)

    async def left(self, thread_id: str) -> Left:
        """Read what the thread holds."""
        state = await self.agent.aget_state(_config(thread_id))
        return Left(list(state.values.get("messages", [])))

    async def send_next(self, thread_id: str, left: Left) -> None:
        """Send the next message, and record in `left` what the model is sent for it."""
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
    """Both agents, and the journal of the attached one."""

    without: Side
    attached: Side
    journal: RunJournal

    async def say(self, thread_id: str, words: str, heard: tuple[Heard, Heard]) -> list[asyncio.Task[None]]:
        """Start the same turn on both sides."""
        sides = zip((self.without, self.attached), heard, strict=True)
        return [asyncio.create_task(side.say(thread_id, words, one)) for side, one in sides]

    async def left(self, thread_id: str) -> tuple[Left, Left]:
        """Read what is left on both sides, and send both the next message."""
        found = await self.without.left(thread_id), await self.attached.left(thread_id)
        await self.without.send_next(thread_id, found[0])
        await self.attached.send_next(thread_id, found[1])
        return found


@asynccontextmanager
async def open_pair(directory: Path, pace: float) -> AsyncIterator[Pair]:
    """Open the same agent twice, each with a SQLite file for its threads. They differ in one line: `attach`."""
    plain, mine = Travel(pace), Travel(pace)
    async with (
        AsyncSqliteSaver.from_conn_string(str(directory / "threads-without.db")) as threads_without,
        AsyncSqliteSaver.from_conn_string(str(directory / "threads.db")) as threads,
        RunJournal(directory / "runs.db") as journal,
    ):
        for saver in (threads_without, threads):
            await saver.setup()  # a file that is not a database fails here, before the demonstration shows anything
        without = graph_of(plain.model, plain.tools()).compile(checkpointer=threads_without, name="travel")
        agent = graph_of(mine.model, mine.tools()).compile(checkpointer=threads, name="travel")
        agent = attach(agent, journal)
        yield Pair(Side(without, plain.model), Side(agent, mine.model), journal)


async def until(enough: Callable[[], bool], heard: tuple[Heard, Heard], tasks: list[asyncio.Task[None]]) -> None:
    """Wait until `enough` returns True. Raise `DemoFailed` if an agent ends before that, or says nothing for too long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _TIMEOUT
    while not enough():
        changes = [asyncio.ensure_future(one.changed.wait()) for one in heard]
        await asyncio.wait([*changes, *tasks], timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED)
        for one, change in zip(heard, changes, strict=True):
            change.cancel()
            one.changed.clear()
        for task in tasks:
            if task.done() and not enough():
                raise DemoFailed(f"The agent came to an end before it could be stopped: {task.exception()!r}")
        if loop.time() > deadline:
            raise DemoFailed(f"The agent said nothing for {_TIMEOUT:.0f} seconds.")


async def cancel(tasks: list[asyncio.Task[None]]) -> None:
    """Do what a Stop button does in a server: cancel the task of the answer, and wait until it has ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
