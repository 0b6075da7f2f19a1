"""What ties a graph and all of its copies to a journal: the handlers, the savers, and what settles its threads."""

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
"""With how many checkpointers, those used last, the work of looking at a graph is not done again."""


class Attachment(Shared):
    """One `attach`. Copies of the graph share it, whichever checkpointer each of them has."""

    def __init__(
        self, graph: Pregel[Any, Any, Any, Any], journal: RunJournal, handler: JournalCallbackHandler, mode: Settle
    ) -> None:
        self.journal = journal
        self.handler = handler
        self.mode = mode
        self.handlers: list[BaseCallbackHandler] = [handler]
        """What a call of the graph is given."""
        self.identities = {identity(graph)}
        """What its copies are called: a server gives them names of its own."""
        settlements_of(journal).attachments.add(self)
        self._savers: weakref.WeakValueDictionary[int, JournalSaver] = weakref.WeakValueDictionary()
        self._turns: dict[int, tuple[JournalSaver, SettlementSchedule]] = {}
        self._told: set[str] = set()

    def saver_around(self, saver: BaseCheckpointSaver[Any]) -> JournalSaver:
        """The one `JournalSaver` around a checkpointer: it knows what is being written by all copies of the graph."""
        found = self._savers.get(id(saver))
        if found is None or found.saver is not saver:
            found = self._savers[id(saver)] = JournalSaver(saver, self.journal)
        return found

    def turns(self, graph: Pregel[Any, Any, Any, Any], saver: JournalSaver) -> SettlementSchedule:
        """What settles the threads that a checkpointer keeps for the graph."""
        known = self._turns.pop(id(saver), None)
        if known is None or known[0] is not saver:
            known = saver, SettlementSchedule(self.journal, Settler(self.journal, GraphThreads(graph, saver), saver))
        self._turns[id(saver)] = known
        while len(self._turns) > _MOST_SAVERS:
            self._turns.pop(next(iter(self._turns)))
        return known[1]

    def see(self, caller: Caller) -> None:
        """A run begins. The log says once why runs like it cannot be settled."""
        self.identities.add(caller.identity)
        if caller.problem is not None and caller.problem not in self._told:
            self._told.add(caller.problem)
            logger.warning("the threads of graph %s are not settled: %s", caller.identity, caller.problem)
