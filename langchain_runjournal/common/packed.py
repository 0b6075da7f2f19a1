"""Pure: the values of a message that JSON cannot hold, in the binary form of LangGraph's own serializer.

Rule: a value that comes back is equal to the original, types included; otherwise it does not come back, and the message says
so. `pack` proves this by reading the value back at once. `unpack` compares the types that it finds, because LangGraph
returns a dict in place of an object whose class is missing, or that LANGGRAPH_STRICT_MSGPACK refuses. Nothing is pickled.

A message is LangChain's own dict of `type` and `data`. This module adds these keys beside them:

    packed    by field of `data`, what stands for its value: {"msgpack": base64, "types": how many of each, "tuples": paths}
    left_out  by field of `data`, why its value cannot come back
    floats    see `strict_json`

`data` keeps the value as JSON as well, for programs that read events; of bytes it only keeps the number.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from . import strict_json as _json

Data = dict[str, Any]

PACKED: Final = "packed"
LEFT_OUT: Final = "left_out"
MOST_BYTES: Final = 4 << 20
"""The largest value that is packed, in bytes. The event with it goes through the spool, and callbacks must not wait."""
MOST_VALUES: Final = 20_000
_DEEPEST: Final = 50
_BASIC: Final = frozenset({type(None), bool, int, float, str, bytes, list, dict})
_Path = tuple[Any, ...]


class Unpackable(Exception):
    """The value cannot come back as it was. The message says why, as the predicate of a sentence."""


def keep(message: Data, field: str, value: Any) -> None:
    """Keep a value of a message beside its JSON, if JSON alone would not give it back. Does not raise.

    `message` is LangChain's dict, whose `data` already holds `value` in some form. The function adds to it in place.
    """
    try:
        if _is_json(value):
            return
        message.setdefault(PACKED, {})[field] = pack(value)
    except Unpackable as exc:
        message.setdefault(LEFT_OUT, {})[field] = str(exc)
    except Exception as exc:  # noqa: BLE001 - any object may be in a message, and a callback must not raise
        message.setdefault(LEFT_OUT, {})[field] = f"cannot be kept ({type(exc).__name__})"
    message["data"][field] = _outline(message["data"].get(field))


def read(message: Mapping[str, Any]) -> tuple[Data, dict[str, str]]:
    """Return the fields of a message as they were, and by field why a value could not come back. Such a field is None."""
    found, left_out = dict(message["data"]), dict(message.get(LEFT_OUT) or {})
    if message.get(_json.FLOATS):
        found = _with_floats(found, message[_json.FLOATS])
    for field, packed in (message.get(PACKED) or {}).items():
        try:
            found[field] = unpack(packed)
        except Unpackable as exc:
            left_out[field] = str(exc)
    found.update(dict.fromkeys(left_out))
    return found, left_out


def copied(message: Mapping[str, Any]) -> Data:
    """Return a message of an event without the keys that the event adds to it."""
    return {key: message[key] for key in ("type", "data", PACKED, LEFT_OUT, _json.FLOATS) if key in message}


# --- values -----------------------------------------------------------------------------------------------------------


def pack(value: Any) -> Data:
    """Return the JSON object that stands for a value. Raise `Unpackable` for a value that cannot come back."""
    types, tuples = _survey(value)
    # The serializer gets the types by name, so that reading the value back here does not warn of them. A later reader has
    # rules of its own.
    kind, raw = _encoded(value, serializer := _serializer(types))
    if len(raw) > MOST_BYTES:
        raise Unpackable(_TOO_LARGE)
    packed: Data = {kind: b64encode(raw).decode()}
    if types:
        packed["types"] = dict(types)
    if tuples:
        packed["tuples"] = [list(path) for path in tuples]
    if not is_same(_unpacked(packed, serializer), value):
        raise Unpackable("does not come back equal from LangGraph's serializer")
    return packed


def unpack(packed: Mapping[str, Any]) -> Any:
    """Return the value that was packed, by the rules of this process: see LANGGRAPH_STRICT_MSGPACK. Raise `Unpackable`."""
    try:
        value = _unpacked(packed, _serializer(None))
        found = Counter(_survey(value)[0])
    except Unpackable:
        raise
    except Exception as exc:
        raise Unpackable(f"cannot be read ({type(exc).__name__})") from exc
    missing = Counter(packed.get("types") or {}) - found
    if missing or found - Counter(packed.get("types") or {}):
        raise Unpackable(f"cannot be read in this process ({', '.join(sorted(missing)) or 'another type'})")
    return value


def texts_in(packed: Mapping[str, Any]) -> Iterator[str]:
    """Yield each text in a packed value, and all bytes that are text. Raise any error for a value that cannot be read."""
    types = packed.get("types") or {}
    waiting = [_unpacked({key: one for key, one in packed.items() if key != "tuples"}, _serializer(types))]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, (bytes, bytearray, memoryview)):
            yield bytes(one).decode("utf-8", "ignore")
        waiting += (item for _, item in _items(one))


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, and of the same types at every depth. NaN is the same as NaN. Does not raise."""
    try:
        return _is_same(one, other, 0)
    except Exception:  # noqa: BLE001 - the __eq__ of a user's object may do anything
        return False


def _encoded(value: Any, serializer: Any) -> tuple[str, bytes]:
    try:
        kind, raw = serializer.dumps_typed(value)
    except Exception as exc:
        said = str(exc.__cause__ or exc)[:200]
        raise Unpackable(f"cannot be kept by LangGraph's serializer ({said})") from exc
    return kind, bytes(raw)


