"""`langgraph dev` with an attached graph: runs that are cancelled over its API, left, taken back, shut down and killed.

Run it with ``make langgraph-server``, which has an environment of its own for it: the server is under the Elastic License
2.0 and never a dependency of this package.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import messages_from_dict
from typing_extensions import Self

from langchain_runjournal import RunJournal
from tests.support.conversations import story

pytest.importorskip("langgraph_api", reason="make langgraph-server")
pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "programs" / "langgraph_dev"
PATIENCE = 20.0
NO_THREAD = "LangGraph keeps nothing of this thread"
GRAPHS = ("chat", "made")
TALKED = ["U talk", "A~ one two three "]
LOOKED = ["U look", "A Let me look. (c1,c2)", "T(c1) quick 1", "T*(c2) started"]
LEFT = {"talk": TALKED, "look": LOOKED}
SHOWN = {"talk": "three", "fail": "three", "look": '"slow"'}


class Server:
    """`langgraph dev` in a directory, which it can be started in again."""

    def __init__(self, home: Path) -> None:
        from langgraph_sdk import get_client

        self.home = home
        shutil.copytree(PROGRAM, home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.get_client = lambda: get_client(url=self.url)
        self.log = home / "server.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--port", str(self.port)]
        quiet = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1"}
        environment = {**os.environ, **quiet}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.home, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        give_up = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/ok", timeout=PATIENCE) as answer:
                assert answer.status == 200
                return
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < give_up, self.log.read_text()
            time.sleep(0.05)  # for another process, which says nothing else

    def end(self, by: int) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, by)
            self.process.wait(PATIENCE)
            self.process = None

    def sent(self) -> list[list[str]]:
        """What the model was sent last: the type and the text of each message."""
        return [tuple(one) for one in json.loads((self.home / "requests.jsonl").read_text().splitlines()[-1])]

    def complaints(self) -> list[str]:
        """What the server's log has of us that is wrong, and every blocking call that it found in its loop."""
        lines = self.log.read_text(errors="replace").splitlines()
        ours = [line for line in lines if "langchain_runjournal" in line and ("error " in line or "warning " in line)]
        return ours + [line for line in lines if "blocking call" in line.lower()]


@contextmanager
def served(home: Path) -> Iterator[Server]:
    server = Server(home)
    server.start()
    try:
        yield server
    finally:
        server.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all that does not end it."""
    with served(tmp_path_factory.mktemp("langgraph")) as server:
        yield server
        assert [line for line in server.complaints() if NO_THREAD not in line] == []


class Chat:
    """A thread of the server, and its user."""

    def __init__(self, server: Server, graph: str) -> None:
        self.server, self.graph = server, graph
        self.client = server.get_client()
        self.thread: str | None = None
        self.run = ""
        self.reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.leave()
        await self.client.aclose()

    async def open(self) -> None:
        self.thread = (await self.client.threads.create())["thread_id"]

    async def leave(self) -> None:
        """Close the stream, as a closed tab does."""
        if self.reading is not None:
            self.reading.cancel()
            await asyncio.wait([self.reading])

    async def begin(self, text: str, **options: Any) -> None:
        """Send a message, and return when the user has seen enough of the answer."""
        seen = asyncio.Event()

        async def read() -> None:
            stream = self.client.runs.stream(
                self.thread,
                self.graph,
                input=_given(text),
                stream_mode="messages-tuple",
                on_run_created=lambda about: setattr(self, "run", about["run_id"]),
                **options,
            )
            async for part in stream:
                if SHOWN[text] in json.dumps(part.data):
                    seen.set()

        self.reading = asyncio.create_task(read())
        await asyncio.wait_for(seen.wait(), PATIENCE)
        if text == "look":
            await asyncio.wait_for(asyncio.to_thread(self.follow_to, "llm.tool.result"), PATIENCE)

    def follow_to(self, kind: str) -> None:
        """Read the run as any process does, until there is an event of that kind."""
        give_up = time.monotonic() + PATIENCE
        with RunJournal(self.server.home / "runs.db") as journal:
            while not any(run.run_id == self.run for run in journal.runs()):
                assert time.monotonic() < give_up
                time.sleep(0.02)  # what another process has appended is in the store a moment later
            assert any(event.kind == kind for event in journal.follow(self.run))

    async def ask(self, text: str, **options: Any) -> list[str]:
        """Send a message, and wait for the answer. Returns the thread."""
        values = await self.client.runs.wait(self.thread, self.graph, input=_given(text), **options)
        return story(_messages(values))

    async def cancel(self, action: Any = "interrupt") -> None:
        await self.client.runs.cancel(self.thread, self.run, wait=True, action=action)

    async def state(self) -> tuple[list[str], list[str]]:
        """The thread in the server's own checkpointer, and what is left to run on it."""
        state: Any = await self.client.threads.get_state(self.thread)
        return story(_messages(state["values"] or {})), list(state["next"])

    async def ended(self, status: str) -> None:
        """Wait until the server has nothing to do on the thread."""

        give_up = time.monotonic() + PATIENCE
        while (await self.client.runs.get(self.thread, self.run))["status"] != status:
            assert time.monotonic() < give_up
            await asyncio.to_thread(time.sleep, 0.05)  # the server tells of no end


