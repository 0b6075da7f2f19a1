"""The spool: intact, partly written, truncated and foreign files, and interrupted appends."""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import logging
import mmap
import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.errors import EventsMissing
from langchain_runjournal.events.segments import Segment, pack
from langchain_runjournal.journal import spool as _spool
from langchain_runjournal.journal import spool_import as _spool_import
from langchain_runjournal.journal.append import Appender
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.journal.run_buffer import RunBuffer
from langchain_runjournal.journal.spool import CALL, OPEN, TEXT, VALUE, Spool, spool_files
from langchain_runjournal.journal.spool_import import import_spool
from langchain_runjournal.journal.spool_reader import SpoolScan
from langchain_runjournal.stores import Owner, Store
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import FaultyStore, numbered

OWNER = b"o" * 16


@pytest.fixture
def store(db: Path):
    store = SqliteStore(db)
    yield store
    store.close()


def spool_at(store: Store, **options: int) -> Spool:
    assert store.path is not None
    return Spool(store.path, store.store_id, OWNER, **{"limit": 1 << 20, "size": 1 << 14, **options})


def put_run(spool: Spool, count: int, run_id: str = "r", slot: int = 1, first: int = 1) -> None:
    assert spool.put(slot, first - 1, 0, OPEN, b'{"run_id":"%s","epoch":1}' % run_id.encode())
    for seq in range(first, first + count):
        assert spool.put(slot, seq, 1_700_000_000_000 + seq, TEXT, b'"t%d "' % seq)


def paths(store: Store) -> list[Path]:
    assert store.path is not None
    return spool_files(store.path).get(OWNER.hex(), [])


def seqs(store: Store, run_id: str = "r") -> list[int]:
    return [event.seq for event in store.read(run_id, 0, None)]


# --- intact files -------------------------------------------------------------------------------------------------------


def test_what_was_put_is_found(store: SqliteStore) -> None:
    """Records of every size are imported, in order. The file is deleted when the store has them, and a second import stores
    nothing."""
    spool = spool_at(store, size=1 << 20, limit=1 << 21)
    put_run(spool, 3)
    big = b'["tool.start",{"x":"' + b"y" * 100_000 + b'"}]'
    assert spool.put(1, 4, 1_700_000_000_004, VALUE, big)
    copies = {path: path.read_bytes() for path in paths(store)}
    assert len(copies) == 1
    for events in (4, 0):
        report = import_spool(store, OWNER.hex(), paths(store))
        assert (report.events, report.found, report.problem) == (events, 4, None)
        assert report.runs == (("r",) if events else ())
        assert paths(store) == []
        for path, content in copies.items():
            path.write_bytes(content)
    assert seqs(store) == [1, 2, 3, 4]
    assert len(store.read("r", 3, None)[0].data["x"]) == 100_000


def test_a_spool_goes_on_in_the_next_file(store: SqliteStore) -> None:
    """Each file names its runs again, a file whose events are stored is deleted, and the limit holds."""
    spool = spool_at(store, limit=1 << 16)
    done: set[int] = set()
    assert spool.rotate(0, lambda: 1 in done)
    assert spool.rotate(0, lambda: 2 in done)
    assert len(paths(store)) == 3
    done.add(2)
    spool.release()
    assert len(paths(store)) == 3, "no hole: the older one goes first"
    done.add(1)
    spool.release()
    assert len(paths(store)) == 1
    for _ in range(3):
        assert spool.rotate(0, lambda: 3 in done)
    assert not spool.rotate(0, lambda: True), "four files of 16 KiB are the limit"
    assert spool.allocated == 1 << 16
    assert spool.rotate(1 << 20, lambda: 3 in done), "a record that fits into no file gets one of its own"
    assert not spool.rotate(1 << 20, lambda: 3 in done), "but one at a time"
    done.add(3)
    spool.release()
    assert len(paths(store)) == 1
    spool.prepare()
    assert len(paths(store)) == 2, "one is kept ready"
    spool.drop_spares()
    assert len(paths(store)) == 1
    assert spool.close(keep=False) == []
    assert paths(store) == []


@pytest.mark.parametrize("how", ["prune", "delete"])
def test_a_deleted_run_does_not_come_back(store: SqliteStore, how: str) -> None:
    """Not even the spool of its owner brings it back if the owner is killed: the store remembers the id until it forgets
    the owner."""
    owner = Owner(owner_id=OWNER.hex(), place="", pid=1, born="", lease=1.0)
    store.beat(owner)
    store.append(OWNER.hex(), [pack("r", 1, numbered("r", ["run.start", "run.end"]))])
    spool = spool_at(store)
    put_run(spool, 2)
    put_run(spool, 1, "s", slot=2)
    assert (store.prune(before=None, keep_last=None) if how == "prune" else store.delete(["r"])) == ["r"]
    report = import_spool(store, OWNER.hex(), paths(store))
    assert (report.events, report.runs, report.problem) == (1, ("s",), None)
    assert store.run("r") is None
    assert store.deleted(OWNER.hex()) == {"r"}
    assert store.deleted("another") == set()
    store.forget(OWNER.hex())
    assert store.deleted(OWNER.hex()) == set()


