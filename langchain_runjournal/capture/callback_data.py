"""Pure: what LangChain says in its callbacks -> the data of events.

Rule: the shapes of LangChain's callback arguments are known here and nowhere else. Nothing that is given here is changed or
kept, since chunks and messages are shared with the consumer: what comes out is written down before the callback returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..events import CAUSES
from ..messages.message_data import Data, message_data, text_message

# --- responses --------------------------------------------------------------------------------------------------------


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
