"""What a program reports about itself in a run: `run.custom`.

A program has two ways. `dispatch_custom_event` is a callback. LangGraph's stream writer is not: the caller of the graph gets
what is written there, and only if it asks for `stream_mode="custom"`; else LangGraph gives its nodes a writer that does
nothing. So each graph that begins gets a runtime of ours (`stream_writer`).

Rule: what a program reports is encoded before the call returns, and never waits, fails or changes what the caller's stream
yields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

from ..events import Kind
from ..events.encoding import encode_value
from ..messages.message_data import Data
from .call_tree import Node, key_of
from .never_raises import never_raises

if TYPE_CHECKING:
    from ..journal.core import JournalCore
    from ..journal.run_journal import RunJournal
    from .recorder import Recorder

LARGEST_CUSTOM: Final = 64 << 10
"""The bytes of the largest value that `run.custom` keeps, as JSON."""
TOO_LARGE: Final = f"its JSON takes more than {LARGEST_CUSTOM:,} bytes"
"""Why a larger value was dropped."""

_KIND: Final[Kind] = "run.custom"
_SEPARATOR: Final = "|"
"""What LangGraph puts between the parts of a checkpoint namespace."""


class CustomEvents(BaseCallbackHandler):
    """The part of the handler that records `dispatch_custom_event`."""

    journal: RunJournal
    _core: JournalCore
    _capture: Recorder
    ignore_custom_event = False

    @never_raises
    def on_custom_event(
        self,
        name: str,
        data: Any,
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **about: Any,
    ) -> Any:
        """Record what `dispatch_custom_event` reports, in the run of the call that it is dispatched from."""
        recorder = self._capture
        node = recorder.tracker.nodes.get(key_of(run_id))
        owner: object = node.owner if node is not None else None
        if node is not None and owner is self:
            keep_custom(self._core, tool_of(recorder, node), node, data, name=name, place=metadata or {})


def tool_of(recorder: Recorder, node: Node) -> str | None:
    """Return the tool call inside of which a call runs, or None."""
    return node.inside or (recorder.running_tool(node) if node.place else None)


def keep_custom(
    core: JournalCore, inside: str | None, node: Node, value: Any, *, name: str | None, place: Mapping[str, Any]
) -> None:
    """Append a value to the run of a node. `place`: the metadata of the call that reports it; `inside`: its tool call."""
    if node.root.muted:
        return
    namespace = str(place.get("langgraph_checkpoint_ns") or "")
    at_node = place.get("langgraph_node")
    data: Data = {
        "value": value,
        "ns": namespace.split(_SEPARATOR)[:-1],
        "node": None if at_node is None else str(at_node),
        "name": name,
    }
    if inside is not None:
        data["inside"] = inside
    if node.root.over:
        data["late"] = True
    core.appender.record(node.run_id, None, _KIND, None, _bounded(data))


def _bounded(data: Data) -> str:
    """Return the event as JSON, without its value if that is too large."""
    written = encode_value(_KIND, data)
    size = len(written.encode())
    if size <= LARGEST_CUSTOM:
        return written
    size -= len(encode_value(_KIND, {**data, "value": 0}).encode()) - 1
    if size <= LARGEST_CUSTOM:
        return written
    left = {key: one for key, one in data.items() if key != "value"}
    return encode_value(_KIND, {"dropped": TOO_LARGE, "size": size, **left})
