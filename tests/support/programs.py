"""The programs of `tests/programs`: what each of them must leave in the thread when it ends at each of its points.

``python -m tests.support.programs`` is a process without threads, which forks a process for each program that a test kills.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from typing_extensions import Self

from langchain_runjournal import RunJournal
from tests.programs import lifespan, registry, research, supervisor, swarm
from tests.programs._stage import HELPER, PATIENCE, Stage
from tests.support.conversations import story

RUN_ID = "00000000-0000-4000-8000-00000000000{}"
HIDDEN = frozenset(
    {"guard_input", "generate_query", "web_research", "reflection", "classify", "jot", "retrieve", "draft", "title", "watch"}
)
"""The nodes whose words no frontend shows."""


@dataclass(frozen=True)
class Case:
    """A program that ends at a point of its second turn, and what its thread then holds behind the first turn."""

    program: str
    agent: str
    point: str
    left: tuple[str, ...]
    answers: str
    """The role that answers the next message."""
    needs: tuple[str, int] | None = None
    """What the journal must hold before the program ends, if branches run side by side."""

    def __str__(self) -> str:
        return f"{self.program}-{self.agent}-{self.point}" if self.agent != self.program else f"{self.program}-{self.point}"


def _cases(program: str, agent: str, answers: str, left: dict[str, Sequence[str]], needs: Any = None) -> list[Case]:
    needs = needs or {}
    return [Case(program, agent, point, tuple(lines), answers, needs.get(point)) for point, lines in left.items()]


_GO = ["U go"]
_LOOK = [*_GO, "A Let me look. (c1,c2)", "T(c1) sunny in Oslo"]
_DUG = [*_LOOK, "T(c2) gold at 2"]
_ASKED = [*_GO, "A Ask the mathematician. (h1)", "T(h1) transferred to math"]
_ADDED = [*_ASKED, "A Let me add. (m1)", "T(m1) 3"]
_TOLD = [*_GO, "A Bob knows that. (h1)", "T(h1) transferred to bob"]
_SEEN = [*_TOLD, "A Ahoy, I look. (b1)", "T(b1) sunny in Oslo"]
_DONE = [*_GO, "A answer to go"]


def _answer(role: str, before: Sequence[str] = _GO, text: str = "answer to go") -> dict[str, Sequence[str]]:
    words = text.split(" ")
    half = " ".join(words[: (len(words) + 1) // 2]) + " "
    return {f"{role}:before": before, f"{role}:mid": [*before, f"A~ {half}"], f"{role}:end": [*before, f"A~ {text}"]}


def _silent(*roles: str, left: Sequence[str] = _GO) -> dict[str, Sequence[str]]:
    return {f"{role}:{place}": left for role in roles for place in ("before", "mid", "end")}


_TOOL_LINE = {
    **_answer("{0}1", text="Let me look. "),
    "lookup:in": [*_GO, "A Let me look. (c1)", "T*(c1) started"],
    **_answer("{0}2", [*_GO, "A Let me look. (c1)", "T(c1) sunny in Oslo"]),
}


def _with_tool(role: str) -> dict[str, Sequence[str]]:
    return {point.format(role): lines for point, lines in _TOOL_LINE.items()}


CASES = [
    *_cases(
        "lifespan",
        "lifespan",
        "agent",
        {
            **_silent("guard1"),
            **_answer("agent1", text="Let me look. "),
            "dig:in": [*_LOOK, "T*(c2) started"],
            **_answer("agent2", _DUG, "Both are found now."),
        },
        {"dig:in": ("llm.tool.result", 1)},
    ),
    *_cases(
        "research",
        "research",
        "answer",
        {
            **_silent("writer1", "searcher-rice", "reflector1", "searcher-pots", "reflector2"),
            **_answer("answer1"),
        },
    ),
    *_cases(
        "supervisor",
        "supervisor",
        "supervisor",
        {
            **_answer("supervisor1", text="Ask the mathematician. "),
            **_answer("math1", _ASKED, "Let me add. "),
            "add:in": [*_ASKED, "A Let me add. (m1)", "T*(m1) started"],
            **_answer("math2", _ADDED, "It makes three."),
            **_answer("supervisor2", [*_ADDED, "A It makes three."], "The result is three."),
        },
    ),
    *_cases("swarm", "swarm", "alice", _answer("alice1", text="Bob knows that. ")),
    *_cases(
        "swarm",
        "swarm",
        "bob",
        {
            **_answer("bob1", _TOLD, "Ahoy, I look. "),
            "lookup:in": [*_TOLD, "A Ahoy, I look. (b1)", "T*(b1) started"],
            **_answer("bob2", _SEEN, "Arr, it is sunny."),
        },
    ),
    *_cases("registry", "assistant", "assistant", _with_tool("assistant")),
    *_cases("registry", "react", "react", _with_tool("react")),
    *_cases("registry", "notes", "notes", {**_silent("jot1"), **_answer("notes1")}),
    *_cases("registry", "router", "poet", {**_silent("classify1"), **_answer("poet1")}),
    *_cases("registry", "rag", "rag", {**_silent("retrieve1"), **_answer("rag1")}),
    *_cases("registry", "drafter", "drafter", {**_silent("draft1"), **_answer("drafter1")}),
    *_cases("registry", "titled", "titled", {**_answer("titled1"), **_silent("title1", left=_DONE)}),
    *_cases(
        "registry",
        "watched",
        "watched",
        {"watch1:mid": _DONE, "watched1:mid": [*_GO, "A~ answer to "]},
        {"watch1:mid": ("llm.ai.response", 1), "watched1:mid": ("llm.ai.response", 1)},
    ),
    *_cases("registry", "plain", "plain", _answer("plain1")),
]
FIRST = {"swarm": ("U first", "A alice answers first")}
NEXT = {"alice": "A alice answers next", "bob": "A bob answers next"}
SYNCED = ("swarm", "registry")
"""The programs that are killed with `durability="sync"`: with "async", a kill may lose the newest checkpoint, and with it
the channels other than the messages, such as the active agent. The journal has the messages only."""
EXTRA = {"notes": "notes", "router": "kind", "rag": "documents", "drafter": "draft", "titled": "summary"}
"""The channel that an agent of the registry has, and others lack."""
BLOCKING = ("supervisor", "swarm", "react")
"""The programs whose nodes can be called without a loop too."""


def first_turn(case: Case) -> list[str]:
    """Return what the first turn leaves."""
    return list(FIRST.get(case.program, ("U first", "A answer to first")))


def next_answer(case: Case) -> str:
    return NEXT.get(case.answers, "A answer to next")


def build(program: str, stage: Stage, journal: RunJournal, saver: Any) -> dict[str, Any]:
    """Return the graphs of a program, each with its checkpointer, as the program gives it one."""
    match program:
        case "lifespan":
            agent = lifespan.build(stage, journal)
            agent.checkpointer = saver  # as the lifespan does
            return {"lifespan": agent}
        case "registry":
            agents = registry.build(stage, journal)
            for agent in agents.values():
                agent.checkpointer = saver
            return agents
        case _:
            module = {"research": research, "supervisor": supervisor, "swarm": swarm}[program]
            return {program: module.build(stage, journal, saver)}


def config_of(thread: str = "thread", run: int | None = None) -> Any:
    return {"configurable": {"thread_id": thread}, **({} if run is None else {"run_id": RUN_ID.format(run)})}


def given(text: str) -> Any:
    return {"messages": [("user", text)]}


class Reader:
    """The user, who reads the stream."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def read(self, item: Any) -> None:
        message, about = item
        if message.type == "AIMessageChunk" and message.text and about["langgraph_node"] not in HIDDEN:
            self.shown.append(message.text)

    async def atalk(self, graph: Any, text: str, config: Any, **options: Any) -> None:
        """Read an answer, and the words of graphs inside the graph."""
        options = {"stream_mode": "messages", "subgraphs": True, **options}
        async for _, item in graph.astream(given(text), config, **options):
            self.read(item)

    def talk(self, graph: Any, text: str, config: Any, **options: Any) -> None:
        """Do the same without a loop."""
        options = {"stream_mode": "messages", "subgraphs": True, **options}
        for _, item in graph.stream(given(text), config, **options):
            self.read(item)

    def said(self) -> str:
        return "".join(self.shown)


