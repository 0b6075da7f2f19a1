"""The report of `runjournal doctor`: versions, what is wrong, and the whole as text for an issue."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from .. import __version__
from ..common.wording import plural
from .terminal_text import roughly

_PACKAGES: Final = (
    "langchain-core",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "langchain",
    "psycopg",
    "redis",
    "click",
    "rich",
)
_VARIABLES: Final = ("RUNJOURNAL_URL", "RUNJOURNAL_JSON", "RUNJOURNAL_SPOOL_DIR", "NO_COLOR", "XDG_STATE_HOME")
_STATES: Final = {
    "missing": "The journal does not exist yet. RunJournal(...) creates it, in the directory where the program runs.",
    "empty": "The journal is an empty file. RunJournal(...) makes a journal of it.",
}
_LATE: Final = (
    "Set it on the attached graph before the first run, give it in the config, or let a server lend its own. A run without"
    " one is only recorded, and its thread is not settled."
)
_ELSEWHERE: Final = (
    "Give --graph what attach() returns. A handler that the program gives with each call cannot be seen from here."
)


def versions() -> dict[str, str | None]:
    """Return the versions of this package, of those around it, of Python, of SQLite and of the system."""
    found: dict[str, str | None] = {"langchain-runjournal": __version__}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    return {**found, "python": python, "sqlite": sqlite3.sqlite_version, "system": _system()}


def _system() -> str:
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def variables() -> list[str]:
    """Return the names of the variables that are set and that a journal or the command reads. Their values are left out."""
    return [name for name in _VARIABLES if os.environ.get(name)]


def problems(report: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield what is wrong, and what to do about it."""
    journal, graph = report["journal"], report["graph"]
    found: list[tuple[str, str]] = [*_of_journal(journal), *_of_spools(journal["spools"])]
    if graph is not None:
        found += _of_graph(graph)
    yield from ({"what": what, "text": text} for what, text in found)


