"""`runjournal export` and `runjournal view`: what they write, and over which files they do not write."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from langchain_runjournal import RunJournal
from tests.support.command_line import (
    ALL,
    DONE,
    FAILED,
    STOPPED,
    complaint,
    data,
    run,
    write,
)


def test_export_is_every_event(journal: Path, here: Path) -> None:
    """Of some runs or of all, the oldest first; a file appears only when it is complete."""
    with RunJournal(journal) as opened:
        events = {run_id: [event.to_dict() for event in opened.read(run_id)] for run_id in ALL}
    assert data("export", STOPPED, "b") == events[STOPPED] + events[FAILED]
    assert data("export", STOPPED, "aaaa0001", "@3") == events[STOPPED]
    done = run("export", "--all", "-o", "all.jsonl")
    assert done.stdout == ""
    lines = (here / "all.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [event for run_id in ALL for event in events[run_id]]
    assert f"{len(lines)} events of 4 runs" in done.stderr
    assert sorted(path.name for path in here.iterdir()) == ["all.jsonl", "runs.db"]


def test_export_is_asked_rightly(journal: Path) -> None:
    """Runs or --all are required, and the journal itself is never overwritten."""
    before = journal.read_bytes()
    complaint("export", code=2)
    complaint("export", "--all", DONE, code=2)
    assert "the journal itself" in complaint("export", "--all", "-o", "runs.db")
    assert journal.read_bytes() == before
    assert "runjournal: not/there/x.jsonl: " in complaint("export", "--all", "-o", "not/there/x.jsonl")


def test_view_writes_a_page(journal: Path, here: Path) -> None:
    """The file is named after the run; it overwrites an older page, and no other file without --force."""
    path = data("view", STOPPED)[0]["path"]
    assert path == "run-aaaa0001.html"
    assert (here / path).read_text().lstrip().lower().startswith("<!doctype html")
    assert data("view", STOPPED, DONE, STOPPED)[0]["runs"] == [STOPPED, DONE]
    assert run("view", STOPPED, "-o", "-").stdout.lstrip().lower().startswith("<!doctype html")
    for mine in ("", "<!doctype html><p>mine, about runjournal and langchain-runjournal"):
        (here / "mine.html").write_text(mine)
        assert "--force" in complaint("view", STOPPED, "-o", "mine.html")
        assert (here / "mine.html").read_text() == mine
    assert "the journal itself" in complaint("view", STOPPED, "-o", "runs.db", "--force")
    assert data("view", STOPPED, "-o", "mine.html", "--force")
    assert "mine" not in (here / "mine.html").read_text()[:30]


def test_what_is_written_is_for_its_owner(journal: Path, here: Path) -> None:
    """Mode 0600, as the journal has: a page holds what users wrote to a model."""
    before = os.umask(0)
    try:
        data("view", STOPPED, "-o", "run.html")
        run("export", "--all", "-o", "runs.jsonl")
    finally:
        os.umask(before)
    for name in ("run.html", "runs.jsonl"):
        assert stat.S_IMODE((here / name).stat().st_mode) == 0o600


def test_view_of_an_id_that_is_no_name_of_a_file(here: Path) -> None:
    """The name of the file stays in the current directory."""
    with RunJournal(here / "runs.db") as opened:
        write(opened, "../../x")
    assert data("view", "@last")[0]["path"] == "run-------x.html"
    assert sorted(path.name for path in here.iterdir()) == ["run-------x.html", "runs.db"]


@pytest.mark.parametrize("name", ["runs.db-wal", "runs.db-shm", "runs.db-spool-0123-000001"])
@pytest.mark.parametrize("command", [("export", "--all"), ("view", STOPPED)])
def test_nothing_is_written_over_what_belongs_to_the_journal(
    journal: Path, here: Path, command: tuple[str, ...], name: str
) -> None:
    """The files that SQLite keeps beside the journal, and spools, belong to it."""
    with RunJournal(journal):
        assert name in complaint(*command, "-o", name, "--force" if command[0] == "view" else "--json")
    assert not (here / name).exists()  # SQLite deletes its files on the last close
    assert len(data("list")) == len(ALL)
