"""Pure: the words of a page: headline, sentences, and one line for each mark and each call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from ..common.wording import plural
from ..events import Run
from ..events.run_state import as_mapping
from ..messages.plain_text import custom_words, spoken
from ..messages.tool_results import State
from ..timeline.calls import ModelCall, ToolCall
from ..timeline.conversation import written_messages
from ..timeline.timeline import Mark, Timeline
from .elements import bidi_isolate, brief, code, duration, number, safe

ORIGINS: Final[Mapping[str, str]] = {
    "input": "the input of the run",
    "streamed": "a complete answer, as the model streamed it",
    "partial": "the part that the model streamed before it was cut off",
    "recovered": "written to the thread from the journal when the run was settled",
    "synthetic": "written when the run was settled, because there was no real result",
    "tool": "reported by the tool",
}
OUTCOMES: Final[Mapping[str, str]] = {
    "complete": "complete",
    "partial": "cut off",
    "error": "error",
    "open": "not ended",
    "result": "result",
    "interrupted": "waits for a human",
}
SETTLED: Final[Mapping[str, str]] = {
    "settled": "The thread was settled",
    "whole": "The thread was complete",
    "moved_on": "The conversation had continued without the run; the settlement did not change the thread",
    "left_alone": "The settlement did not change the thread",
    "held": "The settlement is postponed",
    "failed": "The settlement failed, and the journal will retry it",
}
STATES: Final[Mapping[State, str]] = {
    "never_started": "the tool had not started",
    "started": "the tool was running",
    "failed": "the tool had failed",
    "waiting": "the tool was waiting for a human",
    "cut": "the answer was cut off in this request",
    "beside_cut": "the answer was cut off in another request",
    "unknown": "the journal does not know whether the tool ran",
}

_ARGUMENT: Final = 24


def headline(run: Run, line: Timeline | None) -> str:
    """Return what became of a run, in a few words; not escaped."""
    after = _after(run, line)
    match str(run.status):
        case "interrupted":
            last = "last event " if run.cause == "crash" else ""
            return f"Interrupted: {bidi_isolate(run.cause or 'unknown cause')}{f', {last}after {after}' if after else ''}"
        case "failed":
            return f"Failed{f' after {after}' if after else ''}"
        case "completed":
            return f"Completed{f' in {after}' if after else ''}"
        case "paused":
            return f"Paused: it waits for a human{f', after {after}' if after else ''}"
        case _:
            status = "Its process was killed" if line is not None and line.is_dead else "Running"
            return f"{status}{f', last event after {after}' if after else ''}"


def _after(run: Run, line: Timeline | None) -> str:
    if line is None:
        if run.ended_at is None or str(run.status) != "completed":
            return ""  # only the events tell when it was cut off
        return duration(max(0.0, run.ended_at - run.started_at))
    until = line.cut if line.cut is not None else line.ended
    if str(run.status) == "paused":
        until = next((mark.at for mark in reversed(line.marks) if mark.kind == "pause"), until)
    return duration(line.length if until is None else until)


def sentences(line: Timeline) -> str:
    """Return the sentences that a reader needs first; not escaped."""
    run, found = line.run, []
    cut = line.cut is not None
    found += _tools(line)
    if any(call.outcome == "partial" and not call.replaced for call in line.models) and cut:
        found.append("The answer was cut off.")
    if not line.tools and not cut:
        messages = "" if line.is_unreadable else f", {plural(len(line.messages), 'message')}"
        found.append(f"{plural(len(line.models), 'model call')}{messages}.")
    found += [f"{_settlement(mark)}." for mark in line.marks if mark.kind == "settled"][-1:]
    if run.ended and not run.settled:
        found.append("The thread may lack messages that the journal has.")
    if run.lost:
        found.append(f"{plural(run.lost, 'event')} {'was' if run.lost == 1 else 'were'} lost.")
    return " ".join(found)


def _tools(line: Timeline) -> list[str]:
    """Return how many of the requested tools finished. Tools that a tool calls do not count."""
    answers = [call for call in line.models if call.role == "answer" and not (call.replaced or call.unused)]
    asked = Counter(one.id for call in answers if call.outcome == "complete" for one in call.asked)
    found: dict[str, list[ToolCall]] = {}
    for tool in line.tools:
        if tool.inside is None:
            found.setdefault(tool.tool_call_id or tool.call_id, []).append(tool)
    # A tool that waits for a human runs twice, and a later request may use the same id.
    ran = [tool for id, tools in found.items() for tool in tools[-max(1, asked[id]) :]]
    count = asked.total() + sum(id not in asked for id in found)
    if not count:
        return []
    in_time = [tool.outcome for tool in ran if not tool.late]
    had = "had " if line.cut is not None else "have " if not line.run.ended else ""
    parts = [f"{number(in_time.count('result'))} of {plural(count, 'tool')} {had}finished"]
    if "error" in in_time:
        parts.append(f"{number(in_time.count('error'))} failed")
    if late := sum(tool.late for tool in ran):
        parts.append(f"{number(late)} ended after the run")
    return [f"{', '.join(parts)}."]


def _settlement(mark: Mark) -> str:
    outcome = str(mark.data.get("outcome"))
    words = SETTLED.get(outcome, "The thread was settled")
    if outcome == "settled":
        done = len(written_messages(mark.data))
        return f"{words} with {plural(done, 'message')}" if done else words
    reason = mark.data.get("reason")
    return f"{words}: {bidi_isolate(spoken(reason))}" if reason and outcome in ("left_alone", "held", "failed") else words


def mark_words(mark: Mark) -> str:
    """Return a mark in a line; HTML."""
    data = mark.data
    match mark.kind:
        case "stop":
            cause = spoken(data.get("cause") or "stop")
            return f"Stop requested{'' if cause == 'stop' else f': {safe(bidi_isolate(cause))}'}"
        case "pause":
            asked = data.get("interrupts")
            values = [spoken(as_mapping(one).get("value", "")) for one in asked] if isinstance(asked, (list, tuple)) else []
            words = "; ".join(bidi_isolate(value[:300]) for value in values[:5] if value)
            return f"Paused: it waits for a human{f'. It asks: {safe(words)}' if words else ''}"
        case "lost":
            lost = data.get("events")
            if isinstance(lost, int):
                return f"{plural(lost, 'event')} {'was' if lost == 1 else 'were'} lost"
            return f"{safe(spoken(lost))} events were lost"
        case "settled":
            return safe(_settlement(mark))
        case _:
            return "Run ended"  # the heading says how


def report_words(mark: Mark) -> str:
    """Return what a program reported of itself, in a short line; not escaped."""
    return f"report · {bidi_isolate(brief(' '.join(custom_words(mark.data)[:2_000].split()), 200))}"


def model_words(call: ModelCall) -> str:
    """Return a model call in a line; not escaped."""
    words = [bidi_isolate(brief(call.model)), OUTCOMES[call.outcome], *how_long(call)]
    if call.characters:
        words.append(plural(call.characters, "character"))
    if call.role != "answer":
        words.insert(1, bidi_isolate(brief(call.role)))
    if call.node:
        words.append(f"node {bidi_isolate(brief(call.node))}")
    if call.replaced:
        words.append("replaced by a later attempt")
    elif call.unused:
        words.append("its answer was not used")
    return " · ".join(words)


def tool_name(tool: ToolCall) -> str:
    """Return the name of a tool with its first argument, which distinguishes calls of one tool; not escaped."""
    args = tool.args
    first = next(iter(args.values()), None) if isinstance(args, Mapping) else args
    words = " ".join(spoken(first)[:200].split()) if isinstance(first, (str, int, float)) else ""
    return bidi_isolate(brief(tool.name)) + (f"({bidi_isolate(brief(words, _ARGUMENT))})" if words else "")


def tool_words(tool: ToolCall) -> str:
    """Return a tool call in a line; not escaped."""
    words = [tool_name(tool), OUTCOMES[tool.outcome], *how_long(tool)]
    if tool.late:
        words.append("ended after the run")
    if not tool.ran:
        words.append("no tool ran")
    return " · ".join(words)


def row_name(call: ModelCall | ToolCall, *, is_alone: bool) -> str:
    """Return the name of a call in its row. `is_alone`: no other call has this name; not escaped."""
    if isinstance(call, ModelCall) or is_alone:
        return bidi_isolate(brief(call.model if isinstance(call, ModelCall) else call.name))
    return tool_name(call)


def row_tags(
    call: ModelCall | ToolCall, models: Mapping[str, ModelCall], *, ended: bool
) -> list[tuple[Literal["aside", "again", "bad", "wait", "open"], str]]:
    """Return what distinguishes a call from an ordinary one that ended well, as short words with a class each.

    `models`: the model calls of the run by id; `ended`: the run has ended, or its process was killed.
    """
    found: list[tuple[Literal["aside", "again", "bad", "wait", "open"], str]] = []
    if isinstance(call, ModelCall):
        if call.role == "helper":
            found.append(("aside", "helper"))
        if words := attempt_words(call, models):
            found.append(("again", words))
        if call.outcome != "error" and (words := aside_words(call)):
            found.append(("aside", words))
    match call.outcome:
        case "partial":
            found.append(("bad", "cut off"))
        case "error":
            found.append(("bad", "error"))
        case "interrupted":
            found.append(("wait", "waits"))
        case "open":
            found.append(("bad", "not ended") if ended else ("open", "running"))
        case _:
            pass
    if call.late:
        found.append(("wait", "late"))
    return found


def aside_words(call: ModelCall) -> str:
    """Return why the words of an answer are not part of the conversation; empty for a helper call, whose words never are."""
    if call.role == "helper":
        return ""
    return "replaced" if call.replaced else "not used" if call.unused else ""


def attempt_words(call: ModelCall, models: Mapping[str, ModelCall]) -> str:
    """Return whether a call is a retry of the same model or a fallback to another one; an empty text for a first attempt."""
    replaced = [models[id].model for id in call.replaces if id in models]
    if replaced and call.model not in replaced:
        return "fallback"
    return "retry" if replaced or call.attempt > 1 else ""


def token_counts(usage: Mapping[str, Any]) -> str:
    """Return the tokens of a call in a narrow column: "21 / 46", "12.4k / 350"; empty if the provider reported none."""
    counts = [usage.get("input_tokens"), usage.get("output_tokens")]
    if not any(_is_number(count) for count in counts):
        return ""
    return " / ".join(_short(count) if _is_number(count) else "?" for count in counts)


def token_sum(calls: Iterable[ModelCall | ToolCall]) -> dict[str, Any]:
    """Return the tokens of several calls together, as far as providers reported them."""
    found: dict[str, Any] = {}
    for call in calls:
        if isinstance(call, ModelCall):
            for name in ("input_tokens", "output_tokens"):
                if _is_number(count := call.usage.get(name)):
                    found[name] = found.get(name, 0) + count
    return found


def _short(count: Any) -> str:
    for unit, size in (("M", 1_000_000), ("k", 10_000)):
        if abs(count) >= size:
            scaled = count / (1_000_000 if unit == "M" else 1_000)
            return f"{scaled:,.1f}{unit}" if abs(scaled) < 100 else f"{scaled:,.0f}{unit}"
    return number(count)


def cost_words(cost: float | None) -> str:
    """Return a cost in US dollars; not escaped, empty if it is unknown."""
    if cost is None:
        return ""
    digits = 2 if cost >= 1 or cost == 0 else 4 if cost >= 0.01 else 6
    return f"${cost:,.{digits}f}"


def how_long(call: ModelCall | ToolCall) -> list[str]:
    """Return the duration of a call as one part of a line about it; no part if the duration is unknown."""
    return [] if call.lasts is None else [duration(call.lasts)]


def usage_words(usage: Mapping[str, Any]) -> str:
    """Return the tokens of one call or of several: "21 in, 46 out", with those from a cache; not escaped."""
    names = {"input_tokens": "in", "output_tokens": "out"}
    words = [f"{number(usage[key])} {name}" for key, name in names.items() if _is_number(usage.get(key))]
    cached = as_mapping(usage.get("input_token_details")).get("cache_read")
    if words and _is_number(cached) and cached:
        words[0] += f" ({number(cached)} from a cache)"
    thought = as_mapping(usage.get("output_token_details")).get("reasoning")
    if words and _is_number(thought) and thought:
        words[-1] += f" ({number(thought)} of reasoning)"
    return ", ".join(words)


def run_usage(run: Run) -> list[tuple[str, str]]:
    """Return each model with the tokens of its calls; HTML."""
    found = []
    for model, used in list(run.usage.items())[:20]:
        used = as_mapping(used)
        words = [counted] if (counted := usage_words(used)) else []
        missing = used.get("incomplete")
        if _is_number(used.get("calls")) and missing:
            if isinstance(missing, int):
                missing = plural(missing, "call")
            words.append(f"not reported for {spoken(missing)}")
        if words:
            found.append((f"Tokens of {code(str(model))}", safe(", ".join(words))))
    return found


def run_tokens(run: Run) -> str:
    """Return the tokens of all models of a run together; not escaped, empty if no provider reported any."""
    total: dict[str, Any] = {}
    missing = 0
    for used in map(as_mapping, run.usage.values()):
        for name in ("input_tokens", "output_tokens"):
            if _is_number(used.get(name)):
                total[name] = total.get(name, 0) + used[name]
        if isinstance(used.get("incomplete"), int):
            missing += used["incomplete"]
    words = usage_words(total)
    return f"{words} (not reported for {plural(missing, 'call')})" if words and missing else words


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15
