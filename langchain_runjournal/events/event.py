"""Pure: one immutable fact in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NoReturn, cast

from ..common import strict_json as _json
from ..common.text import FAR_FUTURE, is_utf8
from ..errors import InvalidArgument, UnknownOption
from .vocabulary import DELTA, ENDINGS, KINDS, NO_DATA, Kind


class _Fields:
    """The slots of an event before it becomes immutable. Only the journal itself fills them this way (see `thaw_events`)."""

    __slots__ = ("at", "bare", "call_id", "kind", "run_id", "seq")

    run_id: str
    kind: Kind
    call_id: str | None
    seq: int
    at: float
    # For this package only: what `data` is made of. A str stands for {"text": ...}, the one shape of nearly every event. It
    # is kept bare because a dict for each of 100,000 tokens costs a third of the time and two thirds of the memory of
    # reading them back.
    bare: str | Mapping[str, Any]

    def __init__(
        self, run_id: str, kind: Kind, value: str | Mapping[str, Any], call_id: str | None, seq: int, at: float
    ) -> None:
        self.run_id = run_id
        self.kind = kind
        self.bare = value
        self.call_id = call_id
        self.seq = seq
        self.at = at


class Event(_Fields):
    """One immutable fact in a run.

    `run_id` is the run it belongs to, `kind` one of `KINDS`, `data` anything that JSON can hold, and `call_id` the model or
    tool call that it is about. Leave `seq` and `at` alone when you append: the journal numbers the events of a run 1, 2, 3
    ... without gaps, and stamps them with the wall clock (seconds since 1970, to the millisecond). The order of events is
    the order of their `seq`, never of `at`, which may jump.
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        run_id: str,
        kind: Kind,
        data: Mapping[str, Any] = NO_DATA,
        call_id: str | None = None,
        seq: int = 0,
        at: float = 0.0,
    ) -> None:
        if type(run_id) is not str or not run_id or not (run_id.isascii() or is_utf8(run_id)):
            raise InvalidArgument(
                name="Event.run_id", expected="non-empty UTF-8 text (for a UUID: str(run_id))", value=run_id
            )
        if kind not in KINDS:
            raise UnknownOption(name="Event.kind", what="value", unknown=[kind], known=sorted(KINDS))
        if not isinstance(data, Mapping):
            raise InvalidArgument(name="Event.data", expected="a mapping that JSON can hold", value=data)
        if call_id is not None and type(call_id) is not str:
            raise InvalidArgument(name="Event.call_id", expected="a str or None", value=call_id)
        if kind == "run.end" and data.get("status", "completed") not in ENDINGS:
            name, status = "data['status'] of run.end", data.get("status")
            raise UnknownOption(name=name, what="value", unknown=[status], known=ENDINGS)
        if kind == "run.start" and not _names_thread(data.get("thread_id")):
            raise InvalidArgument(
                name="data['thread_id'] of run.start",
                expected="text that UTF-8 can encode, without half of a surrogate pair",
                value=data["thread_id"],
            )
        if type(seq) is not int or seq < 0:
            raise InvalidArgument(name="Event.seq", expected="an int of 0 (not yet numbered) or more", value=seq)
        if not isinstance(at, (int, float)) or not 0 <= at < FAR_FUTURE:
            raise InvalidArgument(name="Event.at", expected="a number of seconds since 1970, or 0 for now", value=at)
        put = object.__setattr__
        put(self, "run_id", run_id)
        put(self, "kind", kind)
        put(self, "bare", _bare(kind, data))
        put(self, "call_id", call_id)
        put(self, "seq", seq)
        put(self, "at", at)

    @property
    def data(self) -> Mapping[str, Any]:
        """The facts, as JSON values. Treat them as read-only: the event does not protect them."""
        value = self.bare
        return {"text": value} if isinstance(value, str) else value

    @property
    def text(self) -> str:
        """The words that this delta adds to what the user sees; empty for any other event, and for arguments or thinking."""
        if isinstance(self.bare, str):
            return self.bare
        return visible_text(self.bare) if self.kind == DELTA else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the event as a plain dict for JSON, for an SSE frame or a log line.

        A strict parser accepts what `json.dumps` makes of it: JSON has neither NaN nor infinity, so they are the strings
        "NaN", "Infinity" and "-Infinity", and any other object that JSON cannot hold is its repr.
        """
        value = self.bare
        return {
            "run_id": self.run_id,
            "seq": self.seq,
            "kind": self.kind,
            "at": self.at,
            "call_id": self.call_id,
            "data": {"text": value} if isinstance(value, str) else _json.standard(value),
        }

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an Event cannot be changed: make a new one instead of setting {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"an Event cannot be changed: {name!r} stays")

    def _key(self) -> tuple[Any, ...]:
        return self.run_id, self.seq, self.kind, self.at, self.call_id, self.bare

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Event) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.run_id, self.seq, self.kind, self.at))

    def __repr__(self) -> str:
        call = f", call_id={self.call_id!r}" if self.call_id is not None else ""
        return f"Event(run_id={self.run_id!r}, seq={self.seq}, kind={self.kind!r}{call}, data={self.data!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _event_from, (self.run_id, self.kind, dict(self.data), self.call_id, self.seq, self.at)


def _event_from(run_id: str, kind: Kind, data: Mapping[str, Any], call_id: str | None, seq: int, at: float) -> Event:
    return Event(run_id=run_id, kind=kind, data=data, call_id=call_id, seq=seq, at=at)


def _names_thread(thread_id: object) -> bool:
    """Return whether the id of a thread can be stored.

    With a sign in place of half of a surrogate pair, it could be the id of another thread.
    """
    return not isinstance(thread_id, str) or is_utf8(thread_id)


def _bare(kind: str, data: Mapping[str, Any]) -> str | Mapping[str, Any]:
    if kind == DELTA and len(data) == 1:
        text = data.get("text")
        if type(text) is str:
            return text
    return data


def visible_text(delta: Mapping[str, Any]) -> str:
    """Return the visible words of a delta."""
    text, blocks = delta.get("text"), delta.get("blocks")
    words = [text] if isinstance(text, str) else []
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, str):
            words.append(block)
        elif isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str):
            words.append(block["text"])
    return "".join(words)


def thaw_events(
    run_id: str,
    kinds: Iterable[Kind],
    values: Sequence[str | Mapping[str, Any]],
    calls: Iterable[str | None],
    first: int,
    ats: Iterable[float],
) -> list[Event]:
    """Return events that the journal itself wrote, without validating them again.

    This costs a quarter of the constructor.
    """
    fields = list(map(_Fields, repeat(run_id), kinds, values, calls, range(first, first + len(values)), ats))
    for event in fields:
        # From here on, with its slots filled, the object is an Event, which refuses to be changed.
        event.__class__ = Event
    return cast("list[Event]", fields)
