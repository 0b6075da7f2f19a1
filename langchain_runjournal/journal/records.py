"""Records: small JSON objects that a server keeps in the store beside the runs, such as what it knows of a thread.

Rule: the store writes each record by compare-and-set, in one transaction. All methods block: in an event loop, call them by
`JournalCore.off_loop`.
"""

from __future__ import annotations

import builtins
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from ..common import arguments as _arguments
from ..common import strict_json as _json
from ..common.text import is_utf8
from ..errors import InvalidArgument, StoreCorrupt, StoreUnusable
from ..stores import Recording, StoredRecord
from .core import JournalCore, core_of

if TYPE_CHECKING:
    from .run_journal import RunJournal

logger = logging.getLogger("langchain_runjournal")

LARGEST: Final = 1 << 20
"""Bytes of a value as JSON: 1 MiB."""
LONGEST: Final = 200
"""Characters of the name of a space, a key or a group: an index of Postgres takes no longer ones."""
_ENCODED = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_VERBS: Final = ("put_record", "record", "records")


class Record(NamedTuple):
    """A JSON object under a key."""

    space: str
    key: str
    group: str | None
    value: Mapping[str, Any]
    version: int
    """The number of the write that made it what it is. No other write of the store has it."""
    number: int
    """Later records of the space have larger numbers."""


class Records:
    """The records of one journal. Any thread may call its methods, also of several journals on one store."""

    def __init__(self, core: JournalCore) -> None:
        self._core = core

    def get(self, space: str, key: str) -> Record | None:
        """Return the record, or None. Raises `StoreCorrupt` if its value is not what was written."""
        found = self._store().record(*_names(space, key))
        return None if found is None else self._read(found)

    def put(
        self, space: str, key: str, value: Mapping[str, Any] | None, *, version: int | None, group: str | None = None
    ) -> Record | None:
        """Write a record, or delete it (`value` is None), if it has this version: of all processes, one wins.

        `version`: 0 stands for a record that does not exist, None for any state. `group`: None keeps the group that the
        record has. Returns the new record, or the deleted one; None if the record has another version, or if there is
        nothing to delete. Durable when it returns. Redaction does not apply to records.
        """
        names = _names(space, key)
        if group is not None:
            _name("group", group)
        _arguments.count("version", version)
        text = None if value is None else _text(f"the value of record {key!r}", value)
        done = self._store().put_record(*names, text, version=version, group=group)
        if done is None:
            return None
        try:
            return self._read(done)
        except StoreCorrupt:
            if value is not None:
                raise
            return Record(done.space, done.key, done.group, {}, done.version, done.number)  # a damaged one can be deleted

    def list(
        self, space: str, *, group: str | None = None, after: int = 0, limit: int | None = None
    ) -> builtins.list[Record]:
        """Return the records of a space, or of a group in it, with a larger number than `after`: by number, at most `limit`.

        A damaged record is logged and left out.
        """
        _name("space", space)
        if group is not None:
            _name("group", group)
        limit = _arguments.count("limit", limit)
        found = []
        for one in self._store().records(space, group=group, after=_arguments.count("after", after) or 0, limit=limit):
            try:
                found.append(self._read(one))
            except StoreCorrupt as exc:
                logger.error("leaving out a record: %s", exc)
        return found

    def _store(self) -> Recording:
        self._core.check_open()
        store: Any = self._core.store
        if missing := [verb for verb in _VERBS if not hasattr(store, verb)]:
            hint = "Use a store of this package, or add the methods of `stores.Recording` to yours"
            reason = f"its store keeps no records (it lacks {', '.join(missing)})"
            raise StoreUnusable(url=self._core.store.url, reason=reason, hint=hint)
        return cast("Recording", store)

    def _read(self, one: StoredRecord) -> Record:
        try:
            value = _json.loads(one.text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            reason = f"record {one.key} of {one.space} is not a JSON object"
            hint = "Restore it from a backup, or delete the record"
            raise StoreCorrupt(path=self._core.store.url, reason=reason, hint=hint)
        return Record(one.space, one.key, one.group, value, one.version, one.number)


def records_of(journal: RunJournal) -> Records:
    """Return the records of a journal."""
    return Records(core_of(journal))


def _names(space: str, key: str) -> tuple[str, str]:
    return _name("space", space), _name("key", key)


def _name(name: str, value: str) -> str:
    if len(_arguments.text(name, value)) > LONGEST:
        raise InvalidArgument(name=name, expected=f"at most {LONGEST} characters", value=value)
    return value


def _text(name: str, value: Mapping[str, Any]) -> str:
    """Return a value as JSON. The errors do not show the value: it may hold what users wrote."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(name=name, expected="a JSON object", value=type(value).__name__)
    try:
        text = _ENCODED(dict(value))
    except (TypeError, ValueError) as exc:
        raise InvalidArgument(name=name, expected="a JSON object", value=f"an object that is none ({exc})") from None
    except RecursionError:
        text = "[" * (_json.DEEPEST + 1)
    if _json.is_too_deep(text):
        raise InvalidArgument(name=name, expected=f"nested at most {_json.DEEPEST} deep", value="a deeper one")
    text = text if is_utf8(text) else json.dumps(json.loads(text), separators=(",", ":"))
    if (size := len(text.encode())) > LARGEST:
        raise InvalidArgument(name=name, expected=f"at most {LARGEST} bytes as JSON", value=size)
    return text
