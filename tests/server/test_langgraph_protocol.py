"""The newer protocol of LangGraph's SDKs: what a subscription shows, how events are numbered, and what commands answer."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph_sdk import get_client

from langchain_runjournal import RunJournal
from langchain_runjournal.errors import InvalidArgument
from langchain_runjournal.events import Event, Run
from langchain_runjournal.server.langgraph.modes.projector import Request
from langchain_runjournal.server.langgraph.protocol import readers as protocol_readers
from langchain_runjournal.server.langgraph.protocol.messages import CallMessages
from langchain_runjournal.server.langgraph.protocol.numbers import ROOM, Start, number_of, start_behind
from langchain_runjournal.server.langgraph.protocol.projector import MODES, ProtocolProjector
from langchain_runjournal.server.langgraph.protocol.readers import ThreadReaders
from langchain_runjournal.server.langgraph.protocol.said import INPUT, said
from langchain_runjournal.server.langgraph.protocol.subscription import CHANNELS, Subscription, parse_subscription
from tests.support.langgraph_app import application
from tests.support.live_server import served
from tests.support.started_agent import needs_311, needs_config, on_a_loop

PATIENCE = 30.0
PROTOCOL = "langgraph_sdk.stream.subscription"
OLDER = "older SDKs lack the protocol"
PLAIN = {"loop": "asyncio", "http": "h11"}
"""What uvicorn takes on a machine without uvloop and httptools."""

# --- subscriptions --------------------------------------------------------------------------------------------------------

PARTS = st.sampled_from(["desk", "desk:1", "desk:2", "inner", "inner:1"])
PATHS = st.lists(PARTS, max_size=3)


@given(
    method=st.sampled_from([*[one for one in CHANNELS if one != "input"], INPUT]),
    name=st.sampled_from([None, "progress", "other"]),
    namespace=PATHS,
    channels=st.sets(st.sampled_from([*CHANNELS, "custom:progress"]), min_size=1),
    namespaces=st.none() | st.lists(PATHS, min_size=1, max_size=3),
    depth=st.none() | st.integers(0, 3),
)
def test_a_subscription_shows_what_the_sdk_would_hand_on(
    method: str, name: str | None, namespace: list[str], channels: set[str], namespaces: Any, depth: int | None
) -> None:
    matches = pytest.importorskip(
        "langgraph_sdk.stream.subscription", reason="older SDKs lack the protocol"
    ).matches_subscription
    name = name if method == "custom" else None
    asked: dict[str, Any] = {"channels": sorted(channels)}
    asked |= {} if namespaces is None else {"namespaces": namespaces}
    asked |= {} if depth is None else {"depth": depth}
    data = {} if name is None else {"name": name}
    wire = {"method": method, "params": {"namespace": namespace, "data": data}}
    assert parse_subscription(asked).shows(said(method, namespace, data, name=name)) is matches(wire, asked)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({}, "channels"),
        ({"channels": []}, "channels"),
        ({"channels": "values"}, "channels"),
        ({"channels": ["values", "nonsense"]}, "channels"),
        ({"channels": ["custom:"]}, "channels"),
        ({"channels": ["values"], "namespaces": "root"}, "namespaces"),
        ({"channels": ["values"], "namespaces": [[1]]}, "namespaces"),
        ({"channels": ["values"], "depth": -1}, "depth"),
        ({"channels": ["values"], "since": "5"}, "since"),
        ({"channels": ["values"], "since": True}, "since"),
    ],
)
def test_a_subscription_that_is_wrong_is_named(body: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_subscription(body)
    assert caught.value.name == name


def test_only_states_of_runs_are_a_stream_of_states() -> None:
    assert parse_subscription({"channels": ["lifecycle", "input"]}).is_status
    assert not parse_subscription({"channels": ["lifecycle", "values"]}).is_status


# --- numbers --------------------------------------------------------------------------------------------------------------

RUNS = [Run(run_id="a", last_seq=3), Run(run_id="b", last_seq=2)]


@pytest.mark.parametrize(
    ("since", "start"),
    [
        (None, Start(None, 0)),
        (0, Start(None, 0)),
        (3 * ROOM - 1, Start(None, 0)),
        (3 * ROOM, Start("a", 3 * ROOM)),
        (3 * ROOM + 1, Start("a", 3 * ROOM)),
        (5 * ROOM, Start("b", 5 * ROOM)),
        (5 * ROOM + 1, Start(None, 0)),
    ],
)
def test_a_stream_begins_in_the_run_of_the_number(since: int | None, start: Start) -> None:
    """Behind the last number of a run, the next run is all that is left; an unknown number leads to the start."""
    assert start_behind(since, RUNS) == start


def test_numbers_grow_within_a_run_and_to_the_next_one() -> None:
    places = [(base, seq, at) for base, last in ((0, 3), (3 * ROOM, 2)) for seq in range(1, last + 1) for at in (1, 2, ROOM)]
    numbers = [number_of(*place) for place in places]
    assert numbers == sorted(set(numbers))


# --- messages -------------------------------------------------------------------------------------------------------------


def call(*deltas: Any, ends: tuple[str, dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    events = [Event(run_id="r", kind="llm.start", call_id="c", seq=1, data={"checkpoint_ns": "agent:1", "node": "agent"})]
    events += [
        Event(run_id="r", kind="llm.ai.delta", call_id="c", seq=2, data={"text": one} if isinstance(one, str) else one)
        for one in deltas
    ]
    if ends is not None:
        events.append(Event(run_id="r", kind=ends[0], call_id="c", seq=3, data=ends[1]))  # type: ignore[arg-type]
    fold = CallMessages()
    found = [one for event in events for one in fold.event(event)] + fold.end()
    assert {(one.method, one.namespace, one.node) for one in found} <= {("messages", (), "agent")}
    return [json.loads(one.data) for one in found]


def test_a_message_that_is_cut_off_is_finished_with_its_words() -> None:
    found = call("Half ", "a word", ends=("llm.ai.partial", {"cause": "stop"}))
    assert [one["event"] for one in found] == [
        "message-start",
        "content-block-start",
        "content-block-delta",
        "content-block-delta",
        "content-block-finish",
        "message-finish",
    ]
    assert found[-2]["content"] == {"type": "text", "text": "Half a word"}
    assert {one["message_id"] for one in found} == {"lc_run--c"}
    assert call("Half ", "a word") == found  # also if nothing says that the call has ended


def test_a_tool_request_grows_and_is_whole_or_invalid() -> None:
    begun = {"tool_calls": [{"name": "look", "args": '{"q": ', "id": "t1", "index": 0}]}
    whole = call("Let me see.", begun, {"args": '"x"}', "index": 0})
    assert [one["content"] for one in whole if one["event"] == "content-block-finish"] == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_call", "id": "t1", "name": "look", "args": {"q": "x"}},
    ]
    deltas = [one["delta"] for one in whole if one["event"] == "content-block-delta"]
    assert deltas[1:] == [{"type": "tool-call-delta", "args": '{"q": '}, {"type": "tool-call-delta", "args": '"x"}'}]
    cut = call(begun)[-2]["content"]
    assert cut.pop("error")
    assert cut == {
        "type": "invalid_tool_call",
        "id": "t1",
        "name": "look",
        "args": '{"q": ',
    }


def test_a_model_that_does_not_stream_is_said_at_once() -> None:
    message = {"type": "ai", "data": {"content": "All of it.", "id": "m1", "response_metadata": {"finish_reason": "stop"}}}
    found = call(ends=("llm.ai.response", {"message": message}))
    assert [one["event"] for one in found] == [
        "message-start",
        "content-block-start",
        "content-block-finish",
        "message-finish",
    ]
    assert (found[0]["id"], found[2]["content"]["text"], found[3]["metadata"]) == (
        "m1",
        "All of it.",
        {"finish_reason": "stop"},
    )


def test_a_call_that_fails_before_its_first_word_says_nothing() -> None:
    assert call(ends=("llm.error", {"error": "ValueError"})) == []


def test_a_run_that_is_over_leaves_no_message_open() -> None:
    """Its process was killed, so nothing says that the call has ended."""
    projector = ProtocolProjector(Request(modes=MODES, subgraphs=True, known={"run_id": "r"}, graph="agent"), {})
    events = [
        Event(run_id="r", kind="run.start", seq=1),
        Event(run_id="r", kind="llm.start", call_id="c", seq=2, data={"checkpoint_ns": "agent:1"}),
        Event(run_id="r", kind="llm.ai.delta", call_id="c", seq=3, data={"text": "Half"}),
        Event(run_id="r", kind="run.end", seq=4, data={"status": "interrupted", "cause": "crash"}),
    ]
    heard = [json.loads(one.data)["event"] for event in events for one in projector.say(event)]
    assert heard[-3:] == ["content-block-finish", "message-finish", "interrupted"]


# --- the order between connections ----------------------------------------------------------------------------------------


@on_a_loop
async def test_a_stream_of_states_waits_for_the_streams_of_words() -> None:
    readers = ThreadReaders()
    reader = readers.add("t")
    readers.passed("t", reader, ("r", 1))
    waiting = asyncio.ensure_future(readers.until_passed("t", ("r", 3)))
    for seq in (2, 3):
        await asyncio.sleep(0)
        assert not waiting.done()
        readers.passed("t", reader, ("r", seq))
    await asyncio.wait_for(waiting, PATIENCE)
    gone = asyncio.ensure_future(readers.until_passed("t", ("r", 9)))
    await asyncio.sleep(0)
    assert not gone.done()
    readers.remove("t", reader)
    await asyncio.wait_for(gone, PATIENCE)


@on_a_loop
async def test_the_events_of_a_run_wait_for_the_answer_to_its_command() -> None:
    readers = ThreadReaders()
    await asyncio.wait_for(readers.until_answered("of another worker", 0.0), PATIENCE)
    readers.began("r")
    waiting = asyncio.ensure_future(readers.until_answered("r", 0.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    readers.answered("r")
    await asyncio.sleep(0)
    assert not waiting.done()  # the client reads the answer
    late = asyncio.ensure_future(readers.until_answered("r", math.inf))
    await asyncio.sleep(0)
    assert late.done()  # that stream was opened behind the answer
    await asyncio.wait_for(waiting, PATIENCE)


# --- over HTTP ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[{}, PLAIN], ids=["fast", "plain"])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    journal = RunJournal(tmp_path_factory.mktemp("protocol") / "runs.db")
    with served(lambda: application(journal, heartbeat=0.5), **request.param) as url:
        yield f"{url}/langgraph"
    journal.close()


class HeldAnswers:
    """An application whose answers to commands go out when a test allows it, and what it sends in which order."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.may_go = asyncio.Event()
        self.sent: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")

        async def held(message: Any) -> None:
            if path.endswith("/commands"):
                await self.may_go.wait()
            what = {"commands": "answer", "events": "event"}.get(path.rpartition("/")[2])
            if what is not None and b'"type"' in message.get("body", b""):
                self.sent.append(what)
            await send(message)

        # Without the function of the server itself in the scope, every write comes through here.
        await self._app(scope, receive, held)


