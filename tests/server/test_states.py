"""The table of docs/server.md, cell by cell: what a cursor gets from a run in each of its states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from langchain_runjournal import RunJournal
from langchain_runjournal.journal.core import core_of
from tests.support.asgi import Reader, datas, frames
from tests.support.left_runs import leave
from tests.support.served import Served
from tests.support.started_agent import needs_311

Journals = Callable[..., RunJournal]

CURSORS: dict[str, Callable[[str, int], str | None]] = {
    "absent": lambda run, tip: None,
    "empty": lambda run, tip: "",
    "start": lambda run, tip: "-1",
    "zero": lambda run, tip: "0",
    "at": lambda run, tip: f"{run}:2",
    "at a bare seq": lambda run, tip: "2",
    "tip": lambda run, tip: f"{run}:{tip}",
    "now": lambda run, tip: "now",
    "bad": lambda run, tip: "what?",
    "foreign": lambda run, tip: "6f3a1b9e-0c43-4d0e-9f57-0a9d4f0f7b11:2",
    "ahead": lambda run, tip: f"{run}:{tip + 1}",
}
WHERE = pytest.mark.parametrize("by", ["query", "header"])
CURSOR = pytest.mark.parametrize("cursor", CURSORS)


def address(run: str, tip: int, cursor: str, by: str) -> tuple[str, dict[str, str]]:
    """The path and the headers of a request with this cursor."""
    text = CURSORS[cursor](run, tip)
    if text is None:
        return f"/runs/{run}/events", {}
    if by == "header":
        return f"/runs/{run}/events", {"last-event-id": text}
    return f"/runs/{run}/events?cursor={text}", {}


def expected(cursor: str, tip: int) -> list[Any]:
    """What comes before anything new: seqs, and names of controls."""
    everything = list(range(1, tip + 1))
    match cursor:
        case "at" | "at a bare seq":
            return everything[2:]
        case "tip" | "now":
            return []
        case "bad" | "foreign" | "ahead":
            return ["reset", *everything]
        case _:
            return everything


def short(reader: Reader) -> list[Any]:
    """The frames of a reader: seqs, and names of controls, which have no id."""
    found: list[Any] = []
    for frame, data in zip(frames(reader.received), datas(reader.received), strict=True):
        assert ("id" in frame) == ("event" not in frame)
        found.append(frame["event"] if "event" in frame else data["seq"])
        if "id" in frame:
            assert frame["id"] == f"{data['run_id']}:{data['seq']}"
    return found


@CURSOR
@WHERE
def test_a_run_that_is_running(journal: RunJournal, cursor: str, by: str) -> None:
    """What the cursor lacks, then live to the end; with a cursor that is of no use, `reset` and all of it."""

    async def main() -> None:
        served = Served(journal)
        run = await served.hold()
        tip = (await journal.arun(run)).last_seq
        path, headers = address(run, tip, cursor, by)
        async with served.open(path, headers=headers) as reader:
            before = expected(cursor, tip)
            await reader.until(lambda: short(reader) == before and reader.status == 200)
            served.gate.set()
            await reader.until_over()
        end = (await journal.arun(run)).last_seq
        assert short(reader) == [*before, *range(tip + 1, end + 1)]
        assert datas(reader.received)[-1]["kind"] == "run.end"
        assert reader.is_complete

    asyncio.run(main())


@needs_311
@CURSOR
@WHERE
def test_a_run_that_waits_for_a_human(journal: RunJournal, cursor: str, by: str) -> None:
    """What the cursor lacks, and the connection stays open: until the answer comes, and ends the run."""

    async def main() -> None:
        served = Served(journal)
        run = await served.say("may I?")
        tip = (await journal.arun(run)).last_seq
        path, headers = address(run, tip, cursor, by)
        async with served.open(path, headers=headers) as reader:
            before = expected(cursor, tip)
            await reader.until(lambda: short(reader) == before and reader.status == 200)
            answer = await served.post("/threads/t/runs", {"command": {"resume": "yes"}})
            assert answer.status == 201
            await reader.until_over()
        assert short(reader)[: len(before)] == before
        assert datas(reader.received)[-1]["kind"] == "run.end"
        assert reader.is_complete

    asyncio.run(main())


@CURSOR
@WHERE
@pytest.mark.parametrize("text", ["hello", "fail"])
def test_a_run_that_is_over(journal: RunJournal, cursor: str, by: str, text: str) -> None:
    """S16: what the cursor lacks, then the stream ends; at the tip status 204, after which an `EventSource` stops."""

    async def main() -> None:
        served = Served(journal)
        run = await served.say(text)
        tip = (await journal.arun(run)).last_seq
        path, headers = address(run, tip, cursor, by)
        reader = await served.get(path, headers=headers)
        if cursor in ("tip", "now"):
            assert (reader.status, reader.received) == (204, b"")
        else:
            assert reader.status == 200
            assert short(reader) == expected(cursor, tip)

    asyncio.run(main())


@CURSOR
@WHERE
def test_a_run_whose_owner_is_dead(journals: Journals, cursor: str, by: str) -> None:
    """S37: what the cursor lacks, then `interrupted` without an id: nobody has said yet how the run ended."""
    leave(journals, "r")
    journal = journals()

    async def main() -> None:
        served = Served(journal, recover=False)
        tip = (await journal.arun("r")).last_seq
        path, headers = address("r", tip, cursor, by)
        reader = await served.get(path, headers=headers)
        assert reader.status == 200
        assert short(reader) == [*expected(cursor, tip), "interrupted"]

    asyncio.run(main())


def test_a_dead_owner_is_noticed_and_the_run_is_settled(journals: Journals) -> None:
    """S37: a reader comes upon a dead owner, the server settles the run, and the reader that comes back learns its end."""
    leave(journals, "r")
    journal = journals()

    async def main() -> None:
        served = Served(journal)
        first = await served.get("/runs/r/events")
        assert short(first)[-1] == "interrupted"
        async for _ in journal.afollow("r"):
            pass
        last = frames(first.received)[-2]["id"]
        rest = await served.get("/runs/r/events", headers={"last-event-id": last})
        assert datas(rest.received)[-1]["data"]["cause"] == "crash"
        assert short(first)[:-1] + short(rest) == short(await served.get("/runs/r/events"))
        assert [event.kind for event in await journal.aread("r")].count("run.end") == 1

    asyncio.run(main())


def test_a_dead_owner_on_a_thread(journals: Journals) -> None:
    """S37: the stream of a thread says so and stays open: the server settles the run, and the reader sees how it ended."""
    leave(journals, "r")
    journal = journals()

    async def main() -> None:
        served = Served(journal, heartbeat=0.1)
        async with served.open("/threads/t/events") as reader:
            await reader.until(lambda: "interrupted" in short(reader))
            await reader.until(lambda: datas(reader.received)[-1].get("kind") == "run.end")
            run = await served.say("hello")
            end = (await journal.arun(run)).last_seq
            await reader.until(lambda: (datas(reader.received)[-1]["run_id"], short(reader)[-1]) == (run, end))
        assert short(reader).count("interrupted") == 1

    asyncio.run(main())


def test_a_run_that_was_pruned(journals: Journals) -> None:
    """S14: 410 also for a run that another process has pruned."""
    journal, other = journals(), journals()

    async def main() -> None:
        served = Served(journal)
        run = await served.say("hello")
        await other.aprune(keep_last=0)
        assert (await served.get(f"/runs/{run}/events")).status == 410
        assert (await served.get(f"/runs/{run}")).status == 410

    asyncio.run(main())


def test_an_owner_that_dies_while_a_reader_waits(journals: Journals) -> None:
    """S37: a reader that waits for the next word is told within a heartbeat."""
    journal, other = journals(), journals()

    async def main() -> None:
        from tests.support.left_runs import begin

        begin(other, "r")
        served = Served(journal, recover=False, heartbeat=0.1)
        async with served.open("/runs/r/events") as reader:
            await reader.until_frames(4)
            await asyncio.get_running_loop().run_in_executor(None, other.close)
            await reader.until_over()
        assert short(reader) == [1, 2, 3, 4, "interrupted"]

    asyncio.run(main())


@CURSOR
@WHERE
@pytest.mark.parametrize("state", ["unknown", "pruned", "hidden"])
def test_a_run_that_is_not_there(journals: Journals, cursor: str, by: str, state: str) -> None:
    """S14, S58: 404; 410 if the journal still knows that it was deleted, and everybody may know that."""
    journal = journals()

    async def main() -> None:
        seen: list[Any] = []

        async def authorize(request: Any, action: str, thread_id: str | None) -> bool:
            seen.append((action, thread_id))
            return False

        served = Served(journal)
        run = "unknown" if state == "unknown" else await served.say("hello")
        if state == "pruned":
            await journal.adelete(run_id=run)
        if state == "hidden":
            served = Served(journal, authorize=authorize)
        path, headers = address(run, 9, cursor, by)
        reader = await served.get(path, headers=headers)
        assert reader.headers["content-type"] == "application/problem+json"
        assert reader.status == (410 if state == "pruned" else 404)
        if state == "hidden":
            assert seen == [("read", "t")]
            unknown = await served.get("/runs/unknown/events", headers=headers)
            assert unknown.received == reader.received

    asyncio.run(main())


def test_a_run_that_is_deleted_while_it_is_read(journals: Journals) -> None:
    """S13, S14: the stream ends, and the reader that comes back is told why."""
    journal, other = journals(), journals()

    async def main() -> None:
        from tests.support.left_runs import begin

        begin(other, "r")
        served = Served(journal, recover=False, heartbeat=0.1)
        async with served.open("/runs/r/events") as reader:
            await reader.until_frames(4)
            # The store says so: nothing else can delete a run that is running.
            core_of(other).store.delete(["r"])
            await reader.until_over()
        assert short(reader) == [1, 2, 3, 4]
        assert (await served.get("/runs/r/events")).status in (404, 410)

    asyncio.run(main())


@pytest.mark.parametrize("header", ["2", "what?"])
@pytest.mark.parametrize("query", ["3", "what?"])
@pytest.mark.parametrize("name", ["cursor", "after"])
def test_a_query_wins_over_the_header_by_being_there(journal: RunJournal, query: str, header: str, name: str) -> None:
    """S3: in all four combinations of valid and invalid ones."""

    async def main() -> None:
        served = Served(journal)
        run = await served.say("hello")
        tip = (await journal.arun(run)).last_seq
        reader = await served.get(f"/runs/{run}/events?{name}={query}", headers={"last-event-id": header})
        assert short(reader) == (list(range(4, tip + 1)) if query == "3" else ["reset", *range(1, tip + 1)])

    asyncio.run(main())


def test_two_headers(journal: RunJournal) -> None:
    """S2: two different ones are none; a proxy that repeats one is understood."""

    async def main() -> None:
        served = Served(journal)
        run = await served.say("hello")
        twice = served.open(f"/runs/{run}/events")
        async with twice as reader:
            reader._scope["headers"] += [(b"last-event-id", b"2"), (b"last-event-id", b"3")]
            await reader.until_over()
        assert short(reader)[0] == "reset"
        async with served.open(f"/runs/{run}/events") as reader:
            reader._scope["headers"] += [(b"last-event-id", b"2"), (b"last-event-id", b"2")]
            await reader.until_over()
        assert short(reader)[0] == 3

    asyncio.run(main())


def test_what_is_late_is_no_news_for_a_reader_that_comes_back(journal: RunJournal) -> None:
    """S18: an event behind the end moves no tip: a reader that stayed has not seen it, and one that comes back does not."""

    async def main() -> None:
        from langchain_runjournal import Event

        served = Served(journal)
        run = await served.say("hello")
        end = (await journal.arun(run)).last_seq
        for _ in range(3):
            journal.append(Event(run_id=run, kind="llm.tool.result", data={"late": True}))
        await journal.aflush()
        assert (await journal.arun(run)).last_seq == end + 3
        assert short(await served.get(f"/runs/{run}/events"))[-1] == end
        for seq in (end, end + 1, end + 3):
            assert (await served.get(f"/runs/{run}/events?cursor={seq}")).status == 204
        assert short(await served.get(f"/runs/{run}/events?cursor={end - 1}")) == [end]

    asyncio.run(main())


def test_an_event_that_the_store_does_not_have_yet(journals: Journals) -> None:
    """S38: a reader has an event from the process that wrote it, and comes back to another one before the store has it."""
    writer, journal = journals(), journals()

    async def main() -> None:
        from tests.support.left_runs import begin

        begin(writer, "r")
        served = Served(journal, recover=False, heartbeat=0.1)
        opening = asyncio.ensure_future(served.get("/runs/r/events?cursor=5"))
        await asyncio.sleep(0)
        from langchain_runjournal import Event

        writer.append(Event(run_id="r", kind="llm.ai.delta", data={"text": "more"}, call_id="call of r"))
        writer.append(Event(run_id="r", kind="run.end", data={"status": "completed"}))
        await writer.aflush()
        assert short(await opening) == [6]

    asyncio.run(main())
