"""Pure: notes for a model about answers that were cut off.

Rule: a note is short and true, has always the same words at the same place, and never speaks as the model. Without a note, a
model takes the half answer for its own choice. Notes are for one request and are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..messages.causes import CAUSES_OF_ANSWER
from ..messages.cut_answers import decided_in
from ..messages.marks import MARK, new_mark, origin_of
from ..messages.tool_pairs import end_of_results, is_ai, is_human
from ..messages.tool_results import stable_id

NOTE: Final = "note"
"""The origin of a message that contains a note, so that a second projection does not add another."""
_QUOTED: Final = 200
"""How many characters of an answer a note quotes, where nothing else says which answer it means."""


@dataclass(frozen=True, slots=True)
class Noted:
    """The messages with their notes, and the ids of the answers that the notes are about."""

    messages: list[Any]
    ids: list[str | None]


def add_notes(messages: list[Any]) -> Noted:
    """Put a note before the next words of the user, for every answer that was cut off.

    The note stands right behind the answer if the model speaks again before the user does, or if no later message comes from
    either. Return the same list if there is nothing to note.
    """
    out: list[Any] = []
    noted: list[str | None] = []
    cut_at: int | None = None
    for message in messages:
        if cut_at is not None:
            if is_human(message):
                if origin_of(message) != NOTE:
                    noted.append(out[cut_at].id)
                    message = _with_note(message, _note(out[cut_at]))
                cut_at = None
            elif is_ai(message):
                noted.append(_stand_alone(out, cut_at))
                cut_at = None
        if is_ai(message) and origin_of(message) == "partial" and not _results_say_so(message):
            cut_at = len(out)
        out.append(message)
    if cut_at is not None:
        noted.append(_stand_alone(out, cut_at))
    return Noted(out, noted) if noted else Noted(messages, [])


def _results_say_so(partial: Any) -> bool:
    """Return whether the results of its calls say that the answer was cut off: see `messages/cut_answers.py`."""
    return bool(partial.tool_calls) and decided_in(partial.additional_kwargs) is not None


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
    """Return a copy of the user's message that begins with the note."""
    content = message.content
    if isinstance(content, str):
        content = f"{note}\n\n{content}" if content else note
    else:
        # Some providers require the results of tools before any text.
        first = next((at for at, block in enumerate(content) if _kind(block) != "tool_result"), len(content))
        content = [*content[:first], {"type": "text", "text": note}, *content[first:]]
    kwargs = {**message.additional_kwargs, MARK: new_mark(NOTE)}
    return message.model_copy(update={"content": content, "additional_kwargs": kwargs})


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, Mapping) else "text"


def _stand_alone(out: list[Any], place: int) -> str | None:
    """Insert a separate message behind the answer at `place` and its results. Return the id of the answer."""
    from langchain_core.messages import HumanMessage

    partial = out[place]
    note = _note(partial, quoted=True)
    id = stable_id("rjn-", f"{partial.id}|note" if partial.id else note)
    out.insert(end_of_results(out, place), HumanMessage(note, id=id, additional_kwargs={MARK: new_mark(NOTE)}))
    given: str | None = partial.id
    return given