def _of_journal(journal: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if journal["state"] in _STATES:
        yield journal["state"], _STATES[journal["state"]]
    if journal["error"]:
        yield "unreadable", f"The journal cannot be read ({journal['error']['kind']}): {journal['error']['text']}."
    if journal["missed"]:
        yield "missed", f"This report leaves out {journal['missed']}. `runjournal list` opens the journal for work."
    if journal["spool_dir"] and not journal["spool_dir"]["exists"]:
        yield "spool", f"The spool directory {journal['spool_dir']['path']} does not exist. Give the one of the program."
    wide = [one["name"] for one in journal.get("files", ()) if one["exposed"]]
    if wide:
        yield (
            "exposed",
            f"Other users have permissions on {', '.join(wide)}. Opening the journal for work removes them.",
        )
    if (journal.get("directory") or {}).get("exposed"):
        yield "exposed", "Other users can replace files in the directory of the journal."
    if runs := journal["runs"]:
        if count := journal["unsettled_total"]:
            yield "unsettled", f"{plural(count, 'run')} {'is' if count == 1 else 'are'} not settled. See why above."
        if runs["lost_events"]:
            yield (
                "lost",
                f"{plural(runs['lost_events'], 'event')} could not be kept. Look in the log for a full disk.",
            )
        if runs["damaged"]:
            yield "damage", f"{plural(runs['damaged'], 'run')} cannot be read. `runjournal check` says which."


def _of_spools(spools: list[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    dead = [one for one in spools if one["owner"] == "dead" and not one["damaged"]]
    if dead:
        whose = "A dead owner has" if len(dead) == 1 else f"{len(dead)} dead owners have"
        yield (
            "spool",
            f"{whose[0].upper()}{whose[1:]} left a spool. The next command or program that opens the journal imports it.",
        )
    if kept := sum(one["damaged"] for one in spools):
        yield "spool", f"{plural(kept, 'spool file')} could not be imported whole. Try `runjournal recover --spool FILE`."
    if any(one["exposed"] for one in spools):
        yield "exposed", "Other users have permissions on spool files. Opening the journal for work removes them."


def _of_graph(graph: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    name = graph["name"]
    if graph["error"]:
        yield "graph", f"{name} could not be loaded: {graph['error']}."
    elif graph["attached"]:
        if graph["checkpointer"] is None:
            yield "checkpointer", f"{name} has no checkpointer now. {_LATE}"
        if not graph["messages"]:
            yield "graph", f"{name} has no channel `messages`: its runs are recorded, and its threads cannot be settled."
        if not any(one["examined"] for one in graph["attached"]):
            yield "graph", f"{name} is attached to another journal than that of this report. Name that one with --journal."
    elif graph["attached_subgraphs"]:
        yield "graph", f"A subgraph of {name} is attached, and {name} is not: attach the outermost graph."
    elif graph["handler"]:
        yield "graph", f"{name} has a JournalCallbackHandler, which records runs and settles no thread. attach() does both."
    else:
        yield "graph", f"{name} is not attached. {_ELSEWHERE}"


def text_of(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the report for a person, who may paste them into an issue."""
    yield "runjournal doctor: for an issue. It holds no words of users or models, and no password."
    yield ""
    yield "versions"
    yield from _table([(name, found or "not installed") for name, found in report["versions"].items()])
    yield f"  variables set: {', '.join(report['variables']) or 'none'}"
    if report["graph"] is not None:
        yield from ("", "graph", *_table(_graph_rows(report["graph"])))
    journal = report["journal"]
    yield from ("", "journal", *_table(_journal_rows(journal)))
    if journal["unsettled"]:
        yield from ("", "unsettled")
        for run in journal["unsettled"]:
            cause = f" ({run['cause']})" if run["cause"] else ""
            name = run["run_id"] or "(id left out)"
            yield f"  {name}: {run['status']}{cause}, begun {roughly(run['age'])} ago: {run['why']}"
        if (more := journal["unsettled_total"] - len(journal["unsettled"])) > 0:
            yield f"  and {plural(more, 'older run')}"
    if journal["errors"]:
        yield from ("", "last errors (kinds; `runjournal show RUN` has the words)")
        for one in journal["errors"]:
            yield f"  {roughly(one['age'])} ago: {one['kind']} of a {one['of']}, {one['status']}"
    yield from ("", "problems")
    yield from (f"  {one['what']}: {one['text']}" for one in report["problems"])
    if not report["problems"]:
        yield "  none was found"


def _table(rows: list[tuple[str, str]]) -> Iterator[str]:
    width = max(len(name) for name, _ in rows)
    yield from (f"  {name:<{width}}  {said}" for name, said in rows)


def _graph_rows(graph: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("name", graph["name"])]
    if graph["error"]:
        return [*rows, ("loaded", f"no: {graph['error']}")]
    attached = "; ".join(f"to {one['journal']}, settle={one['settle']}" for one in graph["attached"])
    saver = graph["checkpointer"] or "none now (it may be set later)"
    return [
        *rows,
        ("class", graph["class"]),
        ("attached", attached or "no"),
        ("handler", "yes" if graph["handler"] else "none in its own config"),
        ("checkpointer", saver + (", inside a JournalSaver" if graph["journal_saver"] else "")),
        ("messages channel", "yes" if graph["messages"] else "no"),
    ]


def _journal_rows(journal: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("url", journal["url"]), ("named by", journal["named_by"]), ("state", journal["state"])]
    if directory := journal.get("directory"):
        said = f"{directory['path']} (mode {directory['mode']}, {directory['owner']}, {_size(directory['free'])} free)"
        rows.append(("directory", said))
    rows += [(one["name"], f"{_size(one['size'])}, mode {one['mode']}, {one['owner']}") for one in journal.get("files", ())]
    if runs := journal["runs"]:
        by = ", ".join(f"{count:,} {status}" for status, count in sorted(runs["by_status"].items())) or "none"
        rows.append(("runs", by + ("" if runs["all"] else f" (of the newest {runs['counted']:,})")))
        rows.append(("of attached graphs", f"{runs['of_attached_graphs']:,} of {plural(runs['counted'], 'run')}"))
        rows.append(("given up", f"{runs['given_up']:,}"))
        rows.append(("owners", ", ".join(f"{count} {life}" for life, count in sorted(journal["owners"].items())) or "none"))
    for one in journal["spools"]:
        damaged = ", kept as damaged" if one["damaged"] else ""
        rows.append(
            ("spool", f"of an owner that is {one['owner']}: {plural(one['files'], 'file')}, {_size(one['size'])}{damaged}")
        )
    return rows if journal["spools"] else [*rows, ("spool", "none")]


def _size(count: int) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1_000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1_000  # type: ignore[assignment]
    raise AssertionError(count)
