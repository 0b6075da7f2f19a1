"""`start_run`: runs a graph in a task of its own, which outlives its caller and can be stopped from anywhere.

Rule: the task belongs to the run. A stop cancels the task, and nothing else does; the task ends when the thread is settled
and all of the run is durable. Code that reads the chunks, follows the events or waits is a reader, which may leave at any
time.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID, uuid4

from langchain_core.runnables.config import merge_configs
from langgraph.pregel import Pregel

from ..capture.calling_graph import INSIDE
from ..capture.graph_identity import identity, identity_of
from ..common.arguments import choice, seconds, thread
from ..common.arguments import options as known_options
from ..common.twins import begin, run_async
from ..errors import InvalidArgument, JournalClosing, RunNotFound, StoreFailed
from ..events import Cause, Event, Run, RunStatus
from ..journal.core import core_of
from ..journal.extensions import Extension
from ..settle.attach import attach, check_graph, handlers_of
from ..settle.attached_graph import attachments_of
from ..settle.resume import RESUMED_RUN
from ..settle.saver import JournalSaver
from .admission import Admission, IfBusy
from .cancellation import RunControl
from .chunk_pipe import Pipe
from .readers import Readers
from .task import RunTask

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from ..journal.run_journal import RunJournal


OnDisconnect = Literal["continue", "stop"]
_DEPRECATED: Final = {"checkpoint_during"}  # LangGraph still takes it, for `durability`
_RUNS_BACK: Final = 100
"""How many runs of a thread are searched for the one that a resume continues."""


class RunHandle:
    """A run in a task of its own, as its caller sees it. Losing the handle does not disturb the run."""

    def __init__(self, journal: RunJournal, control: RunControl, pipe: Pipe, readers: Readers) -> None:
        self._journal = journal
        self._control = control
        self._pipe = pipe
        self._readers = readers
        weakref.finalize(self, pipe.handle_collected).atexit = False

    @property
    def run_id(self) -> str:
        """The id by which any process finds the run in the journal."""
        return self._control.run_id

    @property
    def thread_id(self) -> str | None:
        """The thread of the run, or None if the graph has no checkpointer."""
        return self._control.thread_id

    def __repr__(self) -> str:
        return f"RunHandle(run_id={self.run_id!r}, thread_id={self.thread_id!r})"

    async def wait(self) -> Run:
        """Return the run when it is over: completed, failed, interrupted, or paused; its thread settled, and all of it
        durable.

        Does not raise what the graph raised: `Run.error` has it. Cancelling this call leaves the run alone. If the store is
        away when the run ends, this method returns the run as this process knows it, whose events wait in the spool.
        """
        done = asyncio.wrap_future(self._control.done)
        with self._readers.add() as reader:
            await asyncio.wait([done])
        reader.leave(early=False)
        if self._control.is_known_only_here:
            with suppress(StoreFailed, RunNotFound):
                return await self._journal.arun(self.run_id)
        return done.result()

    def stream(self) -> AsyncIterator[Any]:
        """Return the chunks of the graph, as `astream` would give them, for one reader, on the event loop that started the
        run.

        The run waits for a slow reader, but not for one that has gone: from then on, the chunks are not kept. The iterator
        ends when the run is over, also if it was stopped; it raises what the graph raised, if the run failed. A step that is
        cancelled can be repeated within a second. Raises `ChunksGone`.
        """
        return self._pipe.read()

    def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Return the events of the run in the journal, as `RunJournal.afollow` gives them: for any number of readers.

        The iterator ends when the run is over, also if the run waits for a human: later events belong to another run. A step
        that is cancelled can be repeated, and loses no event.
        """
        return _Events(self._journal, self.run_id, after, self._readers)

    async def stop(self, cause: Cause = "stop") -> Run:
        """Stop the run, and return it when it has ended and its thread is settled (see `RunJournal.astop`)."""
        with suppress(RunNotFound):  # another process has pruned the run: it is over
            return await self._journal.astop(self.run_id, cause, wait=True)
        return await self.wait()


