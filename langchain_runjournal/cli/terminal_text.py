"""Text and JSON for the output: a terminal must not obey what a run contains.

Rule: everything that comes from a run is untrusted data. It passes `clean` before a terminal gets it, and `to_json` before a
program does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from ..common import strict_json
from ..common.wording import duration, sign_for
from ..events import Run

_UNSEEN: Final = re.compile(
    # C0 and C1 control characters except line feed and tab; bidirectional formatting; lone surrogates.
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_IN_JSON: Final = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MINUTE: Final = 60
HOUR: Final = 3_600
DAY: Final = 86_400


def clean(text: str) -> str:
    """Replace every control character, which a terminal would obey, by a visible sign."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(lambda found: sign_for(found[0]), text.replace("\r\n", "\n"))


def one_line(text: str, most: int | None = None) -> str:
    """Clean a text, put it into one line, and cut it after `most` characters."""
    text = clean(" ".join(text.split()))
    return text if most is None or len(text) <= most else text[: max(most - 1, 0)] + "…"


def to_json(value: Any) -> str:
    """Encode a value as one line of JSON: any language unescaped, control characters and lone surrogates escaped."""
    text = strict_json.dumps(value)
    return text if text.isascii() and "\x7f" not in text else _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def arguments(args: Any) -> str:
    """Format the arguments of a tool call, in parentheses."""
    if isinstance(args, Mapping):
        return f"({', '.join(f'{key}={_any_json(value)}' for key, value in args.items())})"
    return f"({args})"


def _any_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def ago(then: float, now: float) -> str:
    """Say how long ago a moment was, roughly."""
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
    """Format a moment in the local time zone."""
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S %Z}"


def roughly(seconds: float) -> str:
    """Format a duration in one figure, for a table."""
    if seconds < 59.95:
        return duration(seconds)
    if seconds < 90 * MINUTE:
        return f"{seconds / MINUTE:.0f} min"
    return f"{seconds / HOUR:.0f} h" if seconds < 36 * HOUR else f"{seconds / DAY:.0f} days"


def number(count: float) -> str:
    """Format a number of tokens in at most three digits."""
    if count < 1_000:
        return f"{count:g}"
    if count < 999_500:
        return f"{count / 1_000:.3g}k"
    return f"{count / 1_000_000:.3g}M"


def tokens(usage: Mapping[str, Any]) -> str:
    """Sum up the usage of all models, with a `+` if a call reported none."""
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
    """Return the status of a run, with the cause of an interruption."""
    return f"{run.status} ({one_line(run.cause, 20)})" if run.cause else str(run.status)


STYLES: Final = {"running": "cyan", "paused": "yellow", "completed": "green", "interrupted": "magenta", "failed": "red"}
"""The colour of each status."""


def run_data(run: Run, short: str, owner: str) -> dict[str, Any]:
    """Return a run as JSON data. `owner`: the state of its owner. The keys are stable; an unknown value is null."""
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
        "settled": run.settled if run.ended else None,  # unknown before the end: the thread may still change
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
