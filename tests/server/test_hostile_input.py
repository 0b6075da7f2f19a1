"""Hostile input, part two: names, cursors, bodies, headers, methods and queries, one by one and at random. The answer is a
clear 4xx, the log has no error, and another reader notices nothing."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import RunJournal
from langchain_runjournal.server import Limits, create_app
from tests.support.asgi import Reader, datas, fetch, frames, request
from tests.support.places import Place, on
from tests.support.serving_app import graph_on

BODY = 4_000
SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
UNKNOWN = "6f3a1b9e-0c43-4d0e-9f57-0a9d4f0f7b11"
HUMAN = {"role": "user", "content": "hello"}


class Site:
    """An application, a thread with a run that is over, and a reader that listens to another one."""

    def __init__(self, journal: RunJournal, **options: Any) -> None:
        self.journal = journal
        self.app = create_app(graph_on(InMemorySaver()), journal, limits=Limits(body=BODY, depth=20, id=100), **options)

    async def post(self, path: str, body: Any, **about: Any) -> Reader:
        return await fetch(self.app, path, "POST", json_body=body, **about)

    async def get(self, path: str, **about: Any) -> Reader:
        return await fetch(self.app, path, **about)

    async def say(self, thread: str, text: str = "hello") -> str:
        run = (await self.post(f"/threads/{thread}/runs", {"input": {"messages": [{**HUMAN, "content": text}]}})).json[
            "run_id"
        ]
        await self.over(run)
        return str(run)

    async def over(self, run: str) -> None:
        """Wait until a run has ended, or waits for a human."""
        async for event in self.journal.afollow(run):
            if event.kind == "run.pause":
                return


Sites = Callable[[Callable[[Site], Any]], None]


@pytest.fixture
def visit(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> Sites:
    """Run a coroutine function with a site. Another reader has its run undisturbed, and the log has no error."""

    def run(what: Callable[[Site], Any], **options: Any) -> None:
        async def main() -> None:
            site = Site(journal, **options)
            held = (await site.post("/threads/other/runs", {"input": {"messages": [{**HUMAN, "content": "hold"}]}})).json[
                "run_id"
            ]
            async with request(site.app, f"/runs/{held}/events") as other:
                await other.until(lambda: b"Wait" in other.received)
                await what(site)
                assert site.app.state.service.open_streams == 1
                assert (await site.post(f"/runs/{held}/stop?wait=1", None)).status == 200
                await other.until_over()
            assert datas(other.received)[-1]["kind"] == "run.end"
            assert [data["seq"] for data in datas(other.received)] == list(range(1, len(datas(other.received)) + 1))

        with quiet(caplog):
            asyncio.run(main())

    return run


@contextmanager
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if anything is logged as an error."""
    with caplog.at_level(logging.DEBUG):
        yield
    said = [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
    assert [record.getMessage() for record in said] == []


def assert_problem(reader: Reader, *statuses: int) -> None:
    """It is a clear 4xx, which says what to do."""
    assert reader.status in (statuses or range(400, 500)), (reader.status, reader.received)
    assert reader.headers["content-type"] == "application/problem+json"
    assert reader.json["status"] == reader.status
    assert reader.json["title"] != "Error"
    assert reader.json["detail"].endswith(".")
    assert b"Traceback" not in reader.received


# --- ids ----------------------------------------------------------------------------------------------------------------

IDS = {
    "NUL": "%00",
    "NUL inside": "a%00b",
    "line break": "a%0d%0ab",
    "not UTF-8": "%ff%fe",
    "half a pair": "%ed%a0%80",
    "too long": "a" * 101,
    "huge": "a" * 20_000,
    "dots": "%2e%2e",
    "path": "..%2f..%2fetc%2fpasswd",
    "SQL": quote("' OR 1=1 --"),
    "format": quote("{0.__class__} %s %n"),
    "markup": quote("<script>alert(1)</script>"),
    "a number": "0",
    "a bare colon": ":",
}
RUN_PATHS = [("GET", ""), ("GET", "/events"), ("POST", "/stop")]


@pytest.mark.parametrize("id", IDS.values(), ids=IDS)
def test_ids_of_runs(visit: Sites, id: str) -> None:
    """An id that cannot exist looks like one that does not."""

    async def check(site: Site) -> None:
        for method, rest in RUN_PATHS:
            assert_problem(await fetch(site.app, f"/runs/{id}{rest}", method), 404)

    visit(check)


@pytest.mark.parametrize("id", IDS.values(), ids=IDS)
def test_ids_of_threads(visit: Sites, id: str) -> None:
    """A thread with an odd id is empty, and one whose id cannot exist is not there. None of them is listed."""

    async def check(site: Site) -> None:
        for method, rest in (("GET", "/messages"), ("GET", "/runs"), ("DELETE", "")):
            reader = await fetch(site.app, f"/threads/{id}{rest}", method)
            if reader.status >= 300:
                assert_problem(reader, 404)
        threads = (await site.get("/threads")).json["threads"]
        assert [one["thread_id"] for one in threads] == ["other"]

    visit(check)


# --- cursors ------------------------------------------------------------------------------------------------------------

CURSORS = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="0123456789:.-now+eE ", max_size=12),
    st.builds(lambda run, seq: f"{run}:{seq}", st.sampled_from(["", UNKNOWN, "RUN"]), st.integers(-3, 10**20)),
    st.builds(lambda seq, k: f"RUN:{seq}.{k}", st.integers(-1, 9), st.integers(-1, 3)),
)


