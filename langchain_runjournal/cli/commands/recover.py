"""`runjournal recover`: end and settle the runs of dead owners, and import their spools."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ...common.wording import plural
from ...errors import RunNotFound
from ...events import GRAPH, PROBLEM, Event, Run, RunStatus
from ...journal.core import core_of
from ...journal.run_journal import RunJournal
from ...journal.run_reading import unsettled
from ...journal.spool_file_import import take_spool
from ..graph_loader import is_asynchronous, load_graph
from ..options import Command, CommandFailed, Settings, common
from ..output import Output
from ..run_lookup import owner_of
from ..terminal_text import one_line

if TYPE_CHECKING:
    from ... import Settlement

_EPILOG = """\b
Examples:
  runjournal recover
  runjournal recover --graph my_app.agent:graph
  runjournal recover --spool runs.db-spool-...-damaged

Without a graph, it imports the spools of dead owners, and ends their runs that no graph must settle. It names the other
runs, and exits with 1 while some are left. It looks up `module:attribute` from the current directory: a compiled graph with
a checkpointer, a function that returns one, or a context manager (also an async one) that yields one.

--spool imports what a file that was kept as damaged has and the journal lacks. The file stays; a second import is harmless.
"""
_POLL_SECONDS: Final = 0.2
_REASONS: Final = 3


@click.command(cls=Command, epilog=_EPILOG, short_help="End and settle what dead owners left.")
@click.option("--graph", metavar="MODULE:ATTRIBUTE", help="The graph whose threads are to be settled.")
@click.option(
    "--adopt", is_flag=True, help="With --graph: also runs of an earlier version of a graph without a name of its own."
)
@click.option("--spool", type=click.Path(dir_okay=False, path_type=Path), help="Only import this spool file.")
@common
@click.pass_obj
def recover(settings: Settings, graph: str | None, adopt: bool, spool: Path | None) -> int:
    """End the runs of dead owners, and settle their threads if their graph is given."""
    output = settings.output
    if adopt and graph is None:
        raise click.UsageError("--adopt needs --graph: it says that runs of an earlier version belong to that graph.")
    if spool is not None and graph is not None:
        raise click.UsageError("--spool and --graph are two steps: import the file first, then recover with the graph.")
    if spool is not None and not spool.exists():
        raise CommandFailed(f"The file {spool} does not exist. `runjournal check` names those that were kept.")
    with settings.open() as journal:
        if spool is not None:
            return _import_spool(output, journal, spool)
        with output.spinner("Looking for runs of dead owners"):
            _wait_until_owners_are_known(journal)
        name: str | None = None
        settlements: list[Settlement] = []
        if graph is not None:
            with output.spinner(f"Settling the runs of {graph}"):
                name, settlements = asyncio.run(_settle(journal, graph, adopt))
        for settlement in settlements:
            _print_settlement(output, settlement, str(name))
        ended, left, alive = _end(journal, {settlement.run_id for settlement in settlements})
        for run in ended:
            _print(output, run.run_id, run.thread_id, "ended", "crash", graph=None)
        for run in left:
            _print(output, run.run_id, run.thread_id, "needs_graph", None, graph=_graph_name(run))
    failed = [settlement for settlement in settlements if not settlement.is_final]
    _warn(output, name, left, failed)
    if alive:
        whose = f"{plural(len(alive), 'run')} that ended belong to a process that is alive"
        output.note(f"{whose}: it settles the thread with the next message")
    elif not left and not ended and not settlements:
        output.note("nothing to recover")
    return 1 if left or failed else 0


def _warn(output: Output, name: str | None, left: Sequence[Run], failed: Sequence[Settlement]) -> None:
    """Say what is left to do. `name`: the graph that was given."""
    if left:
        names = ", ".join(sorted({_graph_name(run) for run in left}))
        whose = "its" if len(left) == 1 else "their"
        needed = f"settled by {whose} graph" if name is None else f"settled by another graph than {name}"
        to_do = f"{names}. Use `runjournal recover --graph module:attribute`."
        output.warn(f"{plural(len(left), 'run')} must be {needed}: {to_do}")
    if failed:
        why = "; ".join(sorted({settlement.reason or settlement.outcome for settlement in failed})[:_REASONS])
        to_do = "Remove the cause, or give the graph whose checkpointer holds the thread, and recover again."
        output.warn(f"{plural(len(failed), 'run')} could not be settled by {name}: {why}. {to_do}")


def _graph_name(run: Run) -> str:
    # The same rule as in settle/, which cannot be imported here: it imports LangGraph.
    return one_line(str(run.metadata.get(GRAPH, run.name)))


def _wait_until_owners_are_known(journal: RunJournal) -> None:
    """Wait for the owners on other machines: until their heartbeat shows that they live, or their lease has run out."""
    doubtful = journal.runs(status=RunStatus.RUNNING, limit=None)
    while doubtful := [run for run in doubtful if owner_of(journal, run) == "unknown"]:
        time.sleep(_POLL_SECONDS)


def _end(journal: RunJournal, handled: set[str]) -> tuple[list[Run], list[Run], list[Run]]:
    """End the runs that need no graph. Return them, those that need one, and those that a living process will settle."""
    ended: list[Run] = []
    left: list[Run] = []
    alive: list[Run] = []
    for run in unsettled(journal):
        if run.run_id in handled:
            continue
        # A run that has ended and is not settled has a thread to settle, even if its graph is not attached.
        if run.ended or GRAPH in run.metadata:
            if core_of(journal).dead_owners.owner_is_gone(run):
                left.append(run)
            elif run.ended:
                alive.append(run)
        elif _claim(journal, run):
            now = journal.run(run.run_id)
            if not now.ended:
                data: dict[str, Any] = {"status": "interrupted", "cause": "crash", "usage": dict(now.usage)}
                if PROBLEM in run.metadata:
                    data |= {"settled": False, "given_up": True, "problem": run.metadata[PROBLEM]}
                journal.append(Event(run_id=run.run_id, kind="run.end", data=data))
                ended.append(run)
    journal.flush()
    return [journal.run(run.run_id) for run in ended], left, alive


def _claim(journal: RunJournal, run: Run) -> bool:
    try:
        return journal.claim(run.run_id)
    except RunNotFound:
        return False  # another process has ended it, and pruned it


async def _settle(journal: RunJournal, name: str, adopt: bool) -> tuple[str, list[Settlement]]:
    async with AsyncExitStack() as stack:
        graph = await load_graph(name, stack)
        if await is_asynchronous(graph):
            return graph.get_name(), await journal.arecover(graph, adopt=adopt)
        return graph.get_name(), await asyncio.to_thread(partial(journal.recover, graph, adopt=adopt))


def _print_settlement(output: Output, found: Settlement, graph: str) -> None:
    _print(output, found.run_id, found.thread_id, found.outcome, found.reason, graph=graph, messages=found.messages)


def _print(
    output: Output,
    run_id: str,
    thread_id: str | None,
    outcome: str,
    reason: str | None,
    *,
    graph: str | None,
    messages: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Print what was done about a run, or is left to do."""
    if output.as_json:
        data = {"run_id": run_id, "thread_id": thread_id, "outcome": outcome, "reason": reason, "graph": graph}
        output.line({**data, "messages": list(messages)})
        return
    text = f"needs its graph: {graph}" if outcome == "needs_graph" else outcome.replace("_", " ")
    text += (f" ({reason})" if reason else "") + (f", thread {thread_id}" if thread_id else "")
    written = f", {plural(len(messages), 'message')} written" if messages else ""
    output.row(run_id, text + written)


def _import_spool(output: Output, journal: RunJournal, path: Path) -> int:
    """Import a spool file, and print what was stored. Return 1 if anything in it could not be read or stored."""
    if not path.exists():  # it existed before the journal was opened
        output.note(f"{path.name} was whole: opening the journal has imported and deleted it")
        return 0
    report = take_spool(journal, path)
    stored = report.found - report.events - report.refused
    if output.as_json:
        counts = {"found": report.found, "events": report.events, "stored": stored, "refused": report.refused}
        output.line({"spool": str(path), **counts, "runs": list(report.runs), "problem": report.problem})
    else:
        imported = f"{plural(report.events, 'event')} of {plural(len(report.runs), 'run')} imported"
        output.row(path.name, f"{imported}, {stored} stored already, {report.refused} refused, of {report.found} readable")
        for run_id in report.runs:
            output.row(run_id, "imported")
    for problem in (report.problem or "").split("; ") if report.problem else ():
        output.warn(problem)
    output.note(f"{path.name} stays as it is: delete it when you no longer need it")
    return 1 if report.problem else 0
