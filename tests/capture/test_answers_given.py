"""What a task returns is what its thread gets: messages that a node writes itself, words that it changes, states of any
shape."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Annotated, Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict

from langchain_runjournal import Event, JournalCallbackHandler, RunJournal, attach
from langchain_runjournal.messages.transcript import transcript
from tests.support.agents import Scripted, asks, words
from tests.support.answering import Desk, Voice, config
from tests.support.conversations import story


class Secret(BaseModel):
    messages: Annotated[list[Any], add_messages]


@dataclasses.dataclass
class Data:
    messages: Annotated[list[Any], add_messages]


TALKS = "Rice takes 20 minutes"
TALK = f"A {TALKS}"


def voice(says: str = TALKS) -> Voice:
    return Voice(step="talk", says=says, desk=Desk())


def ends(journal: RunJournal, run_id: Any) -> list[Event]:
    return [event for event in journal.read(str(run_id)) if event.kind == "task.end"]


def turns(journal: RunJournal, *nodes: Callable[[Any], Any], state: Any = MessagesState) -> list[Event]:
    """Run two turns of a graph of these nodes, and assert that each transcript holds what the thread got in it. Return the
    ends of tasks."""
    builder, before, found = StateGraph(state), START, []
    for number, node in enumerate(nodes):
        builder.add_node(f"n{number}", node)
        builder.add_edge(before, f"n{number}")
        before = f"n{number}"
    graph = attach(builder.compile(checkpointer=InMemorySaver()), journal)
    known: list[str] = []
    for text in ("hi", "again"):
        run_id = uuid4()
        graph.invoke({"messages": [("user", text)]}, config("t", run_id))
        thread = story(graph.get_state(config("t", uuid4())).values["messages"])
        assert story(journal.transcript(str(run_id))) == thread[len(known) :]
        assert thread[: len(known)] == known
        known = thread
        found += ends(journal, run_id)
    return found


def written(found: list[Event]) -> int:
    """How many messages the ends of tasks hold."""
    return sum(len(event.data.get("messages", ())) for event in found)


# --- messages that a node writes itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("by hand"),
        ("ai", "by hand"),
        {"role": "assistant", "content": "by hand"},
        "the words of a user",
        HumanMessage("a critique"),
        [AIMessage("one"), HumanMessage("two"), AIMessage("three")],
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_that_a_node_writes_itself(message: Any, journal: RunJournal) -> None:
    """The transcript has it in any form that LangGraph accepts, also if no model was called."""
    assert written(turns(journal, lambda state: {"messages": copy.deepcopy(message)})) in (2, 6)


def test_messages_around_those_of_a_model(journal: RunJournal) -> None:
    """They stand where the node has put them, also before what the model had said before."""

    def node(state: MessagesState) -> dict[str, Any]:
        one, two = voice("one").invoke("?"), voice("two").invoke("?")
        voice("to nobody").invoke("?")
        return {"messages": [AIMessage("first"), one, HumanMessage("between"), two, AIMessage("last")]}

    assert written(turns(journal, node)) == 6


def test_a_request_and_its_result_by_hand(journal: RunJournal) -> None:
    """A supervisor writes both when an agent hands back: the result stands behind its request."""

    def node(state: MessagesState) -> dict[str, Any]:
        id = str(uuid4())
        asking = AIMessage("", tool_calls=[tool_call(name="back", args={}, id=id)])
        return {"messages": [voice().invoke("?"), asking, ToolMessage("done", tool_call_id=id)]}

    assert written(turns(journal, node)) == 4


def test_a_history_that_is_given_back_is_not_copied(journal: RunJournal) -> None:
    """A node returns all of it, or adds to the list of the state in place: events hold only what is new, once."""

    def whole(state: MessagesState) -> dict[str, Any]:
        return {"messages": [*state["messages"], voice().invoke("?")]}

    def in_place(state: MessagesState) -> Any:
        state["messages"].append(AIMessage("added"))
        return state

    def copied(state: MessagesState) -> dict[str, Any]:
        return {"messages": [message.model_copy() for message in state["messages"]]}

    assert written(turns(journal, whole, in_place, copied)) == 2


def test_a_node_that_rewrites_the_history_says_nothing_new(journal: RunJournal) -> None:
    """A summary takes the place of the messages that it removes. The transcript leaves it out."""

    def shorten(state: MessagesState) -> dict[str, Any]:
        gone = [RemoveMessage(id=str(one.id)) for one in state["messages"][:-1]]
        return {"messages": [*gone, HumanMessage("a summary")]}

    builder = StateGraph(MessagesState).add_node("n", shorten).add_edge(START, "n")
    graph, run_id = attach(builder.compile(checkpointer=InMemorySaver()), journal), uuid4()
    graph.invoke({"messages": [("user", "one"), ("user", "two")]}, config("t", run_id))
    assert ends(journal, run_id) == []


# --- words that a node changes ------------------------------------------------------------------------------------------


def test_words_under_another_id(journal: RunJournal) -> None:
    """The node puts the model's words into a message of its own, or other words in their place."""
    turns(journal, lambda state: {"messages": [AIMessage(voice().invoke("?").text)]})
    found = turns(journal, lambda state: {"messages": [AIMessage(voice("secret").invoke("?").text.replace("e", "*"))]})
    assert [len(event.data["kept"]) for event in found] == [1, 1]


