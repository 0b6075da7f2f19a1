"""Histories and graphs, and a process that dies while tools run: `python -m bench._threads DIRECTORY COUNT...`.

For each kind of graph and each length of its thread, the process begins a turn that requests three tools. When two have
finished and the third is running, the process kills itself. The files that it leaves can be copied and settled repeatedly.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import sys
import traceback
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiosqlite
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import agenerate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_runjournal import RunJournal, attach

from ._children import Child
from ._load import new_id, words
from ._models import Model, chunks

KINDS: Final = ("create_agent", "ToolNode")
"""create_agent has a task per tool call, and LangGraph keeps its result; ToolNode has one task for all, and loses them."""
THREAD: Final[Any] = {"configurable": {"thread_id": "thread-1"}}
_SAVED, _JOURNAL = "threads.db", "runs.db"
_CALLS: Final = 3
_PATIENCE: Final = 60.0
_EXCHANGE: Final = 4


def history(count: int) -> list[BaseMessage]:
    """Return a conversation that repeats a question, a tool call, its result of 800 characters and an answer of 400
    characters. With an even `count`, it ends with an answer."""
    found: list[BaseMessage] = []
    for number in range(-(-count // _EXCHANGE)):
        call: Any = {"name": "search", "args": {"query": f"question {number}"}, "id": f"call_{number}", "type": "tool_call"}
        found += [
            HumanMessage("".join(words(20)), id=f"human-{number}"),
            AIMessage("Looking.", tool_calls=[call], id=f"asks-{number}"),
            ToolMessage("".join(words(170)), tool_call_id=call["id"], name="search", id=f"result-{number}"),
            AIMessage("".join(words(85)), id=f"answer-{number}"),
        ]
    if count % _EXCHANGE == 2:
        # Answer the last question at once, so that the history does not end with a request without a result.
        found[count - 1] = found[-1]
    return found[:count]


class Answers(Model):
    """A model that streams in blocking calls too."""

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for message in chunks(self.kind, self.tokens):
            yield ChatGenerationChunk(message=message)


class _Asks(Model):
    """A model that requests three tools at once."""

    def bind_tools(self, *args: Any, **kwargs: Any) -> Any:
        return self

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=AIMessageChunk(content="Looking. "))
        for number in range(_CALLS):
            fragment = tool_call_chunk(name="work", args=f'{{"number": {number}}}', id=f"cut_{number}", index=number)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[fragment]))

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        # For LangChain's agent on Python 3.10, where the model receives no callbacks and so does not stream.
        return await agenerate_from_stream(self._astream())


async def _work(number: int) -> str:
    """Return a long text; the last tool never finishes."""
    if number == _CALLS - 1:
        await asyncio.Event().wait()
    return "".join(words(170))


def graph_of(kind: str, saver: BaseCheckpointSaver[Any]) -> Any:
    """Return a graph of that kind, with that checkpointer."""
    model, tools = _Asks(), [StructuredTool.from_function(coroutine=_work, name="work", description="Work.")]
    if kind == "create_agent":
        return create_agent(model, tools, checkpointer=saver, name=kind)
    return by_hand(model, tools, saver, kind)


def by_hand(model: Model, tools: list[Any], saver: BaseCheckpointSaver[Any], name: str) -> Any:
    """Return a graph with a model node, and a node for the tools if there are any."""

    # The nodes pass the config on explicitly, because LangChain cannot do so on Python 3.10.
    async def answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def answer_now(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"], config)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", RunnableLambda(answer_now, afunc=answer))
    graph.add_edge(START, "model")
    if tools:
        graph.add_node("tools", ToolNode(tools))
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver, name=name)


# --- threads of cut-off runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """A thread as its killed process left it, in a directory of its own, with its journal."""

    kind: str
    messages: int
    run_id: str
    directory: Path

    @contextmanager
    def copy(self) -> Iterator[tuple[Any, RunJournal]]:
        """Copy the files, and yield the graph and the open journal."""
        place = self.directory.with_name(f"{self.directory.name}-copy")
        shutil.copytree(self.directory, place)
        try:
            with opened(place / _SAVED) as saver, RunJournal(place / _JOURNAL) as journal:
                yield graph_of(self.kind, saver), journal
        finally:
            shutil.rmtree(place)


@contextmanager
def opened(path: Path) -> Iterator[SqliteSaver]:
    """Yield a checkpointer whose tables exist already."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as con:
        saver = SqliteSaver(con)
        saver.setup()
        yield saver


def cut_off(directory: Path, counts: Sequence[int]) -> list[Cut]:
    """Return threads with the given numbers of messages, then a question, three tool requests, two results, and a kill."""
    with Child("_threads", str(directory), *map(str, counts)) as child:
        found = [Cut(kind, messages, run_id, directory / name) for kind, messages, run_id, name in child.hear()]
    for one in found:
        # Import the spool of the process here, so that the copies do not have to.
        with opened(one.directory / _SAVED), RunJournal(one.directory / _JOURNAL) as journal:
            if journal.run(one.run_id).ended:
                raise AssertionError("the run was not cut off")
    return found


async def _die(root: Path, counts: Sequence[int]) -> None:
    left = []
    for kind in KINDS:
        for count in counts:
            name = f"{kind}-{count}"
            (root / name).mkdir()
            left.append((kind, count, await _begin(kind, count, root / name), name))
    print(json.dumps(left), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


_alive: list[Any] = []


async def _begin(kind: str, count: int, directory: Path) -> str:
    """Begin a turn, and return when only its third tool is still running."""
    journal = RunJournal(directory / _JOURNAL)
    saver = AsyncSqliteSaver(await aiosqlite.connect(directory / _SAVED))
    graph = attach(graph_of(kind, saver), journal)
    await graph_of(kind, saver).aupdate_state(THREAD, {"messages": history(count)}, as_node="model")
    run_id = new_id()
    config: Any = {**THREAD, "run_id": run_id}
    task = asyncio.ensure_future(graph.ainvoke({"messages": [HumanMessage("Do it.", id="asked")]}, config))
    _alive.append((journal, saver, task))
    while not await _is_cut(graph, count, run_id, journal):
        if task.done():
            raise AssertionError(f"the turn ended: {await task}")
        await asyncio.sleep(0.005)
    return run_id


async def _is_cut(graph: Any, count: int, run_id: str, journal: RunJournal) -> bool:
    """Return whether both results are in the journal, and in the checkpoint if this kind of graph keeps them there."""
    await journal.aflush()
    if not await journal.aruns("thread-1"):
        return False
    done = sum(event.kind == "llm.tool.result" for event in await journal.aread(run_id))
    found = await graph.checkpointer.aget_tuple(THREAD)
    if done < _CALLS - 1 or found is None or len(found.checkpoint["channel_values"].get("messages", ())) < count + 2:
        return False
    kept = [channel for _, channel, _ in found.pending_writes or () if channel == "messages"]
    return graph.name != "create_agent" or len(kept) == _CALLS - 1


if __name__ == "__main__":
    try:
        asyncio.run(asyncio.wait_for(_die(Path(sys.argv[1]), [int(count) for count in sys.argv[2:]]), _PATIENCE))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)  # without waiting for threads that are still running
