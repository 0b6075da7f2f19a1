"""A swarm: agents that hand over to each other; whoever was active last answers first.

The shape of langgraph-swarm: `active_agent` in the state, a router at the start, agents of `create_agent` as nodes.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langgraph.graph import START, MessagesState, StateGraph

from langchain_runjournal import RunJournal, attach
from tests.programs._handoff import handoff_to
from tests.programs._stage import Call, Stage, asked


class State(MessagesState):
    active_agent: str


def build(stage: Stage, journal: RunJournal, saver: Any) -> Any:
    """The graph, as it is compiled."""

    def alices(messages: Any, number: int) -> list[Any]:
        if asked(messages) != "go":
            return [f"alice answers {asked(messages)}"]
        return ["Bob knows that. ", Call("transfer_to_bob", {}, "h1")]

    def bobs(messages: Any, number: int) -> list[Any]:
        if asked(messages) != "go":
            return [f"bob answers {asked(messages)}"]
        if number == 1:
            return ["Ahoy, I look. ", Call("lookup", {"city": "Oslo"}, "b1")]
        return ["Arr, it is sunny."]

    @stage.tool
    def lookup(city: str) -> str:
        """Look up a city."""
        return f"sunny in {city}"

    alice = create_agent(stage.model("alice", alices), [handoff_to("bob", active_agent="bob")], name="alice")
    bob = create_agent(stage.model("bob", bobs), [lookup, handoff_to("alice", active_agent="alice")], name="bob")

    def route(state: State) -> str:
        return state.get("active_agent") or "alice"

    builder = StateGraph(State)
    builder.add_node("alice", alice, destinations=("bob",))
    builder.add_node("bob", bob, destinations=("alice",))
    builder.add_conditional_edges(START, route, ["alice", "bob"])
    return attach(builder.compile(checkpointer=saver), journal)  # the one line
