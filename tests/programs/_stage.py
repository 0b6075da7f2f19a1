"""The models of a program, and the points at which a test ends the program.

A point is the role, the number of its call in this turn, and a place: ``agent2:mid`` is the middle of the second answer of
the agent. Places of a model call: ``before`` it speaks, ``mid`` sentence, and ``end``, when all is said and the call has not
returned.
A tool has one point, ``in``, in the middle of its work.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

from langchain_core.messages import BaseMessage
from langchain_core.output_parsers import PydanticOutputParser, PydanticToolsParser
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, StructuredTool

from langchain_runjournal import RunJournal
from langchain_runjournal.errors import RequestRefused
from langchain_runjournal.testing import Call, ScriptedChatModel

PATIENCE = 30.0
"""In seconds: how long to wait for what happens at once, unless something is broken."""
HELPER = "HELPER"
"""In whatever a model says for the program only: nothing with this word may come into a thread."""

Act = Literal["wait", "fail", "die"]
Part = str | Call
Needs = tuple[RunJournal, str, str, int]
"""Of a run in a journal, a kind of event, and how many of that kind have to be there."""
Says = Callable[[list[BaseMessage], int], Sequence[Part]]
"""What a role answers: from its messages, and the number of its call in this turn."""


class Actor(ScriptedChatModel):
    """A model that refuses what providers refuse, and has structured output by each of their methods."""

    def with_structured_output(  # type: ignore[override]
        self, schema: Any, *, method: str = "json_schema", **kwargs: Any
    ) -> Runnable[Any, Any]:
        """As the integrations of the large providers do it: by a forced tool, or by a format of the text."""
        shape = {"kwargs": {"method": method}, "schema": schema}
        if method == "function_calling":
            bound = self.bind_tools([schema], tool_choice="any", ls_structured_output_format=shape)
            return bound | PydanticToolsParser(tools=[schema], first_tool_only=True)
        bound = self.bind(response_format={"type": method}, ls_structured_output_format=shape)
        return bound | PydanticOutputParser(pydantic_object=schema)


class Stage:
    """Where the models of one program play, and stop."""

    def __init__(self) -> None:
        self.models: dict[str, Actor] = {}
        self.passed: list[str] = []
        self.reached = threading.Event()
        self._go_on = threading.Event()
        self._go_on_here: asyncio.Event | None = None
        self._point, self._act = "", "wait"
        self._needs: Needs | None = None
        self._calls: Counter[str] = Counter()

    def arm(self, point: str, act: Act = "wait", needs: Needs | None = None) -> None:
        """Stop at a point of the next turn. `needs`: not before the journal holds this of the run."""
        self._point, self._act, self._needs = point, act, needs
        self._calls.clear()
        self.passed.clear()
        self.reached.clear()

    def model(self, role: str, says: Says, label: Callable[[list[BaseMessage]], str] | None = None) -> Actor:
        """The model of a role. `label`: a name instead of the number of the call, where calls run side by side."""

        def script(messages: list[BaseMessage]) -> list[Any]:
            _refuse_empty(messages)
            self._calls[role] += 1
            number = self._calls[role]
            name = f"{role}{number if label is None else '-' + label(messages)}"
            steps: list[Any] = [self._at(f"{name}:before")]
            for part in says(messages, number):
                steps += self._with_a_middle(name, part)
            return [*steps, self._at(f"{name}:end")]

        self.models[role] = Actor(script)
        return self.models[role]

    def tool(self, work: Callable[..., str]) -> BaseTool:
        """A tool for both ways of calling, with its point before it works."""
        name = work.__name__

        @functools.wraps(work)
        def here(**args: Any) -> str:
            self.at(f"{name}:in")
            return work(**args)

        @functools.wraps(work)
        async def later(**args: Any) -> str:
            waiting = self.at(f"{name}:in")
            if waiting is not None:
                await waiting
            return work(**args)

        return StructuredTool.from_function(here, later, name=name)

    def at(self, point: str) -> Any:
        """Do here what was armed. What is returned has to be awaited."""
        self.passed.append(point)
        if point != self._point:
            return None
        self._point = ""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._act_here()
        return self._act_later()

    def release(self) -> None:
        """Let what waits go on: LangGraph leaves tasks behind when it is cancelled twice."""
        self._go_on.set()
        if self._go_on_here is not None:
            self._go_on_here.set()

    def _at(self, point: str) -> Callable[[], Any]:
        return lambda: self.at(point)

    def _with_a_middle(self, name: str, part: Part) -> list[Any]:
        words = part.split(" ") if isinstance(part, str) else []
        if len(words) < 2:
            return [part]
        half = (len(words) + 1) // 2
        return [" ".join(words[:half]) + " ", self._at(f"{name}:mid"), " ".join(words[half:])]

    def _act_here(self) -> None:
        self._until_its_time()
        self._act_now()
        if self._act == "wait":
            assert self._go_on.wait(PATIENCE)

    async def _act_later(self) -> None:
        if self._needs is not None:
            await asyncio.to_thread(self._until_its_time)
        self._act_now()
        if self._act == "wait":
            self._go_on_here = asyncio.Event()
            await self._go_on_here.wait()

    def _act_now(self) -> None:
        self.reached.set()
        if self._act == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._act == "fail":
            raise ConnectionError("the provider dropped the stream")

    def _until_its_time(self) -> None:
        if self._needs is None:
            return
        journal, run_id, kind, left = self._needs
        for event in journal.follow(run_id):
            left -= event.kind == kind
            if not left:
                return
        raise AssertionError(f"the run has ended without another {kind}")


def asked(messages: Sequence[BaseMessage]) -> str:
    """What the user has asked last."""
    return next(message.text for message in reversed(messages) if message.type == "human")


def _refuse_empty(messages: Sequence[BaseMessage]) -> None:
    for message in messages:
        if not message.content and not getattr(message, "tool_calls", None):
            raise RequestRefused(problems=f"message {message.id!r} ({message.type}) is empty")
