"""One cell, played: a thread of three turns, the first of which is cut. What is wrong afterwards is the answer."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langchain_runjournal import RunJournal, attach, is_partial, repair_tool_pairs
from tests.providers._answers import Answer, Call
from tests.providers._cells import LEFT, NOT, PLACES, RETRIES, Cell, Place
from tests.providers._clients import CLIENTS
from tests.providers._server import PATIENCE, Cut, Scene, Server
from tests.providers._verdict import Outcome, Problem

QUICK = 0.25
"""Seconds of silence after which a client gives up, where that is the cut. Any other client waits as long as we do."""
ROME = Call("look", {"place": "Rom"})


class Stage:
    """What the scenes share: the server, the journal, the agents. One scene is played at a time."""

    def __init__(self) -> None:
        self.server = Server()
        self.journal = RunJournal(":memory:")
        self.saver = InMemorySaver()
        self.agents: dict[tuple[str, str, bool], Any] = {}
        self.ran: list[tuple[str, dict[str, str]]] = []
        self.returned: list[str] = []
        self.in_tool = asyncio.Event()
        self.in_tool_fails = False
        self.tools = [_tool(self, name) for name in ("look", "delete", "hold")]

    def close(self) -> None:
        self.server.close()
        self.journal.close()

    def agent(self, client: str, mode: str, quick: bool = False) -> Any:
        key = client, mode, quick
        if key not in self.agents:
            model = CLIENTS[client].model(self.server.url, QUICK if quick else PATIENCE)
            make = _agent if mode.startswith("agent") else _graph
            self.agents[key] = attach(make(self, model, mode), self.journal)
        return self.agents[key]


def _tool(stage: Stage, name: str) -> Any:
    from langchain_core.tools import tool

    async def look(place: str) -> str:
        """Look at the weather."""
        stage.ran.append(("look", {"place": place}))
        stage.returned.append(f"{place}: sonnig")
        return f"{place}: sonnig"

    async def delete(path: str) -> str:
        """Delete a file."""
        stage.ran.append(("delete", {"path": path}))
        stage.returned.append(f"{path} is gone")
        return f"{path} is gone"

    async def hold(place: str) -> str:
        """Never come back."""
        stage.ran.append(("hold", {"place": place}))
        stage.in_tool.set()
        if stage.in_tool_fails:
            await _idle()
            raise RuntimeError("the tool has failed")
        await asyncio.Event().wait()
        return ""

    return tool({"look": look, "delete": delete, "hold": hold}[name])


def _agent(stage: Stage, model: Any, mode: str) -> Any:
    from langchain.agents import create_agent
    from langchain.agents.middleware import ModelRetryMiddleware

    from langchain_runjournal import ToolPairGuard

    middleware: list[Any] = [] if mode == "agent" else [ToolPairGuard(stage.journal)]
    if mode in RETRIES:
        then: Any = "continue" if mode.endswith("continue") else "error"
        middleware.insert(0, ModelRetryMiddleware(max_retries=1, on_failure=then, initial_delay=0, jitter=False))
    return create_agent(model, stage.tools, middleware=middleware, checkpointer=stage.saver, name=mode)


def _graph(stage: Stage, model: Any, mode: str) -> Any:
    bound = model.bind_tools(stage.tools)
    repair: Callable[[list[BaseMessage]], list[BaseMessage]] = list
    if mode.endswith("repair"):
        repair = (
            partial(repair_tool_pairs, bridge=True)
            if "bridge" in signature(repair_tool_pairs).parameters
            else repair_tool_pairs
        )

    async def ask(state: MessagesState, config: RunnableConfig) -> Any:
        return {"messages": [await bound.ainvoke(repair(state["messages"]), config)]}

    graph = StateGraph(MessagesState).add_node("model", ask).add_node("tools", ToolNode(stage.tools))
    graph.add_edge(START, "model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
    return graph.compile(checkpointer=stage.saver, name=mode)


class Turn:
    """One turn of a thread, seen from the page that shows it."""

    def __init__(self, stage: Stage, agent: Any, thread: str, said: str) -> None:
        self.run_id = uuid.uuid4()
        self.seen = ""
        self.error: BaseException | None = None
        self.leaving = self.left = False
        config = {"configurable": {"thread_id": thread}, "run_id": self.run_id, "recursion_limit": 12}
        self.stream = agent.astream({"messages": [HumanMessage(said)]}, config, stream_mode="messages")
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for chunk, _ in self.stream:
            if isinstance(chunk, (AIMessageChunk, AIMessage)):
                self.seen += str(chunk.text)
            if self.leaving:
                self.left = True
                break
        await self.stream.aclose()

    async def over(self) -> None:
        """Wait for its end, and keep the error."""
        try:
            await asyncio.wait_for(asyncio.shield(self.task), PATIENCE)
        except asyncio.TimeoutError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            self.error = error


async def _idle() -> None:
    """Let everything that is under way in this loop come to rest."""
    for _ in range(60):
        await asyncio.sleep(0)


async def play(stage: Stage, cell: Cell) -> Outcome:
    """Play a cell, and say what was seen."""
    place, client = PLACES[cell.place], CLIENTS[cell.client]
    scene = stage.server.scene = Scene(client.wire)
    stage.ran.clear()
    stage.returned.clear()
    stage.in_tool.clear()
    stage.in_tool_fails = place.tools and cell.cut == "error"
    thread = uuid.uuid4().hex
    cut = None if place.tools or cell.cut == NOT else Cut(cell.cut, place.behind)
    scene.answers = [(answer, None) for answer in place.answers[:-1]] + [(place.answers[-1], cut)]
    if cell.mode in RETRIES:
        scene.answers.append((place.answers[-1], Cut("overloaded", None)))
    agent = stage.agent(cell.client, cell.mode, quick=cell.cut == "timeout" and not place.tools)
    first = await _first(stage, scene, agent, thread, place, cell)
    seen = await _after_the_cut(stage, scene, agent, thread, first, place, cell)
    found = seen.problems

    asked = len(scene.requests)
    scene.wire = CLIENTS[cell.then or cell.client].wire
    agent = stage.agent(cell.then or cell.client, cell.mode)
    found += await _later(stage, scene, agent, thread, "weiter", [])
    found += _told(scene, asked, first, cell)
    found += await _later(stage, scene, agent, thread, "und Rom?", [((ROME,), None)])
    if ("look", ROME.args) not in stage.ran:
        found.append(Problem("later", "the tool of a later turn did not run"))
    found += [Problem("harness", one) for one in scene.broken]
    return seen


async def _first(stage: Stage, scene: Scene, agent: Any, thread: str, place: Place, cell: Cell) -> Turn:
    loop, reached = asyncio.get_running_loop(), asyncio.Event()
    scene.reached = lambda: loop.call_soon_threadsafe(reached.set)
    turn = Turn(stage, agent, thread, "Wie ist das Wetter?")
    waiting = asyncio.ensure_future((stage.in_tool if place.tools else reached).wait())
    await asyncio.wait({turn.task, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
    waiting.cancel()
    await _idle()
    if cell.cut == "close":
        turn.leaving = True
        while not (turn.left or turn.task.done()):
            reached.clear()
            scene.gate.release()
            sent = asyncio.ensure_future(reached.wait())
            await asyncio.wait({turn.task, sent}, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
            sent.cancel()
            await _idle()
    else:
        scene.gate.release(2 if cell.mode in RETRIES else 1)
        if cell.cut == "stop" or (place.tools and cell.cut == "timeout"):
            turn.task.cancel(cell.cut)
    await turn.over()
    return turn


async def _after_the_cut(
    stage: Stage, scene: Scene, agent: Any, thread: str, turn: Turn, place: Place, cell: Cell
) -> Outcome:
    found = [Problem("refused at once", one) for one in scene.refused]
    at_once = bool(scene.refused)
    scene.refused.clear()
    if not (scene.was_cut or place.tools or cell.cut == NOT):
        found.append(Problem("harness", "the cut was never reached"))
    state = await agent.aget_state({"configurable": {"thread_id": thread}})
    messages = state.values.get("messages", [])
    if state.next:
        found.append(Problem("left to run", str(state.next)))
    answers = [one for one in messages if isinstance(one, AIMessage)]
    taken = turn.error is None and cell.cut not in LEFT  # by the client, for a whole answer
    found += _kept(scene, answers, turn, cut_off=not (place.tools or at_once or taken or scene.ended))
    results = [str(one.content) for one in messages if isinstance(one, ToolMessage)]
    found += [Problem("result lost", one) for one in stage.returned if one not in results]
    whole = [(call.name, call.args) for answer in place.answers for call in answer if isinstance(call, Call)]
    found += [Problem("ran cut arguments", f"{name} {args}") for name, args in stage.ran if (name, args) not in whole]
    transcript = [one for one in await stage.journal.atranscript(str(turn.run_id)) if isinstance(one, AIMessage)]
    if (told := "".join(str(one.text) for one in transcript)) != turn.seen:
        found.append(Problem("transcript", f"{told!r}, seen was {turn.seen!r}"))
    return Outcome(
        found,
        ended=turn.error is None and not turn.left,
        roles=[one.type for one in messages],
        hollow=any(one.kind == "empty answer" for one in found),
        beside_calls=any(one.tool_calls and scene.shown and scene.shown in str(one.text) for one in answers),
        unfinished=scene.was_cut and cell.cut not in LEFT and (turn.error is None or at_once),
    )


def _kept(scene: Scene, answers: list[AIMessage], turn: Turn, cut_off: bool) -> list[Problem]:
    found: list[Problem] = []
    if (kept := "".join(str(one.text) for one in answers)) != turn.seen:
        found.append(Problem("thread", f"{kept!r}, seen was {turn.seen!r}"))
    hollow = [one for one in answers if not str(one.text).strip() and not one.tool_calls]
    found += [Problem("empty bubble" if is_partial(one) else "empty answer", f"{one.content!r}") for one in hollow]
    if not cut_off:
        return found  # the client took it for a whole answer, or had one
    partial = [str(one.text) for one in answers if is_partial(one)]
    if partial != ([scene.shown] if scene.shown.strip() else []):
        found.append(Problem("partial", f"{partial}, shown was {scene.shown!r}"))
    return found


async def _later(
    stage: Stage, scene: Scene, agent: Any, thread: str, said: str, answers: list[tuple[Answer, Cut | None]]
) -> list[Problem]:
    scene.answers = list(answers)
    turn = Turn(stage, agent, thread, said)
    await turn.over()
    found = [Problem("refused", one) for one in scene.refused]
    if turn.error is not None and not found:
        found.append(Problem("later", f"{type(turn.error).__name__}: {str(turn.error)[:200]}"))
    if not turn.error and not turn.seen.endswith("Very well. "):
        found.append(Problem("later", f"it said {turn.seen!r}"))
    scene.refused.clear()
    return found


def _told(scene: Scene, asked: int, turn: Turn, cell: Cell) -> list[Problem]:
    """Whether the provider of the second turn was sent what the user had seen of the first."""
    words, sent = scene.shown.strip(), scene.requests[asked : asked + 1]
    if not words or not sent or words in sent[0] or '"previous_response_id": "' in sent[0]:
        return []
    return [Problem("not sent", words)]
