"""Pure: what a model's answer consists of for a page: words, tool requests, sources and files.

Rule: the words of a stream and those of the message that it adds up to pass through the same `Flow`. So a page that followed
an answer token by token has the same parts as one that loads it whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from ...messages.content_blocks import THINKING, received
from ...messages.message_data import Data
from ...messages.plain_text import thought_of
from ...messages.tool_requests import requested, unwrapped

Kind: TypeAlias = Literal["text", "reasoning"]
_SPOKEN: Final[Mapping[str, Kind]] = {"text": "text", "thinking": "reasoning", "reasoning": "reasoning"}
_URLS: Final = ("url", "uri", "source")
_TITLES: Final = ("title", "document_title", "filename")
_MEDIA: Final = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4", "file": "application/octet-stream"}
"""The media types of blocks that do not name theirs."""


class Piece(NamedTuple):
    """Some words of an answer."""

    kind: Kind
    text: str
    block: object
    """Which content block they belong to."""


class Words(NamedTuple):
    """A part of an answer: all words of one kind that follow each other."""

    kind: Kind
    text: str


@dataclass(slots=True)
class Flow:
    """Joins pieces into parts. A part begins with something that can be seen, and ends where a part of the other kind
    begins."""

    kind: Kind | None = None
    block: object = None
    held: str = ""
    """Blanks that may begin a part of the other kind."""

    def add(self, piece: Piece) -> tuple[bool, str] | None:
        """Return whether a part begins, and the words to add to it; None if there is nothing to add yet."""
        kind, text, block = piece
        if not text:
            return None
        begins = kind != self.kind
        if begins:
            self.held += text
            if self.held.isspace():
                return None
            text = self.held
        elif kind == "reasoning" and block != self.block:
            text = f"\n\n{text}"
        self.kind, self.block, self.held = kind, block, ""
        return begins, text


def delta_pieces(delta: str | Mapping[str, Any]) -> Iterator[Piece]:
    """Yield the words of a delta."""
    if isinstance(delta, str):
        yield Piece("text", delta, None)
        return
    index = delta.get("index")
    kwargs = delta.get("kwargs")
    if isinstance(kwargs, Mapping):
        yield from _beside(kwargs)
    for key, kind in _SPOKEN.items():
        if isinstance(said := delta.get(key), str):
            yield Piece(kind, said, index)
    for block in delta["blocks"] if isinstance(delta.get("blocks"), list) else ():
        index = block.get("index") if isinstance(block, Mapping) else None
        yield from _block_pieces(block, object() if index is None else index)


def call_pieces(delta: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the pieces of tool requests in a delta."""
    for key in ("args", "json"):
        if isinstance(delta.get(key), str):
            yield {"index": delta.get("index"), "args": delta[key]}
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, Mapping) and not str(call.get("type")).startswith("server_tool_call"):
            yield call


def words_of(fields: Mapping[str, Any]) -> list[Words]:
    """Return the parts of a message."""
    flow, found = Flow(), list[Words]()
    for piece in _message_pieces(fields):
        added = flow.add(piece)
        if added is not None:
            begins, text = added
            found.append(Words(piece.kind, text) if begins else Words(piece.kind, found.pop().text + text))
    return found


def _message_pieces(fields: Mapping[str, Any]) -> Iterator[Piece]:
    content, kwargs = fields.get("content"), fields.get("additional_kwargs")
    if isinstance(kwargs, Mapping):
        yield from _beside(kwargs)
    if isinstance(content, str):
        yield Piece("text", content, None)
    for place, block in enumerate(content if isinstance(content, list) else ()):
        yield from _block_pieces(block, place)


def _beside(kwargs: Mapping[str, Any]) -> Iterator[Piece]:
    """Yield the thoughts that some providers send beside the content."""
    said = kwargs.get("reasoning_content")
    if isinstance(said, str):
        yield Piece("reasoning", said, "beside")


