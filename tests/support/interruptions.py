"""The table of test_capture_matrix: ways to call a model, a chain or a graph, and ways in which a call ends."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

STOP, LEFT, TIMEOUT = (("interrupted", cause) for cause in ("stop", "disconnect", "timeout"))
COMPLETED, PAUSED, FAILED = ("completed", None), ("paused", None), ("failed", None)

ENDINGS = {
    "end": COMPLETED,
    "cancel": STOP,
    "cancel twice": STOP,
    "asyncio.timeout": STOP,  # cancels, and nothing distinguishes it from other cancellations
    "anyio scope": LEFT,
    "anyio deadline": TIMEOUT,
    "aclose": LEFT,
    "garbage": LEFT,
    "provider error": FAILED,
    "KeyboardInterrupt": STOP,
    "step_timeout": TIMEOUT,
    "node timeout": TIMEOUT,
    "recursion limit": FAILED,
    "human": PAUSED,
}
ON_A_LOOP = ("cancel", "cancel twice", "asyncio.timeout", "anyio scope", "anyio deadline", "node timeout")
OF_A_GRAPH = ("step_timeout", "node timeout", "recursion limit", "human")
MODELS = ("chat model", "text model")
LEAVING = ("aclose", "garbage")
UNCUT = ("end", "recursion limit", "human")
"""What lets the model finish what it says."""

# What the transcript says:
HEARD = "what the consumer had received"
GIVEN = "what the model had said: the consumer would have received it all at once"
NOTHING = "nothing: LangChain delivers no tokens here"
WHOLE = "all: LangChain lets the model speak to its end"


@dataclass(frozen=True)
class Entry:
    """A way to call something. `how` is the name of the method, and the version or the mode if it has one."""

    subject: str
    how: str
    capture: bool = False

    def __str__(self) -> str:
        return f"{self.subject}: {self.how}{' captured' if self.capture else ''}"

    @property
    def is_async(self) -> bool:
        return self.how.startswith("a")

    @property
    def is_invoke(self) -> bool:
        return self.how.endswith("invoke")

    @property
    def by_token(self) -> bool:
        """Whether the consumer gets one token at a time."""
        if self.how.endswith("v3") and self.subject == "graph of stream":
            return False
        return not self.how.endswith(("invoke", "updates", "values"))

    @property
    def text(self) -> str:
        if self.by_token or self.subject == "graph of stream":
            return HEARD
        return GIVEN if self.capture and self.subject != "text model" else NOTHING


MODEL = ("astream", "ainvoke", "astream_events v2", "stream", "invoke")
GRAPH = ("invoke", "stream messages", "stream updates", "stream values", "stream_events v3")
GRAPHS = dict.fromkeys(
    ("agent", "graph of invoke", "graph of stream"), (*GRAPH, *(f"a{way}" for way in GRAPH), "astream_events v2")
)
WAYS = {
    "chat model": (*MODEL, "stream_events v3", "astream_events v3"),
    "text model": MODEL,
    "chain": MODEL,
    **GRAPHS,
}
ENTRIES = [Entry(subject, how) for subject, ways in WAYS.items() for how in ways]
ENTRIES += [  # asked for, models stream inside of these as well
    Entry(one.subject, one.how, True)
    for one in ENTRIES
    if one.how.endswith(("invoke", "updates", "values")) and one.subject != "graph of stream"
]

# Cells that end otherwise, or keep something else: which entries, which interruptions, how, and what is kept.
SPECIAL: list[tuple[str, str, tuple[str, str | None] | None, str | None]] = [
    # Closing the stream cancels a task that LangChain has made.
    ("*: astream_events v2", "aclose|garbage", STOP, None),
    ("chat model: astream_events v3", "aclose", STOP, None),
    # LangChain reports nothing at all, so the cause of the cancellation is unknown.
    ("* model: ainvoke*", "anyio *", STOP, None),
    # The model has a task of its own, which no code cancels.
    ("chat model: astream_events v3", "cancel*|asyncio.timeout|anyio *|garbage", COMPLETED, WHOLE),
    # The node has a thread of its own, which cannot be stopped and is waited for.
    ("agent: [is]*|graph*: [is]*", "aclose|garbage|step_timeout", None, WHOLE),
]


def expected(entry: Entry, interruption: str) -> tuple[tuple[str, str | None], str]:
    """The expected status, cause and text."""
    ending, text = ENDINGS[interruption], WHOLE if is_uncut(entry, interruption) else entry.text
    for entries, interruptions, other_ending, other_text in SPECIAL:
        if matches(entries, str(entry)) and matches(interruptions, interruption):
            ending, text = other_ending or ending, other_text or text
    return ending, text


def matches(patterns: str, name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns.split("|"))


def is_uncut(entry: Entry, interruption: str) -> bool:
    """Whether the model has said all when the interruption comes: a consumer that gets whole answers leaves after the
    first."""
    return interruption in UNCUT or (interruption in LEAVING and not entry.by_token)


def can_be(entry: Entry, interruption: str) -> bool:
    """Whether this combination exists."""
    if interruption in LEAVING and entry.is_invoke:
        return False
    if interruption == "aclose" and str(entry) == "chat model: stream_events v3":
        return False  # there is nothing to close it with
    if interruption == "node timeout" and entry.subject == "agent":
        return False
    if interruption in OF_A_GRAPH and entry.subject not in GRAPHS:
        return False
    return entry.is_async or interruption not in ON_A_LOOP


CELLS = [(entry, interruption) for entry in ENTRIES for interruption in ENDINGS if can_be(entry, interruption)]
