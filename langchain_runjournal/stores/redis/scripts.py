"""The scripts that the server executes, each as one step that no other command can divide.

Scripts and not Redis functions: a server older than Redis 7 has none. The server keeps a script by its SHA-1 until it is
restarted, or until an administrator empties that cache: then the store sends the text again.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final, NamedTuple


class Script(NamedTuple):
    """The text of a script, and its SHA-1, by which a server knows it."""

    text: bytes
    sha: bytes


def _script(*parts: str) -> Script:
    folder = files(__package__) / "lua"
    text = b"".join((folder / f"{part}.lua").read_bytes() for part in parts)
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


def _step(*parts: str) -> Script:
    return _script("head", "identity", "index", *parts)


OPEN: Final = _script("open")
APPEND: Final = _script("head", "append", "index", "rows")
BEGIN: Final = _step("begin")
WITHDRAW: Final = _step("answers", "withdraw")
CLAIM: Final = _step("claim")
STOP: Final = _step("stop")
STOPS: Final = _step("stops")
LIST: Final = _step("list")
DELETE: Final = _step("answers", "delete")
CHECK: Final = _step("check")
CHECK_RECORDS: Final = _step("check_records")
BEAT: Final = _step("beat")
HOLD: Final = _step("hold")
RECORD: Final = _step("answers", "record")
RELEASE: Final = _step("release")
SWEEP: Final = _step("sweep")
