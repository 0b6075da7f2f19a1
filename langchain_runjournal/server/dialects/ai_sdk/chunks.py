"""Pure: chunks of the UI message stream, protocol version 1, as `ai` 5, 6 and 7 all read them.

Rule: the readers of version 5 refuse a field or a value that they do not know, and end the stream. So a chunk has only the
fields that `ai` 5.0.59 knows. Whatever else there is to say goes into `data-*` parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ....common import strict_json
from ....events.encoding import encode_text
from ...frames import Payload, encodable

DONE: Final = Payload("[DONE]")
"""The last frame of a stream. No client checks it; proxies do."""
RUNJOURNAL: Final = "runjournal"
"""The key of our `providerMetadata`, by which a page finds the part that a `data-withdrawn` names."""
_REFUSED: Final = re.compile(r'"(?:__proto__|constructor)"')


def chunk(type: str, **fields: Any) -> Payload:
    """Return a chunk. Fields that are None are left out."""
    return Payload(line({"type": type, **{key: value for key, value in fields.items() if value is not None}}))


def delta(kind: str, id: str, text: str) -> Payload:
    """Return the chunk of a `text` or `reasoning` delta, written by hand because it is that of nearly every token."""
    return Payload(f'{{"type":"{kind}-delta","id":{encode_text(id)},"delta":{encode_text(text)}}}')


def data(name: str, id: str, value: Any) -> Payload:
    """Return a data part. A later one of the same name and id replaces it."""
    return Payload(line({"type": f"data-{name}", "id": id, "data": value}))


def line(value: Any) -> str:
    """Return JSON that the clients accept: they refuse a whole stream for an object that has a key `__proto__`."""
    text = strict_json.dumps(value)
    if _REFUSED.search(text):
        text = strict_json.dumps(_harmless(strict_json.plain(value)))
    return encodable(text)


def _harmless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_key(key): _harmless(item) for key, item in value.items()}
    return [_harmless(item) for item in value] if isinstance(value, list) else value


def _key(key: str) -> str:
    return f"_{key}" if key in ("__proto__", "constructor") else key
