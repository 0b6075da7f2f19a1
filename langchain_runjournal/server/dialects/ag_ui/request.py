"""Pure: what a client's POST asks for.

Rule: the thread has the history. Of the messages that a client sends, only the new ones of the user count: those behind the
last message that the thread has, and behind the last answer. What stands before is not read: it could be anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ....errors import InvalidArgument
from ....messages.message_data import Data

LONGEST_ID: Final = 200
_BUSY: Final = ("reject", "stop", "wait")
_ANSWERED: Final = ("assistant", "tool", "reasoning")
_MEDIA: Final = ("image", "audio", "video", "document")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A `RunAgentInput`, checked."""

    thread_id: str
    run_id: str
    messages: Sequence[Mapping[str, Any]] = ()
    state: Any = None
    tools: Sequence[Any] = ()
    context: Sequence[Any] = ()
    answers: Mapping[str, Any] | None = None
    """What a human answers, by the ids of the questions; None for a request that answers nothing."""
    command: Mapping[str, Any] | None = None
    """The `forwardedProps.command` of older clients: `resume` is the answer to the question that is open."""
    if_busy: Any = "reject"
    configurable: Mapping[str, Any] = field(default_factory=dict)
    is_older: bool = False
    """Whether the client is older than version 1.0 of the protocol."""


def is_older(version: object) -> bool:
    """Return whether a client that declares this version, or none, is older than version 1.0 of the protocol."""
    return not isinstance(version, str) or not version or version.startswith("0.")


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message of the user, with its content in LangChain's form."""

    id: str
    content: str | list[Data]


@dataclass(frozen=True, slots=True)
class Turn:
    """What a request adds to its thread.

    `submit`: new messages. `again`: the last message of the page is one of the user that the thread has, so the answer to it
    is given again; with other words, it is an edit. `answer`: to what a paused run asks.
    """

    kind: Literal["submit", "again", "answer"]
    messages: Sequence[NewMessage] = ()
    is_edited: bool = False
    greeting: Sequence[Data] = ()
    """What the page shows above the conversation, and no thread has."""


def parse(body: object) -> RunRequest:
    """Return what the body of a POST asks for. Raise `InvalidArgument` for a body that no client sends."""
    if not isinstance(body, Mapping):
        raise InvalidArgument(name="the body", expected="a `RunAgentInput`", value=body)
    messages = _list("messages", body.get("messages"))
    for one in messages:
        if not isinstance(one, Mapping) or not isinstance(one.get("role"), str):
            raise InvalidArgument(name="messages", expected="a list of objects with an `id` and a `role`", value=one)
        _id("the id of a message", one.get("id"))
    props = body.get("forwardedProps")
    props = props if isinstance(props, Mapping) else {}
    command = props.get("command")
    command = command if isinstance(command, Mapping) and "resume" in command else None
    if_busy = props.get("ifBusy", "reject")
    if if_busy not in _BUSY:
        raise InvalidArgument(name="forwardedProps.ifBusy", expected='"reject", "stop" or "wait"', value=if_busy)
    config = props.get("config")
    configurable = config.get("configurable") if isinstance(config, Mapping) else None
    return RunRequest(
        thread_id=_id("threadId", body.get("threadId")),
        run_id=_id("runId", body.get("runId")),
        messages=messages,
        state=body.get("state"),
        tools=_list("tools", body.get("tools")),
        context=_list("context", body.get("context")),
        answers=_answers(_list("resume", body.get("resume"))),
        command=command,
        if_busy=if_busy,
        configurable=configurable if isinstance(configurable, Mapping) else {},
        is_older=is_older(body.get("protocolVersion")),
    )


