"""`JournalSaver`: a checkpointer that stays behind its journal, and behaves as the inner one in everything else."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import gc
import inspect
import logging
import operator
import os
import pickle
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import anyio
import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.capture.recorder import recorder_of
from langchain_runjournal.errors import InvalidArgument, JournalClosed, WriteFailed
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.settle import pending_writes as _pending_writes
from langchain_runjournal.settle.pending_writes import PendingWrites, WriteDrain
from langchain_runjournal.settle.saver import RESUME, JournalSaver
from langchain_runjournal.stores import open_store
from langchain_runjournal.testing import FaultyStore


def config_of(thread_id: object = "t", **more: Any) -> Any:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", **more}}


class Bare(BaseCheckpointSaver[str]):
    """A saver with only the required methods, in their asynchronous form."""

    def __init__(self) -> None:
        self.kept = InMemorySaver()
        super().__init__(serde=self.kept.serde)

    async def aget_tuple(self, config: Any) -> Any:
        return self.kept.get_tuple(config)

    async def alist(self, config: Any, **how: Any) -> AsyncIterator[Any]:
        for found in self.kept.list(config, **how):
            yield found

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        return self.kept.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.kept.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        self.kept.delete_thread(thread_id)

    def get_next_version(self, current: Any, channel: Any) -> Any:
        return self.kept.get_next_version(current, channel)


class Old(Bare):
    """A saver from before tasks had paths."""

    async def aput_writes(self, config: Any, writes: Any, task_id: str) -> None:
        self.kept.put_writes(config, writes, task_id)


@asynccontextmanager
async def bare() -> AsyncIterator[Bare]:
    yield Bare()


@asynccontextmanager
async def old() -> AsyncIterator[Old]:
    yield Old()


def sqlite() -> AbstractAsyncContextManager[AsyncSqliteSaver]:
    return AsyncSqliteSaver.from_conn_string(":memory:")


# --- the same as the inner one ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [InMemorySaver, sqlite, bare])
def test_it_conforms_as_far_as_the_inner_one_does(inner: Callable[[], Any], journal: RunJournal) -> None:
    """LangGraph's conformance tests find the same capabilities and the same results with it and without it."""
    conformance = pytest.importorskip("langgraph.checkpoint.conformance")

    async def results(wrap: Callable[[Any], Any]) -> Any:
        async def fresh() -> AsyncIterator[Any]:
            async with inner() as saver:
                yield wrap(saver)

        report = await conformance.validate(conformance.checkpointer_test(name="this")(fresh))
        return report.to_dict()

    with_it = asyncio.run(results(lambda saver: JournalSaver(saver, journal)))
    without = asyncio.run(results(lambda saver: saver))
    for result in [*with_it["results"].values(), *without["results"].values()]:
        result["failures"] = len(result["failures"])  # the texts hold random ids
    assert with_it == without
    assert with_it["results"]["put_writes"]["tests_passed"] > 5


@pytest.mark.parametrize("inner", [InMemorySaver, Bare, lambda: SqliteSaver(sqlite3.connect(":memory:"))])
def test_what_the_inner_one_lacks_stays_lacking(inner: Callable[[], Any], journal: RunJournal) -> None:
    """Its class overrides a method of LangGraph's base if, and only if, the class of the inner saver does."""
    saver = inner()
    around = JournalSaver(saver, journal)
    names = [name for name in dir(BaseCheckpointSaver) if not name.startswith("_") and name != "with_allowlist"]

    def overridden(kind: type) -> set[str]:
        methods = [name for name in names if callable(getattr(BaseCheckpointSaver, name))]
        return {name for name in methods if getattr(kind, name) is not getattr(BaseCheckpointSaver, name)}

    assert overridden(type(around)) == overridden(type(saver))
    assert {"aput", "get_next_version"} <= overridden(type(around))
    if isinstance(saver, SqliteSaver):
        saver.conn.close()
    for name in overridden(type(saver)):
        mine, theirs = getattr(around, name), getattr(saver, name)
        assert list(inspect.signature(mine).parameters) == list(inspect.signature(theirs).parameters), name
        assert inspect.iscoroutinefunction(mine) == inspect.iscoroutinefunction(theirs), name


def test_other_names_are_those_of_the_inner_one(journal: RunJournal) -> None:
    """`setup`, `conn`, other attributes and configuration are those of the inner saver, and missing ones stay missing."""
    saver = SqliteSaver(sqlite3.connect(":memory:"))
    around = JournalSaver(saver, journal)
    assert (around.conn, around.lock, around.serde) == (saver.conn, saver.lock, saver.serde)
    assert around.config_specs == saver.config_specs
    around.setup()
    assert saver.is_setup
    around.serde = other = InMemorySaver().serde
    assert saver.serde is other
    assert around.get_next_version("00000000000000000000000000000001.5", None) > "00000000000000000000000000000001.5"
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = around.nothing_of_the_kind
    with pytest.raises(AttributeError):
        _ = object.__new__(JournalSaver).anything  # as while it is being unpickled
    assert not hasattr(around, "__enter__")
    assert repr(saver) in repr(around)
    saver.conn.close()


