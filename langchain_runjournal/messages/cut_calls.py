"""Pure: whether an answer was cut off, and which of its tool calls did not arrive whole.

Rule: the arguments count as they were received, strictly parsed. LangChain's parser closes what is open, so half a call
looks like a whole one afterwards. Where the text shows nothing (Gemini and Ollama send objects, and an empty text may be a
call without arguments), the reason for the end of the answer decides, or the lack of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from .message_data import Data
from .tool_requests import Request, arguments_of, asking_blocks, block_id, is_whole_json, raw_calls, requested

CutCause: TypeAlias = Literal["length", "incomplete"]
"""`length`: the answer ran into its token limit. `incomplete`: it ended early, or its arguments are not whole."""

CUT_CAUSES: Final = frozenset(get_args(CutCause))

_REASONS: Final = ("finish_reason", "stop_reason", "stopReason", "done_reason")
_ENDED: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})
_LIMITS: Final = ("length", "max_tokens", "max_output_tokens", "context_window")
GIVES_REASON: Final = frozenset(
    {
        "amazon_bedrock",
        "anthropic",
        "azure",
        "deepseek",
        "google_genai",
        "groq",
        "mistral",
        "ollama",
        "openai",
    }
)
"""The providers, by LangChain's `ls_provider`, that give a reason at the end of each answer.
tests/journeys/test_cut_wires.py checks this with the real client package of each."""
_OF_CALLS: Final = frozenset({"tool_calls", "args", "json", "restart"})


# --- the reason ---------------------------------------------------------------------------------------------------------


def reason_of(metadata: Any) -> str | None:
    """Return the reason for the end of an answer from its `response_metadata`; None if that has none."""
    if not isinstance(metadata, Mapping):
        return None
    details = metadata.get("incomplete_details")
    if isinstance(details, Mapping) and isinstance(details.get("reason"), str):
        return str(details["reason"])
    for key in _REASONS:
        if isinstance(metadata.get(key), str) and metadata[key]:
            return str(metadata[key])
    status = metadata.get("status")
    return status if isinstance(status, str) and status in _ENDED else None


def ended_because(metadata: Any, *, expects: bool) -> CutCause | None:
    """Return why an answer is not whole, by what its provider reports of its end; None if nothing says that it is not.

    `expects`: this provider gives a reason each time, so that a missing one means an early end.
    """
    reason = reason_of(metadata)
    if reason is None:
        return "incomplete" if expects else None
    # A search for a part, because chunks that each give the reason are merged into "lengthlength".
    lowered = reason.lower()
    return "length" if any(limit in lowered for limit in _LIMITS) else None


class Endpoints:
    """The models that have given a reason in this process, so that each of their answers is expected to give one."""

    def __init__(self) -> None:
        self._known: set[tuple[Any, ...]] = set()

    def heard(self, endpoint: tuple[Any, ...], fields: Mapping[str, Any], *, streamed: bool) -> bool:
        """Record that an answer has ended, an AI message with these `fields`.

        Return whether an answer of this model without a reason has ended early. Streamed answers count separately, and so do
        those with tool calls: some servers give a reason only for words, and send none behind a call that is whole.
        """
        key = (*endpoint, streamed, bool(fields.get("tool_calls") or fields.get("invalid_tool_calls")))
        if endpoint and endpoint[0] in GIVES_REASON and reason_of(fields.get("response_metadata")) is not None:
            self._known.add(key)
        return key in self._known


ENDPOINTS: Final = Endpoints()
"""The endpoints of this process, for all journals and guards."""

asks_again: ContextVar[bool] = ContextVar("runjournal_asks_again", default=False)
"""Whether the caller discards an answer that is cut off inside of its tool calls and requests another: then the next model
call at its spot is its next attempt. `ToolPairGuard` sets it."""


def endpoint_of(serialized: Any, metadata: Any) -> tuple[Any, ...]:
    """Return a key of one model at one address; empty if LangChain does not name the provider.

    The address counts because servers that speak a provider's protocol differ in whether they give a reason.
    """
    metadata = metadata if isinstance(metadata, Mapping) else {}
    provider, model = metadata.get("ls_provider"), metadata.get("ls_model_name")
    if not isinstance(provider, str):
        return ()
    options = serialized.get("kwargs") if isinstance(serialized, Mapping) else None
    values = options.values() if isinstance(options, Mapping) else ()
    addresses = tuple(value for value in values if isinstance(value, str) and value.startswith("http"))
    return provider, str(model), addresses


# --- the arguments as received ------------------------------------------------------------------------------------------


class RawCalls:
    """The arguments of the calls of one answer as text, joined from its chunks as LangChain joins them."""

    def __init__(self) -> None:
        self._entries: list[tuple[list[str], list[str]]] = []
        """For each call its id, if that has arrived, and the pieces of its arguments."""
        self._places: dict[Any, int] = {}

    def add(self, delta: Mapping[str, Any]) -> None:
        """Add the parts of a delta that belong to calls (for its forms see `messages/chunks.py`)."""
        if delta.get("restart"):
            self._entries.clear()
            self._places.clear()
        if isinstance(delta.get("tool_calls"), list):
            self.add_chunks(delta["tool_calls"])
        for key in ("args", "json"):
            if isinstance(delta.get(key), str):
                self._put(None, delta.get("index"), delta[key])

    def add_chunks(self, chunks: Iterable[Any]) -> None:
        """Add the `tool_call_chunks` of a chunk."""
        for chunk in chunks:
            if isinstance(chunk, Mapping):
                id, args = chunk.get("id"), chunk.get("args")
                self._put(id if isinstance(id, str) else None, chunk.get("index"), args if isinstance(args, str) else "")

    def _put(self, id: str | None, index: Any, args: str) -> None:
        place = self._places.get(index) if index is not None else None
        if place is not None and id and self._entries[place][0] not in ([], [id]):
            place = None  # another call at the same index
        if place is None:
            place = len(self._entries)
            self._entries.append(([], []))
            if index is not None:
                self._places[index] = place
        ids, parts = self._entries[place]
        if id and not ids:
            ids.append(id)
        parts.append(args)

    def texts(self) -> dict[str, str]:
        """Return the arguments by the id of their call. Of two calls with one id, the one that is not whole counts."""
        found: dict[str, str] = {}
        for ids, parts in self._entries:
            text = "".join(parts)
            if ids and (ids[0] not in found or not is_whole_json(text)):
                found[ids[0]] = text
        return found


def is_of_calls(delta: Mapping[str, Any]) -> bool:
    """Return whether a delta holds anything of tool calls."""
    return not _OF_CALLS.isdisjoint(delta)


def raw_of(written: str) -> dict[str, str]:
    """Return the arguments by the id of their call, from deltas in JSON, each followed by a comma: one parse for all."""
    raw = RawCalls()
    for delta in json.loads(f"[{written[:-1]}]"):
        raw.add(delta)
    return raw.texts()


# --- the verdict --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """An answer that was cut off. `broken`: the ids of those of its `calls` that are known not to have arrived whole."""

    cause: CutCause
    calls: tuple[Request, ...] = ()
    broken: frozenset[str] = frozenset()

    def data(self) -> Data:
        """Return the `cut` of the event."""
        return {"cause": self.cause, "calls": sorted(self.broken)} if self.broken else {"cause": self.cause}


def find_cut(fields: Mapping[str, Any], raw: Mapping[str, str] | None = None, *, expects: bool = False) -> Cut | None:
    """Return the cut of an AI message with these fields; None if nothing says that it was cut off.

    `raw`: the arguments as received, by the id of their call, if a handler saw the chunks. `expects`: a missing reason means
    an early end (see `Endpoints`).
    """
    metadata = fields.get("response_metadata")
    ended = ended_because(metadata, expects=expects)
    calls = requested(fields)
    if not calls:
        return Cut(cause=ended) if ended is not None else None
    texts = {**_kept_texts(fields), **(raw or {})}
    runnable = {call.get("id") for call in fields.get("tool_calls") or ()}
    # A call that LangChain found unreadable runs nowhere. It is a cut call only if the answer was cut.
    unended = ended is not None or reason_of(metadata) is None
    broken = {
        one.id
        for one in calls
        if one.id is not None and _is_broken(one, texts.get(one.id)) and (one.id in runnable or unended)
    }
    if ended is not None and not broken and calls[-1].id is not None:
        broken = {calls[-1].id}  # most likely the one in which the answer ended
    if not broken and ended is None:
        return None
    return Cut(cause=ended or "incomplete", calls=tuple(calls), broken=frozenset(broken))


def _is_broken(one: Request, text: str | None) -> bool:
    if text is None:
        return not one.valid and one.name is not None
    return bool(text.strip()) and not is_whole_json(text)


def _kept_texts(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments that the message itself still holds as they were received: some adapters keep them."""
    found: dict[str, str] = {}
    kept = [*asking_blocks(fields.get("content")), *raw_calls(fields.get("additional_kwargs"))]
    kept += [*(fields.get("invalid_tool_calls") or ()), *(fields.get("tool_call_chunks") or ())]
    for block in kept:
        id, text = block_id(block), arguments_of(block)
        if id is not None and isinstance(text, str) and text:
            found[id] = text
    return found
