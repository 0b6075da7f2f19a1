"""A Redis server that has reached `maxmemory`: the command that makes room can open the journal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from langchain_runjournal import Event, RunJournal, errors
from tests.stores.test_redis_failures import server
from tests.support.command_line import data, run
from tests.support.servers import RedisServer

__all__ = ["server"]
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def worker(server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunJournal]:
    """A journal with two runs that have ended and one that has not, on a server without memory."""
    monkeypatch.setenv("RUNJOURNAL_URL", server.url())
    monkeypatch.setenv("RUNJOURNAL_SPOOL_DIR", str(tmp_path))
    with RunJournal(server.url(), spool_dir=tmp_path) as journal:
        for run_id in ("live", "first", "second"):
            journal.append(Event(run_id=run_id, kind="run.start", data={"thread_id": run_id}))
        for run_id in ("first", "second"):
            journal.append(Event(run_id=run_id, kind="run.end"))
        journal.flush()
        limit(server, "1mb")
        yield journal
        limit(server, "0")


def limit(server: RedisServer, memory: str) -> None:
    with redis.Redis(port=server.port) as client:
        client.config_set("maxmemory", memory)


def ids(journal: RunJournal) -> set[str]:
    return {found.run_id for found in journal.runs()}


def test_a_worker_starts_and_keeps_its_events(server: RedisServer, worker: RunJournal, tmp_path: Path) -> None:
    """When it closes before there is room, it leaves its spool, and the next journal that finds room imports it."""
    restarted = RunJournal(server.url(), spool_dir=tmp_path)
    assert ids(restarted) == {"live", "first", "second"}
    restarted.append(Event(run_id="new", kind="run.start"))
    for barrier in (restarted.flush, restarted.close):
        with pytest.raises(errors.WriteFailed, match="Raise maxmemory"):
            barrier()
    with RunJournal(server.url(), spool_dir=tmp_path) as third:
        assert third.prune(keep_last=0) == ["first", "second"]
        assert ids(third) == {"live"}
    done = run("list")
    assert (done.exit_code, "Traceback" in done.stderr) == (0, False), done.stderr
    limit(server, "0")
    with RunJournal(server.url(), spool_dir=tmp_path) as fourth:
        assert ids(fourth) == {"live", "new"}


def test_each_command_that_makes_room_works(worker: RunJournal) -> None:
    """It reads, stops a run that another process has, and deletes."""
    asked = threading.Event()
    worker.on_stop("live", lambda cause: asked.set())
    assert {one["run_id"] for one in data("list")} == {"live", "first", "second"}
    assert len(data("show", "first")) > 0
    assert run("check").exit_code == 0
    assert run("stop", "live", "--no-wait").exit_code == 0
    assert asked.wait(60)
    assert [one["run_id"] for one in data("delete", "second", "--yes")] == ["second"]
    assert [one["run_id"] for one in data("prune", "--keep-last", "0", "--vacuum")] == ["first"]
    assert [one["run_id"] for one in data("list")] == ["live"]


def test_a_new_journal_on_a_server_without_memory(server: RedisServer) -> None:
    """It is refused, and the error says what to do. Nothing stays of it."""
    limit(server, "1mb")
    with pytest.raises(errors.StoreFailed, match="Raise maxmemory of the server, or delete runs"):
        RunJournal(server.url())
    with redis.Redis(port=server.port) as client:
        assert client.keys("*") == []