def turn_of(asked: RunRequest, thread: Sequence[Data]) -> Turn:
    """Return what a request adds to a thread, whose messages are in the form of AG-UI. Raise `InvalidArgument`."""
    known = {one["id"]: one for one in thread}
    last = max((at for at, one in enumerate(asked.messages) if one["id"] in known or one["role"] in _ANSWERED), default=-1)
    new = [one for one in asked.messages[last + 1 :] if one["role"] == "user"]
    greeting = list(_greeting(asked.messages, known))
    if asked.answers or asked.command is not None:
        if new:
            expected = "no new message, since the run that asked goes on with the answer"
            raise InvalidArgument(name="messages", expected=expected, value=new[0]["id"])
        return Turn("answer", greeting=greeting)
    if new:
        messages = [NewMessage(one["id"], _content(one.get("content"))) for one in new]
        return Turn("submit", messages, greeting=greeting)
    end = asked.messages[-1] if asked.messages else None
    if end is not None and end["role"] == "tool":
        expected = "a new one of the user: this server takes no results of tools that run in the page"
        raise InvalidArgument(name="the last message", expected=expected, value=end["id"])
    if end is None or end["role"] != "user":
        raise InvalidArgument(name="messages", expected="a list that ends with a message of the user", value=end)
    is_edited = end.get("content") != known[end["id"]]["content"]
    return Turn("again", [NewMessage(end["id"], _content(end.get("content")))], is_edited, greeting)


def _greeting(messages: Sequence[Mapping[str, Any]], known: Mapping[str, Any]) -> Iterator[Data]:
    for one in messages:
        if one["role"] != "assistant" or one["id"] in known or not isinstance(one.get("content"), str):
            return
        yield {key: one[key] for key in ("id", "role", "content")}


def _list(name: str, value: object) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise InvalidArgument(name=name, expected="a list", value=value)
    return value or []


def _id(name: str, value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID or not value.isprintable():
        raise InvalidArgument(name=name, expected=f"printable text of 1 to {LONGEST_ID} characters", value=value)
    return value


def _answers(resume: list[Any]) -> dict[str, Any] | None:
    """Return the answers by the ids of their questions."""
    found: dict[str, Any] = {}
    cancelled: list[str] = []
    for one in resume:
        if not isinstance(one, Mapping) or one.get("status") not in ("resolved", "cancelled"):
            expected = 'entries of the form {"interruptId": ..., "status": "resolved", "payload": ...}'
            raise InvalidArgument(name="resume", expected=expected, value=one)
        id = _id("the id of a question", one.get("interruptId"))
        if one["status"] == "cancelled":
            cancelled.append(id)
        else:
            found[id] = one.get("payload")
    if found and cancelled:
        expected = "an answer to each question, or none: LangGraph cannot cancel one question of several"
        raise InvalidArgument(name="resume", expected=expected, value=cancelled[0])
    return found or None


def _content(content: object) -> str | list[Data]:
    """Return the content of a message, in LangChain's form."""
    if isinstance(content, str):
        if content.strip():
            return content
    elif isinstance(content, list) and content:
        blocks = [_block(part) for part in content]
        if any(block["type"] != "text" or block["text"].strip() for block in blocks):
            return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks
    raise InvalidArgument(name="the content of the message", expected="a text, or a list of parts", value=content)


def _block(part: object) -> Data:
    source = part.get("source") if isinstance(part, Mapping) else None
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if isinstance(part, Mapping) and part.get("type") in _MEDIA and isinstance(source, Mapping):
        kind = "file" if part["type"] == "document" else part["type"]
        value, media = source.get("value"), source.get("mimeType")
        about: Data = {"type": kind, **({"mime_type": media} if isinstance(media, str) else {})}
        if source.get("type") == "data" and isinstance(value, str) and isinstance(media, str):
            return {**about, "base64": value}
        if source.get("type") == "url" and isinstance(value, str) and value.startswith(("https://", "http://")):
            return {**about, "url": value}
    expected = "a text, or a file with a `source` of the type data (with a `mimeType`) or url (https)"
    raise InvalidArgument(name="a part of the message", expected=expected, value=part)
