"""A run as a page: its size, the time to make it, and the time to open it in a browser."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from langchain_runjournal import Event, Run
from langchain_runjournal.timeline.timeline import timeline
from langchain_runjournal.view import page

from ._load import WORDS, end, model_start, new_id, start
from ._stats import Sample, seconds, spread
from ._tools import Bench, heading, note, table

_MEGABYTES = 5.0
_OPEN = 2.0
_PAINTED = """() => new Promise((done) => {
  const tell = () => requestAnimationFrame(() => setTimeout(() => {
    const paints = performance.getEntriesByType('paint').map((one) => one.startTime);
    const load = performance.getEntriesByType('navigation')[0].loadEventEnd;
    paints.length && load ? done(Math.max(load, ...paints)) : setTimeout(tell, 5);
  }));
  tell();
})"""


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("view")
    tokens, tools = bench.pick((100_000, 500), (10_000, 50))
    heading(f"16. A run of {tokens:,} tokens and {tools} tools as a page")
    events = _events(tokens, tools)
    told = Run(run_id=events[0].run_id, last_seq=len(events))
    html = page([(told, events)])
    size = len(html.encode()) / 1e6
    work = {"to fold the events": lambda: timeline(told, events), "to make the page": lambda: page([(told, events)])}
    found = bench.interleave("view", {name: _timed(doing) for name, doing in work.items()}, bench.pick(7, 2))
    rows = [[name, seconds(sample.median), spread(sample), ""] for name, sample in found.items()]
    browser = _browser()
    if browser is None:
        note("Chromium or playwright is missing, so the page is not opened")
    else:
        with bench.directory() as directory:
            for name, width in (("to open it, 1280 wide", 1280), ("to open it, 390 wide", 390)):
                sample = _opened(bench, browser, directory, html, width)
                target = bench.at_most(f"a page: {name}", sample.median, _OPEN, seconds)
                rows.append([name, seconds(sample.median), spread(sample), target])
    rows.append(
        ["size", f"{size:.1f} MB", "", bench.at_most("a page: size", size, _MEGABYTES, lambda value: f"{value:.1f} MB")]
    )
    table(["", "median", "p25 .. p75", "target"], rows)
    note("Opening: from the navigation to the load event or the first paint, whichever is later, in a new context of")
    note("headless Chromium, from a file. The page holds all text of the model, and 600 characters of each tool result.")


def _events(tokens: int, tools: int) -> list[Event]:
    """Return the events of a model call with a long text and many tool requests, each with a result of 4,000 characters."""
    run_id, call_id = new_id(), new_id()
    calls = [{"id": new_id(), "name": f"tool_{number % 7}", "args": {"query": "x" * 200}} for number in range(tools)]
    words = [WORDS[number % len(WORDS)] + (".\n" if number % 97 == 0 else "") for number in range(tokens)]
    events: list[Event] = [start(run_id), model_start(run_id, call_id)]

    def add(kind: Any, data: dict[str, Any], call: str) -> None:
        events.append(Event(run_id=run_id, kind=kind, data=data, call_id=call))

    for word in words:
        add("llm.ai.delta", {"text": word}, call_id)
    data = {"type": "ai", "content": "".join(words), "id": f"lc_run--{call_id}", "tool_calls": calls}
    add("llm.ai.response", {"message": {"type": "ai", "data": data}}, call_id)
    for call in calls:
        add("tool.start", {"tool_call_id": call["id"], "name": call["name"], "args": call["args"]}, f"run-{call['id']}")
    for call in calls:
        result = {"type": "tool", "content": "found <this> & that, " * 200, "tool_call_id": call["id"], "name": call["name"]}
        add(
            "llm.tool.result", {"tool_call_id": call["id"], "message": {"type": "tool", "data": result}}, f"run-{call['id']}"
        )
    events.append(end(run_id))
    return [_at(event, seq) for seq, event in enumerate(events, 1)]


def _at(event: Event, seq: int) -> Event:
    """Return the event with its seq, and a time 10 ms after that of the previous event."""
    at = 1_700_000_000 + seq / 100
    return Event(run_id=event.run_id, kind=event.kind, data=event.data, call_id=event.call_id, seq=seq, at=at)


def _timed(work: Any) -> Any:
    def once() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return once


def _browser() -> str | None:
    """Return the path of Chromium, if it and playwright are installed."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return None
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def _opened(bench: Bench, path: str, directory: Path, html: str, width: int) -> Sample:
    from playwright.sync_api import sync_playwright

    file = directory / "run.html"
    file.write_text(html, encoding="utf-8")
    found = []
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=path, args=options)
        for turn in range(bench.pick(7, 2)):
            context = browser.new_context(viewport={"width": width, "height": 800})
            tab = context.new_page()
            tab.goto(file.as_uri())
            found.append(tab.evaluate(_PAINTED) / 1000)
            context.close()
            bench.progress("view in a browser", turn + 1, bench.pick(7, 2))
        browser.close()
    return Sample(found)
