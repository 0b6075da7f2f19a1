"""Every byte of a small spool, changed: no acknowledged event is lost silently, or becomes another event."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from langchain_runjournal import Event
from langchain_runjournal.events.segments import Segment, pack
from langchain_runjournal.journal.spool import CALL, OPEN, TEXT, VALUE, Spool, spool_files
from langchain_runjournal.journal.spool_import import import_spool
from langchain_runjournal.stores import Owner
from langchain_runjournal.stores.sqlite import SqliteStore
from tests.journal.test_spool import OWNER, whole

AT = 1_700_000_000_000
STORED = 3
"""Events of run a that were in the store when its process was killed."""
MUTATIONS: dict[str, Callable[[bytearray, int], object]] = {
    "a flipped bit": lambda data, place: data.__setitem__(place, data[place] ^ 1 << place % 8),
    "a zero byte": lambda data, place: data.__setitem__(place, 0),
    "all ones": lambda data, place: data.__setitem__(place, 0xFF),
    "eight zero bytes": lambda data, place: data.__setitem__(slice(place, place + 8), bytes(8)),
    "a lost sector": lambda data, place: data.__setitem__(slice(place // 512 * 512, place // 512 * 512 + 512), bytes(512)),
    "cut off": lambda data, place: data.__delitem__(slice(place, None)),
}


class Left:
    """The files of a killed process: two spool files of two runs, and a store that has the beginning of one run."""

    def __init__(self, home: Path) -> None:
        self.db = home / "template.db"
        store = SqliteStore(self.db)
        store.beat(Owner(owner_id=OWNER.hex(), place="", pid=1, born="", lease=1.0))
        spool = Spool(self.db, store.store_id, OWNER, limit=1 << 20, size=1 << 12)
        for half in (0, 5):
            for slot, run_id in ((1, "a"), (2, "b")):
                assert spool.put(slot, half, AT, OPEN, b'{"run_id": "%s", "epoch": 1}' % run_id.encode())
                for seq in range(half + 1, half + 6):
                    if seq % 5 in (1, 4):
                        assert spool.put(slot, seq - 1, AT, CALL, b'"call-%d"' % (seq // 3))
                    event = self.event(run_id, seq)
                    value = b'"%s"' % event.data["text"].encode() if seq != 5 else b'["tool.start",{"text":"at work"}]'
                    assert spool.put(slot, seq, AT + seq, TEXT if seq != 5 else VALUE, value)
            self.ends = [*getattr(self, "ends", []), spool.file.pos]
            assert spool.rotate(0, lambda: False)
        store.append(OWNER.hex(), [self.segment("a", STORED)])
        store.close()
        spool.abandon()
        spool_files(self.db)[OWNER.hex()][-1].unlink()
        self.files = {path.name: path.read_bytes() for path in spool_files(self.db)[OWNER.hex()]}
        assert len(self.files) == 2

    def event(self, run_id: str, seq: int) -> Event:
        """Return an event that was acknowledged."""
        starts = [one for one in range(1, seq + 1) if one % 5 in (1, 4)]
        call = f"call-{starts[-1] // 3}"
        kind, text = ("tool.start", "at work") if seq == 5 else ("llm.ai.delta", f"{run_id}{seq} ")
        return Event(run_id=run_id, kind=kind, seq=seq, at=(AT + seq) / 1000, call_id=call, data={"text": text})

    def segment(self, run_id: str, last: int) -> Segment:
        return pack(run_id, 1, [self.event(run_id, seq) for seq in range(1, last + 1)])

    def judge(self, home: Path, what: str, name: str, content: bytes) -> None:
        """Import the spool with one file changed, and check everything."""
        home.mkdir()
        db = home / self.db.name
        shutil.copyfile(self.db, db)
        for other, unchanged in self.files.items():
            (home / other).write_bytes(content if other == name else unchanged)
        store = SqliteStore(db)
        try:
            report = import_spool(store, OWNER.hex(), spool_files(db)[OWNER.hex()])
            for run_id in "ab":
                acknowledged = [self.event(run_id, seq) for seq in range(1, 11)]
                found = [store.read(run_id, seq - 1, 1)[0] for seq in whole(store, run_id)]
                for event in found:
                    expected = acknowledged[event.seq - 1]
                    assert (event.kind, event.data, event.at) == (expected.kind, expected.data, expected.at), what
                    assert event.call_id == expected.call_id or (event.call_id is None and report.problem), what
                if len(found) < 10:
                    assert report.problem, what
                    assert [path for path in home.glob(f"{name}*") if path.read_bytes() == content], what
                run = store.run(run_id)
                if run is not None and found:
                    assert run.lost == found[-1].seq - len(found), what
            if report.problem is None:
                assert spool_files(db) == {}, what
        finally:
            store.close()
            shutil.rmtree(home)

    def places(self, step: int) -> Iterator[tuple[str, int]]:
        """Return the places that hold data: each header, each record, and a few bytes behind them."""
        for name, end in zip(self.files, self.ends, strict=True):
            for place in range(0, end + 40, step):
                yield name, place


def mutate(tmp_path: Path, kind: str, step: int) -> int:
    """Change bytes, each `step`th, in one way. Return the number of spools that were changed."""
    left, change = Left(tmp_path), MUTATIONS[kind]
    mutated = 0
    for name, place in left.places(step):
        content = bytearray(left.files[name])
        change(content, place)
        if not any(content) or (kind == "a lost sector" and not any(content[place:])):
            continue  # a file that was never written looks the same (docs/limits.md)
        left.judge(tmp_path / "copy", f"{kind} at {place} of {name}", name, bytes(content))
        mutated += 1
    return mutated


def test_unchanged_it_is_whole(tmp_path: Path) -> None:
    """Without a change, nothing is wrong. So the tests below find what a change does, and nothing else."""
    left = Left(tmp_path)
    for name, content in left.files.items():
        left.judge(tmp_path / "copy", "unchanged", name, content)


@pytest.mark.guarantee("damaged spool")
@pytest.mark.slow
@pytest.mark.parametrize("kind", MUTATIONS)
def test_some_bytes(tmp_path: Path, kind: str) -> None:
    """Change a few bytes, at places that have no common divisor with the size of a record."""
    assert mutate(tmp_path, kind, 53) > 10


@pytest.mark.storm
@pytest.mark.parametrize("kind", MUTATIONS)
def test_every_byte(tmp_path: Path, kind: str) -> None:
    """Change every byte that holds data, in both files."""
    assert mutate(tmp_path, kind, 1) > 600