def check_whole(messages: Sequence[BaseMessage]) -> None:
    """Check that no message is there twice, that no helper has a word, and that every request is answered right behind it,
    once."""
    ids = [message.id for message in messages]
    assert None not in ids
    assert len(set(ids)) == len(ids), "a message stands there twice"
    assert not [one for one in messages if HELPER in str(one.content) or "sufficient" in str(one.content)]
    for at, message in enumerate(messages):
        asked = [call["id"] for call in getattr(message, "tool_calls", None) or ()]
        behind = messages[at + 1 : at + 1 + len(asked)]
        assert [getattr(one, "tool_call_id", None) for one in behind] == asked


def check_model_input(stage: Stage, case: Case, thread: Sequence[BaseMessage]) -> None:
    """Check that the model that answers got the settled thread, message by message, and the new message."""
    sent = [message for message in stage.models[case.answers].requests[-1] if message.type != "system"]
    assert story(sent) == [*story(thread), "U next"]
    for ours, theirs in zip(thread, sent, strict=False):
        assert (ours.id, ours.content) == (theirs.id, theirs.content)


# --- programs that are killed -----------------------------------------------------------------------------------------


def killed(home: Path, number: int, loop: bool) -> None:
    """Run a first turn, and a second one in which the program dies at the point of the case."""
    case = CASES[number]
    stage = Stage()
    options = {"durability": "sync" if case.program in SYNCED else "async"}
    needs = None if case.needs is None else (RunJournal(home / "runs.db"), RUN_ID.format(2), *case.needs)

    async def later() -> None:
        async with AsyncSqliteSaver.from_conn_string(str(home / "threads.db")) as saver:
            journal = RunJournal(home / "runs.db") if needs is None else needs[0]
            graph = build(case.program, stage, journal, saver)[case.agent]
            await Reader().atalk(graph, "first", config_of(run=1))
            stage.arm(case.point, "die", needs)
            await Reader().atalk(graph, "go", config_of(run=2), **options)

    if loop:
        asyncio.run(later())
        return
    with SqliteSaver.from_conn_string(str(home / "threads.db")) as saver:
        journal = RunJournal(home / "runs.db") if needs is None else needs[0]
        graph = build(case.program, stage, journal, saver)[case.agent]
        Reader().talk(graph, "first", config_of(run=1))
        stage.arm(case.point, "die", needs)
        Reader().talk(graph, "go", config_of(run=2), **options)


def serve() -> None:
    """Fork a process for each line, and write a line that says how it ended."""
    assert threading.active_count() == 1, "it could not be forked safely"
    print("ready", flush=True)
    for line in sys.stdin:
        home, number, loop = json.loads(line)
        pid = os.fork()
        if not pid:
            code = 1
            try:
                killed(Path(home), number, loop)
                code = 0
            except BaseException:  # no exception may continue in the loop of the parent
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


class Forker:
    """The process that forks, as a test sees it."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.programs"]
        root = Path(__file__).parents[2]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        assert self.stdout.readline() == "ready\n"
        return self

    def kill(self, home: Path, case: Case, *, loop: bool) -> None:
        """Run a program until it is killed. Any other end is an error."""
        print(json.dumps([str(home), CASES.index(case), loop]), file=self.stdin, flush=True)
        code = int(self.stdout.readline())
        assert code == -signal.SIGKILL, f"it was not killed, see above: {code}"

    def __exit__(self, *exc: object) -> None:
        self.stdin.close()
        self.process.wait(PATIENCE)
        self.stdout.close()


if __name__ == "__main__":
    serve()
