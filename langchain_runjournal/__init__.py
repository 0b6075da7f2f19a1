"""Stop loses nothing: a durable journal for LangChain and LangGraph runs."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from . import errors
from ._because import because
from ._frontend import mark_partial
from ._journal import RunJournal
from ._messages import is_partial, is_synthetic
from ._recover import SpoolReport
from .errors import RunJournalError
from .events import Event, Run, RunStatus

if TYPE_CHECKING:
    from ._answers import ModelCall
    from ._attach import attach
    from ._record import arecord_partial_ai_message, record_partial_ai_message
    from ._runner import RunHandle, start_run
    from ._settle import Settlement
    from .guard import ToolPairGuard, repair_tool_pairs
    from .handler import JournalCallbackHandler
    from .saver import JournalSaver

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

# `import *` takes every name of these; who asks for this one without the extra `agent` is told what to install.
if find_spec("langchain") is not None:
    __all__ += ["ToolPairGuard"]

# Not before it is asked for: LangGraph takes half a second to import, and who only reads a journal does not need it.
_LATER = {
    "JournalCallbackHandler": "handler",
    "JournalSaver": "saver",
    "ModelCall": "_answers",
    "RunHandle": "_runner",
    "Settlement": "_settle",
    "ToolPairGuard": "guard",
    "arecord_partial_ai_message": "_record",
    "attach": "_attach",
    "record_partial_ai_message": "_record",
    "repair_tool_pairs": "guard",
    "start_run": "_runner",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