def _given(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def _messages(values: dict[str, Any]) -> list[Any]:
    return messages_from_dict([{"type": one["type"], "data": one} for one in values.get("messages", [])])


def runs_of(server: Server, thread: str) -> list[Any]:
    """The runs of a thread as any other process finds them, the oldest first."""
    with RunJournal(server.home / "runs.db") as journal:
        return sorted(journal.runs(thread_id=thread), key=lambda run: run.started_at)


@pytest.mark.parametrize("text", LEFT)
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_run_that_is_cancelled(server: Server, graph: str, text: str) -> None:
    """POST .../cancel, in mid-sentence and in a tool: when it returns, GET .../state has what was shown and done, nothing is
    left to run, and the next message is sent to the model behind all of it."""

    async def talk() -> None:
        async with Chat(server, graph) as chat:
            await chat.open()
            assert await chat.ask("first") == ["U first", "A answer to first"]
            await chat.begin(text)
            await chat.cancel()
            thread = ["U first", "A answer to first", *LEFT[text]]
            assert await chat.state() == (thread, [])
            assert await chat.ask("next") == [*thread, "U next", "A answer to next"]
        kinds = [kind for kind, _ in server.sent()]
        words = {"U": "human", "A": "ai", "T": "tool"}
        assert kinds == [words[line[0]] for line in [*thread, "U next"]]
        [_, cut, _] = await asyncio.to_thread(runs_of, server, chat.thread)
        assert cut.run_id == chat.run
        assert (cut.status, cut.settled) == ("interrupted", True)

    asyncio.run(talk())


def test_a_client_that_goes_away(server: Server) -> None:
    """A stream with on_disconnect=cancel whose connection is closed: the same."""

    async def talk() -> None:
        async with Chat(server, "chat") as chat:
            await chat.open()
            await chat.begin("talk", on_disconnect="cancel")
            await chat.leave()
            await asyncio.wait_for(asyncio.to_thread(chat.follow_to, "run.end"), PATIENCE)
            assert await chat.state() == (TALKED, [])

    asyncio.run(talk())


def test_a_message_in_between(server: Server) -> None:
    """multitask_strategy=interrupt: the new message stands behind what the run that it has cut short had said."""

    async def talk() -> None:
        async with Chat(server, "chat") as chat:
            await chat.open()
            await chat.begin("talk")
            assert await chat.ask("next", multitask_strategy="interrupt") == [*TALKED, "U next", "A answer to next"]

    asyncio.run(talk())


@pytest.mark.parametrize("how", ["cancel", "message"])
def test_a_run_that_is_taken_back(server: Server, how: str) -> None:
    """action=rollback, and multitask_strategy=rollback: nothing of the run is left in the thread, neither its message nor
    the partial answer."""

    async def talk() -> None:
        async with Chat(server, "chat") as chat:
            await chat.open()
            thread = await chat.ask("first")
            await chat.begin("talk")
            if how == "cancel":
                await chat.cancel("rollback")
                assert await chat.state() == (thread, [])
                assert await chat.ask("next") == [*thread, "U next", "A answer to next"]
            else:
                assert await chat.ask("next", multitask_strategy="rollback") == [*thread, "U next", "A answer to next"]

    asyncio.run(talk())


def test_a_run_that_fails(server: Server) -> None:
    """A provider that drops the stream: the partial answer is in the thread, and the next message works."""

    async def talk() -> None:
        async with Chat(server, "chat") as chat:
            await chat.open()
            await chat.begin("fail")
            await asyncio.wait_for(asyncio.to_thread(chat.follow_to, "run.end"), PATIENCE)
            assert await chat.state() == (["U fail", TALKED[1]], [])
            assert await chat.ask("next") == ["U fail", TALKED[1], "U next", "A answer to next"]

    asyncio.run(talk())


def test_a_run_without_a_thread(server: Server) -> None:
    """POST /runs/stream: there is no thread to settle, which a warning says; the words are in the journal."""

    async def talk() -> None:
        async with Chat(server, "chat") as chat:
            await chat.begin("talk", on_disconnect="cancel")

        await asyncio.wait_for(asyncio.to_thread(chat.follow_to, "run.end"), PATIENCE)
        async with RunJournal(server.home / "runs.db") as journal:
            assert story(await journal.atranscript(chat.run)) == TALKED
            assert not (await journal.arun(chat.run)).settled
        assert any(NO_THREAD in line for line in server.complaints())

    asyncio.run(talk())


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_server_that_is_shut_down(by: int, tmp_path: Path) -> None:
    """The run that it had at work is settled in its checkpointer before it is gone. At its next start the server runs it
    again, as it does without us, and that attempt is settled as well when it is cancelled."""
    server = Server(tmp_path)

    async def first() -> Chat:
        async with Chat(server, "chat") as chat:
            await chat.open()
            await chat.begin("talk")
            await asyncio.to_thread(server.end, by)
        return chat

    async def second(before: Chat) -> None:
        async with Chat(server, "chat") as chat:
            chat.thread, chat.run = before.thread, before.run
            await chat.ended("running")
            await _has_spoken(server, 2)
            await chat.cancel()
            assert await chat.state() == ([*TALKED, *TALKED], [])
            assert await chat.ask("next") == [*TALKED, *TALKED, "U next", "A answer to next"]

    try:
        server.start()
        chat = asyncio.run(first())
        [run] = runs_of(server, chat.thread)
        assert run.settled
        server.start()
        asyncio.run(second(chat))
        assert [run.settled for run in runs_of(server, chat.thread)] == [True, True, True]
    finally:
        server.end(signal.SIGKILL)


async def _has_spoken(server: Server, times: int) -> None:
    """Wait until the model was asked so often, and what it says has reached the journal."""
    give_up = time.monotonic() + PATIENCE

    def spoken() -> bool:
        if len((server.home / "requests.jsonl").read_text().splitlines()) < times:
            return False
        with RunJournal(server.home / "runs.db") as journal:
            [newest, *_] = journal.runs(limit=1)
            return any("three" in event.text or event.kind == "llm.tool.result" for event in journal.read(newest.run_id))

    while not await asyncio.to_thread(spoken):
        assert time.monotonic() < give_up
        await asyncio.sleep(0.05)


async def _cut_off_by_a_kill(server: Server, text: str, *, stored: bool) -> Chat:
    """`stored`: not before the server has written its checkpoints to its files, which it does every ten seconds."""
    async with Chat(server, "chat") as chat:
        await chat.open()
        await chat.begin(text)
        if stored:
            files = server.home / ".langgraph_api"
            give_up = time.monotonic() + PATIENCE
            while not list(files.glob(".langgraph_checkpoint.*")) or not (files / ".langgraph_ops.pckl").exists():
                assert time.monotonic() < give_up
                await asyncio.sleep(0.05)
        await asyncio.to_thread(server.end, signal.SIGKILL)
    return chat


async def _next(server: Server, before: Chat) -> list[str]:
    async with Chat(server, "chat") as chat:
        assert before.thread is not None
        chat.thread = before.thread
        await chat.client.threads.create(thread_id=before.thread, if_exists="do_nothing")
        return await chat.ask("next", multitask_strategy="interrupt")


def test_a_server_that_is_killed(tmp_path: Path) -> None:
    """kill -9 before the server has written its checkpoints, which it keeps in memory: the thread is gone, as it is without
    us. The journal has every word that was shown, the run says that it is not settled, and why, and so does a warning."""
    server = Server(tmp_path)
    try:
        server.start()
        chat = asyncio.run(_cut_off_by_a_kill(server, "look", stored=False))
        server.start()
        assert asyncio.run(_next(server, chat)) == ["U next", "A answer to next"]
        [cut, _] = runs_of(server, str(chat.thread))
        assert (cut.run_id, cut.settled) == (chat.run, False)
        assert cut.problem == "the checkpointer of this graph has no such thread"
        with RunJournal(server.home / "runs.db") as journal:
            assert story(journal.transcript(cut.run_id)) == LOOKED[:3]
        [warning] = server.complaints()
        assert f"run {chat.run} is not settled: its checkpointer has no thread" in warning
    finally:
        server.end(signal.SIGKILL)


@pytest.mark.parametrize("text", LEFT)
def test_a_server_that_is_killed_after_it_has_written(text: str, tmp_path: Path) -> None:
    """kill -9 after that: the server runs the killed run again at its next start; before it does, the thread gets what the
    first attempt had shown and done. A message that cuts the second attempt short finds both."""
    server = Server(tmp_path)
    try:
        server.start()
        chat = asyncio.run(_cut_off_by_a_kill(server, text, stored=True))
        server.start()
        asyncio.run(_has_spoken(server, 2))
        thread = asyncio.run(_next(server, chat))
        assert thread[:-2] == [*LEFT[text], *LEFT[text]]
        assert thread[-2:] == ["U next", "A answer to next"]
        assert [run.settled for run in runs_of(server, str(chat.thread))] == [True, True, True]
        assert server.complaints() == []
    finally:
        server.end(signal.SIGKILL)
