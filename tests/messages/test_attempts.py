"""Of several attempts the last one that showed something stands: a retry that says nothing takes nothing away."""

from __future__ import annotations

import asyncio
import operator
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelFallbackMiddleware, ModelRetryMiddleware
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, messages_from_dict
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import RetryPolicy
from typing_extensions import TypedDict

from langchain_runjournal import Event, JournalCallbackHandler, Run, RunJournal, attach, start_run
from langchain_runjournal.messages.transcript import transcript
from langchain_runjournal.timeline.timeline import timeline
from tests.support.agents import asks, words
from tests.support.conversations import Gate, Recording, end_of, nothing_is_wrong, story

pytestmark = pytest.mark.guarantee("partial answer")

KINDS = ("with_retry", "with_fallbacks", "RetryPolicy", "ModelRetryMiddleware", "ModelFallbackMiddleware")
AGENTS = ("ModelRetryMiddleware", "ModelFallbackMiddleware")
GIVEN_UP = "given up"
SETTLING = "settling"
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


# --- a run that completes all the same ----------------------------------------------------------------------------------

FAILED = "A Model call failed after 2 attempts with ConnectionError: lost"


def check_completed(journal: RunJournal, run_id: str, thread: list[Any], left: list[str]) -> None:
    """The run says that it has completed and is settled; thread, transcript and page hold the same."""
    run = journal.run(run_id)
    assert (run.status, run.settled, run.problem) == ("completed", True, None)
    told, page, _ = views(journal, run_id)
    assert story(thread) == told == left
    assert page == as_page(left)


@each_place
@pytest.mark.parametrize("entry", ["astream", "start_run"])
def test_middleware_that_goes_on_without_an_answer(place: str, entry: str, journal: RunJournal) -> None:
    """With `on_failure="continue"`, what was shown stands before what the middleware says, marked as partial."""
    skip_on_3_10("ModelRetryMiddleware")

    async def scenario() -> None:
        model, run_id = Recording(scripts=[*([STEP] if place == "second step" else []), BROKEN, SILENT]), uuid4()
        agent = attach(program("ModelRetryMiddleware", model, InMemorySaver(), on_failure="continue"), journal)
        await TURNS[entry](agent, journal, config(run_id))
        await end_of(journal, str(run_id))
        left = ["U hi", *(STEPPED if place == "second step" else ()), "A~ one two ", FAILED]
        state = await agent.aget_state(config())
        check_completed(journal, str(run_id), state.values["messages"], left)
        assert not state.next
        model.say(words("fine"))
        await agent.ainvoke(say("next"), config())
        assert story(model.seen[-1]) == [*left, "U next"]
        assert story((await agent.aget_state(config())).values["messages"]) == [*left, "U next", "A fine"]

    asyncio.run(scenario())


@each_place
def test_middleware_that_goes_on_without_a_loop(place: str, journal: RunJournal) -> None:
    """The same in calls that block."""
    model, run_id = Recording(scripts=[*([STEP] if place == "second step" else []), BROKEN, SILENT]), uuid4()
    agent = attach(program("ModelRetryMiddleware", model, InMemorySaver(), on_failure="continue"), journal)
    list(agent.stream(say(), config(run_id), stream_mode="messages"))
    left = ["U hi", *(STEPPED if place == "second step" else ()), "A~ one two ", FAILED]
    check_completed(journal, str(run_id), agent.get_state(config()).values["messages"], left)


