"""Pure: what may stand in a text that a user pastes into an issue: the kind of an error, and never its words.

Rule: an error of a program, of a model's provider or of a driver may quote what a user wrote. Only a name that is certainly
the name of an exception is shown. Of our own errors, the class decides which fixed sentence is shown; their values are left
out, with the exception of numbers.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from typing import Any, Final

from .. import errors

OTHER: Final = "other"
"""The kind of an error whose text does not begin with the name of an exception."""
_NAME: Final = re.compile(r"([A-Z][A-Za-z0-9_]{2,59})(?::|$)")
_ENDINGS: Final = ("Error", "Exception", "Warning", "Timeout", "Interrupt", "Cancelled", "Exhausted", "Refused")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_KNOWN: Final = {
    name
    for module in (builtins, errors)
    for name, found in vars(module).items()
    if isinstance(found, type) and issubclass(found, BaseException)
}
_SENTENCES: Final[dict[type[BaseException], Callable[[Any], str]]] = {
    errors.StoreCorrupt: lambda exc: "it is damaged: `runjournal check` says where",
    errors.StoreTooNew: lambda exc: f"its format is {exc.found}, and this version knows {exc.known}: upgrade the package",
    errors.ForeignDatabase: lambda exc: "it is a database of another program",
    errors.StoreIsDirectory: lambda exc: "it is a directory: give the path of a file in it",
    OSError: lambda exc: "the file system refuses it: look at the path and its permissions",
    errors.NotADatabase: lambda exc: "it is not a SQLite database",
    errors.StoreExposed: lambda exc: "another user can control it",
    errors.StoreNotWritable: lambda exc: "this user may not read it, or SQLite cannot open it",
    errors.StoreUnreachable: lambda exc: "its server does not answer: start it, and look at the address and the network",
    errors.StoreUnusable: lambda exc: "its server answers, and the journal cannot use it: `runjournal list` says why",
    errors.StoreFailed: lambda exc: _failed(exc),
    errors.ExtraMissing: lambda exc: f"the package {exc.package} is missing: install the extra {exc.extra!r}",
}
"""By class, the nearest first: what an error says without its values."""


def kind_of(text: str | None) -> str:
    """Return the name of the exception that an error text begins with; "other" if that is not certain."""
    found = _NAME.match(text or "")
    if found is None or not (found[1] in _KNOWN or found[1].endswith(_ENDINGS)):
        return OTHER
    return found[1]


def about(exc: BaseException) -> dict[str, str]:
    """Return the kind of an exception, and a sentence about it that quotes nothing."""
    sentence = next((_SENTENCES[one] for one in type(exc).__mro__ if one in _SENTENCES), None)
    cause = exc.__cause__
    kind = type(exc).__name__ + (f" ({type(cause).__name__})" if cause is not None else "")
    return {"kind": kind, "text": sentence(exc) if sentence is not None else "`runjournal list` says what it means"}


def shown_id(run_id: str) -> str | None:
    """Return the id of a run, if it says nothing: a program may give ids that hold the name of a user."""
    return run_id if _UUID.fullmatch(run_id) else None


def _failed(exc: errors.StoreFailed) -> str:
    reason = str(getattr(exc, "reason", ""))
    if "locked" in reason or "busy" in reason:
        return "another process holds its lock: end that transaction, or wait longer with --busy-timeout"
    if "full" in reason:
        return "its disk is full"
    return "its disk or its server has failed: `runjournal list` says how"