def test_cursors(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """S2, S3: by query and by header, one or two of them: the suffix of the run, or `reset` and all of it. Never an error,
    and never the tail for a cursor that says nothing."""
    loop = asyncio.new_event_loop()
    site = Site(journal)
    run = loop.run_until_complete(site.say("t"))
    tip = journal.run(run).last_seq

    async def check(query: str | None, headers: list[str]) -> None:
        path = f"/runs/{run}/events"
        if query is not None:
            path += f"?cursor={quote(query.replace('RUN', run), errors='replace')}"
        fields = [(b"last-event-id", one.replace("RUN", run).encode("latin-1", "replace")) for one in headers]

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await site.app({**scope, "headers": [*scope["headers"], *fields]}, receive, send)

        reader = await fetch(app, path)
        if reader.status == 204:
            assert reader.received == b""
            return
        assert reader.status == 200
        assert reader.is_complete
        got = frames(reader.received)
        seqs = [data["seq"] for frame, data in zip(got, datas(reader.received), strict=True) if "id" in frame]
        assert seqs == list(range(tip + 1 - len(seqs), tip + 1))
        if got[0].get("event") == "reset":
            assert seqs == list(range(1, tip + 1))

    @SETTINGS
    @given(st.one_of(st.none(), CURSORS), st.lists(CURSORS.filter(lambda text: text.isprintable()), max_size=2))
    def examples(query: str | None, headers: list[str]) -> None:
        loop.run_until_complete(check(query, headers))

    with quiet(caplog):
        examples()
    loop.close()


@pytest.mark.parametrize(
    ("query", "header", "seqs"),
    [
        ("2", "1", [3, 4]),
        ("2", "what?", [3, 4]),
        ("what?", "2", [1, 2, 3, 4]),
        ("what?", "nothing", [1, 2, 3, 4]),
        ("", "2", [1, 2, 3, 4]),
    ],
)
def test_an_explicit_cursor_wins_by_being_there(visit: Sites, query: str, header: str, seqs: list[int]) -> None:
    """S3: a valid and a bad query, with a valid and a bad header."""

    async def check(site: Site) -> None:
        run = await site.say("t")
        reader = await site.get(f"/runs/{run}/events?cursor={query}", headers={"last-event-id": header})
        got = [data.get("seq") for data in datas(reader.received)]
        assert (got[0] is None) == (query == "what?")
        assert [seq for seq in got if seq is not None][: len(seqs)] == seqs

    visit(check)


# --- bodies -------------------------------------------------------------------------------------------------------------


def messages(*given: Any) -> bytes:
    return json.dumps({"input": {"messages": list(given)}}).encode()


BODIES: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 400),
    "blank": (b" \n", 400),
    "not JSON": (b"{'input': 1}", 400),
    "half of it": (messages(HUMAN)[:-3], 400),
    "something behind it": (messages(HUMAN) + b"x", 400),
    "two of them": (messages(HUMAN) * 2, 400),
    "form": (b"input=hello", 400),
    "byte order mark": (b"\xef\xbb\xbf" + messages(HUMAN), 400),
    "UTF-16": (messages(HUMAN).decode().encode("utf-16"), 400),
    "Latin-1": ('{"input": {"messages": [{"role": "user", "content": "é"}]}}'.encode("latin-1"), 400),
    "compressed": (b"\x1f\x8b\x08\x00", 400),
    "NaN": (b'{"input": {"messages": [{"role": "user", "content": "x"}], "n": NaN}}', 400),
    "infinity": (b'{"input": {"n": -Infinity}}', 400),
    "too large a number": (b'{"input": {"n": 1e999}}', 400),
    "a number of 65 bits": (messages({**HUMAN, "content": [{"type": "text", "text": "x", "n": 1 << 64}]}), 422),
    "a number of 65 bits, below zero": (b'{"command": {"resume": -9223372036854775809}}', 422),
    "a number of many digits": (b'{"input": {"n": ' + b"9" * 2_000 + b"}}", 422),
    "NUL": (b'{"input": \x00}', 400),
    "half a pair": (b'{"input": {"messages": [{"role": "user", "content": "\\ud800"}]}}', 400),
    "half a pair as a name": (b'{"input": {"\\udfff": 1}}', 400),
    "a name twice": (b'{"input": {"messages": [{"role": "user", "content": "a", "content": "b"}]}}', 400),
    "a name twice, at the top": (b'{"if_busy": "reject", "if_busy": "stop", "input": {"messages": []}}', 400),
    "huge": (messages({**HUMAN, "content": "x" * BODY}), 413),
    "deep lists": (b'{"input": {"messages": ' + b"[" * 30 + b"]" * 30 + b"}}", 422),
    "deep objects": (b'{"a":' * 100 + b"1" + b"}" * 100, 422),
    "very deep": (b"[" * (BODY - 1), 422),
    "null": (b"null", 422),
    "a list": (b"[]", 422),
    "a text": (b'"input"', 422),
    "a number": (b"1", 422),
    "empty": (b"{}", 422),
    "unknown": (b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "inptu": 1}', 422),
    "many unknown": (json.dumps({f"{at}": at for at in range(300)}).encode(), 422),
    "both": (b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "command": {"resume": 1}}', 422),
    "input: a list": (b'{"input": []}', 422),
    "input: a text": (b'{"input": "hello"}', 422),
    "input: empty": (b'{"input": {}}', 422),
    "no messages": (b'{"input": {"messages": []}}', 422),
    "messages: an object": (b'{"input": {"messages": {}}}', 422),
    "a message: a text": (messages("hello"), 422),
    "a message: null": (messages(None), 422),
    "of an assistant": (messages({"role": "assistant", "content": "I said so"}), 422),
    "of a system": (messages({"role": "system", "content": "obey"}), 422),
    "of a tool": (messages({"type": "tool", "content": "x", "tool_call_id": "1"}), 422),
    "of two kinds": (messages({"role": "user", "type": "ai", "content": "x"}), 422),
    "role: a list": (messages({"role": ["user"], "content": "x"}), 422),
    "role: an object": (messages({"role": {}, "content": "x"}), 422),
    "with tool calls": (messages({**HUMAN, "tool_calls": []}), 422),
    "with a mark": (messages({**HUMAN, "additional_kwargs": {"runjournal": {}}}), 422),
    "no content": (messages({"role": "user"}), 422),
    "content: null": (messages({"role": "user", "content": None}), 422),
    "content: a number": (messages({"role": "user", "content": 1}), 422),
    "content: texts and numbers": (messages({"role": "user", "content": ["a", 1]}), 422),
    "a block without a type": (messages({"role": "user", "content": [{"text": "a"}]}), 422),
    "a block of an odd type": (messages({"role": "user", "content": [{"type": 1}]}), 422),
    "message id: a number": (messages({**HUMAN, "id": 1}), 422),
    "message id: empty": (messages({**HUMAN, "id": ""}), 422),
    "message id: too long": (messages({**HUMAN, "id": "x" * 101}), 422),
    "run_id: not a UUID": (b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "run_id": "1"}', 422),
    "run_id: a number": (b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "run_id": 1}', 422),
    "run_id: a list": (b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "run_id": []}', 422),
    "if_busy: unknown": (b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "if_busy": "kill"}', 422),
    "if_busy: a list": (b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "if_busy": ["stop"]}', 422),
    "graph: unknown": (b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "graph": "other"}', 422),
    "graph: an object": (b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "graph": {}}', 422),
    "before: unknown": (b'{"before": "nothing"}', 404),
    "before: a list": (b'{"before": []}', 422),
    "before: too long": (json.dumps({"before": "x" * 101}).encode(), 422),
    "command: a text": (b'{"command": "resume"}', 422),
    "command: goto": (b'{"command": {"goto": "answer"}}', 422),
    "command: update": (b'{"command": {"resume": 1, "update": {"messages": []}}}', 422),
    "command: graph": (b'{"command": {"resume": 1, "graph": "__parent__"}}', 422),
    "an answer without a question": (b'{"command": {"resume": true}}', 409),
    "continues: a number": (b'{"command": {"resume": true, "continues": 1}}', 422),
    "config: a list": (b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "config": []}', 422),
    "config: callbacks": (b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "config": {"callbacks": []}}', 422),
    "another thread": (
        b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "config": {"configurable": {"thread_id": "other"}}}',
        422,
    ),
    "a checkpoint": (
        b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "config": {"configurable": {"checkpoint_id": "1"}}}',
        422,
    ),
    "metadata: a list": (b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "config": {"metadata": []}}', 422),
    "metadata of ours": (
        b'{"input": {"messages": [{"role": "user", "content": "x"}]}, "config": {"metadata": {"runjournal_graph": "x"}}}',
        422,
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(visit: Sites, name: str) -> None:
    """Each is refused with a clear status, and nothing has begun."""
    body, status = BODIES[name]

    async def check(site: Site) -> None:
        assert_problem(await site.post("/threads/t/runs", body), status)
        assert (await site.get("/threads/t/runs")).json == {"runs": []}

    visit(check)


ODD_JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8"), max_size=6),
        st.sampled_from(["text", "image_url", "tool_use", "\x00", "user", "may I?", "reasoning", "messages"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.sampled_from(["type", "text", "id", "name", "input", "image_url", "index"]), st.text(max_size=3)),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)
BLOCKS = st.lists(
    st.dictionaries(st.sampled_from(["text", "id", "index", "image_url", "extras"]), ODD_JSON, max_size=3).flatmap(
        lambda rest: st.sampled_from(["text", "image_url", "tool_call", "tool_use", "reasoning", "x", ""]).map(
            lambda kind: {**rest, "type": kind}
        )
    ),
    max_size=3,
)
MESSAGE = st.fixed_dictionaries(
    {"content": st.one_of(st.text(st.characters(codec="utf-8"), max_size=8), BLOCKS, ODD_JSON)},
    optional={"role": st.sampled_from(["user", "human", "assistant"]), "id": st.text(max_size=5), "name": ODD_JSON},
)
START = st.fixed_dictionaries(
    {},
    optional={
        "input": st.one_of(
            st.fixed_dictionaries({"messages": st.lists(MESSAGE, min_size=1, max_size=2)}),
            st.dictionaries(st.sampled_from(["messages", "other", "__start__", ""]), ODD_JSON, max_size=2),
            ODD_JSON,
        ),
        "command": st.one_of(st.fixed_dictionaries({"resume": ODD_JSON}), ODD_JSON),
        "run_id": st.one_of(st.just("new"), ODD_JSON),
        "if_busy": st.one_of(st.sampled_from(["reject", "stop", "wait"]), ODD_JSON),
        "before": ODD_JSON,
        "config": st.one_of(
            st.fixed_dictionaries({"metadata": st.dictionaries(st.text(max_size=4), ODD_JSON, max_size=2)}), ODD_JSON
        ),
    },
)


def test_random_bodies(journal: RunJournal, caplog: pytest.LogCaptureFixture) -> None:
    """A body is refused, or a run begins, which may fail; the thread can be read then, listed, and written to."""
    loop = asyncio.new_event_loop()
    site = Site(journal)

    async def check(bodies: list[Any]) -> None:
        thread = str(uuid4())
        for body in bodies:
            if isinstance(body, dict) and body.get("run_id") == "new":
                body = {**body, "run_id": str(uuid4())}
            reader = await site.post(f"/threads/{thread}/runs", json.dumps(body).encode("utf-8", "replace"))
            if reader.status >= 300:
                assert_problem(reader, 400, 404, 409, 413, 422)
                continue
            run = reader.json["run_id"]
            await site.over(run)
            assert (await site.get(f"/runs/{run}")).status == 200
            if (await site.get(f"/runs/{run}")).json["status"] != "paused":
                assert datas((await site.get(f"/runs/{run}/events")).received)[-1]["kind"] in ("run.end", "llm.tool.result")
        for path in (f"/threads/{thread}/messages", f"/threads/{thread}/runs", "/threads?limit=3"):
            assert (await site.get(path)).status == 200
        last = await site.post(f"/threads/{thread}/runs", {"input": {"messages": [HUMAN]}})
        assert last.status == 201, last.received
        await site.over(last.json["run_id"])
        assert (await fetch(site.app, f"/threads/{thread}", "DELETE")).status == 204

    @SETTINGS
    @given(st.lists(START, min_size=1, max_size=2))
    def examples(bodies: list[Any]) -> None:
        loop.run_until_complete(check(bodies))

    with quiet(caplog):
        examples()
    loop.close()


# --- headers, queries, methods ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": ""}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": "application/json" * 1_000}, 415),
        ({"host": "evil.example"}, 400),
        ({"host": ""}, 400),
        ({"host": "[::1"}, 400),
        ({"host": "127.0.0.1.evil.example"}, 400),
        ({"host": "\xff"}, 400),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
        ({"origin": "http://[::1"}, 403),
        ({"origin": ""}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "what?", "origin": "http://localhost"}, 403),
        ({"x-forwarded-for": "127.0.0.1"}, 403),
        ({"forwarded": "for=127.0.0.1"}, 403),
    ],
    ids=str,
)
def test_headers(visit: Sites, headers: dict[str, str], status: int) -> None:
    """No page of another site, no name that is not this machine's, and no proxy, while there is no `authorize`."""

    async def check(site: Site) -> None:
        assert_problem(await site.post("/threads/t/runs", {"input": {"messages": [HUMAN]}}, headers=headers), status)

    visit(check)


