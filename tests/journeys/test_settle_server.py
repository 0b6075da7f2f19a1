"""A real server whose client disconnects in the middle of an answer: its thread is valid, and the next message works."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from typing_extensions import Self

from langchain_runjournal import RunJournal, attach
from tests.settle.test_settle_matrix import PLACES
from tests.support.agents import words
from tests.support.conversations import PATIENCE, Gate, Recording, build, nothing_is_wrong, story, tools_of

fastapi = pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")

# On Python 3.10 the node of create_agent does not pass on its config, and LangChain calls no callback for its model calls.
KINDS = ("by hand",) if sys.version_info < (3, 11) else ("agent", "by hand")
LEFT = {
    # where the client leaves: what it has received by then
    "the model": "one two ",
    "the third tool": "Looking. ",
    "the model after a tool": "Looking. one two ",
}


@dataclass
class Server:
    """One agent behind one address, on a thread of its own."""

    journal: RunJournal
    kind: str
    path: str
    gate: Gate = field(default_factory=Gate)
    model: Recording = field(default_factory=Recording)
    port: int = 0

    def __enter__(self) -> Self:
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(self.app(), log_level="error", ws="none", timeout_graceful_shutdown=int(PATIENCE))
        self.server = uvicorn.Server(config)
        # Only the main thread may handle signals, and this test sends none.
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]})
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()

    def app(self) -> Any:
        @asynccontextmanager
        async def lifespan(app: Any) -> AsyncIterator[None]:
            servers = asyncio.all_tasks()
            async with AsyncSqliteSaver.from_conn_string(self.path) as saver:
                self.loop = asyncio.get_running_loop()
                self.agent = attach(build(self.kind, self.model, tools_of(self.gate), saver), self.journal)
                yield
                # Tasks that could not be stopped must end before the saver is closed.
                self.gate.open()
                others = asyncio.all_tasks() - servers
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

        return app

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
