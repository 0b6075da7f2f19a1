"""Who is served: this machine alone without `authorize`; with it, each request is asked about."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from langchain_runjournal import RunJournal
from langchain_runjournal.server.access import origin_pattern
from tests.support.asgi import Reader, datas, fetch
from tests.support.served import Served, says

PATHS = ["/graphs", "/threads", "/threads/t/messages", "/threads/t/runs", "/runs/x", "/runs/x/events", "/openapi.json"]


async def status(served: Served, path: str, method: str = "GET", headers: Any = None, **about: Any) -> Reader:
    body = says("hello") if method == "POST" else None
    return await fetch(served.app, path, method, headers=headers, json_body=body, **about)


@pytest.mark.parametrize("path", PATHS)
def test_another_machine_is_refused(journal: RunJournal, path: str) -> None:
    """A peer on the network, a peer without an address, and one that a proxy of this machine speaks for."""

    async def main() -> None:
        served = Served(journal)
        for peer in (("192.168.1.7", 1), ("::ffff:192.168.1.7", 1), ("what", 1), None):
            found = await status(served, path, client=peer)
            assert (found.status, found.json["title"]) == (403, "Forbidden")
        for name in ("x-forwarded-for", "forwarded", "x-real-ip"):
            assert (await status(served, path, headers={name: "192.168.1.7"})).status == 403
        for peer in (("127.0.0.1", 1), ("::1", 1), ("::ffff:127.0.0.1", 1)):
            assert (await status(served, path, client=peer)).status in (200, 404)

    asyncio.run(main())


@pytest.mark.parametrize("path", PATHS)
def test_another_name_of_this_machine_is_refused(journal: RunJournal, path: str) -> None:
    """DNS rebinding: a page of another site reaches this server under that site's name."""

    async def main() -> None:
        served = Served(journal)
        for host in ("evil.example", "evil.example:80", "localhost.evil.example", "", "[", "localhost@evil.example"):
            assert (await status(served, path, headers={"host": host})).status == 400
        for host in ("localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST"):
            assert (await status(served, path, headers={"host": host})).status in (200, 404)
        named = Served(journal, hosts=["chat.example"])
        assert (await status(named, path, headers={"host": "chat.example"})).status in (200, 404)
        assert (await status(named, path)).status == 400

    asyncio.run(main())