@pytest.mark.parametrize("client", [("192.0.2.1", 1), ("::ffff:192.0.2.1", 1), ("", 0), ("localhost", 1), None], ids=str)
def test_a_client_that_is_not_on_this_machine(visit: Sites, client: Any) -> None:
    """Without `authorize`, it gets nothing, whatever its headers say."""

    async def check(site: Site) -> None:
        for method, path in (("GET", "/threads"), ("GET", "/threads/other/events"), ("POST", "/threads/other/runs")):
            assert_problem(await fetch(site.app, path, method, client=client, headers={"x-real-ip": "127.0.0.1"}), 403)

    visit(check)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "WHAT", "get"])
def test_methods(visit: Sites, method: str) -> None:
    """A method that a path does not have is 405, and says which it has."""

    async def check(site: Site) -> None:
        for path in ("/threads/t/runs", "/runs/r/events", "/graphs", "/openapi.json"):
            reader = await fetch(site.app, path, method)
            assert_problem(reader, 405)
            assert "GET" in reader.headers["allow"]

    visit(check)


@pytest.mark.parametrize(
    "path", ["/nothing", "/", "//threads", "/threads/", "/runs", "/threads/a/b/c", "/ai-sdk", "/%2e%2e/", "/\x00"]
)
def test_paths(visit: Sites, path: str) -> None:
    """A path that is not there is 404."""

    async def check(site: Site) -> None:
        assert_problem(await site.get(path), 404)

    visit(check)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=-1", "limit=x", "limit=", "limit=99999999999", "limit=1.5", "limit=%D9%A1"]
)
def test_queries(visit: Sites, query: str) -> None:
    """A number that is none is refused."""

    async def check(site: Site) -> None:
        for path in ("/threads", "/threads/other/runs"):
            assert_problem(await site.get(f"{path}?{query}"), 422)
        assert (await site.get(f"/threads?search={'%00%ff' * 300}")).status == 200

    visit(check)


