"""A thread whose last superstep cannot be applied. LangGraph raises there, and we read the thread without that superstep."""

from __future__ import annotations

from typing import Any, Final

from ..common.twins import Effect

_APPLIES: Final = "apply_writes"
"""The function of LangGraph that applies the writes of tasks."""


def is_inapplicable(error: BaseException) -> bool:
    """Return whether an error was raised while LangGraph applied the writes of finished tasks.

    Two tasks have written a channel that takes one value, or a reducer refuses a value. The writes fail again each time, and
    LangGraph drops them with the next message.
    """
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_name == _APPLIES:
            return True
        frame = frame.tb_next
    return False


def state_of(graph: Any, config: Any) -> Effect[Any]:
    """Return the effect that reads the state of a thread with the writes of its finished tasks, or without them if they
    cannot be applied."""

    def now() -> Any:
        try:
            return graph.get_state(config)
        except Exception as exc:
            if not is_inapplicable(exc):
                raise
            return graph.get_state(_pinned(config, graph.checkpointer.get_tuple(config)))

    async def later() -> Any:
        try:
            return await graph.aget_state(config)
        except Exception as exc:
            if not is_inapplicable(exc):
                raise
            return await graph.aget_state(_pinned(config, await graph.checkpointer.aget_tuple(config)))

    return Effect(now, later)


def _pinned(config: Any, saved: Any) -> Any:
    """Return the config of the checkpoint itself: LangGraph reads it without the writes of tasks."""
    return {"configurable": {**config["configurable"], **saved.config["configurable"]}}
