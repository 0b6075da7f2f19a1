"""A thread whose last step cannot be applied: LangGraph raises there, and the thread is read without that step."""

from __future__ import annotations

from typing import Any, Final

from ..common.twins import Effect

_APPLIES: Final = "apply_writes"
"""The function of LangGraph that applies what tasks have written."""


def is_inapplicable(error: BaseException) -> bool:
    """Whether an error comes from applying the writes of finished tasks: two of them have written a channel that takes one
    value, or a reducer refuses a value. They fail again each time, and LangGraph drops them with the next message."""
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_name == _APPLIES:
            return True
        frame = frame.tb_next
    return False


def state_of(graph: Any, config: Any) -> Effect[Any]:
    """The state of a thread, with what its finished tasks have written; without it if that cannot be applied."""

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
    """The config of the checkpoint itself: LangGraph reads it without the writes of tasks."""
    return {"configurable": {**config["configurable"], **saved.config["configurable"]}}
