"""Pure: a history as a model may receive it: each request has its results right behind it, and each result a request.

Rule: this is a view for one request. It changes no message that it is given, and returns a history without problems as the
same list. What it adds depends only on the history and on what is known of it, so that the same history gives the same view
each time, also when the view is projected again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ..errors import ToolPairBroken
from ..messages import unended as _unended
from ..messages.call_ids import with_ids
from ..messages.marks import origin_of
from ..messages.tool_pairs import PairedRequest, Pairing, end_of_results, is_ai, is_tool, walk
from ..messages.tool_requests import ASKING, Request, block_id, raw_calls
from ..messages.tool_results import CallKnowledge, answer
from . import bridge as _bridge
from . import cutoff_notes as _notes
from .strip_requests import without

Dangling = Literal["synthesize", "strip", "hold", "raise"]
Orphans = Literal["drop", "keep", "raise"]
DANGLING: Final = ("synthesize", "strip", "hold", "raise")
ORPHANS: Final = ("drop", "keep", "raise")
Ask = Callable[[Any, Request], CallKnowledge]
"""A function that returns what is known of a call, given the message that asks for it."""
_SUSPECT: Final = ASKING | {"non_standard"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One change to a history.

    `kind` is recovered, synthesized, stripped, moved, duplicate, orphan, noted, bridged or cleaned. `id` is that of the tool
    call, of the answer that is noted or cleaned, and of the user's message for a bridge.
    """

    kind: str
    id: str | None
    name: str | None = None


@dataclass(slots=True)
class Projection:
    """The messages to send, and the changes that led to them.

    Without changes, `messages` is the same list that was given.
    """

    messages: list[Any]
    actions: list[Action] = field(default_factory=list)


def is_whole(messages: Sequence[Any]) -> bool:
    """Return whether one quick look finds nothing to change. False only means that a closer look is needed.

    Every model call in a long and healthy thread pays for this, so it builds next to nothing.
    """
    due: set[Any] = set()
    for message in messages:
        kind = message.type
        if kind == "tool":
            if message.tool_call_id not in due or (message.additional_kwargs and origin_of(message) == "synthetic"):
                return False
            due.remove(message.tool_call_id)
        elif due:
            return False
        elif is_ai(message):
            if (
                _unended.is_suspect(message)
                or message.invalid_tool_calls
                or (message.additional_kwargs and origin_of(message) == "partial")
            ):
                return False
            calls = message.tool_calls
            due = {call["id"] for call in calls if call["name"] and call["id"] is not None}
            if len(due) != len(calls) or not _has_no_others(message, due):
                return False
    return not due


def _has_no_others(message: Any, known: set[Any]) -> bool:
    """Return whether a message holds only the calls that are known."""
    for block in message.content if type(message.content) is list else ():
        if type(block) is dict and block.get("type") in _SUSPECT and block_id(block) not in known:
            return False
    if "tool_calls" in message.additional_kwargs:
        return all(block_id(call) in known for call in raw_calls(message.additional_kwargs))
    return True


def wanted(messages: Sequence[Any]) -> list[tuple[Any, Request]]:
    """Return the calls that have no result or a synthetic one, each with its message: those that evidence could help."""
    pairs = walk(messages)
    return [(messages[slot.place], slot.request) for slots in pairs.slots.values() for slot in slots if _is_in_doubt(slot)]


def project(
    messages: list[Any],
    ask: Ask,
    *,
    dangling: Dangling,
    orphans: Orphans,
    notes: bool,
    bridge: _bridge.Behind = _bridge.NOTHING,
) -> Projection:
    """Return the messages to send for a history.

    `notes` adds notes for the model about answers that were cut off. `bridge` names the messages behind which the model
    refuses a message of the user, so that an answer is put between them.
    """
    found = Projection(messages) if is_whole(messages) else _paired(messages, ask, dangling, orphans, notes)
    sent, cleaned = _unended.sendable(found.messages)
    found = Projection(sent, [*found.actions, *(Action(kind="cleaned", id=id) for id in cleaned)])
    places = _bridge.gaps(found.messages, bridge)
    if places:
        actions = [Action(kind="bridged", id=found.messages[place].id) for place in places]
        found = Projection(_bridge.bridged(found.messages, places), [*found.actions, *actions])
    return found


def _paired(messages: list[Any], ask: Ask, dangling: Dangling, orphans: Orphans, notes: bool) -> Projection:
    named = with_ids(messages)
    work = _Work(named, ask, dangling)
    work.refuse(orphans)
    out: list[Any] = []
    for place, message in enumerate(named):
        if place in work.pairs.slots:
            out += work.block(place)
        elif not is_tool(message) or (orphans == "keep" and place in work.pairs.orphans):
            out.append(message)
    work.report_dropped(orphans)
    if notes:
        noted = _notes.add_notes(out)
        work.actions += [Action(kind="noted", id=id) for id in noted.ids]
        out = noted.messages
    changed = len(out) != len(messages) or any(one is not other for one, other in zip(out, messages, strict=True))
    return Projection(out if changed else messages, work.actions)


