"""Pure: the mode `events`: what `astream_events` would have said, as far as the journal and the checkpointer have it.

Left out, since nothing records it: the prompt of a model call, chains inside of a node, retrievers, tags that a program
gives. The run id of a node is the id of its task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import messages_from_dict

from ....events import DELTA, Event
from ..plain import message_json, values_json
from .chunks import Chunks
from .place import Payload, call_metadata, task_metadata
from .steps import Step, Task, Writes, has_ended, json_line, update_of

MODE: Final = "events"


class _Call:
    def __init__(self, event: Event, metadata: Mapping[str, Any], name: Any, parents: Sequence[str], words: str) -> None:
        self.event = {"name": str(name or words), "run_id": str(event.call_id), "tags": [], "metadata": dict(metadata)}
        self.event["parent_ids"] = list(parents)
        self.kind = words
        self.chunks = Chunks(str(event.call_id))
        self.given: Any = event.data.get("args")


class RunEvents:
    """The events of one run."""

    def __init__(self, base: Mapping[str, Any], modes: Collection[str], *, run_id: str, graph: str, input: Any) -> None:
        self._base, self._run_id, self._graph, self._input = base, run_id, graph, values_json(input)
        self._is_asked = MODE in modes
        self._calls: dict[str, _Call] = {}

    def begin(self) -> Iterator[Payload]:
        """Yield the beginning of the run."""
        if self._is_asked:
            yield self._of_run("on_chain_start", {"input": self._input})

    def end(self, last: Step | None) -> Iterator[Payload]:
        """Yield the end of a run that has ended well."""
        if self._is_asked:
            output = None if last is None else values_json(last.values)
            yield self._of_run("on_chain_end", {"output": output, "input": self._input})

    def event(self, event: Event, *, quiet: bool = False) -> list[Payload]:
        """Return what an event of the run says. `quiet`: the readers have it already."""
        if not self._is_asked:
            return []
        match event.kind:
            case "llm.start" | "tool.start":
                return self._begun(event)
            case "run.custom" if event.data.get("name") is not None:
                return [self._custom(event)]
        call = self._calls.get(event.call_id or "")
        if call is None:
            return []
        match event.kind:
            case kind if kind == DELTA:
                chunk = call.chunks.chunk(event.data)
                said = None if chunk is None or quiet else {"chunk": message_json(chunk)}
                return [] if said is None else [self._of(call, "on_chat_model_stream", said)]
            case "llm.ai.response":
                message = messages_from_dict([event.data["message"]])[0]
                return [self._over(call, "on_chat_model_end", {"output": message_json(message)})]
            case "llm.tool.result":
                output = messages_from_dict([event.data["message"]])[0]
                return [self._over(call, "on_tool_end", {"output": message_json(output), "input": call.given})]
            case "tool.error":
                return [self._over(call, "on_tool_error", {"error": event.data.get("error"), "input": call.given})]
        return []

    def step(self, step: Step) -> Iterator[Payload]:
        """Yield the beginnings of the tasks behind a step."""
        if not self._is_asked:
            return
        for task in step.tasks:
            if not task.is_hidden:
                yield self._of_task("on_chain_start", step, task, {"input": values_json(task.input)})

    def ended(self, step: Step, task: Task, writes: Writes) -> Iterator[Payload]:
        """Yield the end of a task that has ended well."""
        if not self._is_asked or not has_ended(writes):
            return
        output = values_json(update_of(task.name, writes, step.shape)[task.name])
        yield self._of_task("on_chain_stream", step, task, {"chunk": output})
        yield self._of_task("on_chain_end", step, task, {"output": output, "input": values_json(task.input)})

    # --- bodies -------------------------------------------------------------------------------------------------------

    def _begun(self, event: Event) -> list[Payload]:
        data = event.data
        place = str(data.get("checkpoint_ns") or "")
        is_model = event.kind == "llm.start"
        metadata = {**self._base, **task_metadata(data.get("node"), data.get("step"), place)}
        if is_model:
            metadata = call_metadata(self._base, data)
        name = data.get("model" if is_model else "name")
        call = _Call(event, metadata, name, self._parents(place), "chat_model" if is_model else "tool")
        self._calls[event.call_id or ""] = call
        given: dict[str, Any] = {"messages": [[]]} if is_model else call.given
        return [self._of(call, f"on_{call.kind}_start", {"input": values_json(given)})]

    def _over(self, call: _Call, event: str, data: Mapping[str, Any]) -> Payload:
        self._calls.pop(call.chunks.call_id, None)
        return self._of(call, event, data)

    def _of(self, call: _Call, event: str, data: Mapping[str, Any]) -> Payload:
        return self._payload({"event": event, "data": data, **call.event})

    def _of_task(self, event: str, step: Step, task: Task, data: Mapping[str, Any]) -> Payload:
        place = task.namespace(step.namespace)
        metadata = {**self._base, **task_metadata(task.name, step.number + 1, place)}
        about = {"name": task.name, "tags": [f"graph:step:{step.number + 1}"], "run_id": task.id, "metadata": metadata}
        return self._payload({"event": event, "data": data, **about, "parent_ids": self._parents(step.namespace)})

    def _of_run(self, event: str, data: Mapping[str, Any]) -> Payload:
        about = {"name": self._graph, "tags": [], "run_id": self._run_id, "metadata": dict(self._base), "parent_ids": []}
        return self._payload({"event": event, "data": data, **about})

    def _custom(self, event: Event) -> Payload:
        data = event.data
        metadata = {**self._base, **({"langgraph_node": data["node"]} if data.get("node") else {})}
        about = {"name": data["name"], "tags": [], "run_id": self._run_id, "metadata": metadata, "parent_ids": []}
        return self._payload({"event": "on_custom_event", "data": data.get("value"), **about})

    def _parents(self, place: str) -> list[str]:
        return [self._run_id, *(part.partition(":")[2] for part in place.split("|") if ":" in part)]

    def _payload(self, said: Mapping[str, Any]) -> Payload:
        return Payload(MODE, MODE, json_line(said))
