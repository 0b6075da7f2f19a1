"""Stop loses nothing: a durable journal for LangChain and LangGraph runs."""

from . import errors
from ._journal import RunJournal
from ._recover import SpoolReport
from .errors import RunJournalError
from .events import Event, Run, RunStatus

__version__ = "0.1.0"

__all__ = ["Event", "Run", "RunJournal", "RunJournalError", "RunStatus", "SpoolReport", "__version__", "errors"]
