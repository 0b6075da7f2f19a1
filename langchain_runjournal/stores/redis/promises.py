"""What a server can promise: asked when a store is opened, said once in the log, and refused where it would be a lie."""

from __future__ import annotations

import logging
import re
from typing import Final, Literal, NoReturn, TypeAlias, get_args

from ...errors import StoreFailed, StoreUnusable
from .server import Server
from .settings import Settings

logger = logging.getLogger("langchain_runjournal")

Promise: TypeAlias = Literal["always", "everysec", "no", "nothing", "unknown"]

_OLDEST: Final = (6, 2)
_SAID: Final[dict[str, str]] = {
    "always": "what flush() returned from survives the server (appendfsync always)",
    "everysec": "if the server crashes, about a second of events may be lost (appendfsync everysec)",
    "no": "if the machine of the server fails, some 30 seconds of events may be lost (appendfsync no)",
    "nothing": "nothing since its last snapshot survives the server (appendonly no)",
    "unknown": "the server does not say how it writes to its disk, so events may be lost with it",
}
_KEEPING: Final = (None, "noeviction")
"""The eviction policies that delete nothing; None of a server that does not say."""
_CONFIG: Final = "Set {0} in its configuration (CONFIG SET {0})"


def promise_of(server: Server) -> Promise:
    """Return what the server promises. Raise `StoreUnusable` for a server that would lose events by design."""
    settings = server.settings
    info = _info(server)
    version = tuple(map(int, re.findall(r"\d+", info.get("redis_version", ""))[:2]))
    if version and version < _OLDEST:
        _refuse(settings, f"it is Redis {info['redis_version']}", "Use Redis 6.2 or later, or Valkey")
    if info.get("role", "master") != "master":
        _refuse(settings, "it is a replica, which takes no writes", "Name the primary server")
    policy = _policy(server, info)
    if policy not in _KEEPING:
        reason = f"its eviction policy {policy} would delete parts of runs when its memory is full"
        _refuse(settings, reason, _CONFIG.format("maxmemory-policy noeviction"))
    found = _promise(server, info)
    _say(settings, found, "" if policy else "; nor does it say what it does when its memory is full")
    return found


def eviction_of(server: Server) -> str | None:
    """Return the eviction policy of the server if it may delete parts of runs, also one that was set since the opening."""
    policy = _policy(server, _info(server, b"memory"))
    return None if policy in _KEEPING else policy


def _policy(server: Server, info: dict[str, str]) -> str | None:
    return info.get("maxmemory_policy") or _config(server, "maxmemory-policy")


def _promise(server: Server, info: dict[str, str]) -> Promise:
    enabled = info.get("aof_enabled")
    if enabled == "0":
        return "nothing"
    policy = _config(server, "appendfsync") if enabled == "1" else None
    return next((one for one in get_args(Promise)[:3] if one == policy), "unknown")


def _say(settings: Settings, promise: Promise, more: str) -> None:
    enough = {None: get_args(Promise), "everysec": ("always", "everysec"), "always": ("always",)}[settings.require]
    if promise not in enough:
        what = "appendonly yes" if promise == "nothing" else f"appendfsync {settings.require}"
        _refuse(settings, f"require={settings.require}, but {_SAID[promise]}", _CONFIG.format(what))
    level = logging.INFO if promise == "always" else logging.WARNING
    logger.log(level, "the journal is in %s: %s%s", settings.url, _SAID[promise], more, extra={"of_the_store": True})


def _refuse(settings: Settings, reason: str, hint: str) -> NoReturn:
    raise StoreUnusable(url=settings.url, reason=reason, hint=hint)


def _info(server: Server, *sections: bytes) -> dict[str, str]:
    try:
        text: str = server.call(b"INFO", *sections).decode("utf-8", "replace")
    except (StoreUnusable, StoreFailed) as exc:
        if not _is_refusal(exc):
            raise
        return {}
    return dict(pair.split(":", 1) for line in text.splitlines() if ":" in (pair := line.strip()))


def _config(server: Server, name: str) -> str | None:
    """Return a setting of the server; None if it does not say. Managed servers refuse the command."""
    try:
        answer = server.call(b"CONFIG", b"GET", name)
    except (StoreUnusable, StoreFailed) as exc:
        if not _is_refusal(exc):
            raise
        return None
    return answer[1].decode("utf-8", "replace") if len(answer) == 2 else None


def _is_refusal(exc: StoreUnusable | StoreFailed) -> bool:
    return re.search(r"NOPERM|no permissions|unknown command|not allowed|ERR ", str(exc.reason)) is not None
