"""Pure: what LangChain says in its callbacks -> the data of events.

Rule: the shapes of LangChain's callback arguments are known here and nowhere else. Nothing that is given here is changed or
kept, since chunks and messages are shared with the consumer: what comes out is written down before the callback returns.

A delta (`llm.ai.delta`) is whatever one chunk adds, in as few words as possible:

    {"text": "..."}                   text of a message whose content is a string
    {"text": "...", "index": 0}       text of a content block; the same with `thinking` and `reasoning`
    {"args": "...", "index": 0}       a fragment of the arguments of a tool call
    {"json": "...", "index": 2}       the same, said twice: in an `input_json_delta` block as well (Anthropic)
    {"text", "blocks", "tool_calls", "kwargs", "metadata", "usage", "id", "finish", "restart", ...}
                                      anything else: the fields of the chunk that are not empty and not as they were
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ..common import packed as _packed
from ..events import CAUSES
from ..events.segments import encode_text
from ..messages.tool_requests import requested

Data = dict[str, Any]

RUN_ID_PREFIX: Final = "lc_run--"
"""What LangChain makes the id of a message from, where the provider gives none."""
_SPOKEN: Final = ("text", "thinking", "reasoning")
_TOOL_CHUNKS: Final = ("tool_call_chunk", "server_tool_call_chunk")


# --- chunks -----------------------------------------------------------------------------------------------------------


def short_json(content: Any, calls: Any) -> str | None:
    """The JSON of a delta, for the shapes that nearly every chunk of blocks or of tool arguments has; None for others.

    Written by hand, since it is done for every token: the general way costs three times as much.
    """
    if calls:
        if len(calls) != 1:
            return None
        call = calls[0]
        args, index = call["args"], call["index"]
        if call["name"] is not None or call["id"] is not None or type(args) is not str or type(index) is not int:
            return None
        if not content:
            return f'{{"args":{encode_text(args)},"index":{index}}}'
        if content == [{"type": "input_json_delta", "partial_json": args, "index": index}]:
            return f'{{"json":{encode_text(args)},"index":{index}}}'
        return None
    if type(content) is not list or len(content) != 1:
        return None
    block = content[0]
    if type(block) is not dict or len(block) != 3:
        return None
    kind, index = block.get("type"), block.get("index")
    if kind not in _SPOKEN or type(index) is not int:
        return None
    words = block.get(kind)
    return f'{{"{kind}":{encode_text(words)},"index":{index}}}' if type(words) is str else None


def chunk_delta(fields: Mapping[str, Any], last_id: str | None, last_metadata: Mapping[str, Any] | None) -> Data:
    """What a chunk of a chat model adds. `fields` is its message, field by field."""
    data: Data = {}
    content = fields.get("content")
    if content:
        data["text" if isinstance(content, str) else "blocks"] = content
    if fields.get("tool_call_chunks"):
        data["tool_calls"] = fields["tool_call_chunks"]
    elif fields.get("tool_calls"):
        # A model that does not stream tool calls gives them whole.
        data["tool_calls"] = [_whole_call(call, index) for index, call in enumerate(fields["tool_calls"])]
    if fields.get("additional_kwargs"):
        data["kwargs"] = fields["additional_kwargs"]
    if fields.get("usage_metadata"):
        data["usage"] = fields["usage_metadata"]
    metadata = fields.get("response_metadata")
    if metadata and metadata != last_metadata:
        data["metadata"] = metadata
    if fields.get("id") and fields["id"] != last_id:
        data["id"] = fields["id"]
    return data


def _whole_call(call: Mapping[str, Any], index: int) -> Data:
    return {"name": call.get("name"), "args": json.dumps(call.get("args")), "id": call.get("id"), "index": index}


def stream_event_delta(event: Mapping[str, Any]) -> Data:
    """What an event of the v3 protocol adds; empty if it only says again what was said."""
    index = event.get("index", 0)
    match event.get("event"):
        case "message-start":
            return {key: event[key] for key in ("id", "metadata", "usage") if event.get(key)}
        case "content-block-start":
            return _block_start(event.get("content") or {}, index)
        case "content-block-delta":
            return _block_delta(event.get("delta") or {}, index)
        case "content-block-finish":
            return _block_finish(event.get("content") or {}, index)
        case "message-finish":
            return {key: event[key] for key in ("usage", "metadata") if event.get(key)}
        case _:
            return {"event": dict(event)}


def _block_start(block: Mapping[str, Any], index: Any) -> Data:
    kind = block.get("type")
    if kind in ("text", "reasoning"):
        return {"blocks": [{**block, "index": index}]}
    if kind in _TOOL_CHUNKS:
        # The index of the event, not of the call: it is what the deltas that follow will name.
        return {"tool_calls": [{**block, "args": block.get("args") or "", "index": index}]}
    # Its contents come with the finish.
    return {"open": {**block, "index": index}}


def _block_delta(delta: Mapping[str, Any], index: Any) -> Data:
    match delta.get("type"):
        case "text-delta":
            return {"text": delta.get("text", ""), "index": index}
        case "reasoning-delta":
            return {"reasoning": delta.get("reasoning", ""), "index": index}
        case "tool-call-delta" if isinstance(delta.get("args"), str):
            return {"args": delta["args"], "index": index}
        case _:
            return {"delta": dict(delta), "index": index}


def _block_finish(block: Mapping[str, Any], index: Any) -> Data:
    kind = block.get("type")
    if kind in ("text", "reasoning"):
        # The words have all been said; what else there is (a signature, annotations) comes only now.
        block = {key: value for key, value in block.items() if key != kind}
        if len(block) == 1:
            return {}
    return {"finish": {**block, "index": index}}


# --- messages ---------------------------------------------------------------------------------------------------------


def message_data(message: Any) -> Data:
    """A message as LangChain's own dict, ``{"type": ..., "data": {...}}``; one that was put together from chunks as the
    whole message that it is. What a tool gave beside its words, and JSON does not hold, is kept by `packed`."""
    data = message.model_dump(warnings=False)
    kind = str(data.get("type", ""))
    if kind.endswith("MessageChunk"):
        kind = "ai" if kind == "AIMessageChunk" else kind.removesuffix("MessageChunk").lower()
        data["type"] = kind
        for key in ("tool_call_chunks", "chunk_position"):
            data.pop(key, None)
    found: Data = {"type": kind, "data": data}
    if data.get("artifact") is not None:
        _packed.keep(found, "artifact", message.artifact)
    return found


def text_message(text: str, call_id: str) -> Data:
    """What a plain text model said, as a message."""
    return {"type": "ai", "data": {"type": "ai", "content": text, "id": f"{RUN_ID_PREFIX}{call_id}"}}


def response_data(response: Any, call_id: str) -> Data:
    """What `on_llm_end` says: the whole message, and the other candidates if there were any."""
    generations = response.generations[0] if response.generations else []
    messages = []
    for generation in generations:
        message = getattr(generation, "message", None)
        messages.append(message_data(message) if message is not None else text_message(generation.text, call_id))
    data: Data = {"message": messages[0] if messages else text_message("", call_id)}
    if len(messages) > 1:
        data["others"] = messages[1:]
    if not data["message"]["data"].get("usage_metadata") and (usage := _old_usage(response.llm_output)):
        data["usage"] = usage
    return data


def _old_usage(output: Any) -> Data | None:
    """The usage as plain text models report it."""
    told = output.get("token_usage") if isinstance(output, Mapping) else None
    if not isinstance(told, Mapping) or not told:
        return None
    names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens", "total_tokens": "total_tokens"}
    return {ours: told[theirs] for theirs, ours in names.items() if isinstance(told.get(theirs), int)} or None


def request_ids(fields: Mapping[str, Any]) -> list[str]:
    """The ids of the tool calls that a message with these fields asks for, also of those whose arguments are no JSON."""
    return [request.id for request in requested(fields) if request.id is not None]


# --- starts -----------------------------------------------------------------------------------------------------------


def input_messages(inputs: Any) -> list[Any] | None:
    """The messages in what a chain was called with, as LangChain would read them; None if it speaks of none."""
    if type(inputs).__name__ == "Command":
        inputs = inputs.update
    if isinstance(inputs, Mapping) or hasattr(inputs, "messages"):
        inputs = inputs.get("messages") if isinstance(inputs, Mapping) else inputs.messages
        if isinstance(inputs, tuple):
            inputs = [inputs]  # one message, as ("user", "hello"): LangGraph reads it so
    if inputs is None:
        return None
    if isinstance(inputs, str):
        return [{"type": "human", "data": {"type": "human", "content": inputs}}]
    if hasattr(inputs, "to_messages"):
        inputs = inputs.to_messages()
    if not isinstance(inputs, (list, tuple)):
        inputs = [inputs]
    from langchain_core.messages import convert_to_messages

    try:
        return [message_data(message) for message in convert_to_messages(inputs)]
    except (ValueError, TypeError, RuntimeError, AttributeError, LookupError):
        return None  # a list of something else


def newest(messages: Sequence[Data]) -> list[Data]:
    """The messages after the model's last word."""
    said = [place for place, message in enumerate(messages) if message["type"] == "ai"]
    return list(messages[said[-1] + 1 :] if said else messages)