class _Events:
    """The iterator that `RunHandle.events` returns."""

    def __init__(self, journal: RunJournal, run_id: str, after: int, readers: Readers) -> None:
        self._follow = partial(journal.afollow, run_id)
        self._after = after
        self._events: AsyncIterator[Event] | None = self._follow(after)
        self._reader = readers.add()

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> Event:
        if self._reader.has_left:
            raise StopAsyncIteration
        # A step that fails, or is cancelled, closes the iterator that it was taken in.
        events, self._events = self._events or self._follow(self._after), None
        with self._reader:
            event = await anext(events)
        self._events, self._after = events, event.seq
        if event.kind == "run.pause":
            self._reader.leave(early=False)
        return event

    async def aclose(self) -> None:
        """Stop reading."""
        events, self._events = self._events, None
        self._reader.leave()
        if isinstance(events, AsyncGenerator):
            await events.aclose()

    def __del__(self) -> None:
        self._reader.collected()


async def start_run(
    graph: Pregel[Any, Any, Any, Any],
    input: Any,
    config: RunnableConfig | None = None,
    *,
    journal: RunJournal | None = None,
    if_busy: IfBusy = "reject",
    timeout: float | None = None,
    grace: float = 2.0,
    stream_mode: Any = None,
    on_disconnect: OnDisconnect = "continue",
    **options: Any,
) -> RunHandle:
    """Run a graph in a task of its own, in the context variables of the caller, which may be cancelled or end before the
    run.

    `graph` is attached, or `journal` is given and the graph is attached to that. Returns as soon as the run has begun and
    every process can see it. `options` go to `astream`, as `stream_mode` does.

    `if_busy`: what to do while another run of the graph is running on the thread, in any process: "reject" raises
    `ThreadBusy`, "stop" stops and settles that run first, "wait" waits in line until it is over. If the caller is cancelled
    while it waits, nothing has begun. `timeout`: seconds after which the run is stopped, cause "timeout". `grace`: seconds
    that running calls get when the run is stopped, to finish or to clean up; a call that cannot be interrupted is then left
    behind, and a result that it still returns goes to the journal. `on_disconnect`: with "stop", the run is stopped, cause
    "disconnect", when all code that reads its chunks or events, or waits for it, has left before the run is over. By default
    that changes nothing.

    A `Command(resume=...)` resumes a run that waits for a human, in a new run that `continues` it.
    """
    about: Any = {"journal": journal, "if_busy": if_busy, "timeout": timeout, "grace": grace}
    about |= {"stream_mode": stream_mode, "on_disconnect": on_disconnect}
    return await start_answer(None, graph, input, config, **about, **options)


async def start_answer(
    answers: str | None,
    graph: Pregel[Any, Any, Any, Any],
    input: Any,
    config: RunnableConfig | None,
    *,
    journal: RunJournal | None,
    if_busy: IfBusy = "reject",
    timeout: float | None = None,
    grace: float = 2.0,
    stream_mode: Any = None,
    on_disconnect: OnDisconnect = "continue",
    **options: Any,
) -> RunHandle:
    """Do what :func:`start_run` does. `answers`: the paused run whose question the new run answers.

    Raise `AnotherWaits`, and begin nothing, if another run waits on the thread, or none, when the new run has the thread.
    """
    choice("if_busy", if_busy, IfBusy)
    choice("on_disconnect", on_disconnect, OnDisconnect)
    if grace is None or seconds("grace", grace) is None:
        raise InvalidArgument(name="grace", expected="a number of seconds, 0 or more", value=grace)
    timeout = seconds("timeout", timeout)
    graph, journal = _attached(graph, journal)
    _check_options(graph, options)
    settings = merge_configs(graph.config, config)
    run_id = _run_id(settings)
    thread_id = _thread_id(graph, config, settings)
    control = RunControl(journal, run_id, identity(graph), thread_id, grace, timeout)
    name, metadata = settings.get("run_name") or control.graph.name, control.about()
    run = Run(run_id=run_id, thread_id=thread_id, name=name, owner=journal.owner_id, metadata=metadata)

    def about() -> dict[str, Any]:
        # Looked up when the run may begin: the run before it may have paused meanwhile.
        control.continues = _continued(journal, control, input, settings)
        return control.about()

    wait_for_owner = next(one.wait_for_owner for one in attachments_of(graph) if one.journal is journal)
    admission = Admission(journal, run, about, wait_for_owner, answers)
    await run_async(admission.acquire(if_busy))
    # No await from here until the task exists: a cancellation in between would leave a run that no task ends.
    readers = Readers(control, stops=on_disconnect == "stop")
    task = RunTask(graph, control, Pipe(run_id, readers))
    if not task.register():
        admission.withdraw()
        raise JournalClosing(url=journal.url)
    options["stream_mode"] = stream_mode
    control.task = begin(task.run(input, {**(config or {}), "run_id": UUID(run_id)}, options))
    control.task.add_done_callback(task.on_done)
    await task.wait_until_begun(readers.add())
    return RunHandle(journal, control, task.pipe, readers)


