"""`runjournal transcript`: what was said in one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from ..events import Run, RunStatus
from ..messages import loading as _messages
from ..messages import transcript as _transcript
from ..messages.plain_text import text_of
from ..messages.tool_evidence import Evidence
from ..messages.tool_pairs import open_requests
from ..messages.tool_results import CallKnowledge
from ._find import RunId, Verdict, events_of, find, owner_of
from ._settings import Settings, common
from ._show import arguments
from ._words import clean, one_line

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

_TRANSCRIPT: Final = """\b
Examples:
  runjournal transcript @last
  runjournal transcript 019a2b --json | jq -r 'select(.type == "ai").data.content'
"""


@click.command(epilog=_TRANSCRIPT, short_help="The messages of a run.")
@click.argument("run", type=RunId())
@common
@click.pass_obj
def transcript(settings: Settings, run: str) -> None:
    """The messages of a run: what was asked, said and returned, with what was cut off. As JSON: LangChain's own dicts."""
    with settings.open() as journal:
        found = find(journal, run)
        events = list(events_of(settings, journal, found))
        messages = _messages.load(found.run_id, _transcript.transcript(found.run_id, events))
        owner = owner_of(journal, found)
    if settings.as_json:
        from langchain_core.messages import message_to_dict

        for message in messages:
            settings.line(message_to_dict(message))
        return
    evidence = Evidence(found.run_id, events, found.cause)
    fates: dict[int, dict[str | None, str]] = {}
    for place, request in open_requests(messages):
        known = evidence.known((messages[place].id, request.id or ""))
        fates.setdefault(place, {})[request.id] = _fate(found, owner, known)
    for place, message in enumerate(messages):
        if place:
            settings.out.print()
        _message(settings, message, fates.get(place, {}))
    if not messages:
        settings.note("there is no message in this run yet")


_ROLES: Final = {"human": "bold cyan", "ai": "bold green", "tool": "bold blue", "system": "bold"}


def _message(settings: Settings, message: BaseMessage, fates: Mapping[str | None, str]) -> None:
    """`fates`: what became of those requests of it that have no result."""
    heading = Text(one_line(message.type), style=_ROLES.get(message.type, "bold"))
    if message.type == "tool" and message.name:
        heading.append(f" {one_line(message.name)}", style="blue")
    if getattr(message, "status", None) == "error":
        heading.append(" failed", style="red")
    mark = message.additional_kwargs.get("runjournal")
    if isinstance(mark, Mapping):
        heading.append(f" ({_origin(mark)})", style="yellow")
    settings.out.print(heading)
    text = text_of(message.content)
    if text:
        settings.out.print(Text(clean(text)), soft_wrap=not settings.out.is_terminal)
    requests = [*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ())]
    for request in requests:
        asked = f"→ {request.get('name')}{arguments(request.get('args'))}"
        settings.out.print(Text(one_line(asked), style="dim"), soft_wrap=not settings.out.is_terminal)
        if fate := fates.get(request.get("id")):
            settings.out.print(Text(one_line(f"← {fate}"), style="yellow"), soft_wrap=not settings.out.is_terminal)
    # Calls of an answer that was cut off, but had come to its end, are still among its requests.
    left_out = mark.get("calls") if isinstance(mark, Mapping) and not requests else None
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
        case None:
            return f"without its {', '.join(one_line(str(field)) for field in mark.get('left_out') or ())}"
        case origin:
            return one_line(str(origin))


def _fate(run: Run, owner: Verdict, known: CallKnowledge | None) -> str:
    """What became of a request that has no result, as far as the run knows."""
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
