"""Conversations that are cut off, and what they must leave in the thread.

The tests write a thread in a few letters, one line for each message:

    U hi                 a user's message              A hello               an answer
    A Looking. (c1,c2)   one that requests tools       A~ one two            a partial answer
    T(c1) quick 1        the result of a tool          T*(c2) started        a synthetic result, and what it says of c2
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any
from uuid import uuid4

import anyio
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import agenerate_from_stream, generate_from_stream
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import Field

from langchain_runjournal import RunJournal, attach, errors, is_partial, is_synthetic
from tests.support.agents import Scripted
from tests.support.places import aopen_threads, is_of_pool

PATIENCE = 30.0
"""The seconds to wait for something that happens at once, unless something is broken."""


# --- what is left -----------------------------------------------------------------------------------------------------


def story(messages: Sequence[Any]) -> list[str]:
    """Return the messages in a few letters, without system messages, which belong to an agent."""
    return [_line(message) for message in messages if message.type != "system"]


def _line(message: Any) -> str:
    mark = message.additional_kwargs.get("runjournal", {})
    match message.type:
        case "human":
            return f"U {message.text}"
        case "tool" if is_synthetic(message):
            assert message.status == "error"
            return f"T*({message.tool_call_id}) {mark['reason']}"
        case "tool":
            return f"T({message.tool_call_id}) {message.text}"
        case "ai":
            calls = ",".join(call["id"] for call in message.tool_calls + message.invalid_tool_calls)
            return f"A{'~' if is_partial(message) else ''} {message.text}{f'({calls})' if calls else ''}"
    raise AssertionError(f"no answer says {message!r}")


async def end_of(journal: RunJournal, run_id: str) -> None:
    """Wait until a run is over and its thread is settled."""

    async def follow() -> None:
        async for _ in journal.afollow(run_id):
            pass

    await asyncio.wait_for(follow(), PATIENCE)


async def until_said(journal: RunJournal, run_id: str, kind: str, times: int = 1) -> None:
    """Wait until a running run has said something so many times."""

    async def follow() -> None:
        left = times
        async for event in journal.afollow(run_id):
            left -= event.kind == kind
            if not left:
                return
        raise AssertionError(f"it has ended without {times} x {kind}")

    await asyncio.wait_for(follow(), PATIENCE)


async def until(true: Callable[[], bool]) -> None:
    """Let other tasks work until a condition is true. Use this where no event can be awaited."""
    give_up = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < give_up
        await asyncio.sleep(0)


async def the_rest() -> None:
    """Let all running work come to its end, so that the loop is not closed before. The workers of an open pool stay."""
    gc.collect()
    others = {task for task in asyncio.all_tasks() - {asyncio.current_task()} if not is_of_pool(task)}
    if others:
        await asyncio.wait(others, timeout=PATIENCE)


@contextmanager
def collected_here() -> Iterator[None]:
    """Collect garbage only where a test asks for it, and at the end.

    To close a stream that is garbage-collected, LangGraph waits for its nodes. If that happens on the thread of one of these
    nodes, it is a deadlock inside the collector, which then never runs again.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.enable()


class Loud(logging.Handler):
    """A log handler that collects errors which are only logged: a callback that fails breaks no run, and is a mistake all
    the same."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.name.startswith("langchain_core"):
            self.said.append(self.format(record))


@contextmanager
def nothing_is_wrong() -> Iterator[None]:
    """Check that no callback fails in this block, and none of our code."""
    loud = Loud()
    loggers = [logging.getLogger(name) for name in ("langchain_runjournal", "langchain_core", "asyncio")]
    for logger in loggers:
        logger.addHandler(loud)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(loud)
    assert loud.said == []


# --- gates, models, tools ---------------------------------------------------------------------------------------------


class Gate:
    """A gate at which a model or a tool waits, on a loop or on a thread, until a test opens it. It may then fail."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.reached = asyncio.Event()
        self._open = asyncio.Event()
        self.held = threading.Event()
        """The same as `reached`, for code without a loop."""
        self._open_here = threading.Event()

    async def apass(self) -> None:
        """Wait, on a loop."""
        self.reached.set()
        self.held.set()
        await self._open.wait()
        self._fail()

    def hold(self) -> None:
        """Wait, on a thread."""
        self.held.set()
        assert self._open_here.wait(PATIENCE)
        self._fail()

    def open(self) -> None:
        """Release all that wait. If there is a loop, call this on its thread."""
        self._open.set()
        self._open_here.set()

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