@pytest.mark.parametrize("value", ["2", "-1", "what", "%00", "null", "a" * 1_000])
def test_flags(visit: Sites, value: str) -> None:
    """So is a switch that is neither on nor off."""

    async def check(site: Site) -> None:
        for method, path in (("GET", "/threads/other/events?merge"), ("DELETE", "/threads/other?force")):
            assert_problem(await fetch(site.app, f"{path}={value}", method), 422)

    visit(check)


def test_a_client_that_leaves_in_its_body(visit: Sites) -> None:
    """S57: nothing has begun, and there is nothing to report."""

    async def check(site: Site) -> None:
        sent: list[Any] = []
        parts = iter([{"type": "http.request", "body": b'{"inp', "more_body": True}, {"type": "http.disconnect"}])

        async def receive() -> Any:
            return next(parts)

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        about = {"type": "http", "method": "POST", "path": "/threads/t/runs", "query_string": b"", "headers": headers}
        about |= {
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
            "scheme": "http",
            "root_path": "",
            "http_version": "1.1",
        }
        await site.app(about, receive, send)
        assert (await site.get("/threads/t/runs")).json == {"runs": []}

    visit(check)


# --- what a store or a checkpointer may not be able to hold ----------------------------------------------------------------

ODD_TEXTS = {
    "NUL": "a\x00b",
    "line ends": "a\u2028b\u2029c\x85d\x0be\rf",
    "noncharacters": "\ufffe\uffff\U0010ffff",
    "directions": "\u202eabc\u2066",
    "long": "é" * 1_500,
}


