"""Repair of a thread with tool requests that have no results, whichever program left them, before the thread is used again.

Rule: a thread without open requests is read once and never written. A thread with open requests is written through its
graph, while no other settlement works on it, and read again. A result that is missing then is reported, and the thread does
not count as repaired.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..capture import callback_data as _callback_data
from ..common.twins import Effects
from ..errors import StoreFailed
from ..journal.tool_history import look_up
from ..journal.waiting import off_loop
from ..messages.loading import as_messages
from ..messages.tool_evidence import Call
from ..messages.tool_requests import Request
from ..messages.tool_results import CallKnowledge
from .graph_thread import GraphThreads, MessagesChannel
from .repair_plan import Given, RepairPlan, given_in, is_broken, open_in, plan_repair, rewritten
from .supersteps import cleared, is_left

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

_NOTHING: Final = Given()
NO_ROOM: Final = "{what} cannot be rewritten, and the results of open tool requests belong behind their requests"
NOT_KEPT: Final = "its state does not keep the results of open tool requests that are written to it"
_REMEDY: Final = (
    "thread %s has tool requests without results, which a provider refuses, and the results cannot be added to the"
    " thread: %s. Use ToolPairGuard(journal) as middleware of the agent, or call repair_tool_pairs(messages) before the"
    " model is called"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """The result of a repair. `problem`: why a request is still open, if one is."""

    messages: tuple[Any, ...] = ()
    state: Any = None
    """The state after the repair, if anything was written."""
    problem: str | None = None


class Repairer:
    """The repair of the threads of one graph."""

    def __init__(self, journal: RunJournal, threads: GraphThreads) -> None:
        self._journal = journal
        self._threads = threads
        self._warned = False

    def broken(self, thread_id: str, inputs: Any) -> Effects[tuple[list[str], Any]]:
        """Return the namespaces of a thread with open requests that the new input does not answer itself, and the newest
        checkpoint of the thread, if it was read directly. Each namespace is read once."""
        found, first = [], None
        for namespace, shape in [("", self._threads.shape), *self._threads.inner.items()]:
            if shape.problem is None:
                values, checkpoint = yield self._threads.peek(thread_id, namespace)
                first = first if namespace else checkpoint
                if values is not None and _is_broken(shape, values, inputs if not namespace else None):
                    found.append(namespace)
        return found, first

    def repair(self, thread_id: str, namespace: str = "", inputs: Any = None, state: Any = None) -> Effects[RepairResult]:
        """Add the missing results in a thread, or in a namespace of it. `state` is its state, if the caller has just read
        it."""
        shape = self._threads.inner[namespace] if namespace else self._threads.shape
        if state is None:
            state = yield self._threads.read(thread_id, namespace)
        if not _is_broken(shape, state.values, inputs):
            return RepairResult()
        if is_left(state):
            state = yield from cleared(self._threads, thread_id, namespace)
        found, given = shape.messages(state.values) or [], _given(inputs)
        thread = as_messages(found)
        known = yield from self._known(thread_id, open_in(thread, given))
        done = plan_repair(thread, lambda message, request: known.get((message.id, str(request.id)), CallKnowledge()), given)
        if not done.added and not done.moved and not done.named:
            return RepairResult(state=state)
        step, problem = _step(shape, state.values, found, done)
        if problem is not None:
            self._warn(thread_id, problem)
            return RepairResult(state=state, problem=problem)
        yield self._threads.put(thread_id, namespace, step)
        before, state = state, (yield self._threads.read(thread_id, namespace))
        if not _is_kept(shape, state.values, thread, done, given):
            self._warn(thread_id, NOT_KEPT)
            return RepairResult(state=state, problem=NOT_KEPT)
        logger.info(
            "repaired thread %s, which had tool requests without results: %d added, %d moved (checkpoint before: %s)",
            thread_id,
            len(done.added),
            done.moved,
            before.config["configurable"].get("checkpoint_id"),
        )
        return RepairResult(messages=tuple(done.added), state=state)

    def _known(self, thread_id: str, asked: Sequence[tuple[Any, Request]]) -> Effects[Mapping[Call, CallKnowledge]]:
        calls: list[Call] = [(message.id, str(request.id)) for message, request in asked]
        found: Mapping[Call, CallKnowledge] = {}
        if calls:
            # A message must not wait for a store that cannot be reached, and must not go to a model with open requests.
            with suppress(StoreFailed):
                found = yield off_loop(self._journal, partial(look_up, self._journal, thread_id, calls))
        return found

    def _warn(self, thread_id: str, problem: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(_REMEDY, thread_id, problem)


def _given(inputs: Any) -> Given:
    return _NOTHING if inputs is None else given_in(_callback_data.input_messages(inputs) or ())


def _is_broken(shape: MessagesChannel, values: Any, inputs: Any) -> bool:
    found = shape.messages(values)
    if not found or shape.problem_with(values) is not None:
        return False
    thread = as_messages(found)
    if not is_broken(thread):
        return False
    if inputs is None:
        return True
    # Without a reducer, the messages of the input replace those in the thread.
    replaces = shape.replaces_all and shape.function is None and _callback_data.input_messages(inputs) is not None
    return not replaces and is_broken(thread, _given(inputs))


def _step(shape: MessagesChannel, values: Any, found: list[Any], done: RepairPlan) -> tuple[Any, str | None]:
    """Return the superstep that writes the missing results, or why there is none."""
    problem = shape.unwritable(found, done.added)
    if problem is not None:
        return None, problem
    if done.at_end:
        return shape.update(values, done.added), None
    if not shape.can_rewrite:
        return None, NO_ROOM.format(what=shape.what)
    write: Callable[[Sequence[Any]], Sequence[Any]] = partial(shape.written, found)
    return shape.rewrite(values, rewritten(found, done, write)), None


def _is_kept(shape: MessagesChannel, values: Any, thread: list[Any], done: RepairPlan, given: Given) -> bool:
    """Return whether the thread holds what was written. Where all was added at the end, the reducer may have changed it;
    elsewhere every message is compared."""
    kept = as_messages(shape.messages(values) or [])
    if is_broken(kept, given):
        return False
    if done.at_end:
        return bool(kept)
    old = [thread[one] for one in done.order if isinstance(one, int)]
    places = [at for at, one in enumerate(done.order) if isinstance(one, int)]
    return len(kept) == len(done.order) and [kept[at] for at in places] == old
