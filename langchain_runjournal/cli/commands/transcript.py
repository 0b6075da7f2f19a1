"""`runjournal transcript`: the messages of one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from ...events import Run, RunStatus
from ...messages.loading import load
from ...messages.plain_text import text_of
from ...messages.tool_evidence import Evidence
from ...messages.tool_pairs import open_requests
from ...messages.tool_results import CallKnowledge
from ...messages.transcript import transcript as messages_of
from ..event_data import as_list
from ..options import Command, Settings, common
from ..output import Output
from ..run_lookup import OwnerState, RunId, events_of, find_run, owner_of
from ..terminal_text import arguments, clean, one_line

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

_EPILOG: Final = """\b
Examples:
  runjournal transcript
  runjournal transcript 019a2b --json | jq -r 'select(.type == "ai").data.content'
"""


@click.command(cls=Command, epilog=_EPILOG, short_help="Print the messages of a run.")
@click.argument("run", metavar="[RUN]", required=False, type=RunId())
@common
@click.pass_obj
def transcript(settings: Settings, run: str | None) -> None:
    """Print the messages of a run, or of the newest one, with what was cut off. As JSON: LangChain's own dicts."""
    output = settings.output
    with settings.open() as journal:
        found = find_run(journal, run)
        events = list(events_of(output, journal, found))
        messages = load(found.run_id, messages_of(found.run_id, events))
        owner = owner_of(journal, found)
    if output.as_json:
        from langchain_core.messages import message_to_dict

        for message in messages:
            output.line(message_to_dict(message))
        return
    evidence = Evidence(found.run_id, events, found.cause)
    fates: dict[int, dict[str | None, str]] = {}
    for place, request in open_requests(messages):
        known = evidence.known((messages[place].id, request.id or ""))
        fates.setdefault(place, {})[request.id] = _fate(found, owner, known)
    for place, message in enumerate(messages):
        if place:
            output.out.print()
        _message(output, message, fates.get(place, {}))
    if not messages:
        output.note("this run has no message yet")


_ROLES: Final = {"human": "bold cyan", "ai": "bold green", "tool": "bold blue", "system": "bold"}


def _message(output: Output, message: BaseMessage, fates: Mapping[str | None, str]) -> None:
    """Print a message. `fates`: what became of its tool requests that have no result, by id."""
    heading = Text(one_line(message.type), style=_ROLES.get(message.type, "bold"))
    if message.type == "tool" and message.name:
        heading.append(f" {one_line(message.name)}", style="blue")
    if getattr(message, "status", None) == "error":
        heading.append(" failed", style="red")
    mark = message.additional_kwargs.get("runjournal")
    if isinstance(mark, Mapping):
        heading.append(f" ({_origin(mark)})", style="yellow")
    output.out.print(heading)
    text = text_of(message.content)
    if text:
        output.out.print(Text(clean(text)), soft_wrap=not output.out.is_terminal)
    requests = [*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ())]
    for request in requests:
        asked = f"→ {request.get('name')}{arguments(request.get('args'))}"
        output.out.print(Text(one_line(asked), style="dim"), soft_wrap=not output.out.is_terminal)
        if fate := fates.get(request.get("id")):
            output.out.print(Text(one_line(f"← {fate}"), style="yellow"), soft_wrap=not output.out.is_terminal)
    # The mark names the requests that were left out. A cut-off answer that was complete still holds its requests itself.
    for request in as_list(mark.get("calls")) if isinstance(mark, Mapping) and not requests else ():
        if isinstance(request, Mapping):
            output.out.print(Text(one_line(f"→ {request.get('name')}(…), left out: it never ran"), style="dim"))


def _origin(mark: Mapping[str, Any]) -> str:
    reason = one_line(str(mark.get("reason") or ""))
    match mark.get("origin"):
        case "partial":
            return f"not complete yet: {reason}" if reason == "running" else f"cut off: {reason}"
        case "synthetic":
            return "synthetic: the real result was never available"
        case None:
            return f"without its {', '.join(one_line(str(field)) for field in mark.get('left_out') or ())}"
        case origin:
            return one_line(str(origin))


def _fate(run: Run, owner: OwnerState, known: CallKnowledge | None) -> str:
    """Say what became of a tool request that has no result, as far as the events of the run tell."""
    state = known.state if known is not None else "unknown"
    if state == "failed":
        return f"failed: {known.error}" if known is not None and known.error else "failed"
    if state == "waiting":
        return "waits for a human" if run.status == RunStatus.PAUSED else "waited for a human"
    if known is not None and state in ("cut", "beside_cut"):
        return f"not begun: the answer was cut off ({known.cause})"
    if not run.ended and owner != "gone":
        return "no result yet"
    if run.status == RunStatus.COMPLETED:
        return "not run here: the caller answers it" if state == "never_started" else "no result"
    cause = run.cause or ("crash" if owner == "gone" else "error")
    return f"not begun: {cause}" if state == "never_started" else f"cut off: {cause}"