def test_deleted_runs_are_forgotten_with_time(store: SqliteStore) -> None:
    """The store remembers them for ten heartbeats of a live owner: by then no spool file of it holds the run any more."""
    for beats in range(12):
        store.beat(Owner(owner_id=OWNER.hex(), place="", pid=1, born="", lease=1.0, beats=beats))
        if not beats:
            store.append(OWNER.hex(), [pack("r", 1, numbered("r", ["run.start"]))])
            store.delete(["r"])
        assert store.deleted(OWNER.hex()) == ({"r"} if beats <= 10 else set())


@pytest.mark.parametrize("drained", [0, 500, 1 << 14, 1 << 40])
def test_what_a_spool_says_to_be_stored_is_not_believed(store: SqliteStore, drained: int) -> None:
    """One flipped bit there would have dropped the whole spool silently: only the store knows what it has."""
    store.append(OWNER.hex(), [pack("r", 1, numbered("r", ["llm.ai.delta"] * 3))])
    spool = spool_at(store)
    put_run(spool, 50)
    spool.file.mark_drained(drained)
    report = import_spool(store, OWNER.hex(), paths(store))
    assert (report.events, report.found, report.problem) == (47, 50, None)
    assert seqs(store) == list(range(1, 51))
    assert paths(store) == []


def test_an_event_taken_back_does_not_count(store: SqliteStore) -> None:
    """`KeyboardInterrupt` interrupts an append: the run is named again in the spool, with the seq that is valid."""
    spool = spool_at(store)
    put_run(spool, 3)
    put_run(spool, 2, first=3)
    report = import_spool(store, OWNER.hex(), paths(store))
    assert report.problem is None
    assert seqs(store) == [1, 2, 3, 4]


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_record_without_its_length_does_not_exist(store: SqliteStore) -> None:
    """A kill leaves no damage: nothing is reported, and the records before are imported."""
    spool = spool_at(store)
    put_run(spool, 3)
    body = struct.pack("<IIqB", 1, 4, 1_700_000_000_004, TEXT) + b'"half of o'
    spool.file.map[spool.file.pos + 8 : spool.file.pos + 8 + len(body)] = body
    report = import_spool(store, OWNER.hex(), paths(store))
    assert (report.events, report.problem) == (3, None)


@pytest.mark.parametrize("with_checksum", [True, False])
def test_a_whole_record_without_its_length_is_taken(store: SqliteStore, with_checksum: bool) -> None:
    """The process was killed in the last instant of an append, or a bad disk wrote eight zero bytes at the end: no event is
    lost."""
    spool = spool_at(store)
    put_run(spool, 3)
    last = spool.file.pos
    assert spool.put(1, 4, 1_700_000_000_004, TEXT, b'"t4 "')
    spool.file.map[last + (4 if with_checksum else 0) : last + 8] = bytes(4 if with_checksum else 8)
    report = import_spool(store, OWNER.hex(), paths(store))
    assert (report.events, report.problem) == (4, None)
    assert [event.data["text"] for event in store.read("r", 3, None)] == ["t4 "]


def whole(store: SqliteStore, run_id: str = "r") -> list[int]:
    """Return the events of a run, whatever is missing between them."""
    seqs: list[int] = []
    while True:
        try:
            found = store.read(run_id, seqs[-1] if seqs else 0, None)
        except EventsMissing as gap:
            if gap.after <= (seqs[-1] if seqs else 0):
                found = store.read(run_id, gap.found - 1, None)
            else:
                found = store.read(run_id, seqs[-1] if seqs else 0, gap.after - (seqs[-1] if seqs else 0))
        if not found:
            return seqs
        seqs += [event.seq for event in found]


