"""examples/deploy/worker.py as real processes on a real Postgres: a worker stops, follows and continues runs of another."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import psycopg.sql
import pytest

pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
pytest.importorskip("langgraph.checkpoint.postgres")

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.journal.core import core_of
from tests.journeys.test_server import PATIENCE, ROOT, Server, counted, end_of, hear, text_of
from tests.support.failing_postgres import wait_for
from tests.support.machines import need_machines
from tests.support.servers import PostgresServer, postgres_url

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]

PASSWORD = "correct horse / battery @ staple %41"
LONG, GOAL = "Count to 100000", 400  # the first takes minutes, the second some seconds


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    """A server that asks the user `app` for a password, as the one of docker-compose.yml does."""
    server = PostgresServer()
    rules = server.data / "pg_hba.conf"
    rules.write_text(f"host all app 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    server.start()
    with psycopg.connect(server.url(), autocommit=True) as con:
        con.execute(psycopg.sql.SQL("CREATE ROLE app LOGIN PASSWORD {}").format(PASSWORD))
        con.execute("CREATE DATABASE app OWNER app")
    yield server
    server.destroy()


class Worker(Server):
    """A worker, with the variables that docker-compose.yml gives it."""

    app = ("--app-dir", str(ROOT / "examples" / "deploy"), "worker:app")

    def __init__(self, home: Path, database: PostgresServer) -> None:
        self._database = database
        super().__init__(home)

    def environment(self, home: Path) -> dict[str, str]:
        (home / "spool").mkdir(mode=0o700, exist_ok=True)
        (home / "database_password").write_text(f"{PASSWORD}\n")
        return {
            "RUNJOURNAL_URL": f"postgresql://app@127.0.0.1:{self._database.port}/app",
            "RUNJOURNAL_SPOOL_DIR": str(home / "spool"),
            "DATABASE_PASSWORD_FILE": str(home / "database_password"),
            "WORKER_PACE": "0.01",
        }

    def look(self) -> Any:
        return self.get("/ready"), self.get("/alive")

    def send(self, text: str, thread: str = "t", **more: Any) -> str:
        """Begin a run, and return its id."""
        answer = self.client.post(f"/threads/{thread}/messages", json={"text": text, **more}).raise_for_status()
        return str(answer.json()["run_id"])

    def said_by(self, thread: str) -> tuple[str, list[bool]]:
        """All answers of a thread in a row, and which of its messages are partial."""
        messages = self.get(f"/threads/{thread}")
        answers = "".join(one["text"] for one in messages if one["text"][:1].isdigit())
        return answers, [one["is_partial"] for one in messages]


class Container(Worker):
    """A worker that cannot look up the processes of another one, as in a container: its heartbeat tells whether it lives."""

    prefix = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        if how == signal.SIGTERM and self.process.poll() is None:  # `unshare` does not pass it on
            for child in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
                os.kill(int(child), how)
        return super().end(how)


Workers = Callable[..., list[Worker]]


@pytest.fixture
def workers(tmp_path: Path, database: PostgresServer) -> Iterator[Workers]:
    """That many workers, which share the database and the volume of the spool. What they have complained of is looked at."""
    opened: list[Worker] = []

    def open_workers(count: int, kind: type[Worker] = Worker) -> list[Worker]:
        with ThreadPoolExecutor(count) as together:  # as `docker compose up` starts them
            opened.extend(together.map(lambda _: kind(tmp_path, database), range(count)))
        return opened[-count:]

    yield open_workers
    for worker in opened:
        worker.end()
    assert [worker.complaints() for worker in opened] == [""] * len(opened)
    assert PASSWORD not in "".join(line for worker in opened for line in worker.said)


@pytest.mark.parametrize("kind", [Worker, Container])
def test_a_worker_stops_follows_and_continues_the_runs_of_another(workers: Workers, kind: type[Worker]) -> None:
    """Each word that was counted is in the thread once: after a stop from the other worker, and after a kill."""
    if kind is Container:
        need_machines()
    a, b = workers(2, kind)
    run_id = a.send(f"Count to {GOAL}", kind.__name__)
    with b.events(run_id) as events:
        heard, seq = hear(events, 5)
    stopped = b.stop(run_id)
    assert (stopped["status"], stopped["cause"], stopped["settled"]) == ("interrupted", "stop", True)
    assert end_of(b.rest(run_id, seq)) == ("interrupted", "stop")
    shown, marks = a.said_by(kind.__name__)
    assert shown.startswith(heard)
    assert marks == [False, True]

    killed = a.send("Continue", kind.__name__)
    with b.events(killed) as events:
        more, seq = hear(events, 20)
        a.end(signal.SIGKILL)
        continued = b.send("Continue", kind.__name__)  # in a container, this waits for the lease
        rest = list(events)  # up to the end that the second worker has written
    assert end_of(rest) == ("interrupted", "crash")
    assert end_of(b.rest(continued)) == ("completed", None)
    whole, marks = b.said_by(kind.__name__)
    assert whole == counted(GOAL)
    assert whole.startswith(shown + more + text_of(rest))
    assert marks == [False, True, False, True, False, False]


def test_a_worker_that_is_told_to_end_settles_its_runs(workers: Workers) -> None:
    """SIGTERM, as `docker stop` sends it: the run ends with the cause shutdown, and the other worker continues it."""
    a, b = workers(2)
    run_id = a.send(LONG, "u")
    with b.events(run_id) as events:
        heard, _ = hear(events, 5)
        assert a.end() == -signal.SIGTERM
        rest = list(events)
    assert end_of(rest) == ("interrupted", "shutdown")
    assert b.said_by("u") == (heard + text_of(rest), [False, True])
    assert end_of(b.rest(b.send("Count to 3", "u"))) == ("completed", None)


def test_one_run_at_a_time_on_a_thread_of_two_workers(workers: Workers) -> None:
    """A second message is refused by whichever worker it reaches, with the id of the run that is running."""
    a, b = workers(2)
    run_id = a.send(LONG, "v")
    answers = [one.client.post("/threads/v/messages", json={"text": "Count to 3"}) for one in (a, b)]
    assert [(one.status_code, one.json()) for one in answers] == [(409, {"detail": {"run_id": run_id}})] * 2
    assert b.stop(run_id)["cause"] == "stop"
    assert end_of(b.rest(b.send("Count to 3", "v"))) == ("completed", None)


def test_an_unknown_run_is_not_found(workers: Workers) -> None:
    """404 with the reason, and nothing in the log: the worker has not failed because of a wrong id."""
    (a,) = workers(1)
    for verb, path in (("GET", "/runs/nope/events"), ("POST", "/runs/nope/stop")):
        answer = a.client.request(verb, path)
        assert (answer.status_code, "has no run 'nope'" in answer.json()["detail"]) == (404, True)


ASKED = [
    ("GET", "/ready"),
    ("GET", "/threads/x"),
    ("GET", "/runs/RUN_ID/events"),
    ("POST", "/runs/RUN_ID/stop"),
    ("POST", "/threads/x/messages"),
]


def test_the_database_is_away_and_comes_back(tmp_path: Path, database: PostgresServer) -> None:
    """Meanwhile, each request gets 503 with one line, the worker is alive, and no traceback is logged. When the worker is
    ready again, threads can be read and written at once: readiness covers the checkpointer's connections as well."""
    worker = Worker(tmp_path, database)
    try:
        run_id = worker.send("Count to 3", "x")
        worker.rest(run_id)
        for asked in (ASKED[:1], ASKED):  # at first, only /ready is asked
            with ThreadPoolExecutor(8) as together:  # so that the checkpointer's pool has several connections to lose
                list(together.map(lambda _: worker.get("/threads/x"), range(32)))
            before = worker.get("/threads/x")
            database.kill()
            try:
                for verb, path in asked:
                    more: Any = {"json": {"text": "Count to 3"}} if path.endswith("messages") else {}
                    answer = worker.client.request(verb, path.replace("RUN_ID", run_id), **more)
                    assert (path, answer.status_code) == (path, 503)
                    assert answer.json() == {"detail": "The database cannot be reached. Try again."}
                assert worker.get("/alive") == "alive"
            finally:
                database.start()
            wait_for(lambda: worker.client.get("/ready").status_code == 200, "readiness")
            assert worker.get("/threads/x") == before
            assert end_of(worker.rest(worker.send("Count to 3", "x"))) == ("completed", None)
    finally:
        worker.end()
    said = "".join(worker.said)
    assert "Traceback" not in said, said
    assert said.count("GET /threads/x: couldn't get a connection after") == 1
    assert PASSWORD not in said


