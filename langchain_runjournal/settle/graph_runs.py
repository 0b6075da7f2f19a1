"""The runs of a journal that a graph settles.

Rule: the nodes and channels of a graph identify it, and not its name alone. A run is settled through its own graph, or
through a later version of that graph which has all channels that the thread holds. A run that may belong to another graph is
left to that graph, and the report says so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ..capture.graph_identity import identity_of
from ..common.twins import Effects
from ..events import Run
from ..journal.run_reading import read_if_there
from ..journal.waiting import off_loop
from .graph_thread import GraphThreads
from .settlements import settlements_of

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal

_ATTACHED: Final = "it is a run of another graph called {!r}, which is attached here as well and can settle it"
_AMBIGUOUS: Final = (
    "it is a run of another graph called {!r}, or of an earlier version of this one. Compile each graph with a name of its"
    " own; a run of an earlier version is settled by recover(graph, adopt=True)"
)
_WOULD_LOSE: Final = (
    "it is a run of another graph of this name, or of another version of this graph, and the thread holds channels that this"
    " one would lose: {}. Settle it with the graph that has them"
)


class GraphRuns:
    """The runs of one graph, among those of a journal."""

    def __init__(self, journal: RunJournal, threads: GraphThreads) -> None:
        self._journal = journal
        self._threads = threads

    def are_of(self, run: Run) -> bool:
        """Return whether the run belongs to this graph or to another version of it. A journal may hold the runs of many
        graphs."""
        return identity_of(run).is_same(self._threads.identity)

    def share_name(self, run: Run) -> bool:
        """Return whether the run belongs to a graph of this name."""
        return identity_of(run).name == self._threads.name

    def refuse(self, run: Run, *, adopt: bool) -> str | None:
        """Return why a run of a graph of this name is not settled through this graph; None if it may be.

        `adopt`: the caller knows that the run belongs to an earlier version of this graph, although the journal does not
        show it.
        """
        theirs, mine = identity_of(run), self._threads.identity
        if theirs.is_exactly(mine):
            return None
        if any(theirs in one.identities for one in list(settlements_of(self._journal).attachments)):
            return _ATTACHED.format(theirs.name)
        return None if theirs.is_named or adopt else _AMBIGUOUS.format(theirs.name)

    def continue_thread_of(self, run: Run) -> Effects[bool]:
        """Return whether the checkpointer of this graph holds what the run has written, so that a new message stands behind
        it."""
        events = yield off_loop(self._journal, partial(read_if_there, self._journal, run.run_id))
        about = [event.data for event in events if event.kind == "run.checkpoint"]
        written = next((data[key] for data in about for key in ("applied", "stored") if data.get(key)), None)
        if written is None:
            return False
        state = yield self._threads.read(str(run.thread_id), checkpoint_id=written)
        return state.created_at is not None

    def would_lose(self, run: Run) -> Effects[str | None]:
        """Return why the thread of a run of another version must not be written through this graph; None if it may be."""
        if identity_of(run).is_exactly(self._threads.identity):
            return None
        unknown = yield self._threads.unknown_channels(str(run.thread_id))
        return _WOULD_LOSE.format(", ".join(unknown)) if unknown else None
