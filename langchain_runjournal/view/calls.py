"""Pure: the calls of a run one by one, as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..messages.plain_text import spoken
from ..timeline.calls import ModelCall, ToolCall
from ..timeline.timeline import Timeline
from .anchors import Anchors
from .elements import HEAD, Place, code, duration, facts, number, safe, since, some
from .phrases import OUTCOMES, attempt_words, cost_words, model_words, run_usage, tool_words, usage_words
from .texts import ARGS, FEW, MANY, RESULT, asked_list, folding, if_many, left_out, prose, thinking


def model_calls(line: Timeline, place: Place, anchors: Anchors) -> str:
    """Return each model call, folded; empty if there are none."""
    if not line.models:
        return ""
    kept, left = some(line.models)
    usage = run_usage(line.run)
    tokens = facts(usage) if len(usage) > 1 else ""
    return tokens + _list([_model(call, at + 1, place, anchors) for at, call in kept], left)


def tool_calls(line: Timeline, place: Place, anchors: Anchors) -> str:
    """Return each tool call, folded; empty if there are none."""
    if not line.tools:
        return ""
    shown = {one.tool_call_id for one in line.messages if one.kind == "tool" and one.origin != "synthetic"}
    kept, left = some(line.tools)
    most = FEW if len(line.tools) > MANY else RESULT
    return _list(
        [_tool(call, place, most, anchors, call.inside is None and call.tool_call_id in shown) for _, call in kept], left
    )


def _list(items: list[str], left: int) -> str:
    if left:
        items.insert(HEAD, left_out(left, "call"))
    return f'<ul class="rj-calls{if_many(len(items))}">{"".join(items)}</ul>'


def _model(call: ModelCall, at: int, place: Place, anchors: Anchors) -> str:
    pairs = [("Began", f"after {duration(call.began)}")]
    if call.first is not None:
        pairs.append(("First token", f"after {duration(call.first - call.began)}"))
    pairs += [("Chunks", number(call.deltas)), ("Characters", number(call.characters))]
    if call.deltas > 1:
        pairs.append(("Longest silence", duration(call.silence)))
    if words := usage_words(call.usage):
        pairs.append(("Tokens", safe(words)))
    if call.cost is not None:
        pairs.append(("Cost", cost_words(call.cost)))
    pairs.append(("Role", safe(call.role)))
    if call.node:
        pairs.append(("Node", code(call.node)))
    if words := attempt_words(call, anchors.models):
        pairs.append(("Attempt", f"{number(call.attempt)}, a {words}"))
    if call.cause:
        pairs.append(("Cause", safe(call.cause)))
    if call.error:
        pairs.append(("Error", place.text(call.error, 2000)))
    pairs += _id(call.call_id)
    body = [facts(pairs)]
    answer = anchors.answers.get(call.call_id)
    if answer is not None:
        link = anchors.link("message", answer, "the conversation above")
        body.append(f'<p class="rj-note">Its answer is in {link}.</p>')
    else:
        if call.thinking:
            body.append(thinking(call.thinking, place))
        if call.text:
            body.append(prose(call.text, place))
        if call.asked:
            body.append(asked_list(call.asked, place, FEW))
    return _details(call, f"{at}. {model_words(call)}", body, anchors)


def _tool(call: ToolCall, place: Place, most: int, anchors: Anchors, is_shown: bool) -> str:
    pairs = [("Began", f"after {duration(call.began)}"), ("Outcome", safe(OUTCOMES[call.outcome]))]
    if call.inside:
        pairs.append(("Inside tool call", code(call.inside)))
    if call.tool_call_id:
        pairs.append(("Request", code(call.tool_call_id)))
    pairs += _id(call.call_id)
    body = [facts(pairs)]
    if call.args is not None:
        body.append(f'<p class="rj-part">Arguments</p><pre>{place.text(_pretty(call.args), min(most, ARGS))}</pre>')
    if call.text and call.outcome == "result" and is_shown:
        link = anchors.link("message", anchors.results.get(call.tool_call_id or ""), "the conversation above")
        body.append(f'<p class="rj-note">Its result is in {link}.</p>')
    elif call.text:
        name = "Result" if call.outcome == "result" else "Error"
        body.append(f'<p class="rj-part">{name}</p>{folding(call.text, place, most, "rj-output")}')
    return _details(call, tool_words(call), body, anchors)


def _id(call_id: str) -> list[tuple[str, str]]:
    return [] if call_id == "None" else [("Call", code(call_id))]  # an event that names no call


def _details(call: ModelCall | ToolCall, words: str, body: Sequence[str], anchors: Anchors) -> str:
    back = ""
    if anchors.place.has_links and call.seq in anchors.rows:
        back = f'<p class="rj-back">{anchors.link("row", call.seq, "In the timeline")}</p>'
    # The target of links is inside: a browser opens what is around a target.
    return (
        f'<li><details class="rj-call rj-{call.outcome}"><summary><span class="rj-at">{since(call.began)}</span>'
        f' {safe(words)}</summary><div class="rj-inner"{anchors.id("call", call.seq)}>{"".join(body)}{back}</div>'
        "</details></li>"
    )


def _pretty(args: object) -> str:
    """Return the arguments, one in a line."""
    if not isinstance(args, Mapping) or not args:
        return spoken(args)
    return "\n".join(f"{spoken(key)}: {spoken(value)}" for key, value in args.items())