def test_it_is_entered_where_the_inner_one_is(journal: RunJournal) -> None:
    """As a context manager of either kind, it returns the `JournalSaver`."""
    entered = []

    class Entered(InMemorySaver):
        def __enter__(self) -> Any:
            entered.append("in")
            return super().__enter__()

        def __exit__(self, *how: object) -> Any:
            entered.append("out")
            return super().__exit__(*how)

        async def __aenter__(self) -> Any:
            return self.__enter__()

        async def __aexit__(self, *how: object) -> Any:
            return self.__exit__(*how)

    saver = JournalSaver(Entered(), journal)

    async def enter() -> None:
        async with saver as inside:
            assert inside is saver
            assert entered == ["in", "out", "in"]

    with saver as inside:
        assert inside is saver
        assert entered == ["in"]
    asyncio.run(enter())
    assert entered == ["in", "out"] * 2


def test_around_itself_it_is_itself(journal: RunJournal) -> None:
    """For one journal there is one `JournalSaver` around a saver, at whatever depth; for another journal there is
    another."""
    saver = JournalSaver(InMemorySaver(), journal)
    assert isinstance(saver, JournalSaver)
    assert type(saver) is type(JournalSaver(InMemorySaver(), journal))
    assert JournalSaver(saver, journal) is saver
    with RunJournal(":memory:") as other:
        both = JournalSaver(saver, other)
        assert (both.saver, both.journal) == (saver, other)
        assert JournalSaver(both, journal) is both
        stored = both.put(config_of(), empty_checkpoint(), {"source": "input"}, {})
    assert saver.get_tuple(config_of()).config == stored


class Mine(JournalSaver):
    """A subclass that a program defines."""


def test_a_subclass_is_one(journal: RunJournal) -> None:
    """Instances of a subclass, and their copies, are of that subclass."""
    saver = Mine(InMemorySaver(), journal)
    assert isinstance(saver, Mine)
    assert isinstance(copy.copy(saver), Mine)
    assert isinstance(copy.deepcopy(saver), Mine)
    assert isinstance(saver.with_allowlist([("a", "b")]), Mine)


def test_copies_are_copies_of_the_inner_one(journal: RunJournal) -> None:
    """A shallow copy writes to the same saver, a deep copy to its own; both use the same journal. No copy leaves the
    process."""

    class Copied(InMemorySaver):
        def __deepcopy__(self, memo: Any) -> InMemorySaver:
            return InMemorySaver()

    saver = JournalSaver(Copied(), journal)
    shallow, deep = copy.copy(saver), copy.deepcopy(saver)
    assert (shallow.saver, shallow.journal, deep.journal) == (saver.saver, journal, journal)
    saver.put(config_of(), empty_checkpoint(), {"source": "input"}, {})
    assert shallow.get_tuple(config_of()) == saver.get_tuple(config_of()) is not None
    assert deep.get_tuple(config_of()) is None
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(JournalSaver(Bare(), journal))


@pytest.mark.parametrize(
    ("saver", "said"),
    [
        (True, "InMemorySaver.*True was given"),
        (False, "False was given"),
        (None, "None was given"),
        (InMemorySaver, "such as InMemorySaver\\(\\)"),
        ("runs.db", "such as InMemorySaver\\(\\)"),
        (SqliteSaver.from_conn_string(":memory:"), "enter this one first"),
        (AsyncSqliteSaver.from_conn_string(":memory:"), "enter this one first"),
    ],
)
def test_what_is_no_saver_is_refused(saver: Any, said: str, journal: RunJournal) -> None:
    """The error says what to pass instead, also for a context manager that makes a saver, and for True, False and None."""
    with pytest.raises(InvalidArgument, match=rf"^saver must be.*{said}"):
        JournalSaver(saver, journal)


def test_what_is_no_journal_is_refused() -> None:
    """The error says what to pass instead."""
    with pytest.raises(InvalidArgument, match=r"^journal must be a RunJournal, such as"):
        JournalSaver(InMemorySaver(), "runs.db")  # the address of one


# --- graphs -------------------------------------------------------------------------------------------------------------


class State(TypedDict):
    said: Annotated[list[str], operator.add]


def conversation(saver: Any, fails: list[Callable[[], None]] | None = None, ran: list[str] | None = None) -> Any:
    """A graph of one node, then three in parallel: one speaks, one waits for a human, one may fail; and a last node."""
    ran = [] if ran is None else ran

    def says(name: str) -> Any:
        def node(state: Any) -> dict[str, list[str]]:
            ran.append(name)
            if name == "c" and fails:
                fails.pop()()
            return {"said": [f"{name}!" if name != "b" else f"b {interrupt('sure?')}"] if fails is None else [f"{name}!"]}

        return node

    graph = StateGraph(State)
    for name in ("a", "b", "c", "d", "end"):
        graph.add_node(name, says(name))
    graph.add_edge(START, "a")
    graph.add_conditional_edges("a", lambda state: [Send("b", state), Send("c", state), "d"], ["b", "c", "d"])
    for name in ("b", "c", "d"):
        graph.add_edge(name, "end")
    return graph.compile(checkpointer=saver)


