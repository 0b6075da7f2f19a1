"""A real Postgres server that hands over to another one, which has all or nearly all of its data.

The module `test_postgres_failures` says what each test asserts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.events.segments import pack
from langchain_runjournal.stores.postgres import PostgresStore
from langchain_runjournal.testing.store_contract.support import deltas, end, row
from tests.stores.test_postgres_failures import Programs, no_password_is_logged, programs, spools
from tests.stores.test_postgres_failures_access import refused
from tests.support.failing_postgres import new_database, started, wait_for
from tests.support.proxy import Proxy
from tests.support.servers import PostgresServer

pytestmark = pytest.mark.slow
__all__ = ["no_password_is_logged", "programs", "spools"]


class Pair:
    """A primary server and its standby, which has the same port on the Unix socket of its directory."""

    def __init__(self) -> None:
        self.primary = started(wal_level="replica")
        self.url = new_database(self.primary)
        self.standby = PostgresServer(standby_of=self.primary, fsync="off", max_connections="50", hot_standby="on")
        self.standby.start()

    def caught_up(self) -> None:
        """Wait until the standby has everything."""
        with psycopg.connect(self.primary.url(), autocommit=True) as con, psycopg.connect(self.standby.url()) as copy:
            row = con.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
            assert row is not None
            query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
            copy.autocommit = True
            wait_for(lambda: copy.execute(query, [row[0]]).fetchone() == (True,), "replication")

    def part(self) -> None:
        """End the replication."""
        with psycopg.connect(self.standby.url(), autocommit=True) as con:
            con.execute("ALTER SYSTEM SET primary_conninfo = ''")
            con.execute("SELECT pg_reload_conf()")
            wait_for(lambda: con.execute("SELECT count(*) FROM pg_stat_wal_receiver").fetchone() == (0,))

    def promote(self) -> None:
        with psycopg.connect(self.standby.url(), autocommit=True) as con:
            con.execute("SELECT pg_promote()")

    def demote(self) -> None:
        """Have the primary only read, as some failovers do with a server that lives."""
        with psycopg.connect(self.primary.url(), autocommit=True) as con:
            con.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            con.execute("SELECT pg_reload_conf()")
        wait_for(self.is_read_only, "the reload")

    def is_read_only(self) -> bool:
        with psycopg.connect(self.primary.url()) as con:
            return con.execute("SHOW default_transaction_read_only").fetchone() == ("on",)

    def destroy(self) -> None:
        self.standby.destroy()
        self.primary.destroy()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.destroy()


LEAVES: dict[str, Callable[[Pair], None]] = {
    "killed": lambda pair: pair.primary.kill(),
    "read-only": lambda pair: pair.demote(),
}


@pytest.mark.parametrize("how", LEAVES)
def test_the_name_leads_to_another_server(how: str, pair: Pair, programs: Programs) -> None:
    """A name that resolves anew leads the journal to the server that has taken over."""
    with Proxy(pair.primary.port) as proxy:
        program = programs(proxy.url(pair.url))
        pair.caught_up()
        LEAVES[how](pair)
        program.say()
        program.flush_fails()
        pair.promote()
        proxy.target = pair.standby.port
        program.everything_is_there()


def test_a_follower_goes_to_the_other_server(pair: Pair, programs: Programs, spools: Path) -> None:
    """A journal that only reads notices that its server has become read-only, and follows the run on the other one."""
    with Proxy(pair.primary.port) as proxy:
        url = proxy.url(pair.url)
        program = programs(url)
        with RunJournal(url, spool_dir=spools) as other:
            events = other.follow(program.run_id)
            heard = [next(events).text for _ in range(50)]
            pair.caught_up()
            pair.demote()
            pair.promote()
            proxy.target = pair.standby.port
            program.say()
            program.flush()
            heard += [next(events).text for _ in range(50)]
            assert heard == program.said
            program.reads_all(other)
        program.everything_is_there()


def test_no_connection_stays_with_a_server_that_only_reads(pair: Pair) -> None:
    """After a failover the old server may live on. What it still has is not read any more."""

    def append(number: int) -> None:
        event = Event(run_id="r", kind="llm.ai.delta", data={"text": f"{number}"}, call_id="c", seq=number, at=1.0)
        writer.append("owner", [pack("r", 1, [event])])

    with Proxy(pair.primary.port) as proxy, contextlib.ExitStack() as stack:
        writer, reader = (stack.enter_context(contextlib.closing(PostgresStore(proxy.url(pair.url)))) for _ in range(2))
        append(1)
        assert len(reader.read("r", 0, None)) == 1
        pair.caught_up()
        pair.demote()
        with pytest.raises(errors.StoreFailed, match="read-only transaction"):
            append(2)
        for store in (writer, reader):
            assert len(store.read("r", 0, None)) == 1  # on connections to the old server
        pair.promote()
        proxy.target = pair.standby.port
        append(2)
        assert len(writer.read("r", 0, None)) == 2
        reader.changed()  # it asks its server, as the thread that listens does
        assert len(reader.read("r", 0, None)) == 2


def test_a_verb_fails_once_after_a_failover(pair: Pair) -> None:
    """The first connection that only reads gives up all of them: each of the others would fail once as well."""
    with Proxy(pair.primary.port) as proxy, contextlib.closing(PostgresStore(proxy.url(pair.url))) as store:
        with store._borrowed(), store._borrowed(), store._borrowed():
            pass  # so many connections are at rest
        pair.caught_up()
        pair.demote()
        pair.promote()
        proxy.target = pair.standby.port
        with pytest.raises(errors.StoreFailed, match="read-only transaction"):
            store.request_stop("r", "stop")
        assert store.request_stop("r", "stop") is None


def test_a_connection_to_a_server_that_only_reads_is_used_once(pair: Pair) -> None:
    """It was made while the name still led there. The next read goes where the name leads then."""
    with Proxy(pair.primary.port) as proxy, contextlib.ExitStack() as stack:
        url = proxy.url(pair.url)
        store = stack.enter_context(contextlib.closing(PostgresStore(url)))
        store.append("owner", [row(deltas("r", 1))])
        pair.caught_up()
        pair.demote()
        proxy.cut()
        assert len(store.read("r", 0, None)) == 1
        pair.promote()
        proxy.target = pair.standby.port
        other = stack.enter_context(contextlib.closing(PostgresStore(url)))
        other.append("owner", [row(deltas("r", 1, 2))])
        assert len(store.read("r", 0, None)) == 2


def test_no_connection_stays_with_a_server_that_was_silent(pair: Pair) -> None:
    """The old server was cut off, and lives on with what it had. Who has appended to the new one reads the new one."""
    with Proxy(pair.primary.port) as proxy, contextlib.closing(PostgresStore(proxy.url(pair.url))) as store:
        store.append("owner", [row(deltas("r", 1))])
        assert len(store.read("r", 0, None)) == 1  # on a connection that is at rest from now on
        pair.caught_up()
        proxy.stand_still()
        with pytest.raises(errors.StoreUnreachable, match="in time"):
            store.append("owner", [row(deltas("r", 1, 2))])
        pair.promote()
        proxy.target = pair.standby.port
        proxy.go_on()
        store.append("owner", [row(deltas("r", 2, 2))])
        assert len(store.read("r", 0, None)) == 3


def test_a_path_leads_to_another_server(pair: Pair, programs: Programs, tmp_path: Path) -> None:
    """The same holds for the directory of a Unix socket."""
    link = tmp_path / f".s.PGSQL.{pair.primary.port}"
    target = pair.primary.directory / link.name
    link.symlink_to(target)
    program = programs(pair.url.replace("127.0.0.1", "") + f"&host={tmp_path}")
    pair.caught_up()
    pair.demote()
    pair.promote()
    new = tmp_path / "new"
    new.symlink_to(pair.standby.directory / f".s.PGSQL.{pair.standby.port}")
    os.replace(new, link)
    program.say()
    program.everything_is_there()


@pytest.mark.parametrize("how", LEAVES)
def test_several_hosts(how: str, pair: Pair, programs: Programs) -> None:
    """Of several hosts in the URL, the journal uses the one that can be written, in whatever order they stand there."""
    standby, primary = (f"127.0.0.1:{one.port}" for one in (pair.standby, pair.primary))
    program = programs(pair.url.replace(primary, f"{standby},{primary}"))
    pair.caught_up()
    LEAVES[how](pair)
    program.say()
    program.flush_fails()
    pair.promote()
    program.everything_is_there()


def test_only_standbys_at_opening(pair: Pair, spools: Path) -> None:
    """A standby alone is refused, with what to do."""
    url = pair.url.replace(str(pair.primary.port), str(pair.standby.port))
    refused(url, spools, "its server only reads.*primary")
    refused(f"{url}&target_session_attrs=read-write", spools, "session is read-only.*primary")


def test_a_standby_that_lacks_the_last_events(
    pair: Pair, programs: Programs, spools: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If replication was behind, the events that the new server lacks are counted and named, and later ones are kept."""
    with Proxy(pair.primary.port) as proxy:
        program = programs(proxy.url(pair.url))
        pair.caught_up()
        pair.part()
        program.say()
        program.journal.flush()
        pair.primary.kill()
        pair.promote()
        proxy.target = pair.standby.port
        program.say()
        program.flush()
        program.journal.close()
        assert "had confirmed (seq 51 to 100)" in caplog.text
        with RunJournal(program.url, spool_dir=spools) as other:
            run = other.run(program.run_id)
            assert run is not None
            assert (run.lost, run.last_seq) == (50, 150)
            assert [event.text for event in other.read(program.run_id, after=100)] == program.said[100:]
            with pytest.raises(errors.EventsMissing):
                other.read(program.run_id)


