"""Pure: the fields of a run that databases keep in columns of their own, and those that they keep together as JSON.

A column serves a search, or is written on its own. All other fields are in one column: another field needs no new schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..common import strict_json as _json
from ..events import Run, RunStatus

_REST: Final = ("name", "cause", "error", "started_at", "lost", "problem", "given_up", "metadata", "usage")


def rest_of(run: Run) -> str:
    """Return as JSON the fields of a run that have no column of their own."""
    rest = {name: getattr(run, name) for name in _REST}
    return json.dumps(_json.standard({name: value for name, value in rest.items() if value}))


def ending_of(run: Run) -> tuple[bool, int | None]:
    """Return whether nothing is left to do once the run has ended, and when it ended, in milliseconds since 1970."""
    return run.settled or run.given_up, None if run.ended_at is None else round(run.ended_at * 1000)


def run_from(head: Mapping[str, Any], status: str, done: object, ended_at: int | None, rest: str, last_seq: int) -> Run:
    """Return the run of columns. Raises a `ValueError` or a `TypeError` for columns that no store has written.

    `head`: fields with a column of their own that is the value of the field.
    """
    more = _json.loads(rest)
    if not isinstance(more, dict):
        raise ValueError("the rest of its columns is not a mapping")
    run = Run(
        **head,
        status=RunStatus(status),
        settled=bool(done) and not more.get("given_up"),  # the column says whether anything is left to do
        ended_at=None if ended_at is None else ended_at / 1000,
        last_seq=last_seq,
        **more,
    )
    if not isinstance(run.started_at, (int, float)) or not isinstance(run.lost, int):
        raise ValueError("a column that should hold a number does not")
    if not isinstance(run.metadata, Mapping) or not isinstance(run.usage, Mapping):
        raise ValueError("its metadata or its usage is not a mapping")
    return run


def run_row(run: Run) -> tuple[Any, ...]:
    """Return all columns of a run, in the order of `run_of`, but for the number of its row."""
    return run.run_id, run.thread_id, run.status.value, run.owner, run.epoch, run.stop, *ending_of(run), rest_of(run)


def run_of(row: Sequence[Any], last_seq: int = 0) -> Run:
    """Return the run of a row. Raises a `ValueError` or a `TypeError` for a row that no store has written."""
    run_id, thread_id, status, owner_id, epoch, stop, done, ended_at, rest, _ = row
    head = {"run_id": run_id, "thread_id": thread_id, "owner": owner_id, "epoch": epoch, "stop": stop}
    return run_from(head, status, done, ended_at, rest, last_seq)
