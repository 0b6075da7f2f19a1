"""Pure: the events of a run, as spans by OpenTelemetry's semantic conventions for generative AI.

Rule: the ids of spans follow from the ids of the run and its calls, so a run that is exported twice gives the same spans. A
call that was cut off has no error status: it says that it was interrupted, and why.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ..events import DELTA, Event
from ..messages.message_data import Data
from ..messages.partial import partial_message
from ..messages.plain_text import text_of
from ..messages.stream_assembly import Streamed

SpanKind = Literal["internal", "client"]
_PROVIDERS: Final = {
    "amazon_bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "azure_openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google_genai": "gcp.gemini",
    "google_vertexai": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "mistralai": "mistral_ai",
    "xai": "x_ai",
}
"""LangChain's names of providers, where the conventions have another one."""
_ENDS_MODEL: Final = ("llm.ai.response", "llm.ai.partial", "llm.error")
_ENDS_TOOL: Final = ("llm.tool.result", "tool.error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span. Times are nanoseconds since 1970; ids are bytes, 16 for the trace and 8 for the span."""

    trace_id: bytes
    span_id: bytes
    parent_id: bytes | None
    name: str
    kind: SpanKind
    start: int
    end: int
    error: str | None
    """The text of its error status; None for every other ending, an interruption included."""
    attributes: Mapping[str, str | int | bool | list[str]]


@dataclass(slots=True)
class _Open:
    event: Event
    parent: str | None
    deltas: list[Any] = field(default_factory=list)
    usage: Data = field(default_factory=dict)


class SpanReader:
    """Reads the events of one run in their order, and returns each span as soon as it has ended.

    `content`: also write what was said: the messages of models, the arguments and results of tools. The conventions leave
    them out unless a user asks for them.
    """

    def __init__(self, run_id: str, *, content: bool = False) -> None:
        self._run_id = run_id
        self._content = content
        self._trace = _hash(run_id, 16)
        self._root: Event | None = None
        self._asked: list[Any] = []
        self._open: dict[str, _Open] = {}
        self._tools: dict[str, str] = {}
        self._last = 0.0
        self._is_over = False

    def read(self, event: Event) -> list[Span]:
        """Return the spans that end with an event, mostly none."""
        self._last = max(self._last, event.at)
        call = self._open.get(event.call_id or "")
        if event.kind == "run.start":
            self._root = event
        elif event.kind == "llm.human.input" and self._content:
            self._asked.append(event.data.get("message"))
        elif event.kind in ("llm.start", "tool.start") and event.call_id is not None:
            self._begin(event, event.call_id)
        elif event.kind == DELTA and call is not None:
            self._grow(call, event.data)
        elif event.kind in (*_ENDS_MODEL, *_ENDS_TOOL) and call is not None:
            del self._open[event.call_id or ""]
            return [self._end(call, event)]
        elif event.kind == "run.end" and not self._is_over:
            return self.finish(event)
        return []

    def finish(self, end: Event | None = None) -> list[Span]:
        """Return the spans that have no end: those of open calls, and that of the run. A run that has not ended is shown up
        to its last event."""
        if self._root is None or self._is_over:
            return []
        self._is_over = True
        data: Mapping[str, Any] = end.data if end is not None else {"status": "running"}
        open_calls, self._open = list(self._open.values()), {}
        return [*(self._cut(call, data) for call in open_calls), self._run(self._root, data)]

    def _begin(self, event: Event, call_id: str) -> None:
        inside = event.data.get("inside")
        self._open[call_id] = _Open(event, self._tools.get(inside, inside) if isinstance(inside, str) else None)
        if event.kind == "tool.start":
            self._tools[str(event.data.get("tool_call_id"))] = call_id

    def _grow(self, call: _Open, data: Mapping[str, Any]) -> None:
        if self._content:
            call.deltas.append(data)
        if isinstance(data.get("usage"), Mapping):
            for key, value in data["usage"].items():
                if isinstance(value, int):
                    call.usage[key] = call.usage.get(key, 0) + value

    # --- the end of a call --------------------------------------------------------------------------------------------

    def _end(self, call: _Open, event: Event) -> Span:
        data, error = event.data, event.data.get("error")
        failed = event.kind in ("llm.error", "tool.error") and error is not None
        about: Data = {"runjournal.status": "failed" if failed else "completed"}
        if event.kind == "llm.ai.partial":
            failed = error is not None
            about = _standing("failed" if failed else "interrupted", data.get("cause"))
        elif event.kind == "tool.error" and data.get("interrupted"):
            about = _standing("paused", None)
        message = data.get("message") if isinstance(data.get("message"), Mapping) else None
        if call.event.kind == "llm.start":
            about |= self._model(call, data, message, cut=event.kind == "llm.ai.partial")
        elif self._content and message is not None:
            about["gen_ai.tool.call.result"] = text_of(message["data"].get("content"))
        return self._span(call, event.at, about, str(error) if failed else None)

    def _cut(self, call: _Open, ended: Mapping[str, Any]) -> Span:
        """Return the span of a call that was open when its run ended."""
        status = "running" if ended.get("status") == "running" else "interrupted"
        about = _standing(status, ended.get("cause"))
        if call.event.kind == "llm.start":
            about |= self._model(call, {}, None, cut=status == "interrupted")
        return self._span(call, self._last, about, None)

    def _model(self, call: _Open, data: Mapping[str, Any], message: Mapping[str, Any] | None, *, cut: bool) -> Data:
        fields = message["data"] if message is not None else {}
        metadata = fields.get("response_metadata") or {}
        usage = data.get("usage") or fields.get("usage_metadata") or call.usage
        finish = "interrupted" if cut else metadata.get("finish_reason") or metadata.get("stop_reason")
        about: Data = {
            "gen_ai.response.model": metadata.get("model_name") or metadata.get("model"),
            "gen_ai.response.id": metadata.get("id"),
            "gen_ai.response.finish_reasons": [str(finish)] if finish else None,
            "gen_ai.usage.input_tokens": usage.get("input_tokens"),
            "gen_ai.usage.output_tokens": usage.get("output_tokens"),
        }
        if self._content:
            if message is None and call.deltas:
                streamed = Streamed(call.deltas, call.event.call_id or "")
                message = partial_message(streamed, reason="interrupted", run_id=self._run_id, call_id=call.event.call_id)
            if message is not None:
                about["gen_ai.output.messages"] = _json([_said(message, str(finish or "stop"))])
        return about

    # --- spans --------------------------------------------------------------------------------------------------------

    def _span(self, call: _Open, ended: float, about: Data, error: str | None) -> Span:
        data, call_id = call.event.data, call.event.call_id or ""
        common: Data = {"runjournal.call.id": call_id, "gen_ai.conversation.id": self._thread}
        if call.event.kind == "llm.start":
            operation, called, kind = "chat", data.get("model"), "client"
            provider = data.get("provider")
            common["gen_ai.provider.name"] = _PROVIDERS.get(str(provider), provider)
            common["gen_ai.request.model"] = called
            common |= {"runjournal.role": data.get("role"), "runjournal.attempt": data.get("attempt")}
        else:
            operation, called, kind = "execute_tool", data.get("name"), "internal"
            common |= {"gen_ai.tool.name": called, "gen_ai.tool.call.id": data.get("tool_call_id")}
            if self._content:
                common["gen_ai.tool.call.arguments"] = _json(data.get("args"))
        common |= {"gen_ai.operation.name": operation, "runjournal.node": data.get("node")}
        parent = call.parent if call.parent is not None else self._run_id
        span: SpanKind = "client" if kind == "client" else "internal"
        return self._made(call_id, parent, f"{operation} {called}", span, call.event.at, ended, {**common, **about}, error)

    def _run(self, root: Event, ended: Mapping[str, Any]) -> Span:
        name, error = root.data.get("name"), ended.get("error")
        failed = ended.get("status") == "failed"
        about: Data = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
            "gen_ai.conversation.id": self._thread,
            "runjournal.run.id": self._run_id,
            **_standing(str(ended.get("status")), ended.get("cause")),
        }
        if self._asked:
            about["gen_ai.input.messages"] = _json([_said(message, None) for message in self._asked if message])
        label = f"invoke_agent {name}" if name else "invoke_agent"
        return self._made(self._run_id, None, label, "internal", root.at, self._last, about, str(error) if failed else None)

    @property
    def _thread(self) -> str | None:
        return self._root.data.get("thread_id") if self._root is not None else None

    def _made(
        self,
        id: str,
        parent: str | None,
        name: str,
        kind: SpanKind,
        began: float,
        ended: float,
        about: Data,
        error: str | None,
    ) -> Span:
        if error is not None:
            about["error.type"] = error.partition(":")[0]
        return Span(
            trace_id=self._trace,
            span_id=_hash(f"{self._run_id} {id}", 8),
            parent_id=None if parent is None else _hash(f"{self._run_id} {parent}", 8),
            name=name,
            kind=kind,
            start=_nanoseconds(began),
            end=_nanoseconds(max(began, ended)),  # the wall clock may jump
            error=error,
            attributes={key: value for key, value in about.items() if value is not None},
        )


def spans_of(run_id: str, events: Iterable[Event], *, content: bool = False) -> list[Span]:
    """Return the spans of a run, in the order in which they ended, the run itself last. `content` as in `SpanReader`."""
    reader = SpanReader(run_id, content=content)
    found = [span for event in events for span in reader.read(event)]
    return [*found, *reader.finish()]


def _standing(status: str, cause: Any) -> Data:
    return {"runjournal.status": status, "runjournal.cause": cause if isinstance(cause, str) else None}


def _said(message: Mapping[str, Any], finish: str | None) -> Data:
    """Return a message in the form that the conventions give it."""
    fields = message["data"]
    parts: list[Data] = []
    if text := text_of(fields.get("content")):
        parts.append({"type": "text", "content": text})
    parts += [
        {"type": "tool_call", "id": call.get("id"), "name": call.get("name"), "arguments": call.get("args")}
        for call in fields.get("tool_calls") or ()
    ]
    role = {"human": "user", "ai": "assistant"}.get(message["type"], message["type"])
    return {"role": role, "parts": parts, **({"finish_reason": finish} if finish else {})}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _hash(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=size).digest()


def _nanoseconds(at: float) -> int:
    return round(at * 1_000) * 1_000_000
