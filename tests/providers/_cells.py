"""The matrix: every place, every cut, every client, with the guard and without."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from tests.providers._answers import Answer, Call, Say, Search, Think
from tests.providers._clients import CLIENTS, Client

WORDS = Say(("Grüße ", "aus Zürich, ", "es schneit ", "öfter."))
AFTER = Say(("In Łódź ", "scheint die ", "Sonne überall, ", "noch."))
MOMENT = Say(("Ich sehe für ", "Sie nach: "))
THOUGHT = Think(("Was würde ", "der Nutzer ", "wünschen?"))
SEARCH = Search("Wetter in Zürich", "Schnee")
LOOK = Call("look", {"place": "Zürich und Umgebung"})
DELETE = Call("delete", {"path": "delete only /tmp/a"})
HOLD = Call("hold", {"place": "Genève"})


@dataclass(frozen=True)
class Place:
    """Where the first turn is cut: in the last of its answers, behind a fragment. `tools`: in the tools that it asks for."""

    name: str
    answers: tuple[Answer, ...]
    behind: str | None = None
    tools: bool = False
    needs: str = ""
    """What the provider must be able to do, as in `Client.can`."""


PLACES = {
    one.name: one
    for one in (
        Place("before the first byte", ((WORDS,),), None),
        Place("before the first token", ((WORDS,),), "head"),
        Place("in the first token", ((WORDS,),), "text0:0"),
        Place("in mid text", ((WORDS,),), "text0:1"),
        Place("after the last token", ((WORDS,),), "text0.end"),
        Place("between text and call", ((MOMENT, LOOK),), "text0.end"),
        Place("in thinking", ((THOUGHT, WORDS),), "think0:0", needs="thinks"),
        Place("after thinking", ((THOUGHT, WORDS),), "think0.end", needs="thinks"),
        Place("in text after thinking", ((THOUGHT, WORDS),), "text0:1", needs="thinks"),
        Place("in thinking after text", ((MOMENT, THOUGHT, WORDS),), "think0:0", needs="thinks"),
        Place("after redacted thinking", ((Think((), redacted=True), WORDS),), "think0.end", needs="redacts"),
        Place("in text after redacted", ((Think((), redacted=True), WORDS),), "text0:1", needs="redacts"),
        Place("in a server tool", ((THOUGHT, SEARCH, WORDS),), "search0:0", needs="searches"),
        Place("in a server tool after text", ((THOUGHT, MOMENT, SEARCH, WORDS),), "search0:0", needs="searches"),
        Place("after a server tool", ((THOUGHT, SEARCH, WORDS),), "found0.end", needs="searches"),
        Place("in text after a server tool", ((THOUGHT, SEARCH, WORDS),), "text0:1", needs="searches"),
        Place("in a call's name", ((LOOK,),), "call0.name", needs="fragments"),
        Place("in a call's arguments", ((MOMENT, DELETE),), "call0:0", needs="fragments"),
        Place("in a bare call's arguments", ((DELETE,),), "call0:0", needs="fragments"),
        Place("after a whole call", ((LOOK,),), "call0.end"),
        Place("in the second call's arguments", ((MOMENT, LOOK, DELETE),), "call1:0", needs="fragments"),
        Place("after a call after thinking", ((THOUGHT, MOMENT, LOOK),), "call0.end", needs="thinks"),
        Place("second step, before the first byte", ((MOMENT, LOOK), (AFTER,)), None),
        Place("second step, in mid text", ((MOMENT, LOOK), (AFTER,)), "text0:1"),
        Place("second step, in thinking", ((THOUGHT, MOMENT, LOOK), (THOUGHT, AFTER)), "think0:0", needs="thinks"),
        Place("second step, in arguments", ((LOOK,), (MOMENT, DELETE)), "call0:0", needs="fragments"),
        Place("in a tool", ((MOMENT, HOLD),), tools=True),
        Place("in a batch of tools", ((LOOK, Call("look", {"place": "Łódź"}), HOLD),), tools=True),
    )
}
CUTS = (
    "rst",
    "rst_in_character",
    "fin",
    "fin_in_event",
    "stop",
    "close",
    "timeout",
    "error",
    "overloaded",
    "broken_json",
    "early_end",
    "length",
)
LEFT = frozenset({"stop", "close"})
"""The cuts by which the user ends the turn: no client can take them for the end of an answer."""
NOT = "not cut"
IN_TOOLS = ("stop", "timeout", "error")
MODES = ("agent", "agent+guard", "graph", "graph+repair")
"""An agent of LangChain without and with `ToolPairGuard`; a graph made by hand without and with `repair_tool_pairs`."""


RETRIES = ("agent+retry", "agent+retry, continue")
"""An agent with the guard that asks again when an answer is cut, and gets HTTP 529: `ModelRetryMiddleware` raises that, or
says so in an answer of its own."""
RETRIED = frozenset({"in mid text", "in text after thinking", "in a call's arguments", "second step, in mid text"})
FAILING = ("rst", "fin_in_event", "timeout", "error", "overloaded", "broken_json")


@dataclass(frozen=True)
class Cell:
    """One field of the matrix."""

    client: str
    place: str
    cut: str
    mode: str
    then: str = ""
    """The client that the thread goes on with; "": the same."""

    def __str__(self) -> str:
        switch = f" -> {self.then}" if self.then else ""
        return f"{self.client}{switch} | {self.place} | {self.cut} | {self.mode}"

    @property
    def number(self) -> int:
        """The same on each machine and in each process."""
        return int.from_bytes(hashlib.blake2b(str(self).encode(), digest_size=6).digest(), "big")


def can(client: Client, place: Place) -> bool:
    return not place.needs or place.needs in client.can.split()


def cuts_of(place: Place) -> tuple[str, ...]:
    return IN_TOOLS if place.tools else CUTS


SWITCHED = {
    "in mid text": ("rst", "length"),
    "in text after thinking": ("stop",),
    "after thinking": ("stop",),
    "in text after redacted": ("fin",),
    "in text after a server tool": ("error",),
    "in a call's arguments": ("stop", "early_end"),
    "after a whole call": ("rst",),
    "second step, in mid text": ("overloaded",),
    "in a batch of tools": ("stop",),
}
"""Where threads are cut that go on with another provider, and how."""
HEIRS = (
    "openai-chat",
    "strict-template",
    "anthropic",
    "responses",
    "responses-chained",
    "gemini",
    "ollama",
    "mistral",
    "deepseek",
    "groq",
)
"""The clients that they go on with: one of each wire."""
FORGOTTEN = {"responses-unstored": ("responses", "responses-chained")}
"""Who turns storage on in mid-thread is refused the ids of what was not stored, also when nothing was ever cut."""


HOLDS = {
    "after thinking": "thinking",
    "in text after thinking": "thinking",
    "in text after redacted": "redacted thinking",
    "in text after a server tool": "a server tool",
    "in a call's arguments": "text and a call",
    "second step, in mid text": "text and a call",
    "after a whole call": "a call",
    "in a batch of tools": "a call",
}
"""What the whole answer at such a place has."""
_STRICT = ("openai-chat", "strict-template")
_SEARCHED = (*_STRICT, "anthropic", "ollama", "mistral")
_RESPONSES = {
    "thinking": ("ollama", "mistral"),
    "a server tool": _SEARCHED,
    "text and a call": ("ollama",),
    "a call": ("ollama",),
}
UNREADABLE: dict[str, dict[str, tuple[str, ...]]] = {
    "openai-chat-v1": {"text and a call": ("responses", "responses-chained")},
    "anthropic": {
        "thinking": ("ollama",),
        "redacted thinking": (*_STRICT, "ollama", "mistral"),
        "a server tool": (*_STRICT, "ollama", "mistral"),
    },
    "anthropic-v1": {
        "thinking": ("mistral",),
        "redacted thinking": (*_STRICT, "mistral"),
        "a server tool": (*_STRICT, "responses", "responses-chained", "mistral"),
    },
    "responses": _RESPONSES,
    "responses-v1": {"thinking": ("mistral",), "a server tool": (*_STRICT, "anthropic", "mistral")},
    "responses-unstored": _RESPONSES,
    "responses-chained": _RESPONSES,
    "gemini": {"thinking": (*_STRICT, "anthropic", "ollama"), "a server tool": _SEARCHED},
    "gemini-v1": {"thinking": ("mistral",), "a server tool": (*_STRICT, "anthropic", "mistral")},
    "mistral": {"thinking": (*_STRICT, "anthropic", "ollama")},
}
"""By client and content: the clients that cannot send on such an answer of the other one, also when nothing was cut."""


def readable(cell: Cell) -> bool:
    """Whether the client that the thread goes on with can send on whole answers of the one that it began with."""
    return cell.then not in UNREADABLE.get(cell.client, {}).get(HOLDS.get(cell.place, ""), ())


def matrix() -> Iterator[Cell]:
    """Every cell that there is."""
    for client in CLIENTS.values():
        for place in PLACES.values():
            if can(client, place):
                for cut in cuts_of(place):
                    for mode in MODES:
                        yield Cell(client.name, place.name, cut, mode)
                if place.name in RETRIED:
                    yield from (Cell(client.name, place.name, cut, mode) for cut in FAILING for mode in RETRIES)
    for client in CLIENTS.values():
        heirs = [one for one in HEIRS if one != client.name and one not in FORGOTTEN.get(client.name, ())]
        for name, cuts in SWITCHED.items():
            if can(client, PLACES[name]):
                for then in heirs:
                    for cut in cuts:
                        for mode in MODES[:2]:
                            yield Cell(client.name, name, cut, mode, then)


def controls() -> Iterator[Cell]:
    """The same threads, and nothing is cut: what is refused here is refused for no doing of a cut."""
    for client in CLIENTS.values():
        for place in PLACES.values():
            if can(client, place) and not place.tools:
                yield Cell(client.name, place.name, NOT, "agent")
                if place.name in SWITCHED:
                    for then in HEIRS:
                        if then != client.name and then not in FORGOTTEN.get(client.name, ()):
                            yield Cell(client.name, place.name, NOT, "agent", then)


def sample(cells: list[Cell], size: int) -> list[Cell]:
    """A part of the matrix, the same each time, in which every pair of client, place, cut and mode
    occurs that occurs at all, and every switch."""
    ordered = sorted(cells, key=lambda one: one.number)
    covered: set[tuple[str, str, str]] = set()
    chosen: list[Cell] = []
    rest: list[Cell] = []
    for cell in ordered:
        if cell.then:
            pairs = {(cell.client, "->", cell.then), (cell.then, "<-", cell.place)}
        else:
            parts = [cell.client, cell.place, cell.cut, cell.mode]
            pairs = {(one, "", other) for at, one in enumerate(parts) for other in parts[at + 1 :]}
        if pairs <= covered:
            rest.append(cell)
        else:
            covered |= pairs
            chosen.append(cell)
    return chosen + rest[: max(0, size - len(chosen))]
