"""Stop loses nothing: a durable journal for LangChain and LangGraph runs."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from . import errors
from .capture.because import because
from .errors import RunJournalError
from .events import Event, Run, RunStatus
from .journal.run_journal import RunJournal
from .journal.spool_import import SpoolReport
from .messages.frontend import mark_partial
from .messages.loading import is_partial, is_synthetic

if TYPE_CHECKING:
    from .capture.handler import JournalCallbackHandler
    from .guard import ToolPairGuard, repair_tool_pairs
    from .messages.answers import ModelCall
    from .runs.start import RunHandle, start_run
    from .settle.attach import attach
    from .settle.record_partial import arecord_partial_ai_message, record_partial_ai_message
    from .settle.saver import JournalSaver
    from .settle.settler import Settlement
    from .traces.handler import TraceEndingHandler

__version__ = "0.1.0"

__all__ = [
    "Event",
    "JournalCallbackHandler",
    "JournalSaver",
    "ModelCall",
    "Run",
    "RunHandle",
    "RunJournal",
    "RunJournalError",
    "RunStatus",
    "Settlement",
    "SpoolReport",
    "TraceEndingHandler",
    "__version__",
    "arecord_partial_ai_message",
    "attach",
    "because",
    "errors",
    "is_partial",
    "is_synthetic",
    "mark_partial",
    "record_partial_ai_message",
    "repair_tool_pairs",
    "start_run",
]

# `import *` imports every name in `__all__`, so `ToolPairGuard` stands there only if it can be imported. Without the extra
# `agent`, an import of that name raises an error that says what to install.
if find_spec("langchain") is not None:
    __all__ += ["ToolPairGuard"]

# Imported at the first use, because importing LangGraph takes half a second, and a program that only reads a journal does
# not need LangGraph.
_LATER = {
    "JournalCallbackHandler": "capture.handler",
    "JournalSaver": "settle.saver",
    "ModelCall": "messages.answers",
    "RunHandle": "runs.start",
    "Settlement": "settle.settler",
    "ToolPairGuard": "guard",
    "TraceEndingHandler": "traces.handler",
    "arecord_partial_ai_message": "settle.record_partial",
    "attach": "settle.attach",
    "record_partial_ai_message": "settle.record_partial",
    "repair_tool_pairs": "guard",
    "start_run": "runs.start",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
