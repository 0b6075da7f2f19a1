"""The evidence about a run that is to be settled: its messages, tasks, checkpoints and tool calls, read from the journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..events import GRAPH, Event, Run, RunStatus
from ..messages import transcript as _transcript
from ..messages.loading import load
from ..messages.message_data import Data
from ..messages.tool_evidence import Call, Evidence
from ..messages.tool_pairs import walk
from ..messages.tool_requests import Request
from ..messages.tool_results import CallKnowledge
from .plan import NOTHING_APPLIED


class SettlementEvidence:
    """The evidence about one run. The run is read once."""

    def __init__(self, run: Run, thread_id: str, events: Sequence[Event], reason: str, *, late: bool = False) -> None:
        """Read a run from its events. `late`: the settlement looks only for results that arrived after the end of the
        run."""
        self.run_id = run_id = run.run_id
        self.thread_id = thread_id
        self.is_attached = GRAPH in run.metadata
        """Whether the run belongs to an attached graph, whose `JournalSaver` has reported its checkpoints."""
        checkpoints = [event.data for event in events if event.kind == "run.checkpoint"]
        self.applied = any("applied" in data for data in checkpoints)
        """Whether the journal shows that the thread holds the input of the run."""
        self.has_stored = self.applied or any("stored" in data for data in checkpoints)
        """Whether the checkpointer has stored any checkpoint of the run."""
        self.has_other_input = any("given" in data for data in checkpoints)
        """Whether the program called an entrypoint with an input that holds no messages."""
        has_completed = run.status == RunStatus.COMPLETED or any("completed" in data for data in checkpoints)
        self.has_completed = has_completed and not late
        """Whether the run completed. Then its thread can lack only answers that were cut off and that a task replaced by
        others."""
        self.has_base = any("base" in data for data in checkpoints)
        """Whether the run has begun to write the thread."""
        self.base: str | None = next((data["base"] for data in checkpoints if "base" in data), None)
        """The checkpoint behind which the run began to write."""
        self.since = 0
        self.resumed: str | None = next((data["resumed"] for data in checkpoints if "resumed" in data), None)
        """The checkpoint from which the run resumed another run."""
        self.remembered: str | None = next((data["before"] for data in checkpoints if "before" in data), None)
        """The newest checkpoint of the thread when a settlement first wrote to it."""
        self.before = self.remembered if self.remembered is not None else self.resumed
        self.puts: dict[str | None, int] = {
            data["applied"]: data["step"] for data in checkpoints if "applied" in data and isinstance(data.get("step"), int)
        }
        """The supersteps of the run: `{checkpoint id: number of the superstep}`."""
        self.step: int | None = None
        """The last superstep of the run whose writes the thread holds."""
        self.transcript: list[Any] = []
        self.tasks: dict[int, _transcript.Task] = {}
        """The task in which each message was said, by the place of the message in the transcript."""
        self.cuts: dict[int, Data] = {}
        """What its event says of an answer that was cut off, by the same place."""
        self._evidence = Evidence(run_id, events, reason)
        self._nothing = CallKnowledge(run_id=run_id, cause=reason)
        self._elsewhere: dict[Call, CallKnowledge] = {}
        self._inside: dict[Call, Any] = {}
        self.unknown: set[Call] = set()
        """The tool calls that `ask` was asked about and of which neither this run nor an earlier lookup knows anything."""

    def applied_at(self, place: str | None, parent: str | None, metadata: Mapping[str, Any]) -> int:
        """Return the superstep up to which the checkpoint `place` holds the run's tasks: `NOTHING_APPLIED` if it holds none.

        The journal names the checkpoints of the run. A process that was killed may have stored one more, behind the last one
        that the journal names. A checkpoint of another writer behind those of the run holds all that the run has ever
        stored.
        """
        if place in self.puts:
            return self.puts[place]
        behind = parent in self.puts or (self.has_base and parent == self.base)
        if behind and metadata.get("source") == "loop":
            return int(metadata["step"])
        return max(self.puts.values(), default=NOTHING_APPLIED)

    def read(self, said: Iterable[_transcript.Said]) -> None:
        """Append the next messages to the transcript."""
        for one in said:
            found = load(self.run_id, [one.message])
            if found and one.task is not None:
                self.tasks[len(self.transcript)] = one.task
            if found and one.cut is not None:
                self.cuts[len(self.transcript)] = one.cut
            self.transcript += found

    def ask(self, message: Any, request: Request) -> CallKnowledge:
        """Return what is known of a call. Note the call as unknown if neither the run nor `learn` knows it."""
        call = message.id, str(request.id)
        known = self._evidence.known(call) or self._elsewhere.get(call)
        if known is None:
            self.unknown.add(call)
        if call in self._inside:
            return replace(known or self._nothing, result=self._inside[call])
        return known or self._nothing

    def see(self, messages: Sequence[Any]) -> None:
        """Note the tool results in the thread of an inner graph. The inner graph returns them later under the ids that they
        have there."""
        for place, slots in walk(messages).slots.items():
            for slot in slots:
                if slot.result is not None and not slot.synthetic:
                    self._inside[messages[place].id, str(slot.request.id)] = messages[slot.result]

    def learn(self, found: Mapping[Call, CallKnowledge]) -> None:
        """Store what the journal says elsewhere about the unknown calls."""
        self._elsewhere |= {call: found.get(call, self._nothing) for call in self.unknown}
        self.unknown.clear()
