"""The agent of `runjournal serve --demo`: its model follows a script, so that the page can be tried without a key.

It answers with text, reasoning, tables and code, calls tools, asks before it sends a mail, and fails on request.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from .. import is_partial, is_synthetic
from ..testing import Call, Reasoning, ScriptedChatModel
from .chat_texts import ARABIC, CODE, FORMATTED, STORY, THOUGHTS

__all__ = ["HINT", "IDEAS", "graph"]

IDEAS: Final = (
    "Tell me a story",
    "Weather in Rome, Oslo and Reykjavik",
    "Show me a table and some code",
    "Think about eleven birds",
    "Send a mail to Ada",
    "Fail after some words",
)
"""What the page offers to ask."""
HINT: Final = (
    "This agent follows a script. Stop an answer, reload the page in the middle of it, kill the server: what you have seen"
    " stays, and the answer continues."
)
_PACE: Final = 0.03 * float(os.environ.get("RUNJOURNAL_DEMO_PACE", "1"))
"""Seconds for each word."""
_LONGEST_COUNT: Final = 100_000


def _answer_to(question: str, given: Sequence[BaseMessage]) -> list[Any]:
    """Return the script of the answer to a question."""
    asked = question.lower()
    if counts := re.search(r"count to (\d{1,6})", asked):
        return ["".join(f"{number} " for number in range(1, min(int(counts[1]), _LONGEST_COUNT) + 1))]
    if cities := re.match(r"weather in (.+)", question, re.IGNORECASE):
        names = [name.strip(" .?") for name in re.split(r",| and ", cities[1])]
        return ["Looking. ", *(Call("weather", {"city": name}) for name in names if name)]
    if mail := re.search(r"mail to (\w+)", question, re.IGNORECASE):
        text = f"Dear {mail[1]},\n\nthe journal kept every word.\n\nYours, the agent"
        return ["I have written it. ", Call("send_mail", {"to": f"{mail[1].lower()}@example.org", "text": text})]
    if asked.startswith("echo "):
        return [question[5:]]
    if "think" in asked:
        return [Reasoning(THOUGHTS), "Eleven birds sit on the wire, and **one** has just flown away: ten are left."]
    if "fail" in asked:
        return ["These words are shown, and kept, although ", ConnectionError("the provider dropped the stream")]
    if "story" in asked:
        return [STORY]
    if "table" in asked:
        return [FORMATTED]
    if "code" in asked:
        return [CODE]
    if re.search(r"[\u0600-\u06ff]", question):
        return [ARABIC]
    kinds = (f"{message.type}{' (cut off)' if is_partial(message) else ''}" for message in given)
    return [f"My script has no answer to that. I have been given: {', '.join(kinds)}."]


def _say(messages: list[BaseMessage]) -> list[Any]:
    """Return the next answer. "Continue." continues where the answer was cut off, as a real model would."""
    asked = [at for at, message in enumerate(messages) if isinstance(message, HumanMessage)]
    fresh = [at for at in asked if not messages[at].text.startswith("Continue")] or asked[:1]
    since = messages[fresh[-1] + 1 :]
    results = [message for message in since if isinstance(message, ToolMessage) and not is_synthetic(message)]
    if isinstance(messages[-1], ToolMessage):
        return [f"Now I know: {', '.join(message.text for message in results)}."]
    whole, *more = _answer_to(messages[fresh[-1]].text, messages)
    if fresh[-1] == asked[-1]:
        return [whole, *more]
    said = "".join(message.text for message in since if isinstance(message, AIMessage))
    if isinstance(whole, str):
        done = {message.tool_call_id for message in results}
        known = {call["id"]: call["args"] for one in since if isinstance(one, AIMessage) for call in one.tool_calls}
        args = [known[id] for id in done if id in known]
        calls = [step for step in more if isinstance(step, Call) and step.args not in args]
        return [whole[len(said) :] or ("The others. " if calls else "That was all."), *calls]
    return [whole, *more]


@tool
async def weather(city: str) -> str:
    """Return the weather in a city."""
    get_stream_writer()({"progress": f"Asking the weather station of {city}…"})
    await asyncio.sleep(60 if city == "Nowhere" else len(city) * 8 * _PACE)
    return f"{('sunny', 'rain', 'wind', 'snow')[sum(map(ord, city)) % 4]} in {city}"


@tool
async def send_mail(to: str, text: str) -> str:
    """Send a mail, if the user agrees."""
    answer = interrupt({"question": f"Shall I send this mail to {to}?", "text": text})
    if answer is True:
        return f"the mail to {to} was sent"
    return f"the mail was not sent{f', because: {answer}' if isinstance(answer, str) else ''}"


_TOOLS: Final = [weather, send_mail]


async def _answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    model = ScriptedChatModel(_say, pace=_PACE).bind_tools(_TOOLS)
    return {"messages": [await model.ainvoke(state["messages"], config)]}


def graph() -> Any:
    """Return the agent as a compiled graph without a checkpointer."""
    agent = StateGraph(MessagesState)
    agent.add_node("model", _answer)
    agent.add_node("tools", ToolNode(_TOOLS))
    agent.add_edge(START, "model")
    agent.add_conditional_edges("model", tools_condition)
    agent.add_edge("tools", "model")
    return agent.compile(name="demo")
