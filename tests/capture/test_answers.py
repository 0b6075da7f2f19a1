"""Only what the graph would have put into the thread gets there: programs with helper calls, cut off at any point."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
        """Run one turn of a program without an event loop, and return the id of its run."""
        run_id = self._begin(cut)
        if cut is None:
            self.graph.invoke(ask(text), config(thread, run_id))
        else:
            with pytest.raises(Cut):
                self.graph.invoke(ask(text), config(thread, run_id))
        return str(run_id)

    async def arun(self, text: str, thread: str = "t", cut: tuple[str, str] | None = None) -> str:
        """Do the same on an event loop, and stop the run by cancelling it."""
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
        """What the program asked its first model in the last turn."""
        return lines(self.desk.seen[0][1])

    def check(self, run_id: str, step: str, moment: str, *, is_first: bool) -> list[str]:
        """Assert that thread and transcript of a turn that was cut off are as they should be. Return the thread."""
        left = ["U hi", *left_of(self.name, step, moment, is_first=is_first)]
        assert self.thread() == left
        told, wanted = self.transcript(run_id), [line for line in left if not line.startswith("T*")]
        if beside(self.name, step):
            # Parallel answers stand in the transcript in the order in which they began, and in the thread as they ended.
            told, wanted = sorted(told), sorted(wanted)
        assert told == wanted
        return left

    def check_next(self, run_id: str, left: list[str]) -> None:
        """Assert the same of the turn after it, message by message, and of what the program asked its first model."""
        assert self.first_request() == [*left, "U next"]
        assert self.transcript(run_id) == ["U next", *whole(self.name)]
        assert self.thread() == [*left, "U next", *whole(self.name)]


def lines(messages: Any) -> list[str]:
    """The messages as lines, without the text of a synthetic result: the tool has failed where it was not stopped."""
    return [line.partition(" ")[0] if line.startswith("T*") else line for line in story(messages)]


@each_program
def test_a_completed_run_holds_what_its_thread_got(name: str, journal: RunJournal) -> None:
    """The transcript has the messages of the thread in their order: no words of helper calls, and all that a node writes
    itself."""
    table = Table(name, journal)
    run_id = table.run("hi")
    assert table.thread() == table.transcript(run_id) == ["U hi", *whole(name)]
    run_id = table.run("again")
    assert table.transcript(run_id) == ["U again", *whole(name)]
    assert table.thread() == ["U hi", *whole(name), "U again", *whole(name)]


@each_cell_of_a_first_run
def test_a_first_run_that_is_cut(name: str, step: str, moment: str, journal: RunJournal) -> None:
    """Words of unknown role stay, since the user saw them; words that a finished node has kept do not; the next turn is
    right."""
    table = Table(name, journal)
    left = table.check(table.run("hi", cut=(step, moment)), step, moment, is_first=True)
    table.check_next(table.run("next"), left)


@each_cell
def test_a_later_run_that_is_cut(name: str, step: str, moment: str, journal: RunJournal) -> None:
    """The calls of nodes that kept their answers to themselves before are helper calls from then on."""
    table = Table(name, journal)
    table.run("warm up", "other")
    left = table.check(table.run("hi", cut=(step, moment)), step, moment, is_first=False)
    table.check_next(table.run("next"), left)


@each_cell_of_a_first_run
def test_a_stop_in_a_first_run(name: str, step: str, moment: str, journal: RunJournal) -> None:
    """A cancellation on an event loop leaves the same."""

    async def turns() -> None:
        table = Table(name, journal)
        left = table.check(await table.arun("hi", cut=(step, moment)), step, moment, is_first=True)
        table.check_next(await table.arun("next"), left)

    asyncio.run(turns())


@each_cell
def test_a_stop_after_a_restart(name: str, step: str, moment: str, journals: Journals, db: Path) -> None:
    """The store has what was learned: another journal on the same file knows it before its first run."""

    async def turns() -> None:
        with RunJournal(db) as before:
            await Table(name, before).arun("warm up", "other")
        table = Table(name, journals())
        left = table.check(await table.arun("hi", cut=(step, moment)), step, moment, is_first=False)
        table.check_next(await table.arun("next"), left)

    asyncio.run(turns())


def test_a_page_says_what_was_kept(journal: RunJournal) -> None:
    """The page of a run says that an answer was not used, and that a call which returned its answer was an answer."""
    table = Table("router", journal, answers="route")
    run = journal.run(table.run("hi"))
    route, talk = timeline(run, journal.read(run.run_id)).models
    assert (route.role, route.unused, talk.role, talk.unused) == ("answer", True, "answer", False)
    (told,) = [one.text for one in timeline(run, journal.read(run.run_id)).messages if one.kind == "ai"]
    assert told == "Rice takes 20 minutes"


def test_follow_says_what_was_kept(journal: RunJournal, capfd: pytest.CaptureFixture[str]) -> None:
    """The user has seen the words already: a line says that they are not part of the conversation."""
    run_id = Table("router", journal).run("hi")
    people = TextPrinter(Output(), journal.run(run_id), ())
    people.show(journal.read(run_id))
    people.close()
    assert "route keeps 1 answer to itself: not part of the conversation" in capfd.readouterr().err
