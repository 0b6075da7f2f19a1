"""What a URL of a Postgres database says: it is a URL of libpq, with three options of this package."""

from __future__ import annotations

import math
import os
import re
from typing import Any, Final
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ...common.arguments import once, one_of, options, positive
from ...common.masked_urls import ENCODE, has_hosts, masked
from ...errors import InvalidArgument, UnknownStore
from .sessions import Address

_OPTIONS: Final = ("schema", "busy_timeout", "synchronous_commit")
_COMMITS: Final = ("on", "off", "local", "remote_write", "remote_apply")
_SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PATIENCE: Final = 5.0
_DEFAULTS: Final = {
    "fallback_application_name": "langchain-runjournal",
    # A cable that was cut is noticed after about ten seconds.
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}


def address_of(url: str, **given: Any) -> Address:
    """Return the address that a URL gives. Raises `UnknownStore`, `UnknownOption` or `InvalidArgument`."""
    rest, found = _split(url)
    for name in found:
        if name in given:
            raise InvalidArgument(name=name, expected="left out where the URL gives it", value=given[name])
    patience = found.get("busy_timeout", given.get("busy_timeout", _PATIENCE))
    schema, commit = found.get("schema", "runjournal"), found.get("synchronous_commit", "")
    if schema.startswith("pg_"):
        expected = "a name that does not begin with pg_, which Postgres keeps for itself"
        raise InvalidArgument(name="schema", expected=expected, value=schema)
    if not _SCHEMA.fullmatch(schema):
        raise InvalidArgument(name="schema", expected="letters, digits and underscores, at most 63", value=schema)
    if commit:
        one_of("synchronous_commit", commit, _COMMITS)
    values = _driver_values(url, rest, patience)
    secret = values.get("password") or os.environ.get("PGPASSWORD")
    return Address(
        url=masked(url),
        conninfo=make_conninfo("", **values),
        secret=str(secret) if secret else None,
        schema=schema,
        busy_timeout=patience,
        synchronous_commit=commit,
    )


def _split(url: str) -> tuple[str, dict[str, Any]]:
    """Return the URL without the options of this package, and these options."""
    scheme, _, rest = url.partition(":")
    head, _, query = rest.partition("?")
    if not head.startswith("//"):
        raise UnknownStore(url=masked(url), reason="a Postgres URL begins with postgresql://")
    authority, _, path = head[2:].partition("/")
    if authority.count("@") > 1:
        raise UnknownStore(url=masked(url), reason="an @ in a password must be written as %40")
    if "@" in path or not has_hosts(authority):
        raise UnknownStore(url=masked(url), reason=f"{ENCODE}, and a port is a number")
    ours: dict[str, Any] = {}
    theirs, names = [], []
    known = [option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()]
    for one in filter(None, query.split("&")):
        name, equals, value = one.partition("=")
        name = unquote(name)
        if not equals or (name not in (*_OPTIONS, *known) and "@" in query and "@" not in authority):
            raise UnknownStore(url=masked(url), reason=ENCODE)  # what looks like an option is the rest of a password
        options("A Postgres URL", [name], [*_OPTIONS, *known])
        names.append(name)
        if name in _OPTIONS:
            ours[name] = unquote(value)
        else:
            theirs.append(one)
    once("A Postgres URL", names)
    if "busy_timeout" in ours:
        ours["busy_timeout"] = _seconds(ours["busy_timeout"])
    return f"{scheme.lower()}:{head}?{'&'.join(theirs)}", ours


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise InvalidArgument(name="busy_timeout", expected="a finite number above 0", value=text) from None
    positive(busy_timeout=seconds)
    return seconds


def _driver_values(url: str, rest: str, patience: float) -> dict[str, Any]:
    try:
        values = conninfo_to_dict(rest)
    except psycopg.Error:
        # Without the message of the driver: it holds a part of the URL, which may be the password.
        raise UnknownStore(url=masked(url), reason=f"libpq cannot read it: {ENCODE}") from None
    defaults: dict[str, Any] = {**_DEFAULTS, "tcp_user_timeout": round((patience + 2) * 1000)}
    if "PGCONNECT_TIMEOUT" not in os.environ:
        defaults["connect_timeout"] = max(2, math.ceil(patience))
    if "," in f"{values.get('host', '')}{values.get('hostaddr', '')}" and "PGTARGETSESSIONATTRS" not in os.environ:
        defaults["target_session_attrs"] = "read-write"  # of several servers, the one that can be written
    # Any other encoding could not hold every text.
    return {**defaults, **values, "client_encoding": "UTF8"}