def test_a_stream_ends_when_the_database_goes_away(tmp_path: Path, database: PostgresServer) -> None:
    """A client that follows the run of another worker gets the end of the stream, continues later after the last event that
    it has, and has heard each event once."""
    a, b = (Worker(tmp_path, database) for _ in range(2))
    try:
        run_id = a.send(f"Count to {GOAL}", "y")
        with b.events(run_id) as events:
            heard = [next(events)]
            database.kill()
            try:
                heard += events
            finally:
                database.start()
        wait_for(lambda: b.client.get("/ready").status_code == 200, "readiness")
        heard += b.rest(run_id, heard[-1]["seq"])
        assert [event["seq"] for event in heard] == list(range(1, len(heard) + 1))
        assert heard[-1]["kind"] == "run.end"
    finally:
        for worker in (a, b):
            worker.end()
    assert "Traceback" not in "".join(b.said)


def test_the_command_finds_the_runs(workers: Workers, tmp_path: Path, database: PostgresServer) -> None:
    """With the variables of the worker, and the password from the file."""
    (a,) = workers(1)
    run_id = a.send("Count to 3", "w")
    a.rest(run_id)
    listed = subprocess.run(
        [sys.executable, "-m", "langchain_runjournal", "list", "--thread", "w", "--json"],
        env={**os.environ, **a.environment(tmp_path), "PGPASSWORD": PASSWORD},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert listed.returncode == 0, listed.stderr
    assert [json.loads(line)["run_id"] for line in listed.stdout.splitlines()] == [run_id]


def test_the_queries_of_the_page_find_what_is_open(tmp_path: Path) -> None:
    """docs/deploying.md: runs that are not settled, and the heartbeats of owners with their running runs."""
    url = postgres_url()
    open_runs, heartbeats = re.findall(r"^```sql\n(.*?)^```", (ROOT / "docs" / "deploying.md").read_text(), re.M | re.S)
    with RunJournal(url, spool_dir=tmp_path) as journal, psycopg.connect(url, autocommit=True) as con:
        ends: dict[str, dict[str, Any] | None] = {
            "running": None,
            "left": {"status": "failed", "settled": False},
            "done": {"status": "completed"},
        }
        for run_id, end in ends.items():
            journal.append(Event(run_id=run_id, kind="run.start", data={"thread_id": f"t-{run_id}"}))
            if end is not None:
                journal.append(Event(run_id=run_id, kind="run.end", data=end))
        journal.flush()
        found = con.execute(open_runs).fetchall()  # type: ignore[arg-type]
        assert [row[:3] for row in found] == [("running", "t-running", "running"), ("left", "t-left", "failed")]
        assert [row[4] is None for row in found] == [True, False]
        ((owner, _, pid, lease, beats, running),) = con.execute(heartbeats).fetchall()  # type: ignore[arg-type]
        assert (owner, pid, lease, running) == (journal.owner_id, os.getpid(), 15.0, 1)
        duties = core_of(journal).writer.duties
        duties.give(duties.beat)
        journal.append(Event(run_id="running", kind="run.end", data={"status": "completed"}))
        journal.flush()
        assert con.execute(heartbeats).fetchall()[0][4] == beats + 1  # type: ignore[arg-type]
