"""The owners, what was learned about graphs, and which journal settles a thread."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from typing import Final

from ...errors import RunJournalError
from .. import Owner
from .handle import Handle
from .keys import decoded, encoded
from .promises import eviction_of
from .scripts import BEAT, HOLD, RELEASE

_REMEMBERED: Final = 10
"""Heartbeats after which no spool file of a live owner holds a deleted run: the owner begins a new file at each beat."""
_ASK_EVERY: Final = 12
"""Heartbeats between two questions about the eviction policy: a minute, with the default lease."""
_EVICTS: Final = (
    "the eviction policy %s was set on the server of %s: when its memory is full, it deletes parts of runs; set"
    " maxmemory-policy to noeviction"
)
_PARTS: Final = ("owner_id", "place", "pid", "born", "lease", "beats")

logger = logging.getLogger("langchain_runjournal")


class Owners(Handle):
    """The part of a `RedisStore` that keeps owners and facts."""

    def _begin(self) -> None:
        super()._begin()
        self._living: dict[str, Owner] = {}
        """The owners that have sent a heartbeat through this store: journals of this process."""
        self._evicts: str | None = None

    def _forget_all(self) -> None:
        super()._forget_all()
        # Other processes must find the owners before they find their spools.
        for owner in list(self._living.values()):
            self.beat(owner)

    def beat(self, owner: Owner) -> None:
        """Note that the owner is alive."""
        self._living[owner.owner_id] = owner
        row = b"%d %s" % (owner.beats, self._json([getattr(owner, part) for part in _PARTS]))
        self._step(BEAT, encoded(owner.owner_id), row, owner.beats - _REMEMBERED, tell=False)
        if owner.beats % _ASK_EVERY == 0:
            self._look_for_eviction()

    def _look_for_eviction(self) -> None:
        """Log once that the server has begun to evict. A server that did when the store was opened was refused."""
        try:
            found = eviction_of(self._server)
        except RunJournalError as exc:
            # The heartbeat has arrived, so this must not fail. The next call of the store reports the outage.
            logger.debug("could not ask %s for its eviction policy", self.url, exc_info=exc)
            return
        if found not in (None, self._evicts):
            logger.error(_EVICTS, found, self.url)
        self._evicts = found

    def owners(self) -> list[Owner]:
        """Return all owners that were not removed."""
        answer = self._server.call(b"HGETALL", self._keys.owners)
        rows = [json.loads(row.partition(b" ")[2]) for row in answer[1::2]]
        return [Owner(**dict(zip(_PARTS, row, strict=True))) for row in rows]

    def forget(self, owner_id: str) -> None:
        """Remove an owner."""
        self._living.pop(owner_id, None)
        removals = (b"HDEL", self._keys.owners, encoded(owner_id)), (b"UNLINK", self._keys.about("deleted", owner_id))
        self._server.exchange(removals)

    def deleted(self, owner_id: str) -> set[str]:
        """Return the deleted runs of `owner_id` that its spool may still hold."""
        return {decoded(one) for one in self._server.call(b"HKEYS", self._keys.about("deleted", owner_id))}

    def learn(self, graph: str, facts: Collection[str]) -> None:
        """Add facts about a graph."""
        self._server.check_open()
        if facts:
            self._server.call(b"SADD", self._keys.about("facts", graph), *map(encoded, facts))

    def learned(self, graph: str) -> set[str]:
        """Return all facts about a graph."""
        return {decoded(one) for one in self._server.call(b"SMEMBERS", self._keys.about("facts", graph))}

    def hold(self, thread_id: str, holder: str, instead_of: str | None) -> str:
        """Make `holder` the holder of a thread, if it has none or `instead_of`. Return its holder."""
        before = b"" if instead_of is None else b"h" + encoded(instead_of)
        [found] = self._step(HOLD, encoded(thread_id), encoded(holder), before, tell=False)
        return decoded(found)

    def holder(self, thread_id: str) -> str | None:
        """Return the holder of a thread, or None."""
        found = self._server.call(b"GET", self._keys.about("held", thread_id))
        return None if found is None else decoded(found)

    def release(self, thread_id: str, holder: str) -> None:
        """Remove the holder of a thread, if it is this one."""
        self._step(RELEASE, encoded(thread_id), encoded(holder), tell=False)
