"""`ToolPairGuard(on_cut="retry")`: of an answer that was cut and is asked for again, thread and transcript say the same."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import RunJournal, attach
from langchain_runjournal.guard import ToolPairGuard
from tests.messages.test_attempts import LOST, check, config, quick, say
from tests.support.agents import words
from tests.support.conversations import Gate, Recording, end_of, nothing_is_wrong, story

agents = pytest.importorskip("langchain.agents")
pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11),
    reason="Python 3.10 hands no callbacks on to asynchronous code, and create_agent does not either",
)


def cut(text: str) -> list[Any]:
    """An answer that ran into its limit inside its call."""
    call = tool_call_chunk(name="quick", args='{"x": 1', id="c1", index=0)
    end = AIMessageChunk(content="", response_metadata={"finish_reason": "length"})
    return [*words(text), AIMessageChunk(content="", tool_call_chunks=[call]), end]


@pytest.fixture
def journal() -> Iterator[RunJournal]:
    with RunJournal(":memory:") as journal, nothing_is_wrong():
        yield journal


FIRST = ["A~ Both. (c1)", "T*(c1) cut"]
CELLS: dict[str, tuple[Callable[[Gate], list[list[Any]]], str, list[str]]] = {
    "stopped before the second speaks": (lambda gate: [[gate.apass]], "interrupted", FIRST),
    "stopped when the second has spoken": (lambda gate: [[*words("three "), gate.apass]], "interrupted", ["A~ three "]),
    "the second fails without a word": (lambda gate: [[LOST]], "failed", FIRST),
    "the second is cut off by an error": (lambda gate: [[*words("three "), LOST]], "failed", ["A~ three "]),
    "the second answers": (lambda gate: [words("all well")], "completed", ["A all well"]),
    "the second is cut, the third stopped": (
        lambda gate: [cut("Again. "), [gate.apass]],
        "interrupted",
        ["A~ Again. (c1)", "T*(c1) cut"],
    ),
}


async def one_turn(journal: RunJournal, scripts: Callable[[Gate], list[list[Any]]], stops: bool, **options: Any) -> Any:
    """Play a turn whose first answer is cut. Returns its run's id, the agent, its model and its thread."""
    gate, run_id = Gate(), uuid4()
    model = Recording(scripts=[cut("Both. "), *scripts(gate)])
    guard = ToolPairGuard(journal, **options)
    made = agents.create_agent(model, [quick], middleware=[guard], checkpointer=InMemorySaver(), name="agent")
    agent = attach(made, journal)

    async def turn() -> None:
        with contextlib.suppress(ConnectionError):
            async for _ in agent.astream(say(), config(run_id), stream_mode="messages"):
                pass

    task = asyncio.create_task(turn())
    if stops:
        await asyncio.wait_for(gate.reached.wait(), 30)
        task.cancel()
    await asyncio.wait([task])
    await end_of(journal, str(run_id))
    return str(run_id), agent, model, (await agent.aget_state(config())).values["messages"]


@pytest.mark.parametrize("cell", CELLS)
def test_the_last_attempt_that_showed_something_stands(cell: str, journal: RunJournal) -> None:
    """Once, marked as partial, in the thread and in the transcript; the answer that came whole stands alone."""
    scripts, status, left = CELLS[cell]

    async def scenario() -> None:
        run_id, agent, model, thread = await one_turn(journal, scripts, status == "interrupted", on_cut="retry")
        assert journal.run(run_id).status == status
        assert story(thread) == ["U hi", *left]
        if left[-1].startswith("T"):
            # The transcript is what was said: the results of calls that did not run are the thread's.
            assert story(journal.transcript(run_id)) == ["U hi", *left[:-1]]
            assert thread[1].additional_kwargs == journal.transcript(run_id)[1].additional_kwargs
        else:
            check(journal, run_id, thread, ["U hi", *left])
        model.say(words("fine"))
        await agent.ainvoke(say("next"), config())
        assert story((await agent.aget_state(config())).values["messages"]) == ["U hi", *left, "U next", "A fine"]

    asyncio.run(scenario())


def test_an_answer_that_is_not_asked_for_again_stands_beside_the_next(journal: RunJournal) -> None:
    """With "answer", the next call of the model is another step, and no attempt of the same."""

    async def scenario() -> None:
        run_id, _, _, thread = await one_turn(journal, lambda gate: [[*words("three "), gate.apass]], True)
        assert story(thread) == ["U hi", *FIRST, "A~ three "]
        assert story(journal.transcript(run_id)) == ["U hi", FIRST[0], "A~ three "]
        assert not any("replaces" in event.data for event in journal.read(run_id) if event.kind == "llm.start")

    asyncio.run(scenario())
