"""What one would write by hand on Postgres and on Redis: an entry for each event, and the batches that come next."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

import psycopg
import redis

from langchain_runjournal import Event

_CREATE = """
CREATE TABLE {table} (run_id text, seq bigint, kind text, at float8, call_id text, data jsonb, PRIMARY KEY (run_id, seq))
"""
_CREATE_BATCHES = "CREATE TABLE {table} (run_id text, seq bigint, body text, PRIMARY KEY (run_id, seq))"
_INSERT = "INSERT INTO {table} VALUES (%s, %s, %s, %s, %s, %s)"
_INSERT_BATCH = "INSERT INTO {table} VALUES (%s, %s, %s)"
_COPY = "COPY {table} FROM STDIN"
_READ = "SELECT seq, kind, data FROM {table} WHERE run_id = %s ORDER BY seq"
_SIZE = "SELECT pg_total_relation_size(%s::regclass)"
_TRIM, _EXPIRE, _PAGE = 100_000, 3600, 1_000
"""What DeerFlow gives to XADD and to EXPIRE, with room for a long run; the entries of one XRANGE."""


class PostgresRows:
    """Tables with a row for each event, and one with a row for each batch of texts. Each commit waits for the disk."""

    def __init__(self, url: str) -> None:
        self.con = psycopg.connect(url, autocommit=True)
        self._seq = count(1)
        for table in ("each", "many", "copied"):
            self.con.execute(_CREATE.format(table=f"rival_{table}"))
        self.con.execute(_CREATE_BATCHES.format(table="rival_batches"))

    def insert_each(self, events: Sequence[Event]) -> None:
        """Insert and commit each event."""
        with self.con.cursor() as cursor:
            for event in events:
                cursor.execute(_INSERT.format(table="rival_each"), self._row(event))

    def insert_many(self, events: Sequence[Event], batch: int) -> None:
        """Insert the events by executemany, with a commit per batch."""
        with self.con.cursor() as cursor:
            for start in range(0, len(events), batch):
                with self.con.transaction():
                    rows = [self._row(event) for event in events[start : start + batch]]
                    cursor.executemany(_INSERT.format(table="rival_many"), rows)

    def copy(self, events: Sequence[Event], batch: int) -> None:
        """Copy the events in batches, a row for each event."""
        with self.con.cursor() as cursor:
            for start in range(0, len(events), batch):
                with cursor.copy(_COPY.format(table="rival_copied")) as copied:
                    for event in events[start : start + batch]:
                        copied.write_row(self._row(event))

    def insert_batches(self, events: Sequence[Event], batch: int) -> None:
        """Insert and commit one row with the texts of each batch: no fence, no numbering, no wake-up."""
        with self.con.cursor() as cursor:
            for start in range(0, len(events), batch):
                body = json.dumps([event.data["text"] for event in events[start : start + batch]])
                cursor.execute(_INSERT_BATCH.format(table="rival_batches"), (events[0].run_id, next(self._seq), body))

    def read(self, run_id: str) -> list[str]:
        """Return the texts of a run."""
        return [row[2].get("text", "") for row in self.con.execute(_READ.format(table="rival_copied"), (run_id,)).fetchall()]

    def size(self, table: str) -> int:
        """Return the bytes of a table with its indexes."""
        (found,) = self.con.execute(_SIZE, (f"rival_{table}",)).fetchone() or (0,)
        return int(found)

    def close(self) -> None:
        """Close the connection."""
        self.con.close()

    def _row(self, event: Event) -> tuple[Any, ...]:
        return event.run_id, next(self._seq), event.kind, time.time(), event.call_id, json.dumps(event.data)


class RedisEntries:
    """Streams with an entry for each event, and one with an entry for each batch of texts."""

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url)

    def add_each(self, events: Sequence[Event]) -> None:
        """Add each event."""
        for event in events:
            self.client.xadd(f"each:{event.run_id}", self._entry(event))

    def publish_each(self, events: Sequence[Event]) -> None:
        """Add each event as DeerFlow publishes it: MULTI, XADD with MAXLEN, EXPIRE, EXEC."""
        for event in events:
            key = f"published:{event.run_id}"
            with self.client.pipeline(transaction=True) as pipe:
                pipe.xadd(key, self._entry(event), maxlen=_TRIM, approximate=True)
                pipe.expire(key, _EXPIRE)
                pipe.execute()

    def add_pipelined(self, events: Sequence[Event], batch: int) -> None:
        """Add each event, with one round trip per batch."""
        for start in range(0, len(events), batch):
            with self.client.pipeline(transaction=False) as pipe:
                for event in events[start : start + batch]:
                    pipe.xadd(f"pipelined:{event.run_id}", self._entry(event))
                pipe.execute()

    def add_batches(self, events: Sequence[Event], batch: int) -> None:
        """Add one entry with the texts of each batch: no fence, no numbering."""
        for start in range(0, len(events), batch):
            body = json.dumps([event.data["text"] for event in events[start : start + batch]])
            self.client.xadd(f"batches:{events[0].run_id}", {"body": body})

    def read(self, run_id: str) -> list[str]:
        """Return the texts of a run, a page after the other."""
        texts: list[str] = []
        after = "-"
        while page := self.client.xrange(f"pipelined:{run_id}", min=after, max="+", count=_PAGE):
            texts += [json.loads(entry[b"data"]).get("text", "") for _, entry in page]
            after = f"({page[-1][0].decode()}"
        return texts

    def size(self, key: str) -> int:
        """Return the bytes that the server holds for a stream."""
        return int(self.client.memory_usage(key, samples=0) or 0)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    @staticmethod
    def _entry(event: Event) -> dict[Any, Any]:
        return {"kind": event.kind, "at": time.time(), "call_id": event.call_id or "", "data": json.dumps(event.data)}
