"""The LangGraph API over HTTP, beside the native dialect of the same server: first frames, replay, reconnection."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final
from uuid import uuid4

from ._stats import Sample, paired, seconds, spread, three, times
from ._tools import Bench, heading, note, table

_NATIVE, _LANGGRAPH, _PROTOCOL = "native", "langgraph, values and messages-tuple", "langgraph, stream/events"
_CHANNELS: Final = ["values", "messages", "lifecycle", "input", "tools"]
_MODES: Final = ["values", "messages-tuple"]
_PATIENCE: Final = 120.0


def run(bench: Bench) -> None:
    """Run the section."""
    bench.begin("langgraph_api")
    heading("22. The LangGraph API over HTTP")
    if find_spec("uvicorn") is None or find_spec("starlette") is None or find_spec("httpx") is None:
        note("left out: install the group `test`, which has starlette, uvicorn and httpx")
        return
    note("uvicorn in a thread of the process of the client, so both share the interpreter: read the ratios.")
    count = bench.pick(20_000, 500)
    with _served(bench, count) as api:
        _first(bench, api)
        _replay(bench, api, count)
        _back(bench, api, count)


class _Api:
    """The client of one server."""

    def __init__(self, http: Any) -> None:
        self._http = http

    def post(self, path: str, body: Any) -> Any:
        """Send a request, and return its answer."""
        return self._http.post(path, json=body).raise_for_status().json()

    def lines(self, method: str, path: str, body: Any = None, last: str | None = None) -> Iterator[str]:
        """Yield the lines of a stream."""
        headers = {} if last is None else {"last-event-id": last}
        with self._http.stream(method, path, json=body, headers=headers) as response:
            response.raise_for_status()
            yield from response.iter_lines()

    def begin(self, text: str) -> tuple[str, str]:
        """Begin a run on a new thread by the native dialect. Return the thread and the run."""
        thread = str(uuid4())
        body = {"input": {"messages": [{"role": "user", "content": text}]}}
        return thread, str(self.post(f"/threads/{thread}/runs", body)["run_id"])

    def stream(self, dialect: str, thread: str, run_id: str, last: str | None = None) -> Iterator[str]:
        """Yield the lines of a run that is over, behind a frame."""
        if dialect == _NATIVE:
            return self.lines("GET", f"/runs/{run_id}/events", last=last)
        if dialect == _LANGGRAPH:
            return self.lines("GET", f"/langgraph/threads/{thread}/runs/{run_id}/stream", last=last)
        body: dict[str, Any] = {"channels": _CHANNELS} | ({} if last is None else {"since": int(last)})
        return self.lines("POST", f"/langgraph/threads/{thread}/stream/events", body)


@contextmanager
def _served(bench: Bench, count: int) -> Iterator[_Api]:
    import httpx
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph

    from langchain_runjournal import RunJournal
    from langchain_runjournal.server import create_app
    from langchain_runjournal.testing import ScriptedChatModel
    from tests.support.live_server import served

    long = "word " * count
    model = ScriptedChatModel(lambda messages: long if messages[-1].text == "long" else "A few words.")

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
    compiled = graph.compile(checkpointer=InMemorySaver(), name="agent")
    with (
        bench.directory() as directory,
        RunJournal(directory / "runs.db") as journal,
        served(lambda: create_app(compiled, journal)) as url,
        httpx.Client(base_url=url, timeout=_PATIENCE) as http,
    ):
        yield _Api(http)


def _until(lines: Iterator[str], is_last: Callable[[str], bool]) -> int:
    """Read up to a line. Return how many frames came."""
    found = 0
    for line in lines:
        found += line.startswith("data:")
        if is_last(line):
            return found
    raise AssertionError("the stream has ended too early")


def _has_word(line: str) -> bool:
    return line.startswith("data:") and ("few" in line or '"A ' in line or '"A"' in line)


def _first(bench: Bench, api: _Api) -> None:
    """From the request for a run to its first word."""

    def native() -> float:
        began = time.perf_counter()
        _, run_id = api.begin("short")
        _until(api.lines("GET", f"/runs/{run_id}/events"), _has_word)
        return time.perf_counter() - began

    def langgraph() -> float:
        body = {"assistant_id": "agent", "input": _human("short"), "stream_mode": _MODES, "if_not_exists": "create"}
        began = time.perf_counter()
        _until(api.lines("POST", f"/langgraph/threads/{uuid4()}/runs/stream", body), _has_word)
        return time.perf_counter() - began

    def protocol() -> float:
        thread = uuid4()
        began = time.perf_counter()
        _command(api, str(thread), "short")
        _until(api.lines("POST", f"/langgraph/threads/{thread}/stream/events", {"channels": _CHANNELS}), _has_word)
        return time.perf_counter() - began

    ways = {_NATIVE: native, _LANGGRAPH: langgraph, _PROTOCOL: protocol}
    found = bench.rounds("langgraph_api, first", ways, bench.pick(40, 3))
    note("From the request for a run on a new thread to its first word, without the time of a model.")
    rows = [
        [name, seconds(Sample(values).median), spread(Sample(values)), times(paired(values, found[_NATIVE]))]
        for name, values in found.items()
    ]
    table(["", "p50", "p25 .. p75", "x native"], rows)


def _command(api: _Api, thread: str, text: str) -> str:
    params = {"assistant_id": "agent", "input": _human(text)}
    body = {"id": 1, "method": "run.start", "params": params}
    return str(api.post(f"/langgraph/threads/{thread}/commands", body)["result"]["run_id"])


def _human(text: str) -> dict[str, Any]:
    return {"messages": [{"type": "human", "content": text}]}


_ENDS: Final[dict[str, Callable[[str], bool]]] = {
    _NATIVE: lambda line: '"run.end"' in line,
    _LANGGRAPH: lambda line: line == "event: end",
    _PROTOCOL: lambda line: line.startswith("data:") and '"event":"completed"' in line,
}


def _long_run(api: _Api) -> tuple[str, str]:
    thread = str(uuid4())
    run_id = _command(api, thread, "long")
    _until(api.stream(_LANGGRAPH, thread, run_id), _ENDS[_LANGGRAPH])
    return thread, run_id


def _replay(bench: Bench, api: _Api, count: int) -> None:
    thread, run_id = _long_run(api)

    def measure(dialect: str) -> Callable[[], float]:
        def once() -> float:
            began = time.perf_counter()
            frames = _until(api.stream(dialect, thread, run_id), _ENDS[dialect])
            assert frames > count, (dialect, frames)
            return frames / (time.perf_counter() - began)

        return once

    found = bench.rounds("langgraph_api, replay", {name: measure(name) for name in _ENDS}, bench.pick(7, 1))
    note(f"Replay of a run of {count:,} tokens that is over, to one client that only counts lines; frames per second.")
    rows = [[name, three(Sample(values).median), times(paired(found[_NATIVE], values))] for name, values in found.items()]
    table(["", "frames/s", "native is"], rows)


def _back(bench: Bench, api: _Api, count: int) -> None:
    thread, run_id = _long_run(api)
    places = {name: _place(name, list(api_lines)) for name, api_lines in _whole(api, thread, run_id).items()}

    def measure(dialect: str) -> Callable[[], float]:
        def once() -> float:
            began = time.perf_counter()
            lines = api.stream(dialect, thread, run_id, places[dialect])
            _until(lines, lambda line: line.startswith("data:"))
            return time.perf_counter() - began

        return once

    found = bench.rounds("langgraph_api, back", {name: measure(name) for name in _ENDS}, bench.pick(15, 1))
    note(f"Coming back near the end of a run of {count:,} tokens: from the request to the first frame.")
    rows = [
        [name, seconds(Sample(values).median), spread(Sample(values)), times(paired(values, found[_NATIVE]))]
        for name, values in found.items()
    ]
    table(["", "p50", "p25 .. p75", "x native"], rows)


def _whole(api: _Api, thread: str, run_id: str) -> dict[str, list[str]]:
    found = {}
    for name, is_end in _ENDS.items():
        lines: list[str] = []
        for line in api.stream(name, thread, run_id):
            lines.append(line)
            if is_end(line):
                break
        found[name] = lines
    return found


def _place(dialect: str, lines: list[str]) -> str:
    """Return the cursor ten frames before the end."""
    if dialect == _PROTOCOL:
        data = [line for line in lines if line.startswith("data:")]
        return str(json.loads(data[-11][5:])["seq"])
    return [line for line in lines if line.startswith("id:")][-11][3:].strip()
