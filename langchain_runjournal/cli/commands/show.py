"""`runjournal show`: everything about one run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from ...common.wording import duration, plural
from ...events import GRAPH, Run, RunStatus
from ...timeline.calls import ModelCall, ToolCall
from ...timeline.timeline import Timeline, timeline
from ..event_data import as_list, interrupt_values
from ..options import Command, Settings, common
from ..output import Output
from ..run_lookup import RunId, events_of, find_run, owner_and_process, short_id
from ..terminal_text import STYLES, ago, arguments, clean, moment, one_line, run_data, standing, tokens

_EPILOG: Final = """\b
Examples:
  runjournal show
  runjournal show 019a2b --json | jq .calls
"""
_WIDE, _NARROW = 110, 72
_OUTCOMES: Final = {
    "complete": "green",
    "failed": "red",
    "cut off": "magenta",
    "not finished": "magenta",
    "waits for a human": "yellow",
    "open": "cyan",
}


@click.command(cls=Command, epilog=_EPILOG, short_help="Show everything about one run.")
@click.argument("run", metavar="[RUN]", required=False, type=RunId())
@common
@click.pass_obj
def show(settings: Settings, run: str | None) -> None:
    """Show everything about one run, or the newest one: its status, its calls, its settlements, and what to do next."""
    output = settings.output
    with settings.open() as journal:
        found = find_run(journal, run)
        line = timeline(found, events_of(output, journal, found))
        owner, process = owner_and_process(journal, found)
        calls = _in_order(line, is_over=found.ended or owner == "gone")
        steps = next_steps(found, owner)
        if output.as_json:
            output.line(
                {
                    **run_data(found, short_id(journal, found.run_id), owner),
                    "owner_process": process,
                    "problem": line.run.problem,
                    "inputs": _inputs(line),
                    "waits_for": _waits_for(line) if found.status == RunStatus.PAUSED else [],
                    "settlements": [{**mark.data, "at": line.began + mark.at} for mark in line.marks_of("settled")],
                    "calls": [call.to_data(line.began) for call in calls],
                    "next": steps,
                }
            )
            return
    _facts(output, found, owner, process, line)
    _calls(output, calls)
    for mark in line.marks_of("settled"):
        _settlement(output, mark.data, line.began + mark.at)
    for step in steps:
        output.out.print(Text(clean(f"\nNext: {step}"), style="bold yellow"))


@dataclass(frozen=True, slots=True)
class _Call:
    """One model call or tool call, in the words of the command line."""

    of: ModelCall | ToolCall
    outcome: str
    """"complete", "failed", "cut off", "replaced", "not used", "open"; of a tool "waits for a human", "not finished"."""
    why: str | None

    def name(self) -> Text:
        of = self.of
        if isinstance(of, ModelCall):
            role = "" if of.role == "answer" else f" ({one_line(of.role)})"
            return Text(one_line(of.model), style="bold").append(role, style="not bold dim")
        args = "" if of.args is None else one_line(arguments(of.args), 60)
        return Text(f"  {one_line(of.name)}").append(args, style="dim")

    def outcome_text(self) -> Text:
        found = Text(self.outcome, style=_OUTCOMES.get(self.outcome, "dim"))
        if self.why:
            found.append(f" ({one_line(self.why, 80)})")
        return found.append(" late", style="dim") if self.of.late else found

    def size(self) -> str:
        of = self.of
        if isinstance(of, ToolCall):
            return ""
        return tokens({"": of.usage})

    def deltas(self) -> str:
        return "" if isinstance(self.of, ToolCall) or not self.of.deltas else f"{self.of.deltas:,}"

    def to_data(self, began: float) -> dict[str, Any]:
        """Return the call as JSON data. `began`: when the run began, by the wall clock."""
        model, tool = (self.of, None) if isinstance(self.of, ModelCall) else (None, self.of)
        return {
            "kind": "model" if model else "tool",
            "name": model.model if model else tool and tool.name,
            "role": model and model.role,
            "inside": self.of.inside,
            "args": tool and tool.args,
            "call_id": self.of.call_id,
            "tool_call_id": tool and tool.tool_call_id,
            "outcome": self.outcome,
            "why": self.why,
            "started_at": began + self.of.began,
            "ended_at": None if self.outcome == "open" else began + self.of.ended,
            "deltas": model.deltas if model else 0,
            "first_delta_at": None if model is None or model.first is None else began + model.first,
            "late": self.of.late,
            "usage": dict(model.usage) if model else {},
        }


def _in_order(line: Timeline, *, is_over: bool) -> list[_Call]:
    """List the calls in the order in which they began. `is_over`: no process is running them, though no event may say so."""
    models = [_Call(one, _of_model(one, is_over), one.error or one.cause) for one in line.models]
    tools = [_Call(one, _of_tool(one, is_over), one.text if one.outcome == "error" else None) for one in line.tools]
    return sorted([*models, *tools], key=lambda call: call.of.seq)


def _of_model(call: ModelCall, is_over: bool) -> str:
    if call.replaced:
        return "replaced"
    if call.unused and call.outcome == "complete":
        return "not used"
    words = {"complete": "complete", "partial": "cut off", "error": "failed", "open": "cut off" if is_over else "open"}
    return words[call.outcome]


def _of_tool(call: ToolCall, is_over: bool) -> str:
    over = "not finished" if is_over else "open"
    words = {"result": "complete", "error": "failed", "interrupted": "waits for a human", "open": over}
    return words[call.outcome]


def _inputs(line: Timeline) -> list[str]:
    return [one.text for one in line.messages if one.origin == "input"]


def _waits_for(line: Timeline) -> list[Any]:
    """List what the last pause asks a human."""
    pauses = line.marks_of("pause")
    return interrupt_values(pauses[-1].data) if pauses else []


def _facts(output: Output, run: Run, owner: str, process: int | None, line: Timeline) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in _rows(run, owner, process, line):
        grid.add_row(name, text)
    output.out.print(grid)


def _rows(run: Run, owner: str, process: int | None, line: Timeline) -> Iterator[tuple[str, Text]]:
    now = time.time()
    yield "run", Text(one_line(run.run_id), style="bold")
    yield "thread", Text(one_line(run.thread_id or "none"))
    yield "name", Text(one_line(run.name or "none"))
    settled = "" if not run.ended or run.settled else ", its thread is not settled"
    yield "status", Text(standing(run), style=STYLES[run.status]).append(settled, style="yellow")
    if run.error:
        yield "error", Text(clean(run.error), style="red")
    if line.run.problem is not None:
        yield "problem", Text(clean(line.run.problem), style="red")
    yield "begun", Text(f"{moment(run.started_at)} ({ago(run.started_at, now)})")
    if run.ended_at is not None:
        yield "ended", Text(f"{moment(run.ended_at)}, after {duration(run.ended_at - run.started_at)}")
    elif line.began:
        last = line.began + line.length
        yield "last event", Text(f"{moment(last)} ({ago(last, now)})")
    yield "events", Text(f"{run.last_seq:,}")
    if run.lost:
        yield "lost", Text(f"{plural(run.lost, 'event')} could not be kept", style="red")
    if run.stop:
        yield "stop", Text(f"requested, cause {one_line(run.stop)}")
    if owner != "nobody":
        words = {
            "alive": "alive",
            "gone": "dead: it ended, or lost its lease",
            "unknown": "on another machine, with a lease that has not run out",
        }
        yield "owner", Text(f"process {process}: {words[owner]}" if process else words[owner])
    if run.continues:
        yield "continues", Text(one_line(run.continues))
    for model, usage in run.usage.items():
        yield "tokens", Text(one_line(f"{model}: {_usage(usage)}"))
    shown = {
        key: value for key, value in run.metadata.items() if not key.startswith("runjournal_") and value != run.thread_id
    }
    if run.metadata.get(GRAPH):
        yield "graph", Text(one_line(str(run.metadata[GRAPH])))
    if shown:
        yield "metadata", Text(one_line(json.dumps(shown, ensure_ascii=False, default=str), 400))
    for said in _inputs(line):
        yield "input", Text(one_line(said, 200))
    if run.status == RunStatus.PAUSED:
        for question in _waits_for(line) or ["a human"]:
            words_ = question if isinstance(question, str) else json.dumps(question, ensure_ascii=False, default=str)
            yield "waits for", Text(one_line(words_, 400), style="yellow")


def _usage(usage: Any) -> str:
    if not isinstance(usage, Mapping):
        return str(usage)
    brief = tokens({"": usage}) or "nothing reported"
    calls, missing = (value if isinstance(value := usage.get(key), int) else 0 for key in ("calls", "incomplete"))
    reported = f"{missing:,} of them did not report" if calls > 1 else "which did not report"
    return brief + (f", {plural(calls, 'call')}" if calls else "") + (f", {reported}" if missing else "")


def _calls(output: Output, calls: list[_Call]) -> None:
    if not calls:
        return
    room = output.out.width
    wide, narrow = room >= _WIDE, room < _NARROW
    outcomes = [call.outcome_text() for call in calls]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    if not narrow:
        table.add_column("at", justify="right", no_wrap=True)
    # The outcome is what counts: of a narrow terminal it gets its room first, and the name of the call the rest.
    table.add_column(
        "call", overflow="ellipsis", no_wrap=True, max_width=60 if wide else max(8, room - 34) if narrow else 30
    )
    table.add_column("took", justify="right", no_wrap=True)
    longest = max(one.cell_len for one in outcomes)
    table.add_column("outcome", overflow="fold", min_width=min(longest, 16), max_width=40)
    if not narrow:
        table.add_column("tokens", no_wrap=True)
    if wide:
        table.add_column("deltas", justify="right", no_wrap=True)
    for call, outcome in zip(calls, outcomes, strict=True):
        took = "" if call.of.lasts is None else duration(call.of.lasts)
        row: list[Text | str] = [call.name(), took, outcome]
        if not narrow:
            row = [f"+{duration(call.of.began)}", *row, Text(call.size(), style="dim")]
        table.add_row(*row, *([Text(call.deltas(), style="dim")] if wide else []))
    output.out.print()
    output.out.print(table)


def _settlement(output: Output, data: Mapping[str, Any], at: float) -> None:
    written = [one for one in as_list(data.get("messages")) if isinstance(one, Mapping)]
    late = " (late)" if data.get("late") else ""
    line = Text(f"\nSettlement{late}: ", style="bold").append(one_line(str(data.get("outcome"))), style="green")
    if data.get("reason"):
        line.append(clean(f" ({data['reason']})"), style="dim")
    output.out.print(line.append(f", {moment(at)}", style="dim"))
    for one in written:
        output.out.print(Text("  " + one_line(f"{one.get('type')}, {one.get('origin')}: {one.get('id')}")), soft_wrap=True)


def next_steps(run: Run, owner: str) -> list[str]:
    """List what a person can do about a run now."""
    name = run.run_id
    if run.status == RunStatus.PAUSED:
        return ["it waits for a human: resume its graph with the answer, or send the thread a new message"]
    needs_graph = GRAPH in run.metadata
    if owner == "gone":
        return [f"its owner is dead: `runjournal recover{' --graph module:attribute' if needs_graph else ''}` ends the run"]
    if run.given_up:
        return ["its thread stays as it is: `runjournal transcript` prints what was said"]
    if run.ended and not run.settled:
        return ["its thread may lack messages: `runjournal recover --graph module:attribute` settles it"]
    if owner == "alive" and run.stop is None:
        return [f"it is running: `runjournal follow {name}`, or `runjournal stop {name}`"]
    return []