def node(invoke: Callable[..., dict[str, Any]], saver: Any = None, state: Any = MessagesState) -> Any:
    """A graph with one node, which calls models without a loop."""

    def answer(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return invoke(state["messages"], config)

    return StateGraph(state).add_node("answer", answer).add_edge(START, "answer").compile(checkpointer=saver, name="agent")


def instead(*models: Any, says: str = "Sorry", **more: Any) -> Callable[..., dict[str, Any]]:
    """Asks one model after the other until one of them does not fail, and else says something by itself."""

    def invoke(messages: list[Any], config: RunnableConfig) -> dict[str, Any]:
        for model in models:
            try:
                return {"messages": [model.invoke(messages, config)]}
            except ConnectionError:
                continue
        return {"messages": [AIMessage(says, **more)]}

    return invoke


def one_turn(graph: Any, journal: RunJournal, **options: Any) -> tuple[str, Any]:
    """The id of the run, and the attached graph."""
    agent, run_id = attach(graph, journal, **options), uuid4()
    list(agent.stream(say(), config(run_id), stream_mode="messages"))
    return str(run_id), agent


def test_a_node_that_says_so_itself(journal: RunJournal) -> None:
    """A node of one's own that catches the error is like that middleware; the message may have an id, or get one."""
    for more in ({}, {"id": "mine"}):
        model = Recording(scripts=[BROKEN, SILENT])
        run_id, agent = one_turn(node(instead(model, model, **more), InMemorySaver()), journal)
        left = ["U hi", "A~ one two ", "A Sorry"]
        check_completed(journal, run_id, agent.get_state(config()).values["messages"], left)
        [settled] = [event.data for event in journal.read(run_id) if event.kind == "run.settled"]
        assert [(one["origin"], one["inserted"]) for one in settled["messages"]] == [("partial", True)]


def test_an_error_handler_of_a_node(journal: RunJournal) -> None:
    """What it says stands for the node, behind what the node had shown."""
    model = Recording(scripts=[BROKEN, SILENT])
    graph = StateGraph(MessagesState).add_node(
        "answer",
        lambda state, config: {"messages": [model.invoke(state["messages"], config)]},
        error_handler=lambda state: {"messages": [AIMessage("Sorry")]},
        retry_policy=RetryPolicy(initial_interval=0.001, jitter=False, max_attempts=2),
    )
    graph.add_edge(START, "answer")
    agent, run_id = attach(graph.compile(checkpointer=InMemorySaver()), journal, capture_invoke=True), uuid4()
    agent.invoke(say(), config(run_id))  # LangGraph 1.2.4 calls no error handler in a stream of messages
    left = ["U hi", "A~ one two ", "A Sorry"]
    check_completed(journal, str(run_id), agent.get_state(config()).values["messages"], left)


def test_a_node_that_tells_the_words_itself(journal: RunJournal) -> None:
    """They stand in its own message, and so once."""
    model = Recording(scripts=[BROKEN])
    run_id, agent = one_turn(node(instead(model, says="I got this far: one two, then it broke"), InMemorySaver()), journal)
    assert story(journal.transcript(run_id)) == ["U hi", "A I got this far: one  two, then it broke".replace("  ", " ")]
    assert story(agent.get_state(config()).values["messages"]) == story(journal.transcript(run_id))


def test_a_node_that_says_something_else_under_the_id_of_the_words(journal: RunJournal) -> None:
    """Its message takes the place of what was shown, as `add_messages` and a page would have it."""
    model = Recording(scripts=[[AIMessageChunk(content="one ", id="m"), LOST]])
    run_id, agent = one_turn(node(instead(model, id="m"), InMemorySaver()), journal)
    check_completed(journal, run_id, agent.get_state(config()).values["messages"], ["U hi", "A Sorry"])


def test_a_helper_that_is_cut_never_comes_back(journal: RunJournal) -> None:
    """What serves the program only is not part of the conversation, whatever its node says instead."""
    model = Recording(scripts=[BROKEN, SILENT])
    helper = model.with_config(tags=["nostream"])
    for options, one in (({"capture_invoke": True}, helper), ({"answers": "another"}, model)):
        model.say(BROKEN, SILENT)
        graph = node(instead(one, one), InMemorySaver())
        graph.nodes["another"] = graph.nodes["answer"]
        run_id, agent = one_turn(graph, journal, **options)
        assert story(agent.get_state(config()).values["messages"]) == ["U hi", "A Sorry"]
        assert story(journal.transcript(run_id)) == ["U hi", "A Sorry"]


def test_what_a_task_kept_to_itself_never_comes_back(journal: RunJournal) -> None:
    """A node that gives a model's answer, or nothing, has done without the calls that were cut."""

    def beside(messages: list[Any], config: RunnableConfig) -> dict[str, Any]:
        given = model.invoke(messages, config)
        instead(model, model)(messages, config)
        return {"messages": [given]}

    def nothing(messages: list[Any], config: RunnableConfig) -> dict[str, Any]:
        instead(model, model)(messages, config)
        return {}

    for invoke, scripts, left in ((beside, [words("fine")], ["U hi", "A fine"]), (nothing, [], ["U hi"])):
        model = Recording(scripts=[*scripts, BROKEN, SILENT])
        run_id, agent = one_turn(node(invoke, InMemorySaver()), journal)
        assert story(agent.get_state(config()).values["messages"]) == left
        assert story(journal.transcript(run_id)) == left


def test_a_node_that_makes_its_message_of_other_answers(journal: RunJournal) -> None:
    """Of models asked at the same time one fails, and the node goes on with what the others said: it did without it."""
    whole, fails = Recording(scripts=[words("alpha ", "beta")]), Recording(scripts=[BROKEN])

    def gather(messages: list[Any], config: RunnableConfig) -> dict[str, Any]:
        other = whole.stream(messages, config)
        said = next(other).text
        with pytest.raises(ConnectionError):
            fails.invoke(messages, config)
        return {"messages": [AIMessage("Summary: " + said + "".join(chunk.text for chunk in other))]}

    run_id, agent = one_turn(node(gather, InMemorySaver()), journal)
    left = ["U hi", "A Summary: alpha beta"]
    check_completed(journal, run_id, agent.get_state(config()).values["messages"], left)


def test_a_node_that_stops_its_model_itself(journal: RunJournal) -> None:
    """A guard that breaks off a stream and says something else does not want the words: they never come back."""
    model = Recording(scripts=[words("one ", "secret ", "two ")])

    def guarded(messages: list[Any], config: RunnableConfig) -> dict[str, Any]:
        for chunk in model.stream(messages, config):
            if "secret" in chunk.text:
                return {"messages": [AIMessage("I cannot say that")]}
        raise AssertionError("it was said")

    run_id, agent = one_turn(node(guarded, InMemorySaver()), journal)
    left = ["U hi", "A I cannot say that"]
    check_completed(journal, run_id, agent.get_state(config()).values["messages"], left)
    assert "secret" in "".join(event.text for event in journal.read(run_id))


def test_a_completed_run_is_given_nothing_else(journal: RunJournal) -> None:
    """A request that a run leaves to its caller, a page for example, stays open."""
    asking, model = Recording(scripts=[asks(("c9", "in_the_browser", {}))]), Recording(scripts=[BROKEN])
    graph = StateGraph(MessagesState)
    for name, invoke in (("a", instead(asking)), ("b", instead(model))):
        graph.add_node(name, lambda state, config, invoke=invoke: invoke(state["messages"], config)).add_edge(START, name)
    run_id, agent = one_turn(graph.compile(checkpointer=InMemorySaver()), journal)
    thread = agent.get_state(config()).values["messages"]
    assert story(thread) == ["U hi", "A Looking. (c9)", "A~ one two ", "A Sorry"]
    assert sorted(story(journal.transcript(run_id))) == sorted(story(thread))


def test_a_graph_inside_of_a_completed_run_is_left_alone(journal: RunJournal) -> None:
    """Its open requests as well, where it remembers on its own."""
    asking, model = Recording(scripts=[asks(("c9", "in_the_browser", {}))]), Recording(scripts=[BROKEN])
    inner = StateGraph(MessagesState).add_node("ask", lambda state, config: instead(asking)(state["messages"], config))
    graph = StateGraph(MessagesState).add_node("a", inner.add_edge(START, "ask").compile(checkpointer=True))
    graph.add_node("b", lambda state, config: instead(model)(state["messages"], config))
    graph.add_edge(START, "a").add_edge("a", "b")
    _, agent = one_turn(graph.compile(checkpointer=InMemorySaver()), journal)
    left = ["U hi", "A Looking. (c9)", "A~ one two ", "A Sorry"]
    assert story(agent.get_state(config()).values["messages"]) == left
    inside: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "a"}}
    assert story(agent.get_state(inside).values["messages"]) == left[:2]


