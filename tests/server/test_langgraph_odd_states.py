"""The LangGraph API with states that strangers have: other types than JSON has, and values that a schema refuses."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Annotated, Any
from uuid import UUID, uuid4

from langchain_core.messages import AnyMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph, add_messages
from pydantic import BaseModel

from langchain_runjournal import RunJournal
from langchain_runjournal.server.langgraph.plain import values_json
from tests.support.asgi import frames
from tests.support.langgraph_api import an_api, body


class Shade(Enum):
    DARK = "dark"


class Typed(BaseModel):
    count: int = 0
    messages: Annotated[list[AnyMessage], add_messages] = []


async def count(state: Typed) -> dict[str, Any]:
    return {"count": state.count + 1, "messages": [("ai", f"{state.count} seen.")]}


def test_an_input_that_the_schema_of_a_node_refuses(journal: RunJournal) -> None:
    """LangGraph has it in the thread then, and can neither read nor write that thread any more. Here, the run says its
    error, the thread can be read and found, and the next input goes on."""
    builder = StateGraph(Typed).add_node("count", count).add_edge(START, "count")
    graph = builder.compile(checkpointer=InMemorySaver(), name="agent")

    async def main() -> None:
        async with an_api(journal, graphs=graph) as api:
            thread = await api.thread()
            asked = {"stream_mode": ["values", "updates"]}
            refused = await api.post(f"/threads/{thread}/runs/stream", body(input={"count": "many"}, **asked))
            assert [one["event"] for one in frames(refused.received)][-2:] == ["error", "end"]
            run_id = refused.headers["content-location"].rpartition("/")[2]
            again = await api.get(f"/threads/{thread}/runs/{run_id}/stream")
            assert frames(again.received) == frames(refused.received)
            state = await api.get(f"/threads/{thread}/state")
            assert (state.status, state.json["next"], state.json["values"]["count"]) == (200, [], "many")
            assert [one["thread_id"] for one in (await api.post("/threads/search")).json] == [thread]
            assert len((await api.post(f"/threads/{thread}/history")).json) >= 2
            done = await api.post(f"/threads/{thread}/runs/wait", body(input={"count": 2}))
            assert done.json["count"] == 3

    asyncio.run(main())


def test_values_that_json_has_no_form_for() -> None:
    """They have the form in which pydantic writes them, and which the schemas of the graph name."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    given = {
        "shade": Shade.DARK,
        "moment": moment,
        "day": moment.date(),
        "id": UUID(int=7),
        "price": Decimal("1.50"),
        "path": PurePosixPath("/a/b"),
        "inside": [{"shade": Shade.DARK}],
    }
    assert values_json(given) == {
        "shade": "dark",
        "moment": "2026-01-02T03:04:05+00:00",
        "day": "2026-01-02",
        "id": "00000000-0000-0000-0000-000000000007",
        "price": "1.50",
        "path": "/a/b",
        "inside": [{"shade": "dark"}],
    }


def test_a_run_from_a_checkpoint_that_does_not_exist(journal: RunJournal) -> None:
    """LangGraph would begin with an empty state there, and the thread would show nothing of what was said before."""

    async def main() -> None:
        async with an_api(journal) as api:
            thread = await api.thread()
            await api.over(thread, await api.run(thread, "hello"))
            before = await api.texts(thread)
            for place in ({"checkpoint_id": str(uuid4())}, {"checkpoint": {"checkpoint_id": str(uuid4())}}):
                for path in ("runs", "runs/wait", "runs/stream"):
                    refused = await api.post(f"/threads/{thread}/{path}", body("edited", **place))
                    assert (refused.status, "no such checkpoint" in refused.json["detail"]) == (404, True)
            assert await api.texts(thread) == before

    asyncio.run(main())
