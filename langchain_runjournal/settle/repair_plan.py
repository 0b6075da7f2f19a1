"""Pure: the plan that repairs a thread: which requests have no result, and where their results go.

Rule: providers accept a request only if its results follow directly. So a missing result is put there and nowhere else, and
every other message stays the same object in its place. A result behind a later message of the user is moved to its request.
A result behind the messages of another agent stays, because parallel branches write their threads in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..guard.projection import is_whole
from ..messages.call_ids import with_ids
from ..messages.marks import origin_of
from ..messages.message_data import Data
from ..messages.tool_pairs import is_tool, walk
from ..messages.tool_requests import Request
from ..messages.tool_results import CallKnowledge, answer

_ALL: Final = "__remove_all__"
_NO_ID: Final = frozenset({"", "None"})
"""The values as which LangChain may load the id of a result that has none."""
Ask = Callable[[Any, Request], CallKnowledge]


@dataclass(frozen=True, slots=True)
class Given:
    """The part of a new input that concerns open requests: the requests that the input answers itself get no synthetic
    result."""

    results: frozenset[str] = frozenset()
    """The ids of the tool calls for which the input has results."""
    replaced: frozenset[str] = frozenset()
    """The ids of the messages that the input replaces or removes."""
    says_more: bool = False
    """Whether the input holds more than results. Then the program will not send further results of the same batch."""
    is_whole_thread: bool = False
    """Whether the input removes all messages of the thread first."""


def given_in(messages: Iterable[Data]) -> Given:
    """Return what an input says of open requests, by its messages as LangChain's dicts."""
    found = [(one["type"], one["data"]) for one in messages]
    return Given(
        results=frozenset(str(data.get("tool_call_id")) for kind, data in found if kind == "tool"),
        replaced=frozenset(str(data["id"]) for kind, data in found if data.get("id") and kind in ("ai", "remove")),
        says_more=any(kind not in ("tool", "remove") for kind, _ in found),
        is_whole_thread=any(kind == "remove" and data.get("id") == _ALL for kind, data in found),
    )


@dataclass(slots=True)
class RepairPlan:
    """A repaired thread: the places of its old messages, and new messages between them."""

    order: list[Any] = field(default_factory=list)
    """The repaired thread. An int is the place that the message had; anything else is a new message."""
    added: list[Any] = field(default_factory=list)
    moved: int = 0
    named: int = 0
    """The number of messages whose calls or results had no ids and got some."""
    at_end: bool = True
    """Whether the plan only adds messages at the end."""


def is_broken(thread: Sequence[Any], given: Given | None = None) -> bool:
    """Return whether a provider would refuse the thread because a request has no results."""
    return not is_whole(thread) and bool(_open_places(thread, with_ids(thread), given or Given()))


def open_in(thread: Sequence[Any], given: Given | None = None) -> list[tuple[Any, Request]]:
    """Return the requests without a result, each with its message."""
    found = _open_places(thread, with_ids(thread), given or Given())
    return [(thread[place], request) for place, (missing, _) in found.items() for request in missing]


def plan_repair(thread: Sequence[Any], ask: Ask, given: Given | None = None) -> RepairPlan:
    """Return the thread with a result directly behind every request, and with an id for every request."""
    old, thread = thread, with_ids(thread)
    broken = _open_places(old, thread, given or Given())
    moves = {place for _, displaced in broken.values() for place in displaced}
    behind: dict[int, list[Any]] = {}
    done = RepairPlan(moved=len(moves))
    for place, (missing, displaced) in broken.items():
        last = place
        while last + 1 < len(thread) and is_tool(thread[last + 1]) and last + 1 not in moves:
            last += 1
        answers = [answer(thread[place], one, ask(thread[place], one)) for one in missing]
        behind.setdefault(last, []).extend([*displaced, *answers])
        done.added += answers
    stale = _stale(thread, moves)
    for place in range(len(thread)):
        if place not in moves and place not in stale:
            is_named = thread[place] is not old[place]
            done.order.append(thread[place] if is_named else place)
            done.named += is_named
        done.order += behind.get(place, [])
    done.at_end = not moves and done.order[: len(thread)] == list(range(len(thread)))
    return done


def _stale(thread: Sequence[Any], moves: set[int]) -> set[int]:
    """Return the places of synthetic results whose real results move there: a provider accepts one result for a request."""
    moved = {thread[place].tool_call_id for place in moves}
    copies = walk(thread).duplicates if moved else ()
    return {at for at in copies if origin_of(thread[at]) == "synthetic" and thread[at].tool_call_id in moved}


def _open_places(old: Sequence[Any], thread: Sequence[Any], given: Given) -> dict[int, tuple[list[Request], list[int]]]:
    """Return, by the place of their message, the requests without a result and the places of results that came too late.

    A message whose calls had no ids is always in it. `old` is the thread without the generated ids.
    """
    found: dict[int, tuple[list[Request], list[int]]] = {}
    if given.is_whole_thread:
        return found
    answered = given.results | _in_blocks(thread)
    for place, slots in walk(thread).slots.items():
        is_named = thread[place] is not old[place]
        if (thread[place].id and thread[place].id in given.replaced) or (is_named and given.results & _NO_ID):
            continue
        is_answered = any(slot.request.id in given.results for slot in slots if slot.result is None)
        missing = [
            slot.request
            for slot in slots
            # A request without a name reaches no provider, so its result would stand alone.
            if slot.result is None and slot.request.id and slot.request.name and slot.request.id not in answered
        ]
        if is_answered and not given.says_more:
            missing = []  # a program that sends the results of a batch one by one sends the others next
        displaced = [
            slot.result
            for slot in slots
            if slot.result is not None and any(one.type == "human" for one in thread[place + 1 : slot.result])
        ]
        if missing or displaced or is_named:
            found[place] = (missing, displaced)
    return found


def _in_blocks(thread: Sequence[Any]) -> frozenset[str]:
    """Return the calls whose results are blocks of a user's message, as in Anthropic's API."""
    blocks = [block for one in thread if one.type == "human" and isinstance(one.content, list) for block in one.content]
    results = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
    return frozenset(str(block.get("tool_use_id")) for block in results)


def rewritten(found: Sequence[Any], done: RepairPlan, write: Callable[[Sequence[Any]], Sequence[Any]]) -> list[Any]:
    """Return the repaired list: the old elements themselves, and new messages in the form that `write` gives them."""
    return [found[one] if isinstance(one, int) else write([one])[0] for one in done.order]
