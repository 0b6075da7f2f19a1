"""The agent that the demonstration cuts off: a travel agent whose model follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send

from .. import is_synthetic
from ..testing import Answer, Call, ScriptedChatModel, Wait

TRIP: Final = "What should I see in Lisbon?"
BOOK: Final = "Book flight, hotel and car."
PLAN: Final = "Plan my first day there."
GO_ON: Final = "Go on"

_SAYS: Final = {
    TRIP: (
        "Begin at the castle early in the morning, before the crowds are there. Then walk down through Alfama, the oldest"
        " part of town, where the streets are stairs and there is always music. By noon you are at the river: have"
        " sardines for lunch, and take the yellow tram back up the hill for the view in the evening."
    ),
    PLAN: (
        "At nine, coffee and a custard tart by the river. At ten, the monastery next door, while the queue is short. At"
        " noon, the ferry: the fish on the other side costs half as much. From three on, the tile museum, which is cool"
        " when the city is hot. At seven, a small glass of cherry liqueur, and music until late."
    ),
}
_BOOKING: Final = "I book all three."
_FOR_EVER: Final = 60.0
"""Seconds for which an answer that is to be cut off stays open at its end: longer than any machine needs to cut it."""


class Travel:
    """The script and the tools of the agent. `pace`: 1 for people, less for tests."""

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self.model = ScriptedChatModel(self.answer, pace=0.065 * pace)

    def answer(self, messages: list[BaseMessage]) -> Answer:
        """Return the next answer, made only from the messages that the model is sent."""
        question = messages[-1].text
        if question in _SAYS:
            return [_SAYS[question], Wait(_FOR_EVER)]
        if question == BOOK:
            return [_BOOKING, *(Call("book", {"what": what}) for what in ("flight", "hotel", "car"))]
        return self._continue(messages[:-1])

    def _continue(self, before: Sequence[BaseMessage]) -> str:
        results = [one for one in before if one.type == "tool"]
        if results:
            done = ", ".join(one.text for one in results if not is_synthetic(one))
            return f"{done}. Shall I try the rest?"
        said = next((one.text for one in reversed(before) if one.type == "ai"), "")
        for whole in _SAYS.values():
            if said and whole.startswith(said.rstrip()):
                return "… " + whole[len(said) :].lstrip()
        return "Go on with what? I have not said anything yet."

    def tools(self) -> list[BaseTool]:
        """Return one tool: it takes a moment for a flight and a hotel, and a minute for a car."""

        @tool
        async def book(what: str) -> str:
            """Book something."""
            seconds = {"flight": 0.5, "hotel": 1.0}.get(what)
            await asyncio.sleep(_FOR_EVER if seconds is None else seconds * self._pace)
            return f"{what} booked"

        return [book]


def graph_of(
    model: Runnable[LanguageModelInput, BaseMessage], tools: Sequence[BaseTool]
) -> StateGraph[MessagesState, None, MessagesState, MessagesState]:
    """Build a model with tools, each tool call a task of its own, as LangChain's `create_agent` does."""

    async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def route(state: MessagesState) -> list[Send] | str:
        last = state["messages"][-1]
        return (
            [Send("tools", [call]) for call in last.tool_calls] if isinstance(last, AIMessage) and last.tool_calls else END
        )

    graph = StateGraph(MessagesState)
    graph.add_node("model", answer)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools", END])
    graph.add_edge("tools", "model")
    return graph
