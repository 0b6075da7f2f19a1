"""Histories in a few letters, and their changed forms.

    U          a user's message          U0   an empty one          S   a system message
    A          an answer in words        A~   one that was cut off  a(c1,c2)  requests and no words
    A(c1,c2)   words and requests        !c1  one with invalid JSON as arguments ?c1  one without a name
    T(c1)      the result of c1          T*(c1)   an earlier synthetic result

A changed history is written as the places of its messages in the old one (`0 1 3`). Messages that were not in the old one
are `T*(c1)` for a synthetic result, `R(c1)` for the real result from the evidence, `2'` for a changed copy, and `N` for a
note that stands alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_runjournal.messages.marks import origin_of
from langchain_runjournal.messages.tool_requests import Request
from langchain_runjournal.messages.tool_results import CallKnowledge, answer


def history(text: str) -> list[BaseMessage]:
    """Return the messages that the letters stand for. Words, ids and results differ from place to place."""
    return [_message(token, place) for place, token in enumerate(text.split())]


def result(call: str, content: str = "real", **more: Any) -> ToolMessage:
    return ToolMessage(content, tool_call_id=call, name="search", **more)


def made_up(id: str, message_id: str | None = "m") -> ToolMessage:
    """Return a synthetic result as it stands in a settled thread."""
    request = Request(id=id, name="search", index=0, valid=True)
    return answer(AIMessage("", id=message_id), request, CallKnowledge(state="started", run_id="r", cause="crash"))


def cut_off(place: int = 0, reason: str = "stop", **more: Any) -> AIMessage:
    mark = {"v": 1, "origin": "partial", "reason": reason, "run_id": "r", "call_id": "c", **more}
    return AIMessage(f"half an answer {place}", id=f"m{place}", additional_kwargs={"runjournal": mark})


def _message(token: str, place: int) -> BaseMessage:
    kind, ids = re.fullmatch(r"([^(]+)(?:\((.*)\))?", token).groups()  # type: ignore[union-attr]
    match kind:
        case "U":
            return HumanMessage(f"words {place}", id=f"m{place}")
        case "U0":
            return HumanMessage("", id=f"m{place}")
        case "S":
            return SystemMessage(f"rules {place}", id=f"m{place}")
        case "A~":
            return cut_off(place)
        case "T":
            return result(ids, f"result {place}", id=f"m{place}")
        case "T*":
            return made_up(ids, f"m{place}")
        case _:
            return _asking(kind, ids.split(",") if ids else [], place)


def _asking(kind: str, ids: list[str], place: int) -> AIMessage:
    calls = [{"id": id, "name": "search", "args": {}} for id in ids if id[0] not in "!?"]
    invalid = [
        {"id": id[1:], "name": "search" if id[0] == "!" else None, "args": '{"q', "error": None}
        for id in ids
        if id[0] in "!?"
    ]
    words = f"answer {place}" if kind == "A" else ""
    return AIMessage(words, id=f"m{place}", tool_calls=calls, invalid_tool_calls=invalid)


def became(before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> str:
    """Return the changed history, in the letters above."""
    places = {id(message): place for place, message in enumerate(before)}
    return " ".join(_said(message, places, before) for message in after)


def _said(message: BaseMessage, places: dict[int, int], before: Sequence[BaseMessage]) -> str:
    if id(message) in places:
        return str(places[id(message)])
    origin = origin_of(message)
    if isinstance(message, ToolMessage):
        assert origin in ("synthetic", "recovered")
        return f"{'T*' if origin == 'synthetic' else 'R'}({message.tool_call_id})"
    source = [place for place, one in enumerate(before) if one.id == message.id]
    return f"{source[0]}'" if source else "N"
