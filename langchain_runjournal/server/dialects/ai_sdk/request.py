"""Pure: what a client's POST asks for.

Rule: of the body, only the new message of the user counts. The thread has the history, and what the client sends of it is
not read: it could be anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from ....errors import InvalidArgument
from ....messages.message_data import Data

LONGEST_ID: Final = 200
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*?;base64,", re.ASCII)
_KINDS: Final = ("image", "audio", "video")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What a POST asks for.

    `submit`: a new message. `edit`: the message in place of the one that has its id. `regenerate`: another answer; `message`
    then names what is to be replaced, and `last` the last message that the page keeps. `answer`: to what a paused run asks.
    """

    kind: Literal["submit", "edit", "regenerate", "answer"]
    thread_id: str
    message_id: str | None
    content: str | list[Data] = ""
    last: str | None = None
    resume: Any = None
    questions: tuple[str, ...] = ()
    """The ids of the questions that an answer names."""


def parse(body: object) -> ChatRequest:
    """Return what the body of a POST asks for. Raise `InvalidArgument` for a body that no chat sends."""
    if not isinstance(body, Mapping):
        raise InvalidArgument(name="the body", expected="a JSON object, as `DefaultChatTransport` sends it", value=body)
    thread_id = _id("id", body.get("id"))
    target = _id("messageId", body["messageId"]) if body.get("messageId") is not None else None
    trigger = body.get("trigger", "submit-message")
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    command = body.get("command")
    if command is not None:
        if not isinstance(command, Mapping) or "resume" not in command:
            raise InvalidArgument(name="command", expected='an object {"resume": ...}', value=command)
        return ChatRequest(kind="answer", thread_id=thread_id, message_id=_own(last), resume=command["resume"])
    if trigger == "regenerate-message":
        # The message before the answer counts only if the thread does not have it: the server may have refused it.
        said = last if isinstance(last, Mapping) and last.get("role") == "user" else {}
        words = [part for part in _parts(said) if part.get("type") in ("text", "file")]
        content = _content(words) if words else ""
        return ChatRequest(kind="regenerate", thread_id=thread_id, message_id=target, content=content, last=_own(last))
    if trigger != "submit-message":
        raise InvalidArgument(name="trigger", expected='"submit-message" or "regenerate-message"', value=trigger)
    if not isinstance(last, Mapping) or last.get("role") != "user":
        raise InvalidArgument(name="messages", expected="a list whose last message is the new one of the user", value=last)
    message_id, parts = _id("the id of the message", last.get("id")), _parts(last)
    answers = [part.get("data") for part in parts if part.get("type") == "data-answer"]
    if answers:
        resume, questions = _resume(answers)
        return ChatRequest(kind="answer", thread_id=thread_id, message_id=message_id, resume=resume, questions=questions)
    content = _content(parts)
    kind: Literal["submit", "edit"] = "edit" if target == message_id else "submit"
    return ChatRequest(kind=kind, thread_id=thread_id, message_id=message_id, content=content)


def _id(name: str, value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID or not value.isprintable():
        raise InvalidArgument(name=name, expected=f"printable text of 1 to {LONGEST_ID} characters", value=value)
    return value


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = message.get("parts")
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []


def _own(message: object) -> str | None:
    id = message.get("id") if isinstance(message, Mapping) else None
    return _id("the id of the last message", id) if id is not None else None


def _resume(answers: list[Any]) -> tuple[Any, tuple[str, ...]]:
    """Return what `Command(resume=...)` takes, one value or the values by the ids of their questions; and these ids."""
    for one in answers:
        if not isinstance(one, Mapping) or "value" not in one:
            raise InvalidArgument(name="data-answer", expected='data of the form {"id": ..., "value": ...}', value=one)
    if len(answers) == 1 and answers[0].get("id") is None:
        return answers[0]["value"], ()
    found = {_id("the id of a question", one.get("id")): one["value"] for one in answers}
    return found, tuple(found)


def _content(parts: list[Mapping[str, Any]]) -> str | list[Data]:
    """Return the content of the message, in LangChain's form. Parts that are neither text nor a file do not count."""
    blocks: list[Data] = []
    for part in parts:
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            blocks.append({"type": "text", "text": part["text"]})
        elif part.get("type") == "file":
            blocks.append(_file(part))
    if not blocks or all(block["type"] == "text" and not block["text"].strip() for block in blocks):
        raise InvalidArgument(name="the parts of the message", expected="a text or a file", value=parts)
    if all(block["type"] == "text" for block in blocks):
        return "".join(block["text"] for block in blocks)
    return blocks


def _file(part: Mapping[str, Any]) -> Data:
    url, media = part.get("url"), part.get("mediaType")
    if not isinstance(url, str) or not isinstance(media, str):
        raise InvalidArgument(name="a file of the message", expected="one with a `url` and a `mediaType`", value=dict(part))
    kind = next((one for one in _KINDS if media.startswith(f"{one}/")), "file")
    named = {"filename": part["filename"]} if isinstance(part.get("filename"), str) else {}
    match = _DATA_URL.match(url)
    if match is not None:
        return {"type": kind, "base64": url[match.end() :], "mime_type": match[1], **named}
    if url.startswith(("https://", "http://")):
        return {"type": kind, "url": url, "mime_type": media, **named}
    raise InvalidArgument(name="the url of a file", expected="a data: URL in base64, or one of https", value=url[:80])
