"""The opening of one SQLite file. Each reason against it has its own error, raised before anything is changed."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from ...common import file_access as _file_access
from ...errors import (
    ForeignDatabase,
    NotADatabase,
    StoreCorrupt,
    StoreFailed,
    StoreIsDirectory,
    StoreNotWritable,
    StoreTooNew,
)
from .creation import make, sweep
from .record_rows import SCHEMA as RECORDS
from .run_rows import INDEXES, is_no_text

APPLICATION_ID: Final = 1380601420
SMALLEST: Final = 512  # bytes of the smallest page of SQLite
_preparing = threading.Lock()
if hasattr(os, "register_at_fork"):
    # A child must not inherit the lock while a thread of the parent holds it.
    os.register_at_fork(before=_preparing.acquire, after_in_parent=_preparing.release, after_in_child=_preparing.release)


def connect(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """Open a connection in autocommit mode: only an explicit BEGIN begins a transaction."""
    return sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)


@contextmanager
def translated(path: Path, about: str = "") -> Iterator[None]:
    """Turn errors of the driver into ours, which name the file and say what to do. `about`: the start of the reason."""
    try:
        yield
    except sqlite3.Error as exc:
        reason = str(exc)
        if is_no_text(exc):
            # Without the message of the driver: it holds the text of a user, which would be in every log.
            raise StoreCorrupt(path=str(path), reason=f"{about}a text in it is not UTF-8") from None
        if any(sign in reason for sign in ("malformed", "not a database", "no such", "already exists")):
            raise StoreCorrupt(path=str(path), reason=reason) from exc
        if "readonly" in reason or "unable to open" in reason:
            raise StoreNotWritable(path=str(path), reason=reason) from exc
        raise StoreFailed(path=str(path), reason=reason, hint=_hint(reason)) from exc
    except OSError as exc:  # from the file system: no handles left, a broken disk
        raise StoreFailed(path=str(path), reason=exc.strerror or str(exc), hint=_hint("")) from exc


def _hint(reason: str) -> str:
    if "locked" in reason or "busy" in reason:
        return "Another process holds its lock: end that transaction, or open the journal with a longer busy_timeout"
    if "full" in reason:
        return "Free space on its disk"
    return "Look at the disk and its permissions"


def prepare(path: Path, busy_timeout: float) -> tuple[bytes, list[str]]:
    """Check that the file is a journal of a known version; create or upgrade it.

    Returns its store id, and the permissions that other users had on it (see `file_access.remove_permissions`).
    """
    # One at a time: no thread of this process may open a file that another one is creating, see `_check_place`.
    with _preparing, translated(path):
        return _prepare(path, busy_timeout)


def _prepare(path: Path, busy_timeout: float) -> tuple[bytes, list[str]]:
    _check_place(path)
    _check_file(path, busy_timeout)
    _file_access.check(path)
    if path.stat().st_size or Path(f"{path}-wal").exists():
        # This connection cannot write: closing any other one might change a file that is not ours. The exception is a file
        # with a transaction of a killed process, which SQLite must roll back before it can read anything.
        mode = "rw" if has_content(Path(f"{path}-journal")) else "ro"
        with closing(sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=busy_timeout)) as con:
            check_owner(con, path)
    exposed = _file_access.remove_permissions(path)  # after `check_owner`: the file could be another program's
    with closing(connect(path, busy_timeout)) as con:
        check_owner(con, path)
        _set_wal(con, busy_timeout)
        create(con)
        return bytes(fact(con, path, "store_id")), exposed


def fact(con: sqlite3.Connection, path: Path, name: str) -> Any:
    """Return a fact that every journal has. A journal without it is damaged."""
    found = con.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    if found is None:
        raise StoreCorrupt(path=str(path), reason=f"it lacks its {name}")
    return found[0]


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise StoreIsDirectory(path=str(path))
    if not path.parent.is_dir():
        raise StoreNotWritable(path=str(path), reason=f"the directory {path.parent} does not exist; create it first")
    if not os.access(path.parent, os.W_OK):
        raise StoreNotWritable(path=str(path), reason=f"this user may not write to the directory {path.parent}")
    # Do not open an existing file here, not even to read its first bytes: closing it would release the locks of SQLite in
    # this process, by which other processes see that the file is in use. The next process to close the file would then
    # delete the -wal file that we use, and with it all that we write from then on.
    if not os.path.lexists(path):
        try:
            make(path, _fill)
        except OSError as exc:
            raise StoreNotWritable(path=str(path), reason=exc.strerror or str(exc)) from exc
    sweep(path)


def _fill(con: sqlite3.Connection) -> None:
    create(con)
    con.execute("PRAGMA journal_mode = WAL").fetchone()


def has_content(path: Path) -> bool:
    """Return whether a file exists and is not empty."""
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def _check_file(path: Path, busy_timeout: float) -> None:
    if not os.access(path, os.R_OK | os.W_OK):
        raise StoreNotWritable(path=str(path), reason="this user may not write to the file")
    deadline = time.monotonic() + busy_timeout
    while not path.stat().st_size and has_content(wal := Path(f"{path}-wal")):
        # SQLite would delete the -wal file, and with it events that only that file has. Another process may be doing just
        # that on purpose, see `make`, so wait.
        if time.monotonic() > deadline:
            reason = f"it is empty, and {wal.name} is not; if you need neither, delete both"
            raise StoreCorrupt(path=str(path), reason=reason)
        time.sleep(0.01)
    if 0 < path.stat().st_size < SMALLEST:
        raise NotADatabase(path=str(path), reason="it is shorter than the smallest page of SQLite")


def check_owner(con: sqlite3.Connection, path: Path) -> None:
    """Raise for a file that is not a journal, or is the journal of a newer version."""
    names = _names(con, path)
    application = con.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID and (names or application):
        suggestion = path.with_name(f"{path.stem}-journal.db").name
        raise ForeignDatabase(path=str(path), tables=", ".join(names[:5]) or "none", suggestion=suggestion)
    _check_version(con, path, names)


def identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file at a path, or None if there is none."""
    try:
        with translated(path):
            found = path.stat()
    except StoreFailed as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            return None
        raise
    return found.st_dev, found.st_ino