def test_a_helper_stands_for_no_answer(journal: RunJournal) -> None:
    """A model that is asked for a wording after the answer was cut has not given another answer."""
    model, helper = Recording(scripts=[BROKEN]), Recording(scripts=[words("apologise")]).with_config(tags=["nostream"])

    def invoke(messages: list[Any], config: RunnableConfig) -> dict[str, Any]:
        try:
            return {"messages": [model.invoke(messages, config)]}
        except ConnectionError:
            helper.invoke(messages, config)
            return {"messages": [AIMessage("Sorry")]}

    run_id, agent = one_turn(node(invoke, InMemorySaver()), journal, capture_invoke=True)
    left = ["U hi", "A~ one two ", "A Sorry"]
    check_completed(journal, run_id, agent.get_state(config()).values["messages"], left)


def test_an_agent_inside_of_a_node(journal: RunJournal) -> None:
    """Its model step gives a message of its own, and the node around it hands that on: also behind a tool, and where the
    node calls the agent by itself."""
    for by_itself in (False, True):
        model = Recording(scripts=[STEP, BROKEN, SILENT])
        inner = program("ModelRetryMiddleware", model, None, on_failure="continue")

        def call(messages: list[Any], config: RunnableConfig, inner: Any = inner) -> dict[str, Any]:
            return {"messages": inner.invoke({"messages": messages}, config)["messages"]}

        outer = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner")
        graph = node(call, InMemorySaver()) if by_itself else outer.compile(checkpointer=InMemorySaver())
        agent, run_id = attach(graph, journal, capture_invoke=True), uuid4()
        agent.invoke(say(), config(run_id))
        left = ["U hi", *STEPPED, "A~ one two ", FAILED]
        check_completed(journal, str(run_id), agent.get_state(config()).values["messages"], left)