class Recording(Scripted):
    """A model that keeps its input."""

    seen: list[list[Any]] = Field(default_factory=list)
    scripts: list[list[Any]] = Field(default_factory=list)

    def say(self, *scripts: list[Any]) -> None:
        """Set what the model says from now on."""
        self.scripts, self.turn = list(scripts), 0

    def _stream(self, messages: Any = (), *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        self.seen.append(list(messages))
        yield from super()._stream()

    async def _astream(self, messages: Any = (), *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        self.seen.append(list(messages))
        async for chunk in super()._astream():
            yield chunk

    def _generate(self, messages: Any = (), *args: Any, **kwargs: Any) -> ChatResult:
        return generate_from_stream(self._stream(messages))

    async def _agenerate(self, messages: Any = (), *args: Any, **kwargs: Any) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages))


def tools_of(gate: Gate) -> list[Any]:
    """Return a tool that is quick, and one that waits at the gate."""

    @tool
    async def quick(x: int) -> str:
        """Quick."""
        return f"quick {x}"

    @tool
    async def slow(x: int) -> str:
        """Slow."""
        await gate.apass()
        return f"slow {x}"

    @tool
    def plod(x: int) -> str:
        """Slow, and on a thread that cannot be stopped."""
        gate.hold()
        return f"plod {x}"

    return [quick, slow, plod]


def blocking_tools_of(gate: Gate) -> list[Any]:
    """Return the same tools, without a loop."""

    @tool
    def quick(x: int) -> str:
        """Quick."""
        return f"quick {x}"

    @tool
    def slow(x: int) -> str:
        """Slow."""
        gate.hold()
        return f"slow {x}"

    return [quick, slow]


# --- graphs -----------------------------------------------------------------------------------------------------------


class Hooks(AgentMiddleware):
    """A middleware with steps of its own around everything: these are tasks of the graph, with routers between them."""

    def before_agent(self, state: Any, runtime: Any) -> None:
        return None

    def before_model(self, state: Any, runtime: Any) -> None:
        return None

    def after_model(self, state: Any, runtime: Any) -> None:
        return None

    def after_agent(self, state: Any, runtime: Any) -> None:
        return None


def build(kind: str, model: Recording, tools: list[Any], saver: Any, name: str | None = None) -> Any:
    """Build a graph of one of the kinds. The kinds in `SYNC_KINDS` are for calls without a loop."""
    name = name or kind.replace(" ", "_")
    match kind:
        case "agent" | "sync agent":
            return create_agent(model, tools, checkpointer=saver, name=name)
        case "middleware":
            return create_agent(model, tools, middleware=[Hooks()], checkpointer=saver, name=name)
        case "deep agent":
            from deepagents import create_deep_agent

            return create_deep_agent(model, tools=tools, checkpointer=saver, name=name)
        case "by hand":
            return _by_hand(model, tools).compile(checkpointer=saver, name=name)
        case "sync by hand":
            return _by_hand(model, tools, is_async=False).compile(checkpointer=saver, name=name)
    raise AssertionError(kind)


