"""The opening of a database: each reason against it has its own error; then the migrations, one process at a time.

Rule: a schema only goes forward. Each migration says which release it still serves: an older one goes on with its work, and
one that cannot raises `StoreTooNew`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final

import psycopg

from ...errors import StoreTooNew, StoreUnusable
from .faults import RIGHTS
from .names import lock_number
from .sessions import Address, Session

_OLDEST_SERVER: Final = 130_000
_SERVER: Final = (
    "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),"
    " pg_is_in_recovery() OR current_setting('transaction_read_only')::bool"
)
_LOCK: Final = "SELECT pg_advisory_xact_lock(%(lock)s)"
_PATH: Final = "SELECT set_config('search_path', %(path)s, true)"
_HAS_SCHEMA: Final = "SELECT to_regnamespace(%(schema)s) IS NOT NULL"
_HAS_TABLE: Final = "SELECT to_regclass(%(table)s) IS NOT NULL"
_VERSION: Final = "SELECT max(version), max(serves) FROM {s}.migrations"
_RECORD: Final = "INSERT INTO {s}.migrations (version, name, serves) VALUES (%(version)s, %(name)s, %(serves)s)"
_MIGRATIONS: Final = (
    "CREATE TABLE IF NOT EXISTS {s}.migrations (version integer PRIMARY KEY, name text NOT NULL, serves integer NOT NULL,"
    " at timestamptz NOT NULL DEFAULT now())"
)
_STORE_ID: Final = "SELECT value FROM {s}.facts WHERE name = 'store_id'"
_NO_RIGHT: Final = (
    "Have an administrator run `CREATE SCHEMA {schema} AUTHORIZATION` with the role of the URL, or GRANT the role CREATE on"
    " the database"
)
_TAKEN: Final = "Give the journal a schema of its own with ?schema= (without it: runjournal)"
_UNKNOWN: Final = ("42883", "0A000", "42601")
"""What a database answers that has no such function."""


def prepare(session: Session, address: Address) -> tuple[bytes, bool]:
    """Check the server, create or migrate the schema. Return the id of the store, and whether the server has NOTIFY."""
    _check_server(session, address)
    known = max(number for number, _, _, _ in migrations())
    with _permitted(session, address):
        found, serves = _version(session, address)
        if found < known:
            _migrate(session, address)
        elif serves > known:
            raise StoreTooNew(path=address.url, found=found, known=known)
        row = session.execute(_in(address, _STORE_ID)).fetchone()
    if row is None:
        hint = "Restore the schema from a backup, or give another one with ?schema="
        raise StoreUnusable(url=address.url, reason=f"its schema {address.schema} lacks its store_id", hint=hint)
    return bytes.fromhex(row[0]), _can_notify(session, address)


def has_journal(session: Session, address: Address) -> bool:
    """Return whether the schema has the tables of a journal."""
    with _permitted(session, address):
        return _version(session, address)[0] > 0


def check_version(session: Session, address: Address) -> None:
    """Raise `StoreUnusable` for a schema that opening it would migrate."""
    with _permitted(session, address):
        found, known = _version(session, address)[0], max(number for number, _, _, _ in migrations())
    if found < known:
        reason = f"its format is {found}, and opening it would migrate it to {known}"
        raise StoreUnusable(url=address.url, reason=reason, hint="Let a program open it, or use the release that wrote it")


@contextmanager
def _permitted(session: Session, address: Address) -> Iterator[None]:
    try:
        yield
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidSchemaName) as exc:
        reason = exc.diag.message_primary or str(exc)
        is_there = _asked(session, _HAS_SCHEMA, schema=f'"{address.schema}"')
        hint = RIGHTS if is_there else _NO_RIGHT.format(schema=address.schema)
        raise StoreUnusable(url=address.url, reason=reason, hint=hint) from exc
    except psycopg.errors.DuplicateTable as exc:
        raise _taken(address, exc) from exc


def migrations() -> list[tuple[int, str, int, str]]:
    """Return number, name, the oldest schema whose release can still write, and statements of each migration."""
    found = []
    for file in files(__package__).joinpath("migrations").iterdir():
        match = re.fullmatch(r"(\d{3})_(\w+)\.sql", file.name)
        if match:
            text = file.read_text(encoding="utf-8")
            serves = re.match(r"-- serves: (\d+)\n", text)
            found.append((int(match[1]), match[2], int(serves[1]) if serves else int(match[1]), text))
    return sorted(found)


def _in(address: Address, statement: str) -> bytes:
    return statement.replace("{s}", f'"{address.schema}"').encode()


def _check_server(session: Session, address: Address) -> None:
    version, encoding, read_only = session.execute(_SERVER.encode()).fetchone() or (0, "", False)
    if version < _OLDEST_SERVER:
        raise StoreUnusable(url=address.url, reason="its server is older than Postgres 13", hint="Upgrade the server")
    if encoding != "UTF8":
        reason = f"its encoding is {encoding}, which cannot hold every text"
        hint = "Create another database with ENCODING 'UTF8' TEMPLATE template0"
        raise StoreUnusable(url=address.url, reason=reason, hint=hint)
    if read_only:
        hint = "Give the address of the primary server, or several hosts and target_session_attrs=read-write"
        raise StoreUnusable(
            url=address.url, reason="its server only reads (a standby, or read-only by its settings)", hint=hint
        )


def _version(session: Session, address: Address) -> tuple[int, int]:
    """Return the number of the schema, and the oldest schema whose release can write it."""
    table = f'"{address.schema}".migrations'
    if not _asked(session, _HAS_TABLE, table=table):
        return 0, 0
    try:
        row = session.execute(_in(address, _VERSION)).fetchone()
    except psycopg.errors.UndefinedColumn as exc:
        raise _taken(address, exc) from exc
    return (row[0] or 0, row[1] or 0) if row else (0, 0)


def _taken(address: Address, exc: psycopg.Error) -> StoreUnusable:
    reason = f"its schema {address.schema} holds tables of another program ({exc.diag.message_primary})"
    return StoreUnusable(url=address.url, reason=reason, hint=_TAKEN)


def _migrate(session: Session, address: Address) -> None:
    for number, name, serves, script in migrations():
        # One transaction for each, with its record. Where the server ends the connection in between, nothing is half done.
        with session.transaction():
            session.execute(_LOCK.encode(), {"lock": lock_number("migrations", address.schema)})
            if not _asked(session, _HAS_SCHEMA, schema=f'"{address.schema}"'):
                session.execute(_in(address, "CREATE SCHEMA {s}"))
            session.execute(_in(address, _MIGRATIONS))
            if _version(session, address)[0] >= number:
                continue  # another process was faster
            session.execute(_PATH.encode(), {"path": f'"{address.schema}"'})
            session.execute(script.encode())
            session.execute(_in(address, _RECORD), {"version": number, "name": name, "serves": serves})


def _asked(session: Session, statement: str, **values: Any) -> bool:
    row = session.execute(statement.encode(), values).fetchone()
    return bool(row and row[0])


def _can_notify(session: Session, address: Address) -> bool:
    try:
        session.execute(b"SELECT pg_notify(%(channel)s, '')", {"channel": address.schema})
    except psycopg.Error as exc:
        if exc.sqlstate not in _UNKNOWN:
            raise
        return False
    return True
