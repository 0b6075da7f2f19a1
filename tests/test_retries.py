"""Of several attempts the last one that showed something stands: a retry that says nothing takes nothing away."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, ModelRetryMiddleware
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import RetryPolicy

from langchain_runjournal import RunJournal, attach, start_run
from langchain_runjournal._timeline import timeline
from tests._agents import asks, words
from tests._settled import Gate, Recording, end_of, nothing_is_wrong, story

KINDS = ("with_retry", "with_fallbacks", "RetryPolicy", "ModelRetryMiddleware", "ModelFallbackMiddleware")
AGENTS = ("ModelRetryMiddleware", "ModelFallbackMiddleware")
PLACES = ("first step", "second step")
STEP = asks(("c1", "quick", {"x": 1}))
STEPPED = ["A Looking. (c1)", "T(c1) quick 1"]
LOST = ConnectionError("lost")
BROKEN = [*words("one ", "two "), LOST]
AGAIN = [*words("three "), LOST]
SILENT = [LOST]
on_3_10 = sys.version_info < (3, 11)


@tool
def quick(x: int) -> str:
    """Quick."""
    return f"quick {x}"


def program(kind: str, model: Recording, saver: Any, attempts: int = 2, on_failure: Any = "error") -> Any:
    """An agent that asks its model up to `attempts` times."""
    if kind in AGENTS:
        retry: Any = ModelRetryMiddleware(max_retries=attempts - 1, initial_delay=0.0, jitter=False, on_failure=on_failure)
        if kind == "ModelFallbackMiddleware":
            retry = ModelFallbackMiddleware(*[model] * (attempts - 1))
        return create_agent(model, [quick], middleware=[retry], checkpointer=saver, name="agent")
    policy, runnable = None, model
    match kind:
        case "with_retry":
            runnable = model.with_retry(stop_after_attempt=attempts, wait_exponential_jitter=False)
        case "with_fallbacks":
            runnable = model.with_fallbacks([model] * (attempts - 1))
        case "RetryPolicy":
            policy = RetryPolicy(initial_interval=0.001, jitter=False, max_attempts=attempts)

    def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [runnable.invoke(state["messages"], config)]}

    async def aanswer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await runnable.ainvoke(state["messages"], config)]}

    return _looping(answer, aanswer, policy).compile(checkpointer=saver, name="agent")


def _looping(answer: Any, aanswer: Any, policy: Any = None) -> Any:
    from langchain_core.runnables import RunnableLambda

    graph = StateGraph(MessagesState)
    graph.add_node("model", RunnableLambda(answer, aanswer, name="model"), retry_policy=policy)
    graph.add_node("tools", ToolNode([quick]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph


def say(text: str = "hi") -> dict[str, Any]:
    return {"messages": [("user", text)]}


def config(run_id: UUID | None = None) -> RunnableConfig:
    return {"configurable": {"thread_id": "t"}, "run_id": run_id or uuid4()}


def views(journal: RunJournal, run_id: str) -> tuple[list[str], list[str], list[str]]:
    """What the transcript holds; what the page shows of it; and what the calls that count have said."""
    line = timeline(journal.run(run_id), journal.read(run_id))
    kinds = {"human": "U", "ai": "A", "tool": "T"}
    page = [f"{kinds[one.kind]}{'~' if one.origin == 'partial' else ''} {one.text}" for one in line.messages]
    calls = [call.text for call in line.models if not (call.replaced or call.unused) and call.text]
    return story(journal.transcript(run_id)), page, calls


def as_page(lines: list[str]) -> list[str]:
    """The lines of a story without the ids of tool calls."""
    found = [line.partition("(")[0] if line.startswith("A") else line.replace("T(c1)", "T") for line in lines]
    return [line.replace("T* ", "T ") for line in found]


def check(journal: RunJournal, run_id: str, thread: list[Any], left: list[str]) -> None:
    """Thread, transcript, page and calls say the same."""
    told, page, calls = views(journal, run_id)
    assert story(thread) == left
    assert told == left
    assert page == as_page(left)
    assert calls == [line.partition(" ")[2].partition("(")[0] for line in left if line.startswith("A")]


@pytest.fixture
def journal() -> Iterator[RunJournal]:
    with RunJournal(":memory:") as journal, nothing_is_wrong():
        yield journal


# --- the cells ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """The attempts of one answer, how the turn ends, and what is left of the answer."""

    attempts: Callable[[Gate], list[list[Any]]]
    ends: str
    left: str


CELLS = {
    "all fail": Cell(lambda gate: [BROKEN, SILENT], "fails", "A~ one two "),
    "stopped before the second speaks": Cell(lambda gate: [BROKEN, [gate.apass]], "stopped", "A~ one two "),
    "the second answers": Cell(lambda gate: [BROKEN, words("all well")], "completes", "A all well"),
    "the second is cut as well": Cell(lambda gate: [BROKEN, AGAIN], "fails", "A~ three "),
    "the second of three spoke last": Cell(lambda gate: [BROKEN, AGAIN, SILENT], "fails", "A~ three "),
    "the first of three spoke": Cell(lambda gate: [BROKEN, SILENT, [gate.apass]], "stopped", "A~ one two "),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
each_cell = pytest.mark.parametrize("cell", CELLS)
each_place = pytest.mark.parametrize("place", PLACES)


def skip_on_3_10(kind: str) -> None:
    if on_3_10 and kind in AGENTS:
        pytest.skip("Python 3.10 hands no callbacks on to asynchronous code, and create_agent does not either")


@each_place
@each_cell
@each_kind
@pytest.mark.parametrize("entry", ["astream", "start_run"])
def test_the_last_attempt_that_showed_something_stands(
    kind: str, cell: str, place: str, entry: str, journal: RunJournal
) -> None:
    """In the thread, the transcript, the page and the command line, however the turn goes on after it."""
    skip_on_3_10(kind)

    async def scenario() -> None:
        about, gate, run_id = CELLS[cell], Gate(), uuid4()
        scripts = about.attempts(gate)
        model = Recording(scripts=[STEP, *scripts] if place == "second step" else scripts)
        agent = attach(program(kind, model, InMemorySaver(), len(scripts)), journal)
        task = asyncio.create_task(TURNS[entry](agent, journal, config(run_id)))
        if about.ends == "stopped":
            await asyncio.wait_for(gate.reached.wait(), 30)
            task.cancel()
        await asyncio.wait([task])
        await end_of(journal, str(run_id))
        status = {"fails": "failed", "stopped": "interrupted", "completes": "completed"}[about.ends]
        assert journal.run(str(run_id)).status == status
        assert (task.cancelled(), not task.cancelled() and task.exception() is not None) == (
            status == "interrupted",
            status == "failed",
        )
        left = ["U hi", *(STEPPED if place == "second step" else ()), about.left]
        check(journal, str(run_id), (await agent.aget_state(config())).values["messages"], left)
        model.say(words("fine"))
        await agent.ainvoke(say("next"), config())
        assert story(model.seen[-1]) == [*left, "U next"]

    asyncio.run(scenario())


async def _streams(agent: Any, journal: RunJournal, config: RunnableConfig) -> None:
    async for _ in agent.astream(say(), config, stream_mode="messages"):
        pass


async def _starts(agent: Any, journal: RunJournal, config: RunnableConfig) -> None:
    run = await start_run(agent, say(), config, journal=journal, stream_mode="messages")
    try:
        async for _ in run.stream():
            pass
    except asyncio.CancelledError:
        await run.stop()
        raise


TURNS: dict[str, Any] = {"astream": _streams, "start_run": _starts}


@each_place
@each_kind
@pytest.mark.parametrize("cell", [name for name, cell in CELLS.items() if cell.ends != "stopped"])
def test_without_a_loop(kind: str, cell: str, place: str, journal: RunJournal) -> None:
    """The same in calls that block."""
    run_id, scripts = uuid4(), CELLS[cell].attempts(Gate())
    model = Recording(scripts=[STEP, *scripts] if place == "second step" else scripts)
    agent = attach(program(kind, model, InMemorySaver(), len(scripts)), journal)
    if CELLS[cell].ends == "completes":
        list(agent.stream(say(), config(run_id), stream_mode="messages"))
    else:
        with pytest.raises(ConnectionError):
            list(agent.stream(say(), config(run_id), stream_mode="messages"))
    left = ["U hi", *(STEPPED if place == "second step" else ()), CELLS[cell].left]
    check(journal, str(run_id), agent.get_state(config()).values["messages"], left)


# --- programs that are killed -------------------------------------------------------------------------------------------


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _killed(home: Path, kind: str, place: str) -> None:
    """In a process of its own: it is killed when the second attempt has begun."""
    script = [BROKEN, [_die]]
    model = Recording(scripts=[STEP, *script] if place == "second step" else script)
    with SqliteSaver.from_conn_string(str(home / "threads.db")) as saver:
        agent = attach(program(kind, model, saver), RunJournal(home / "runs.db"))
        list(agent.stream(say(), config(UUID(int=1)), stream_mode="messages"))


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What killed programs have left, by kind and place. One process forks all of them: it has imported everything."""
    home = tmp_path_factory.mktemp("killed")
    subprocess.run([sys.executable, "-m", "tests.test_retries", str(home)], cwd=Path(__file__).parent.parent, check=True)
    return home


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@each_place
@each_kind
def test_a_program_that_is_killed_before_the_second_attempt_speaks(kind: str, place: str, homes: Path) -> None:
    """`recover` finds the words of the first one."""
    home = homes / f"{kind} {place}"
    left = ["U hi", *(STEPPED if place == "second step" else ()), "A~ one two "]
    with SqliteSaver.from_conn_string(str(home / "threads.db")) as saver, RunJournal(home / "runs.db") as journal:
        agent = attach(program(kind, Recording(scripts=[words("fine")]), saver), journal)
        assert [one.outcome for one in journal.recover(agent)] == ["settled"]
        check(journal, str(UUID(int=1)), agent.get_state(config()).values["messages"], left)


def _kill_all(home: Path) -> None:
    for kind in KINDS:
        for place in PLACES:
            (mine := home / f"{kind} {place}").mkdir()
            child = os.fork()
            if child == 0:
                try:
                    _killed(mine, kind, place)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


if __name__ == "__main__":
    _kill_all(Path(sys.argv[1]))
