"""The search for threads of the LangGraph API, who sees what in it, and the assistants."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import RunJournal
from langchain_runjournal.server import create_app
from langchain_runjournal.server.langgraph import search
from langchain_runjournal.server.langgraph.thread_status import KnownThread
from langchain_runjournal.server.langgraph.threads import Threads
from tests.server.test_langgraph_states import Probe
from tests.server.test_langgraph_threads import says, status_of
from tests.support.langgraph_clients import http, sdk
from tests.support.langgraph_probe import probe
from tests.support.started_agent import needs_311


@needs_311
def test_threads_are_found(journal: RunJournal) -> None:
    """By metadata that they contain, values, status and ids; in each order, page by page, with chosen members."""

    async def main() -> None:
        served = Probe(journal)
        threads, post = served.client.threads, http(served.app)
        made = []
        for number in range(4):
            about = {"number": number, "tags": ["a", "b"], "of": {"team": "red", "more": 1}}
            made.append((await threads.create(metadata=about))["thread_id"])
        await served.say("hello", made[1])
        await served.say("interrupt me", made[0])

        async def ids(**body: Any) -> list[int]:
            return [made.index(one["thread_id"]) for one in await threads.search(**body)]

        assert await ids() == [3, 2, 1, 0]
        assert await ids(sort_by="updated_at") == [0, 1, 3, 2]
        assert await ids(sort_by="created_at", sort_order="asc") == [0, 1, 2, 3]
        assert await ids(sort_by="thread_id", sort_order="asc") == sorted(range(4), key=lambda one: made[one])
        assert await ids(metadata={"number": 2}) == [2]
        assert await ids(metadata={"of": {"team": "red"}, "tags": ["b"]}) == [3, 2, 1, 0]
        assert await ids(metadata={"number": "2"}) == await ids(metadata={"number": True}) == []
        assert await ids(metadata={"graph_id": "probe"}) == [1, 0]
        assert await ids(status="interrupted") == [0]
        assert await ids(status="idle") == [3, 2, 1]
        assert await ids(ids=[made[2], str(uuid4())]) == [2]
        assert await ids(values={"messages": [{"type": "human", "content": "hello"}]}) == [1]
        found: Any = await threads.search(select=["thread_id", "status"], status="interrupted")
        assert found == [{"thread_id": made[0], "status": "interrupted"}]
        [whole] = await threads.search(ids=[made[1]])
        assert whole == await threads.get(made[1])
        assert says(whole)[0] == "human: hello"
        assert await threads.count(status="idle") == 3
        assert await threads.count(values={"messages": [{"content": "hello"}]}) == 1
        pages = [await post.post("/threads/search", json={"limit": 3, "offset": at}) for at in (0, 3, 6)]
        assert [len(page.json()) for page in pages] == [3, 1, 0]
        assert [page.headers["x-pagination-total"] for page in pages] == ["4"] * 3
        assert [page.headers.get("x-pagination-next") for page in pages] == ["3", None, None]
        for body in (
            {"limit": 0},
            {"offset": -1},
            {"status": "done"},
            {"sort_by": "title"},
            {"sort_order": "up"},
            {"select": ["title"]},
            {"metadata": []},
            {"ids": "x"},
            {"extract": {"a": "values.b"}},
        ):
            assert (await post.post("/threads/search", json=body)).status_code == 422, body

    asyncio.run(main())


class Tenants:
    """An application of several tenants: a thread belongs to whoever first does something with it."""

    def __init__(self, journal: RunJournal) -> None:
        self.owners: dict[str, str] = {}
        self.asked: list[tuple[str, str, str | None]] = []
        self.app = create_app(probe(InMemorySaver()), journal, authorize=self.authorize)

    def authorize(self, request: Any, action: str, thread_id: str | None) -> bool:
        tenant = request.headers.get("x-tenant")
        self.asked.append((str(tenant), action, thread_id))
        if tenant is None:
            return False
        if thread_id is None:
            return action == "list"
        if action == "start":
            self.owners.setdefault(thread_id, tenant)
        return self.owners.get(thread_id) == tenant and not (tenant == "guest" and action == "update")


def test_a_tenant_never_sees_another_one(journal: RunJournal) -> None:
    """Each path answers for another tenant's thread as for one that does not exist, and nothing is changed."""

    async def main() -> None:
        tenants = Tenants(journal)
        ann, bob = http(tenants.app, **{"x-tenant": "ann"}), http(tenants.app, **{"x-tenant": "bob"})
        hers = (await ann.post("/threads", json={"metadata": {"graph_id": "probe"}})).json()["thread_id"]
        his = (await bob.post("/threads", json={"metadata": {"graph_id": "probe"}})).json()["thread_id"]
        said = {"values": {"messages": [{"role": "user", "content": "secret"}]}, "as_node": "__start__"}
        assert (await ann.post(f"/threads/{hers}/state", json=said)).status_code == 200
        place = (await ann.get(f"/threads/{hers}/state")).json()["checkpoint_id"]
        before = (await ann.get(f"/threads/{hers}")).json()
        calls: list[tuple[str, str, Any]] = [
            ("GET", "/threads/{}", None),
            ("PATCH", "/threads/{}", {"metadata": {"x": 1}}),
            ("DELETE", "/threads/{}", None),
            ("POST", "/threads/{}/copy", None),
            ("GET", "/threads/{}/state", None),
            ("POST", "/threads/{}/state", said),
            ("GET", f"/threads/{{}}/state/{place}", None),
            ("POST", "/threads/{}/state/checkpoint", {"checkpoint": {"checkpoint_id": place}}),
            ("GET", "/threads/{}/history", None),
            ("POST", "/threads/{}/history", {"limit": 10}),
        ]
        for method, path, body in calls:
            hidden = await bob.request(method, path.format(hers), json=body)
            unknown = await bob.request(method, path.format(uuid4()), json=body)
            assert (hidden.status_code, hidden.text) == (404, unknown.text), (method, path)
        for if_exists in ("raise", "do_nothing"):
            found = await bob.post("/threads", json={"thread_id": hers, "if_exists": if_exists})
            assert (found.status_code, found.text) == (404, hidden.text)
        checkpoint = {"checkpoint": {"checkpoint_id": place, "thread_id": hers}}
        assert (await bob.post(f"/threads/{his}/state/checkpoint", json=checkpoint)).status_code == 404
        assert (await ann.get(f"/threads/{hers}")).json() == before
        for client, mine in ((ann, hers), (bob, his)):
            for body in ({}, {"ids": [hers, his]}, {"metadata": {"graph_id": "probe"}}, {"values": {}}, {"status": "idle"}):
                found = await client.post("/threads/search", json=body)
                seen = {one["thread_id"] for one in found.json()}
                assert seen <= {mine}
                assert found.headers["x-pagination-total"] == str(len(seen))
                assert (await client.post("/threads/count", json=body)).json() == len(seen)
            assert seen == ({his} if client is bob else set())
        secret = {"values": {"messages": [{"content": "secret"}]}}
        assert (await bob.post("/threads/count", json=secret)).json() == 0
        assert (await ann.post("/threads/count", json=secret)).json() == 1
        nobody = http(tenants.app)
        for method, path in (("POST", "/threads/search"), ("POST", "/assistants/search"), ("GET", "/info")):
            assert (await nobody.request(method, path)).status_code == 404
        assert (await nobody.get("/ok")).json() == {"ok": True}
        actions = {action for _, action, _ in tenants.asked}
        assert actions == {"list", "start", "read", "update", "delete"}

    asyncio.run(main())