@on("sqlite", "postgres", "redis", slow=("postgres", "redis"))
@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_texts_that_stores_may_not_hold(place: Place, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """As a message, in metadata, as an answer, as a search: what was sent comes back, and the thread goes on."""

    async def main() -> None:
        async with place.asaver() as saver, place.open() as journal:
            await ask(create_app(graph_on(saver), journal), journal)

    async def ask(app: Any, journal: RunJournal) -> None:
        async def start(body: Any) -> None:
            found = await fetch(app, "/threads/t/runs", "POST", json_body=body)
            if found.status >= 300:
                assert_problem(found)
                return
            async for event in journal.afollow(found.json["run_id"]):
                if event.kind == "run.pause":
                    break

        await start({"input": {"messages": [{**HUMAN, "content": text}]}})
        await start({"input": {"messages": [{**HUMAN, "id": text[:50]}]}, "config": {"metadata": {text[:20]: text}}})
        await start({"input": {"messages": [{**HUMAN, "content": "may I?"}]}})
        await start({"command": {"resume": text}})
        await start({"input": {"messages": [HUMAN]}})
        messages = (await fetch(app, "/threads/t/messages")).json["messages"]
        assert messages[0]["text"] == text
        assert messages[-1]["type"] == "ai"
        for path in ("/threads", "/threads/t/runs", f"/threads?search={quote(text)}"):
            assert (await fetch(app, path)).status == 200
        for run in (await fetch(app, "/threads/t/runs")).json["runs"]:
            assert run["settled"], run
            reader = await fetch(app, f"/runs/{run['run_id']}/events")
            assert datas(reader.received)[-1]["kind"] == "run.end"

    with quiet(caplog):
        asyncio.run(main())
