"""The log record of an exception that kept a thread from being settled."""

from __future__ import annotations

import logging

from ..errors import CheckpointFenced, StoreFailed, WriteFailed

logger = logging.getLogger("langchain_runjournal")


def log_failure(problem: BaseException, text: str, run_id: object) -> None:
    """Log an exception in one line, and its traceback at DEBUG.

    Most of these exceptions come from the program's checkpointer, and LangGraph raises them again. An exception that this
    package raised itself may be a bug of this package, so it is logged as an error with its traceback, unless it says that
    another process settles the thread, or that the store cannot be used: an outage would fill the log with tracebacks.
    """
    said = f"{type(problem).__name__}: {problem}".rstrip(".")  # `text` continues or ends the sentence
    frame = problem.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    is_ours = frame is not None and str(frame.tb_frame.f_globals.get("__name__")).startswith("langchain_runjournal.")
    if is_ours and not isinstance(problem, (CheckpointFenced, StoreFailed, WriteFailed)):
        logger.error(text, run_id, said, exc_info=problem)
        return
    logger.warning(text, run_id, " ".join(said.split()))
    logger.debug("the traceback of this exception", exc_info=problem)
