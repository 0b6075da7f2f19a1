"""Facts about graphs, and the threads that journals settle."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from .connections import Connections
from .names import decoded, encoded, key
from .sessions import Session

_LEARN: Final = """
INSERT INTO {s}.lessons (graph, name, fact)
SELECT %(graph)s, l.* FROM unnest(%(names)b::text[], %(facts)b::text[]) AS l ON CONFLICT DO NOTHING
"""
_LEARNED: Final = "SELECT fact FROM {s}.lessons WHERE graph = %(graph)s"
_HOLD: Final = """
INSERT INTO {s}.holders AS h (thread_id, holder) VALUES (%(thread_id)s, %(holder)s)
ON CONFLICT (thread_id) DO UPDATE SET holder = excluded.holder WHERE h.holder = %(instead_of)s
"""
_HOLDER: Final = "SELECT holder FROM {s}.holders WHERE thread_id = %(thread_id)s"
_RELEASE: Final = "DELETE FROM {s}.holders WHERE thread_id = %(thread_id)s AND holder = %(holder)s"


class Facts(Connections):
    """The part of a `PostgresStore` that keeps facts about graphs, and which journal settles a thread."""

    def learn(self, graph: str, facts: Collection[str]) -> None:
        """Add facts about a graph."""
        found = sorted(set(facts))
        values = {"graph": key(graph), "names": [key(one) for one in found], "facts": [encoded(one) for one in found]}
        self._call(lambda session: session.execute(self._sql(_LEARN), values).close())

    def learned(self, graph: str) -> set[str]:
        """Return all facts about a graph."""
        values = {"graph": key(graph)}
        rows = self._call(lambda session: session.execute(self._sql(_LEARNED), values).fetchall())
        return {decoded(fact) for (fact,) in rows}

    def hold(self, thread_id: str, holder: str, instead_of: str | None) -> str:
        """Make `holder` the holder of a thread, if it has none or `instead_of`. Return its holder."""
        values = {
            "thread_id": key(thread_id),
            "holder": encoded(holder),
            "instead_of": None if instead_of is None else encoded(instead_of),
        }

        def work(session: Session) -> str:
            while True:
                session.execute(self._sql(_HOLD), values)
                row = session.execute(self._sql(_HOLDER), values).fetchone()
                if row is not None:  # else it was released in between
                    return decoded(row[0])

        return self._call(work)

    def holder(self, thread_id: str) -> str | None:
        """Return the holder of a thread, or None."""
        values = {"thread_id": key(thread_id)}
        row = self._call(lambda session: session.execute(self._sql(_HOLDER), values).fetchone())
        return None if row is None else decoded(row[0])

    def release(self, thread_id: str, holder: str) -> None:
        """Remove the holder of a thread, if it is this one."""
        values = {"thread_id": key(thread_id), "holder": encoded(holder)}
        self._call(lambda session: session.execute(self._sql(_RELEASE), values).close())
