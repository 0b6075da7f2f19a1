"""A thread that is written through its checkpointer alone, without the graph.

Rule: without the graph, the channels of the thread are unknown. Only a plain `messages` channel can be written, and only if
no other write is pending. Otherwise `NoMessages` says that the graph is needed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.base.id import uuid6

from ..common.twins import Effect, Effects
from ..errors import NoMessages

_MESSAGES: Final = "messages"
_TASKS: Final = "__pregel_tasks"
_WAYS: Final = "branch:to:"
_OURS: Final = ("__error__", "__no_writes__")


class BareThread:
    """One thread, read and written through its checkpointer alone."""

    def __init__(self, saver: BaseCheckpointSaver[Any], thread_id: str) -> None:
        self._saver = saver
        self._what = f"Thread {thread_id!r}"
        self._config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}

    def add(self, ours: BaseMessage, planned: Callable[[list[Any], Any], list[Any]]) -> Effects[bool]:
        """Add a message, behind the messages that `planned` returns for the thread. Return False if the thread waits for a
        human, or holds the message already."""
        saver, config = self._saver, self._config
        found = yield Effect(partial(saver.get_tuple, config), partial(saver.aget_tuple, config))
        if found is None:
            raise NoMessages(what=self._what, reason="it has no checkpoint in this checkpointer")
        writes = found.pending_writes or []
        if any(channel == "__interrupt__" for _, channel, _ in writes):
            return False
        thread = self._messages(found) + self._finished(writes)
        if any(one.id == ours.id for one in thread):
            return False
        thread += planned(thread, ours)
        checkpoint, versions = self._next(found, thread)
        step = found.metadata.get("step", -1) + 1
        metadata: Any = {"source": "update", "step": step, "parents": found.metadata.get("parents", {})}
        put = (found.config, checkpoint, metadata, versions)
        yield Effect(partial(saver.put, *put), partial(saver.aput, *put))
        return True

    def _messages(self, found: Any) -> list[Any]:
        values = found.checkpoint["channel_values"]
        if "counters_since_delta_snapshot" in found.metadata:
            raise NoMessages(what=self._what, reason="it holds its messages as differences, which only the graph can read")
        if "__start__" in values:
            raise NoMessages(what=self._what, reason="only the graph can process its last input, which is still pending")
        messages = values.get(_MESSAGES)
        if not isinstance(messages, list) or not all(isinstance(one, BaseMessage) for one in messages):
            known = ", ".join(sorted(name for name in values if not name.startswith(("__", _WAYS)))) or "nothing"
            raise NoMessages(what=self._what, reason=f"it has no plain `messages` channel (it has: {known})")
        return list(messages)

    def _finished(self, writes: list[tuple[str, str, Any]]) -> list[Any]:
        """Return the messages that finished tasks have written in a superstep that is not applied yet."""
        found: list[Any] = []
        for _, channel, value in writes:
            if channel == _MESSAGES:
                found += value if isinstance(value, list) else [value]
            elif channel not in _OURS and not channel.startswith(_WAYS):
                raise NoMessages(what=self._what, reason=f"a finished task has written to {channel!r}, which would be lost")
        if not all(isinstance(one, BaseMessage) for one in found):
            raise NoMessages(what=self._what, reason="a finished task has written other things to `messages`")
        return found

    def _next(self, found: Any, thread: list[Any]) -> tuple[Any, dict[str, Any]]:
        """Return the checkpoint that follows, in which no task is left to run, and its new channel versions."""
        checkpoint = copy.copy(found.checkpoint)
        values = checkpoint["channel_values"] = {**found.checkpoint["channel_values"], _MESSAGES: thread}
        known = checkpoint["channel_versions"] = dict(found.checkpoint["channel_versions"])
        versions: dict[str, Any] = {}
        # A version that does not grow is not stored by some savers, and not compared by others.
        for name in [name for name in known if name in (_MESSAGES, _TASKS) or name.startswith(_WAYS)]:
            versions[name] = known[name] = self._saver.get_next_version(known[name], None)
            if name != _MESSAGES:
                values.pop(name, None)
        checkpoint["updated_channels"] = [_MESSAGES]
        checkpoint["id"] = str(uuid6(clock_seq=found.metadata.get("step", -1) + 1))
        checkpoint["ts"] = datetime.now(timezone.utc).isoformat()
        return checkpoint, versions
