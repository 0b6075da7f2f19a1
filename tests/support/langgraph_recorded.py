"""Answers of a server beside those that were recorded from LangGraph Server: what is missing in them.

In the recordings, `id-3` stands for a UUID, `TIME` for a time, and so on. A name stands for one value wherever it occurs: so
the message of a chunk must have the id of the message in the values, and the checkpoint of a run that of the history.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

_NAME = re.compile(r"(?:id|hash|call|ms)-\d+")
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FORMS = {"id": _UUID, "hash": "[0-9a-f]{32}", "call": r"\S+", "ms": r"\S+"}
SAME = {
    "status",
    "next",
    "type",
    "role",
    "source",
    "step",
    "name",
    "multitask_strategy",
    "graph_id",
    "content",
    "title",
    "note",
}
"""The members whose values must be the same. Of all others, only the type must be."""


class Names:
    """What the names of a recording stand for."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def filled(self, value: Any) -> Any:
        """Return a part of a request with the values of its names. A client has chosen those that are new."""
        if isinstance(value, str):
            return _NAME.sub(lambda found: self.known.setdefault(found[0], str(uuid4())), value)
        if isinstance(value, list):
            return [self.filled(one) for one in value]
        if isinstance(value, Mapping):
            return {key: self.filled(one) for key, one in value.items()}
        return value

    def differs(self, recorded: str, ours: str) -> bool:
        """Return whether a text cannot be the recorded one, and keep what its names stand for."""
        names: list[str] = _NAME.findall(recorded)
        parts = _NAME.split(recorded)
        pattern = re.escape(parts[0])
        for name, part in zip(names, parts[1:], strict=True):
            known = self.known.get(name)
            pattern += f"({_FORMS[name.partition('-')[0]] if known is None else re.escape(known)})" + re.escape(part)
        # LangChain appends -0 to the id of a message that was not streamed. Here, every model streams.
        found = re.fullmatch(re.sub(r"(?<=\))\\-0$", "(?:-0)?", pattern), ours)
        if found is None:
            return True
        for name, value in zip(names, found.groups(), strict=True):
            self.known.setdefault(name, value)
        return False

    def missing(self, recorded: Any, ours: Any, path: str = "", *, texts: bool = True) -> list[str]:
        """Return what an answer lacks, each with its path. `texts`: whether the contents of messages must be the same."""
        key = path.rpartition(".")[2]
        if isinstance(recorded, Mapping):
            if not isinstance(ours, Mapping):
                return [f"{path}: {type(ours).__name__} instead of an object"]
            found = []
            for name, one in recorded.items():
                if (at := self._place(name, ours)) is None:
                    found.append(f"{path}.{name}: missing")
                else:
                    found += self.missing(one, ours[at], f"{path}.{_NAME.sub('ID', name)}", texts=texts)
            return found
        if isinstance(recorded, list):
            if not isinstance(ours, list):
                return [f"{path}: {type(ours).__name__} instead of a list"]
            if len(ours) < len(recorded):
                return [f"{path}: {len(ours)} items instead of {len(recorded)}"]
            pairs = enumerate(zip(recorded, ours, strict=False))
            return [line for _, (one, other) in pairs for line in self.missing(one, other, f"{path}[]", texts=texts)]
        if isinstance(recorded, str) and isinstance(ours, str):
            is_name = _NAME.search(recorded) is not None
            must_be = is_name or (key.rstrip("[]") in SAME and (texts or key != "content"))
            return [f"{path}: {ours!r} instead of {recorded!r}"] if must_be and self.differs(recorded, ours) else []
        if isinstance(recorded, bool) or recorded is None or type(recorded) is not type(ours):
            is_number = isinstance(recorded, (int, float)) and isinstance(ours, (int, float))
            return [] if ours == recorded or is_number else [f"{path}: {ours!r:.60} instead of {recorded!r:.60}"]
        return [f"{path}: {ours!r} instead of {recorded!r}"] if key == "step" and ours != recorded else []

    def _place(self, name: str, ours: Mapping[str, Any]) -> str | None:
        """Return the member of an answer that has the recorded name, which may be the id of something."""
        if name in ours:
            return name
        return next((one for one in ours if _NAME.search(name) and not self.differs(name, one)), None)

    def missing_frames(self, recorded: Sequence[Any], ours: Sequence[Any]) -> list[str]:
        """Return what a stream lacks: the first and the last frame of each event, with their data, in order."""
        found = []
        by_name: dict[str, list[Any]] = {}
        for frame in recorded:
            by_name.setdefault(frame["event"], []).append(frame)
        begins: list[int] = []
        for event, frames in by_name.items():
            mine = [(at, one) for at, one in enumerate(ours) if not self.differs(event, one.get("event", ""))]
            shown = _NAME.sub("ID", event)
            if not mine:
                found.append(f"frame {shown}: missing")
                continue
            begins.append(mine[0][0])
            for frame, (_, other) in zip(frames, (mine[0], mine[-1]), strict=False):
                path, texts = f"frame {shown}", not event.startswith(("messages", "events"))
                found += self.missing(frame["data"], other["data"], path, texts=texts)
                if "id" in frame and "id" not in other:
                    found.append(f"{path}: no id")
        if begins != sorted(begins):
            found.append(f"order of the first frames: {begins}")
        return found
