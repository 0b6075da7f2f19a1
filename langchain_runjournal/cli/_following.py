"""Following a run to its end, also one whose owner is killed meanwhile, and what a person sees of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from rich.text import Text

from ..common.wording import duration, plural
from ..events import DELTA, Event, Run, RunStatus
from ..events.run_state import as_mapping
from ..journal.check import GapFinder, read_on
from ..journal.core import core_of
from ..journal.follow import PAGE, RunWaiter
from ..journal.run_journal import RunJournal
from ..messages.plain_text import text_of
from ..timeline.calls import as_strings, as_text
from ._settings import Settings
from ._words import clean, one_line, to_json, tokens

_LONGEST: Final = 1.0
"""Seconds after which one looks without having been woken: at whether the owner lives, for one."""


class Following:
    """The events of a run, in pages, as they come; those behind a gap, too."""

    def __init__(self, journal: RunJournal, run: Run, after: int) -> None:
        self.after = after
        self.outcome: Literal["ended", "paused", "abandoned"] | None = None
        self.run = run
        """As it was before the last look at its events."""
        self.seen: list[Event] = []
        """What comes before: it has been seen already."""
        self.tally = GapFinder(run.run_id)
        self._journal = journal
        self._look_back(after)

    def _look_back(self, after: int) -> None:
        run_id = self.run.run_id
        while self.tally.last < after and (page := read_on(self._journal, run_id, self.tally.last, PAGE)):
            before = [event for event in page if event.seq <= after]
            self.tally.see(before)
            self.seen += before
            if len(before) < len(page):
                return
        if self.tally.last < after and not self.run.ended:
            self.tally = GapFinder(run_id, after)  # what will come before that is not looked at

    def __iter__(self) -> Iterator[list[Event]]:
        nap = RunWaiter(core_of(self._journal), self.run.run_id)
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
        events = read_on(self._journal, self.run.run_id, self.after, PAGE)
        self.tally.see(events)
        return events

    def _over(self, *, look_for_owner: bool) -> Literal["ended", "paused", "abandoned"] | None:
        self.run = run = self._journal.run(self.run.run_id)
        if run.ended:
            return "ended"
        if run.status == RunStatus.PAUSED:
            return "paused"
        # Brings in what the owner left, if it is gone: there may be more to read then.
        return "abandoned" if look_for_owner and core_of(self._journal).dead_owners.owner_is_gone(run) else None


class Shower(Protocol):
    """Something that shows events."""

    def show(self, events: Sequence[Event]) -> None:
        """Some more of them."""

    def end_line(self) -> None:
        """Something else is about to be said."""

    def close(self) -> None:
        """There are no more."""


class JsonLines:
    """Each event as a line of JSON, for a program."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def show(self, events: Sequence[Event]) -> None:
        """At once."""
        self._settings.lines([to_json(event.to_dict()) for event in events])

    def end_line(self) -> None:
        """Each is one already."""

    def close(self) -> None:
        """Nothing is left to do."""


@dataclass(slots=True)
class _Voice:
    """A model call, or a tool, that has begun."""

    id: str | None
    name: str
    began: float
    role: str = "answer"
    spoke: bool = False


class _Voices:
    """Who is who, of those whose events have been read."""

    def __init__(self, seen: Iterable[Event]) -> None:
        self._models: dict[str | None, _Voice] = {}
        self._tools: dict[str, _Voice] = {}
        for event in seen:
            if event.kind == "tool.start":
                self.tool(event)
            elif event.kind.startswith("llm.") and event.call_id is not None:
                self.model(event)

    def model(self, event: Event) -> _Voice:
        """Of which call of a model an event speaks."""
        voice = self._models.get(event.call_id)
        if voice is None:
            voice = self._models[event.call_id] = _Voice(event.call_id, "", event.at)
        if event.kind == DELTA:
            voice.spoke = True
        elif event.kind == "llm.start":
            voice.name, voice.role = as_text(event.data.get("model")) or "", as_text(event.data.get("role")) or "answer"
        elif event.kind == "llm.ai.response":
            voice.role = as_text(event.data.get("role")) or voice.role
        return voice

    def shown(self, call_ids: Iterable[str]) -> int:
        """How many of some calls looked like answers so far."""
        voices = [self._models[id] for id in call_ids if id in self._models]
        return sum(voice.spoke and voice.role == "answer" for voice in voices)

    def tool(self, event: Event) -> _Voice:
        """Of which tool."""
        id = str(event.data.get("tool_call_id"))
        if event.kind == "tool.start" or id not in self._tools:
            name = event.data.get("name") or message_of(event).get("name")
            self._tools[id] = _Voice(id, as_text(name) or "", event.at)
        return self._tools[id]


