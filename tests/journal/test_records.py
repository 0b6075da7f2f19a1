"""Records: values come back as they were written, of two writers one wins, and what cannot be kept is refused."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.journal.records import LARGEST, LONGEST, Record, records_of
from langchain_runjournal.stores.memory import MemoryStore
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FaultyStore
from tests.support.places import PLACES, Place

VALUE = {"metadata": {"é 漢 \0": ["a", None, True, 1.5, 1 << 60]}, "half": "\ud83d", "empty": {}}


def test_a_value_comes_back_as_it_was_written(journal: RunJournal) -> None:
    """Under its space and key, with its group; a change keeps the group and the number."""
    records = records_of(journal)
    made = records.put("thread", "t1", VALUE, version=0, group="g")
    assert made is not None
    assert made == Record("thread", "t1", "g", VALUE, made.version, made.number)
    assert records.get("thread", "t1") == made
    assert records.list("thread", group="g") == records.list("thread") == [made]
    assert records.put("thread", "t1", {}, version=0) is None
    changed = records.put("thread", "t1", {"b": 2}, version=made.version)
    assert changed == made._replace(value={"b": 2}, version=changed.version if changed else 0)
    assert records.put("thread", "t1", None, version=made.version) is None
    assert records.put("thread", "t1", None, version=None) == changed
    assert records.get("thread", "t1") is None
    assert records.put("thread", "t1", None, version=None) is None


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (["a"], "a JSON object, but 'list'"),
        ({"a": float("nan")}, r"a JSON object, but .*Out of range float"),
        ({"a": object()}, r"a JSON object, but .*object is not JSON serializable"),
        ({"a": "x" * (LARGEST - 7)}, f"at most {LARGEST} bytes as JSON, but {LARGEST + 1} was given"),
        (nested(101), "nested at most 100 deep"),
        (nested(5_000), "nested at most 100 deep"),
    ],
    ids=["list", "nan", "object", "large", "deep", "deeper"],
)
def test_a_value_that_cannot_be_kept_is_refused(journal: RunJournal, value: Any, says: str) -> None:
    """The error does not show the value, and nothing is written."""
    records = records_of(journal)
    with pytest.raises(errors.InvalidArgument, match=f"the value of record 'k' must be {says}") as caught:
        records.put("s", "k", value, version=None)
    assert len(str(caught.value)) < 300
    assert records.list("s") == []


def test_the_largest_value_is_kept(journal: RunJournal) -> None:
    records = records_of(journal)
    for value in ({"a": "x" * (LARGEST - 8)}, nested(100)):
        records.put("s", "k", value, version=None)
        found = records.get("s", "k")
        assert found is not None
        assert found.value == value


@pytest.mark.parametrize("name", ["", "a\ud83d", "x" * (LONGEST + 1), 5])
@pytest.mark.parametrize("of", ["space", "key", "group"])
def test_a_name_that_no_store_takes_is_refused(journal: RunJournal, of: str, name: Any) -> None:
    records = records_of(journal)
    names = {"space": "s", "key": "k", "group": "g", of: name}
    with pytest.raises(errors.InvalidArgument, match=f"^{of} must be"):
        records.put(**names, value={}, version=0)
    with pytest.raises(errors.InvalidArgument, match=f"^{of} must be"):
        records.get(names["space"], names["key"]) if of != "group" else records.list("s", group=name)
    with pytest.raises(errors.InvalidArgument, match=r"^version must be an int"):
        records.put("s", "k", {}, version=-1)


class OldStore:
    """A store of a user, with the methods that every store must have."""

    def __init__(self) -> None:
        self._inner = MemoryStore()

    def __getattr__(self, name: str) -> Any:
        if name in ("record", "put_record", "records"):
            raise AttributeError(name)
        return getattr(self._inner, name)


def test_a_store_without_records_says_so_when_they_are_used() -> None:
    """And only then: its runs are recorded as ever."""
    store: Any = OldStore()
    with RunJournal(store) as journal:
        records = records_of(journal)
        for use in (
            lambda: records.get("s", "k"),
            lambda: records.put("s", "k", {}, version=0),
            lambda: records.list("s"),
        ):
            with pytest.raises(errors.StoreUnusable, match=r"keeps no records \(it lacks put_record, .*stores.Recording"):
                use()
        journal.append(Event(run_id="r", kind="run.start"))
        journal.flush()
        assert [run.run_id for run in journal.runs()] == ["r"]


def test_a_closed_journal_has_no_records(journal: RunJournal) -> None:
    records = records_of(journal)
    journal.close()
    with pytest.raises(errors.JournalClosed):
        records.list("s")


def test_a_failing_store_fails_the_call(db: Path) -> None:
    """Also if the write was made: the caller looks, and finds its value."""
    store = FaultyStore(SqliteStore(db))
    with RunJournal(store) as journal:
        records = records_of(journal)
        store.fail(verb="put_record", when="after")
        with pytest.raises(OSError, match="out of order"):
            records.put("s", "k", {"a": 1}, version=0)
        assert [one.value for one in records.list("s")] == [{"a": 1}]


def test_a_damaged_record_hides_no_other_one(db: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and can be deleted."""
    with RunJournal(db) as journal:
        records = records_of(journal)
        for key in ("a", "b", "c"):
            records.put("s", key, {"of": key}, version=0)
        with closing(sqlite3.connect(db)) as con, con:
            con.execute("UPDATE records SET text = '{\"of\"' WHERE key = 'a'")
            con.execute("UPDATE records SET text = '[]' WHERE key = 'b'")
        assert [one.key for one in records.list("s")] == ["c"]
        assert "record a of s is not a JSON object" in caplog.text
        with pytest.raises(errors.StoreCorrupt, match=r"record b of s is not a JSON object.*delete the record"):
            records.get("s", "b")
        assert records.put("s", "a", None, version=None) is not None
        assert records.put("s", "b", {"of": "b"}, version=None) is not None
        assert [one.key for one in records.list("s")] == ["b", "c"]