def steady(seen: Any) -> str:
    """Return the text without ids and times, which differ between runs."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID", repr(seen))
    text = re.sub(r"(\d{32})\.[0-9.e+-]+", r"\1", text)  # of the version of a channel, keep the part that is not random
    text = re.sub(r"'[0-9a-f]{32}'", "'ID'", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "WHEN", text)


def stored(found: list[Any]) -> str:
    """Return all that a saver holds, with the writes of parallel tasks in one order."""
    return steady([(one.metadata, one.checkpoint, sorted(steady(write) for write in one.pending_writes)) for one in found])


THREAD = {"configurable": {"thread_id": "t"}}


@contextmanager
def memory() -> Iterator[InMemorySaver]:
    yield InMemorySaver()


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("inner", [memory, lambda: SqliteSaver.from_conn_string(":memory:")], ids=["memory", "sqlite"])
def test_graphs_notice_nothing(
    inner: Callable[[], AbstractContextManager[Any]], durability: Any, journal: RunJournal
) -> None:
    """States, histories and pending writes are the same with it, for interrupts, resumes, updates by hand and further
    turns."""

    def talk(wrap: Callable[[Any], Any]) -> list[str]:
        with inner() as saver:
            graph = conversation(wrap(saver))
            seen = []
            for step in ({"said": ["hi"]}, Command(resume="yes"), {"said": ["again"]}):
                seen.append(steady(graph.invoke(step, THREAD, durability=durability)))
                seen.append(steady(graph.get_state(THREAD)))
                seen.append(steady(list(graph.get_state_history(THREAD))))
                seen.append(stored(list(saver.list(THREAD))))
            graph.update_state(THREAD, {"said": ["by hand"]}, "end")
            return [*seen, stored(list(saver.list(THREAD)))]

    assert (with_it := talk(lambda saver: JournalSaver(saver, journal))) == talk(lambda saver: saver)
    assert "by hand" in with_it[-1]
    assert "__interrupt__" in with_it[3]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("inner", [InMemorySaver, sqlite, bare, old])
def test_asynchronous_graphs_notice_nothing(inner: Callable[[], Any], durability: Any, journal: RunJournal) -> None:
    """The same holds on asynchronous savers. On Python 3.10 an asynchronous graph cannot ask a human."""
    nobody: Any = None if sys.version_info >= (3, 11) else []

    async def talk(wrap: Callable[[Any], Any]) -> list[str]:
        async with inner() as saver:
            graph = conversation(wrap(saver), nobody)
            seen = []
            for step in ({"said": ["hi"]}, Command(resume="yes"), {"said": ["again"]}):
                seen.append(steady(await graph.ainvoke(step, THREAD, durability=durability)))
                seen.append(steady(await graph.aget_state(THREAD)))
                seen.append(steady([state async for state in graph.aget_state_history(THREAD)]))
                seen.append(stored([found async for found in saver.alist(THREAD)]))
            await graph.aupdate_state(THREAD, {"said": ["by hand"]}, "end")
            return [*seen, stored([found async for found in saver.alist(THREAD)])]

    with_it = asyncio.run(talk(lambda saver: JournalSaver(saver, journal)))
    assert with_it == asyncio.run(talk(lambda saver: saver))
    assert "by hand" in with_it[-1]


@pytest.mark.parametrize("wrapped", [True, False])
def test_the_paths_of_tasks_arrive(wrapped: bool, journal: RunJournal) -> None:
    """Both ways of writing pass on the task paths by which LangGraph sorts the writes of parallel tasks."""
    paths: list[str] = []

    class Paths(InMemorySaver):
        def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            paths.append(task_path)
            super().put_writes(config, writes, task_id, task_path)

        async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            self.put_writes(config, writes, task_id, task_path)

    graph = conversation(JournalSaver(Paths(), journal) if wrapped else Paths(), [])
    graph.invoke({"said": ["hi"]}, THREAD)
    synchronous = [path for path in paths if path]
    paths.clear()
    asyncio.run(graph.ainvoke({"said": ["hi"]}, config_of("other")))
    assert sorted(synchronous) == sorted(path for path in paths if path)
    assert len([path for path in synchronous if "push" in path]) == 2
    assert len([path for path in synchronous if "pull" in path]) > 2


def test_strict_deserialisation_reaches_the_inner_one() -> None:
    """With LANGGRAPH_STRICT_MSGPACK, LangGraph derives a saver for each run, and all of them count as this one."""
    code = """
import asyncio, operator, threading
from typing import Annotated, TypedDict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langchain_runjournal import RunJournal
from langchain_runjournal.settle.saver import JournalSaver

class State(TypedDict):
    said: Annotated[list, operator.add]

class Held(InMemorySaver):
    def put_writes(self, *given):
        quiet.append(outer.drained("t", 0))
        super().put_writes(*given)

