"""Pure: the form in which a list holds its messages: LangChain's objects, dicts with a role, or pairs of role and text.

Rule: a message is written into a list in the form of the elements there. If one element cannot be read as a message, the
list stays as it is, because its program would not understand what this package adds.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from .tool_pairs import is_ai, is_tool, requests

Form: TypeAlias = Literal["messages", "dicts", "pairs"]

_ROLES: Final = frozenset({"user", "assistant", "system", "developer", "tool", "function", "human", "ai"})
_OPENAI: Final = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}
_PLAIN: Final = {"human": "human", "ai": "ai", "AIMessageChunk": "ai"}
_FOREIGN: Final = frozenset({"tool_use", "tool_result"})
"""Blocks of Anthropic's own form. Lists in that form have the results of tools in the user's messages, which this package
never writes."""
NO_MESSAGE: Final = (
    "{what} holds {kind} at place {place}, which is not a message: nothing can be added in a form that its program reads"
)
FOREIGN: Final = (
    "{what} holds messages in Anthropic's own form (dicts with `tool_use` or `tool_result` blocks), in which nothing can be"
    " written here"
)
UNREADABLE: Final = "LangChain cannot read what {what} holds at place {place} as a message ({kind})"
ONE_TEXT: Final = "{what} is declared as {kind}, not as a list of messages"
PAIR: Final = "{what} holds pairs of role and text, in which neither a tool request nor a result can be written"


def read(found: Sequence[Any]) -> list[Any]:
    """Return the elements of a list as LangChain's objects. Raise LangChain's error for an element that it cannot read."""
    from langchain_core.messages import BaseMessage, convert_to_messages

    if _are_messages(found):
        return list(found)
    # OpenAI leaves `content` out of an answer that only asks for tools; LangChain requires it.
    full = [{"content": "", **one} if isinstance(one, Mapping) else one for one in found]
    return [one if isinstance(one, BaseMessage) else convert_to_messages([one])[0] for one in full]


def form_of(found: Sequence[Any], declared: Any = None) -> Form:
    """Return the form of a list, or of an empty list the form that its declared type names."""
    if found and _are_messages(found):
        return "messages"
    kinds = {_kind(one) for one in found} if found else {_declared_kind(element_of(declared))}
    only = kinds.pop() if len(kinds) == 1 else "messages"
    return "dicts" if only == "dicts" else "pairs" if only == "pairs" else "messages"


def problem_of(found: Sequence[Any], declared: Any, what: str) -> str | None:
    """Return why nothing can be written into a list; None if it can. `what` names the list."""
    if not found:
        element = element_of(declared)
        if _declared_kind(element) == "none":
            return ONE_TEXT.format(what=what, kind=f"a list of {getattr(element, '__name__', element)}")
        return None
    if _are_messages(found):
        return None
    kinds = [_kind(one) for one in found]
    if "none" in kinds or set(kinds) == {"typed"}:
        place = next(at for at, kind in enumerate(kinds) if kind in ("none", "typed"))
        return NO_MESSAGE.format(what=what, kind=f"a {type(found[place]).__name__}", place=place)
    if any(isinstance(one, Mapping) and _is_foreign(one.get("content")) for one in found):
        return FOREIGN.format(what=what)
    for place, one in enumerate(found):
        if kinds[place] != "messages":
            try:
                read([one])
            except Exception as exc:  # noqa: BLE001 - returned
                return UNREADABLE.format(what=what, place=place, kind=type(exc).__name__)
    return None


def _are_messages(found: Sequence[Any]) -> bool:
    """Return whether all elements are LangChain's objects.

    Every message to a long thread pays for this, so it compares types.
    """
    from langchain_core.messages import BaseMessage

    return all(issubclass(kind, BaseMessage) for kind in set(map(type, found)))


def _kind(one: Any) -> Literal["messages", "dicts", "pairs", "typed", "none"]:
    from langchain_core.messages import BaseMessage

    if isinstance(one, BaseMessage):
        return "messages"
    if isinstance(one, Mapping):
        if "role" in one:
            return "dicts" if one["role"] in _ROLES else "none"
        return "typed" if "type" in one and "content" in one else "none"
    # A checkpointer may load a tuple as a list.
    is_pair = isinstance(one, (list, tuple)) and len(one) == 2 and all(isinstance(part, str) for part in one)
    return "pairs" if is_pair and one[0] in _ROLES else "none"


def _is_foreign(content: Any) -> bool:
    blocks = content if isinstance(content, list) else ()
    return any(isinstance(block, Mapping) and block.get("type") in _FOREIGN for block in blocks)


# --- declared types ---------------------------------------------------------------------------------------------------


def plain(declared: Any) -> Any:
    """Return a type without `Annotated`, `Required` and `None`."""
    while True:
        origin, args = typing.get_origin(declared), typing.get_args(declared)
        if origin is typing.Annotated or getattr(origin, "_name", None) in ("Required", "NotRequired", "ReadOnly"):
            declared = args[0]
        elif origin in (typing.Union, types.UnionType) and len(rest := [one for one in args if one is not type(None)]) == 1:
            declared = rest[0]
        else:
            return declared


def element_of(declared: Any) -> Any:
    """Return the declared type of the elements of a list; None if the declaration does not name one."""
    declared = plain(declared)
    origin = typing.get_origin(declared)
    is_list = isinstance(origin, type) and issubclass(origin, Sequence)
    args = typing.get_args(declared)
    return plain(args[0]) if is_list and args else None


def is_other(declared: Any) -> bool:
    """Return whether a type is certainly not that of a list: a text, a number, a mapping."""
    declared = plain(declared)
    outer = typing.get_origin(declared) or declared
    if outer in (str, bytes):
        return True
    return (
        isinstance(outer, type) and outer is not object and not issubclass(list, outer) and not issubclass(outer, Sequence)
    )


def _declared_kind(element: Any) -> str:
    outer = typing.get_origin(element) or element
    if outer in (str, bytes, int, float, bool):
        return "none"
    return "dicts" if isinstance(outer, type) and issubclass(outer, Mapping) else "messages"


# --- writing ----------------------------------------------------------------------------------------------------------


def unwritable(form: Form, messages: Sequence[Any], what: str) -> str | None:
    """Return why some messages cannot be written in this form; None if they can."""
    if form == "pairs" and any(is_tool(one) or requests(one) for one in messages):
        return PAIR.format(what=what)
    return None


def written(form: Form, messages: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """Return messages in the form of a list, without their ids and our mark, which dicts and pairs cannot hold."""
    if form == "messages":
        return list(messages)
    roles = {one.get("role") if isinstance(one, Mapping) else one[0] for one in like}
    names = _PLAIN if roles & {"human", "ai"} else _OPENAI
    if form == "pairs":
        return [(names.get(one.type, one.type), str(one.text)) for one in messages]
    return [_dict(one, names) for one in messages]


def _dict(message: Any, names: Mapping[str, str]) -> dict[str, Any]:
    from langchain_core.messages import convert_to_openai_messages

    found: dict[str, Any] = {"role": names.get(message.type, message.type)}
    if is_tool(message):
        return {**found, "tool_call_id": message.tool_call_id, "content": _content(message)}
    if is_ai(message):
        found["content"] = str(message.text)
        given = convert_to_openai_messages(message)
        return {**found, "tool_calls": given["tool_calls"]} if isinstance(given, dict) and given.get("tool_calls") else found
    return {**found, "content": _content(message)}


def _content(message: Any) -> Any:
    from langchain_core.messages import convert_to_openai_messages

    if isinstance(message.content, str):
        return message.content
    given = convert_to_openai_messages(message)
    return given["content"] if isinstance(given, dict) else str(message.text)


# --- reading what has no ids ------------------------------------------------------------------------------------------


def known_again(
    thread: Sequence[Any], transcript: Sequence[Any], run_id: str, *, applied: bool, since: int
) -> tuple[list[Any], list[Any]]:
    """Return copies of a thread and of a run's transcript in which a message has the same id in both.

    Dicts have no ids and keep no mark, so that only its words and requests identify a message that was written before.
    Otherwise a thread that is settled twice would hold a partial answer twice. `applied` and `since` are as in `plan`.
    """
    given = [one if one.id else one.model_copy(update={"id": f"rjs-{run_id}-{at}"}) for at, one in enumerate(transcript)]
    read = list(thread)
    users = max((at for at, one in enumerate(read) if one.type == "human"), default=-1)
    end = 0
    for message in given:
        if is_tool(message):
            continue
        first = max(since, end, 0 if end or message.type == "human" else users + 1)
        same = [at for at in range(first, len(read)) if _is_same(read[at], message)]
        if same:
            at = same[-1] if applied and message.type == "human" else same[0]
            read[at] = read[at].model_copy(update={"id": message.id})
            end = at + 1
    return read, given


def _is_same(one: Any, message: Any) -> bool:
    if is_ai(one) != is_ai(message) or (not is_ai(one) and one.type != message.type):
        return False
    return str(one.text) == str(message.text) and [call.id for call in requests(one)] == [
        call.id for call in requests(message)
    ]
