"""The Python SDK and `RemoteGraph`, unmodified, over a real server: each way to stop, to come back and to go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.pregel.remote import RemoteGraph
from langgraph_sdk import get_client, get_sync_client
from langgraph_sdk.errors import APIStatusError

from langchain_runjournal import RunJournal
from tests.support.langgraph_app import application
from tests.support.live_server import served
from tests.support.proxy import Proxy
from tests.support.started_agent import needs_config

pytestmark = needs_config

PATIENCE = 30.0
PLAIN = {"loop": "asyncio", "http": "h11"}
FIRST, ALL = "First half, ", "First half, second half."


@pytest.fixture(scope="module", params=[{}, PLAIN], ids=["fast", "plain"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    journal = RunJournal(tmp_path_factory.mktemp("langgraph") / "runs.db")
    with served(lambda: application(journal, heartbeat=0.5), **request.param) as found:
        yield found
    journal.close()


def human(text: str) -> dict[str, Any]:
    return {"messages": [{"type": "human", "content": text}]}


class Program:
    """A program with the SDK, and one thread."""

    def __init__(self, url: str, client: Any) -> None:
        self.url = url
        self.client = client
        self.gate = str(uuid4())
        self.thread = ""
        self.run_id = ""

    def stream(self, text: str, **options: Any) -> AsyncIterator[Any]:
        """Stream a run on the thread."""

        def note(run: Any) -> None:
            self.run_id = run["run_id"]

        about: dict[str, Any] = {"stream_mode": ["values", "messages-tuple"], "on_run_created": note, **options}
        found: AsyncIterator[Any] = self.client.runs.stream(self.thread, "agent", input=human(text), **about)
        return found

    async def until_first(self, stream: AsyncIterator[Any]) -> list[Any]:
        """Return the parts of a stream up to the first half of its answer."""
        parts: list[Any] = []
        while words(parts) != FIRST:
            parts.append(await asyncio.wait_for(anext(stream), PATIENCE))
        return parts

    async def open_gate(self) -> None:
        """Let the answer go on."""
        async with get_client(url=self.url) as client:
            await client.http.post(f"/gates/{self.gate}", json={})

    async def texts(self) -> list[str]:
        """Return what the thread has."""
        state = await self.client.threads.get_state(self.thread)
        return [f"{one['type']}: {one['content']}" for one in state["values"].get("messages", [])]

    async def settled(self, count: int) -> list[str]:
        """Return what the thread has, when it has so many messages and no run."""
        for _ in range(500):
            found = await self.texts()
            if len(found) == count and (await self.client.threads.get(self.thread))["status"] == "idle":
                return found
            await asyncio.sleep(0.02)
        raise AssertionError(found)


def words(parts: list[Any]) -> str:
    """Return what a reader of chunks shows."""
    chunks = [one.data[0] for one in parts if one.event == "messages"]
    return "".join(one["content"] for one in chunks if one["type"] == "AIMessageChunk")


def journey(url: str, steps: Any) -> None:
    """Run the steps of a program on a thread of its own."""

    async def main() -> None:
        async with get_client(url=f"{url}/langgraph") as client:
            program = Program(url, client)
            program.thread = (await client.threads.create())["thread_id"]
            await asyncio.wait_for(steps(program), 4 * PATIENCE)

    asyncio.run(main())


def test_cancel_and_go_on(url: str) -> None:
    async def steps(one: Program) -> None:
        async with aclosing(one.stream(f"hold text:{one.gate}")) as stream:
            parts = await one.until_first(stream)
            await one.client.runs.cancel(one.thread, one.run_id, wait=True)
            parts += [part async for part in stream]
        assert [part.data["messages"][-1]["content"] for part in parts if part.event == "values"][-1] == FIRST
        assert await one.settled(2) == [f"human: hold text:{one.gate}", f"ai: {FIRST}"]
        assert (await one.client.runs.get(one.thread, one.run_id))["status"] == "interrupted"
        again = [part async for part in one.client.runs.join_stream(one.thread, one.run_id)]
        assert [part.data for part in again] == [part.data for part in parts]
        assert words([part async for part in one.stream("plain")]) == "Hello there, friend."
        assert len(await one.settled(4)) == 4

    journey(url, steps)


def test_leaving_stops_a_run_that_was_asked_for_so(url: str) -> None:
    async def steps(one: Program) -> None:
        async with aclosing(one.stream(f"hold text:{one.gate}", on_disconnect="cancel")) as stream:
            await one.until_first(stream)
        assert (await one.settled(2))[-1] == f"ai: {FIRST}"

    journey(url, steps)


def test_leaving_does_not_stop_any_other_run(url: str) -> None:
    async def steps(one: Program) -> None:
        async with aclosing(one.stream(f"hold text:{one.gate}")) as stream:
            await one.until_first(stream)
        assert (await one.client.runs.get(one.thread, one.run_id))["status"] == "running"
        joined = one.client.runs.join_stream(one.thread, one.run_id)
        parts = await one.until_first(joined)
        await one.open_gate()
        parts += [part async for part in joined]
        assert words(parts) == ALL
        assert (await one.settled(2))[-1] == f"ai: {ALL}"

    journey(url, steps)


def test_two_readers_get_the_same(url: str) -> None:
    async def steps(one: Program) -> None:
        stream = one.stream(f"hold text:{one.gate}")
        parts = await one.until_first(stream)
        other = asyncio.ensure_future(_all(one.client.runs.join_stream(one.thread, one.run_id)))
        await one.open_gate()
        parts += await _all(stream)
        assert [part.data for part in await asyncio.wait_for(other, PATIENCE)] == [part.data for part in parts]

    journey(url, steps)


async def _all(stream: AsyncIterator[Any]) -> list[Any]:
    return [part async for part in stream]


def test_a_connection_that_breaks_is_made_again(url: str) -> None:
    """The SDK reconnects by itself, and shows each word once."""
    with Proxy(urlsplit(url).port or 0) as proxy:

        async def steps(one: Program) -> None:
            stream = one.stream(f"hold text:{one.gate}", stream_resumable=True)
            parts = await one.until_first(stream)
            one.url = url  # the gate opens on another way
            proxy.cut()
            await one.open_gate()
            parts += await _all(stream)
            assert words(parts) == ALL
            assert one.client.http.client.base_url.port == proxy.port

        journey(f"http://127.0.0.1:{proxy.port}", steps)


def test_a_question_and_an_edit(url: str) -> None:
    async def steps(one: Program) -> None:
        asked = await one.client.runs.wait(one.thread, "agent", input=human("ask"))
        assert asked["__interrupt__"][0]["value"] == {"question": "May I?"}
        done = await one.client.runs.wait(one.thread, "agent", command={"resume": "yes"})
        assert "the human says yes" in [message["content"] for message in done["messages"]]
        history = await one.client.threads.get_history(one.thread, limit=50)
        place = {"checkpoint_id": history[-1]["checkpoint"]["checkpoint_id"], "checkpoint_ns": ""}
        other = await one.client.runs.wait(one.thread, "agent", input=human("plain"), checkpoint=place)
        assert [message["content"] for message in other["messages"]] == ["plain", "Hello there, friend."]

    journey(url, steps)


def test_errors(url: str) -> None:
    async def steps(one: Program) -> None:
        with pytest.raises(Exception, match="RuntimeError"):
            await one.client.runs.wait(one.thread, "agent", input=human("fail"))
        assert (await one.texts())[-1] == "ai: Well, "
        assert (await one.client.threads.get(one.thread))["status"] == "error"
        unknown = str(uuid4())
        for call, status in (
            (lambda: one.client.runs.get(one.thread, unknown), 404),
            (lambda: one.client.runs.cancel(one.thread, unknown), 404),
            (lambda: one.client.runs.create(unknown, "agent", input=human("plain")), 404),
            (lambda: one.client.runs.create(one.thread, "nobody", input=human("plain")), 422),
            (lambda: one.client.threads.get("no uuid"), 422),
        ):
            with pytest.raises(APIStatusError) as caught:
                await call()
            assert caught.value.status_code == status

    journey(url, steps)


def test_a_remote_graph_is_a_node_of_another_graph(url: str) -> None:
    """Its answer is in the state around it, and its steps stream through."""

    async def main() -> None:
        async with get_client(url=f"{url}/langgraph") as client:
            remote = RemoteGraph("agent", client=client)
            around = StateGraph(MessagesState).add_node("far", remote).add_edge(START, "far").compile()
            found = await around.ainvoke(human("tools"))  # type: ignore[arg-type]
            assert [message.type for message in found["messages"]] == ["human", "ai", "tool", "tool", "ai"]
            assert found["messages"][-1].content == "That is what the tool said."
            stream = around.astream(human("plain"), stream_mode="updates", subgraphs=True)  # type: ignore[arg-type]
            inner = [set(chunk) async for space, chunk in stream if space]
            assert inner == [{"model"}]

    asyncio.run(main())


def test_a_program_without_asyncio(url: str) -> None:
    """The synchronous client, and `RemoteGraph.invoke`."""
    with get_sync_client(url=f"{url}/langgraph") as client:
        remote = RemoteGraph("agent", sync_client=client)
        thread = str(uuid4())
        found: Any = remote.invoke(human("plain"), {"configurable": {"thread_id": thread}})
        assert found["messages"][-1]["content"] == "Hello there, friend."
        parts = list(client.runs.stream(thread, "agent", input=human("echo"), stream_mode=["messages-tuple"]))
        assert words(parts).startswith("human: plain")