def test_words_that_are_changed_under_their_id(journal: RunJournal) -> None:
    """The node that asked changes them, or a later one: the transcript has them once, as the thread does."""

    def asks_and_hides(state: MessagesState) -> dict[str, Any]:
        said = voice("secret").invoke("?")
        return {"messages": [AIMessage("s*****", id=said.id)]}

    def hides(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("hidden", id=state["messages"][-1].id)]}

    def hides_in_place(state: MessagesState) -> dict[str, Any]:
        state["messages"][-1].content = "hidden"
        return {"messages": [state["messages"][-1]]}

    assert written(turns(journal, asks_and_hides)) == 2
    assert written(turns(journal, lambda state: {"messages": [voice("secret").invoke("?")]}, hides_in_place)) == 2
    assert written(turns(journal, lambda state: {"messages": [voice("secret").invoke("?")]}, hides)) == 2


def test_a_chunk_of_an_answer(journal: RunJournal) -> None:
    """A node may assemble what a model streams, and return that; or break off the stream."""

    def whole(state: MessagesState) -> dict[str, Any]:
        said = AIMessageChunk(content="")
        for chunk in voice().stream("?"):
            said += chunk
        return {"messages": [said]}

    def part(state: MessagesState) -> dict[str, Any]:
        for chunk in voice().stream("?"):
            return {"messages": [AIMessage(chunk.text, id=chunk.id)]}
        return {}

    turns(journal, whole)
    turns(journal, part)


@pytest.mark.parametrize("state", [MessagesState, Secret, Data])
def test_states_of_any_kind(state: Any, journal: RunJournal) -> None:
    """The state may be a dict, a pydantic model or a dataclass, and the node may return a command or a list of commands."""

    def keeps(state: Any) -> Any:
        voice("kept").invoke("?")
        return Command(update={})

    turns(journal, keeps, lambda state: Command(update={"messages": [voice().invoke("?")]}), state=state)
    turns(journal, keeps, lambda state: [Command(update={"messages": [voice().invoke("?")]})], state=state)
    turns(journal, lambda state: Command(update=[("messages", [voice().invoke("?")])]), state=state)


# --- graphs in graphs ---------------------------------------------------------------------------------------------------


@tool
def look() -> str:
    """Looks."""
    return "seen"


def test_graphs_as_nodes_and_in_nodes(journal: RunJournal) -> None:
    """An agent as a node returns all of its messages; of one that a node calls, the thread gets what the node returns of
    it."""
    scripts = [asks(("c1", "look", {})), words("done"), asks(("c2", "look", {})), words("done")]

    def agent(**options: Any) -> Any:
        return create_agent(Scripted(scripts=scripts), [look], name="inner", **options)

    turns(journal, agent())
    inner, on_its_own = agent(), agent(checkpointer=InMemorySaver())
    turns(journal, lambda state: {"messages": inner.invoke({"messages": [("user", "?")]})["messages"][-1:]})

    def elsewhere(state: MessagesState) -> dict[str, Any]:
        said = on_its_own.invoke(
            {"messages": [("user", "?")]}, {"configurable": {"thread_id": str(uuid4()), "checkpoint_ns": ""}}
        )
        return {"messages": said["messages"][-1:]}

    turns(journal, elsewhere)


def test_a_handover_to_the_graph_around(journal: RunJournal) -> None:
    """A command for the parent ends a graph by an exception. The thread gets what the command carries."""

    def inner(state: MessagesState) -> Any:
        said = voice("to hand over").invoke("?")
        voice("to nobody").invoke("?")
        return Command(graph=Command.PARENT, goto="other", update={"messages": [said]})

    sub = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner").compile()
    builder = StateGraph(MessagesState)
    builder.add_node("sub", sub, destinations=("other",))
    builder.add_node("other", lambda state: {"messages": [voice().invoke("?")]})
    builder.add_edge(START, "sub")
    graph, run_id = attach(builder.compile(checkpointer=InMemorySaver()), journal), uuid4()
    graph.invoke({"messages": [("user", "hi")]}, config("t", run_id))
    found = story(graph.get_state(config("t", uuid4())).values["messages"])
    assert story(journal.transcript(str(run_id))) == found == ["U hi", "A to hand over", TALK]


