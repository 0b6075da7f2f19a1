"""A worker of a company with several machines: an agent with tools, whose journal and threads are on a server.

python -m tests.support.machine_worker JOURNAL CHECKPOINTS LEASE

It does what each line asks for (see `tests.support.starter`). The model is strict: it refuses a history that a provider
would refuse.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langchain_runjournal import Run, RunHandle, RunJournal, attach, errors, start_run
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.testing import Call, ScriptedChatModel
from tests.support.conversations import story

PACE = 0.01
TALK = 3_000
"""How many words an answer to "talk" has: it lasts for half a minute, if nobody stops it."""


def answer_to(messages: list[BaseMessage]) -> Any:
    asked = next(one.text for one in reversed(messages) if one.type == "human")
    if asked.startswith("talk"):
        return [f"{number} " for number in range(TALK)]
    if asked.startswith("count "):
        return [f"{number} " for number in range(int(asked.split()[1]))]
    if asked.startswith("work") and messages[-1].type == "human":
        return ["Let me look. ", Call("look", {"at": asked}), Call("add", {"left": 1, "right": 2})]
    return f"fine: {asked}"


class Worker:
    """What the worker can be asked for. Every answer can be written as JSON."""

    def __init__(self, saver: Any, blocking: Any, journal: RunJournal, **options: Any) -> None:
        """`blocking`: a checkpointer on the same threads, for calls that block."""
        self.gate = asyncio.Event()
        self.journal = journal
        self.handles: dict[str, RunHandle] = {}
        self.refused = 0

        @tool
        async def look(at: str) -> str:
            """Look for something, until the gate is open."""
            await self.gate.wait()
            return "seen"

        @tool
        async def add(left: int, right: int) -> int:
            """Add two numbers."""
            return left + right

        model = ScriptedChatModel(answer_to, pace=PACE)
        plain = create_agent(model, [look, add], checkpointer=saver, name="worker")
        self.agent = attach(plain, journal, capture_invoke=True, **options)
        plain = create_agent(model, [look, add], checkpointer=blocking, name="worker")
        self.blocking = attach(plain, journal, capture_invoke=True, **options)

    async def start(self, thread: str, text: str, **options: Any) -> str:
        handle = await start_run(self.agent, say(text), on(thread), **options)
        self.handles[handle.run_id] = handle
        return handle.run_id

    async def wait(self, run_id: str) -> Any:
        return shown(await self.handles[run_id].wait())

    async def send(self, thread: str, text: str, **options: Any) -> Any:
        """Start a run, and wait for its end. Return the run and the last message of its thread then."""
        handle = await start_run(self.agent, say(text), on(thread), **options)
        return shown(await handle.wait())

    async def invoke(self, thread: str, text: str) -> list[str]:
        """Call the graph without `start_run`. Return the messages of the thread after that."""
        try:
            found = await self.agent.ainvoke(say(text), on(thread))
        except errors.RequestRefused:
            self.refused += 1
            raise
        return story(found["messages"])

    async def invoke_here(self, thread: str, text: str) -> list[str]:
        """Do the same by a call that blocks a thread of the process."""
        return story((await asyncio.to_thread(self.blocking.invoke, say(text), on(thread)))["messages"])

    async def stop(self, run_id: str, **options: Any) -> Any:
        return shown(await self.journal.astop(run_id, **options))

    async def run(self, run_id: str) -> Any:
        return shown(await self.journal.arun(run_id))

    async def hear(self, run_id: str, kind: str = "llm.ai.delta", times: int = 3) -> int:
        """Follow a run until it has had so many events of a kind. Return the seq of the last one."""
        async for event in self.journal.afollow(run_id):
            times -= event.kind == kind
            if not times:
                return event.seq
        raise AssertionError("the run has ended before")

    async def appended(self, run_id: str) -> int:
        """Return the seq of the last event of a run of this process, without asking the store."""
        return core_of(self.journal).appender.buffers[run_id].seq

    async def follow(self, run_id: str, after: int = 0) -> Any:
        """Follow a run to its end. Return the seqs, the text, and how the run ended."""
        seqs, text, ending = [], "", {}
        async for event in self.journal.afollow(run_id, after):
            seqs.append(event.seq)
            text += event.text if event.kind == "llm.ai.delta" else ""
            ending = event.data if event.kind == "run.end" else ending
        return {"seqs": seqs, "text": text, "ending": ending}

    async def thread(self, thread: str) -> Any:
        """Return the messages of a thread, and its next nodes."""
        state = await self.agent.aget_state(on(thread))
        return [story(state.values.get("messages", [])), list(state.next)]

    async def checkpoints(self, thread: str) -> Any:
        """Return the checkpoints of a thread, each with how many writes are pending there."""
        saver = self.agent.checkpointer
        found = [one async for one in saver.alist(on(thread))]
        return [[one.checkpoint["id"], len(one.pending_writes or [])] for one in found]

    async def runs(self, thread: str) -> Any:
        """Return the runs of a thread, oldest first."""
        return [shown(run) for run in reversed(await self.journal.aruns(thread, limit=None))]

    async def recover(self) -> Any:
        return [[one.run_id, one.outcome] for one in await self.journal.arecover(self.agent)]

    async def recovered(self) -> int:
        """Return how many events the journal has imported from spools."""
        return sum(report.events for report in self.journal.recovered)

    async def flush(self, timeout: float = 30.0) -> None:
        await self.journal.aflush(timeout)

    async def open_gate(self) -> None:
        self.gate.set()


def say(text: str) -> dict[str, Any]:
    return {"messages": [("user", text)]}


def on(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def shown(run: Run) -> Any:
    about = {"epoch": run.epoch, "last": run.last_seq, "lost": run.lost, "stop": run.stop, "problem": run.problem}
    return {"run_id": run.run_id, "status": run.status, "cause": run.cause, "settled": run.settled, **about}


@asynccontextmanager
async def savers_at(url: str) -> AsyncIterator[tuple[Any, Any]]:
    """Open a checkpointer as a program on several machines should, once to await it and once to block: its connections
    notice a cut cable, and are replaced."""
    alive = {"connect_timeout": 3, "keepalives_idle": 2, "keepalives_interval": 1, "keepalives_count": 3}
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row, "tcp_user_timeout": 4000, **alive}
    sizes: Any = {"min_size": 0, "max_size": 8, "timeout": 30, "open": False, "kwargs": options}
    awaited: Any = AsyncConnectionPool(url, check=AsyncConnectionPool.check_connection, **sizes)
    blocking: Any = ConnectionPool(url, check=ConnectionPool.check_connection, **sizes)
    async with awaited:
        with blocking:
            yield AsyncPostgresSaver(awaited), PostgresSaver(blocking)


async def main(kind: type[Worker], journal_url: str, saver_url: str, lease: str, options: str = "{}") -> None:
    lines: asyncio.StreamReader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    tasks = set()
    async with AsyncExitStack() as opened:
        savers = await opened.enter_async_context(savers_at(saver_url))
        journal = await opened.enter_async_context(await RunJournal.aopen(journal_url, lease=float(lease)))
        worker = kind(*savers, journal, **json.loads(options))

        async def do(number: int, verb: str, about: Any) -> None:
            try:
                answer = {"is": await getattr(worker, verb)(**about)}
            except Exception as exc:  # the worker lives on
                values = exc.values if isinstance(exc, errors.RunJournalError) else {"said": str(exc)}
                answer = {"error": type(exc).__name__, "run_id": values.get("run_id"), "said": str(exc)}
            print(json.dumps([number, answer]), flush=True)

        print("up", flush=True)
        while line := await lines.readline():
            task = asyncio.create_task(do(*json.loads(line)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(Worker, *sys.argv[1:]))
