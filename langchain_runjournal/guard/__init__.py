"""The guard: no model sees a tool request without its result. A function for any graph, and a middleware for agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ExtraMissing
from .repair import repair_tool_pairs

if TYPE_CHECKING:
    from .middleware import ToolPairGuard
    from .refusal import arefuse_cut_call, refuse_cut_call

__all__ = ["ToolPairGuard", "arefuse_cut_call", "refuse_cut_call", "repair_tool_pairs"]


def __getattr__(name: str) -> Any:
    if name in ("refuse_cut_call", "arefuse_cut_call"):
        from . import refusal as _refusal  # imports LangGraph's prebuilt nodes, which only a program with a ToolNode needs

        return getattr(_refusal, name)
    # The middleware is a class of LangChain's, which a program that only uses the function may lack.
    if name != "ToolPairGuard":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import langchain.agents.middleware  # noqa: F401 - only to see whether it is there
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "langchain":
            raise
        raise ExtraMissing(what=name, package="langchain", extra="agent") from error
    from .middleware import ToolPairGuard

    return ToolPairGuard
