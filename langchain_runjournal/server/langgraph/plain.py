"""Pure: values as the clients of LangGraph Server read them: JSON, with messages as flat objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from ...common import strict_json

_DEEPEST: Final = 50


def values_json(value: Any) -> Any:
    """Return a value of a state as JSON. Does not raise: what JSON cannot hold is its `repr`."""
    return strict_json.plain(_flat(value, 0))


def message_json(message: BaseMessage) -> dict[str, Any]:
    """Return a message as a flat object, with its `type` and `id` among its other members."""
    found: dict[str, Any] = values_json(message)
    return found


def _flat(value: Any, depth: int) -> Any:
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
    return value
