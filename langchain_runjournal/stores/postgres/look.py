"""A look at a journal in Postgres that writes nothing: opening one of an older version would migrate it."""

from __future__ import annotations

from typing import Any

from .address import address_of
from .faults import connecting, translated
from .opening import check_version
from .sessions import connect, drop
from .store import PostgresStore


class PostgresLook(PostgresStore):
    """A schema that has a journal of this version, read and never written."""

    missed: str | None = None

    def __init__(self, url: str, **given: Any) -> None:
        address = address_of(url, **given)
        with connecting(address.url, address.secret):
            session = connect(address)
        try:
            with translated(address.url, address.secret):
                check_version(session, address)
        finally:
            drop(session)
        super().__init__(url, **given)