def test_who_may_only_read(journal: RunJournal) -> None:
    """`update` is asked for metadata, for a state, and a thread that begins with one; a copy is read and started."""

    async def main() -> None:
        tenants = Tenants(journal)
        guest = http(tenants.app, **{"x-tenant": "guest"})
        thread = (await guest.post("/threads", json={})).json()["thread_id"]
        assert (await guest.get(f"/threads/{thread}")).status_code == 200
        steps = [{"updates": [{"values": {"note": "x"}, "as_node": "agent"}]}]
        for method, path, body in (
            ("PATCH", f"/threads/{thread}", {"metadata": {"x": 1}}),
            ("POST", f"/threads/{thread}/state", {"values": {"note": "x"}}),
            ("POST", "/threads", {"supersteps": steps}),
        ):
            assert (await guest.request(method, path, json=body)).status_code == 404
        assert (await guest.post("/threads/count", json={})).json() == 1
        tenants.asked.clear()
        copied = (await guest.post(f"/threads/{thread}/copy")).json()["thread_id"]
        assert tenants.asked == [("guest", "read", thread), ("guest", "start", copied)]
        blind = http(create_app(probe(InMemorySaver()), journal, authorize=lambda request, action, where: action == "start"))
        for if_exists in ("raise", "do_nothing"):  # what it may not read looks like what does not exist
            assert (await blind.post("/threads", json={"thread_id": thread, "if_exists": if_exists})).status_code == 404

    asyncio.run(main())


