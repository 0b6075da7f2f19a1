"""Programs whose branches run side by side and are cut off at any event, and the checks of their thread.

A `Shape` describes the branches; `build` makes a graph of it, in one of `KINDS`; `Heard` listens beside the journal and
knows what the user was shown and which tools have finished; `check` compares the thread with that.
"""

from __future__ import annotations

import asyncio
import operator
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send

from langchain_runjournal import RunJournal, is_partial, is_synthetic
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.messages.tool_pairs import requests
from tests.support.agents import asks, words
from tests.support.conversations import Recording

UNHEARD = sys.version_info < (3, 11)
"""Whether asynchronous code that does not get its config passes no callbacks on."""
KINDS = ("hand", "plain", "sends") if UNHEARD else ("agents", "hand", "plain", "sends")
"""The kinds of graphs: agents as nodes (`create_agent`, or by hand), a node that calls its tools itself, and a `Send` for
each branch."""
STEPS = "goto"
"""A kind whose branches are nodes of the outermost graph, several supersteps long, before a deferred node; without
tools."""
THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


@dataclass(frozen=True)
class Branch:
    """The work of one branch: the number of tools that it requests in each round, and then its last words."""

    rounds: tuple[int, ...] = (1,)
    words: int = 2
    """The number of chunks of each of its answers."""


@dataclass(frozen=True)
class Shape:
    """The branches of a graph. After them, one node speaks for all."""

    branches: tuple[Branch, ...] = (Branch(), Branch())
    kind: str = "agents"


class Cut(Exception):
    """The exception that ends a run."""


class Fuse:
    """A fuse that, once it is blown, raises in all code that passes it."""

    def __init__(self) -> None:
        self.blown = False

    def check(self) -> None:
        if self.blown:
            raise Cut


