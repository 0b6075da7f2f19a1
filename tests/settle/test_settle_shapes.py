"""Graphs of all shapes: each is settled and its next turn is right, or it is left alone with a reason; and what `attach`
keeps."""

from __future__ import annotations

import asyncio
import dataclasses
import operator
import uuid
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import pytest
from langchain_core._api import LangChainBetaWarning
from langchain_core.callbacks import BaseCallbackHandler, CallbackManager
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict

import langchain_runjournal
from langchain_runjournal import JournalCallbackHandler, RunJournal, errors
from langchain_runjournal.settle.saver import JournalSaver
from tests.settle.test_settle import (
    CALLS,
    CUT,
    THREAD,
    Asked,
    Tools,
    both,
    cut_off,
    kinds,
    made_by_hand,
    made_by_langchain,
    model,
    say,
    shown,
    thread,
    without_recovered,
)
from tests.support.agents import asks, words
from tests.support.attached import warnings_of

# Most models here are called by `invoke`, and the tests look at what they have said.
attach = partial(langchain_runjournal.attach, capture_invoke=True)


HALF = [*words("one ", "two "), RuntimeError("boom")]
TURNS = (words("hello"), HALF, words("fine"))


# --- shapes of state ----------------------------------------------------------------------------------------------------


class Pydantic(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages]
    mood: str = "good"


@dataclasses.dataclass
class Data:
    messages: Annotated[list[AnyMessage], add_messages]
    mood: str = "good"


class Growing(TypedDict):
    messages: Annotated[list[Any], operator.add]
    mood: str


class Whole(TypedDict):
    messages: list[AnyMessage]
    mood: str


def last_eight(left: list[Any], right: list[Any]) -> list[Any]:
    return add_messages(left or [], right)[-8:]


class Trimmed(TypedDict):
    messages: Annotated[list[AnyMessage], last_eight]
    mood: str


def folded(state: Sequence[Any], writes: Sequence[Any]) -> list[Any]:
    found = list(state or [])
    for write in writes:
        found = add_messages(found, write)
    return found


class Differences(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(folded)]
    mood: str


ROOT: Any = Annotated[list[AnyMessage], add_messages]


def messages_of(state: Any) -> list[Any]:
    if isinstance(state, dict):
        return list(state.get("messages", []))
    return list(state) if isinstance(state, list) else list(state.messages)


def talking(asked: Asked, *, keeps_all: bool = False, is_root: bool = False) -> Callable[[Any, RunnableConfig], Any]:
    """Return a node that asks the model."""

    def talk(state: Any, config: RunnableConfig) -> Any:
        found = messages_of(state)
        said = [asked.invoke(found, config)]
        given = [*found, *said] if keeps_all else said
        return given if is_root else {"messages": given}

    # With annotations, LangGraph would give the node another state.
    talk.__annotations__ = {"config": RunnableConfig}
    return talk


def one_node(schema: Any, asked: Asked, **about: Any) -> Any:
    graph = StateGraph(schema)
    graph.add_node("talk", talking(asked, **about))
    graph.add_edge(START, "talk")
    return graph.compile(checkpointer=InMemorySaver())


STATES = {
    "pydantic": (Pydantic, {}),
    "dataclass": (Data, {}),
    "root": (ROOT, {"is_root": True}),
    "grows": (Growing, {}),
    "trimmed": (Trimmed, {}),
    "differences": (Differences, {}),
}


@pytest.mark.guarantee("nothing pending")
@pytest.mark.parametrize("shape", STATES)
def test_states_of_all_shapes(shape: str, journal: RunJournal) -> None:
    """The thread holds history, question and partial answer, once and in order, and the next turn gets them."""
    schema, about = STATES[shape]
    asked = model(*TURNS)
    graph = one_node(schema, asked, **about)
    agent = attach(graph, journal)
    assert isinstance(agent, type(graph))

    def give(text: str) -> Any:
        said = [HumanMessage(text)]
        return said if shape == "root" else {"messages": said, "mood": "good"}

    agent.invoke(give("first"), THREAD)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(give("hi"), THREAD)
    state = agent.get_state(THREAD)
    cut = ["U first", "A hello", "U hi", "A~ one two "]
    assert (shown(messages_of(state.values)), state.next, state.tasks) == (cut, (), ())
    agent.invoke(give("next"), THREAD)
    assert shown(asked.seen[-1]) == [*cut, "U next"]
    assert shown(messages_of(agent.get_state(THREAD).values)) == [*cut, "U next", "A fine"]
    assert journal.runs()[1].settled
    if shape != "root":
        assert agent.get_state(THREAD).values["mood"] == "good"