def test_redaction_leaves_records_as_they_are() -> None:
    """What a program writes there, it must get back."""
    with RunJournal(":memory:", redact=lambda text: "***") as journal:
        records_of(journal).put("s", "k", {"mail": "a@b.de"}, version=0)
        found = records_of(journal).get("s", "k")
    assert found is not None
    assert found.value == {"mail": "a@b.de"}


def test_a_file_from_before_records_gets_them(db: Path) -> None:
    """When it is opened, with a version that an older release still opens."""
    with RunJournal(db) as journal:
        journal.append(Event(run_id="r", kind="run.start"))
    with closing(sqlite3.connect(db)) as con, con:
        con.execute("DROP TABLE records")
        con.execute("DELETE FROM facts WHERE name = 'records'")
    with RunJournal(db) as journal:
        assert core_of(journal).store.check() == []
        assert [run.run_id for run in journal.runs()] == ["r"]
        assert records_of(journal).list("s") == []
        assert records_of(journal).put("s", "k", VALUE, version=0) is not None
    with closing(sqlite3.connect(db)) as con, con:
        assert con.execute("SELECT max(version) FROM migrations").fetchone() == (1,)


def test_a_deleted_record_leaves_nothing_in_the_file(db: Path) -> None:
    """Once a deletion of runs, or the close of the last journal, has emptied the -wal file."""
    with RunJournal(db) as journal:
        records_of(journal).put("s", "k", {"said": "my secret" * 2_000}, version=0, group="t")
        journal.append(Event(run_id="r", kind="run.start", data={"thread_id": "t"}))
        journal.append(Event(run_id="r", kind="run.end"))
        journal.flush()
        files = [db, db.with_name(f"{db.name}-wal")]
        assert any(b"my secret" in file.read_bytes() for file in files)
        records_of(journal).put("s", "k", None, version=None)
        assert journal.delete(thread_id="t") == ["r"]
        assert not any(b"my secret" in file.read_bytes() for file in files)


WRITER = """
import json, sys
from pathlib import Path
from langchain_runjournal.journal.records import records_of
from tests.support.places import Place
with Place(**json.loads(sys.argv[1])).open() as journal:
    records = records_of(journal)
    print("ready", flush=True)
    sys.stdin.readline()
    won = [key for key in range(60) if records.put("made", str(key), {"by": sys.argv[2]}, version=0) is not None]
    for _ in range(40):
        while True:
            old = records.get("count", "k")
            if records.put("count", "k", {"n": old.value["n"] + 1}, version=old.version) is not None:
                break
    print(json.dumps(won), flush=True)
"""


@pytest.fixture
def writers(place: Place) -> Iterator[Callable[[], list[list[int]]]]:
    begun: list[subprocess.Popen[str]] = []

    def run() -> list[list[int]]:
        command = [sys.executable, "-c", WRITER, json.dumps(asdict(place))]
        begun.extend(
            subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in "01"
        )
        for one in begun:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in begun:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        return [json.loads(one.communicate(timeout=120)[0]) for one in begun]

    yield run
    for one in begun:
        one.kill()
        one.wait()


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_of_two_processes_one_wins(place: Place, writers: Callable[[], list[list[int]]]) -> None:
    """Both make the same records and count one number up at the same time: each record has one maker, no count is lost."""
    with place.open() as journal:
        records = records_of(journal)
        records.put("count", "k", {"n": 0}, version=0)
        one, two = writers()
        assert sorted(one + two) == list(range(60))
        made = {int(record.key): record.value["by"] for record in records.list("made")}
        assert made == {**dict.fromkeys(one, "0"), **dict.fromkeys(two, "1")}
        counted = records.get("count", "k")
        assert counted is not None
        assert counted.value == {"n": 80}