def name_of(serialized: Any, about: Mapping[str, Any]) -> str | None:
    """What a chain or a tool is called."""
    name = about.get("name") or (serialized.get("name") if isinstance(serialized, dict) else None)
    return None if name is None else str(name)


def model_name(serialized: Any, metadata: Mapping[str, Any], params: Any) -> str:
    """What the model is called, from whichever place says it."""
    params = params if isinstance(params, Mapping) else {}
    serialized = serialized if isinstance(serialized, Mapping) else {}
    path = serialized.get("id")
    for name in (
        metadata.get("ls_model_name"),
        params.get("model"),
        params.get("model_name"),
        serialized.get("name"),
        path[-1] if isinstance(path, list) and path else None,
        params.get("_type"),
    ):
        if isinstance(name, str) and name:
            return name
    return "unknown"


def place_of(metadata: Mapping[str, Any]) -> Data:
    """Where in a graph something happens."""
    names = {"langgraph_node": "node", "langgraph_checkpoint_ns": "checkpoint_ns", "langgraph_step": "step"}
    return {ours: metadata[theirs] for theirs, ours in names.items() if metadata.get(theirs) is not None}


def is_helper(metadata: Mapping[str, Any], tags: Iterable[str]) -> bool:
    """Whether a model call serves the program and not the user: summarising, choosing tools, or marked as not to stream."""
    return bool(metadata.get("lc_source")) or "nostream" in tags or "langsmith:nostream" in tags