def test_a_stream_that_is_open_gets_a_run_behind_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_readers, "PATIENCE", PATIENCE)
    made: list[HeldAnswers] = []

    def make() -> HeldAnswers:
        made.append(HeldAnswers(application(journal, heartbeat=0.05)))
        return made[0]

    async def main(url: str) -> None:
        async with httpx.AsyncClient(base_url=f"{url}/langgraph", timeout=PATIENCE) as http:
            thread, beats = Thread(http), asyncio.Event()
            live = asyncio.ensure_future(thread.until(ends(), on_wait=beats.set))
            await asyncio.wait_for(beats.wait(), PATIENCE)
            starting = asyncio.ensure_future(thread.start("plain"))
            await _success(http, thread.id)
            made[0].may_go.set()
            run_id = await starting
            events = await asyncio.wait_for(live, PATIENCE)
            assert events[0]["event_id"].startswith(run_id)
        assert made[0].sent[0] == "answer"
        assert "event" in made[0].sent

    with RunJournal(tmp_path / "runs.db") as journal, served(make) as url:
        asyncio.run(main(url))


async def _success(http: httpx.AsyncClient, thread_id: str) -> None:
    """Return when the run of a thread is over."""
    for _ in range(1_000):
        found = await http.get(f"/threads/{thread_id}/runs")
        if found.status_code == 200 and [one["status"] for one in found.json()] == ["success"]:
            return
        await asyncio.sleep(0.02)
    pytest.fail("the run is not over")


