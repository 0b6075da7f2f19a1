"""`runjournal doctor`: what is attached, what is not settled and why, as text for an issue. Changes nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import click
from rich.text import Text

from ..doctor_journal import journal_facts
from ..doctor_report import problems, text_of, variables, versions
from ..options import Command, Settings, common, wrong_urls
from ..terminal_text import clean

_EPILOG = """\b
Examples:
  runjournal doctor
  runjournal doctor --graph my_app.agent:graph
  runjournal doctor --json | jq .problems

It changes nothing in the journal or beside it, and works where the other commands fail: without a journal, and with one that
is empty, damaged, locked, of a newer version, or on a server that does not answer. --graph imports a program, which may do
whatever it does when it starts.

The report holds versions, paths (the home directory as ~), permissions, counts and the names of exceptions. It holds no
message, no thread, no name of a run, no text of an error and no password.
"""


@click.command(cls=Command, epilog=_EPILOG, short_help="Print what an issue needs, without anyone's words.")
@click.option("--graph", metavar="MODULE:ATTRIBUTE", help="Also say what is attached to this graph.")
@common
@click.pass_obj
def doctor(settings: Settings, graph: str | None) -> int:
    """Print what is attached, what is not settled and why, the state of the journal, versions and the last errors."""
    output = settings.output
    output.is_silent = True  # what the package logs may quote a run
    # First: the program that --graph imports may open the journal, which imports the spools of dead owners.
    journal = _journal(settings, settings.url)
    attached = None if graph is None else _graph(graph)
    for one in (attached or {}).get("attached", ()):
        if settings.values.get("journal") is None and one["url"] != journal["resolved"] and one["url"].startswith("sqlite:"):
            journal = {**_journal(settings, one["url"]), "named_by": "the graph"}
            break
    for one in (attached or {}).get("attached", ()):
        one["examined"] = one.pop("url") == journal["resolved"]
    del journal["resolved"]
    report: dict[str, Any] = {"versions": versions(), "variables": variables(), "graph": attached, "journal": journal}
    report["problems"] = list(problems(report))
    if output.as_json:
        output.line(report)
    else:
        for line in text_of(report):
            output.out.print(Text(clean(line)), soft_wrap=True)
    return 1 if report["problems"] else 0


def _journal(settings: Settings, url: str) -> dict[str, Any]:
    """Return the facts about a journal, with the number of its damaged runs."""
    output = settings.output
    with wrong_urls():
        facts = journal_facts(url, settings.values.get("busy_timeout"), settings.values.get("spool_dir"))
    if facts["runs"] is not None:
        facts["runs"]["damaged"] = len(output.damage)
    output.damage.clear()
    output.outage.clear()
    named_by = "--journal or RUNJOURNAL_URL" if settings.values.get("journal") else "nothing: the default"
    return {**facts, "named_by": named_by}


def _graph(name: str) -> dict[str, Any]:
    from ..doctor_graph import graph_facts  # imports LangGraph, which takes half a second

    return asyncio.run(graph_facts(name))
