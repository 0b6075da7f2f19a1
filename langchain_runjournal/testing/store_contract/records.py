"""The promises of a store that keeps records (`stores.Recording`)."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...errors import StoreClosed
from ...stores import StoredRecord
from .support import StoreTests, at_once, comes_true, deltas, raises, row

ODD = "a\0b'\"\\ %s {} :x \n é 漢 😀"
"""A name that may stand in any argument: text without half of a surrogate pair, also with a zero byte."""
TEXT = '{"said":"a\\u0000b \\ud83d é 漢 😀 %s \\" \\\\"}'
"""JSON with all that JSON in UTF-8 may hold."""


class RecordsContract(StoreTests):
    """The part of `StoreContract` about records. A store may lack all of their methods."""

    def test_a_record_is_kept_as_it_was_written(self) -> None:
        """By any handle, with its names and its text; under the names of another space there is nothing."""
        store: Any = self.open()
        if not hasattr(store, "put_record"):
            return
        other: Any = self.open_again(store)
        assert store.record("s", "k") is None
        assert store.records("s", group=None, after=0, limit=None) == []
        long = '{"long":"%s"}' % ("x" * (1 << 20))
        for space, key, group, text in (("s", "k", None, "{}"), (ODD, f"k{ODD}", f"g{ODD}", TEXT), ("s", "long", "g", long)):
            made = store.put_record(space, key, text, version=0, group=group)
            assert made == StoredRecord(space, key, group, text, made.version, made.number)
            assert made.version == made.number > 0
            assert other.record(space, key) == store.record(space, key) == made
            assert made in other.records(space, group=None, after=0, limit=None)
            assert group is None or other.records(space, group=group, after=0, limit=None) == [made]
        assert other.record("s", f"k{ODD}") is None
        assert other.record("sk", "") is None
        assert other.records("s", group=f"g{ODD}", after=0, limit=None) == []
        assert store.check() == []

    def test_a_record_is_written_only_at_its_version(self) -> None:
        """0 is a record that does not exist, None any state. A record keeps its number and its group; no version returns,
        also after a deletion."""
        store: Any = self.open()
        if not hasattr(store, "put_record"):
            return
        other: Any = self.open_again(store)

        def put(text: str | None, version: int | None, group: str | None = None) -> Any:
            return other.put_record("s", "k", text, version=version, group=group)

        assert (put("{}", 1), put(None, None), put(None, 0), put(None, 1)) == (None, None, None, None)
        one = put('{"a":1}', 0, "g")
        assert (put("{}", 0), put("{}", one.version + 1), put(None, 0)) == (None, None, None)
        two = put('{"a":2}', one.version)
        assert two == one._replace(text='{"a":2}', version=two.version)
        assert two.version > one.version
        assert (put("{}", one.version), put(None, one.version)) == (None, None)
        three = put('{"a":3}', None, "h")
        assert three == two._replace(text='{"a":3}', group="h", version=three.version)
        assert store.record("s", "k") == three
        assert store.records("s", group="g", after=0, limit=None) == []
        assert store.records("s", group="h", after=0, limit=None) == [three]
        assert put(None, three.version) == three
        assert store.record("s", "k") is None
        assert (
            store.records("s", group=None, after=0, limit=None) == store.records("s", group="h", after=0, limit=None) == []
        )
        four = put("{}", None)
        assert four.group is None
        assert four.version == four.number > three.version
        assert (put("{}", three.version), put(None, None)) == (None, four)
        assert store.check() == []

    def test_records_are_listed_in_the_order_in_which_they_were_made(self) -> None:
        """Whatever is written to them later; `after` and `limit` give the next ones."""
        store: Any = self.open()
        if not hasattr(store, "put_record"):
            return
        made = [
            store.put_record(space, f"k{at:03}", "{}", version=0, group="odd" if at % 2 else None)
            for at in range(220)
            for space in ("s", "t")
        ]
        store.put_record("s", "k000", '{"later":1}', version=None, group=None)
        store.put_record("s", "k002", None, version=None, group=None)
        other: Any = self.open_again(store)

        def keys(**given: Any) -> list[int]:
            found = other.records("s", **{"group": None, "after": 0, "limit": None, **given})
            return [int(one.key[1:]) for one in found]

        numbers = {one.key: one.number for one in made if one.space == "s"}
        left = [at for at in range(220) if at != 2]
        assert keys() == left
        assert keys(limit=3) == [0, 1, 3]
        assert keys(limit=0) == []
        assert keys(after=numbers["k003"], limit=150) == left[3:153]
        assert keys(after=numbers["k219"]) == []
        assert keys(group="odd") == list(range(1, 220, 2))
        assert keys(group="odd", after=numbers["k003"], limit=2) == [5, 7]
        assert keys(group="even") == []

    def test_of_writers_at_once_one_wins(self) -> None:
        """Each write counts once: none is lost, and no two are made from one version."""
        store: Any = self.open()
        if not hasattr(store, "put_record"):
            return
        handles: list[Any] = [self.open_again(store) for _ in range(4)]
        made: list[Any] = []

        def make(handle: Any) -> None:
            made.append(handle.put_record("s", "made", "{}", version=0, group=None))

        def add(handle: Any) -> None:
            added = 0
            while added < 10:
                old = handle.record("s", "count")
                text = str(int(old.text) + 1)
                added += handle.put_record("s", "count", text, version=old.version, group=None) is not None

        store.put_record("s", "count", "0", version=0, group=None)
        at_once([partial(make, handle) for handle in handles])
        assert len([one for one in made if one is not None]) == 1
        at_once([partial(add, handle) for handle in handles])
        assert store.record("s", "count").text == "40"

    def test_who_reads_on_misses_no_record(self) -> None:
        """While others make records, no record appears behind one that was read."""
        store: Any = self.open()
        if not hasattr(store, "put_record"):
            return
        writers: list[Any] = [self.open_again(store) for _ in range(3)]
        seen: list[StoredRecord] = []

        def make(at: int) -> None:
            for key in range(20):
                writers[at].put_record("s", f"{at} {key}", "{}", version=0, group="g")

        def is_at_the_end() -> bool:
            there = store.records("s", group=None, after=0, limit=None)
            page = store.records("s", group="g", after=seen[-1].number if seen else 0, limit=7)
            seen.extend(page)
            return len(there) == 60 and not page

        def read() -> None:
            assert comes_true(is_at_the_end)

        at_once([*(partial(make, at) for at in range(3)), read])
        assert len(seen) == len({one.key for one in seen}) == 60

    def test_records_outlive_the_runs(self) -> None:
        """Deletions of runs, `tidy` and `vacuum` leave them as they are."""
        store: Any = self.open()
        if not hasattr(store, "put_record"):
            return
        kept = store.put_record("s", "k", TEXT, version=0, group="t")
        store.append("me", [row(deltas("r", 1))])
        store.delete(["r"])
        store.prune(before=None, keep_last=0)
        store.tidy()
        store.vacuum()
        other: Any = self.open_again(store)
        assert other.records("s", group="t", after=0, limit=None) == [kept]

    def test_a_closed_store_neither_reads_nor_writes_records(self) -> None:
        """It says that it is closed."""
        store: Any = self.open()
        if not hasattr(store, "put_record"):
            return
        store.close()
        with raises(StoreClosed):
            store.record("s", "k")
        with raises(StoreClosed):
            store.put_record("s", "k", "{}", version=0, group=None)
        with raises(StoreClosed):
            store.put_record("s", "k", None, version=None, group=None)
        with raises(StoreClosed):
            store.records("s", group=None, after=0, limit=None)
