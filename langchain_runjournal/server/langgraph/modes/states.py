"""Pure: the modes that show what is stored: `values`, `updates`, `tasks`, `checkpoints` and `debug`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from ..plain import values_json
from .place import Payload, bare_metadata, named
from .steps import ERROR, INTERRUPT, Step, Task, Writes, Written, has_ended, json_line, result_of, update_of

MODES: Final = frozenset({"values", "updates", "tasks", "checkpoints", "debug"})


class States:
    """The stored states of one run."""

    def __init__(self, base: Mapping[str, Any], modes: Collection[str], *, subgraphs: bool, stops: Collection[str]) -> None:
        """Begin. `stops`: the nodes before which the run stops, "*" for all."""
        self._about = {key: base[key] for key in ("run_id", "thread_id") if key in base}
        self._metadata = bare_metadata(base)
        self._modes = MODES & set(modes)
        self._subgraphs = subgraphs
        self._stops = frozenset(stops)

    def values(self, step: Step) -> Iterator[Payload]:
        """Yield the state."""
        if self._shows("values", step.namespace):
            yield self._payload("values", step.namespace, step.text)

    def step(self, step: Step, at: float, *, goes_on: bool, written: Written | None = None) -> Iterator[Payload]:
        """Yield what is said of a checkpoint that is stored, and of the tasks that begin behind it. `goes_on`: whether they
        do; `written`: what they have written in an earlier run."""
        space = step.namespace
        if self._shows("checkpoints", space) or self._shows("debug", space):
            body = self._checkpoint(step, written or Written())
            yield from self._both("checkpoints", "checkpoint", step.number, at, space, body)
        if goes_on and (self._shows("tasks", space) or self._shows("debug", space)):
            for task in step.tasks:
                if not task.is_hidden and (written is not None or not self._stops & {task.name, "*"}):
                    begun = {"id": task.id, "name": task.name, "input": values_json(task.input)}
                    begun |= {"triggers": list(task.triggers), "metadata": self._metadata}
                    yield from self._both("tasks", "task", step.number + 1, at, space, begun)

    def ended(self, step: Step, task: Task, writes: Writes, at: float) -> Iterator[Payload]:
        """Yield what is said of a task that has ended: well, with an error, or at a question."""
        space = step.namespace
        if self._shows("updates", space) and has_ended(writes):
            update = values_json(update_of(task.name, writes, step.shape))
            yield self._payload("updates", space, json_line(update))
        if self._shows("tasks", space) or self._shows("debug", space):
            said = values_json(self._ended(task, writes, step))
            yield from self._both("tasks", "task_result", step.number + 1, at, space, said)

    def question(self, step: Step | None, interrupts: Sequence[Any]) -> Iterator[Payload]:
        """Yield what is said of a run that waits for a human."""
        asked = values_json(interrupts)
        if self._shows("updates", ""):
            yield self._payload("updates", "", json_line({INTERRUPT: asked}))
        if asked and self._shows("values", ""):
            values = values_json(step.values) if step is not None else {}
            whole = {**values, INTERRUPT: asked} if isinstance(values, Mapping) else {INTERRUPT: asked}
            yield self._payload("values", "", json_line(whole))

    # --- bodies -------------------------------------------------------------------------------------------------------

    def _checkpoint(self, step: Step, written: Written) -> dict[str, Any]:
        parent = None if step.parent is None else self._config(step, step.parent)
        return {
            "config": self._config(step, step.id),
            "parent_config": parent,
            "values": values_json(step.values),
            "metadata": {"source": step.source, "step": step.number, "parents": values_json(step.parents)},
            "next": [task.name for task in step.tasks],
            "tasks": [self._task(step, task, written.by_task.get(task.id, ())) for task in step.tasks],
        }

    def _task(self, step: Step, task: Task, writes: Writes) -> dict[str, Any]:
        inner = None
        if task.has_graph:
            inner = {"thread_id": self._about.get("thread_id"), "checkpoint_ns": task.namespace(step.namespace)}
        state = None if inner is None else {"configurable": inner}
        said = values_json(self._ended(task, writes, step))
        if said["error"]:
            return {"id": task.id, "name": task.name, "error": said["error"], "state": state}
        found = {"id": task.id, "name": task.name, "interrupts": said["interrupts"], "state": state}
        return {**found, "result": said["result"]} if said["result"] else found

    def _config(self, step: Step, id: str) -> dict[str, Any]:
        place = {"checkpoint_ns": step.namespace, **self._about}
        if step.parents:
            place["checkpoint_map"] = {**step.parents, step.namespace: id}
        return {"configurable": {**place, "checkpoint_id": id}}

    def _ended(self, task: Task, writes: Writes, step: Step) -> dict[str, Any]:
        error = next(
            (repr(value) if isinstance(value, BaseException) else value for key, value in writes if key == ERROR), None
        )
        asked: list[Any] = []
        for key, value in writes:
            if key == INTERRUPT:
                asked += value if isinstance(value, (list, tuple)) else [value]
        result = result_of(writes, step.shape)
        return {"id": task.id, "name": task.name, "error": error, "result": result, "interrupts": asked}

    # --- frames -------------------------------------------------------------------------------------------------------

    def _shows(self, mode: str, namespace: str) -> bool:
        return mode in self._modes and (self._subgraphs or not namespace)

    def _both(self, mode: str, kind: str, number: int, at: float, space: str, body: dict[str, Any]) -> Iterator[Payload]:
        if self._shows(mode, space):
            yield self._payload(mode, space, json_line(body))
        if self._shows("debug", space):
            if kind == "checkpoint":
                config, parent = body["config"]["configurable"], body["parent_config"]
                mine = {key: value for key, value in config.items() if key != "run_id"}
                theirs = parent and {key: value for key, value in parent["configurable"].items() if key != "run_id"}
                body = {**body, "checkpoint": mine, "parent_checkpoint": theirs}
            stamp = datetime.fromtimestamp(at, timezone.utc).isoformat()
            yield self._payload(
                "debug", space, json_line({"step": number, "timestamp": stamp, "type": kind, "payload": body})
            )

    def _payload(self, mode: str, namespace: str, data: str) -> Payload:
        return Payload(mode, named(mode, namespace, subgraphs=self._subgraphs), data)
