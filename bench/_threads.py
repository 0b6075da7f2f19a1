"""Histories and graphs, and a process that dies while tools run: `python -m bench._threads DIRECTORY COUNT...`.

For each kind of graph and each length of its thread it begins a turn that asks for three tools. When two are done and the
third is at work, it kills itself. What is left are files that can be copied and settled again and again.
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
"""A task of its own for each tool call, whose results LangGraph keeps; one for all of them, whose results it loses."""
THREAD: Final[Any] = {"configurable": {"thread_id": "thread-1"}}
_SAVED, _JOURNAL = "threads.db", "runs.db"
_CALLS: Final = 3
_PATIENCE: Final = 60.0
_EXCHANGE: Final = 4


def history(count: int) -> list[BaseMessage]:
    """A conversation: again and again a question, a tool call, its result of 800 characters, an answer of 400. It ends with
    an answer, if `count` is even."""
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
        # Not to end with a request that has no result: the last question is answered at once.
        found[count - 1] = found[-1]
    return found[:count]


class Answers(Model):
    """The same for calls that block."""

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for message in chunks(self.kind, self.tokens):
            yield ChatGenerationChunk(message=message)


class _Asks(Model):
    """Asks for three tools at once."""

    def bind_tools(self, *args: Any, **kwargs: Any) -> Any:
        return self

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=AIMessageChunk(content="Looking. "))
        for number in range(_CALLS):
            fragment = tool_call_chunk(name="work", args=f'{{"number": {number}}}', id=f"cut_{number}", index=number)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[fragment]))

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        # An agent of LangChain on Python 3.10, where its model is not told that somebody listens.
        return await agenerate_from_stream(self._astream())


async def _work(number: int) -> str:
    """Work. The last one never comes to an end."""
    if number == _CALLS - 1:
        await asyncio.Event().wait()
    return "".join(words(170))


def graph_of(kind: str, saver: BaseCheckpointSaver[Any]) -> Any:
    """A graph of that kind, with that checkpointer."""
    model, tools = _Asks(), [StructuredTool.from_function(coroutine=_work, name="work", description="Work.")]
    if kind == "create_agent":
        return create_agent(model, tools, checkpointer=saver, name=kind)
    return by_hand(model, tools, saver, kind)


def by_hand(model: Model, tools: list[Any], saver: BaseCheckpointSaver[Any], name: str) -> Any:
    """A model node, and a node for tools if there are any."""

    # The config is handed on by hand: LangChain cannot do it on Python 3.10.
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


# --- threads that were cut off ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """A thread as its process left it: in a directory of its own, with its journal."""

    kind: str
    messages: int
    run_id: str
    directory: Path

    @contextmanager
    def copy(self) -> Iterator[tuple[Any, RunJournal]]:
        """A copy with everything open: the graph, and the journal."""
        place = self.directory.with_name(f"{self.directory.name}-copy")
        shutil.copytree(self.directory, place)
        try:
            with opened(place / _SAVED) as saver, RunJournal(place / _JOURNAL) as journal:
                yield graph_of(self.kind, saver), journal
        finally:
            shutil.rmtree(place)


@contextmanager
def opened(path: Path) -> Iterator[SqliteSaver]:
    """A checkpointer that needs no more time to set itself up."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as con:
        saver = SqliteSaver(con)
        saver.setup()
        yield saver


def cut_off(directory: Path, counts: Sequence[int]) -> list[Cut]:
    """Threads of so many messages each, then a question, a request for three tools, two results, and a kill."""
    with Child("_threads", str(directory), *map(str, counts)) as child:
        found = [Cut(kind, messages, run_id, directory / name) for kind, messages, run_id, name in child.hear()]
    for one in found:
        # What the process left in its spool is brought into the database here, and not again for each copy.
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


_going_on: list[Any] = []


async def _begin(kind: str, count: int, directory: Path) -> str:
    """Begin a turn, and come back when its third tool is the only one at work."""
    journal = RunJournal(directory / _JOURNAL)
    saver = AsyncSqliteSaver(await aiosqlite.connect(directory / _SAVED))
    graph = attach(graph_of(kind, saver), journal)
    await graph_of(kind, saver).aupdate_state(THREAD, {"messages": history(count)}, as_node="model")
    run_id = new_id()
    config: Any = {**THREAD, "run_id": run_id}
    task = asyncio.ensure_future(graph.ainvoke({"messages": [HumanMessage("Do it.", id="asked")]}, config))
    _going_on.append((journal, saver, task))
    while not await _is_cut(graph, count, run_id, journal):
        if task.done():
            raise AssertionError(f"the turn has ended: {await task}")
        await asyncio.sleep(0.005)
    return run_id


async def _is_cut(graph: Any, count: int, run_id: str, journal: RunJournal) -> bool:
    """Whether both results are kept: in the journal, and in the checkpoint if this kind of graph keeps them there."""
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
        os._exit(1)  # past the threads of whoever is still at work
