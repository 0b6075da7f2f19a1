"""What the clients of LangGraph Server send in a path or a body, checked.

Rule: a member that this server does not know is ignored, because a newer client may send it; one that it knows and cannot do
is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ..problems import Problem

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_LONGEST: Final = 255
MOST: Final = 1_000


def is_uuid(value: object) -> bool:
    """Return whether a value is the text of a UUID. Clients decide by that whether an id can be one of a thread."""
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def uuid_of(value: object, what: str) -> str:
    """Return an id, which must be a UUID. `what`: "thread", "run" or "assistant"."""
    if isinstance(value, str) and is_uuid(value):
        return value
    raise Problem(422, f"Invalid {what} ID: must be a UUID.")


def object_in(body: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return a member that is an object, or None without it."""
    value = body.get(name)
    if value is None or isinstance(value, dict):
        return value
    raise Problem(422, f'"{name}" must be an object.')


def list_in(body: Mapping[str, Any], name: str) -> list[Any] | None:
    """Return a member that is a list, or None without it."""
    value = body.get(name)
    if value is None or isinstance(value, list):
        return value
    raise Problem(422, f'"{name}" must be a list.')


def text_in(body: Mapping[str, Any], name: str) -> str | None:
    """Return a member that is a text, or None without it."""
    value = body.get(name)
    if value is None or (isinstance(value, str) and len(value) <= _LONGEST and "\x00" not in value):
        return value
    raise Problem(422, f'"{name}" must be a text of at most {_LONGEST} characters.')


def one_in(body: Mapping[str, Any], name: str, known: Collection[str], default: str) -> str:
    """Return a member that is one of some words."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, str) and value in known:
        return value
    raise Problem(422, f'"{name}" must be one of: {", ".join(known)}.')


def number_in(body: Mapping[str, Any], name: str, default: int, *, least: int = 0, most: int | None = None) -> int:
    """Return a member that is a whole number, or its digits. More than `most` means `most`."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value if most is None else min(value, most)
    raise Problem(422, f'"{name}" must be a number of at least {least}.')


def flag_in(body: Mapping[str, Any], name: str) -> bool:
    """Return a member, or a query parameter, that is yes or no."""
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "1", "false", "0", ""):
        return value.lower() in ("true", "1")
    raise Problem(422, f'"{name}" must be true or false.')


def select_in(body: Mapping[str, Any], known: Sequence[str]) -> list[str] | None:
    """Return the members of the answer that a client wants; None for all."""
    names = body.get("select")
    names = names.split(",") if isinstance(names, str) else list_in(body, "select")
    if not names:
        return None
    if unknown := [one for one in names if one not in known]:
        raise Problem(422, f'"select" has an unknown name: {str(unknown[0])[:40]!r}. It may have: {", ".join(known)}.')
    return names


def selected(found: dict[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """Return the members of an answer that a client wants."""
    return found if names is None else {name: found[name] for name in found if name in names}


def refuse(body: Mapping[str, Any], **reasons: str) -> None:
    """Raise a `Problem` for a member that this server knows and cannot do."""
    for name, reason in reasons.items():
        if body.get(name) not in (None, {}, []):
            raise Problem(422, f'"{name}" is not served: {reason}')


def contains(whole: Any, part: Any) -> bool:
    """Return whether a JSON value contains another one, as `@>` does in PostgreSQL: objects by their members, lists by their
    items, anything else by being equal."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(key in whole and contains(whole[key], one) for key, one in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(contains(each, one) for each in whole) for one in part)
    return type(whole) is type(part) and bool(whole == part)


def checkpoint_in(body: Mapping[str, Any]) -> dict[str, str]:
    """Return where a state is, by the members `checkpoint` and `checkpoint_id` of a body. The thread is that of the URL."""
    return _place({**(object_in(body, "checkpoint") or {}), **_id_beside(body)}, "checkpoint")


def _id_beside(body: Mapping[str, Any]) -> dict[str, Any]:
    return {} if body.get("checkpoint_id") is None else {"checkpoint_id": body["checkpoint_id"]}


def before_in(body: Mapping[str, Any]) -> dict[str, str] | None:
    """Return behind which state a history goes on: an id, a checkpoint, or a config with one, as both SDKs send it."""
    value = body.get("before")
    if value is None:
        return None
    if isinstance(value, str):
        value = {"checkpoint_id": value}
    elif isinstance(value, dict) and isinstance(value.get("configurable"), dict):
        value = value["configurable"]
    if not isinstance(value, dict) or not value.get("checkpoint_id"):
        raise Problem(422, '"before" must be the id of a checkpoint, or an object with "checkpoint_id".')
    return _place(value, "before")


def _place(value: Mapping[str, Any], what: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("checkpoint_id", "checkpoint_ns"):
        one = value.get(name)
        if one is None:
            continue
        if not isinstance(one, str) or len(one) > MOST or "\x00" in one:
            raise Problem(422, f'"{name}" of "{what}" must be a text.')
        found[name] = one
    return found
