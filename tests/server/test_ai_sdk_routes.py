"""The routes of the AI SDK dialect, without its clients: bytes, statuses, access and bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import RunJournal
from langchain_runjournal.server import create_app, event_source
from langchain_runjournal.server.transport import HEARTBEAT, RETRY
from langchain_runjournal.testing import ScriptedChatModel
from tests.support.ai_sdk_app import application
from tests.support.asgi import Reader, request
from tests.support.started_agent import needs_311
from tests.support.ui_stream import UIMessage, read

CHAT = "/agent/ai-sdk/chat"


def body(thread: str, text: str, message: str = "u1", **more: Any) -> dict[str, Any]:
    said = {"id": message, "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": thread, "trigger": "submit-message", "messages": [said], **more}


def plain(received: bytes) -> bytes:
    """The frames of a stream, without what keeps the connection alive."""
    return received.replace(RETRY, b"").replace(HEARTBEAT, b"")


def data_of(received: bytes) -> list[str]:
    return [one[6:] for one in plain(received).decode().split("\n") if one.startswith("data: ")]


def message_of(reader: Reader) -> UIMessage:
    assert reader.status == 200, reader.received
    return read(data_of(reader.received))


@asynccontextmanager
async def asked(app: Any, *args: Any, **options: Any) -> AsyncIterator[Reader]:
    """A request that is answered to its end."""
    async with request(app, *args, **options) as reader:
        await reader.until_over()
        yield reader


async def status(app: Any, *args: Any, **options: Any) -> int:
    async with asked(app, *args, **options) as reader:
        return reader.status


def run(story: Any, **options: Any) -> None:
    """Run a story with an application."""

    async def in_loop() -> None:
        async with RunJournal(":memory:") as journal:
            await story(application(journal, **options), journal)

    asyncio.run(in_loop())


@needs_311
def test_a_stream_is_the_same_bytes_live_resumed_and_after_the_end() -> None:
    """S1, S16, S22: two readers from the start, one that came late, and a replay after the end."""

    async def story(app: Any, journal: RunJournal) -> None:
        async with request(app, CHAT, "POST", json_body=body("t", "hold text:k")) as live:
            await live.until(lambda: b"First" in live.received)
            async with request(app, f"{CHAT}/t/stream") as late:
                await late.until(lambda: b"First" in late.received)
                await status(app, "/gates/k", "POST")
                await late.until_over()
                await live.until_over()
                assert plain(late.received) == plain(live.received)
        found = message_of(live)
        assert found.metadata["status"] == "completed"
        assert live.headers["x-vercel-ai-ui-message-stream"] == "v1"
        async with asked(app, f"{CHAT}/t/stream?run={found.metadata['runId']}") as again:
            assert plain(again.received) == plain(live.received)
        async with asked(app, CHAT, "POST", json_body=body("t", "hold text:k")) as repeated:
            assert plain(repeated.received) == plain(live.received)
        pieces = [piece async for piece in event_source(journal, found.metadata["runId"], dialect="ai-sdk")]
        assert plain(b"".join(pieces)) == plain(live.received)

    run(story)


def test_there_is_nothing_to_resume_before_a_run_and_after_it() -> None:
    """P44: 204, so that no client touches the messages that it has."""

    async def story(app: Any, journal: RunJournal) -> None:
        assert await status(app, f"{CHAT}/t/stream") == 204
        assert await status(app, CHAT, "POST", json_body=body("t", "plain")) == 200
        assert await status(app, f"{CHAT}/t/stream") == 204
        assert await status(app, f"{CHAT}/t/stop", "POST") == 204

    run(story)


def test_a_cursor_changes_nothing() -> None:
    """P42, P43: a client of the AI SDK sends none, and could not read a stream that begins in the middle."""

    async def story(app: Any, journal: RunJournal) -> None:
        async with asked(app, CHAT, "POST", json_body=body("t", "plain")) as first:
            run_id = message_of(first).metadata["runId"]
        for cursor in (f"{run_id}:6", "now", "7", "nonsense"):
            async with asked(
                app, f"{CHAT}/t/stream?run={run_id}&cursor={cursor}", headers={"last-event-id": cursor}
            ) as again:
                assert plain(again.received) == plain(first.received)
        assert b"\nid:" not in first.received

    run(story)


def test_a_pause_ends_the_stream_and_the_answer_begins_another() -> None:
    """P29, P30, S49: the page is free to answer; the same answer twice is one run; a second one is told so."""

    async def story(app: Any, journal: RunJournal) -> None:
        async with asked(app, CHAT, "POST", json_body=body("t", "ask")) as first:
            assert message_of(first).metadata["status"] == "paused"
        async with asked(app, f"{CHAT}/t/stream") as again:
            assert plain(again.received) == plain(first.received)
        answer = {"id": "t", "messages": [{"id": "t:x", "role": "assistant"}], "command": {"resume": "yes"}}
        async with asked(app, CHAT, "POST", json_body=answer) as answered:
            assert message_of(answered).metadata["status"] == "completed"
        async with asked(app, CHAT, "POST", json_body=answer) as repeated:
            assert plain(repeated.received) == plain(answered.received)
        other = {**answer, "messages": [{"id": "t:y", "role": "assistant"}]}
        assert await status(app, CHAT, "POST", json_body=other) == 409

    run(story)


def test_a_custom_event_of_a_tool_is_a_data_part() -> None:
    """What a tool writes with LangGraph's stream writer, in its place among the others."""

    async def story(app: Any, journal: RunJournal) -> None:
        async with asked(app, CHAT, "POST", json_body=body("t", "progress")) as reader:
            parts = message_of(reader).parts
        found = [(one["type"], one["data"]) for one in parts if one["type"].startswith("data-")]
        assert found == [("data-progress", {"type": "progress", "id": "p", "done": 1}), ("data-custom", "half")]

    run(story)


