"""Access: who may send a request, and what it may see.

Rule: without `authorize`, the server answers this machine alone. With it, every request is asked about, and so is every
reconnect. What a client may not see looks like what does not exist.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from .problems import Problem, not_found

if TYPE_CHECKING:
    from starlette.requests import Request

Action: TypeAlias = Literal["read", "start", "stop", "delete", "list", "update"]
"""What a request wants: read a thread or a run, start or stop a run, delete a thread, list the threads; "update": write the
metadata or the state of a thread, by the LangGraph API."""
Authorize: TypeAlias = "Callable[[Request, Action, str | None], bool | Awaitable[bool | None] | None]"
"""Returns whether a request may do that on a thread (None: on no thread). It may raise an `HTTPException` instead."""

LOCAL: Final = ("localhost", "127.0.0.1", "::1")
LOCAL_PAGES: Final = ("http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*")
"""The origins of pages that a server on this machine has delivered."""
_ANY, _NONE = ".*", "(?!)"
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")
_SAFE: Final = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may do what."""

    authorize: Authorize | None
    hosts: Collection[str] | None
    """The names that a `Host` header may have; None for any."""
    origins: Sequence[str] = ()
    """Other origins whose pages may use the server."""

    def check_request(self, request: Request) -> None:
        """Raise a `Problem` for a request that this server must not answer, whatever it wants."""
        if self.authorize is None:
            _check_is_local(request)
        if self.hosts is not None and _host_name(request.headers.get("host", "")) not in self.hosts:
            detail = "This server has another name. Open it under that name, or give create_app(hosts=[...]) this one."
            raise Problem(400, detail)
        if request.method not in _SAFE and not self._is_same_site(request):
            raise Problem(403, "This request comes from the page of another site. Send it from a page of this one.")

    def _is_same_site(self, request: Request) -> bool:
        """Return whether a request comes from a page of ours, or from no page. Browsers name the site of a page in
        Sec-Fetch-Site, older ones in Origin."""
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        if origin is not None and re.fullmatch(origin_pattern(self.origins), origin):
            return True
        if site is not None:
            return site in ("same-origin", "none")
        return origin is None or _location(origin) == request.headers.get("host")

    async def check(self, request: Request, action: Action, thread_id: str | None) -> None:
        """Raise a `Problem` unless the request may do that."""
        if not await self.may(request, action, thread_id):
            raise not_found()

    async def may(self, request: Request, action: Action, thread_id: str | None) -> bool:
        """Return whether the request may do that."""
        if self.authorize is None:
            return True
        found = self.authorize(request, action, thread_id)
        return bool(await found if inspect.isawaitable(found) else found)


def origin_pattern(origins: Sequence[str]) -> str:
    """Return the regular expression of some origins. "*" stands for any origin; `:*` at the end of one for any port."""
    return "|".join(_ANY if one == "*" else _pattern(one) for one in origins) or _NONE


def _pattern(origin: str) -> str:
    base, mark, _ = origin.partition(":*")
    return re.escape(base) + (r"(?::[0-9]+)?" if mark else "")


def _check_is_local(request: Request) -> None:
    """Raise a `Problem` for a peer that is not on this machine, or that a proxy speaks for."""
    peer = request.client.host if request.client is not None else ""
    if not _is_loopback(peer) or any(name in request.headers for name in _FORWARDED):
        detail = "This server answers only its own machine. Give create_app an `authorize` function to serve others."
        raise Problem(403, detail)


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _host_name(header: str) -> str:
    """Return the name in a Host header, without the port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _location(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
