"""The list of the threads: the conversations of a journal, the newest first."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..events import Run
from ..messages.plain_text import text_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from .service import Service

_LISTED: Final = (200, 5_000, None)
"""How many runs are listed, step by step, to find enough threads."""
_SEARCHED: Final = 1_000
"""How many threads are searched."""
_FIRST: Final = 50
"""How many events of a run are read for its first message."""
_TITLE: Final = 80


async def threads_json(service: Service, request: Request, limit: int, search: str) -> list[dict[str, Any]]:
    """Return the threads that a request may see, the newest first, at most `limit`. `search`: words of the title."""
    found: list[dict[str, Any]] = []
    looked, words = 0, search.casefold().split()
    async for newest in _newest_runs(service):
        looked += 1
        if len(found) >= limit or looked > _SEARCHED:
            break
        thread_id = str(newest.thread_id)
        if not await service.access.may(request, "read", thread_id):
            continue
        title = await service.off_loop(partial(service.titles.get, thread_id, partial(_title, service, thread_id)))
        if all(word in title.casefold() for word in words):
            found.append(_thread_json(newest, title))
    return found


async def _newest_runs(service: Service) -> AsyncGenerator[Run, None]:
    """Yield the newest run of each thread, the newest thread first."""
    seen: set[str | None] = {None}
    for limit in _LISTED:
        runs = await service.journal.aruns(limit=limit)
        for run in runs:
            if run.thread_id not in seen:
                seen.add(run.thread_id)
                yield run
        if limit is None or len(runs) < limit:
            return


def _title(service: Service, thread_id: str) -> str:
    """Return the first words that a human has said on a thread. Blocks."""
    for run in reversed(service.journal.runs(thread_id, None, None)):
        for event in service.journal.read(run.run_id, 0, _FIRST):
            message = event.data.get("message") if event.kind == "llm.human.input" else None
            fields = message.get("data") if isinstance(message, Mapping) else None
            words = " ".join(text_of(fields.get("content")).split()) if isinstance(fields, Mapping) else ""
            if words:
                return words if len(words) <= _TITLE else f"{words[: _TITLE - 1].rstrip()}…"
    return ""


def _thread_json(newest: Run, title: str) -> dict[str, Any]:
    return {
        "thread_id": newest.thread_id,
        "title": title,
        "status": newest.status.value,
        "run_id": newest.run_id,
        "updated_at": newest.ended_at or newest.started_at,
    }
