"""Pure: the messages of a thread as the AI SDK's UI messages, for `useChat({messages})`.

Rule: all that a run answers is one assistant message, whose id is that of its stream. So a page that loads a thread and then
resumes a stream never has two bubbles for one answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....events import Run, RunStatus
from ....messages.marks import mark_in
from ....messages.message_data import Data
from ..answer import Output, attachments_of, file_part, output_of, tool_inputs, words_of
from .projector import message_id
from .shown import NOT_VALID, partial_data


class ThreadMessage(NamedTuple):
    """A message of a thread, as LangChain's own dict, and the run that it is of, if a run of the journal is known."""

    message: Data
    run_id: str | None = None


def ui_messages(
    thread_id: str,
    messages: Sequence[ThreadMessage],
    runs: Mapping[str, Run] | None = None,
) -> list[Data]:
    """Return the UI messages of a thread. `runs`: what is known of its runs, for the metadata of the answers."""
    conversation = _Conversation(thread_id, runs or {})
    for at, one in enumerate(messages):
        conversation.add(one, at)
    return conversation.found


class _Conversation:
    """The UI messages so far."""

    def __init__(self, thread_id: str, runs: Mapping[str, Run]) -> None:
        self.found: list[Data] = []
        self._thread_id = thread_id
        self._runs = runs
        self._tools: dict[str, Data] = {}
        """The last tool part of each tool call."""
        self._ids: set[str] = set()

    def add(self, one: ThreadMessage, at: int) -> None:
        kind, fields = one.message["type"], one.message["data"]
        if kind == "human":
            id = fields.get("id")
            self._begin("user", str(id) if id else f"{self._thread_id}:{at}", None)["parts"].extend(_user_parts(fields))
        elif kind == "ai":
            self._answer(one.run_id, fields, at)
        elif kind == "tool":
            self._result(one, at)

    def _begin(self, role: str, id: str, metadata: Data | None) -> Data:
        unique, count = id, 1
        while unique in self._ids:
            count += 1
            unique = f"{id}:{count}"
        self._ids.add(unique)
        message: Data = {"id": unique, "role": role, "parts": []}
        if metadata is not None:
            message["metadata"] = metadata
        self.found.append(message)
        return message

    def _of_run(self, run_id: str | None, at: int, message: str | None = None) -> Data:
        """Return the assistant message that an answer belongs to: the last one, if that is of the same run."""
        last = self.found[-1] if self.found else None
        if last is not None and last["role"] == "assistant" and last["metadata"].get("runId") == run_id:
            return last
        if run_id is None:
            return self._begin("assistant", message or f"{self._thread_id}:{at}", {"threadId": self._thread_id})
        about: Data = {"threadId": self._thread_id, "runId": run_id}
        run = self._runs.get(run_id)
        if run is not None and run.status != RunStatus.RUNNING:
            about |= {"status": str(run.status), **({"cause": run.cause} if run.cause else {})}
        return self._begin("assistant", message_id(self._thread_id, run_id), about)

    def _answer(self, run_id: str | None, fields: Mapping[str, Any], at: int) -> None:
        parts = self._of_run(run_id, at, fields.get("id"))["parts"]
        parts.append({"type": "step-start"})
        parts += [{"type": kind, "text": text, "state": "done"} for kind, text in words_of(fields)]
        for one in tool_inputs(fields):
            state: Data = {"state": "input-available", "input": {} if one.input is None else one.input}
            if not one.is_valid:
                state |= {"state": "output-error", "errorText": NOT_VALID}
            self._tools[one.id] = {"type": f"tool-{one.name}", "toolCallId": one.id, **state}
            parts.append(self._tools[one.id])
        for number, found in enumerate(attachments_of(fields)):
            extra = {"sourceId": f"{fields.get('id') or at}:{number}"} if found["type"] != "file" else {}
            parts.append({**found, **extra})
        mark = mark_in(fields.get("additional_kwargs"))
        if mark.get("origin") == "partial":
            parts.append(
                {"type": "data-partial", "id": f"{run_id}:partial:{mark.get('call_id')}", "data": partial_data(mark)}
            )

    def _result(self, one: ThreadMessage, at: int) -> None:
        fields = one.message["data"]
        id = str(fields.get("tool_call_id"))
        tool = self._tools.get(id)
        if tool is None:
            name = fields.get("name") or "tool"
            tool = self._tools[id] = {"type": f"tool-{name}", "toolCallId": id, "input": {}}
            self._of_run(one.run_id, at, fields.get("id"))["parts"].append(tool)
        _show_output(tool, output_of(one.message))


def _show_output(tool: Data, output: Output) -> None:
    if output.failed:
        tool |= {"state": "output-error", "errorText": output.error_text}
    else:
        tool.pop("errorText", None)
        tool |= {"state": "output-available", "output": "" if output.value is None else output.value}


def _user_parts(fields: Mapping[str, Any]) -> list[Data]:
    content = fields.get("content")
    parts: list[Data] = []
    for block in [content] if isinstance(content, str) else content or ():
        if isinstance(block, str) or (isinstance(block, Mapping) and block.get("type") == "text"):
            parts.append({"type": "text", "text": block if isinstance(block, str) else str(block.get("text", ""))})
        elif (file := file_part(block)) is not None:
            parts.append(file)
    return parts
