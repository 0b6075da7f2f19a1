"""Pure: the messages of a run that a thread lacks after an abnormal end.

Rule: LangGraph applies the writes of a superstep as a whole, and those of a task as a whole. Messages of a superstep that
was applied are the graph's business: if the thread lacks one, the graph has taken it out, and it is not put back. Messages
of a task that was never applied are missing, wherever the last message of the thread stands, because tasks run in parallel.
Where no task is known (events of older releases, runs that only a handler recorded), the end of the transcript is missing,
behind the last message that the thread has.

Messages are added at the end of the thread, in the order in which they were said, each request followed by its results. Open
requests of the thread get their results first. One kind of message is inserted before others: an answer that was cut off and
that its task replaced by a message of its own is put before that message. No existing message is changed, except a synthetic
result whose real result is known by now.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from ..messages.call_ids import with_ids
from ..messages.cut_answers import decided_in, marked_as_cut
from ..messages.marks import MARK, origin_of
from ..messages.message_data import Data
from ..messages.tool_pairs import is_ai, open_requests, requests, walk
from ..messages.tool_requests import Request
from ..messages.tool_results import CallKnowledge, answer
from ..messages.transcript import Task

_NAMES: Final = uuid.UUID("6d2e2c7a-62a4-5f0e-9d0c-0d5a3a2f4f51")
NOTHING_APPLIED: Final = -2
"""The step of LangGraph's empty checkpoint. A run that has stored no superstep has applied nothing."""
Ask = Callable[[Any, Request], CallKnowledge]
"""A function that returns what is known of a tool call, by the message and its request."""


@dataclass(slots=True)
class Plan:
    """The messages to add to a thread, in order."""

    add: list[Any] = field(default_factory=list)
    """The messages to add at the end of the thread."""
    insert: dict[int, list[Any]] = field(default_factory=dict)
    """The messages to insert before an existing one, by the place of that one in the thread."""
    moved_on: bool = False
    """Whether nothing may be added, because a question and its answer from another run stand behind this run."""

    def at_end(self) -> Plan:
        """Return the same plan with all messages at the end, for a list that cannot be rewritten."""
        return Plan([*self._inserted(), *self.add], {}, self.moved_on)

    def of_completed(self) -> Plan:
        """Return what of this plan a completed run lacks: answers that were cut off and that its tasks replaced by messages
        of their own. Everything else is as its graph wants it."""
        add = [one for one in self.add if origin_of(one) == "partial" and not decided_in(one.additional_kwargs)]
        return Plan(add, self.insert, self.moved_on)

    def report(self) -> dict[str, dict[str, Any]]:
        """Return what an event says of the messages that are written next, by id. Messages to insert are written first, in a
        superstep of their own."""
        found: dict[str, dict[str, Any]] = {}
        for one in self._inserted() or self.add:
            found[str(one.id)] = {"id": one.id, "type": one.type, "origin": _mark(one).get("origin")}
            found[str(one.id)] |= {"inserted": True} if self.insert else {}
        return found

    def _inserted(self) -> list[Any]:
        return [one for ours in self.insert.values() for one in ours]


def plan(
    thread: Sequence[Any],
    transcript: Sequence[Any],
    ask: Ask,
    *,
    run_id: str,
    applied: bool,
    by_id: bool = True,
    since: int = 0,
    tasks: Mapping[int, Task] = MappingProxyType({}),
    cuts: Mapping[int, Data] = MappingProxyType({}),
    step: int | None = None,
) -> Plan:
    """Return what to add to `thread` so that it holds the messages of the run's `transcript`, with a result for every
    request.

    `applied`: the thread is known to hold the input of the run. `by_id`: a message with the id of another one replaces it.
    `since`: how many messages the thread held before the run, as far as that is known. `tasks`: by place in the transcript,
    the task in which a message was said. `cuts`: by the same place, what its event says of an answer that was cut off inside
    of its tool calls. `step`: the last superstep of the run that was applied; None if that is not known.
    """
    place_of = _places_in_thread(thread, transcript, run_id, since)
    end = max(place_of.values(), default=-1) + 1
    theirs = {message.id for message in transcript}
    if end and _has_exchange([one for one in thread[end:] if one.id not in theirs and origin_of(one) is None]):
        return Plan(moved_on=True)
    found = Plan()
    # Open requests before the last human message are not the run's, and a result at the end would come too late for them.
    recent = thread[_newest(thread, "human") + 1 :]
    for at, request in open_requests(recent):
        if _is_answerable(request):
            found.add.append(answer(recent[at], request, ask(recent[at], request)))
    if by_id:
        found.add += late_results(thread, ask, run_id)
    last = _last(transcript, place_of, tasks, applied=applied)
    unapplied = _unapplied_tasks(thread, transcript, place_of, tasks, step)
    for place, message in enumerate(transcript):
        if place in place_of or message.type in ("tool", "remove"):
            continue
        task = tasks.get(place) if step is not None else None
        is_missing = place > last if task is None else task in unapplied
        # A partial answer was in no checkpoint, so the graph cannot have taken it out.
        if is_missing or origin_of(message) == "partial":
            (ours,) = with_ids([_named(message, run_id, place, cuts.get(place))])
            if (behind := _replacement_of(thread, transcript, place_of, tasks, place)) is not None:
                found.insert.setdefault(behind, []).append(ours)
                continue
            found.add.append(ours)
            found.add += [answer(ours, one, ask(ours, one)) for one in requests(ours) if _is_answerable(one)]
    return found


