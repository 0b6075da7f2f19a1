"""`runjournal serve`: what it opens, what it refuses, who may use it; the page itself is in journeys/test_serve_page."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import RunJournal, errors
from tests.support.command_line import complaint
from tests.support.serving import PATIENCE, ServeProcess

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

APP = """
from contextlib import asynccontextmanager

from langchain_runjournal import RunJournal, attach
from langchain_runjournal.testing import ScriptedChatModel, Wait
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

model = ScriptedChatModel(lambda messages: ["one two ", Wait(60), "three"] if messages[-1].text == "slow" else "one two")


async def answer(state, config):
    return {"messages": [await model.ainvoke(state["messages"], config)]}


builder = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
graph = builder.compile(name="agent")


def attached():
    return attach(builder.compile(name="agent", checkpointer=InMemorySaver()), RunJournal("mine.db"))


@asynccontextmanager
async def manager():
    print("opened")
    yield builder.compile(name="agent")


def with_sync_saver():
    import sqlite3

    return builder.compile(name="agent", checkpointer=SqliteSaver(sqlite3.connect("sync.db", check_same_thread=False)))


def broken():
    raise RuntimeError("no database")
"""


@pytest.fixture
def app(here: Path) -> Iterator[Path]:
    """A module `served_app` with graphs, in the current directory."""
    (here / "served_app.py").write_text(APP)
    yield here
    sys.modules.pop("served_app", None)
    sys.path[:] = [path for path in sys.path if path != str(here)]


# --- what it refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "Give the graph as module:graph, or --demo."),
        (["served_app:graph", "--demo"], "Give a graph or --demo, not both."),
        (["served_app.py"], "The graph must be module:attribute"),
        (["no_such_app:graph"], "The module no_such_app does not exist"),
        (["served_app:nothing"], "The module served_app has no nothing."),
        (["served_app:builder"], "Give what its compile() returns."),
        (["served_app:model"], "is not a graph, but a ScriptedChatModel"),
        (["served_app:broken"], "RuntimeError: no database"),
        (["served_app:with_sync_saver"], "a checkpointer with async methods"),
        (["served_app:attached", "--journal", "other.db"], "The graph is attached to"),
        (["served_app:graph", "--checkpointer", "mongodb://host/db"], "mongodb"),
        (["served_app:graph", "--checkpointer", "missing/threads.db"], "in a directory that exists"),
        (["served_app:graph", "--checkpointer", "postgresql://nobody@127.0.0.1:1/x"], "a database that can be used"),
        (["--demo", "--token", "short"], "--token must be 8 or more"),
        (["--demo", "--cors", "chat.example"], "--cors chat.example is not an origin"),
        (["--demo", "--cors", "https://chat.example/page"], "is not an origin"),
        (["--demo", "--port", "70000"], "--port"),
        (["--demo", "--host", "300.1.1.1"], "does not name an address of this machine"),
    ],
)
@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")  # the connection of a synchronous saver
def test_what_is_refused(app: Path, args: list[str], said: str) -> None:
    """One line says what is wrong and what to do, with exit code 2."""
    if "--port" not in args:
        args = [*args, "--port", "0"]
    assert said in complaint("serve", *args, code=2)
    gc.collect()  # here, and not in the middle of a later test


def test_a_port_that_is_taken(app: Path) -> None:
    """The command names the port and another way."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"Port {port} of 127.0.0.1 cannot be used" in complaint("serve", "--demo", "--port", str(port), code=2)