@pytest.mark.parametrize(
    ("headers", "is_served"),
    [
        ({}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://localhost"}, False),
        ({"origin": "http://localhost"}, True),
        ({"origin": "http://localhost:3000"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://["}, False),
        ({"origin": "https://ours.example"}, False),
    ],
)
def test_a_page_of_another_site_can_change_nothing(journal: RunJournal, headers: Any, is_served: bool) -> None:
    """A browser says where a request comes from. A program that is no browser says nothing."""

    async def main() -> None:
        served = Served(journal)
        found = await status(served, "/threads/t/runs", "POST", headers)
        assert found.status == (201 if is_served else 403)
        await served.over(found.json["run_id"]) if is_served else None
        assert len(await journal.aruns()) == is_served
        for path, method in (("/runs/x/stop", "POST"), ("/threads/t", "DELETE")):
            assert (await status(served, path, method, headers)).status in ((404, 204) if is_served else (403,))

    asyncio.run(main())


def test_other_origins_that_the_program_names(journal: RunJournal) -> None:
    """CORS as an option: with its preflight, for these origins alone."""

    async def main() -> None:
        served = Served(journal, cors=["https://ours.example"])
        ours = {"origin": "https://ours.example", "sec-fetch-site": "cross-site"}
        found = await status(served, "/threads/t/runs", "POST", ours)
        assert found.status == 201
        assert found.headers["access-control-allow-origin"] == "https://ours.example"
        await served.over(found.json["run_id"])
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
        assert (await status(served, "/threads/t/runs", "OPTIONS", {**ours, **asked})).status == 200
        theirs = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        found = await status(served, "/threads/t/runs", "POST", theirs)
        assert found.status == 403
        assert "access-control-allow-origin" not in found.headers
        assert (await status(served, "/threads/t/runs", "OPTIONS", {**theirs, **asked})).status == 400

    asyncio.run(main())


@pytest.mark.parametrize(
    ("origins", "origin", "is_allowed"),
    [
        (["https://ours.example"], "https://ours.example", True),
        (["https://ours.example"], "https://oursXexample", False),
        (["https://ours.example"], "https://ours.example.evil.example", False),
        (["https://ours.example"], "https://ours.example:8000", False),
        (["http://localhost:*"], "http://localhost:3000", True),
        (["http://localhost:*"], "http://localhost", True),
        (["http://localhost:*"], "https://localhost:3000", False),
        (["http://localhost:*"], "http://localhost:3000.evil.example", False),
        (["http://localhost:*"], "http://localhost.evil.example", False),
        (["http://[::1]:*"], "http://[::1]:3000", True),
        (["*"], "https://any.example", True),
        ([], "https://any.example", False),
        (["https://one.example", "https://two.example"], "https://two.example", True),
    ],
)
def test_an_origin_is_allowed_as_a_whole(origins: list[str], origin: str, is_allowed: bool) -> None:
    assert (re.fullmatch(origin_pattern(origins), origin) is not None) is is_allowed


def test_each_request_is_asked_about(journal: RunJournal) -> None:
    """S58: with what it wants and the thread that it wants it on, wherever it comes from."""
    asked: list[Any] = []

    async def authorize(request: Any, action: str, thread_id: str | None) -> bool:
        asked.append((action, thread_id))
        return bool(request.headers.get("x-user"))

    async def main() -> None:
        served = Served(journal, authorize=authorize)
        about: Any = {"headers": {"x-user": "ada", "host": "chat.example"}, "client": ("192.168.1.7", 1)}
        begun = await fetch(served.app, "/threads/t/runs", "POST", json_body=says("hello"), **about)
        run = begun.json["run_id"]
        await served.over(run)
        wanted = [("start", "t")]
        for path, method, action in (
            ("/threads/t/messages", "GET", ("read", "t")),
            ("/threads/t/runs", "GET", ("read", "t")),
            (f"/runs/{run}", "GET", ("read", "t")),
            (f"/runs/{run}/events", "GET", ("read", "t")),
            (f"/runs/{run}/stop", "POST", ("stop", "t")),
            ("/graphs", "GET", ("list", None)),
            ("/threads", "GET", ("list", None)),
            ("/threads/t", "DELETE", ("delete", "t")),
        ):
            assert (await fetch(served.app, path, method, **about)).status < 404 or action[0] == "stop"
            wanted += [action, ("read", "t")] if path == "/threads" else [action]
        assert asked == wanted

    asyncio.run(main())


def test_what_is_hidden_looks_like_what_does_not_exist(journal: RunJournal) -> None:
    """S58: the same status and the same words, for each path and each way to ask."""

    async def main() -> None:
        open_to_all = Served(journal)
        run = await open_to_all.hold("secret")
        served = Served(journal, authorize=lambda request, action, thread_id: thread_id not in ("secret", "unknown", None))
        for hidden, unknown in (
            (f"/runs/{run}", "/runs/nothing"),
            (f"/runs/{run}/events", "/runs/nothing/events"),
            ("/threads/secret/messages", "/threads/unknown/messages"),
            ("/threads/secret/events", "/threads/unknown/events"),
            ("/threads/secret/runs", "/threads/unknown/runs"),
        ):
            found, other = await status(served, hidden), await status(served, unknown)
            assert (found.status, found.received, found.headers) == (404, other.received, other.headers)
        for hidden, unknown, method in (
            (f"/runs/{run}/stop", "/runs/nothing/stop", "POST"),
            ("/threads/secret/runs", "/threads/unknown/runs", "POST"),
            ("/threads/secret", "/threads/unknown", "DELETE"),
        ):
            found, other = await status(served, hidden, method), await status(served, unknown, method)
            assert (found.status, found.received) == (404, other.received)
        assert (await journal.arun(run)).stop is None
        open_to_all.gate.set()
        await open_to_all.over(run)

    asyncio.run(main())


def test_a_list_shows_the_threads_that_one_may_read(journal: RunJournal) -> None:
    """Each user sees the own ones."""

    async def main() -> None:
        open_to_all = Served(journal)
        for thread in ("ada-1", "bob-1", "ada-2"):
            await open_to_all.say("hello", thread)

        def authorize(request: Any, action: str, thread_id: str | None) -> bool:
            return thread_id is None or thread_id.startswith(request.headers["x-user"])

        served = Served(journal, authorize=authorize)
        found = (await status(served, "/threads", headers={"x-user": "ada"})).json["threads"]
        assert [one["thread_id"] for one in found] == ["ada-2", "ada-1"]

    asyncio.run(main())


def test_access_is_asked_again_when_a_reader_comes_back(journal: RunJournal) -> None:
    """S58: who has lost the right to read cannot go on with an old cursor."""
    allowed = [True]

    async def main() -> None:
        served = Served(journal, authorize=lambda *about: allowed[0])
        run = await served.hold()
        async with served.open(f"/runs/{run}/events") as reader:
            await reader.until_frames(3)
        allowed[0] = False
        cursor = f"{run}:{datas(reader.received)[-1]['seq']}"
        assert (await status(served, f"/runs/{run}/events", headers={"last-event-id": cursor})).status == 404
        allowed[0] = True
        served.gate.set()
        await served.over(run)

    asyncio.run(main())


def test_a_program_may_raise_its_own_status(journal: RunJournal) -> None:
    """A login page wants 401, with the header that says how to log in."""

    def authorize(*about: Any) -> bool:
        raise HTTPException(401, "Log in first.", {"www-authenticate": "Bearer"})

    async def main() -> None:
        served = Served(journal, authorize=authorize)
        found = await status(served, "/threads/t/messages")
        assert (found.status, found.json["detail"]) == (401, "Log in first.")
        assert found.headers["www-authenticate"] == "Bearer"

    asyncio.run(main())


def test_an_authorize_that_fails_lets_nobody_in(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the error, and the client does not."""

    def authorize(*about: Any) -> bool:
        raise KeyError("table users at /etc/passwd")

    async def main() -> None:
        served = Served(journal, authorize=authorize)
        found = await status(served, "/threads/t/messages")
        assert found.status == 500
        assert b"passwd" not in found.received

    asyncio.run(main())
    assert "table users" in caplog.text
