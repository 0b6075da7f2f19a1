"""A real server whose client disconnects in the middle of an answer: its thread is valid, and the next message works.

python -m tests.journeys.test_settle_server HOME KIND PLACE(of the cut-off, or -) is a worker in a process of its own.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typing_extensions import Self

from langchain_runjournal import RunJournal, attach
from tests.settle.test_settle_matrix import PLACES
from tests.support.agents import words
from tests.support.conversations import PATIENCE, Gate, Recording, build, nothing_is_wrong, open_saver, story, tools_of
from tests.support.places import Place, is_of_pool, on, place_of

fastapi = pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")

ROOT = Path(__file__).parents[2]
# On Python 3.10 the node of create_agent does not pass on its config, and LangChain calls no callback for its model calls.
KINDS = ("by hand",) if sys.version_info < (3, 11) else ("agent", "by hand")
LEFT = {
    # where the client leaves: what it has received by then
    "the model": "one two ",
    "the third tool": "Looking. ",
    "the model after a tool": "Looking. one two ",
}


class Client:
    """Asks the server at a port."""

    port: int

    def post(self, text: str, durability: str) -> tuple[str, http.client.HTTPConnection, http.client.HTTPResponse]:
        run_id = str(uuid4())
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        body = json.dumps({"text": text, "run_id": run_id, "durability": durability})
        client.request("POST", "/chat", body, {"content-type": "application/json"})
        return run_id, client, client.getresponse()

    def ask(self, text: str, durability: str) -> str:
        _, client, response = self.post(text, durability)
        try:
            return response.read().decode()
        finally:
            client.close()


@dataclass
class Server(Client):
    """One agent behind one address, on a thread of its own."""

    journal: RunJournal
    kind: str
    path: str
    """The path or the URL of the checkpoints."""
    gate: Gate = field(default_factory=Gate)
    model: Recording = field(default_factory=Recording)
    port: int = 0

    def __enter__(self) -> Self:
        listening = self.listen()
        # Only the main thread may handle signals, and this test sends none.
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]})
        self.thread.start()
        return self

    def listen(self) -> socket.socket:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(self.app(), log_level="error", ws="none", timeout_graceful_shutdown=int(PATIENCE))
        self.server = uvicorn.Server(config)
        return listening

    def __exit__(self, *exc: object) -> None:
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()

    def app(self) -> Any:
        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            servers = asyncio.all_tasks()
            async with open_saver(None, self.path, "pool") as saver:
                self.loop = asyncio.get_running_loop()
                self.agent = attach(build(self.kind, self.model, tools_of(self.gate), saver), self.journal)
                yield
                # Tasks that could not be stopped must end before the saver is closed.
                self.gate.open()
                others = {task for task in asyncio.all_tasks() - servers if not is_of_pool(task)}
                if others:
                    await asyncio.wait(others, timeout=PATIENCE)

        app = fastapi.FastAPI(lifespan=lifespan)

        @app.post("/chat")
        async def chat(asked: dict[str, str]) -> Any:
            config: Any = {"configurable": {"thread_id": "thread"}, "run_id": asked["run_id"]}
            given = {"messages": [("user", asked["text"])]}

            async def spoken() -> AsyncIterator[str]:
                stream = self.agent.astream(given, config, stream_mode="messages", durability=asked["durability"])
                async for message, _ in stream:
                    if message.type == "AIMessageChunk" and message.text:
                        yield message.text

            return fastapi.responses.StreamingResponse(spoken(), media_type="text/plain")

        @app.post("/seen")
        async def seen() -> Any:
            """What the model was asked last, and what the thread holds."""
            state = await self.agent.aget_state({"configurable": {"thread_id": "thread"}})
            return [story(self.model.seen[-1]), story(state.values["messages"]), list(state.next)]

        return app

    def state(self) -> Any:
        read = self.agent.aget_state({"configurable": {"thread_id": "thread"}})
        return asyncio.run_coroutine_threadsafe(read, self.loop).result(PATIENCE)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[RunJournal]:
    with RunJournal(tmp_path / "runs.db") as journal:
        yield journal


@pytest.mark.parametrize("place", LEFT)
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_client_goes_away(journal: RunJournal, tmp_path: Path, kind: str, durability: str, place: str) -> None:
    """The thread keeps what the client had received and the results of finished tools, and the next message is answered."""
    with nothing_is_wrong(), Server(journal, kind, str(tmp_path / "threads.db")) as server:
        server.model.say(words("hel", "lo"))
        assert server.ask("hi", durability) == "hello"
        server.model.say(*PLACES[place].scripts(server.gate.apass), words("never"))
        run_id, client, response = server.post("go", durability)
        assert response.read(len(LEFT[place])).decode() == LEFT[place]
        assert server.gate.held.wait(PATIENCE)
        results = 0
        for event in journal.follow(run_id) if PLACES[place].results else ():
            results += event.kind == "llm.tool.result"
            if results == PLACES[place].results:
                break
        response.close()
        client.close()
        ends = [event.data for event in journal.follow(run_id) if event.kind == "run.end"]
        assert [(end["status"], end.get("settled", True)) for end in ends] == [("interrupted", True)]
        left = ["U hi", "A hello", "U go", *PLACES[place].left]
        state = server.state()
        assert (story(state.values["messages"]), state.next, state.tasks) == (left, (), ())
        server.model.say(words("fi", "ne"))
        assert server.ask("next", durability) == "fine"
        assert story(server.model.seen[-1]) == [*left, "U next"]
        assert len(journal.runs("thread")) == 3


# --- two workers --------------------------------------------------------------------------------------------------------


class Worker(Client):
    """A server in a process of its own. `cut_off`: the place at which its second turn waits."""

    def __init__(self, home: str, kind: str, cut_off: str = "-") -> None:
        command = [sys.executable, "-m", "tests.journeys.test_settle_server", home, kind, cut_off]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def up(self) -> Self:
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        return self

    def seen(self) -> Any:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        client.request("POST", "/seen")
        try:
            return json.loads(client.getresponse().read())
        finally:
            client.close()

    def end(self) -> None:
        with self.process as process:
            process.terminate()
            process.wait(PATIENCE)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("durability", ["async", pytest.param("exit", marks=pytest.mark.storm)])
@pytest.mark.parametrize("cut_off", ["the model", "the third tool"])
@pytest.mark.parametrize("how", ["the client leaves", "the worker is killed"])
@on("postgres", "redis", storm=["redis"])
def test_the_next_message_reaches_another_worker(place: Place, how: str, cut_off: str, durability: str) -> None:
    """A client leaves one worker in mid-answer, or that worker is killed: the other one has all that was shown and done."""
    workers = [Worker(place.home, KINDS[0], cut_off), Worker(place.home, KINDS[0])]
    try:
        first, second = (worker.up() for worker in workers)
        with place.open() as journal:
            assert first.ask("hi", durability) == "hello"
            run_id, client, response = first.post("go", durability)
            assert response.read(len(LEFT[cut_off])).decode() == LEFT[cut_off]
            results = 0
            for event in journal.follow(run_id) if PLACES[cut_off].results else ():
                results += event.kind == "llm.tool.result"
                if results == PLACES[cut_off].results:
                    break
            if how == "the worker is killed":
                first.process.send_signal(signal.SIGKILL)
                first.process.wait(PATIENCE)
            response.close()
            client.close()
            if how == "the client leaves":
                assert [event.kind for event in journal.follow(run_id)][-1] == "run.end"
            assert second.ask("next", durability) == "fine"
            left = ["U hi", "A hello", "U go", *PLACES[cut_off].left]
            assert second.seen() == [[*left, "U next"], [*left, "U next", "A fine"], []]
            runs = {run.run_id: run for run in journal.runs("thread")}
            assert len(runs) == 3
            assert [[event.kind for event in journal.follow(one)][-1] for one in runs] == ["run.end"] * 3
            assert all(run.settled for run in journal.runs("thread"))
            assert (journal.run(run_id).cause == "crash") == (how == "the worker is killed")
    finally:
        for worker in workers:
            worker.end()


def serve(home: Path, kind: str, cut_off: str) -> None:
    """Serve until SIGTERM."""
    place = place_of(home)
    with place.open() as journal:
        server = Server(journal, kind, place.threads)
        if cut_off == "-":
            server.model.say(words("fi", "ne"))
        else:
            server.model.say(words("hel", "lo"), *PLACES[cut_off].scripts(server.gate.apass), words("never"))
        with server.listen() as listening:
            print(server.port, flush=True)
            server.server.run(sockets=[listening])


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
