"""LangGraph's stream writer, as nodes and tools get it: what they write is recorded, whatever the caller streams.

Rule: LangGraph makes the writer of a graph right after it has reported the graph's start, and merges it into the runtime
that stands in the config of the call. So at the start, that runtime is replaced by one whose `merge` returns a recording
writer. The config is a copy that LangGraph has made for this call, and `merge` returns a plain runtime: all that a program
can see of ours is a function in the place of the writer.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.runtime import DEFAULT_RUNTIME, Runtime

from ..journal.core import core_of
from .call_tree import Node
from .custom_events import keep_custom, tool_of

if TYPE_CHECKING:
    from ..journal.run_journal import RunJournal
    from .recorder import Recorder

logger = logging.getLogger("langchain_runjournal")

RUNTIME: Final = "__pregel_runtime"
"""The key of the runtime in the config of a call."""
_RESOLVED: Final = ("stream_modes", "store", "callback_manager")
"""Variables of LangGraph that show that it has read the runtime of the config, and made that config its own."""
_HAS_CONTEXT: Final = sys.version_info >= (3, 11)
"""Whether an asynchronous node has the config of its task in its context."""

_Write = Callable[[Any], None]


def observe_writer(recorder: Recorder, journal: RunJournal, node: Node, called: Mapping[str, Any]) -> None:
    """Record what is written to the stream writer of a graph that begins. `called`: the variables of its call. Does not
    raise."""
    try:
        config = called.get("config")
        if node.root.muted or config is None or any(name not in called for name in _RESOLVED):
            return
        asked = config.get("configurable") or {}
        sink = _Sink(recorder, journal, node, str(asked.get("checkpoint_ns") or ""))
        config["configurable"] = {**asked, RUNTIME: _observed(asked.get(RUNTIME, DEFAULT_RUNTIME), sink)}
    except Exception:
        logger.exception("could not observe the stream writer of run %s", node.run_id)


class _Sink:
    """Where the writes of one call of a graph are recorded."""

    def __init__(self, recorder: Recorder, journal: RunJournal, node: Node, namespace: str) -> None:
        self.recorder = recorder
        self._namespace = namespace
        self._core = core_of(journal)
        self._node = node
        self._around = var_child_runnable_config.get()

    def record(self, chunk: Any) -> None:
        """Record one chunk. Does not raise."""
        try:
            if not self.recorder.is_orphaned:
                config = self._config()
                around = self.recorder.tracker.find(getattr(config.get("callbacks"), "parent_run_id", None))
                inside = tool_of(self.recorder, around or self._node)
                keep_custom(self._core, inside, self._node, chunk, name=None, place=self._place(config))
        except Exception:
            logger.exception("could not record what was written to the stream of run %s", self._node.run_id)
            self._core.appender.miss()

    def _config(self) -> Mapping[str, Any]:
        """Return the config of the task that writes; an empty one if that is not known: on Python 3.10, asynchronous nodes
        have the context of the caller of the graph."""
        found = var_child_runnable_config.get()
        return found if found is not None and (_HAS_CONTEXT or found is not self._around) else {}

    def _place(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the place of a task as metadata. The namespace is the one that LangGraph itself gives to a chunk."""
        namespace = (config.get("configurable") or {}).get("checkpoint_ns")
        if namespace is None and self._namespace:
            namespace = f"{self._namespace}|"  # of some task in this graph
        return {**(config.get("metadata") or {}), "langgraph_checkpoint_ns": namespace}


class _ObservedRuntime(Runtime[Any]):
    """The runtime in the config of a graph that begins. LangGraph merges the runtime of the graph into it."""

    __slots__ = ("sinks",)
    sinks: tuple[_Sink, ...]

    def merge(self, other: Runtime[Any]) -> Runtime[Any]:
        """Return the runtime of the graph, with a writer that records."""
        merged = super().merge(other)
        try:
            return merged.override(stream_writer=_recording(merged.stream_writer, self.sinks))
        except Exception:
            logger.exception("could not observe a stream writer")
            return merged


def _observed(runtime: Any, sink: _Sink) -> _ObservedRuntime:
    if isinstance(runtime, Runtime):
        values = {one.name: getattr(runtime, one.name) for one in fields(runtime)}
    else:
        values = {"context": getattr(runtime, "context", None)}  # as LangGraph reads what a server has put there
    made = _ObservedRuntime(**values)
    object.__setattr__(made, "sinks", (*getattr(runtime, "sinks", ()), sink))
    return made


class _Passing(threading.local):
    """The chunks that this thread passes on: the writer of an inner graph may be that of the graph around it."""

    def __init__(self) -> None:
        self.chunks: list[tuple[object, object]] = []


_passing = _Passing()


def _recording(write: _Write, sinks: tuple[_Sink, ...]) -> _Write:
    """Return a writer that records what it passes on. A function, which a deep copy leaves alone."""

    def stream_writer(chunk: Any) -> None:
        known = _passing.chunks
        fresh = [one for one in sinks if not any(it is chunk and who is one.recorder for who, it in known)]
        for one in fresh:
            one.record(chunk)
        before = len(known)
        known += [(one.recorder, chunk) for one in fresh]
        try:
            write(chunk)
        finally:
            del known[before:]

    return stream_writer
