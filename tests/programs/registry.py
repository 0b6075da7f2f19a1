"""Ten agents in one service, most of them named `LangGraph`, with one saver that is set in a loop.

The shape of the registry of agent-service-toolkit: a dict of agents of any kind, one of them an entrypoint.
"""

from __future__ import annotations

import itertools
import operator
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_runjournal import RunJournal, attach
from tests.programs._stage import HELPER, Call, Stage, asked


class Notes(MessagesState):
    notes: Annotated[list[str], operator.add]


class Documents(MessagesState):
    documents: list[str]


class Draft(MessagesState):
    draft: str


class Summary(MessagesState):
    summary: str


class Kind(MessagesState):
    kind: str


def _says(messages: Any, number: int) -> list[Any]:
    return [f"answer to {asked(messages)}"]


def _looks(messages: Any, number: int) -> list[Any]:
    if asked(messages) == "go" and number == 1:
        return ["Let me look. ", Call("lookup", {"city": "Oslo"}, "c1")]
    return _says(messages, number)


def _helps(messages: Any, number: int) -> list[Any]:
    return [f"{HELPER} words for the program"]


def _answers(stage: Stage, role: str) -> Any:
    model = stage.model(role, _says)

    async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    return answer


def _helper(stage: Stage, role: str, channel: str) -> Any:
    model = stage.model(role, _helps)

    async def help_(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        said = await model.ainvoke([HumanMessage(f"Help with {state['messages'][-1].text}")], config)
        return {channel: [said.text] if channel in ("notes", "documents") else said.text}

    return help_


def _line(schema: Any, *nodes: tuple[str, Any]) -> Any:
    """A graph whose nodes stand in a line."""
    builder = StateGraph(schema)
    for name, node in nodes:
        builder.add_node(name, node)
    builder.add_edge(START, nodes[0][0])
    for (name, _), (after, _) in itertools.pairwise(nodes):
        builder.add_edge(name, after)
    return builder.compile()


def _chatbot(stage: Stage) -> Any:
    model = stage.model("chatbot", _says)

    @entrypoint()
    async def chatbot(inputs: Any, *, previous: Any, config: RunnableConfig) -> Any:
        messages = [*(previous or {"messages": []})["messages"], *inputs["messages"]]
        response = await model.ainvoke(messages, config)
        return entrypoint.final(value={"messages": [response]}, save={"messages": [*messages, response]})

    return chatbot


def _assistant(stage: Stage, tools: list[Any]) -> Any:
    model = stage.model("assistant", _looks).bind_tools(tools)

    async def call_model(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", call_model)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile()


def _router(stage: Stage) -> Any:
    builder = StateGraph(Kind)
    builder.add_node("classify", _helper(stage, "classify", "kind"))
    builder.add_node("poet", _answers(stage, "poet"))
    builder.add_node("coder", _answers(stage, "coder"))
    builder.add_edge(START, "classify")
    builder.add_conditional_edges("classify", lambda state: "poet", ["poet", "coder"])
    return builder.compile()


def _watched(stage: Stage) -> Any:
    """A guard beside the answer."""
    builder = StateGraph(Kind)
    builder.add_node("watch", _helper(stage, "watch", "kind"))
    builder.add_node("answer", _answers(stage, "watched"))
    builder.add_edge(START, "watch")
    builder.add_edge(START, "answer")
    return builder.compile()


def build(stage: Stage, journal: RunJournal) -> dict[str, Any]:
    """All agents by their keys, without a checkpointer. The service sets one: `for agent in agents.values(): ...`."""

    @stage.tool
    def lookup(city: str) -> str:
        """Look up a city."""
        return f"sunny in {city}"

    agents = {
        "chatbot": _chatbot(stage),
        "assistant": _assistant(stage, [lookup]),
        "react": create_agent(stage.model("react", _looks), [lookup]),
        "notes": _line(Notes, ("jot", _helper(stage, "jot", "notes")), ("answer", _answers(stage, "notes"))),
        "router": _router(stage),
        "rag": _line(Documents, ("retrieve", _helper(stage, "retrieve", "documents")), ("generate", _answers(stage, "rag"))),
        "drafter": _line(Draft, ("draft", _helper(stage, "draft", "draft")), ("polish", _answers(stage, "drafter"))),
        "titled": _line(Summary, ("answer", _answers(stage, "titled")), ("title", _helper(stage, "title", "summary"))),
        "watched": _watched(stage),
        "plain": _line(MessagesState, ("reply", _answers(stage, "plain"))),
    }
    return {key: attach(agent, journal) for key, agent in agents.items()}  # the one line