class Voice(Recording):
    """A model of one branch, which yields to the other branches after each chunk."""

    fuse: Any = None

    async def _astream(self, messages: Any = (), *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        async for chunk in super()._astream(messages):
            await asyncio.sleep(0)
            self.fuse.check()
            yield chunk

    def _stream(self, messages: Any = (), *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for chunk in super()._stream(messages):
            self.fuse.check()
            yield chunk


def _said(name: str, number: int, count: int) -> list[str]:
    return [f"{name}.{number}.{place} " for place in range(count)]


def voice_of(name: str, branch: Branch, fuse: Fuse) -> Voice:
    """Return the model of a branch. No two chunks of a graph have the same text, no two calls the same id."""
    voice = Voice(fuse=fuse)
    scripts: list[list[Any]] = []
    for number, tools in enumerate(branch.rounds):
        calls = [(f"{name}-{number}-{place}", "work", {"what": f"{name}-{number}-{place}"}) for place in range(tools)]
        scripts.append([*words(*_said(name, number, branch.words)), *asks(*calls, text="")[1:]])
    scripts.append(words(*_said(name, len(branch.rounds), branch.words)))
    voice.say(*scripts)
    return voice


def tool_of(fuse: Fuse, *, is_async: bool) -> Any:
    """Return the tool that all branches use."""

    @tool("work")
    async def work(what: str) -> str:
        """Work, and give way."""
        fuse.check()
        await asyncio.sleep(0)
        fuse.check()
        return f"result of {what}"

    @tool("work")
    def work_here(what: str) -> str:
        """Work."""
        fuse.check()
        return f"result of {what}"

    return work if is_async else work_here


class _Fan(MessagesState):
    item: int
    done: Annotated[list[int], operator.add]


class Program:
    """A graph of a shape, and the models in it."""

    def __init__(self, shape: Shape, saver: Any, *, is_async: bool = True) -> None:
        if shape.kind == "agents" and is_async and UNHEARD:
            pytest.skip("create_agent hands on its callbacks only from Python 3.11 on")
        self.shape = shape
        self.is_async = is_async
        self.fuse = Fuse()
        self.voices = [voice_of(f"b{place}", branch, self.fuse) for place, branch in enumerate(shape.branches)]
        self.last = voice_of("end", Branch(rounds=()), self.fuse)
        self.tools = [tool_of(self.fuse, is_async=is_async)]
        self.graph = self._build().compile(checkpointer=saver, name="branches")

    def say_fine(self) -> None:
        """Make each model say one word from now on, and keep its input."""
        self.fuse.blown = False
        for voice in (*self.voices, self.last):
            voice.say(words("fine"))
            voice.seen.clear()

    def asked(self) -> list[list[Any]]:
        """Return the inputs of all models."""
        return [one for voice in (*self.voices, self.last) for one in voice.seen]

    def _build(self) -> Any:
        graph: Any = StateGraph(_Fan if self.shape.kind == "sends" else MessagesState)
        graph.add_node("end", self._speaking(self.last), defer=self.shape.kind == STEPS)
        if self.shape.kind == "sends":
            inner = [self._agent(voice) for voice in self.voices]

            async def aworker(state: Any, config: RunnableConfig) -> Any:
                found = await inner[state["item"]].ainvoke({"messages": state["messages"]}, config)
                return {"messages": found["messages"][len(state["messages"]) :], "done": [state["item"]]}

            def worker(state: Any, config: RunnableConfig) -> Any:
                found = inner[state["item"]].invoke({"messages": state["messages"]}, config)
                return {"messages": found["messages"][len(state["messages"]) :], "done": [state["item"]]}

            def fan(state: Any) -> list[Send]:
                return [Send("worker", {"messages": state["messages"], "item": item}) for item in range(len(inner))]

            graph.add_node("worker", self._node(worker, aworker))
            graph.add_conditional_edges(START, fan, ["worker"])
            graph.add_edge("worker", "end")
            return graph
        for place, voice in enumerate(self.voices):
            if self.shape.kind == STEPS:
                graph.add_node(f"b{place}", self._going_on(place, voice), destinations=(f"b{place}", "end"))
                graph.add_edge(START, f"b{place}")
                continue
            graph.add_node(f"b{place}", self._looping(voice) if self.shape.kind == "plain" else self._agent(voice))
            graph.add_edge(START, f"b{place}")
            graph.add_edge(f"b{place}", "end")
        return graph

    def _agent(self, voice: Voice) -> Any:
        if self.shape.kind != "hand":
            return create_agent(voice, self.tools)
        graph = StateGraph(MessagesState)
        graph.add_node("model", self._speaking(voice))
        graph.add_node("tools", ToolNode(self.tools))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        return graph.compile()

    def _speaking(self, voice: Voice) -> Any:
        async def aspeak(state: Any, config: RunnableConfig) -> Any:
            return {"messages": [await voice.ainvoke(state["messages"], config)]}

        def speak(state: Any, config: RunnableConfig) -> Any:
            return {"messages": [voice.invoke(state["messages"], config)]}

        return self._node(speak, aspeak)

    def _going_on(self, place: int, voice: Voice) -> Any:
        """Return a node that speaks, and goes to itself until its branch has said all."""

        def then(said: Any) -> Any:
            goes_on = voice.turn < len(voice.scripts)
            return Command(update={"messages": [said]}, goto=f"b{place}" if goes_on else "end")

        async def ago(state: Any, config: RunnableConfig) -> Any:
            return then(await voice.ainvoke(state["messages"], config))

        def go(state: Any, config: RunnableConfig) -> Any:
            return then(voice.invoke(state["messages"], config))

        return self._node(go, ago)

    def _looping(self, voice: Voice) -> Any:
        """Return one plain node, which calls its model and its tools until it is done."""
        tools = ToolNode(self.tools)

        async def aloop(state: Any, config: RunnableConfig) -> Any:
            said: list[Any] = []
            while not said or said[-1].type == "tool":
                said.append(await voice.ainvoke([*state["messages"], *said], config))
                if said[-1].tool_calls:
                    said += (await tools.ainvoke({"messages": said}, config))["messages"]
            return {"messages": said}

        def loop(state: Any, config: RunnableConfig) -> Any:
            said: list[Any] = []
            while not said or said[-1].type == "tool":
                said.append(voice.invoke([*state["messages"], *said], config))
                if said[-1].tool_calls:
                    said += tools.invoke({"messages": said}, config)["messages"]
            return {"messages": said}

        return self._node(loop, aloop)

    def _node(self, here: Any, later: Any) -> Any:
        return RunnableLambda(later) if self.is_async else RunnableLambda(here)


class Heard(BaseCallbackHandler):
    """A callback handler that hears what the journal hears: the words that the user was shown, and the finished tools."""

    run_inline = True

    def __init__(self) -> None:
        self.words: dict[str, str] = {}
        self.results: dict[str, str] = {}

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: Any = None, **about: Any) -> None:
        self.words[str(run_id)] = self.words.get(str(run_id), "") + chunk.message.text

    def on_tool_end(self, output: Any, **about: Any) -> None:
        self.results[output.tool_call_id] = output.text


class Cutter:
    """A counter of the events that a journal gets. It cuts the run after a given number."""

    def __init__(self, journal: RunJournal, at: int, cut: Callable[[], object]) -> None:
        self.count = 0
        record: Any = core_of(journal).appender.record

        def counting(*args: Any, **kwargs: Any) -> None:
            record(*args, **kwargs)
            self.count += 1
            if self.count == at:
                cut()

        core_of(journal).appender.record = counting  # type: ignore[method-assign]

    def stop_counting(self) -> None:
        """Stop counting: later events do not belong to the run that is cut."""
        self.count = 1_000_000


# --- what has to be true ------------------------------------------------------------------------------------------------


def is_answered(messages: Sequence[Any]) -> None:
    """Check the history as a provider does: the results of each request stand behind it, each once, and no result stands
    elsewhere."""
    place = 0
    while place < len(messages):
        message = messages[place]
        assert message.type != "tool", f"a result without its request at {place}: {told(messages)}"
        place += 1
        asked = {str(request.id) for request in requests(message)}
        while asked:
            result = messages[place] if place < len(messages) else None
            id = getattr(result, "tool_call_id", None)
            assert id in asked, f"{asked} are open at {place}: {told(messages)}"
            asked.discard(str(id))
            place += 1


def told(messages: Sequence[Any]) -> list[str]:
    """Return the history for the report of a failure."""
    return [
        f"{one.type}{'~' if is_partial(one) else '*' if is_synthetic(one) else ''}"
        f"[{one.tool_call_id if one.type == 'tool' else ''}] {one.text} {[request.id for request in requests(one)]}"
        for one in messages
    ]


def check(messages: Sequence[Any], heard: Heard, *, asked: Sequence[str] = ("hi",), ahead: int = 0) -> None:
    """Check that a thread holds the input, every word that was shown and every real result, each once and in order.
    `ahead`: how many results the journal may have that no other listener has: a kill may come between the two."""
    is_answered(messages)
    ids = [one.id for one in messages]
    assert len(set(ids)) == len(ids), told(messages)
    assert [one.text for one in messages if one.type == "human"] == list(asked), told(messages)
    said = [one.text for one in messages if one.type == "ai"]
    for text in heard.words.values():
        for word in text.split():
            assert sum(one.split().count(word) for one in said) == 1, f"{word!r}: {told(messages)}"
        assert any(one.startswith(text.rstrip()) for one in said), f"{text!r} was cut apart: {told(messages)}"
    results = {one.tool_call_id: one for one in messages if one.type == "tool"}
    for id, content in heard.results.items():
        assert id in results, f"the result of {id} is missing: {told(messages)}"
        assert results[id].text == content, f"not the real result of {id}: {told(messages)}"
    known = [id for id, one in results.items() if not is_synthetic(one) and id not in heard.results]
    assert len(known) <= ahead, f"{known} had no result: {told(messages)}"
    assert all(results[id].text == f"result of {id}" for id in known)
