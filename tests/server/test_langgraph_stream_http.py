"""The stream of a run for the clients of LangGraph Server, on connections: its bytes, its client in Python, its ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from langchain_runjournal import RunJournal
from langchain_runjournal.server.langgraph.stream import check_room, stream_run
from langchain_runjournal.server.problems import Problem
from tests.support.asgi import request
from tests.support.langgraph_streams import Asked, Place, said
from tests.support.left_runs import leave
from tests.support.models import Gate
from tests.support.places import on
from tests.support.stream_graphs import GRAPHS, HELLO, held, tool_loop

Journals = Callable[..., RunJournal]


def served(place: Place, left: list[str]) -> Any:
    """Return an application with the one route that streams a run."""

    async def stream(given: Any) -> Any:
        run_id = given.path_params["run"]
        where = f"/threads/t/runs/{run_id}"
        return await stream_run(
            place.service,
            place.graph,
            Asked(run_id, modes=("values", "messages-tuple")),
            cursor=given.headers.get("last-event-id"),
            begun=lambda: place.journal.arun(run_id),
            on_gone=lambda: left.append(run_id),
            headers={"location": f"{where}/stream", "content-location": where},
        )

    return Starlette(routes=[Route("/threads/{thread}/runs/{run}/stream", stream)])


def test_the_bytes_of_a_stream(journal: RunJournal) -> None:
    """Frames with ids, then the end without one; the headers that the clients need. A client that has read to the end has
    not left."""

    async def main() -> None:
        place, left = Place(journal, tool_loop()), list[str]()
        run, _ = await place.run(HELLO)
        async with request(served(place, left), f"/threads/t/runs/{run.run_id}/stream") as reader:
            await reader.until_over()
        frames = await place.frames(run.run_id, modes=("values", "messages-tuple"))
        body = b"".join(frame.encode() for frame in frames)
        assert reader.received.removeprefix(b"retry: 1000\n") == body
        assert body.endswith(b"event: end\ndata: null\n\n")
        assert reader.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert reader.headers["cache-control"] == "no-store"
        assert reader.headers["location"] == f"/threads/t/runs/{run.run_id}/stream"
        assert (left, place.service.open_streams) == ([], 0)

    asyncio.run(main())


def test_a_client_that_leaves_early_is_noticed(journal: RunJournal) -> None:
    """So that a connection that stands for a Stop button stops the run, and no other one does. Until then, the silence is
    filled with comment lines."""

    async def main() -> None:
        gate, left = Gate(2), list[str]()
        place = Place(journal, held(gate))
        handle = await place.begin(HELLO)
        async with request(served(place, left), f"/threads/t/runs/{handle.run_id}/stream") as reader:
            await reader.until(lambda: b"w1" in reader.received and reader.received.endswith(b": hb\n: hb\n"))
            assert left == []
        assert left == [handle.run_id]
        gate.open()
        await handle.wait()

    asyncio.run(main())


def test_room_is_checked_before_a_run_begins(journal: RunJournal) -> None:
    """A client that got a refusal after its run had begun would begin it again."""
    place = Place(journal, tool_loop())
    check_room(place.service)
    place.service.open_streams = place.service.limits.streams
    with pytest.raises(Problem, match="Too many streams"):
        check_room(place.service)


@on("sqlite")
def test_a_run_whose_process_has_died(journals: Journals) -> None:
    """A reader waits until the run is settled, gets the answer as far as it came, and the end."""
    leave(journals, "r", graph="LangGraph")
    journal = journals()

    async def main() -> None:
        place, left = Place(journal, tool_loop(), name="LangGraph"), list[str]()
        async with request(served(place, left), "/threads/t/runs/r/stream") as reader:
            await reader.until_over()
        frames = await place.frames("r", modes=("values",))
        assert reader.received.endswith(b"event: end\ndata: null\n\n")
        assert frames[-2].encode() in reader.received
        assert [message["content"] for message in said(frames, "values")[-1][1]["messages"]] == ["r?", "r "]

    asyncio.run(main())


def test_the_python_client_joins(journal: RunJournal) -> None:
    """`join_stream` of LangGraph's SDK, over a server of its own: the whole run, and what follows a cursor."""
    sdk = pytest.importorskip("langgraph_sdk", reason="comes with langgraph")
    live_server = pytest.importorskip("tests.support.live_server", reason="needs uvicorn")
    place = Place(journal, GRAPHS["called_graph"]())

    async def main(url: str) -> None:
        run, _ = await place.run(HELLO)
        frames = await place.frames(run.run_id, modes=("values", "messages-tuple"))
        expected = [(frame.event, json.loads(frame.data)) for frame in frames]
        async with sdk.get_client(url=url, api_key=None) as client:
            parts = [part async for part in client.runs.join_stream("t", run.run_id)]
            assert [(part.event, part.data) for part in parts] == expected
            assert [part.id for part in parts[:-1]] == [frame.id for frame in frames[:-1]]
            cursor = frames[len(frames) // 2].id
            rest = [part async for part in client.runs.join_stream("t", run.run_id, last_event_id=cursor)]
            assert [(part.event, part.data) for part in rest] == expected[len(frames) // 2 + 1 :]

    with live_server.served(lambda: served(place, [])) as url:
        asyncio.run(main(url))
