"""The search for threads, with their metadata, values and status.

Rule: a thread that the request may not read is neither found nor counted. `authorize` is asked for each thread that matches,
in the order of the answer, and for a bounded number of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...events import Run
from .asked import MOST, contains, is_uuid, list_in, number_in, object_in, one_in, refuse, select_in, selected
from .plain import values_json
from .thread_status import STATUSES, THREAD_FIELDS, KnownThread, thread_json

if TYPE_CHECKING:
    from starlette.requests import Request

    from .threads import Threads

logger = logging.getLogger("langchain_runjournal")

_RUNS: Final = 5_000
"""How many runs are read to find the threads that have no row, because another dialect began them."""
_ASKED: Final = 1_000
"""How many threads are looked at, at least if there are so many, so that the total is right for most applications."""
_MOST_ASKED: Final = 10_000
_AT_ONCE: Final = 20
"""How many states are read at the same time."""
_SORT: Final[Mapping[str, Callable[[KnownThread], Any]]] = {
    "created_at": lambda one: one.created_at,
    "updated_at": lambda one: one.updated_at,
    "state_updated_at": lambda one: one.state_updated_at,
    "thread_id": lambda one: one.thread_id,
    "status": lambda one: one.status,
}
_NEEDS_STATE: Final = ("values", "interrupts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a search asks for."""

    metadata: Mapping[str, Any]
    values: Mapping[str, Any]
    status: str | None
    ids: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of the threads that match."""

    threads: list[dict[str, Any]]
    total: int
    following: int | None
    """The offset of the next page; None for the last one."""


def wanted_in(body: Mapping[str, Any]) -> Wanted:
    """Return what a body asks for. Raise a `Problem`."""
    status = one_in(body, "status", STATUSES, "")
    ids = list_in(body, "ids")
    return Wanted(
        metadata=object_in(body, "metadata") or {},
        values=object_in(body, "values") or {},
        status=status or None,
        ids=None if ids is None else frozenset(one for one in ids if isinstance(one, str)),
    )


class ThreadSearch:
    """The search for threads of one application."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def page(self, request: Request, body: Mapping[str, Any]) -> Page:
        """Return one page of the threads that match. Raise a `Problem`."""
        refuse(body, extract='read the values of the threads, or search with "select".')
        wanted, names = wanted_in(body), select_in(body, THREAD_FIELDS)
        limit, offset = number_in(body, "limit", 10, least=1, most=MOST), number_in(body, "offset", 0)
        key = one_in(body, "sort_by", tuple(_SORT), "created_at")
        falling = one_in(body, "sort_order", ("asc", "desc"), "desc") == "desc"
        shown: list[tuple[KnownThread, dict[str, Any] | None]] = []
        total = 0
        async for one in self._matching(request, wanted, key, falling, offset + limit):
            if offset <= total < offset + limit:
                shown.append(one)
            total += 1
        found: list[dict[str, Any] | BaseException] = []
        for at in range(0, len(shown), _AT_ONCE):
            some = shown[at : at + _AT_ONCE]
            found += await asyncio.gather(*(self._json(*one, names) for one in some), return_exceptions=True)
        following = offset + limit if total > offset + limit else None
        known = [one for one, _ in shown]
        return Page(threads=[selected(one, names) for one in _readable(known, found)], total=total, following=following)

    async def count(self, request: Request, body: Mapping[str, Any]) -> int:
        """Return how many threads match. Raise a `Problem`."""
        total = 0
        async for _ in self._matching(request, wanted_in(body), "created_at", True, 0):
            total += 1
        return total

    async def _json(self, known: KnownThread, found: dict[str, Any] | None, names: list[str] | None) -> dict[str, Any]:
        if found is not None:
            return found
        if names is not None and not any(name in names for name in _NEEDS_STATE):
            return thread_json(known, None, {})
        return await self._threads.json(known)

    async def _matching(
        self, request: Request, wanted: Wanted, key: str, falling: bool, needed: int
    ) -> AsyncGenerator[tuple[KnownThread, dict[str, Any] | None], None]:
        """Yield the threads that match and that the request may read, in order; with their JSON, if it was needed."""
        known = [one for one in await self._threads.service.off_loop(self._all) if _is_wanted(one, wanted)]
        known = [one for one in known if wanted.status in (None, one.status)]
        known.sort(key=lambda one: (_SORT[key](one), one.thread_id), reverse=falling)
        found = 0
        for asked, one in enumerate(known):
            if asked >= (_ASKED if found >= needed else _MOST_ASKED):
                return
            if not await self._threads.service.access.may(request, "read", one.thread_id):
                continue
            values: dict[str, Any] | None = None
            if wanted.values:
                values = await self._threads.json(one)
                if not contains(values["values"], values_json(wanted.values)):
                    continue
            found += 1
            yield one, values

    def _all(self) -> list[KnownThread]:
        """Return all threads that clients of LangGraph Server can name. Blocks."""
        threads = self._threads
        rows = {row.thread_id: row for row in threads.rows.all()}
        runs = threads.journal.runs(None, None, _RUNS)
        newest: dict[str, Run] = {}
        for run in runs:
            if run.thread_id is not None and is_uuid(run.thread_id):
                newest.setdefault(run.thread_id, run)
        if len(runs) == _RUNS:
            for thread_id in rows.keys() - newest.keys():
                for run in threads.journal.runs(thread_id, None, 1):
                    newest[thread_id] = run
        waiting, ids = threads.all_waiting(), rows.keys() | newest.keys()
        return [threads.known(one, rows.get(one), newest.get(one), one in waiting) for one in ids]


def _readable(known: Sequence[KnownThread], found: Sequence[dict[str, Any] | BaseException]) -> list[dict[str, Any]]:
    """Return threads as JSON. A thread whose state cannot be read is shown without it, so that it does not hide the others.

    Raise the error if that is so for all of them: then it is not the threads.
    """
    failed = [one for one in found if isinstance(one, BaseException)]
    if failed and (len(failed) == len(found) or not isinstance(failed[0], Exception)):
        raise failed[0]
    shown = []
    for thread, one in zip(known, found, strict=True):
        if isinstance(one, BaseException):
            logger.warning("a list shows thread %s without its values, which cannot be read: %s", thread.thread_id, one)
        shown.append(thread_json(thread, None, {}) if isinstance(one, BaseException) else one)
    return shown


def _is_wanted(known: KnownThread, wanted: Wanted) -> bool:
    return (wanted.ids is None or known.thread_id in wanted.ids) and contains(dict(known.metadata), dict(wanted.metadata))
