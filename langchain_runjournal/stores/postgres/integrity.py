"""The check of a schema: its tables and indexes, its rows, and what the role of the URL may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...common.wording import plural
from .names import decoded
from .run_rows import RUN, run_of, unreadable
from .sessions import Session

TABLES: Final = {
    "facts": "name text, value text",
    "owners": "owner_id text, place text, pid bigint, born text, lease double precision, beats bigint",
    "runs": (
        "run bigint, version bigint, last_seq bigint, ended_at bigint, epoch bigint, settled boolean, run_id text,"
        " thread_id text, status text, owner_id text, stop text, rest text"
    ),
    "events": "run bigint, first bigint, last bigint, t0 bigint, t1 bigint, ats text, calls text, body text",
    "deleted": "owner_id text, run_id text, beats bigint",
    "lessons": "graph text, name text, fact text",
    "holders": "thread_id text, holder text",
    "records": "number bigint, space text, key text, group_key text, version bigint, text text",
    "migrations": "version integer, name text, serves integer, at timestamp with time zone",
}
"""The tables that the migrations make. A later release may add columns, tables and indexes."""
INDEXES: Final = frozenset(
    {
        *(f"{table}_pkey" for table in TABLES),
        *("runs_run_id_key", "runs_of_thread", "runs_of_status", "runs_to_settle", "runs_to_stop", "runs_to_prune"),
        *("records_space_key_key", "records_of_space", "records_of_group"),
    }
)
_COLUMNS: Final = """
SELECT c.relname, a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
"""
_INDEXES: Final = """
SELECT c.relname FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
WHERE c.relnamespace = %(schema)s::regnamespace AND i.indisvalid
"""
_RIGHTS: Final = """
SELECT t, r FROM unnest(%(tables)s::text[]) AS t, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS r
WHERE NOT has_table_privilege(t, r)
"""
_STRAY: Final = "SELECT count(*) FROM {s}.events WHERE NOT EXISTS (SELECT FROM {s}.runs WHERE runs.run = events.run)"
_GAPS: Final = """
SELECT run_id, last, next FROM (
    SELECT run, last, lead(first) OVER (PARTITION BY run ORDER BY last) AS next FROM {s}.events
    UNION ALL SELECT run, 0, min(first) FROM {s}.events GROUP BY run
) AS rows JOIN {s}.runs USING (run)
WHERE next <> last + 1 AND rest NOT LIKE '%%"lost"%%' LIMIT 20
"""
_ENDS: Final = """
SELECT run_id, last_seq, coalesce(max(last), 0) FROM {s}.runs LEFT JOIN {s}.events USING (run)
GROUP BY run HAVING last_seq <> coalesce(max(last), 0) LIMIT 20
"""
_ALL: Final = f"SELECT {RUN} FROM {{s}}.runs"
_AT_ONCE: Final = 1_000
_Sql = Callable[[str], bytes]


def problems(session: Session, sql: _Sql, schema: str) -> list[str]:
    """Return one sentence for each problem."""
    session.deadline = None
    with session.transaction():
        session.execute(b"SET LOCAL statement_timeout = 0")
        session.execute(b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        found = [*_of_schema(session, schema), *_of_rights(session, schema)]
        return found or _of_rows(session, sql)


def _of_schema(session: Session, schema: str) -> list[str]:
    values = {"schema": f'"{schema}"'}
    there = set(session.execute(_COLUMNS.encode(), values).fetchall())
    tables = {table for table, _ in there}
    found = []
    for table, columns in TABLES.items():
        if table not in tables:
            found.append(f"the table {table} is missing")
            continue
        wanted = columns.split(", ")
        found += [
            f"the column {one} of {table} is missing or of another type" for one in wanted if (table, one) not in there
        ]
    indexes = {name for (name,) in session.execute(_INDEXES.encode(), values)}
    return [*found, *(f"the index {name} is missing or not valid" for name in sorted(INDEXES - indexes))]


def _of_rights(session: Session, schema: str) -> list[str]:
    tables = [f'"{schema}".{table}' for table in TABLES if table != "migrations"]
    if session.execute(b"SELECT 1 WHERE has_schema_privilege(%(schema)s, 'USAGE')", {"schema": schema}).fetchone() is None:
        return [f"the role may not use the schema {schema}"]
    there = session.execute(
        b"SELECT t FROM unnest(%(tables)s::text[]) AS t WHERE to_regclass(t) IS NOT NULL", {"tables": tables}
    )
    rows = session.execute(_RIGHTS.encode(), {"tables": [table for (table,) in there]})
    return [f"the role lacks the right to {right} on {table}" for table, right in rows]


def _of_rows(session: Session, sql: _Sql) -> list[str]:
    found = []
    stray = session.execute(sql(_STRAY)).fetchone() or (0,)
    if stray[0]:
        found.append(f"events has {plural(stray[0], 'row')} without a run")
    for run_id, last, after in session.execute(sql(_GAPS), {}):
        found.append(f"run {decoded(run_id)} has a gap: {last} is followed by {after}")
    for run_id, said, last in session.execute(sql(_ENDS)):
        found.append(f"run {decoded(run_id)} ends at seq {said} by its own row, and at {last} by its events")
    number = 0
    while rows := session.execute(sql(f"{_ALL} WHERE run > {number} ORDER BY run LIMIT {_AT_ONCE}")).fetchall():
        number = rows[-1][-2]
        for row in rows:
            try:
                run_of(row)
            except (TypeError, ValueError) as exc:
                found.append(unreadable(decoded(row[0]), str(exc)))
    return found
