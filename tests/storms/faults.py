"""System calls that fail: no space, no file handles, no permission, a broken disk, at any call, for a while.

A patch of `os`, `mmap`, `sqlite3`, `psycopg` and `redis` makes the calls of Python fail; a connection to a server breaks
before the server has done something, or after that. Limits of the process (the size of a file, the number of file handles)
make the calls of SQLite and of libpq fail. In some cases, the server ends connections as well.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import resource
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import redis
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import Event, RunJournal, attach, errors
from tests.storms._judge import Case, Wrong
from tests.storms.writers import _check_run, text_of
from tests.support.places import Place

CODES = (errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EACCES, errno.EINTR, errno.ENOMEM, errno.EROFS)
CALLS = ("open", "ftruncate", "posix_fallocate", "unlink", "rename", "replace", "link", "fsync", "stat", "fstat", "listdir")
THREADS = 2


class Faults:
    """A context manager that makes system calls fail."""

    def __init__(self, draw: random.Random, chance: float) -> None:
        self._draw, self._chance = draw, chance
        self.on = False
        self.count = 0
        names = draw.sample(CALLS, draw.randrange(1, len(CALLS) + 1))
        for name in names:
            setattr(os, name, self._failing(getattr(os, name)))
        mmap.mmap = self._mapped(mmap.mmap)  # type: ignore[misc, assignment]
        sqlite3.connect = self._connected(sqlite3.connect)  # type: ignore[assignment]
        self._break_psycopg()
        self._break_redis()

    def _strikes(self) -> bool:
        strikes = self.on and self._draw.random() < self._chance
        self.count += strikes
        return strikes

    def _failing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def fail(*args: Any, **kwargs: Any) -> Any:
            if self._strikes():
                code = self._draw.choice(CODES)
                raise OSError(code, os.strerror(code))
            return call(*args, **kwargs)

        return fail

    def _mapped(self, kind: Any) -> Any:
        strikes, draw = self._strikes, self._draw

        class Mapped(kind):  # type: ignore[misc]
            def __new__(cls, *args: Any, **kwargs: Any) -> Any:
                if strikes():
                    code = draw.choice((errno.ENOMEM, errno.EACCES))
                    raise OSError(code, os.strerror(code))
                return kind(*args, **kwargs)

        return Mapped

    def _connected(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        faults, draw = self, self._draw

        class Failing(sqlite3.Connection):
            def execute(self, sql: str, *args: Any) -> Any:
                if faults._strikes():
                    said = draw.choice(
                        ("disk I/O error", "database or disk is full", "database is locked", "unable to open database file")
                    )
                    raise sqlite3.OperationalError(said)
                return super().execute(sql, *args)

            def executemany(self, sql: str, *args: Any) -> Any:
                if faults._strikes():
                    raise sqlite3.OperationalError("database or disk is full")
                return super().executemany(sql, *args)

        def fail(*args: Any, **kwargs: Any) -> Any:
            if faults._strikes():
                raise sqlite3.OperationalError("unable to open database file")
            return connect(*args, **{"factory": Failing, **kwargs})

        return fail

    def _break_psycopg(self) -> None:
        connect, wait = psycopg.Connection.connect.__func__, psycopg.Connection.wait  # type: ignore[attr-defined]

        def refused(cls: Any, *args: Any, **kwargs: Any) -> Any:
            if self._strikes():
                raise psycopg.OperationalError("connection refused")
            return connect(cls, *args, **kwargs)

        def broken(connection: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._strikes():
                return wait(connection, *args, **kwargs)
            try:
                if self._draw.random() < 0.5:
                    wait(connection, *args, **kwargs)
            finally:
                connection.pgconn.finish()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        psycopg.Connection.connect = classmethod(refused)  # type: ignore[assignment]
        psycopg.Connection.wait = broken  # type: ignore[method-assign]

    def _break_redis(self) -> None:
        for name in ("connect", "send_packed_command", "read_response"):
            call = getattr(redis.connection.AbstractConnection, name, None) or getattr(redis.Connection, name)
            setattr(redis.Connection, name, self._cut(call))

    def _cut(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def cut(connection: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._strikes():
                return call(connection, *args, **kwargs)
            try:
                if self._draw.random() < 0.5:
                    call(connection, *args, **kwargs)
            finally:
                connection.disconnect()
            raise redis.ConnectionError("Connection closed by server.")

        return cut


@contextmanager
def limited(draw: random.Random, how: str) -> Iterator[None]:
    """Make SQLite's own calls fail as well: a file may not grow beyond some size, or no more files may be opened."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    kind, most = {
        "size": (resource.RLIMIT_FSIZE, draw.choice((0, 4_096, 100_000, 5 << 20))),
        "files": (resource.RLIMIT_NOFILE, len(os.listdir("/proc/self/fd")) - 1 + draw.randrange(3)),
        "none": (resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    }[how]
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def session(place: Place, seed: str, ledger: memoryview, facts: memoryview) -> None:
    """Append and flush while calls fail, then without faults, and end. `ledger`: the appended events of each thread, then
    the events that a flush has made durable. `facts`: whether the journal closed without an error, how many calls
    failed, whether a barrier raised."""
    draw = random.Random(seed)
    said: list[str] = []  # written at the end, because until then the size of files is limited
    # Import modules that are imported at first use, before file handles are short.
    with RunJournal(":memory:") as other:
        ask(other, draw, said)
    faults = Faults(random.Random(f"{seed}f"), draw.choice((0.02, 0.1, 0.5)))
    how = draw.choice(("none", "none", "size", "files"))
    while True:
        faults.on = draw.random() < 0.3
        try:
            journal = place.open(busy_timeout=0.5)
            break
        except errors.RunJournalError as exc:
            faults.on = False
            said.append(f"refused: {exc}")
    stop = threading.Event()

    def work(thread: int) -> None:
        for number in range(1, 1_000_000):
            if stop.is_set():
                return
            run_id = f"w-{thread}"
            journal.append(Event(run_id=run_id, kind="llm.ai.delta", data={"text": text_of(run_id, number)}))
            ledger[thread] = number
            if not number % 20:
                time.sleep(0.0005)

    def flush() -> None:
        appended = list(ledger[:THREADS])
        try:
            journal.flush(timeout=draw.choice((0.2, 2)))
        except errors.RunJournalError as exc:
            facts[2] = 1
            said.append(f"flush: {type(exc).__name__}: {exc}")
        else:
            for thread, count in enumerate(appended):
                ledger[THREADS + thread] = count

    threads = [threading.Thread(target=work, args=(thread,), daemon=True) for thread in range(THREADS)]
    faults.on = False
    with limited(draw, how):
        faults.on = draw.random() < 0.8
        for thread in threads:
            thread.start()
        for _ in range(draw.randrange(1, 4)):
            time.sleep(draw.uniform(0, 0.1))
            flush()
            if draw.random() < 0.4:
                ask(journal, draw, said)
            if draw.random() < 0.3:
                try:
                    journal.runs()
                    journal.prune(keep_last=1_000)
                    journal.run("w-0")
                except errors.RunJournalError as exc:
                    said.append(f"{type(exc).__name__}: {exc}")
        facts[1] = faults.count + (how != "none")
    faults.on = False
    time.sleep(draw.choice((0, 0.05, 0.3)))
    stop.set()
    for thread in threads:
        thread.join()
    if draw.random() < 0.7:
        try:
            journal.close()
        except errors.RunJournalError as exc:
            facts[2] = 1
            said.append(f"close: {type(exc).__name__}: {exc}")
        else:
            facts[0] = 1
    print(*said, "at its end", sep="\n", flush=True)


