"""Following a run to its end, also one whose owner is killed meanwhile, and what a person sees of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from rich.text import Text

from .._follow import PAGE, Nap
from .._journal import RunJournal
from ..errors import EventsMissing
from ..events import DELTA, Event, Run, RunStatus
from ._find import events_of
from ._settings import Settings
from ._story import Call, Story
from ._words import clean, content_text, lasting, one_line, plural, to_json, tokens

_LONGEST: Final = 1.0
"""Seconds after which one looks without having been woken: at whether the owner lives, for one."""


class Following:
    """The events of a run, in pages, as they come."""

    def __init__(self, journal: RunJournal, run_id: str, after: int) -> None:
        self.after = after
        self.outcome: Literal["ended", "paused", "abandoned"] | None = None
        self._journal = journal
        self._run_id = run_id

    def __iter__(self) -> Iterator[list[Event]]:
        nap = Nap(self._journal._writer, self._run_id)
        woken = False
        try:
            while True:
                # Before reading, so that a wake-up that comes after it makes the next sleep return at once.
                nap.listen()
                events = self._read()
                if events:
                    yield events
                    # Not before it has been shown: whoever goes on from here misses nothing.
                    self.after = events[-1].seq
                elif self.outcome is not None:
                    return  # known before this last look: what came with the end has been read
                else:
                    self.outcome = self._over(look_for_owner=not woken)
                    if self.outcome is None:
                        woken = nap.sleep(_LONGEST)
                    continue
                self.outcome = None
        finally:
            nap.end()

    def _read(self) -> list[Event]:
        events = self._journal.read(self._run_id, self.after, PAGE)
        if events and events[0].seq != self.after + 1:
            found = events[0].seq
            raise EventsMissing(run_id=self._run_id, after=self.after, found=found, url=self._journal.url)
        return events

    def _over(self, *, look_for_owner: bool) -> Literal["ended", "paused", "abandoned"] | None:
        run = self._journal.run(self._run_id)
        if run.ended:
            return "ended"
        if run.status == RunStatus.PAUSED:
            return "paused"
        # Brings in what the owner left, if it is gone: there may be more to read then.
        return "abandoned" if look_for_owner and self._journal._writer.janitor.is_free(run) else None


class Shower(Protocol):
    """Something that shows events."""

    def show(self, events: Sequence[Event]) -> None:
        """Some more of them."""

    def close(self) -> None:
        """There are no more."""


class JsonLines:
    """Each event as a line of JSON, for a program."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def show(self, events: Sequence[Event]) -> None:
        """At once."""
        self._settings.lines([to_json(event.to_dict()) for event in events])

    def close(self) -> None:
        """Nothing is left to do."""


