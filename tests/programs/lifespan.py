"""A chat service: its agents are compiled at module level, and the lifespan of FastAPI gives them their checkpointer.

The shape of agent-service-toolkit: a guard before the model, `agent.checkpointer = saver` in the lifespan, /stream, /stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_runjournal import RunJournal, attach
from tests.programs._stage import HELPER, Call, Stage, asked


class State(MessagesState):
    safety: str


def build(stage: Stage, journal: RunJournal) -> Any:
    """The agent, without a checkpointer."""
    guard_model = stage.model("guard", lambda messages, number: [f"{HELPER} safe: looked at from all sides"])

    def says(messages: Any, number: int) -> list[Any]:
        if asked(messages) != "go":
            return [f"answer to {asked(messages)}"]
        if number == 1:
            return ["Let me look. ", Call("lookup", {"city": "Oslo"}, "c1"), Call("dig", {"depth": 2}, "c2")]
        return ["Both are found now."]

    @stage.tool
    def lookup(city: str) -> str:
        """Look up a city."""
        return f"sunny in {city}"

    @stage.tool
    def dig(depth: int) -> str:
        """Dig deep, which takes a while."""
        return f"gold at {depth}"

    tools = [lookup, dig]
    model = stage.model("agent", says)

    async def guard_input(state: State, config: RunnableConfig) -> dict[str, str]:
        verdict = await guard_model.ainvoke([HumanMessage(f"Is this safe? {state['messages'][-1].text}")], config)
        return {"safety": "safe" if "safe" in verdict.text else "unsafe"}

    async def call_model(state: State, config: RunnableConfig) -> dict[str, Any]:
        bound = model.bind_tools(tools)
        return {"messages": [await bound.ainvoke([SystemMessage("Be helpful."), *state["messages"]], config)]}

    def block(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage("I cannot talk about this.")]}

    def check_safety(state: State) -> Literal["model", "block"]:
        return "model" if state["safety"] == "safe" else "block"

    builder = StateGraph(State)
    builder.add_node("guard_input", guard_input)
    builder.add_node("model", call_model)
    builder.add_node("tools", ToolNode(tools))
    builder.add_node("block", block)
    builder.set_entry_point("guard_input")
    builder.add_conditional_edges("guard_input", check_safety)
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    builder.add_edge("block", END)
    return attach(builder.compile(), journal)  # the one line


def app_of(agent: Any, open_saver: AbstractAsyncContextManager[Any]) -> Any:
    """The service around the agent. Call this in a process that has FastAPI."""
    import fastapi
    from fastapi.responses import StreamingResponse

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with open_saver as saver:
            agent.checkpointer = saver
            yield

    app = fastapi.FastAPI(lifespan=lifespan)
    turns: dict[str, asyncio.Task[None]] = {}

    def config_of(body: dict[str, str]) -> RunnableConfig:
        return {"configurable": {"thread_id": body["thread"]}, "run_id": body["run_id"]}  # type: ignore[typeddict-item]

    @app.post("/invoke")
    async def invoke(body: dict[str, str]) -> Any:
        values = await agent.ainvoke({"messages": [("user", body["text"])]}, config_of(body))
        return {"text": values["messages"][-1].text}

    @app.post("/stream")
    async def stream(body: dict[str, str]) -> Any:
        async def tokens() -> AsyncIterator[str]:
            given = {"messages": [("user", body["text"])]}
            async for message, about in agent.astream(given, config_of(body), stream_mode="messages"):
                if message.type == "AIMessageChunk" and message.text and about["langgraph_node"] == "model":
                    yield message.text

        return StreamingResponse(tokens(), media_type="text/plain")

    @app.post("/start")
    async def start(body: dict[str, str]) -> Any:
        """A turn in a task of its own, which /stop cancels."""

        async def work() -> None:
            async for _ in agent.astream({"messages": [("user", body["text"])]}, config_of(body), stream_mode="messages"):
                pass

        turns[body["thread"]] = asyncio.create_task(work())
        return {}

    @app.post("/stop")
    async def stop(body: dict[str, str]) -> Any:
        task = turns.pop(body["thread"])
        task.cancel()
        await asyncio.wait([task])
        return {}

    @app.post("/history")
    async def history(body: dict[str, str]) -> Any:
        state = await agent.aget_state({"configurable": {"thread_id": body["thread"]}})
        messages = state.values.get("messages", [])
        return {"next": list(state.next), "messages": [message.model_dump(mode="json") for message in messages]}

    return app