def _block_pieces(block: Any, place: object) -> Iterator[Piece]:
    if isinstance(block, str):
        yield Piece("text", block, place)
    elif not isinstance(block, Mapping):
        return
    elif block.get("type") == "text":
        if isinstance(block.get("text"), str):
            yield Piece("text", block["text"], place)
    elif block.get("type") in THINKING:
        summary = block.get("summary")
        if isinstance(summary, list) and summary:
            for at, one in enumerate(summary):
                if isinstance(one, Mapping) and isinstance(one.get("text"), str):
                    yield Piece("reasoning", one["text"], (place, one.get("index", at)))
        else:
            yield Piece("reasoning", thought_of(block), place)


class ToolInput(NamedTuple):
    """A tool request of a whole message."""

    id: str
    name: str
    input: Any
    is_valid: bool


def tool_inputs(fields: Mapping[str, Any]) -> list[ToolInput]:
    """Return the tool requests of a message that a result can name."""
    calls = [*_mappings(fields.get("tool_calls")), *_mappings(fields.get("invalid_tool_calls"))]
    args = {call.get("id"): call.get("args") for call in reversed(calls) if isinstance(call.get("id"), str)}
    return [
        ToolInput(one.id, one.name or "tool", args.get(one.id), one.valid) for one in requested(fields) if one.id is not None
    ]


class Output(NamedTuple):
    """The result of a tool."""

    value: Any
    failed: bool

    @property
    def error_text(self) -> str:
        """The words of a failure, which may not be empty."""
        said = self.value if isinstance(self.value, str) else "".join(one.text for one in words_of({"content": self.value}))
        return said or "error"


def output_of(message: Data) -> Output:
    """Return what a tool message says."""
    fields = message["data"]
    return Output(fields.get("content"), fields.get("status") == "error")


def attachments_of(fields: Mapping[str, Any]) -> list[Data]:
    """Return the sources and the files of a message, as chunks without ids of sources. A source counts once."""
    content = fields.get("content")
    metadata = fields.get("response_metadata")
    provider = metadata.get("model_provider") if isinstance(metadata, Mapping) else None
    found: list[Data] = []
    for block in content if isinstance(content, list) else ():
        inner = unwrapped(block)
        if isinstance(inner, Mapping):
            cited = [*_mappings(inner.get("annotations")), *_mappings(inner.get("citations"))]
            found += [source for one in cited if (source := _source(unwrapped(one))) is not None and source not in found]
            file = file_part(received(inner, provider) if inner.get("type") == "image_generation_call" else inner)
            found += [] if file is None else [file]
    return found


def _source(cited: Mapping[str, Any]) -> Data | None:
    title = next((cited[key] for key in _TITLES if isinstance(cited.get(key), str)), None)
    url = next((one for key in _URLS if is_web(one := cited.get(key))), None)
    if url is not None:
        return {"type": "source-url", "url": url, **({} if title is None else {"title": title})}
    return None if title is None else {"type": "source-document", "mediaType": "text/plain", "title": title}


def file_part(block: Any) -> Data | None:
    """Return a picture, a sound or a document of a message as a file; None for any other block, and for one whose bytes are
    not in the message."""
    if not isinstance(block, Mapping):
        return None
    kind = block.get("type")
    if kind == "image_url":
        inner = block.get("image_url")
        url, media = inner.get("url") if isinstance(inner, Mapping) else inner, "image/png"
    elif kind in _MEDIA:
        media = str(block.get("mime_type") or _MEDIA[str(kind)])
        said = block.get("base64") or (block.get("data") if block.get("source_type") == "base64" else None)
        url = f"data:{media};base64,{said}" if isinstance(said, str) else block.get("url")
    else:
        return None
    if isinstance(url, str) and url.startswith("data:"):
        return {"type": "file", "url": url, "mediaType": url[5:].partition(",")[0].partition(";")[0] or media}
    return {"type": "file", "url": url, "mediaType": media} if is_web(url) else None


def is_web(url: object) -> bool:
    """Return whether it is a URL that a page may link to."""
    return isinstance(url, str) and url.startswith(("https://", "http://"))


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
