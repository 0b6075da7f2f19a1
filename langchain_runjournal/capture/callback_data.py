"""Pure: the arguments of LangChain's callbacks -> the data of events.

Rule: no other module knows the shapes of LangChain's callback arguments. This module neither changes nor keeps what it is
given, since the consumer has the same chunks and messages: what it returns is recorded before the callback returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..events import CAUSES
from ..messages.message_data import Data, message_data, text_message

# --- responses --------------------------------------------------------------------------------------------------------


def response_data(response: Any, call_id: str) -> Data:
    """Return what `on_llm_end` reports: the whole message, and the other candidates if there were any."""
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
    """Return the usage as plain text models report it, or None."""
    reported = output.get("token_usage") if isinstance(output, Mapping) else None
    if not isinstance(reported, Mapping) or not reported:
        return None
    names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens", "total_tokens": "total_tokens"}
    return {ours: reported[theirs] for theirs, ours in names.items() if isinstance(reported.get(theirs), int)} or None


# --- starts -----------------------------------------------------------------------------------------------------------


def input_messages(inputs: Any) -> list[Any] | None:
    """Return the messages in the input of a chain, as LangChain would read them, or None if the input has no messages."""
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
        return None  # the list holds something else than messages


def newest(messages: Sequence[Data]) -> list[Data]:
    """Return the messages after the last AI message."""
    answers = [place for place, message in enumerate(messages) if message["type"] == "ai"]
    return list(messages[answers[-1] + 1 :] if answers else messages)


def name_of(serialized: Any, about: Mapping[str, Any]) -> str | None:
    """Return the name of a chain or a tool."""
    name = about.get("name") or (serialized.get("name") if isinstance(serialized, dict) else None)
    return None if name is None else str(name)


def model_name(serialized: Any, metadata: Mapping[str, Any], params: Any) -> str:
    """Return the name of the model, from the first argument that contains it."""
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
    """Return the place of a call in a graph: its node, checkpoint namespace and superstep."""
    names = {"langgraph_node": "node", "langgraph_checkpoint_ns": "checkpoint_ns", "langgraph_step": "step"}
    return {ours: metadata[theirs] for theirs, ours in names.items() if metadata.get(theirs) is not None}


def is_helper(metadata: Mapping[str, Any], tags: Iterable[str]) -> bool:
    """Return whether a model call serves the program and not the user: it summarises, chooses tools, or is tagged not to
    stream."""
    return bool(metadata.get("lc_source")) or "nostream" in tags or "langsmith:nostream" in tags


def is_unstreamed(given: Any, tags: Iterable[str]) -> bool:
    """Return whether LangGraph streams no messages of a model call: it is tagged so, or the model takes a plain text."""
    return isinstance(given, str) or "nostream" in tags


def interrupt_data(event: Any) -> Data:
    """Return what `on_interrupt` reports."""
    interrupts = [{"id": getattr(one, "id", None), "value": getattr(one, "value", one)} for one in event.interrupts]
    return {"interrupts": interrupts, "reason": event.status, "checkpoint_id": event.checkpoint_id}


# --- endings ----------------------------------------------------------------------------------------------------------


def error_text(error: BaseException) -> str:
    """Return the type and the text of an error in one line, as a user would see it."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the str of a user's exception may do anything
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def is_abort(error: BaseException) -> bool:
    """Return whether an exception means that a run was stopped or left, and not that something went wrong."""
    return not isinstance(error, Exception) or "CancelledError" in _names(error)


def is_bubbling(error: BaseException) -> bool:
    """Return whether LangGraph raises this exception for something else than an error: an interrupt, or a command to the
    parent."""
    return "GraphBubbleUp" in _names(error)


def ending(error: BaseException | None, asked: str | None, *, from_within: bool = False) -> Data:
    """Return status, cause and error of a run that ended with `error`. `asked` is the cause of a stop request, or None.

    `from_within`: a node has raised the error before, so it is not a time limit of the graph itself.
    """
    if error is None:
        return {"status": "completed"}
    cause = _cause(error, from_within)
    if asked is not None and (cause is not None or is_abort(error)):
        cause = asked
    if cause is not None:
        # LangGraph Server cancels a run with this exception before it removes the run as if it had never been.
        rolled_back = any(type(one).__name__ == "UserRollback" for each in _cancellations(error) for one in each.args)
        return {"status": "interrupted", "cause": cause} | ({"rolled_back": True} if rolled_back else {})
    return {"status": "failed", "error": error_text(error)}


def _cause(error: BaseException, from_within: bool) -> str | None:
    names = _names(error)
    if "CancelledError" in names:
        message = _cancel_message(error)
        if message in CAUSES:
            return message
        # anyio, and so every web server, names itself in the message; asyncio has no message, and is usually a Stop button.
        if "cancel scope" in message:
            return "timeout" if "deadline" in message else "disconnect"
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


def _cancel_message(error: BaseException) -> str:
    """Return the message of a cancellation, as in `task.cancel("timeout")`, or "".

    On Python 3.10, a task that waits for a cancelled task gets an exception without the message; the context of that
    exception has it.
    """
    messages = (one.args[0] for one in _cancellations(error) if one.args)
    return next((one for one in messages if isinstance(one, str)), "")


def _cancellations(error: BaseException) -> Iterator[BaseException]:
    """Yield a cancellation, and the cancellations that it comes from."""
    cancelled: BaseException | None = error
    while cancelled is not None and "CancelledError" in _names(cancelled):
        yield cancelled
        cancelled = cancelled.__context__


def _names(error: BaseException) -> set[str]:
    # Compare names: no other code here needs the modules of these classes, and one of the classes exists in three versions.
    return {kind.__name__ for kind in type(error).__mro__}


def add_usage(total: Data, usage: Mapping[str, Any]) -> None:
    """Add the usage that a provider reported to `total`, details included."""
    for key, value in usage.items():
        if isinstance(value, Mapping):
            add_usage(total.setdefault(key, {}), value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            total[key] = total.get(key, 0) + value