quiet = []
journal = RunJournal(":memory:")
outer = JournalSaver(Held(), journal)
clone = outer.with_allowlist({("some", "Thing")})
assert clone is not outer and isinstance(clone, JournalSaver) and clone.serde is not outer.serde
assert clone.saver is not outer.saver and clone.saver.storage is outer.saver.storage and clone.journal is journal
graph = StateGraph(State)
graph.add_node("a", lambda state: {"said": ["a"]})
graph.add_edge(START, "a")
said = graph.compile(checkpointer=outer).invoke({"said": ["hi"]}, {"configurable": {"thread_id": "t"}})
assert said == {"said": ["hi", "a"]}, said
assert quiet and not any(quiet) and outer.drained("t", 0)
journal.close()
"""
    environment = {**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# --- behind the journal -------------------------------------------------------------------------------------------------

WAYS = ["put", "aput", "put_writes", "aput_writes"]


def write(saver: Any, way: str, thread_id: object = "t", checkpoint: Any = None) -> Any:
    """Write something, in one of the four ways."""
    checkpoint = checkpoint or empty_checkpoint()
    if way.endswith("put"):
        done = getattr(saver, way)(config_of(thread_id), checkpoint, {"source": "input", "step": -1}, {})
    else:
        done = getattr(saver, way)(config_of(thread_id, checkpoint_id=checkpoint["id"]), [("said", "x")], "task", "path")
    return asyncio.run(done) if inspect.iscoroutine(done) else done


def event(run_id: str = "r", kind: Any = "run.start", **data: Any) -> Event:
    return Event(run_id=run_id, kind=kind, data=data)


class Watched(InMemorySaver):
    """A saver that calls a function before each write."""

    def __init__(self, look: Callable[[], object]) -> None:
        super().__init__()
        self.look = look

    def put(self, *given: Any) -> Any:
        self.look()
        return super().put(*given)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.look()
        super().put_writes(config, writes, task_id, task_path)

    async def aput(self, *given: Any) -> Any:
        return self.put(*given)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.put_writes(config, writes, task_id, task_path)


@pytest.mark.parametrize("way", WAYS)
def test_the_journal_is_durable_first(way: str, db: Path, journals: Callable[..., RunJournal]) -> None:
    """When the inner saver is asked to write, another process finds all events that were appended before."""
    journal = journals()
    durable = []

    def look() -> None:
        other = sqlite3.connect(f"file:{db}?mode=ro", uri=True)
        durable.append(other.execute("SELECT max(last) FROM live").fetchone()[0])
        other.close()

    saver = JournalSaver(Watched(look), journal)
    for number in range(20):
        journal.append(event(kind="llm.ai.delta" if number else "run.start", text="x"))
        write(saver, way)
    assert durable == list(range(1, 21))


def warnings_of(caplog: pytest.LogCaptureFixture) -> int:
    return sum("ahead of their journal" in record.message for record in caplog.records)


@pytest.mark.parametrize("way", WAYS)
def test_a_broken_journal_does_not_break_the_agent(
    way: str, db: Path, journals: Callable[..., RunJournal], caplog: pytest.LogCaptureFixture
) -> None:
    """The write succeeds, and the log says once for each outage that the journal lags behind."""
    store = FaultyStore(open_store(db))
    journal = journals(url=store)
    count: list[int] = []
    saver = JournalSaver(Watched(lambda: count.append(1)), journal)
    for streak in (1, 2):
        store.fail(times=-1)
        journal.append(event(f"r{streak}"))
        for _ in range(3):
            write(saver, way)
        assert warnings_of(caplog) == streak
        store.fail(times=0)
        write(saver, way)
    assert len(count) == 8
    assert warnings_of(caplog) == 2


@pytest.mark.parametrize("way", WAYS)
def test_a_closed_journal_does_not_break_the_agent(way: str, caplog: pytest.LogCaptureFixture) -> None:
    """The saver does not report how many events came too late; a flush reports that."""
    count: list[int] = []
    journal = RunJournal(":memory:")
    saver = JournalSaver(Watched(lambda: count.append(1)), journal)
    journal.close()
    journal.append(event())
    write(saver, way)
    write(saver, way)
    assert len(count) == 2
    assert warnings_of(caplog) == 1
    with pytest.raises(JournalClosed, match="1 event came after"):
        journal.flush()


@pytest.mark.parametrize("way", WAYS)
def test_what_was_refused_is_for_the_next_to_hear(way: str, journal: RunJournal) -> None:
    """The saver does not swallow a loss that a barrier reports once."""
    saver = JournalSaver(InMemorySaver(), journal)
    core_of(journal).appender.miss()
    write(saver, way)
    with pytest.raises(WriteFailed, match="could not take 1 event, and it is lost"):
        journal.flush()


def test_a_write_in_a_callback_of_the_journal_goes_on(
    db: Path, journals: Callable[..., RunJournal], caplog: pytest.LogCaptureFixture
) -> None:
    """A write inside of an append does not wait for the journal, which would deadlock."""
    journal, other = journals(), journals()
    saver = JournalSaver(InMemorySaver(), journal)
    journal.append(event())
    journal.flush()
    done = threading.Event()

    def stopped(cause: str) -> None:
        write(saver, "put")
        done.set()

    journal.on_stop("r", stopped)
    other.stop("r")
    assert done.wait(30)
    assert saver.get_tuple(config_of()) is not None
    assert warnings_of(caplog) == 1


def test_a_forked_child_writes_as_well(db: Path, journals: Callable[..., RunJournal]) -> None:
    """A forked child writes with its own journal, and does not wait for the writes of the parent."""
    held, go = threading.Event(), threading.Event()

    def look() -> None:
        held.set()
        go.wait(30)

    saver = JournalSaver(Watched(look), journals())
    thread = threading.Thread(target=write, args=(saver, "put"))
    thread.start()
    held.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # the child must not outlive the tests
        go.set()
        quiet = saver.drained("t", 20)
        write(saver, "put", "u")
        os._exit(0 if quiet and saver.get_tuple(config_of("u")) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not saver.drained("t", 0)
    go.set()
    thread.join()
    assert saver.drained("t", 0)


def test_it_tells_what_was_applied(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """It records each checkpoint of a superstep of the outermost graph with its number, after the write; no other, and no
    failed one."""
    told: list[tuple[str, str, int]] = []

    def tell(saver: Any, thread_id: str, checkpoint_id: str, step: int, *about: Any) -> None:
        told.append((thread_id, checkpoint_id, step))

    monkeypatch.setattr(recorder_of(journal), "applied", tell)

    class Failing(InMemorySaver):
        def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            if metadata["step"] == 1:
                raise OSError("full")
            return super().put(config, checkpoint, metadata, new_versions)

    inner = StateGraph(State)
    inner.add_node("x", lambda state: {"said": ["x"]})
    inner.add_edge(START, "x")

    def graph(saver: Any) -> Any:
        outer = StateGraph(State)
        outer.add_node("inner", inner.compile())
        outer.add_edge(START, "inner")
        return outer.compile(checkpointer=JournalSaver(saver, journal))

    graph_of = graph(InMemorySaver())
    graph_of.invoke({"said": ["hi"]}, THREAD, durability="sync")
    asyncio.run(graph_of.ainvoke({"said": ["hi"]}, config_of(7), durability="sync"))
    graph_of.update_state(THREAD, {"said": ["by hand"]})
    for thread_id in ("t", "7"):
        history = list(graph_of.get_state_history(config_of(thread_id)))
        stored = [(one.config["configurable"]["checkpoint_id"], one.metadata["step"]) for one in history]
        loop = stored[-2::-1][:2]  # the first is that of the input
        assert [(id, step) for told_thread, id, step in told if told_thread == thread_id] == loop
    told.clear()
    with pytest.raises(OSError, match="full"):
        graph(Failing()).invoke({"said": ["hi"]}, THREAD, durability="sync")
    assert len(told) == 1


def test_a_journal_that_fails_on_a_checkpoint_is_logged(
    journal: RunJournal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint is written, and the error of the journal is logged."""

    def stumble(*given: Any) -> None:
        raise RuntimeError("stumbled")

    for name in ("checkpoint", "applied"):
        monkeypatch.setattr(recorder_of(journal), name, stumble)
    saver = JournalSaver(InMemorySaver(), journal)
    saver.put(config_of(), empty_checkpoint(), {"source": "loop"}, {})
    assert saver.get_tuple(config_of()) is not None
    assert "could not report a checkpoint to the journal" in caplog.text


