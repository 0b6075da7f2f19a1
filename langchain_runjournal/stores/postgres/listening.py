"""Wake-ups: one connection that listens, in a thread of its own, and a slow question behind it.

Rule: a notification only says "look". It may be lost, so the thread asks the server once a second for its snapshot: whatever
has been committed since, the answer is another one. Numbers of rows would not do, because transactions commit in any order.
Until a notification has arrived (`Trial`), the thread asks twenty times a second, while the journal is used. So a connection
on which none arrive makes the journal slower, and nothing waits for one.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psycopg

from ...errors import RunJournalError
from .connections import Connections
from .faults import Stuck
from .sessions import Session, drop
from .trial import Trial

logger = logging.getLogger("langchain_runjournal")

_SLOW: Final = 1.0
_QUICK: Final = 0.05
_RETRY: Final = 0.1
_RETRY_MOST: Final = 5.0
_SNAPSHOT: Final = (
    "SELECT pg_current_snapshot()::text, pg_is_in_recovery() OR current_setting('transaction_read_only')::bool,"
    " pg_backend_pid()"
)
_POLLS: Final = (
    "no notifications arrive from %s (%s): the journal asks it %d times a second instead. Give the address of the server"
    " itself, or of a pooler in session mode, so that a stop and a follower need not wait for that"
)
_HEARD: Final = "notifications arrive from %s after all: the journal asks it once a second from now on"


class Listening(Connections):
    """The part of a `PostgresStore` that notices what other writers do."""

    def _begin(self) -> None:
        super()._begin()
        self._changes = 0
        self._snapshot = ""
        self._listener: _Listener | None = None
        self._listener_lock = threading.Lock()

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` soon after another writer has written (see `Listening`)."""
        self._check_open()
        with self._listener_lock:
            if self._listener is None:
                self._listener = _Listener(self, wake)
            else:
                self._listener.wake = wake

    def changed(self) -> int:
        """Return a number that changes when another writer has written. It takes no time while a thread listens."""
        self._check_open()
        self._used_at = time.monotonic()  # who asks waits for what others write
        if self._listener is None:
            self._call(self._ask)
        return self._changes

    def _ask(self, session: Session) -> bool:
        """Ask for the snapshot. Return whether anything was committed since the last time."""
        snapshot, is_read_only, pid = self._row(session, _SNAPSHOT)
        session.is_shared |= pid != session.server_pid
        if is_read_only and session.generation == self._generation:
            self._drop_idle()  # another server may have taken over, where the next connections lead
        if snapshot == self._snapshot:
            return False
        self._snapshot = snapshot
        self._changes += 1
        return True

    def _sessions(self) -> list[Session]:
        listener = self._listener
        return [*super()._sessions(), *([listener.session] if listener is not None and listener.session is not None else [])]

    def after_fork(self, *, child: bool) -> None:
        """Release the locks. The child has no thread that listens."""
        listener = self._listener
        super().after_fork(child=child)
        if child and listener is not None:
            listener.close_pipe()

    def close(self) -> None:
        """End the thread that listens, and close all connections."""
        with self._listener_lock:
            listener = self._listener
        if listener is not None:
            listener.stop()
        super().close()


class _Listener:
    """The thread that listens for one store."""

    def __init__(self, store: Listening, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.session: Session | None = None
        self._store = store
        self._stopping = False
        self._retry = _RETRY
        self.trial: Trial | None = None
        self._polls = False
        """Whether the log says that no notifications arrive."""
        self._out, self._in = os.pipe()
        self._thread = threading.Thread(target=self._run, name="runjournal-listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for its end."""
        self._stopping = True
        with suppress(OSError):
            os.write(self._in, b"x")
        if self._thread is not threading.current_thread():
            self._thread.join(2 * self._store.busy_timeout + _SLOW)
        self.close_pipe()

    def close_pipe(self) -> None:
        """Close the pipe that wakes the thread."""
        for end in (self._out, self._in):
            with suppress(OSError):
                os.close(end)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._listen()
            except (psycopg.Error, Stuck, OSError, RunJournalError) as exc:
                logger.debug("listening anew on %s", self._store.url, exc_info=exc)
            except Exception:
                logger.exception("unexpected error while listening on %s; listening anew", self._store.url)
            finally:
                if self.session is not None:
                    drop(self.session)
                    self.session = None
            self._sleep(self._retry)
            self._retry = min(_RETRY_MOST, self._retry * 2)

    def _listen(self) -> None:
        """Listen until the connection is lost or the store is closed."""
        store = self._store
        session = self.session = store._connect()
        trial = self.trial = Trial(store, session)
        if not session.is_read_only:
            self._retry = _RETRY
        self._tell()  # of what was written while no connection listened
        due = time.monotonic()
        while not self._stopping and session.generation == store._generation:
            is_due = time.monotonic() >= due
            if is_due:
                session.deadline = time.monotonic() + store._address.patience
                if store._ask(session):
                    self._tell()
            if self._received(session, trial):
                store._changes += 1
                self._tell()
            if is_due:
                trial.go_on()
                due = time.monotonic() + (_SLOW if trial.heard or not store._is_in_use() else _QUICK)
            self._report(trial)
            self._sleep(due - time.monotonic(), session)

    def _report(self, trial: Trial) -> None:
        """Log whether notifications arrive, if that is not what the log says."""
        if trial.reason and not self._polls:
            self._polls = True
            logger.warning(_POLLS, self._store.url, trial.reason, round(1 / _QUICK))
        elif trial.heard and self._polls:
            self._polls = False
            logger.info(_HEARD, self._store.url)

    def _received(self, session: Session, trial: Trial) -> bool:
        """Take the notifications that have arrived. Return whether one is of another writer."""
        pids = {notify.pid for notify in session.notifies(timeout=0)}
        if pids:
            trial.arrived()
        writer = self._store._writer
        return not pids <= {None if writer is None or writer.closed else writer.server_pid}

    def _sleep(self, seconds: float, session: Session | None = None) -> None:
        """Wait until something arrives on the connection, or until the store is closed."""
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        if session is not None:
            poll.register(session.fileno(), select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)

    def _tell(self) -> None:
        try:
            self.wake()
        except Exception:
            logger.exception("the wake-up of a journal on %s failed", self._store.url)