def ask(journal: RunJournal, draw: random.Random, said: list[str]) -> None:
    """Ask an agent, which continues whatever happens to the journal. A barrier may raise one of our errors."""
    model = GenericFakeChatModel(messages=iter([AIMessage("one two three")]))
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state, config: {"messages": [model.invoke(state["messages"], config)]})
    graph.add_edge(START, "model")
    attached = attach(graph.compile(checkpointer=InMemorySaver()), journal)
    begun = time.monotonic()
    try:
        list(attached.stream({"messages": [("user", "hi")]}, {"configurable": {"thread_id": f"t{draw.random()}"}}))
    except errors.RunJournalError as exc:
        said.append(f"agent: {type(exc).__name__}: {exc}")
    if time.monotonic() - begun > 20:
        raise Wrong(f"an agent took {time.monotonic() - begun:.0f} s")


def storm(case: Case) -> None:
    """Run a session in which calls fail, and check the result in a process in which no call fails."""
    ledger, facts = case.shared(2 * THREADS), case.shared(3)
    seed = f"{case.seed}:{case.number}"
    pid = case.fork(lambda: session(case.place, seed, ledger, facts))
    for _ in range(case.random.randrange(4) if not case.place.is_local else 0):
        time.sleep(case.random.uniform(0, 0.2))
        case.counts["ended connections"] += case.place.end_connections()
    if case.random.random() < 0.3:
        case.kill(pid, case.random.uniform(0.01, 0.4))
    elif (code := case.end_of(pid)) != 0:
        raise Wrong(f"the session ended with {code}")
    closed, failed, complained = facts
    appended, vouched = list(ledger[:THREADS]), list(ledger[THREADS:])
    case.counts["sessions"] += 1
    case.counts["failed calls"] += failed
    case.counts["sessions with an error at a barrier"] += complained
    with case.place.open() as journal:
        for thread in range(THREADS):
            case.counts["events"] += _check_run(journal, f"w-{thread}", vouched[thread])
            if closed and not complained:
                _check_run(journal, f"w-{thread}", appended[thread])
