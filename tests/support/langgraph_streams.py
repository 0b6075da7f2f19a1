"""Runs of graphs, their streams for the clients of LangGraph Server, and what LangGraph itself streamed of the same run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import Run, RunJournal, start_run
from langchain_runjournal.server.access import Access
from langchain_runjournal.server.frames import Frame
from langchain_runjournal.server.langgraph.feed import RunStream
from langchain_runjournal.server.langgraph.plain import values_json
from langchain_runjournal.server.requests import Limits
from langchain_runjournal.server.service import Service
from langchain_runjournal.server.transport import Timing

ALL = ("values", "updates", "messages-tuple", "custom", "tasks", "checkpoints", "debug", "messages", "events")
THEIRS = ("values", "updates", "messages", "custom", "tasks", "checkpoints", "debug")


class LateWrites(InMemorySaver):
    """A saver that stores what tasks have written long after the checkpoint that follows them."""

    async def aput_writes(self, *given: Any, **options: Any) -> None:
        """Store the writes of a task, later."""
        for _ in range(200):
            await asyncio.sleep(0)
        await super().aput_writes(*given, **options)


@dataclass
class Asked:
    """What a client has asked for."""

    run_id: str
    thread_id: str = "t"
    graph: str = "g"
    assistant_id: str = "a"
    modes: Sequence[str] = ALL
    subgraphs: bool = True
    input: Any = None
    command: Any = None
    checkpoint: Any = None
    durability: str | None = None
    interrupt_before: Any = None
    interrupt_after: Any = None


@dataclass
class Place:
    """A graph, the journal of its runs, and the streams of these."""

    journal: RunJournal
    builder: Any
    saver: Any = field(default_factory=InMemorySaver)
    name: str | None = None

    def __post_init__(self) -> None:
        compiled = (
            self.builder.compile(checkpointer=self.saver, name=self.name)
            if hasattr(self.builder, "compile")
            else self.builder
        )
        access, timing = Access(authorize=None, hosts=None), Timing(heartbeat=0.05)
        self.service = Service({"g": compiled}, self.journal, access, limits=Limits(), timing=timing)
        self.graph = self.service.graphs["g"]

    async def begin(self, given: Any, *, modes: Sequence[str] = ("messages", "custom"), **options: Any) -> Any:
        """Begin a run."""
        config = {"configurable": {"thread_id": "t"}, "run_id": uuid4(), "metadata": {"who": "me"}}
        return await start_run(self.graph, given, config, stream_mode=list(modes), **options)

    async def run(self, given: Any, **options: Any) -> tuple[Run, list[Any]]:
        """Run to the end. Return the run, and what LangGraph streamed of it: namespace, mode and payload."""
        handle = await self.begin(given, modes=THEIRS, subgraphs=True, **options)
        chunks = []
        with suppress(ValueError):
            async for chunk in handle.stream():
                chunks.append(chunk)  # noqa: PERF401 - those before an error, too
        return await handle.wait(), chunks

    def stream(self, run: str, cursor: str | None = None, only: Sequence[str] | None = None, **asked: Any) -> RunStream:
        """Return the stream of a run."""

        async def begun() -> Run:
            return await self.journal.arun(run)

        request = Asked(run, **asked)
        return RunStream(self.service, self.graph, request, cursor=cursor, modes=only, begun=begun)

    async def frames(
        self, run: str, cursor: str | None = None, only: Sequence[str] | None = None, **asked: Any
    ) -> list[Frame]:
        """Return all frames of a run."""
        return [frame async for batch in self.stream(run, cursor, only, **asked).batches() for frame in batch]


def said(frames: Sequence[Frame], event: str) -> list[Any]:
    """Return what the frames of an event say, with the namespace behind the name of the event."""
    found = []
    for frame in frames:
        name, _, space = str(frame.event).partition("|")
        if name == event:
            found.append((space, json.loads(frame.data)))
    return found


def theirs(chunks: Sequence[Any], mode: str) -> list[Any]:
    """Return what LangGraph streamed in a mode, as JSON."""
    return [("|".join(space), json.loads(json.dumps(values_json(body)))) for space, kind, body in chunks if kind == mode]
