"""The real client packages, asked over a wire: no tool runs with arguments that were cut, whichever provider cut them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_runjournal import RunJournal, attach, guard, is_partial, is_synthetic
from langchain_runjournal.messages.cut_calls import ENDPOINTS, GIVES_REASON
from tests.support.cut_wire import CLIENTS, Client, Wire, wire

agents = pytest.importorskip("langchain.agents")

WHOLE = '{"command": "delete only /tmp/a"}'
HALF = '{"command": "delete only '
PROVIDERS = {
    "aws": "amazon_bedrock",
    "google-genai": "google_genai",
    "mistralai": "mistral",
    "openai-responses": "openai",
}
"""How LangChain names the provider of a package, where that is another name."""


@pytest.fixture(autouse=True)
def _no_reason_is_known() -> Any:
    """What other tests have taught this process is not known here."""
    known, ENDPOINTS._known = ENDPOINTS._known, set()
    yield
    ENDPOINTS._known = known


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: Any) -> Client:
    found: Client = request.param
    return found


@pytest.fixture
def server() -> Any:
    with wire() as found:
        yield found


@pytest.fixture(params=["astream", "invoke"])
def way(request: Any) -> str:
    return str(request.param)


def streams(way: str) -> bool:
    return "stream" in way


def run(graph: Any, way: str, config: Any = None) -> list[Any]:
    """The messages that the graph ends with."""
    inputs, last = {"messages": [("user", "clean up")]}, {}

    async def astream() -> Any:
        async for mode, chunk in graph.astream(inputs, config, stream_mode=["messages", "values"]):
            if mode == "values":
                last.update(chunk)
        return last

    if way == "stream":
        for mode, chunk in graph.stream(inputs, config, stream_mode=["messages", "values"]):
            if mode == "values":
                last.update(chunk)
    elif way == "astream":
        asyncio.run(astream())
    else:
        last = graph.invoke(inputs, config) if way == "invoke" else asyncio.run(graph.ainvoke(inputs, config))
    return list(last["messages"])


class Ran(list[str]):
    """What a tool was run with."""

    def tool(self) -> Any:
        @tool
        def run(command: str = "") -> str:
            """Run a command."""
            self.append(command)
            return "ran"

        return run


def set_up(client: Client, server: Wire, *middleware: Any) -> tuple[Any, Ran]:
    ran = Ran()
    return agents.create_agent(client.make(server.url), [ran.tool()], middleware=list(middleware)), ran


CUTS: dict[str, Callable[[Client], tuple[str, str | None]]] = {
    "half, without a reason": lambda client: (HALF, None),
    "half, at the limit": lambda client: (HALF, client.full),
    "whole, without a reason": lambda client: (WHOLE, None),
    "whole, at the limit": lambda client: (WHOLE, client.full),
}


def cut_of(client: Client, name: str, way: str) -> tuple[str, str | None]:
    """The arguments and the reason of an answer that is cut; skipped where this client cannot get such an answer."""
    args, reason = CUTS[name](client)
    if args == HALF and not client.as_text:
        pytest.skip("this provider sends each call whole")
    if reason is None and client.fails_early and streams(way):
        pytest.skip("this client raises by itself when a stream ends early")
    if reason is None and not streams(way) and client.name in ("openai-responses", "anthropic", "aws"):
        pytest.skip("an answer in one piece says how it ended, or does not parse")
    return args, reason


def known(client: Client, way: str) -> list[Any]:
    """The answers of a first turn. From there on the server is known to give a reason, behind calls as well."""
    asks = client.say([("call_0", "run", WHOLE)], client.done, stream=streams(way))
    return [asks, client.say([], client.done, stream=streams(way), text="hello")]


@pytest.mark.guarantee("half tool calls")
@pytest.mark.parametrize("name", CUTS)
def test_no_tool_runs_with_arguments_that_were_cut(client: Client, server: Wire, way: str, name: str) -> None:
    """The model gets a result that says so, and goes on."""
    args, reason = cut_of(client, name, way)
    agent, ran = set_up(client, server, guard.ToolPairGuard())
    says = known(client, way)
    says.append(client.say([("call_1", "run", args)], reason, stream=streams(way)))
    says.append(client.say([], client.done, stream=streams(way), text="done"))
    server.answers += says
    run(agent, way)
    messages = run(agent, way)
    assert ran == ["delete only /tmp/a"]  # of the first turn
    asking, told, last = messages[-3:]
    assert is_partial(asking)
    assert asking.additional_kwargs["runjournal"]["reason"] == ("length" if reason else "incomplete")
    assert is_synthetic(told)
    assert "Not executed" in told.content
    assert told.tool_call_id == asking.tool_calls[0]["id"]
    assert "done" in str(last.content)
    assert "Not executed" in str(server.asked[-1])
    assert not server.answers


def test_a_whole_call_runs(client: Client, server: Wire, way: str) -> None:
    """What has come whole, with its reason, is run as without the guard."""
    agent, ran = set_up(client, server, guard.ToolPairGuard())
    server.answers.append(client.say([("call_1", "run", WHOLE)], client.done, stream=streams(way)))
    server.answers.append(client.say([], client.done, stream=streams(way), text="done"))
    messages = run(agent, way)
    assert ran == ["delete only /tmp/a"]
    assert not any(is_partial(one) or is_synthetic(one) for one in messages)


def test_a_model_that_never_gave_a_reason_is_trusted(client: Client, server: Wire, way: str) -> None:
    """A server that speaks the protocol and leaves the reason out keeps working."""
    if client.fails_early or not streams(way):
        pytest.skip("this client wants the reason")
    agent, ran = set_up(client, server, guard.ToolPairGuard())
    server.answers.append(client.say([("call_1", "run", WHOLE)], None, stream=True))
    server.answers.append(client.say([], None, stream=True, text="done"))
    run(agent, way)
    assert ran == ["delete only /tmp/a"]


def test_without_the_guard_half_a_call_is_run(client: Client, server: Wire) -> None:
    """So the tests above can fail. Where a provider sends calls whole, it is the call of an answer that was cut."""
    agent, ran = set_up(client, server)
    server.answers.append(client.say([("call_1", "run", HALF)], client.full, stream=True))
    server.answers.append(client.say([], client.done, stream=True, text="done"))
    run(agent, "stream")
    assert ran == (["delete only "] if client.as_text else [""])


def hand_made(client: Client, server: Wire, **options: Any) -> tuple[Any, Ran]:
    """A model, a `ToolNode`, and nothing that guards them."""
    ran = Ran()
    model = client.make(server.url).bind_tools([ran.tool()])

    def ask(state: Any, config: RunnableConfig) -> Any:
        return {"messages": [model.invoke(state["messages"], config)]}

    async def aask(state: Any, config: RunnableConfig) -> Any:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", RunnableLambda(ask, aask))
    graph.add_node("tools", ToolNode([ran.tool()], **options))
    graph.add_edge(START, "model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
    return graph.compile(), ran


@pytest.mark.parametrize("name", CUTS)
def test_an_attached_graph_refuses_what_was_cut(client: Client, server: Wire, way: str, name: str) -> None:
    """A graph made by hand: `ToolNode` makes a result of the refusal, and the model goes on."""
    args, reason = cut_of(client, name, way)
    graph, ran = hand_made(client, server)
    says = known(client, way)
    says.append(client.say([("call_1", "run", args)], reason, stream=streams(way)))
    says.append(client.say([], client.done, stream=streams(way), text="done"))
    server.answers += says
    with RunJournal(":memory:") as journal:
        attached = attach(graph, journal)
        run(attached, way)
        messages = run(attached, way)
        recorded = journal.transcript(journal.runs()[0].run_id)
    assert ran == ["delete only /tmp/a"]  # of the first turn
    results = [one for one in messages if isinstance(one, ToolMessage)]
    if results:
        assert [one.status for one in results] == ["error"]
        assert "Not executed" in results[0].content
        assert "done" in str(messages[-1].content)
    else:  # LangChain could not read the arguments either: nothing was to run
        assert args == HALF
        assert not streams(way)
    asking = next(one for one in recorded if is_partial(one))
    assert asking.additional_kwargs["runjournal"]["reason"] == ("length" if reason else "incomplete")


def test_each_client_gives_a_reason_where_the_table_says_so(client: Client, server: Wire) -> None:
    """The table names the providers as LangChain does, and each of them was seen to give its reason, in both ways."""
    provider = PROVIDERS.get(client.name, client.name)
    assert provider in GIVES_REASON
    agent, _ = set_up(client, server, guard.ToolPairGuard())
    for way in ("stream", "invoke"):
        ENDPOINTS._known.clear()
        server.answers.append(client.say([], client.done, stream=streams(way), text="done"))
        run(agent, way)
        assert [endpoint[0] for endpoint in ENDPOINTS._known] == [provider]
