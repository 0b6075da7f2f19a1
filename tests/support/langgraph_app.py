"""A server of scripted graphs for the clients of LangGraph Server, with gates that a client opens: `POST /gates/{key}`."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, StreamWriter
from starlette.applications import Starlette
from starlette.routing import Mount

from langchain_runjournal import RunJournal
from langchain_runjournal.server import create_app
from langchain_runjournal.testing import ScriptedChatModel
from tests.support.ai_sdk_app import Gates, gate_route, scripted_agent


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: Annotated[list[str], lambda one, other: one + other]


def company(saver: BaseCheckpointSaver[Any]) -> Any:
    """Return a graph with a router, two writers side by side, and a graph inside of it: no node is called "agent"."""
    model = ScriptedChatModel(lambda messages: f"Written about {messages[-1].text}.")

    async def write(state: dict[str, Any], writer: StreamWriter) -> dict[str, Any]:
        writer({"writing": state["topic"]})
        return {"notes": [state["topic"]]}

    def route(state: State) -> list[Send]:
        return [Send("write", {"topic": word}) for word in state["messages"][-1].text.split()]

    async def draft(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def sign(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage("Signed: " + " and ".join(state["notes"]), id=f"signed-{len(state['notes'])}")]}

    inner = StateGraph(MessagesState).add_node("draft", draft).add_edge(START, "draft").add_edge("draft", END).compile()
    whole = StateGraph(State).add_node("write", write).add_node("desk", inner).add_node("sign", sign)
    whole.add_conditional_edges(START, route, ["write"])
    whole.add_edge("write", "desk").add_edge("desk", "sign").add_edge("sign", END)
    return whole.compile(checkpointer=saver, name="company")


def application(journal: RunJournal, saver: BaseCheckpointSaver[Any] | None = None, **options: Any) -> Starlette:
    """Return the application, with the server at `/` and the gates beside it. Pages of any origin may use both."""
    gates, kept = Gates(), saver or InMemorySaver()
    graphs = {"agent": scripted_agent(gates, kept), "company": company(kept)}
    app = create_app(graphs, journal, cors=["*"], **options)
    return Starlette(routes=[gate_route(gates), Mount("/", app)])
