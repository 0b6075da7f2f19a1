"""A real Postgres server that is there and does not do its work: silent, locked, full, read-only, or impatient.

The module beside this one, `test_postgres_failures`, says what each test asserts.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from langchain_runjournal import RunJournal, errors
from tests.stores.test_postgres_failures import Programs, no_password_is_logged, programs, proxy, server, spools
from tests.support.failing_postgres import (
    Disk,
    Program,
    admin,
    configure,
    name_of,
    new_database,
    role,
    started,
    terminate,
    wait_for,
)
from tests.support.proxy import Proxy
from tests.support.servers import PostgresServer

pytestmark = pytest.mark.slow
__all__ = ["no_password_is_logged", "programs", "proxy", "server", "spools"]


# --- silence ------------------------------------------------------------------------------------------------------------


def test_a_cable_is_cut(server: PostgresServer, proxy: Proxy, programs: Programs) -> None:
    """With nothing arriving in either direction, a flush fails within its bound; later everything is written."""
    program = programs(proxy.url(new_database(server)))
    with program.talking():
        proxy.stand_still()
        program.until_said(2)
        assert "it did not answer in time" in program.flush_fails()
        program.flush_fails()  # this time on a connection that cannot be made
        proxy.go_on()
        program.flush()
    program.everything_is_there()


def test_a_cable_is_cut_while_connections_are_lost(server: PostgresServer, proxy: Proxy, programs: Programs) -> None:
    """The journal reconnects after a firewall has forgotten all connections."""
    program = programs(proxy.url(new_database(server)))
    for _ in range(3):
        proxy.stand_still()
        program.say()
        program.flush_fails()
        proxy.cut()
        proxy.go_on()
        program.flush()
    program.everything_is_there()


def test_a_silent_server_at_opening(server: PostgresServer, proxy: Proxy, programs: Programs, spools: Path) -> None:
    """Opening a journal fails within its bound."""
    url = proxy.url(new_database(server))
    proxy.stand_still()
    with pytest.raises(errors.StoreUnreachable, match=r"timeout|in time"):
        RunJournal(url, spool_dir=spools)
    proxy.go_on()
    programs(url).everything_is_there()


# --- locks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["runs", "events"])
def test_a_table_is_locked(table: str, server: PostgresServer, programs: Programs) -> None:
    """An append waits for a lock of another transaction as long as `busy_timeout` says, and then succeeds later."""
    program = programs(new_database(server))
    with psycopg.connect(server.url(name_of(program.url))) as other:
        other.execute(f"LOCK TABLE runjournal.{table} IN ACCESS EXCLUSIVE MODE")
        program.say()
        assert "lock timeout" in program.flush_fails()
        program.say()
        other.rollback()
    program.everything_is_there()


def test_a_row_is_locked(server: PostgresServer, programs: Programs) -> None:
    """The same holds for the row of the run alone."""
    program = programs(new_database(server))
    with psycopg.connect(server.url(name_of(program.url))) as other:
        other.execute("SELECT * FROM runjournal.runs FOR UPDATE")
        program.say()
        assert "lock timeout" in program.flush_fails()
        other.rollback()
    program.everything_is_there()


def test_a_short_lock_is_waited_for(server: PostgresServer, programs: Programs) -> None:
    """A lock that ends within `busy_timeout` delays an append, and nothing fails."""
    program = programs(new_database(server, busy_timeout="30"))
    url = server.url(name_of(program.url))
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with psycopg.connect(url) as other, psycopg.connect(url, autocommit=True) as watch:
        other.execute("LOCK TABLE runjournal.events IN ACCESS EXCLUSIVE MODE")
        program.say()
        wait_for(lambda: watch.execute(waiting).fetchone() != (0,))
        other.rollback()
        program.journal.flush()
    program.everything_is_there()


# --- full ---------------------------------------------------------------------------------------------------------------


def test_the_disk_is_full(spools: Path) -> None:
    """The server cannot write, or dies of it; when there is space again, everything is written."""
    disk = Disk(megabytes=120)
    server = None
    try:
        server = started(directory=disk.directory, min_wal_size="32MB", max_wal_size="32MB", wal_recycle="off")
        program = Program(new_database(server), spools)
        program.say()
        program.flush()
        disk.fill()
        failed = None
        for _ in range(2000):
            program.say(500)
            try:
                program.journal.flush()
            except errors.WriteFailed as exc:
                failed = str(exc)
                break
        assert failed is not None
        assert f"in the spool in {spools}, safe from a kill" in failed
        program.say()
        program.flush_fails()
        disk.free()
        if server.has_ended():  # it could not write its WAL
            server.start()
        program.everything_is_there()
    finally:
        if server is not None:
            server.destroy()
        disk.unmount()


def test_too_many_connections(programs: Programs, spools: Path) -> None:
    """At opening the error says so. Later the journal continues with what it has, and writes when there is room."""
    server = started(max_connections="12", superuser_reserved_connections="0")
    others: list[psycopg.Connection[object]] = []

    def use_up() -> None:
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            while True:
                others.append(psycopg.connect(server.url()))

    def leave() -> None:
        while others:
            others.pop().close()

    try:
        url = new_database(server)
        use_up()
        with pytest.raises(errors.StoreUnreachable, match=r"too many clients.*max_connections"):
            RunJournal(url, spool_dir=spools)
        leave()
        wait_for(lambda: can_connect(server))
        program = programs(url)
        use_up()
        program.say()
        program.flush()  # its own connection is enough
        leave()
        program.everything_is_there()
    finally:
        leave()
        server.destroy()


def test_too_many_connections_of_a_role(server: PostgresServer, programs: Programs) -> None:
    """A journal that has lost its connections waits until it may have new ones."""
    url = new_database(server)
    name = role(server, name_of(url))
    program = programs(url.replace("postgres:", f"{name}:"))
    with admin(server) as con:
        con.execute(f"ALTER ROLE {name} CONNECTION LIMIT 0")  # type: ignore[arg-type]
        terminate(con)
        program.say()
        assert "too many connections for role" in program.flush_fails()
        with pytest.raises(errors.StoreUnreachable, match=r"too many connections for role.*the limit of the role"):
            RunJournal(program.url, spool_dir=program.spools)
        con.execute(f"ALTER ROLE {name} CONNECTION LIMIT 20")  # type: ignore[arg-type]
    program.everything_is_there()


def can_connect(server: PostgresServer) -> bool:
    try:
        psycopg.connect(server.url()).close()
    except psycopg.OperationalError:
        return False
    return True


# --- read-only ----------------------------------------------------------------------------------------------------------


def test_read_only_at_opening(server: PostgresServer, programs: Programs, spools: Path) -> None:
    """A server that only reads is refused, whether the journal is new or not."""
    url = new_database(server)
    configure(server, default_transaction_read_only="on")
    try:
        with pytest.raises(errors.StoreUnusable, match=r"its server only reads.*target_session_attrs"):
            RunJournal(url, spool_dir=spools)
    finally:
        configure(server, default_transaction_read_only=None)
    programs(url).everything_is_there()


def test_read_only_later(server: PostgresServer, programs: Programs) -> None:
    """The journal waits until it can write again, and can be read meanwhile."""
    program = programs(new_database(server))
    configure(server, default_transaction_read_only="on")
    try:
        program.say()
        assert (
            "read-only transaction. The server only reads, as after a failover. Have it write, or wait until"
            in program.flush_fails()
        )
        program.reads_all(program.journal)
    finally:
        configure(server, default_transaction_read_only=None)
    program.everything_is_there()


# --- impatient ----------------------------------------------------------------------------------------------------------

SETTINGS = {
    "statement": ["statement_timeout = '50ms'"],
    "idle in transaction": ["idle_in_transaction_session_timeout = '1ms'"],
    "idle": ["idle_session_timeout = '300ms'"],
    "lock": ["lock_timeout = '1ms'"],
    "isolation": ["default_transaction_isolation = 'serializable'"],
    "deferrable": ["default_transaction_deferrable = on", "default_transaction_isolation = 'serializable'"],
    "search path": ["search_path = 'nowhere'"],
    "encoding": ["client_encoding = 'LATIN1'"],
    "style": ["datestyle = 'German'", "intervalstyle = 'iso_8601'", "bytea_output = 'escape'", "timezone = 'Asia/Tokyo'"],
    "strings": ["standard_conforming_strings = off", "backslash_quote = on", "escape_string_warning = off"],
    "plans": ["plan_cache_mode = 'force_generic_plan'", "enable_indexscan = off", "jit_above_cost = 0"],
}


@pytest.mark.parametrize("which", SETTINGS)
def test_settings_of_the_role(which: str, server: PostgresServer, programs: Programs) -> None:
    """Timeouts and other settings of the role, however odd, lose nothing and make no flush fail."""
    url = new_database(server)
    name = role(server, name_of(url), *SETTINGS[which])
    program = programs(url.replace("postgres:", f"{name}:"))
    with program.talking():
        for _ in range(5):
            program.until_said(50)
            program.journal.flush()
    program.say()
    program.everything_is_there()
