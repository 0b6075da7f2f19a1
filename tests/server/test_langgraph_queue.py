"""Several runs on one thread by the LangGraph API: the four strategies, workers, restarts, and clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from langchain_runjournal import RunJournal
from langchain_runjournal.server.langgraph.queue_plan import Drop, Entry, Wait, Work, next_step
from tests.support.asgi import PATIENCE
from tests.support.langgraph_api import Api, an_api, an_id, body
from tests.support.started_agent import needs_311


def humans(texts: list[str]) -> list[str]:
    return [one.removeprefix("human: ") for one in texts if one.startswith("human")]


@asynccontextmanager
async def two_workers(db: Path) -> AsyncIterator[tuple[Api, Api]]:
    """Two applications with journals of their own on one database, and one checkpointer."""
    saver = InMemorySaver()
    async with (
        await RunJournal.aopen(db) as one,
        await RunJournal.aopen(db) as two,
        an_api(one, saver=saver) as first,
        an_api(two, saver=saver) as second,
    ):
        yield first, second


# --- the strategies -------------------------------------------------------------------------------------------------------


def test_runs_wait_in_line(journal: RunJournal) -> None:
    """By default. Each one begins when the one before it is over, in the order in which they came."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            ids = [await api.hold(thread), *[await api.run(thread, str(number)) for number in range(4)]]
            assert [await api.status(thread, one) for one in ids] == ["running"] + ["pending"] * 4
            assert (await api.get(f"/threads/{thread}")).json["status"] == "busy"
            api.served.gate.set()
            assert [await api.over(thread, one) for one in ids] == ["success"] * 5
            assert humans(await api.texts(thread)) == ["hold", "0", "1", "2", "3"]

    asyncio.run(main())


def test_a_run_that_must_not_wait(journal: RunJournal) -> None:
    """409 while another one runs or waits, and nothing of the new one stays."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            running = await api.hold(thread)
            refused = await api.post(f"/threads/{thread}/runs", body("no", multitask_strategy="reject"))
            assert (refused.status, refused.json["run_id"]) == (409, running)
            assert "already running" in refused.json["detail"]
            api.served.gate.set()
            await api.over(thread, running)
            run_id = await api.run(thread, "yes", multitask_strategy="reject")
            assert await api.over(thread, run_id) == "success"
            assert [one["run_id"] for one in (await api.get(f"/threads/{thread}/runs")).json] == [run_id, running]
            waiting = await api.run(thread, "later", after_seconds=3600)
            refused = await api.post(f"/threads/{thread}/runs", body("no", multitask_strategy="reject"))
            assert (refused.status, refused.json["run_id"]) == (409, waiting)

    asyncio.run(main())


def test_of_two_that_must_not_wait_one_begins(db: Path) -> None:
    """Also if they come at the same moment, to one worker or to two; in any case no more than one."""

    async def main() -> None:
        async with two_workers(db) as (first, second):
            for one, two in ((first, first), (first, second)):
                thread = await first.thread()
                asked = body("hold", multitask_strategy="reject")
                both = await asyncio.gather(*(api.post(f"/threads/{thread}/runs", asked) for api in (one, two)))
                assert sorted(reader.status for reader in both) in ([200, 409], [409, 409])
                statuses = sorted(run["status"] for run in (await first.get(f"/threads/{thread}/runs")).json)
                assert statuses == ["running"] * [reader.status for reader in both].count(200)

    asyncio.run(main())


@pytest.mark.parametrize("strategy", ["interrupt", "rollback"])
def test_a_run_that_takes_the_place_of_others(strategy: str, journal: RunJournal) -> None:
    """`interrupt`: what the old one said stays in the thread. `rollback`: the thread never had it, and the journal has."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            await api.over(thread, await api.run(thread, "hello"))
            running, pending = await api.hold(thread), await api.run(thread, "later")
            run_id = await api.run(thread, "now", multitask_strategy=strategy)
            assert await api.over(thread, run_id) == "success"
            kept = ["human: hold", "ai: Wait "] if strategy == "interrupt" else []
            assert (await api.texts(thread))[2:] == [*kept, "human: now", "ai: You said now."]
            gone = "interrupted" if strategy == "interrupt" else "404"
            assert [await api.status(thread, one) for one in (running, pending)] == [gone, gone]
            run = await journal.arun(running)
            assert (run.status, run.cause, run.settled) == ("interrupted", "superseded", True)
            assert "Wait" in (await journal.atranscript(running))[-1].text

    asyncio.run(main())


@pytest.mark.parametrize("strategy", ["interrupt", "rollback"])
def test_two_that_take_the_place_of_others_at_once(strategy: str, db: Path) -> None:
    """In two workers: the last one stays, nothing is left running or waiting, and the thread is whole."""

    async def main() -> None:
        async with two_workers(db) as (first, second):
            thread = await first.thread()
            await first.hold(thread)
            asked = body("now", multitask_strategy=strategy)
            both = await asyncio.gather(*(api.post(f"/threads/{thread}/runs", asked) for api in (first, second)))
            ids = [reader.json["run_id"] for reader in both]
            ends = [await first.over(thread, one) for one in ids]
            assert "success" in ends
            assert await asyncio.gather(*(api.queue.is_waiting(thread) for api in (first, second))) == [False, False]
            texts = await first.texts(thread)
            assert texts[-2:] == ["human: now", "ai: You said now."]
            if strategy == "rollback":
                assert "human: hold" not in texts

    asyncio.run(main())


