"""The URLs of Postgres databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...common.arguments import options
from ...common.masked_urls import masked
from ...errors import UnknownStore
from .address import address_of
from .faults import connecting, translated
from .look import PostgresLook
from .opening import has_journal
from .sessions import connect, drop
from .store import PostgresStore


def open_url(url: str, **given: Any) -> PostgresStore:
    """Return the store of a URL. `given`: options besides those of the URL."""
    options("A Postgres store", given, ("busy_timeout",))
    return PostgresStore(url, **given)


def exists(url: str, **given: Any) -> bool:
    """Return whether the database has a journal. Nothing is created there."""
    address = address_of(url, **given)
    with connecting(address.url, address.secret):
        session = connect(address)
    try:
        with translated(address.url, address.secret):
            return has_journal(session, address)
    finally:
        drop(session)


def look_at(url: str, **given: Any) -> PostgresLook:
    """Return a look at the schema of a URL, which must have a journal."""
    return PostgresLook(url, **given)


def path_of(url: str) -> Path:
    """Raise `UnknownStore`: a database on a server has no path."""
    raise UnknownStore(url=masked(url), reason="a database on a server has no file")
