"""Pure: the rows of the table `runs`: how a run is written and read, also beside rows that are damaged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from ...events import Run
from ...events.run import Begun
from ..run_columns import ending_of, rest_of, run_from
from .names import decoded, encoded, is_hash, key

RUN: Final = "run_id, thread_id, status, owner_id, epoch, stop, settled, ended_at, rest, last_seq, run, version"
ONE: Final = f"SELECT {RUN} FROM {{s}}.runs WHERE run_id = %(run_id)s"
SOME: Final = f"SELECT {RUN} FROM {{s}}.runs WHERE run_id = ANY(%(run_ids)s::text[])"
LOCKED: Final = f"{SOME} ORDER BY run FOR NO KEY UPDATE"
RUNS: Final = {
    # One statement for each combination: a prepared statement with a condition that a parameter switches off uses no index.
    (of_thread, with_status): (
        f"SELECT {RUN} FROM {{s}}.runs WHERE {'thread_id = %(thread_id)s' if of_thread else 'TRUE'}"
        f" AND {'status = %(status)s' if with_status else 'TRUE'} ORDER BY run DESC LIMIT %(most)s"
    )
    for of_thread in (False, True)
    for with_status in (False, True)
}
UNSETTLED: Final = {
    of_thread: (
        f"SELECT {RUN} FROM {{s}}.runs WHERE {'thread_id = %(thread_id)s' if of_thread else 'TRUE'}"
        " AND (status = 'running' OR (ended_at IS NOT NULL AND NOT settled)) ORDER BY run"
    )
    for of_thread in (False, True)
}
BEGAN: Final = {
    (of_thread, from_number): (
        "SELECT run, run_id, thread_id,"
        " CASE WHEN starts_with(run_id, %(hash)s) OR starts_with(thread_id, %(hash)s) THEN rest END"
        f" FROM {{s}}.runs WHERE {'thread_id = %(thread_id)s' if of_thread else 'TRUE'}"
        f" AND {'run > %(after)s ORDER BY run LIMIT %(most)s' if from_number else 'TRUE ORDER BY run DESC LIMIT 1'}"
    )
    for of_thread in (False, True)
    for from_number in (False, True)
}
_LONG: Final = ("run_id", "thread_id")
"""Ids that are too long for an index stand as a hash in their columns, and whole in the column `rest`."""


def run_row(run: Run) -> dict[str, Any]:
    """Return the columns of a run that an owner writes."""
    done, ended_at = ending_of(run)
    row: dict[str, Any] = {
        "run_id": key(run.run_id),
        "thread_id": None if run.thread_id is None else key(run.thread_id),
        "status": run.status.value,
        "owner_id": encoded(run.owner or ""),
        "epoch": run.epoch,
        "stop": None if run.stop is None else encoded(run.stop),
        "settled": done,
        "ended_at": ended_at,
        "rest": rest_of(run),
        "last_seq": run.last_seq,
    }
    long = {name: getattr(run, name) for name in _LONG if row[name] is not None and is_hash(row[name])}
    if long:
        row["rest"] = json.dumps({**json.loads(row["rest"]), **long})
    return row


def run_of(row: Sequence[Any]) -> Run:
    """Return the run of a row. Raises a `ValueError` or a `TypeError` for a row that no store has written."""
    run_id, thread_id, status, owner_id, epoch, stop, done, ended_at, rest, last_seq, *_ = row
    names = {"run_id": run_id, "thread_id": thread_id, "owner": owner_id, "stop": stop}
    head: dict[str, Any] = {name: None if text is None else decoded(text) for name, text in names.items()}
    if is_hash(run_id) or (thread_id is not None and is_hash(thread_id)):
        more = json.loads(rest)
        head.update((name, more.pop(name)) for name in _LONG if name in more)
        rest = json.dumps(more)
    return run_from({**head, "epoch": epoch}, status, done, ended_at, rest, last_seq)


def begun_of(row: Sequence[Any]) -> Begun:
    """Return the run of a row of `BEGAN`. Raises a `ValueError` or a `TypeError` for a row that no store has written."""
    number, run_id, thread_id, rest = row
    names = {"run_id": decoded(run_id), "thread_id": None if thread_id is None else decoded(thread_id)}
    if rest is not None:
        names.update((name, one) for name, one in json.loads(rest).items() if name in _LONG)
    return Begun(number, str(names["run_id"]), names["thread_id"])


def unreadable(run_id: str, why: str) -> str:
    """Return the reason of an error about a damaged row."""
    return f"the row of run {run_id} cannot be read ({why})"
