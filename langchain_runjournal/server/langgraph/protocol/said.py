"""Pure: what is said on the stream of a thread, before it has a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ..modes.steps import SEPARATOR, json_line

INPUT: Final = "input.requested"
Namespace = tuple[str, ...]


class Said(NamedTuple):
    """One event of the protocol."""

    method: str
    namespace: Namespace
    data: str
    """One line of JSON."""
    node: str | None = None
    name: str | None = None
    """Of a custom event: its name, by which clients subscribe."""

    @property
    def channel(self) -> str:
        """The channel on which clients get it."""
        return "input" if self.method == INPUT else self.method


def said(method: str, namespace: Sequence[str], data: Any, *, node: str | None = None, name: str | None = None) -> Said:
    """Return an event of the protocol."""
    return Said(method, tuple(namespace), json_line(data), node, name)


def namespace_of(text: str) -> Namespace:
    """Return the parts of a checkpoint namespace."""
    return tuple(text.split(SEPARATOR)) if text else ()