# --- to their end -------------------------------------------------------------------------------------------------------

VALUE: contextvars.ContextVar[str] = contextvars.ContextVar("VALUE", default="none")


class Held(InMemorySaver):
    """A saver whose asynchronous writes wait for a gate each, and then raise `error`."""

    def __init__(self, gates: int = 1, error: Exception | None = None) -> None:
        super().__init__()
        self.gates = [asyncio.Event() for _ in range(gates)]
        self.begun = [asyncio.Event() for _ in range(gates)]
        self.error = error
        self.order: list[str] = []
        """The value of `VALUE` in the context of each write, as the write ends."""
        self._count = 0

    async def _hold(self) -> None:
        number, self._count = self._count, self._count + 1
        self.begun[number].set()
        await self.gates[number].wait()
        self.order.append(VALUE.get())
        if self.error is not None:
            raise self.error

    async def aput(self, *given: Any) -> Any:
        await self._hold()
        return super().put(*given)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        await self._hold()
        super().put_writes(config, writes, task_id, task_path)


def begin(saver: Any, way: str = "aput", checkpoint: Any = None) -> Any:
    """Return a coroutine that writes."""
    checkpoint = checkpoint or empty_checkpoint()
    if way == "aput":
        return saver.aput(config_of(), checkpoint, {"source": "loop", "step": 1}, {})
    return saver.aput_writes(config_of(checkpoint_id=checkpoint["id"]), [("said", "x")], "task", "path")


async def turns(number: int = 30) -> None:
    """Let the loop iterate, so that all ready callbacks run."""
    for _ in range(number):
        await asyncio.sleep(0)


async def cancelled(how: str, write: Any, begun: asyncio.Event) -> asyncio.Task[None]:
    """Await a write in a task, and cancel that task while it waits."""
    scope, cleaned_up = anyio.CancelScope(), asyncio.Event()

    async def caller() -> None:
        VALUE.set("the caller's")
        if how == "anyio":
            with scope:
                await write
            return
        try:
            await write
        finally:
            if how == "twice":
                await cleaned_up.wait()  # so that the task can be cancelled there again

    task = asyncio.create_task(caller())
    await begun.wait()
    for _ in range(2 if how == "twice" else 1):
        scope.cancel() if how == "anyio" else task.cancel()
        await turns()
    cleaned_up.set()
    return task


async def gone(how: str, write: Any, begun: asyncio.Event) -> None:
    """Await a write in a task, cancel the task, and drop it."""
    task = await cancelled(how, write, begun)
    assert task.done()
    assert task.cancelled() == (how != "anyio")


@pytest.mark.parametrize("way", ["aput", "aput_writes"])
@pytest.mark.parametrize("how", ["once", "twice", "anyio"])
def test_a_write_outlives_its_caller(how: str, way: str, journal: RunJournal) -> None:
    """A cancelled caller ends at once; the write continues in its context, and a wait for the thread waits for it."""

    async def main() -> None:
        held = Held()
        saver = JournalSaver(held, journal)
        await gone(how, begin(saver, way), held.begun[0])
        assert not held.order
        waiting = asyncio.create_task(saver.adrained("t", 60))
        await turns()
        assert not waiting.done()
        assert not await saver.adrained("t", 0)
        gc.collect()  # otherwise only the loop knows the task, and loops hold tasks weakly
        held.gates[0].set()
        assert await waiting
        assert held.order == ["the caller's"]
        assert bool(held.storage) == (way == "aput")
        assert bool(held.writes) == (way == "aput_writes")

    asyncio.run(main())