class Growing(TypedDict):
    """A state that only ever grows."""

    messages: Annotated[list[Any], operator.add]


def test_a_state_without_add_messages(journal: RunJournal) -> None:
    """The words stand in their place also where the reducer knows no ids, and where messages are dicts."""
    told = {"role": "assistant", "content": "Sorry"}
    for given, saver in (({"role": "user", "content": "hi"}, InMemorySaver()), (HumanMessage("hi"), InMemorySaver())):
        model = Recording(scripts=[BROKEN])
        failing = instead(model)

        def invoke(messages: list[Any], config: RunnableConfig, failing: Any = failing, given: Any = given) -> Any:
            found = failing(messages, config)
            return {"messages": [told]} if isinstance(given, dict) else found

        agent, run_id = attach(node(invoke, saver, Growing), journal), uuid4()
        list(agent.stream({"messages": [given]}, config(run_id), stream_mode="messages"))
        found = agent.get_state(config()).values["messages"]
        said = [one["content"] if isinstance(one, dict) else one.text for one in found]
        assert said == ["hi", "one two ", "Sorry"]
        assert story(journal.transcript(str(run_id))) == ["U hi", "A~ one two ", "A Sorry"]


@pytest.mark.parametrize("cell", [name for name, cell in CELLS.items() if cell.ends == "fails"])
def test_a_chain_without_a_graph(cell: str, journal: RunJournal) -> None:
    """The same rule for retries and fallbacks of a bare chain."""
    scripts = CELLS[cell].attempts(Gate())
    for name in ("with_retry", "with_fallbacks"):
        model, run_id = Recording(scripts=scripts), uuid4()
        chain: Any = model.with_retry(stop_after_attempt=len(scripts), wait_exponential_jitter=False)
        if name == "with_fallbacks":
            chain = model.with_fallbacks([model] * (len(scripts) - 1))
        with pytest.raises(ConnectionError):
            chain.invoke("hi", {"callbacks": [JournalCallbackHandler(journal, capture_invoke=True)], "run_id": run_id})
        assert views(journal, str(run_id))[:2] == (["U hi", CELLS[cell].left], ["U hi", CELLS[cell].left])


def test_a_handler_alone(journal: RunJournal) -> None:
    """The transcript holds what was shown, also where nothing can be settled."""
    model, run_id = Recording(scripts=[BROKEN, SILENT]), uuid4()
    graph = node(instead(model, model))
    list(graph.stream(say(), {"callbacks": [JournalCallbackHandler(journal)], "run_id": run_id}, stream_mode="messages"))
    assert story(journal.transcript(str(run_id))) == ["U hi", "A~ one two ", "A Sorry"]