def holds(
    thread: Sequence[Any],
    transcript: Sequence[Any],
    *,
    run_id: str,
    applied: bool,
    tasks: Mapping[int, Task] = MappingProxyType({}),
) -> bool:
    """Return whether the thread holds all messages of a run, in whatever places: each message by its id, and a result for
    each request. False for a run that has said nothing. `applied`, `tasks`: see `plan`."""
    # A message of another run with the same words would look the same under another id, so only ids count here.
    place_of = _places_in_thread(thread, transcript, run_id, len(thread))
    said = [place for place, one in enumerate(transcript) if one.type not in ("tool", "remove")]
    given = {place for place in said if applied and transcript[place].type == "human" and place not in tasks}
    if not place_of or any(place not in place_of and place not in given for place in said):
        return False
    parts = [(thread[at], transcript[place]) for place, at in place_of.items() if origin_of(transcript[place]) == "partial"]
    is_open = {*place_of.values()} & {at for at, _ in open_requests(thread)}
    return not is_open and all(there.content == one.content for there, one in parts)


def _replacement_of(
    thread: Sequence[Any], transcript: Sequence[Any], place_of: Mapping[int, int], tasks: Mapping[int, Task], place: int
) -> int | None:
    """Return the place in the thread of the message by which a task replaced a partial answer, if the thread holds that
    message."""
    task = tasks.get(place)
    if task is None or origin_of(transcript[place]) != "partial":
        return None
    later = range(place + 1, len(transcript))
    return next((place_of[at] for at in later if at in place_of and tasks.get(at) == task and is_ai(transcript[at])), None)


def _places_in_thread(thread: Sequence[Any], transcript: Sequence[Any], run_id: str, since: int) -> dict[int, int]:
    """Return the place in the thread of each message of the transcript that the thread has: `{place in transcript: place in
    thread}`."""
    places = {one.id: at for at, one in enumerate(thread) if one.id}
    named = {message.id for message in transcript}
    place_of: dict[int, int] = {}
    for place, message in enumerate(transcript):
        if message.type == "tool":
            continue  # a result is handled with its request
        at = places.get(message.id) if message.id else None
        if at is None:
            at = places.get(_name(run_id, place))
        if at is None and origin_of(message) is None:
            # The message may have another id: the graph assigned one, or a node created the message again. A user may repeat
            # the same words, so only newer places count.
            first = max(_newest(thread, "ai" if message.type == "human" else "human") + 1, since)
            taken = set(place_of.values())
            free = (at for at in range(first, len(thread)) if at not in taken)
            at = next((at for at in free if _is_alike(thread[at], message, named)), None)
        if at is not None:
            place_of[place] = at
    return place_of


def _last(transcript: Sequence[Any], place_of: Mapping[int, int], tasks: Mapping[int, Task], *, applied: bool) -> int:
    """Return the place of the last message of the transcript that the thread has, or has had; -1 if there is none."""
    given = [place for place, one in enumerate(transcript) if applied and one.type == "human" and place not in tasks]
    return max([*place_of, *given], default=-1)


def _unapplied_tasks(
    thread: Sequence[Any],
    transcript: Sequence[Any],
    place_of: Mapping[int, int],
    tasks: Mapping[int, Task],
    step: int | None,
) -> set[Task]:
    """Return the tasks of which the graph has put no message into the thread, because their superstep was not applied.

    A settlement applies the writes of the finished tasks of that superstep. Then all messages of those tasks are in the
    thread. One message that the graph has put there under its own id proves it.
    """
    graphs = {at for at, one in enumerate(thread) if origin_of(one) is None}
    ids = {place for place, at in place_of.items() if at in graphs and thread[at].id == transcript[place].id}
    there = {tasks[place] for place in ids if place in tasks}
    return {task for task in tasks.values() if step is not None and task.step > step} - there


def _has_exchange(behind: Sequence[Any]) -> bool:
    """Return whether the messages contain a question of a user and an answer to it. A node may create messages of its own,
    but hardly both."""
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
    # A node may put a chunk of an answer into the state without converting it.
    return "ai" if is_ai(message) else str(message.type)


def _is_answerable(request: Request) -> bool:
    # A request without an id that place_of in the thread gets one before the next message (`repair_plan`). What has no name
    # reaches no provider as a request; its answer would stand alone.
    return bool(request.id) and bool(request.name)


def late_results(thread: Sequence[Any], ask: Ask, run_id: str) -> list[Any]:
    """Return the real results that have arrived since the thread got synthetic ones. They may stand anywhere: each result
    replaces its synthetic one."""
    found: list[Any] = []
    if not any(_is_synthetic(message, run_id) for message in thread):
        return found
    for place, slots in walk(thread).slots.items():
        for slot in slots:
            synthetic = None if slot.result is None else thread[slot.result]
            if synthetic is not None and _is_synthetic(synthetic, run_id):
                known = ask(thread[place], slot.request)
                if known.result is not None:
                    found.append(answer(thread[place], slot.request, known, synthetic))
    return found


def _is_synthetic(message: Any, run_id: str) -> bool:
    return message.type == "tool" and origin_of(message) == "synthetic" and _mark(message).get("run_id") == run_id


def _mark(message: Any) -> Any:
    mark = message.additional_kwargs.get(MARK)
    return mark if isinstance(mark, dict) else {}


def _name(run_id: str, place: int) -> str:
    return f"rjs-{uuid.uuid5(_NAMES, f'{run_id}|{place}')}"


def _named(message: Any, run_id: str, place: int, cut: Data | None) -> Any:
    """Return a copy that says where the message comes from and whether it was cut off, with an id that is the same each
    time."""
    more: dict[str, Any] = {}
    if not message.id:
        more["id"] = _name(run_id, place)
    if origin_of(message) is None:
        kwargs = marked_as_cut(vars(message), cut, run_id)["additional_kwargs"]
        more["additional_kwargs"] = {MARK: {"v": 1, "origin": "recovered", "run_id": run_id}, **kwargs}
    return message.model_copy(update=more) if more else message