@needs_311
def test_two_edits_and_their_repetition() -> None:
    """S50: an edit that is sent twice while it runs is one run; the same words again later are a new one."""

    async def story(app: Any, journal: RunJournal) -> None:
        assert await status(app, CHAT, "POST", json_body=body("t", "plain")) == 200
        edit = body("t", "hold text:k", messageId="u1")
        async with request(app, CHAT, "POST", json_body=edit) as one:
            await one.until(lambda: b"First" in one.received)
            async with request(app, CHAT, "POST", json_body=edit) as two:
                await two.until(lambda: b"First" in two.received)
                await status(app, "/gates/k", "POST")
                await two.until_over()
                await one.until_over()
        assert plain(one.received) == plain(two.received)
        async with asked(app, CHAT, "POST", json_body=edit) as later:
            assert message_of(later).id != message_of(one).id
        async with asked(app, f"{CHAT}/t/messages") as thread:
            assert [len(thread.json), thread.json[0]["id"]] == [2, "u1"]
        assert await status(app, CHAT, "POST", json_body=body("t", "x", message="gone", messageId="gone")) == 404

    run(story)


@needs_311
def test_the_messages_of_a_thread_name_the_run_that_is_going_on() -> None:
    """S24, S25, P48: the message of the user stands there, what the run says does not; the header closes the gap between
    the two requests of a page."""

    async def story(app: Any, journal: RunJournal) -> None:
        async with request(app, CHAT, "POST", json_body=body("t", "hold text:k")) as live:
            await live.until(lambda: b"First" in live.received)
            async with asked(app, f"{CHAT}/t/messages") as thread:
                assert [(one["id"], one["role"]) for one in thread.json] == [("u1", "user")]
                run_id = thread.headers["x-runjournal-run"]
            await status(app, "/gates/k", "POST")
            await live.until_over()
        assert await status(app, f"{CHAT}/t/stream") == 204
        async with asked(app, f"{CHAT}/t/stream?run={run_id}") as again:
            assert plain(again.received) == plain(live.received)

    run(story)


def test_who_may_not_see_a_thread_sees_nothing_of_it() -> None:
    """S58: hidden and unknown look alike, on each route; the run of another thread cannot be read through one's own."""
    mine = {"x-user": "me"}

    def authorize(asking: Any, action: str, thread_id: str | None) -> bool:
        return bool(asking.headers.get("x-user") == "me" and (thread_id or "").startswith("my"))

    async def story(app: Any, journal: RunJournal) -> None:
        async with asked(app, CHAT, "POST", json_body=body("my", "plain"), headers=mine) as first:
            run_id = message_of(first).metadata["runId"]
        for method, path, expected in [
            ("GET", "stream", 204),  # as for a thread that has no run
            ("GET", f"stream?run={run_id}", 204),
            ("GET", "messages", 404),
            ("POST", "stop", 404),
        ]:
            assert await status(app, f"{CHAT}/my/{path}", method) == expected
            assert await status(app, f"{CHAT}/other/{path}", method, headers=mine) == expected
        assert await status(app, CHAT, "POST", json_body=body("my", "plain", "u2")) == 404
        assert await status(app, f"{CHAT}/my2/stream?run={run_id}", headers=mine) == 204
        assert await status(app, f"{CHAT}/my/stream?run=unknown", headers=mine) == 204
        assert await status(app, f"{CHAT}/my/stream?run={run_id}", headers=mine) == 200

    run(story, authorize=authorize)


WRONG: list[tuple[Any, int]] = [
    (b"{", 400),
    (b"[]", 422),
    (b"[" * 10_000, 422),
    ({}, 422),
    ({"id": 1}, 422),
    ({"id": "t"}, 422),
    (body("t", ""), 422),
    (body("t" * 300, "x"), 422),
    (body("t", "x", message="\x00"), 422),
    (body("t", "x", trigger="other"), 422),
    (body("t", "x", graph="unknown"), 422),
    (body("t", "x", messageId="unknown", trigger="regenerate-message") | {"messages": []}, 404),
    ({"id": "t", "messages": [], "command": {"resume": 1}}, 409),
    ({**body("t", "x"), "padding": "x" * 2_000_000}, 413),
]


@pytest.mark.parametrize(("wrong", "expected"), WRONG, ids=lambda one: str(one)[:40])
def test_a_wrong_request_is_told_so(wrong: Any, expected: int) -> None:
    """A problem with what to do, in place of a 500; and no run has begun."""

    async def story(app: Any, journal: RunJournal) -> None:
        async with asked(app, CHAT, "POST", json_body=wrong) as reader:
            assert (reader.status, reader.headers["content-type"]) == (expected, "application/problem+json")
            assert reader.json["detail"]
        assert await journal.aruns() == []

    run(story)


def test_a_thread_stays_with_its_graph() -> None:
    """With several graphs, the first message names one."""

    async def story() -> None:
        async with RunJournal(":memory:") as journal:
            graphs: dict[str, Any] = {
                name: create_agent(
                    ScriptedChatModel([f"{name} 1", f"{name} 2"]), [], name=name, checkpointer=InMemorySaver()
                )
                for name in ("first", "second")
            }
            app, path = create_app(graphs, journal), "/ai-sdk/chat"
            assert await status(app, path, "POST", json_body=body("t", "hi")) == 422
            async with asked(app, path, "POST", json_body=body("t", "hi", graph="second")) as one:
                assert [part["text"] for part in message_of(one).parts if "text" in part] == ["second 1"]
            async with asked(app, path, "POST", json_body=body("t", "hi", "u2")) as two:
                assert [part["text"] for part in message_of(two).parts if "text" in part] == ["second 2"]

    asyncio.run(story())
