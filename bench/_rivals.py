"""Plain ways to keep events without a library, to compare the journal with."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from langchain_runjournal import Event

_CREATE = (
    "CREATE TABLE events (run_id TEXT, seq INTEGER, kind TEXT, at REAL, call_id TEXT, data TEXT, PRIMARY KEY (run_id, seq))"
)
_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)"


class PlainSqlite:
    """A SQLite table with a row per event, in WAL mode."""

    def __init__(self, path: Path, synchronous: str = "NORMAL") -> None:
        self.con = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.con.execute("PRAGMA journal_mode = WAL").fetchone()
        self.con.execute(f"PRAGMA synchronous = {synchronous}")
        self.con.execute(_CREATE)
        self._seq = 0

    def append(self, event: Event) -> None:
        """Insert and commit an event. It is durable when this returns."""
        self.con.execute(_INSERT, self._row(event))

    def append_each(self, events: Sequence[Event]) -> None:
        """Insert and commit each event."""
        for event in events:
            self.append(event)

    def append_all(self, events: Sequence[Event], batch: int) -> None:
        """Insert the events in batches, with a commit per batch."""
        for start in range(0, len(events), batch):
            self.con.execute("BEGIN IMMEDIATE")
            self.con.executemany(_INSERT, [self._row(event) for event in events[start : start + batch]])
            self.con.execute("COMMIT")

    def close(self) -> None:
        """Close the database."""
        self.con.close()

    def _row(self, event: Event) -> tuple[Any, ...]:
        self._seq += 1
        return event.run_id, self._seq, event.kind, time.time(), event.call_id, json.dumps(event.data)


class RawFile:
    """A file with one write(2) of prepared bytes per event: the lowest cost of a system call."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._line = b'{"seq":123456,"text":" down"}\n'

    def append(self, event: Event) -> None:
        """Write one line."""
        os.write(self._fd, self._line)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def write_lines(path: Path, events: Iterable[Event]) -> None:
    """Write a buffered file of JSON lines, flushed once at the end and never synced."""
    with path.open("w") as file:
        for seq, event in enumerate(events, 1):
            line = (event.run_id, seq, event.kind, time.time(), event.call_id, event.data)
            file.write(json.dumps(line) + "\n")
        file.flush()


def nothing(event: Event) -> None:
    """Do nothing: measures the cost of a function call."""


class GroupCommit:
    """A list in memory that a thread commits every 50 ms: the usual way to make appends cheap."""

    def __init__(self, path: Path) -> None:
        self._plain = PlainSqlite(path)
        self._waiting: list[Event] = []
        threading.Thread(target=self._commit, daemon=True).start()

    def append(self, event: Event) -> None:
        """Add the event to the list."""
        self._waiting.append(event)

    def _commit(self) -> None:
        while True:
            time.sleep(0.05)
            taken, self._waiting = self._waiting, []
            if taken:
                self._plain.append_all(taken, len(taken))


def read_rows(path: Path, run_id: str) -> list[str]:
    """Return the texts of a run from such a table."""
    con = sqlite3.connect(path)
    rows = con.execute("SELECT data FROM events WHERE run_id = ? ORDER BY seq", (run_id,)).fetchall()
    con.close()
    return [text for (data,) in rows if (text := json.loads(data).get("text"))]
