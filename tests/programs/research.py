"""A research agent: it writes queries, searches side by side, reflects, searches again, answers. Only that is a message.

The shape of the research quickstarts: structured output for queries and reflection, `Send` for the searches.
"""

from __future__ import annotations

import operator
from typing import Annotated, Any

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send
from pydantic import BaseModel
from typing_extensions import TypedDict

from langchain_runjournal import RunJournal, attach
from tests.programs._stage import HELPER, Call, Stage, asked


class Queries(BaseModel):
    """Queries for a search engine."""

    queries: list[str]


class Reflection(BaseModel):
    """Whether what was found is enough."""

    sufficient: bool
    follow_up: list[str]


class State(MessagesState):
    queries: Annotated[list[str], operator.add]
    found: Annotated[list[str], operator.add]
    loops: int


class Search(TypedDict):
    query: str


def build(stage: Stage, journal: RunJournal, saver: Any) -> Any:
    """The graph, as it is compiled."""

    def writes(messages: Any, number: int) -> list[Any]:
        return [f"{HELPER} two queries. ", Call("Queries", {"queries": [f"{HELPER} rice", f"{HELPER} time"]})]

    def searches(messages: Any, number: int) -> list[Any]:
        return [f"{HELPER} summary of what was found"]

    def reflects(messages: Any, number: int) -> list[Any]:
        if number == 1:
            return [f'{{"sufficient": false, "follow_up": ["{HELPER} pots"]}}']
        return ['{"sufficient": true, ', '"follow_up": []}']

    def says(messages: Any, number: int) -> list[Any]:
        return [f"answer to {asked(messages)}"]

    writer = stage.model("writer", writes).with_structured_output(Queries, method="function_calling")
    searcher = stage.model("searcher", searches, label=lambda messages: messages[-1].text.split()[-1])
    reflector = stage.model("reflector", reflects).with_structured_output(Reflection)
    answerer = stage.model("answer", says)

    async def generate_query(state: State, config: RunnableConfig) -> dict[str, Any]:
        made = await writer.ainvoke([HumanMessage(f"Queries for {state['messages'][-1].text}")], config)
        return {"queries": made.queries, "loops": 0}

    def continue_to_web_research(state: State) -> list[Send]:
        return [Send("web_research", {"query": query}) for query in state["queries"][-2:]]

    async def web_research(state: Search, config: RunnableConfig) -> dict[str, Any]:
        said = await searcher.ainvoke([HumanMessage(f"Search for {state['query']}")], config)
        return {"found": [said.text]}

    async def reflection(state: State, config: RunnableConfig) -> dict[str, Any]:
        thought = await reflector.ainvoke([HumanMessage("Is this enough? " + "; ".join(state["found"]))], config)
        return {"queries": thought.follow_up, "loops": 2 if thought.sufficient else state["loops"] + 1}

    def evaluate_research(state: State) -> Any:
        return "finalize_answer" if state["loops"] >= 2 else [Send("web_research", {"query": state["queries"][-1]})]

    async def finalize_answer(state: State, config: RunnableConfig) -> dict[str, Any]:
        prompt = SystemMessage("Found: " + "; ".join(state["found"]))
        return {"messages": [await answerer.ainvoke([prompt, *state["messages"]], config)]}

    builder = StateGraph(State)
    builder.add_node("generate_query", generate_query)
    builder.add_node("web_research", web_research)
    builder.add_node("reflection", reflection)
    builder.add_node("finalize_answer", finalize_answer)
    builder.add_edge(START, "generate_query")
    builder.add_conditional_edges("generate_query", continue_to_web_research, ["web_research"])
    builder.add_edge("web_research", "reflection")
    builder.add_conditional_edges("reflection", evaluate_research, ["web_research", "finalize_answer"])
    builder.add_edge("finalize_answer", END)
    return attach(builder.compile(checkpointer=saver, name="pro-search-agent"), journal)  # the one line
