"""What ended a run, and the cause that is recorded: each row of the table in docs/running.md is a test here."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import RunJournal, attach, because, errors
from langchain_runjournal.testing import ScriptedChatModel, Wait
from tests.journal.test_ownership import Writer
from tests.support.agents import words
from tests.support.conversations import PATIENCE, the_rest
from tests.support.started_agent import Talk, facts, on, say, talking

PAGE = (Path(__file__).parents[2] / "docs" / "running.md").read_text()
SECTION = PAGE.partition("## How it ended, and the cause")[2].partition("\n## ")[0]
CAUSE = dict(re.findall(r"^\| (.+) \| `(\w+)`", SECTION, re.M))
"""The table: what ended the run, and the cause."""
SAID = "one two three "


class Program:
    """A program with an attached graph, whose model speaks until it is cut off."""

    def __init__(self, journal: RunJournal) -> None:
        self.journal = journal
        self.model = ScriptedChatModel([[SAID, Wait(2), "never"]])
        self.graph = StateGraph(MessagesState).add_node("answer", self.answer).add_edge(START, "answer")
        self.agent: Any = attach(self.graph.compile(checkpointer=InMemorySaver(), name="agent"), journal)
        self.speaks = asyncio.Event()

    async def answer(self, state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await self.model.ainvoke(state["messages"], config)]}

    def stream(self, **more: Any) -> Any:
        return self.agent.astream(say("go"), on("t", **more), stream_mode="messages")

    async def speak(self, **more: Any) -> None:
        async for _ in self.stream(**more):
            self.speaks.set()

    async def task(self) -> asyncio.Task[None]:
        """Its run in a task, which speaks."""
        task = asyncio.create_task(self.speak())
        await self.speaks.wait()
        return task

    async def ended(self) -> str | None:
        """The cause of its run, once the run has ended. Asserts that its thread keeps what the model said."""
        run_id = (await self.journal.aruns())[0].run_id
        async for _ in self.journal.afollow(run_id):
            pass
        run = await self.journal.arun(run_id)
        assert (run.status, run.settled) == ("interrupted", True)
        (_, cut) = (await self.agent.aget_state(on("t"))).values["messages"]
        assert cut.text == SAID
        return run.cause


async def cancelled(task: asyncio.Task[None], *why: str) -> None:
    task.cancel(*why)
    with suppress(asyncio.CancelledError):
        await task


# --- how a program ends a run -----------------------------------------------------------------------------------------


async def by_cancel(program: Program) -> None:
    await cancelled(await program.task())


async def by_cancel_that_says_why(program: Program) -> None:
    await cancelled(await program.task(), "timeout")


async def by_aclose(program: Program) -> None:
    stream = program.stream()
    await anext(stream)
    await stream.aclose()


async def by_aclose_because_of_stop(program: Program) -> None:
    stream = program.stream()
    await anext(stream)
    with because("stop"):
        await stream.aclose()


async def by_cancel_because_of_another(program: Program) -> None:
    task = await program.task()
    with because("superseded"):
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def by_a_block_around(program: Program) -> None:
    async def handler() -> None:
        with because("disconnect"):
            await program.speak()

    task = asyncio.create_task(handler())
    await program.speaks.wait()
    await cancelled(task)


async def by_stop_and_cancel(program: Program) -> None:
    task = await program.task()
    run_id = (await program.journal.aruns())[0].run_id
    await program.journal.astop(run_id, "superseded")
    with because("stop"):
        await cancelled(task, "timeout")


async def by_break(program: Program) -> None:
    async for _ in program.stream():
        break
    gc.collect()
    await the_rest()


async def by_asyncio_timeout(program: Program) -> None:
    task = await program.task()
    with suppress(asyncio.TimeoutError, TimeoutError):
        await asyncio.wait_for(task, 0.01)


async def by_call_later(program: Program) -> None:
    task = await program.task()
    asyncio.get_running_loop().call_later(0.01, task.cancel, "timeout")
    with suppress(asyncio.CancelledError):
        await task


async def by_anyio_deadline(program: Program) -> None:
    with anyio.CancelScope() as scope:
        async for _ in program.stream():
            scope.deadline = anyio.current_time()


async def by_anyio_scope(program: Program) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(program.speak)
        await program.speaks.wait()
        group.cancel_scope.cancel()


async def by_step_timeout(program: Program) -> None:
    program.agent.step_timeout = 1
    with suppress(TimeoutError, asyncio.TimeoutError):
        await program.speak()


WAYS: dict[str, Callable[[Program], Awaitable[None]]] = {
    "`task.cancel()`, as a Stop endpoint does": by_cancel,
    '`task.cancel("timeout")`: any cause as the message': by_cancel_that_says_why,
    '`with because("stop"): await stream.aclose()`': by_aclose_because_of_stop,
    '`with because("superseded"): task.cancel()`: say `task.cancel("superseded")`': by_cancel_because_of_another,
    '`with because("disconnect"):` around the call, and then a cancellation': by_a_block_around,
    '`journal.stop(run_id, "superseded")` before any of these': by_stop_and_cancel,
    "`stream.aclose()`, `stream.close()`": by_aclose,
    "a stream that is dropped, `break`": by_break,
    "a cancel scope of anyio": by_anyio_scope,
    "a deadline of anyio: `move_on_after`, `fail_after`": by_anyio_deadline,
    "`graph.step_timeout`": by_step_timeout,
    "`asyncio.timeout`, `asyncio.wait_for`": by_asyncio_timeout,
    '`loop.call_later(60, task.cancel, "timeout")`': by_call_later,
}


@pytest.mark.parametrize("how", WAYS)
def test_how_a_program_ends_a_run(tmp_path: Path, how: str) -> None:
    """The journal records the cause that the table gives."""

    async def work() -> None:
        async with RunJournal(tmp_path / "runs.db") as journal:
            program = Program(journal)
            await WAYS[how](program)
            await the_rest()
            assert await program.ended() == CAUSE[how]

    asyncio.run(work())


# --- how the world ends a run -----------------------------------------------------------------------------------------


async def by_start_run_stop(talk: Talk) -> None:
    await (await talk.start_held()).stop()


async def by_its_timeout(talk: Talk) -> None:
    await (await talk.start_held(timeout=0.5)).wait()


async def by_the_last_reader(talk: Talk) -> None:
    handle = await talk.start_held(stream_mode="messages", on_disconnect="stop")
    stream = handle.stream()
    await anext(stream)
    await stream.aclose()
    await handle.wait()


async def by_a_newer_message(talk: Talk) -> None:
    handle = await talk.start_held()
    talk.model.say(["never"])
    await (await talk.start("next", if_busy="stop")).wait()
    await handle.wait()


async def by_close(talk: Talk) -> None:
    await talk.start_held()
    await talk.journal.aclose()


STARTED = {
    "`handle.stop()`, `journal.stop(run_id)` of a run that `start_run` began": by_start_run_stop,
    "`start_run(..., timeout=60)`": by_its_timeout,
    '`start_run(..., on_disconnect="stop")`, and the last reader leaves': by_the_last_reader,
    '`start_run(..., if_busy="stop")` on its thread': by_a_newer_message,
    "the journal is closed while a run that `start_run` began is running": by_close,
}


@pytest.mark.parametrize("how", STARTED)
def test_how_a_run_of_start_run_ends(tmp_path: Path, how: str) -> None:
    """The journal records the cause that the table gives."""

    async def work() -> None:
        async with talking(tmp_path) as talk:
            await STARTED[how](talk)
        with RunJournal(tmp_path / "runs.db") as journal:
            first = journal.runs()[-1]
            assert facts(first) == ("interrupted", CAUSE[how], True)

    asyncio.run(work())


@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
def test_how_a_process_ends_a_run(tmp_path: Path, ends: type[BaseException]) -> None:
    """Ctrl-C and sys.exit interrupt a synchronous call."""
    how = {KeyboardInterrupt: "Ctrl-C (`KeyboardInterrupt`)", SystemExit: "`sys.exit()` in the middle of a call"}[ends]
    model = ScriptedChatModel([[SAID, ends()]])

    def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"], config)]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
    with RunJournal(tmp_path / "runs.db") as journal:
        agent = attach(graph.compile(checkpointer=InMemorySaver(), name="agent"), journal)
        with pytest.raises(ends):
            agent.invoke(say("go"), on("t"))
        assert facts(journal.runs()[0]) == ("interrupted", CAUSE[how], True)


def test_how_a_kill_ends_a_run(db: Path) -> None:
    """The process that settles the run records the cause: here with `recover`, and in the same way before the next
    message."""
    writer = Writer(db, 0, "keep")
    start = {"thread_id": "t", "name": "agent", "metadata": {"runjournal_graph": "agent"}}
    writer.do(f"journal.append(Event(run_id='r', kind='run.start', data={start!r}))")
    writer.kill()
    writer.process.communicate()
    graph = StateGraph(MessagesState).add_node("answer", lambda state: state).add_edge(START, "answer")
    with RunJournal(db) as journal:
        assert journal.recover(graph.compile(checkpointer=InMemorySaver(), name="agent"))
        assert facts(journal.run("r")) == ("interrupted", CAUSE["`kill -9`, a power loss"], True)


def test_how_a_claim_of_another_machine_ends_a_run(tmp_path: Path) -> None:
    """The claim itself is all that the first owner sees. The run has its cause when the new owner settles the thread."""

    async def whole() -> None:
        async with talking(tmp_path) as talk:
            with RunJournal(tmp_path / "runs.db") as other:
                handle = await talk.start_claimed_by(other)
                await asyncio.wait_for(handle.wait(), PATIENCE)
                with pytest.raises(errors.RunFenced):
                    await talk.journal.aflush()
            talk.model.say(words("fine"))
            await (await talk.start("next")).wait()
            how = "the machine is cut off for longer than its lease, and another machine claims the run"
            assert facts(talk.journal.run(handle.run_id)) == ("interrupted", CAUSE[how], True)

    asyncio.run(whole())


# --- saying it ----------------------------------------------------------------------------------------------------------


def test_every_row_is_tested() -> None:
    """The tests here cover every row of the table, and the table has every case that they test."""
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("test_causes*.py"))
    assert len(CAUSE) == 27
    assert [how for how in CAUSE if how not in source] == []


def test_a_cause_is_one_of_the_known() -> None:
    """`because` refuses any other cause, and lists the known ones."""
    with (
        pytest.raises(
            errors.InvalidArgument, match=r"cause does not know the value 'bored'\. It knows: 'stop', 'disconnect'"
        ),
        because("bored"),
    ):  # type: ignore[arg-type]
        pass


def test_it_does_not_change_what_failed_or_completed(tmp_path: Path) -> None:
    """The block gives the cause of a cut-off, and changes nothing where nothing was cut off."""
    model = ScriptedChatModel(["fine", [SAID, ValueError("boom")], [SAID, TimeoutError("of a tool")]])

    def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"], config)]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
    with RunJournal(tmp_path / "runs.db") as journal:
        agent = attach(graph.compile(checkpointer=InMemorySaver(), name="agent"), journal)
        with because("stop"):
            agent.invoke(say("go"), on("a"))
            for thread in ("b", "c"):
                with suppress(ValueError, TimeoutError):
                    agent.invoke(say("go"), on(thread))
        assert [facts(run)[:2] for run in journal.runs()] == [("failed", None), ("failed", None), ("completed", None)]


def test_it_holds_in_the_block_only(tmp_path: Path) -> None:
    """Not after the block, nor when a generator around it is closed elsewhere. Any other message of a cancellation is not a
    cause."""

    async def closes() -> AsyncIterator[None]:
        with because("shutdown"):
            yield

    async def work() -> None:
        async with RunJournal(tmp_path / "runs.db") as journal:
            program = Program(journal)
            with because("timeout"):
                pass
            generator = closes()
            await asyncio.create_task(anext(generator))  # in a context of its own
            await generator.aclose()
            await by_aclose(program)
            assert await program.ended() == "disconnect"
            await by_cancel(Program(journal))
        async with RunJournal(tmp_path / "others.db") as journal:
            program = Program(journal)
            await cancelled(await program.task(), "the user is bored")
            assert await program.ended() == "stop"

    asyncio.run(work())
