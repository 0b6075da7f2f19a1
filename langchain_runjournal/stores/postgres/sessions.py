"""One connection to a Postgres server, on which no call waits without a limit; and how to leave it without a word."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import IsolationLevel
from psycopg.abc import PQGen

from .faults import Stuck

_SETTINGS: Final = b"""
SELECT pg_backend_pid(),
       pg_is_in_recovery() OR current_setting('transaction_read_only')::bool,
       CASE WHEN pg_backend_pid() = %(pid)s THEN set_config('lock_timeout', %(lock)s, false) END,
       CASE WHEN pg_backend_pid() = %(pid)s THEN set_config('statement_timeout', %(statement)s, false) END,
       CASE WHEN pg_backend_pid() = %(pid)s THEN set_config('idle_in_transaction_session_timeout', %(statement)s, false) END,
       CASE WHEN pg_backend_pid() = %(pid)s
             AND current_setting('idle_session_timeout', true)::interval BETWEEN '1ms' AND %(idle)s::text::interval
            THEN set_config('idle_session_timeout', %(idle)s::text, false) END,
       CASE WHEN pg_backend_pid() = %(pid)s AND %(commit)s::text <> ''
            THEN set_config('synchronous_commit', %(commit)s, false) END
"""
_IDLE_LEAST: Final = "10s"
"""A connection that the server ends earlier could end between two statements of one call."""
_PREPARE_AT: Final = 2
"""The third use of a statement prepares it. To plan it takes longer than to execute it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server is and how to use it. The repr has no password."""

    url: str
    """The URL without its passwords."""
    conninfo: str = field(repr=False)
    secret: str | None = field(repr=False)
    """The password, so that no message of the driver shows it."""
    schema: str
    busy_timeout: float
    synchronous_commit: str = ""

    @property
    def patience(self) -> float:
        """Return the seconds that a call may take, with which the server answers or the connection is given up."""
        return self.busy_timeout + 2


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection in autocommit mode. While `deadline` is set, a call that waits for longer raises `Stuck`."""

    deadline: float | None = None
    is_direct = True
    """Whether the server itself is at the other end. A pooler may give each transaction any connection that it has."""
    server_pid = 0
    """The process of the server that answered first."""
    is_shared = False
    """Whether another process of the server has answered since: a pooler in transaction mode is in between."""
    is_read_only = False
    """Whether the server only read when the connection was made."""
    generation = 0
    """The number of times that the store had given up its connections before it made this one."""

    def wait(self, gen: PQGen[Any], *args: Any, **kwargs: Any) -> Any:
        """Wait for an operation, and no longer than until the deadline."""
        return super().wait(self._in_time(gen), *args, **kwargs)

    def _in_time(self, gen: PQGen[Any]) -> Generator[Any, Any, Any]:
        # The driver asks a few times a second whether to go on waiting: then nothing was ready.
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and self.deadline is not None and time.monotonic() > self.deadline:
                    raise Stuck("it did not answer in time")
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value


def connect(address: Address) -> Session:
    """Return a new connection. Raises errors of the driver, and `Stuck`."""
    session = Session.connect(address.conninfo, autocommit=True, prepare_threshold=None)
    try:
        session.isolation_level = IsolationLevel.READ_COMMITTED  # of transactions, whatever the default of the role is
        session.deadline = time.monotonic() + address.patience
        values = {
            "pid": session.info.backend_pid,
            "lock": f"{round(address.busy_timeout * 1000)}ms",
            "statement": f"{round((address.busy_timeout + 1) * 1000)}ms",
            "idle": _IDLE_LEAST,
            "commit": address.synchronous_commit,
        }
        row = session.execute(_SETTINGS, values).fetchone()
        session.server_pid, session.is_read_only = (row[0], bool(row[1])) if row else (0, False)
        session.is_direct = session.server_pid == session.info.backend_pid
        if session.is_direct:
            session.prepare_threshold = _PREPARE_AT
    except BaseException:
        drop(session)
        raise
    return session


def is_usable(session: Session) -> bool:
    """Return whether the next call can use the connection."""
    return not session.closed and session.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def drop(session: Session) -> None:
    """Close a connection at once, also while a statement is under way on it. Raises nothing."""
    # Else the driver would say goodbye, and wait for a server that takes nothing.
    with suppress(Exception), socket.socket(fileno=os.dup(session.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
    with suppress(Exception):
        session.close()


def disown(session: Session) -> None:
    """Drop a connection in a forked child. It is the parent's: nothing may be sent on it."""
    with suppress(Exception):
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, session.fileno(), inheritable=False)
        os.close(null)
    with suppress(Exception):
        session.close()
