"""The URLs of SQLite files: `sqlite:///` and an absolute path."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...errors import UnknownStore
from .. import Synchronous
from .store import SqliteStore


def open_url(url: str, *, synchronous: Synchronous, busy_timeout: float) -> SqliteStore:
    """Return the store of a path or a URL."""
    return SqliteStore(path_of(url), synchronous=synchronous, busy_timeout=busy_timeout)


def path_of(url: str) -> Path:
    """Return the path that a path or a URL names."""
    if not re.match(r"sqlite:", url, re.IGNORECASE):
        return Path(url)
    parts = urlsplit(url)
    path = unquote(parts.path)
    if not url.lower().startswith("sqlite:///") or path in ("", "/") or parts.query or parts.fragment:
        raise UnknownStore(url=url, reason="a SQLite URL has three slashes, an absolute path, and nothing more")
    return Path(path)
