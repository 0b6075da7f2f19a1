"""The journal over HTTP: cursors, feeds, dialects (pure), routes. Needs the extra `server`.

A stream is a projection of the journal: live and replay are the same code, and a reader holds a cursor and nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import ExtraMissing

if TYPE_CHECKING:
    from .app import create_app
    from .requests import Limits
    from .streams import event_source, event_stream
    from .transport import HEADERS

__all__ = ["HEADERS", "Limits", "create_app", "event_source", "event_stream"]

# Imported at the first use: the cursors, frames and dialects of this room need no web framework.
_LATER = {
    "HEADERS": "transport",
    "Limits": "requests",
    "create_app": "app",
    "event_source": "streams",
    "event_stream": "streams",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import starlette  # noqa: F401 - only to see whether it is there
    except ModuleNotFoundError as error:
        raise ExtraMissing(what=f"langchain_runjournal.server.{name}", package="starlette", extra="server") from error
    return getattr(import_module(f".{_LATER[name]}", __name__), name)
