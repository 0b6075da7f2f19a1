"""Pure: what a model is told of answers that were cut off.

Rule: short, true, always in the same words at the same place, and never in the mouth of the model: told nothing, it takes
the half answer for its own choice. Notes are for one request and are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..messages.causes import CAUSES_OF_ANSWER
from ..messages.cut_calls import CUT_CAUSES
from ..messages.marks import MARK, origin_of
from ..messages.tool_pairs import is_ai, is_human, is_tool
from ..messages.tool_results import stable_id

NOTE: Final = "note"
"""The origin of a message that has a note in it, so that nobody puts it there twice."""
_QUOTED: Final = 200
"""How many characters of an answer are quoted, where nothing else says which one is meant."""


@dataclass(frozen=True, slots=True)
class Noted:
    """The messages with their notes, and the ids of the answers that the notes are about."""

    messages: list[Any]
    told: list[str | None]


def tell(messages: list[Any]) -> Noted:
    """Put a note before the next words of the user, for every answer that was cut off; if the model speaks again before
    that, or nobody does, right behind the answer. The same list if there is nothing to tell."""
    out: list[Any] = []
    told: list[str | None] = []
    untold: int | None = None
    for message in messages:
        if untold is not None:
            if is_human(message):
                if origin_of(message) != NOTE:
                    told.append(out[untold].id)
                    message = _with_note(message, _note(out[untold]))
                untold = None
            elif is_ai(message):
                told.append(_stand_alone(out, untold))
                untold = None
        if is_ai(message) and origin_of(message) == "partial" and not _is_told_by_results(message):
            untold = len(out)
        out.append(message)
    if untold is not None:
        told.append(_stand_alone(out, untold))
    return Noted(out, told) if told else Noted(messages, [])


def _is_told_by_results(partial: Any) -> bool:
    """Whether the results of its calls say that it was cut off: see `messages/cut_answers.py`."""
    return bool(partial.tool_calls) and partial.additional_kwargs[MARK].get("reason") in CUT_CAUSES


def _note(partial: Any, quoted: bool = False) -> str:
    mark = partial.additional_kwargs[MARK]
    because = CAUSES_OF_ANSWER.get(mark.get("reason"), "why is not recorded")
    text = f"The previous answer was cut off: {because}. It is incomplete because of that, and not by choice."
    names = [call.get("name") for call in mark.get("calls") or () if isinstance(call, Mapping)]
    if names:
        named = ", ".join(str(name) for name in names if name) or "without a name yet"
        text += f" It had begun to ask for tools ({named}); these calls were not executed."
    if quoted:
        tail = _words(partial.content).strip()
        text += f" It ended with: {tail[-_QUOTED:]!r}. Continue from there, without saying it again."
    return f"<note>{text}</note>"


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    spoken = (block if isinstance(block, str) else block.get("text") for block in content)
    return "".join(text for text in spoken if isinstance(text, str))


def _with_note(message: Any, note: str) -> Any:
    """A copy of the user's message that begins with the note."""
    content = message.content
    if isinstance(content, str):
        content = f"{note}\n\n{content}" if content else note
    else:
        # Some providers want the results of tools before any text.
        first = next((at for at, block in enumerate(content) if _kind(block) != "tool_result"), len(content))
        content = [*content[:first], {"type": "text", "text": note}, *content[first:]]
    kwargs = {**message.additional_kwargs, MARK: {"v": 1, "origin": NOTE}}
    return message.model_copy(update={"content": content, "additional_kwargs": kwargs})


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, Mapping) else "text"


def _stand_alone(out: list[Any], place: int) -> str | None:
    """Put a message of its own behind the answer at `place` and its results; gives the answer's id."""
    from langchain_core.messages import HumanMessage

    partial, behind = out[place], place + 1
    while behind < len(out) and is_tool(out[behind]):
        behind += 1
    note = _note(partial, quoted=True)
    id = stable_id("rjn-", f"{partial.id}|note" if partial.id else note)
    out.insert(behind, HumanMessage(note, id=id, additional_kwargs={MARK: {"v": 1, "origin": NOTE}}))
    given: str | None = partial.id
    return given
