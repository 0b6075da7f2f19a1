"""Pure: what becomes of an answer that was cut off inside of its tool calls.

Rule: the message still holds what the model said, and its provider accepts it back. Each of its calls gets a result that
says what is known. A mark says that the message was cut, and why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .cut_calls import CUT_CAUSES, Cut
from .marks import MARK, mark_in, origin_in, partial_mark
from .message_data import Data
from .tool_requests import Request, block_id, requested, unwrapped
from .tool_results import CallKnowledge, answer, call_id_of
from .unended import changes_to

if TYPE_CHECKING:
    from langchain_core.messages import ToolMessage


def cut_mark(cut: Cut, *, run_id: str | None = None, call_id: str | None = None) -> Data:
    """Return the mark of such a message, for `additional_kwargs["runjournal"]`."""
    calls: list[Data] = [{"id": one.id, "name": one.name, "final": one.id not in cut.broken} for one in cut.calls]
    return partial_mark(cut.cause, run_id, call_id, calls)


def recorded_cut(fields: Mapping[str, Any], recorded: Any) -> Cut | None:
    """Return the cut that the event of a recorded message reports; None if it was not cut off inside of its calls.

    `recorded` is the `cut` of that event.
    """
    if not isinstance(recorded, Mapping) or not recorded.get("calls"):
        return None
    return Cut(cause=recorded["cause"], calls=tuple(requested(fields)), broken=frozenset(recorded["calls"]))


def marked_as_cut(fields: Mapping[str, Any], recorded: Any, run_id: str) -> Data:
    """Return the fields of a recorded message with the mark that follows from the `cut` of its event."""
    kwargs = fields.get("additional_kwargs") or {}
    cut = recorded_cut(fields, recorded)
    if cut is None or origin_in(kwargs) is not None:
        return dict(fields)  # a guard has marked it already
    call_id = call_id_of(fields.get("id"))
    return {**fields, "additional_kwargs": {**kwargs, MARK: cut_mark(cut, run_id=run_id, call_id=call_id)}}


def cut_message(message: Any, cut: Cut) -> Any:
    """Return a copy of the message that can be answered and sent back.

    Every call that has an id and a name is a request with arguments that a provider accepts, as far as LangChain could read
    them. Calls without an id or a name are left out.
    """
    known = {call["id"]: call for call in message.tool_calls if call["id"] is not None}
    calls = []
    for one in answerable(cut):
        args = known[one.id]["args"] if one.id in known else {}
        calls.append({"name": one.name, "args": args, "id": one.id, "type": "tool_call"})
    args_of = {call["id"]: call["args"] for call in calls if call["id"] in cut.broken}
    mark = cut_mark(cut, call_id=call_id_of(message.id))
    changes: dict[str, Any] = {
        "tool_calls": calls,
        "invalid_tool_calls": [],
        "content": _content(message.content, args_of),
        "additional_kwargs": {
            **_kwargs(message.additional_kwargs, args_of),
            MARK: mark,
        },
    }
    if getattr(message, "tool_call_chunks", None):
        changes["tool_call_chunks"] = []
    asking = message.model_copy(update=changes)
    # An item or a response that its provider never stored is removed as well: a graph without a guard may send this message.
    return asking.model_copy(update=changes_to(asking, cut.cause)) if cut.cause == "incomplete" else asking


def cut_results(message: Any, cut: Cut, *, run_whole: bool) -> list[ToolMessage]:
    """Return the results of the calls that do not run. With `run_whole`, the calls that arrived whole do run."""
    return [
        answer(message, one, known_of(one.id, cut))
        for one in answerable(cut)
        if one.id in cut.broken or not (run_whole and one.valid)
    ]


def known_of(call_id: str | None, cut: Cut) -> CallKnowledge:
    """Return what is known of a call of an answer that was cut off."""
    return CallKnowledge(state="cut" if call_id in cut.broken else "beside_cut", cause=cut.cause)


def decided_in(kwargs: Any) -> Mapping[str, Any] | None:
    """Return the mark of an answer that a guard has found cut off; None without one.

    `kwargs` are the `additional_kwargs` of the message. That guard has decided which of the calls run.
    """
    mark = mark_in(kwargs)
    return mark if mark.get("reason") in CUT_CAUSES else None


def answerable(cut: Cut) -> list[Request]:
    """Return the calls that can have a result: a provider identifies them by their id."""
    return [one for one in cut.calls if one.id and one.name]


def _content(content: Any, args_of: Mapping[str, Any]) -> Any:
    """Return the content with readable arguments in the blocks of the cut calls, where the provider expects them."""
    if not isinstance(content, list):
        return content
    return [_block(block, args_of) for block in content]


def _block(block: Any, args_of: Mapping[str, Any]) -> Any:
    inner = unwrapped(block)
    id = block_id(inner) if isinstance(inner, Mapping) else None
    if id is None or id not in args_of:
        return block
    args, kind = args_of[id], inner.get("type")
    kept = {key: value for key, value in inner.items() if key not in ("partial_json", "error")}
    if kind == "function_call":
        kept["arguments"] = json.dumps(args)
    elif kind == "tool_use":
        kept["input"] = args
    elif kind in ("tool_call", "tool_call_chunk", "invalid_tool_call"):
        kept |= {"type": "tool_call", "args": args}
    return kept if inner is block else {**block, "value": kept}


def _kwargs(kwargs: Mapping[str, Any], args_of: Mapping[str, Any]) -> dict[str, Any]:
    raw = kwargs.get("tool_calls")
    if not isinstance(raw, list):
        return dict(kwargs)
    return {**kwargs, "tool_calls": [_raw_call(call, args_of) for call in raw]}


def _raw_call(call: Any, args_of: Mapping[str, Any]) -> Any:
    id = block_id(call) if isinstance(call, Mapping) else None
    if id is None or id not in args_of or not isinstance(call.get("function"), Mapping):
        return call
    return {**call, "function": {**call["function"], "arguments": json.dumps(args_of[id])}}
