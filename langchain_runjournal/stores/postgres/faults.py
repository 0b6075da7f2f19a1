"""What the errors of the driver mean: each becomes an error of this package, with what to do about it, and no password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from ...common.masked_urls import without
from ...errors import StoreCorrupt, StoreFailed, StoreUnreachable, StoreUnusable
from ...events.segments import Damaged
from .. import RESTORE

_LOST: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "08000", "08001", "08003", "08004", "08006", "08P01"})
"""The states of a connection that the server, a pooler or an administrator has ended."""
NOT_PREPARED: Final = frozenset({"26000", "42P05"})
"""A pooler has sent a statement to another connection than that on which it was prepared."""
_AGAIN: Final = frozenset({"40001", "40P01", *NOT_PREPARED})
"""The statement can be repeated at once: a conflict, a deadlock, a prepared statement that a pooler has lost."""
READ_ONLY: Final = "25006"
RIGHTS: Final = (
    "Use the role that owns the schema, or have it grant the role of the URL USAGE on the schema, and SELECT, INSERT, UPDATE"
    " and DELETE on all its tables"
)
_MISSING: Final = "A table of the journal is missing, or the whole schema: restore the schema from a backup"
_HINTS: Final = {
    "57014": "Look for a lock that another transaction holds, or open the journal with a longer busy_timeout",
    "55P03": "Another transaction holds a lock: end it, or open the journal with a longer busy_timeout",
    "53100": "Free space on the disk of the server",
    "53200": "Give the server more memory",
    "53300": "Raise max_connections of the server, or the limit of the role, or use a pooler",
    READ_ONLY: "The server only reads, as after a failover. Have it write, or wait until the URL leads to the new primary",
    "42501": RIGHTS,
    "42P01": _MISSING,
    "3F000": _MISSING,
}
_REFUSED: Final = {
    # Parts of messages of a server that answers and refuses the connection: libpq gives no code for them.
    "password authentication failed": "Check the user and the password",
    "no password supplied": "Give a password in the URL, in PGPASSWORD or in a password file",
    "authentication failed": "Check the user, and what pg_hba.conf asks of it",
    "pg_hba.conf": "Allow this machine and this user in pg_hba.conf of the server, or connect with sslmode=require",
    "role": "Create the role, or give another user",
    "permission denied": "Grant the role CONNECT on the database",
    "server does not support SSL": "Switch TLS on in the server, or give another sslmode",
    "certificate": "Check sslrootcert, sslcert and sslkey of the URL",
    ' value: "': "Correct the options of the URL",
    "invalid port number": "Correct the port in the URL",
    "invalid integer value": "Correct the options of the URL",
    "bad value for": "Correct the options of the URL",
    "configuration parameter": "Correct the options of the URL",
    "invalid value for parameter": "Correct the options of the URL",
    "invalid connection option": "Correct the options of the URL",
    "definition of service": "Correct the name of the service, or its file",
    "session is read-only": "Give the address of the primary server",
}
_NO_TRANSACTIONS: Final = "statement pooling mode"
"""A part of what pgbouncer says, with the state of a lost connection."""
_POOL_MODE: Final = "Set pool_mode of the pooler to transaction or session: the journal needs transactions"
_NO_DATABASE: Final = "Create the database, or give the name of another one"
_HERE: Final = "Look at the limits of this process, such as that of its open files, and at the disk of this machine"
_START: Final = "Start the server, or look at the network between this machine and it"


class Stuck(Exception):
    """The server has not answered in time."""


def state_of(exc: BaseException) -> str | None:
    """Return the SQLSTATE of an error of the driver, or None."""
    return exc.sqlstate if isinstance(exc, psycopg.Error) else None


def is_lost(exc: BaseException) -> bool:
    """Return whether an error of a statement says that the connection is gone."""
    state = state_of(exc)
    if state is not None:
        return state in _LOST
    return isinstance(exc, (psycopg.OperationalError, psycopg.InterfaceError))


def may_repeat(exc: BaseException) -> bool:
    """Return whether the same statement may succeed at once, on another connection."""
    return is_lost(exc) or state_of(exc) in _AGAIN


@contextmanager
def translated(url: str, secret: str | None) -> Iterator[None]:
    """Turn the errors of statements into errors of this package."""
    try:
        yield
    except Stuck as exc:
        raise StoreUnreachable(path=url, reason=str(exc), hint=_START) from exc
    except Damaged as exc:
        raise StoreCorrupt(path=url, reason=str(exc), hint=RESTORE) from exc
    except OSError as exc:  # of this machine, such as no file handles left
        raise StoreFailed(path=url, reason=exc.strerror or str(exc), hint=_HERE) from exc
    except psycopg.Error as exc:
        reason = _reason(exc, secret)
        if _NO_TRANSACTIONS in reason:
            raise StoreUnusable(url=url, reason=reason, hint=_POOL_MODE) from exc
        if is_lost(exc):
            raise StoreUnreachable(path=url, reason=reason, hint=_START) from exc
        hint = _HINTS.get(state_of(exc) or "", "Look at the log of the server")
        raise StoreFailed(path=url, reason=reason, hint=hint) from exc


@contextmanager
def connecting(url: str, secret: str | None) -> Iterator[None]:
    """Turn the errors of connecting into errors of this package: the server is away, or it refuses."""
    try:
        yield
    except Stuck as exc:
        raise StoreUnreachable(path=url, reason=str(exc), hint=_START) from exc
    except psycopg.Error as exc:
        reason = _reason(exc, secret)
        if "connection slots" in reason or "too many" in reason:  # such a message may name a role as well
            raise StoreUnreachable(path=url, reason=reason, hint=_HINTS["53300"]) from exc
        if "database" in reason and "does not exist" in reason:
            raise StoreUnusable(url=url, reason=reason, hint=_NO_DATABASE) from exc
        for sign, hint in _REFUSED.items():
            if sign in reason:
                raise StoreUnusable(url=url, reason=reason, hint=hint) from exc
        raise StoreUnreachable(path=url, reason=reason, hint=_START) from exc


def _reason(exc: psycopg.Error, secret: str | None) -> str:
    # Of an error of the server only its first message: the detail may hold the values of a row, and so the text of a user.
    text = exc.diag.message_primary or str(exc)
    text = without(text, *([secret] if secret else []))
    return "; ".join(line.strip().rstrip(".") for line in text.splitlines() if line.strip()) or type(exc).__name__
