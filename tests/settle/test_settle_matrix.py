"""Every kind of graph, checkpointer and durability, times every way in which a turn can be cut off.

Each cell is a conversation of three turns: a complete one, one that is cut off, and the next. It asserts what is left in the
thread and in the journal, what reaches the caller, and, message by message, what the model is asked next.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError

from langchain_runjournal import RunJournal, attach
from tests.support.agents import asks, words
from tests.support.conversations import (
    PATIENCE,
    Gate,
    Observer,
    Recording,
    Wild,
    blocking_tools_of,
    build,
    collected_here,
    end_of,
    nothing_is_wrong,
    open_saver,
    story,
    the_rest,
    tools_of,
    until_said,
)
from tests.support.places import Place as Kept
from tests.support.places import make_place, open_threads

KINDS = ("agent", "middleware", "by hand", "deep agent")
SYNC_KINDS = ("sync agent", "sync by hand")
POSTGRES = {"postgres": "connection", "postgres pool": "pool", "postgres pipeline": "pipeline"}
"""The checkpointers on Postgres, each with the way in which it gets its connections. Their journal is there, too."""
SAVERS = ("memory", "sqlite", *POSTGRES)
DURABILITIES = ("sync", "async", "exit")
IS_3_10 = sys.version_info < (3, 11)
UNHEARD = (
    "the node of create_agent does not pass on its config: on Python 3.10 LangChain calls no callback for its model calls"
)

# --- the table --------------------------------------------------------------------------------------------------------

THREE = asks(("c1", "quick", {"x": 1}), ("c2", "quick", {"x": 2}), ("c3", "slow", {"x": 3}))
FIRST = ["U hi", "A hello"]
"""The first turn, which is complete."""


@dataclass(frozen=True)
class Place:
    """The place where a turn is cut off: what the model says until then, and what must be left of the turn."""

    left: tuple[str, ...]
    scripts: Callable[[Any], list[list[Any]]]
    """The scripts of the model, as a function of the step that waits at a gate."""
    mode: str = "messages"
    results: int = 0
    """The number of tools that have finished by then."""


SAID = "A Looking. (c1,c2,c3)"
TOLD = ("T(c1) quick 1", "T(c2) quick 2")
PLACES = {
    "the model": Place(("A~ one two ",), lambda wait: [[*words("one ", "two "), wait, *words("three")]]),
    "its first token": Place((), lambda wait: [[wait, *words("one ")]]),
    "the third tool": Place((SAID, *TOLD, "T*(c3) started"), lambda wait: [THREE], results=2),
    "the model after a tool": Place(
        ("A Looking. (c1)", "T(c1) quick 1", "A~ one two "),
        lambda wait: [asks(("c1", "quick", {"x": 1})), [*words("one ", "two "), wait, *words("three")]],
        results=1,
    ),
    # The consumer keeps the chunk that it got, and the graph waits for the consumer.
    "between, behind the model": Place(
        (SAID, "T*(c1) never_started", "T*(c2) never_started", "T*(c3) never_started"), lambda wait: [THREE], mode="updates"
    ),
    "between, before the tools": Place(
        (SAID, "T*(c1) never_started", "T*(c2) never_started", "T*(c3) never_started"), lambda wait: [THREE], mode="values"
    ),
}

STOP, LEFT, FAILED = ("interrupted", "stop"), ("interrupted", "disconnect"), ("failed", None)


@dataclass(frozen=True)
class Ending:
    """The way in which a turn is cut off: what its run says of it, and what reaches the caller."""

    how: tuple[str, str | None]
    raises: type[BaseException] | None
    places: tuple[str, ...] = ("the model", "the third tool")
    early: bool = False
    """Whether the call may return before the thread is settled."""


BOOM = RuntimeError("boom")
ENDINGS = {
    "cancel": Ending(STOP, asyncio.CancelledError, tuple(place for place in PLACES if "between" not in place)),
    "cancel twice": Ending(STOP, asyncio.CancelledError, early=True),
    "anyio": Ending(LEFT, None, early=True),
    "asyncio.timeout": Ending(STOP, TimeoutError),
    "wait_for": Ending(STOP, asyncio.TimeoutError),
    "provider error": Ending(FAILED, RuntimeError, ("the model", "its first token", "the model after a tool")),
    "tool error": Ending(FAILED, RuntimeError, ("the third tool",)),
    "KeyboardInterrupt": Ending(STOP, KeyboardInterrupt),
    "left": Ending(LEFT, None, tuple(place for place in PLACES if "between" in place)),
    "cancelled while it holds": Ending(LEFT, asyncio.CancelledError, tuple(place for place in PLACES if "between" in place)),
    "garbage": Ending(LEFT, None, tuple(place for place in PLACES if "between" in place), early=True),
}


def marked(cells: Iterable[tuple[str, ...]]) -> list[Any]:
    """Mark the cells on Postgres as slow. CI runs each of them with one of the three ways to connect, in turns."""
    count, found = itertools.count(), []
    for cell in cells:
        others = [saver for saver in POSTGRES if saver in cell]
        marks = [pytest.mark.slow] if others else []
        if others and next(count) // len(POSTGRES) % len(POSTGRES) != list(POSTGRES).index(others[0]):
            marks.append(pytest.mark.storm)
        found.append(pytest.param(*cell, marks=marks))
    return found


CELLS = [
    (kind, durability, ending, place, saver)
    for kind in KINDS
    for durability in DURABILITIES
    for ending, about in ENDINGS.items()
    for place in about.places
    for saver in SAVERS
]

# --- a cell -----------------------------------------------------------------------------------------------------------


@dataclass
class Conversation:
    """Three turns on one thread."""

    journal: RunJournal
    kind: str
    saver: str
    durability: str
    place: str
    ending: str
    path: str | None = None
    model: Recording = field(default_factory=Recording)
    thread_id: str = field(default_factory=lambda: str(uuid4()))
    run_id: str = field(default_factory=lambda: str(uuid4()))

    def __post_init__(self) -> None:
        self.about, self.at = ENDINGS[self.ending], PLACES[self.place]
        self.gate = Gate(
            {"provider error": BOOM, "tool error": BOOM, "KeyboardInterrupt": KeyboardInterrupt()}.get(self.ending)
        )
        self.memory = InMemorySaver()
        self.holds, self.limit = asyncio.Event(), asyncio.Event()
        self.taken = asyncio.Semaphore(0)
        """A semaphore, released for each tool whose result LangGraph has stored."""
        self.raised: BaseException | None = None
        self.before: list[Any] = []
        self.scope: Any = None

    @contextlib.asynccontextmanager
    async def graph(self) -> AsyncIterator[Any]:
        async with open_saver(self.memory, self.path, POSTGRES.get(self.saver, "")) as saver:
            yield attach(build(self.kind, self.model, tools_of(self.gate), saver), self.journal)

    def config(self, run_id: str | None = None) -> Any:
        return {"configurable": {"thread_id": self.thread_id}, "run_id": run_id or str(uuid4())}

    # The three turns:

    async def whole(self) -> None:
        async with self.graph() as graph:
            await self.cut(graph)
            await self.afterwards(graph)

    async def cut(self, graph: Any) -> None:
        """Run the first turn, and the one that is cut off."""
        self.model.say(words("hel", "lo"))
        await graph.ainvoke({"messages": [("user", "hi")]}, self.config(), durability=self.durability)
        self.before = (await graph.aget_state(self.config())).values["messages"]
        self.model.say(*self.at.scripts(self.gate.apass), words("never"))
        if self.ending == "KeyboardInterrupt":
            # A KeyboardInterrupt ends the loop. Only the caller of the graph may hold what the graph needs.
            opening = asyncio.create_task(self.open_when_reached())
            await self.framed(graph)
            raise AssertionError(f"nothing came of {opening}")
        task = asyncio.create_task(self.framed(graph))
        waiting = asyncio.create_task(self.holds.wait() if "between" in self.place else self.gate.reached.wait())
        await asyncio.wait([task, waiting], return_when="FIRST_COMPLETED")
        assert waiting.done()
        await self.finished()
        await self.interrupt(task)
        await asyncio.wait([task])
        self.raised = asyncio.CancelledError() if task.cancelled() else task.exception()

    async def finished(self) -> None:
        if self.at.results:
            await until_said(self.journal, self.run_id, "llm.tool.result", self.at.results)
        if self.place == "the third tool" and self.kind != "by hand":
            # Each tool is a separate task. One whose result is not stored yet comes behind those whose results are.
            for _ in range(self.at.results):
                await self.taken.acquire()

    async def open_when_reached(self) -> None:
        await self.gate.reached.wait()
        await self.finished()
        self.gate.open()

    async def framed(self, graph: Any) -> None:
        match self.ending:
            case "anyio":
                with anyio.CancelScope() as self.scope:
                    await self.consume(graph)
            case "asyncio.timeout":
                async with asyncio.timeout(None) as self.scope:
                    await self.consume(graph)
            case "wait_for":
                waiting = asyncio.ensure_future(self.consume(graph))
                await self.limit.wait()
                await asyncio.wait_for(waiting, 0)
            case "garbage":
                await self.drop(graph)
            case _:
                await self.consume(graph)

    def stream(self, graph: Any) -> Any:
        asked = {"messages": [("user", "go")]}
        mode = ["messages", "updates"] if self.at.mode == "messages" else [self.at.mode]
        return graph.astream(asked, self.config(self.run_id), stream_mode=mode, durability=self.durability)

    async def consume(self, graph: Any) -> None:
        async with aclosing(self.stream(graph)) as stream:
            async for mode, chunk in stream:
                if mode == "updates" and "tools" in chunk:
                    self.taken.release()
                if "between" in self.place and "Looking" in str(chunk):
                    self.holds.set()
                    if self.ending == "left":
                        break
                    await self.gate.apass()

    async def drop(self, graph: Any) -> None:
        async for _, chunk in self.stream(graph):
            if "Looking" in str(chunk):
                self.holds.set()
                break

    async def interrupt(self, task: asyncio.Task[None]) -> None:
        match self.ending:
            case "cancel" | "cancelled while it holds":
                task.cancel()
            case "cancel twice":
                task.cancel()
                await asyncio.sleep(0)
                task.cancel()
            case "anyio":
                self.scope.cancel()
            case "wait_for":
                self.limit.set()
            case "asyncio.timeout":
                self.scope.reschedule(asyncio.get_running_loop().time())
            case "provider error" | "tool error":
                self.gate.open()

    # What is left:

    async def afterwards(self, graph: Any) -> None:
        """Check what is left of the cut-off turn, and run the turn after it."""
        self.check_raised()
        if self.about.early:
            gc.collect()
            await end_of(self.journal, self.run_id)
        self.check_run()
        left = [*FIRST, "U go", *self.at.left]
        if self.ending == "tool error":
            left[-1] = "T*(c3) failed"
        await self.check_thread(graph, left)
        self.model.say(words("fi", "ne"))
        await graph.ainvoke({"messages": [("user", "next")]}, self.config(), durability=self.durability)
        assert self.in_order(story(self.model.seen[-1])) == self.in_order([*left, "U next"])
        await self.check_thread(graph, [*left, "U next", "A fine"])
        assert len(self.journal.runs(self.thread_id)) == 3
        self.gate.error = None
        self.gate.open()
        await the_rest()
        await self.check_thread(graph, [*left, "U next", "A fine"])

    def check_raised(self) -> None:
        if self.about.raises is None:
            assert self.raised is None
        else:
            assert isinstance(self.raised, self.about.raises)
        if self.ending in ("provider error", "tool error"):
            assert self.raised is self.gate.error

    def check_run(self) -> None:
        run = self.journal.run(self.run_id)
        assert (run.status, run.cause, run.settled) == (*self.about.how, True)
        kinds = [event.kind for event in self.journal.read(self.run_id)]
        assert (kinds.count("run.settled"), kinds.count("run.end")) == (1, 1)
        assert kinds.index("run.settled") < kinds.index("run.end")
        assert len(self.journal.runs(self.thread_id)) == 2

    def in_order(self, lines: list[str]) -> list[str]:
        """Sort the results of each batch if the loop ended in the middle of a checkpoint: a result that only the journal had
        then stands last."""
        if self.ending != "KeyboardInterrupt":
            return lines
        batches = [list(batch) for _, batch in itertools.groupby(lines, lambda line: line.startswith("T"))]
        return [line for batch in batches for line in (sorted(batch) if batch[0].startswith("T") else batch)]

    async def check_thread(self, graph: Any, left: list[str]) -> None:
        state = await graph.aget_state(self.config())
        messages = state.values["messages"]
        assert self.in_order(story(messages)) == self.in_order(left)
        assert messages[: len(self.before)] == self.before
        assert (state.next, state.tasks) == ((), ())
        ids = [message.id for message in messages if message.id]  # deepagents gives user messages no ids
        assert len(set(ids)) == len(ids)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[Kept, RunJournal]]]:
    """Opens a place of a kind, and its journal, for all tests of this module."""
    with contextlib.suppress(ImportError):
        import deepagents  # noqa: F401
    found: dict[str, tuple[Kept, RunJournal]] = {}

    def open_place(kind: str) -> tuple[Kept, RunJournal]:
        if kind not in found:
            place = make_place(tmp_path_factory.mktemp(kind), kind)
            found[kind] = place, place.open()
        return found[kind]

    yield open_place
    for place, journal in found.values():
        journal.close()
        place.drop()


@pytest.fixture
def place_of_cell(request: pytest.FixtureRequest, opened: Callable[[str], tuple[Kept, RunJournal]]) -> Any:
    is_far = request.node.callspec.params.get("saver") in POSTGRES
    return opened("postgres" if is_far else "sqlite")


@pytest.fixture
def journal(place_of_cell: tuple[Kept, RunJournal]) -> RunJournal:
    return place_of_cell[1]


@pytest.fixture
def path(place_of_cell: tuple[Kept, RunJournal], saver: str) -> str | None:
    """The path or the URL of the checkpointer."""
    return {"memory": None, "sqlite": ":memory:"}.get(saver, place_of_cell[0].threads)


@pytest.fixture(autouse=True)
def frozen() -> Iterator[None]:
    """Exclude all existing objects from garbage collection, which these tests run often."""
    gc.freeze()
    with collected_here():
        yield
    gc.unfreeze()


@pytest.mark.guarantee(
    "history", "user's message", "finished tools", "unfinished tools", "partial answer", "nothing pending", "every ending"
)
@pytest.mark.parametrize(("kind", "durability", "ending", "place", "saver"), marked(CELLS))
def test_cell(
    journal: RunJournal, path: str | None, tmp_path: Path, kind: str, saver: str, durability: str, place: str, ending: str
) -> None:
    """However a turn is cut off, its thread is valid afterwards, and the next turn finds everything."""
    if kind == "deep agent":
        pytest.importorskip("deepagents", reason="needs Python 3.11")
    if IS_3_10 and ending == "asyncio.timeout":
        pytest.skip("new in Python 3.11")
    if IS_3_10 and kind != "by hand":
        pytest.skip(UNHEARD)
    if not IS_3_10 and ending == "wait_for":
        pytest.skip("the same as asyncio.timeout")
    conversation = Conversation(journal, kind, saver, durability, place, ending, path)
    with nothing_is_wrong():
        if ending == "KeyboardInterrupt":
            conversation.path = str(tmp_path / "threads.db") if saver == "sqlite" else path
            interrupted(conversation)
        else:
            asyncio.run(conversation.whole())
    assert all(run.ended and run.settled for run in journal.runs(limit=None))


def interrupted(conversation: Conversation) -> None:
    """Run the cut-off turn. A KeyboardInterrupt ends the whole loop, so the next turn runs in another one."""

    async def before() -> None:
        async with conversation.graph() as graph:
            await conversation.cut(graph)

    async def after() -> None:
        async with conversation.graph() as graph:
            await conversation.afterwards(graph)

    with pytest.raises(KeyboardInterrupt) as caught:
        asyncio.run(before())
    conversation.raised = caught.value
    asyncio.run(after())


# --- without a loop ---------------------------------------------------------------------------------------------------

# In the mode "messages", LangGraph runs a node on a thread, which cannot be stopped, and waits for it.
SYNC_ENDINGS: dict[str, tuple[tuple[str, str | None], str | None, str, tuple[str, ...]]] = {
    # how the run ends, the mode (None: invoke), the place, what is left of the turn
    "provider error, invoke": (FAILED, None, "the model", ("A~ one two ",)),
    "provider error": (FAILED, "messages", "the model", ("A~ one two ",)),
    "provider error, updates": (FAILED, "updates", "the model after a tool", PLACES["the model after a tool"].left),
    "tool error, invoke": (FAILED, None, "the third tool", (SAID, *TOLD, "T*(c3) failed")),
    "tool error": (FAILED, "messages", "the third tool", (SAID, *TOLD, "T*(c3) failed")),
    "KeyboardInterrupt, invoke": (STOP, None, "the model", ("A~ one two ",)),
    "KeyboardInterrupt": (STOP, "messages", "the model", ("A~ one two ",)),
    "KeyboardInterrupt, updates": (STOP, "updates", "the third tool", (SAID, *TOLD, "T*(c3) failed")),
    "KeyboardInterrupt, tool": (STOP, "messages", "the third tool", (SAID, *TOLD, "T*(c3) failed")),
    "closed": (LEFT, "messages", "the model", ("A one two three",)),
    "garbage": (LEFT, "messages", "the model", ("A one two three",)),
    "closed, updates": (LEFT, "updates", "between, behind the model", PLACES["between, behind the model"].left),
    "closed, values": (LEFT, "values", "between, before the tools", PLACES["between, before the tools"].left),
}


@dataclass
class Blocking:
    """The same three turns, without a loop."""

    journal: RunJournal
    kind: str
    saver: Any
    durability: str
    ending: str
    model: Recording = field(default_factory=Recording)
    thread_id: str = field(default_factory=lambda: str(uuid4()))
    run_id: str = field(default_factory=lambda: str(uuid4()))

    def __post_init__(self) -> None:
        self.how, self.mode, place, self.left = SYNC_ENDINGS[self.ending]
        self.at = PLACES[place]
        error = {"provider error": BOOM, "tool error": BOOM, "KeyboardInterrupt": KeyboardInterrupt()}
        self.gate = Gate(error.get(self.ending.split(",")[0]))
        plain = build(self.kind, self.model, blocking_tools_of(self.gate), self.saver)
        self.graph = attach(plain, self.journal, capture_invoke=True)

    def config(self, run_id: str | None = None) -> Any:
        return {"configurable": {"thread_id": self.thread_id}, "run_id": run_id or str(uuid4())}

    def converse(self) -> None:
        self.model.say(words("hel", "lo"))
        self.graph.invoke({"messages": [("user", "hi")]}, self.config(), durability=self.durability)
        before = self.graph.get_state(self.config()).values["messages"]
        self.model.say(*self.at.scripts(self.gate.hold), words("never"))
        opening = threading.Thread(target=self.open_when_reached)
        opening.start()
        raised = self.cut()
        opening.join()
        assert raised is self.gate.error
        gc.collect()
        run = self.journal.run(self.run_id)
        assert (run.status, run.cause, run.settled) == (*self.how, True)
        left = [*FIRST, "U go", *self.left]
        self.check_thread(before, left)
        self.model.say(words("fi", "ne"))
        self.graph.invoke({"messages": [("user", "next")]}, self.config(), durability=self.durability)
        assert in_call_order(story(self.model.seen[-1])) == [*left, "U next"]
        self.check_thread(before, [*left, "U next", "A fine"])
        assert len(self.journal.runs(self.thread_id)) == 3

    def open_when_reached(self) -> None:
        if self.gate.error is None:
            return  # the consumer that leaves opens the gate
        assert self.gate.held.wait(PATIENCE)
        left = self.at.results
        for event in self.journal.follow(self.run_id) if left else ():
            left -= event.kind == "llm.tool.result"
            if not left:
                break
        self.gate.open()

    def cut(self) -> BaseException | None:
        asked, config = {"messages": [("user", "go")]}, self.config(self.run_id)
        try:
            if self.mode is None:
                self.graph.invoke(asked, config, durability=self.durability)
                raise AssertionError("it ended well")
            stream = self.graph.stream(asked, config, stream_mode=self.mode, durability=self.durability)
            for chunk in stream:
                if self.gate.error is None and any(word in str(chunk) for word in ("two", "Looking")):
                    break
            self.gate.open()
            if self.ending.startswith("closed"):
                stream.close()
        except (RuntimeError, KeyboardInterrupt) as exc:
            return exc
        return None

    def check_thread(self, before: list[Any], left: list[str]) -> None:
        state = self.graph.get_state(self.config())
        # Of tools on threads, the result that LangGraph stored first comes first.
        assert in_call_order(story(state.values["messages"])) == left
        assert state.values["messages"][: len(before)] == before
        assert (state.next, state.tasks) == ((), ())


def in_call_order(lines: list[str]) -> list[str]:
    """Sort the results behind each request in the order of the calls."""
    return [line for _, block in groupby(lines, lambda line: line[0] == "T") for line in sorted(block, key=call_of)]


def call_of(line: str) -> str:
    return line.partition("(")[2].partition(")")[0] if line[0] == "T" else ""


@pytest.mark.parametrize(
    ("kind", "durability", "ending", "saver"), marked(itertools.product(SYNC_KINDS, DURABILITIES, SYNC_ENDINGS, SAVERS))
)
def test_without_a_loop(journal: RunJournal, path: str | None, kind: str, saver: str, durability: str, ending: str) -> None:
    """The same holds for graphs that are called without a loop, where everything is done on the calling thread."""
    with contextlib.ExitStack() as stack, nothing_is_wrong():
        keeps = InMemorySaver() if path is None else stack.enter_context(open_threads(path, POSTGRES.get(saver, "")))
        Blocking(journal, kind, keeps, durability, ending).converse()
    assert all(run.ended and run.settled for run in journal.runs(limit=None))


# --- the limit of steps -----------------------------------------------------------------------------------------------


@pytest.mark.guarantee("every ending")
@pytest.mark.parametrize(("kind", "durability", "saver"), marked(itertools.product(KINDS, DURABILITIES, SAVERS)))
def test_recursion_limit(journal: RunJournal, path: str | None, kind: str, saver: str, durability: str) -> None:
    """Wherever the recursion limit ends a turn, results of tools are kept, and unanswered requests get synthetic results."""
    if IS_3_10 and kind != "by hand":
        pytest.skip(UNHEARD)
    if kind == "deep agent":
        pytest.importorskip("deepagents", reason="needs Python 3.11")

    async def converse(limit: int) -> str:
        model, observer = Recording(), Observer()
        async with open_saver(InMemorySaver(), path, POSTGRES.get(saver, "")) as keeps:
            graph = attach(build(kind, model, tools_of(Gate()), keeps), journal)
            config: Any = {"configurable": {"thread_id": str(uuid4())}, "callbacks": [observer]}
            model.say(*(asks((f"c{turn}", "quick", {"x": turn})) for turn in range(9)))
            run_id = str(uuid4())
            with pytest.raises(GraphRecursionError):
                await graph.ainvoke(
                    {"messages": [("user", "go")]},
                    {**config, "run_id": run_id, "recursion_limit": limit},
                    durability=durability,
                )
            run = journal.run(run_id)
            assert (run.status, run.settled) == ("failed", True)
            left = ["U go"]
            for turn in range(len(model.seen)):
                given = f"T(c{turn}) quick {turn}" if f"{turn} c{turn}" in observer.results else f"T*(c{turn}) never_started"
                left += [f"A Looking. (c{turn})", given]
            state = await graph.aget_state(config)
            assert (story(state.values["messages"]), state.next, state.tasks) == (left, (), ())
            model.say(words("fine"))
            await graph.ainvoke({"messages": [("user", "next")]}, config, durability=durability)
            assert story(model.seen[-1]) == [*left, "U next"]
        return left[-1]

    with nothing_is_wrong():
        ends = [asyncio.run(converse(limit)) for limit in range(2, 7)]
    # Both behind the tools and before them.
    assert any(end.startswith("T(") for end in ends)
    assert any(end.startswith("T*(") for end in ends)


# --- wild conversations -----------------------------------------------------------------------------------------------

SEEDS = range(int(os.environ.get("RUNJOURNAL_WILD_FROM", "0")), int(os.environ.get("RUNJOURNAL_WILD_TO", "40")))
"""The seeds of the wild conversations. For more of them, set RUNJOURNAL_WILD_TO=500."""


def marked_wild() -> list[Any]:
    """Return the seeds with the checkpointer that the seed chooses, and again on Postgres, a quarter of them in CI."""
    on_postgres = [
        pytest.param("postgres", seed, marks=[pytest.mark.slow, *([pytest.mark.storm] if seed % 4 else [])])
        for seed in SEEDS
    ]
    return [*(("any", seed) for seed in SEEDS), *on_postgres]


WILD_KINDS = ("by hand",) if IS_3_10 else ("agent", "middleware", "by hand")


@pytest.mark.parametrize(("saver", "seed"), marked_wild())
def test_wild_conversation(journal: RunJournal, path: str | None, saver: str, seed: int) -> None:
    """Whatever happens at whatever moment of a conversation, no message is lost, and each request has its result."""
    wild = Wild(journal, seed, WILD_KINDS)
    if saver in POSTGRES:
        wild.path = path
    try:
        with nothing_is_wrong():
            asyncio.run(wild.converse())
    except BaseException as exc:
        raise AssertionError(f"seed {seed}: {exc}\n{wild}") from exc
    assert all(run.ended and run.settled for run in journal.runs(limit=None)), f"seed {seed}"