def interrupt_data(event: Any) -> Data:
    """What `on_interrupt` says."""
    interrupts = [{"id": getattr(one, "id", None), "value": getattr(one, "value", one)} for one in event.interrupts]
    return {"interrupts": interrupts, "reason": event.status, "checkpoint_id": event.checkpoint_id}


# --- endings ----------------------------------------------------------------------------------------------------------


def error_text(error: BaseException) -> str:
    """The error in one line, as it would be shown."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the str of a user's exception may do anything
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def is_abort(error: BaseException) -> bool:
    """Whether it says that somebody left or stopped, and not that something went wrong."""
    return not isinstance(error, Exception) or "CancelledError" in _names(error)


def is_bubbling(error: BaseException) -> bool:
    """Whether it is LangGraph's way to say something else than an error: an interrupt, a command to the parent."""
    return "GraphBubbleUp" in _names(error)


def ending(error: BaseException | None, asked: str | None, *, from_within: bool = False) -> Data:
    """Status, cause and error of a run that ended with `error`, after it was `asked` to stop for some cause, or not.

    `from_within`: the error was seen in a node before, and so is no time limit of the graph itself.
    """
    if error is None:
        return {"status": "completed"}
    cause = _cause(error, from_within)
    if asked is not None and (cause is not None or is_abort(error)):
        cause = asked
    if cause is not None:
        # How LangGraph Server cancels a run that is to be as if it had never been.
        rolled_back = any(type(one).__name__ == "UserRollback" for each in _cancellations(error) for one in each.args)
        return {"status": "interrupted", "cause": cause} | ({"rolled_back": True} if rolled_back else {})
    return {"status": "failed", "error": error_text(error)}


def _cause(error: BaseException, from_within: bool) -> str | None:
    names = _names(error)
    if "CancelledError" in names:
        said = _said_by_who_cancelled(error)
        if said in CAUSES:
            return said
        # anyio, and so every web server, says who cancelled; asyncio does not, and a Stop button is the rule.
        if "cancel scope" in said:
            return "timeout" if "deadline" in said else "disconnect"
        return "stop"
    if isinstance(error, GeneratorExit):
        return "disconnect"
    if "NodeTimeoutError" in names or ("TimeoutError" in names and not from_within):
        return "timeout"
    if isinstance(error, KeyboardInterrupt):
        return "stop"
    if isinstance(error, SystemExit) or "GraphDrained" in names:
        return "shutdown"
    return None if isinstance(error, Exception) else "stop"


def _said_by_who_cancelled(error: BaseException) -> str:
    """The message of a cancellation, as in `task.cancel("timeout")`, or "".

    On Python 3.10, a task that waits for a cancelled one gets an exception without it, whose context has it.
    """
    said = (one.args[0] for one in _cancellations(error) if one.args)
    return next((one for one in said if isinstance(one, str)), "")


def _cancellations(error: BaseException) -> Iterator[BaseException]:
    """A cancellation, and those that it comes from."""
    cancelled: BaseException | None = error
    while cancelled is not None and "CancelledError" in _names(cancelled):
        yield cancelled
        cancelled = cancelled.__context__


def _names(error: BaseException) -> set[str]:
    # By name: the classes live in modules that this one has no other use for, one of them in three versions.
    return {kind.__name__ for kind in type(error).__mro__}


def add_usage(total: Data, usage: Mapping[str, Any]) -> None:
    """Sum what a provider reported into `total`, details included."""
    for key, value in usage.items():
        if isinstance(value, Mapping):
            add_usage(total.setdefault(key, {}), value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            total[key] = total.get(key, 0) + value
