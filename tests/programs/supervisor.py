"""A supervisor that hands over to agents, which are graphs inside of its graph.

The shape of langgraph-supervisor: agents of `create_agent` as nodes, handoff tools that leave for the graph around.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import RunJournal, attach
from tests.programs._handoff import handoff_to
from tests.programs._stage import Call, Stage, asked


def build(stage: Stage, journal: RunJournal, saver: Any) -> Any:
    """The graph, as it is compiled."""

    def supervises(messages: Any, number: int) -> list[Any]:
        if asked(messages) != "go":
            return [f"answer to {asked(messages)}"]
        if number == 1:
            return ["Ask the mathematician. ", Call("transfer_to_math", {}, "h1")]
        return ["The result is three."]

    def counts(messages: Any, number: int) -> list[Any]:
        if number == 1:
            return ["Let me add. ", Call("add", {"a": 1, "b": 2}, "m1")]
        return ["It makes three."]

    @stage.tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    supervisor = create_agent(
        stage.model("supervisor", supervises), [handoff_to("math"), handoff_to("writer")], name="supervisor"
    )
    math = create_agent(stage.model("math", counts), [add], name="math")
    writer = create_agent(stage.model("writer", lambda messages, number: ["Once upon a time."]), [], name="writer")

    builder = StateGraph(MessagesState)
    builder.add_node("supervisor", supervisor, destinations=("math", "writer", "__end__"))
    builder.add_node("math", math)
    builder.add_node("writer", writer)
    builder.add_edge(START, "supervisor")
    builder.add_edge("math", "supervisor")
    builder.add_edge("writer", "supervisor")
    return attach(builder.compile(checkpointer=saver, name="supervisor_graph"), journal)  # the one line