@pytest.mark.guarantee("damaged spool")
@pytest.mark.parametrize(
    ("damage", "missing"),
    [("a flipped bit", 1), ("a lost page", 130), ("a length too long", 1), ("a zero length", 1), ("no prefix", 0)],
)
def test_what_follows_a_torn_record_is_kept(
    store: SqliteStore, damage: str, missing: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The next intact record is found by its checksum. The missing events are reported, and counted in the run. Other runs
    lack nothing, and the file is kept for a user who wants to examine it."""
    spool = spool_at(store)
    put_run(spool, 300)
    put_run(spool, 5, "other", slot=2)
    data = spool.file.map
    where = data.find(b'"t200 "') - 25
    if damage == "a flipped bit":
        data[where + 27] ^= 1
    elif damage == "a lost page":
        data[4096:8192] = bytes(4096)
    elif damage == "a length too long":
        struct.pack_into("@I", data, where + 4, 1 << 30)
    elif damage == "a zero length":
        data[where + 4 : where + 12] = bytes(8)
    else:
        data[where : where + 8] = bytes(8)
    with caplog.at_level(logging.ERROR):
        report = import_spool(store, OWNER.hex(), paths(store))
    kept = whole(store)
    assert abs(300 - len(kept) - missing) < 5
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (1, 300)
    assert seqs(store, "other") == [1, 2, 3, 4, 5]
    run = store.run("r")
    assert run is not None
    assert (run.lost, run.last_seq) == (300 - len(kept), 300)
    assert report.events == len(kept) + 5
    assert report.problem is not None
    assert ("missing" if damage == "no prefix" else "is incomplete") in report.problem
    assert report.problem in caplog.text
    assert paths(store) == []
    (damaged,) = store.path.parent.glob("*-damaged")
    again = import_spool(store, OWNER.hex(), [damaged], by_hand=True)
    assert (again.events, again.found) == (0, report.found)
    assert store.run("r") == run
    assert damaged.exists()


def test_behind_a_torn_record_an_unknown_call_is_not_made_up(store: SqliteStore) -> None:
    """A lost page may have held a CALL record: the events behind it belong to no call."""
    spool = spool_at(store)
    put_run(spool, 2)
    assert spool.put(1, 2, 0, CALL, b'"first"')
    assert spool.put(1, 3, 0, TEXT, b'"of the first"')
    begin = spool.file.pos
    assert spool.put(1, 4, 0, TEXT, b'"of the first"')
    assert spool.put(1, 4, 0, CALL, b'"second"')
    assert spool.put(1, 5, 0, TEXT, b'"of the second"')
    end = spool.file.pos
    assert spool.put(1, 6, 0, TEXT, b'"of the second"')
    assert spool.put(1, 6, 0, CALL, b'"third"')
    assert spool.put(1, 7, 0, TEXT, b'"of the third"')
    spool.file.map[begin:end] = bytes(end - begin)
    report = import_spool(store, OWNER.hex(), paths(store))
    assert "events 4 to 5 are missing" in (report.problem or "")
    assert [(event.seq, event.call_id) for event in store.read("r", 5, None)] == [(6, None), (7, "third")]
    assert store.read("r", 2, 1)[0].call_id == "first"


def test_text_does_not_pass_for_a_record(store: SqliteStore) -> None:
    """A user who writes the bytes of a record into a message gets a message, because JSON has no such bytes."""
    spool = spool_at(store)
    put_run(spool, 1)
    body = struct.pack("<IIqB", 1, 2, 0, TEXT) + b'"forged"'
    forged = struct.pack("@II", zlib.crc32(body), len(body)) + body
    place = spool.file.pos
    assert spool.put(1, 2, 0, TEXT, json.dumps(forged.decode("latin1")).encode())
    assert spool.put(1, 3, 0, TEXT, b'"t3"')
    spool.file.map[place] ^= 1
    import_spool(store, OWNER.hex(), paths(store))
    assert whole(store) == [1, 3]


def test_the_order_of_files_is_that_of_their_events(store: SqliteStore) -> None:
    """If the header, which no checksum covers in that part, states another order, the seqs of the events decide."""
    spool = spool_at(store)
    for first in (1, 11, 21):
        put_run(spool, 10, first=first)
        assert spool.rotate(0, lambda: False)
    for turn, path in zip((9, 1, 4, 2), paths(store), strict=True):
        data = bytearray(path.read_bytes())
        struct.pack_into("<Q", data, 72, turn)
        path.write_bytes(data)
    assert import_spool(store, OWNER.hex(), paths(store)).problem is None
    assert seqs(store) == list(range(1, 31))


def test_a_store_that_is_behind_takes_what_the_spool_has(store: SqliteStore) -> None:
    """The -wal file was lost: events 1 to 7 were stored once, and the spool begins with 8. Nothing is refused, and the gap
    is reported."""
    spool = spool_at(store)
    put_run(spool, 3, first=8)
    put_run(spool, 2, "s", slot=2, first=4)
    store.append(OWNER.hex(), [pack("s", 1, numbered("s", ["run.start", "llm.ai.delta"]))])
    report = import_spool(store, OWNER.hex(), paths(store))
    assert report.events == 5
    assert "run r: events 1 to 7 are missing" in (report.problem or "")
    assert "run s: event 3 is missing" in (report.problem or "")
    assert [(run.run_id, run.lost, run.last_seq) for run in store.runs(thread_id=None, status=None, limit=None)] == [
        ("r", 7, 10),
        ("s", 1, 5),
    ]
    with pytest.raises(EventsMissing, match="0 is followed by 8"):
        store.read("r", 0, None)
    assert whole(store) == [8, 9, 10]
    assert whole(store, "s") == [1, 2, 4, 5]
    store.tidy()
    assert whole(store, "s") == [1, 2, 4, 5]


def test_a_gap_is_filled_by_a_file_that_comes_later(store: SqliteStore) -> None:
    """A user names a file, for example one whose header was damaged. The events of the gap are imported, and no others."""
    first, second = spool_at(store), Spool(store.path, store.store_id, b"p" * 16, limit=1 << 20, size=1 << 14)
    put_run(second, 3, first=8)
    put_run(second, 2, first=14)
    assert import_spool(store, OWNER.hex(), [second.file.path]).events == 5
    assert store.run("r").lost == 10
    about = json.dumps({"run_id": "r", "epoch": 1}).encode()
    assert first.put(1, 0, 0, OPEN, about)
    assert first.put(1, 1, 1_700_000_000_001, VALUE, b'["run.start",{"thread_id":"t"}]')
    assert first.put(1, 1, 0, CALL, b'"c"')
    for seq in range(2, 13):
        assert first.put(1, seq, 1_700_000_000_000 + seq, TEXT, b'"late %d"' % seq)
    report = import_spool(store, OWNER.hex(), [first.file.path], by_hand=True)
    assert (report.events, report.found, report.problem) == (9, 12, None)
    assert whole(store) == [*range(1, 13), 14, 15]
    events = store.read("r", 0, 12)
    assert [event.data.get("text") for event in events[1:12]] == [
        *[f"late {seq}" for seq in range(2, 8)],
        *[f"t{seq} " for seq in range(8, 11)],
        "late 11",
        "late 12",
    ]
    assert {event.call_id for event in events[1:7]} == {"c"}
    assert {event.call_id for event in events[7:10]} == {None}
    run = store.run("r")
    assert (run.lost, run.thread_id, run.last_seq) == (1, "t", 15)
    again = import_spool(store, OWNER.hex(), [first.file.path], by_hand=True)
    assert (again.events, again.found, again.problem) == (0, 12, None)
    store.tidy()
    assert whole(store) == [*range(1, 13), 14, 15]


def test_a_store_that_cannot_leave_a_gap_keeps_the_file(store: SqliteStore) -> None:
    """A third-party store lacks the methods of `Restoring`: the events that it cannot take are counted, and stay in the
    file."""

    class Plain(FaultyStore):
        def __getattr__(self, name: str) -> Any:
            if name in ("restore", "stored", "deleted"):
                raise AttributeError(name)
            return super().__getattr__(name)

    spool = spool_at(store)
    put_run(spool, 3, first=8)
    put_run(spool, 5, "good", slot=2)
    store.append(OWNER.hex(), [pack("good", 1, numbered("good", ["run.start", "llm.ai.delta"]))])
    report = import_spool(Plain(store), OWNER.hex(), paths(store))
    assert report.events == 3
    assert "refused 3 events of run r (seq 8 to 10): " in (report.problem or "")
    assert seqs(store, "good") == [1, 2, 3, 4, 5]
    assert len(list(store.path.parent.glob("*-damaged"))) == 1


def test_a_truncated_spool_is_told_from_a_torn_one(store: SqliteStore) -> None:
    """The length of the file tells a truncated spool from a damaged one, wherever it was cut off."""
    spool = spool_at(store)
    put_run(spool, 300)
    path = spool.file.path
    content = path.read_bytes()
    last = 0
    for size in range(128, len(content), 97):
        path.write_bytes(content[:size])
        scan = SpoolScan(path)
        records = list(scan.records({}))
        assert "truncated" in scan.problems[0]
        assert f"{size} of {len(content)}" in scan.problems[0]
        assert len(records) >= last
        last = len(records)
    assert last == 301


def test_what_follows_a_hole_is_reported(store: SqliteStore) -> None:
    """A file in the middle is missing: the events behind it are stored, the missing ones counted, and other runs are not
    affected."""
    spool = spool_at(store)
    put_run(spool, 10)
    spool.rotate(0, lambda: False)
    put_run(spool, 10, first=11)
    spool.rotate(0, lambda: False)
    put_run(spool, 10, first=21)
    put_run(spool, 5, "other", slot=2)
    paths(store)[1].unlink()
    report = import_spool(store, OWNER.hex(), paths(store))
    assert whole(store) == [*range(1, 11), *range(21, 31)]
    assert seqs(store, "other") == [1, 2, 3, 4, 5]
    assert report.problem == "run r: events 11 to 20 are missing, in the store and in the spool"


class Overtaken(FaultyStore):
    """A store in which another process does something just before it stores anything."""

    def __init__(self, inner: Store, does: Callable[[], object]) -> None:
        super().__init__(inner)
        self._does = does

    def append(self, owner_id: str, segments: Sequence[Segment]) -> None:
        does, self._does = self._does, int
        does()
        self.inner.append(owner_id, segments)


def test_who_is_overtaken_in_a_recovery_has_nothing_to_complain_of(store: SqliteStore) -> None:
    """Another process has imported the same spool, claimed the run and continued it: nothing is lost."""
    put_run(spool_at(store), 2)
    assert import_spool(store, OWNER.hex(), paths(store)).problem is None
    put_run(spool_at(store), 5)

    def overtake() -> None:
        assert import_spool(store, OWNER.hex(), paths(store)).problem is None
        assert store.claim("r", "another", 1)
        store.append("another", [pack("r", 2, numbered("r", ["llm.ai.delta"], 6))])

    report = import_spool(Overtaken(store, overtake), OWNER.hex(), paths(store))
    assert (report.events, report.problem, paths(store)) == (0, None, [])
    assert seqs(store) == [1, 2, 3, 4, 5, 6]


def test_what_a_claim_has_shut_out_is_told(store: SqliteStore) -> None:
    """Another process claimed the run without the spool and wrote other events in their place: the spool is kept."""
    put_run(spool_at(store), 2)
    assert import_spool(store, OWNER.hex(), paths(store)).problem is None
    put_run(spool_at(store), 5)

    def overtake() -> None:
        assert store.claim("r", "another", 1)
        store.append("another", [pack("r", 2, numbered("r", ["run.end"], 3))])

    report = import_spool(Overtaken(store, overtake), OWNER.hex(), paths(store))
    assert "of run r (seq 3 to 5): another process had claimed the run" in (report.problem or "")
    assert all(Path(f"{path}-damaged").exists() for path in report.files)


@pytest.mark.parametrize(("there", "refused", "where"), [(4, 1, "(seq 5)"), (2, 3, "(seq 3 to 5)"), (5, 0, "")])
def test_only_what_the_store_lacks_is_refused(store: SqliteStore, there: int, refused: int, where: str) -> None:
    """The owner of a run was killed, and another machine claimed the run, which had all but the last events: the report
    counts these and names them. Of the files, only those that hold events are kept."""
    spool = spool_at(store)
    spool.prepare()
    put_run(spool, 5)
    data = [{"text": f"t{seq} "} for seq in range(1, 6)]
    at = [(1_700_000_000_000 + seq) / 1000 for seq in range(1, 6)]
    events = [Event(run_id="r", kind="llm.ai.delta", data=data[n], seq=n + 1, at=at[n]) for n in range(5)]
    store.append(OWNER.hex(), [pack("r", 1, events[:there])])
    assert store.claim("r", "another", 1)
    store.append("another", [pack("r", 2, numbered("r", ["run.end"], there + 1))])
    files = paths(store)
    assert len(files) == 2
    report = import_spool(store, OWNER.hex(), files)
    assert (report.found, report.refused, report.events) == (5, refused, 0)
    assert where in (report.problem or "")
    left = sorted(path.name for path in files[0].parent.glob("*-spool-*"))
    assert left == ([f"{spool.file.path.name}-damaged"] if refused else [])


@pytest.mark.parametrize("content", [b"short", b"x" * 5000, b"RJSPOOL1" + b"\xff" * 5000])
def test_a_foreign_file_is_left_alone(store: SqliteStore, content: bytes) -> None:
    """A foreign file is neither read nor moved nor deleted, and it is reported."""
    assert store.path is not None
    path = store.path.with_name(f"{store.path.name}-spool-{OWNER.hex()}-000001")
    path.write_bytes(content)
    report = import_spool(store, OWNER.hex(), paths(store))
    assert report.events == 0
    assert report.problem is not None
    assert path.name in report.problem
    assert path.read_bytes() == content


@pytest.mark.parametrize("size", [0, 100, 1 << 14])
def test_a_file_that_was_just_being_made(store: SqliteStore, size: int) -> None:
    """The process was killed before it wrote the header: the file holds nothing, and there is nothing to report."""
    assert store.path is not None
    path = store.path.with_name(f"{store.path.name}-spool-{OWNER.hex()}-000001")
    path.write_bytes(bytes(size))
    assert import_spool(store, OWNER.hex(), paths(store)).problem is None
    assert paths(store) == []


def test_a_spool_of_another_database(store: SqliteStore, tmp_path: Path) -> None:
    """Another database with the same name has replaced the database: the old spool is not imported into it."""
    other = SqliteStore(tmp_path / "other.db")
    assert store.path is not None
    spool = Spool(store.path, other.store_id, OWNER, limit=1 << 20, size=1 << 14)
    put_run(spool, 3)
    report = import_spool(store, OWNER.hex(), paths(store))
    assert report.problem is not None
    assert "another database" in report.problem
    assert store.run("r") is None
    assert len(paths(store)) == 1
    other.close()


def test_a_recovery_that_fails_is_tried_again(db: Path) -> None:
    """The store fails during the import, before or after committing: the spool stays until all events are stored, once."""
    inner = SqliteStore(db)
    spool = spool_at(inner, size=1 << 16)
    put_run(spool, 100)
    faulty = FaultyStore(inner)
    for when in ("before", "after"):
        faulty.fail(when=when)
        with pytest.raises(OSError, match="out of order"):
            import_spool(faulty, OWNER.hex(), paths(inner))
        assert len(paths(inner)) == 1
    assert import_spool(faulty, OWNER.hex(), paths(inner)).problem is None
    assert seqs(inner) == list(range(1, 101))
    inner.close()


def test_an_open_journal_reports_what_it_found(db: Path) -> None:
    """`RunJournal.recovered` has the reports, for a program that passes them on."""
    store = SqliteStore(db)
    put_run(spool_at(store), 7)
    store.close()
    with RunJournal(db) as journal:
        (report,) = journal.recovered
        assert (report.owner_id, report.events, report.runs) == (OWNER.hex(), 7, ("r",))
        assert len(journal.read("r")) == 7


# --- many events ------------------------------------------------------------------------------------------------------


def test_what_is_stored_already_costs_no_transaction(store: SqliteStore) -> None:
    """The import makes neither a transaction for each event, nor a query for each run: for 60,000 events, that took a
    minute."""
    spool = spool_at(store, size=1 << 20, limit=1 << 24)
    for slot in range(1, 31):
        store.append(OWNER.hex(), [pack(f"r{slot}", 1, numbered(f"r{slot}", ["llm.ai.delta"] * 50))])
    for first in (1, 26):
        for slot in range(1, 31):
            put_run(spool, 25, f"r{slot}", slot, first)
    faulty = FaultyStore(store)
    report = import_spool(faulty, OWNER.hex(), paths(store))
    assert (report.events, report.found, report.problem) == (0, 1_500, None)
    assert faulty.calls.count("stored") == 1
    assert faulty.calls.count("append") <= 1
    assert set(faulty.calls) <= {"append", "stored", "deleted", "owners"}


def test_what_is_not_stored_is_stored_in_large_transactions(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transactions are large, however the runs are mixed in the spool."""
    monkeypatch.setattr(_spool_import, "_BATCH", 1_000)
    spool = spool_at(store, size=1 << 20, limit=1 << 24)
    for first in range(1, 101, 10):
        for slot in range(1, 31):
            put_run(spool, 10, f"r{slot}", slot, first)
    faulty = FaultyStore(store)
    report = import_spool(faulty, OWNER.hex(), paths(store))
    assert (report.events, len(report.runs), report.problem) == (3_000, 30, None)
    assert faulty.calls.count("append") <= 4
    assert all(seqs(store, f"r{slot}") == list(range(1, 101)) for slot in range(1, 31))


def test_a_long_import_tells_its_progress(
    db: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A long import logs a line every five seconds, for a user who wonders why the program does not begin. A short one logs
    nothing."""
    for patience, says in ((5.0, False), (0.0, True)):
        monkeypatch.setattr(_spool_import, "_LOG_EVERY", patience)
        store = SqliteStore(db)
        put_run(spool_at(store), 7, f"r{patience}")
        store.close()
        RunJournal(db).close()
        assert ("importing the spools of dead owners into sqlite://" in caplog.text) is says
    assert "7 events stored" in caplog.text


# --- places without a spool ---------------------------------------------------------------------------------------------


@pytest.mark.guarantee("no memory-mapped file")
def test_a_place_without_a_spool(db: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """On a file system that does not support it, the journal says what that costs, and works."""

    def no_mmap(*args: object) -> None:
        raise OSError(19, "No such device")

    monkeypatch.setattr(mmap, "mmap", no_mmap)
    with RunJournal(db) as journal:
        assert "could not create a spool beside " in caplog.text
        assert "a kill loses them" in caplog.text
        journal.append(Event(run_id="r", kind="run.start"))
        assert [event.seq for event in journal.read("r")] == [1]
        journal.flush()
    assert [path.name for path in db.parent.iterdir()] == ["runs.db"]


def test_files_are_allocated_in_earnest(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are not sparse, also without posix_fallocate or MADV_POPULATE_WRITE: a full disk must not kill the process by
    SIGBUS."""
    store = SqliteStore(db)
    spool = spool_at(store, size=1 << 20, limit=1 << 22)
    assert spool.file.path.stat().st_blocks * 512 >= 1 << 20
    monkeypatch.delattr(_spool.os, "posix_fallocate")
    monkeypatch.setattr(_spool, "_POPULATE_WRITE", 9_999)
    assert spool.rotate(0, lambda: False)
    assert spool.file.path.stat().st_blocks * 512 >= 1 << 20
    put_run(spool, 3)
    assert import_spool(store, OWNER.hex(), paths(store)).events == 3
    store.close()


# --- interrupted appends ----------------------------------------------------------------------------------------------


def copies_of(db: Path, owner_id: str) -> list[Path]:
    """Copy the spool as a kill would leave it at this moment. Its owner continues."""
    copies = []
    for file in spool_files(db)[owner_id]:
        with contextlib.suppress(FileNotFoundError):  # a spare file, which the writer has just deleted
            copies.append(file.with_name(f"copy-{file.name}"))
            copies[-1].write_bytes(file.read_bytes())
    return copies


def killed_now(db: Path, owner_id: str) -> list[Event]:
    """Return the events of run "r" that another process would find if its owner was killed at this moment."""
    twin = SqliteStore(db)
    try:
        report = import_spool(twin, owner_id, copies_of(db, owner_id))
        assert report.problem is None
        return twin.read("r", 0, None)
    finally:
        twin.close()


class Interrupt(BaseException):
    """An exception that may come between any two lines, as `KeyboardInterrupt` may."""


@functools.cache
def uninterrupted(path: str) -> frozenset[int]:
    """Return the lines where the interpreter handles no signal, though a trace function would: the end of a `with`, and
    cleanups."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.With):
            lines.add(node.lineno)
        if isinstance(node, ast.Try):
            lines.add(node.lineno)
            for inner in [*node.finalbody, *node.handlers]:
                lines.update(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
    return frozenset(lines)


def at_line(number: int, names: set[str]) -> Callable[..., object]:
    """Return a trace function that interrupts at the nth line that is run in the functions of these names."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> object:
        nonlocal count
        path = frame.f_code.co_filename
        if frame.f_code.co_name not in names or "langchain_runjournal" not in path:
            return None
        if event == "line" and frame.f_lineno not in uninterrupted(path):
            count += 1
            if count == number:
                raise Interrupt
        return trace

    return trace


@pytest.mark.parametrize("what", ["text", "another call", "a mark"])
def test_a_ctrl_c_at_any_line_of_an_append(db: Path, what: str) -> None:
    """The run has the event or not, it continues without a gap, and memory, store and spool agree."""
    names = {"append", "record", "_place", "_introduce", "_switch", "put", "switch", "mark", "rotate"}
    events = {
        "text": Event(run_id="r", kind="llm.ai.delta", data={"text": "X"}, call_id="c"),
        "another call": Event(run_id="r", kind="llm.ai.delta", data={"text": "X"}, call_id="d"),
        "a mark": Event(run_id="r", kind="run.pause", call_id="c"),
    }
    number, interrupted = 0, True
    while interrupted:
        number += 1
        path = db.with_name(f"runs{number}.db")
        store = FaultyStore(SqliteStore(path))
        with RunJournal(store) as journal:
            store.fail(times=1_000_000)
            text = Event(run_id="r", kind="llm.ai.delta", data={"text": "a"}, call_id="c")
            journal.append(text)
            sys.settrace(at_line(number, names))
            try:
                journal.append(events[what])
                interrupted = False
            except Interrupt:
                interrupted = True
            finally:
                sys.settrace(None)
            for call in ("c", "d", "c"):
                journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": "b"}, call_id=call))
            here = journal.read("r")
            assert killed_now(path, journal.owner_id) == here, number
            store.fail(times=0)
            journal.flush()
            assert store.inner.read("r", 0, None) == here, number
        marked = [event for event in here if event.data.get("text") == "X" or event.kind == "run.pause"]
        assert len(marked) == 1 or (interrupted and not marked), number
        plain = [(event.call_id, event.data["text"]) for event in here if event not in marked]
        assert plain == [("c", "a"), ("c", "b"), ("d", "b"), ("c", "b")], number
        assert [event.seq for event in here] == list(range(1, len(here) + 1)), number
    assert number > 15, "the trace did not see the lines of the append"


def test_the_lines_of_append_and_of_a_lane_agree() -> None:
    """`Appender._place` has a copy of the code of `RunBuffer.add`: both assign the same names."""
    for name in ("pend", "at", "seq"):
        assert name in RunBuffer.add.__code__.co_names + RunBuffer.add.__code__.co_varnames
        assert name in Appender._place.__code__.co_names + Appender._place.__code__.co_varnames


# --- what a sceptical reader found ------------------------------------------------------------------------------------


def test_an_opening_journal_is_not_taken_for_dead(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It registers as an owner, and makes its spool, while another process is looking for the spools of dead owners."""
    with RunJournal(db) as first:
        owners = core_of(first).store.owners
        opened: list[RunJournal] = []

        def owners_while_another_opens() -> list:
            found = owners()
            if not opened:
                opened.append(RunJournal(db))
                opened[0].append(Event(run_id="live", kind="run.start"))
            return found

        core_of(first).store.owners = owners_while_another_opens
        core_of(first).dead_owners.import_spools()
        del core_of(first).store.owners
        second = opened[0]
        assert len(list(db.parent.glob(f"*-spool-{second.owner_id}-*"))) >= 1
        assert {owner.owner_id for owner in core_of(first).store.owners()} == {first.owner_id, second.owner_id}
        second.flush()
        assert not first.claim("live")
        second.close()


def test_files_that_only_look_like_ours(db: Path) -> None:
    """A directory, a link, a file of zeros with another name, and a database of another program are neither read nor
    deleted."""
    with RunJournal(db) as journal:
        journal.append(Event(run_id="r", kind="run.start"))
    names = [
        "runs.db-spool-notes-000001",
        f"runs.db-spool-{'A' * 32}-000001",
        f"runs.db-spool-{'a' * 32}-01",
        f"x-runs.db-spool-{'a' * 32}-000001",
    ]
    for name in names:
        db.with_name(name).write_bytes(bytes(100))
    db.with_name(f"runs.db-spool-{'b' * 32}-000001").mkdir()
    db.with_name(f"runs.db-spool-{'c' * 32}-000001").write_bytes(b"of another program")
    before = sorted(db.parent.iterdir())
    with RunJournal(db) as journal:
        for _ in range(3):
            core_of(journal).dead_owners.import_spools()
        assert [report.foreign for report in journal.recovered] == [(str(db.with_name(f"runs.db-spool-{'c' * 32}-000001")),)]
    assert sorted(db.parent.iterdir()) == before


def test_one_spool_that_cannot_be_read_keeps_no_other_out(db: Path) -> None:
    """The import of the bad spool is tried again later, and the good ones are imported at once."""
    store = SqliteStore(db)
    for letter in "abc":
        spool = Spool(db, store.store_id, letter.encode() * 16, limit=1 << 20, size=1 << 14)
        put_run(spool, 3, letter)
        if letter == "a":
            assert spool.put(7, 1, 0, TEXT, b'"of no run"')
    store.close()
    with RunJournal(db) as journal:
        assert {run.run_id for run in journal.runs()} >= {"b", "c"}


def test_an_event_larger_than_the_spool(db: Path) -> None:
    """It has a spool file of its own, so that a kill loses neither this event nor those behind it."""
    store = FaultyStore(SqliteStore(db))
    journal = RunJournal(store, spool_limit=8 << 20)
    journal.append(Event(run_id="r", kind="run.start"))
    journal.flush()
    store.fail(times=1_000_000)
    for number in range(100):
        journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": f"{number}"}))
    journal.append(Event(run_id="r", kind="llm.tool.result", data={"content": "x" * (30 << 20)}))
    journal.append(Event(run_id="r", kind="run.pause"))
    expected = journal.read("r")
    assert len(expected) == 103
    assert killed_now(db, journal.owner_id) == expected
    store.fail(times=0)
    journal.close()


def test_files_are_read_in_the_order_in_which_they_were_used(db: Path) -> None:
    """A large record gets a file of its own while a spare file, with a smaller number, is ready."""
    store = FaultyStore(SqliteStore(db))
    journal = RunJournal(store)
    journal.append(Event(run_id="r", kind="run.start"))
    journal.flush()
    core_of(journal).appender.spool.prepare()
    store.fail(times=1_000_000)
    for number in range(40_000):
        if number in (10, 20_000):
            journal.append(Event(run_id="r", kind="llm.tool.result", data={"content": "x" * (5 << 20)}))
        if number == 30_000:
            core_of(journal).appender.spool.prepare()
        journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": f"{number}" * 20}))
    expected = journal.read("r")
    assert len(expected) == 40_003
    assert killed_now(db, journal.owner_id) == expected
    store.fail(times=0)
    journal.close()


def test_a_record_that_goes_back_is_a_problem(store: SqliteStore) -> None:
    """It is reported, the records before it are imported, and the files are kept."""
    spool = spool_at(store)
    put_run(spool, 5)
    put_run(spool, 2, first=2)
    put_run(spool, 3, "good", slot=2)
    report = import_spool(store, OWNER.hex(), paths(store))
    assert report.problem is not None
    assert "goes back from seq 5 to 1" in report.problem
    assert seqs(store) == [1, 2, 3, 4, 5]
    assert seqs(store, "good") == [1, 2, 3]
    assert len(list(store.path.parent.glob("*-damaged"))) == 1
