"""An agent whose journal is on a Postgres server that is away for a while in the middle of a run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import RunJournal, errors
from langchain_runjournal.journal.core import core_of
from tests.stores.test_postgres_failures import no_password_is_logged, server, spools
from tests.support.agents import asks, words
from tests.support.conversations import PATIENCE, story, the_rest
from tests.support.failing_postgres import new_database
from tests.support.proxy import Proxy
from tests.support.servers import PostgresServer
from tests.support.started_agent import Talk, facts, say

pytestmark = pytest.mark.slow
__all__ = ["no_password_is_logged", "server", "spools"]


class Outage:
    """A server that goes away and comes back, when a test says so."""

    def __init__(self, server: PostgresServer, proxy: Proxy, how: str) -> None:
        self._server, self._proxy, self._how = server, proxy, how

    async def begin(self) -> None:
        await asyncio.to_thread(self._server.kill if self._how == "killed" else self._proxy.stand_still)

    async def end(self) -> None:
        await asyncio.to_thread(self._server.start if self._how == "killed" else self._proxy.go_on)


@contextlib.contextmanager
def outage(server: PostgresServer, how: str) -> Iterator[tuple[str, Outage]]:
    """Yield the URL of an empty database, and what takes its server away."""
    try:
        with Proxy(server.port) as proxy:
            yield proxy.url(new_database(server)), Outage(server, proxy, how)
    finally:
        if server.has_ended():
            server.start()


def complete(url: str, spools: Path, seen: RunJournal, run_id: str) -> None:
    """Check that another journal reads the same events of a run, and that no spool is left."""
    events = seen.read(run_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.kind for event in events].count("run.end") == 1
    seen.close()
    with RunJournal(url, spool_dir=spools) as other:
        assert [(event.seq, event.kind, event.data) for event in other.read(run_id)] == [
            (event.seq, event.kind, event.data) for event in events
        ]
        assert core_of(other).store.check() == []
    assert list(spools.iterdir()) == []


async def flushed(journal: RunJournal) -> None:
    """Flush until it succeeds: the first attempts may find dead connections."""

    async def flush() -> None:
        while True:
            with contextlib.suppress(errors.WriteFailed):
                return await journal.aflush()

    await asyncio.wait_for(flush(), PATIENCE)


HOWS = ("killed", "silent")


@pytest.mark.guarantee("full disk")
@pytest.mark.parametrize("how", HOWS)
def test_the_server_is_away_in_the_middle_of_a_run(how: str, server: PostgresServer, spools: Path) -> None:
    """The run completes, its tools run, its thread is whole, and the journal is complete when the server is back."""

    async def main(url: str, away: Outage) -> None:
        journal = RunJournal(url, spool_dir=spools)
        talk = Talk(journal, InMemorySaver(), "agent")
        talk.model.say(
            [*words("Let me ", "see. "), away.begin, *asks(("c1", "quick", {"x": 1}), ("c2", "quick", {"x": 2}))],
            words("It is ", "done."),
        )
        result = await talk.agent.ainvoke(say("go"), {"configurable": {"thread_id": "t"}})
        whole = ["U go", "A Let me see. Looking. (c1,c2)", "T(c1) quick 1", "T(c2) quick 2", "A It is done."]
        assert story(result["messages"]) == whole
        assert await talk.thread() == whole
        with pytest.raises(errors.WriteFailed, match="safe from a kill"):
            await journal.aflush()
        await away.end()
        await flushed(journal)
        [run] = journal.runs()
        assert facts(run) == ("completed", None, True)
        assert story(journal.transcript(run.run_id)) == whole
        talk.model.say(words("fine"))
        await talk.agent.ainvoke(say("next"), {"configurable": {"thread_id": "t"}})
        assert await talk.thread() == [*whole, "U next", "A fine"]
        await the_rest()
        complete(url, spools, journal, run.run_id)

    with outage(server, how) as (url, away):
        asyncio.run(main(url, away))


@pytest.mark.parametrize("how", HOWS)
def test_a_run_is_cut_off_while_the_server_is_away(how: str, server: PostgresServer, spools: Path) -> None:
    """The thread of a cancelled run is whole, at the latest with the next message after the server is back."""

    async def main(url: str, away: Outage) -> None:
        journal = RunJournal(url, spool_dir=spools)
        talk = Talk(journal, InMemorySaver(), "agent")
        talk.model.say([*words("one ", "two "), away.begin, talk.gate.apass, *words("three")])
        task = asyncio.create_task(talk.agent.ainvoke(say("go"), {"configurable": {"thread_id": "t"}}))
        await asyncio.wait_for(talk.gate.reached.wait(), PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, PATIENCE)
        await away.end()
        await flushed(journal)
        talk.model.say(words("fine"))
        await talk.agent.ainvoke(say("next"), {"configurable": {"thread_id": "t"}})
        assert await talk.thread() == ["U go", "A~ one two ", "U next", "A fine"]
        assert story(talk.model.seen[-1]) == ["U go", "A~ one two ", "U next"]
        last, first = journal.runs()
        assert facts(first) == ("interrupted", "stop", True)
        assert facts(last) == ("completed", None, True)
        talk.gate.open()
        await the_rest()
        complete(url, spools, journal, first.run_id)

    with outage(server, how) as (url, away):
        asyncio.run(main(url, away))


def test_start_run_needs_its_server(server: PostgresServer, spools: Path) -> None:
    """`start_run` raises while the server is away, begins nothing, and works again when the server is back."""

    async def main(url: str, away: Outage) -> None:
        with RunJournal(url, spool_dir=spools) as journal:
            talk = Talk(journal, InMemorySaver())
            await away.begin()
            with pytest.raises(errors.StoreFailed):
                await talk.start("lost")
            assert talk.model.seen == []
            await away.end()
            talk.model.say(words("fine"))
            run = await (await talk.start("go")).wait()
            assert facts(run) == ("completed", None, True)
            assert await talk.thread() == ["U go", "A fine"]
            await the_rest()

    with outage(server, "killed") as (url, away):
        asyncio.run(main(url, away))


def test_a_stop_over_an_outage(server: PostgresServer, spools: Path) -> None:
    """A run of `start_run` that the server leaves in the middle continues, and can be stopped after it."""

    async def main(url: str, away: Outage) -> None:
        with RunJournal(url, spool_dir=spools) as journal:
            talk = Talk(journal, InMemorySaver())
            handle = await talk.start_held()
            await away.begin()
            await away.end()
            await flushed(journal)
            with RunJournal(url, spool_dir=spools) as other:
                await asyncio.to_thread(other.stop, handle.run_id)
            assert facts(await asyncio.wait_for(handle.wait(), PATIENCE)) == ("interrupted", "stop", True)
            await talk.goes_on("U go", "A~ one two ")
            talk.gate.open()
            await the_rest()

    with outage(server, "killed") as (url, away):
        asyncio.run(main(url, away))
