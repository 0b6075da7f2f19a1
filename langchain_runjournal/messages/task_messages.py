"""Pure: the messages in what a tool or a task of a graph receives, and in what it returns.

Rule: the state of a graph is what its tasks return, whatever models said on the way. The transcript of a run therefore
follows what tasks return, because LangChain's callbacks of models and tools report too much or too little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..events import visible_text
from .message_data import Data, message_data
from .tool_pairs import is_ai
from .tool_requests import request_ids

_HEAD: Final = 200
"""How many characters of an answer identify it in a longer text."""
_MOST_ADDED: Final = 200
"""How many messages of one task are recorded: more than that is a history, which another place holds."""
_MOST_VALUES: Final = 10_000
_DEEPEST: Final = 8


def tool_messages(output: Any) -> list[Any]:
    """Return the tool messages in what a tool or a node returned."""
    return [message for message in _messages_in(output) if message.type == "tool" and hasattr(message, "tool_call_id")]


def open_requests(inputs: Any) -> list[str]:
    """Return the tool calls that a task of a graph is there for, or finds unanswered in the state that it receives."""
    if isinstance(inputs, Mapping) and "tool_call" in inputs:
        inputs = [inputs["tool_call"]]
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], Mapping):
        return [call["id"] for call in inputs if call.get("type") == "tool_call" and isinstance(call.get("id"), str)]
    messages = inputs.get("messages") if isinstance(inputs, Mapping) else getattr(inputs, "messages", inputs)
    # Read from the end, and no further than needed: a history may be long.
    answered: set[str] = set()
    for message in reversed(messages) if isinstance(messages, list) else ():
        if getattr(message, "type", None) == "ai":
            return [id for id in request_ids(vars(message)) if id not in answered]
        answered.add(getattr(message, "tool_call_id", ""))
    return []


def fingerprint(message: Mapping[str, Any]) -> Data:
    """Return what identifies an answer, in constant size: its id, a hash and the beginning of its words, its request ids."""
    data = message["data"]
    words = _words(data.get("content"))
    return {"id": data.get("id"), "words": hash(words), "head": words.strip()[:_HEAD], "asks": request_ids(data)}


def keeps_messages(inputs: Any) -> bool:
    """Return whether the state that a task receives has `messages`."""
    found = inputs.get("messages") if isinstance(inputs, Mapping) else getattr(inputs, "messages", None)
    return isinstance(found, (list, tuple))


@dataclass(slots=True)
class Split:
    """What a task did with the answers of its calls.

    A call in neither list is in doubt: nothing in the output compares to it.
    """

    gave: list[str] = field(default_factory=list)
    """In the order in which the task returned their answers."""
    kept: list[str] = field(default_factory=list)


def split(calls: Mapping[str, Data | None], output: Any, requests: set[str], had: Had, *, strict: bool) -> Split:
    """Separate the calls whose answers a task returned from those that it kept to itself.

    `calls` holds them with their fingerprints, and `had` what the task received. `strict`: the graph keeps messages, so only
    the messages of the output count. Otherwise an answer counts wherever its words stand in the output. Without words it is
    in doubt, unless it asks for tools that the task did not call, since no result will come.
    """
    if not calls:
        return Split()
    given = state_messages(output)
    if strict or given:
        gave = _matches(calls, had.without(given))
        return Split(gave, [call for call in calls if call not in gave])
    texts, messages = _everything(output)
    gave = _matches(calls, messages)
    for call, like in calls.items():
        if call not in gave and like is not None and like["head"] and any(like["head"] in text for text in texts):
            gave.append(call)
    if gave or any(text.strip() for text in texts) or messages:
        return Split(gave, [call for call in calls if call not in gave])
    known = [(call, like) for call, like in calls.items() if like is not None]
    return Split([], [call for call, like in known if like["asks"] and requests.issuperset(like["asks"])])


def retold(calls: Mapping[str, Data | None], given: list[Any]) -> set[str]:
    """Return the calls whose words a task returned in another form.

    They may be stripped, have text before or behind them, stand in parts, or be the words of another speaker. A user's
    message without a name has no speaker: a node writes one to ask the next node.
    """
    texts = [_squeezed(_words(one.content)) for one in given if is_ai(one) or (one.type == "human" and one.name)]
    found = set()
    for call, like in calls.items():
        head = _squeezed(like["head"]) if like is not None else ""
        if head and any(text and (head in text or text[: len(head)] in head) for text in texts):
            found.add(call)
    return found


def speaks(given: list[Any]) -> bool:
    """Return whether some messages contain words that a user may take for an answer."""
    return any(is_ai(one) and _words(one.content).strip() for one in given)


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _matches(calls: Mapping[str, Data | None], messages: list[Any]) -> list[str]:
    """Return the calls whose answers are among some messages, in their order there."""
    found: dict[str, None] = {}
    for message in messages:
        like = _fingerprint_of(message) if is_ai(message) else None
        for call, other in calls.items():
            if like is not None and call not in found and other is not None and _is_same(like, other):
                found[call] = None
                break
    return list(found)


def _is_same(like: Data, other: Data) -> bool:
    if like["id"] is not None and like["id"] == other["id"]:
        return True
    return _says_same(like, other) and bool(like["head"] or like["asks"])


def _says_same(like: Data, other: Data) -> bool:
    return bool(like["words"] == other["words"] and like["asks"] == other["asks"])


def _fingerprint_of(message: Any) -> Data:
    return fingerprint({"data": vars(message)})


class Had:
    """The messages that a task received, which are compared to those that it returns.

    This is not a copy: it holds the list of the state and its length, since a node may append to the list in place.
    """

    __slots__ = ("_length", "_messages", "is_state")

    def __init__(self, inputs: Any) -> None:
        self.is_state = keeps_messages(inputs)
        """Whether the task received a state that has `messages`."""
        found = inputs.get("messages") if isinstance(inputs, Mapping) else getattr(inputs, "messages", inputs)
        self._messages: Any = found if isinstance(found, (list, tuple)) else ()
        self._length = len(self._messages)

    def without(self, messages: list[Any], but: Collection[str] = ()) -> list[Any]:
        """Return those of some messages that are not the same objects as the task received.

        `but`: ids of messages that the task may have changed in place.
        """
        same = {id(one) for one in self._there()}
        return [one for one in messages if id(one) not in same or (is_ai(one) and one.id in but)]

    def by_id(self) -> dict[str, Any]:
        """Return the messages that the task received, by their id."""
        return {one.id: one for one in self._there() if getattr(one, "id", None)}

    def _there(self) -> Any:
        return self._messages[: self._length]


def added(output: Any, had: Had, calls: Mapping[str, Data | None], known: Mapping[str, Data]) -> list[Data]:
    """Return the messages that a task gave to the state and that no event holds.

    The node has written them itself, or has changed the words or requests of an answer. Each comes with the call `before`
    which it stands in what the task returned. `calls`: those of the task; `known`: the answers of earlier tasks, by the id
    of their messages. A task that removes messages counts for nothing: what it returns is another way to write the history.
    """
    given = state_messages(output)
    if not given or any(message.type == "remove" for message in given):
        return []
    given = had.without(given, but=known)
    look = _Added(calls, known)
    if not any(look.is_fresh(message) for message in given):
        return []  # most tasks return only what events hold, and a history may be long
    new, before = _Added(calls, known), had.by_id()
    for message in given:
        if message.id in known or not _was_there(message, before):
            new.take(message)
    return new.found if len(new.found) <= _MOST_ADDED else []


class _Added:
    """The messages of one task, one after the other."""

    def __init__(self, calls: Mapping[str, Data | None], known: Mapping[str, Data]) -> None:
        self._calls = dict(calls)
        self._known = known
        self._asked: set[str] = set()
        self._waiting: list[Data] = []
        self.found: list[Data] = []

    def is_fresh(self, message: Any) -> bool:
        """Return whether a message may be one that no event holds."""
        if message.type == "tool":
            return False
        return not is_ai(message) or not self._is_known(_fingerprint_of(message), self._call_of(message), message)

    def take(self, message: Any) -> None:
        """Add a message that the task did not receive."""
        like, call = _fingerprint_of(message), self._call_of(message)
        known = self._is_known(like, call, message)
        before = self._calls.pop(call) if call is not None else self._known.get(message.id) if is_ai(message) else None
        if call is not None:
            for one in self._waiting:
                one["before"] = call
            self._waiting = []
        if known or (message.type == "tool" and message.tool_call_id not in self._asked):
            return  # the result of a tool, or of a request that is open, has an event of its own
        self.found.append(message_data(message))
        if before is None:
            self._asked.update(like["asks"])
            self._waiting.append(self.found[-1])

    def _call_of(self, message: Any) -> str | None:
        return next(iter(_matches(self._calls, [message])), None) if is_ai(message) else None

    def _is_known(self, like: Data, call: str | None, message: Any) -> bool:
        before = self._calls[call] if call is not None else self._known.get(message.id) if is_ai(message) else None
        return before is not None and _says_same(like, before)


def _was_there(message: Any, by_id: Mapping[str, Any]) -> bool:
    """Return whether a task received a message. An answer that it returns under the same id may have other words by now."""
    before = by_id.get(message.id) if message.id else None
    if before is None:
        return False
    return not is_ai(message) or (is_ai(before) and _says_same(_fingerprint_of(message), _fingerprint_of(before)))


def parent_command(error: BaseException) -> Any:
    """Return what a task sends to the graph around it in place of an output; None for any other error."""
    if type(error).__name__ != "ParentCommand" or not error.args:
        return None
    return error.args[0]


def result_data(output: Any, tool_call_id: str | None) -> Data:
    """Return the data of `on_tool_end`: the message that answers the request, or any other output of the tool."""
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
    """Return the messages in what a node returned or received: alone, in a list, in a state or in a Command."""
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


def state_messages(output: Any) -> list[Any]:
    """Return the messages that a task gave to the `messages` of its state, in whatever form the node wrote them.

    The state may also be a list of messages itself.
    """
    found: list[Any] = []
    waiting = deque([(output, False)])
    while waiting:
        value, inside = waiting.popleft()
        if _is_message(value):
            found.append(value)
        elif isinstance(value, Mapping) and not (inside and "role" in value):
            waiting.appendleft((value.get("messages"), True))
        elif isinstance(value, (list, tuple)) and not (inside and _is_pair(value)):
            if len(value) == 2 and value[0] == "messages":
                value, inside = [value[1]], True  # an update as pairs of channel and value
            waiting.extendleft((one, inside) for one in reversed(value))
        elif type(value).__name__ == "Command":
            waiting.appendleft((value.update, inside))
        elif hasattr(value, "messages"):
            waiting.appendleft((value.messages, True))
        elif inside and value:
            found += _converted(value)
    return found


def _is_message(value: Any) -> bool:
    return isinstance(getattr(value, "type", None), str) and hasattr(value, "content")


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(one, str) for one in value)


def _converted(value: Any) -> list[Any]:
    """Return messages from the other forms that LangGraph accepts: a dict, a pair, the words of a user."""
    from langchain_core.messages import convert_to_messages

    try:
        return list(convert_to_messages([value]))
    except (ValueError, TypeError, NotImplementedError, KeyError, AttributeError):
        return []


def _everything(output: Any) -> tuple[list[str], list[Any]]:
    """Return all texts and messages in an output, at any place."""
    texts: list[str] = []
    messages: list[Any] = []
    waiting = deque([(output, 0)])
    for _ in range(_MOST_VALUES):
        if not waiting:
            break
        value, depth = waiting.popleft()
        if isinstance(value, str):
            texts.append(value)
        elif _is_message(value):
            messages.append(value)
            texts.append(_words(value.content))
        elif depth < _DEEPEST:
            if type(value).__name__ == "Command":
                value = value.update
            if isinstance(value, (list, tuple, set, frozenset)):
                waiting.extend((one, depth + 1) for one in value)
            else:
                fields = value if isinstance(value, Mapping) else getattr(value, "__dict__", None)
                if fields is None and hasattr(type(value), "__dataclass_fields__"):
                    fields = {name: getattr(value, name, None) for name in type(value).__dataclass_fields__}
                if isinstance(fields, Mapping):
                    waiting.extend((one, depth + 1) for one in fields.values())
    return texts, messages
