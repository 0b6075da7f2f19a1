"""An agent is killed while it streams, and again between two of its tools. Its threads are made whole, and go on.

python examples/demo.py
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_runjournal import RunJournal, attach, is_partial, is_synthetic

ANSWER = (
    "A journal keeps what a program did in the order in which it happened. "
    "Whoever comes back later, after a Stop, a closed tab or a crash, reads on from where they left. "
)


class Model(BaseChatModel):
    """Says a sentence, or asks for three tools, or tells what it has been given: no key, no network."""

    @property
    def _llm_type(self) -> str:
        return "demo"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(self, messages: list[Any], *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        if messages[-1].text == "What is a journal for?":
            for word in ANSWER.split(" "):
                yield ChatGenerationChunk(message=AIMessageChunk(word + " "))
                await asyncio.sleep(0.02)
        elif messages[-1].text == "Book it":
            yield ChatGenerationChunk(message=AIMessageChunk("Booking. "))
            for at, name in enumerate(("flight", "hotel", "car")):
                call = {"id": f"call-{at}", "name": "book", "args": json.dumps({"what": name}), "index": at}
                yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[call]))
        else:
            given = ", ".join(message.type for message in messages)
            yield ChatGenerationChunk(message=AIMessageChunk(f"I have been given: {given}."))


@tool
async def book(what: str) -> str:
    """Book something."""
    if what == "car":
        await asyncio.sleep(0.2)
        print("(the car takes its time)", flush=True)
        await asyncio.Event().wait()
    return f"{what} booked"


model = Model()


async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"], config)]}


graph = StateGraph(MessagesState)
graph.add_node("model", answer)
graph.add_node("tools", ToolNode([book]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")


async def talk(place: Path, thread_id: str, words: str) -> None:
    async with (
        AsyncSqliteSaver.from_conn_string(str(place / "threads.db")) as saver,
        RunJournal(place / "runs.db") as journal,
    ):
        agent = attach(graph.compile(checkpointer=saver, name="demo"), journal)
        asked = {"messages": [("user", words)]}
        async for chunk, _ in agent.astream(asked, config(thread_id), stream_mode="messages"):
            if chunk.type == "AIMessageChunk":
                print(chunk.text, end="", flush=True)  # the user sees it: from here on it must not be lost


async def recover(place: Path, thread_ids: tuple[str, ...]) -> list[str]:
    """What the next process does: settle what was left behind. Gives the last partial answer."""
    partial = []
    async with (
        AsyncSqliteSaver.from_conn_string(str(place / "threads.db")) as saver,
        RunJournal(place / "runs.db") as journal,
    ):
        agent = attach(graph.compile(checkpointer=saver, name="demo"), journal)
        for report in await journal.arecover(agent):
            print(f"recovered thread {report.thread_id!r}: {report.outcome}, {len(report.messages)} messages written")
        for thread_id in thread_ids:
            print(f"\nThread {thread_id!r} now:")
            state = await agent.aget_state(config(thread_id))
            for message in state.values["messages"]:
                mark = " (cut off)" if is_partial(message) else " (made up)" if is_synthetic(message) else ""
                print(f"    {message.type}{mark}: {message.text}")
                if is_partial(message):
                    partial.append(message.text)
            print("and the next message just works:")
            await agent.ainvoke({"messages": [("user", "Go on")]}, config(thread_id))
            print("    ai:", (await agent.aget_state(config(thread_id))).values["messages"][-1].text)
    return partial


def config(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


def kill_it(place: Path, thread_id: str, words: str, shown: int) -> str:
    """Start an agent, and kill it when it has shown so many characters."""
    command = [sys.executable, __file__, str(place), thread_id, words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        seen = b""
        while len(seen) < shown:
            seen += (letter := agent.stdout.read(1))
            print(letter.decode(), end="", flush=True)
        agent.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        seen += agent.stdout.read()  # what was on its way to us
    print(f"\n\nkill -9: the process ended with {agent.returncode}, without a word.\n")
    return seen.decode()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        print("An agent streams an answer:\n\n    ", end="", flush=True)
        seen = kill_it(place, "sentence", "What is a journal for?", 100)
        print("Another one has booked two things of three:\n\n    ", end="", flush=True)
        kill_it(place, "tools", "Book it", len("Booking. (the car takes its time)"))
        partial = asyncio.run(recover(place, ("sentence", "tools")))
        if not any(text.startswith(seen) for text in partial):
            sys.exit("Something that was shown is missing. That should not be possible: please report it.")
        print(f"\nShown: {len(seen)} characters. Missing: 0.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(talk(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
    else:
        main()