def _check_options(graph: Pregel[Any, Any, Any, Any], options: dict[str, Any]) -> None:
    """Raise an error for an option that neither `start_run` nor `astream` knows: LangGraph would accept it and say
    nothing."""
    if options:
        theirs = inspect.signature(graph.astream).parameters
        ours = inspect.signature(start_run).parameters
        known = {name for name, one in {**theirs, **ours}.items() if one.kind != one.VAR_KEYWORD}
        known_options("start_run", sorted(options.keys() - _DEPRECATED), sorted(known))


def _attached(
    graph: Pregel[Any, Any, Any, Any], journal: RunJournal | None
) -> tuple[Pregel[Any, Any, Any, Any], RunJournal]:
    check_graph(graph)
    journals = [handler.journal for handler in handlers_of(graph)]
    if journal is None:
        if not journals:
            hint = "The graph is not attached: give its journal here, or use attach(graph, journal) first"
            raise InvalidArgument(name="journal", expected="a RunJournal", value=None, hint=hint)
        journal = journals[-1]
    core_of(journal).check_open()
    if journal in journals:
        return graph, journal
    if journals:
        raise InvalidArgument(name="journal", expected=f"{journals[-1]!r}, to which the graph is attached", value=journal)
    # Once: two attached copies would not know of each other's writes in the background.
    known = copies_of(journal).attached
    if graph not in known:
        known[graph] = attach(graph, journal)
    known[graph].checkpointer = graph.checkpointer  # the program may have set it since
    return known[graph], journal


class Copies(Extension):
    """The attached copies of graphs that a program started without attaching them."""

    def __init__(self) -> None:
        self.attached: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def copies_of(journal: RunJournal) -> Copies:
    """Return the attached copies of a journal."""
    return core_of(journal).extensions.get(Copies, Copies)


def _run_id(settings: RunnableConfig) -> str:
    given = settings.get("run_id")
    if given is None:
        return str(uuid4())
    try:
        return str(given if isinstance(given, UUID) else UUID(str(given)))
    except ValueError:
        raise InvalidArgument(name='config["run_id"]', expected="a UUID", value=given) from None


def _thread_id(graph: Pregel[Any, Any, Any, Any], config: RunnableConfig | None, settings: RunnableConfig) -> str | None:
    configurable = settings.get("configurable") or {}
    if any(key in configurable for key in INSIDE):
        hint = "That one belongs to the run around the node: make another, with a thread_id of its own"
        raise InvalidArgument(name="config", expected="a new config", value="the config of a node", hint=hint)
    thread_id = configurable.get("thread_id")
    if thread_id is None and isinstance(graph.checkpointer, JournalSaver):
        raise InvalidArgument(name="config", expected='{"configurable": {"thread_id": ...}}', value=config)
    return None if thread_id is None else thread("thread_id", thread_id)


def _continued(journal: RunJournal, control: RunControl, input: Any, settings: RunnableConfig) -> str | None:
    """Return the run that a resume continues: the one that its config names; the one that waits for a human; or, without an
    answer, the last."""
    is_answer = type(input).__name__ == "Command"
    if not (input is None or is_answer) or control.thread_id is None:
        return None
    configurable = settings.get("configurable") or {}
    named: str | None = configurable.get(RESUMED_RUN)
    if named is not None or configurable.get("checkpoint_id"):
        return named
    runs = [run for run in journal.runs(control.thread_id, None, _RUNS_BACK) if identity_of(run).is_same(control.graph)]
    waiting = [run for run in runs if run.status == RunStatus.PAUSED]
    found = next(iter(waiting if is_answer else waiting or runs), None)
    return found.run_id if found is not None and found.status != RunStatus.COMPLETED else None
