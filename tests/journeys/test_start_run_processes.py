"""Runs in tasks of their own, seen, stopped and followed by other real processes on the same journal."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from langchain_runjournal import Run, RunJournal, errors
from tests.support.places import PLACES, Place, in_places, on
from tests.support.starter import PATIENCE, Failed, Process

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]


Starters = Callable[[int], list[Process]]


place = in_places(*PLACES, storm=["redis"])


@pytest.fixture
def starters(place: Place) -> Iterator[Starters]:
    """That many processes. What they complain of is looked at."""
    opened: list[Process] = []

    def open_starters(count: int) -> list[Process]:
        opened.extend(Process(Path(place.home)) for _ in range(count))
        return [starter.up() for starter in opened[-count:]]

    yield open_starters
    assert [starter.close() for starter in opened] == [""] * len(opened)


@pytest.fixture
def journal(place: Place) -> Iterator[RunJournal]:
    """Of this process, which runs no graph."""
    with place.open() as journal:
        yield journal


def hear(journal: RunJournal, run_id: str, times: int = 3) -> tuple[str, int]:
    """Listen until it has spoken that often: the text, and the seq."""
    text = ""
    for event in journal.follow(run_id):
        text += event.text
        times -= event.kind == "llm.ai.delta"
        if not times:
            return text, event.seq
    raise AssertionError("it has ended before")


def hold_up(owner: Process, place: Place) -> None:
    """Stop a process where it is, but not while it holds a lock: nobody else could write, then."""
    for _ in range(100):
        owner.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, owner.process.pid, os.WSTOPPED | os.WNOWAIT)
        if not place.is_locked():
            return
        owner.process.send_signal(signal.SIGCONT)
    raise AssertionError("it holds the lock all the time")


def until(true: Callable[[], object]) -> None:
    """For what another process does, which can set no event of ours."""
    give_up = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < give_up


def ending(run: Run) -> tuple[str, str | None, bool]:
    return run.status.value, run.cause, run.settled


STOPPED = ("interrupted", "stop", True)

# --- see, follow, stop --------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("durable stop")
@on(*PLACES)
@pytest.mark.parametrize("how", ["sync", "async", "a third process"])
def test_stop_from_a_process_that_runs_no_graph(starters: Starters, journal: RunJournal, how: str) -> None:
    """It sees the run and follows it; when stop(wait=True) returns, that has ended, and its thread holds what was shown."""
    owner, *others = starters(2 if how == "a third process" else 1)
    run_id = owner.do("start", thread="t", text="talk")
    run = journal.run(run_id)
    assert (run.status, run.thread_id, run.name, run.stop) == ("running", "t", "starter", None)
    heard, seq = hear(journal, run_id)
    if how == "sync":
        journal.stop(run_id, wait=True, timeout=PATIENCE)
    elif how == "async":
        asyncio.run(journal.astop(run_id, wait=True, timeout=PATIENCE))
    else:
        others[0].do("stop", run_id=run_id, wait=True, timeout=PATIENCE)
    assert ending(journal.run(run_id)) == STOPPED
    assert owner.do("at_work")[:2] == [0, 1]
    rest = list(journal.follow(run_id, after=seq))
    assert [event.seq for event in rest] == list(range(seq + 1, seq + 1 + len(rest)))
    marks = ("run.stop", "run.settled", "run.end")
    assert tuple(event.kind for event in rest if event.kind in marks) == marks
    said = heard + "".join(event.text for event in rest)
    assert owner.do("thread", thread="t") == [["U talk", f"A~ {said}"], []]
    assert owner.do("wait", run_id=run_id)["cause"] == "stop"
    assert owner.do("at_work") == [0, 1, 0, 0]


def test_requested_and_settled_are_two_facts(starters: Starters, journal: RunJournal, place: Place) -> None:
    """stop() without waiting returns while the run goes on, with the request; the first cause stays; then it is over."""
    (owner,) = starters(1)
    run_id = owner.do("start", thread="t", text="talk")
    hold_up(owner, place)
    asked = journal.stop(run_id, "timeout")
    assert (asked.status, asked.stop) == ("running", "timeout")
    assert journal.stop(run_id).stop == "timeout"
    with pytest.raises(errors.StopTimeout):
        journal.stop(run_id, wait=True, timeout=0.3)
    with pytest.raises(errors.StopTimeout):
        asyncio.run(journal.astop(run_id, wait=True, timeout=0))
    assert ending(journal.run(run_id))[0] == "running"
    owner.process.send_signal(signal.SIGCONT)
    stopped = journal.stop(run_id, wait=True, timeout=PATIENCE)
    assert ending(stopped) == ("interrupted", "timeout", True)
    assert [event.data["cause"] for event in journal.read(run_id) if event.kind == "run.stop"] == ["timeout"]


@pytest.mark.guarantee("durable stop")
def test_everybody_stops_it_at_once(starters: Starters, journal: RunJournal) -> None:
    """Four processes, twice each: the model is cancelled once, and everybody gets the same answer."""
    processes = starters(3)
    for number in range(5):
        run_id = processes[0].do("start", thread=f"t{number}", text="talk")
        hear(journal, run_id, 1)
        answers = [one.ask("stop", run_id=run_id, wait=True) for one in processes * 2]
        mine = [journal.stop(run_id, wait=True) for _ in range(2)]
        assert {ending(run) for run in mine} == {STOPPED}
        told = [answer.result(PATIENCE) for answer in answers]
        assert [(one["status"], one["cause"], one["settled"]) for one in told] == [STOPPED] * 6
        assert [event.kind for event in journal.read(run_id)].count("run.stop") == 1
        assert processes[0].do("at_work")[:2] == [0, number + 1]


def test_a_stop_reaches_no_later_run(starters: Starters, journal: RunJournal) -> None:
    """A stop for a run that has ended says so, and the next one on its thread, of another process, goes on."""
    first, second = starters(2)
    old = first.do("start", thread="t", text="brief")
    assert first.do("wait", run_id=old)["status"] == "completed"
    new = second.do("start", thread="t", text="talk")
    for stopped in (journal.stop(old, wait=True), journal.stop(old)):
        assert (stopped.run_id, stopped.status, stopped.stop) == (old, "completed", None)
    assert first.do("stop", run_id=old, wait=True)["status"] == "completed"
    hear(journal, new, 20)
    assert (journal.run(new).status, journal.run(new).stop) == ("running", None)
    assert ending(journal.stop(new, wait=True)) == STOPPED


# --- two messages at once -----------------------------------------------------------------------------------------------


@on(*PLACES)
def test_one_of_two_begins(starters: Starters, journal: RunJournal) -> None:
    """Both start at the same moment, twenty times: one of them begins, and the other is told which run that is."""
    processes = starters(2)
    for number in range(20):
        thread = f"t{number}"
        answers = [one.ask("start", thread=thread, text="talk") for one in processes[:: 1 if number % 2 else -1]]
        problems = [answer.exception(PATIENCE) for answer in answers]
        (lost,) = [problem for problem in problems if problem is not None]
        run_id = next(answer.result() for answer, problem in zip(answers, problems, strict=True) if problem is None)
        assert isinstance(lost, Failed)
        assert (lost.error, lost.run_id) == ("ThreadBusy", run_id)
        assert [run.run_id for run in journal.runs(thread)] == [run_id]
        assert ending(journal.stop(run_id, wait=True)) == STOPPED
        assert processes[0].do("thread", thread=thread)[0][0] == "U talk"


def test_both_wait_their_turn(starters: Starters, journal: RunJournal) -> None:
    """`if_busy="wait"`, ten times at the same moment, while another run is at work: both are answered, one by one."""
    processes = starters(2)
    for number in range(10):
        thread = f"t{number}"
        busy = processes[number % 2].do("start", thread=thread, text="talk")
        answers = [one.ask("start", thread=thread, text="brief", if_busy="wait") for one in processes]
        hear(journal, busy, 1)
        assert len(journal.runs(thread)) == 1
        assert ending(journal.stop(busy, wait=True)) == STOPPED
        runs = [one.do("wait", run_id=answer.result(PATIENCE)) for one, answer in zip(processes, answers, strict=True)]
        assert [run["status"] for run in runs] == ["completed"] * 2
        story, after = processes[0].do("thread", thread=thread)
        assert (story[2:], after) == (["U brief", "A fine"] * 2, [])


def test_each_stops_the_other(starters: Starters, journal: RunJournal) -> None:
    """`if_busy="stop"`, ten times at the same moment: of three runs one is left, the others superseded and settled."""
    processes = starters(2)
    for number in range(10):
        thread = f"t{number}"
        old = processes[number % 2].do("start", thread=thread, text="talk")
        hear(journal, old, 1)
        answers = [one.ask("start", thread=thread, text="talk", if_busy="stop") for one in processes]
        run_ids = [answer.result(PATIENCE) for answer in answers]
        (left,) = [run_id for run_id in run_ids if journal.run(run_id).status == "running"]
        (gone,) = set(run_ids) - {left}
        assert {ending(journal.run(run_id)) for run_id in (old, gone)} == {("interrupted", "superseded", True)}
        assert ending(journal.stop(left, wait=True)) == STOPPED
        story, after = processes[0].do("thread", thread=thread)
        assert ([line for line in story if line != "U talk" and not line.startswith("A~ 1")], after) == ([], [])
        assert story.count("U talk") == 3
    until(lambda: [one.do("at_work")[2:] for one in processes] == [[0, 0]] * 2)


# --- killed, held up, gone ----------------------------------------------------------------------------------------------


def test_killed_while_somebody_waits_for_its_stop(starters: Starters, journal: RunJournal, place: Place) -> None:
    """`RunAbandoned`, in every process that waits; a new run in another process settles the thread first."""
    owner, other = starters(2)
    run_id = owner.do("start", thread="t", text="talk")
    heard, _ = hear(journal, run_id)
    hold_up(owner, place)  # so that it cannot see the request
    waiting = other.ask("stop", run_id=run_id, wait=True)
    until(lambda: journal.run(run_id).stop)
    owner.kill()
    with pytest.raises(Failed) as failed:
        waiting.result(PATIENCE)
    assert (failed.value.error, failed.value.run_id) == ("RunAbandoned", run_id)
    with pytest.raises(errors.RunAbandoned):
        journal.stop(run_id, wait=True)
    assert journal.run(run_id).status == "running"
    new = other.do("start", thread="t", text="brief")
    assert other.do("wait", run_id=new)["status"] == "completed"
    assert ending(journal.run(run_id)) == ("interrupted", "crash", True)
    (first, cut, *rest), after = other.do("thread", thread="t")
    assert (first, rest, after) == ("U talk", ["U brief", "A fine"], [])
    assert cut.startswith(f"A~ {heard}")


@pytest.mark.parametrize("if_busy", ["stop", "wait"])
def test_killed_while_somebody_waits_for_its_thread(
    starters: Starters, journal: RunJournal, place: Place, if_busy: str
) -> None:
    """Whoever waits for the thread settles what was left, and begins."""
    owner, other = starters(2)
    run_id = owner.do("start", thread="t", text="talk")
    heard, _ = hear(journal, run_id)
    hold_up(owner, place)
    waiting = other.ask("start", thread="t", text="brief", if_busy=if_busy)
    until(lambda: journal.run(run_id).stop == "superseded" if if_busy == "stop" else other.do("at_work")[3])
    assert not waiting.done()
    owner.kill()
    assert other.do("wait", run_id=waiting.result(PATIENCE))["status"] == "completed"
    assert ending(journal.run(run_id)) == ("interrupted", "crash", True)
    (_, cut, *rest), _ = other.do("thread", thread="t")
    assert (cut[: len("A~ ") + len(heard)], rest) == (f"A~ {heard}", ["U brief", "A fine"])


@pytest.mark.parametrize("next_is", ["a message", "recover", "a stop"])
def test_killed_before_its_first_word(starters: Starters, journal: RunJournal, next_is: str) -> None:
    """A run that has its place on its thread, and whose process is killed before the first event, is no obstacle."""
    owner, other = starters(2)
    owner.do("die_at", of="begin")
    owner.ask("start", thread="t", text="talk")
    assert owner.process.wait(PATIENCE) == -signal.SIGKILL
    (dead,) = journal.runs("t")
    assert (dead.status, dead.last_seq) == ("running", 0)
    if next_is == "recover":
        assert other.do("recover") == 1
        assert journal.run(dead.run_id).ended
    elif next_is == "a stop":
        with pytest.raises(errors.RunAbandoned):
            journal.stop(dead.run_id, wait=True)
    new = other.do("start", thread="t", text="brief")
    assert other.do("wait", run_id=new)["status"] == "completed"
    assert ending(journal.run(dead.run_id)) == ("interrupted", "crash", True)
    assert other.do("thread", thread="t") == [["U brief", "A fine"], []]
    assert [event.kind for event in journal.follow(dead.run_id)][-1] == "run.end"


def test_a_process_that_is_held_up(starters: Starters, journal: RunJournal, place: Place) -> None:
    """It is not dead: its thread is busy, and its run is stopped when it goes on."""
    owner, other = starters(2)
    run_id = owner.do("start", thread="t", text="talk")
    hear(journal, run_id)
    hold_up(owner, place)
    with pytest.raises(Failed) as busy:
        other.do("start", thread="t", text="brief")
    assert (busy.value.error, busy.value.run_id) == ("ThreadBusy", run_id)
    assert other.do("recover") == 0
    with pytest.raises(Failed) as late:
        other.do("stop", run_id=run_id, wait=True, timeout=0.3)
    assert (late.value.error, late.value.run_id) == ("StopTimeout", run_id)
    owner.process.send_signal(signal.SIGCONT)
    assert other.do("stop", run_id=run_id, wait=True)["status"] == "interrupted"
    assert other.do("wait", run_id=other.do("start", thread="t", text="brief"))["status"] == "completed"


def test_a_process_that_ends(starters: Starters, journal: RunJournal) -> None:
    """Its runs are stopped, cause "shutdown"; whoever waited for the thread, or follows, goes on."""
    owner, other = starters(2)
    run_id = owner.do("start", thread="t", text="talk")
    hear(journal, run_id)
    waiting = other.ask("start", thread="t", text="brief", if_busy="wait")
    following = other.ask("said", run_id=run_id)
    until(lambda: other.do("at_work")[3])
    assert owner.leave() == 0
    assert other.do("wait", run_id=waiting.result(PATIENCE))["status"] == "completed"
    assert ending(journal.run(run_id)) == ("interrupted", "shutdown", True)
    said = following.result(PATIENCE)
    assert other.do("thread", thread="t") == [["U talk", f"A~ {said}", "U brief", "A fine"], []]


def test_what_waits_in_a_process_that_ends(place: Place, journal: RunJournal) -> None:
    """Whoever waits there for a turn is told that the journal is closed, or is stopped as well: no run is left behind."""
    owner = Process(Path(place.home)).up()
    try:
        for thread in ("t0", "t1", "t2", "t3"):
            hear(journal, owner.do("start", thread=thread, text="talk"), 1)
            for _ in range(3):
                owner.ask("start", thread=thread, text="talk", if_busy="wait")
        until(lambda: owner.do("at_work")[3] == 4)
        assert owner.leave(15) == 0
    finally:
        owner.kill()
        said = owner.close()
    assert said == ""
    assert {ending(run) for run in journal.runs()} == {("interrupted", "shutdown", True)}


# --- paused ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lives", "has ended", "was killed"])
def test_a_paused_run_is_resumed_elsewhere(starters: Starters, journal: RunJournal, how: str) -> None:
    """It is nobody's, and no stop ends it; resumed in another process, the new run names it, and it is complete."""
    owner, other = starters(2)
    paused = owner.do("start", thread="t", text="ask")
    assert owner.do("wait", run_id=paused)["status"] == "paused"
    assert journal.run(paused).owner is None
    for stopped in (journal.stop(paused, wait=True), journal.stop(paused)):
        assert (stopped.status, stopped.stop) == ("paused", None)
    if how == "has ended":
        assert owner.leave() == 0
    elif how == "was killed":
        owner.kill()
    assert other.do("recover") == 0
    new = other.do("start", thread="t", resume="yes")
    assert other.do("wait", run_id=new)["status"] == "completed"
    assert journal.run(new).continues == paused
    assert (journal.run(paused).status, journal.run(paused).cause) == ("completed", None)
    assert other.do("thread", thread="t") == [["U ask", "A you said yes"], []]
