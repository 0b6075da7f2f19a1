"""A run shows itself in a notebook: `Run._repr_html_`."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path

from langchain_runjournal import Event, Run, RunJournal

Journals = Callable[..., RunJournal]
CHART, WORDS = "Timeline", "Stop loses"


def say(journal: RunJournal, text: str) -> None:
    journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": text}, call_id="c"))


def begun(journal: RunJournal) -> Run:
    journal.append(Event(run_id="r", kind="run.start", data={"thread_id": "t", "name": "agent"}))
    say(journal, WORDS)
    return journal.run("r")


def shown(run: Run) -> str:
    return run._repr_html_()


def test_a_run_shows_its_time_line(journals: Journals) -> None:
    """A run shows it, whether the program got it alone or in a list."""
    journal = journals()
    run = begun(journal)
    (same,) = journal.runs()
    assert CHART in shown(run)
    assert WORDS in shown(run)
    assert shown(run) == shown(same)


def test_a_run_gives_a_notebook_an_image_too(journals: Journals) -> None:
    """As SVG, beside the HTML; without its events there is only the summary."""
    journal = journals()
    run = begun(journal)
    found = run._repr_mimebundle_(include=None, exclude=None)
    assert sorted(found) == ["image/svg+xml", "text/html"]
    assert found["text/html"] == shown(run)
    assert found["image/svg+xml"].startswith("<svg")
    assert list(Run(run_id="r")._repr_mimebundle_()) == ["text/html"]


def test_a_run_is_shown_as_it_was(journals: Journals) -> None:
    """A run is a value: later events are not in its picture, and they are in the picture of the current run."""
    journal = journals()
    before = begun(journal)
    say(journal, " nothing")
    assert WORDS in shown(before)
    assert "nothing" not in shown(before)
    assert "nothing" in shown(journal.run("r"))


def test_a_run_is_shown_when_its_journal_is_closed(journals: Journals) -> None:
    """In a notebook, the cell that shows the run often comes after the `with` block. No file stays open."""
    with journals() as journal:
        run = begun(journal)
    assert WORDS in shown(run)
    with journals() as journal:
        assert run.run_id == journal.run("r").run_id
        assert WORDS in shown(run)


def test_what_cannot_be_read_any_more_is_told_in_words(db: Path, journals: Journals) -> None:
    """For a closed journal in memory, a pruned run, or a deleted file, the picture shows the row of the run."""
    with RunJournal(":memory:") as journal:
        of_memory = begun(journal)
    journal = journals()
    run = begun(journal)
    journal.append(Event(run_id="r", kind="run.end"))
    journal.prune(keep_last=0)
    pruned = shown(run)
    journal.close()
    for path in db.parent.iterdir():
        path.unlink()
    for html in (shown(of_memory), pruned, shown(run)):
        assert "agent" in html
        assert CHART not in html
        assert WORDS not in html
    assert not db.exists()


def test_where_it_is_read_is_no_part_of_a_run(journals: Journals) -> None:
    """Copies and pickles are equal, and show the row of the run."""
    run = begun(journals())
    for twin in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run), dataclasses.replace(run)):
        assert twin == run
        assert repr(twin) == repr(run)
        assert "agent" in shown(twin)
    assert set(dataclasses.asdict(run)) == {field.name for field in dataclasses.fields(Run)}


def test_a_run_keeps_no_journal_alive(db: Path) -> None:
    """A journal that the program no longer references is garbage-collected, and its run is read from the file."""
    journal = RunJournal(db)
    run = begun(journal)
    gone = weakref.ref(journal)
    journal.close()
    del journal
    gc.collect()
    assert gone() is None
    assert WORDS in shown(run)