def human(text: str) -> dict[str, Any]:
    return {"messages": [{"type": "human", "content": text}]}


class Thread:
    """One thread, and the events that one connection after the other gets of it."""

    def __init__(self, http: httpx.AsyncClient, id: str | None = None) -> None:
        self.id = id or str(uuid4())
        self._http = http
        self._count = 0

    async def command(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        body = {"id": self._count, "method": method, "params": params}
        response = await self._http.post(f"/threads/{self.id}/commands", json=body)
        found: dict[str, Any] = response.raise_for_status().json()
        assert found["id"] == self._count
        return found

    async def start(self, text: str, graph: str = "agent") -> str:
        answer = await self.command("run.start", assistant_id=graph, input=human(text))
        return str(answer["result"]["run_id"])

    async def until(
        self, is_last: Callable[[dict[str, Any]], bool], *, on_wait: Callable[[], object] | None = None, **asked: Any
    ) -> list[dict[str, Any]]:
        """Return the events of a new connection, up to the first one for which `is_last` holds.

        `on_wait`: called at each sign of life of a stream that has nothing to say.
        """
        body = {"channels": list(CHANNELS), **asked}
        async with self._http.stream("POST", f"/threads/{self.id}/stream/events", json=body) as response:
            found = []
            async for line in response.aiter_lines():
                if on_wait is not None and line.startswith(":"):
                    on_wait()
                if line.startswith("data: "):
                    found.append(json.loads(line[6:]))
                    if is_last(found[-1]):
                        return found
        raise AssertionError("the stream has ended")


def ends(times: int = 1, how: str = "completed") -> Callable[[dict[str, Any]], bool]:
    """Return whether an event is that end of a run."""
    seen = [0]

    def is_last(event: dict[str, Any]) -> bool:
        params = event["params"]
        seen[0] += event["method"] == "lifecycle" and not params["namespace"] and params["data"]["event"] == how
        return seen[0] == times

    return is_last


@asynccontextmanager
async def a_thread(api: str) -> AsyncIterator[Thread]:
    async with httpx.AsyncClient(base_url=api, timeout=PATIENCE) as http:
        yield Thread(http)


def of(events: list[dict[str, Any]], method: str) -> list[Any]:
    return [one["params"]["data"] for one in events if one["method"] == method]


@on_a_loop
async def test_a_replay_is_the_same_from_each_number_on(api: str) -> None:
    """Over two runs, and on a connection that was there from the start."""
    async with a_thread(api) as thread:
        live = asyncio.ensure_future(thread.until(ends(2)))
        for text in ("tools", "plain"):
            await thread.start(text)
            await thread.until(ends(1 if text == "tools" else 2))
        events = await asyncio.wait_for(live, PATIENCE)
        assert events == await thread.until(ends(2))
        numbers = [one["seq"] for one in events]
        assert numbers == sorted(set(numbers))
        assert len({one["event_id"] for one in events}) == len(events)
        for at in range(0, len(events) - 1, 5):
            left = events[at + 1 :]
            runs = sum(map(_is_end, left))
            assert await thread.until(ends(runs), since=events[at]["seq"]) == left
        values = of(events, "values")[-1]
        assert [one["type"] for one in values["messages"]] == ["human", "ai", "tool", "tool", "ai", "human", "ai"]
        heard = [one["event"] for one in of(events, "tools")]
        assert sorted(heard) == ["tool-finished"] * 2 + ["tool-started"] * 2


def _is_end(event: dict[str, Any]) -> bool:
    return ends()(event)


@on_a_loop
async def test_a_number_that_the_thread_does_not_have_leads_to_the_start(api: str) -> None:
    async with a_thread(api) as thread:
        await thread.start("plain")
        whole = await thread.until(ends())
        assert await thread.until(ends(), since=1 << 50) == whole


@needs_config
@on_a_loop
async def test_each_state_stands_behind_its_checkpoint(api: str) -> None:
    async with a_thread(api) as thread:
        await thread.start("snow rain", "company")
        events = await thread.until(ends())
        for at, one in enumerate(events):
            if one["method"] == "values":
                before = events[at - 1]
                assert (before["method"], before["params"]["namespace"]) == ("checkpoints", one["params"]["namespace"])
        inner = [one for one in events if one["method"] == "lifecycle" and one["params"]["namespace"]]
        assert [one["params"]["data"]["event"] for one in inner] == ["started", "completed"]
        assert {one["params"]["namespace"][0].partition(":")[0] for one in inner} == {"desk"}
        assert [one["payload"] for one in of(events, "custom")] == [{"writing": "snow"}, {"writing": "rain"}]
        within = await thread.until(ends(), channels=["messages", "lifecycle"], namespaces=[[]], depth=0)
        assert [one["method"] for one in within] == ["lifecycle", "lifecycle"]


@needs_311
@on_a_loop
async def test_a_question_is_answered_once(api: str) -> None:
    async with a_thread(api) as thread:
        await thread.start("ask")
        [asked] = of(await thread.until(ends(how="interrupted")), INPUT)
        assert asked["payload"] == asked["value"] == {"question": "May I?"}
        wrong = await thread.command("input.respond", namespace=[], interrupt_id="0" * 32, response="yes")
        assert (wrong["type"], wrong["error"]) == ("error", "no_such_interrupt")
        about = {"namespace": [], "interrupt_id": asked["interrupt_id"], "response": "yes"}
        assert (await thread.command("input.respond", **about))["type"] == "success"
        events = await thread.until(ends())
        assert any(one["content"] == "the human says yes" for one in of(events, "values")[-1]["messages"])
        assert (await thread.command("input.respond", **about))["error"] == "no_such_interrupt"


@needs_config
@on_a_loop
async def test_a_stopped_run_ends_with_its_words(api: str) -> None:
    async with a_thread(api) as thread:
        run_id = await thread.start(f"hold text:{uuid4()}")
        await thread.until(
            lambda one: one["method"] == "messages" and one["params"]["data"]["event"] == "content-block-delta"
        )
        async with httpx.AsyncClient(base_url=api, timeout=PATIENCE) as http:
            (await http.post(f"/threads/{thread.id}/runs/{run_id}/cancel?wait=1")).raise_for_status()
        events = await thread.until(ends(how="interrupted"))
        assert of(events, "values")[-1]["messages"][-1]["content"] == "First half, "
        assert of(events, "messages")[-1]["event"] == "message-finish"


@needs_config
@on_a_loop
async def test_an_error_is_said(api: str) -> None:
    async with a_thread(api) as thread:
        await thread.start("fail")
        events = await thread.until(ends(how="failed"))
        assert events[-1]["params"]["data"]["error"].startswith("RuntimeError")
        assert of(events, "values")[-1]["messages"][-1]["content"] == "Well, "


@pytest.mark.parametrize(
    ("method", "params", "error"),
    [
        ("state.get", {}, "not_supported"),
        ("nonsense", {}, "unknown_command"),
        ("run.start", {"assistant_id": "nobody", "input": {}}, "invalid_argument"),
        ("run.start", {"assistant_id": "agent", "input": human("plain"), "config": 5}, "invalid_argument"),
        ("input.respond", {"namespace": []}, "invalid_argument"),
        ("input.respond", {"responses": []}, "invalid_argument"),
        ("input.respond", {"interrupt_id": "0" * 32, "response": 1}, "no_such_interrupt"),
    ],
)
@on_a_loop
async def test_a_command_that_cannot_be_done_says_why(api: str, method: str, params: dict[str, Any], error: str) -> None:
    async with a_thread(api) as thread:
        answer = await thread.command(method, **params)
        assert (answer["type"], answer["error"]) == ("error", error)
        assert answer["message"]


@on_a_loop
async def test_bad_requests_are_refused(api: str) -> None:
    async with httpx.AsyncClient(base_url=api) as http:
        place = f"/threads/{uuid4()}"
        assert (await http.post(f"{place}/commands", json={"method": "run.start"})).status_code == 422
        assert (await http.post(f"{place}/stream/events", json={"channels": ["nonsense"]})).status_code == 400
        assert (await http.post("/threads/no-uuid/stream/events", json={"channels": ["values"]})).status_code == 422


@needs_config
@on_a_loop
async def test_the_python_sdk_reads_several_runs_in_one_session(api: str) -> None:
    """Words, tools and states of each run, although the SDK subscribes only after the command is answered."""
    pytest.importorskip(PROTOCOL, reason=OLDER)
    heard = []
    async with get_client(url=api) as client, client.threads.stream(assistant_id="agent") as session:
        for text in ("plain", "tools", "plain"):
            await session.run.start(input=human(text))
            messages = [one async for one in session.messages]
            heard.append([await one.text for one in messages])
    assert heard == [["Hello there, friend."], ["Looking. ", "That is what the tool said."], ["Hello there, friend."]]


@needs_311
@on_a_loop
async def test_the_python_sdk_answers_a_question(api: str) -> None:
    pytest.importorskip(PROTOCOL, reason=OLDER)
    async with get_client(url=api) as client, client.threads.stream(assistant_id="agent") as session:
        await session.run.start(input=human("ask"))
        with suppress(asyncio.TimeoutError):
            async for _ in session.messages:
                pass
        for _ in range(300):
            if session.interrupts:
                break
            await asyncio.sleep(0.02)
        assert [one["value"] for one in session.interrupts] == [{"question": "May I?"}]
        await session.run.respond("yes")
        values = await asyncio.wait_for(session.output, PATIENCE)
        assert values["messages"][-1]["content"] == "That is what the tool said."


def test_a_subscription_is_a_value() -> None:
    assert Subscription(channels=frozenset({"values"})) == parse_subscription({"channels": ["values"]})