@pytest.mark.parametrize("settle", ["on_stop", "never"])
def test_who_settles_a_run_that_has_completed(settle: Any, journal: RunJournal) -> None:
    """A run that is not to be settled by itself says that its thread lacks something; any other is settled at once."""
    run_id, agent = one_turn(node(instead(Recording(scripts=[BROKEN])), InMemorySaver()), journal, settle=settle)
    run, thread = journal.run(run_id), story(agent.get_state(config()).values["messages"])
    assert story(journal.transcript(run_id)) == ["U hi", "A~ one two ", "A Sorry"]
    if settle == "on_stop":
        assert (run.status, run.settled, thread) == ("completed", True, ["U hi", "A~ one two ", "A Sorry"])
    else:
        assert (run.status, run.settled, thread) == ("completed", False, ["U hi", "A Sorry"])
        assert "settle='never'" in str(run.problem)


def test_a_call_that_goes_on_when_the_run_completes(journal: RunJournal) -> None:
    """It is not part of the conversation, as in any run that completes; only what a task gave up is added."""

    async def scenario() -> None:
        gate, model = Gate(), Recording(scripts=[BROKEN])
        other = Recording(scripts=[[*words("I go on "), gate.apass, *words("and on")]])
        left: list[asyncio.Task[Any]] = []

        async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            left.append(asyncio.create_task(other.ainvoke(state["messages"], config)))
            await gate.reached.wait()
            return instead(model)(state["messages"], config)

        graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
        agent, run_id = attach(graph.compile(checkpointer=InMemorySaver()), journal, capture_invoke=True), uuid4()
        await _streams(agent, journal, config(run_id))
        gate.open()
        await asyncio.wait(left)
        thread = (await agent.aget_state(config())).values["messages"]
        check_completed(journal, str(run_id), thread, ["U hi", "A~ one two ", "A Sorry"])

    asyncio.run(scenario())


def test_a_call_that_is_cancelled_while_its_completed_run_is_settled(journal: RunJournal) -> None:
    """The settlement comes to its end, once, and the run has completed."""

    async def scenario() -> None:
        gate = Gate()

        class Slow(InMemorySaver):
            async def aput(self, *args: Any) -> Any:
                if args[2]["source"] == "update" and not gate.reached.is_set():
                    await gate.apass()
                return await super().aput(*args)

        agent, run_id = attach(node(instead(Recording(scripts=[BROKEN])), Slow()), journal), uuid4()
        task = asyncio.create_task(_streams(agent, journal, config(run_id)))
        await asyncio.wait_for(gate.reached.wait(), 30)
        task.cancel()
        await asyncio.sleep(0)
        gate.open()
        await asyncio.wait([task])
        await end_of(journal, str(run_id))
        left = ["U hi", "A~ one two ", "A Sorry"]
        check_completed(journal, str(run_id), (await agent.aget_state(config())).values["messages"], left)
        ends = [event.kind for event in journal.read(str(run_id)) if event.kind in ("run.settled", "run.end")]
        assert ends == ["run.settled", "run.end"]

    asyncio.run(scenario())


def test_a_checkpointer_that_fails_then(journal: RunJournal) -> None:
    """The run says that its thread lacks something, and the next message puts it there first."""

    class Failing(InMemorySaver):
        fails = False

        def put(self, *args: Any) -> Any:
            if self.fails and args[2]["source"] == "update":
                raise OSError("disk")
            return super().put(*args)

    saver, model = Failing(), Recording(scripts=[BROKEN])
    saver.fails = True
    run_id, agent = one_turn(node(instead(model), saver), journal)
    run = journal.run(run_id)
    assert (run.status, run.settled, run.problem) == ("completed", False, "OSError: disk")
    saver.fails = False
    model.say(words("fine"))
    list(agent.stream(say("next"), config(), stream_mode="messages"))
    left = ["U hi", "A~ one two ", "A Sorry"]
    assert story(agent.get_state(config()).values["messages"]) == [*left, "U next", "A fine"]
    check_completed(journal, run_id, agent.get_state(config()).values["messages"][:3], left)


