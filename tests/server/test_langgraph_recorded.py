"""The requests that clients sent to LangGraph Server, sent again to this one: the answers lack nothing.

`recorded/` has the requests and the answers of `langgraph dev` (langgraph-api 0.16.7). Each answer of ours must have the
same status, headers, members, ids and frames, or the difference stands in `ARGUED` with its reason.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langchain_runjournal import RunJournal
from langchain_runjournal.server import create_app
from tests.support.asgi import PATIENCE, Reader, frames, request
from tests.support.langgraph_probe import Pace, probe
from tests.support.langgraph_recorded import Names
from tests.support.started_agent import needs_311

HERE = Path(__file__).parent / "recorded"
FILES = sorted(path.stem for path in HERE.glob("*.json"))
GOES_ON = {
    "lg1 useStream: reload in mid-stream": 5,
    "lg1 useStream: network drop": 3,
    "react reload in mid-stream": 5,
    "react network drop": 3,
}
"""Before which request of a scenario the slow answer goes on."""
ANSWERED_LATER = {"react interrupt and respond": (5, 6)}
"""Which requests of a scenario get the last of what was recorded only after a later request."""
STOPS_THERE = {"react interrupt and respond": (1, 2)}
"""Which streams of a thread were recorded up to the question only."""
ARGUED = {
    r"header content-type: 'application/problem\+json' instead of 'application/json'": (
        "An error is a problem of RFC 9457, and all clients read its `detail`."
    ),
    r"\.detail: ": "The text says what to do. What is hidden looks like what does not exist.",
    r"(usage_metadata|input_schema|output_schema): .* instead of None": (
        "More is known here: each model streams, and the types have a schema."
    ),
    r"unknown: GET /threads/ID/runs/ID/(join|stream).*: status 404 instead of 200": (
        "What does not exist is 404, as everywhere. The clients take both."
    ),
    r"\.(langsmith_session_name|flags.langsmith\w+): missing": "LangSmith is not part of it.",
    r"POST /threads/ID/copy: .status: 'interrupted' instead of 'idle'": "The copy has the same steps left.",
    r"(boom|agui stop): GET /threads/ID/state.*: .(next|tasks): 0 items instead of 1": (
        "A run that failed or was stopped is settled: the partial answer is in the thread, and no step is left."
    ),
    r"(boom|agui stop): GET /threads/ID/state.*: .metadata.run_id: missing": "The settlement wrote this state, and no run.",
    r"agent-chat-ui's calls: POST /threads/ID/history: \[\]\.(?!values)": (
        "`goto: __end__` from the newest checkpoint changes nothing here, where LangGraph Server adds a fork that is equal."
    ),
    r"deep-agents-ui's calls: POST /threads/ID/history: \[\].(parent_checkpoint|metadata.run_id)": (
        "A run that goes on from the newest checkpoint goes on there. LangGraph Server makes a fork of it first."
    ),
    r"(resume|agent-chat-ui's calls): POST /threads/ID/runs/stream: frame messages\[\]": (
        "After an answer, the message of the tool may come behind the first words of the model."
    ),
    r"POST /threads/ID/runs/stream: order of the first frames": (
        "The first words of a subgraph may come before its first state, which is stored meanwhile."
    ),
    r"__interrupt__\[\].response_schema: missing": "It is there if the graph gives a schema; it is null otherwise.",
    r"react .*\.(response_metadata\.output_version: missing|content: str instead of a list)": (
        "LangGraph Server makes models of such runs answer in blocks. Here a message is as the graph's own model gives it."
    ),
    r"/stream/events: frame \S+\.event_id: ": "Events are named by their places in the journal.",
    r"/runs.*: .metadata.title: missing": "The metadata of a thread is not copied into its runs.",
}
"""By a pattern of "scenario: request: difference", why the answer is another one."""


class Recording:
    """A server, and the requests of one file."""

    def __init__(self, journal: RunJournal, stack: AsyncExitStack) -> None:
        self.pace = Pace()
        saver = InMemorySaver()
        graphs = {"probe": probe(saver, pace=self.pace), "tiny": probe(saver, name="tiny")}
        self.app = create_app(graphs, journal)
        self.names = Names()
        self.found: list[str] = []
        self._stack = stack
        self._open: list[tuple[Mapping[str, Any], str, Reader]] = []
        self._endless: list[tuple[Mapping[str, Any], str, Reader]] = []
        """Streams of threads, which have no end."""

    async def send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reader:
        """Send a request, and return what has come of its answer when it is over, or waits for the slow answer."""
        about: Any = {} if body is None else {"json_body": body}
        asked = request(self.app, f"/langgraph{path}", method, headers=headers, **about)
        reader: Reader = await self._stack.enter_async_context(asked)
        is_slow = '"slow"' in json.dumps(body) or (self._open and path.partition("?")[0].endswith("/stream"))
        if is_slow and not self.pace.is_open.is_set():
            rest = (headers or {}).get("last-event-id", "-1") != "-1"
            await reader.until(lambda: reader.task.done() or (reader.status > 0 if rest else b"w3" in reader.received))
        else:
            await reader.until_over()
        return reader

    async def play(self, scenario: str, entries: list[Mapping[str, Any]]) -> None:
        """Send the requests of a scenario, and note what the answers lack."""
        self.pace.is_open.clear()
        for at, entry in enumerate(entries):
            if at == GOES_ON.get(scenario):
                self.pace.is_open.set()
                await self._finish()
            if (seen := entry.get("request_headers", {}).get("last-event-id", "")).startswith("ms-"):
                self.names.known[seen] = frames(self._open[-1][2].received)[-1]["id"]
            method, _, path = entry["request"].partition(" ")
            thread = re.match(r"POST /threads/(id-\d+)/runs/stream", entry["request"])
            if thread is not None and thread[1] not in self.names.known:
                # The recording begins after the thread was created.
                self.names.known[thread[1]] = (await self.send("POST", "/threads", {})).json["thread_id"]
            place = ((entry.get("body") or {}).get("checkpoint") or {}).get("checkpoint_id")
            if place is not None and place not in self.names.known:
                # The client had it of a history that was not recorded: where the thread began.
                whole = await self.send("POST", self.names.filled(path).partition("/runs")[0] + "/history", {"limit": 100})
                self.names.known[place] = whole.json[-1]["checkpoint_id"]
            sent, headers = self.names.filled(path), self.names.filled(entry.get("request_headers", {}))
            name = re.sub(r"(id|ms)-\d+", "ID", f"{scenario}: {entry['request']}")
            if path.endswith("/stream/events"):
                is_early, stops = (at in one.get(scenario, ()) for one in (ANSWERED_LATER, STOPS_THERE))
                await self._read_thread({**entry, "stops": stops}, name, sent, is_early=is_early)
                continue
            reader = await self.send(method, sent, self.names.filled(entry.get("body")), headers)
            ends = b'"interrupted"' if "/cancel" in path else b'"completed"'
            if "/cancel" in path or (entry.get("body") or {}).get("method") == "input.respond":
                for _, _, stream in self._endless:
                    await stream.until(lambda one=stream, ends=ends: ends in one.received)
            if "content-location" in entry["headers"]:
                self.names.differs(entry["headers"]["content-location"], reader.headers.get("content-location", ""))
            self._open.append((entry, name, reader))
            if "/cancel" in path or all(one.task.done() for _, _, one in self._open):
                await self._finish()
        self.pace.is_open.set()
        await self._finish()
        runs = sum((entry.get("body") or {}).get("method") in ("run.start", "input.respond") for entry in entries)
        for entry, name, reader in self._endless:
            await reader.until(lambda one=reader: _steps(frames(one.received)) >= 2 * runs)
            self._compare(entry, name, reader)
        self._endless.clear()

    async def _read_thread(self, entry: Mapping[str, Any], name: str, path: str, *, is_early: bool) -> None:
        """Open a stream of a thread. Return when it has what was recorded, or the first words of the slow answer."""
        asked = request(self.app, f"/langgraph{path}", "POST", json_body=_channels(entry["body"]))
        reader: Reader = await self._stack.enter_async_context(asked)
        self._endless.append((entry, name, reader))
        if not is_early:
            await _until_like(entry, reader)
        if "messages" in entry["body"]["channels"]:
            await reader.until(lambda: b"text-delta" in reader.received)

    async def _finish(self) -> None:
        """Note what the answers lack that are open, when they are complete."""
        for entry, name, reader in self._open:
            await reader.until_over()
            self._compare(entry, name, reader)
        self._open.clear()

    def _compare(self, entry: Mapping[str, Any], name: str, reader: Reader) -> None:
        lacks = []
        if reader.status != entry["status"]:
            lacks.append(f"status {reader.status} instead of {entry['status']}")
        else:
            lacks += self._headers(entry, reader)
            if "frames" in entry:
                ours = [_frame(one) for one in _as_far_as(entry, frames(reader.received))]
                lacks += self.names.missing_frames(entry["frames"], ours)
            elif "response" in entry:
                response, ours = entry["response"], reader.json
                if entry["request"].endswith("/search"):
                    response = response[: len(ours)]  # there are fewer threads here
                lacks += self.names.missing(response, ours)
        self.found += [f"{name}: {one}" for one in dict.fromkeys(lacks)]

    def _headers(self, entry: Mapping[str, Any], reader: Reader) -> list[str]:
        lacks = []
        for header, value in entry["headers"].items():
            ours = reader.headers.get(header)
            if header == "x-pagination-next" and reader.headers.get("x-pagination-total", "0") < "3":
                continue  # there are fewer threads here
            if ours is None:
                lacks.append(f"header {header}: missing")
                continue
            is_place = header in ("location", "content-location")
            if self.names.differs(value, ours) if is_place else header == "content-type" and _type(ours) != _type(value):
                lacks.append(f"header {header}: {ours!r} instead of {value!r}")
        return lacks


def _channels(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a stream was asked for. The recording has left out some of the channels."""
    whole = ["values", "checkpoints", "lifecycle", "input", "messages", "tools"]
    return {**body, "channels": whole if "values" in body["channels"] else body["channels"]}


