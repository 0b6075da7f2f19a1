"""A settlement is one checkpoint where no finished task has left anything, and two where one has."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

import langchain_runjournal
from langchain_runjournal import RunJournal
from tests.settle.test_settle import THREAD, model, say, shown
from tests.support.agents import Scripted, words
from tests.support.attached import HALF, SETTLED

attach = partial(langchain_runjournal.attach, capture_invoke=True)


class State(MessagesState, total=False):
    seen: str


class Saver(InMemorySaver):
    """A checkpointer that tells when a task has left `seen`."""

    def __init__(self) -> None:
        super().__init__()
        self.has_seen = threading.Event()

    def put_writes(self, config: RunnableConfig, writes: Any, *args: Any, **more: Any) -> None:
        super().put_writes(config, writes, *args, **more)
        if any(channel == "seen" for channel, _ in writes):
            self.has_seen.set()


def _graph(asked: Scripted, *besides: str, waits: bool = False) -> Any:
    """A node that answers, and nodes that run beside it. `waits`: a last node waits for all of them."""

    saver = Saver()

    def answer(state: State, config: RunnableConfig) -> dict[str, Any]:
        if besides:
            assert saver.has_seen.wait(60)
        return {"messages": [asked.invoke(state["messages"], config)]}

    graph: Any = StateGraph(State).add_node("answer", answer).add_edge(START, "answer")
    for name in besides:
        graph.add_node(name, lambda state: {"seen": "yes"}).add_edge(START, name)
    if waits:
        graph.add_node("last", lambda state: {}).add_edge(["answer", *besides], "last")
    return graph.compile(checkpointer=saver, name="agent")


def _updates(agent: Any) -> int:
    return [one.metadata["source"] for one in agent.checkpointer.list(THREAD)].count("update")


@pytest.mark.parametrize(
    ("besides", "waits", "updates"),
    [((), False, 1), (("beside",), False, 2), (("beside",), True, 3)],
    ids=["nothing is left", "a result is left", "a node waits for others"],
)
def test_how_many_checkpoints_a_settlement_writes(
    besides: tuple[str, ...], waits: bool, updates: int, journal: RunJournal
) -> None:
    """What finished tasks have left is applied first, in a checkpoint of its own. No task is left, and the next message
    works."""
    asked = model(HALF, words("fine"))
    agent = attach(_graph(asked, *besides, waits=waits), journal)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"), THREAD)
    state = agent.get_state(THREAD)
    assert (shown(state.values["messages"]), state.next, state.tasks) == (SETTLED, (), ())
    assert (state.values.get("seen"), _updates(agent)) == ("yes" if besides else None, updates)
    assert [run.settled for run in journal.runs()] == [True]
    agent.invoke(say("next"), THREAD)
    assert shown(asked.seen[-1]) == [*SETTLED, "U next"]


def test_what_a_command_has_brought_is_kept(journal: RunJournal) -> None:
    """The update of a `Command` belongs to no task. It is part of the thread after a settlement, though no task has left a
    result."""

    asked = model(words("done"), HALF, words("fine"))
    agent = attach(_graph(asked), journal)
    agent.invoke(say("hi"), THREAD)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(Command(update={"seen": "by a human"}, goto="answer"), THREAD)
    state = agent.get_state(THREAD)
    assert (shown(state.values["messages"]), state.values.get("seen")) == (["U hi", "A done", "A~ one "], "by a human")
    assert (state.next, state.tasks, [run.settled for run in journal.runs()]) == ((), (), [True, True])