@pytest.mark.parametrize("way", ["aput", "aput_writes"])
def test_a_write_outlives_a_caller_that_is_cancelled_at_the_barrier(way: str, db: Path) -> None:
    """A write continues even if its caller is cancelled before the write has reached the inner saver."""
    go = threading.Event()

    class Slow(FaultyStore):
        def append(self, *given: Any) -> Any:
            go.wait(30)
            return self.inner.append(*given)

    async def main(journal: RunJournal) -> None:
        saver = JournalSaver(InMemorySaver(), journal)
        journal.append(event())
        task = asyncio.create_task(begin(saver, way))
        await turns()
        task.cancel()
        await turns()
        assert task.cancelled()
        assert not saver.storage
        assert not saver.writes
        assert not await saver.adrained("t", 0)
        go.set()
        assert await saver.adrained("t", 60)
        assert saver.storage or saver.writes

    with RunJournal(Slow(open_store(db))) as journal:
        asyncio.run(main(journal))


def test_a_write_outlives_its_saver(journal: RunJournal) -> None:
    """The task of a write is not garbage-collected, although a loop holds its tasks weakly."""

    async def main() -> None:
        held = Held()
        await gone("once", begin(JournalSaver(held, journal)), held.begun[0])
        gate, order = weakref.ref(held.gates[0]), held.order
        del held
        gc.collect()
        opened = gate()
        assert opened is not None
        opened.set()
        await turns()
        assert order == ["the caller's"]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["once", "twice", "anyio"])
def test_a_stopped_graph_leaves_its_checkpoint(how: str, journal: RunJournal) -> None:
    """LangGraph cancels the write that it awaits; when the thread is quiet, the checkpoint is stored."""

    async def main() -> None:
        held = Held(gates=9)
        saver = JournalSaver(held, journal)
        graph = conversation(saver)
        for gate in held.gates[1:]:
            gate.set()
        task = await cancelled(how, graph.ainvoke({"said": ["hi"]}, THREAD, durability="sync"), held.begun[0])
        waiting = asyncio.create_task(saver.adrained("t", 60))
        await turns()
        assert not waiting.done()
        held.gates[0].set()
        assert await waiting
        found = list(held.list(THREAD))
        assert found[-1].metadata["source"] == "input"
        await asyncio.wait([task])
        assert list(held.list(THREAD)) == found

    asyncio.run(main())


