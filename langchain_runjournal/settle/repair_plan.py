"""Pure: a thread that was broken before we saw it: which requests have no result, and where their answers go.

Rule: providers take a request only with its results right behind it. So a missing result is put there and nowhere else, and
every other message stays the object that it was, in its place. A result behind a later message of the user is moved to its
request; one behind another agent's messages is left, because branches side by side write their threads so.
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
"""What the id of a result is read as that has none."""
Ask = Callable[[Any, Request], CallKnowledge]


@dataclass(frozen=True, slots=True)
class Given:
    """What the new input says of requests that are open: nothing about those is to be answered for it."""

    results: frozenset[str] = frozenset()
    """The tool calls that it has results for."""
    replaced: frozenset[str] = frozenset()
    """The ids of messages that it replaces or removes."""
    says_more: bool = False
    """Whether it holds more than results: then no further results of a batch will follow on their own."""
    is_whole_thread: bool = False
    """Whether it begins the thread anew."""


def given_in(messages: Iterable[Data]) -> Given:
    """What an input says, by its messages as LangChain's dicts."""
    found = [(one["type"], one["data"]) for one in messages]
    return Given(
        results=frozenset(str(data.get("tool_call_id")) for kind, data in found if kind == "tool"),
        replaced=frozenset(str(data["id"]) for kind, data in found if data.get("id") and kind in ("ai", "remove")),
        says_more=any(kind not in ("tool", "remove") for kind, _ in found),
        is_whole_thread=any(kind == "remove" and data.get("id") == _ALL for kind, data in found),
    )


@dataclass(slots=True)
class Mended:
    """A thread with its answers: places of the old one, and new messages between them."""

    order: list[Any] = field(default_factory=list)
    """An int is the place that the message had, anything else is new."""
    added: list[Any] = field(default_factory=list)
    moved: int = 0
    named: int = 0
    """How many messages have got ids for calls, or for results, that had none."""
    at_end: bool = True
    """Whether nothing changes but for what is added at the end."""


def is_broken(thread: Sequence[Any], given: Given | None = None) -> bool:
    """Whether a provider would refuse the thread for a request without its results."""
    return not is_whole(thread) and bool(_wounds(thread, with_ids(thread), given or Given()))


def wanted(thread: Sequence[Any], given: Given | None = None) -> list[tuple[Any, Request]]:
    """The requests without a result, each with its message."""
    found = _wounds(thread, with_ids(thread), given or Given())
    return [(thread[place], request) for place, (missing, _) in found.items() for request in missing]


def mend(thread: Sequence[Any], ask: Ask, given: Given | None = None) -> Mended:
    """The thread with every request answered, right behind it, and every request with an id."""
    old, thread = thread, with_ids(thread)
    wounds = _wounds(old, thread, given or Given())
    moves = {place for _, displaced in wounds.values() for place in displaced}
    behind: dict[int, list[Any]] = {}
    done = Mended(moved=len(moves))
    for place, (missing, displaced) in wounds.items():
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
    """The synthetic results whose real ones are moved to their place: a provider takes one result for a request."""
    moved = {thread[place].tool_call_id for place in moves}
    copies = walk(thread).duplicates if moved else ()
    return {at for at in copies if origin_of(thread[at]) == "synthetic" and thread[at].tool_call_id in moved}


def _wounds(old: Sequence[Any], thread: Sequence[Any], given: Given) -> dict[int, tuple[list[Request], list[int]]]:
    """By the place of their message: the requests without a result, and the places of results that came too late. A message
    that had calls without ids is there in any case. `old` is the thread without the ids that were made."""
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
            # What has no name reaches no provider as a request; its answer would stand alone.
            if slot.result is None and slot.request.id and slot.request.name and slot.request.id not in answered
        ]
        if is_answered and not given.says_more:
            missing = []  # who sends the results of a batch one by one sends the others next
        displaced = [
            slot.result
            for slot in slots
            if slot.result is not None and any(one.type == "human" for one in thread[place + 1 : slot.result])
        ]
        if missing or displaced or is_named:
            found[place] = (missing, displaced)
    return found


def _in_blocks(thread: Sequence[Any]) -> frozenset[str]:
    """The calls whose results are blocks of a user's message, as Anthropic's API has them."""
    blocks = [block for one in thread if one.type == "human" and isinstance(one.content, list) for block in one.content]
    results = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
    return frozenset(str(block.get("tool_use_id")) for block in results)


def rewritten(found: Sequence[Any], done: Mended, write: Callable[[Sequence[Any]], Sequence[Any]]) -> list[Any]:
    """The list as it is to stand there: the old elements themselves, and what `write` makes of new messages."""
    return [found[one] if isinstance(one, int) else write([one])[0] for one in done.order]
