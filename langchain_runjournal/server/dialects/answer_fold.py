"""Pure: which answers of a run a page shows, event by event, for the dialects that show answers and not events.

Rule: `TranscriptReader` decides which calls answer the user. A call that counts as an answer at its start streams live. If
that turns out to be wrong, it is withdrawn; if a helper call turns out to be the answer, it is shown then, whole. So at the
end of the run, a page shows the messages that the thread holds of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from ...events import DELTA, Event, Run
from ...messages.cut_answers import marked_as_cut
from ...messages.message_data import Data
from ...messages.transcript import TranscriptCall, TranscriptReader


class Shown(Protocol):
    """What a page has been shown of one answer."""

    message: Mapping[str, Any] | None
    """The whole message that the page shows; None while it streams."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is on the page."""
        ...

    def stream(self, bare: str | Mapping[str, Any]) -> None:
        """Show what a delta adds."""
        ...

    def cut_off(self) -> None:
        """End what is open: nothing more will come."""
        ...

    def become(self, fields: Mapping[str, Any], *, asks: bool = True) -> None:
        """Show this message, and nothing else. `asks`: its tool requests count."""
        ...

    def withdraw(self) -> None:
        """Take all of it back."""
        ...


AnswerT = TypeVar("AnswerT", bound=Shown)


