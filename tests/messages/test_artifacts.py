"""What a tool gives beside its words (`artifact`) comes back as it was, or the message says that it did not."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import json
import logging
import math
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, message_to_dict
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_runjournal import Event, RunJournal, attach
from langchain_runjournal.common.packed import MOST_BYTES, is_same
from langchain_runjournal.events.encoding import encode_value
from langchain_runjournal.messages.loading import load
from langchain_runjournal.messages.message_data import message_data
from langchain_runjournal.messages.tool_pairs import requests
from langchain_runjournal.messages.tool_results import CallKnowledge, answer
from tests.support.conversations import until_said

ROOT = Path(__file__).parents[2]
NOW = datetime.datetime(2026, 3, 1, 12, 30, 0, 17, datetime.timezone.utc)
DOCUMENT = Document(page_content="Rome", metadata={"page": (1, 2), "score": 0.5, "seen": NOW}, id="d1")


@dataclasses.dataclass
class Place:
    """One of a user's own."""

    name: str
    at: tuple[float, float]


KEPT: dict[str, Any] = {
    "documents": [DOCUMENT, Document(page_content="Oslo")],
    "bytes": b"\x00\xff\x89PNG",
    "bytes inside": {"image": b"\x00", "also": [b"\x01"]},
    "datetimes": {"at": NOW, "day": NOW.date(), "for": datetime.timedelta(hours=1)},
    "tuples": ("a", ("b", [("c",)]), {"d": (1, 2)}),
    "int keys": {1: "a", 2: {3: "b"}},
    "floats": [math.nan, math.inf, -math.inf, 0.1],
    "numbers": [decimal.Decimal("1.10"), 2**62, True, None],
    "sets": {"a": {1, 2}, "b": frozenset("x")},
    "uuid": uuid.UUID(int=7),
    "path": Path("/srv/x"),
    "message": HumanMessage("hi", id="h"),
    "a dataclass": Place("Rome", (41.9, 12.5)),
    "half of a pair": "\ud800",
    "JSON": {"a": [1, 2.5, None, True, "x"], "b": {}},
    "much JSON": {"rows": [[1, "x"]] * 20_000},
}
LEFT: dict[str, Any] = {
    "an object": object(),
    "an exception": ValueError("x"),
    "large bytes": b"x" * (MOST_BYTES + 1),
    "many values": [(1, 2)] * 20_000,
    "in itself": (loop := [NOW], loop.append(loop))[0],
}


def stored(message: ToolMessage) -> dict[str, Any]:
    """A message as an event of the journal has it, read by a strict parser."""
    event = Event(run_id="r", kind="llm.tool.result", data={"tool_call_id": "c1", "message": message_data(message)})
    text = encode_value(event.kind, event.data)
    return dict(json.loads(text, parse_constant=pytest.fail)[1]["message"])


@pytest.mark.parametrize("name", KEPT)
def test_an_artifact_comes_back_equal(name: str) -> None:
    """Types included; and nothing is said of it in the message."""
    (found,) = load("r", [stored(ToolMessage("words", tool_call_id="c1", id="t", artifact=KEPT[name]))])
    assert isinstance(found, ToolMessage)
    assert is_same(found.artifact, KEPT[name]), found.artifact
    assert (found.content, found.id, found.additional_kwargs) == ("words", "t", {})


@pytest.mark.parametrize("name", LEFT)
def test_what_cannot_come_back_is_left_out_and_said(name: str) -> None:
    """The message has no artifact, and its mark says why, also when it has become the answer to a request."""
    (found,) = load(
        "r", [stored(ToolMessage("words", tool_call_id="c1", artifact=LEFT[name], additional_kwargs={"mine": 1}))]
    )
    assert isinstance(found, ToolMessage)
    assert (found.artifact, found.content, found.additional_kwargs["mine"]) == (None, "words", 1)
    why = found.additional_kwargs["runjournal"]["left_out"]["artifact"]
    assert why.split()[0] in ("cannot", "does", "is")
    asking = AIMessage("", id="a", tool_calls=[{"name": "f", "args": {}, "id": "c1"}])
    answered = answer(asking, requests(asking)[0], CallKnowledge(state="started", result=found, run_id="r", cause="stop"))
    mark = answered.additional_kwargs["runjournal"]
    assert (mark["origin"], mark["left_out"]) == ("recovered", {"artifact": why})