def _steps(found: Sequence[Mapping[str, Any]]) -> int:
    """Return how many times a run began or ended in the frames of a thread."""
    return sum(one.get("event") == "lifecycle" for one in found)


async def _until_like(entry: Mapping[str, Any], reader: Reader) -> None:
    await reader.until(lambda: _steps(frames(reader.received)) >= _steps(entry["frames"]))


def _as_far_as(entry: Mapping[str, Any], found: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return the frames up to the place where a recording stops; all frames of any other stream."""
    if not entry.get("stops"):
        return list(found)
    return [one for at, one in enumerate(found) if _steps(found[: at + 1]) <= _steps(entry["frames"])]


def _type(header: str) -> str:
    return header.partition(";")[0]


def _frame(frame: Mapping[str, str]) -> dict[str, Any]:
    return {**frame, "data": json.loads(frame["data"]) if frame.get("data") else None}


async def what_came_before(recording: Recording) -> None:
    """What the recording of the Python SDK's threads begins with: a thread that was asked and answered, and others."""

    async def run(thread: str, **body: Any) -> None:
        made = await recording.send("POST", f"/threads/{thread}/runs/wait", {"assistant_id": "probe", **body})
        assert made.status == 200, made.received

    async def thread(**metadata: Any) -> str:
        return str((await recording.send("POST", "/threads", {"metadata": metadata})).json["thread_id"])

    known = recording.names.known
    recording.pace.is_open.set()
    for text in ("hello", "hello"):
        await run(await thread(), input={"messages": [{"role": "user", "content": text}]})
    known["id-12"] = await thread(k="values")
    await run(known["id-12"], input={"messages": [{"role": "user", "content": "tool please"}]})
    known["id-3"] = await thread()
    await run(known["id-3"], input={"messages": [{"role": "user", "content": "interrupt me"}]})
    await run(known["id-3"], command={"resume": "yes"})
    history = (await recording.send("POST", f"/threads/{known['id-3']}/history", {"limit": 10})).json
    known["id-5"] = next(one["checkpoint_id"] for one in history if one["next"] == ["tools"])


@needs_311
@pytest.mark.parametrize("name", FILES)
def test_recorded_requests(journal: RunJournal, name: str) -> None:
    """Each answer has at least what the recorded one has, or the difference is argued."""

    async def main() -> list[str]:
        async with AsyncExitStack() as stack:
            recording = Recording(journal, stack)
            if name == "py-assistants-threads":
                await what_came_before(recording)
            for scenario, entries in json.loads((HERE / f"{name}.json").read_text()).items():
                await recording.play(scenario, entries)
            return recording.found

    found = asyncio.run(asyncio.wait_for(main(), 4 * PATIENCE))
    assert "\n".join(one for one in found if not any(re.search(pattern, one) for pattern in ARGUED)) == ""


def test_the_comparison_can_fail() -> None:
    """A member, an item, a status of its own, an id that is another one, and a frame that is not there are found."""
    names, one, other = Names(), "6f3a1b9e-0c43-4d0e-9f57-0a9d4f0f7b11", "6f3a1b9e-0c43-4d0e-9f57-0a9d4f0f7b12"
    assert names.missing({"a": [{"id": "id-1", "n": 1}]}, {"a": [{"id": one, "n": 2, "more": 3}]}) == []
    assert names.missing({"b": {"id": "lc_run--id-1-0"}}, {"b": {"id": f"lc_run--{one}"}}) == []
    for recorded, ours in (
        ({"id": "id-1"}, {"id": other}),
        ({"a": 1}, {}),
        ({"a": [1, 2]}, {"a": [1]}),
        ({"a": {}}, {"a": []}),
        ({"a": None}, {"a": 1}),
        ({"status": "idle"}, {"status": "busy"}),
    ):
        assert len(names.missing(recorded, ours)) == 1, recorded
    stream = [{"event": "values", "data": {}}, {"event": "updates", "data": {"a": 1}}]
    assert names.missing_frames(stream, stream) == []
    assert names.missing_frames(stream, stream[:1]) == ["frame updates: missing"]
    assert names.missing_frames(stream, stream[::-1]) == ["order of the first frames: [1, 0]"]
