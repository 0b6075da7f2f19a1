"""Pure: values as the clients of LangGraph Server read them: JSON, with messages as flat objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from ...common import strict_json

_DEEPEST: Final = 50
_TEXTS: Final = ("uuid", "ipaddress")
"""The modules of the standard library whose objects are texts in JSON. A pure module does not import them."""


def values_json(value: Any) -> Any:
    """Return a value of a state as JSON. Does not raise: what has no form in JSON is its `repr`.

    Dates and times have the form of ISO 8601, members of an `Enum` their value, and ids, paths and decimals their text, as
    pydantic writes them: this is also what the schemas of the graph say.
    """
    return strict_json.plain(_flat(value, 0))


def message_json(message: BaseMessage) -> dict[str, Any]:
    """Return a message as a flat object, with its `type` and `id` among its other members."""
    found: dict[str, Any] = values_json(message)
    return found


def _flat(value: Any, depth: int) -> Any:
    if isinstance(value, Enum):  # before `str`, of which it may be a subclass
        value = value.value
    if depth > _DEEPEST or value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, BaseModel):
        # The fields, and not `model_dump`, which would bring messages in a field as another class down to what that has.
        extra = value.model_extra or {}
        members = {name: getattr(value, name) for name in type(value).model_fields} | extra
        return {name: _flat(one, depth + 1) for name, one in members.items()}
    if isinstance(value, Mapping):
        return {key: _flat(one, depth + 1) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_flat(one, depth + 1) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _flat(getattr(value, one.name), depth + 1) for one in fields(value)}
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    is_text = isinstance(value, Decimal) or type(value).__module__ in _TEXTS or hasattr(type(value), "__fspath__")
    return str(value) if is_text else value
