"""How the log names an exception that kept a thread from being settled."""

from __future__ import annotations

import logging

logger = logging.getLogger("langchain_runjournal")


def warn_of(problem: BaseException, text: str, run_id: object) -> None:
    """Log an exception in one line, and its traceback at DEBUG: most are those of the program's checkpointer, and LangGraph
    raises them again. One that this package has raised itself may be a fault of ours, and is logged in full."""
    frame = problem.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is not None and str(frame.tb_frame.f_globals.get("__name__")).startswith("langchain_runjournal."):
        logger.error(text, run_id, f"{type(problem).__name__}: {problem}", exc_info=problem)
        return
    logger.warning(text, run_id, " ".join(f"{type(problem).__name__}: {problem}".split()))
    logger.debug("the traceback of this exception", exc_info=problem)
