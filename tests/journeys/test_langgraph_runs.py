"""Runs of the LangGraph API against real servers, by the Python SDK: killed servers, several workers, lost clients."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.serving_process import Servers, servers

__all__ = ["servers"]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


async def with_sdk(server: Any, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Work with the Python SDK of LangGraph, which takes the server for its LangGraph Server."""
    langgraph_sdk = pytest.importorskip("langgraph_sdk", reason="comes with langgraph")
    async with langgraph_sdk.get_client(url=f"{server.url}/langgraph") as client:
        return await work(client)


def says(text: str) -> dict[str, Any]:
    return {"input": {"messages": [{"role": "user", "content": text}]}}


async def humans(client: Any, thread: str) -> list[str]:
    state = await client.threads.get_state(thread)
    return [one["content"] for one in state["values"]["messages"] if one["type"] == "human"]


def test_runs_that_wait_survive_a_kill(servers: Servers) -> None:
    """`kill -9` in the middle of a run with three behind it: they begin after the restart, in order, and once each."""
    options: dict[str, Any] = {"multitask_strategy": "enqueue"}
    server = servers()

    async def before(client: Any) -> tuple[str, list[str]]:
        thread = (await client.threads.create())["thread_id"]
        made = [await client.runs.create(thread, "agent", **says("hold"), **options)]
        async for part in client.runs.join_stream(thread, made[0]["run_id"], stream_mode="messages-tuple"):
            if part.event == "messages":
                break
        made += [await client.runs.create(thread, "agent", **says(text), **options) for text in ("one", "two", "three")]
        assert [run["status"] for run in await client.runs.list(thread)] == ["pending"] * 3 + ["running"]
        return thread, [run["run_id"] for run in made]

    thread, ids = asyncio.run(with_sdk(server, before))
    server.end(signal.SIGKILL)
    again = servers()

    async def after(client: Any) -> None:
        for run_id in ids[1:]:
            values = await client.runs.join(thread, run_id)
            assert values["messages"][-1]["type"] == "ai"
        assert await humans(client, thread) == ["hold", "one", "two", "three"]
        runs = await client.runs.list(thread)
        assert [(run["run_id"], run["status"]) for run in reversed(runs)] == [
            (ids[0], "error"), *[(run_id, "success") for run_id in ids[1:]],
        ]  # fmt: skip
        [held] = [one for one in (await client.threads.get_state(thread))["values"]["messages"] if one["content"] == "Wait "]
        assert held["type"] == "ai"

    asyncio.run(with_sdk(again, after))


def test_the_strategies_by_the_sdk_and_two_workers(servers: Servers) -> None:
    """Each request may reach another worker: wait, stream, join, cancel, and each of the four strategies."""
    server = servers("--workers", "2")

    async def main(client: Any) -> None:
        thread = (await client.threads.create())["thread_id"]
        values = await client.runs.wait(thread, "agent", **says("hello"))
        assert values["messages"][-1]["content"].startswith("You said hello")
        held = await client.runs.create(thread, "agent", **says("hold"))
        await _running(client, thread, held["run_id"])
        with pytest.raises(Exception, match="already running"):
            await client.runs.create(thread, "agent", **says("no"), multitask_strategy="reject")
        parts = [
            part
            async for part in client.runs.stream(
                thread, "agent", **says("now"), multitask_strategy="rollback", stream_mode=["values", "messages-tuple"]
            )
        ]
        assert parts[0].event == "metadata"
        assert await humans(client, thread) == ["hello", "now"]
        with pytest.raises(Exception, match="does not exist"):
            await client.runs.get(thread, held["run_id"])
        held = await client.runs.create(thread, "agent", **says("hold"))
        await _running(client, thread, held["run_id"])
        waiting = await client.runs.create(thread, "agent", **says("later"))
        await client.runs.cancel(thread, held["run_id"], wait=True)
        await client.runs.join(thread, waiting["run_id"])
        assert await humans(client, thread) == ["hello", "now", "hold", "later"]
        assert [run["status"] for run in await client.runs.list(thread)] == ["success", "interrupted", "success", "success"]
        held = await client.runs.create(thread, "agent", **says("hold"))
        await _running(client, thread, held["run_id"])
        last = await client.runs.create(thread, "agent", **says("last"), multitask_strategy="interrupt")
        await client.runs.join(thread, last["run_id"])
        assert await humans(client, thread) == ["hello", "now", "hold", "later", "hold", "last"]

    asyncio.run(with_sdk(server, main))


async def _running(client: Any, thread: str, run_id: str) -> None:
    async for part in client.runs.join_stream(thread, run_id):
        if part.event == "values" and part.data["messages"][-1]["content"] == "hold":
            return
