"""A process that acts right after a call of another process has returned: the store does not have the end of that run
yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import Event, RunJournal, attach, because, start_run
from langchain_runjournal.events import GRAPH
from langchain_runjournal.events.segments import pack
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.stores import Owner
from langchain_runjournal.testing import ScriptedChatModel
from tests.support.started_agent import on, on_a_loop, say


class Two:
    """Two journals on one file, as two processes have them, with the same graph on the same checkpointer."""

    def __init__(self, path: Path) -> None:
        self.journals = RunJournal(path), RunJournal(path)
        saver = InMemorySaver()
        self.here, self.there = (attach(self.build(saver), journal) for journal in self.journals)

    def build(self, saver: InMemorySaver) -> Any:
        model = ScriptedChatModel(["one two three four"] * 50)

        async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"], config)]}

        graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
        return graph.compile(checkpointer=saver, name="agent")

    async def aclose(self) -> None:
        for journal in self.journals:
            await journal.aclose()


async def begun(stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Return a stream that has yielded its first token."""
    await anext(stream)
    return stream


@on_a_loop
async def test_start_run_after_a_call_elsewhere(tmp_path: Path) -> None:
    """`start_run` is not rejected as busy right after `ainvoke` has returned in another process."""
    two = Two(tmp_path / "runs.db")
    for turn in range(5):
        await two.there.ainvoke(say("first"), on(f"t{turn}"))
        handle = await start_run(two.here, say("second"), on(f"t{turn}"))
        assert (await handle.wait()).status == "completed"
    await two.aclose()


@on_a_loop
async def test_a_stop_after_a_call_elsewhere(tmp_path: Path) -> None:
    """A run that begins right after `ainvoke` has returned in another process is settled when it is stopped."""
    two = Two(tmp_path / "runs.db")
    for turn in range(5):
        await two.there.ainvoke(say("first"), on(f"t{turn}"))
        stream = await begun(two.here.astream(say("second"), on(f"t{turn}"), stream_mode="messages"))
        with because("stop"):
            await stream.aclose()  # type: ignore[attr-defined]
        run = (await two.journals[0].aruns(f"t{turn}"))[0]
        assert (run.status, run.settled, run.problem) == ("interrupted", True, None)
    await two.aclose()


@on_a_loop
async def test_a_message_beside_a_run_elsewhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A message that begins beside a run of another process warns that one of the two will lose what it writes."""
    two = Two(tmp_path / "runs.db")
    stream = await begun(two.there.astream(say("first"), on("t"), stream_mode="messages"))
    await two.here.ainvoke(say("second"), on("t"))
    first = (await two.journals[0].aruns("t"))[1]
    assert [first.run_id in line and "is still running on thread t" in line for line in caplog.messages] == [True]
    await stream.aclose()  # type: ignore[attr-defined]
    await two.aclose()


FAR = Owner(owner_id="far", place="another container", pid=1, born="", lease=1.0)


def left_far_away(journal: RunJournal) -> None:
    """Leave a run of another container, which said two words."""
    core_of(journal).store.beat(FAR)
    asked = {"type": "human", "data": {"type": "human", "content": "first", "id": "asked"}}
    said: list[tuple[Any, dict[str, Any], str | None]] = [
        ("run.start", {"thread_id": "t", "name": "agent", "metadata": {GRAPH: "agent"}}, None),
        ("llm.human.input", {"message": asked}, None),
        ("llm.start", {"model": "m", "role": "answer"}, "c"),
        ("llm.ai.delta", {"text": "two words"}, "c"),
    ]
    events = [
        Event(run_id="far", seq=seq, kind=kind, data=data, call_id=call) for seq, (kind, data, call) in enumerate(said, 1)
    ]
    core_of(journal).store.append("far", [pack("far", 1, events)])


@on_a_loop
async def test_a_message_after_another_container_was_killed(tmp_path: Path) -> None:
    """Where only a heartbeat shows that an owner is dead, a message waits for the end of its lease, and settles."""
    two = Two(tmp_path / "runs.db")
    left_far_away(two.journals[0])
    found = (await two.here.ainvoke(say("second"), on("t")))["messages"]
    assert [message.text for message in found] == ["first", "two words", "second", "one two three four"]
    await two.aclose()


@on_a_loop
async def test_a_message_beside_another_container(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A message begins at the next heartbeat of a living owner, with a warning, and claims nothing."""
    two = Two(tmp_path / "runs.db")
    left_far_away(two.journals[0])
    message = asyncio.create_task(two.here.ainvoke(say("second"), on("t")))
    beats = 0
    while not message.done():
        core_of(two.journals[1]).store.beat(replace(FAR, beats=(beats := beats + 1)))
        await asyncio.sleep(0.01)
    assert ["run far is still running on thread" in line for line in caplog.messages] == [True]
    assert (await two.journals[0].arun("far")).epoch == 1
    await two.aclose()