def test_a_list_without_a_reducer_keeps_its_past(journal: RunJournal) -> None:
    """Without a reducer, a settlement writes the whole list, and keeps the past."""
    asked = model(*TURNS)
    agent = attach(one_node(Whole, asked, keeps_all=True), journal)
    agent.invoke({"messages": [HumanMessage("first")]}, THREAD)
    past = agent.get_state(THREAD).values["messages"]
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke({"messages": [*past, HumanMessage("hi")]}, THREAD)
    cut = ["U first", "A hello", "U hi", "A~ one two "]
    assert thread(agent) == cut
    agent.invoke({"messages": [*agent.get_state(THREAD).values["messages"], HumanMessage("next")]}, THREAD)
    assert shown(asked.seen[-1]) == [*cut, "U next"]


@pytest.mark.parametrize("form", ["dict", "tuple"])
def test_a_list_that_only_grows_may_hold_other_forms_of_messages(form: str, journal: RunJournal) -> None:
    """The settlement understands a dict or a tuple in the list, and does not change it."""

    def give(text: str) -> Any:
        return {"messages": [{"role": "user", "content": text} if form == "dict" else ("user", text)]}

    asked = model(*TURNS)
    agent = attach(one_node(Growing, asked), journal)
    agent.invoke(give("first"), THREAD)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(give("hi"), THREAD)
    found = agent.get_state(THREAD).values["messages"]
    given = [give(text)["messages"][0] for text in ("first", "hi")]
    # The checkpointer returns a tuple as a list.
    assert [type(one)(found[at]) for at, one in ((0, given[0]), (2, given[1]))] == given
    assert shown([found[1], *found[3:]]) == ["A hello", "A~ one two "]
    agent.invoke(give("next"), THREAD)
    assert [getattr(one, "content", None) for one in agent.get_state(THREAD).values["messages"]][-1] == "fine"
    assert len(asked.seen[-1]) == 5


@pytest.mark.parametrize("shape", ["grows", "differences"])
def test_calls_in_states_without_ids(shape: str, journal: RunJournal) -> None:
    """Where messages are only ever added, a settlement and the turn after it add each result once."""
    tools = Tools()
    asked = model(CALLS, words("fine"))
    schema = Growing if shape == "grows" else Differences
    graph = StateGraph(schema)
    graph.add_node("talk", talking(asked))
    graph.add_node("tools", ToolNode(tools.all))
    graph.add_edge(START, "talk")
    graph.add_conditional_edges("talk", _where, ["tools", END])
    graph.add_edge("tools", "talk")
    agent = attach(graph.compile(checkpointer=InMemorySaver()), journal)
    cut_off(agent, tools, given={"messages": [HumanMessage("hi")]})
    assert without_recovered(thread(agent)) == CUT
    agent.invoke({"messages": [HumanMessage("next")]}, THREAD)
    assert without_recovered(shown(asked.seen[-1])) == [*CUT, "U next"]


def _where(state: Any) -> str:
    return "tools" if messages_of(state)[-1].tool_calls else END


class Todos(MessagesState):
    todos: Annotated[list[str], operator.add]
    mood: str


