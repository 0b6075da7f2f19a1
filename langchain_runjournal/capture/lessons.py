"""What was learned about the nodes of graphs, between memory and the store.

Rule: a callback only remembers a fact; the writer thread writes it. If the writer cannot write a fact, the next process
learns the fact again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..common.twins import off_the_loop
from ..errors import UnknownOption
from ..messages.answers import Answers, Learned, names_in

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

    from ..journal.core import JournalCore
    from ..journal.run_journal import RunJournal
    from .graph_identity import Identity


logger = logging.getLogger("langchain_runjournal")


def get_to_know(
    graph: Pregel[Any, Any, Any, Any], journal: RunJournal, answers: Answers | None, *, keeps_messages: bool
) -> None:
    """Check the names that the user gives for a graph that is attached, and load what is known of the graph before its first
    run."""
    # Here and not above: the recorder imports this module.
    from .graph_identity import identity
    from .recorder import recorder_of

    nodes = {str(name) for name in graph.nodes if name != "__start__"}
    for _, inner in graph.get_subgraphs(recurse=True):
        nodes |= {str(name) for name in getattr(inner, "nodes", ()) if name != "__start__"}
    unknown = [name for name in names_in(answers) if name not in nodes]
    if unknown:
        hint = "For the calls of other graphs, give a function"
        raise UnknownOption(name="answers", what="node", unknown=unknown, known=sorted(nodes), hint=hint)
    capture, found = recorder_of(journal), identity(graph)
    capture.keeps[str(found.fingerprint)] = keeps_messages
    off_the_loop(partial(capture.lessons.load, graph_key(found)))


def graph_key(identity: Identity) -> str:
    """Return the key under which facts about a graph are filed. The name is a part of it: agents that a library makes have
    the same nodes."""
    return f"{identity.name}|{identity.fingerprint}"


class Lessons:
    """The facts that one journal knows about graphs."""

    def __init__(self, core: JournalCore) -> None:
        self._core = core
        self.known = Learned()
        self._unwritten: list[tuple[str, frozenset[str]]] = []
        self._loaded: set[str] = set()

    def load(self, graph: str) -> None:
        """Read what the store knows of a graph: what earlier processes have learned. Blocks; never raises an Exception."""
        self._loaded.add(graph)
        learned = getattr(self._core.store, "learned", None)  # a third-party store may lack the method
        if learned is None:
            return
        try:
            self.known.add(graph, learned(graph))
        except Exception as exc:
            logger.warning("could not read what earlier runs showed about a graph; learning it again: %s", exc)
            logger.debug("the traceback of this exception", exc_info=exc)

    def request(self, graph: str) -> None:
        """Have the writer thread read what is known of a graph whose run begins, unless that was done before."""
        if graph not in self._loaded:
            self._loaded.add(graph)
            self._core.duties.give(partial(self.load, graph))

    def note(self, graph: str, facts: Iterable[str], *, durable: bool) -> None:
        """Remember facts. `durable`: the writer thread writes the new ones into the store."""
        new = self.known.add(graph, facts)
        if new and durable:
            self._unwritten.append((graph, frozenset(new)))
            self._core.duties.give(partial(self._write, self._core.store))

    def _write(self, store: Any) -> None:
        learn = getattr(store, "learn", None)
        while self._unwritten and learn is not None:
            graph, facts = self._unwritten[0]
            try:
                learn(graph, facts)
            except Exception as exc:  # noqa: BLE001 - the facts stay queued until the next one
                logger.warning("could not store what a run showed about its graph; retrying with the next fact: %s", exc)
                return
            self._unwritten.pop(0)
