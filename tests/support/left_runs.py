"""Runs that a dead process has left, written by hand: what `kill -9` leaves of a run that had said a few words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_runjournal import Event, RunJournal

Journals = Callable[..., RunJournal]


def begin(journal: RunJournal, run_id: str, thread_id: str = "t", graph: str | None = "agent", **metadata: Any) -> None:
    """Begin a run that is asked "<id>?" and has said "<id> ". An attached graph of this name owns it, or only a handler
    recorded it."""

    def put(kind: Any, data: dict[str, Any], call_id: str | None = None) -> None:
        journal.append(Event(run_id=run_id, kind=kind, data=data, call_id=call_id))

    about = {"runjournal_graph": graph, **metadata} if graph is not None else metadata
    put("run.start", {"thread_id": thread_id, "name": graph or "agent", "metadata": about})
    asked = {"type": "human", "data": {"type": "human", "content": f"{run_id}?", "id": f"id of {run_id}"}}
    put("llm.human.input", {"message": asked})
    put("llm.start", {"model": "m", "role": "answer"}, f"call of {run_id}")
    put("llm.ai.delta", {"text": f"{run_id} "}, f"call of {run_id}")
    journal.flush()


def leave(journals: Journals, *run_ids: str, thread_id: str = "t", graph: str | None = "agent", **options: Any) -> None:
    """Leave such runs, one after the other, by a process that is dead. `options`: the options of its journal."""
    journal = journals(**options)
    for run_id in run_ids:
        begin(journal, run_id, thread_id, graph)
    journal.close()


def words_of(*run_ids: str) -> list[str]:
    """Return what a thread holds of such runs after their settlement, as `shown` writes it."""
    return [line for run_id in run_ids for line in (f"U+ {run_id}?", f"A~ {run_id} ")]
