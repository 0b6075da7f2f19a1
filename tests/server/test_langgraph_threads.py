"""Threads of the LangGraph API, through LangGraph's own Python SDK: created, found, changed, copied and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from langgraph_sdk.errors import APIStatusError

from langchain_runjournal import RunJournal
from langchain_runjournal.journal.records import records_of
from langchain_runjournal.server.langgraph.thread_rows import SPACE, ThreadRows
from langchain_runjournal.server.langgraph.thread_status import ThreadRow
from tests.support.asgi import fetch
from tests.support.langgraph_clients import http, sdk
from tests.support.left_runs import leave
from tests.support.served import Served
from tests.support.started_agent import needs_311

Journals = Callable[..., RunJournal]


async def status_of(asked: Any) -> int:
    """The status with which the server refuses something."""
    try:
        answer = await asked
    except APIStatusError as error:
        assert error.response.headers["content-type"] == "application/problem+json"
        assert error.response.json()["detail"].endswith(".")
        return error.status_code
    raise AssertionError(answer)


def says(state: Any) -> list[str]:
    """The messages of a state, or of a thread, in a few letters."""
    return [f"{one['type']}: {one['content']}" for one in (state["values"] or {}).get("messages", [])]


def test_the_life_of_a_thread(journal: RunJournal) -> None:
    """It is created once, its metadata is merged, and after its deletion nothing knows it."""

    async def main() -> None:
        served = Served(journal)
        client, thread_id = sdk(served.app), str(uuid4())
        made = await client.threads.create(thread_id=thread_id, metadata={"owner": "ann", "tags": ["a"]}, graph_id="agent")
        assert made["thread_id"] == thread_id
        assert (made["status"], made["values"], made["interrupts"]) == ("idle", None, {})
        assert await status_of(client.threads.create(thread_id=thread_id)) == 409
        again = await client.threads.create(thread_id=thread_id, metadata={"owner": "bob"}, if_exists="do_nothing")
        assert again == {**made, "metadata": {"owner": "ann", "tags": ["a"], "graph_id": "agent"}}
        changed = await client.threads.update(thread_id, metadata={"owner": "bob", "title": "x"})
        assert changed["metadata"] == {"owner": "bob", "title": "x", "tags": ["a"], "graph_id": "agent"}
        assert changed["created_at"] == made["created_at"] < changed["updated_at"]
        assert await client.threads.update(thread_id, metadata={"title": "y"}, return_minimal=True) is None
        assert (await client.threads.get(thread_id))["metadata"]["title"] == "y"
        await client.threads.delete(thread_id)
        for asked in (client.threads.get(thread_id), client.threads.delete(thread_id), client.threads.copy(thread_id)):
            assert await status_of(asked) == 404
        assert records_of(journal).list(SPACE) == []
        assert len((await client.threads.create())["thread_id"]) == 36

    asyncio.run(main())


def test_at_the_same_moment(journal: RunJournal) -> None:
    """Of clients that create one thread, one does; of changes to its metadata, none is lost."""

    async def main() -> None:
        client, thread_id = http(Served(journal).app), str(uuid4())
        both = await asyncio.gather(*(client.post("/threads", json={"thread_id": thread_id}) for _ in range(8)))
        assert sorted(one.status_code for one in both) == [200] + [409] * 7
        path = f"/threads/{thread_id}"
        await asyncio.gather(*(client.patch(path, json={"metadata": {str(number): number}}) for number in range(8)))
        assert (await client.get(path)).json()["metadata"] == {str(number): number for number in range(8)}

    asyncio.run(main())
    rows, seen = ThreadRows(records_of(journal), lambda: 7.0), []

    def late(row: ThreadRow) -> ThreadRow:
        if not seen:  # another process is faster
            rows.change("t", lambda other: replace(other, metadata={**other.metadata, "theirs": 1}))
        seen.append(row)
        return replace(row, metadata={**row.metadata, "ours": 2})

    assert rows.change("t", late).metadata == {"theirs": 1, "ours": 2}
    assert len(seen) == 2


def test_what_a_thread_cannot_be(journal: RunJournal) -> None:
    """Ids that are no UUIDs, members of another type, and what this server cannot do are refused in words."""

    async def main() -> None:
        client = http(Served(journal).app)
        for body in (
            {"thread_id": "t"},
            {"thread_id": 7},
            {"metadata": []},
            {"if_exists": "replace"},
            {"ttl": {"ttl": 5}},
            {"supersteps": [{"updates": "all"}]},
            {"supersteps": [{"updates": [{"values": {}, "as_node": 7}]}]},
            {"supersteps": [{"updates": [{"command": {"graph": "x"}}]}]},
        ):
            assert (await client.post("/threads", json=body)).status_code == 422, body
        for method, path in (("GET", "/threads/t"), ("GET", "/threads/t/state"), ("POST", "/threads/t/history")):
            found = await client.request(method, path)
            assert (found.status_code, "must be a UUID" in found.json()["detail"]) == (422, True)
        long = {"metadata": {str(number): "x" * 1_000 for number in range(900)}}
        made = (await client.post("/threads", json=long)).json()["thread_id"]
        more = {"metadata": {f"more {number}": "x" * 1_000 for number in range(900)}}
        assert (await client.patch(f"/threads/{made}", json=more)).status_code == 422  # a record has a bound
        assert len((await client.get(f"/threads/{made}")).json()["metadata"]) == 900

    asyncio.run(main())


def test_bodies_are_json_whatever_they_say(journal: RunJournal) -> None:
    """LangGraph Studio sends JSON as text/plain. A page of another site that does so is refused all the same."""

    async def main() -> None:
        client, plain = http(Served(journal).app), {"content-type": "text/plain;charset=UTF-8"}
        assert (await client.post("/threads", content=b'{"metadata": {"k": 1}}', headers=plain)).json()["metadata"] == {
            "k": 1
        }
        assert (await client.post("/threads")).status_code == 200
        for theirs in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}, {"origin": "null"}):
            found = await client.post("/threads", content=b"{}", headers={**plain, **theirs})
            assert found.status_code == 403, theirs
        for content, status in ((b"{", 400), (b"[]", 422), (b"\xff", 400), (b'{"a": 1, "a": 2}', 400)):
            assert (await client.post("/threads", content=content, headers=plain)).status_code == status
        assert (await client.post("/threads/search", json={})).headers["x-pagination-total"] == "2"

    asyncio.run(main())


def test_a_page_of_another_origin(journal: RunJournal) -> None:
    """A preflight allows what the clients send, also from https to this machine, and the answers show what they read."""

    async def main() -> None:
        client = http(Served(journal, cors=["https://chat.example"]).app, origin="https://chat.example")
        asked = {
            "access-control-request-method": "PATCH",
            "access-control-request-headers": "content-type,x-api-key,last-event-id,x-auth-scheme,authorization",
            "access-control-request-private-network": "true",
        }
        found = await client.options("/threads", headers=asked)
        assert found.status_code == 200
        allowed = found.headers["access-control-allow-headers"]
        assert all(name in allowed for name in asked["access-control-request-headers"].split(","))
        assert "PATCH" in found.headers["access-control-allow-methods"]
        assert found.headers["access-control-max-age"] == "600"
        from langchain_runjournal.server.app import _PRIVATE

        assert found.headers.get("access-control-allow-private-network") == ("true" if _PRIVATE else None)
        exposed = (await client.post("/threads", json={})).headers["access-control-expose-headers"].lower()
        assert {"location", "content-location", "x-pagination-total", "x-pagination-next"} <= set(exposed.split(", "))
        stranger = await client.options("/threads", headers={**asked, "origin": "https://evil.example"})
        assert stranger.status_code == 400

    asyncio.run(main())


@needs_311
def test_the_status_of_a_thread(journal: RunJournal) -> None:
    """It follows from the runs: busy, interrupted at a question, error with its error, and idle again."""

    async def main() -> None:
        served = Served(journal)
        client = sdk(served.app)
        thread = (await client.threads.create())["thread_id"]

        async def status() -> str:
            return str((await client.threads.get(thread))["status"])

        assert await status() == "idle"
        run_id = await served.hold(thread)
        busy = await client.threads.get(thread)
        assert (busy["status"], says(busy)) == ("busy", ["human: hold"])
        await served.post(f"/runs/{run_id}/stop?wait=1")
        stopped = await client.threads.get(thread)
        assert (stopped["status"], says(stopped)) == ("idle", ["human: hold", "ai: Wait "])
        await served.say("may I", thread)
        asking = await client.threads.get(thread)
        assert asking["status"] == "interrupted"
        [[question]] = asking["interrupts"].values()
        assert question["value"] == {"question": "May I?"}
        await served.say("fail", thread)
        failed: Any = await client.threads.get(thread)
        assert (failed["status"], failed["error"]["error"]) == ("error", "ValueError")
        assert (await client.threads.search(status="error"))[0]["thread_id"] == thread
        assert await client.threads.count(status="idle") == 0
        await served.say("hello", thread)
        assert await status() == "idle"
        assert (await client.threads.get(thread))["error"] is None  # type: ignore[typeddict-item]

    asyncio.run(main())


def test_threads_of_others(journal: RunJournal) -> None:
    """A thread that another dialect began, and one of which only the checkpointer knows, are threads as well."""

    async def main() -> None:
        saver = InMemorySaver()
        served = Served(journal, saver=saver)
        client = sdk(served.app)
        native, program = str(uuid4()), str(uuid4())
        await served.say("hello", native)
        await served.say("hello", "no UUID")
        plain = served._graph(saver, "agent")
        await plain.ainvoke({"messages": [("user", "hi")]}, {"configurable": {"thread_id": program}})
        [found] = await client.threads.search(metadata={"graph_id": "agent"})
        assert (found["thread_id"], says(found)) == (native, ["human: hello", "ai: You said hello."])
        assert found["metadata"]["assistant_id"] == (await client.assistants.get("agent"))["assistant_id"]
        assert says(await client.threads.get(program)) == ["human: hi", "ai: You said hi."]
        assert len(await client.threads.get_history(program)) == 3
        await client.threads.update(native, metadata={"title": "x"})
        [found] = await client.threads.search(metadata={"title": "x", "graph_id": "agent"})
        assert found["created_at"] < found["updated_at"]
        assert (await fetch(served.app, f"/threads/{native}", "DELETE")).status == 204
        assert await client.threads.search() == []

    asyncio.run(main())


def test_a_busy_thread_is_deleted(journal: RunJournal) -> None:
    """The run is stopped first. Nothing is left: no run, no checkpoint, no row."""

    async def main() -> None:
        saver = InMemorySaver()
        served = Served(journal, saver=saver)
        client = sdk(served.app)
        thread = (await client.threads.create(metadata={"secret": 1}))["thread_id"]
        await served.hold(thread)
        await client.threads.delete(thread)
        assert await journal.aruns(thread) == []
        assert [one async for one in saver.alist({"configurable": {"thread_id": thread}})] == []
        assert records_of(journal).list(SPACE) == []

    asyncio.run(main())


@needs_311
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_copy(journal: RunJournal, kind: str) -> None:
    """It has the whole history and the open question, and is a thread of its own from then on."""

    async def main(saver: Any) -> None:
        served = Served(journal, saver=saver)
        client = sdk(served.app)
        thread = (await client.threads.create(metadata={"k": 1}))["thread_id"]
        await served.say("hello", thread)
        await served.say("may I", thread)
        copied: Any = await client.threads.copy(thread)
        copy = copied["thread_id"]
        assert (copied["metadata"]["k"], copied["status"]) == (1, "interrupted")
        both = [await client.threads.get_history(one, limit=100) for one in (thread, copy)]
        assert [(one["values"], one["next"], one["checkpoint_id"]) for one in both[0]] == [
            (one["values"], one["next"], one["checkpoint_id"]) for one in both[1]
        ]
        assert both[1][0]["checkpoint"]["thread_id"] == copy
        assert both[0][0]["interrupts"] == both[1][0]["interrupts"] != []
        plain = served._graph(saver, "agent")
        await plain.ainvoke(Command(resume="yes"), {"configurable": {"thread_id": copy}})
        assert says(await client.threads.get_state(copy))[-1] == "ai: You decided yes."
        assert says(await client.threads.get_state(thread)) == says(both[0][0])
        await client.threads.delete(thread)
        assert says(await client.threads.get_state(copy))[-1] == "ai: You decided yes."

    async def with_saver() -> None:
        if kind == "memory":
            await main(InMemorySaver())
        else:
            async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
                await main(saver)

    asyncio.run(with_saver())


def test_a_copy_that_fails_leaves_nothing(journal: RunJournal) -> None:
    """A checkpointer that fails in the middle of a copy has nothing of it afterwards."""

    class Full(InMemorySaver):
        left = 1_000

        async def aput(self, *about: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise OSError("the disk is full")
            return await super().aput(*about)

    async def main() -> None:
        saver = Full()
        served = Served(journal, saver=saver)
        client = sdk(served.app)
        thread = (await client.threads.create())["thread_id"]
        await served.say("hello", thread)
        saver.left = 2
        assert await status_of(client.threads.copy(thread)) == 500
        assert set(saver.storage) == {thread}
        assert await client.threads.count() == 1

    asyncio.run(main())


def test_a_thread_that_begins_with_a_state(journal: RunJournal) -> None:
    """Supersteps are written one after the other; if one of them cannot be, there is no thread."""

    async def main() -> None:
        client = sdk(Served(journal).app)
        steps = [
            {"updates": [{"values": {"messages": [{"role": "user", "content": "a"}]}, "as_node": "__start__"}]},
            {"updates": [{"values": {"messages": [{"role": "ai", "content": "b"}]}, "as_node": "answer"}]},
        ]
        made = await client.threads.create(supersteps=steps, graph_id="agent")
        assert says(made) == ["human: a", "ai: b"]
        assert len(await client.threads.get_history(made["thread_id"])) == 2
        wrong = [{"updates": [{"values": {}, "as_node": "nobody"}]}]
        assert await status_of(client.threads.create(supersteps=wrong, graph_id="agent")) == 422
        assert await client.threads.count() == 1

    asyncio.run(main())


def test_a_thread_whose_process_died(journals: Journals) -> None:
    """A client that looks at it has it settled. A state that it writes comes behind the partial answer."""

    async def main() -> None:
        thread, other = str(uuid4()), str(uuid4())
        leave(journals, "a", thread_id=thread)
        leave(journals, "b", thread_id=other)
        journal = journals()
        served = Served(journal)
        client = sdk(served.app)
        assert (await client.threads.get(thread))["status"] == "busy"
        await served.over("a")
        assert (await client.threads.get(thread))["status"] == "error"
        await client.threads.update_state(other, {"messages": [{"role": "user", "content": "more"}]}, as_node="__start__")
        assert says(await client.threads.get_state(other)) == ["human: b?", "ai: b ", "human: more"]

    asyncio.run(main())