def test_an_artifact_of_a_message_that_a_program_appends() -> None:
    """Without a callback: the message itself is in the data of the event."""
    message = ToolMessage("words", tool_call_id="c1", artifact=[DOCUMENT])
    with RunJournal(":memory:") as journal:
        journal.append(Event(run_id="r", kind="llm.tool.result", data={"tool_call_id": "c1", "message": message}))
        (found,) = journal.transcript("r")
    assert isinstance(found, ToolMessage)
    assert is_same(found.artifact, [DOCUMENT])


def test_the_largest_artifact_goes_through_the_spool(tmp_path: Path) -> None:
    """An event of more than 5 MB, larger than a file of the spool is: nothing of it is lost."""
    given = os.urandom(MOST_BYTES)
    with RunJournal(tmp_path / "runs.db") as journal:
        for at in range(3):
            message = message_data(ToolMessage("w", tool_call_id=f"c{at}", artifact=given))
            journal.append(Event(run_id="r", kind="llm.tool.result", data={"tool_call_id": f"c{at}", "message": message}))
        journal.flush()
        found = journal.transcript("r")
    assert [one.artifact == given for one in found if isinstance(one, ToolMessage)] == [True] * 3


def test_what_events_show_of_an_artifact_is_small() -> None:
    """Who follows a run can read Documents; of bytes, an event says only how many there are."""
    assert stored(ToolMessage("w", tool_call_id="c1", artifact=[DOCUMENT]))["data"]["artifact"][0]["page_content"] == "Rome"
    assert stored(ToolMessage("w", tool_call_id="c1", artifact=LEFT["large bytes"]))["data"]["artifact"] == "<4194305 bytes>"


def test_an_artifact_of_an_older_journal_is_read() -> None:
    """As the JSON that it is there."""
    old = message_to_dict(ToolMessage("w", tool_call_id="c1", artifact={"a": [1, 2]}))
    (found,) = load("r", [json.loads(json.dumps(old))])
    assert isinstance(found, ToolMessage)
    assert (found.artifact, found.additional_kwargs) == ({"a": [1, 2]}, {})


def test_a_packed_value_that_is_damaged_is_left_out() -> None:
    """Never something else in its place."""
    good = stored(ToolMessage("w", tool_call_id="c1", artifact=(1, NOW)))
    packed = good["packed"]["artifact"]
    bad = (
        {"msgpack": "!"},
        {},
        {**packed, "types": {}},
        {**packed, "msgpack": packed["msgpack"][:8]},
        {**packed, "tuples": [[9]]},
    )
    for one in bad:
        (found,) = load("r", [{**good, "packed": {"artifact": one}}])
        assert isinstance(found, ToolMessage)
        assert found.artifact is None
        assert "cannot be read" in found.additional_kwargs["runjournal"]["left_out"]["artifact"]


def test_no_warning_at_the_end_of_a_tool(caplog: pytest.LogCaptureFixture) -> None:
    """LangGraph warns of types that no allowlist names when it reads them back, which `pack` does to compare."""

    @dataclasses.dataclass
    class Here:
        """Nothing can find it again."""

        x: int

    with caplog.at_level(logging.DEBUG):
        assert "packed" in message_data(ToolMessage("w", tool_call_id="c1", artifact=Place("a", (1.0, 2.0))))
    assert caplog.text == ""
    assert "left_out" in message_data(ToolMessage("w", tool_call_id="c1", artifact=Here(1)))