def test_a_run_that_is_cut_after_such_a_message(journal: RunJournal) -> None:
    """The words stand before what the node said instead of them, also when a later node is stopped."""

    async def scenario() -> None:
        gate, model = Gate(), Recording(scripts=[BROKEN])

        async def later(state: Any) -> dict[str, Any]:
            await gate.apass()
            return {}

        graph = StateGraph(MessagesState).add_node("answer", lambda state, config: instead(model)(state["messages"], config))
        graph.add_node("later", later).add_edge(START, "answer").add_edge("answer", "later")
        agent, run_id = attach(graph.compile(checkpointer=InMemorySaver()), journal), uuid4()
        task = asyncio.create_task(_streams(agent, journal, config(run_id)))
        await asyncio.wait_for(gate.reached.wait(), 30)
        task.cancel()
        await asyncio.wait([task])
        left = ["U hi", "A~ one two ", "A Sorry"]
        assert journal.run(str(run_id)).status == "interrupted"
        assert story((await agent.aget_state(config())).values["messages"]) == left
        assert views(journal, str(run_id))[:2] == (left, as_page(left))

    asyncio.run(scenario())


# --- the rule -----------------------------------------------------------------------------------------------------------


def _said(id: str, *parts: str, **start: Any) -> list[Event]:
    """A call that has begun, with its deltas."""
    deltas = [Event(run_id="r", kind="llm.ai.delta", data={"text": part}, call_id=id) for part in parts]
    return [Event(run_id="r", kind="llm.start", data={"role": "answer", **start}, call_id=id), *deltas]


def _failed(id: str) -> list[Event]:
    return [Event(run_id="r", kind="llm.error", data={"error": "x"}, call_id=id)]


def _cut(id: str) -> list[Event]:
    return [*_failed(id), Event(run_id="r", kind="llm.ai.partial", data={"error": "x"}, call_id=id)]


def _mark(kind: Any, id: str | None = None, **data: Any) -> list[Event]:
    return [Event(run_id="r", kind=kind, data=data, call_id=id)]


_WHOLE = {"message": {"type": "ai", "data": {"type": "ai", "content": "whole", "id": "m"}}}
_STOP: Any = _mark("run.end", status="interrupted", cause="stop")
_COMPLETED: Any = _mark("run.checkpoint", completed=True)
_TRIED = [*_said("a", "one"), *_cut("a"), *_said("b", replaces=["a"])]
READ = {
    "words behind its own end outdo nothing": (
        [*_TRIED, *_mark("llm.ai.partial", "b"), *_mark("llm.ai.delta", "b", text="late"), *_STOP],
        ["A~ one"],
    ),
    "words behind the end of the run": ([*_TRIED, *_STOP, *_mark("llm.ai.delta", "b", text="late")], ["A~ one"]),
    "a message behind the end of the run": ([*_TRIED, *_STOP, *_mark("llm.ai.response", "b", **_WHOLE)], ["A~ one"]),
    "a late message": ([*_TRIED, *_mark("llm.ai.response", "b", late=True, **_WHOLE), *_STOP], ["A~ one"]),
    "a call that began late": ([*_TRIED[:4], *_said("b", "late", replaces=["a"], late=True), *_STOP], ["A~ one"]),
    "only blanks": ([*_TRIED, *_mark("llm.ai.delta", "b", text=" \n"), *_cut("b"), *_STOP], ["A~ one"]),
    "only a thought": (
        [*_TRIED, *_mark("llm.ai.delta", "b", blocks=[{"type": "thinking", "thinking": "hm", "index": 0}]), *_STOP],
        ["A~ one"],
    ),
    "only half a request": (
        [*_TRIED, *_mark("llm.ai.delta", "b", tool_calls=[{"name": "f", "args": "{", "id": "c", "index": 0}]), *_STOP],
        ["A~ one"],
    ),
    "a whole message": ([*_TRIED, *_mark("llm.ai.response", "b", **_WHOLE), *_STOP], ["A whole"]),
    "two that one attempt replaces": (
        [*_said("a", "one"), *_cut("a"), *_said("b", "two"), *_cut("b"), *_said("c", replaces=["a", "b"]), *_STOP],
        ["A~ one", "A~ two"],
    ),
    "an older release: the task kept the last attempt": (
        [*_TRIED, *_failed("b"), *_mark("task.end", gave=[], kept=["b"]), *_said("c", "more"), *_STOP],
        ["A~ more"],
    ),
    "an older release: the run has completed": (
        [*_TRIED, *_failed("b"), *_mark("task.end", gave=[], kept=["b"]), *_mark("run.end", status="completed")],
        [],
    ),
    "a helper is asked": (
        [*_TRIED[:4], *_said("b", "hm", replaces=["a"], role="helper"), *_mark("llm.ai.response", "b", **_WHOLE), *_STOP],
        ["A~ one"],
    ),
    "its graph has come to its end": (
        [*_TRIED, *_failed("b"), *_mark("task.end", kept=["b"], shown=["a"]), *_said("c", "two"), *_COMPLETED],
        ["A~ one"],
    ),
    "it goes on": (_TRIED, ["A~ one"]),
    "calls that replace each other": ([*_TRIED, *_said("a", replaces=["b"]), *_STOP], ["A~ one"]),
}


