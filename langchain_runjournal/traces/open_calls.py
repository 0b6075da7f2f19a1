"""The calls that tracers have open, and what a tracer gets of a call that was cut off.

Rule: the handler keeps of a call what a tracer gets if the call is cut off, and drops it when the call ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langchain_core.tracers.base import AsyncBaseTracer, BaseTracer

from ..messages.loading import load
from ..messages.marks import MARK, partial_mark
from ..messages.message_data import Data
from ..messages.partial import partial_message
from ..messages.stream_assembly import Streamed

CallType = Literal["chain", "llm", "tool"]
_PACKAGES: Final = frozenset({"langfuse", "langsmith", "openinference", "opentelemetry"})
"""The packages whose handlers are tracers, beside LangChain's own."""
_ENDS_CHILDREN: Final = "opentelemetry"
"""The package whose handler ends the spans below a chain together with the chain."""


@dataclass(slots=True, eq=False)
class OpenCall:
    """A call that has begun and has not ended."""

    type: CallType
    run_id: UUID
    parent: OpenCall | None
    parent_run_id: UUID | None
    task: Any = None
    """The task that began it, if LangChain awaits it. Any other call runs in a thread, and reports its end there."""
    tracers: list[BaseCallbackHandler] = field(default_factory=list)
    tags: list[str] | None = None
    tool: Data = field(default_factory=dict)
    deltas: list[Any] = field(default_factory=list)
    is_awaited: bool = False
    """Whether the handler ends it when its task is done."""
    below: dict[int, OpenCall] = field(default_factory=dict)

    @property
    def root(self) -> OpenCall:
        """The root of its run."""
        found = self
        while found.parent is not None:
            found = found.parent
        return found

    def inside(self) -> Iterator[OpenCall]:
        """Yield the open calls below it, the innermost first."""
        for one in list(self.below.values()):
            yield from one.inside()
            yield one


def is_tracer(handler: object, others: tuple[type, ...] = ()) -> bool:
    """Return whether a callback handler keeps calls open until LangChain reports their end: one of the known tracers, or of
    a class in `others`. A handler that feeds a stream is none: it would show the end of a cut-off call to a user."""
    if isinstance(handler, _StreamingCallbackHandler):
        return False
    if isinstance(handler, (BaseTracer, AsyncBaseTracer, *others)):
        return True
    return any(one.__module__.partition(".")[0] in _PACKAGES for one in type(handler).__mro__)


def ends_children(handler: object) -> bool:
    """Return whether a tracer ends what is below a chain when the chain ends, without the output of those calls."""
    return any(one.__module__.partition(".")[0] == _ENDS_CHILDREN for one in type(handler).__mro__)


def standing(cause: str | None) -> Data:
    """Return the status of a call that was cut off, and the cause if it is known."""
    return {"status": "interrupted", **({"cause": cause} if cause else {})}


def cut_answer(call: OpenCall, cause: str | None) -> LLMResult:
    """Return what a model call that was cut off has said so far, as LangChain reports a result."""
    run_id, call_id = str(call.root.run_id), str(call.run_id)
    reason = cause or "interrupted"
    found = partial_message(Streamed(_of_chunks(call.deltas), call_id), reason=reason, run_id=run_id, call_id=call_id)
    loaded = load(run_id, [found]) if found is not None else []
    told = loaded[0] if loaded else AIMessage("", id=f"lc_run--{call_id}")
    mark = told.additional_kwargs.get(MARK) or partial_mark(reason, run_id, call_id, None)
    told.additional_kwargs = {**told.additional_kwargs, MARK: {**mark, **standing(cause)}}
    told.response_metadata = {**told.response_metadata, "finish_reason": "interrupted"}
    usage = [fields["usage_metadata"] for fields in call.deltas if isinstance(fields, Mapping) and fields["usage_metadata"]]
    if usage and isinstance(told, AIMessage):
        told.usage_metadata = usage[-1]
    # The one field that every tracer keeps: OpenLLMetry keeps nothing else of this.
    about = {"finish_reason": f"interrupted: {cause}" if cause else "interrupted", **standing(cause)}
    generation = ChatGeneration(message=told, generation_info=about)
    return LLMResult(generations=[[generation]], llm_output={"runjournal": standing(cause)})


def cut_tool(call: OpenCall, cause: str | None) -> Data:
    """Return what is known of a tool call that was cut off."""
    return {"runjournal": standing(cause), **call.tool}


def _of_chunks(chunks: Iterable[Any]) -> Iterator[Any]:
    from ..messages.chunks import chunk_delta

    id, metadata = None, None
    for one in chunks:
        if isinstance(one, str):
            yield one
            continue
        data = chunk_delta(one, id, metadata)
        id, metadata = data.get("id", id), data.get("metadata", metadata)
        if data:
            yield data
