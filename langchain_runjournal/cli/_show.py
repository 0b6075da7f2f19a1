"""`runjournal show` and `runjournal transcript`: one run, as a whole, and what was said in it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table
from rich.text import Text

from ..events import GRAPH, Run, RunStatus
from ._find import Ids, RunId, events_of, find, owner_and_process
from ._settings import Settings, common
from ._story import Call, Story
from ._words import STYLES, ago, clean, content_text, lasting, moment, number, one_line, run_data, standing, tokens

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

_SHOW: Final = """\b
Examples:
  runjournal show @last
  runjournal show 019a2b --json | jq .calls
"""
_TRANSCRIPT: Final = """\b
Examples:
  runjournal transcript @last
  runjournal transcript 019a2b --json | jq -r 'select(.type == "ai").data.content'
"""
_OUTCOMES: Final = {
    "complete": "green",
    "failed": "red",
    "cut off": "magenta",
    "not finished": "magenta",
    "waits for a human": "yellow",
    "open": "cyan",
}


@click.command(epilog=_SHOW, short_help="Everything about one run.")
@click.argument("run", type=RunId())
@common
@click.pass_obj
def show(settings: Settings, run: str) -> None:
    """Everything about one run: where it stands, its calls, what was settled, and what to do next."""
    with settings.open() as journal:
        found = find(journal, run)
        story = Story(events_of(journal, found.run_id))
        owner, process = owner_and_process(journal, found)
        story.close(found, owner == "gone")
        steps = next_steps(found, owner, story)
        if settings.as_json:
            settings.line(
                {
                    **run_data(found, Ids(journal).short(found.run_id)),
                    "owner_state": owner,
                    "owner_process": process,
                    "problem": story.problem,
                    "inputs": story.inputs,
                    "waits_for": story.waits_for if found.status == RunStatus.PAUSED else [],
                    "settlements": story.settlements,
                    "calls": [call.to_data() for call in story.calls],
                    "next": steps,
                }
            )
            return
    _facts(settings, found, owner, process, story)
    _calls(settings, found, story)
    for settlement in story.settlements:
        _settlement(settings, settlement)
    for step in steps:
        settings.out.print(Text(clean(f"\nNext: {step}"), style="bold yellow"))


def _facts(settings: Settings, run: Run, owner: str, process: int | None, story: Story) -> None:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in _rows(run, owner, process, story):
        grid.add_row(name, text)
    settings.out.print(grid)


def _rows(run: Run, owner: str, process: int | None, story: Story) -> Iterator[tuple[str, Text]]:
    now = time.time()
    yield "run", Text(one_line(run.run_id), style="bold")
    yield "thread", Text(one_line(run.thread_id or "none"))
    yield "name", Text(one_line(run.name or "none"))
    settled = "" if not run.ended or run.settled else ", its thread is not settled"
    yield "status", Text(standing(run), style=STYLES[run.status]).append(settled, style="yellow")
    if run.error:
        yield "error", Text(clean(run.error), style="red")
    if story.problem:
        yield "problem", Text(clean(story.problem), style="red")
    yield "begun", Text(f"{moment(run.started_at)} ({ago(run.started_at, now)})")
    if run.ended_at is not None:
        yield "ended", Text(f"{moment(run.ended_at)}, after {lasting(run.ended_at - run.started_at)}")
    elif story.last_at:
        yield "last event", Text(f"{moment(story.last_at)} ({ago(story.last_at, now)})")
    yield "events", Text(f"{run.last_seq:,}")
    if run.lost:
        yield "lost", Text(f"{run.lost:,} events could not be kept", style="red")
    if run.stop:
        yield "stop", Text(f"asked for, cause {one_line(run.stop)}")
    if owner != "nobody":
        words = {"alive": "alive", "gone": "gone: its process was killed", "unknown": "on another machine, may live"}
        yield "owner", Text(f"process {process}: {words[owner]}" if process else words[owner])
    if run.continues:
        yield "continues", Text(one_line(run.continues))
    for model, usage in run.usage.items():
        yield "usage", Text(one_line(f"{model}: {_usage(usage)}"))
    shown = {
        key: value for key, value in run.metadata.items() if not key.startswith("runjournal_") and value != run.thread_id
    }
    if run.metadata.get(GRAPH):
        yield "graph", Text(one_line(str(run.metadata[GRAPH])))
    if shown:
        yield "metadata", Text(one_line(json.dumps(shown, ensure_ascii=False, default=str), 400))
    for said in story.inputs:
        yield "input", Text(one_line(said, 200))
    if run.status == RunStatus.PAUSED:
        for question in story.waits_for or ["a human"]:
            words_ = question if isinstance(question, str) else json.dumps(question, ensure_ascii=False, default=str)
            yield "waits for", Text(one_line(words_, 400), style="yellow")


def _usage(usage: Any) -> str:
    if not isinstance(usage, Mapping):
        return str(usage)
    brief = tokens({"": usage}) or "nothing reported"
    calls, missing = usage.get("calls"), usage.get("incomplete")
    return brief + (f", {calls} calls" if calls else "") + (f", {missing} of them did not report" if missing else "")


def _calls(settings: Settings, run: Run, story: Story) -> None:
    if not story.calls:
        return
    wide = settings.out.width >= 110
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("call", overflow="ellipsis", no_wrap=True, max_width=60 if wide else 30)
    table.add_column("took", justify="right", no_wrap=True)
    table.add_column("outcome", overflow="fold", max_width=40)
    table.add_column("tokens", no_wrap=True)
    now = time.time()
    for call in story.calls:
        end = call.ended or run.ended_at or now
        outcome = Text(call.outcome, style=_OUTCOMES.get(call.outcome, "dim"))
        if call.why:
            outcome.append(f" ({one_line(str(call.why), 80)})")
        if call.late:
            outcome.append(" late", style="dim")
        table.add_row(
            f"+{lasting(call.began - run.started_at)}",
            _call_name(call),
            lasting(end - call.began),
            outcome,
            Text(tokens({"": call.usage}) or (f"{number(call.deltas)} deltas" if call.deltas else ""), style="dim"),
        )
    settings.out.print()
    settings.out.print(table)


def _call_name(call: Call) -> Text:
    indent = "  " if call.kind == "tool" else ""
    text = Text(indent + one_line(call.name or call.kind), style="" if call.kind == "tool" else "bold")
    if call.kind == "tool" and call.args is not None:
        text.append(one_line(_arguments(call.args), 60), style="dim")
    elif call.role not in ("", "answer"):
        text.append(f" ({one_line(call.role)})", style="dim")
    return text


def _arguments(args: Any) -> str:
    if isinstance(args, Mapping):
        return (
            "("
            + ", ".join(f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in args.items())
            + ")"
        )
    return f"({args})"


def _settlement(settings: Settings, data: Mapping[str, Any]) -> None:
    messages = data.get("messages")
    written = [one for one in messages if isinstance(one, Mapping)] if isinstance(messages, list) else []
    late = " (late)" if data.get("late") else ""
    line = Text(f"\nSettlement{late}: ", style="bold").append(one_line(str(data.get("outcome", "settled"))), style="green")
    if data.get("reason"):
        line.append(clean(f" ({data['reason']})"), style="dim")
    if isinstance(data.get("at"), float):
        line.append(f", {moment(data['at'])}", style="dim")
    settings.out.print(line)
    for one in written:
        settings.out.print(Text("  " + one_line(f"{one.get('type')}, {one.get('origin')}: {one.get('id')}")), soft_wrap=True)


def next_steps(run: Run, owner: str, story: Story) -> list[str]:
    """What a person can do about a run now, if there is anything."""
    name = run.run_id
    if run.status == RunStatus.PAUSED:
        return ["it waits for a human: answer with a resume of its graph, or send the thread a new message"]
    needs_graph = GRAPH in run.metadata
    if owner == "gone":
        return [f"its process was killed: `runjournal recover{' --graph module:attribute' if needs_graph else ''}` ends it"]
    if run.ended and not run.settled:
        return ["its thread may lack messages: `runjournal recover --graph module:attribute` settles it"]
    if owner == "alive" and run.stop is None:
        return [f"it is at work: `runjournal follow {name}`, or `runjournal stop {name}`"]
    return []


# --- transcript -------------------------------------------------------------------------------------------------------


@click.command(epilog=_TRANSCRIPT, short_help="The messages of a run.")
@click.argument("run", type=RunId())
@common
@click.pass_obj
def transcript(settings: Settings, run: str) -> None:
    """The messages of a run: what was asked, said and returned, with what was cut off. As JSON: LangChain's own dicts."""
    with settings.open() as journal:
        found = find(journal, run)
        messages = journal.transcript(found.run_id)
    if settings.as_json:
        from langchain_core.messages import message_to_dict

        for message in messages:
            settings.line(message_to_dict(message))
        return
    for place, message in enumerate(messages):
        if place:
            settings.out.print()
        _message(settings, message)
    if not messages:
        settings.note("there is no message in this run yet")


