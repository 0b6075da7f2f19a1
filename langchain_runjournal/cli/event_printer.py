"""Print the events of a run: as JSON lines for a program, or as text for a person."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.text import Text

from ..common.wording import duration, plural
from ..events import DELTA, Event, Run
from ..messages.plain_text import custom_words, text_of
from ..timeline.calls import as_strings, as_text
from .event_data import as_list, interrupt_values, message_of
from .output import Output
from .terminal_text import clean, one_line, to_json, tokens


class EventPrinter(Protocol):
    """A printer of events."""

    def show(self, events: Sequence[Event]) -> None:
        """Print events."""

    def end_line(self) -> None:
        """End the current line, before something else is printed."""

    def close(self) -> None:
        """Print what is left, after the last event."""


class JsonPrinter:
    """A printer that writes each event as a line of JSON, for a program."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def show(self, events: Sequence[Event]) -> None:
        """Print events, and flush them."""
        self._output.lines([to_json(event.to_dict()) for event in events])

    def end_line(self) -> None:
        """Do nothing: each event ends its line."""

    def close(self) -> None:
        """Do nothing: each event is printed at once."""


@dataclass(slots=True)
class _Call:
    """A model call or a tool call that has begun."""

    id: str | None
    name: str
    began: float
    role: str = "answer"
    has_text: bool = False


class _Calls:
    """The model calls and tool calls whose events have been read."""

    def __init__(self, seen: Iterable[Event]) -> None:
        self._models: dict[str | None, _Call] = {}
        self._tools: dict[str, _Call] = {}
        for event in seen:
            if event.kind == "tool.start":
                self.tool(event)
            elif event.kind.startswith("llm.") and event.call_id is not None:
                self.model(event)

    def model(self, event: Event) -> _Call:
        """Return the model call of an event."""
        call = self._models.get(event.call_id)
        if call is None:
            call = self._models[event.call_id] = _Call(event.call_id, "", event.at)
        if event.kind == DELTA:
            call.has_text = True
        elif event.kind == "llm.start":
            call.name, call.role = as_text(event.data.get("model")) or "", as_text(event.data.get("role")) or "answer"
        elif event.kind == "llm.ai.response":
            call.role = as_text(event.data.get("role")) or call.role
        return call

    def count_shown(self, call_ids: Iterable[str]) -> int:
        """Count those of some calls whose text was printed as an answer."""
        calls = [self._models[id] for id in call_ids if id in self._models]
        return sum(call.has_text and call.role == "answer" for call in calls)

    def tool(self, event: Event) -> _Call:
        """Return the tool call of an event."""
        id = str(event.data.get("tool_call_id"))
        if event.kind == "tool.start" or id not in self._tools:
            # A result may come without a start: of an unknown tool, or from a human.
            name = event.data.get("name") or message_of(event).get("name")
            self._tools[id] = _Call(id, as_text(name) or "", event.at)
        return self._tools[id]


