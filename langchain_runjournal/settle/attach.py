"""`attach`: a compiled graph that journals its runs and repairs its threads."""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.pregel import Pregel

from ..capture.call_tree import key_of
from ..capture.calling_graph import Caller, attached_caller
from ..capture.handler import JournalCallbackHandler
from ..capture.lessons import get_to_know
from ..capture.recorder import recorder_of
from ..capture.thread_slots import ThreadSlot
from ..common.arguments import choice, seconds
from ..common.shared_values import Shared
from ..common.twins import Effects, begin, context_without_run, run_async, run_shielded, run_sync
from ..errors import InvalidArgument, NotAttachable
from ..journal.core import core_of
from ..journal.run_journal import RunJournal
from ..messages.answers import Answers
from ..traces.handler import TraceEndingHandler
from .attached_graph import attachments_of, with_attachments
from .attachment import Attachment, Settle
from .failures import log_failure
from .graph_thread import MessagesChannel
from .saver import JournalSaver
from .schedule import SettlementSchedule

logger = logging.getLogger("langchain_runjournal")

_G = TypeVar("_G", bound="Pregel[Any, Any, Any, Any]")
_NOT_BEFORE: Final = "could not read or repair the thread of run %s before the run began: %s"
_AWAITS: Final = "_ahandle_event_for_handler"
"""The function of LangChain that calls asynchronous handlers and awaits them."""


def attach(
    graph: _G,
    journal: RunJournal,
    *,
    capture_invoke: bool = False,
    settle: Settle = "always",
    answers: Answers | None = None,
    refuse_cut_calls: bool = True,
    wait_for_owner: float | None = None,
    traces: bool = False,
) -> _G:
    """Return a copy of a compiled graph that journals its runs and leaves each thread valid after every ending.

    The copy is an instance of a subclass of the graph's type. You call it in the same ways, and it keeps your callbacks.
    After a run that was stopped, left by its consumer, timed out, killed or failed, its thread holds the history as it was,
    the results of all tools that finished, a truthful synthetic result for each tool that did not finish, and the partial
    answer. No task is left to run, and the next message works. The settlement is done before the call returns or raises,
    wherever LangChain awaits handlers. Otherwise it is done before the next run of the thread begins, which includes what a
    killed process left (`RunJournal.recover` settles all threads at once). A run that waits for a human is not touched. A
    new message instead of a resume settles it first.

    `settle`: with "on_stop", a run that *failed* stays as LangGraph leaves it until the next message, so that `invoke(None)`
    resumes it. With "never", only `RunJournal.recover` settles. `capture_invoke`: make models stream inside `invoke` and
    `ainvoke` too, so that a stop there keeps text that no user has seen. It changes what your models do:
    `JournalCallbackHandler` lists how.

    `answers`: the nodes whose model calls answer the user, or a function that gets a `ModelCall` and returns whether that
    call is an answer. It decides for calls that are cut off before their node has ended; see `JournalCallbackHandler`.

    `refuse_cut_calls`: do not run a tool that the model requested in an answer that was cut off (by its token limit, or by
    an early end of the stream). `errors.CallCut` is raised where LangChain reports the start of the tool, and `ToolNode`
    turns it into a truthful result. `ToolPairGuard` does more, and does it before any tool begins.

    `wait_for_owner`: the seconds that a new message waits at most if a run on its thread belongs to a process on another
    machine that may be dead; by default the lease of that process and the time of one heartbeat, after which this is certain
    (see docs/settling.md, Owners on other machines).

    `traces`: end the calls that were cut off in the tracers of the run (LangSmith, Langfuse, OpenInference, OpenLLMetry),
    which would keep them open for ever; see `TraceEndingHandler` and docs/traces.md.

    The checkpointer that counts is the one that LangGraph uses when a run begins. Set it on the attached graph when you have
    it, pass it in a config, or let a server copy the graph with its own. A journal distinguishes graphs by their nodes and
    channels, and by their names where they have one of their own. Give each graph a `name`, so that the journal recognises
    its next version as the same graph. Without a checkpointer LangGraph keeps no thread, and the runs are only journaled.
    """
    check_graph(graph)
    choice("settle", settle, Settle)
    handler = JournalCallbackHandler(journal, capture_invoke=capture_invoke, answers=answers)
    if not isinstance(refuse_cut_calls, bool):
        raise InvalidArgument(name="refuse_cut_calls", expected="True or False", value=refuse_cut_calls)
    handler.refuses_cut = refuse_cut_calls
    if not isinstance(traces, bool):
        raise InvalidArgument(name="traces", expected="True or False", value=traces)
    if wait_for_owner is not None:
        wait_for_owner = seconds("wait_for_owner", wait_for_owner)
    keeps_messages = hasattr(graph, "builder") and MessagesChannel(graph).channel is not None
    get_to_know(graph, journal, answers, keeps_messages=keeps_messages)
    mine = Attachment(graph, journal, handler, settle, wait_for_owner)
    if traces:
        mine.recording.append(TraceEndingHandler(journal))
    mine.settling += [_SyncSettlementHandler(mine), _AsyncSettlementHandler(mine)]
    # A graph that is attached twice to one journal would record and settle each run twice.
    others = [one for one in attachments_of(graph) if one.journal is not journal]
    return with_attachments(graph, [*others, mine])