@pytest.mark.parametrize("package", ["uvicorn", "starlette"])
def test_the_extra_is_missing(app: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """The command says which one to install."""
    monkeypatch.setitem(sys.modules, package, None)
    assert 'pip install "langchain-runjournal[serve]"' in complaint("serve", "--demo", code=2)


# --- what it opens ----------------------------------------------------------------------------------------------------


@contextmanager
def served(home: Path, *options: str) -> Iterator[tuple[ServeProcess, Any]]:
    server = ServeProcess(home, *options)
    address = f"http://127.0.0.1:{server.port}"
    try:
        with httpx.Client(base_url=address, timeout=PATIENCE) as client:
            yield server, client
    finally:
        server.end()


def say(client: Any, text: str, thread: str = "t") -> str:
    body = {"input": {"messages": [{"role": "user", "content": text}]}}
    return str(client.post(f"/threads/{thread}/runs", json=body).raise_for_status().json()["run_id"])


def wait_for(client: Any, run_id: str, words: str) -> None:
    """Read the stream of a run until it has these words."""
    said = ""
    with client.stream("GET", f"/runs/{run_id}/events?merge=1") as answer:
        for line in answer.iter_lines():
            said += line
            if words in said:
                return
    raise AssertionError(said)


@pytest.mark.slow
def test_the_defaults(app: Path) -> None:
    """runs.db and threads.db hold what was said, also after the server has ended: with 0, and with its runs stopped."""
    with served(app, "served_app:graph") as (server, client):
        wait_for(client, say(client, "hello"), "run.end")
        slow = say(client, "slow")
        wait_for(client, slow, "two ")
        assert server.end(signal.SIGTERM) == 0
    with RunJournal(str(app / "runs.db")) as journal:
        assert (journal.run(slow).status, journal.run(slow).cause, journal.run(slow).settled) == (
            "interrupted",
            "shutdown",
            True,
        )
    with served(app, "served_app:graph") as (_, client):
        messages = client.get("/threads/t/messages").json()["messages"]
    assert [message["text"] for message in messages] == ["hello", "one two", "slow", "one two "]
    assert messages[-1]["provenance"]["reason"] == "shutdown"
    assert (app / "threads.db").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attached", "manager", "graph"])
def test_what_the_graph_brings(app: Path, name: str) -> None:
    """An attached graph brings its journal and its checkpointer; a context manager yields a graph."""
    with served(app, f"served_app:{name}", "--checkpointer", "my-threads.db") as (_, client):
        wait_for(client, say(client, "hello"), "run.end")
    found = {path.name for path in app.iterdir()}
    assert "my-threads.db" in found
    assert ("mine.db" in found, "runs.db" in found) == ((True, False) if name == "attached" else (False, True))


@pytest.mark.slow
def test_both_in_one_postgres_database(app: Path) -> None:
    """A checkpointer and a journal in Postgres: what one server was told, the next one has, and nothing is in a file."""
    from tests.support.server_savers import empty

    url = empty("postgres")
    with served(app, "served_app:graph", "--checkpointer", url, "--journal", url) as (_, client):
        wait_for(client, say(client, "hello"), "run.end")
    with served(app, "served_app:graph", "--checkpointer", url, "--journal", url) as (_, client):
        assert [one["text"] for one in client.get("/threads/t/messages").json()["messages"]] == ["hello", "one two"]
    assert not list(app.glob("*.db"))


@pytest.mark.slow
def test_ctrl_c_ends_the_server(app: Path) -> None:
    """Also while a page reads: the exit code is 0, and no traceback is printed."""
    with served(app, "served_app:graph") as (server, client):
        run_id = say(client, "slow")
        with client.stream("GET", "/threads/t/events") as answer:
            next(answer.iter_lines())
            assert server.end(signal.SIGINT) == 0
        assert not any(word in "".join(server.said) for word in ("Traceback", "ERROR", "Cancel"))
    with RunJournal(str(app / "runs.db")) as journal:
        assert (journal.run(run_id).cause, journal.run(run_id).settled) == ("shutdown", True)


@pytest.mark.slow
def test_what_a_killed_server_left_is_settled(app: Path) -> None:
    """Before the next one answers its first request."""
    with served(app, "served_app:graph") as (server, client):
        run_id = say(client, "slow")
        wait_for(client, run_id, "two ")
        server.end(signal.SIGKILL)
    with served(app, "served_app:graph") as (_, client):
        run = client.get(f"/runs/{run_id}").json()
        assert (run["status"], run["cause"], run["settled"]) == ("interrupted", "crash", True)
        timeline = client.get(f"/runs/{run_id}/timeline")
    assert timeline.headers["content-security-policy"].startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert "one two" in timeline.text


# --- who may use it ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def application(
    token: str | None = None, peer: str = "127.0.0.1", *, cors: Sequence[str] = (), **options: Any
) -> AsyncIterator[Any]:
    """A client of the application, in this process."""
    from langgraph.checkpoint.memory import InMemorySaver

    from langchain_runjournal.demo.chat import graph
    from langchain_runjournal.server.page_app import page_app

    demo = graph()
    demo.checkpointer = InMemorySaver()
    async with RunJournal(":memory:") as journal:
        transport = httpx.ASGITransport(page_app(demo, journal, token=token, cors=cors), client=(peer, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000", **options) as client:
            yield client


PAGES = ["/", "/page/app.js", "/page/page.css", "/page/settings.json"]


def test_the_files_of_the_page() -> None:
    """Each has a strict policy and its type, and is sent again only if it has changed; nothing else is a file."""

    async def check() -> None:
        async with application() as client:
            for path in PAGES[:3]:
                found = await client.get(path)
                policy = found.headers["content-security-policy"]
                assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")
                assert "unsafe" not in policy
                assert found.headers["x-content-type-options"] == "nosniff"
                again = await client.get(path, headers={"if-none-match": found.headers["etag"]})
                assert (again.status_code, again.content) == (304, b"")
            assert (await client.get("/page/app.js")).headers["content-type"].startswith("text/javascript")
            for path in ("/page/app.py", "/page/..%2fapp.py", "/page/", "/page/%00", "/page/../app.py"):
                assert (await client.get(path)).status_code == 404, path
            assert "://" not in (await client.get("/")).text.replace("http://www.w3.org/2000/svg", "")

    asyncio.run(check())


def test_this_machine_only() -> None:
    """Without a token, neither another machine is served, nor another name of this one."""

    async def check() -> None:
        async with application() as client:
            assert (await client.get("/threads")).status_code == 200
            assert (await client.get("/runs/none/timeline")).status_code == 404
            for path in ("/threads", "/runs/none/timeline"):
                assert (await client.get(path, headers={"host": "evil.example"})).status_code == 400, path
        async with application(peer="192.0.2.7") as client:
            for path in ("/threads", "/runs/none/timeline"):
                assert (await client.get(path)).status_code == 403, path

    asyncio.run(check())


def test_the_token() -> None:
    """Everything needs it, as a bearer token or as the cookie that the link sets; a wrong one opens nothing."""

    async def check() -> None:
        async with application("open-sesame", peer="192.0.2.7") as client:
            for path in [*PAGES, "/threads", "/openapi.json", "/nothing"]:
                for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "runjournal=open-sesame"}):
                    found = await client.get(path, headers=headers)
                    assert (found.status_code, found.headers["www-authenticate"]) == (401, "Bearer"), path
            bearer = {"authorization": "Bearer open-sesame", "host": "chat.example"}
            assert (await client.get("/threads", headers=bearer)).status_code == 200
            wrong = await client.get("/?token=wrong", headers={"accept": "text/html"})
            assert (wrong.status_code, wrong.headers["content-type"]) == (401, "text/html; charset=utf-8")
            assert "set-cookie" not in wrong.headers
            entered = await client.get("/?token=open-sesame")
            assert (entered.status_code, entered.headers["location"]) == (303, "/")
            cookie = entered.headers["set-cookie"]
            assert "open-sesame" not in cookie
            assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
            assert (await client.get("/threads")).status_code == 200  # the client keeps the cookie
            assert (await client.get("/?token=other")).status_code == 303  # and the token leaves the address

    asyncio.run(check())


