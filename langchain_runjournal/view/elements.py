"""Pure: the elements of a page: text that is escaped for HTML, and times and sizes in words.

Rule: every text that comes from a run reaches the page through `safe` or `Place.text`.
"""

from __future__ import annotations

import hashlib
import html
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ..common import wording as _wording
from ..common.wording import in_utc, sign_for

_T = TypeVar("_T")

_PLANES: Final = "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
_ODD: Final = re.compile(f"\r\n?|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_PLANES}]")
_TURNING: Final = {"R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI"}
_TURNS: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_THIN: Final = "\N{NO-BREAK SPACE}"
"""The space between a number and its unit."""

MOST: Final = 1_000
"""The number of messages, or of calls, that a page shows of one run."""
HEAD: Final = MOST // 4
"""The number of those that are the first ones."""
_TEXT_ROOM: Final = 2_400_000
"""Characters of text in a page. The page shortens the texts after them."""
_SHORT: Final = 300
_WORDS: Final = 4_000


def safe(text: object) -> str:
    """Escape a short text for an HTML element or a quoted attribute. Characters that no file can hold become signs."""
    return _escaped(brief(str(text), _WORDS))


def _escaped(text: str) -> str:
    return html.escape(_ODD.sub(_shown, text))


def brief(text: str, most: int = 120) -> str:
    """Return at most `most` characters of a text: a name may be very long."""
    return text if len(text) <= most else text[: most - 1] + "…"


def bidi_isolate(text: str) -> str:
    """Isolate text from a run in a sentence of ours, so that right-to-left text does not reorder the sentence."""
    if text.isascii() or not any(unicodedata.bidirectional(sign) in _TURNING for sign in text):
        return text
    return "\u2068" + _TURNS.sub("\ufffd", text) + "\u2069"


def _shown(found: re.Match[str]) -> str:
    one = found.group()
    return "\n" if one == "\r\n" else sign_for(one)


def some(found: Sequence[_T]) -> tuple[list[tuple[int, _T]], int]:
    """Return the first and the last items with their places, at most `MOST`, and the number of the others."""
    every = list(enumerate(found))
    if len(every) <= MOST:
        return every, 0
    return every[:HEAD] + every[-(MOST - HEAD) :], len(every) - MOST


@dataclass(slots=True)
class Place:
    """The place of a run in a page: its key, the level of its heading, and the room for text that is left."""

    key: str
    """Unique in the page, and safe in HTML."""
    level: int
    """The level of the heading of the run."""
    has_links: bool = True
    """False in a notebook: it may show one run twice, and a link would lead to the other one."""
    room: list[int] = field(default_factory=lambda: [_TEXT_ROOM])

    def heading(self, below: int, words: str, more: str = "") -> str:
        """Return a heading, `below` levels under that of the run."""
        level = min(6, self.level + below)
        return f"<h{level}{more}>{words}</h{level}>"

    def text(self, text: str, most: int | None = None) -> str:
        """Return the text, escaped. A text that is too long is shortened, with the number of the missing characters."""
        left = self.room[0]
        most = left if most is None else min(most, left)
        most = max(most, _SHORT)
        kept = text[:most]
        shown = _escaped(kept)
        if _size(shown) > 2 * most:  # it has many lines, or many characters that HTML escapes
            kept = kept[: most * most // _size(shown)]
            shown = _escaped(kept)
        self.room[0] = max(0, left - _size(shown))
        if len(kept) == len(text):
            return shown
        return f'{shown}<span class="rj-more">… {number(len(text) - len(kept))} more characters</span>'


def _size(shown: str) -> int:
    return len(shown) + 3 * shown.count("\n")


def key_of(run_id: str) -> str:
    """Return the key of a run, for ids in a page."""
    return "rj" + hashlib.sha1(run_id.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()[:10]


def number(value: float) -> str:
    """Format a number with thousands separators."""
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Format a span of time, with no-break spaces between numbers and units."""
    return _wording.duration(seconds).replace(" ", _THIN)


def since(seconds: float) -> str:
    """Format the time since the beginning, with hundredths of a second below a minute."""
    return f"{seconds:.2f}{_THIN}s" if seconds < 59.995 else duration(seconds)


def moment(at: float) -> str:
    """Format a moment of the wall clock, in UTC."""
    when = in_utc(at)
    if when is None:
        return "unknown"
    return f'<time datetime="{when:%Y-%m-%dT%H:%M:%SZ}">{when:%Y-%m-%d %H:%M:%S} UTC</time>'


def percent(part: float) -> str:
    """Format a position for a style."""
    return f"{part * 100:.3f}".rstrip("0").rstrip(".") + "%"


def badge(kind: str, words: str, title: str = "") -> str:
    """Return a small label. `kind` chooses its colour, and must not come from a run."""
    more = f' title="{safe(title)}"' if title else ""
    return f'<span class="rj-badge rj-b-{kind}"{more}>{safe(words)}</span>'


def facts(pairs: list[tuple[str, str]]) -> str:
    """Return a list of names with values; the values are HTML already."""
    rows = "".join(f"<div><dt>{name}</dt> <dd>{value}</dd></div>" for name, value in pairs)
    return f'<dl class="rj-facts">{rows}</dl>'


def code(text: str) -> str:
    """Return an id or a name in monospace."""
    return f"<code>{safe(brief(text, 300))}</code>"
