"""The tool by which one agent hands over to another."""

from __future__ import annotations

from typing import Annotated, Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.prebuilt import InjectedState
from langgraph.types import Command


def handoff_to(agent: str, **update: Any) -> Any:
    """`update`: what else is written into the state of the graph around."""

    @tool(f"transfer_to_{agent}", description=f"Ask {agent} for help.")
    def transfer(state: Annotated[Any, InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        done = ToolMessage(f"transferred to {agent}", name=f"transfer_to_{agent}", tool_call_id=tool_call_id)
        messages = [*state["messages"], done]
        return Command(goto=agent, graph=Command.PARENT, update={"messages": messages, **update})

    return transfer
