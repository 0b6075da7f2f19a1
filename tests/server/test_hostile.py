"""Hostile input: whatever a client sends, the answer is a clear 4xx, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_runjournal import RunJournal
from langchain_runjournal.server import Limits
from tests.support.asgi import Reader, fetch, request
from tests.support.served import Served, says

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
)
MEMBERS = st.sampled_from(["input", "command", "run_id", "if_busy", "graph", "before", "config", "messages", "resume", "x"])
IDS = ["", "x" * 256, "x" * 100_000, "\x00", "a\x00b", "..", "\ud800", "\n", "%", "a/b", "' OR 1=1 --", "💥" * 100]


def refused(reader: Reader) -> Any:
    """A clear 4xx, as a problem."""
    assert 400 <= reader.status < 500, (reader.status, reader.received)
    assert reader.headers["content-type"] == "application/problem+json"
    return reader.json


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"nonsense", 400),
        (b"\xff\xfe{}", 400),
        (b'{"input": NaN}', 400),
        (b'{"input": Infinity}', 400),
        (b'{"input": 1e999}', 400),
        (b'{"input": ' + b"9" * 10_000 + b"}", 400),
        (b'{"input": {"messages": [{"content": "\\ud800"}]}}', 400),
        (b"[]", 422),
        (b'"text"', 422),
        (b"null", 422),
        (b"[" * 100_000, 422),
        (b'{"input": ' + b"[" * 60 + b"]" * 60 + b"}", 422),
        (b'{"input": ' + b'{"a": ' * 60 + b"1" + b"}" * 60 + b"}", 422),
        (b'{"input": "' + b"x" * (1 << 20) + b'"}', 413),
    ],
    ids=lambda one: repr(one)[:30],
)
def test_a_body_that_is_not_a_start(journal: RunJournal, body: bytes, status: int) -> None:
    """Not JSON, not as RFC 8259 defines it, too deep or too long."""

    async def main() -> None:
        served = Served(journal)
        reader = await served.post("/threads/t/runs", body)
        assert (reader.status, refused(reader)["status"]) == (status, status)
        assert await journal.aruns() == []

    asyncio.run(main())


def test_a_body_without_an_end(journal: RunJournal) -> None:
    """It is read up to the limit, and not further."""

    async def main() -> None:
        served = Served(journal, limits=Limits(body=1_000))
        read = 0

        async def receive() -> Any:
            nonlocal read
            read += 1
            return {"type": "http.request", "body": b" " * 100, "more_body": True}

        async with request(served.app, "/threads/t/runs", "POST", headers={"content-type": "application/json"}) as reader:
            reader._receive = receive  # type: ignore[method-assign]
            await reader.until_over()
        assert reader.status == 413
        assert read < 15

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"])
def test_a_body_of_another_type(journal: RunJournal, kind: str) -> None:
    """A form of another site can send these without a preflight."""

    async def main() -> None:
        served = Served(journal)
        reader = await served.post("/threads/t/runs", says("hello"), headers={"content-type": kind})
        assert refused(reader)["status"] == 415

    asyncio.run(main())


def test_any_json(journal: RunJournal) -> None:
    """No JSON makes the server fail, and none begins a run that is not one."""

    async def main(body: Any) -> None:
        served = Served(journal)
        reader = await served.post("/threads/t/runs", json.dumps(body).encode())
        if reader.status == 201:
            await served.over(reader.json["run_id"])
        else:
            refused(reader)

    @settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.one_of(JSON, st.dictionaries(MEMBERS, JSON, max_size=4)))
    def check(body: Any) -> None:
        asyncio.run(main(body))

    check()


@pytest.mark.parametrize("id", IDS, ids=lambda one: repr(one)[:20])
def test_any_id(journal: RunJournal, id: str) -> None:
    """In the path of each route: what cannot exist looks like what does not."""

    async def main() -> None:
        served = Served(journal)
        for path, method in (
            ("/runs/{}", "GET"),
            ("/runs/{}/events", "GET"),
            ("/runs/{}/stop", "POST"),
            ("/threads/{}/messages", "GET"),
            ("/threads/{}/runs", "GET"),
            ("/threads/{}/runs", "POST"),
        ):
            body = {"input": {"messages": []}} if method == "POST" else None
            async with request(served.app, "/", method, json_body=body) as reader:
                reader._scope["path"] = path.format(id)
                await reader.until_over()
            assert reader.error is None
            assert reader.status < 500, (path, reader.received)
            if path.startswith("/runs") or method == "POST":
                refused(reader)

    asyncio.run(main())


@pytest.mark.parametrize("cursor", ["x" * 10_000, "9" * 400, "\x00", "a\r\nb", "é:1", "-5", "1.1.1", "%", "💥"])
def test_any_cursor(journal: RunJournal, cursor: str) -> None:
    """S2: `reset` and all of it, whatever it is, in the query and in the header."""

    async def main() -> None:
        served = Served(journal)
        run = await served.say("hello")
        whole = await served.get(f"/runs/{run}/events")
        found = await served.get(f"/runs/{run}/events?cursor={quote(cursor)}")
        assert found.received.partition(b"id: ")[2] == whole.received.partition(b"id: ")[2]
        assert b"event: reset\n" in found.received
        async with served.open(f"/runs/{run}/events") as reader:
            reader._scope["headers"].append((b"last-event-id", cursor.encode()))
            await reader.until_over()
        assert reader.received == found.received or b"foreign" in reader.received + found.received

    asyncio.run(main())


@pytest.mark.parametrize("query", ["merge=x", "merge=2", "merge=%00"])
def test_any_flag(journal: RunJournal, query: str) -> None:
    """A parameter is yes or no."""

    async def main() -> None:
        served = Served(journal)
        run = await served.say("hello")
        assert refused(await served.get(f"/runs/{run}/events?{query}"))["status"] == 422

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "method"), [("/nothing", "GET"), ("/runs/x", "PUT"), ("/threads", "POST"), ("/runs//", "GET")]
)
def test_any_path(journal: RunJournal, path: str, method: str) -> None:
    """An unknown path, and a method that a path does not have."""

    async def main() -> None:
        assert refused(await fetch(Served(journal).app, path, method))["status"] in (404, 405)

    asyncio.run(main())


def test_no_text_of_an_error_goes_out(journal: RunJournal, monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever fails in the server: status 500, and the log has the error."""

    async def main() -> None:
        served = Served(journal)

        def fail(*args: Any, **more: Any) -> Any:
            raise RuntimeError("secret of /etc/passwd")

        monkeypatch.setattr(journal, "runs", fail)
        reader = await served.get("/threads/t/messages")
        assert (reader.status, b"passwd" in reader.received) == (500, False)
        monkeypatch.undo()

    asyncio.run(main())
    assert "secret of /etc/passwd" in caplog.text


def test_the_description_of_all_paths(journal: RunJournal) -> None:
    """`/openapi.json` has each route with its parameters and its answers, below the prefix at which it is mounted."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    async def main() -> None:
        served = Served(journal)
        found = (await served.get("/openapi.json")).json
        assert found["openapi"].startswith("3.1")
        paths = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
        assert len(paths) >= 10
        for path, methods in found["paths"].items():
            for one in methods.values():
                assert one["summary"].endswith(".")
                named = {each["name"] for each in one["parameters"] if each["in"] == "path"}
                assert named == {part.strip("{}") for part in path.split("/") if part.startswith("{")}
        mounted = Starlette(routes=[Mount("/agent", served.app)])
        assert (await fetch(mounted, "/agent/openapi.json")).json["servers"] == [{"url": "/agent"}]

    asyncio.run(main())