class TextPrinter:
    """A printer that writes answers to stdout as they arrive, and everything else to stderr, for a person.

    Of answers that stream at the same time, one is printed at once, and the others when the one before them has ended.
    """

    def __init__(self, output: Output, run: Run, seen: Iterable[Event]) -> None:
        self._output = output
        self._run = run
        self._calls = _Calls(seen)
        self._current: str | None = None
        """The call whose text is printed at once."""
        self._waiting: dict[str | None, list[str]] = {}
        """The text of the other calls, by call."""
        self._in_line = False

    def show(self, events: Sequence[Event]) -> None:
        """Print events, and flush stdout."""
        for event in events:
            if event.kind == DELTA:
                self._delta(event)
            else:
                self._other(event)
        sys.stdout.flush()

    def close(self) -> None:
        """Print the text that waits, and end the line."""
        for call_id in list(self._waiting):
            self._print_waiting(call_id)
        self.end_line()

    def _delta(self, event: Event) -> None:
        call = self._calls.model(event)
        text = event.text
        if event.data.get("restart"):
            self._line("begins again", "yellow")
        if not text or call.role != "answer":
            return
        if self._current is None or self._current == event.call_id:
            self._current = event.call_id
            self._write(text)
        else:
            self._waiting.setdefault(event.call_id, []).append(text)

    def _write(self, text: str) -> None:
        text = clean(text)
        sys.stdout.write(text)
        self._in_line = not text.endswith("\n")

    def end_line(self) -> None:
        """End the line of an answer, before something else is printed."""
        if self._in_line:
            sys.stdout.write("\n")
            self._in_line = False
        sys.stdout.flush()

    def _print_waiting(self, call_id: str | None) -> None:
        self.end_line()
        self._write("".join(self._waiting.pop(call_id, [])))

    def _end_call(self, call_id: str | None) -> None:
        """Print the text of the next call that waits, if the current call has ended."""
        if call_id in self._waiting:
            self._print_waiting(call_id)
        if self._current in (None, call_id):
            self._current = next(iter(self._waiting), None)
            if self._current is not None:
                self._print_waiting(self._current)

    def _other(self, event: Event) -> None:
        match event.kind:
            case "llm.start":
                self._begin(event)
            case "llm.ai.response" | "llm.ai.partial" | "llm.error":
                self._end_model(event)
            case "tool.start" | "llm.tool.result" | "tool.error":
                self._tool(event)
            case "task.end":
                count = self._calls.count_shown(as_strings(event.data.get("kept")))
                if count:
                    node = as_text(event.data.get("node")) or "a node"
                    self._line(f"{node} keeps {plural(count, 'answer')} to itself: not part of the conversation", "yellow")
            case "llm.human.input":
                self._line(f"human: {text_of(message_of(event).get('content'))}")
            case "run.custom":
                self._line(f"· {custom_words(event.data)}")
            case _:
                self._mark(event)

    def _begin(self, event: Event) -> None:
        call = self._calls.model(event)
        if event.data.get("replaces"):
            self._line("retry: this answer replaces the one before", "yellow")
        if call.role != "answer":
            self._line(f"{call.role}: {call.name}")

    def _end_model(self, event: Event) -> None:
        call = self._calls.model(event)
        if call.role == "answer":
            if event.kind != "llm.ai.response":
                why = event.data.get("error") or event.data.get("cause")
                self._line(
                    ("cut off" if event.kind == "llm.ai.partial" else "failed") + (f": {why}" if why else ""), "yellow"
                )
            elif not call.has_text and (text := text_of(message_of(event).get("content"))):
                self._waiting.setdefault(event.call_id, []).append(text)  # the model does not stream
        self._end_call(event.call_id)

    def _tool(self, event: Event) -> None:
        call, data = self._calls.tool(event), event.data
        if event.kind == "tool.start":
            self._line(f"→ {call.name} {to_json(data['args']) if data.get('args') is not None else ''}")
            return
        message = message_of(event)
        if event.kind == "tool.error":
            said = "waits for a human" if data.get("interrupted") else f"failed: {data.get('error')}"
        else:
            said = ("failed: " if message.get("status") == "error" else "") + text_of(message.get("content"))
        self._line(f"← {call.name} ({duration(event.at - call.began)}): {said}")

    def _mark(self, event: Event) -> None:
        data = event.data
        match event.kind:
            case "run.start":
                about = ", ".join(str(one) for one in (data.get("name"), data.get("thread_id")) if one)
                self._line(f"run {event.run_id} begins" + (f" ({about})" if about else ""))
            case "run.stop":
                self._line(f"stop requested: {data.get('cause')}", "yellow")
            case "run.pause":
                words = ", ".join(one if isinstance(one, str) else to_json(one) for one in interrupt_values(data))
                self._line(f"waits for a human{f': {words}' if words else ''}", "yellow")
            case "run.settled":
                self._line(f"its thread is settled: {plural(len(as_list(data.get('messages'))), 'message')} written")
            case "run.lost":
                lost = data.get("events")
                what = plural(lost, "event") if isinstance(lost, int) else f"{lost} events"
                self._line(f"lost {what} that could not be kept", "red")
            case "run.end":
                self._end(event)
            case _:
                pass

    def _end(self, event: Event) -> None:
        data = event.data
        why = data.get("cause") or data.get("error")
        usage = data.get("usage")
        used = tokens(usage) if isinstance(usage, Mapping) else ""
        parts = [f"{data.get('status', 'completed')}{f' ({why})' if why else ''}"]
        parts += [f"after {duration(event.at - self._run.started_at)}"] + ([f"tokens: {used}"] if used else [])
        self._line("run " + ", ".join(parts))

    def _line(self, text: str, style: str = "dim") -> None:
        talk = self._output.talk
        self.end_line()
        talk.print(Text(one_line(text, talk.width - 1 if talk.is_terminal else 400), style=style), soft_wrap=True)
