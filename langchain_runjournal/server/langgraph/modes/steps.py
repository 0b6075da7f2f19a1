"""Pure: what a checkpointer holds of a run, as far as the modes need it: steps, their tasks, and what the tasks wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.types import Overwrite

from ....common import strict_json
from ...frames import one_line
from ..plain import values_json

SEPARATOR: Final = "|"
"""What LangGraph puts between the parts of a checkpoint namespace."""
RETURN: Final = "__return__"
INTERRUPT: Final = "__interrupt__"
ERROR: Final = "__error__"
_CUT: Final = (ERROR, INTERRUPT)
_RESUME: Final = "__resume__"
_MARKS: Final = (*_CUT, _RESUME, "__error_source_node__")
_HIDDEN: Final = ("__start__",)


def json_line(value: Any) -> str:
    """Return a value as one line of JSON, for the data of a frame."""
    return one_line(strict_json.dumps(value))


@dataclass(frozen=True)
class Task:
    """A task that a step asks for."""

    id: str
    name: str
    input: Any = None
    triggers: tuple[str, ...] = ()
    has_graph: bool = False
    """Whether the node is a graph, which has checkpoints of its own."""

    @property
    def is_hidden(self) -> bool:
        """Whether LangGraph does not report it."""
        return self.name in _HIDDEN

    def namespace(self, around: str) -> str:
        """Return the checkpoint namespace of the task, in that of the graph around it."""
        return f"{around}{SEPARATOR}{self.name}:{self.id}" if around else f"{self.name}:{self.id}"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What of a graph decides how its steps are shown."""

    outputs: str | tuple[str, ...] | None = None
    """The channels that readers of its streams see; None if that is not known."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One stored checkpoint: the state behind a superstep, and the tasks of the next one."""

    namespace: str
    id: str
    number: int
    source: str
    parent: str | None
    values: Any
    tasks: tuple[Task, ...] = ()
    parents: Mapping[str, Any] = field(default_factory=dict)
    created_at: str = ""
    shape: Shape = field(default_factory=Shape)

    @cached_property
    def text(self) -> str:
        """The values as one line of JSON: all readers of the run get the same text."""
        return json_line(values_json(self.values))

    @cached_property
    def message_ids(self) -> frozenset[str]:
        """The ids of the messages in the state."""
        return frozenset(one.id for one in messages_in(self.values) if one.id is not None)


Writes = Sequence[tuple[str, Any]]
"""What a task has written: channels and values."""


class Written(NamedTuple):
    """What the tasks of a step have written.

    A task that asked a human, or failed, may have run again later, in another run: then its writes are of both.
    """

    by_task: Mapping[str, Writes] = {}

    def at_cut(self) -> Written:
        """Return what was written when the run was cut off in this step, or waited for a human there."""
        return Written({id: [one for one in writes if one[0] in _CUT] or writes for id, writes in self.by_task.items()})

    def asked(self) -> Written:
        """Return the questions and the errors only: the rest may be of a later run."""
        return Written({id: [one for one in writes if one[0] in _CUT] for id, writes in self.by_task.items()})

    def at_end(self, *, is_resumed: bool) -> Written:
        """Return what was written when all tasks of the step had ended. `is_resumed`: an earlier run began the step, so only
        the tasks count that this run had to run again."""
        again = {id: writes for id, writes in self.by_task.items() if any(one[0] in _CUT for one in writes)}
        chosen = again if is_resumed and again else self.by_task
        return Written({id: [one for one in writes if one[0] not in _MARKS] for id, writes in chosen.items()})


def is_stored(writes: Writes, wrote: Literal["ended", "asked"]) -> bool:
    """Return whether a task has ended, or has asked a human, by its writes. Questions alone may be of an earlier run."""
    return any(wrote == "asked" or channel not in (INTERRUPT, _RESUME) for channel, _ in writes)


def has_ended(writes: Writes) -> bool:
    """Return whether a task has ended well."""
    return not any(channel in _CUT for channel, _ in writes)


def messages_in(value: Any) -> Iterator[BaseMessage]:
    """Yield the messages that stand in the fields of a state, or of what a node has written."""
    if isinstance(value, BaseMessage):
        yield value
        return
    for one in value.values() if isinstance(value, Mapping) else [value]:
        if isinstance(one, Overwrite):
            one = one.value
        if isinstance(one, BaseMessage):
            yield one
        elif isinstance(one, Sequence) and not isinstance(one, (str, bytes)):
            yield from (each for each in one if isinstance(each, BaseMessage))


def new_messages(writes: Writes, known: frozenset[str] | set[str]) -> list[BaseMessage]:
    """Return the messages that a task has written and that no reader knows, in order."""
    found: dict[str | int, BaseMessage] = {}
    for _, value in writes:
        for message in messages_in(value):
            if not isinstance(message, RemoveMessage) and message.id not in known:
                found.setdefault(message.id or id(message), message)
    return list(found.values())


def update_of(name: str, writes: Writes, shape: Shape) -> dict[str, Any]:
    """Return what `updates` says of a task: its writes to channels that readers see, or None if there are none."""
    outputs = shape.outputs
    for channel, value in writes:
        if channel == RETURN:
            return {name: value}
    if isinstance(outputs, str):
        found = [value for channel, value in writes if channel == outputs]
    else:
        seen = [(channel, value) for channel, value in writes if is_output(channel, outputs)]
        channels = {channel for channel, _ in seen}
        found = [dict(seen)] if seen and len(channels) == len(seen) else [{channel: value} for channel, value in seen]
    return {name: found[0] if len(found) == 1 else found or None}


def result_of(writes: Writes, shape: Shape) -> dict[str, Any]:
    """Return what `tasks` says of what a task has written: the writes by channel."""
    outputs = (shape.outputs,) if isinstance(shape.outputs, str) else shape.outputs
    found: dict[str, list[Any]] = {}
    for channel, value in writes:
        if channel == RETURN or is_output(channel, outputs):
            found.setdefault(channel, []).append(value)
    return {channel: values[0] if len(values) == 1 else {"$writes": values} for channel, values in found.items()}


def is_output(channel: str, outputs: str | Sequence[str] | None) -> bool:
    """Return whether the readers of a graph see a channel."""
    if outputs is None:
        return not channel.startswith(("__", "branch:"))
    return channel == outputs or (not isinstance(outputs, str) and channel in outputs)


def shows(writes: Sequence[Writes], shape: Shape) -> bool:
    """Return whether any write is to a channel that readers see: only then does a superstep have a `values` frame."""
    return any(is_output(channel, shape.outputs) for one in writes for channel, _ in one)
