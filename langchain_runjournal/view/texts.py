"""Pure: long texts in a page: results that fold, and Markdown as its source, which a reader can have formatted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..common.wording import plural
from ..messages.plain_text import Asked
from .elements import MOST, Place, badge, code, number

RESULT: Final = 4_000
ARGS: Final = 2_000
FEW: Final = 600
"""Characters of a result or of arguments, on a page with more than `MANY` of them."""
MANY: Final = 200
_LINES: Final = 10
_COLUMNS: Final = 100
"""A line that is longer counts as several."""
_LINE: Final = "\n"
_MOST_MARKUP: Final = 200_000
"""A longer text is shown as it is."""

_FENCE: Final = re.compile(r"^( {0,3})(```+|~~~+)[^\n]*$", re.M)
_HEADING: Final = re.compile(r"^(#{1,6} )([^\n]+)$", re.M)
_BULLET: Final = re.compile(r"^([ \t]*)([-*+]) (?=\S)", re.M)
_CODE: Final = re.compile(r"(?<!`)(`{1,2})(?!`)([^`\n<]{1,500})\1(?!`)")
_STRONG: Final = re.compile(r"(\*\*)(?=\S)([^*\n<]{1,500})(?<=\S)\*\*")
_LINK: Final = re.compile(r"\[([^\]\[\n<]{1,300})\](\([^()\s<]{1,500}\))")


def block(inner: str, kind: str, tag: str = "div") -> str:
    """Return HTML as a block of text in which lines end where they ended in the run."""
    # With <br>, line ends survive where a viewer removes styles. The direction of each line is set by the style sheet: with
    # dir="auto", a browser scans the whole text again for each line.
    return f'<{tag} class="{kind}">{inner.replace(_LINE, "<br>")}</{tag}>'


def folding(text: str, place: Place, most: int, kind: str, more: str = "") -> str:
    """Return a result of a tool of which ten lines are in sight. `more` is HTML that follows the text."""
    cut = _cut(text)
    if cut is None or cut >= most:  # or all that the page shows of it is in sight
        return block(place.text(text, most) + more, kind)
    head, rest = text[:cut], text[cut:]
    lines = rest.count(_LINE) + (not rest.endswith(_LINE))
    words = plural(lines, "more line") if lines > 1 else plural(len(rest), "more character")
    shown = block(place.text(head.removesuffix(_LINE), most), kind)
    inner = block(place.text(rest, most - len(head)) + more, kind)
    return f'{shown}<details class="rj-rest"><summary>{words}</summary>{inner}</details>'


def _cut(text: str) -> int | None:
    """Return where a text is folded; None if it is short."""
    at = taken = 0
    while at < len(text):
        end = text.find(_LINE, at)
        end = len(text) if end < 0 else end + 1
        taken += max(1, -(-(end - at) // _COLUMNS))
        if taken > _LINES:
            # A line that is too long is cut itself if nothing would be in sight otherwise.
            cut = at or _LINES * _COLUMNS
            return cut if cut < len(text) else None
        at = end
    return None


def prose(text: str, place: Place, more: str = "") -> str:
    """Return the words of a model: Markdown as its source, with code in a monospaced face, and a switch that formats it."""
    shown = place.text(text)
    marked = shown if len(shown) > _MOST_MARKUP else _marked(shown)
    inner = block(marked + more, "rj-text")
    if marked == shown:
        return inner
    switch = '<label class="rj-switch"><input type="checkbox"> formatted</label>'
    return f'<div class="rj-markdown">{switch}{inner}</div>'


def _marked(shown: str) -> str:
    """Return escaped text with its Markdown in elements. It has the same characters: only the style sheet hides signs."""
    found, at, fences = [], 0, list(_FENCE.finditer(shown))
    while fences:
        opening = fences.pop(0)
        closing = None
        while fences and closing is None:
            one = fences.pop(0)
            if one[2].startswith(opening[2]) and not one[0].strip().strip(opening[2][0]):
                closing = one
        found.append(_inline(shown[at : opening.start()]))
        begin, end = _after(shown, opening), len(shown) if closing is None else closing.start()
        at = len(shown) if closing is None else _after(shown, closing)
        signs = _sign(shown[opening.start() : begin]), "" if closing is None else _sign(shown[end:at])
        found.append(f'<code class="rj-block">{signs[0]}{shown[begin:end]}{signs[1]}</code>')
    found.append(_inline(shown[at:]))
    return "".join(found)


def _after(shown: str, fence: re.Match[str]) -> int:
    """Return where the line after a fence begins."""
    return fence.end() + shown.startswith(_LINE, fence.end())


def _inline(shown: str) -> str:
    shown = _HEADING.sub(lambda m: f'<b class="rj-heading">{_sign(m[1])}{m[2]}</b>', shown)
    shown = _BULLET.sub(lambda m: f'{m[1]}<i class="rj-bullet">{m[2]} </i>', shown)
    parts, at = [], 0
    for one in _CODE.finditer(shown):  # what is code is nothing else
        parts.append(_spans(shown[at : one.start()]))
        parts.append(f"<code>{_sign(one[1])}{one[2]}{_sign(one[1])}</code>")
        at = one.end()
    return "".join([*parts, _spans(shown[at:])])


def _spans(shown: str) -> str:
    shown = _STRONG.sub(lambda m: f"<b>{_sign(m[1])}{m[2]}{_sign(m[1])}</b>", shown)
    return _LINK.sub(lambda m: f"{_sign('[')}<u>{m[1]}</u>{_sign(']' + m[2])}", shown)


def _sign(signs: str) -> str:
    return f'<i class="rj-sign">{signs}</i>'


def asked_list(asked: Sequence[Asked], place: Place, most: int) -> str:
    """Return the tool requests of an answer."""
    rows = []
    for one in asked[:MOST]:
        more = "" if one.whole else f" {badge('failed', 'incomplete')}"
        rows.append(f"<li>requests {code(one.name)} <code>{place.text(one.args, min(most, ARGS))}</code>{more}</li>")
    if len(asked) > MOST:
        rows.append(left_out(len(asked) - MOST, "request"))
    return f'<ul class="rj-asks">{"".join(rows)}</ul>'


def left_out(left: int, what: str) -> str:
    """Return the item of a list that says how many items it leaves out."""
    return (
        f'<li class="rj-left-out">{plural(left, what)} {"is" if left == 1 else "are"} left out here;'
        " <code>runjournal export</code> has them.</li>"
    )


def if_many(items: int) -> str:
    """Return a class for a long list: the style sheet defers the layout of items out of sight."""
    return " rj-many" if items > 60 else ""


def thinking(text: str, place: Place) -> str:
    """Return what a model thought, folded."""
    size = f"{number(len(text))} character{'' if len(text) == 1 else 's'}"
    return f"<details><summary>Thinking, {size}</summary>{block(place.text(text), 'rj-thought')}</details>"
