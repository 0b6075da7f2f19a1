"""Pure: the conversation of a run and its settlements, as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..common.wording import plural
from ..events import RunStatus
from ..messages.plain_text import spoken
from ..timeline.conversation import DisplayedMessage, written_messages
from ..timeline.timeline import Mark, Timeline
from .anchors import Anchors
from .elements import HEAD, Place, badge, bidi_isolate, code, facts, number, safe, since, some
from .phrases import ORIGINS, SETTLED, STATES
from .texts import FEW, MANY, RESULT, asked_list, block, folding, if_many, left_out, prose, thinking

_WHO: Final[Mapping[str, str]] = {
    "human": "User",
    "ai": "Assistant",
    "system": "System",
    "tool": "Tool",
    "remove": "Removed",
}


def conversation(line: Timeline, place: Place, anchors: Anchors) -> str:
    """Return the messages in the order of the thread."""
    messages = line.messages
    if line.is_unreadable:
        return '<p class="rj-note">The messages cannot be shown: an event has data that the journal does not record.</p>'
    if not messages:
        return '<p class="rj-note">The run has no messages.</p>'
    kept, left = some(messages)
    open_ = line.run.status in (RunStatus.RUNNING, RunStatus.PAUSED)
    most = FEW if sum(one.kind == "tool" for one in messages) > MANY else RESULT
    parts = []
    for at, one in kept:
        if left and at == len(messages) - (len(kept) - HEAD):
            parts.append(left_out(left, "message"))
        parts.append(_message(one, at + 1, place, most, anchors, is_dead=line.is_dead))
    when = "a process recovers the run" if line.is_dead else "the current step ends"
    note = f'<p class="rj-note">As recorded so far: the thread gets these messages when {when}.</p>'
    return f'{note if open_ else ""}<ol class="rj-talk{if_many(len(kept))}">{"".join(parts)}</ol>'


def _message(one: DisplayedMessage, at: int, place: Place, most: int, anchors: Anchors, *, is_dead: bool) -> str:
    kind = one.kind if one.kind in _WHO else "other"
    cut = ""
    if one.origin == "partial":
        cut = f' <span class="rj-cut-here">{_cut_words(one.reason, is_dead=is_dead)}</span>'
    body = [thinking(one.thinking, place)] if one.thinking else []
    if not one.text:
        if cut or not one.asked:
            body.append(block(f'<span class="rj-note">(no text)</span>{cut}', "rj-text"))
    elif one.kind == "tool":
        body.append(folding(one.text, place, most, "rj-text", cut))
    else:
        body.append(prose(one.text, place, cut) if one.kind == "ai" else block(place.text(one.text) + cut, "rj-text"))
    if one.origin == "synthetic":
        later = " The real result arrived later; the next message of the thread replaces this one." if one.outdated else ""
        body.append(f'<p class="rj-note">Written by the settlement: {STATES[one.state or "unknown"]}.{later}</p>')
    if one.asked:
        body.append(asked_list(one.asked, place, most))
    if one.dropped:
        names = ", ".join(code(call.name) for call in one.dropped[:20])
        body.append(f'<p class="rj-note">The cut-off answer was requesting {names}; that is not part of the thread.</p>')
    top = f'<div class="rj-head">{" ".join(_message_head(one, anchors, is_dead=is_dead))}</div>'
    item = f'<li class="rj-message rj-is-{kind} rj-from-{one.origin}"{anchors.id("message", at)}>'
    return f"{item}{top}{''.join(body)}</li>"


def _message_head(one: DisplayedMessage, anchors: Anchors, *, is_dead: bool) -> list[str]:
    head = [f'<b class="rj-who">{safe(_WHO.get(one.kind, one.kind))}</b>']
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
    call = anchors.models.get(one.call_id or "") or (
        anchors.tools.get(one.tool_call_id or "") if one.kind == "tool" else None
    )
    if call is not None and anchors.place.has_links:
        head.append(anchors.link("row", call.seq, "in the timeline", "rj-of"))
    at = anchors.marks.get(one.settled_seq or 0)
    if at is not None and anchors.place.has_links:
        head.append(anchors.link("mark", at, f"settled at mark {at}", "rj-of"))
    return head


def _cut_words(reason: str | None, *, is_dead: bool) -> str:
    if reason == "running" and not is_dead:
        return "\u2026 still streaming"
    why = "its process was killed" if reason == "running" else safe(bidi_isolate(reason or "unknown"))
    return f"\u2702 cut off here: {why}"


# --- settlement -------------------------------------------------------------------------------------------------------


def settlement(line: Timeline, place: Place, anchors: Anchors) -> str:
    """Return what settlements did to the thread, and the checkpoint to resume from; empty without a settlement."""
    marks = [mark for mark in line.marks if mark.kind == "settled"]
    parts = [_settled(mark, place, anchors) for mark in marks[:20]]
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


def _settled(mark: Mark, place: Place, anchors: Anchors) -> str:
    data, written = mark.data, written_messages(mark.data)
    words = SETTLED.get(str(data.get("outcome")), SETTLED["settled"])
    late = f" {badge('late', 'late')}" if mark.late else ""
    pairs = [("Outcome", f"{safe(words)}, after {since(mark.at)}{late}")]
    numbers = anchors.written.get(mark.seq, ())
    if numbers and place.has_links:
        pairs.append(("Messages", anchors.message_links(numbers)))
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
