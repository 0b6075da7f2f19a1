"""Only what the graph would have put into the thread gets into the thread: programs with models that help, cut anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import RunJournal
from langchain_runjournal.cli.event_printer import TextPrinter
from langchain_runjournal.cli.output import Output
from langchain_runjournal.timeline.timeline import timeline
from tests.support.answering import CELLS, PROGRAMS, Cut, Desk, ask, attached, beside, config, ended_in, left_of, whole
from tests.support.conversations import story

Journals = Callable[..., RunJournal]

each_cell = pytest.mark.parametrize(("name", "step", "moment"), CELLS)
each_cell_of_a_first_run = pytest.mark.parametrize(
    ("name", "step", "moment"),
    CELLS,
)
each_program = pytest.mark.parametrize("name", PROGRAMS)


class Table:
    """A program with its journal and its threads."""

    def __init__(self, name: str, journal: RunJournal, **options: Any) -> None:
        self.name = name
        self.desk = Desk()
        self.journal = journal
        self.graph = attached(name, self.desk, journal, InMemorySaver(), **options)

    def run(self, text: str, thread: str = "t", cut: tuple[str, str] | None = None) -> str:
        """A turn in a program without a loop. Returns the id of its run."""
        run_id = self._begin(cut)
        if cut is None:
            self.graph.invoke(ask(text), config(thread, run_id))
        else:
            with pytest.raises(Cut):
                self.graph.invoke(ask(text), config(thread, run_id))
        return str(run_id)

    async def arun(self, text: str, thread: str = "t", cut: tuple[str, str] | None = None) -> str:
        """The same on a loop, stopped by cancelling it."""
        run_id = self._begin(cut)
        task = asyncio.create_task(self.graph.ainvoke(ask(text), config(thread, run_id)))
        if cut is not None:
            await asyncio.wait_for(self.desk.reached.wait(), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await task if cut is None else None
        return str(run_id)

    def _begin(self, cut: tuple[str, str] | None) -> Any:
        run_id = uuid4()
        self.desk.seen.clear()
        self.desk.reached = asyncio.Event()
        self.desk.cut = cut
        self.desk.beside = () if cut is None else beside(self.name, cut[0])
        self.desk.ended = ended_in(self.journal, run_id)
        return run_id

    def thread(self, thread: str = "t") -> list[str]:
        return lines(self.graph.get_state(config(thread, uuid4())).values["messages"])

    def transcript(self, run_id: str) -> list[str]:
        return lines(self.journal.transcript(run_id))

    def first_request(self) -> list[str]:
        """What the first model of the last turn was asked."""
        return lines(self.desk.seen[0][1])

    def check(self, run_id: str, step: str, moment: str, *, is_first: bool) -> list[str]:
        """Thread and transcript of a turn that was cut are as they should be. Returns the thread."""
        left = ["U hi", *left_of(self.name, step, moment, is_first=is_first)]
        assert self.thread() == left
        told, wanted = self.transcript(run_id), [line for line in left if not line.startswith("T*")]
        if beside(self.name, step):
            # Those that speak side by side stand in the transcript as they began, and in the thread as they ended.
            told, wanted = sorted(told), sorted(wanted)
        assert told == wanted
        return left

    def check_next(self, run_id: str, left: list[str]) -> None:
        """So are those of the turn after it, message by message, and what its first model was asked."""
        assert self.first_request() == [*left, "U next"]
        assert self.transcript(run_id) == ["U next", *whole(self.name)]
        assert self.thread() == [*left, "U next", *whole(self.name)]


def lines(messages: Any) -> list[str]:
    """The messages; without the text of a synthetic result: the tool has failed where it was not stopped."""
    return [line.partition(" ")[0] if line.startswith("T*") else line for line in story(messages)]


@pytest.fixture
def journal() -> Iterator[RunJournal]:
    with RunJournal(":memory:") as journal:
        yield journal


@each_program
def test_a_completed_run_holds_what_its_thread_got(name: str, journal: RunJournal) -> None:
    """No more and no less, in the same order: neither what helpers said nor what a node has written itself is missing."""
    table = Table(name, journal)
    run_id = table.run("hi")
    assert table.thread() == table.transcript(run_id) == ["U hi", *whole(name)]
    run_id = table.run("again")
    assert table.transcript(run_id) == ["U again", *whole(name)]
    assert table.thread() == ["U hi", *whole(name), "U again", *whole(name)]


@each_cell_of_a_first_run
def test_a_first_run_that_is_cut(name: str, step: str, moment: str, journal: RunJournal) -> None:
    """What is not known yet stays, since it was shown; what a finished node has kept is gone; the next turn is right."""
    table = Table(name, journal)
    left = table.check(table.run("hi", cut=(step, moment)), step, moment, is_first=True)
    table.check_next(table.run("next"), left)


@each_cell
def test_a_later_run_that_is_cut(name: str, step: str, moment: str, journal: RunJournal) -> None:
    """Nodes that were seen to keep their answers to themselves are helpers from then on."""
    table = Table(name, journal)
    table.run("warm up", "other")
    left = table.check(table.run("hi", cut=(step, moment)), step, moment, is_first=False)
    table.check_next(table.run("next"), left)


@each_cell_of_a_first_run
def test_a_stop_in_a_first_run(name: str, step: str, moment: str, journal: RunJournal) -> None:
    """The same on a loop, by a cancellation."""

    async def turns() -> None:
        table = Table(name, journal)
        left = table.check(await table.arun("hi", cut=(step, moment)), step, moment, is_first=True)
        table.check_next(await table.arun("next"), left)

    asyncio.run(turns())


@each_cell
def test_a_stop_after_a_restart(name: str, step: str, moment: str, journals: Journals, db: Path) -> None:
    """What was learned is in the store: another journal on the same file knows it before its first run."""

    async def turns() -> None:
        with RunJournal(db) as before:
            await Table(name, before).arun("warm up", "other")
        table = Table(name, journals())
        left = table.check(await table.arun("hi", cut=(step, moment)), step, moment, is_first=False)
        table.check_next(await table.arun("next"), left)

    asyncio.run(turns())


def test_what_is_kept_is_told_when_it_is_known(journal: RunJournal) -> None:
    """A picture of the run says that the answer was not used, and that a call which gave its answer was an answer."""
    table = Table("router", journal, answers="route")
    run = journal.run(table.run("hi"))
    route, talk = timeline(run, journal.read(run.run_id)).models
    assert (route.role, route.unused, talk.role, talk.unused) == ("answer", True, "answer", False)
    (told,) = [one.text for one in timeline(run, journal.read(run.run_id)).messages if one.kind == "ai"]
    assert told == "Rice takes 20 minutes"


def test_follow_says_what_was_kept(journal: RunJournal, capfd: pytest.CaptureFixture[str]) -> None:
    """The words have been shown already: a line says that they are not part of the conversation."""
    run_id = Table("router", journal).run("hi")
    people = TextPrinter(Output(), journal.run(run_id), ())
    people.show(journal.read(run_id))
    people.close()
    assert "route keeps 1 answer to itself: not part of the conversation" in capfd.readouterr().err
