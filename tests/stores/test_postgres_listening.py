"""The thread that listens to a Postgres server: nothing needs a notification, and the log says whether they arrive."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.stores.postgres import PostgresStore
from langchain_runjournal.stores.postgres.trial import NO_NOTIFY, POOLER, SILENCE, Trial
from langchain_runjournal.testing.store_contract.support import deltas, row
from tests.stores.test_postgres_failures import proxy, server
from tests.support.failing_postgres import PATIENCE, wait_for
from tests.support.proxy import Proxy
from tests.support.servers import PgBouncer, PostgresServer

__all__ = ["proxy", "server"]

NOTIFICATION = re.compile(rb"A\0\0\0\x14.{4}runjournal\0\0", re.DOTALL)
"""What the server sends to a connection that listens: the process that notifies, the channel, and no payload."""
POLLS = "no notifications arrive"
HEARD = "notifications arrive from"


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.new_database()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="langchain_runjournal")
    return caplog


@pytest.fixture
def no_slow_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has heard a notification asks once an hour. Any other one asks often, however slow the test is."""
    monkeypatch.setattr("langchain_runjournal.stores.postgres.connections._IN_USE", 3600.0)
    monkeypatch.setattr("langchain_runjournal.stores.postgres.listening._SLOW", 3600.0)


@pytest.fixture
def quick_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five trials take a quarter of a second."""
    monkeypatch.setattr("langchain_runjournal.stores.postgres.trial._PAUSE", 0.05)


@pytest.fixture
def one_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second trial of a connection comes after an hour, and so does the verdict."""
    monkeypatch.setattr("langchain_runjournal.stores.postgres.trial._PAUSE", 3600.0)


class Reader:
    """A store that listens."""

    def __init__(self, url: str) -> None:
        self.store = PostgresStore(url)
        self._woken = threading.Event()
        self.store.listen(self._woken.set)
        self.forget = self._woken.clear

    def hears(self) -> bool:
        """Whether a notification has arrived on the connection that it has now."""
        listener = self.store._listener
        assert listener is not None
        trial = listener.trial
        return trial is not None and trial.session is listener.session and trial.heard

    def sees(self, count: int) -> None:
        """Wait for a wake-up, after which the run has so many events. Meanwhile ask for `changed`, as a journal does."""
        give_up = time.monotonic() + PATIENCE
        while True:
            while not self._woken.wait(0.1):
                assert time.monotonic() < give_up, "no wake-up"
                self.store.changed()
            self.forget()
            if len(self.store.read("r", 0, None)) >= count:
                return


Open = Callable[[str], Reader]


@pytest.fixture
def reader() -> Iterator[Open]:
    """Opens stores that listen."""
    opened: list[Reader] = []

    def one(url: str) -> Reader:
        opened.append(Reader(url))
        return opened[-1]

    yield one
    for each in opened:
        each.store.close()


class Writer:
    """Another store, which appends to the run one event at a time."""

    def __init__(self, url: str) -> None:
        self.store = PostgresStore(url)
        self.count = 0

    def writes(self) -> int:
        self.count += 1
        self.store.append("me", [row(deltas("r", 1, self.count))])
        return self.count


@pytest.fixture
def writer(url: str) -> Iterator[Writer]:
    writer = Writer(url)
    yield writer
    writer.store.close()


def each_wakes(writer: Writer, *readers: Reader, times: int = 10) -> None:
    """Check that each of ten events wakes all readers."""
    for _ in range(times):
        for one in readers:
            one.forget()
        count = writer.writes()
        for one in readers:
            one.sees(count)


def said(log: pytest.LogCaptureFixture) -> list[str]:
    """Return what the log says about notifications."""
    return [record.getMessage() for record in log.records if "notifications arrive" in record.getMessage()]


# --- directly -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_slow_poll")
def test_a_notification_wakes(url: str, reader: Open, writer: Writer, log: pytest.LogCaptureFixture) -> None:
    """After the trial has arrived, a notification alone wakes the journal, and the log says nothing."""
    one = reader(url)
    wait_for(one.hears)
    each_wakes(writer, one)
    assert said(log) == []


@pytest.mark.usefixtures("no_slow_poll", "one_trial")
def test_nothing_waits_for_the_trial(
    url: str, proxy: Proxy, reader: Open, writer: Writer, log: pytest.LogCaptureFixture
) -> None:
    """As long as no notification has arrived, the thread asks often. When one arrives, it stops that."""
    proxy.hides = NOTIFICATION
    one = reader(proxy.url(url))
    wait_for(lambda: proxy.hidden)
    each_wakes(writer, one)
    assert not one.hears()
    proxy.hides = None
    writer.writes()
    wait_for(one.hears)
    each_wakes(writer, one)
    assert said(log) == []


