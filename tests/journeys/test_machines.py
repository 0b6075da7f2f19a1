"""Workers on three machines: a run is stopped, followed, cut off and settled from another machine.

Each machine is a network namespace (`tests.support.machines`). The journal is in Postgres or in Redis, and the threads are
in Postgres.
"""

from __future__ import annotations

import pytest

from tests.support.company import NAMES, Company, ending, error_of, new_thread, until
from tests.support.starter import PATIENCE

pytestmark = pytest.mark.slow

on_each_store = pytest.mark.parametrize("company", ["postgres", "redis"], indirect=True)
REQUESTED = 4
"""The number of facts about checkpoints after which the thread holds the tool requests."""
STOPPED, CRASHED, DONE = (
    ("interrupted", "stop", True),
    ("interrupted", "crash", True),
    ("completed", None, True),
)


@pytest.mark.guarantee("several machines")
@on_each_store
def test_a_stop_from_another_machine(company: Company) -> None:
    """The run ends, settled, with the cause; the caller's `stop(wait=True)` returns that, and the next message works."""
    a, b, c = company.all()
    thread = new_thread()
    run_id = a.do("start", thread=thread, text="talk")
    b.do("hear", run_id=run_id)
    stopped = b.do("stop", run_id=run_id, wait=True, timeout=PATIENCE)
    assert ending(stopped) == STOPPED
    assert ending(a.do("wait", run_id=run_id)) == STOPPED
    (asked, partial), left = c.do("thread", thread=thread)
    assert (asked, left) == ("U talk", [])
    assert partial.startswith("A~ 0 1 2 ")
    assert c.do("invoke", thread=thread, text="next") == ["U talk", partial, "U next", "A fine: next"]


@pytest.mark.guarantee("several machines")
@on_each_store
def test_followers_on_other_machines(company: Company) -> None:
    """They see each event once and in order: live, from the middle, and after the end."""
    a, b, c = company.all()
    run_id = a.do("start", thread=new_thread(), text="count 100")
    live = b.ask("follow", run_id=run_id)
    seq = c.do("hear", run_id=run_id, times=5)
    rest = c.do("follow", run_id=run_id, after=seq)
    whole = live.result(PATIENCE)
    assert whole["seqs"] == list(range(1, len(whole["seqs"]) + 1))
    assert whole["text"] == "".join(f"{number} " for number in range(100))
    assert rest["seqs"] == whole["seqs"][seq:]
    assert whole["text"].endswith(rest["text"])
    for worker in (a, b, c):
        assert worker.do("follow", run_id=run_id) == whole


@pytest.mark.guarantee("several machines")
@on_each_store
def test_a_machine_that_is_cut_off(company: Company) -> None:
    """Another machine claims its run after the lease, and settles it. When the cable is back, the old owner knows it, and
    writes nothing more: neither to the thread nor to the journal."""
    a, b, c = company.all()
    thread = new_thread()
    run_id = a.do("start", thread=thread, text="talk")
    b.do("hear", run_id=run_id)
    company.machine("a").cut()
    follower = c.ask("follow", run_id=run_id)
    asked, partial, *answered = b.do("invoke", thread=thread, text="next")
    assert (asked, answered) == ("U talk", ["U next", "A fine: next"])
    assert partial.startswith("A~ 0 1 2 ")
    settled = b.do("run", run_id=run_id)
    assert (ending(settled), settled["epoch"]) == (CRASHED, 2)
    seen = follower.result(PATIENCE)
    assert seen["seqs"] == list(range(1, len(seen["seqs"]) + 1))
    assert partial == f"A~ {seen['text']}"
    company.machine("a").restore()
    until(lambda: error_of(a.ask("flush")) == "RunFenced")
    assert ending(a.do("wait", run_id=run_id)) == CRASHED
    assert f"another journal has claimed run {run_id}" in company.logs()["a"]
    assert a.do("invoke", thread=thread, text="again")[1:] == [partial, *answered, "U again", "A fine: again"]
    assert b.do("run", run_id=run_id) == settled
    assert c.do("follow", run_id=run_id) == seen


@on_each_store
@pytest.mark.parametrize("call", ["invoke", "invoke_here"])
def test_a_tool_call_that_is_cut_off(company: Company, call: str) -> None:
    """A message on another machine waits for the end of the lease, and its model gets a whole history."""
    a, b, _ = company.all()
    thread = new_thread()
    run_id = a.do("start", thread=thread, text="work")
    b.do("hear", run_id=run_id, kind="llm.tool.result", times=1)
    company.machine("a").cut()
    heard = b.do(call, thread=thread, text="next")
    assert [line.partition(" ")[0] for line in heard] == ["U", "A", heard[2].split()[0], heard[3].split()[0], "U", "A"]
    assert sorted(line.split(" ", 1)[1] for line in heard[2:4]) == ["3", "started"]
    assert ending(b.do("run", run_id=run_id)) == CRASHED


@on_each_store
def test_a_machine_that_is_paused(company: Company) -> None:
    """Another machine settles its run meanwhile. The first thing that the old owner does then is to end its tool call: it
    asks the server, and writes nothing to the thread."""
    a, b, _ = company.all()
    thread = new_thread()
    run_id = a.do("start", thread=thread, text="work")
    b.do("hear", run_id=run_id, kind="run.checkpoint", times=REQUESTED)
    a.pause()
    told = b.do("invoke", thread=thread, text="next")
    assert (told[0], told[-2:]) == ("U work", ["U next", "A fine: next"])
    there = b.do("checkpoints", thread=thread)
    opened = a.ask("open_gate")
    a.go_on()
    opened.result(PATIENCE)
    assert ending(a.do("wait", run_id=run_id)) == CRASHED
    assert b.do("checkpoints", thread=thread) == there
    assert b.do("thread", thread=thread) == [told, []]


