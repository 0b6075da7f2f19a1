"""Whether notifications arrive on one connection: it listens, and other connections of the store notify it as a trial.

Rule: a notification that arrives settles the question, whatever process sent it. That none arrives is known only after
several trials, each with an answer of the server behind it: a server that is slow, or away, answers nothing either.

A pooler in transaction mode must get no LISTEN. It would leave it on a connection of the server that it lends to others.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from ...errors import RunJournalError
from .connections import Connections
from .sessions import Session

logger = logging.getLogger("langchain_runjournal")

_LISTEN: Final = "LISTEN {s}"
_NOTIFY: Final = "SELECT {notify}"
_PID: Final = "SELECT pg_backend_pid()"
_TRIALS: Final = 5
_PAUSE: Final = 1.0
"""Seconds between two trials: each wakes all who listen to this journal."""
_LOOKS: Final = 5
"""How often to look for what a pooler does, each time after an answer. While others use the pooler, one look may miss it."""
NO_NOTIFY: Final = "the database has no LISTEN and NOTIFY"
POOLER: Final = "a pooler in transaction mode stands in between"
SILENCE: Final = f"{_TRIALS} trials did not arrive"


class Trial:
    """The question whether notifications arrive on a new connection."""

    def __init__(self, store: Connections, session: Session) -> None:
        self.heard = False
        """Whether one has arrived."""
        self.reason = "" if store._can_notify else NO_NOTIFY
        """Why none arrive, or "" as long as that is not known."""
        self._store = store
        self.session = session
        self._listens = False
        self._looks = 0
        self._sent = 0
        self._due = 0.0
        if session.is_direct and not self.reason:
            self._listen()

    def arrived(self) -> None:
        """Note that a notification has arrived."""
        if not self.session.is_shared:  # there, those that arrive were not meant for this connection
            self.heard, self.reason = True, ""

    def go_on(self) -> None:
        """Do what is due, after the server has answered on the connection. Raises errors of that connection."""
        if self.session.is_shared and not self.reason:
            self.heard, self.reason = False, POOLER
        if self.heard or self.reason or time.monotonic() < self._due:
            return
        if self._sent >= _TRIALS:
            self.reason = SILENCE
            return
        if not self._listens:
            if self._is_lent():
                self.session.is_shared, self.reason = True, POOLER
                return
            self._looks += 1
            if self._looks < _LOOKS:
                return
            self._listen()
        try:
            self._store._call(self._notify)
            self._sent += 1
        except RunJournalError as exc:  # this connection still answers: the next trial may succeed
            logger.debug("cannot notify %s", self._store.url, exc_info=exc)
        self._due = time.monotonic() + _PAUSE

    def _listen(self) -> None:
        self._begin()
        self.session.execute(self._store._sql(_LISTEN))
        self._listens = True

    def _notify(self, other: Session) -> None:
        other.execute(self._store._sql(_NOTIFY)).close()

    def _is_lent(self) -> bool:
        """Return whether the pooler lends the connection of the server, which this session had last, to another session."""
        mine = self._pid(self.session)

        def work(other: Session) -> bool:
            with other.transaction():
                if self._pid(other) == mine:
                    return True
                self._begin()
                return self._pid(self.session) != mine

        return self._store._call(work)

    def _pid(self, session: Session) -> int:
        return int(self._store._row(session, _PID)[0])

    def _begin(self) -> None:
        self.session.deadline = time.monotonic() + self._store._address.patience
