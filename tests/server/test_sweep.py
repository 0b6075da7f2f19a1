"""S1, the cursor sweep: for each frame of a run, what a reader had and what it gets when it comes back are together, byte
for byte, the stream of a reader that never left."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_runjournal import RunJournal
from langchain_runjournal.server.dialects.native import NATIVE
from tests.support.feeds import FOLDING, batches, now, sent, thread_now, until_wait
from tests.support.places import in_places
from tests.support.random_runs import events_of, runs

place = in_places("sqlite", "postgres", "redis", slow=("postgres", "redis"))
DIALECTS = pytest.mark.parametrize("dialect", [NATIVE, FOLDING], ids=lambda one: one.name)
SETTINGS = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
_ids = itertools.count()
Journals = Callable[..., RunJournal]


def new_id() -> str:
    return f"run {next(_ids)}"


async def append(journal: RunJournal, run_id: str, facts: list[Any]) -> None:
    for event in events_of(run_id, facts):
        journal.append(event)
    await journal.aflush()


async def sweep(journal: RunJournal, run_id: str, dialect: Any) -> None:
    """Come back with each id that a stream has sent."""
    found = await now(journal, run_id, None, dialect)
    assert found is not None
    whole, ends = found
    for at, frame in enumerate(whole):
        if frame.id is None:
            continue
        rest = await now(journal, run_id, frame.id, dialect)
        if rest is None:
            # 204: only a control may be left, which says that the run is over.
            assert ends
            assert [one.id for one in whole[at + 1 :]] in ([], [None])
        else:
            assert (sent(whole[: at + 1]) + sent(rest[0]), rest[1]) == (sent(whole), ends)


@DIALECTS
def test_every_frame_of_a_run_that_is_over(journals: Journals, dialect: Any) -> None:
    """S1, after the end, by another process than the one that wrote the run."""
    writer, reader = journals(), journals()

    @SETTINGS
    @given(runs())
    def check(facts: list[Any]) -> None:
        run_id = new_id()
        asyncio.run(append(writer, run_id, facts))
        asyncio.run(sweep(reader, run_id, dialect))

    check()


@DIALECTS
@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_every_frame_of_a_run_that_is_running(journals: Journals, dialect: Any, where: str) -> None:
    """S1, live: a reader leaves behind any frame, the run says more, and the reader comes back."""
    writer = journals()
    reader = writer if where == "here" else journals()

    @SETTINGS
    @given(runs(), st.data())
    def check(facts: list[Any], data: Any) -> None:
        cut = data.draw(st.integers(1, len(facts)))
        asyncio.run(live(facts, cut, data.draw(st.integers(0, 40))))

    async def live(facts: list[Any], cut: int, leave_at: int) -> None:
        run_id = new_id()
        events = events_of(run_id, facts)
        for event in events[:cut]:
            writer.append(event)
        await writer.aflush()
        async with aclosing(batches(reader, run_id, None, dialect)) as staying:
            stayed, ended = await until_wait(staying)
            left = [frame for frame in stayed if frame.id is not None][: leave_at + 1]
            for event in events[cut:]:
                writer.append(event)
            await writer.aflush()
            while not ended:
                more, ended = await until_wait(staying)
                stayed += more
        cursor = left[-1].id if left else None
        back = await now(reader, run_id, cursor, dialect)
        had = [frame for frame in left if frame.id is not None]
        assert sent(had) + sent([] if back is None else back[0]) in (
            sent(stayed),
            sent(stayed[:-1]) if back is None else b"-",
        )

    check()


@DIALECTS
def test_every_frame_of_a_thread(journals: Journals, dialect: Any) -> None:
    """S1 and S4, for threads: a cursor of one run continues into all later ones."""
    writer, reader = journals(), journals()

    @SETTINGS
    @given(st.lists(runs(), min_size=1, max_size=3))
    def check(several: list[list[Any]]) -> None:
        asyncio.run(check_thread(several))

    async def check_thread(several: list[list[Any]]) -> None:
        thread = new_id()
        for facts in several:
            for event in events_of(new_id(), facts, thread):
                writer.append(event)
        await writer.aflush()
        whole = await thread_now(reader, thread, None, dialect)
        positions = [at for at, frame in enumerate(whole) if frame.id is not None]
        for at in positions[:: max(1, len(positions) // 6)]:
            rest = await thread_now(reader, thread, whole[at].id, dialect)
            skipped = whole[at + 1 :]
            if sent(rest) != sent(skipped):
                # Of a run that is over, a reader that has all of it needs no control.
                assert skipped[0].id is None
                assert sent(rest) == sent(skipped[1:])

    check()


def test_a_merged_stream_says_the_same(journals: Journals) -> None:
    """S1, merged: joined frames say what the single ones say, from each cursor on, and each id is one of theirs."""
    writer, reader = journals(), journals()

    @SETTINGS
    @given(runs())
    def check(facts: list[Any]) -> None:
        asyncio.run(merge(facts))

    async def merge(facts: list[Any]) -> None:
        run_id = new_id()
        await append(writer, run_id, facts)
        plain = await now(reader, run_id)
        assert plain is not None
        for cursor in [None, *(frame.id for frame in plain[0][:-1])]:
            alone, joined = await now(reader, run_id, cursor), await now(reader, run_id, cursor, merge=True)
            assert alone is not None
            assert joined is not None
            assert said(alone[0]) == said(joined[0])
            assert {frame.id for frame in joined[0]} <= {frame.id for frame in alone[0]}
            assert alone[0][-1] == joined[0][-1]

    check()


def said(frames: Any) -> Any:
    """What frames say, without where one delta ends and the next begins."""
    import json

    found: list[Any] = []
    for frame in frames:
        event = json.loads(frame.data)
        value = event["data"]
        key = next((key for key in ("text", "thinking", "reasoning", "args") if isinstance(value.get(key), str)), None)
        about = (event["kind"], event["call_id"], key, value.get("index"))
        if event["kind"] == "llm.ai.delta" and found and found[-1][0] == about:
            found[-1][1] += value[key]
        else:
            found.append([about, value[key] if event["kind"] == "llm.ai.delta" else value])
    return found
