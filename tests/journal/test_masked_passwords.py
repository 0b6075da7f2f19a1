"""The password of a URL: the driver gets it, and nobody else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from langchain_runjournal import Event, RunJournal, errors, view
from langchain_runjournal.journal.core import core_of
from tests.support.servers import PostgresServer, RedisServer

SECRET = "hunter2"


@pytest.fixture(params=["postgres", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of our own, and `url` with a password."""
    found: Any = PostgresServer(fsync="off") if request.param == "postgres" else RedisServer(appendfsync="no")
    found.start()
    if request.param == "postgres":
        found.secret_url = found.new_database().replace("//postgres@", f"//postgres:{SECRET}@")
    else:
        with redis.Redis.from_url(found.url()) as client:
            client.config_set("requirepass", SECRET)
        found.secret_url = found.url().replace("//", f"//:{SECRET}@")
    yield found
    found.destroy()


def messages_of(error: BaseException | None) -> list[str]:
    """Everything that a traceback of an error of ours would show, without the lines of its causes' modules."""
    found = []
    while error is not None:
        found += [str(error), repr(error), repr(getattr(error, "values", ""))]
        error = error.__cause__
    return found


def test_no_password_leaves_the_journal(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Not in `repr`, the URL, events, a run, a page, the names of threads, log lines and errors, on a server that works and
    on one that does not."""
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []

    def refused(call: Callable[[], object]) -> None:
        with pytest.raises(errors.RunJournalError) as caught:
            call()
        seen.extend(messages_of(caught.value))

    journal = RunJournal(server.secret_url, lease=600)
    journal.append(Event(run_id="r", kind="run.start", data={"thread_id": "t"}))
    journal.append(Event(run_id="r", kind="run.end"))
    journal.flush()
    core = core_of(journal)
    seen += [repr(journal), journal.url, repr(core.store), repr(vars(core)), repr(journal.run("r")), repr(journal.recovered)]
    seen += [repr([event.to_dict() for event in journal.read("r")]), journal.run("r")._repr_html_()]
    seen += [view.page([(journal.run("r"), journal.read("r"))])]
    seen += [thread.name for thread in threading.enumerate()]
    refused(lambda: journal.run("unknown"))
    server.kill()
    journal.append(Event(run_id="s", kind="run.start"))
    refused(journal.flush)
    refused(journal.runs)
    refused(lambda: RunJournal(server.secret_url))
    refused(journal.close)
    refused(journal.flush)
    seen += [record.getMessage() + str(record.exc_text) for record in caplog.records]
    seen.append(caplog.text)
    assert len(seen) > 20
    assert not [text for text in seen if SECRET in text]


def test_a_wrong_password_is_not_said(server: Any) -> None:
    """The error says that the password is wrong, and not what it was."""
    if isinstance(server, PostgresServer):
        hba = server.data / "pg_hba.conf"
        hba.write_text(hba.read_text().replace("trust", "scram-sha-256"))
        server.stop()
        server.is_ready = lambda: True  # type: ignore[method-assign]
        server.start()
    wrong = server.secret_url.replace(SECRET, "letmein")
    with pytest.raises((errors.StoreUnusable, errors.StoreUnreachable)) as caught:
        RunJournal(wrong)
    assert not [text for text in messages_of(caught.value) if "letmein" in text]


@pytest.mark.parametrize(
    "url",
    [
        f"postgre://u:{SECRET}@h/db",
        f"mysql+pymysql://u:{SECRET}@h/db",
        f"redis://:{SECRET}@h/not a number",
        f"redis://h/0?password={SECRET}&retain=soon",
        f"postgresql://u:{SECRET}@h:port/db",
        f"postgresql://u:{SECRET}\0@h/db",
        f"postgresql://u:{SECRET}@h/db".encode(),
        Path(f"postgresql://u:{SECRET}@h/db"),
        f"host=h user=u password={SECRET}",
        f"password = {SECRET}",
    ],
    ids=str,
)
def test_a_url_that_cannot_be_opened_is_masked(url: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each error that names a URL or a value names it without the password; no file is created."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.RunJournalError) as caught:
        RunJournal(url)
    assert not [text for text in messages_of(caught.value) if SECRET in text]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["postgresql://h/db", "redis://h/0"])
def test_options_of_sqlite_do_not_go_with_a_server(url: str) -> None:
    """`synchronous` is an option of SQLite, and the error says so; `busy_timeout` is checked before anything is opened."""
    with pytest.raises(errors.InvalidArgument, match="synchronous"):
        RunJournal(url, synchronous="full")
    with pytest.raises(errors.InvalidArgument, match="busy_timeout"):
        RunJournal(url, busy_timeout=-1)


def test_busy_timeout_reaches_the_server(server: Any) -> None:
    """As a keyword, or in the URL; given twice it is refused."""
    with RunJournal(server.secret_url, busy_timeout=2.5) as journal:
        assert core_of(journal).busy_timeout == 2.5
    with RunJournal(f"{server.secret_url}?busy_timeout=1.5") as journal:
        assert core_of(journal).busy_timeout == 1.5
    with pytest.raises(errors.InvalidArgument, match="busy_timeout"):
        RunJournal(f"{server.secret_url}?busy_timeout=1.5", busy_timeout=2)


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("postgre://h/db", "postgres"),
        ("postgresql+asyncpg://h/db", "postgresql"),
        ("valky://h", "valkey"),
        ("sqllite:///x", "sqlite"),
    ],
)
def test_an_unknown_scheme_names_the_near_one(url: str, near: str) -> None:
    """And the message shows a URL of each kind."""
    with pytest.raises(errors.UnknownStore, match=f"did you mean '{near}'") as caught:
        RunJournal(url)
    assert "postgresql://user@host/database" in str(caught.value)
    assert "redis://host" in str(caught.value)
