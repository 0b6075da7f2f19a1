"""Pure: numbers, durations and moments in words, the same on a page and on a terminal; and signs for control characters."""

from __future__ import annotations

from datetime import datetime, timezone

from .text import FAR_FUTURE


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a number of things in words: "1 run", "1,204 runs"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: 40 ms, 2.3 s, 1 min 3 s, 2 h, 3 d 4 h."""
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
    """Return a moment of the wall clock as a datetime; None if no calendar has it."""
    return datetime.fromtimestamp(at, timezone.utc) if 0 < at < FAR_FUTURE else None


def sign_for(control: str) -> str:
    """Return the sign that replaces a character which a terminal or a browser would obey, or which no file can hold."""
    code = ord(control)
    # Unicode has pictures of the control characters, and none of half of a surrogate pair and the like.
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"
