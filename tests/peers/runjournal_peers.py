"""A pytest plugin for the suites of others: puts the journal under every graph, run or checkpointer that a test makes.

`RUNJOURNAL_PEERS` is the mode ("bare", "attach", "handler" or "saver"), `RUNJOURNAL_PEERS_OUT` the directory of the results.
The plugin runs in the environment of the suites, and imports nothing of our tests. Each test has a journal of its own, in
memory: the tests of a suite use the same thread ids with another checkpointer each, which no program does.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import JournalCallbackHandler, JournalSaver, RunJournal, attach

MODE = os.environ.get("RUNJOURNAL_PEERS", "bare")
OUT = Path(os.environ["RUNJOURNAL_PEERS_OUT"])


class _Journals:
    """The journal of the test that runs now; between tests, and while modules are imported, one that stays."""

    def __init__(self) -> None:
        self.lasting = self.current = RunJournal(":memory:")
        self.handler = JournalCallbackHandler(self.current)
        self.graphs = self.runs = self.savers = 0

    def begin(self) -> None:
        self.current = RunJournal(":memory:")
        self.handler = JournalCallbackHandler(self.current)

    def end(self) -> None:
        journal, self.current = self.current, self.lasting
        self.handler = JournalCallbackHandler(self.current)
        self.runs += len(journal.runs(limit=None))
        journal.close()

    def attach(self, graph: Any) -> Any:
        self.graphs += 1
        return attach(graph, self.current)

    def around(self, saver: Any) -> Any:
        from langgraph.checkpoint.base import BaseCheckpointSaver

        if not isinstance(saver, BaseCheckpointSaver):
            return saver
        self.savers += 1
        return JournalSaver(saver, self.current)

    def get(self) -> Any:
        """What LangChain asks of a context variable that holds a handler."""
        return self.handler


journals = _Journals() if MODE != "bare" else None


# --- what is put under a test ---------------------------------------------------------------------------------------------


def _wrap_compile(journals: _Journals) -> None:
    from langgraph.func import entrypoint
    from langgraph.graph import StateGraph

    compiled, called = StateGraph.compile, entrypoint.__call__

    @functools.wraps(compiled)
    def compile_attached(*args: Any, **kwargs: Any) -> Any:
        return journals.attach(compiled(*args, **kwargs))

    @functools.wraps(called)
    def call_attached(*args: Any, **kwargs: Any) -> Any:
        return journals.attach(called(*args, **kwargs))

    StateGraph.compile, entrypoint.__call__ = compile_attached, call_attached


def _wrap_pregel(journals: _Journals) -> type:
    """Stands for `Pregel` in test modules that make graphs of it directly."""
    from langgraph.pregel import Pregel

    class Attaching(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return journals.attach(Pregel(*args, **kwargs))

        def __getattr__(cls, name: str) -> Any:
            return getattr(Pregel, name)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, Pregel)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, Pregel)

    return Attaching("Pregel", (), {})


def _wrap_savers(journals: _Journals) -> None:
    from contextlib import asynccontextmanager, contextmanager

    from langgraph.func import entrypoint
    from langgraph.graph import StateGraph
    from langgraph.pregel import Pregel

    for owner, name in ((StateGraph, "compile"), (entrypoint, "__init__"), (Pregel, "__init__")):
        _wrap_argument(journals, owner, name)
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    except ImportError:
        return
    opened, aopened = SqliteSaver.from_conn_string, AsyncSqliteSaver.from_conn_string

    @contextmanager
    def from_conn_string(*args: Any, **kwargs: Any) -> Any:
        with opened(*args, **kwargs) as saver:
            yield journals.around(saver)

    @asynccontextmanager
    async def afrom_conn_string(*args: Any, **kwargs: Any) -> Any:
        async with aopened(*args, **kwargs) as saver:
            yield journals.around(saver)

    SqliteSaver.from_conn_string = staticmethod(from_conn_string)
    AsyncSqliteSaver.from_conn_string = staticmethod(afrom_conn_string)


def _wrap_argument(journals: _Journals, owner: type, name: str) -> None:
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(journals.around(arg) for arg in args)
        kwargs = {key: journals.around(value) if key == "checkpointer" else value for key, value in kwargs.items()}
        return inner(self, *args, **kwargs)

    setattr(owner, name, wrapped)


def _put_under(journals: _Journals) -> None:
    if MODE == "attach":
        _wrap_compile(journals)
    elif MODE == "saver":
        _wrap_savers(journals)
    elif MODE == "handler":
        from langchain_core.tracers.context import register_configure_hook

        register_configure_hook(journals, inheritable=True)


if journals is not None:
    # Before any test module is imported: many compile their graphs there.
    _put_under(journals)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Test modules that have imported `Pregel` make attached graphs of it."""
    if MODE != "attach" or journals is None:
        return
    from langgraph.pregel import Pregel

    attaching = _wrap_pregel(journals)
    for module in {item.module for item in items if hasattr(item, "module")}:
        if module.__dict__.get("Pregel") is Pregel:
            module.Pregel = attaching


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any, nextitem: Any) -> Any:
    """A journal for each test, its fixtures included."""
    if journals is None:
        return (yield)
    journals.begin()
    try:
        return (yield)
    finally:
        journals.end()


# --- what comes of it -----------------------------------------------------------------------------------------------------


class _Said(logging.Handler):
    """Keeps what the journal logs: a warning or an error in a test that passes may be one that is none."""

    def emit(self, record: logging.LogRecord) -> None:
        line = {
            "id": os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0],
            "level": record.levelname,
            "said": record.getMessage(),
            "error": logging.Formatter().formatException(record.exc_info)[-3000:] if record.exc_info else None,
        }
        with (OUT / "said.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


if journals is not None:
    logging.getLogger("langchain_runjournal").addHandler(_Said(logging.WARNING))


def pytest_runtest_logreport(report: Any) -> None:
    """A line for each test that is over, or has failed before or after it."""
    if "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.passed):
        return
    line: dict[str, Any] = {"id": report.nodeid, "when": report.when, "outcome": report.outcome}
    if report.failed:
        line["why"] = str(report.longrepr)[-6000:]
    with (OUT / "tests.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def pytest_sessionfinish() -> None:
    """How much was put under the tests of this process: none would prove nothing."""
    if journals is None:
        return
    counts = {"graphs": journals.graphs, "runs": journals.runs, "savers": journals.savers}
    with (OUT / "counts.jsonl").open("a") as file:
        file.write(json.dumps(counts) + "\n")
    journals.lasting.close()
    print(counts, file=sys.stderr)