class People:
    """The answers as they come, on stdout; what else happens in lines of their own, on stderr.

    Of answers that are given at the same time, one is shown and the others wait for it to end.
    """

    def __init__(self, settings: Settings, journal: RunJournal, run: Run, after: int) -> None:
        self._settings = settings
        self._run = run
        # What has been seen before: who says the tokens that go on now.
        seen = (event for event in events_of(journal, run.run_id) if event.seq <= after) if after else ()
        self._story = Story(seen)
        self._current: str | None = None
        self._waiting: dict[str | None, list[str]] = {}
        self._in_line = False

    def show(self, events: Sequence[Event]) -> None:
        """At once."""
        for event in events:
            if event.kind == DELTA:
                self._delta(event)
            else:
                self._other(event)
        sys.stdout.flush()

    def close(self) -> None:
        """End the line."""
        for call_id in list(self._waiting):
            self._turn_to(call_id)
        self._end_line()

    def _delta(self, event: Event) -> None:
        story = self._story
        story.read(event)
        text = event.text
        if event.data.get("restart"):
            self._line("begins again", "yellow")
        if not text or story.model(event.call_id).role != "answer":
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

    def _end_line(self) -> None:
        if self._in_line:
            sys.stdout.write("\n")
            self._in_line = False
        sys.stdout.flush()

    def _turn_to(self, call_id: str | None) -> None:
        self._end_line()
        self._write("".join(self._waiting.pop(call_id, [])))

    def _end_call(self, call: Call) -> None:
        """The answer is over: the next one that has begun to speak is shown."""
        if call.call_id in self._waiting:
            self._turn_to(call.call_id)
        if self._current in (None, call.call_id):
            self._current = next(iter(self._waiting), None)
            if self._current is not None:
                self._turn_to(self._current)

    def _other(self, event: Event) -> None:
        self._story.read(event)
        data = event.data
        match event.kind:
            case "llm.ai.response" | "llm.ai.partial" | "llm.error":
                call = self._story.model(event.call_id)
                if call.role == "answer" and event.kind == "llm.ai.response" and not call.deltas:
                    self._whole(call, data)
                if call.role == "answer" and event.kind != "llm.ai.response":
                    self._line(f"{call.outcome}{f': {call.why}' if call.why else ''}", "yellow")
                self._end_call(call)
            case "llm.start":
                self._begin(self._story.model(event.call_id), data)
            case "tool.start" | "llm.tool.result" | "tool.error":
                self._tool(event)
            case "llm.human.input":
                self._line(f"human: {self._story.inputs[-1]}")
            case _:
                self._mark(event)

    def _begin(self, call: Call, data: Mapping[str, Any]) -> None:
        if data.get("replaces"):
            self._line("asked again: what it said before counts no more", "yellow")
        if call.role != "answer":
            self._line(f"{call.role}: {call.name}")

    def _whole(self, call: Call, data: Mapping[str, Any]) -> None:
        """The answer of a model that does not stream."""
        message = data.get("message")
        inner = message.get("data") if isinstance(message, Mapping) else None
        text = content_text(inner.get("content")) if isinstance(inner, Mapping) else ""
        if text:
            self._waiting.setdefault(call.call_id, []).append(text)

    def _tool(self, event: Event) -> None:
        call = self._story.tool(event)
        if event.kind == "tool.start":
            args = to_json(call.args) if call.args is not None else ""
            self._line(f"→ {call.name} {args}")
            return
        message = event.data.get("message")
        inner = message.get("data") if isinstance(message, Mapping) else None
        said = content_text(inner.get("content")) if isinstance(inner, Mapping) else str(call.why or "")
        took = f" ({lasting(call.ended - call.began)})" if call.ended is not None else ""
        self._line(f"← {call.name}{took}: {call.outcome if call.outcome != 'complete' else ''} {said}".replace(":  ", ": "))

    def _mark(self, event: Event) -> None:
        data = event.data
        match event.kind:
            case "run.start":
                about = ", ".join(str(one) for one in (data.get("name"), data.get("thread_id")) if one)
                self._line(f"run {event.run_id} begins" + (f" ({about})" if about else ""))
            case "run.stop":
                self._line(f"a stop was asked for: {data.get('cause')}", "yellow")
            case "run.pause":
                asked = ", ".join(one if isinstance(one, str) else to_json(one) for one in self._story.waits_for)
                self._line(f"waits for a human{f': {asked}' if asked else ''}", "yellow")
            case "run.settled":
                written = data.get("messages")
                count = len(written) if isinstance(written, list) else 0
                self._line(f"its thread is settled: {plural(count, 'message')} written")
            case "run.lost":
                self._line(f"lost {data.get('events')} events that could not be kept", "red")
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
        parts += [f"after {lasting(event.at - self._run.started_at)}"] + ([used] if used else [])
        self._line("run " + ", ".join(parts))

    def _line(self, text: str, style: str = "dim") -> None:
        talk = self._settings.talk
        self._end_line()
        talk.print(Text(one_line(text, talk.width - 1 if talk.is_terminal else 400), style=style), soft_wrap=True)
