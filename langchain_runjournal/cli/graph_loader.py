"""Load the graph that `module:attribute` names, for `runjournal recover --graph` and `runjournal serve`."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from contextlib import AsyncExitStack, redirect_stdout
from typing import TYPE_CHECKING, Any, cast

import click

from .options import CommandFailed

if TYPE_CHECKING:
    from langgraph.pregel import Pregel


async def load_graph(
    name: str, stack: AsyncExitStack, *, argument: str = "--graph", needs_checkpointer: bool = True
) -> Pregel[Any, Any, Any, Any]:
    """Import a compiled graph, or make one with the function or the context manager that `name` names.

    `stack` closes the context manager. What the program prints goes to stderr: stdout is for the data of the command.
    """
    with redirect_stdout(sys.stderr):
        found = await _compiled(_imported(name, argument), name, stack)
    if needs_checkpointer and not has_checkpointer(found):
        raise CommandFailed(f"The graph {name} has no checkpointer. Compile it with the one that holds its threads.")
    return found


def has_checkpointer(graph: Pregel[Any, Any, Any, Any]) -> bool:
    """Return whether the graph was compiled with a checkpointer of its own."""
    from langgraph.checkpoint.base import BaseCheckpointSaver

    return isinstance(graph.checkpointer, BaseCheckpointSaver)


async def is_asynchronous(graph: Pregel[Any, Any, Any, Any]) -> bool:
    """Return whether the checkpointer has async methods. Some raise NotImplementedError only when they are called."""
    try:
        await cast("Any", graph.checkpointer).aget_tuple({"configurable": {"thread_id": "runjournal", "checkpoint_ns": ""}})
    except NotImplementedError:
        return False
    return True


def _imported(name: str, argument: str) -> Any:
    module_name, _, path = name.partition(":")
    if not module_name or not path or "/" in module_name or module_name.endswith(".py"):
        raise click.UsageError(f"{argument} must be module:attribute, as in app:graph of app.py, and {name!r} is not.")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{module_name}.".startswith(f"{exc.name}."):
            raise CommandFailed(f"The module {module_name} cannot be imported: {exc}. Install what it needs.") from exc
        to_do = "Change to the directory of the module."
        raise CommandFailed(f"The module {module_name} does not exist, seen from {here}. {to_do}") from exc
    except (Exception, SystemExit) as exc:  # SystemExit(0) of the program would end this command as if all were well
        raise CommandFailed(f"The module {module_name} cannot be imported: {type(exc).__name__}: {exc}.") from exc
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as exc:
            raise CommandFailed(f"The module {module_name} has no {path}. Give the name of a graph in it.") from exc
    return found


async def _compiled(found: Any, name: str, stack: AsyncExitStack) -> Pregel[Any, Any, Any, Any]:
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
        raise CommandFailed(f"{name} gives no graph: {type(exc).__name__}: {exc}.") from exc
    if not isinstance(found, Pregel):
        compile_ = " Give what its compile() returns." if hasattr(found, "compile") else " Give a compiled graph."
        raise CommandFailed(f"{name} is not a graph, but a {type(found).__name__}.{compile_}")
    return found


def _is_manager(found: Any) -> bool:
    return not inspect.isclass(found) and (hasattr(found, "__aenter__") or hasattr(found, "__enter__"))