# --- several workers, and restarts ----------------------------------------------------------------------------------------


def test_each_request_runs_once_in_order(db: Path) -> None:
    """Two workers share a thread: requests come to both at once, and no run overtakes an earlier one."""

    async def main() -> None:
        async with two_workers(db) as (first, second):
            thread = await first.thread()
            held = await first.hold(thread)
            ids = []
            for number in range(3):
                asked = [api.post(f"/threads/{thread}/runs", body(f"{number}")) for api in (second, first)]
                ids += [reader.json["run_id"] for reader in await asyncio.gather(*asked)]
            first.served.gate.set()
            assert [await second.over(thread, one) for one in (held, *ids)] == ["success"] * 7
            assert humans(await first.texts(thread)) == ["hold", *sorted(f"{number}" for number in range(3) for _ in "ab")]
            assert len(await first.journal.aruns(thread, None, None)) == 7

    asyncio.run(main())


def test_a_run_that_waits_for_another_worker_can_be_cancelled_by_any(db: Path) -> None:
    """The request of one worker, withdrawn by the other one, never begins."""

    async def main() -> None:
        async with two_workers(db) as (first, second):
            thread = await first.thread()
            held = await first.hold(thread)
            waiting = await second.run(thread, "never")
            assert (await first.cancel(thread, waiting, "?wait=1")).status == 200
            first.served.gate.set()
            assert [await second.over(thread, held), await second.over(thread, waiting)] == ["success", "interrupted"]
            assert humans(await second.texts(thread)) == ["hold"]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["open", "read"])
def test_what_a_dead_worker_has_left_begins(how: str, db: Path) -> None:
    """When another one opens, or is asked about the thread. A request that was never answered is dropped."""

    async def main() -> None:
        saver = InMemorySaver()
        journal = await RunJournal.aopen(db)
        api = Api(journal, saver=saver)
        thread = await api.thread()
        await api.hold(thread)
        ids = [await api.run(thread, "one"), await api.run(thread, "two", after_seconds=0.01)]
        request, unheard = api.queue.records.request(ids[0]), an_id()
        assert request is not None
        api.queue.records.store(replace(request, run_id=unheard))
        api.queue.records.add("begin", replace(request, run_id=unheard), journal.owner_id, is_held=True)
        await api.queue.close()
        await journal.aclose()
        async with await RunJournal.aopen(db) as again:
            after = Api(again, saver=saver)
            if how == "open":
                async with after.app.state.service.serving():
                    assert [await after.over(thread, one) for one in ids] == ["success", "success"]
            assert await after.status(thread, ids[0]) in ("pending", "running", "success")
            assert [await after.over(thread, one) for one in ids] == ["success", "success"]
            assert await after.status(thread, unheard) == "404"
            assert humans(await after.texts(thread)) == ["hold", "one", "two"]

    asyncio.run(main())


def test_a_run_that_begins_later(journal: RunJournal) -> None:
    """`after_seconds`. Others do not wait for it."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            later = await api.run(thread, "later", after_seconds=0.3)
            now = await api.run(thread, "now")
            assert await api.over(thread, now) == "success"
            assert await api.over(thread, later) == "success"
            assert humans(await api.texts(thread)) == ["now", "later"]
            never = await api.run(thread, "never", after_seconds=3600)
            assert (await api.cancel(thread, never)).status == 202

    asyncio.run(main())


# --- clients that leave ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["stream", "wait"])
def test_only_the_client_that_began_a_run_stops_it_by_leaving(path: str, journal: RunJournal) -> None:
    """And only if it has asked for that."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            place = f"/threads/{thread}/runs/{path}"
            async with api.open(place, "POST", json_body=body("hold", on_disconnect="cancel")) as creator:
                await api.until_held()
                run_id = creator.headers["content-location"].rpartition("/")[2]
                join = "stream" if path == "stream" else "join"
                async with api.open(f"/threads/{thread}/runs/{run_id}/{join}?cancel_on_disconnect=0") as other:
                    await other.until(lambda: other.status == 200)
                await asyncio.gather(*api.routes.tasks)
                assert (await journal.arun(run_id)).stop is None
            assert await api.over(thread, run_id) == "interrupted"
            assert (await journal.arun(run_id)).cause == "disconnect"
            assert (await api.texts(thread))[-1] == "ai: Wait "
            api.served.held.clear()
            async with api.open(place, "POST", json_body=body("hold")) as creator:
                await api.until_held()
                run_id = creator.headers["content-location"].rpartition("/")[2]
            await asyncio.gather(*api.routes.tasks)
            assert (await journal.arun(run_id)).stop is None
            api.served.gate.set()
            assert await api.over(thread, run_id) == "success"

    asyncio.run(main())


