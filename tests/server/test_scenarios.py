"""Scenarios of docs/scenarios.md that no other test has: what a reader and the thread say about each other."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.errors import StoreFailed
from langchain_runjournal.journal.core import core_of
from tests.support.asgi import datas, frames
from tests.support.left_runs import begin
from tests.support.places import on
from tests.support.served import Served

Journals = Callable[..., RunJournal]


@on("sqlite", "postgres", slow=("postgres",))
@pytest.mark.parametrize("text", ["hello", "fail", "hold"])
def test_whoever_hears_the_end_finds_the_answer(journals: Journals, text: str) -> None:
    """S19, P26: the moment that `run.end` comes, the thread has what was shown, in another process too. S21: its messages
    have the ids that the stream has said."""
    here, elsewhere = journals(), journals()

    async def main() -> None:
        served = Served(here)
        other = Served(elsewhere, saver=served.graph.checkpointer)
        run = await served.begin(text)
        async with other.open("/threads/t/events") as reader:
            if text == "hold":
                await reader.until(lambda: b"Wait" in reader.received)
                assert (await other.post(f"/runs/{run}/stop")).status == 202
            await reader.until(lambda: b'"run.end"' in reader.received)
            found = (await other.get("/threads/t/messages")).json
        events = datas(reader.received)
        shown = "".join(event["data"].get("text", "") for event in events if event["kind"] == "llm.ai.delta")
        assert [one["text"] for one in found["messages"]] == [text, shown]
        assert (found["run"], found["questions"]) == (None, [])
        assert found["cursor"] == frames(reader.received)[-1]["id"]
        answered = [event["data"]["message"]["data"]["id"] for event in events if event["kind"] == "llm.ai.response"]
        assert [found["messages"][1]["id"]] == answered or text != "hello"
        again = (await served.get("/threads/t/messages")).json
        assert [one["id"] for one in again["messages"]] == [one["id"] for one in found["messages"]]

    asyncio.run(main())


def test_the_end_of_a_run_leaves_the_next_one_alone(journal: RunJournal) -> None:
    """S20, P27: a run that begins the moment that the one before ends is the run of the thread, and can be stopped."""

    async def main() -> None:
        served = Served(journal)
        first = await served.begin("hello")
        waiting = asyncio.ensure_future(served.begin("hold", if_busy="wait"))
        async with served.open(f"/runs/{first}/events") as reader:
            await reader.until_over()
        second = await waiting
        async with served.open(f"/runs/{second}/events") as reader:
            await reader.until(lambda: b"Wait" in reader.received)
            assert (await served.post(f"/runs/{first}/stop")).status == 409
            found = (await served.get("/threads/t/messages")).json
            assert (found["run"]["run_id"], found["run"]["status"]) == (second, "running")
            served.gate.set()
            await reader.until_over()
        assert datas(reader.received)[-1]["data"]["status"] == "completed"

    asyncio.run(main())


def test_readers_of_all_kinds_on_one_run(journal: RunJournal) -> None:
    """S27, S29: as it is, merged, by its thread, and again and again on one connection: all are told the same."""

    async def main() -> None:
        served = Served(journal)
        run = await served.begin("hold")
        async with (
            served.open(f"/runs/{run}/events") as plain,
            served.open(f"/runs/{run}/events?merge=1") as merged,
            served.open("/threads/t/events") as thread,
            served.open("/threads/t/events?merge=1") as both,
        ):
            readers = plain, merged, thread, both
            for reader in readers:
                await reader.until(lambda reader=reader: b"Wait" in reader.received)  # type: ignore[misc]
            served.gate.set()
            for reader in readers:
                await reader.until(lambda reader=reader: b'"run.end"' in reader.received)  # type: ignore[misc]
        assert frames(plain.received) == frames(thread.received)
        for reader in (merged, both):
            assert text_of(reader) == text_of(plain)
            assert datas(reader.received)[-1] == datas(plain.received)[-1]

    def text_of(reader: Any) -> str:
        return "".join(one["data"].get("text", "") for one in datas(reader.received) if one["kind"] == "llm.ai.delta")

    asyncio.run(main())


def test_a_run_whose_store_is_away(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """S15: its own process knows the words that are not stored yet, and a reader that listens gets them."""

    async def main() -> None:
        served = Served(journal)
        run = await served.hold()
        await journal.aflush()
        last = (await journal.arun(run)).last_seq
        async with served.open(f"/runs/{run}/events") as reader:
            # It has all that is stored: what comes now is in memory.
            await reader.until(lambda: any(one["seq"] == last for one in datas(reader.received)))
            with monkeypatch.context() as patched:
                for verb in ("read", "append"):
                    patched.setattr(type(core_of(journal).store), verb, away)
                served.gate.set()
                await reader.until(lambda: b"for " in reader.received)
            await reader.until_over()
        seqs = [one["seq"] for one in datas(reader.received)]
        assert seqs == list(range(1, len(seqs) + 1))
        assert datas(reader.received)[-1]["kind"] == "run.end"

    def away(*_: object) -> Any:
        raise StoreFailed(path="memory", reason="the network is down", hint="Wait")

    asyncio.run(main())


def test_a_hole_in_a_journal(db: Path, journals: Journals, caplog: pytest.LogCaptureFixture) -> None:
    """S12: what a damaged file lacks is never read over: the stream is aborted, and the log says why."""
    with journals(url=db) as journal:
        begin(journal, "r")
        journal.append(Event(run_id="r", kind="run.end", data={"status": "completed"}))
    with closing(sqlite3.connect(db)) as con, con:
        [(run,)] = con.execute("SELECT DISTINCT run FROM segments").fetchall()
        row = (7, run, 7, 7, 0, 0, "", "7,null", '["run.settled",{}]')
        con.execute("INSERT INTO live VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    async def main() -> None:
        served = Served(journals(url=db))
        async with served.open("/runs/r/events") as reader:
            await reader.until_over()
        assert not reader.is_complete
        assert reader.received.count(b"run.end") <= 1
        assert "aborting a stream" in caplog.text

    asyncio.run(main())


def test_a_cursor_is_moved_by_nothing_that_is_not_kept(journals: Journals) -> None:
    """S53, P8: heartbeats and controls have no id, also while a run is silent."""

    async def main() -> None:
        served = Served(journals(), heartbeat=0.02)
        run = await served.begin("hold")
        async with served.open(f"/runs/{run}/events?cursor=what") as reader:
            await reader.until(lambda: reader.received.count(b": hb") > 3 and b"Wait" in reader.received)
            tip = (await served.journal.arun(run)).last_seq
            assert frames(reader.received)[0]["event"] == "reset"
            assert [frame.get("id", "").rpartition(":")[2] for frame in frames(reader.received)] == [
                "",
                *(str(seq) for seq in range(1, tip + 1)),
            ]
            assert json.loads(frames(reader.received)[-1]["data"])["seq"] == tip
            served.gate.set()
            await reader.until_over()

    asyncio.run(main())
