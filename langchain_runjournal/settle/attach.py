"""`attach`: a graph that journals its runs and leaves every thread whole."""

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
from ..common.arguments import choice
from ..common.shared_values import Shared
from ..common.twins import Effects, begin, context_without_run, run_async, run_shielded, run_sync
from ..errors import InvalidArgument, NotAttachable
from ..journal.core import core_of
from ..journal.run_journal import RunJournal
from ..messages.answers import Answers
from .attached_graph import attachments_of, with_attachments
from .attachment import Attachment, Settle
from .failures import warn_of
from .graph_thread import MessagesChannel
from .saver import JournalSaver
from .schedule import SettlementSchedule

logger = logging.getLogger("langchain_runjournal")

_G = TypeVar("_G", bound="Pregel[Any, Any, Any, Any]")
_NOT_BEFORE: Final = "could not read or repair the thread of run %s before the run began: %s"
_AWAITS: Final = "_ahandle_event_for_handler"
"""The function of LangChain that calls asynchronous handlers, and awaits them."""


def attach(
    graph: _G,
    journal: RunJournal,
    *,
    capture_invoke: bool = False,
    settle: Settle = "always",
    answers: Answers | None = None,
    refuse_cut_calls: bool = True,
) -> _G:
    """A copy of a compiled graph that journals its runs, and whose threads are whole after any ending.

    It is of a subclass of its type, is called in the same ways, and keeps your callbacks. After a run that was stopped,
    left, timed out, killed or failed, its thread holds the history as it was, the results of all tools that finished, an
    honest answer for each that did not, and the partial answer; nothing is left to run, and the next message just works. It
    is done before the call returns or raises, wherever that can be awaited, and otherwise before the next turn of the thread
    begins: what a killed process left as well (see `RunJournal.recover` to do it for all threads at once). A run that waits
    for a human is not touched; a new message instead of a resume settles it first.

    `settle`: with "on_stop", a run that *failed* is left as LangGraph leaves it, so that `invoke(None)` takes it up again,
    until the next message; with "never", only `RunJournal.recover` settles. `capture_invoke`: make models stream inside
    `invoke` and `ainvoke` too, so that a Stop there keeps text that was shown to nobody. It changes what your models do:
    `JournalCallbackHandler` lists how.

    `answers`: the nodes whose model calls answer the user, or a function that gets a `ModelCall` and says so. It decides for
    calls that are cut before their node has ended; see `JournalCallbackHandler`.

    `refuse_cut_calls`: a tool that the model asked for in an answer that was cut off (by its token limit, or by an early
    end) is not run: `errors.CallCut` is raised where LangChain reports the start of the tool, and `ToolNode` makes a
    truthful result of it. `ToolPairGuard` does more, and does it before any tool begins.

    The checkpointer that counts is the one that LangGraph uses when a run begins: set it on the attached graph when you have
    it, give it in a config, or let a server make a copy of the graph with its own. A journal tells graphs apart by their
    nodes and channels, and by their names where they have one of their own: give each a `name`, so that its next version is
    known as the same graph. Without a checkpointer LangGraph keeps no thread, and the runs are only journaled.
    """
    check_graph(graph)
    choice("settle", settle, Settle)
    handler = JournalCallbackHandler(journal, capture_invoke=capture_invoke, answers=answers)
    if not isinstance(refuse_cut_calls, bool):
        raise InvalidArgument(name="refuse_cut_calls", expected="True or False", value=refuse_cut_calls)
    handler.refuses_cut = refuse_cut_calls
    keeps_messages = hasattr(graph, "builder") and MessagesChannel(graph).channel is not None
    get_to_know(graph, journal, answers, keeps_messages=keeps_messages)
    mine = Attachment(graph, journal, handler, settle)
    mine.handlers += [_SettlesNow(mine), _SettlesLater(mine)]
    # Attached twice to one journal, it would record and settle each run twice.
    others = [one for one in attachments_of(graph) if one.journal is not journal]
    return with_attachments(graph, [*others, mine])


def check_graph(graph: object) -> None:
    """Raise `NotAttachable` if `attach` cannot take this object."""
    if not isinstance(graph, Pregel):
        raise NotAttachable(what=f"An object of type {type(graph).__name__}", reason="it is not a compiled graph")


def handlers_of(graph: Pregel[Any, Any, Any, Any]) -> list[Any]:
    """Of an attached graph, what records its runs, and what settles them where that can be awaited."""
    found = [handler for one in attachments_of(graph) for handler in one.handlers]
    settling = [one for one in found if isinstance(one, _SettlesLater)]
    recording = [one for one in found if isinstance(one, JournalCallbackHandler)]
    return [*recording, *settling]


def _is_awaited() -> bool:
    """Whether LangChain will await what it asks for: it asks every handler in both of its ways of calling."""
    return sys._getframe(2).f_code.co_name == _AWAITS


