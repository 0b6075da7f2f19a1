"""A database server that loses what it had confirmed: the runs that are running there go on, with a gap that is reported."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from langchain_runjournal import Event, RunJournal, RunStatus, errors
from langchain_runjournal.journal.core import core_of
from tests.support.servers import PostgresServer

pytestmark = pytest.mark.slow

PATIENCE = 60.0
SAID = Event(run_id="r", kind="llm.ai.delta", call_id="c", data={"text": "word "})


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that confirms a commit before it is on its disk."""
    server = PostgresServer(synchronous_commit="off", wal_writer_delay="10s")
    server.start()
    yield server
    server.destroy()


def say(journal: RunJournal, times: int) -> None:
    for _ in range(times):
        journal.append(SAID)
    journal.flush()


def write_all_so_far(url: str) -> None:
    """Have the server write its log: a commit that waits for the disk takes the earlier ones with it."""
    with psycopg.connect(url, autocommit=True) as con:
        con.execute("SET synchronous_commit = on")
        con.execute("CREATE TABLE written ()")


def crash(server: PostgresServer, journal: RunJournal) -> None:
    server.kill()
    give_up = time.monotonic() + PATIENCE
    while True:  # the children of a killed server still hold its memory for a moment
        try:
            server.start()
            break
        except RuntimeError:
            assert time.monotonic() < give_up
    while True:
        try:
            core_of(journal).store.run("r")
            return
        except errors.StoreFailed:
            assert time.monotonic() < give_up


def test_a_live_run_goes_on_behind_what_the_server_has_lost(
    server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its later events and its end are stored, the gap is counted in `Run.lost`, and the log names it once."""
    url = server.new_database()
    with RunJournal(url, spool_dir=tmp_path) as journal:
        journal.append(Event(run_id="r", kind="run.start", data={"thread_id": "t"}))
        say(journal, 9)
        write_all_so_far(url)
        say(journal, 20)
        assert journal.run("r").last_seq == 30
        crash(server, journal)
        kept = journal.run("r").last_seq
        assert 10 <= kept < 30, "the server has lost nothing, so this test shows nothing"
        say(journal, 5)
        journal.append(Event(run_id="r", kind="run.end", data={"status": "completed"}))
        journal.flush()
        run = journal.run("r")
        assert (run.status, run.last_seq, run.lost) == (RunStatus.COMPLETED, 36, 30 - kept)
        assert [event.seq for event in journal.read("r", after=30)] == list(range(31, 37))
        with pytest.raises(errors.EventsMissing):
            journal.read("r")
    told = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR and "has lost" in one.getMessage()]
    assert len(told) == 1
    assert f"(seq {kept + 1} to 30)" in told[0]


def test_a_run_that_was_deleted_does_not_come_back(server: PostgresServer, tmp_path: Path) -> None:
    """The store has nothing of it, so what its owner still says of it is refused."""
    url = server.new_database()
    with RunJournal(url, spool_dir=tmp_path) as journal:
        journal.append(Event(run_id="r", kind="run.start", data={"thread_id": "t"}))
        say(journal, 3)
        core_of(journal).store.delete(["r"])
        with pytest.raises(errors.RunFenced):
            say(journal, 1)
        assert journal.runs() == []
