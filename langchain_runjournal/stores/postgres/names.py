"""Pure: ids and names as a column of Postgres can hold them. Two names that differ have two columns that differ.

Postgres stores neither the zero byte nor half of a surrogate pair, and an index refuses a text of more than 2,704 bytes.
"""

from __future__ import annotations

import re
from hashlib import blake2b, sha256
from typing import Final

from ...common.text import is_utf8

_LONGEST: Final = 1_000
HASH: Final = "\\#"
"""What the key of a name begins with that is too long for an index."""
_ODD: Final = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPED: Final = re.compile(r"\\(\\|u[0-9a-f]{4})")


def encoded(name: str) -> str:
    """Return a name as text that Postgres can store. A name without a backslash is most often unchanged."""
    if "\\" not in name and "\0" not in name and is_utf8(name):
        return name
    return _ODD.sub(lambda found: "\\\\" if found[0] == "\\" else f"\\u{ord(found[0]):04x}", name)


def decoded(text: str) -> str:
    """Return the name that was encoded."""
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda found: "\\" if found[1] == "\\" else chr(int(found[1][1:], 16)), text)


def key(name: str) -> str:
    """Return a name as text for an indexed column: encoded, or its hash if it is too long for an index."""
    text = encoded(name)
    if len(text.encode()) <= _LONGEST:
        return text
    return f"{HASH}{sha256(text.encode()).hexdigest()}"


def is_hash(text: str) -> bool:
    """Return whether a key is a hash, so that the name itself must be somewhere else."""
    return text.startswith(HASH)


def lock_number(*names: str) -> int:
    """Return the number of an advisory lock. Programs that share the database have other numbers, as far as chance goes."""
    text = "\0".join(map(encoded, ("langchain-runjournal", *names)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
