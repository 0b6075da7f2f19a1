"""The transport: heartbeats, deadlines, leases; and a connection that fails is aborted and never ended."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.errors import StoreFailed
from langchain_runjournal.journal.core import core_of
from langchain_runjournal.server.frames import HEARTBEAT, RETRY, Frame
from langchain_runjournal.server.transport import EventStream, Timing
from tests.support.asgi import Reader, datas, frames, request
from tests.support.served import Served


class Source:
    """What a test sends: batches, `None` for a wait until the next one, an exception to raise."""

    def __init__(self, *batches: Any) -> None:
        self.is_abandoned = False
        self.batches_left = batches
        self.is_closed = False

    async def batches(self) -> AsyncGenerator[Any, None]:
        try:
            for one in self.batches_left:
                if isinstance(one, BaseException):
                    raise one
                if isinstance(one, asyncio.Event):
                    await one.wait()
                else:
                    yield one
        finally:
            self.is_closed = True


ONE = [Frame("r:1", None, "{}")]


def test_the_headers(journal: RunJournal) -> None:
    """What proxies and browsers need, and no hop-by-hop header; `retry` comes once, before everything."""

    async def main() -> None:
        served = Served(journal)
        run = await served.say("hello")
        reader = await served.get(f"/runs/{run}/events")
        assert reader.headers == {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache, no-transform",
            "x-accel-buffering": "no",
        }
        assert reader.received.startswith(RETRY)
        assert reader.received.count(b"retry:") == 1
        async with served.open(f"/runs/{run}/events", method="HEAD") as head:
            await head.until_over()
        assert (head.status, head.received, head.headers) == (200, b"", reader.headers)

    asyncio.run(main())


def test_a_heartbeat_is_a_comment_without_a_blank_line() -> None:
    """S54, P50: it comes while there is nothing else, it is no event to a client, and it moves no cursor."""

    async def main() -> None:
        held = asyncio.Event()
        source = Source(ONE, [], [], held, ONE)
        async with request(EventStream(source, Timing(heartbeat=1e-9)), "/") as reader:
            await reader.until(lambda: reader.received.endswith(HEARTBEAT))
            held.set()
            await reader.until_over()
        assert b"\n\n: hb\nid: " in reader.received.replace(HEARTBEAT + HEARTBEAT, HEARTBEAT)
        assert [frame["id"] for frame in frames(reader.received)] == ["r:1", "r:1"]
        assert reader.is_complete

    asyncio.run(main())


def test_a_heartbeat_comes_also_while_a_run_is_busy_and_silent(journal: RunJournal) -> None:
    """S54: a model that thinks without a word does not let a connection fall silent."""

    async def main() -> None:
        served = Served(journal, heartbeat=0.05)
        run = await served.hold()
        async with served.open(f"/runs/{run}/events") as reader:
            await reader.until(lambda: reader.received.count(HEARTBEAT) >= 2)
            served.gate.set()
            await reader.until_over()
        assert [data["seq"] for data in datas(reader.received)] == list(range(1, (await journal.arun(run)).last_seq + 1))

    asyncio.run(main())


def test_a_lease_ends_cleanly_between_two_frames(journal: RunJournal) -> None:
    """S55: the reader comes back with its cursor, and has everything once."""

    async def main() -> None:
        served = Served(journal, lease=0.001, heartbeat=0.05)
        run = await served.hold()
        async with served.open(f"/runs/{run}/events") as reader:
            await reader.until_over()
        assert reader.is_complete
        first = datas(reader.received)
        last = frames(reader.received)[-1]["id"]
        served.gate.set()
        await served.over(run)
        rest = await served.get(f"/runs/{run}/events", headers={"last-event-id": last})
        seqs = [data["seq"] for data in [*first, *datas(rest.received)]]
        assert seqs == list(range(1, (await journal.arun(run)).last_seq + 1))

    asyncio.run(main())


def test_a_reader_that_does_not_read_is_disconnected() -> None:
    """S34: at the write deadline its connection is over, and what it was reading is released."""

    async def main() -> None:
        source = Source(ONE, ONE)
        async with request(EventStream(source, Timing(write=0.05)), "/") as reader:
            reader.accepts.clear()
            await reader.until_over()
        assert isinstance(reader.error, ConnectionAbortedError)
        assert not reader.is_complete

    asyncio.run(main())


def test_the_server_is_asked_to_reset_the_connection() -> None:
    """S34: where the server has a transport, as uvicorn has, nothing is left to be flushed and no exception is needed."""

    class Server:
        def __init__(self) -> None:
            self.transport = Transport()
            self.accepts = asyncio.Event()

        async def send(self, message: Any) -> None:
            await self.accepts.wait()

        async def receive(self) -> Any:
            await asyncio.Event().wait()

    class Transport(asyncio.WriteTransport):
        aborted = False

        def abort(self) -> None:
            self.aborted = True

        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return default

    async def main() -> None:
        server = Server()
        scope = {"type": "http", "method": "GET", "headers": []}
        await EventStream(Source(ONE), Timing(write=0.02))(scope, server.receive, server.send)
        assert server.transport.aborted

    asyncio.run(main())


def test_a_slow_reader_gets_everything_or_is_disconnected() -> None:
    """S33: a reader that takes each write late gets no hole."""

    async def main() -> None:
        batches = [[Frame(f"r:{number}", None, "{}")] for number in range(1, 101)]
        async with request(EventStream(Source(*batches), Timing()), "/") as reader:
            for _ in range(200):
                reader.accepts.clear()
                await asyncio.sleep(0)
                reader.accepts.set()
                await asyncio.sleep(0)
            await reader.until_over()
        assert [frame["id"] for frame in frames(reader.received)] == [f"r:{number}" for number in range(1, 101)]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["leaves", "is cancelled"])
def test_what_a_stream_holds_is_released(how: str) -> None:
    """S57, S47: when the reader leaves, or the server cancels the request, also in the middle of a replay."""

    async def main() -> None:
        source, ended = Source(ONE, asyncio.Event()), []
        response = EventStream(source, Timing(), on_end=lambda: ended.append(1))
        async with request(response, "/") as reader:
            await reader.until_frames(1)
            if how == "leaves":
                reader.leave()
            else:
                reader.task.cancel()
            await reader.until_over()
        assert source.is_closed
        assert ended == [1]
        assert not reader.is_complete
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_an_error_behind_the_headers_aborts(caplog: pytest.LogCaptureFixture) -> None:
    """A stream whose store fails is never ended as if it were complete; and no text of the error goes out."""

    async def main() -> Reader:
        source = Source(ONE, StoreFailed(path="/srv/runs.db", reason="disk", hint="Look at the disk"))
        async with request(EventStream(source, Timing()), "/") as reader:
            await reader.until_over()
        return reader

    reader = asyncio.run(main())
    assert isinstance(reader.error, StoreFailed)
    assert not reader.is_complete
    assert b"runs.db" not in reader.received
    assert "aborting a stream" in caplog.text


def test_a_stream_of_a_store_that_fails_before_the_headers(journal: RunJournal, monkeypatch: Any) -> None:
    """Status 503 with `Retry-After`: the client tries again, and nothing was sent that it could take for an end."""

    async def main() -> None:
        served = Served(journal)
        run = await served.say("hello")

        def fail(*args: Any, **more: Any) -> Any:
            raise StoreFailed(path="/srv/runs.db", reason="disk", hint="Look at the disk")

        monkeypatch.setattr(core_of(journal).store, "run", fail)
        reader = await served.get(f"/runs/{run}/events")
        assert (reader.status, reader.headers["retry-after"]) == (503, "1")
        assert b"runs.db" not in reader.received
        monkeypatch.undo()

    asyncio.run(main())


def test_leaving_stops_nothing(journal: RunJournal) -> None:
    """S47, P41: the run goes on without a reader, and all of it is there."""

    async def main() -> None:
        served = Served(journal)
        run = await served.hold()
        async with served.open(f"/runs/{run}/events") as reader:
            await reader.until_frames(3)
        served.gate.set()
        assert await served.over(run) == "completed"
        assert await served.texts() == ["human: hold", "ai: Wait for it."]

    asyncio.run(main())


def test_observers_see_the_same(journal: RunJournal) -> None:
    """S22, S23: two from the start and one that comes late get the same bytes."""

    async def main() -> None:
        served = Served(journal, heartbeat=60.0)
        run = await served.hold()
        path = f"/runs/{run}/events"
        async with served.open(path) as one, served.open(path) as two:
            await one.until_frames(3)
            async with served.open(path) as late:
                served.gate.set()
                for reader in (one, two, late):
                    await reader.until_over()
        assert one.received == two.received == late.received
        assert one.received == (await served.get(path)).received

    asyncio.run(main())


def test_a_hundred_observers(journal: RunJournal) -> None:
    """S36: each of them gets everything, of the run and of its thread, and nothing is left of them."""

    async def main() -> None:
        served = Served(journal, heartbeat=60.0)
        run = await served.hold()
        async with AsyncExitStack() as stack:
            paths = [f"/runs/{run}/events"] * 100 + ["/threads/t/events"] * 100
            readers = [await stack.enter_async_context(served.open(path)) for path in paths]
            for reader in readers:
                await reader.until_frames(3)
            served.gate.set()
            await served.over(run)
            end = (await journal.arun(run)).last_seq
            for reader in readers:
                await reader.until(lambda one=reader: len(frames(one.received)) == end)
            assert {reader.received for reader in readers} == {readers[0].received}
        assert len(frames(readers[0].received)) == end
        assert served.app.state.service.open_streams == 0
        assert not core_of(journal).duties.listeners
        assert not any(buffer.waiters for buffer in core_of(journal).appender.buffers.values())

    asyncio.run(main())


def test_the_number_of_streams_is_bounded(journal: RunJournal) -> None:
    """One more is refused with 503 and `Retry-After`; the others are not harmed, and one that ends makes room."""
    from langchain_runjournal.server import Limits

    async def main() -> None:
        served = Served(journal, limits=Limits(streams=2))
        run = await served.hold()
        path = f"/runs/{run}/events"
        async with served.open(path) as one:
            async with served.open(path) as two:
                await one.until_frames(3)
                await two.until_frames(3)
                refused = await served.get(path)
                assert (refused.status, refused.headers["retry-after"]) == (503, "5")
                assert (await served.get("/threads/t/events")).status == 503
            async with served.open(path) as three:
                await three.until_frames(3)
            served.gate.set()
            await one.until_over()
        assert one.is_complete
        assert served.app.state.service.open_streams == 0

    asyncio.run(main())


def test_memory_stays_flat_with_a_reader_that_never_reads(journal: RunJournal) -> None:
    """S35: nothing is kept for it but one page."""

    async def main() -> None:
        served = Served(journal, write_timeout=60.0)
        journal.append(Event(run_id="long", kind="run.start", data={"thread_id": "t"}))
        for _ in range(2_000):
            journal.append(Event(run_id="long", kind="llm.ai.delta", data={"text": "x" * 100}, call_id="c"))
        await journal.aflush()
        async with served.open("/runs/long/events") as reader:
            reader.accepts.clear()
            await asyncio.sleep(0)
            gc.collect()
            tracemalloc.start()
            for _ in range(10):
                for _ in range(2_000):
                    journal.append(Event(run_id="long", kind="llm.ai.delta", data={"text": "x" * 100}, call_id="c"))
                await journal.aflush()
            gc.collect()
            found = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/langchain_runjournal/server/*")])
            tracemalloc.stop()
            assert sum(one.size for one in found.statistics("filename")) < 100_000

    asyncio.run(main())