def _unpacked(packed: Mapping[str, Any], serializer: Any) -> Any:
    kind = next(key for key in packed if key not in ("types", "tuples"))
    value = serializer.loads_typed((kind, b64decode(packed[kind])))
    box = [value]
    for path in reversed(packed.get("tuples") or ()):
        _make_tuple(box, [0, *path])
    return box[0]


def _serializer(types: Mapping[str, int] | None) -> Any:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    if types is None:
        return JsonPlusSerializer(pickle_fallback=False)
    named = [tuple(one.rpartition(".")[::2]) for one in types]
    return JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=named or None)


def _make_tuple(box: Any, path: list[Any]) -> None:
    *above, last = path
    for step in above:
        box = box[step] if isinstance(box, (list, dict)) else getattr(box, step)
    if isinstance(box, (list, dict)):
        box[last] = tuple(box[last])
    else:
        object.__setattr__(box, last, tuple(getattr(box, last)))


def _survey(value: Any) -> tuple[dict[str, int], list[_Path]]:
    """Count the objects of each type in a value, and find its tuples. Raise `Unpackable` for a value that is too large.

    The counts leave out the types that every serializer knows. The paths of the tuples come in order, from the outside in.
    """
    types: Counter[str] = Counter()
    tuples: list[_Path] = []
    size = count = 0
    waiting: list[tuple[Any, _Path]] = [(value, ())]
    while waiting:
        one, path = waiting.pop()
        count += 1
        size += _size(one)
        if size > MOST_BYTES or count > MOST_VALUES:
            raise Unpackable(_TOO_LARGE)
        if len(path) > _DEEPEST:
            raise Unpackable("is nested too deeply")
        kind = type(one)
        if kind is tuple:
            tuples.append(path)
        elif kind not in _BASIC and not isinstance(one, dict):
            types[f"{kind.__module__}.{kind.__name__}"] += 1
        waiting += ((item, (*path, step)) for step, item in _items(one))
    for path in tuples:
        if any(type(step) not in (str, int) for step in path):
            raise Unpackable("has a tuple in a set, or under a key that is neither text nor a number")
    return dict(types), tuples


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the direct parts of a value, each with its index, its key or its name."""
    if isinstance(value, Mapping):
        yield from value.items()
    elif type(value) in (list, tuple):
        yield from enumerate(value)
    elif isinstance(value, (tuple, set, frozenset)):
        yield from ((None, item) for item in value)
    else:
        yield from (_fields(value) or {}).items()


def _fields(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a dataclass or of a pydantic model; None for anything else."""
    if isinstance(value, type):
        return None
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if hasattr(type(value), "model_fields") and hasattr(value, "__dict__"):
        return {**vars(value), **(getattr(value, "__pydantic_extra__", None) or {})}
    return None


def _size(value: Any) -> int:
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        return len(value)
    size = getattr(value, "nbytes", 8)
    return size if isinstance(size, int) else 8


def _is_json(value: Any) -> bool:
    """Return whether JSON alone gives a value back: it has only types of JSON, finite floats, and text as keys."""
    waiting = [(value, 0)]
    for _ in range(MOST_VALUES):
        if not waiting:
            return True
        one, depth = waiting.pop()
        kind = type(one)
        if kind is dict and depth < _DEEPEST:
            if any(type(key) is not str for key in one):
                return False
            waiting += ((item, depth + 1) for item in one.values())
        elif kind is list and depth < _DEEPEST:
            waiting += ((item, depth + 1) for item in one)
        elif kind is float:
            if not math.isfinite(one):
                return False
        elif kind is int:
            if one.bit_length() >= _json.LONGEST_INT:
                return False
        elif one is not None and kind not in (str, bool):
            return False
    try:
        # The value has too many parts for a walk in Python. This does not compare every type, but whether the parts come
        # back equal.
        return bool(_json.loads(_json.dumps_events(value)) == value)
    except Exception:  # noqa: BLE001 - the value cannot be encoded, or its __eq__ fails
        return False


def _is_same(one: Any, other: Any, depth: int) -> bool:
    if one is other:
        return True
    if depth > _DEEPEST or (type(one) is not type(other) and not (isinstance(one, dict) and isinstance(other, dict))):
        return False  # an OrderedDict comes back as the dict that it equals
    if isinstance(one, float):
        return one == other or (one != one and other != other)
    if isinstance(one, Mapping):
        return len(one) == len(other) and all(key in other and _is_same(one[key], other[key], depth + 1) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(_is_same(a, b, depth + 1) for a, b in zip(one, other, strict=True))
    if hasattr(one, "dtype") and hasattr(one, "tobytes"):  # an array of NumPy, whose == returns an array
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    found = _fields(one)
    if found is not None:
        return _is_same(dict(found), dict(_fields(other) or {}), depth + 1)
    return bool(one == other)


def _outline(value: Any) -> Any:
    """Return JSON that describes a value, for readers of events. Of bytes it only gives the number."""
    return _json.plain(_counted(value, 0))


def _counted(value: Any, depth: int) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            return {key: _counted(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [_counted(item, depth + 1) for item in value]
    return value


def _with_floats(found: Data, paths: Any) -> Data:
    """Return the fields with floats in place of the words that stand for them; a copy wherever something changes."""
    for path in paths:
        found = _put_float(found, path)
    return found


def _put_float(value: Any, path: list[Any]) -> Any:
    if not path:
        return _json.WORDS.get(value, value) if isinstance(value, str) else value
    copy = value.copy()
    copy[path[0]] = _put_float(copy[path[0]], path[1:])
    return copy


_TOO_LARGE: Final = f"is larger than {MOST_BYTES >> 20} MiB or {MOST_VALUES:,} values"
