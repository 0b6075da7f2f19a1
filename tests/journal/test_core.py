"""The parts of a journal: extensions of other rooms, and the local runs of this process."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Collection

from langchain_runjournal import Event, JournalCallbackHandler, Run, RunJournal
from langchain_runjournal.capture.recorder import recorder_of
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.journal.extensions import Extension, Extensions
from langchain_runjournal.journal.local_runs import LocalRuns


class Noting(Extension):
    """An extension that notes its calls."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def forget(self, run_ids: Collection[str]) -> None:
        self.forgotten += run_ids


class Local:
    """A run in a task, as the journal sees it."""

    thread, grace = 0, 0.0

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.done: concurrent.futures.Future[Run] = concurrent.futures.Future()
        self.causes: list[str] = []

    def ask(self, cause: str) -> None:
        self.causes.append(cause)
        self.done.set_result(Run(run_id=self.run_id))


def test_two_threads_get_the_same_extension() -> None:
    """In a race, both threads may make one. Both get the one that stays, so that no thread keeps facts that no other thread
    sees."""
    extensions, both = Extensions(), threading.Barrier(2)

    def make() -> Noting:
        both.wait(20)
        return Noting()

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        one, other = [work.result() for work in [threads.submit(extensions.get, Noting, make) for _ in range(2)]]
    assert one is other
    assert extensions.get(Noting, Noting) is one


def test_a_journal_that_only_reads_and_appends_has_no_extension() -> None:
    """The journal knows no recorder until a handler asks for one. Two handlers share it."""
    with RunJournal(":memory:") as journal:
        journal.append(Event(run_id="r", kind="run.start"))
        journal.append(Event(run_id="r", kind="run.end"))
        journal.read("r")
        journal.delete(run_id="r", force=True)
        assert not core_of(journal).extensions
        handlers = [JournalCallbackHandler(journal) for _ in range(2)]
        assert all(handler._capture is recorder_of(journal) for handler in handlers)


def test_an_extension_hears_of_deleted_runs() -> None:
    """The extension hears of the deleted runs, and of no other run."""
    with RunJournal(":memory:") as journal:
        for run_id in ("kept", "gone"):
            journal.append(Event(run_id=run_id, kind="run.start"))
            journal.append(Event(run_id=run_id, kind="run.end"))
        noting = core_of(journal).extensions.get(Noting, Noting)
        journal.delete(run_id="gone")
        assert noting.forgotten == ["gone"]


def test_closing_asks_the_local_runs_and_lets_no_other_begin() -> None:
    """`close` asks each of them once, with the cause "shutdown". A run that would begin after that is refused."""
    journal = RunJournal(":memory:")
    runs, local, late = core_of(journal).local_runs, Local("r"), Local("late")
    assert runs.register(1, local)
    assert runs.named("r") is local
    journal.close()
    assert local.causes == ["shutdown"]
    assert not runs.register(2, late)
    assert runs.named("late") is None


def test_a_forked_child_has_no_local_runs() -> None:
    """The parent's runs continue in the parent, where another thread may hold the lock that the child inherits."""
    runs = LocalRuns()
    runs.register(1, Local("r"))
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with runs._lock:
            held.set()
            done.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(20)
    runs.after_fork()
    assert len(runs) == 0
    assert runs.register(2, Local("of the child"))
    assert holder.is_alive()  # and holds its lock
    done.set()
    holder.join()
