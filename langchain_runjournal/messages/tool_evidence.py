"""Pure: what the events of one run report of its tool calls: the message that asked, the start, and the result.

Rule: a call belongs to the message that asks for it. If another message asks for the same id later, that is another call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..common.packed import copied
from ..events import Event
from .loading import load
from .message_data import Data
from .tool_requests import request_ids
from .tool_results import CallKnowledge, State

Call: TypeAlias = tuple[str | None, str]
"""The id of the message that asks, and that of the tool call."""


@dataclass(slots=True)
class _Fact:
    state: State = "never_started"
    error: str | None = None
    message: Data | None = None
    cause: str | None = None
    """Why its answer is not whole; None for a whole one."""


class Evidence:
    """The tool calls of one run, as its events report them."""

    def __init__(self, run_id: str, events: Iterable[Event], reason: str | None = None) -> None:
        self.run_id = run_id
        self.reason = reason
        """Why the run ended, if that is known."""
        self.has_late = False
        self.has_paused = False
        self._facts: dict[Call, _Fact] = {}
        self._latest: dict[str, _Fact] = {}
        for event in events:
            self._read(event.kind, event.data)

    def _read(self, kind: str, data: Mapping[str, Any]) -> None:
        match kind:
            case "llm.ai.response":
                asking = data["message"]["data"]
                for id in request_ids(asking):
                    fact = self._facts[asking.get("id"), id] = self._latest[id] = _Fact()
                    if isinstance(cut := data.get("cut"), Mapping) and cut.get("calls"):
                        fact.state, fact.cause = "cut" if id in cut["calls"] else "beside_cut", cut["cause"]
            case "tool.start":
                self._fact(data).state = "started"
            case "tool.error":
                fact = self._fact(data)
                fact.state = "waiting" if data.get("interrupted") else "failed"
                fact.error = data.get("error")
            case "llm.tool.result" if isinstance(data.get("message"), Mapping):
                self._fact(data).message = data["message"]
                self.has_late = self.has_late or bool(data.get("late"))
            case "task.end":
                for written in data.get("messages", ()):
                    self._read_written(written)
            case "run.pause":
                self.has_paused = True
            case "run.end":
                self.reason = self.reason or data.get("cause") or ("error" if data.get("error") else None)

    def _read_written(self, written: Mapping[str, Any]) -> None:
        """Record the requests of a message that a node has written itself.

        A message that replaces an answer under the same id asks for the tool calls of that answer.
        """
        kind, fields = written["type"], written["data"]
        if kind == "tool":
            self._fact(fields).message = copied(written)
        elif kind == "ai":
            for id in request_ids(fields):
                if (fields.get("id"), id) not in self._facts:
                    self._facts[fields.get("id"), id] = self._latest[id] = _Fact()

    def _fact(self, data: Mapping[str, Any]) -> _Fact:
        id = str(data.get("tool_call_id"))
        fact = self._latest.get(id)
        if fact is None:
            # An earlier run has asked for it. That run waited for a human, or another run has resumed it.
            fact = self._facts[None, id] = self._latest[id] = _Fact()
        return fact

    def has_asked(self, call: Call) -> bool:
        """Return whether a model has asked for the call in this run."""
        return call in self._facts

    def known(self, call: Call) -> CallKnowledge | None:
        """Return what is known of a call; None if no event of the run mentions it."""
        fact = self._facts.get(call) or self._facts.get((None, call[1]))
        if fact is None:
            return None
        found = load(self.run_id, [fact.message]) if fact.message is not None else []
        result: Any = found[0] if found else None
        cause = fact.cause if fact.state in ("cut", "beside_cut") else self.reason
        return CallKnowledge(state=fact.state, result=result, error=fact.error, run_id=self.run_id, cause=cause)
