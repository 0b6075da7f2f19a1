"""What an error of the driver means, and what to do about it."""

from __future__ import annotations

import re
from typing import Final

from redis import exceptions as driver

from ...common.masked_urls import without
from ...errors import RunJournalError, StoreFailed, StoreUnreachable, StoreUnusable
from .settings import Settings

_CHECK: Final = "Check that the server runs and can be reached from this machine"
_HINTS: Final = {
    r"LOADING|loading the dataset": "Wait until the server has read its data",
    r"OOM|used memory": "Raise maxmemory of the server, or delete runs with `RunJournal.prune`",
    r"MISCONF|NOWRITES|No space": "Look into the server's log: it cannot write to its disk",
    r"READONLY|read only replica": "The server has become a replica. Wait for the new primary",
    r"MASTERDOWN|NOREPLICAS": "Look at the server's replication",
    r"BUSY": "A script of another program runs on the server. Wait for its end",
    r"MOVED|ASK |CROSSSLOT|CLUSTERDOWN": "Name the node of the cluster that has the slot of the journal's keys",
    r"WRONGPASS|NOAUTH|invalid username-password|without any password|Authentication required": (
        "Check the user and the password in the URL"
    ),
    r"NOPERM|no permissions|can't run this command|can't access": (
        "Give the user the commands and the keys that docs/stores.md lists"
    ),
    r"DB index": "Name a database that the server has",
    r"SELECT is not allowed in cluster mode": "Leave the number of the database away: a cluster has only database 0",
    r"unknown command": "Use Redis 6.2 or later, or Valkey",
    r"CERTIFICATE|SSL|certificate|wrong version number": "Check the certificates, and the options ssl_... of the URL",
}
_FOR_GOOD: Final = re.compile(
    r"WRONGPASS|NOAUTH|invalid username-password|without any password|Authentication required|NOPERM|no permissions"
    r"|can't run this command|can't access|MOVED|CROSSSLOT|READONLY|read only replica|DB index|unknown command"
    r"|SELECT is not allowed"
)
_WORDS: Final[dict[type[Exception], str]] = {
    driver.BusyLoadingError: "LOADING",
    driver.ReadOnlyError: "READONLY",
    driver.NoPermissionError: "NOPERM",
    driver.OutOfMemoryError: "OOM",
    driver.MasterDownError: "MASTERDOWN",
    driver.ClusterDownError: "CLUSTERDOWN",
    driver.MovedError: "MOVED",
    driver.AskError: "ASK",
    driver.ClusterCrossSlotError: "CROSSSLOT",
}
_SERVER_CHANGED: Final = re.compile(r"READONLY|read only replica|MASTERDOWN|LOADING|loading the dataset|MOVED")


def is_of_another_server(exc: BaseException) -> bool:
    """Return whether a new connection may reach another server, one that can do what this one refused."""
    return isinstance(exc, driver.RedisError) and _SERVER_CHANGED.search(_said(exc)) is not None


def failure_of(exc: Exception, settings: Settings, *, opening: bool = False) -> RunJournalError:
    """Return our error for an error of the driver. `opening`: what will not pass makes the store unusable."""
    reason = without(_said(exc), *settings.secrets).rstrip(". ") or type(exc).__name__
    hint = next((hint for sign, hint in _HINTS.items() if re.search(sign, reason)), None)
    if opening and _FOR_GOOD.search(reason):
        return StoreUnusable(url=settings.url, reason=reason, hint=hint)
    if isinstance(exc, (driver.ConnectionError, driver.TimeoutError, OSError)) and not (hint and _is_answer(exc)):
        return StoreUnreachable(path=settings.url, reason=reason, hint=hint or _CHECK)
    return StoreFailed(path=settings.url, reason=reason, hint=hint or "Look into the server's log")


def quotes_a_secret(exc: Exception, settings: Settings) -> bool:
    """Return whether the error of the driver must not be shown as the cause of ours."""
    return any(secret in f"{exc} {exc.args}" for secret in settings.secrets)


def _is_answer(exc: Exception) -> bool:
    return isinstance(exc, (driver.BusyLoadingError, driver.AuthenticationError, driver.ResponseError))


def _said(exc: BaseException) -> str:
    """Return what the driver says. It drops the first word of an answer for which it has a class of its own."""
    word = next((word for kind, word in _WORDS.items() if isinstance(exc, kind)), "")
    said = str(exc)
    return said if said.startswith(word) else f"{word} {said}"
