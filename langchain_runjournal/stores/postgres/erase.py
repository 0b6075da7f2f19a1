"""The deletion of runs, and of what is left of their text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ...errors import StoreFailed
from .sessions import Session

_PORTION: Final = 100
NAMED: Final = "TRUE"
PRUNED: Final = "ended_at IS NOT NULL AND settled"
"""Of the runs that a caller has named: those that are to be deleted, looked at again under the lock."""
_DONE: Final = f"FROM {{s}}.runs WHERE {PRUNED}"
_FIRST: Final = f"SELECT ended_at {_DONE} ORDER BY ended_at, run LIMIT 1"
_KEPT: Final = f"SELECT ended_at, run {_DONE} ORDER BY ended_at DESC, run DESC LIMIT 1 OFFSET %(keep)s"
_PRUNABLE: Final = (
    f"SELECT run_id {_DONE} AND (ended_at, run) < (%(ended_at)s::bigint, %(run)s::bigint) ORDER BY ended_at, run"
)
_NEVER: Final = 1 << 62
_THERE: Final = "SELECT run_id FROM {s}.runs WHERE run_id = ANY(%(run_ids)s::text[])"
_RUNS: Final = """
WITH gone AS (
    DELETE FROM {s}.runs WHERE run IN (
        SELECT run FROM {s}.runs WHERE run_id = ANY(%(run_ids)s::text[]) AND {which} ORDER BY run FOR UPDATE
    ) RETURNING run, run_id, owner_id
), remembered AS (
    INSERT INTO {s}.deleted (owner_id, run_id, beats)
    SELECT owner_id, gone.run_id, owners.beats FROM gone JOIN {s}.owners USING (owner_id)
    ON CONFLICT (owner_id, run_id) DO UPDATE SET beats = excluded.beats
)
SELECT run, {notify} FROM gone
"""
_EVENTS: Final = "DELETE FROM {s}.events WHERE run = ANY(%(runs)s::bigint[])"
_TABLES: Final = ("runs", "events", "deleted", "records")
_FILE: Final = "SELECT pg_relation_filenode('{s}.%s')"
_SKIPPED: Final = "its role may not rewrite the table %s, which may still hold the text of deleted runs"
_Sql = Callable[[str], bytes]


def portions(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield parts of a list, so that no transaction is long."""
    for start in range(0, len(names), _PORTION):
        yield names[start : start + _PORTION]


def prunable(session: Session, sql: _Sql, before: int | None, keep_last: int | None) -> list[str]:
    """Return the keys of the runs that `Store.prune` deletes, the first to end first.

    It reads the index of these runs, from its beginning, and of `keep_last` runs from its end.
    """
    first = session.execute(sql(_FIRST)).fetchone()
    if first is None or (before is not None and first[0] >= before):
        return []
    end = (_NEVER if before is None else before, 0)
    if keep_last:
        kept = session.execute(sql(_KEPT), {"keep": keep_last}).fetchone()  # the newest run that is not kept
        if kept is None:
            return []
        end = min(end, (kept[0], kept[1] + 1))
    return [run_id for (run_id,) in session.execute(sql(_PRUNABLE), {"ended_at": end[0], "run": end[1]})]


def there(session: Session, sql: _Sql, names: Sequence[str]) -> list[str]:
    """Return which of these runs exist."""
    return [run_id for (run_id,) in session.execute(sql(_THERE), {"run_ids": list(names)})]


def erase(session: Session, sql: _Sql, names: Sequence[str], which: str) -> None:
    """Delete runs in one transaction. It waits for appends and merges of these runs only, and only these wait for it."""
    with session.transaction():
        rows = session.execute(sql(_RUNS.replace("{which}", which)), {"run_ids": list(names)}).fetchall()
        # A statement of its own: it must see the events that were committed while the other one waited for their run.
        session.execute(sql(_EVENTS), {"runs": [run for run, _ in rows]})


def vacuum(session: Session, sql: _Sql, url: str) -> None:
    """Rewrite the tables that hold text, without a limit of time. Raise `StoreFailed` if the role may not rewrite them."""
    session.deadline = None
    limit = session.execute(b"SHOW statement_timeout").fetchone() or ("0",)
    session.execute(b"SET statement_timeout = 0")
    try:
        for table in _TABLES:
            before = session.execute(sql(_FILE % table)).fetchone()
            session.execute(sql(f"VACUUM (FULL, ANALYZE) {{s}}.{table}"))
            # For a role without the right, the server skips the table with a warning, whose text depends on its language.
            if session.execute(sql(_FILE % table)).fetchone() == before:
                raise StoreFailed(path=url, reason=_SKIPPED % table, hint="Use the role that owns the tables")
    finally:
        if not session.closed:
            session.execute(b"SELECT set_config('statement_timeout', %(limit)s, false)", {"limit": limit[0]})