def test_a_chat_page_of_this_machine_may_use_it() -> None:
    """agent-chat-ui in development, as it is; but no page from elsewhere, unless it is named."""
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "x-api-key"}

    async def check() -> None:
        near, far = {"origin": "http://localhost:3000"}, {"origin": "https://chat.example"}
        async with application() as client:
            assert (await client.options("/langgraph/threads", headers={**asked, **near})).status_code == 200
            made = await client.post("/langgraph/threads", json={}, headers={**near, "sec-fetch-site": "same-site"})
            assert (made.status_code, made.headers["access-control-allow-origin"]) == (200, near["origin"])
            assert (await client.options("/langgraph/threads", headers={**asked, **far})).status_code == 400
            assert (await client.post("/langgraph/threads", json={}, headers=far)).status_code == 403
        async with application(cors=["https://chat.example"]) as client:
            assert (await client.post("/langgraph/threads", json={}, headers=far)).status_code == 200

    asyncio.run(check())


def test_a_page_of_another_origin_gives_the_token_as_its_key() -> None:
    """In the header that the clients of LangGraph Server have for it; the browser's question before needs no token."""
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "x-api-key"}

    async def check() -> None:
        far = {"origin": "https://chat.example"}
        async with application("open-sesame", peer="192.0.2.7", cors=["https://chat.example"]) as client:
            assert (await client.options("/langgraph/threads", headers={**asked, **far})).status_code == 200
            key = {**far, "x-api-key": "open-sesame"}
            assert (await client.post("/langgraph/threads", json={}, headers=key)).status_code == 200
            wrong = {**far, "x-api-key": "wrong"}
            assert (await client.post("/langgraph/threads", json={}, headers=wrong)).status_code == 401
            assert (await client.options("/langgraph/threads", headers=far)).status_code == 401
        async with application("open-sesame") as client:
            near = {"origin": "http://localhost:3000", "x-api-key": "open-sesame"}
            assert (await client.post("/langgraph/threads", json={}, headers=near)).status_code == 403

    asyncio.run(check())


@pytest.mark.slow
def test_another_host_gets_a_token(app: Path) -> None:
    """A server that other machines can reach makes a token if it is given none, and prints the address with it."""
    with served(app, "--demo", "--host", "0.0.0.0") as (server, client):
        token = server.url.partition("?token=")[2]
        assert len(token) >= 32
        assert client.get("/threads").status_code == 401
        assert client.get("/threads", headers={"authorization": f"Bearer {token}"}).json() == {"threads": []}


def test_the_demo_can_be_attached() -> None:
    """The agent of `--demo` is a graph like any other; the command gives it a checkpointer and a journal."""
    from langchain_runjournal.demo.chat import IDEAS, graph

    assert graph().checkpointer is None
    assert len(IDEAS) == len(set(IDEAS)) == 6


def test_the_wrong_journal_is_refused_before_anything_is_opened(app: Path) -> None:
    """The error of `opened` says which journal the graph has."""
    from langchain_runjournal.server.serving import opened

    sys.path.insert(0, str(app))
    import served_app  # type: ignore[import-not-found]

    async def check() -> None:
        graph = served_app.attached()
        with pytest.raises(errors.InvalidArgument, match="leave the journal out"):
            async with opened(graph, journal="other.db"):
                pass
        assert not (app / "other.db").exists()

    asyncio.run(check())