@pytest.mark.guarantee("several machines")
@on_each_store
def test_all_machines_recover_at_once(company: Company) -> None:
    """Three machines recover the thirty runs of a dead one: each run is settled exactly once."""
    a = company["a"]
    threads = [new_thread() for _ in range(30)]
    runs = [a.ask("start", thread=thread, text="talk") for thread in threads]
    run_ids = [run.result(PATIENCE) for run in runs]
    for run_id in run_ids:
        company["b"].do("hear", run_id=run_id)
    company.machine("a").kill()
    company.machine("a").replace(volume=True)
    settled: list[str] = []

    def recover() -> bool:
        for asked in [worker.ask("recover") for worker in company.all()]:
            settled.extend(run_id for run_id, outcome in asked.result(PATIENCE) if outcome != "held" and run_id in run_ids)
        return len(settled) >= len(run_ids)

    until(recover)
    assert sorted(settled) == sorted(run_ids)
    for thread, run_id in zip(threads, run_ids, strict=True):
        (asked, partial), left = company["b"].do("thread", thread=thread)
        assert (asked, left) == ("U talk", [])
        assert partial.startswith("A~ 0 1 2 ")
        run = company["c"].do("run", run_id=run_id)
        assert (ending(run), run["epoch"], run["lost"]) == (CRASHED, 2, 0)


# --- before the lease has run out ---------------------------------------------------------------------------------------


def test_a_message_that_does_not_wait(company: Company) -> None:
    """With `wait_for_owner=0` the message begins at once, and its model gets a whole history all the same."""
    a, b = company["a"], company.start("b", wait_for_owner=0.0)
    thread = new_thread()
    run_id = a.do("start", thread=thread, text="work")
    b.do("hear", run_id=run_id, kind="run.checkpoint", times=REQUESTED)
    company.machine("a").cut()
    heard = b.do("invoke", thread=thread, text="next")
    assert (heard[0], heard[-2:]) == ("U work", ["U next", "A fine: next"])
    assert len(heard) == 6
    assert b.do("run", run_id=run_id)["status"] == "running"
    assert b.leave() == 0


def test_a_message_beside_a_living_machine(company: Company) -> None:
    """The other run lives and goes on. The message begins beside it, and its model gets a whole history."""
    a, b, _ = company.all()
    thread = new_thread()
    run_id = a.do("start", thread=thread, text="work")
    b.do("hear", run_id=run_id, kind="run.checkpoint", times=REQUESTED)
    heard = b.do("invoke", thread=thread, text="next")
    assert (heard[0], heard[-2:]) == ("U work", ["U next", "A fine: next"])
    assert b.do("run", run_id=run_id)["status"] == "running"
    assert ending(b.do("stop", run_id=run_id, wait=True, timeout=PATIENCE))[:2] == STOPPED[:2]


@pytest.mark.parametrize("if_busy", ["reject", "wait", "stop"])
def test_start_run_after_a_machine_was_killed(company: Company, if_busy: str) -> None:
    """Whatever `if_busy` says, the run of a dead machine is settled after its lease, and the new one begins."""
    a, b, _ = company.all()
    thread = new_thread()
    run_id = a.do("start", thread=thread, text="talk")
    b.do("hear", run_id=run_id)
    assert error_of(b.ask("start", thread=thread, text="early")) == "ThreadBusy"
    company.machine("a").kill()
    company.machine("a").replace(volume=True)

    def sent() -> bool:
        # Until the next heartbeat is overdue, "reject" does not wait for it.
        return error_of(b.ask("send", thread=thread, text="next", if_busy=if_busy)) is None

    assert until(sent) if if_busy == "reject" else sent()
    assert ending(b.do("run", run_id=run_id)) == CRASHED
    story, left = b.do("thread", thread=thread)
    assert (story[0], story[2:], left) == ("U talk", ["U next", "A fine: next"], [])


# --- the crowd ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("if_busy", ["reject", "wait"])
def test_the_crowd(company: Company, if_busy: str) -> None:
    """Two hundred messages on eight threads from three machines: one at a time on a thread, each is answered or rejected,
    and none is lost."""
    workers, threads = company.all(), [new_thread() for _ in range(8)]
    asked = {
        (thread, f"message {number}"): workers[number % len(NAMES)].ask(
            "send", thread=thread, text=f"message {number}", if_busy=if_busy
        )
        for number in range(200)
        for thread in [threads[number % len(threads)]]
    }
    errors = {key: error_of(one) for key, one in asked.items()}
    assert set(errors.values()) <= {None, "ThreadBusy"}
    if if_busy == "wait":
        assert set(errors.values()) == {None}
    for thread in threads:
        story, left = company["a"].do("thread", thread=thread)
        said = [line.removeprefix("U ") for line in story[0::2]]
        assert left == []
        assert sorted(said) == sorted(text for (on, text), error in errors.items() if on == thread and error is None)
        assert story[1::2] == [f"A fine: {text}" for text in said]
        assert {ending(run) for run in company["b"].do("runs", thread=thread)} == {DONE}
