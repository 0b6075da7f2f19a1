"""Pure: which events of a thread a stream shows: by channel, namespace and depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....errors import InvalidArgument
from .said import Namespace, Said

CHANNELS: Final = ("values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom")
_CUSTOM: Final = "custom:"
_STATUS: Final = frozenset({"lifecycle", "input"})
_MOST: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a client asks a stream for."""

    channels: frozenset[str]
    namespaces: Sequence[Namespace] | None = None
    depth: int | None = None
    since: int | None = None

    @property
    def is_status(self) -> bool:
        """Whether the client asks for the state of runs only, and not for what they say."""
        return self.channels <= _STATUS

    def shows(self, event: Said) -> bool:
        """Return whether the stream shows an event."""
        if event.channel not in self.channels and not (
            event.method == "custom" and event.name is not None and f"{_CUSTOM}{event.name}" in self.channels
        ):
            return False
        return self.namespaces is None or any(self._is_within(event.namespace, prefix) for prefix in self.namespaces)

    def _is_within(self, namespace: Namespace, prefix: Namespace) -> bool:
        if len(prefix) > len(namespace) or not all(map(_is_same, namespace, prefix)):
            return False
        return self.depth is None or len(namespace) - len(prefix) <= self.depth


def _is_same(part: str, asked: str) -> bool:
    """Return whether a part of a namespace is the one asked for: the task itself, or any task of that node."""
    return part == asked or (":" not in asked and part.partition(":")[0] == asked)


def parse_subscription(body: Mapping[str, Any]) -> Subscription:
    """Return what a body asks for. Raise `InvalidArgument`."""
    channels = body.get("channels")
    if not isinstance(channels, list) or not channels or not all(_is_channel(one) for one in channels):
        expected = f"a list of channels: {', '.join(CHANNELS)}, or custom:NAME"
        raise InvalidArgument(name="channels", expected=expected, value=channels)
    namespaces = body.get("namespaces")
    if namespaces is not None and not _is_paths(namespaces):
        raise InvalidArgument(name="namespaces", expected="a list of lists of texts, such as [[]]", value=namespaces)
    depth = _count(body, "depth")
    return Subscription(
        channels=frozenset(channels),
        namespaces=None if namespaces is None else [tuple(one) for one in namespaces],
        depth=depth,
        since=_count(body, "since"),
    )


def _is_channel(value: object) -> bool:
    return isinstance(value, str) and (value in CHANNELS or (value.startswith(_CUSTOM) and len(value) > len(_CUSTOM)))


def _is_paths(value: object) -> bool:
    if not isinstance(value, list) or len(value) > _MOST:
        return False
    return all(isinstance(one, list) and all(isinstance(part, str) for part in one) for one in value)


def _count(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgument(name=name, expected="a number, 0 or more", value=value)
    return value