class AnswerFold(ABC, Generic[AnswerT]):
    """Reads the events of one run, and says what becomes of the answers on the page. A dialect says how they look there."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._reader = TranscriptReader(run.run_id, None)
        self._shown: dict[int, AnswerT] = {}
        """By the identity of the call, which the reader keeps."""
        self._live: set[int] = set()
        """The calls that stream."""
        self._before: dict[str, list[str]] = {}
        """The calls that a call replaces."""
        self._begun: dict[str, Mapping[str, Any]] = {}
        """The `tool.start` of the calls that an earlier run has asked for, until they have a result."""

    # --- what a dialect says ------------------------------------------------------------------------------------------

    @abstractmethod
    def _new_answer(self, call: TranscriptCall) -> AnswerT:
        """Return an answer of which nothing is shown yet."""

    @abstractmethod
    def _give(self, shown: AnswerT, given: str, result: Data) -> None:
        """Show the result of a tool request of an answer."""

    @abstractmethod
    def _give_earlier(self, given: str, begun: Mapping[str, Any] | None, result: Data) -> None:
        """Show the result of a call that an earlier run has asked for: that run waited for a human."""

    @abstractmethod
    def _note_cut(self, call: TranscriptCall, shown: AnswerT, fields: Mapping[str, Any]) -> None:
        """Say that an answer was cut off, if its mark says so."""

    @abstractmethod
    def _show_custom(self, event: Event) -> None:
        """Show what the program reports."""

    @abstractmethod
    def _ask(self, about: Mapping[str, Any]) -> None:
        """Show what the run asks a human. No answer is open then."""

    @abstractmethod
    def _end(self, about: Mapping[str, Any]) -> None:
        """Show how the run ended. `_end_calls` shows what stands of the answers."""

    def _is_over(self, call: TranscriptCall) -> None:
        """Take note that a call streams no more."""
        self._live.discard(id(call))

    def _has_read(self, event: Event) -> None:
        """Take note of an event, after its answers were shown."""

    # --- events -------------------------------------------------------------------------------------------------------

    def _read(self, event: Event) -> None:
        reader = self._reader
        if event.kind == DELTA:
            call = reader.call_of(event)
            if not reader.ended and not call.closed and call.message is None:
                call.deltas.append(event.bare)
                if call.role == "answer":
                    self._stream(call, event.bare)
            return
        if event.kind == "run.end":
            self._close_all()
        reader.read(event)
        self._decide(event.data.get("unused", ()))
        self._show(event, event.data)
        self._has_read(event)

    def _show(self, event: Event, data: Mapping[str, Any]) -> None:
        reader = self._reader
        match event.kind:
            case "llm.start":
                self._begin(str(event.call_id), data)
            case "llm.ai.response" if not data.get("late"):
                self._settle(reader.call_of(event))
                self._decide(self._before.get(str(event.call_id), ()))
            case "llm.ai.partial" | "llm.error":
                self._cut_off(reader.call_of(event))
            case "tool.start" if not data.get("inside"):
                self._begun[str(data.get("tool_call_id"))] = data
            case "llm.tool.result" if not data.get("inside"):
                self._answer(data["message"])
            case "task.end":
                self._end_task(data)
            case "run.custom":
                self._show_custom(event)
            case "run.pause":
                self._close_all()
                self._ask(data)
            case "run.end":
                self._end(data)
            case _:
                pass

    def _begin(self, call_id: str, data: Mapping[str, Any]) -> None:
        before = [one for one in data.get("replaces", ()) if isinstance(one, str)]
        self._before[call_id] = [*before, *(older for one in before for older in self._before.get(one, ()))]

    def _answer_of(self, call: TranscriptCall) -> AnswerT:
        shown = self._shown.get(id(call))
        if shown is None:
            shown = self._shown[id(call)] = self._new_answer(call)
        return shown

    def _stream(self, call: TranscriptCall, bare: str | Mapping[str, Any]) -> None:
        shown = self._answer_of(call)
        was_empty = shown.is_empty
        self._live.add(id(call))
        shown.stream(bare)
        if was_empty and not shown.is_empty:
            self._decide(self._before.get(call.call_id, ()))  # its words take the place of those of a failed attempt

    def _cut_off(self, call: TranscriptCall) -> None:
        shown = self._shown.get(id(call))
        if shown is not None:
            shown.cut_off()
            self._is_over(call)

    def _decide(self, call_ids: Iterable[str]) -> None:
        for one in call_ids:
            for call_id in (one, *self._before.get(one, ())):
                if (call := self._reader.calls.get(call_id)) is not None and (call.message is not None or call.closed):
                    self._settle(call)

    def _settle(self, call: TranscriptCall) -> None:
        """Show a call as the transcript has it now, whatever the page has been shown of it."""
        stands = self._reader.stands(call)
        shown = self._shown.get(id(call))
        if not stands:
            if shown is not None:
                shown.withdraw()
        elif call.message is not None and call.message["type"] == "ai":
            self._show_whole(call, self._answer_of(call))
        self._is_over(call)

    def _show_whole(self, call: TranscriptCall, shown: AnswerT) -> None:
        message = call.message
        if message is None or shown.message is message["data"]:
            return
        shown.become(message["data"])
        for given, result in call.results.items():
            self._give(shown, given, result)
        fields = marked_as_cut(message["data"], call.cut, self._run.run_id) if call.cut else message["data"]
        self._note_cut(call, shown, fields)

    def _answer(self, message: Data) -> None:
        given = message["data"].get("tool_call_id")
        call = self._reader.requests.get(given)
        if call is not None:
            if (shown := self._shown.get(id(call))) is not None:
                self._give(shown, given, message)
        elif given in self._reader.unasked:
            self._give_earlier(given, self._begun.pop(given, None), message)

    def _end_task(self, data: Mapping[str, Any]) -> None:
        for key in ("kept", "gave", "shown"):
            self._decide(data.get(key, ()))
        written = data.get("messages", ())
        for message in written:
            if message["type"] == "tool":
                self._answer(message)
        if any(message["type"] == "ai" for message in written):
            for call in self._reader.parts:
                if call.message is not None:
                    self._settle(call)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _close_all(self) -> None:
        for call in [one for one in self._reader.parts if id(one) in self._live]:
            self._cut_off(call)

    def _end_calls(self) -> None:
        """Show what stands of each call at the end of the run."""
        for call in list(self._reader.parts):
            self._end_call(call)

    def _end_call(self, call: TranscriptCall) -> None:
        if call.message is not None:
            self._settle(call)
            return
        found = self._reader.messages_of(call) if self._reader.stands(call) else []
        shown = self._shown.get(id(call))
        if found:
            answer, fields = self._answer_of(call), found[0]["data"]
            answer.become(fields, asks=False)
            self._note_cut(call, answer, fields)
        elif shown is not None:
            shown.withdraw()
        self._is_over(call)