def message_of(event: Event) -> Mapping[str, Any]:
    """The fields of the message that an event holds, if it does."""
    return as_mapping(as_mapping(event.data.get("message")).get("data"))


class People:
    """The answers as they come, on stdout; what else happens in lines of their own, on stderr.

    Of answers that are given at the same time, one is shown and the others wait for it to end.
    """

    def __init__(self, settings: Settings, run: Run, seen: Iterable[Event]) -> None:
        self._settings = settings
        self._run = run
        # Who says the tokens that go on now.
        self._voices = _Voices(seen)
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
        self.end_line()

    def _delta(self, event: Event) -> None:
        voice = self._voices.model(event)
        text = event.text
        if event.data.get("restart"):
            self._line("begins again", "yellow")
        if not text or voice.role != "answer":
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
        """So that something else can be said."""
        if self._in_line:
            sys.stdout.write("\n")
            self._in_line = False
        sys.stdout.flush()

    def _turn_to(self, call_id: str | None) -> None:
        self.end_line()
        self._write("".join(self._waiting.pop(call_id, [])))

    def _end_call(self, call_id: str | None) -> None:
        """The answer is over: the next one that has begun to speak is shown."""
        if call_id in self._waiting:
            self._turn_to(call_id)
        if self._current in (None, call_id):
            self._current = next(iter(self._waiting), None)
            if self._current is not None:
                self._turn_to(self._current)

    def _other(self, event: Event) -> None:
        match event.kind:
            case "llm.start":
                self._begin(event)
            case "llm.ai.response" | "llm.ai.partial" | "llm.error":
                self._over(event)
            case "tool.start" | "llm.tool.result" | "tool.error":
                self._tool(event)
            case "task.end":
                count = self._voices.shown(as_strings(event.data.get("kept")))
                if count:
                    node = as_text(event.data.get("node")) or "a node"
                    self._line(f"{node} keeps {plural(count, 'answer')} to itself: not part of the conversation", "yellow")
            case "llm.human.input":
                self._line(f"human: {text_of(message_of(event).get('content'))}")
            case _:
                self._mark(event)

    def _begin(self, event: Event) -> None:
        voice = self._voices.model(event)
        if event.data.get("replaces"):
            self._line("asked again: what it says takes the place of what it said before", "yellow")
        if voice.role != "answer":
            self._line(f"{voice.role}: {voice.name}")

    def _over(self, event: Event) -> None:
        voice = self._voices.model(event)
        if voice.role == "answer":
            if event.kind != "llm.ai.response":
                why = event.data.get("error") or event.data.get("cause")
                self._line(
                    ("cut off" if event.kind == "llm.ai.partial" else "failed") + (f": {why}" if why else ""), "yellow"
                )
            elif not voice.spoke and (text := text_of(message_of(event).get("content"))):
                self._waiting.setdefault(event.call_id, []).append(text)  # of a model that does not stream
        self._end_call(event.call_id)

    def _tool(self, event: Event) -> None:
        voice, data = self._voices.tool(event), event.data
        if event.kind == "tool.start":
            self._line(f"→ {voice.name} {to_json(data['args']) if data.get('args') is not None else ''}")
            return
        message = message_of(event)
        if event.kind == "tool.error":
            said = "waits for a human" if data.get("interrupted") else f"failed: {data.get('error')}"
        else:
            said = ("failed: " if message.get("status") == "error" else "") + text_of(message.get("content"))
        self._line(f"← {voice.name} ({duration(event.at - voice.began)}): {said}")

    def _mark(self, event: Event) -> None:
        data = event.data
        match event.kind:
            case "run.start":
                about = ", ".join(str(one) for one in (data.get("name"), data.get("thread_id")) if one)
                self._line(f"run {event.run_id} begins" + (f" ({about})" if about else ""))
            case "run.stop":
                self._line(f"a stop was asked for: {data.get('cause')}", "yellow")
            case "run.pause":
                found = data.get("interrupts")
                asked = [as_mapping(one).get("value", one) for one in found] if isinstance(found, (list, tuple)) else []
                words = ", ".join(one if isinstance(one, str) else to_json(one) for one in asked)
                self._line(f"waits for a human{f': {words}' if words else ''}", "yellow")
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
        parts += [f"after {duration(event.at - self._run.started_at)}"] + ([used] if used else [])
        self._line("run " + ", ".join(parts))

    def _line(self, text: str, style: str = "dim") -> None:
        talk = self._settings.talk
        self.end_line()
        talk.print(Text(one_line(text, talk.width - 1 if talk.is_terminal else 400), style=style), soft_wrap=True)