def check_graph(graph: object) -> None:
    """Raise `NotAttachable` if `attach` cannot take this object."""
    if not isinstance(graph, Pregel):
        raise NotAttachable(what=f"An object of type {type(graph).__name__}", reason="it is not a compiled graph")


def handlers_of(graph: Pregel[Any, Any, Any, Any]) -> list[Any]:
    """Return the handlers of an attached graph that record its runs, then those that settle them in awaited calls."""
    attachments = attachments_of(graph)
    settling = [handler for one in attachments for handler in one.settling if isinstance(handler, _AsyncSettlementHandler)]
    return [*(one.handler for one in attachments), *settling]


def _is_awaited() -> bool:
    """Return whether LangChain awaits the handlers of this call. It asks every handler in both of its ways of calling."""
    return sys._getframe(2).f_code.co_name == _AWAITS


class _SettlementHandler(Shared, BaseCallbackHandler):
    """A callback handler that settles a thread when a run begins and when the run has ended. LangChain calls it after the
    handler that records."""

    run_inline = True
    raise_error = False
    ignore_llm = True
    ignore_chat_model = True
    ignore_agent = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True

    def __init__(self, attachment: Attachment) -> None:
        self.handler = attachment.handler
        self.journal = attachment.journal
        self._attachment = attachment
        self._mode = attachment.mode
        self._capture = recorder_of(self.journal)

    def __deepcopy__(self, memo: dict[int, Any]) -> _SettlementHandler:
        return self  # a program may deep-copy the config that holds it

    def _prepare_run(self, serialized: Any, inputs: Any, run_id: UUID, about: dict[str, Any]) -> Effects[None] | None:
        """Return what has to be done before this run, if the run brings a new message to a thread or resumes it; else
        None."""
        if self._is_inside_append():
            return None
        key = key_of(run_id)
        if key not in self._capture.tracker.nodes and self._is_ours(attached_caller(self.handler.journal)):
            # LangChain calls handlers that were passed on by a chain in any order.
            self.handler.on_chain_start(serialized, inputs, run_id=run_id, **about)
        node = self._capture.tracker.nodes.get(key)
        caller = node.root.caller if node is not None and node.parent is None else None
        if node is None or caller is None or not self._is_ours(caller) or node.root.turn is not None:
            return None  # a call inside of a run, or a run of another graph
        self._attachment.see(caller)
        if not isinstance(caller.saver, JournalSaver) or caller.thread_id is None:
            return None
        schedule = self._attachment.schedule_of(caller.graph, caller.saver)
        slot = ThreadSlot(caller.thread_id, caller.identity, schedule, self._mode, node.key)
        slot.resumes = inputs is None or type(inputs).__name__ == "Command"
        slot.branches = bool(caller.checkpoint_id)
        self._capture.threads.enter(node.root, slot)
        if slot.resumes:
            return schedule.complete_paused(slot)
        if self._mode == "never" or caller.checkpoint_id:
            return None  # settling is off, or the run begins at an earlier checkpoint
        return schedule.prepare_thread(slot, node.root.run_id, inputs)

    def _is_ours(self, caller: Caller | None) -> bool:
        return caller is not None and caller.attachment is self._attachment

    def _end_before_start(self, error: BaseException, run_id: UUID) -> None:
        """End a run that failed before LangChain had begun it. LangChain reports no end of such a run."""
        key = key_of(run_id)
        node = self._capture.tracker.nodes.get(key)
        if node is not None:
            node.owner.on_chain_error(error, run_id=run_id)
        self._capture.tracker.do(partial(self._capture.conclude, key, None, "cut off before it began"))

    def _settle_completed(self, outputs: Any, run_id: UUID) -> Effects[None] | None:
        """Settle a run that completed. Its thread may lack text that the user has seen all the same."""
        key = key_of(run_id)
        node = None if self._is_inside_append() else self._capture.tracker.nodes.get(key)
        if node is not None and node.parent is None and node.root.has_shown and self._is_ours(node.root.caller):
            # Another handler of the same journal records this run, and LangChain has not called that handler yet.
            node.owner.on_chain_end(outputs, run_id=run_id)
        return None if self._capture.unsettled(key) is None else self._settle_ended(None, run_id)

    def _settle_ended(self, error: BaseException | None, run_id: UUID) -> Effects[None] | None:
        key = key_of(run_id)
        if self._is_inside_append():
            # This callback runs inside of an append and must not wait. The next run of the thread settles this one.
            self._capture.tracker.do_later(partial(self._capture.conclude, key, None, "ended in the middle of an append"))
            return None
        node = self._capture.tracker.nodes.get(key)
        if error is not None and node is not None and node.parent is None and self._is_ours(node.root.caller):
            # Another handler of the same journal records this run, and LangChain has not called that handler yet.
            node.owner.on_chain_error(error, run_id=run_id)
        root = self._capture.unsettled(key)
        if root is None or root.turn is None or not self._is_ours(root.caller):
            return None
        schedule: SettlementSchedule = root.turn.turns
        return schedule.settle_ended(key)

    def _is_inside_append(self) -> bool:
        return core_of(self.handler.journal).appender.is_inside()


