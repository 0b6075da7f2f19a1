"""A real Postgres server fails in every way that we know of, while a program appends to its journal.

Each test asserts the same: an append neither waits nor raises; `flush` raises `WriteFailed`, which says where the events are
safe; and after the repair every event is in the store once, in order. No password is in a log line or an error.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from langchain_runjournal import RunJournal, errors
from langchain_runjournal.journal.core import core_of
from tests.support.failing_postgres import (
    PASSWORD,
    PATIENCE,
    Program,
    admin,
    new_database,
    started,
    terminate,
    wait_for,
)
from tests.support.proxy import Proxy
from tests.support.servers import PostgresServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server that tests may break. Each leaves it in order."""
    server = started()
    yield server
    server.destroy()


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def spools(tmp_path: Path) -> Path:
    directory = tmp_path / "spools"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture(autouse=True)
def no_password_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert PASSWORD not in caplog.text


Programs = Callable[..., Program]


@pytest.fixture
def programs(spools: Path) -> Iterator[Programs]:
    """Begins programs, and closes their journals."""
    begun: list[Program] = []

    def begin(url: str) -> Program:
        program = Program(url, spools)
        begun.append(program)
        program.say()
        program.journal.flush()
        return program

    yield begin
    for program in begun:
        try:
            program.journal.close()
        except errors.WriteFailed:
            pass


# --- the server ends ----------------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[PostgresServer], None]] = {
    "killed": lambda server: server.kill(),
    "immediate": lambda server: server.stop("immediate"),
    "fast": lambda server: server.stop("fast"),
}


@pytest.mark.parametrize("how", ENDS)
def test_the_server_is_restarted(how: str, server: PostgresServer, programs: Programs) -> None:
    """The spool takes the events while the server is away, and the store has them when it is back."""
    program = programs(new_database(server))
    ENDS[how](server)
    program.say()
    assert "onnection" in program.flush_fails()
    program.say()
    server.start()
    program.say()
    program.everything_is_there()


@pytest.mark.guarantee("full disk")
@pytest.mark.parametrize("how", ENDS)
def test_the_server_is_restarted_while_the_journal_writes(how: str, server: PostgresServer, programs: Programs) -> None:
    """However often the server ends in the middle of a batch, each event is there once."""
    program = programs(new_database(server))
    for _ in range(4):
        with program.talking():
            program.until_said(100)
            ENDS[how](server)
            program.until_said(50)
            server.start()
            program.until_said(100)
    program.everything_is_there()


def test_a_follower_follows_on(server: PostgresServer, programs: Programs, spools: Path) -> None:
    """A follower in another journal misses nothing, although the server was away. If it asks the server just then, it raises
    an error, and can follow again behind its last event."""
    url = new_database(server)
    program = programs(url)
    with RunJournal(url, spool_dir=spools) as other:
        heard: list[str] = []
        some, back = threading.Event(), threading.Event()

        def follow() -> None:
            while len(heard) < 150:
                with contextlib.suppress(errors.StoreUnreachable):
                    for event in other.follow(program.run_id, after=len(heard)):
                        heard.append(event.text)
                        some.set()
                        if len(heard) == 150:
                            return
                back.wait(PATIENCE)

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        assert some.wait(PATIENCE)
        server.kill()
        program.say()
        program.flush_fails()
        server.start()
        back.set()
        program.flush()
        program.say()
        program.flush()
        follower.join(PATIENCE)
        assert not follower.is_alive()
        assert heard == program.said
    program.everything_is_there()


def test_a_server_that_is_away_at_opening(server: PostgresServer, programs: Programs, spools: Path) -> None:
    """The error says so at once, and a later attempt succeeds."""
    url = new_database(server)
    server.stop()
    with pytest.raises(errors.StoreUnreachable, match=r"Connection refused") as caught:
        RunJournal(url, spool_dir=spools)
    assert PASSWORD not in str(caught.value) + repr(caught.value)
    server.start()
    programs(url).everything_is_there()


def test_the_process_ends_while_the_server_is_away(
    server: PostgresServer, programs: Programs, spools: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`close` and the log say where the events are, and the next journal on this machine imports them."""
    program = programs(new_database(server))
    server.kill()
    program.say()
    with pytest.raises(errors.WriteFailed, match=r"safe from a kill.*or start the server"):
        program.journal.close()
    [left] = [str(file) for file in spools.iterdir() if "-spool-" in file.name]
    assert f"its next open imports {left}, unless" in caplog.text
    server.start()
    with RunJournal(program.url, spool_dir=spools) as other:
        program.reads_all(other)
        assert core_of(other).store.check() == []


# --- connections end ----------------------------------------------------------------------------------------------------


def test_the_administrator_terminates_all_connections(server: PostgresServer, programs: Programs) -> None:
    """Again and again, also in the middle of a commit: nothing is lost, and nothing is there twice."""
    program = programs(new_database(server))
    gone = 0
    with program.talking(), admin(server) as con:
        while gone < 60:
            gone += terminate(con)
    program.everything_is_there()


def test_answers_are_lost(server: PostgresServer, proxy: Proxy, programs: Programs) -> None:
    """A batch whose outcome is unknown is appended again, and is there once."""
    program = programs(proxy.url(new_database(server)))
    for lost in range(1, 21):
        proxy.lose_answer_to(b"")  # whatever is sent next, which is before the events: else they may be stored by now
        program.say()
        program.flush()
        wait_for(lambda lost=lost: proxy.lost == lost)  # type: ignore[misc]
    program.everything_is_there()


def test_connections_are_reset(server: PostgresServer, proxy: Proxy, programs: Programs) -> None:
    """The journal connects again by itself."""
    program = programs(proxy.url(new_database(server)))
    with program.talking():
        for _ in range(50):
            proxy.cut()
            program.until_said(5)
    program.everything_is_there()


def test_this_machine_fails(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the file system, where the store reads its own migrations, is an error of the store."""

    def broken() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("langchain_runjournal.stores.postgres.opening.migrations", broken)
    with pytest.raises(errors.StoreFailed, match="Too many open files"):
        RunJournal(server.url())
