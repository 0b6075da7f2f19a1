"""Pure: the AI SDK dialect. The events of a run as UI message stream chunks of one assistant message.

Rule: `AnswerFold` decides what a page is shown. Chunks cannot be taken back, so what is withdrawn is named: at the end of
the run, the parts that are not withdrawn are the messages that the thread holds of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....events import Event, Run
from ....messages.marks import mark_in
from ....messages.message_data import Data
from ....messages.transcript import TranscriptCall
from ...frames import Payload
from ..answer import output_of
from ..answer_fold import AnswerFold
from ..protocol import Control
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


class AiSdkProjector(AnswerFold[ShownAnswer]):
    """Turns the events of one run into chunks."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._ids = Ids(run.run_id)
        self._out: list[Payload] = []
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

    def _is_over(self, call: TranscriptCall) -> None:
        """End the step if no other call streams in it: the clients drop open parts at its end."""
        super()._is_over(call)
        if self._has_step and not self._live:
            self._has_step = False
            self._put(chunk("finish-step"))

    # --- answers ------------------------------------------------------------------------------------------------------

    def _new_answer(self, call: TranscriptCall) -> ShownAnswer:
        return ShownAnswer(self._ids, self._put, self._open_step)

    def _give(self, shown: ShownAnswer, given: str, result: Data) -> None:
        shown.answer(given, output_of(result))

    def _give_earlier(self, given: str, begun: Mapping[str, Any] | None, result: Data) -> None:
        name = (begun or {}).get("name") or result["data"].get("name") or "tool"
        tool_id = self._ids.tool(given)
        self._put(chunk("tool-input-available", toolCallId=tool_id, toolName=name, input=(begun or {}).get("args") or {}))
        show_output(self._put, tool_id, output_of(result))

    def _note_cut(self, call: TranscriptCall, shown: ShownAnswer, fields: Mapping[str, Any]) -> None:
        mark = mark_in(fields.get("additional_kwargs"))
        if mark.get("origin") == "partial":
            shown.note_cut(f"{self._run.run_id}:partial:{call.call_id or self._ids.part()}", mark)

    def _show_custom(self, event: Event) -> None:
        value = event.data["value"] if "value" in event.data else {k: event.data.get(k) for k in ("dropped", "size")}
        named = value.get("type") if isinstance(value, Mapping) else None
        name = next((one for one in (event.data.get("name"), named) if isinstance(one, str) and _is_free(one)), "custom")
        given = value.get("id") if isinstance(value, Mapping) else None
        self._put(data(name, given if isinstance(given, str) else f"{self._run.run_id}:custom:{event.seq}", value))

    def _ask(self, about: Mapping[str, Any]) -> None:
        for one in about.get("interrupts", ()):
            part_id = f"{self._run.run_id}:question:{one.get('id') or len(self._questions)}"
            self._questions.append((part_id, question_data(self._run.run_id, one)))
            self._put(data("question", part_id, self._questions[-1][1]))

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self, about: Mapping[str, Any]) -> None:
        self._end_calls()
        status = str(about.get("status", "completed"))
        for part_id, question in self._questions if status == "completed" else ():
            self._put(data("question", part_id, {**question, "answered": True}))
        for shown in self._shown.values() if status != "completed" else ():
            shown.abandon()
        self._has_ended = True
        self._finish(status, {"cause": about["cause"]} if about.get("cause") else {})

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
