"""The URLs of servers: `redis://`, `rediss://`, `unix://`, and the same server under the names of Valkey."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import SplitResult, unquote, urlsplit

from redis import connection as _driver

from ...common.arguments import choice, once, options, positive
from ...common.masked_urls import ENCODE, has_hosts, masked
from ...errors import InvalidArgument, UnknownStore
from .keys import Keys
from .look import RedisLook
from .server import Server
from .settings import Require, Settings
from .store import RedisStore

_OURS: Final = ("busy_timeout", "prefix", "require", "retain")
_DRIVERS: Final = (
    "client_name",
    "db",
    "password",
    "socket_connect_timeout",
    "socket_keepalive",
    "ssl_ca_certs",
    "ssl_ca_data",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_ciphers",
    "ssl_keyfile",
    "ssl_min_version",
    "ssl_password",
    "username",
)
"""Options that the driver knows. It has others, of the protocol, of decoding and of retries, that would break the store."""
_parse: Final[Callable[[str], dict[str, Any]]] = _driver.parse_url
_SAME: Final = {"valkey": "redis", "valkeys": "rediss"}
_PREFIX: Final = re.compile(r"[^{}]+|[^{}]*\{[^{}]+\}[^{}]*")


def open_url(url: str, **given: Any) -> RedisStore:
    """Return the store of a URL. `given`: options besides those of the URL."""
    options("A Redis URL", given, _OURS)
    return RedisStore(settings_of(url, **given))


def exists(url: str, **given: Any) -> bool:
    """Return whether the database has a journal. Nothing is created there."""
    settings = settings_of(url, **given)
    server = Server(settings)
    try:
        return bool(server.call(b"EXISTS", Keys(settings.prefix).store))
    finally:
        server.close()


def look_at(url: str, **given: Any) -> RedisLook:
    """Return a look at the store of a URL, which must exist."""
    return RedisLook(settings_of(url, **given))


def path_of(url: str) -> Path:
    """Raise `UnknownStore`: a store in Redis has no file."""
    raise UnknownStore(url=masked(url), reason="a store in Redis has no file on this machine")


def settings_of(url: str, **given: Any) -> Settings:
    """Return what a URL says. Raise `UnknownStore` or `InvalidArgument`."""
    scheme, _, rest = url.partition(":")
    same = f"{_SAME.get(scheme.lower(), scheme.lower())}:{rest}"
    query = _parts_of(same, url).query
    pairs = [part.partition("=") for part in query.split("&") if part]
    named = {unquote(name): unquote(value) for name, _, value in pairs}
    strange = "@" in query and "@" not in same.partition("?")[0] and not {*named} <= {*_OURS, *_DRIVERS}
    if strange or not all(equals for _, equals, _ in pairs):
        _refuse(url, ENCODE)  # what looks like an option is the rest of a password
    options("A Redis URL", named, (*_OURS, *_DRIVERS))
    once("A Redis URL", (unquote(name) for name, _, _ in pairs))
    for name in given:
        if name in named:
            raise InvalidArgument(name=name, expected="left out where the URL gives it", value=given[name])
    ours: dict[str, Any] = {name: _option(name, named[name]) for name in _OURS if name in named}
    ours.update(given)
    for_driver = "&".join(part for part in query.split("&") if unquote(part.partition("=")[0]) not in _OURS)
    head = same.partition("?")[0].partition("#")[0]
    return Settings(url=masked(url), **_connection_of(f"{head}?{for_driver}", url), **ours)


def _parts_of(url: str, given: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:  # whose message may quote the URL
        raise UnknownStore(url=masked(given), reason=f"the driver cannot read it: {ENCODE}") from None
    if parts.scheme != "unix" and ("@" in f"{parts.path}{parts.fragment}" or not has_hosts(parts.netloc)):
        _refuse(given, f"{ENCODE}, and a port is a number")
    return parts


def _connection_of(url: str, given: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if not url.partition(":")[2].startswith("//") or (parts.scheme == "unix" and not parts.path):
        _refuse(given, "it names no server, as redis://host:6379/0 and unix:///path/of/redis.sock do")
    if parts.scheme != "unix" and not re.fullmatch(r"/?\d*", parts.path):
        _refuse(given, "behind the server stands the number of a database, as in redis://host:6379/0")
    try:
        found = _parse(url)
    except ValueError:
        # Without the message of the driver, which may quote the URL.
        raise UnknownStore(url=masked(given), reason="the driver cannot read it") from None
    if parts.scheme != "rediss" and (wrong := [name for name in found if name.startswith("ssl_")]):
        _refuse(given, f"only rediss:// uses TLS and has the option {wrong[0]}")
    if parts.scheme == "rediss":
        # Releases of the driver before 6 do not compare the certificate with the name of the server.
        found["ssl_check_hostname"] = _is_checked(found)
    return {"connection": found.pop("connection_class", _driver.Connection), "arguments": found}


def _is_checked(arguments: Mapping[str, Any]) -> bool:
    given = str(arguments.get("ssl_check_hostname", arguments.get("ssl_cert_reqs") != "none"))
    return given.lower() in ("true", "1", "yes", "y", "on")


def _option(name: str, value: str) -> Any:
    if name == "require":
        choice(name, value, Require)
        return value
    if name == "prefix":
        if not _PREFIX.fullmatch(value):
            raise InvalidArgument(name=name, expected="text with at most one pair of braces around text", value=value)
        return value
    try:
        number = int(value) if name == "retain" else float(value)
    except ValueError:
        expected = "a whole number of seconds above 0" if name == "retain" else "a finite number above 0"
        raise InvalidArgument(name=name, expected=expected, value=value) from None
    positive(**{name: number})
    return number


def _refuse(url: str, reason: str) -> NoReturn:
    raise UnknownStore(url=masked(url), reason=reason)