def test_who_awaits_a_write_that_fails_hears_of_it(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets the same exception, once, and the log has no line."""
    error = OSError("full")

    async def main() -> None:
        held = Held(error=error)
        held.gates[0].set()
        with pytest.raises(OSError, match="full") as raised:
            await begin(JournalSaver(held, journal))
        assert raised.value is error

    asyncio.run(main())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_failure_that_no_call_awaits_is_logged(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """The package logs it once, and asyncio logs nothing."""
    complaints: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        held = Held(error=OSError("full"))
        saver = JournalSaver(held, journal)
        await gone("once", begin(saver), held.begun[0])
        held.gates[0].set()
        assert await saver.adrained("t", 60)
        await turns()
        del held, saver
        gc.collect()
        await turns()

    asyncio.run(main())
    gc.collect()
    assert complaints == []
    assert [record.message for record in caplog.records] == ["could not write a checkpoint of thread t: full"]


def test_a_loop_that_ends_takes_writes_along_that_do_not_end(
    journal: RunJournal, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that ends cancels its unfinished writes, as without us; that is logged, and no drain waits for them any
    more."""
    monkeypatch.setattr(_pending_writes, "_LAST_TRY", 0)

    async def main() -> JournalSaver:
        held = Held(gates=2)
        saver = JournalSaver(held, journal)
        await gone("once", begin(saver), held.begun[0])
        return saver

    saver = asyncio.run(main())
    assert saver.drained("t", None)
    assert not saver.storage
    assert "its event loop ended before the write did" in caplog.text


@pytest.mark.parametrize("where", ["start", "flush", "write"])
def test_a_loop_that_shuts_down_completes_its_writes(
    where: str, journal: RunJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C cancels every task once, and each cancelled write is still completed.

    LangGraph 1.2.4 then stores the next checkpoint all the same, which refers to what the cancelled write was to store. A
    saver that keeps each value by its version would have lost the history of the thread.
    """
    held, flush = Held(gates=2), JournalSaver._aflush
    held.gates[1].set()
    flushing = asyncio.Event()

    async def aflush(self: JournalSaver, config: Any, is_awaited: Any) -> None:
        if where == "flush" and not flushing.is_set():
            held.gates[0].set()
            flushing.set()
            await asyncio.Event().wait()
        await flush(self, config, is_awaited)

    async def main() -> None:
        saver = JournalSaver(held, journal)
        write = asyncio.create_task(begin(saver))
        if where == "start":
            await asyncio.sleep(0)  # the saver has made the task of the write, which has taken no step
            held.gates[0].set()
        else:
            await (flushing if where == "flush" else held.begun[0]).wait()
        assert not write.done()
        assert held.begun[0].is_set() == (where == "write")
        raise KeyboardInterrupt

    monkeypatch.setattr(JournalSaver, "_aflush", aflush)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert held.get_tuple(config_of()) is not None


def test_a_loop_that_was_closed_on_its_writes_is_not_waited_for(journal: RunJournal) -> None:
    """A drain does not wait for writes of a closed loop, even without a timeout."""
    loop = asyncio.new_event_loop()

    async def main() -> JournalSaver:
        held = Held()
        saver = JournalSaver(held, journal)
        loops_own.append(asyncio.create_task(begin(saver)))
        await held.begun[0].wait()
        return saver

    loops_own: list[Any] = []
    saver = loop.run_until_complete(main())
    assert not saver.drained("t", 0)
    loop.close()
    assert saver.drained("t", None)
    for task in loops_own:
        task._log_destroy_pending = False


# --- until it is quiet --------------------------------------------------------------------------------------------------


async def wait_here(saver: Any) -> bool:
    return await saver.adrained("t", 60)


async def wait_in_another_loop(saver: Any) -> bool:
    return await asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(saver.adrained("t", 60)))


async def wait_in_a_thread(saver: Any) -> bool:
    return await asyncio.get_running_loop().run_in_executor(None, saver.drained, "t", 60)


@pytest.mark.parametrize("wait", [wait_here, wait_in_another_loop, wait_in_a_thread])
@pytest.mark.parametrize("between", range(6))
def test_a_write_that_follows_another_is_waited_for(wait: Any, between: int, journal: RunJournal) -> None:
    """A thread is not quiet between two chained writes of LangGraph, which begin some loop iterations apart."""

    async def main() -> None:
        held = Held(gates=3)
        saver = JournalSaver(held, journal)
        found: list[int] = []

        async def chain() -> None:
            for _ in range(3):
                await asyncio.create_task(begin(saver))
                await turns(between)

        async def quiet() -> bool:
            answer = await wait(saver)
            found.append(len(held.order))
            return bool(answer)

        chained = asyncio.create_task(chain())
        await held.begun[0].wait()
        waiting = asyncio.create_task(quiet())
        await turns()
        for number in range(3):
            held.gates[number].set()
            await held.begun[min(number + 1, 2)].wait()
        assert await waiting
        await chained
        assert found == [3]

    asyncio.run(main())


def test_a_write_that_came_and_went_is_noticed() -> None:
    """A thread was not quiet if a write began and ended during the watch."""

    async def main() -> None:
        traffic, loop = PendingWrites(), asyncio.get_running_loop()
        traffic.end(traffic.begin("t", loop))
        drain = WriteDrain(traffic, "t", 60, here=None)
        waits = drain.waits()
        looks, _ = next(waits)
        write = traffic.begin("t", loop)
        await turns()
        assert looks[0].done()
        traffic.end(write)
        next(waits)
        assert not drain.quiet
        await turns()
        assert list(waits) == []
        assert drain.quiet

    asyncio.run(main())


def test_the_chain_of_a_graph_is_waited_for(journal: RunJournal) -> None:
    """A drain waits for all checkpoints that a run writes in the background, one after the other."""

    async def main() -> None:
        held = Held(gates=20)
        saver = JournalSaver(held, journal)
        ran = asyncio.Event()

        async def node(state: Any) -> dict[str, list[str]]:
            if len(state["said"]) == 3:
                ran.set()
            return {"said": ["x"]}

        graph = StateGraph(State)
        for number in range(4):
            graph.add_node(f"n{number}", node)
        graph.add_edge(START, "n0")
        for number in range(3):
            graph.add_edge(f"n{number}", f"n{number + 1}")
        run = asyncio.create_task(graph.compile(checkpointer=saver).ainvoke({"said": []}, THREAD, durability="async"))
        await held.begun[0].wait()
        await ran.wait()
        await turns()  # the run is at its end, where it waits for its background writes
        waiting = asyncio.create_task(saver.adrained("t", 60))
        for gate in held.gates:
            await turns()
            gate.set()
        assert await waiting
        assert held.get_tuple(THREAD).metadata["step"] == 4
        await run

    asyncio.run(main())


def test_a_loop_is_not_asked_to_wait_for_itself(journal: RunJournal) -> None:
    """On the thread of the loop that writes, `drained` returns False at once; for another thread id, it returns True."""

    async def main() -> None:
        held = Held()
        saver = JournalSaver(held, journal)
        assert saver.drained("t", None)
        task = asyncio.create_task(begin(saver))
        await held.begun[0].wait()
        assert not saver.drained("t", None)
        assert saver.drained("u", None)
        held.gates[0].set()
        await task
        await turns()
        assert saver.drained("t", None)

    asyncio.run(main())


@pytest.mark.parametrize("way", ["put", "put_writes"])
def test_synchronous_writes_are_waited_for(way: str, journal: RunJournal) -> None:
    """A drain waits for synchronous writes in any thread; thread ids are equal if their text is."""
    held, go = threading.Event(), threading.Event()

    def look() -> None:
        held.set()
        go.wait(30)

    saver = JournalSaver(Watched(look), journal)
    writing = threading.Thread(target=write, args=(saver, way, 7))
    writing.start()
    held.wait(30)
    assert not saver.drained("7", 0)
    assert not asyncio.run(saver.adrained("7", 0))
    assert saver.drained("8", None)
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(saver.drained(7, None)))
    waiting.start()
    go.set()
    writing.join()
    waiting.join()
    assert answers == [True]
    assert asyncio.run(saver.adrained("7", None))


@pytest.mark.parametrize("way", ["put", "put_writes"])
def test_a_synchronous_write_that_fails_is_over(way: str, journal: RunJournal) -> None:
    """The caller gets its error, and no drain waits for it."""

    def fail() -> None:
        raise OSError("full")

    saver = JournalSaver(Watched(fail), journal)
    with pytest.raises(OSError, match="full"):
        write(saver, way)
    assert saver.drained("t", None)


def test_a_cancelled_wait_cancels_nothing_else(journal: RunJournal) -> None:
    """A cancelled wait cancels no write, nor another wait."""

    async def main() -> None:
        held = Held()
        saver = JournalSaver(held, journal)
        task = asyncio.create_task(begin(saver))
        await held.begun[0].wait()
        first, second = (asyncio.create_task(saver.adrained("t", None)) for _ in range(2))
        await turns()
        first.cancel()
        await turns()
        assert first.cancelled()
        held.gates[0].set()
        assert await second
        await task

    asyncio.run(main())


@pytest.mark.parametrize("timeout", [-1, "1", True])
def test_a_time_is_a_time(timeout: Any, journal: RunJournal) -> None:
    """A timeout that is not a number is refused, with the name of the argument."""
    saver = JournalSaver(InMemorySaver(), journal)
    with pytest.raises(InvalidArgument, match=r"^timeout must be a number of seconds"):
        saver.drained("t", timeout)
    with pytest.raises(InvalidArgument, match=r"^timeout must be a number of seconds"):
        asyncio.run(saver.adrained("t", timeout))


def test_it_does_not_keep_the_process_alive() -> None:
    """A process exits as without us, even if a write never ends."""
    code = """
import asyncio
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langchain_runjournal import RunJournal
from langchain_runjournal.settle.saver import JournalSaver

class Never(InMemorySaver):
    async def aput(self, *given):
        begun.set()
        await asyncio.Event().wait()

async def main():
    global begun
    begun = asyncio.Event()
    saver = JournalSaver(Never(), RunJournal(":memory:"))
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    task = asyncio.create_task(saver.aput(config, empty_checkpoint(), {}, {}))
    await begun.wait()
    task.cancel()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr.strip() == "a checkpoint of thread t may be incomplete: its event loop ended before the write did"


# --- resuming from a checkpoint -----------------------------------------------------------------------------------------


def head(saver: Any) -> str:
    return str(saver.get_tuple(THREAD).config["configurable"]["checkpoint_id"])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_goes_on_from_the_checkpoint_that_is_named(asynchronous: bool, journal: RunJournal) -> None:
    """A run resumes from the named checkpoint as if it were the newest, and repeats nothing that had finished there."""
    ran: list[str] = []
    others = threading.Barrier(3)

    class Others(InMemorySaver):
        def put_writes(self, config: Any, writes: Any, *of_whom: Any) -> None:
            super().put_writes(config, writes, *of_whom)
            if ("said", ["b!"]) in writes or ("said", ["d!"]) in writes:
                others.wait(30)

    def fail() -> None:
        others.wait(30)  # only after the messages of the others are stored
        raise OSError("down")

    saver = JournalSaver(Others(), journal)
    graph = conversation(saver, [fail], ran)
    with pytest.raises(OSError, match="down"):
        graph.invoke({"said": ["hi"]}, THREAD)
    place = head(saver)
    assert sorted(ran) == ["a", "b", "c", "d"]
    graph.update_state(THREAD, {"said": ["settled"]}, "end")
    assert head(saver) != place
    ran.clear()
    config = {"configurable": {"thread_id": "t", RESUME: place}}
    said = asyncio.run(graph.ainvoke(None, config)) if asynchronous else graph.invoke(None, config)
    assert ran == ["c", "end"]
    assert sorted(said["said"]) == ["a!", "b!", "c!", "d!", "end!", "hi"]
    assert graph.get_state(THREAD).values == said
    assert RESUME not in repr([state.metadata for state in graph.get_state_history(THREAD)])


def test_the_place_is_named_for_the_outermost_graph_only(journal: RunJournal) -> None:
    """Inner graphs read as usual; a `checkpoint_id` takes precedence; a checkpoint that does not exist is not found."""
    inner = InMemorySaver()
    saver = JournalSaver(inner, journal)
    ids = []
    for namespace in ("", "", "sub:1"):
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
        ids.append(saver.put(config, empty_checkpoint(), {"source": "loop"}, {})["configurable"]["checkpoint_id"])

    def read(**asked: Any) -> Any:
        found = [saver.get_tuple(config_of(**asked)), asyncio.run(saver.aget_tuple(config_of(**asked)))]
        kept = [saver.get(config_of(**asked)), asyncio.run(saver.aget(config_of(**asked)))]
        assert [one and one.checkpoint for one in found] == kept
        assert len({one and one.checkpoint["id"] for one in found}) == 1
        return kept[0] and kept[0]["id"]

    assert read(**{RESUME: ids[0]}) == ids[0]
    assert read(**{RESUME: ids[0], "checkpoint_ns": "sub:1"}) == ids[2]
    assert read(**{RESUME: ids[0], "checkpoint_id": ids[1]}) == ids[1]
    assert read(**{RESUME: ids[0], "checkpoint_id": None}) == ids[0]
    assert read(**{RESUME: None}) == ids[1]
    assert read(**{RESUME: "gone"}) is None
    config = config_of(**{RESUME: ids[0]})
    assert saver.get_tuple(config).config == inner.get_tuple(config_of(checkpoint_id=ids[0])).config
    assert config == config_of(**{RESUME: ids[0]})
