"""A token for everything: what `runjournal serve` asks for when other machines can reach it.

Programs send it as a bearer token, or in the header X-Api-Key. People open the link with it once; the answer is a cookie
that scripts cannot read and that other sites cannot use, and the page without the token in its address.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE: Final = "runjournal"
_MONTH: Final = 30 * 24 * 3600
_TO_DO: Final = "Open the address with ?token=... that the server has printed, or send the token as a bearer token."
_PAGE: Final = (
    '<!doctype html>\n<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    f"<title>Log in</title><p>This server needs a token. {_TO_DO}</p></html>\n"
)
_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class TokenLogin:
    """An ASGI application in front of another one, which passes only requests that know the token."""

    def __init__(self, app: App, token: str) -> None:
        self._app = app
        self._token = token.encode()
        # The cookie is not the token: what a browser keeps opens this page only.
        self._cookie = hmac.new(self._token, b"cookie of the page", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        is_known = scope["type"] == "http" and (_asks_first(scope) or self._knows(_headers(scope)))
        if scope["type"] == "lifespan" or is_known:
            given = self._given(scope) if scope["type"] == "http" else None
            await (self._enter(scope) if given is not None else self._app)(scope, receive, send)
        elif scope["type"] == "http":
            await self._login(scope)(scope, receive, send)

    def _knows(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token):
            return True
        # The clients of LangGraph Server have a field for a key, which they send in a header of its own.
        if hmac.compare_digest(headers.get(b"x-api-key", b"").strip(), self._token):
            return True
        try:
            cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self._cookie.encode())

    def _login(self, scope: Scope) -> Response:
        """Return the answer to a request without a token, or with one in its address."""
        given = self._given(scope)
        if given is not None and hmac.compare_digest(given, self._token):
            return self._enter(scope)
        if b"text/html" in _headers(scope).get(b"accept", b""):
            return HTMLResponse(_PAGE, 401, _HEADERS)
        problem = {"type": "about:blank", "title": "Unauthorized", "status": 401, "detail": _TO_DO}
        more = {"www-authenticate": "Bearer"}
        return JSONResponse(problem, 401, {**_HEADERS, **more}, "application/problem+json")

    def _enter(self, scope: Scope) -> Response:
        """Return the page without the token in its address; with the cookie, if the token is right."""
        answer = RedirectResponse(f"{scope.get('root_path', '')}/", 303, _HEADERS)
        given = self._given(scope)
        if given is not None and hmac.compare_digest(given, self._token):
            secure = scope.get("scheme") == "https"
            answer.set_cookie(COOKIE, self._cookie, _MONTH, secure=secure, httponly=True, samesite="strict")
        return answer

    @staticmethod
    def _given(scope: Scope) -> bytes | None:
        """Return the token in the address of the page, or None."""
        if scope["method"] != "GET" or scope["path"].removeprefix(scope.get("root_path", "")) not in ("", "/"):
            return None
        found = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        return found[0].encode() if found else None


def _asks_first(scope: Scope) -> bool:
    """Return whether a browser asks what the page of another origin may send. It sends no token with that, and only the
    middleware for CORS answers."""
    return bool(scope["method"] == "OPTIONS" and b"access-control-request-method" in _headers(scope))


def _headers(scope: Scope) -> dict[bytes, bytes]:
    return {name.lower(): value for name, value in scope["headers"]}
