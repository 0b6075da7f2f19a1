"""The model of the chat, when it is not a real one: it follows a script, but what it says depends on what it is sent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, tool

from ..messages.loading import is_partial, is_synthetic
from ..testing.scripted_model import Answer, Call, ScriptedChatModel
from ._screen import because, who

_CITIES: Final = ("Oslo", "Rome", "Lisbon", "Cairo", "Paris", "Tokyo", "Lima", "Berlin", "London", "Nairobi", "Sydney")
_SKIES: Final = (
    "sunny, 21 degrees",
    "light rain, 14 degrees",
    "windy, 17 degrees",
    "cloudy, 11 degrees",
    "snow, 2 below zero",
)
_GO_ON: Final = re.compile(r"(please )?(go on|continue|and\?*|more|carry on)\b.*", re.I | re.S)
_COUNT: Final = re.compile(r"\bcount\b(?:\D*(\d{1,4}))?", re.I)
_SENT: Final = re.compile(r"\b(sent|given|remember|told|know of|history)\b", re.I)
_STORY: Final = (
    "There was a lighthouse keeper who wrote everything down: each ship, each lamp, each change of the wind. People"
    " laughed, for who would ever read it? One night a storm put out the lamp and broke the stairs, and the keeper with"
    " them. The next morning another one came, found the book on the table, and read the last line: ship from the north,"
    " lamp at half past nine, and then half a word. She lit the lamp, took the pen, and finished the word. Nobody on the"
    " ships has ever noticed"
    " that it was another hand."
)
_HELP: Final = (
    "I follow a script, so I know but a few things. Ask me to count to 100, to tell a story, or for the weather in Oslo,"
    " Rome and Cairo, and stop me in the middle. Then say: go on. Or ask me what I have been sent, and I tell you what I"
    " see of"
    " this conversation."
)


def talker(pace: float) -> ScriptedChatModel:
    """The model."""
    return ScriptedChatModel(_answer, pace=0.05 * pace)


def weather_tool(pace: float) -> BaseTool:
    """Its tool. The cities take their time, each another one."""

    @tool
    async def weather(city: str) -> str:
        """The weather in a city, made up for a demonstration."""
        place = _CITIES.index(city) if city in _CITIES else len(city)
        await asyncio.sleep((0.8 + 0.8 * (place % 4)) * pace)
        return f"{city}: {_SKIES[place % len(_SKIES)]}"

    return weather


def _answer(messages: list[BaseMessage]) -> Answer:
    if isinstance(messages[-1], ToolMessage):
        return _of_results(messages)
    asked = messages[-1].text.strip()
    if _GO_ON.fullmatch(asked):
        return _go_on(messages[:-1])
    return _first(asked, messages)


def _first(asked: str, messages: Sequence[BaseMessage]) -> Answer:
    counted = _COUNT.search(asked)
    if counted:
        return " ".join(map(str, range(1, int(counted[1] or 100) + 1)))
    named = [city for city in _CITIES if re.search(rf"\b{city}\b", asked, re.I)]
    if named or "weather" in asked.lower():
        return ["Let me look. ", *(Call("weather", {"city": city}) for city in named or ("Oslo", "Rome", "Cairo"))]
    if _SENT.search(asked):
        return _told(messages)
    if "story" in asked.lower():
        return _STORY
    return f"You have said: “{asked[:200]}”. {_HELP}"


def _told(messages: Sequence[BaseMessage]) -> str:
    lines = []
    for message in messages:
        text = " ".join(message.text.split())
        text = text if len(text) <= 60 else f"{text[:40]} … {text[-15:]}"
        if isinstance(message, AIMessage) and message.tool_calls:
            text += f" (asked for {len(message.tool_calls)} tools)"
        mark = f" (cut off: {because(message)})" if is_partial(message) else " (filled in)" if is_synthetic(message) else ""
        lines.append(f"- {who(message)}: {text}{mark}")
    return f"I have been sent {len(messages)} messages:\n" + "\n".join(lines)


def _of_results(messages: Sequence[BaseMessage]) -> str:
    results = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        results.append(message)
    return "Here it is. " + ". ".join(one.text for one in reversed(results) if not is_synthetic(one)) + "."


def _go_on(before: Sequence[BaseMessage]) -> Answer:
    """Where the last turn was cut off, from there on: found in what the model is sent, and nowhere else."""
    begun = next((at for at in reversed(range(len(before))) if before[at].type == "human"), None)
    if begun is None:
        return f"With what? This is the first that I hear of you. {_HELP}"
    turn = before[begun + 1 :]
    calls = {call["id"]: call for one in turn if isinstance(one, AIMessage) for call in one.tool_calls}
    open_calls = [calls[one.tool_call_id] for one in turn if is_synthetic(one) and isinstance(one, ToolMessage)]
    if open_calls:
        return ["I look again for what was not finished. ", *(Call(call["name"], call["args"]) for call in open_calls)]
    cut = next((one.text for one in reversed(turn) if is_partial(one)), None)
    asked = before[begun].text.strip()
    if cut is not None:
        whole = _go_on(before[:begun]) if _GO_ON.fullmatch(asked) else _first(asked, before[: begun + 1])
        if isinstance(whole, str) and whole.startswith(cut.rstrip()):
            return whole[len(cut) :].lstrip() or "That was all."
        return [f"I was cut off after “{cut.strip()[-40:]}”. ", *_rest(whole)]
    return f"I was at the end of what I had to say. {_HELP}"


def _rest(whole: Answer) -> list[Call | str]:
    return [step for step in whole if isinstance(step, Call)] if not isinstance(whole, str) else ["I begin again: ", whole]
