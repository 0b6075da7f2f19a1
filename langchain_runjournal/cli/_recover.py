"""`runjournal recover`: what killed processes have left, ended and settled."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from ..common.wording import plural
from ..errors import RunNotFound
from ..events import GRAPH, PROBLEM, Event, Run, RunStatus
from ..journal.core import core_of
from ..journal.run_display import unsettled
from ..journal.run_journal import RunJournal
from ._find import owner_of
from ._settings import Problem, Settings, common, option
from ._spool import recover_spool
from ._words import one_line

if TYPE_CHECKING:
    from langgraph.pregel import Pregel

    from ..settle.settler import Settlement

_EPILOG = """\b
Examples:
  runjournal recover
  runjournal recover --graph my_app.agent:graph
  runjournal recover --spool runs.db-spool-...-damaged

Without a graph: brings in what killed processes left, and ends their runs that no graph has to settle. The others are
named: 1 while some are left. `module:attribute` is looked up from the current directory; it may be a compiled graph
with a checkpointer, a function that gives one, or a context manager (also an async one) that does.

--spool takes what a file that was kept as damaged has and the journal lacks; the file stays. Twice is harmless.
"""
_LOOK: Final = 0.2
_REASONS: Final = 3


@click.command(epilog=_EPILOG, short_help="End and settle what killed processes left.")
@option("--graph", metavar="MODULE:ATTRIBUTE", help="The graph whose threads are to be settled.")
@option("--adopt", is_flag=True, help="With --graph: also runs of an earlier version of a graph without a name of its own.")
@option("--spool", type=click.Path(dir_okay=False, path_type=Path), help="Only bring in this spool file.")
@common
@click.pass_obj
def recover(settings: Settings, graph: str | None, adopt: bool, spool: Path | None) -> int:
    """End the runs of killed processes, and settle their threads if their graph is given."""
    if adopt and graph is None:
        raise click.UsageError("--adopt needs --graph: it says that runs of an earlier version are that graph's.")
    if spool is not None and graph is not None:
        raise click.UsageError("--spool and --graph are two steps: bring the file in first, then recover with the graph.")
    if spool is not None and not spool.exists():
        raise Problem(f"There is no file {spool}. `runjournal check` names those that were kept.")
    with settings.open() as journal:
        if spool is not None:
            return recover_spool(settings, journal, spool)
        with settings.spinner("Looking for runs whose process is gone"):
            _wait_for_verdicts(journal)
        name: str | None = None
        settlements: list[Settlement] = []
        if graph is not None:
            with settings.spinner(f"Settling the runs of {graph}"):
                name, settlements = asyncio.run(_settle(journal, graph, adopt))
        for settlement in settlements:
            _settled(settings, settlement, str(name))
        ended, left, alive = _end(journal, {settlement.run_id for settlement in settlements})
        for run in ended:
            _tell(settings, run.run_id, run.thread_id, "ended", "crash", graph=None)
        for run in left:
            _tell(settings, run.run_id, run.thread_id, "needs_graph", None, graph=_graph_name(run))
    failed = [settlement for settlement in settlements if not settlement.is_final]
    _tell_what_is_left(settings, name, left, failed)
    if alive:
        whose = f"{plural(len(alive), 'run')} that ended belong to a process that lives"
        settings.note(f"{whose}: the next message of the thread settles it, there")
    elif not left and not ended and not settlements:
        settings.note("nothing to recover")
    return 1 if left or failed else 0


def _tell_what_is_left(settings: Settings, name: str | None, left: Sequence[Run], failed: Sequence[Settlement]) -> None:
    """What there is still to do, for a person. `name`: of the graph that was given."""
    if left:
        names = ", ".join(sorted({_graph_name(run) for run in left}))
        whose = "its" if len(left) == 1 else "their"
        needed = f"settled by {whose} graph" if name is None else f"settled by another graph than {name}"
        to_do = f"{names}. Use `runjournal recover --graph module:attribute`."
        settings.say(f"runjournal: {plural(len(left), 'run')} must be {needed}: {to_do}", "yellow")
    if failed:
        why = "; ".join(sorted({settlement.reason or settlement.outcome for settlement in failed})[:_REASONS])
        to_do = "Mend that, or give the graph whose checkpointer holds the thread, and recover again."
        settings.say(f"runjournal: {plural(len(failed), 'run')} could not be settled by {name}: {why}. {to_do}", "yellow")


def _graph_name(run: Run) -> str:
    # As in _graph.graph_of, which would bring LangGraph with it.
    return one_line(str(run.metadata.get(GRAPH, run.name)))


def _wait_for_verdicts(journal: RunJournal) -> None:
    """Of an owner on another machine only its heartbeat tells whether it lives: wait until that has been seen, or not."""
    doubtful = journal.runs(status=RunStatus.RUNNING, limit=None)
    while doubtful := [run for run in doubtful if owner_of(journal, run) == "unknown"]:
        time.sleep(_LOOK)


def _end(journal: RunJournal, told: set[str]) -> tuple[list[Run], list[Run], list[Run]]:
    """End what needs no graph. Returns what was ended, what needs one, and what a process that lives has not settled yet."""
    ended: list[Run] = []
    left: list[Run] = []
    alive: list[Run] = []
    for run in unsettled(journal):
        if run.run_id in told:
            continue
        # One that has ended and is not settled has a thread to settle, whether its graph is attached or not.
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
        return False  # another process has ended it, and it was pruned


def _settled(settings: Settings, found: Settlement, graph: str) -> None:
    _tell(settings, found.run_id, found.thread_id, found.outcome, found.reason, graph=graph, messages=found.messages)


def _tell(
    settings: Settings,
    run_id: str,
    thread_id: str | None,
    outcome: str,
    reason: str | None,
    *,
    graph: str | None,
    messages: Sequence[Mapping[str, Any]] = (),
) -> None:
    """What was done about a run, or is left to do."""
    if settings.as_json:
        data = {"run_id": run_id, "thread_id": thread_id, "outcome": outcome, "reason": reason, "graph": graph}
        settings.line({**data, "messages": list(messages)})
        return
    text = f"needs its graph: {graph}" if outcome == "needs_graph" else outcome.replace("_", " ")
    text += (f" ({reason})" if reason else "") + (f", thread {thread_id}" if thread_id else "")
    written = f", {plural(len(messages), 'message')} written" if messages else ""
    settings.row(run_id, text + written)


# --- the graph --------------------------------------------------------------------------------------------------------


async def _settle(journal: RunJournal, name: str, adopt: bool) -> tuple[str, list[Settlement]]:
    async with AsyncExitStack() as stack:
        with redirect_stdout(sys.stderr):  # what a program prints on its way up is no data of ours
            graph = await _graph(look_up(name), name, stack)
        if await _is_asynchronous(graph):
            return graph.get_name(), await journal.arecover(graph, adopt=adopt)
        return graph.get_name(), await asyncio.to_thread(partial(journal.recover, graph, adopt=adopt))


def look_up(name: str) -> Any:
    """What `module:attribute` names, seen from the current directory."""
    module_name, _, path = name.partition(":")
    if not module_name or not path or "/" in module_name or module_name.endswith(".py"):
        raise click.UsageError(f"--graph must be module:attribute, as in app:graph of app.py, and {name!r} is not.")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{module_name}.".startswith(f"{exc.name}."):
            raise Problem(f"The module {module_name} cannot be imported: {exc}. Install what it needs.") from exc
        raise Problem(f"There is no module {module_name}, seen from {here}. Go to the directory that it is in.") from exc
    except (Exception, SystemExit) as exc:  # a program that ends itself would end us, and with 0 it would seem well
        raise Problem(f"The module {module_name} cannot be imported: {type(exc).__name__}: {exc}.") from exc
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as exc:
            raise Problem(f"The module {module_name} has no {path}. Give the name of a graph in it.") from exc
    return found


async def _graph(found: Any, name: str, stack: AsyncExitStack) -> Pregel[Any, Any, Any, Any]:
    """The compiled graph that was named, or that what was named gives."""
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.pregel import Pregel

    try:
        if not isinstance(found, Pregel) and callable(found) and not _is_manager(found):
            found = found()
        if inspect.isawaitable(found):
            found = await found
        if not isinstance(found, Pregel) and hasattr(found, "__aenter__"):
            found = await stack.enter_async_context(found)
        elif not isinstance(found, Pregel) and hasattr(found, "__enter__"):
            found = stack.enter_context(found)
    except (Exception, SystemExit) as exc:
        raise Problem(f"{name} gives no graph: {type(exc).__name__}: {exc}.") from exc
    if not isinstance(found, Pregel):
        compile_ = " Give what its compile() returns." if hasattr(found, "compile") else " Give a compiled graph."
        raise Problem(f"{name} is no graph, but a {type(found).__name__}.{compile_}")
    if not isinstance(found.checkpointer, BaseCheckpointSaver):
        raise Problem(f"The graph {name} has no checkpointer. Compile it with the one that holds its threads.")
    return found


def _is_manager(found: Any) -> bool:
    return not inspect.isclass(found) and (hasattr(found, "__aenter__") or hasattr(found, "__enter__"))


async def _is_asynchronous(graph: Pregel[Any, Any, Any, Any]) -> bool:
    """Whether its checkpointer can be awaited. Some only say so when they are asked."""
    try:
        await cast("Any", graph.checkpointer).aget_tuple({"configurable": {"thread_id": "runjournal", "checkpoint_ns": ""}})
    except NotImplementedError:
        return False
    return True
