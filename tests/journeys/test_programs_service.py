"""The service whose lifespan sets the checkpointer, behind a real uvicorn: Stop, a client that goes away, and kill -9."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import messages_from_dict
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from typing_extensions import Self

from langchain_runjournal import RunJournal
from tests.programs import lifespan
from tests.programs._stage import PATIENCE, Stage
from tests.support.conversations import nothing_is_wrong, story
from tests.support.programs import CASES, RUN_ID, Case, check_model_input, check_whole, first_turn, next_answer

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")

ROOT = Path(__file__).parents[2]
SERVED = [case for case in CASES if case.program == "lifespan"]
SPOKEN = [case for case in SERVED if case.point in ("agent1:mid", "dig:in", "agent2:mid")]


class Client:
    """Asks the service."""

    def __init__(self, port: int) -> None:
        self.port = port

    def open(self, path: str, **body: Any) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("POST", path, json.dumps({"thread": "thread", **body}), {"content-type": "application/json"})
        return connection, connection.getresponse()

    def post(self, path: str, **body: Any) -> Any:
        connection, response = self.open(path, **body)
        try:
            assert response.status == 200
            return json.loads(response.read())
        finally:
            connection.close()

    def thread(self) -> list[Any]:
        """The messages of the thread, on which nothing is left to run."""
        found = self.post("/history")
        messages = messages_from_dict([{"type": one["type"], "data": one} for one in found["messages"]])
        check_whole(messages)
        assert found["next"] == []
        return messages


class Service(Client):
    """The service on a thread of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.stage = Stage()
        self.journal = RunJournal(home / "runs.db")

    def __enter__(self) -> Self:
        listening = socket.create_server(("127.0.0.1", 0))
        super().__init__(listening.getsockname()[1])
        agent = lifespan.build(self.stage, self.journal)
        app = lifespan.app_of(agent, AsyncSqliteSaver.from_conn_string(str(self.home / "threads.db")))
        config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=int(PATIENCE))
        self.server = uvicorn.Server(config)
        self.thread_ = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]})
        self.thread_.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.should_exit = True
        self.thread_.join(PATIENCE)
        assert not self.thread_.is_alive()
        self.journal.close()

    def ended(self, run: int) -> Any:
        for event in self.journal.follow(RUN_ID.format(run)):
            if event.kind == "run.end":
                break
        return self.journal.run(RUN_ID.format(run))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with nothing_is_wrong(), Service(tmp_path) as service:
        yield service


def _go(service: Service, case: Case) -> None:
    assert service.post("/invoke", text="first", run_id=RUN_ID.format(1)) == {"text": "answer to first"}
    needs = None if case.needs is None else (service.journal, RUN_ID.format(2), *case.needs)
    service.stage.arm(case.point, "wait", needs)


def _next(service: Service, case: Case) -> None:
    run = service.ended(2)
    assert run.settled
    assert run.thread_id == "thread"
    thread = service.thread()
    assert story(thread) == [*first_turn(case), *case.left]
    assert service.post("/invoke", text="next", run_id=RUN_ID.format(3)) == {"text": "answer to next"}
    check_model_input(service.stage, case, thread)
    assert story(service.thread()) == [*story(thread), "U next", next_answer(case)]


@pytest.mark.parametrize("case", SERVED, ids=str)
def test_stopped_by_the_service(case: Case, service: Service) -> None:
    """/stop, anywhere: the thread in the checkpointer that the lifespan has set is whole when it returns."""
    _go(service, case)
    service.post("/start", text="go", run_id=RUN_ID.format(2))
    assert service.stage.reached.wait(PATIENCE)
    service.post("/stop")
    _next(service, case)


@pytest.mark.parametrize("case", SPOKEN, ids=str)
def test_left_by_its_client(case: Case, service: Service) -> None:
    """A browser that is closed in the middle of /stream: what it was shown is in the thread."""
    _go(service, case)
    connection, response = service.open("/stream", text="go", run_id=RUN_ID.format(2))
    assert service.stage.reached.wait(PATIENCE)
    shown = response.read1().decode()
    response.close()
    connection.close()
    run = service.ended(2)
    assert run.cause in ("disconnect", "stop")
    assert shown
    assert "".join(one.text for one in service.thread() if one.type == "ai").startswith("answer to first" + shown)
    _next(service, case)
    service.stage.release()


# --- a process --------------------------------------------------------------------------------------------------------


@contextmanager
def process(home: Path, point: str) -> Iterator[tuple[Client, subprocess.Popen[str]]]:
    """The service in a process of its own. `point`: where it is to be killed."""
    command = [sys.executable, "-m", "tests.journeys.test_programs_service", str(home), point]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as one:
        assert one.stdout is not None
        try:
            yield Client(int(one.stdout.readline())), one
        finally:
            one.kill()


def serve(home: Path, point: str) -> None:
    """Serve until killed, at the point of a turn."""
    journal = RunJournal(home / "runs.db")
    stage = Stage()
    case = next((case for case in SERVED if case.point == point), None)
    if case is not None:
        stage.arm(point, "die", None if case.needs is None else (journal, RUN_ID.format(2), *case.needs))
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    app = lifespan.app_of(lifespan.build(stage, journal), AsyncSqliteSaver.from_conn_string(str(home / "threads.db")))
    asyncio.run(uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none")).serve(sockets=[listening]))


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.parametrize("case", SPOKEN, ids=str)
def test_killed_service(case: Case, tmp_path: Path) -> None:
    """kill -9 of the whole service: after the restart, the next message finds what was shown and done."""
    with process(tmp_path, "nowhere") as (client, _):
        client.post("/invoke", text="first", run_id=RUN_ID.format(1))
    with process(tmp_path, case.point) as (client, one):
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            connection, response = client.open("/stream", text="go", run_id=RUN_ID.format(2))
            with contextlib.closing(connection):
                response.read()
        assert one.wait(PATIENCE) == -signal.SIGKILL
    with process(tmp_path, "nowhere") as (client, _):
        assert client.post("/invoke", text="next", run_id=RUN_ID.format(3)) == {"text": "answer to next"}
        assert story(client.thread()) == [*first_turn(case), *case.left, "U next", next_answer(case)]


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2])
