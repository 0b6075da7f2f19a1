"""Pure: the messages in what a tool or a task of a graph is given, and in what it gives back.

Rule: the state of a graph is what its tasks give back, whatever was said in them on the way. So what a run's transcript
should hold is read off there, where LangChain's callbacks of models and tools say too much or too little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from ._translate import Data, message_data, request_ids
from .events import visible_text


def tool_messages(output: Any) -> list[Any]:
    """The tool messages in what a tool or a node gave back."""
    return [message for message in _messages_in(output) if message.type == "tool" and hasattr(message, "tool_call_id")]


def open_requests(inputs: Any) -> list[str]:
    """The tool calls that a task of a graph is there for, or finds without an answer in the state that it is given."""
    if isinstance(inputs, Mapping) and "tool_call" in inputs:
        inputs = [inputs["tool_call"]]
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], Mapping):
        return [call["id"] for call in inputs if call.get("type") == "tool_call" and isinstance(call.get("id"), str)]
    messages = inputs.get("messages") if isinstance(inputs, Mapping) else getattr(inputs, "messages", inputs)
    # From its end, and no further than needed: a history may be long.
    answered: set[str] = set()
    for message in reversed(messages) if isinstance(messages, list) else ():
        if getattr(message, "type", None) == "ai":
            return [id for id in request_ids(vars(message)) if id not in answered]
        answered.add(getattr(message, "tool_call_id", ""))
    return []


def likeness(message: Mapping[str, Any]) -> Data:
    """By what an answer is known again, of one size: its id or its words, and what it asks for."""
    data = message["data"]
    return {"id": data.get("id"), "words": hash(_words(data.get("content"))), "asks": request_ids(data)}


def not_given(calls: Mapping[str, Data | None], output: Any, requests: set[str]) -> list[str]:
    """The calls whose answers a task has kept to itself: a plan, a choice, the steps of an agent inside of a node.

    In doubt an answer counts: where the task gives nothing that comes from a model, its state may hold the words in another
    form. But not one that asks for tools that it did not call: nobody will answer that.
    """
    given = [message for message in _messages_in(output) if message.type == "ai"]
    ids, words = {message.id for message in given}, {hash(_words(message.content)) for message in given}
    known = {call: like for call, like in calls.items() if like is not None}
    same = {call for call, like in known.items() if like["id"] in ids or like["words"] in words}
    if same:
        return [call for call in calls if call not in same]
    return [call for call, like in known.items() if like["asks"] and not given and requests.issuperset(like["asks"])]


def result_data(output: Any, tool_call_id: str | None) -> Data:
    """What `on_tool_end` says: the message that answers the request, or whatever else the tool gave."""
    messages = tool_messages(output)
    ours = [message for message in messages if message.tool_call_id == tool_call_id] or messages
    data: Data = {"tool_call_id": tool_call_id or (ours[0].tool_call_id if ours else None)}
    if ours:
        data["message"] = message_data(ours[0])
    else:
        data["output"] = output
    if type(output).__name__ == "Command" and output.goto:
        data["goto"] = output.goto
    return data


def _words(content: Any) -> str:
    return content if isinstance(content, str) else visible_text({"blocks": content})


def _messages_in(output: Any) -> list[Any]:
    """The messages in what a node gave or was given: alone, in a list, in a state or in a Command."""
    found: list[Any] = []
    waiting = deque([output])
    while waiting:
        value = waiting.popleft()
        if isinstance(getattr(value, "type", None), str) and hasattr(value, "content"):
            found.append(value)
        elif isinstance(value, Mapping):
            waiting.append(value.get("messages"))
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
        elif type(value).__name__ == "Command":
            waiting.append(value.update)
        elif hasattr(value, "messages"):
            waiting.append(value.messages)
    return found