class _SyncSettlementHandler(_SettlementHandler):
    """The handler for calls that block."""

    @property
    def ignore_chain(self) -> bool:
        return _is_awaited()

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **about: Any) -> None:
        effects = self._prepare_run(serialized, inputs, run_id, about)
        if effects is not None:
            try:
                context_without_run().run(run_sync, effects)
            except Exception as exc:  # noqa: BLE001 - the program gets its own exception from LangGraph
                log_failure(exc, _NOT_BEFORE, run_id)
            except BaseException as exc:
                self._end_before_start(exc, run_id)
                raise

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **about: Any) -> None:
        self._run(self._settle_completed(outputs, run_id))

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        self._run(self._settle_ended(error, run_id))

    def _run(self, effects: Effects[None] | None) -> None:
        if effects is not None:
            context_without_run().run(run_sync, effects)


class _AsyncSettlementHandler(_SettlementHandler):
    """The handler for calls that are awaited."""

    @property
    def ignore_chain(self) -> bool:
        return not _is_awaited()

    async def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **about: Any) -> None:
        effects = self._prepare_run(serialized, inputs, run_id, about)
        if effects is not None:
            prepared = begin(run_async(effects))
            try:
                await asyncio.shield(prepared)
            except Exception as exc:  # noqa: BLE001 - the program gets its own exception from LangGraph
                log_failure(exc, _NOT_BEFORE, run_id)
            except asyncio.CancelledError as exc:
                # The run was cancelled before LangChain had begun it, and LangChain reports no end of such a run.
                self._stop_waiting(run_id)
                await run_shielded(self._settle_cancelled(prepared, exc, run_id))
                raise
            except BaseException as exc:
                self._end_before_start(exc, run_id)
                raise

    def _stop_waiting(self, run_id: UUID) -> None:
        """Note that a run which waits for a settlement was cancelled, so that it stops waiting."""
        node = self._capture.tracker.nodes.get(key_of(run_id))
        if node is not None and node.root.turn is not None:
            node.root.turn.leaves = True

    async def _settle_cancelled(self, prepared: asyncio.Task[None], error: BaseException, run_id: UUID) -> None:
        effects = self._settle_ended(error, run_id)
        await asyncio.wait([prepared])
        if not prepared.cancelled() and (problem := prepared.exception()) is not None:
            log_failure(problem, _NOT_BEFORE, run_id)
        if effects is not None:
            await run_async(effects)

    async def on_chain_end(self, outputs: Any, *, run_id: UUID, **about: Any) -> None:
        await self._run(self._settle_completed(outputs, run_id), run_id)

    async def on_chain_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        await self._run(self._settle_ended(error, run_id), run_id)

    async def _run(self, effects: Effects[None] | None, run_id: UUID) -> None:
        if effects is not None:
            work = begin(run_async(effects))
            # A task that is cancelled before its first step, together with its loop, would not append the end of the run.
            conclude = partial(self._capture.conclude, key_of(run_id), None, "cut off")
            work.add_done_callback(lambda _: self._capture.tracker.do(conclude))
            await asyncio.shield(work)
