"""Programs as people have them, changed by one line, ended in every node: by a Stop, a client that goes away, a provider
that fails, and kill -9. Each time the thread is whole, holds what the user was shown, and the next message just works."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langchain_runjournal import RunJournal
from langchain_runjournal.journal.core import core_of
from tests.programs._stage import PATIENCE, Act, Stage
from tests.support.conversations import end_of, nothing_is_wrong, story, the_rest
from tests.support.programs import (
    BLOCKING,
    CASES,
    EXTRA,
    RUN_ID,
    Case,
    Forker,
    Reader,
    build,
    check_model_input,
    check_whole,
    config_of,
    first_turn,
    given,
    next_answer,
)

# Before Python 3.11 the node of create_agent does not hand its config on to what it awaits.
AWAITED = [case for case in CASES if sys.version_info >= (3, 11) or not {case.program, case.agent} & set(BLOCKING)]
BLOCKED = [case for case in CASES if {case.program, case.agent} & set(BLOCKING)]


def expected(case: Case, act: Act) -> list[str]:
    """What the thread holds: a tool that failed is known to have failed, one that was cut off to have started."""
    left = [line.replace(" started", " failed") if act == "fail" else line for line in case.left]
    return [*first_turn(case), *left]


async def reached(stage: Stage) -> None:
    assert await asyncio.to_thread(stage.reached.wait, PATIENCE), f"never reached; passed: {stage.passed}"


async def stop(stage: Stage, talk: Any) -> None:
    """As a Stop button does it."""
    task = asyncio.create_task(talk)
    await reached(stage)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def disconnect(stage: Stage, talk: Any) -> None:
    """As Starlette does it when the client goes away: it cancels again and again."""
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: talk)
        await reached(stage)
        group.cancel_scope.cancel()


async def fail(stage: Stage, talk: Any) -> None:
    """As a provider or a tool does it."""
    with pytest.raises(ConnectionError):
        await talk


ENDINGS: dict[str, tuple[Any, Act]] = {"stop": (stop, "wait"), "disconnect": (disconnect, "wait"), "fail": (fail, "fail")}


async def check_thread(graph: Any, case: Case, act: Act, journal: RunJournal) -> list[Any]:
    """The thread is whole, and its run is settled. Returns its messages."""
    run = await journal.arun(RUN_ID.format(2))
    assert run.ended
    assert run.settled
    state = await graph.aget_state(config_of())
    messages = list(state.values["messages"])
    assert story(messages) == expected(case, act)
    assert state.next == ()
    check_whole(messages)
    return messages


async def _ended(case: Case, ending: str, journal: RunJournal) -> None:
    end, act = ENDINGS[ending]
    stage, reader = Stage(), Reader()
    graph = build(case.program, stage, journal, InMemorySaver())[case.agent]
    await reader.atalk(graph, "first", config_of(run=1))
    needs = None if case.needs is None else (journal, RUN_ID.format(2), *case.needs)
    stage.arm(case.point, act, needs)
    reader.shown.clear()
    await end(stage, reader.atalk(graph, "go", config_of(run=2)))
    await end_of(journal, RUN_ID.format(2))
    messages = await check_thread(graph, case, act, journal)
    assert reader.said() in "".join(one.text for one in messages if one.type == "ai"), "the user was shown more"
    values = await graph.ainvoke(given("next"), config_of(run=3))
    check_model_input(stage, case, messages)
    assert story(values["messages"]) == [*story(messages), "U next", next_answer(case)]
    check_whole(values["messages"])
    stage.release()
    await the_rest()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[RunJournal]:
    with RunJournal(tmp_path / "runs.db") as journal:
        yield journal


@pytest.mark.guarantee("every ending")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("case", AWAITED, ids=str)
def test_ended_in_every_node(case: Case, ending: str, journal: RunJournal) -> None:
    """Stopped, left, or failed, anywhere: the thread holds what was shown and done, and the next message works."""
    with nothing_is_wrong():
        asyncio.run(_ended(case, ending, journal))


def test_no_store_is_asked_on_the_loop(journal: RunJournal) -> None:
    """A server that refuses blocking calls on its loop, as `langgraph dev` does, finds none of ours: neither when a graph is
    attached there, nor when a run begins that its caller has named, is stopped, and is followed by the next one."""
    on_the_loop: list[str] = []

    def watched(name: str, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop()
                on_the_loop.append(name)
            return method(*args, **kwargs)

        return call

    for name in [name for name in dir(core_of(journal).store) if not name.startswith("_")]:
        method = getattr(core_of(journal).store, name)
        if callable(method):
            setattr(core_of(journal).store, name, watched(name, method))
    case = next(case for case in CASES if case.point == "agent1:mid")
    asyncio.run(_ended(case, "stop", journal))
    assert on_the_loop == []


@pytest.mark.parametrize("case", BLOCKED, ids=str)
def test_failed_in_every_node_without_a_loop(case: Case, journal: RunJournal) -> None:
    """The same where the program is called without a loop, and its provider or its tool fails."""
    stage, reader = Stage(), Reader()
    graph = build(case.program, stage, journal, InMemorySaver())[case.agent]
    reader.talk(graph, "first", config_of(run=1))
    stage.arm(case.point, "fail")
    with pytest.raises(ConnectionError):
        reader.talk(graph, "go", config_of(run=2))
    messages = asyncio.run(check_thread(graph, case, "fail", journal))
    values = graph.invoke(given("next"), config_of(run=3))
    check_model_input(stage, case, messages)
    assert story(values["messages"]) == [*story(messages), "U next", next_answer(case)]
    check_whole(values["messages"])


def test_an_entrypoint_among_them(journal: RunJournal) -> None:
    """A Stop in the functional API: its next turn has what was said, or its run says that it is not settled, and why."""

    async def stopped() -> None:
        stage, reader = Stage(), Reader()
        graph = build("registry", stage, journal, InMemorySaver())["chatbot"]
        await reader.atalk(graph, "first", config_of(run=1))
        stage.arm("chatbot1:mid")
        await stop(stage, reader.atalk(graph, "go", config_of(run=2)))
        await end_of(journal, RUN_ID.format(2))
        run = await journal.arun(RUN_ID.format(2))
        await graph.ainvoke(given("next"), config_of(run=3))
        sent = story(stage.models["chatbot"].requests[-1])
        [end] = [event for event in await journal.aread(run.run_id) if event.kind == "run.end"]
        if run.settled:
            assert sent == ["U first", "A answer to first", "U go", "A~ answer to ", "U next"]
        else:
            assert end.data["problem"]
            assert sent == ["U first", "A answer to first", "U next"]
        assert [one.text for one in await journal.atranscript(run.run_id)][-1] == "answer to "

    asyncio.run(stopped())


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    with Forker() as forker:
        yield forker


async def _killed(case: Case, how: str, home: Path) -> None:
    async with (
        AsyncSqliteSaver.from_conn_string(str(home / "threads.db")) as saver,
        RunJournal(home / "runs.db") as journal,
    ):
        stage = Stage()
        graphs = build(case.program, stage, journal, saver)
        graph = graphs[case.agent]
        messages: list[Any] = []
        if how == "recover":
            settled = [key for key, one in graphs.items() for report in await journal.arecover(one) if _has_settled(report)]
            assert settled == [case.agent], "by another agent than its own"
            messages = await check_thread(graph, case, "die", journal)
        values = await graph.ainvoke(given("next"), config_of(run=3))
        assert story(values["messages"]) == [*expected(case, "die"), "U next", next_answer(case)]
        assert (await journal.arun(RUN_ID.format(2))).settled
        check_whole(values["messages"])
        if case.agent in EXTRA:
            assert values[EXTRA[case.agent]], "a channel that the other agents lack"
        check_model_input(stage, case, messages or values["messages"][:-2])


def _has_settled(report: Any) -> bool:
    return report.outcome in ("settled", "whole")


def _killed_here(case: Case, how: str, home: Path) -> None:
    with SqliteSaver.from_conn_string(str(home / "threads.db")) as saver, RunJournal(home / "runs.db") as journal:
        stage = Stage()
        graphs = build(case.program, stage, journal, saver)
        if how == "recover":
            for one in graphs.values():
                journal.recover(one)
        values = graphs[case.agent].invoke(given("next"), config_of(run=3))
        assert story(values["messages"]) == [*expected(case, "die"), "U next", next_answer(case)]
        assert journal.run(RUN_ID.format(2)).settled
        check_whole(values["messages"])
        check_model_input(stage, case, values["messages"][:-2])


@pytest.mark.guarantee("every ending")
@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.parametrize("how", ["recover", "message"])
@pytest.mark.parametrize("case", AWAITED, ids=str)
def test_killed_in_every_node(case: Case, how: str, forker: Forker, tmp_path: Path) -> None:
    """kill -9 anywhere: another process that recovers, for all agents of the program, or only sends the next message, finds
    the thread with what was shown and done."""
    forker.kill(tmp_path, case, loop=True)
    asyncio.run(_killed(case, how, tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.parametrize("case", BLOCKED, ids=str)
def test_killed_in_every_node_without_a_loop(case: Case, forker: Forker, tmp_path: Path) -> None:
    """The same for programs that are called without a loop."""
    forker.kill(tmp_path, case, loop=False)
    _killed_here(case, "message" if CASES.index(case) % 2 else "recover", tmp_path)
