"""A process that starts runs: it does what each line asks for, also several things at once. Both sides are in this module.

python -m tests.support.starter HOME
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langchain_runjournal import Run, RunHandle, RunJournal, attach, errors, start_run
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.runs.admission import lines_of
from tests.support.agents import Scripted
from tests.support.conversations import story
from tests.support.places import place_of

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds, for work that takes a few at most

# --- the side that asks -------------------------------------------------------------------------------------------------


class Failed(Exception):
    """The exception that another process has raised while it did what it was asked to do."""

    def __init__(self, error: str, **values: Any) -> None:
        super().__init__(f"{error}: {values.get('said', '')}")
        self.error = error
        self.run_id = values.get("run_id")


class Process:
    """Another process with a `Starter`, as the asking process sees it."""

    def __init__(self, home: Path, command: list[str] | None = None, env: dict[str, str] | None = None) -> None:
        command = command or [sys.executable, "-m", "tests.support.starter", str(home)]
        # A file, so that a process that logs much does not have to wait for a reader.
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._said, "text": True}
        self.process = subprocess.Popen(command, cwd=ROOT, env=env, **pipes)
        self._numbers = count()
        self._answers: dict[int, concurrent.futures.Future[Any]] = {}
        self._reader = threading.Thread(target=self._read)

    def up(self) -> Process:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            number, answer = json.loads(line)
            waiting = self._answers.pop(number)
            waiting.set_exception(Failed(**answer)) if "error" in answer else waiting.set_result(answer["is"])

    def ask(self, verb: str, **about: Any) -> concurrent.futures.Future[Any]:
        """Ask the process to do something, and do not wait."""
        assert self.process.stdin is not None
        number = next(self._numbers)
        self._answers[number] = answer = concurrent.futures.Future()
        self.process.stdin.write(json.dumps([number, verb, about]) + "\n")
        self.process.stdin.flush()
        return answer

    def do(self, verb: str, **about: Any) -> Any:
        """Ask the process to do something, and wait for the answer."""
        return self.ask(verb, **about).result(PATIENCE)

    def kill(self) -> int:
        self.process.kill()
        return self.process.wait(PATIENCE)

    def leave(self, within: float = PATIENCE) -> int:
        """Let the process end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(within)

    def close(self) -> str:
        """End the process, and return what it has logged."""
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGCONT)
                self.leave()
        finally:
            self.kill()
            if self._reader.is_alive():
                self._reader.join(PATIENCE)
            self._said.seek(0)
            said = self._said.read()
            for file in (self.process.stdin, self.process.stdout, self._said):
                assert file is not None
                file.close()
        return said


# --- the side that is asked ---------------------------------------------------------------------------------------------


class Speaker(Scripted):
    """A model that talks until it is stopped ("talk"), or says that it is fine."""

    scripts: list[list[Any]] = []  # noqa: RUF012 - a field
    speaking: int = 0
    """The number of answers that are being given now."""
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
    """Return a graph. It asks a human first if the message says so ("ask")."""

    async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def confirm(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        var_child_runnable_config.set(config)  # on Python 3.10, LangGraph cannot do this in asynchronous code
        return {"messages": [AIMessage(f"you said {interrupt('sure?')}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_node("confirm", confirm)
    graph.add_conditional_edges(START, lambda state: "confirm" if state["messages"][-1].text == "ask" else "answer")
    return graph.compile(checkpointer=saver, name="starter")


class Starter:
    """What the process can be asked for. Every answer can be written as JSON."""

    def __init__(self, saver: BaseCheckpointSaver[Any], journal: RunJournal) -> None:
        self.model = Speaker()
        self.journal = journal
        self.graph = attach(graph_of(self.model, saver), journal, capture_invoke=True)
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
        """Follow a run to its end, and return its text."""
        return "".join([event.text async for event in self.journal.afollow(run_id, after)])

    async def thread(self, thread: str) -> Any:
        """Return the messages of a thread, and its next nodes."""
        state = await self.graph.aget_state({"configurable": {"thread_id": thread}})
        return [story(state.values.get("messages", [])), list(state.next)]

    async def recover(self) -> int:
        return len(await self.journal.arecover(self.graph))

    async def at_work(self) -> Any:
        """Return the number of running answers, of cancelled answers, and what the journal holds for runs in tasks."""
        started, waiting = core_of(self.journal).local_runs, lines_of(self.journal).last
        return [self.model.speaking, self.model.cancelled, len(started), len(waiting)]

    async def die_at(self, of: str) -> None:
        """Kill this process as soon as the store has done this once more."""
        done = getattr(core_of(self.journal).store, of)

        def die(*args: Any, **kwargs: Any) -> None:
            done(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(core_of(self.journal).store, of, die)


def _shown(run: Run) -> Any:
    return {"run_id": run.run_id, "status": run.status, "cause": run.cause, "settled": run.settled, "stop": run.stop}


async def main(home: Path) -> None:
    lines: asyncio.StreamReader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with place_of(home).asaver() as saver, place_of(home).open() as journal:
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
