"""The methods of the store in Redis that write: each is one script, which the server executes as one step."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any, Final

from ...errors import RunFenced, SeqGap, StoreFailed
from ...events import Run
from ...events.segments import Segment
from ..run_columns import run_row
from .appending import Change, Known, changes_of
from .integrity import Integrity
from .keys import decoded, encoded
from .owners import Owners
from .records import Records
from .scripts import APPEND, BEGIN, CLAIM, STOP, WITHDRAW

_REMEMBERED: Final = 10_000
_TRIES: Final = 10
TIDY_AT: Final = 512 << 10
"""Bytes that were appended since small entries were merged last."""
_MERGED: Final = 50


class RedisStore(Owners, Records, Integrity):
    """Runs in a Redis or Valkey server. `open_url` makes one from a URL."""

    def _begin(self) -> None:
        super()._begin()
        self._known: dict[str, Known] = {}
        self._lost: set[str] = set()
        """Runs that this store had written when the server lost them."""
        self._bytes = 0

    def _forget_all(self) -> None:
        self._lost.update(self._known)
        self._known.clear()
        super()._forget_all()

    def append(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Store the segments, all or none, in one script."""
        self._append(owner_id, segments, gaps=False)

    def restore(self, owner_id: str, segments: Sequence[Segment]) -> None:
        """Append what is left of runs whose earlier events are lost (see `Restoring`)."""
        self._append(owner_id, segments, gaps=True)

    def _append(self, owner_id: str, segments: Sequence[Segment], *, gaps: bool) -> None:
        self._server.check_open()
        if not segments:
            return
        try:
            changes = self._write(owner_id, segments, gaps)
        except BaseException:
            # Whether anything was stored is not known. The next append of these runs asks the server.
            for segment in segments:
                self._known.pop(segment.run_id, None)
            raise
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        self._known.update({run_id: change.after() for run_id, change in changes.items()})
        self._bytes += sum(len(segment.body) for segment in segments)
        if self._bytes > TIDY_AT:
            self._bytes = 0
            self._tidy_in_passing(_MERGED)

    def _write(self, owner_id: str, segments: Sequence[Segment], gaps: bool) -> dict[str, Change]:
        run_ids = list(dict.fromkeys(segment.run_id for segment in segments))
        known: dict[str, Known | None] = {run_id: self._known.get(run_id) for run_id in run_ids}
        known.update(self._with_events([one for one in run_ids if gaps or known[one] is None], gaps))
        for _ in range(_TRIES):
            try:
                changes = changes_of(owner_id, segments, known, gaps=gaps)
            except (RunFenced, SeqGap):
                # What the store remembers may no longer hold: only the server may say that a run cannot be written.
                known = self._with_events(list(known), gaps)
                changes = changes_of(owner_id, segments, known, gaps=gaps)
            arguments = [part for change in changes.values() for part in change.arguments()]
            retain = self._settings.retain
            answer = self._step(APPEND, encoded(owner_id), retain, len(changes), *arguments)
            if not answer:
                return changes
            # Another writer has changed these runs, or the answer to an earlier append was lost.
            known.update(self._with_events([decoded(run_id) for run_id in answer[1:]], gaps))
        raise StoreFailed(path=self.url, reason="its runs change too quickly", hint="Look for who else writes them")

    def _with_events(self, run_ids: Sequence[str], gaps: bool) -> dict[str, Known | None]:
        found = self._look_up(run_ids)
        for run_id, known in found.items():
            if gaps and known is not None and known.run.lost:
                known.there = list(self._segments(run_id))
        return found

    def begin(self, run: Run, besides: Collection[str]) -> list[str]:
        """Begin a run, unless another one on its thread is running."""
        thread = b"" if run.thread_id is None else b"t" + encoded(run.thread_id)
        rest = run_row(run)[8]
        given = encoded(run.run_id), thread, encoded(run.owner or ""), rest, uuid.uuid4().hex
        return [decoded(one) for one in self._step(BEGIN, *given, *map(encoded, besides))]

    def withdraw(self, run_id: str, owner_id: str) -> bool:
        """Undo `begin` for a run that has no event yet."""
        return self._done(WITHDRAW, uuid.uuid4().hex, encoded(run_id), encoded(owner_id))

    def claim(self, run_id: str, owner_id: str, epoch: int) -> bool:
        """Make `owner_id` the owner at `epoch` + 1, if the run is still at `epoch`."""
        return self._done(CLAIM, encoded(run_id), encoded(owner_id), epoch, uuid.uuid4().hex)

    def _done(self, *step: Any) -> bool:
        [done] = self._step(*step)
        return bool(done)

    def request_stop(self, run_id: str, cause: str) -> Run | None:
        """Note the request to stop the run."""
        self._step(STOP, encoded(run_id), encoded(cause))
        return self.run(run_id)

    def owner_of(self, run_id: str) -> str | None:
        """Return the owner that may append to a run."""
        owner = super().owner_of(run_id)
        if owner is None and run_id in self._lost:
            # None would say that the run was deleted, and then its program may write no checkpoint.
            raise StoreFailed(path=self.url, reason=f"the server has lost run {run_id}", hint="Begin a new run")
        return owner