def _names(con: sqlite3.Connection, path: Path) -> list[str]:
    try:
        return [name for (name,) in con.execute("SELECT name FROM sqlite_master ORDER BY name")]
    except sqlite3.DatabaseError as exc:
        if "not a database" in str(exc):
            raise NotADatabase(path=str(path), reason=str(exc)) from exc
        raise


def _check_version(con: sqlite3.Connection, path: Path, tables: list[str]) -> None:
    if not tables:
        return
    if "migrations" not in tables:
        raise StoreCorrupt(path=str(path), reason="it is marked as a journal, but has no table of migrations")
    found = _version(con)
    known = max(number for number, _, _ in _migrations())
    if found > known:
        raise StoreTooNew(path=str(path), found=found, known=known)


def _version(con: sqlite3.Connection) -> int:
    return int(con.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchone()[0])


def _set_wal(con: sqlite3.Connection, busy_timeout: float) -> None:
    # Two processes may open a new file at once, and SQLite does not apply its busy timeout to this pragma.
    deadline = time.monotonic() + busy_timeout
    while True:
        try:
            con.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as exc:
            if "locked" not in str(exc) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def create(con: sqlite3.Connection) -> None:
    """Migrate a database to the newest schema, from nothing if it is empty."""
    for number, name, script in _migrations():
        con.execute("BEGIN IMMEDIATE")
        try:
            # Check again under the lock: another process may have been faster.
            con.execute(
                "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, at TEXT NOT NULL)"
            )
            if _version(con) < number:
                for statement in _statements(script):
                    con.execute(statement)
                con.execute("INSERT INTO migrations (version, name, at) VALUES (?, ?, datetime('now'))", (number, name))
            con.execute("COMMIT")
        except BaseException:
            if con.in_transaction:
                con.execute("ROLLBACK")
            raise
    for index in INDEXES:
        con.execute(index)
    for statement in RECORDS:
        con.execute(statement)


def _migrations() -> list[tuple[int, str, str]]:
    found = []
    for file in files(__package__).joinpath("migrations").iterdir():
        match = re.fullmatch(r"(\d{3})_(\w+)\.sql", file.name)
        if match:
            found.append((int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return sorted(found)


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines():
        statement += line.partition("--")[0] + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
