"""Pure: the modes `messages-tuple` (event `messages`) and `messages` (events `messages/*`).

Rule: a chunk has the id that the message has in the state. Messages that no model has streamed (results of tools, messages
that a node has made) get their ids when they are stored, so they come with the checkpoint that holds them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message, messages_from_dict

from ....events import DELTA, Event
from ..plain import message_json
from .chunks import Chunks
from .place import Payload, call_metadata, graph_namespace, named, task_metadata
from .steps import Step, Task, Writes, json_line, new_messages

TUPLE: Final = "messages-tuple"
PARTIAL: Final = "messages"


_LONG: Final = 10_000
"""How long arguments are repeated as far as they have come: LangChain's parser needs seconds for some that are longer. After
that, the message is repeated when it is complete."""


class _Call:
    """A model call whose words readers get."""

    def __init__(self, event: Event, base: Mapping[str, Any]) -> None:
        data = event.data
        self.chunks = Chunks(str(event.call_id))
        self.metadata = call_metadata(base, data)
        self.namespace = graph_namespace(str(data.get("checkpoint_ns") or ""))
        self.tail = json_line(self.metadata)
        self.has_spoken = False
        self.so_far: AIMessageChunk | None = None
        """The message so far, for the mode that repeats it."""
        self.is_introduced = False
        self.arguments = 0
        """The characters of the arguments of its tool calls."""


class Messages:
    """The messages of one run."""

    def __init__(self, base: Mapping[str, Any], modes: Collection[str], *, subgraphs: bool) -> None:
        self._base = base
        self._tuple, self._partial = TUPLE in modes, PARTIAL in modes
        self._subgraphs = subgraphs
        self._calls: dict[str, _Call] = {}
        self._streamed: set[str] = set()
        """The ids of the messages of models."""

    # --- what models say ----------------------------------------------------------------------------------------------

    def event(self, event: Event, *, quiet: bool = False) -> list[Payload]:
        """Return the payloads of an event of a model call. `quiet`: the readers have them already."""
        call_id = event.call_id or ""
        if event.kind == "llm.start":
            if event.data.get("checkpoint_ns") and not event.data.get("unstreamed"):
                self._calls[call_id] = _Call(event, self._base)
            return []
        call = self._calls.get(call_id)
        if call is None:
            return []
        if event.kind == DELTA:
            return self._delta(call, event, quiet)
        del self._calls[call_id]
        if event.kind != "llm.ai.response":
            return []
        if call.has_spoken and quiet:
            return []
        message = messages_from_dict([event.data["message"]])[0]
        if call.has_spoken:
            last = self._chunk(call, call.chunks.last())
            if self._partial and call.arguments > _LONG:
                last.append(self._payload("messages/partial", json_line([message_json(message)]), call.namespace))
            return last
        if message.id is not None:
            self._streamed.add(message.id)
        return [] if quiet else list(self._whole(message, call.metadata, call.namespace))

    def _delta(self, call: _Call, event: Event, quiet: bool) -> list[Payload]:
        bare = event.bare
        if isinstance(bare, str) and not self._partial:
            if not call.has_spoken:
                call.has_spoken = True
                self._streamed.add(call.chunks.id)
            if quiet or not self._tuple:
                return []
            return [self._payload("messages", f"[{call.chunks.text(bare)},{call.tail}]", call.namespace)]
        chunk = call.chunks.chunk(event.data)
        if chunk is None:
            return []
        call.has_spoken = True
        self._streamed.add(call.chunks.id)
        if quiet and not self._partial:
            return []
        return self._chunk(call, chunk, quiet)

    def _chunk(self, call: _Call, chunk: AIMessageChunk, quiet: bool = False) -> list[Payload]:
        found = []
        if self._tuple and not quiet:
            found.append(self._payload("messages", f"[{json_line(message_json(chunk))},{call.tail}]", call.namespace))
        call.arguments += sum(len(one["args"] or "") for one in chunk.tool_call_chunks)
        if self._partial and chunk.chunk_position != "last" and not (chunk.tool_call_chunks and call.arguments > _LONG):
            introduces = not call.is_introduced
            call.is_introduced = True
            call.so_far = chunk if call.so_far is None else call.so_far + chunk
            if not quiet:
                found += self._introduced(call.chunks.id, call.metadata, call.namespace) if introduces else []
                whole = message_chunk_to_message(call.so_far)
                found.append(self._payload("messages/partial", json_line([message_json(whole)]), call.namespace))
        return found

    # --- what tasks give ----------------------------------------------------------------------------------------------

    def given(self, step: Step, task: Task, writes: Writes, inner: Step | None) -> Iterator[Payload]:
        """Yield the payloads of the messages that a task has written. `inner`: its last step, if it is a graph."""
        known = self._streamed | step.message_ids | (inner.message_ids if inner is not None else frozenset())
        place = task_metadata(task.name, step.number + 1, task.namespace(step.namespace))
        for message in new_messages(writes, known):
            yield from self._whole(message, {**self._base, **place}, step.namespace)

    def _whole(self, message: BaseMessage, metadata: Mapping[str, Any], namespace: str) -> Iterator[Payload]:
        written = json_line(message_json(message))
        if self._tuple:
            yield self._payload("messages", f"[{written},{json_line(metadata)}]", namespace)
        if self._partial:
            yield from self._introduced(str(message.id), metadata, namespace)
            kind = "messages/partial" if isinstance(message, AIMessage) else "messages/complete"
            yield self._payload(kind, f"[{written}]", namespace)

    def _introduced(self, id: str, metadata: Mapping[str, Any], namespace: str) -> Sequence[Payload]:
        return [self._payload("messages/metadata", json_line({id: {"metadata": metadata}}), namespace)]

    def _payload(self, event: str, data: str, namespace: str) -> Payload:
        mode = TUPLE if event == "messages" else PARTIAL
        return Payload(mode, named(event, namespace, subgraphs=self._subgraphs), data)
