"""How things are written down: for a terminal, which must not obey what a run contains, and for a program.

Rule: whatever comes from a run is somebody's data. It goes through `clean` before a person sees it, and through `to_json`
before a program does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from ..common import strict_json as _json
from ..common.wording import duration, sign_for
from ..events import Run

_UNSEEN: Final = re.compile(
    # Controls of both sets but the line feed and the tab; what turns the direction of writing round; halves of pairs.
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_IN_JSON: Final = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MINUTE: Final = 60
HOUR: Final = 3_600
DAY: Final = 86_400


def clean(text: str) -> str:
    """The text as a terminal may be given it: what it would obey is shown as a sign that stands for it."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(lambda found: sign_for(found[0]), text.replace("\r\n", "\n"))


def one_line(text: str, most: int | None = None) -> str:
    """The same in one line, cut after `most` characters."""
    text = clean(" ".join(text.split()))
    return text if most is None or len(text) <= most else text[: max(most - 1, 0)] + "…"


def to_json(value: Any) -> str:
    """One line of JSON, readable in any language, and without anything that a terminal or a decoder would stumble over."""
    text = _json.dumps(value)
    return text if text.isascii() and "\x7f" not in text else _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def ago(then: float, now: float) -> str:
    """How long ago something was, as a person would say it."""
    past = now - then
    if past < 1:
        return "now"
    if past < 90:
        return f"{past:.0f} s ago"
    if past < 90 * MINUTE:
        return f"{past / MINUTE:.0f} min ago"
    if past < 36 * HOUR:
        return f"{past / HOUR:.0f} h ago"
    if past < 30 * DAY:
        return f"{past / DAY:.0f} days ago"
    return f"{datetime.fromtimestamp(then):%Y-%m-%d}"


def moment(at: float) -> str:
    """A moment, where the reader is."""
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S %Z}"


def roughly(seconds: float) -> str:
    """How long something took, in one figure, for a table."""
    if seconds < 59.95:
        return duration(seconds)
    if seconds < 90 * MINUTE:
        return f"{seconds / MINUTE:.0f} min"
    return f"{seconds / HOUR:.0f} h" if seconds < 36 * HOUR else f"{seconds / DAY:.0f} days"


def number(count: float) -> str:
    """A number of tokens, in brief."""
    if count < 1_000:
        return f"{count:g}"
    if count < 999_500:
        return f"{count / 1_000:.3g}k"
    return f"{count / 1_000_000:.3g}M"


def tokens(usage: Mapping[str, Any]) -> str:
    """What models were used for, in brief, all of them together; a `+` if one of the calls did not report."""
    models = [one for one in usage.values() if isinstance(one, Mapping)]
    taken, given, missing = (
        sum(_count(one, key) for one in models) for key in ("input_tokens", "output_tokens", "incomplete")
    )
    if not taken and not given:
        return ""
    more = "+" if missing else ""
    return f"{number(taken)} in, {number(given)}{more} out"


def _count(usage: Mapping[str, Any], key: str) -> float:
    found = usage.get(key)
    return found if isinstance(found, (int, float)) else 0


def standing(run: Run) -> str:
    """The status, with the cause of an interruption."""
    return f"{run.status} ({one_line(run.cause, 20)})" if run.cause else str(run.status)


STYLES: Final = {"running": "cyan", "paused": "yellow", "completed": "green", "interrupted": "magenta", "failed": "red"}
"""The colour of each status."""


def run_data(run: Run, short: str, owner: str) -> dict[str, Any]:
    """A run for a program. `owner`: how it is with its owner. The keys stay as they are; what is not known is null."""
    return {
        "run_id": run.run_id,
        "short_id": short,
        "thread_id": run.thread_id,
        "name": run.name,
        "status": str(run.status),
        "cause": run.cause,
        "error": run.error,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "events": run.last_seq,
        "settled": run.settled if run.ended else None,  # nobody knows yet what its thread will lack
        "problem": run.problem,
        "stop": run.stop,
        "lost": run.lost,
        "owner": run.owner,
        "owner_state": owner,
        "epoch": run.epoch,
        "continues": run.continues,
        "usage": dict(run.usage),
        "metadata": dict(run.metadata),
    }
