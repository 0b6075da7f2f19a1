"""Writes to the state of a thread by a client.

Rule: LangGraph loses what is written while a run is at work. So a write holds the thread as a settlement does, and is
refused while a run is running or waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from langgraph.errors import InvalidUpdateError

from ...common.twins import run_async
from ...errors import RunJournalError
from ...events import Run, RunStatus
from ...settle.inapplicable_step import is_inapplicable
from ...settle.settlements import ActiveSettlement
from ...settle.thread_hold import ThreadHolds
from ..problems import Problem

if TYPE_CHECKING:
    from langgraph.types import StateUpdate

    from .thread_status import KnownThread
    from .threads import Threads

_BUSY: Final = "A run of the thread is running or waits to begin. Wait until it has ended, or cancel it, and write again."
_NOT_TAKEN: Final = "The graph does not take these values. Check them against its state (GET /assistants/{id}/schemas)."
_SPECIAL: Final = ("__start__", "__end__", "__input__", "__copy__")
"""Names that LangGraph takes in the place of a node."""
_CLIENTS: Final = (TypeError, ValueError, LookupError, AttributeError, NotImplementedError)
"""What LangGraph, a reducer or a router raises for values of another form."""


async def write_state(
    threads: Threads, known: KnownThread, place: Mapping[str, str], steps: Sequence[Sequence[StateUpdate]]
) -> dict[str, Any]:
    """Write values into a thread, behind its newest state or behind a place in it. Return the config of the new state."""
    name = threads.graph_for(known)
    reader = threads.reader(name)
    _check_nodes(reader.graph, steps)
    newest = known.newest
    if newest is not None and newest.status == RunStatus.RUNNING and (newest.epoch > 1 or await threads.is_abandoned(known)):
        # Its owner is dead, or was: a recovery may be at work on it.
        await threads.service.settle_abandoned()
    mine, holds = ActiveSettlement(), ThreadHolds(threads.journal, reader)
    try:
        await run_async(holds.enter(known.thread_id, mine))
        before = await _check_is_free(threads, known.thread_id)
        try:
            config: dict[str, Any] = await _write(reader, known.thread_id, place, steps)
        except RunJournalError:
            raise
        except InvalidUpdateError as exc:
            if all(one.as_node is not None for step in steps for one in step):
                raise Problem(422, _NOT_TAKEN) from exc
            raise Problem(
                422, f'Say in the name of which node to write: "as_node" must be one of: {_names(reader.graph)}.'
            ) from exc
        except _CLIENTS as exc:
            raise Problem(422, _NOT_TAKEN) from exc
        except Exception as exc:
            if is_inapplicable(exc):
                raise Problem(422, _NOT_TAKEN) from exc
            raise
        if _mark(before) != _mark(await _newest(threads, known.thread_id)):
            raise Problem(
                409, "A run began while the state was written. Read the state, and write again if it lacks your values."
            )
        state = await threads.state(name, {"thread_id": known.thread_id})
    finally:
        holds.exit(known.thread_id, mine)
    about: Any = {"is_left": bool(state.next), "created_at": known.created_at or threads.now()}
    run_id = None if before is None else before.run_id
    await threads.write(lambda rows: rows.note_write(known.thread_id, run_id, **about))
    return config


async def _write(reader: Any, thread_id: str, place: Mapping[str, str], steps: Sequence[Sequence[StateUpdate]]) -> Any:
    return await reader.write(thread_id, place.get("checkpoint_ns", ""), steps, place.get("checkpoint_id")).later()


async def _check_is_free(threads: Threads, thread_id: str) -> Run | None:
    """Return the newest run of a thread. Raise a `Problem` if a run is at work, or waits to begin."""
    newest = await _newest(threads, thread_id)
    if (newest is not None and newest.status == RunStatus.RUNNING) or await threads.is_waiting(thread_id):
        raise Problem(409, _BUSY)
    return newest


async def _newest(threads: Threads, thread_id: str) -> Run | None:
    found = await threads.journal.aruns(thread_id, limit=1)
    return found[0] if found else None


def _mark(run: Run | None) -> tuple[str, RunStatus] | None:
    return None if run is None else (run.run_id, run.status)


def _check_nodes(graph: Any, steps: Sequence[Sequence[StateUpdate]]) -> None:
    for step in steps:
        for one in step:
            if one.as_node is not None and one.as_node not in (*graph.nodes, *_SPECIAL):
                raise Problem(422, f'The graph has no node {one.as_node[:40]!r}. "as_node" may be: {_names(graph)}.')


def _names(graph: Any) -> str:
    return ", ".join(sorted(name for name in graph.nodes if not name.startswith("__")))
