"""Pure: one or more runs as a page, and one run as a fragment or a summary for a notebook."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from importlib.resources import files

from ..common.wording import plural
from ..events import Event, Run
from ..timeline.rows import rows
from ..timeline.timeline import Timeline, timeline
from .anchors import anchors
from .calls import model_calls, tool_calls
from .chart import chart, marks_of
from .conversation import conversation, settlement
from .elements import Place, brief, code, duration, key_of, moment, number, safe
from .phrases import cost_words, headline, run_tokens, sentences
from .picture import picture, picture_url

_LEAD = 240
_DEAD = (
    "No process works on this run: its process was killed. <code>runjournal recover</code> ends the run, and so does"
    " the next message of its thread."
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_PAGE_STYLE = (
    "html{color-scheme:light dark}body{margin:0;background:light-dark(#fff,#101216)}@media print{html{color-scheme:light}}"
)


def page(
    runs: Iterable[tuple[Run, Iterable[Event]]], *, title: str | None = None, gone: Collection[str] = frozenset()
) -> str:
    """Return a whole HTML document that shows runs with their events, one after the other.

    It loads nothing, has no script, and can be written as UTF-8 whatever the runs hold. `title` is plain text, the heading
    of the page; without it, the heading says what became of the run, or how many runs there are. `gone` are the ids of the
    runs whose process was killed and that no process has recovered yet.
    """
    lines = [timeline(run, events, is_dead=run.run_id in gone) for run, events in runs]
    several = len(lines) != 1
    name = title or (plural(len(lines), "run") if several else headline(lines[0].run, lines[0]))
    about = f" · {lines[0].run.name}" if not several and not title and lines[0].run.name else ""
    places = [
        Place(key=f"{key_of(line.run.run_id)}-{at}", level=2 if several or title else 1) for at, line in enumerate(lines)
    ]
    for place in places:
        place.room = places[0].room  # of the page
    body = []
    if several or title:
        body.append(f'<h1 class="rj-title">{safe(name)}</h1>')
    if len(lines) > 1:
        body.append(_contents(lines, places))
    body += [_run(line, place) for line, place in zip(lines, places, strict=True)]
    skip = f'<a class="rj-skip" href="#{places[0].key}-talk">Skip to the conversation</a>' if places else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="generator" content="langchain-runjournal">\n'
        f"<title>{safe(name + about)}</title>\n<style>{_style()}{_PAGE_STYLE}</style>\n</head>\n"
        f'<body>\n<div class="rj rj-page">{skip}<main>\n{"".join(body)}</main></div>\n</body>\n</html>\n'
    )


def fragment(run: Run, events: Iterable[Event]) -> str:
    """Return one run as HTML for a notebook.

    Its style rules apply to the fragment only, and follow the theme of the notebook. Where a viewer removes styles, the
    fragment shows the timeline as an image, and reads from top to bottom.
    """
    return _fragment(timeline(run, events))


def svg(run: Run, events: Iterable[Event]) -> str:
    """Return the timeline of one run as an SVG image, for viewers that show no HTML. It has no links and no scripts."""
    return picture(timeline(run, events))


def bundle(run: Run, events: Iterable[Event]) -> dict[str, str]:
    """Return what a notebook shows of one run, by MIME type: the fragment, and the image for viewers without HTML."""
    line = timeline(run, events)
    return {"text/html": _fragment(line), "image/svg+xml": picture(line)}


def _fragment(line: Timeline) -> str:
    place = Place(key=key_of(line.run.run_id), level=3, has_links=False)
    words = headline(line.run, line)
    # Repository pages remove the style sheet, which hides this image.
    image = f'<img class="rj-image" width="1000" src="{picture_url(line)}" alt="Timeline: {safe(words)}">'
    return f'<div class="rj"><style>{_style()}</style>\n{image}{_run(line, place)}</div>'


def summary(run: Run) -> str:
    """Return the fields of a run as HTML for a notebook, if its events are not at hand."""
    head = _head(run, headline(run, None), None, Place(key=key_of(run.run_id), level=3))
    foot = f'<p class="rj-note">{_foot(run, None)}</p>'
    return f'<div class="rj"><style>{_style()}</style>\n<article class="rj-run">{head}{foot}</article></div>'


@cache
def _style() -> str:
    return files(__package__).joinpath("view.css").read_text("utf-8")


def _contents(lines: list[Timeline], places: list[Place]) -> str:
    items = "".join(
        f'<li><a href="#{place.key}">{safe(headline(line.run, line))}</a> {code(line.run.thread_id or line.run.run_id)}</li>'
        for line, place in zip(lines, places, strict=True)
    )
    return f'<nav class="rj-contents" aria-label="Runs"><ol>{items}</ol></nav>'


def _run(line: Timeline, place: Place) -> str:
    drawn, marks = rows(line.models, line.tools), marks_of(line)
    links = anchors(line, drawn, marks, place)
    parts = [_head(line.run, headline(line.run, line), line, place)]
    parts.append(_section("Timeline", f"{place.key}-line", chart(line, drawn, marks, links, place), place))
    parts.append(_section("Conversation", f"{place.key}-talk", conversation(line, place, links), place))
    for name, id, inner in (
        ("Settlement", "settled", settlement(line, place, links)),
        ("Model calls", "models", model_calls(line, place, links)),
        ("Tool calls", "tools", tool_calls(line, place, links)),
    ):
        if inner:
            parts.append(_section(name, f"{place.key}-{id}", inner, place))
    parts.append(f'<p class="rj-note rj-foot">{_foot(line.run, line)}</p>')
    return f'<article class="rj-run" id="{place.key}" aria-labelledby="{place.key}-head">{"".join(parts)}</article>\n'


def _section(name: str, id: str, inner: str, place: Place) -> str:
    heading = place.heading(1, name, f' id="{id}" tabindex="-1"')
    return f'<section aria-labelledby="{id}">{heading}{inner}</section>'


def _head(run: Run, words: str, line: Timeline | None, place: Place) -> str:
    parts = [_error(run.error)] if run.error else []
    lead = (
        sentences(line) if line is not None else "The events of this run cannot be read any more; only its record is left."
    )
    parts.append(f'<p class="rj-lead">{safe(lead)}</p>' if lead else "")
    if line is not None and line.is_dead:
        parts.append(f'<p class="rj-warn">{_DEAD}</p>')
    heading = place.heading(0, safe(words), f' id="{place.key}-head"')
    status = "killed" if line is not None and line.is_dead else str(run.status)
    about = " ".join(f'<li><span class="rj-soft">{name}</span> {value}</li>' for name, value in _about(run, words, line))
    return f'<header class="rj-top rj-is-{status}">{heading}{"".join(parts)}<ul class="rj-about">{about}</ul></header>'


def _about(run: Run, words: str, line: Timeline | None) -> list[tuple[str, str]]:
    """Return what stands in the one line under the heading: names, each with a value in HTML."""
    found = [("Thread", code(run.thread_id))] if run.thread_id else []
    if run.name:
        found.append(("Agent", code(run.name)))
    models = [] if line is None else list(dict.fromkeys(call.model for call in line.models))
    if len(models) == 1:
        found.append(("Model", code(models[0])))  # of several, the rows name each
    began = line.began if line is not None and line.began else run.started_at
    if began:
        found.append(("Began", moment(began)))
    if line is not None and duration(line.length) not in words:
        found.append(("Duration", duration(line.length)))
    if tokens := run_tokens(run):
        found.append(("Tokens", safe(tokens)))
    if line is not None and (costs := [call.cost for call in line.models if call.cost is not None]):
        every = "" if len(costs) == len(line.models) else f" for {number(len(costs))} of {plural(len(line.models), 'call')}"
        found.append(("Cost", safe(cost_words(sum(costs)) + every)))
    if run.continues:
        found.append(("Resumes run", code(run.continues)))
    if run.stop and not run.ended:
        found.append(("Stop requested", safe(run.stop)))
    if line is None and run.ended and not run.settled:
        found.append(("Settled", "not yet"))
    return found


def _foot(run: Run, line: Timeline | None) -> str:
    events = f", {plural(line.events, 'event')}" if line is not None else ""
    return f"Run {code(run.run_id)}{events}"


def _error(error: str) -> str:
    """Return the error, folded if it is long: some errors hold a whole response."""
    if len(error) <= _LEAD:
        return f'<p class="rj-lead">{safe(error)}</p>'
    whole = (
        f"<details><summary>The whole error, {plural(len(error), 'character')}</summary><pre>{safe(error)}</pre></details>"
    )
    return f'<p class="rj-lead">{safe(brief(error, _LEAD))}</p>{whole}'
