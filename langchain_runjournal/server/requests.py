"""Requests: what a client sends, read within bounds.

Rule: whatever a client sends, the answer is a clear 4xx. Nothing is read without a limit.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from starlette.requests import ClientDisconnect

from ..common.text import is_utf8
from .problems import Problem, not_found

if TYPE_CHECKING:
    from starlette.requests import Request

_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of a server."""

    body: int = 1 << 20
    """Bytes of the body of a request."""
    body_seconds: float = 20.0
    """Seconds in which the body of a request must have come. After that, the status is 408."""
    depth: int = 50
    """How deeply the JSON of a body may be nested."""
    id: int = 255
    """Characters of the id of a thread, a run or a message."""
    streams: int = 1_000
    """Streams that are open at the same time. Beyond that, a new one is refused with status 503 and `Retry-After`."""


async def read_json(request: Request, limits: Limits, *, of_any_type: bool = False) -> dict[str, Any]:
    """Return the JSON object in the body of a request.

    `of_any_type`: whatever the header says, and an empty object for an empty body. Some clients send JSON as `text/plain`,
    to avoid a preflight. `Access.check_request` has refused the pages of other sites before.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not of_any_type:
        raise Problem(415, "Send a JSON object, with the header `Content-Type: application/json`.")
    try:
        body = await asyncio.wait_for(_read(request, limits), limits.body_seconds)
    except asyncio.TimeoutError:
        raise Problem(408, "The body did not come in time. Send the same request again.") from None
    except ClientDisconnect:
        raise Problem(400, "The connection ended before the body did. Send the same request again.") from None
    found = {} if of_any_type and not body.strip() else _parsed(body, limits.depth)
    if not isinstance(found, dict):
        raise Problem(422, 'Send a JSON object, such as {"input": {...}}.')
    return found


async def _read(request: Request, limits: Limits) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limits.body:
            raise Problem(413, f"The body is larger than {limits.body} bytes. Send less, or raise `Limits.body`.")
    return bytes(body)


def _parsed(body: bytes, deepest: int) -> Any:
    try:
        found = json.loads(body.decode("utf-8"), **_STRICT)
        # Half of a surrogate pair can be written as JSON, but not stored.
        json.dumps(found, ensure_ascii=False).encode("utf-8")
        is_flat = _is_flat(found, deepest)
    except RecursionError:
        is_flat = False
    except ValueError:
        raise Problem(
            400, "The body is not JSON in UTF-8, as RFC 8259 defines it, with each name once in an object."
        ) from None
    if not is_flat:
        raise Problem(422, f"The JSON is nested more than {deepest} levels deep. Send it flatter.")
    return found


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _unique(members: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Of a name that stands twice, a proxy that checks the body may have seen the other value."""
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a name stands twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _is_flat(value: Any, deepest: int) -> bool:
    """Return whether a value is nested at most that deeply."""
    level = [value]
    for _ in range(deepest):
        level = [inner for one in level if isinstance(one, (dict, list)) for inner in _items(one)]
        if not level:
            return True
    return not any(isinstance(one, (dict, list)) for one in level)


def _integer(text: str) -> int:
    value = int(text)
    if not -(1 << 63) <= value < 1 << 64:
        # No checkpoint can hold it, so the run that has it could never be settled.
        raise Problem(422, "A number of the body does not fit into 64 bits. Send it as a text.")
    return value


_STRICT: Final[Mapping[str, Any]] = {
    "parse_constant": _refuse,
    "parse_float": _finite,
    "parse_int": _integer,
    "object_pairs_hook": _unique,
}


def _items(value: Any) -> Collection[Any]:
    return value.values() if isinstance(value, dict) else value


def only(body: Mapping[str, Any], known: Collection[str], what: str = "The body") -> None:
    """Raise a `Problem` for a member that is not known."""
    if unknown := sorted(set(body) - set(known)):
        names = ", ".join(json.dumps(name[:40]) for name in unknown[:5])
        raise Problem(422, f"{what} has unknown members: {names}. It may have: {', '.join(sorted(known))}.")


def identifier(value: object, limits: Limits) -> str:
    """Return the id of a thread or a run. One that cannot exist looks like one that does not."""
    if not isinstance(value, str) or not 0 < len(value) <= limits.id or not is_utf8(value) or "\x00" in value:
        raise not_found()
    return value


def run_uuid(value: object) -> UUID | None:
    """Return the id that a client chose for a run, or None."""
    if value is None:
        return None
    try:
        return UUID(value) if isinstance(value, str) and len(value) <= 40 else _bad_uuid()
    except ValueError:
        return _bad_uuid()


def _bad_uuid() -> UUID:
    raise Problem(422, '"run_id" must be a UUID, such as "6f3a1b9e-0c43-4d0e-9f57-0a9d4f0f7b11".')


def flag(request: Request, name: str) -> bool:
    """Return the value of a query parameter that is yes or no."""
    value = request.query_params.get(name, "").lower()
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise Problem(422, f"The query parameter {name!r} must be 1 or 0.")


def count(request: Request, name: str, default: int, most: int) -> int:
    """Return the value of a query parameter that is a number from 1 to `most`."""
    value = request.query_params.get(name)
    if value is None:
        return default
    if value.isascii() and value.isdecimal() and len(value) < 10 and int(value) >= 1:
        return min(int(value), most)
    raise Problem(422, f"The query parameter {name!r} must be a number from 1 to {most}.")


def cursor_of(request: Request) -> str | None:
    """Return the cursor of a request, or None without one. A query parameter wins by being there, whatever it says."""
    for name in ("cursor", "after"):
        if name in request.query_params:
            return request.query_params[name]
    given = request.headers.getlist("last-event-id")
    return None if not given else given[0] if len(set(given)) == 1 else ", ".join(given)
