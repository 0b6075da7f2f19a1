"""Which run writes a checkpoint.

Rule: LangGraph passes the config of a call to the checkpointer unchanged, and its callbacks with it: the very object that
the run was begun with, or, for a graph inside of another one, the callbacks of the surrounding task. A settlement, or an
update of the state by hand, has no callbacks of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..capture.handler import JournalCallbackHandler
from ..capture.recorder import Recorder, recorder_of

if TYPE_CHECKING:
    from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata

    from ..capture.call_tree import Root
    from ..messages.message_data import Data
    from .saver import JournalSaver

FACTS: Final = frozenset({"checkpoint_id", "checkpoint_ns", "source", "step"})
"""What `run.checkpoint` says of each checkpoint that a run has written, for readers; settling does not need it."""
_OF_RUNS: Final = ("input", "loop", "fork")
"""The sources of checkpoints that a run writes. Another source, "update", is an update of the state by hand."""


def may_be_writing(saver: JournalSaver, thread_id: str, config: Mapping[str, Any]) -> list[Root]:
    """Return the run that writes a checkpoint. Where that is ambiguous, return all runs that it may be."""
    capture = recorder_of(saver.journal)
    found = _called(capture, thread_id, config.get("callbacks")) or capture.threads.oldest(thread_id, saver)
    return [found] if found is not None else capture.threads.recorded(thread_id)


def record_checkpoint(
    saver: JournalSaver, thread_id: str, config: Mapping[str, Any], checkpoint: Checkpoint, metadata: CheckpointMetadata
) -> None:
    """Record that a checkpoint is stored, and whether its state holds the writes of tasks of the outermost graph.

    LangGraph applies the writes of all tasks of a superstep at once: the checkpoint "loop" of superstep N holds them all.
    """
    capture, namespace, source = recorder_of(saver.journal), _namespace(config), metadata.get("source")
    about: Data = {
        "checkpoint_id": checkpoint["id"],
        "checkpoint_ns": namespace,
        "source": source,
        "step": metadata.get("step"),
    }
    writer = _certainly_writing(saver, thread_id, config) if source in _OF_RUNS else None
    if not namespace and source == "loop":
        capture.applied(saver, thread_id, checkpoint["id"], metadata.get("step"), writer, about)
    elif not namespace and source == "input":
        capture.checkpoint(saver, thread_id, "stored", checkpoint["id"], writer, about)
    else:
        capture.superstep(writer, about)


def _namespace(config: Mapping[str, Any]) -> str:
    return str(config["configurable"].get("checkpoint_ns") or "")


def _called(capture: Recorder, thread_id: str, callbacks: object) -> Root | None:
    found = capture.threads.called_with(thread_id, callbacks)
    if found is None:
        around = capture.tracker.find(getattr(callbacks, "parent_run_id", None))
        found = around.root if around is not None else None
    return found


def _certainly_writing(saver: JournalSaver, thread_id: str, config: Mapping[str, Any]) -> Root | None:
    """Return the run that writes a checkpoint, if its callbacks show that, and if the run has not ended."""
    capture, callbacks = recorder_of(saver.journal), config.get("callbacks")
    found = _called(capture, thread_id, callbacks)
    if found is None and any(handler.journal is saver.journal for handler in _ours(callbacks)):
        recorded = capture.threads.recorded(thread_id)
        found = recorded[0] if len(recorded) == 1 else None
    is_over = found is not None and found.over and (found.turn is None or found.turn.is_recorded)
    return None if is_over else found


def _ours(callbacks: Any) -> Iterator[JournalCallbackHandler]:
    handlers = callbacks if isinstance(callbacks, list) else getattr(callbacks, "handlers", ())
    return (one for one in handlers if isinstance(one, JournalCallbackHandler))
