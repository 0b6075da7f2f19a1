"""Pure: the AI SDK dialect. The events of a run as UI message stream chunks of one assistant message.

Rule: `TranscriptReader` decides which calls answer the user. A call that counts as an answer at its start streams live. If
that turns out to be wrong, its parts are withdrawn; if a helper call turns out to be the answer, it is shown then, whole. So
at the end of the run, the parts that are not withdrawn are the messages that the thread holds of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....events import DELTA, Event, Run
from ....messages.cut_answers import marked_as_cut
from ....messages.marks import mark_in
from ....messages.message_data import Data
from ....messages.transcript import TranscriptCall, TranscriptReader
from ...frames import Payload
from ..protocol import Control
from .answer import output_of
from .chunks import DONE, chunk, data
from .shown import Ids, ShownAnswer, show_output

FAILED: Final = "The run failed. Its journal has the error."
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_OURS: Final = frozenset({"partial", "question", "withdrawn", "custom"})


def message_id(thread_id: str | None, run_id: str) -> str:
    """Return the id of the message that the answers of a run are on a page."""
    return f"{thread_id or ''}:{run_id}"


def question_data(run_id: str, interrupt: Mapping[str, Any]) -> Data:
    """Return what a page gets to know of something that a run asks a human."""
    return {"runId": run_id, "id": interrupt.get("id"), "value": interrupt.get("value")}


class AiSdkProjector:
    """Turns the events of one run into chunks."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._ids = Ids(run.run_id)
        self._reader = TranscriptReader(run.run_id, None)
        self._out: list[Payload] = []
        self._shown: dict[int, ShownAnswer] = {}
        """By the identity of the call, which the reader keeps."""
        self._live: set[int] = set()
        """The calls that stream in the step that is open."""
        self._before: dict[str, list[str]] = {}
        """The calls that a call replaces."""
        self._begun: dict[str, Mapping[str, Any]] = {}
        """The `tool.start` of the calls that an earlier run has asked for, until they have a result."""
        self._questions: list[tuple[str, Data]] = []
        self._is_open = False
        self._has_step = False
        self._has_ended = False

    def event(self, event: Event) -> Sequence[Payload]:
        """Return the chunks of one event."""
        self._out = []
        if not self._has_ended:
            try:
                self._read(event)
            except Exception:  # noqa: BLE001, S110 - a program may append events that hold any JSON
                pass
        return self._out

    def control(self, what: Control, detail: str | None = None) -> Sequence[Payload]:
        """Return the end of a stream whose run is over, waits for a human, or has lost its process.

        A reset needs no chunk: the clients begin the message again when it begins again.
        """
        self._out = []
        if what == "reset":
            return ()
        if not self._has_ended:
            self._close_all()
            if what == "interrupted" and self._is_open:
                self._put(data("partial", f"{self._run.run_id}:partial:run", {"cause": "crash"}))
            self._finish("paused" if what == "paused" else "interrupted", {})
        return [*self._out, DONE]

    # --- chunks -------------------------------------------------------------------------------------------------------

    def _put(self, payload: Payload) -> None:
        """Add a chunk. The message begins with the first one, because clients show an empty message as an empty bubble."""
        if not self._is_open:
            self._is_open = True
            about = {"threadId": self._run.thread_id, "runId": self._run.run_id}
            id = message_id(self._run.thread_id, self._run.run_id)
            self._out.append(chunk("start", messageId=id, messageMetadata=about))
        self._out.append(payload)

    def _open_step(self) -> None:
        if not self._has_step:
            self._has_step = True
            self._put(chunk("start-step"))

    def _end_step(self, call: TranscriptCall) -> None:
        """End the step if no other call streams in it: the clients drop open parts at its end."""
        self._live.discard(id(call))
        if self._has_step and not self._live:
            self._has_step = False
            self._put(chunk("finish-step"))

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
        data = event.data
        if event.kind == "run.end":
            self._close_all()
        reader.read(event)
        self._decide(data.get("unused", ()))
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
                self._ask(data)
            case "run.end":
                self._end(data)
            case _:
                pass

    def _begin(self, call_id: str, data: Mapping[str, Any]) -> None:
        before = [one for one in data.get("replaces", ()) if isinstance(one, str)]
        self._before[call_id] = [*before, *(older for one in before for older in self._before.get(one, ()))]

    def _answer_of(self, call: TranscriptCall) -> ShownAnswer:
        shown = self._shown.get(id(call))
        if shown is None:
            shown = self._shown[id(call)] = ShownAnswer(self._ids, self._put, self._open_step)
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
            self._end_step(call)

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
        self._end_step(call)

    def _show_whole(self, call: TranscriptCall, shown: ShownAnswer) -> None:
        message = call.message
        if message is None or shown.message is message["data"]:
            return
        shown.become(message["data"])
        for given, result in call.results.items():
            shown.answer(given, output_of(result))
        fields = marked_as_cut(message["data"], call.cut, self._run.run_id) if call.cut else message["data"]
        self._note_cut(call, shown, fields)

    def _note_cut(self, call: TranscriptCall, shown: ShownAnswer, fields: Mapping[str, Any]) -> None:
        mark = mark_in(fields.get("additional_kwargs"))
        if mark.get("origin") == "partial":
            shown.note_cut(f"{self._run.run_id}:partial:{call.call_id or self._ids.part()}", mark)

    def _answer(self, message: Data) -> None:
        given = message["data"].get("tool_call_id")
        call = self._reader.requests.get(given)
        if call is not None:
            if (shown := self._shown.get(id(call))) is not None:
                shown.answer(given, output_of(message))
        elif given in self._reader.unasked:
            self._answer_earlier(given, message)

    def _answer_earlier(self, given: str, message: Data) -> None:
        """Show a call that an earlier run has asked for, with its result: that run waited for a human."""
        about = self._begun.pop(given, None)
        name = (about or {}).get("name") or message["data"].get("name") or "tool"
        tool_id = self._ids.tool(given)
        self._put(chunk("tool-input-available", toolCallId=tool_id, toolName=name, input=(about or {}).get("args") or {}))
        show_output(self._put, tool_id, output_of(message))

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

    def _show_custom(self, event: Event) -> None:
        value = event.data["value"] if "value" in event.data else {k: event.data.get(k) for k in ("dropped", "size")}
        named = value.get("type") if isinstance(value, Mapping) else None
        name = next((one for one in (event.data.get("name"), named) if isinstance(one, str) and _is_free(one)), "custom")
        given = value.get("id") if isinstance(value, Mapping) else None
        self._put(data(name, given if isinstance(given, str) else f"{self._run.run_id}:custom:{event.seq}", value))

    def _ask(self, about: Mapping[str, Any]) -> None:
        self._close_all()
        for one in about.get("interrupts", ()):
            part_id = f"{self._run.run_id}:question:{one.get('id') or len(self._questions)}"
            self._questions.append((part_id, question_data(self._run.run_id, one)))
            self._put(data("question", part_id, self._questions[-1][1]))

    # --- the end ------------------------------------------------------------------------------------------------------

    def _close_all(self) -> None:
        for call in [one for one in self._reader.parts if id(one) in self._live]:
            self._cut_off(call)

    def _end(self, about: Mapping[str, Any]) -> None:
        for call in list(self._reader.parts):
            self._end_call(call)
        status = str(about.get("status", "completed"))
        for part_id, question in self._questions if status == "completed" else ():
            self._put(data("question", part_id, {**question, "answered": True}))
        for shown in self._shown.values() if status != "completed" else ():
            shown.abandon()
        self._has_ended = True
        self._finish(status, {"cause": about["cause"]} if about.get("cause") else {})

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
        self._end_step(call)

    def _finish(self, status: str, about: Data) -> None:
        """End the message. A message that never began is not begun only to end."""
        metadata = {"status": status, **about} if self._is_open else None
        if status == "failed":
            if metadata is not None:
                self._out.append(chunk("message-metadata", messageMetadata=metadata))
            self._out.append(chunk("error", errorText=FAILED))
        else:
            self._out.append(chunk("finish", messageMetadata=metadata))


def _is_free(name: str) -> bool:
    """Return whether a part may have this name: it fits into a type of TypeScript, and is none of ours."""
    return _NAME.fullmatch(name) is not None and name not in _OURS


@dataclass(frozen=True, slots=True)
class AiSdk:
    """The dialect of `useChat` and `DefaultChatTransport` of the packages `ai` 5, 6 and 7."""

    name: str = "ai-sdk"
    has_ids: bool = False
    folds: bool = True
    holds: bool = False

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of its streams, beside those that every stream has."""
        return {"x-vercel-ai-ui-message-stream": "v1"}

    def projector(self, run: Run) -> AiSdkProjector:
        """Return a projector for one run."""
        return AiSdkProjector(run)


AI_SDK: Final = AiSdk()
