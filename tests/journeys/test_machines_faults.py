"""Workers on three machines, when machines are replaced, the network is bad, and the server is away."""

from __future__ import annotations

import pytest

from tests.support.company import NAMES, Company, ending, error_of, new_thread, until
from tests.support.machines import FarProcess
from tests.support.starter import PATIENCE, Failed

pytestmark = pytest.mark.slow

CRASHED, DONE = ("interrupted", "crash", True), ("completed", None, True)


def spoken(text: str) -> int:
    """Return how many words a follower or a thread has of a run that counts; all of them, from the first one."""
    words = text.split()
    assert words == [str(number) for number in range(len(words))]
    return len(words)


def until_appended(worker: FarProcess, run_id: str, seq: int) -> int:
    """Wait until a cut-off worker has appended so many events to a run. Return the last one."""
    return int(until(lambda: (found := worker.do("appended", run_id=run_id)) >= seq and found))


@pytest.mark.guarantee("several machines")
@pytest.mark.parametrize("volume", [True, False], ids=["its volume", "no volume"])
def test_a_machine_that_is_killed_and_replaced(company: Company, volume: bool) -> None:
    """What a cut-off machine had not stored lies in its spool. With its volume, the next machine imports the spool, and
    nothing is lost. Without, what the store had is kept, and the thread is whole."""
    a, b, _ = company.all()
    thread = new_thread()
    run_id = a.do("start", thread=thread, text="talk")
    stored = b.do("hear", run_id=run_id, times=20)
    company.machine("a").cut()
    appended = until_appended(a, run_id, 120)
    company.machine("a").kill()
    company.machine("a").restore()
    company.machine("a").replace(volume=volume)
    settled: list[str] = []

    def recover() -> bool:
        settled.extend(found for found, outcome in company["a"].do("recover") if outcome == "settled")
        return run_id in settled

    until(recover)
    run = b.do("run", run_id=run_id)
    assert (ending(run), run["lost"]) == (CRASHED, 0)
    (asked, partial), left = b.do("thread", thread=thread)
    assert (asked, left) == ("U talk", [])
    words = spoken(partial.removeprefix("A~ "))
    if volume:
        assert words >= 100
        assert run["last"] >= appended
        assert company["a"].do("recovered") > 0
    else:
        assert words >= 20
        assert run["last"] >= stored
    assert b.do("follow", run_id=run_id)["text"] == partial.removeprefix("A~ ")
    assert company["a"].do("invoke", thread=thread, text="next")[2:] == ["U next", "A fine: next"]


def test_a_volume_that_comes_too_late(company: Company) -> None:
    """Another machine has claimed and settled the run meanwhile. What the volume still has of it changes nothing."""
    a, b, _ = company.all()
    thread = new_thread()
    run_id = a.do("start", thread=thread, text="talk")
    b.do("hear", run_id=run_id, times=20)
    company.machine("a").cut()
    until_appended(a, run_id, 120)
    company.machine("a").kill()
    heard = b.do("invoke", thread=thread, text="next")
    before = b.do("run", run_id=run_id)
    assert ending(before) == CRASHED
    company.machine("a").restore()
    company.machine("a").replace(volume=True)
    assert company["a"].do("invoke", thread=thread, text="again") == [*heard, "U again", "A fine: again"]
    assert company["a"].do("recover") == []
    assert b.do("run", run_id=run_id) == before


def test_a_bad_network(company: Company) -> None:
    """Packets come 50 ms late, and one in ten is lost: everything is still correct."""
    a, b, c = company.all()
    for name in NAMES:
        company.machine(name).delay(50, loss=10)
    thread = new_thread()
    run_id = a.do("start", thread=thread, text="count 50")
    whole = b.do("follow", run_id=run_id)
    assert whole["seqs"] == list(range(1, len(whole["seqs"]) + 1))
    assert spoken(whole["text"]) == 50
    assert ending(a.do("wait", run_id=run_id)) == DONE
    run_id = c.do("start", thread=thread, text="talk")
    assert ending(b.do("stop", run_id=run_id, wait=True, timeout=PATIENCE)) == ("interrupted", "stop", True)
    assert ending(a.do("send", thread=thread, text="next")) == DONE
    story, left = b.do("thread", thread=thread)
    assert (story[0], story[2], story[-2:], left) == ("U count 50", "U talk", ["U next", "A fine: next"], [])
    assert spoken(story[1].removeprefix("A ")) == 50


def recovered(worker: FarProcess) -> str | None:
    """Return what a worker has recovered; None if its server does not answer yet."""
    try:
        return str(worker.do("recover"))
    except Failed as failed:
        assert failed.error == "StoreUnreachable"
        return None


def test_the_server_is_away_for_all(company: Company) -> None:
    """The runs of all machines continue, for longer than a lease. When the server is back, no machine takes another one for
    dead, and all events are stored."""
    workers = company.all()
    runs = [worker.do("start", thread=new_thread(), text="count 1000") for worker in workers]
    for worker, run_id in zip(workers, runs, strict=True):
        # LangGraph has written all that it writes before the end of the run.
        worker.do("hear", run_id=run_id, kind="run.checkpoint", times=3)
    company.machine("db").cut()
    for worker, run_id in zip(workers, runs, strict=True):
        until_appended(worker, run_id, 600)
    company.machine("db").restore()
    for worker in workers:
        # Each asks as soon as the server answers, perhaps before the others have sent a heartbeat.
        assert until(lambda worker=worker: recovered(worker)) == "[]"
    until(lambda: {error_of(worker.ask("flush")) for worker in workers} == {None})
    followed = [worker.ask("follow", run_id=run_id) for worker, run_id in zip(workers, [*runs[1:], runs[0]], strict=True)]
    for one in followed:
        found = one.result(PATIENCE)
        assert found["seqs"] == list(range(1, len(found["seqs"]) + 1))
        assert spoken(found["text"]) == 1000
    for worker, run_id in zip(workers, runs, strict=True):
        run = worker.do("wait", run_id=run_id)
        assert (ending(run), run["epoch"], run["lost"]) == (DONE, 1, 0)
