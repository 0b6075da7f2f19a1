"""The chat page of `runjournal serve`, and the timeline of a run as a page.

Rule: the page loads nothing from another host and runs no script but its own, whatever a message, a tool or a title holds.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ..events import Run, RunStatus
from ..journal.core import core_of
from ..view import page as timeline_page

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""With trusted types and none allowed, the browser itself refuses to parse any string as markup."""
_TIMELINE_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class _File(NamedTuple):
    body: bytes
    type: str
    etag: str


@cache
def _page_files() -> dict[str, _File]:
    """Return the files of the page by name. The requests name them: no path of a request is ever opened."""
    found = {}
    for file in files(__package__).joinpath("page").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            found[file.name] = _File(body, kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found


def page_routes(*, ideas: Sequence[str] = (), hint: str = "") -> list[BaseRoute]:
    """Return the routes of the page. `ideas`: what an empty conversation offers to ask; `hint`: the line above them."""
    about = {"ideas": list(ideas), "hint": hint}

    async def index(request: Request) -> Response:
        return _answer(request, "index.html")

    async def file(request: Request) -> Response:
        return _answer(request, request.path_params["name"])

    async def settings(request: Request) -> Response:
        return JSONResponse(about, headers={**_HEADERS, "cache-control": "no-cache"})

    return [Route("/", index), Route("/page/settings.json", settings), Route("/page/{name}", file)]


def _answer(request: Request, name: str) -> Response:
    found = _page_files().get(name)
    if found is None:
        return Response("This file does not exist.\n", 404, _HEADERS, "text/plain")
    headers = {**_HEADERS, "content-security-policy": _POLICY, "cache-control": "no-cache", "etag": found.etag}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, 200, headers, found.type)


async def timeline_of(journal: RunJournal, run: Run) -> Response:
    """Return the timeline of a run as a page of its own."""
    events = await journal.aread(run.run_id, limit=None)
    html = await asyncio.to_thread(
        lambda: timeline_page([(run, events)], gone={run.run_id} if _is_dead(journal, run) else ())
    )
    headers = {**_HEADERS, "content-security-policy": _TIMELINE_POLICY, "cache-control": "no-store"}
    return HTMLResponse(html.encode("utf-8", "replace"), headers=headers)


def _is_dead(journal: RunJournal, run: Run) -> bool:
    """Return whether no process works on the run, although it has not ended."""
    if run.ended or run.status == RunStatus.PAUSED:
        return False
    dead_owners = core_of(journal).dead_owners
    owner = dead_owners.owner(run.owner)
    return owner is None or dead_owners.verdict(owner) == "gone"
