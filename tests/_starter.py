"""A process that starts runs: it does what it is asked, line by line, also several things at once.

python -m tests._starter HOME
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langchain_runjournal import Run, RunHandle, RunJournal, attach, errors, start_run
from tests._agents import Scripted
from tests._settled import story


class Speaker(Scripted):
    """Talks until it is stopped ("talk"), or says that it is fine."""

    scripts: list[list[Any]] = []  # noqa: RUF012 - a field
    speaking: int = 0
    """How many answers are being given now."""
    cancelled: int = 0

    async def _astream(self, messages: Any = (), *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        self.speaking += 1
        try:
            number = 0
            while messages[-1].text == "talk":
                number += 1
                yield ChatGenerationChunk(message=AIMessageChunk(f"{number} "))
                await asyncio.sleep(0.002)
            yield ChatGenerationChunk(message=AIMessageChunk("fine"))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.speaking -= 1


def graph_of(model: Speaker, saver: BaseCheckpointSaver[Any]) -> Any:
    """It asks a human first, if it is told to ("ask")."""

    async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def confirm(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"you said {interrupt('sure?')}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_node("confirm", confirm)
    graph.add_conditional_edges(START, lambda state: "confirm" if state["messages"][-1].text == "ask" else "answer")
    return graph.compile(checkpointer=saver, name="starter")


class Starter:
    """What it can be asked for. Every answer is one that JSON can hold."""

    def __init__(self, saver: BaseCheckpointSaver[Any], journal: RunJournal) -> None:
        self.model = Speaker()
        self.journal = journal
        self.graph = attach(graph_of(self.model, saver), journal)
        self.handles: dict[str, RunHandle] = {}

    async def start(self, thread: str, text: str = "", resume: str = "", **options: Any) -> str:
        given: Any = Command(resume=resume) if resume else {"messages": [("user", text)]}
        handle = await start_run(self.graph, given, {"configurable": {"thread_id": thread}}, **options)
        self.handles[handle.run_id] = handle
        return handle.run_id

    async def wait(self, run_id: str) -> Any:
        return _shown(await self.handles[run_id].wait())

    async def stop(self, run_id: str, **options: Any) -> Any:
        return _shown(await self.journal.astop(run_id, **options))

    async def said(self, run_id: str, after: int = 0) -> str:
        """Follow it to its end, and return its text."""
        return "".join([event.text async for event in self.journal.afollow(run_id, after)])

    async def thread(self, thread: str) -> Any:
        """What it holds, and what is next."""
        state = await self.graph.aget_state({"configurable": {"thread_id": thread}})
        return [story(state.values.get("messages", [])), list(state.next)]

    async def recover(self) -> int:
        return len(await self.journal.arecover(self.graph))

    async def at_work(self) -> Any:
        """Answers that are being given, how many were cancelled, and what the journal holds for runs in tasks."""
        capture = self.journal._capture
        return [self.model.speaking, self.model.cancelled, len(capture.started), len(capture.waiting)]

    async def die_at(self, of: str) -> None:
        """Be killed as soon as the store has done this, once more."""
        done = getattr(self.journal._store, of)

        def die(*args: Any, **kwargs: Any) -> None:
            done(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(self.journal._store, of, die)


def _shown(run: Run) -> Any:
    return {"run_id": run.run_id, "status": run.status, "cause": run.cause, "settled": run.settled, "stop": run.stop}


async def main(home: Path) -> None:
    lines: asyncio.StreamReader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with (
        AsyncSqliteSaver.from_conn_string(str(home / "threads.db")) as saver,
        RunJournal(home / "runs.db") as journal,
    ):
        starter = Starter(saver, journal)
        tasks = set()

        async def do(number: int, verb: str, about: Any) -> None:
            try:
                answer = {"is": await getattr(starter, verb)(**about)}
            except errors.RunJournalError as exc:
                answer = {"error": type(exc).__name__, **exc.values}
            print(json.dumps([number, answer]), flush=True)

        print("up", flush=True)
        while line := await lines.readline():
            tasks.add(asyncio.create_task(do(*json.loads(line))))
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
