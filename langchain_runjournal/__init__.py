"""Stop loses nothing: a durable journal for LangChain and LangGraph runs."""

from typing import TYPE_CHECKING, Any

from . import errors
from ._journal import RunJournal
from ._messages import is_partial, is_synthetic
from ._recover import SpoolReport
from .errors import RunJournalError
from .events import Event, Run, RunStatus

if TYPE_CHECKING:
    from .handler import JournalCallbackHandler

__version__ = "0.1.0"

__all__ = [
    "Event",
    "JournalCallbackHandler",
    "Run",
    "RunJournal",
    "RunJournalError",
    "RunStatus",
    "SpoolReport",
    "__version__",
    "errors",
    "is_partial",
    "is_synthetic",
]


def __getattr__(name: str) -> Any:
    # Not before it is asked for: LangGraph takes half a second to import, and who only reads a journal does not need it.
    if name == "JournalCallbackHandler":
        from .handler import JournalCallbackHandler

        return JournalCallbackHandler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