def _by_hand(model: Recording, tools: list[Any], *, is_async: bool = True) -> Any:
    """Build a graph as in the tutorials: all tools of an answer are one task. Its nodes pass the config on, as Python 3.10
    requires."""

    async def amodel(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def model_(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"], config)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", amodel if is_async else model_)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph


@asynccontextmanager
async def _given(saver: BaseCheckpointSaver[Any]) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    yield saver


def open_saver(memory: Any, path: str | None, way: str = "connection") -> AbstractAsyncContextManager[Any]:
    """Open the checkpointer in memory, or one on a file or a Postgres database."""
    return _given(memory) if path is None else aopen_threads(path, way)


class Observer(BaseCallbackHandler):
    """A callback handler that sees the same callbacks as the journal, and keeps what the tests must know independently of
    the journal."""

    run_inline = True

    def __init__(self) -> None:
        self.results: dict[str, str] = {}
        """The results of tools, by the number of the answer that requested them, and the id of the call."""
        self.answers: list[str] = []
        """The texts of the complete model calls."""
        self.words = ""
        """The words of the model since then."""

    def on_tool_end(self, output: Any, **about: Any) -> None:
        self.results[f"{len(self.answers) - 1} {output.tool_call_id}"] = output.text

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **about: Any) -> None:
        self.words += chunk.message.text

    def on_llm_end(self, response: Any, **about: Any) -> None:
        self.answers.append(response.generations[0][0].message.text)
        self.words = ""


# --- wild conversations -----------------------------------------------------------------------------------------------

WILD_ENDINGS = (
    *("none", "cancel", "cancel", "cancel twice", "cancel often", "anyio", "timeout", "error", "error"),
    *("aclose", "drop", "drop and collect", "raise in the consumer"),
)


class Broken(Exception):
    """The exception that a model, a tool or a consumer raises when its time has come."""


_NOT_BY_TICK = ("none", "aclose", "drop", "drop and collect")
"""The endings that come with a chunk, or not at all."""


class Turn:
    """One turn of a wild conversation: the question, the words that the model will say, how the turn ends, and what was
    seen of it."""

    def __init__(self, number: int, rng: random.Random, *, reuse: bool, calm: bool, names: Sequence[str]) -> None:
        self.number = number
        self.run_id = str(uuid4())
        self.asked = rng.choice([f"question {number}", "again"])
        self.ending = "none" if calm else rng.choice(WILD_ENDINGS)
        self.at = int(2 ** rng.uniform(0, 9))
        """The number of the tick at which it ends."""
        self.by_loop = rng.random() < 0.5
        """Whether the iterations of the loop are ticks, or the actions of the model and the tools."""
        self.chunks = rng.randint(1, 12)
        """The number of chunks after which a consumer leaves."""
        self.hops = [rng.randint(0, 6) for _ in range(rng.randint(1, 4))]
        """For repeated endings: the iterations of the loop in between."""
        self.late_at = rng.choice([20, 200, 600])
        """The tick of the loop at which the tools on threads may end, if the turn lasts so long; else they end after the
        turn."""
        self.waits = rng.random() < 0.5
        """Whether the program waits for its end before the next turn begins."""
        self.mode = rng.choice(["messages", "updates", "values", "invoke", "messages"])
        self.durability = rng.choice(["sync", "async", "exit"])
        self.calls: list[dict[str, str]] = []
        """For each answer: the tools that it requests, by the ids of the calls."""
        self.texts: list[str] = []
        for answer in range(rng.randint(1, 3)):
            last = calm or rng.random() < 0.4 or answer == 2
            some = {} if last else {
                f"c{place}" if reuse else f"c{number}-{answer}-{place}": rng.choice(names)
                for place in range(rng.randint(1, 4))
            }  # fmt: skip
            self.calls.append(some)
            self.texts.append("".join(f"w{number}-{answer}-{word} " for word in range(rng.randint(1, 6))))
            if last:
                break
        else:
            self.calls.append({})
            self.texts.append(f"w{number}-end ")
        self.observer = Observer()
        self.count = 0
        self.loops = 0
        self.struck = False
        self.answered = 0
        """The number of answers that were complete when it ended."""
        self.words = ""
        """The words of the model since then."""
        self.finished: set[str] = set()
        """The calls that had a result before the next turn began."""
        self.release = threading.Event()
        self.may_be_lost = False
        self.strike: Callable[[], None] = lambda: None

    def __str__(self) -> str:
        about = f"{self.asked!r} {self.durability} {self.mode} -> {self.ending} at {self.at}"
        return f"{self.number}: {about} {'loop' if self.by_loop else 'step'} {self.chunks} waits={self.waits} {self.calls}"

    def tick(self, *, of_loop: bool = False) -> None:
        """Count a tick. This may raise, if the turn ends by an error."""
        self.loops += of_loop
        if self.loops == self.late_at:
            self.release.set()
        if of_loop != (self.by_loop and self.ending != "error") or self.struck:
            return
        self.count += 1
        if self.count >= self.at and self.ending not in _NOT_BY_TICK:
            self.note()
            if self.ending == "error":
                raise Broken
            self.strike()

    def needs_loop(self) -> bool:
        """Whether ticks of the loop still change anything. A clock that goes on keeps a core busy for nothing."""
        may_strike = self.by_loop and not self.struck and self.ending not in ("error", *_NOT_BY_TICK)
        return may_strike or self.loops < self.late_at

    def note(self) -> None:
        """Note that the turn ends here."""
        if not self.struck:
            self.struck = True
            self.answered, self.words = len(self.observer.answers), self.observer.words