class _Settling(Shared, BaseCallbackHandler):
    """Settles when a run begins, and when it has ended. Stands behind the handler that records."""

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

    def __deepcopy__(self, memo: dict[int, Any]) -> _Settling:
        return self  # in a config that a program copies

    def _attend(self, serialized: Any, inputs: Any, run_id: UUID, about: dict[str, Any]) -> Effects[None] | None:
        """What has to be done before this run, if it is one that brings a new message to a thread."""
        if self._is_in_the_middle():
            return None
        key = key_of(run_id)
        if key not in self._capture.tracker.nodes and self._is_ours(attached_caller(self.handler.journal)):
            # Handlers that have gone through a chain are called in any order.
            self.handler.on_chain_start(serialized, inputs, run_id=run_id, **about)
        node = self._capture.tracker.nodes.get(key)
        caller = node.root.caller if node is not None and node.parent is None else None
        if node is None or caller is None or not self._is_ours(caller) or node.root.turn is not None:
            return None  # a part of a run, or that of another graph
        self._attachment.see(caller)
        if not isinstance(caller.saver, JournalSaver) or caller.thread_id is None:
            return None
        turns = self._attachment.turns(caller.graph, caller.saver)
        turn = ThreadSlot(caller.thread_id, caller.identity, turns, self._mode, node.key)
        turn.resumes = inputs is None or type(inputs).__name__ == "Command"
        turn.branches = bool(caller.checkpoint_id)
        self._capture.threads.enter(node.root, turn)
        if turn.resumes:
            return turns.take_up(turn)
        if self._mode == "never" or caller.checkpoint_id:
            return None  # not asked for, or somewhere in the past
        return turns.prepare(turn, node.root.run_id, inputs)

    def _is_ours(self, caller: Caller | None) -> bool:
        return caller is not None and caller.attachment is self._attachment

    def _break_off(self, error: BaseException, run_id: UUID) -> None:
        """It is over before it has begun, and nobody will tell: LangChain has not got so far."""
        key = key_of(run_id)
        node = self._capture.tracker.nodes.get(key)
        if node is not None:
            node.owner.on_chain_error(error, run_id=run_id)
        self._capture.tracker.do(partial(self._capture.conclude, key, None, "cut off before it began"))

    def _complete(self, outputs: Any, run_id: UUID) -> Effects[None] | None:
        """A run has ended well: words that were shown may be missing in its thread all the same."""
        key = key_of(run_id)
        node = None if self._is_in_the_middle() else self._capture.tracker.nodes.get(key)
        if node is not None and node.parent is None and node.root.has_shown and self._is_ours(node.root.caller):
            # Recorded by another handler of the same journal, which has not been told yet.
            node.owner.on_chain_end(outputs, run_id=run_id)
        return None if self._capture.unsettled(key) is None else self._conclude(None, run_id)

    def _conclude(self, error: BaseException | None, run_id: UUID) -> Effects[None] | None:
        key = key_of(run_id)
        if self._is_in_the_middle():
            # Nothing can be waited for here: it is done before the next turn.
            self._capture.tracker.do_later(partial(self._capture.conclude, key, None, "ended in the middle of an append"))
            return None
        node = self._capture.tracker.nodes.get(key)
        if error is not None and node is not None and node.parent is None and self._is_ours(node.root.caller):
            # Recorded by another handler of the same journal, which has not been told yet.
            node.owner.on_chain_error(error, run_id=run_id)
        root = self._capture.unsettled(key)
        if root is None or root.turn is None or not self._is_ours(root.caller):
            return None
        turns: SettlementSchedule = root.turn.turns
        return turns.conclude(key)

    def _is_in_the_middle(self) -> bool:
        return core_of(self.handler.journal).appender.is_inside()


class _SettlesNow(_Settling):
    """In calls that block."""

    @property
    def ignore_chain(self) -> bool:
        return _is_awaited()

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **about: Any) -> None:
        steps = self._attend(serialized, inputs, run_id, about)
        if steps is not None:
            try:
                context_without_run().run(run_sync, steps)
            except Exception as exc:  # noqa: BLE001 - the program gets its own exception from LangGraph
                warn_of(exc, _NOT_BEFORE, run_id)
            except BaseException as exc:
                self._break_off(exc, run_id)
                raise

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **about: Any) -> None:
        self._work(self._complete(outputs, run_id))

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        self._work(self._conclude(error, run_id))

    def _work(self, steps: Effects[None] | None) -> None:
        if steps is not None:
            context_without_run().run(run_sync, steps)


class _SettlesLater(_Settling):
    """In calls that are awaited."""

    @property
    def ignore_chain(self) -> bool:
        return not _is_awaited()

    async def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **about: Any) -> None:
        steps = self._attend(serialized, inputs, run_id, about)
        if steps is not None:
            prepared = begin(run_async(steps))
            try:
                await asyncio.shield(prepared)
            except Exception as exc:  # noqa: BLE001 - the program gets its own exception from LangGraph
                warn_of(exc, _NOT_BEFORE, run_id)
            except asyncio.CancelledError as exc:
                # Over before it has begun, and nobody else will tell: LangChain has not got so far.
                self._leave(run_id)
                await run_shielded(self._settle_instead(prepared, exc, run_id))
                raise
            except BaseException as exc:
                self._break_off(exc, run_id)
                raise

    def _leave(self, run_id: UUID) -> None:
        """The run waits for a settlement, and was cancelled: it waits no longer."""
        node = self._capture.tracker.nodes.get(key_of(run_id))
        if node is not None and node.root.turn is not None:
            node.root.turn.leaves = True

    async def _settle_instead(self, prepared: asyncio.Task[None], error: BaseException, run_id: UUID) -> None:
        steps = self._conclude(error, run_id)
        await asyncio.wait([prepared])
        if not prepared.cancelled() and (problem := prepared.exception()) is not None:
            warn_of(problem, _NOT_BEFORE, run_id)
        if steps is not None:
            await run_async(steps)

    async def on_chain_end(self, outputs: Any, *, run_id: UUID, **about: Any) -> None:
        await self._work(self._complete(outputs, run_id), run_id)

    async def on_chain_error(self, error: BaseException, *, run_id: UUID, **about: Any) -> None:
        await self._work(self._conclude(error, run_id), run_id)

    async def _work(self, steps: Effects[None] | None, run_id: UUID) -> None:
        if steps is not None:
            work = begin(run_async(steps))
            # Cancelled before its first step, with its loop, it would tell nobody.
            tell = partial(self._capture.conclude, key_of(run_id), None, "cut off")
            work.add_done_callback(lambda _: self._capture.tracker.do(tell))
            await asyncio.shield(work)
