"""The connections of a store to its server: one appends, up to eight do everything else; and what a fork does to them.

Rule: a verb is one statement, or one transaction at READ COMMITTED. A statement on a lost connection is repeated once on a
new one, so each verb must give the same result when it is done twice.

After a failover the old server may live on, and only read. So all connections are given up when one is lost, when a server
says that it only reads, and when the connection that appends is made anew: each new one resolves the address again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

from ...errors import StoreClosed, StoreFailed, WouldDeadlock
from .faults import NOT_PREPARED, READ_ONLY, connecting, is_lost, may_repeat, state_of, translated
from .opening import prepare
from .sessions import Address, Session, connect, disown, drop, is_usable

logger = logging.getLogger("langchain_runjournal")

_MOST: Final = 8
_KEPT: Final = 3
_IN_USE: Final = 3.0
"""The seconds after a read or a write in which a store that gets no notifications asks often."""
_IS_OURS: Final = "EXISTS (SELECT FROM {{s}}.facts WHERE name = 'store_id' AND value = '{store_id}')"
_REPLACED: Final = "its schema was replaced, and is the store of another journal now"
_T = TypeVar("_T")


class Connections:
    """One schema of one database, open for reading and writing from any thread."""

    def __init__(self, address: Address) -> None:
        self.path: Path | None = None
        self.url = address.url
        self.busy_timeout = address.busy_timeout
        self._address = address
        self._closed = False
        self._may_prepare = True
        self._statements: dict[str, bytes] = {}
        self._writer: Session | None = None
        self._begin()
        session = self._connect()
        try:
            with self._translated():
                self.store_id, self._can_notify = prepare(session, address)
        except BaseException:
            drop(session)
            raise
        self._writer = session

    def _begin(self) -> None:
        """Set what belongs to one process: at the start, and again in a forked child."""
        self._lock = threading.RLock()
        self._rest_lock = threading.Lock()
        self._at_rest = threading.Condition(self._rest_lock)
        self._writer = None
        self._appending = False
        self._idle: list[Session] = []
        self._generation = 0
        self._busy: set[Session] = set()
        self._lent = 0
        self._used_at = time.monotonic()

    def _is_in_use(self) -> bool:
        """Return whether anybody waits for what others write: it was read or written lately. For subclasses as well."""
        return time.monotonic() - self._used_at < _IN_USE

    def _sql(self, statement: str) -> bytes:
        """Return a statement with the schema in place of `{s}`, the wake-up of others in place of `{notify}`, and the
        condition that this is the store which was opened in place of `{is_ours}`.

        The name of the schema consists of letters, digits and underscores."""
        found = self._statements.get(statement)
        if found is None:
            schema = self._address.schema
            notify = f"pg_notify('{schema}', '')" if self._can_notify else "NULL"
            text = statement.replace("{is_ours}", _IS_OURS.format(store_id=self.store_id.hex()))
            text = text.replace("{s}", f'"{schema}"').replace("{notify}", notify)
            found = self._statements[statement] = text.encode()
        return found

    def _check_store(self, session: Session) -> None:
        """Raise `StoreFailed` if the schema was dropped and made anew since this store was opened.

        The spool of a journal belongs to the store that it was opened on. So a journal that went on in another one would
        lose its last events to a kill.
        """
        if not self._row(session, "SELECT {is_ours}")[0]:
            raise StoreFailed(path=self.url, reason=_REPLACED, hint="Restore the schema, or open the journal again")

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self.url, self._address.secret)

    def _connect(self) -> Session:
        self._check_open()
        generation = self._generation
        with connecting(self.url, self._address.secret):
            session = connect(self._address)
        session.generation = generation
        if not self._may_prepare:
            session.prepare_threshold = None
        return session

    # --- work on a connection -----------------------------------------------------------------------------------------

    def _call(self, work: Callable[[Session], _T]) -> _T:
        """Do something on a connection that no other thread uses."""
        return self._repeated(self._borrowed, work)

    def _call_knowing(self, work: Callable[[Session, bool], _T]) -> _T:
        """Do something on a connection that no other thread uses. Tell it whether it may have been done already."""
        attempts = count()
        return self._call(lambda session: work(session, next(attempts) > 0))

    def _append_with(self, work: Callable[[Session], _T]) -> _T:
        """Do something on the connection that appends."""
        return self._repeated(self._at_writer, work)

    def _repeated(self, lent: Callable[[], AbstractContextManager[Session]], work: Callable[[Session], _T]) -> _T:
        with self._translated():
            try:
                with lent() as session:
                    return work(session)
            except Exception as exc:
                if not may_repeat(exc):
                    raise
                if is_lost(exc):
                    self._drop_idle()  # the server has restarted, and all connections are as dead
                logger.debug("repeating a statement on %s", self.url, exc_info=exc)
            with lent() as session:
                return work(session)

    @contextmanager
    def _at_writer(self) -> Iterator[Session]:
        with self._lock:
            if self._appending:
                # A signal handler or a finalizer runs in the middle of an append of this thread.
                raise WouldDeadlock(url=self.url, where="in a signal handler or a finalizer that interrupts an append")
            if self._closed:
                raise StoreClosed(url=self.url)
            session = self._writer
            if session is None or not self._is_current(session):
                if session is not None:
                    drop(session)
                self._drop_idle()  # they may lead to another server than the new connection
                session = self._writer = self._connect()
            self._appending = True
            try:
                with self._used(session):
                    yield session
            finally:
                self._appending = False
                if not is_usable(session):
                    self._writer = None

    def _is_current(self, session: Session) -> bool:
        """Return whether the next call can use a connection, and it leads to where the newest ones lead."""
        return is_usable(session) and session.generation == self._generation

    @contextmanager
    def _borrowed(self) -> Iterator[Session]:
        session = self._borrow()
        try:
            with self._used(session):
                yield session
        finally:
            self._give_back(session)

    @contextmanager
    def _used(self, session: Session) -> Iterator[None]:
        session.deadline = time.monotonic() + self._address.patience
        try:
            yield
        except BaseException as exc:
            state = state_of(exc)
            if state == READ_ONLY:
                self._drop_idle()
            if state in NOT_PREPARED:
                self._may_prepare = False  # a pooler that shows itself by nothing else
            if is_lost(exc) or state == READ_ONLY or state in NOT_PREPARED or not is_usable(session):
                # The next attempt resolves the address anew: another server may have taken over.
                drop(session)
            raise

    def _borrow(self) -> Session:
        with self._at_rest:
            if self._closed:
                raise StoreClosed(url=self.url)
            if not self._at_rest.wait_for(lambda: self._lent < _MOST, timeout=2 * self._address.patience):
                reason = f"all {_MOST} connections of this store are in use"
                raise StoreFailed(path=self.url, reason=reason, hint="Look for statements that wait for a lock")
            self._lent += 1
            session = self._idle.pop() if self._idle else None
        try:
            if session is not None and not self._is_current(session):
                drop(session)
                session = None
            if session is None:
                session = self._connect()
        except BaseException:
            with self._at_rest:
                self._lent -= 1
                self._at_rest.notify()
            raise
        self._busy.add(session)
        return session

    def _give_back(self, session: Session) -> None:
        with self._at_rest:
            self._busy.discard(session)
            self._lent -= 1
            self._at_rest.notify_all()
            is_good = self._is_current(session) and not session.is_read_only
            if not self._closed and is_good and len(self._idle) < _KEPT:
                self._idle.append(session)
                return
        drop(session)

    def _drop_idle(self) -> None:
        """Give up all connections, those that are in use when they are given back."""
        with self._at_rest:
            self._generation += 1
            idle, self._idle = self._idle, []
        for session in idle:
            drop(session)

    # --- forks and the end --------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Wait until no operation is running, so that the child does not inherit half of one."""
        patience = 2 * self._address.patience
        if not self._lock.acquire(timeout=patience):
            logger.warning("the process forks while %s waits for its server: open a new journal in the child", self.url)
        self._at_rest.acquire()
        self._at_rest.wait_for(lambda: not self._lent, timeout=patience)

    def after_fork(self, *, child: bool) -> None:
        """Release the locks. In the child, replace them, and leave the connections to the parent."""
        if child:
            for session in self._sessions():
                disown(session)
            self._begin()
        else:
            self._at_rest.release()
            with contextlib.suppress(RuntimeError):  # `before_fork` timed out before it had this lock
                self._lock.release()

    def _sessions(self) -> list[Session]:
        """Return all connections that this process has open. For subclasses as well."""
        return [*self._idle, *self._busy, *([self._writer] if self._writer is not None else [])]

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            with self._at_rest:
                self._closed = True
            self._drop_idle()
            writer, self._writer = self._writer, None
            if writer is not None:
                drop(writer)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(url=self.url)

    def _row(self, session: Session, statement: str, values: Any = None) -> tuple[Any, ...]:
        """Return the only row of a statement."""
        row = session.execute(self._sql(statement), values).fetchone()
        if row is None:
            raise AssertionError("a statement without a row")
        return row
