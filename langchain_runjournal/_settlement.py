"""Pure: what a thread lacks of a run that has come to an abnormal end.

Rule: a checkpoint holds a run up to one of its steps, and the journal's transcript goes on from there. So what the thread
lacks is the end of the transcript, behind the last message that it has; what is missing before that was taken out by the
graph itself and is not put back. Messages are only ever added at the end; every request among the last ones gets its answer
first. Nothing that stands there is touched, but for a made-up result whose real one has come in.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ._pairs import Known, Request, answer, is_ai, open_requests, requests, walk
from ._partial import MARK, origin_of

_NAMES: Final = uuid.UUID("6d2e2c7a-62a4-5f0e-9d0c-0d5a3a2f4f51")
Ask = Callable[[Any, Request], Known]
"""What is known of a call, asked with the message that asks for it."""


@dataclass(slots=True)
class Plan:
    """What to add to a thread, in order."""

    add: list[Any] = field(default_factory=list)
    moved_on: bool = False
    """Nothing may be added: somebody else's turn stands behind this run."""


def plan(
    thread: Sequence[Any],
    transcript: Sequence[Any],
    ask: Ask,
    *,
    run_id: str,
    applied: bool,
    by_id: bool = True,
    since: int = 0,
) -> Plan:
    """What to add to `thread` so that it holds what the run's `transcript` does, with every request answered.

    `applied`: the thread is known to hold what the run was given. `by_id`: a message with the id of another one replaces it.
    `since`: how many of the messages of the thread stood there before the run, as far as that is known.
    """
    last, end = _reach(thread, transcript, run_id, applied=applied, since=since)
    theirs = {message.id for message in transcript}
    if end and _is_turn([one for one in thread[end:] if one.id not in theirs and origin_of(one) is None]):
        return Plan(moved_on=True)
    found = Plan()
    # Those before the last human message are not the run's, and an answer at the end would come too late for them.
    recent = thread[_newest(thread, "human") + 1 :]
    for at, request in open_requests(recent):
        if _is_answerable(request):
            found.add.append(answer(recent[at], request, ask(recent[at], request)))
    if by_id:
        found.add += come_in(thread, ask, run_id)
    ids = {one.id for one in thread}
    for place, message in enumerate(transcript):
        # A part of an answer has been in no checkpoint: nobody has taken it out. Another branch may have come further.
        is_cut = origin_of(message) == "partial" and message.id not in ids
        if (place > last or is_cut) and message.type not in ("tool", "remove"):
            ours = _named(message, run_id, place)
            found.add.append(ours)
            found.add += [answer(ours, one, ask(ours, one)) for one in requests(ours) if _is_answerable(one)]
    return found


def _reach(thread: Sequence[Any], transcript: Sequence[Any], run_id: str, *, applied: bool, since: int) -> tuple[int, int]:
    """How far the thread has come in the transcript: the place there of the last message that it has (-1: none), and where
    in the thread the run's part ends (0: unknown)."""
    places = {one.id: at for at, one in enumerate(thread) if one.id}
    named = {message.id for message in transcript}
    last, end = -1, 0
    for place, message in enumerate(transcript):
        if message.type == "tool":
            continue  # it goes with its request
        at = places.get(message.id) if message.id else None
        if at is None:
            at = places.get(_name(run_id, place))
        if at is None and origin_of(message) is None:
            # Under another id: the graph has given it one, or a node has made it anew.
            after = _newest(thread, "ai") if message.type == "human" else max(end - 1, _newest(thread, "human"))
            first = max(after + 1, since)  # a user may say the same again
            at = next((at for at in range(first, len(thread)) if _is_alike(thread[at], message, named)), None)
        if at is not None:
            last, end = place, max(end, at + 1)
        elif applied and message.type == "human":
            last = place
    return last, end


def _is_turn(behind: Sequence[Any]) -> bool:
    """Whether there is a question with its answer in it. A node may make up messages of its own, but hardly both."""
    kinds = [_kind(one) for one in behind]
    return "human" in kinds and "ai" in kinds[kinds.index("human") :]


def _is_alike(one: Any, message: Any, named: set[str | None]) -> bool:
    if _kind(one) != _kind(message) or (one.id and one.id in named) or origin_of(one) is not None:
        return False
    return bool(one.content == message.content) and [call.id for call in requests(one)] == [
        call.id for call in requests(message)
    ]


def _newest(thread: Sequence[Any], kind: str) -> int:
    return max((at for at, one in enumerate(thread) if _kind(one) == kind), default=-1)


def _kind(message: Any) -> str:
    # A node may put a chunk of an answer into the state, as it is.
    return "ai" if is_ai(message) else str(message.type)


def _is_answerable(request: Request) -> bool:
    # What has no id or no name reaches no provider as a request; its answer would stand alone.
    return bool(request.id) and bool(request.name)


def come_in(thread: Sequence[Any], ask: Ask, run_id: str) -> list[Any]:
    """The real results that have come in since the thread was given made-up ones. They may stand anywhere: each takes the
    place of the one that was made up."""
    found: list[Any] = []
    if not any(_is_made_up(message, run_id) for message in thread):
        return found
    for place, slots in walk(thread).slots.items():
        for slot in slots:
            stands = None if slot.result is None else thread[slot.result]
            if stands is not None and _is_made_up(stands, run_id):
                known = ask(thread[place], slot.request)
                if known.result is not None:
                    found.append(answer(thread[place], slot.request, known, stands))
    return found


def _is_made_up(message: Any, run_id: str) -> bool:
    return message.type == "tool" and origin_of(message) == "synthetic" and _mark(message).get("run_id") == run_id


def _mark(message: Any) -> Any:
    mark = message.additional_kwargs.get(MARK)
    return mark if isinstance(mark, dict) else {}


def _name(run_id: str, place: int) -> str:
    return f"rjs-{uuid.uuid5(_NAMES, f'{run_id}|{place}')}"


def _named(message: Any, run_id: str, place: int) -> Any:
    """A copy that says where it comes from, with an id that is the same each time."""
    more: dict[str, Any] = {}
    if not message.id:
        more["id"] = _name(run_id, place)
    if origin_of(message) is None:
        mark = {"v": 1, "origin": "recovered", "run_id": run_id}
        more["additional_kwargs"] = {**message.additional_kwargs, MARK: mark}
    return message.model_copy(update=more) if more else message