def test_a_run_that_nobody_reads_is_stopped(db: Path) -> None:
    """`cancel_after`: when its last reader has left for so long, in whichever worker."""

    async def main() -> None:
        saver = InMemorySaver()
        async with (
            await RunJournal.aopen(db) as one,
            await RunJournal.aopen(db) as two,
            an_api(one, saver=saver, cancel_after=0.05) as first,
            an_api(two, saver=saver, cancel_after=0.05) as second,
        ):
            thread = await first.thread()
            async with first.open(f"/threads/{thread}/runs/stream", "POST", json_body=body("hold")) as creator:
                await first.until_held()
                run_id = creator.headers["content-location"].rpartition("/")[2]
                reader = await asyncio.wait_for(_joined(second, thread, run_id), PATIENCE)
            await asyncio.sleep(0.3)  # the first worker looks, and finds the reader of the second one
            assert await first.status(thread, run_id) == "running"
            await reader.__aexit__(None, None, None)
            assert await first.over(thread, run_id) == "interrupted"
            assert (await one.arun(run_id)).cause == "disconnect"

    asyncio.run(main())


async def _joined(api: Api, thread: str, run_id: str) -> Any:
    opening = api.open(f"/threads/{thread}/runs/{run_id}/stream")
    reader = await opening.__aenter__()
    await reader.until(lambda: reader.status == 200)
    return opening


# --- the plan -------------------------------------------------------------------------------------------------------------


def entry(number: int, owner: str = "me", **about: Any) -> Entry:
    known: dict[str, Any] = {"job": "begin", "run_id": f"r{number}", "thread_id": "t", **about}
    return Entry(key=f"{number}", version=number, number=number, owner=owner, **known)


def test_what_comes_next_in_a_queue() -> None:
    """One at a time, in order; rollbacks first; what is due later does not block."""
    first, second, other = entry(1), entry(2), entry(1, "other")
    rollback = entry(3, job="rollback")
    assert next_step([], "me", (), 0.0) is None
    assert next_step([other], "me", (), 0.0) is None
    assert next_step([second, first], "me", (), 0.0) == Work(first)
    assert next_step([other, second], "me", (), 0.0) == Wait(None)
    assert next_step([first, second, rollback], "me", (), 0.0) == Work(rollback)
    assert next_step([first, entry(3, "other", job="rollback")], "me", (), 0.0) == Wait(None)
    later = entry(1, not_before=5.0)
    assert next_step([later], "me", (), 1.0) == Wait(5.0)
    assert next_step([later, second], "me", (), 1.0) == Work(second)
    assert next_step([later, second], "me", (), 5.0) == Work(later)
    held = entry(1, is_held=True)
    assert next_step([held, second], "me", {"1"}, 0.0) == Wait(None)
    assert next_step([held, second], "me", (), 0.0) == Drop(held)


# --- rollbacks ------------------------------------------------------------------------------------------------------------


def two_questions(gate: asyncio.Event, held: asyncio.Event, saver: Any) -> Any:
    """A graph whose node asks two questions, and holds its answer."""

    async def ask(state: MessagesState) -> dict[str, Any]:
        first, second = interrupt("first"), interrupt("second")
        held.set()
        await gate.wait()
        return {"messages": [("ai", f"answers {first!r} {second!r}")]}

    return StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=saver, name="agent")


@needs_311
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_an_answer_is_rolled_back(kind: str, journal: RunJournal, tmp_path: Path) -> None:
    """The run wrote beside the checkpoint of the question: the same question is open again, and no other one."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            saver: Any = InMemorySaver()
            if kind == "sqlite":
                saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")))
            gate, held = asyncio.Event(), asyncio.Event()
            graph = two_questions(gate, held, saver)
            api = await stack.enter_async_context(an_api(journal, graphs=graph))
            thread = await api.thread()
            await api.post(f"/threads/{thread}/runs/wait", body("go"))
            await api.post(f"/threads/{thread}/runs/wait", body(command={"resume": "A"}))
            before, checkpoints = (await api.get(f"/threads/{thread}/state")).json, await api.checkpoints(thread)
            assert [one["value"] for one in before["interrupts"]] == ["second"]
            run_id = await api.run_of(thread, body(command={"resume": "wrong"}))
            await asyncio.wait_for(held.wait(), PATIENCE)
            assert (await api.cancel(thread, run_id, "?wait=1&action=rollback")).status == 200
            after = (await api.get(f"/threads/{thread}/state")).json
            assert await api.checkpoints(thread) == checkpoints
            assert (after["next"], after["tasks"], after["values"]) == (before["next"], before["tasks"], before["values"])
            gate.set()
            done = await api.post(f"/threads/{thread}/runs/wait", body(command={"resume": "B"}))
            assert done.json["messages"][-1]["content"] == "answers 'A' 'B'"

    asyncio.run(main())
