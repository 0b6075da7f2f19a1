"""What `runjournal serve` serves: a graph with its journal and its checkpointer, opened and closed in the right order.

Rule: the journal is closed before the checkpointer. On closing, the journal stops its runs and settles their threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.base import BaseCheckpointSaver

from ..common.masked_urls import masked
from ..errors import InvalidArgument
from ..journal.run_journal import RunJournal
from ..settle.attach import attach
from ..settle.attached_graph import attachments_of
from ..stores import path_of

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

THREADS: Final = "threads.db"
RUNS: Final = "runs.db"
_POSTGRES: Final = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class Served:
    """A graph that is ready to be served."""

    graph: Pregel[Any, Any, Any, Any]
    """The graph, attached to `journal`."""
    journal: RunJournal
    checkpointer: str
    """Where the threads are, in words."""


@asynccontextmanager
async def opened(
    graph: Pregel[Any, Any, Any, Any], *, journal: str | None = None, checkpointer: str | None = None
) -> AsyncIterator[Served]:
    """Open what a graph needs. What it brings is used: an attached graph its journal, a compiled one its checkpointer.

    Raise `InvalidArgument` if the graph brings another journal than `journal`, or a checkpointer without async methods.
    """
    async with AsyncExitStack() as stack:
        where = "the graph's own"
        if checkpointer is not None or not isinstance(graph.checkpointer, BaseCheckpointSaver):
            where = checkpointer or THREADS
            graph.checkpointer = await stack.enter_async_context(_saver(where))
            where = masked(where)
        await _check_is_async(graph)
        own = _journal_of(graph, journal)
        opened_journal = await stack.enter_async_context(own or RunJournal(journal or RUNS))
        attached = graph if own is not None else attach(graph, opened_journal)
        await opened_journal.arecover(attached)  # settles what killed servers left
        yield Served(attached, opened_journal, where)


def _journal_of(graph: Pregel[Any, Any, Any, Any], url: str | None) -> RunJournal | None:
    """Return the journal that an attached graph brings."""
    journals = [one.journal for one in attachments_of(graph)]
    if not journals:
        return None
    if url is not None and url != journals[-1].url:
        hint = f"The graph is attached to {masked(journals[-1].url)}: leave the journal out, or give that one"
        raise InvalidArgument(name="journal", expected="the journal of the graph", value=masked(url), hint=hint)
    return journals[-1]


@asynccontextmanager
async def _saver(url: str) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """Open a checkpointer: a SQLite file, or a Postgres database."""
    if url.startswith(_POSTGRES):
        try:
            from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        except ModuleNotFoundError as exc:
            hint = 'Use `pip install langgraph-checkpoint-postgres "psycopg[binary]"`, or give a path'
            raise InvalidArgument(
                name="checkpointer", expected="one whose package is installed", value=masked(url), hint=hint
            ) from exc
        import psycopg

        async with AsyncExitStack() as stack:
            try:
                postgres = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url))
                await postgres.setup()
            except psycopg.Error as exc:
                hint = "Start the database, and look at the address, the user, the password and the rights"
                expected = f"a database that can be used ({type(exc).__name__})"
                raise InvalidArgument(name="checkpointer", expected=expected, value=masked(url), hint=hint) from None
            yield postgres
        return
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    path = path_of(url)
    try:
        # First without the thread of the saver, which would print a traceback of its own.
        with closing(sqlite3.connect(path)) as probe:
            probe.execute("PRAGMA schema_version")
    except sqlite3.Error as exc:
        expected = f"a SQLite file, or the path of a new one in a directory that exists ({exc})"
        raise InvalidArgument(name="checkpointer", expected=expected, value=str(path)) from exc
    async with AsyncSqliteSaver.from_conn_string(str(path)) as sqlite:
        yield sqlite


async def _check_is_async(graph: Pregel[Any, Any, Any, Any]) -> None:
    saver: Any = graph.checkpointer
    try:
        await saver.aget_tuple({"configurable": {"thread_id": "runjournal", "checkpoint_ns": ""}})
    except NotImplementedError:
        hint = "Compile the graph with its asynchronous twin, such as AsyncSqliteSaver, or give another one"
        name = type(saver).__name__
        raise InvalidArgument(
            name="checkpointer", expected="a checkpointer with async methods", value=name, hint=hint
        ) from None