# --- states without messages --------------------------------------------------------------------------------------------


class Answer(TypedDict):
    question: str
    query: str
    answer: str
    score: int


def in_state(journal: RunJournal, *nodes: Callable[[Any], Any]) -> list[str]:
    """The answers in the transcript of a graph that keeps no messages."""
    builder, before = StateGraph(Answer), START
    for number, node in enumerate(nodes):
        builder.add_node(f"n{number}", node)
        builder.add_edge(before, f"n{number}")
        before = f"n{number}"
    run_id = uuid4()
    handler = JournalCallbackHandler(journal)
    builder.compile().invoke({"question": "?"}, {"callbacks": [handler], "run_id": run_id})
    return [line for line in story(journal.transcript(str(run_id))) if not line.startswith("U")]


def test_an_answer_counts_wherever_its_words_stand(journal: RunJournal) -> None:
    """The node puts the words into a value of the state, into a longer text, or into a message."""
    assert in_state(journal, lambda state: {"answer": voice().invoke("?").text}) == [TALK]
    assert in_state(journal, lambda state: {"answer": f"So: {voice().invoke('?').text}!"}) == [TALK]
    assert in_state(journal, lambda state: {"answer": voice().invoke("?")}) == [TALK]


def test_an_answer_that_is_not_in_the_state_does_not_count(journal: RunJournal) -> None:
    """The node returns something else. Where nothing can be compared, the answer counts."""

    def both(state: Any) -> dict[str, Any]:
        voice("to nobody").invoke("?")
        return {"answer": voice().invoke("?").text}

    assert in_state(journal, both) == [TALK]
    assert in_state(journal, lambda state: {"query": voice('{"query": "rice"}').invoke("?").text[11:-2]}) == []
    assert in_state(journal, lambda state: {"score": len(voice().invoke("?").text)}) == [TALK]


def test_the_functional_api(journal: RunJournal) -> None:
    """An answer counts if a task returns it, and then the entrypoint."""

    @task
    def classify() -> str:
        voice("to nobody").invoke("?")
        return "cooking"

    @task
    def talk() -> str:
        return voice().invoke("?").text

    @entrypoint()
    def chat(inputs: Any) -> Any:
        classify().result()
        said = talk().result()
        return entrypoint.final(value=said, save={"messages": [said]})

    for inputs in ({"messages": [("user", "hi")]}, {"question": "hi"}):
        run_id = uuid4()
        chat.invoke(inputs, {"callbacks": [JournalCallbackHandler(journal)], "run_id": run_id})
        assert story(journal.transcript(str(run_id)))[-1] == TALK
        assert "to nobody" not in str(journal.transcript(str(run_id)))


# --- the fold -----------------------------------------------------------------------------------------------------------


def test_journals_of_an_older_release_read_as_they_did() -> None:
    """That release recorded by the next event what a task kept."""

    def said(id: str, text: str, **more: Any) -> list[Event]:
        message = {"type": "ai", "data": {"type": "ai", "content": text, "id": id}}
        start = Event(run_id="r", kind="llm.start", data={"role": "answer", **more}, call_id=id)
        return [start, Event(run_id="r", kind="llm.ai.response", data={"message": message}, call_id=id)]

    events = [*said("a", "kept"), *said("b", "one", unused=["a"]), *said("c", "two", replaces=["b"])]
    end = Event(run_id="r", kind="run.end", data={"unused": ["c"]})
    assert [message["data"]["content"] for message in transcript("r", events)] == ["two"]
    assert transcript("r", [*events, end]) == []


def test_a_system_message_of_a_node(journal: RunJournal) -> None:
    """The transcript has it as any other message of the state."""
    builder = StateGraph(MessagesState).add_node("n", lambda state: {"messages": [SystemMessage("be kind")]})
    run_id = uuid4()
    builder.add_edge(START, "n").compile().invoke(
        {"messages": [("user", "hi")]}, {"callbacks": [JournalCallbackHandler(journal)], "run_id": run_id}
    )
    assert [message.type for message in journal.transcript(str(run_id))] == ["human", "system"]