ELSEWHERE = """
import json, sys
from langchain_runjournal.messages.loading import load
for found in load("r", json.load(sys.stdin)):
    mark = found.additional_kwargs.get("runjournal", {})
    print(json.dumps([type(found.artifact).__name__, mark.get("left_out", {}).get("artifact")]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("strict", ["true", "false"])
def test_an_artifact_in_another_process(strict: str) -> None:
    """A class that is not there, or that LANGGRAPH_STRICT_MSGPACK refuses, gives no dict in its place."""

    class Gone(Document):
        """A class of a module that the other process does not have."""

    Gone.__module__, Gone.__qualname__ = "tests_of_nobody", "Gone"
    sys.modules["tests_of_nobody"] = type(sys)("tests_of_nobody")
    sys.modules["tests_of_nobody"].Gone = Gone  # type: ignore[attr-defined]
    try:
        artifacts = [DOCUMENT, Place("a", (1.0, 2.0)), Gone(page_content="x")]
        given = [stored(ToolMessage("w", tool_call_id="c1", artifact=one)) for one in artifacts]
    finally:
        del sys.modules["tests_of_nobody"]
    assert all("packed" in one for one in given)
    environment = {**os.environ, "LANGGRAPH_STRICT_MSGPACK": strict}
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=json.dumps(given),
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    document, place, gone = map(json.loads, done.stdout.splitlines())
    assert document == ["Document", None]
    assert place == (["Place", None] if strict == "false" else ["NoneType", place[1]])
    assert gone[0] == "NoneType"
    assert "tests_of_nobody.Gone" in gone[1]


# --- in a thread ------------------------------------------------------------------------------------------------------


def graph_of(artifact: Any, hangs: asyncio.Event, waits: asyncio.Event) -> Any:
    """A node asks for two tools, in one task; one gives the artifact, the other says that it waits, and does."""

    @tool(response_format="content_and_artifact")
    async def fetch() -> tuple[str, Any]:
        """Fetch."""
        return "fetched", artifact

    @tool
    async def wait() -> str:
        """Wait."""
        waits.set()
        await hangs.wait()
        return "waited"

    async def ask(state: MessagesState) -> dict[str, Any]:
        calls = [{"name": name, "args": {}, "id": id} for name, id in (("fetch", "c1"), ("wait", "c2"))]
        return {"messages": [AIMessage("Looking.", id="a1", tool_calls=calls)]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode([fetch, wait]))
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "tools")
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asynchronous nodes hand on no callbacks on Python 3.10")
@pytest.mark.parametrize("name", ["documents", "bytes", "int keys", "datetimes", "an object"])
def test_an_artifact_in_a_thread_that_was_settled(name: str) -> None:
    """A tool had ended when the run was stopped: its artifact is in the thread, as after a run that was not."""
    asyncio.run(settled(name))


async def uncut(given: Any) -> Any:
    """The artifact in a thread of which nothing was cut off. A checkpointer makes dicts of the Documents in a message, and
    lists of tuples."""
    at_once = asyncio.Event()
    at_once.set()
    graph, config = graph_of(given, at_once, asyncio.Event()), {"configurable": {"thread_id": "t"}}
    await graph.ainvoke({"messages": [HumanMessage("hi")]}, config)
    messages = (await graph.aget_state(config)).values["messages"]
    return next(one.artifact for one in messages if one.type == "tool" and one.tool_call_id == "c1")


async def settled(name: str) -> None:
    given = {**KEPT, **LEFT}[name]
    with RunJournal(":memory:") as journal:
        waits = asyncio.Event()
        graph = attach(graph_of(given, asyncio.Event(), waits), journal)
        config: Any = {"configurable": {"thread_id": "t"}, "run_id": uuid.uuid4()}
        run = asyncio.create_task(graph.ainvoke({"messages": [HumanMessage("hi")]}, config))
        await waits.wait()
        await until_said(journal, str(config["run_id"]), "llm.tool.result")
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        found = {one.tool_call_id: one for one in (await graph.aget_state(config)).values["messages"] if one.type == "tool"}
        told = [one for one in journal.transcript(str(config["run_id"])) if one.type == "tool"]
    assert found["c1"].content == "fetched"
    assert found["c1"].additional_kwargs["runjournal"]["origin"] == "recovered"
    if name in LEFT:
        assert found["c1"].artifact is None
        assert "object" in found["c1"].additional_kwargs["runjournal"]["left_out"]["artifact"]
    else:
        assert is_same(found["c1"].artifact, await uncut(given))
        assert is_same(told[0].artifact, given)