class _Work:
    """A projection in progress."""

    def __init__(self, messages: list[Any], ask: Ask, dangling: Dangling) -> None:
        self.messages = messages
        self.dangling = dangling
        self.pairs: Pairing = walk(messages)
        self.actions: list[Action] = []
        self.known: dict[int, dict[int, CallKnowledge]] = {}
        for place, slots in self.pairs.slots.items():
            asked = {slot.request.index: ask(messages[place], slot.request) for slot in slots if _is_in_doubt(slot)}
            self.known[place] = asked

    def refuse(self, orphans: Orphans) -> None:
        """Raise one error for everything that the policies do not allow."""
        problems: list[str] = []
        if self.dangling == "raise":
            for place, slots in self.pairs.slots.items():
                broken = [slot.request for slot in slots if self._fate(slot) in ("make", "strip")]
                problems += [f"{_called(one)} of message {self.messages[place].id!r} has no result" for one in broken]
        if orphans == "raise":
            ids = [self.messages[place].tool_call_id for place in sorted(self.pairs.orphans)]
            problems += [f"the result for {id!r} has no call" for id in ids]
        if problems:
            raise ToolPairBroken(problems=problems)

    def _fate(self, slot: PairedRequest) -> Literal["keep", "recover", "make", "strip", "hold"]:
        """Return what becomes of a request. The first rule that matches wins, and knowledge precedes policy."""
        request = slot.request
        known = self.known[slot.place].get(slot.request.index, _NOTHING)
        if request.id is None or request.name is None:
            # No provider accepts a request without a name, and nothing can answer it. A request without an id stands outside
            # of LangChain's own lists, and which call it is a copy of is unknown.
            return "hold" if self.dangling == "hold" else "strip"
        if known.result is not None:
            return "recover"
        if slot.result is not None:
            return "keep"
        if self.dangling == "hold":
            return "hold"
        if self.dangling == "strip" or (not request.valid and known.state in _NOT_BEGUN):
            return "strip"
        return "make"

    def block(self, place: int) -> list[Any]:
        """Return an AI message with its results, as they are sent."""
        message = self.messages[place]
        slots = self.pairs.slots[place]
        fates = {slot.request.index: self._fate(slot) for slot in slots}
        gone = [index for index, fate in fates.items() if fate == "strip"]
        asking = without(message, gone) if gone else message
        results = [result for slot in slots for result in self._results(message, slot, fates[slot.request.index])]
        stands = self.messages[place + 1 : place + 1 + len(results)]
        if {id(one) for one in results} == {id(one) for one in stands}:
            results = stands  # in the order in which they have always been sent, even if the calls have another order
        else:
            self._report_moved(place, slots)
        return [asking, *results] if asking is not None else results

    def _results(self, message: Any, slot: PairedRequest, fate: str) -> list[Any]:
        """Return the message that answers a request, if there is one."""
        request = slot.request
        given = self.messages[slot.result] if slot.result is not None else None
        if fate == "strip":
            self.actions.append(Action(kind="stripped", id=request.id, name=request.name))
        if fate in ("recover", "make"):
            kind = "recovered" if fate == "recover" else "synthesized"
            self.actions.append(Action(kind=kind, id=request.id, name=request.name))
            known = self.known[slot.place].get(request.index, _NOTHING)
            return [answer(message, request, known, given)]
        return [given] if given is not None and fate != "strip" else []

    def _report_moved(self, place: int, slots: list[PairedRequest]) -> None:
        end = end_of_results(self.messages, place)
        for slot in slots:
            if slot.result is not None and slot.result > end:
                self.actions.append(Action(kind="moved", id=slot.request.id, name=slot.request.name))

    def report_dropped(self, orphans: Orphans) -> None:
        """Record the results that are not sent."""
        dropped = [("duplicate", place) for place in self.pairs.duplicates]
        dropped += [("orphan", place) for place in self.pairs.orphans if orphans != "keep"]
        for kind, place in sorted(dropped, key=lambda one: one[1]):
            lost = self.messages[place]
            self.actions.append(Action(kind=kind, id=lost.tool_call_id, name=lost.name))


_NOTHING: Final = CallKnowledge()
_NOT_BEGUN: Final = ("unknown", "never_started", "cut", "beside_cut")


def _is_in_doubt(slot: PairedRequest) -> bool:
    request = slot.request
    return request.id is not None and request.name is not None and (slot.result is None or slot.synthetic)


def _called(request: Request) -> str:
    return f"call {request.id!r} ({request.name})"
