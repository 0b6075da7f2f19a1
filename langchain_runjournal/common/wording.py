"""Pure: numbers, spans of time and moments in words, the same on a page and on a terminal; and signs for controls."""

from __future__ import annotations

from datetime import datetime, timezone

from .text import FAR_FUTURE


def plural(count: int, one: str, many: str | None = None) -> str:
    """A number of things: "1 run", "1,204 runs"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """A span of time in its two largest units: 40 ms, 2.3 s, 1 min 3 s, 2 h, 3 d 4 h."""
    if seconds < 0.9995:
        return f"{round(max(seconds, 0.0) * 1000)} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next(place for place, (value, _) in enumerate(parts) if value)
    return " ".join(f"{value} {unit}" for value, unit in parts[first : first + 2] if value)


def in_utc(at: float) -> datetime | None:
    """A moment of the wall clock, if any calendar has it."""
    return datetime.fromtimestamp(at, timezone.utc) if 0 < at < FAR_FUTURE else None


def sign_for(control: str) -> str:
    """What is shown in place of a character that a terminal or a browser would obey, or that no file can hold."""
    code = ord(control)
    # Control characters have pictures of their own; half of a surrogate pair and the like have none.
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"
