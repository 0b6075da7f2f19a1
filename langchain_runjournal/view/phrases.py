"""Pure: what happened in a run, in words that a person understands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from ..common.wording import plural
from ..events import Run
from ..messages.plain_text import spoken
from ..timeline.calls import ModelCall, ToolCall
from ..timeline.timeline import Mark, Timeline
from .elements import bidi_isolate, brief, code, duration, number, safe

ORIGINS: Final[Mapping[str, str]] = {
    "input": "what the run was given",
    "streamed": "a complete answer, as it came",
    "partial": "as far as it was streamed before it was cut off",
    "recovered": "put into the thread from the journal when the run was settled",
    "synthetic": "made up when the run was settled, because the real result was never to be had",
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
    "settled": "The thread was made whole",
    "whole": "The thread lacked nothing",
    "moved_on": "The conversation had gone on without the run; its thread was not touched",
    "left_alone": "The thread was left as it is",
    "held": "The thread was left as it is for now",
    "failed": "The thread could not be settled; it is tried again",
}
STATES: Final[Mapping[str, str]] = {
    "never_started": "it had not started",
    "started": "it was running",
    "failed": "it had failed",
    "waiting": "it waited for a human",
    "cut": "its answer was cut off",
    "beside_cut": "another call of its answer was cut off",
    "unknown": "nothing is known of it",
}

_ARGUMENT: Final = 24


def headline(run: Run, line: Timeline | None) -> str:
    """What became of a run, in a few words; not safe yet."""
    after = _after(run, line)
    match str(run.status):
        case "interrupted":
            heard = "last heard of " if run.cause == "crash" else ""
            return f"Interrupted: {bidi_isolate(run.cause or 'unknown cause')}{f', {heard}after {after}' if after else ''}"
        case "failed":
            return f"Failed{f' after {after}' if after else ''}"
        case "completed":
            return f"Completed{f' in {after}' if after else ''}"
        case "paused":
            return f"Paused: it waits for a human{f', after {after}' if after else ''}"
        case _:
            status = "Its process is gone" if line is not None and line.is_gone else "Running"
            return f"{status}{f', last heard of after {after}' if after else ''}"


def _after(run: Run, line: Timeline | None) -> str:
    if line is None:
        if run.ended_at is None or str(run.status) != "completed":
            return ""  # where it was cut off, its events would say
        return duration(max(0.0, run.ended_at - run.started_at))
    until = line.cut if line.cut is not None else line.ended
    if str(run.status) == "paused":
        until = next((mark.at for mark in reversed(line.marks) if mark.kind == "pause"), until)
    return duration(line.length if until is None else until)


def sentences(line: Timeline) -> str:
    """What a person wants to know first; not safe yet."""
    run, told = line.run, []
    cut = line.cut is not None
    told += _tools(line)
    if any(call.outcome == "partial" and not call.replaced for call in line.models) and cut:
        told.append("The answer was cut off.")
    if not line.tools and not cut:
        told.append(f"{plural(len(line.models), 'model call')}, {plural(len(line.messages), 'message')}.")
    told += [f"{_settlement(mark)}." for mark in line.marks if mark.kind == "settled"][-1:]
    if run.ended and not run.settled:
        told.append("Its thread may lack what the journal holds.")
    if run.lost:
        told.append(f"{plural(run.lost, 'event')} could not be kept.")
    return " ".join(told)


def _tools(line: Timeline) -> list[str]:
    """How far the tools came that the run has asked for: what a tool asks for is its own affair."""
    answers = [call for call in line.models if call.role == "answer" and not (call.replaced or call.unused)]
    asked = Counter(one.id for call in answers if call.outcome == "complete" for one in call.asked)
    found: dict[str, list[ToolCall]] = {}
    for tool in line.tools:
        if tool.inside is None:
            found.setdefault(tool.tool_call_id or tool.call_id, []).append(tool)
    # One that has waited for a human runs twice, and ids may come again with another request.
    ran = [tool for id, tools in found.items() for tool in tools[-max(1, asked[id]) :]]
    count = asked.total() + sum(id not in asked for id in found)
    if not count:
        return []
    in_time = [tool.outcome for tool in ran if not tool.late]
    had = "had " if line.cut is not None else "have " if not line.run.ended else ""
    told = [f"{number(in_time.count('result'))} of {plural(count, 'tool')} {had}finished"]
    if "error" in in_time:
        told.append(f"{number(in_time.count('error'))} failed")
    if late := sum(tool.late for tool in ran):
        told.append(f"{number(late)} ended afterwards")
    return [f"{', '.join(told)}."]


def _settlement(mark: Mark) -> str:
    outcome = str(mark.data.get("outcome"))
    words = SETTLED.get(outcome, "The thread was settled")
    written = mark.data.get("messages")
    if outcome == "settled":
        done = len(written) if isinstance(written, (list, tuple)) else 0
        return f"{words} with {plural(done, 'message')}" if done else words
    reason = mark.data.get("reason")
    return f"{words}: {bidi_isolate(spoken(reason))}" if reason and outcome in ("left_alone", "held", "failed") else words


def mark_words(mark: Mark) -> str:
    """What a mark says; HTML."""
    data = mark.data
    match mark.kind:
        case "stop":
            cause = spoken(data.get("cause") or "stop")
            return f"A stop was asked for{'' if cause == 'stop' else f': {safe(bidi_isolate(cause))}'}"
        case "pause":
            asked = data.get("interrupts")
            values = [_value(one) for one in asked] if isinstance(asked, (list, tuple)) else []
            told = "; ".join(bidi_isolate(value[:300]) for value in values[:5] if value)
            return f"Paused: it waits for a human{f'. Asked: {safe(told)}' if told else ''}"
        case "lost":
            return f"{safe(spoken(data.get('events', 'some')))} events could not be kept"
        case "settled":
            return safe(_settlement(mark))
        case "end":
            words = [
                str(data.get("status", "completed")),
                *(bidi_isolate(brief(spoken(data[key]), 240)) for key in ("cause", "error") if data.get(key)),
            ]
            return f"The end of the run: {safe(', '.join(words))}"
        case _:
            return safe(mark.kind)


def _value(interrupt: object) -> str:
    return spoken(interrupt.get("value")) if isinstance(interrupt, Mapping) else spoken(interrupt)


def model_words(call: ModelCall) -> str:
    """A model call in a line; not safe yet."""
    told = [bidi_isolate(brief(call.model)), OUTCOMES[call.outcome], *how_long(call)]
    if call.characters:
        told.append(plural(call.characters, "character"))
    if call.role != "answer":
        told.insert(1, bidi_isolate(brief(call.role)))
    if call.replaced:
        told.append("replaced by another attempt")
    elif call.unused:
        told.append("its answer was not used")
    return " · ".join(told)


def tool_name(tool: ToolCall) -> str:
    """Its name with its first argument, which tells apart the calls of one tool; not safe yet."""
    args = tool.args
    first = next(iter(args.values()), None) if isinstance(args, Mapping) else args
    told = " ".join(spoken(first)[:200].split()) if isinstance(first, (str, int, float)) else ""
    return bidi_isolate(brief(tool.name)) + (f"({bidi_isolate(brief(told, _ARGUMENT))})" if told else "")


def tool_words(tool: ToolCall) -> str:
    """A tool call in a line; not safe yet."""
    told = [tool_name(tool), OUTCOMES[tool.outcome], *how_long(tool)]
    if tool.late:
        told.append("ended after the run")
    if not tool.ran:
        told.append("no tool has run")
    return " · ".join(told)


def how_long(call: ModelCall | ToolCall) -> list[str]:
    """What a call took, if anybody knows: one part of a line about it, or none."""
    return [] if call.lasts is None else [duration(call.lasts)]


def usage_words(usage: Mapping[str, Any]) -> str:
    """What one call has cost; not safe yet."""
    names = {"input_tokens": "in", "output_tokens": "out"}
    told = [f"{number(usage[key])} {name}" for key, name in names.items() if _is_number(usage.get(key))]
    return f"{', '.join(told)} tokens" if told else ""


def run_usage(run: Run) -> list[tuple[str, str]]:
    """What each model has cost; HTML."""
    found = []
    for model, used in list(run.usage.items())[:20]:
        told = [usage_words(used)] if isinstance(used, Mapping) else [spoken(used)]
        if isinstance(used, Mapping) and _is_number(used.get("calls")):
            told.insert(0, plural(int(used["calls"]), "call"))
            if used.get("incomplete"):
                told.append(f"{spoken(used['incomplete'])} did not report")
        found.append((code(str(model)), safe(", ".join(part for part in told if part))))
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15
