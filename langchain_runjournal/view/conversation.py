"""Pure: the conversation of a run, its settlements, and its calls one by one, as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from ..common.wording import plural
from ..events import RunStatus
from ..messages.plain_text import Asked, spoken
from ..timeline.calls import ModelCall, ToolCall
from ..timeline.conversation import DisplayedMessage, written_messages
from ..timeline.timeline import Mark, Timeline
from .elements import MOST, Place, badge, bidi_isolate, code, duration, facts, number, safe, since
from .phrases import ORIGINS, OUTCOMES, SETTLED, STATES, model_words, tool_words, usage_words

_T = TypeVar("_T")

_WHO: Final[Mapping[str, str]] = {
    "human": "User",
    "ai": "Assistant",
    "system": "System",
    "tool": "Tool",
    "remove": "Removed",
}
_RESULT: Final = 4_000
_ARGS: Final = 2_000
_FEW: Final = 600
"""Characters of a result or of arguments, on a page with more than `_MANY` of them."""
_MANY: Final = 200
_LINE: Final = "\n"


def conversation(line: Timeline, place: Place) -> str:
    """Return the messages in the order of the thread."""
    messages = line.messages
    if line.is_unreadable:
        return '<p class="rj-note">The messages cannot be shown: an event has data that the journal does not record.</p>'
    if not messages:
        return '<p class="rj-note">The run has no messages.</p>'
    numbers = {line.models[at].call_id: at + 1 for at, _ in _some(line.models)[0]}
    kept, left = _some(messages)
    open_ = line.run.status in (RunStatus.RUNNING, RunStatus.PAUSED)
    most = _FEW if sum(one.kind == "tool" for one in messages) > _MANY else _RESULT
    parts = []
    for at, one in kept:
        if left and at == len(messages) - (len(kept) - _HEAD):
            parts.append(_left_out(left, "message"))
        parts.append(_message(one, place, most, numbers, is_dead=line.is_dead))
    when = "a process recovers the run" if line.is_dead else "the current step ends"
    note = f'<p class="rj-note">As recorded so far: the thread gets these messages when {when}.</p>'
    return f'{note if open_ else ""}<ol class="rj-talk{_if_many(len(kept))}">{"".join(parts)}</ol>'


_HEAD: Final = MOST // 4


def _some(found: Sequence[_T]) -> tuple[list[tuple[int, _T]], int]:
    """Return the first and the last items with their places, at most `MOST`, and the number of the others."""
    every = list(enumerate(found))
    if len(every) <= MOST:
        return every, 0
    return every[:_HEAD] + every[-(MOST - _HEAD) :], len(every) - MOST


def _left_out(left: int, what: str) -> str:
    return (
        f'<li class="rj-left-out">{plural(left, what)} {"is" if left == 1 else "are"} left out here;'
        " <code>runjournal export</code> has them.</li>"
    )


def _message(one: DisplayedMessage, place: Place, most: int, numbers: Mapping[str, int], *, is_dead: bool) -> str:
    kind = one.kind if one.kind in _WHO else "other"
    who = _WHO.get(one.kind, one.kind)
    head = [f'<b class="rj-who">{safe(who)}</b>']
    if one.name:
        head.append(code(one.name))
    is_streaming = one.origin == "partial" and one.reason == "running" and not is_dead
    head.append(
        badge("streamed", "so far", "the part that the model has streamed so far")
        if is_streaming
        else badge(one.origin, one.origin, ORIGINS[one.origin])
    )
    if one.failed:
        head.append(badge("failed", "error"))
    if one.call_id in numbers:
        at = numbers[str(one.call_id)]
        link = f' href="#{place.key}-call-{at}"' if place.has_links else ""
        head.append(f'<a class="rj-of"{link}>call {number(at)}</a>')
    body = []
    if one.thinking:
        size = plural(len(one.thinking), "character")
        body.append(f"<details><summary>Thinking, {size}</summary>{_text(place.text(one.thinking), 'rj-thought')}</details>")
    cut = ""
    if one.origin == "partial":
        cut = f' <span class="rj-cut-here">{_cut_words(one.reason, is_dead=is_dead)}</span>'
    text = place.text(one.text, most if one.kind == "tool" else None)
    if text or cut or not one.asked:
        body.append(_text((text or '<span class="rj-note">(no text)</span>') + cut, "rj-text"))
    if one.origin == "synthetic":
        later = " The real result arrived later; the next message of the thread replaces this one." if one.outdated else ""
        body.append(f'<p class="rj-note">Written by the settlement: {STATES[one.state or "unknown"]}.{later}</p>')
    if one.asked:
        body.append(_asked(one.asked, place, most))
    if one.dropped:
        names = ", ".join(code(call.name) for call in one.dropped[:20])
        body.append(f'<p class="rj-note">The cut-off answer was requesting {names}; that is not part of the thread.</p>')
    top = f'<div class="rj-head">{" ".join(head)}</div>'
    return f'<li class="rj-message rj-is-{kind} rj-from-{one.origin}">{top}{"".join(body)}</li>'


def _cut_words(reason: str | None, *, is_dead: bool) -> str:
    if reason == "running" and not is_dead:
        return "\u2026 still streaming"
    why = "its process was killed" if reason == "running" else safe(bidi_isolate(reason or "unknown"))
    return f"\u2702 cut off here: {why}"


def _text(inner: str, kind: str) -> str:
    # With <br>, line ends survive where a viewer removes styles. The direction of each line is set by the style sheet: with
    # dir="auto", a browser scans the whole text again for each line.
    return f'<div class="{kind}">{inner.replace(_LINE, "<br>")}</div>'


def _asked(asked: Sequence[Asked], place: Place, most: int) -> str:
    rows = []
    for one in asked[:MOST]:
        more = "" if one.whole else f" {badge('failed', 'incomplete')}"
        rows.append(f"<li>requests {code(one.name)} <code>{place.text(one.args, min(most, _ARGS))}</code>{more}</li>")
    if len(asked) > MOST:
        rows.append(_left_out(len(asked) - MOST, "request"))
    return f'<ul class="rj-asks">{"".join(rows)}</ul>'


# --- settlement -------------------------------------------------------------------------------------------------------


def settlement(line: Timeline, place: Place) -> str:
    """Return what settlements did to the thread, and the checkpoint to resume from; empty without a settlement."""
    marks = [mark for mark in line.marks if mark.kind == "settled"]
    parts = [_settled(mark, place) for mark in marks[:20]]
    if len(marks) > 20:
        parts.append(f'<p class="rj-note">{plural(len(marks) - 20, "more settlement")}.</p>')
    if line.run.ended and not line.run.settled:
        problem = next((mark.data.get("problem") for mark in line.marks if mark.kind == "end"), None)
        why = f": {place.text(spoken(problem), 500)}" if problem else ""
        parts.append(
            f'<p class="rj-warn">Not settled yet{why}. The next message of its thread settles the run, and so does'
            " <code>runjournal recover</code> with its graph.</p>"
        )
    return "".join(parts)


def _settled(mark: Mark, place: Place) -> str:
    data, written = mark.data, written_messages(mark.data)
    words = SETTLED.get(str(data.get("outcome")), SETTLED["settled"])
    late = f" {badge('late', 'late')}" if mark.late else ""
    pairs = [("Outcome", f"{safe(words)}, after {since(mark.at)}{late}")]
    if data.get("reason"):
        pairs.append(("Reason", place.text(spoken(data["reason"]), 1000)))
    if data.get("before"):
        pairs.append(("Can be resumed from", code(spoken(data["before"])[:200])))
    if data.get("after"):
        pairs.append(("Last checkpoint", code(spoken(data["after"])[:200])))
    rows = "".join(
        f"<li>{badge(origin if (origin := str(one.get('origin'))) in ORIGINS else 'other', origin)}"
        f" {safe(str(one.get('type'))[:40])} {code(str(one.get('id'))[:200])}</li>"
        for one in written[:100]
    )
    more = f"<li>and {number(len(written) - 100)} more</li>" if len(written) > 100 else ""
    listed = f'<ol class="rj-wrote">{rows}{more}</ol>' if rows else ""
    return f"{facts(pairs)}{listed}"


# --- calls ------------------------------------------------------------------------------------------------------------


def model_calls(line: Timeline, place: Place) -> str:
    """Return each model call, folded; empty if there are none."""
    if not line.models:
        return ""
    shown = {one.call_id for one in line.messages if one.kind == "ai" and one.call_id}
    kept, left = _some(line.models)
    return _list([_model(call, at + 1, place, call.call_id in shown) for at, call in kept], left)


def tool_calls(line: Timeline, place: Place) -> str:
    """Return each tool call, folded; empty if there are none."""
    if not line.tools:
        return ""
    shown = {one.tool_call_id for one in line.messages if one.kind == "tool" and one.origin != "synthetic"}
    kept, left = _some(line.tools)
    most = _FEW if len(line.tools) > _MANY else _RESULT
    return _list([_tool(call, place, most, call.tool_call_id in shown) for _, call in kept], left)


def _list(items: list[str], left: int) -> str:
    if left:
        items.insert(_HEAD, _left_out(left, "call"))
    return f'<ul class="rj-calls{_if_many(len(items))}">{"".join(items)}</ul>'


def _if_many(items: int) -> str:
    # The style sheet defers the layout of items out of sight, which pays only for many items.
    return " rj-many" if items > 60 else ""


def _model(call: ModelCall, at: int, place: Place, is_shown: bool) -> str:
    pairs = [("Began", f"after {duration(call.began)}")]
    if call.first is not None:
        pairs.append(("First token", f"after {duration(call.first - call.began)}"))
    pairs += [("Tokens seen", number(call.deltas)), ("Characters", number(call.characters))]
    if call.deltas > 1:
        pairs.append(("Longest silence", duration(call.silence)))
    if words := usage_words(call.usage):
        pairs.append(("Usage", safe(words)))
    pairs.append(("Role", safe(call.role)))
    if call.node:
        pairs.append(("Node", code(call.node)))
    if call.attempt > 1:
        pairs.append(("Attempt", number(call.attempt)))
    if call.cause:
        pairs.append(("Cause", safe(call.cause)))
    if call.error:
        pairs.append(("Error", place.text(call.error, 2000)))
    pairs += _id(call.call_id)
    body = [facts(pairs)]
    if is_shown:
        body.append('<p class="rj-note">Its answer is in the conversation above.</p>')
    else:
        if call.thinking:
            body.append(f"<details><summary>Thinking</summary>{_text(place.text(call.thinking), 'rj-thought')}</details>")
        if call.text:
            body.append(_text(place.text(call.text), "rj-text"))
        if call.asked:
            body.append(_asked(call.asked, place, _FEW))
    return _details(f"rj-{call.outcome}", f"{at}. {model_words(call)}", call.began, body, f' id="{place.key}-call-{at}"')


def _tool(call: ToolCall, place: Place, most: int, is_shown: bool) -> str:
    pairs = [("Began", f"after {duration(call.began)}"), ("Outcome", safe(OUTCOMES[call.outcome]))]
    if call.inside:
        pairs.append(("Inside tool call", code(call.inside)))
    if call.tool_call_id:
        pairs.append(("Request", code(call.tool_call_id)))
    pairs += _id(call.call_id)
    body = [facts(pairs)]
    if call.args is not None:
        body.append(f'<p class="rj-name">Arguments</p><pre>{place.text(_pretty(call.args), min(most, _ARGS))}</pre>')
    if call.text and call.outcome == "result" and is_shown:
        body.append('<p class="rj-note">Its result is in the conversation above.</p>')
    elif call.text:
        name = "Result" if call.outcome == "result" else "Error"
        body.append(f'<p class="rj-name">{name}</p><pre>{place.text(call.text, most)}</pre>')
    return _details(f"rj-{call.outcome}", tool_words(call), call.began, body)


def _id(call_id: str) -> list[tuple[str, str]]:
    return [] if call_id == "None" else [("Call", code(call_id))]  # an event that names no call


def _details(kind: str, words: str, at: float, body: Sequence[str], id: str = "") -> str:
    return (
        f'<li><details class="rj-call {kind}"{id}><summary><span class="rj-at">{since(at)}</span> {safe(words)}</summary>'
        f'<div class="rj-inner">{"".join(body)}</div></details></li>'
    )


def _pretty(args: object) -> str:
    """Return the arguments, one in a line."""
    if not isinstance(args, Mapping) or not args:
        return spoken(args)
    return "\n".join(f"{spoken(key)}: {spoken(value)}" for key, value in args.items())
