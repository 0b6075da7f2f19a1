"""Pure: the events of one run, and the steps that its checkpointer holds, as the protocol says them.

Rule: what is stored is shown by the projector of the modes; this one adds what only the protocol has: how runs and graphs
inside of them begin and end, what models say block by block, tools, and questions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from langchain_core.messages import messages_from_dict

from ....events import DELTA, Event
from ..modes.place import graph_namespace
from ..modes.projector import NOTHING, Found, Projector, Request, Want
from ..modes.steps import ERROR, INTERRUPT, SEPARATOR, Step
from ..plain import message_json, values_json
from .messages import CallMessages
from .said import INPUT, Said, namespace_of, said

MODES: Final = ("values", "updates", "tasks")
"""The modes from which the protocol takes what is stored."""
_ENDS: Final = {"completed": "completed", "failed": "failed", "interrupted": "interrupted"}
_LEAST_ERROR: Final = "The run has failed."


class ProtocolProjector:
    """One run, as the stream of its thread says it."""

    def __init__(self, request: Request, about: Mapping[str, Any]) -> None:
        """`request`: with `MODES` and subgraphs; `about`: the metadata with which the run began."""
        self._graph = request.graph
        self._stored = Projector(request, about)
        self._calls = CallMessages()
        self._tools: dict[str, tuple[str, tuple[str, ...], Any]] = {}
        """By the id of its call: a tool request, its namespace and its node."""
        self._open: dict[str, None] = {}
        """The namespaces of the graphs inside of the run that have begun and not ended."""
        self._known: set[str] = set()

    @property
    def is_over(self) -> bool:
        """Whether the last event of the run was said."""
        return self._stored.is_over

    @property
    def last(self) -> Mapping[str, str]:
        """By namespace, the last checkpoint of the run."""
        return self._stored.last

    def wants(self, event: Event) -> Want | None:
        """Return what is needed to say an event, or None."""
        return self._stored.wants(event)

    def say(self, event: Event, found: Found = NOTHING) -> list[Said]:
        """Return what is said of an event."""
        if event.kind == DELTA:
            return self._calls.event(event)
        begun = list(self._graphs_begun(event))
        if event.kind.startswith("llm."):
            return [*begun, *self._calls.event(event), *self._result(event)]
        if event.kind.startswith("tool."):
            return [*begun, *self._tool(event)]
        if event.kind == "run.custom":
            return [*begun, *self._custom(event)]
        return [*begun, *self._step(event, found)]

    # --- runs and steps -----------------------------------------------------------------------------------------------

    def _step(self, event: Event, found: Found) -> Iterator[Said]:
        is_question = event.kind == "run.pause"
        if event.kind == "run.start":
            yield said("lifecycle", (), {"event": "running", "graph_name": self._graph})
        if event.kind in ("run.pause", "run.settled", "run.end"):
            yield from self._calls.end()
        for payload in self._stored.show(event, found):
            mode, _, space = payload.event.partition(SEPARATOR)
            if mode == "values" and not is_question:
                yield from _checkpoint(found.step, space)
                yield Said("values", namespace_of(space), payload.data)
            elif mode == "updates":
                yield from _updates(payload.data, space)
            elif mode == "tasks":
                yield Said("tasks", namespace_of(space), payload.data)
        yield from self._graphs_ended(found)
        if is_question:
            yield from self._questions(event)
        elif event.kind == "run.end":
            yield from self._end(event)

    def _questions(self, event: Event) -> Iterator[Said]:
        for one in event.data.get("interrupts") or ():
            if isinstance(one, Mapping):
                # The JavaScript client reads `payload`, the Python client `value`.
                asked = values_json(one.get("value"))
                yield said(INPUT, (), {"interrupt_id": one.get("id"), "payload": asked, "value": asked})
        yield from self._graphs_left("interrupted")
        yield said("lifecycle", (), {"event": "interrupted", "graph_name": self._graph})

    def _end(self, event: Event) -> Iterator[Said]:
        how = _ENDS.get(str(event.data.get("status")), "completed")
        yield from self._graphs_left(how)
        error = {"error": str(event.data.get("error") or _LEAST_ERROR)} if how == "failed" else {}
        yield said("lifecycle", (), {"event": how, "graph_name": self._graph, **error})

    # --- graphs inside of the run -------------------------------------------------------------------------------------

    def _graphs_begun(self, event: Event) -> Iterator[Said]:
        place = None if isinstance(event.bare, str) else event.bare.get("checkpoint_ns")
        if not isinstance(place, str) or not place:
            return
        space = place if event.kind == "run.checkpoint" else graph_namespace(place)
        if not space or space in self._known:
            return
        parts = space.split(SEPARATOR)
        for depth in range(1, len(parts) + 1):
            inner = SEPARATOR.join(parts[:depth])
            if inner not in self._known:
                self._known.add(inner)
                self._open[inner] = None
                name, _, task = parts[depth - 1].partition(":")
                begun = {"event": "started", "graph_name": name, "trigger_call_id": task or None}
                yield said("lifecycle", parts[:depth], begun)

    def _graphs_ended(self, found: Found) -> Iterator[Said]:
        step = found.ended
        for task in step.tasks if step is not None else ():
            space = task.namespace(step.namespace) if step is not None else ""
            writes = found.written.by_task.get(task.id)
            if space in self._open and writes:
                how = {ERROR: "failed", INTERRUPT: "interrupted"}.get(writes[0][0], "completed")
                yield from self._graph_ended(space, how)

    def _graphs_left(self, how: str) -> Iterator[Said]:
        for space in sorted(self._open, key=len, reverse=True):
            yield from self._graph_ended(space, how)

    def _graph_ended(self, space: str, how: str) -> Iterator[Said]:
        for inner in [one for one in self._open if one == space or one.startswith(f"{space}{SEPARATOR}")][::-1]:
            del self._open[inner]
            name = inner.rpartition(SEPARATOR)[2].partition(":")[0]
            yield said("lifecycle", namespace_of(inner), {"event": how, "graph_name": name})

    # --- tools and reports --------------------------------------------------------------------------------------------

    def _tool(self, event: Event) -> Iterator[Said]:
        data = event.data
        if event.kind == "tool.start":
            request = data.get("tool_call_id") or event.call_id
            place = namespace_of(graph_namespace(str(data.get("checkpoint_ns") or "")))
            self._tools[event.call_id or ""] = str(request), place, data.get("node")
            begun = {"tool_call_id": request, "tool_name": data.get("name"), "input": values_json(data.get("args"))}
            yield said("tools", place, {"event": "tool-started", **begun}, node=data.get("node"))
        elif event.call_id in self._tools:
            request, place, node = self._tools.pop(event.call_id)
            message = "The tool waits for an answer." if data.get("interrupted") else str(data.get("error") or "")
            failed = {"event": "tool-error", "tool_call_id": request, "message": message}
            yield said("tools", place, failed, node=node)

    def _result(self, event: Event) -> Iterator[Said]:
        if event.kind == "llm.tool.result" and event.call_id in self._tools:
            request, place, node = self._tools.pop(event.call_id)
            message = messages_from_dict([event.data["message"]])[0]
            done = {"event": "tool-finished", "tool_call_id": request, "output": message_json(message)}
            yield said("tools", place, done, node=node)

    def _custom(self, event: Event) -> Iterator[Said]:
        data = event.data
        if "value" in data:
            name = data.get("name")
            body = {"payload": data["value"]} if name is None else {"name": name, "payload": data["value"]}
            yield said("custom", [str(one) for one in data.get("ns") or ()], body, node=data.get("node"), name=name)


def _checkpoint(step: Step | None, space: str) -> Iterator[Said]:
    """Yield where a state stands, right before the state itself: clients branch from there."""
    if step is not None and step.namespace == space:
        about: dict[str, Any] = {"id": step.id, "step": step.number, "source": step.source}
        if step.parent is not None:
            about["parent_id"] = step.parent
        yield said("checkpoints", namespace_of(space), about)


def _updates(data: str, space: str) -> Iterator[Said]:
    for node, update in json.loads(data).items():
        if node != INTERRUPT:
            yield said("updates", namespace_of(space), {"node": node, "values": update}, node=node)
