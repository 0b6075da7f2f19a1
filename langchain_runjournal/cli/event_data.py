"""Read the data of events that both `show` and `follow` print. Any JSON may stand there: never raise because of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..events import Event
from ..events.run_state import as_mapping


def as_list(value: object) -> list[Any]:
    """Return a list as it is, and anything else as an empty list."""
    return value if isinstance(value, list) else []


def message_of(event: Event) -> Mapping[str, Any]:
    """Return the fields of the message in an event; empty if there is none."""
    return as_mapping(as_mapping(event.data.get("message")).get("data"))


def interrupt_values(data: Mapping[str, Any]) -> list[Any]:
    """List what a `run.pause` asks a human."""
    return [as_mapping(one).get("value") for one in as_list(data.get("interrupts"))]