_ROLES: Final = {"human": "bold cyan", "ai": "bold green", "tool": "bold blue", "system": "bold"}


def _message(settings: Settings, message: BaseMessage) -> None:
    heading = Text(one_line(message.type), style=_ROLES.get(message.type, "bold"))
    if message.type == "tool" and message.name:
        heading.append(f" {one_line(message.name)}", style="blue")
    if getattr(message, "status", None) == "error":
        heading.append(" failed", style="red")
    mark = message.additional_kwargs.get("runjournal")
    if isinstance(mark, Mapping):
        heading.append(f" ({_origin(mark)})", style="yellow")
    settings.out.print(heading)
    text = content_text(message.content)
    if text:
        settings.out.print(Text(clean(text)), soft_wrap=not settings.out.is_terminal)
    requests = [*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ())]
    for request in requests:
        asked = f"→ {request.get('name')}{_arguments(request.get('args'))}"
        settings.out.print(Text(one_line(asked), style="dim"), soft_wrap=not settings.out.is_terminal)
    left_out = mark.get("calls") if isinstance(mark, Mapping) else None
    for request in left_out if isinstance(left_out, list) else ():
        if isinstance(request, Mapping):
            settings.out.print(Text(one_line(f"→ {request.get('name')}(…), left out: nothing has run it"), style="dim"))


def _origin(mark: Mapping[str, Any]) -> str:
    reason = one_line(str(mark.get("reason") or ""))
    match mark.get("origin"):
        case "partial":
            return f"not complete yet: {reason}" if reason == "running" else f"cut off: {reason}"
        case "synthetic":
            return "made up: the real result was never to be had"
        case origin:
            return one_line(str(origin))
