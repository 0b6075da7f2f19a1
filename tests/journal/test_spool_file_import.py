"""`runjournal recover --spool`: a user names a file that was kept as damaged; and a run with a missing event is settled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import RunJournal, errors
from langchain_runjournal.events.segments import pack
from langchain_runjournal.journal.check import check
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.journal.spool_file_import import take_spool
from langchain_runjournal.stores.sqlite import SqliteStore
from langchain_runjournal.testing import numbered
from tests.journal.test_spool import OWNER, put_run, spool_at, whole
from tests.support.command_line import run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def left(db: Path, *, header: bool = False) -> Path:
    """Write a spool of two runs, and damage it. Another process has claimed and ended the second run."""
    store = SqliteStore(db)
    spool = spool_at(store)
    put_run(spool, 5)
    put_run(spool, 3, "claimed", slot=2)
    store.append(OWNER.hex(), [pack("claimed", 1, numbered("claimed", ["llm.ai.delta"] * 1))])
    assert store.claim("claimed", "another", 1)
    store.append("another", [pack("claimed", 2, numbered("claimed", ["run.end"], 2))])
    if header:
        spool.file.map[20] ^= 1
    else:
        spool.file.map[spool.file.map.find(b'"t3 "') + 1] ^= 1
    store.close()
    spool.abandon()
    return spool.file.path


def asked(*args: str) -> tuple[int, dict[str, Any], str]:
    done = run("recover", *args, "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done.exit_code, lines[0] if lines else {}, done.stderr


def test_a_damaged_header_is_no_end(db: Path) -> None:
    """The file is left alone, since it may belong to any journal, until a user says that it belongs to this one. The
    command is idempotent."""
    path = left(db, header=True)
    with RunJournal(db) as journal:
        assert journal.recovered[0].foreign == (str(path),)
        assert "runjournal recover --spool" in (journal.recovered[0].problem or "")
        assert [found.run_id for found in journal.runs()] == ["claimed"]
    for events, stored in ((5, 0), (0, 5)):
        code, said, talk = asked("--spool", path.name)
        assert code == 1
        assert "the store refused 3 events of run claimed (seq 1 to 3): another process had claimed the run" in said.pop(
            "problem"
        )
        runs = ["r"] if events else []
        counts = {"found": 8, "events": events, "stored": stored, "refused": 3}
        assert said == {"spool": path.name, **counts, "runs": runs}
        assert "its header is damaged" in talk
        assert path.exists()
    with RunJournal(db) as journal:
        assert [event.seq for event in journal.read("r")] == [1, 2, 3, 4, 5]


def test_a_file_that_was_kept_as_damaged(db: Path) -> None:
    """`check` says what to do with it. The command says why the file holds nothing more to import."""
    path = left(db)
    with RunJournal(db) as journal:
        kept = path.with_name(f"{path.name}-damaged")
        (problem,) = [one for one in check(journal) if "-damaged" in one.text]
        assert "recover --spool" in problem.hint
        assert (journal.run("r").lost, whole(core_of(journal).store)) == (1, [1, 2, 4, 5])
    done = run("recover", "--spool", kept.name)
    assert done.exit_code == 1
    assert "0 events of 0 runs imported, 4 stored already, 3 refused, of 7 readable" in done.stdout
    assert "is incomplete" in done.stderr
    assert "delete it when you no longer need it" in done.stderr
    with RunJournal(db) as journal:
        assert (journal.run("r").lost, whole(core_of(journal).store)) == (1, [1, 2, 4, 5])


def test_an_older_copy_of_the_journal_takes_what_the_file_has(db: Path) -> None:
    """The database was restored from a backup. The kept file still has the events since then."""
    RunJournal(db).close()
    backup = db.read_bytes()
    path = left(db)
    RunJournal(db).close()
    kept = path.with_name(f"{path.name}-damaged")
    db.write_bytes(backup)
    code, said, _ = asked("--spool", kept.name)
    assert (code, said["events"], said["runs"]) == (1, 7, ["r", "claimed"])
    assert "run r: event 3 is missing" in said["problem"]


@pytest.mark.parametrize("what", ["no spool", "of another database", "of a process that lives", "nowhere"])
def test_what_cannot_be_brought_in(db: Path, here: Path, what: str) -> None:
    """The command refuses it with the reason, and changes nothing."""
    with RunJournal(db) as journal:
        if what == "no spool":
            path = here / "notes.txt"
            path.write_text("dear diary" * 100)
        elif what == "of another database":
            other = SqliteStore(here / "other.db")
            spool = spool_at(other)
            put_run(spool, 3)
            other.close()
            path = spool.file.path
        elif what == "of a process that lives":
            (path,) = here.glob("*-spool-*-000001")
        else:
            path = here / f"runs.db-spool-{OWNER.hex()}-000001"
        before = path.read_bytes() if path.exists() else b""
        reason = {
            "no spool": "its first bytes are not ours",
            "of another database": "it belongs to another database",
            "of a process that lives": "may be alive",
            "nowhere": "No such file",
        }[what]
        with pytest.raises(errors.SpoolUnusable, match=reason) as caught:
            take_spool(journal, path)
        assert caught.value.path == str(path)
        assert journal.runs() == []
        assert (path.read_bytes() if path.exists() else b"") == before
        done = run("recover", "--spool", str(path))
        assert done.exit_code == 1
        assert ("does not exist" if what == "nowhere" else "was not imported") in done.stderr


def test_spool_and_graph_are_two_steps(db: Path) -> None:
    """The usage says so."""
    path = left(db)
    assert run("recover", "--spool", path.name, "--graph", "a:b").exit_code == 2


CHAT = """
import os, sqlite3, sys
from langchain_runjournal import RunJournal, attach
from langchain_runjournal.testing import ScriptedChatModel, Wait
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import MessagesState, StateGraph

model = ScriptedChatModel(script=[["one two three four five six seven eight nine ten " * 20, Wait(100)]])

def build(home):
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge("__start__", "model")
    saver = SqliteSaver(sqlite3.connect(home + "/threads.db", check_same_thread=False))
    return builder.compile(checkpointer=saver, name="chat")

if __name__ == "__main__":
    graph = attach(build("."), RunJournal("runs.db"))
    config = {"configurable": {"thread_id": "t"}}
    for number, _ in enumerate(graph.stream({"messages": [("user", "count")]}, config, stream_mode="messages")):
        if number == 60:
            os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_run_with_a_gap_is_settled(db: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settlement uses the events that are left: one event that a bad disk has lost does not keep the others from the
    thread."""
    (here / "gapped_chat.py").write_text(CHAT)
    subprocess.run([sys.executable, "gapped_chat.py"], check=False)
    for name in ("runs.db-wal", "runs.db-shm"):
        (here / name).unlink()
    for path in here.glob("*-spool-*"):
        data = bytearray(path.read_bytes())
        if (place := data.find(b'"five ')) > 0:
            data[place + 1] ^= 1
            path.write_bytes(data)
    monkeypatch.syspath_prepend(str(here))
    import gapped_chat

    graph = gapped_chat.build(".")
    with RunJournal(db) as journal:
        (killed,) = journal.runs()
        assert killed.lost == 1
        (settled,) = journal.recover(graph)
        assert settled.outcome == "settled"
        config: Any = {"configurable": {"thread_id": "t"}}
        question, answer = graph.get_state(config).values["messages"]
        assert question.content == "count"
        assert answer.content.startswith("one two three four six seven eight nine ten one two")
        assert journal.run(killed.run_id).settled
    graph.checkpointer.conn.close()
