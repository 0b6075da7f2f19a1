"""The link between a graph with all of its copies and a journal: the handlers, the savers and the settlement schedules."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel

from ..capture.graph_identity import identity
from ..capture.handler import JournalCallbackHandler
from ..common.shared_values import Shared
from .graph_thread import GraphThreads
from .saver import JournalSaver
from .schedule import SettlementSchedule
from .settlements import settlements_of
from .settler import Settler

if TYPE_CHECKING:
    from ..capture.calling_graph import Caller
    from ..journal.run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

Settle = Literal["always", "on_stop", "never"]
_MOST_SAVERS: Final = 16
"""The number of checkpointers, the most recently used ones, for which an attachment caches what it has learned about the
graph."""


class Attachment(Shared):
    """One call of `attach`. All copies of the graph share it, with whichever checkpointer."""

    def __init__(
        self,
        graph: Pregel[Any, Any, Any, Any],
        journal: RunJournal,
        handler: JournalCallbackHandler,
        mode: Settle,
        wait_for_owner: float | None = None,
    ) -> None:
        self.journal = journal
        self.handler = handler
        self.mode = mode
        self.wait_for_owner = wait_for_owner
        """The seconds that a new message waits for the heartbeats of an owner on another machine (see `attach`)."""
        self.recording: list[BaseCallbackHandler] = [handler]
        """The callback handlers that the calls inside of the run inherit."""
        self.settling: list[BaseCallbackHandler] = []
        """The callback handlers that settle. Calls of the graph get them, and calls inside of the run do not."""
        self.identities = {identity(graph)}
        """The identities of the graph and its copies: a server gives copies names of its own."""
        settlements_of(journal).attachments.add(self)
        self._savers: weakref.WeakValueDictionary[int, JournalSaver] = weakref.WeakValueDictionary()
        self._schedules: dict[int, tuple[JournalSaver, SettlementSchedule]] = {}
        self._warned_of: set[str] = set()

    def saver_around(self, saver: BaseCheckpointSaver[Any]) -> JournalSaver:
        """Return the one `JournalSaver` around a checkpointer. It counts the pending writes of all copies of the graph."""
        found = self._savers.get(id(saver))
        if found is None or found.saver is not saver:
            found = self._savers[id(saver)] = JournalSaver(saver, self.journal)
        return found

    def schedule_of(self, graph: Pregel[Any, Any, Any, Any], saver: JournalSaver) -> SettlementSchedule:
        """Return the schedule that settles the threads which a checkpointer keeps for the graph."""
        known = self._schedules.pop(id(saver), None)
        if known is None or known[0] is not saver:
            known = saver, self._schedule(graph, saver)
        self._schedules[id(saver)] = known
        while len(self._schedules) > _MOST_SAVERS:
            self._schedules.pop(next(iter(self._schedules)))
        return known[1]

    def _schedule(self, graph: Pregel[Any, Any, Any, Any], saver: JournalSaver) -> SettlementSchedule:
        settler = Settler(self.journal, GraphThreads(graph, saver), saver)
        return SettlementSchedule(self.journal, settler, self.wait_for_owner)

    def see(self, caller: Caller) -> None:
        """Note that a run begins. The log warns once for each reason why such runs cannot be settled."""
        self.identities.add(caller.identity)
        if caller.problem is not None and caller.problem not in self._warned_of:
            self._warned_of.add(caller.problem)
            logger.warning("the threads of graph %s are not settled: %s", caller.identity, caller.problem)