@pytest.mark.parametrize("name", READ)
def test_what_outdoes_an_attempt(name: str) -> None:
    """A message, or something visible, in time; the page counts the same calls."""
    events, left = READ[name]
    assert story(messages_from_dict(transcript("r", events))) == left
    line = timeline(Run(run_id="r"), events)
    if name not in ("its graph has come to its end", "an older release: the run has completed"):
        answers = [call for call in line.models if call.role == "answer" and not call.late]
        counted = [call.text.strip() for call in answers if not (call.replaced or call.unused)]
        assert [text for text in counted if text] == [line.partition(" ")[2] for line in left]


# --- programs that are killed -------------------------------------------------------------------------------------------


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Dies(AgentMiddleware):
    """Kills the program when the model has been given up."""

    def after_agent(self, state: Any, runtime: Any) -> None:
        _die()


def _given_up(saver: Any, *scripts: list[Any], dies: bool) -> Any:
    """An agent that goes on without an answer, and may be killed then."""
    model = Recording(scripts=list(scripts))
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False, on_failure="continue")
    last = Dies() if dies else AgentMiddleware()
    return create_agent(model, [quick], middleware=[retry, last], checkpointer=saver, name="agent")


def _killed(home: Path, kind: str, place: str) -> None:
    """In a process of its own: it is killed when the second attempt has begun, or has been given up, or when the run has
    completed and its thread is being settled."""
    steps = [STEP] if place == "second step" else []
    with SqliteSaver.from_conn_string(str(home / "threads.db")) as saver:
        graph = program(kind, Recording(scripts=[*steps, BROKEN, [_die]]), saver)
        if kind in (GIVEN_UP, SETTLING):
            graph = _given_up(saver, *steps, BROKEN, SILENT, dies=kind == GIVEN_UP)
        if kind == SETTLING:
            put = saver.put
            saver.put = lambda *args: _die() if args[2]["source"] == "update" else put(*args)
        agent = attach(graph, RunJournal(home / "runs.db"))
        list(agent.stream(say(), config(UUID(int=1)), stream_mode="messages"))


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What killed programs have left, by kind and place. One process forks all of them: it has imported everything."""
    home = tmp_path_factory.mktemp("killed")
    subprocess.run(
        [sys.executable, "-m", "tests.messages.test_attempts", str(home)], cwd=Path(__file__).parents[2], check=True
    )
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


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@each_place
@pytest.mark.parametrize("moment", [GIVEN_UP, SETTLING])
def test_a_program_that_is_killed_after_the_model_was_given_up(moment: str, place: str, homes: Path) -> None:
    """The words are recovered before what the middleware says, which the thread holds already."""
    home = homes / f"{moment} {place}"
    left = ["U hi", *(STEPPED if place == "second step" else ()), "A~ one two ", FAILED]
    with SqliteSaver.from_conn_string(str(home / "threads.db")) as saver, RunJournal(home / "runs.db") as journal:
        agent = attach(_given_up(saver, words("fine"), dies=False), journal)
        assert [one.outcome for one in journal.recover(agent)] == ["settled"]
        thread = agent.get_state(config()).values["messages"]
        assert story(thread) == left
        assert views(journal, str(UUID(int=1)))[:2] == (left, as_page(left))
        assert journal.recover(agent) == []


def _kill_all(home: Path) -> None:
    for kind in (*KINDS, GIVEN_UP, SETTLING):
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