def test_a_search_asks_for_a_bounded_number(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """`authorize` is asked for as many threads as a page needs, and for some more, for the total."""
    monkeypatch.setattr(search, "_ASKED", 5)
    monkeypatch.setattr(search, "_MOST_ASKED", 12)

    async def main() -> None:
        tenants = Tenants(journal)
        ann, bob = http(tenants.app, **{"x-tenant": "ann"}), http(tenants.app, **{"x-tenant": "bob"})
        for _ in range(8):
            await ann.post("/threads", json={})
        for _ in range(8):
            await bob.post("/threads", json={})

        async def found(client: Any, **body: Any) -> tuple[int, str, int]:
            tenants.asked.clear()
            page = await client.post("/threads/search", json=body)
            return len(page.json()), page.headers["x-pagination-total"], len(tenants.asked) - 1

        assert await found(bob, limit=2) == (2, "5", 5)  # the newest are his
        assert await found(bob, limit=7) == (7, "7", 7)
        assert await found(ann, limit=2) == (2, "2", 10)  # eight of others, and two of hers
        assert await found(ann, limit=8) == (4, "4", 12)

    asyncio.run(main())


def test_assistants(journal: RunJournal) -> None:
    """One for each graph, with an id that lasts, its schemas and its drawing."""

    async def main() -> None:
        graphs = {"probe": probe(InMemorySaver()), "tiny": probe(InMemorySaver(), name="tiny")}
        app = create_app(graphs, journal)
        client, get = sdk(app), http(app)
        found: Any = await client.assistants.search(metadata={"created_by": "system"})
        assert [one["graph_id"] for one in found] == ["probe", "tiny"]
        assert found[0]["assistant_id"] == "3b12983f-e5f0-5194-8fce-5c63e75400a5"  # in the bookmarks of users
        assert await client.assistants.search(graph_id="tiny") == [found[1]]
        assert await client.assistants.search(limit=1, offset=1) == [found[1]]
        assert await client.assistants.search(name="TIN", select=["name"]) == [{"name": "tiny"}]
        assert await client.assistants.search(sort_by="name", sort_order="desc") == found[::-1]
        assert await client.assistants.count(graph_id="nothing") == 0
        for named in ("probe", found[0]["assistant_id"]):
            assert await client.assistants.get(named) == found[0]
            drawn: Any = await client.assistants.get_graph(named)
            assert {"id", "type", "data"} <= set(drawn["nodes"][-1])
            schemas: Any = await client.assistants.get_schemas(named)
            assert schemas["graph_id"] == "probe"
            for kind in ("input_schema", "output_schema", "state_schema"):
                assert {"messages", "note"} <= set(schemas[kind]["properties"]), kind
            assert set(schemas) >= {"config_schema", "context_schema"}
            assert list(await client.assistants.get_subgraphs(named)) == ["sub"]
        inner: Any = await client.assistants.get_subgraphs("probe", "sub", recurse=True)
        assert "note" in inner["sub"]["state_schema"]["properties"]
        assert {one["id"] for one in (await client.assistants.get_graph("probe", xray=1))["nodes"]} >= {"sub:inner"}
        assert await status_of(client.assistants.get(str(uuid4()))) == 404
        assert await status_of(client.assistants.get("nope")) == 422
        assert (await get.get("/assistants/probe/graph?xray=perhaps")).status_code == 422
        info = (await get.get("/info")).json()
        assert info["flags"]["assistants"] is True
        assert [int(part) for part in info["version"].split(".")] >= [0, 4, 35]  # Studio refuses an older one
        thread = (await client.threads.create())["thread_id"]
        refused = await get.post(f"/threads/{thread}/state", json={"values": {"note": "x"}, "as_node": "agent"})
        assert (refused.status_code, "probe, tiny" in refused.json()["detail"]) == (422, True)
        await client.threads.update(thread, metadata={"graph_id": "tiny"})
        await client.threads.update_state(thread, {"note": "x"}, as_node="agent")
        assert (await client.threads.get_state(thread))["values"] == {"messages": [], "note": "x"}

    asyncio.run(main())


def test_a_thread_that_cannot_be_read_does_not_hide_the_others(
    journal: RunJournal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is listed without its values, and the log says why. If none can be read, that is an error of the server."""

    async def main() -> None:
        served = Probe(journal)
        whole, broken = await served.say("hello"), await served.say("hello")
        read, unreadable = Threads.newest_state, {broken}

        async def newest_state(self: Threads, known: KnownThread) -> Any:
            if known.thread_id in unreadable:
                raise ValueError("a checkpoint of another version")
            return await read(self, known)

        monkeypatch.setattr(Threads, "newest_state", newest_state)
        post = http(served.app)
        found = {one["thread_id"]: one["values"] for one in (await post.post("/threads/search", json={})).json()}
        assert says({"values": found[whole]})[0] == "human: hello"
        assert found[broken] is None
        assert broken in caplog.text
        assert "a checkpoint of another version" in caplog.text
        unreadable.add(whole)
        assert (await post.post("/threads/search", json={})).status_code == 500

    asyncio.run(main())
