"""The URLs of SQLite files, as SQLAlchemy reads them: `sqlite:///runs.db` is relative to the current directory, and
`sqlite:////var/lib/runs.db`, with four slashes, is absolute. Options may follow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ...common.arguments import choice, options, positive
from ...common.masked_urls import masked
from ...errors import InvalidArgument, UnknownStore
from .. import Synchronous
from .look import SqliteLook
from .store import SqliteStore

_OPTIONS: Final = ("synchronous", "busy_timeout")
_SHAPE: Final = (
    "a SQLite URL has three slashes before a relative path, or four before an absolute one, and then only options"
)


def open_url(url: str, **given: Any) -> SqliteStore:
    """Return the store of a path or a URL. `given`: options besides those of the URL."""
    path, found = _parts_of(url)
    for name in found:
        if name in given:
            raise InvalidArgument(name=name, expected="left out where the URL gives it", value=given[name])
    return SqliteStore(path, **found, **given)


def look_at(url: str, **given: Any) -> SqliteLook:
    """Return a look at the file of a path or a URL, which must exist."""
    path, found = _parts_of(url)
    return SqliteLook(path, float({**found, **given}.get("busy_timeout", 5.0)))


def path_of(url: str) -> Path:
    """Return the path that a path or a URL names."""
    return _parts_of(url)[0]


def _parts_of(url: str) -> tuple[Path, dict[str, Any]]:
    if not re.match(r"sqlite:", url, re.IGNORECASE):
        return Path(url), {}
    parts = urlsplit(url)
    path = unquote(parts.path).removeprefix("/")
    if not url.lower().startswith("sqlite:///") or path.strip("/") == "" or parts.fragment:
        raise UnknownStore(url=masked(url), reason=_SHAPE)
    return Path(path), dict(_option(one) for one in parts.query.split("&") if one)


def _option(text: str) -> tuple[str, Any]:
    name, _, value = (unquote(part) for part in text.partition("="))
    options("A SQLite URL", [name], _OPTIONS)
    if name == "synchronous":
        choice(name, value, Synchronous)
        return name, value
    try:
        seconds = float(value)
    except ValueError:
        raise InvalidArgument(name=name, expected="a finite number above 0", value=value) from None
    positive(busy_timeout=seconds)
    return name, seconds