@pytest.mark.usefixtures("quick_trials")
def test_a_trial_that_is_lost_is_repeated(
    url: str, proxy: Proxy, reader: Open, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """Until the trials are used up."""
    monkeypatch.setattr("langchain_runjournal.stores.postgres.trial._TRIALS", 1_000_000)
    proxy.hides = NOTIFICATION
    one = reader(proxy.url(url))
    wait_for(lambda: proxy.hidden >= 3)
    proxy.hides = None
    wait_for(one.hears)
    assert said(log) == []


def test_a_slow_server_gets_no_verdict(
    url: str, proxy: Proxy, reader: Open, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """A trial arrives before the next answer on the connection, so the first answer would do for a verdict. Time does not:
    a machine under load, or a cable that is cut, holds back both."""
    monkeypatch.setattr("langchain_runjournal.stores.postgres.listening._QUICK", 0.0)
    monkeypatch.setattr("langchain_runjournal.stores.postgres.trial._PAUSE", 0.0)
    monkeypatch.setattr("langchain_runjournal.stores.postgres.trial._TRIALS", 1)
    one = reader(f"{proxy.url(url)}?busy_timeout=0.1")
    listener = one.store._listener
    assert listener is not None
    for _ in range(8):
        wait_for(one.hears)
        session = listener.session
        proxy.cut()
        wait_for(lambda: listener.session is not session)  # noqa: B023 - it is over before the next round
    proxy.stand_still()
    wait_for(lambda: listener.session is None, "the end of a silent connection")
    proxy.go_on()
    wait_for(one.hears)
    assert said(log) == []


@pytest.mark.usefixtures("no_slow_poll", "quick_trials")
def test_silence_is_said_once(url: str, proxy: Proxy, reader: Open, writer: Writer, log: pytest.LogCaptureFixture) -> None:
    """If no trial arrives, the log says so, and each event wakes. If a notification arrives later, the log says that."""
    proxy.hides = NOTIFICATION
    one = reader(proxy.url(url))
    wait_for(lambda: POLLS in log.text)
    each_wakes(writer, one)
    assert not one.hears()
    proxy.hides = None
    writer.writes()
    wait_for(one.hears)
    each_wakes(writer, one)
    wait_for(lambda: len(said(log)) == 2)
    polls, heard = said(log)
    assert SILENCE in polls
    assert heard.startswith(HEARD)


@pytest.mark.usefixtures("no_slow_poll", "quick_trials")
def test_each_connection_is_tried(
    url: str, proxy: Proxy, reader: Open, writer: Writer, log: pytest.LogCaptureFixture
) -> None:
    """A connection that was lost and made anew may lead another way: first without notifications, then with them."""
    one = reader(proxy.url(url))
    wait_for(one.hears)
    proxy.hides = NOTIFICATION
    proxy.cut()
    wait_for(lambda: POLLS in log.text)
    each_wakes(writer, one)
    proxy.hides = None
    proxy.cut()
    wait_for(one.hears)
    each_wakes(writer, one)
    wait_for(lambda: len(said(log)) == 2)
    assert said(log)[1].startswith(HEARD)


def test_a_lost_notification_delays_only(
    url: str, proxy: Proxy, reader: Open, writer: Writer, log: pytest.LogCaptureFixture
) -> None:
    """If notifications stop after the first ones, on the same connection, the thread asks all the same."""
    one = reader(proxy.url(url))
    wait_for(one.hears)
    proxy.hides = NOTIFICATION
    each_wakes(writer, one, times=3)
    wait_for(lambda: proxy.hidden >= 3)
    assert one.hears()
    assert said(log) == []


def test_who_asks_for_changes_uses_the_store(reader: Open, url: str) -> None:
    """A journal with a follower asks once a second, also while the followed run says nothing. Then the thread asks often."""
    store = reader(url).store
    assert store._is_in_use()
    store._used_at = float("-inf")
    assert not store._is_in_use()
    store.changed()
    assert store._is_in_use()


@pytest.mark.usefixtures("no_slow_poll")
def test_a_database_without_notify(url: str, reader: Open, log: pytest.LogCaptureFixture) -> None:
    """The log says so, and each event wakes."""
    with psycopg.connect(url, autocommit=True) as con:
        con.execute("ALTER FUNCTION pg_notify(text, text) RENAME TO gone")
    writer = Writer(url)
    one = reader(url)
    each_wakes(writer, one)
    writer.store.close()
    wait_for(lambda: POLLS in log.text)
    assert NO_NOTIFY in log.text


# --- through a pooler ---------------------------------------------------------------------------------------------------

MODES = ("session", "transaction")
Poolers = Callable[[str], PgBouncer]


@pytest.fixture
def pooler(server: PostgresServer) -> Iterator[Poolers]:
    """Starts poolers, which keep no connection to the server after the test."""
    begun: list[PgBouncer] = []

    def start(mode: str) -> PgBouncer:
        begun.append(PgBouncer(server, mode))
        begun[-1].start()
        return begun[-1]

    yield start
    for one in begun:
        one.destroy()


@pytest.mark.usefixtures("no_slow_poll")
def test_a_pooler_in_session_mode(
    url: str, pooler: Poolers, reader: Open, writer: Writer, log: pytest.LogCaptureFixture
) -> None:
    """Notifications arrive there."""
    one = reader(pooler("session").url(url))
    wait_for(one.hears)
    each_wakes(writer, one)
    assert said(log) == []


@pytest.mark.usefixtures("no_slow_poll")
def test_a_pooler_in_transaction_mode(
    url: str, pooler: Poolers, reader: Open, writer: Writer, log: pytest.LogCaptureFixture
) -> None:
    """The log says what is in between, and no LISTEN is left on the connections that the pooler lends."""
    pooled = pooler("transaction").url(url)
    readers = [reader(pooled) for _ in range(3)]
    wait_for(lambda: len(said(log)) == 3)
    assert all(POOLER in text for text in said(log))
    each_wakes(writer, *readers)
    assert listening(pooled) == []
    assert len(said(log)) == 3


def test_what_arrives_through_a_pooler_settles_nothing(url: str) -> None:
    """A pooler lends a connection on which somebody else listens: what arrives there does not say that ours will."""
    store = PostgresStore(url)
    session = store._connect()
    try:
        trial = Trial(store, session)
        trial.arrived()
        assert (trial.heard, trial.reason) == (True, "")
        session.is_shared = True
        trial.go_on()
        assert (trial.heard, trial.reason) == (False, POOLER)
        trial.arrived()
        assert (trial.heard, trial.reason) == (False, POOLER)
    finally:
        session.close()
        store.close()


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_prepared_through_a_pooler(mode: str, url: str, pooler: Poolers) -> None:
    """So no statement fails there because it was prepared on another connection."""
    with contextlib.closing(PostgresStore(pooler(mode).url(url))) as store:
        for number in range(5):
            store.append("me", [row(deltas("r", 1, 1 + number))])
        with store._at_writer() as session:
            assert session.execute("SELECT name FROM pg_prepared_statements").fetchall() == []


def listening(url: str) -> list[str]:
    """Return the channels to which the connections listen that a pooler has to the server."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(12):  # at the same time, so that each has a connection of its own
            con = stack.enter_context(psycopg.connect(url))
            found += [channel for (channel,) in con.execute("SELECT pg_listening_channels()")]
        return found


@pytest.mark.usefixtures("quick_trials")
def test_a_pooler_that_shows_itself_later(
    url: str, pooler: Poolers, reader: Open, writer: Writer, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """Where the first look does not find the pooler out, an answer of another process of the server does."""
    monkeypatch.setattr(Trial, "_is_lent", lambda _: False)
    monkeypatch.setattr("langchain_runjournal.stores.postgres.trial._TRIALS", 1_000_000)
    pooled = pooler("transaction").url(url)
    one = reader(pooled)
    each_wakes(writer, one, times=1)
    with contextlib.ExitStack() as stack:
        for _ in range(6):  # hold the connections that the pooler has lent before
            stack.enter_context(psycopg.connect(pooled)).execute("SELECT 1")
        wait_for(lambda: POOLER in log.text)
        each_wakes(writer, one)
    each_wakes(writer, one)
    assert not one.hears()
    assert len(said(log)) == 1


@pytest.mark.usefixtures("no_slow_poll")
@pytest.mark.parametrize("mode", MODES)
def test_a_pooler_is_put_in_between(
    mode: str, url: str, proxy: Proxy, pooler: Poolers, reader: Open, writer: Writer, log: pytest.LogCaptureFixture
) -> None:
    """While the journal is open; and it is taken away again. Each event wakes, whichever way the connection leads."""
    proxied, direct = proxy.url(url), proxy.target
    one = reader(proxied)
    wait_for(one.hears)
    each_wakes(writer, one)
    proxy.target = pooler(mode).port
    proxy.cut()
    each_wakes(writer, one)
    wait_for(one.hears if mode == "session" else lambda: POOLER in log.text)
    proxy.target = direct
    proxy.cut()
    each_wakes(writer, one)
    wait_for(one.hears)
    assert len(said(log)) == (0 if mode == "session" else 2)


def test_a_pooler_without_transactions_is_refused(url: str, pooler: Poolers) -> None:
    """It says so with the code of a lost connection, and trying again would not help."""
    with pytest.raises(errors.StoreUnusable, match="Set pool_mode of the pooler to transaction or session"):
        RunJournal(pooler("statement").url(url))


@pytest.mark.usefixtures("no_slow_poll")
@pytest.mark.parametrize("mode", MODES)
def test_journals_through_a_pooler(mode: str, url: str, pooler: Poolers) -> None:
    """One follows the run of another one, and stops it."""
    pooled = pooler(mode).url(url)
    with RunJournal(pooled) as owner, RunJournal(pooled) as other:
        for number in range(5):
            owner.append(Event(run_id="r", kind="llm.ai.delta", data={"text": f"{number} "}, call_id="c"))
        owner.flush()
        owner.on_stop("r", lambda cause: owner.append(Event(run_id="r", kind="run.end", data={"cause": cause})))
        kinds = []
        for event in other.follow("r"):
            kinds.append(event.kind)
            if event.seq == 5:
                assert other.stop("r", "timeout", wait=True).ended
        assert kinds == [*["llm.ai.delta"] * 5, "run.stop", "run.end"]
