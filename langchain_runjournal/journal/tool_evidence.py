"""What a journal knows of the tool calls of its runs: who asked, what began, what came back.

Rule: a call belongs to the message that asks for it. The same id may be asked for again later, and is another call then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..common.packed import copied
from ..events import Event, Run, RunStatus
from ..messages.loading import load
from ..messages.message_data import Data
from ..messages.tool_requests import request_ids
from ..messages.tool_results import CallKnowledge, State
from .run_display import read_if_there

if TYPE_CHECKING:
    from .run_journal import RunJournal

Call: TypeAlias = tuple[str | None, str]
"""The id of the message that asks, and that of the tool call."""
_REMEMBERED: Final = 64
_RUNS_BACK: Final = 50
"""How many runs of a thread are searched for a result that its history lacks."""


@dataclass(slots=True)
class _Fact:
    state: State = "never_started"
    error: str | None = None
    message: Data | None = None
    cause: str | None = None
    """Why its answer is not whole, if it is not."""


class Evidence:
    """What one run knows."""

    def __init__(self, run_id: str, events: Iterable[Event], reason: str | None = None) -> None:
        self.run_id = run_id
        self.reason = reason
        """Why the run ended, where that is known."""
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
        """A message that a node has written itself. One that says an answer in another way asks for what that did."""
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
            # Asked for in an earlier run, which waited for a human or has been taken up again.
            fact = self._facts[None, id] = self._latest[id] = _Fact()
        return fact

    def has_asked(self, call: Call) -> bool:
        """Whether a model has asked for it in this run."""
        return call in self._facts

    def known(self, call: Call) -> CallKnowledge | None:
        """What is known of a call; None if the run has never heard of it."""
        fact = self._facts.get(call) or self._facts.get((None, call[1]))
        if fact is None:
            return None
        found = load(self.run_id, [fact.message]) if fact.message is not None else []
        result: Any = found[0] if found else None
        cause = fact.cause if fact.state in ("cut", "beside_cut") else self.reason
        return CallKnowledge(state=fact.state, result=result, error=fact.error, run_id=self.run_id, cause=cause)


def look_up(journal: RunJournal, thread_id: str, wanted: Sequence[Call]) -> dict[Call, CallKnowledge]:
    """What the runs of a thread know of some calls: a real result wherever there is one, or else what is known last.

    A run that has completed with an open request has handed it to its caller (a tool of the browser), and does not know
    whether that began. One that has paused ends as the run does that took it up.
    """
    found: dict[Call, CallKnowledge] = {}
    missing = set(wanted)
    has_completed = False
    for run in journal.runs(thread_id, limit=_RUNS_BACK):
        if not missing:
            break
        evidence = _of(journal, run)
        has_completed = run.status == RunStatus.COMPLETED and (has_completed or not evidence.has_paused)
        for call in list(missing):
            known = evidence.known(call)
            if known is None:
                continue
            if has_completed and known.state == "never_started":
                known = replace(known, state="unknown")
            if known.result is not None or evidence.has_asked(call):
                missing.discard(call)  # only newer runs could know more
            if known.result is not None or call not in found:
                found[call] = known
    return found


def _of(journal: RunJournal, run: Run) -> Evidence:
    """What a run knows; remembered as long as nothing is added to it, since a model call may ask for each of a thread."""
    remembered, key = journal._capture.evidence, (run.run_id, run.last_seq)
    found = remembered.get(key)
    if found is None:
        found = remembered[key] = Evidence(run.run_id, read_if_there(journal, run.run_id), run.cause)
        while len(remembered) > _REMEMBERED:
            remembered.pop(next(iter(remembered)), None)
    return found
