"""Programs in which some models answer the user and others help the program, to be cut anywhere.

Each program is a list of steps in the order in which they run. A step states what it leaves in the thread when its node has
ended, and what it leaves when it was cut: in the first run of the program, and in a later run, when the journal has seen
what the node does.
"""

from __future__ import annotations

import asyncio
import operator
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any
from uuid import UUID

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import agenerate_from_stream, generate_from_stream
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.output_parsers import JsonOutputParser
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send
from pydantic import BaseModel

from langchain_runjournal import RunJournal, attach
from tests.support.conversations import until

# --- where a program is cut ---------------------------------------------------------------------------------------------


class Cut(Exception):
    """An exception that ends a program without an event loop, which cannot be cancelled."""


class Desk:
    """The board on which the steps of a program report, and where one of them is cut."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, list[Any]]] = []
        """What each model was asked, by its step."""
        self.cut: tuple[str, str] | None = None
        """The step and its moment: "before" its model is asked, "inside" its answer, "returned" from it."""
        self.kills = False
        self.beside: tuple[str, ...] = ()
        """The nodes that must end before the cut."""
        self.ended: Callable[[], set[str]] = set
        """The nodes that have ended in the current run."""
        self.reached = asyncio.Event()

    def _is_cut(self, step: str, moment: str) -> bool:
        return self.cut == (step, moment)

    def _others_are_done(self) -> bool:
        return self.ended().issuperset(self.beside)

    def wait_for_others(self, step: str) -> None:
        while self.cut is not None and self.cut[0] == step and not self._others_are_done():
            threading.Event().wait(0.002)  # the nodes end on other threads, and no event of this module says so

    async def await_others(self, step: str) -> None:
        if self.cut is not None and self.cut[0] == step:
            await until(self._others_are_done)

    def at(self, step: str, moment: str) -> None:
        if self._is_cut(step, moment):
            self.wait_for_others(step)
            self._kill()
            raise Cut

    async def aat(self, step: str, moment: str) -> None:
        if self._is_cut(step, moment):
            await self.await_others(step)
            self._kill()
            self.reached.set()
            await asyncio.Event().wait()

    def _kill(self) -> None:
        if self.kills:
            os.kill(os.getpid(), signal.SIGKILL)


# --- models -------------------------------------------------------------------------------------------------------------


class Voice(BaseChatModel):
    """A model that says one thing in two chunks, and requests one tool if it has a name; its next answer requests none."""

    step: str
    says: str
    desk: Any
    asks: str | None = None
    then: Any = None
    """The model that answers when there is a result."""

    @property
    def _llm_type(self) -> str:
        return "voice"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(**kwargs)

    def structured(self, method: str) -> Runnable[Any, Any]:
        """Return a structured output as providers make it: `function_calling` requests a tool, the other methods give
        text."""
        if method == "function_calling":
            return self.with_structured_output(Verdict)
        about = {"kwargs": {"method": method}, "schema": Verdict}
        bound = self.bind(response_format={"type": method}, ls_structured_output_format=about)
        return bound | JsonOutputParser()

    def _now(self, messages: list[Any]) -> Voice:
        return self.then if self.then is not None and messages[-1].type == "tool" else self

    def _chunks(self) -> Iterator[AIMessageChunk]:
        middle = len(self.says) // 2
        yield AIMessageChunk(content=self.says[:middle])
        yield AIMessageChunk(content=self.says[middle:])
        if self.asks is not None:
            call = tool_call_chunk(name=self.asks, args='{"query": "rice"}', id=f"c-{self.step}", index=0)
            yield AIMessageChunk(content="", tool_call_chunks=[call])

    def _stream(self, messages: Any, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        voice = self._now(messages)
        voice.desk.seen.append((voice.step, list(messages)))
        for number, chunk in enumerate(voice._chunks()):
            if number == 1:
                voice.desk.at(voice.step, "inside")
            yield ChatGenerationChunk(message=chunk)

    async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        voice = self._now(messages)
        voice.desk.seen.append((voice.step, list(messages)))
        for number, chunk in enumerate(voice._chunks()):
            if number == 1:
                await voice.desk.aat(voice.step, "inside")
            yield ChatGenerationChunk(message=chunk)

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        return generate_from_stream(self._stream(messages))

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages))


class Verdict(BaseModel):
    """What a program wants to know."""

    query: str


# --- programs -----------------------------------------------------------------------------------------------------------


@dataclass
class Step:
    """One model call, and what it leaves in the thread."""

    name: str
    leaves: list[str]
    """What is left after its node has ended."""
    first: dict[str, list[str]]
    """What is left when it was cut in the first run of the program, by the moment."""
    later: dict[str, list[str]]
    beside: tuple[str, ...] = ()
    """The other nodes of its superstep. They end before the cut, with what they leave in `left`."""
    left: list[str] = field(default_factory=list)


def half(says: str) -> str:
    return f"A~ {says[: len(says) // 2]}"


def answer(name: str, says: str, **more: Any) -> Step:
    cut = {"before": [], "inside": [half(says)], "returned": [f"A {says}"]}
    return Step(name, [f"A {says}"], cut, cut, **more)


def helper(name: str, says: str, leaves: list[str] | None = None, **more: Any) -> Step:
    """A helper that is unknown in the first run: the words that were shown stay."""
    first = {"before": [], "inside": [half(says)], "returned": [f"A {says}"]}
    return Step(name, leaves or [], first, {"before": [], "inside": [], "returned": []}, **more)


def known(name: str, **more: Any) -> Step:
    """A helper that is known as one in the first run."""
    nothing: dict[str, list[str]] = {"before": [], "inside": [], "returned": []}
    return Step(name, [], nothing, nothing, **more)


@dataclass
class Program:
    """A graph, and its steps."""

    build: Callable[[Desk], Any]
    steps: list[Step]


def _node(desk: Desk, step: str, model: Any, ask: Callable[[Any], Any], give: Callable[[Any], Any]) -> Any:
    def work(state: Any, config: RunnableConfig) -> Any:
        desk.at(step, "before")
        said = model.invoke(ask(state), config)
        desk.at(step, "returned")
        return give(said)

    async def awork(state: Any, config: RunnableConfig) -> Any:
        await desk.aat(step, "before")
        said = await model.ainvoke(ask(state), config)
        await desk.aat(step, "returned")
        return give(said)

    return RunnableLambda(work, awork)


def _messages(state: Any) -> Any:
    return state["messages"]


def _say(said: Any) -> dict[str, Any]:
    return {"messages": [said]}


class State(MessagesState):
    query: str
    title: str
    parts: Annotated[list[str], operator.add]


def _chain(desk: Desk, *nodes: tuple[str, Any, Callable[[Any], Any]]) -> Any:
    """Nodes one after the other, each of which asks its model about the conversation."""
    builder, before = StateGraph(State), START
    for name, model, give in nodes:
        builder.add_node(name, _node(desk, name, model, _messages, give))
        builder.add_edge(before, name)
        before = name
    return builder


def _voice(desk: Desk, step: str, says: str, **more: Any) -> Voice:
    return Voice(step=step, says=says, desk=desk, **more)


def _router(desk: Desk) -> Any:
    return _chain(
        desk,
        ("route", _voice(desk, "route", "cooking, surely"), lambda said: {}),
        ("talk", _voice(desk, "talk", "Rice takes 20 minutes"), _say),
    )


def _query_writer(desk: Desk) -> Any:
    return _chain(
        desk,
        ("write", _voice(desk, "write", "rice cooking time"), lambda said: {"query": said.text}),
        ("talk", _voice(desk, "talk", "Rice takes 20 minutes"), _say),
    )


def _title(desk: Desk) -> Any:
    return _chain(
        desk,
        ("talk", _voice(desk, "talk", "Rice takes 20 minutes"), _say),
        ("title", _voice(desk, "title", "About rice"), lambda said: {"title": said.text}),
    )


def _reflection(desk: Desk) -> Any:
    return _chain(
        desk,
        ("draft", _voice(desk, "draft", "Some minutes"), _say),
        ("reflect", _voice(desk, "reflect", "Be precise, please"), lambda said: {"messages": [HumanMessage(said.text)]}),
        ("talk", _voice(desk, "talk", "Rice takes 20 minutes"), _say),
    )


def _structured(method: str) -> Callable[[Desk], Any]:
    def build(desk: Desk) -> Any:
        asks = "Verdict" if method == "function_calling" else None
        voice = _voice(desk, "classify", '{"query": "rice cooking time"}', asks=asks)
        return _chain(
            desk,
            ("classify", voice.structured(method), lambda said: {}),
            ("talk", _voice(desk, "talk", "Rice takes 20 minutes"), _say),
        )

    return build


def _guard(desk: Desk) -> Any:
    builder = StateGraph(State)
    guard, talk = _voice(desk, "guard", "safe: nothing to see"), _voice(desk, "talk", "Rice takes 20 minutes")
    builder.add_node("guard", _node(desk, "guard", guard, _messages, lambda said: {"query": said.text}))
    builder.add_node("talk", _node(desk, "talk", talk, _messages, _say))
    builder.add_edge(START, "guard")
    builder.add_edge(START, "talk")
    return builder


def _map_reduce(desk: Desk) -> Any:
    builder = StateGraph(State)
    split, talk = _voice(desk, "split", "basmati and jasmine"), _voice(desk, "talk", "Rice takes 20 minutes")
    builder.add_node("split", _node(desk, "split", split, _messages, lambda said: {"query": said.text}))

    def work(state: Any, config: RunnableConfig) -> Any:
        model = _voice(desk, f"work {state['topic']}", f"{state['topic']} takes a while")
        desk.wait_for_others(model.step)
        desk.at(model.step, "before")
        said = model.invoke("how long?", config)
        desk.at(model.step, "returned")
        return {"parts": [said.text]}

    async def awork(state: Any, config: RunnableConfig) -> Any:
        model = _voice(desk, f"work {state['topic']}", f"{state['topic']} takes a while")
        await desk.await_others(model.step)
        await desk.aat(model.step, "before")
        said = await model.ainvoke("how long?", config)
        await desk.aat(model.step, "returned")
        return {"parts": [said.text]}

    builder.add_node("work", RunnableLambda(work, awork))
    builder.add_node("talk", _node(desk, "talk", talk, _messages, _say))
    builder.add_edge(START, "split")
    topics = ("basmati", "jasmine")
    builder.add_conditional_edges("split", lambda state: [Send("work", {"topic": one}) for one in topics], ["work"])
    builder.add_edge("work", "talk")
    return builder


def _wrapped_agent(desk: Desk) -> Any:
    """An agent in a node, of which only the last message is returned."""

    def look_(query: str) -> str:
        desk.at("look", "inside")
        return "seen"

    async def alook(query: str) -> str:
        await desk.aat("look", "inside")
        return "seen"

    look = tool("look", description="Looks.")(look_)
    look.coroutine = alook
    last = _voice(desk, "say", "Rice takes 20 minutes")
    inner = create_agent(_voice(desk, "plan", "Let me look", asks="look", then=last), [look], name="inner")

    def work(state: Any, config: RunnableConfig) -> Any:
        said = inner.invoke({"messages": state["messages"]}, config)
        desk.at("say", "returned")
        return {"messages": said["messages"][-1:]}

    async def awork(state: Any, config: RunnableConfig) -> Any:
        said = await inner.ainvoke({"messages": state["messages"]}, config)
        await desk.aat("say", "returned")
        return {"messages": said["messages"][-1:]}

    builder = StateGraph(State)
    builder.add_node("ask", RunnableLambda(work, awork))
    builder.add_edge(START, "ask")
    return builder


_TALK = "Rice takes 20 minutes"
_ASKED, _SEEN = "A Let me look(c-plan)", "T(c-plan) seen"

PROGRAMS: dict[str, Program] = {
    "router": Program(_router, [helper("route", "cooking, surely"), answer("talk", _TALK)]),
    "query writer": Program(_query_writer, [helper("write", "rice cooking time"), answer("talk", _TALK)]),
    "title": Program(_title, [answer("talk", _TALK), helper("title", "About rice")]),
    "reflection": Program(
        _reflection,
        [
            answer("draft", "Some minutes"),
            helper("reflect", "Be precise, please", ["U Be precise, please"]),
            answer("talk", _TALK),
        ],
    ),
    **{
        f"structured by {method}": Program(_structured(method), [known("classify"), answer("talk", _TALK)])
        for method in ("function_calling", "json_mode", "json_schema")
    },
    "guard": Program(
        _guard,
        [
            helper("guard", "safe: nothing to see", beside=("talk",), left=[f"A {_TALK}"]),
            answer("talk", _TALK, beside=("guard",)),
        ],
    ),
    "map-reduce": Program(
        _map_reduce,
        [
            helper("split", "basmati and jasmine"),
            # The other step has ended before, and has shown what the node does with an answer.
            known("work basmati", beside=("work",)),
            known("work jasmine", beside=("work",)),
            answer("talk", _TALK),
        ],
    ),
    "wrapped agent": Program(
        _wrapped_agent,
        [
            # Its words may be those of an answer until it requests a tool.
            Step("plan", [], {"inside": [half("Let me look")]}, {"inside": [half("Let me look")]}),
            Step("look", [], {"inside": [_ASKED, "T*(c-plan)"]}, {"inside": []}),
            Step(
                "say",
                [f"A {_TALK}"],
                {"inside": [_ASKED, _SEEN, half(_TALK)], "returned": [_ASKED, _SEEN, f"A {_TALK}"]},
                {"inside": [half(_TALK)], "returned": [f"A {_TALK}"]},
            ),
        ],
    ),
}

CELLS = [
    (name, step.name, moment)
    for name, program in PROGRAMS.items()
    for step in program.steps
    for moment in step.first
    if (step, moment) != (program.steps[0], "before")
]


def left_of(name: str, cut: str, moment: str, *, is_first: bool) -> list[str]:
    """Return what a thread must hold behind the question when a program was cut."""
    found: list[str] = []
    for step in PROGRAMS[name].steps:
        if step.name == cut:
            return found + step.left + (step.first if is_first else step.later)[moment]
        if cut not in step.beside:
            found += step.leaves
    raise AssertionError(cut)


def whole(name: str) -> list[str]:
    """Return what a thread must hold when the program has come to its end."""
    return [line for step in PROGRAMS[name].steps for line in step.leaves]


def beside(name: str, cut: str) -> tuple[str, ...]:
    return next(step.beside for step in PROGRAMS[name].steps if step.name == cut)


def attached(name: str, desk: Desk, journal: RunJournal, saver: Any, **options: Any) -> Any:
    """A program, compiled and attached."""
    graph = PROGRAMS[name].build(desk).compile(checkpointer=saver, name="program")
    return attach(graph, journal, capture_invoke=True, **options)


def config(thread_id: str, run_id: UUID) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id}, "run_id": run_id}


def ask(text: str) -> Any:
    return {"messages": [("user", text)]}


def ended_in(journal: RunJournal, run_id: UUID) -> Callable[[], set[str]]:
    """A callback handler that records which nodes of a run have ended."""
    return lambda: {str(event.data["node"]) for event in journal.read(str(run_id)) if event.kind == "task.end"}
