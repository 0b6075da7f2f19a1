"""Pure: what a thread lacks of a run that has come to an abnormal end.

Rule: LangGraph applies the writes of a superstep as a whole, and of a task as a whole. What was said in a superstep that was
applied is the graph's business: what the thread lacks of it was taken out by the graph, and is not put back. What was said
in a task that was never applied is missing, wherever the last message of the thread stands: tasks run side by side. Where no
task is known (events of older releases, runs that only a handler recorded), what lacks is the end of the transcript, behind
the last message that the thread has.

Messages are added at the end, in the order in which they were said, each request followed by its results; open requests of
the thread get their answers first. One kind stands before others: an answer that was cut off, and in whose place its task
gave a message of its own, is put before that message. Nothing that stands there is touched, but for a synthetic result whose
real one is known by now.
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
"""The step of LangGraph's empty checkpoint: a run that has stored no superstep has applied nothing."""
Ask = Callable[[Any, Request], CallKnowledge]
"""What is known of a call, asked with the message that asks for it."""


@dataclass(slots=True)
class Plan:
    """What to add to a thread, in order."""

    add: list[Any] = field(default_factory=list)
    """At its end."""
    insert: dict[int, list[Any]] = field(default_factory=dict)
    """By place in the thread, what belongs before the message that stands there."""
    moved_on: bool = False
    """Nothing may be added: somebody else's turn stands behind this run."""

    def at_end(self) -> Plan:
        """The same, with nothing before what stands there: not every list can be written anew."""
        return Plan([*self._inserted(), *self.add], {}, self.moved_on)

    def of_completed(self) -> Plan:
        """What of it a run lacks that has completed: answers that were cut off, in whose place its tasks gave messages of
        their own. All else is as its graph wants it."""
        add = [one for one in self.add if origin_of(one) == "partial" and not decided_in(one.additional_kwargs)]
        return Plan(add, self.insert, self.moved_on)

    def told(self) -> dict[str, dict[str, Any]]:
        """What an event says of the messages that are written next, by id: what is inserted goes first, alone."""
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
    """What to add to `thread` so that it holds what the run's `transcript` does, with every request answered.

    `applied`: the thread is known to hold what the run was given. `by_id`: a message with the id of another one replaces it.
    `since`: how many of the messages of the thread stood there before the run, as far as that is known. `tasks`: by place in
    the transcript, the task in which a message was said. `cuts`: by the same place, what its event says of an answer that
    was cut off inside of its tool calls. `step`: the last superstep of the run that was applied, None where that is not
    known.
    """
    stands = _standing(thread, transcript, run_id, since)
    end = max(stands.values(), default=-1) + 1
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
        found.add += late_results(thread, ask, run_id)
    last = _last(transcript, stands, tasks, applied=applied)
    left = _tasks_left(thread, transcript, stands, tasks, step)
    for place, message in enumerate(transcript):
        if place in stands or message.type in ("tool", "remove"):
            continue
        task = tasks.get(place) if step is not None else None
        is_missing = place > last if task is None else task in left
        # A part of an answer has been in no checkpoint: the graph cannot have taken it out.
        if is_missing or origin_of(message) == "partial":
            (ours,) = with_ids([_named(message, run_id, place, cuts.get(place))])
            if (behind := _instead(thread, transcript, stands, tasks, place)) is not None:
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
    """Whether the thread holds all that a run has said, wherever it stands: each message by its id, each request with a
    result. False for a run that has said nothing. `applied`, `tasks`: see `plan`."""
    # Under another id, what somebody else has said looks the same.
    stands = _standing(thread, transcript, run_id, len(thread))
    said = [place for place, one in enumerate(transcript) if one.type not in ("tool", "remove")]
    given = {place for place in said if applied and transcript[place].type == "human" and place not in tasks}
    if not stands or any(place not in stands and place not in given for place in said):
        return False
    parts = [(thread[at], transcript[place]) for place, at in stands.items() if origin_of(transcript[place]) == "partial"]
    is_open = {*stands.values()} & {at for at, _ in open_requests(thread)}
    return not is_open and all(there.content == one.content for there, one in parts)


def _instead(
    thread: Sequence[Any], transcript: Sequence[Any], stands: Mapping[int, int], tasks: Mapping[int, Task], place: int
) -> int | None:
    """The place in the thread of the message that a task gave in the place of a partial answer, if it stands there."""
    task = tasks.get(place)
    if task is None or origin_of(transcript[place]) != "partial":
        return None
    later = range(place + 1, len(transcript))
    return next((stands[at] for at in later if at in stands and tasks.get(at) == task and is_ai(transcript[at])), None)


def _standing(thread: Sequence[Any], transcript: Sequence[Any], run_id: str, since: int) -> dict[int, int]:
    """Which messages of the transcript the thread has: by their place there, the place in the thread."""
    places = {one.id: at for at, one in enumerate(thread) if one.id}
    named = {message.id for message in transcript}
    stands: dict[int, int] = {}
    for place, message in enumerate(transcript):
        if message.type == "tool":
            continue  # it goes with its request
        at = places.get(message.id) if message.id else None
        if at is None:
            at = places.get(_name(run_id, place))
        if at is None and origin_of(message) is None:
            # Under another id: the graph has given it one, or a node has made it anew. A user may say the same again.
            first = max(_newest(thread, "ai" if message.type == "human" else "human") + 1, since)
            taken = set(stands.values())
            free = (at for at in range(first, len(thread)) if at not in taken)
            at = next((at for at in free if _is_alike(thread[at], message, named)), None)
        if at is not None:
            stands[place] = at
    return stands


def _last(transcript: Sequence[Any], stands: Mapping[int, int], tasks: Mapping[int, Task], *, applied: bool) -> int:
    """The place of the last message of the transcript that the thread has, or has had; -1: none."""
    given = [place for place, one in enumerate(transcript) if applied and one.type == "human" and place not in tasks]
    return max([*stands, *given], default=-1)


def _tasks_left(
    thread: Sequence[Any],
    transcript: Sequence[Any],
    stands: Mapping[int, int],
    tasks: Mapping[int, Task],
    step: int | None,
) -> set[Task]:
    """The tasks of which the graph has put nothing into the thread: their superstep was not applied.

    A settlement applies what the finished ones of that superstep have given. Then all of it is there: one message that the
    graph has put there under its own id is enough to know.
    """
    graphs = {at for at, one in enumerate(thread) if origin_of(one) is None}
    ids = {place for place, at in stands.items() if at in graphs and thread[at].id == transcript[place].id}
    there = {tasks[place] for place in ids if place in tasks}
    return {task for task in tasks.values() if step is not None and task.step > step} - there


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
    # A request without an id that stands in the thread gets one before the next message (`repair_plan`). What has no name
    # reaches no provider as a request; its answer would stand alone.
    return bool(request.id) and bool(request.name)


def late_results(thread: Sequence[Any], ask: Ask, run_id: str) -> list[Any]:
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


def _named(message: Any, run_id: str, place: int, cut: Data | None) -> Any:
    """A copy that says where it comes from, and whether it was cut off, with an id that is the same each time."""
    more: dict[str, Any] = {}
    if not message.id:
        more["id"] = _name(run_id, place)
    if origin_of(message) is None:
        kwargs = marked_as_cut(vars(message), cut, run_id)["additional_kwargs"]
        more["additional_kwargs"] = {MARK: {"v": 1, "origin": "recovered", "run_id": run_id}, **kwargs}
    return message.model_copy(update=more) if more else message