@pytest.mark.parametrize("make", [made_by_hand, made_by_langchain], ids=["hand", "agent"])
def test_what_finished_tools_wrote_elsewhere_is_kept(make: Any, journal: RunJournal) -> None:
    """The to-do of a tool that finished beside a failed one is in the state, if LangGraph has stored it."""
    tools = Tools()

    @tool
    def plan(x: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Plans."""
        return Command(update={"todos": ["think"], "messages": [ToolMessage("planned", tool_call_id=tool_call_id)]})

    asked = model(asks(("c1", "plan", {"x": 1}), ("c2", "slow", {"x": 2})), words("fine"))
    if make is made_by_langchain:
        from langchain.agents import AgentState

        class WithTodos(AgentState[Any]):
            todos: Annotated[list[str], operator.add]

        graph = make(asked, [plan, *tools.all], checkpointer=tools.saver, state_schema=WithTodos)
    else:
        builder = StateGraph(Todos)
        builder.add_node("talk", talking(asked))
        builder.add_node("tools", ToolNode([plan, *tools.all]))
        builder.add_edge(START, "talk")
        builder.add_conditional_edges("talk", _where, ["tools", END])
        builder.add_edge("tools", "talk")
        graph = builder.compile(checkpointer=InMemorySaver())
    agent = attach(graph, journal)
    cut_off(agent, tools, given={**say("hi"), "todos": ["begin"]})
    assert without_recovered(thread(agent)) == ["U hi", "A Looking. (c1,c2)", "T c1=planned", "T* c2=failed"]
    # In a node that runs all the calls, the journal knows only the messages of a finished call, and LangGraph knows nothing.
    assert agent.get_state(THREAD).values["todos"] == ["begin", "think"][: 2 if make is made_by_langchain else 1]
    agent.invoke(say("next"), THREAD)
    assert len(agent.get_state(THREAD).values["todos"]) == (2 if make is made_by_langchain else 1)


# --- ways through a graph -----------------------------------------------------------------------------------------------


def test_a_graph_that_is_routed_by_its_nodes(journal: RunJournal) -> None:
    """A graph that is routed by Command(goto=...) and has no edges is left with no task to run."""
    asked = model(*TURNS)
    graph = StateGraph(MessagesState)

    def front(state: MessagesState) -> Command[Any]:
        return Command(goto="talk")

    def talk(state: MessagesState, config: RunnableConfig) -> Command[Any]:
        return Command(goto="back", update={"messages": [asked.invoke(state["messages"], config)]})

    passed: list[int] = []
    front.__annotations__, talk.__annotations__ = {}, {"config": RunnableConfig}
    graph.add_node("front", front, destinations=("talk",))
    graph.add_node("talk", talk, destinations=("back",))
    graph.add_node("back", lambda state: passed.append(1))
    graph.add_edge(START, "front")
    _three_turns(attach(graph.compile(checkpointer=InMemorySaver()), journal), asked, journal)
    assert len(passed) == 2


def _three_turns(agent: Any, asked: Asked, journal: RunJournal) -> None:
    cut = ["U first", "A hello", "U hi", "A~ one two "]
    agent.invoke(say("first"), THREAD)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"), THREAD)
    state = agent.get_state(THREAD)
    assert (shown(state.values["messages"]), state.next, state.tasks) == (cut, (), ())
    agent.invoke(say("next"), THREAD)
    assert shown(asked.seen[-1]) == [*cut, "U next"]
    assert thread(agent) == [*cut, "U next", "A fine"]
    assert [run.status for run in journal.runs()] == ["completed", "failed", "completed"]
    assert journal.runs()[1].settled


def test_a_router_at_the_start_is_not_called_for_a_settlement(journal: RunJournal) -> None:
    """A settlement does not call the program's router at the start if another entry node is possible."""
    asked, calls = model(*TURNS), []

    def route(state: MessagesState) -> str:
        calls.append(len(state["messages"]))
        return "talk"

    graph = StateGraph(MessagesState)
    graph.add_node("talk", talking(asked))
    graph.add_conditional_edges(START, route, ["talk"])
    _three_turns(attach(graph.compile(checkpointer=InMemorySaver()), journal), asked, journal)
    assert len(calls) == 3


def _all_routed(asked: Asked, route: Callable[[Any], str]) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("talk", talking(asked))
    graph.add_conditional_edges(START, route, ["talk"])
    graph.add_conditional_edges("talk", lambda state: END, [END])
    return graph.compile(checkpointer=InMemorySaver())


def test_a_router_is_not_called(journal: RunJournal) -> None:
    """If every entry node has a router, a settlement writes in the name of one, and does not call its router."""
    asked, calls = model(*TURNS), []

    def route(state: Any) -> str:
        calls.append(len(state["messages"]))
        return "talk"

    _three_turns(attach(_all_routed(asked, route), journal), asked, journal)
    assert len(calls) == 3


def test_a_router_that_raises(journal: RunJournal) -> None:
    """It does not keep a thread from being settled, because a settlement does not call it."""
    asked, broken = model(*TURNS), [False]

    def route(state: Any) -> str:
        if broken[0] and messages_of(state)[-1].type == "ai":
            raise ValueError("I only take questions")
        return "talk"

    agent = attach(_all_routed(asked, route), journal)
    agent.invoke(say("first"), THREAD)
    broken[0] = True
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"), THREAD)
    run = journal.runs()[0]
    assert run.settled
    broken[0] = False
    agent.invoke(say("next"), THREAD)
    assert shown(asked.seen[-1]) == ["U first", "A hello", "U hi", "A~ one two ", "U next"]


@pytest.mark.parametrize("routed", [False, True])
def test_a_join_is_not_left_half_full(routed: bool, journal: RunJournal) -> None:
    """A node that waits for two others still waits for both after a run in which one of them failed."""
    asked, order = model(*TURNS, words("more")), []
    graph = StateGraph(MessagesState)
    # Add it first, so that it would be the node in whose name a settlement writes.
    graph.add_node("aside", lambda state: order.append("aside"))
    graph.add_node("before", lambda state: {})
    graph.add_node("then", lambda state: {})
    graph.add_node("talk", talking(asked))
    graph.add_node("join", lambda state: order.append(shown(messages_of(state))[-1]))
    if routed:
        graph.add_conditional_edges(START, lambda state: ["talk", "before"], ["talk", "before"])
    else:
        graph.add_edge(START, "talk")
        graph.add_edge(START, "before")
    graph.add_edge("before", "then")
    graph.add_edge("then", "aside")
    graph.add_edge(["talk", "aside"], "join")
    agent = attach(graph.compile(checkpointer=InMemorySaver()), journal)
    _three_turns(agent, asked, journal)
    assert order == ["aside", "A hello", "aside", "A fine"]
    agent.invoke(say("again"), THREAD)
    assert order[4:] == ["aside", "A more"]


# --- states that cannot be written --------------------------------------------------------------------------------------


class Notes(TypedDict):
    notes: Annotated[list[str], operator.add]
    answer: str


def test_a_state_without_messages_is_left_alone_and_says_so(journal: RunJournal) -> None:
    """Nothing is written, the run records why, the journal keeps its words, and the next turn works."""
    asked = model(*TURNS)

    def talk(state: Notes, config: RunnableConfig) -> dict[str, Any]:
        return {"answer": asked.invoke(state["notes"][-1], config).content}

    talk.__annotations__ = {"config": RunnableConfig}
    graph = StateGraph(Notes)
    graph.add_node("talk", talk)
    graph.add_edge(START, "talk")
    agent = attach(graph.compile(checkpointer=InMemorySaver()), journal)
    agent.invoke({"notes": ["first"]}, THREAD)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke({"notes": ["hi"]}, THREAD)
    run = journal.runs()[0]
    [settled] = [event.data for event in journal.read(run.run_id) if event.kind == "run.settled"]
    assert (settled["outcome"], run.settled, run.given_up) == ("left_alone", False, True)
    assert run.problem == settled["reason"]
    assert settled["reason"] == "its state has no `messages` (it has: answer, notes)"
    assert agent.get_state(THREAD).values == {"notes": ["first", "hi"], "answer": "hello"}
    assert shown(journal.transcript(run.run_id))[-1] == "A~ one two "
    agent.invoke({"notes": ["next"]}, THREAD)
    assert agent.get_state(THREAD).values == {"notes": ["first", "hi", "next"], "answer": "fine"}


def test_an_input_without_messages_is_no_hindrance(journal: RunJournal) -> None:
    """A settlement writes through a node that writes messages, although the input has none; the question itself is not a
    message."""

    class Question(TypedDict):
        question: str

    class State(MessagesState):
        question: str

    asked = model(*TURNS)

    def put(state: State) -> dict[str, Any]:
        return {"messages": [HumanMessage(state["question"])]}

    graph = StateGraph(State, input_schema=Question)
    put.__annotations__ = {}
    graph.add_node("put", put)
    graph.add_node("talk", talking(asked))
    graph.add_edge(START, "put")
    graph.add_edge("put", "talk")
    agent = attach(graph.compile(checkpointer=InMemorySaver()), journal)
    agent.invoke({"question": "first"}, THREAD)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke({"question": "hi"}, THREAD)
    state = agent.get_state(THREAD)
    cut = ["U first", "A hello", "U hi", "A~ one two "]
    assert (shown(state.values["messages"]), state.next, state.values["question"]) == (cut, (), "hi")
    agent.invoke({"question": "next"}, THREAD)
    assert shown(asked.seen[-1]) == [*cut, "U next"]


def test_a_function_as_a_graph_is_settled_in_what_it_saves(journal: RunJournal) -> None:
    """The value that an entrypoint saves for its next call holds the user's words and the partial answer."""
    asked = model(*TURNS)

    @entrypoint(checkpointer=InMemorySaver())
    def talk(text: str, *, previous: Any = None, config: RunnableConfig) -> Any:
        found = [*(previous or []), HumanMessage(text)]
        return entrypoint.final(value=None, save=[*found, asked.invoke(found, config)])

    agent = attach(talk, journal)
    agent.invoke("first", THREAD)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke("hi", THREAD)
    run = journal.runs()[0]
    [settled] = [event.data for event in journal.read(run.run_id) if event.kind == "run.settled"]
    assert settled["outcome"] == "settled"
    agent.invoke("next", THREAD)
    assert shown(asked.seen[-1]) == ["U first", "A hello", "U+ hi", "A~ one two ", "U next"]


@pytest.mark.parametrize("checkpointer", [None, False])
def test_a_graph_without_a_checkpointer_is_only_journaled(checkpointer: Any, journal: RunJournal) -> None:
    """Without a thread, the run is recorded as it is, and the journal keeps its words."""
    agent = attach(made_by_hand(model(HALF), [], checkpointer=checkpointer), journal)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"))
    [run] = journal.runs()
    assert (run.status, run.settled) == ("failed", True)
    assert shown(journal.transcript(run.run_id)) == ["U hi", "A~ one two "]


class Noted(TypedDict):
    note: str


def test_a_graph_that_cannot_be_settled_says_so_once(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """The log warns once for each graph that cannot be settled, and not for each of its runs."""

    def broken(state: Any) -> Any:
        raise RuntimeError("boom")

    for name in ("first", "second"):
        graph: Any = StateGraph(Noted).add_node("broken", broken).add_edge(START, "broken")
        agent = attach(graph.compile(checkpointer=InMemorySaver(), name=name), journal)
        for number in range(3):
            with pytest.raises(RuntimeError, match="boom"):
                agent.invoke({"note": "hi"}, {"configurable": {"thread_id": f"{number % 2}"}})
    first, second = warnings_of(caplog)
    assert "'first' are journaled, and their threads left as they are" in first
    assert "'second' are journaled" in second
    assert [kinds(journal, run.run_id).count("run.settled") for run in journal.runs()] == [1] * 6


# --- graphs in graphs ---------------------------------------------------------------------------------------------------


def _nested(asked: Asked, tools: Tools, checkpointer: Any, journal: RunJournal) -> Any:
    inner = made_by_hand(asked, tools.all, checkpointer=checkpointer, name="inner")
    graph = StateGraph(MessagesState)
    graph.add_node("inner", inner)
    graph.add_edge(START, "inner")
    return attach(graph.compile(checkpointer=InMemorySaver(), name="outer"), journal)


@pytest.mark.parametrize("checkpointer", [None, True, False], ids=["inherited", "persistent", "stateless"])
def test_graphs_in_graphs(checkpointer: Any, journal: RunJournal) -> None:
    """The thread of the outer graph holds what an inner agent did, with a result for every request.

    The inner agent's own thread, if it has one, is valid as well.
    """
    tools = Tools()
    asked = model(CALLS, words("fine"))
    agent = _nested(asked, tools, checkpointer, journal)
    cut_off(agent, tools)
    assert without_recovered(thread(agent)) == CUT
    state = agent.get_state(THREAD, subgraphs=True)
    assert (state.next, state.tasks) == ((), ())
    if checkpointer is True:
        inner = agent.get_state({"configurable": {"thread_id": "t", "checkpoint_ns": "inner"}})
        assert (without_recovered(shown(inner.values["messages"])), inner.next) == (CUT, ())
    agent.invoke(say("next"), THREAD)
    seen = without_recovered(shown(asked.seen[-1]))
    assert [line for line in seen if line.startswith("T")] == CUT[2:]
    assert (seen[:4], seen[-1]) == (CUT, "U next")
    assert without_recovered(thread(agent))[-2:] == ["U next", "A fine"]


def test_an_agent_as_a_tool_of_an_agent(journal: RunJournal) -> None:
    """The outer thread holds the outer request and its result, and not the inner agent's words."""
    inner = made_by_hand(model(HALF), [], name="inner")

    @tool
    def delegate(x: int, config: RunnableConfig) -> str:
        """Asks another agent."""
        return str(inner.invoke(say("do"), config)["messages"][-1].content)

    asked = model(asks(("c1", "delegate", {"x": 1})), words("fine"))
    agent = attach(made_by_hand(asked, [delegate], checkpointer=InMemorySaver()), journal)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"), THREAD)
    assert thread(agent) == ["U hi", "A Looking. (c1)", "T* c1=failed"]
    agent.invoke(say("next"), THREAD)
    assert shown(asked.seen[-1]) == ["U hi", "A Looking. (c1)", "T* c1=failed", "U next"]
    assert len(journal.runs()) == 2


@pytest.mark.parametrize("checkpointer", ["own", "inherited"])
def test_an_attached_graph_in_an_attached_graph(checkpointer: str, journal: RunJournal) -> None:
    """It is one run, recorded once and settled once, in the outer thread."""
    tools = Tools()
    asked = model(CALLS, words("fine"))
    own = {"checkpointer": InMemorySaver()} if checkpointer == "own" else {}
    inner = attach(made_by_hand(asked, tools.all, name="inner", **own), journal)
    graph = StateGraph(MessagesState)
    graph.add_node("inner", inner)
    graph.add_edge(START, "inner")
    agent = attach(graph.compile(checkpointer=InMemorySaver(), name="outer"), journal)
    cut_off(agent, tools)
    [run] = journal.runs()
    assert (run.name, run.settled) == ("outer", True)
    assert [
        kinds(journal, run.run_id).count(kind) for kind in ("run.start", "llm.human.input", "run.settled", "run.end")
    ] == [
        1,
        1,
        1,
        1,
    ]
    assert without_recovered(thread(agent)) == CUT
    agent.invoke(say("next"), THREAD)
    assert without_recovered(thread(agent))[-2:] == ["U next", "A fine"]


def test_a_deep_agent(journal: RunJournal) -> None:
    """A deep agent is settled, whose messages are kept as differences, with files and to-dos beside them."""
    deepagents = pytest.importorskip("deepagents")
    tools = Tools()
    asked = model(CALLS, words("fine"))
    graph = deepagents.create_deep_agent(asked, tools.all, checkpointer=tools.saver)
    agent = attach(graph, journal)
    cut_off(agent, tools, given={**say("hi"), "files": {}})
    assert thread(agent) == CUT
    assert agent.get_state(THREAD).next == ()
    agent.invoke(say("next"), THREAD)
    assert [line for line in shown(asked.seen[-1]) if not line.startswith("S")] == [*CUT, "U next"]


@both
def test_a_graph_inside_that_remembers_gives_each_result_once(make: Any, journal: RunJournal) -> None:
    """Results of an inner graph with its own thread appear once, also two turns later, under the ids that they have
    there."""
    tools, asked = Tools(), model(CALLS, words("fine"), words("more"))
    inner = make(asked, tools.all, checkpointer=True, name="inner")
    graph: Any = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner")
    agent = attach(graph.compile(checkpointer=tools.saver, name="outer"), journal)
    cut_off(agent, tools)
    agent.invoke(say("next"), THREAD)
    agent.invoke(say("again"), THREAD)
    assert without_recovered(thread(agent)) == [*CUT, "U next", "A fine", "U again", "A more"]
    for messages in (agent.get_state(THREAD).values["messages"], *asked.seen[1:]):
        results = [one.tool_call_id for one in messages if one.type == "tool"]
        assert results == ["c1", "c2"]


# --- attach -------------------------------------------------------------------------------------------------------------


class Counting(BaseCallbackHandler):
    """A handler of the program that counts its calls."""

    def __init__(self) -> None:
        self.began: list[str] = []

    def on_chain_start(self, serialized: Any, inputs: Any, *, name: str | None = None, **about: Any) -> None:
        self.began.append(str(name))


def _attached(journal: RunJournal, *scripts: Any, **options: Any) -> tuple[Any, Asked]:
    asked = model(*(scripts or (words("hello"),)))
    return attach(made_by_hand(asked, [], checkpointer=InMemorySaver(), name="agent"), journal, **options), asked


def _one_run(journal: RunJournal, status: str = "completed") -> None:
    [run] = journal.runs()
    assert (run.name, run.status, run.thread_id) == ("agent", status, "t")
    found = kinds(journal, run.run_id)
    assert [found.count(kind) for kind in ("run.start", "llm.human.input", "llm.start", "run.end")] == [1, 1, 1, 1]


def _invoke(agent: Any) -> Any:
    return agent.invoke(say("hi"), THREAD)


def _stream(agent: Any) -> Any:
    return list(agent.stream(say("hi"), THREAD, stream_mode="messages"))


def _batch(agent: Any) -> Any:
    return agent.batch([say("hi")], THREAD)


async def _ainvoke(agent: Any) -> Any:
    return await agent.ainvoke(say("hi"), THREAD)


async def _astream(agent: Any) -> Any:
    return [chunk async for chunk in agent.astream(say("hi"), THREAD, stream_mode="messages")]


async def _abatch(agent: Any) -> Any:
    return await agent.abatch([say("hi")], THREAD)


async def _astream_events(agent: Any) -> Any:
    return [event async for event in agent.astream_events(say("hi"), THREAD, version="v2")]


WAYS = [_invoke, _stream, _batch, _ainvoke, _astream, _abatch, _astream_events]


def _call(way: Any, agent: Any) -> Any:
    return asyncio.run(way(agent)) if asyncio.iscoroutinefunction(way) else way(agent)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_to_call_is_recorded_once(way: Any, journal: RunJournal) -> None:
    """Every way to call records one complete run, with nothing to settle."""
    agent, _ = _attached(journal)
    assert _call(way, agent)
    _one_run(journal)
    assert "run.settled" not in kinds(journal, journal.runs()[0].run_id)
    assert thread(agent) == ["U hi", "A hello"]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_to_call_is_settled(way: Any, journal: RunJournal) -> None:
    """The caller gets the run's exception after the thread is settled, and the settlement itself is not recorded as a
    run."""
    agent, _ = _attached(journal, HALF)
    with pytest.raises(RuntimeError, match="boom"):
        _call(way, agent)
    _one_run(journal, "failed")
    assert kinds(journal, journal.runs()[0].run_id)[-2:] == ["run.settled", "run.end"]
    assert thread(agent) == ["U hi", "A~ one two "]
    assert agent.get_state(THREAD).next == ()


def test_the_state_is_read_and_written_as_before(journal: RunJournal) -> None:
    """Reads and writes of the state by the program are not recorded as runs."""
    agent, _ = _attached(journal)
    agent.update_state(THREAD, say("by hand"), as_node="__start__")
    assert thread(agent) == ["U by hand"]
    asyncio.run(_update(agent))
    assert journal.runs() == []
    assert [len(state.values.get("messages", [])) for state in agent.get_state_history(THREAD)][:2] == [2, 1]


async def _update(agent: Any) -> None:
    await agent.aupdate_state(THREAD, say("again"), as_node="__start__")
    assert shown((await agent.aget_state(THREAD)).values["messages"]) == ["U by hand", "U again"]


def test_copies_are_attached_as_well(journal: RunJournal) -> None:
    """The copies of `with_config`, `copy` and `bind` stay attached, and nothing is recorded twice."""
    agent, _ = _attached(journal, HALF)
    for number, other in enumerate([agent.with_config(tags=["x"]), agent.copy(), agent.with_config({"metadata": {"a": 1}})]):
        config: RunnableConfig = {"configurable": {"thread_id": f"t{number}"}}
        with pytest.raises(RuntimeError, match="boom"):
            other.invoke(say("hi"), config)
        assert thread(agent, config) == ["U hi", "A~ one two "]
        assert len(journal.runs(thread_id=f"t{number}")) == 1


def test_the_graph_itself_stays_as_it_was(journal: RunJournal) -> None:
    """`attach` returns a copy: the original records nothing, and keeps its saver and config."""
    saver = InMemorySaver()
    graph = made_by_hand(model(words("hello")), [], checkpointer=saver, name="agent")
    config = graph.config
    agent = attach(graph, journal)
    assert agent is not graph
    assert (graph.checkpointer, graph.config) == (saver, config)
    graph.invoke(say("hi"), THREAD)
    assert journal.runs() == []
    assert isinstance(agent.checkpointer, JournalSaver)
    assert agent.checkpointer.saver is saver
    assert agent.get_name() == "agent"
    assert set(agent.nodes) == set(graph.nodes)


@pytest.mark.parametrize("as_manager", [False, True], ids=["list", "manager"])
@pytest.mark.parametrize("where", ["graph", "call"])
def test_the_callbacks_of_the_user_are_kept(where: str, as_manager: bool, journal: RunJournal) -> None:
    """The callbacks of the graph and of the call are kept, as a list or as a manager."""
    mine = Counting()
    callbacks: Any = CallbackManager([mine], [mine]) if as_manager else [mine]
    asked = model(HALF)
    graph = made_by_hand(asked, [], checkpointer=InMemorySaver(), name="agent")
    if where == "graph":
        graph = graph.with_config(callbacks=callbacks)
    agent = attach(graph, journal)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"), {**THREAD, **({"callbacks": callbacks} if where == "call" else {})})
    assert mine.began == ["agent", "model", "answer"]
    _one_run(journal, "failed")
    assert thread(agent) == ["U hi", "A~ one two "]


@pytest.mark.parametrize("as_manager", [False, True], ids=["list", "manager"])
def test_attached_twice_it_is_attached_once(as_manager: bool, journal: RunJournal) -> None:
    """A graph that is attached twice to one journal is recorded once and settled once."""
    graph = made_by_hand(model(HALF), [], checkpointer=InMemorySaver(), name="agent")
    if as_manager:
        graph = graph.with_config(callbacks=CallbackManager([]))
    agent = attach(attach(graph, journal), journal)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"), THREAD)
    _one_run(journal, "failed")
    assert kinds(journal, journal.runs()[0].run_id).count("run.settled") == 1


def test_two_journals_of_one_graph(journal: RunJournal) -> None:
    """Each of two journals records the run, and the thread gets everything once."""
    with RunJournal(":memory:") as other:
        tools = Tools()
        agent = attach(attach(made_by_hand(model(CALLS), tools.all, checkpointer=InMemorySaver()), journal), other)
        cut_off(agent, tools)
        for one in (journal, other):
            [run] = one.runs()
            assert (run.settled, kinds(one, run.run_id).count("run.end")) == (True, 1)
        assert without_recovered(thread(agent)) == CUT


@pytest.mark.parametrize("where", ["call", "graph"])
def test_a_handler_of_the_same_journal_beside_it(where: str, journal: RunJournal) -> None:
    """A program that also passes a `JournalCallbackHandler` gets one record and one settlement."""
    handler = JournalCallbackHandler(journal)
    graph = made_by_hand(model(HALF), [], checkpointer=InMemorySaver(), name="agent")
    if where == "graph":
        graph = graph.with_config(callbacks=[handler])
    agent = attach(graph, journal)
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"), {**THREAD, **({"callbacks": [handler]} if where == "call" else {})})
    _one_run(journal, "failed")
    assert thread(agent) == ["U hi", "A~ one two "]


@pytest.mark.parametrize("attached", [True, False])
@pytest.mark.parametrize("way", ["sequence", "tool", "node"])
def test_as_a_part_of_something_else(way: str, attached: bool, journal: RunJournal) -> None:
    """In a chain, a tool or a node of another graph, an attached graph causes neither two records nor an exception of this
    package.

    Its own thread, where it has one, is left in a state from which the next turn works.
    """
    agent, asked = _attached(journal, HALF, words("fine"))
    config: RunnableConfig = THREAD if not attached else {**THREAD, "callbacks": [JournalCallbackHandler(journal)]}
    if way == "sequence":
        around: Any = RunnableLambda(lambda text: say(text)) | agent
    elif way == "tool":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LangChainBetaWarning)
            around = agent.as_tool(arg_types={"messages": list}, name="agent", description="Talks.")
    else:
        graph = StateGraph(MessagesState)
        graph.add_node("agent", agent)
        graph.add_edge(START, "agent")
        around = graph.compile()
    given: Any = "hi" if way == "sequence" else say("hi")
    with pytest.raises(RuntimeError, match="boom"):
        around.invoke(given, config)
    # On a thread of its own, the graph is a separate run, also inside of another one.
    each = 2 if attached and way != "node" else 1
    runs = journal.runs()
    assert len(runs) == each
    for run in runs:
        assert kinds(journal, run.run_id).count("run.end") == 1
    if way != "node":
        [settled] = [run for run in runs if "run.settled" in kinds(journal, run.run_id)]
        assert settled.name == agent.get_name()
        assert agent.get_state(THREAD).next == ()
    around.invoke("next" if way == "sequence" else say("next"), config)
    assert shown(asked.seen[-1])[-1] == "U next"
    assert len(journal.runs()) == 2 * each


def test_a_run_id_of_the_caller(journal: RunJournal) -> None:
    """The caller's run id names the run, as without the journal."""
    agent, _ = _attached(journal, HALF)
    run_id = uuid.uuid4()
    with pytest.raises(RuntimeError, match="boom"):
        agent.invoke(say("hi"), {**THREAD, "run_id": run_id})
    assert [run.run_id for run in journal.runs()] == [str(run_id)]


@pytest.mark.parametrize("checkpointer", [None, True])
def test_what_can_be_attached_without_a_saver(checkpointer: Any, journal: RunJournal) -> None:
    """A graph that is to be a part of another one can be attached without a checkpointer."""
    graph = made_by_hand(model(words("hello")), [], checkpointer=checkpointer, name="agent")
    agent = attach(graph, journal)
    assert agent.checkpointer is checkpointer


@pytest.mark.parametrize("thing", [None, "graph", RunnableLambda(lambda x: x), StateGraph(MessagesState)])
def test_what_cannot_be_attached(thing: Any, journal: RunJournal) -> None:
    """A TypeError says what to pass instead."""
    with pytest.raises(errors.NotAttachable, match=r"compiled LangGraph graph .* may get its checkpointer later") as caught:
        attach(thing, journal)
    assert isinstance(caught.value, TypeError)


def test_what_it_is_attached_with() -> None:
    """`attach` refuses anything but a journal and one of the three modes of `settle`."""
    graph = made_by_hand(model(words("hello")), [], checkpointer=InMemorySaver())
    wrong: Any = "runs.db"
    with pytest.raises(errors.InvalidArgument, match="journal must be a RunJournal"):
        attach(graph, wrong)
    with RunJournal(":memory:") as opened, pytest.raises(errors.InvalidArgument, match="on_stop"):
        wrong = "sometimes"
        attach(graph, opened, settle=wrong)