def test_a_standby_that_gives_the_same_numbers_again(pair: Pair) -> None:
    """A run that the new server lacks, and a new run, have the same number for their rows. Neither gets events of the
    other."""
    with Proxy(pair.primary.port) as proxy, contextlib.closing(PostgresStore(proxy.url(pair.url))) as store:
        store.append("owner", [row(deltas("first", 1))])
        pair.caught_up()
        pair.part()
        lost, new = ([f"{name} {number}" for number in range(40)] for name in ("lost", "new"))
        for run_id in lost:  # a standby knows of 32 numbers more than were given
            store.append("owner", [row(deltas(run_id, 1))])
        pair.primary.kill()
        pair.promote()
        proxy.target = pair.standby.port
        for run_id in new:
            store.append("owner", [row(deltas(run_id, 1))])
        for number, run_id in reversed(list(enumerate(lost))):
            event = end(run_id, 2) if number % 2 else deltas(run_id, 1, 2)[0]  # with a mark and without: two statements
            with pytest.raises(errors.SeqGap):
                store.append("owner", [row([event])])
        assert {run_id: len(store.read(run_id, 0, None)) for run_id in [*lost, *new]} == {
            **dict.fromkeys(lost, 0),
            **dict.fromkeys(new, 1),
        }
        assert store.check() == []