class WildModel(BaseChatModel):
    """A model that says what its turns plan, and keeps its input."""

    turn: Any = None
    seen: list[list[Any]] = Field(default_factory=list)
    said: dict[int, int] = Field(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "wild"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        turn = self.turn
        answer = self.said[turn.number] = self.said.get(turn.number, -1) + 1
        self.seen.append(list(messages))
        for word in turn.texts[answer].split():
            turn.tick()
            await asyncio.sleep(0)
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
        for index, (id, name) in enumerate(turn.calls[answer].items()):
            turn.tick()
            args = json.dumps({"what": f"{turn.number} {id}"})
            call = tool_call_chunk(name=name, args=args, id=id, index=index)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))
        turn.tick()

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages))


class Wild:
    """A conversation of a few turns, in which everything is random. It is the same for the same seed, except for the order
    in which threads run."""

    def __init__(self, journal: RunJournal, seed: int, kinds: Sequence[str]) -> None:
        rng = random.Random(seed)
        self.journal = journal
        self.kind = rng.choice(kinds)
        self.path = rng.choice([None, ":memory:"])
        self.model = WildModel()
        reuse = rng.random() < 0.4
        names = [tool.name for tool in self.tools()]
        weights = [1 if name == "failing" else 4 for name in names]
        some = rng.choices(names, weights, k=20)
        count = rng.randint(4, 6)
        self.turns = [Turn(number, rng, reuse=reuse, calm=number == count, names=some) for number in range(count + 1)]
        self.thread_id = str(uuid4())
        self.ids: list[str | None] = []

    def __str__(self) -> str:
        return "\n".join([f"{self.kind} {self.path}", *map(str, self.turns)])

    def tools(self) -> list[Any]:
        async def instant(what: str) -> str:
            """Instant."""
            self.of(what).tick()
            return f"instant {what}"

        async def walking(what: str) -> str:
            """Takes its time."""
            for _ in range(10):
                self.of(what).tick()
                await asyncio.sleep(0)
            return f"walking {what}"

        async def long(what: str) -> str:
            """Takes very long."""
            for _ in range(300):
                self.of(what).tick()
                await asyncio.sleep(0)
            return f"long {what}"

        async def failing(what: str) -> str:
            """Fails."""
            await asyncio.sleep(0)
            raise Broken(what)

        def thread(what: str) -> str:
            """On a thread."""
            return f"thread {what}"

        def late(what: str) -> str:
            """On a thread, and late."""
            assert self.of(what).release.wait(PATIENCE)
            return f"late {what}"

        return [tool(one) for one in (instant, walking, long, failing, thread, late)]

    def of(self, what: str) -> Turn:
        return self.turns[int(what.split()[0])]

    def config(self) -> Any:
        return {"configurable": {"thread_id": self.thread_id}}

    async def converse(self) -> None:
        try:
            async with open_saver(InMemorySaver(), self.path) as saver:
                # Of several graphs in one journal, each with a saver of its own, none knows the threads of another.
                graph = build(self.kind, self.model, self.tools(), saver, f"wild-{self.thread_id}")
                await self.through(attach(graph, self.journal))
        finally:
            for turn in self.turns:
                turn.release.set()
            await the_rest()

    async def through(self, graph: Any) -> None:
        for turn in self.turns:
            before = self.turns[: turn.number]
            for one in before:
                one.finished = set(one.observer.results)
            self.model.turn, asked = turn, len(self.model.seen)
            await self.one(graph, turn)
            if len(self.model.seen) > asked:
                self.check(self.model.seen[asked], [*before, turn], turn)
            if turn.waits and await self.is_known(turn):
                gc.collect()
                await end_of(self.journal, turn.run_id)
                assert (await self.journal.arun(turn.run_id)).settled
                await self.check_state(graph, before, turn)
            turn.release.set()
        turn = self.turns[-1]
        await end_of(self.journal, turn.run_id)
        await self.check_state(graph, self.turns[:-1], turn)
        await the_rest()
        await self.check_journal()

    async def check_state(self, graph: Any, before: list[Turn], turn: Turn) -> None:
        state = await graph.aget_state(self.config())
        assert (state.next, state.tasks) == ((), ())
        self.check(state.values.get("messages", []), [*before, turn], None)

    async def check_journal(self) -> None:
        for run in await self.journal.aruns(self.thread_id):
            events = await self.journal.aread(run.run_id)
            kinds = [event.kind for event in events]
            assert (kinds.count("run.end"), run.ended) == (1, True)
            assert run.settled
        known = [turn for turn in self.turns if await self.is_known(turn)]
        assert len(await self.journal.aruns(self.thread_id)) == len(known)

    async def is_known(self, turn: Turn) -> bool:
        try:
            await self.journal.arun(turn.run_id)
        except errors.RunNotFound:
            return False
        return True

    # One turn:

    async def one(self, graph: Any, turn: Turn) -> None:
        task = asyncio.create_task(self.framed(graph, turn))
        clock = asyncio.create_task(self.clock(turn))
        loop, ours = asyncio.get_running_loop(), weakref.ref(task)

        def again(hops: list[int]) -> None:
            going = ours()
            if going is not None:
                going.cancel()
            if hops:
                soon(hops[0], lambda: again(hops[1:]))

        def soon(hops: int, what: Callable[[], None]) -> None:
            loop.call_soon(what if not hops else lambda: soon(hops - 1, what))

        match turn.ending:
            case "cancel":
                turn.strike = lambda: again([])
            case "cancel twice":
                turn.strike = lambda: again(turn.hops[:1])
            case "cancel often":
                turn.strike = lambda: again(turn.hops)
        try:
            await asyncio.wait([task], timeout=PATIENCE)
            assert task.done(), "it hangs"
        finally:
            clock.cancel()
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, (Broken, asyncio.TimeoutError)), error
        del task

    async def clock(self, turn: Turn) -> None:
        while turn.needs_loop():
            turn.tick(of_loop=True)
            await asyncio.sleep(0)

    async def framed(self, graph: Any, turn: Turn) -> None:
        match turn.ending:
            case "anyio":
                with anyio.CancelScope() as scope:
                    turn.strike = scope.cancel
                    await self.consume(graph, turn)
            case "timeout" if sys.version_info >= (3, 11):
                async with asyncio.timeout(None) as limit:
                    turn.strike = lambda: limit.reschedule(asyncio.get_running_loop().time())
                    await self.consume(graph, turn)
            case _:
                await self.consume(graph, turn)

    async def consume(self, graph: Any, turn: Turn) -> None:
        asked = {"messages": [("user", turn.asked)]}
        config = {**self.config(), "run_id": turn.run_id, "callbacks": [turn.observer]}
        if turn.mode == "invoke" and turn.ending not in ("aclose", "drop", "drop and collect", "raise in the consumer"):
            await graph.ainvoke(asked, config, durability=turn.durability)
            return
        mode = turn.mode if turn.mode != "invoke" else "custom" if turn.ending == "none" else "messages"
        stream = graph.astream(asked, config, stream_mode=mode, durability=turn.durability)
        left = turn.chunks
        async for _ in stream:
            left -= 1
            if not left and turn.ending in ("aclose", "drop", "drop and collect", "raise in the consumer"):
                turn.note()
                if turn.ending == "raise in the consumer":
                    raise Broken
                break
        if turn.ending == "aclose":
            await stream.aclose()
        del stream
        if turn.ending == "drop and collect":
            gc.collect()

    # The conditions on the input of a model, and on the thread:

    def check(self, messages: list[Any], turns: list[Turn], asking: Turn | None) -> None:
        lines = story(messages)
        try:
            self._check([message for message in messages if message.type != "system"], turns, asking)
        except AssertionError as exc:
            raise AssertionError(
                f"{exc}\n--- in turn {turns[-1].number}, asked={asking is not None}:\n" + "\n".join(lines)
            ) from exc

    def _check(self, messages: list[Any], turns: list[Turn], asking: Turn | None) -> None:
        known = [turn for turn in turns if self.is_recorded(turn)]
        parts: list[list[Any]] = []
        for message in messages:
            if message.type == "human":
                parts.append([message])
            else:
                assert parts, "something stands before the first message"
                parts[-1].append(message)
        assert [part[0].text for part in parts] == [turn.asked for turn in known], "user messages"
        # The input is not in a checkpoint yet, and may get another id there.
        ids = [message.id for message in (messages if asking is None else messages[:-1])]
        assert ids[: len(self.ids)] == self.ids, "the history has changed"
        self.ids = ids
        for part, turn in zip(parts, known, strict=True):
            if turn is asking:
                assert len(part) == 1
            else:
                self.check_part(part[1:], turn)

    def is_recorded(self, turn: Turn) -> bool:
        try:
            self.journal.run(turn.run_id)
        except errors.RunNotFound:
            return False
        return True

    def check_part(self, part: list[Any], turn: Turn) -> None:
        answers = [message for message in part if message.type == "ai"]
        texts = [message.text for message in answers]
        assert texts[:-1] == turn.texts[: len(texts) - 1] if texts else True, "answers"
        if texts:
            whole = turn.texts[len(texts) - 1]
            assert texts[-1] == whole or (is_partial(answers[-1]) and whole.startswith(texts[-1])), "the last answer"
        if turn.struck:
            assert len(texts) >= turn.answered, "a complete answer is missing"
            if turn.words.strip():
                assert len(texts) > turn.answered, "a partial answer is missing"
                assert texts[turn.answered].startswith(turn.words), "words are missing"
        else:
            assert len(texts) == len(turn.texts) or "failing" in str(turn.calls), "it was complete"
        place = 0
        while place < len(part):
            assert part[place].type == "ai", "a result answers no request"
            wanted = [call["id"] for call in part[place].tool_calls]
            given = part[place + 1 : place + 1 + len(wanted)]
            assert sorted(getattr(one, "tool_call_id", "") for one in given) == sorted(wanted), "a request has no answer"
            for one in given:
                self.check_result(one, turn, len([one for one in part[:place] if one.type == "ai"]))
            place += 1 + len(wanted)

    def check_result(self, one: Any, turn: Turn, answer: int) -> None:
        id = one.tool_call_id
        if is_synthetic(one):
            assert f"{answer} {id}" not in turn.finished, f"{id} has finished"
        else:
            assert one.text == f"{turn.calls[answer][id]} {turn.number} {id}", f"{id} has the result of another call"
