"""A chat server of `create_app`, as real processes: whatever ends a connection, a run or a process, nothing is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import end_process

HELD = "Nowhere"  # see _server_app

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="signals"),
    pytest.mark.guarantee("client leaves"),
]

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds, for what takes a few at most
LONG = "Count to 100000"  # takes minutes: whoever acts in the middle of it does so in time
IDLE = ["LifespanOn.main", "Server.serve"]
POOLS = re.compile(r"(asyncio|runjournal-reader)_\d+")
CUT_OFF = re.compile(
    r"ERROR: +Exception in ASGI application\nTraceback(?:(?!Traceback)[\s\S])*?"
    r"CancelledError: Task cancelled, timeout graceful shutdown exceeded\n"
)
"""What uvicorn says of a response that it did not wait for."""


def message(text: str) -> dict[str, Any]:
    """The body that begins a run with a message."""
    return {"input": {"messages": [{"role": "user", "content": text}]}}


class Server:
    """uvicorn in a process of its own, on a free port."""

    app: Sequence[str] = ("tests.support.server_app:app",)
    prefix: Sequence[str] = ()

    def __init__(self, home: Path, *options: str) -> None:
        given = self.environment(home)
        command = [*self.prefix, sys.executable, "-m", "uvicorn", *self.app, "--port", "0", "--no-access-log"]
        command += ["--timeout-graceful-shutdown", "1", "--loop", "asyncio", "--http", "h11", *options]
        pipes: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        # A session of its own: so no worker outlives the test.
        self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **given}, start_new_session=True, **pipes)
        self.said: list[str] = []
        self._url: str | None = None
        self._workers = int(options[-1]) if "--workers" in options else 1
        self._is_up = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        if not self._is_up.wait(PATIENCE) or self._url is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise AssertionError("".join(self.said))
        self.client = httpx.Client(base_url=self._url, timeout=PATIENCE)
        self.threads = self.look()

    def environment(self, home: Path) -> dict[str, str]:
        """The variables that the program reads."""
        return {"CHAT_THREADS": str(home / "threads.db"), "CHAT_RUNS": str(home / "runs.db"), "CHAT_PACE": "0.005"}

    def look(self) -> Any:
        """The names of the threads of a server that has no run."""
        return self.get("/debug")["threads"]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            found = re.search(r"Uvicorn running on (\S+)", line)
            self._url = found[1] if found else self._url
            self._workers -= "Application startup complete" in line
            if self._url is not None and self._workers <= 0:
                self._is_up.set()
        self._is_up.set()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it, if it has not ended, and return its exit code."""
        try:
            return end_process(self.process, how, self._reader)
        finally:
            self.client.close()

    def complaints(self) -> str:
        """All that it has said, but for what it is doing, whom it has cut off, and that a client has gone (asyncio)."""
        cancel = r"ERROR: +Cancel \d+ running task\(s\), timeout graceful shutdown exceeded\n"
        said = CUT_OFF.sub("", "".join(self.said))
        return re.sub(rf"INFO: .*\n|{cancel}|socket\.send\(\) raised exception\.\n", "", said)

    def get(self, path: str, **params: Any) -> Any:
        return self.client.get(path, params=params).raise_for_status().json()

    def send(self, text: str, thread: str = "t", **more: Any) -> str:
        """Begin a run, and return its id."""
        answer = self.client.post(f"/threads/{thread}/runs", json={**message(text), **more}).raise_for_status()
        return str(answer.json()["run_id"])

    def stop(self, run_id: str, **params: Any) -> Any:
        return self.client.post(f"/runs/{run_id}/stop", params=params).raise_for_status().json()

    @contextmanager
    def events(self, run_id: str, after: int = 0, **about: Any) -> Iterator[Iterator[Any]]:
        """The events of a run, on a connection of their own."""
        with (
            httpx.Client(base_url=self.client.base_url, timeout=PATIENCE) as client,
            client.stream("GET", f"/runs/{run_id}/events", params={"after": after} if after else {}, **about) as answer,
        ):
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.iter_lines()
            yield (json.loads(line[len("data: ") :]) for line in lines if line.startswith("data: "))

    def rest(self, run_id: str, after: int = 0) -> list[Any]:
        """The events from a seq on, until the run is over."""
        with self.events(run_id, after) as events:
            return list(events)

    def thread(self, thread: str = "t") -> list[str]:
        """In a few letters."""
        partial = [(one["provenance"] or {}).get("origin") == "partial" for one in self.messages(thread)]
        said = zip(self.messages(thread), partial, strict=True)
        return [f"{one['type']}{'~' if is_partial else ''}: {one['text']}" for one, is_partial in said]

    def messages(self, thread: str = "t") -> list[Any]:
        """The messages of the thread."""
        return list(self.get(f"/threads/{thread}/messages")["messages"])

    def is_at_rest(self) -> None:
        """Nothing is left of any run, nor of any connection: no task, no thread, no memory."""
        give_up = time.monotonic() + PATIENCE
        while ((now := self.get("/debug"))["tasks"], now["memory"]) != (IDLE, [0, 0, 0]):
            assert time.monotonic() < give_up, now  # a connection that was closed is noticed a moment later
        assert [name for name in now["threads"] if name not in self.threads and not POOLS.fullmatch(name)] == []

    def goes_on(self, run_id: str, status: str, cause: str | None, *said: str, thread: str = "t") -> None:
        """The run ended as it should; the thread has been given this, and after it what was shown; a message is answered."""
        run = self.get(f"/runs/{run_id}")
        assert (run["status"], run["cause"], run["settled"]) == (status, cause, True)
        before = self.thread(thread)
        assert len(before) == len(said)
        assert all(one.startswith(shown) for one, shown in zip(before, said, strict=True)), (before, said)
        assert self.rest(self.send("hello", thread))[-1]["data"]["status"] == "completed"
        given = ", ".join([*(one.partition(":")[0].replace("~", " (cut off)") for one in before), "human"])
        assert self.thread(thread) == [*before, "human: hello", f"ai: I have been given: {given}"]


def hear(events: Iterator[Any], times: int, kind: str = "llm.ai.delta") -> tuple[str, int]:
    """Listen until something has been said that often: the text up to there, and the seq."""
    text = ""
    for event in events:
        text += event["data"].get("text", "") if event["kind"] == "llm.ai.delta" else ""
        times -= event["kind"] == kind
        if not times:
            return text, event["seq"]
    raise AssertionError("it has ended before")


def text_of(events: list[Any]) -> str:
    return "".join(event["data"].get("text", "") for event in events if event["kind"] == "llm.ai.delta")


def end_of(events: list[Any]) -> tuple[str, str | None]:
    """What is last; and the seqs have no gap."""
    assert [event["seq"] for event in events] == list(range(events[0]["seq"], events[0]["seq"] + len(events)))
    assert events[-1]["kind"] == "run.end"
    return events[-1]["data"]["status"], events[-1]["data"].get("cause")


Servers = Callable[..., Server]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    """Servers on the same files. What they have complained of is looked at."""
    opened: list[Server] = []

    def open_server(*options: str) -> Server:
        opened.append(Server(tmp_path, *options))
        return opened[-1]

    yield open_server
    for server in opened:
        server.end()
    assert [server.complaints() for server in opened] == [""] * len(opened)


def counted(to: int) -> str:
    return "".join(f"{number} " for number in range(1, to + 1))


# --- clients that come and go -------------------------------------------------------------------------------------------


def test_clients_come_and_go(servers: Servers) -> None:
    """One that leaves in mid-stream changes nothing; it comes back to the journal, and hears the rest, each event once."""
    server = servers()
    run_id = server.send("Count to 200")
    with server.events(run_id) as events:
        first, seq = hear(events, 3)
    rest = server.rest(run_id, seq)
    assert rest[0]["seq"] == seq + 1
    assert end_of(rest) == ("completed", None)
    assert first + text_of(rest) == counted(200)
    with server.events(run_id, headers={"last-event-id": str(seq)}) as events:
        assert list(events) == rest
    at_the_end = server.client.get(f"/runs/{run_id}/events", headers={"last-event-id": str(rest[-1]["seq"])})
    assert at_the_end.status_code == 204
    server.goes_on(run_id, "completed", None, "human: Count to 200", f"ai: {counted(200)}")
    server.is_at_rest()
    for verb, what in (("GET", ""), ("GET", "/events"), ("POST", "/stop")):
        assert server.client.request(verb, f"/runs/unknown{what}").status_code == 404


# --- stop -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["here", "in another process"])
def test_stop_from_a_second_connection(servers: Servers, place: str) -> None:
    """It returns when the thread holds what was shown; readers hear of the end; a stop is no error, and happens once."""
    server = servers()
    other = server if place == "here" else servers()
    run_id = server.send(LONG)
    refused = other.client.post("/threads/t/runs", json=message("hello"))
    assert (refused.status_code, refused.json()["run_id"]) == (409, run_id)
    with server.events(run_id) as events:
        heard, seq = hear(events, 3)
        assert other.get(f"/runs/{run_id}")["status"] == "running"
        stopped = other.stop(run_id, wait="true")
        assert (stopped["status"], stopped["cause"], stopped["settled"]) == ("interrupted", "stop", True)
        rest = list(events)
    assert rest[0]["seq"] == seq + 1
    assert end_of(rest) == ("interrupted", "stop")
    again = other.client.post(f"/runs/{run_id}/stop")
    assert (again.status_code, again.json()["run_status"]) == (409, "interrupted")
    assert other.thread()[-1] == f"ai~: {heard}{text_of(rest)}"
    other.goes_on(run_id, "interrupted", "stop", "human: " + LONG, f"ai~: {heard}")
    server.is_at_rest()
    other.is_at_rest()
    assert server.rest(run_id, seq) == rest  # nothing has gone on


@pytest.mark.parametrize("place", ["here", "in another process"])
def test_stop_while_a_tool_is_at_work(servers: Servers, place: str) -> None:
    """The tool that has finished keeps its result, and the other one has an honest answer."""
    server = servers()
    other = server if place == "here" else servers()
    run_id = server.send(f"Weather in Rome, {HELD}")
    with other.events(run_id) as events:
        hear(events, 1, "llm.tool.result")
        other.stop(run_id)  # without waiting
        assert end_of(list(events)) == ("interrupted", "stop")
    left = (f"human: Weather in Rome, {HELD}", "ai: Looking. ", "tool: sunny in Rome", "tool: Interrupted while running")
    other.goes_on(run_id, "interrupted", "stop", *left)
    server.is_at_rest()


def test_the_next_message_may_stop_the_run_or_wait(servers: Servers) -> None:
    """Also of another process: `if_busy`."""
    server, other = servers(), servers()
    first = server.send(LONG)
    with server.events(first) as events:
        heard, _ = hear(events, 2)
    second = other.send("Count to 20", if_busy="stop")
    assert server.get(f"/runs/{first}")["cause"] == "superseded"
    third = server.send("hello", if_busy="wait")
    assert end_of(other.rest(third)) == ("completed", None)
    assert server.get(f"/runs/{second}")["status"] == "completed"
    *ours, last, answer = server.thread()
    assert ours[1].startswith(f"ai~: {heard}")
    assert [ours[0], *ours[2:]] == ["human: " + LONG, "human: Count to 20", f"ai: {counted(20)}"]
    assert (last, answer) == ("human: hello", "ai: I have been given: human, ai (cut off), human, ai, human")
    server.is_at_rest()
    other.is_at_rest()


# --- several workers ------------------------------------------------------------------------------------------------------


def other_worker(server: Server, pid: int) -> Any:
    """A connection to a worker that is not this one: while it sleeps, nobody else can answer."""
    os.kill(pid, signal.SIGSTOP)
    try:
        client = httpx.Client(base_url=server.client.base_url, timeout=PATIENCE)
        assert client.get("/runs/unknown").headers["x-pid"] != str(pid)
    finally:
        os.kill(pid, signal.SIGCONT)
    return client


def begin_on_a_worker(server: Server) -> tuple[str, int, str]:
    """A run, the worker that has it, and what it has said so far."""
    answer = server.client.post("/threads/t/runs", json=message(LONG))
    run_id = answer.json()["run_id"]
    with server.events(run_id) as events:
        heard, _ = hear(events, 3)
    return run_id, int(answer.headers["x-pid"]), heard


def test_stop_from_a_second_worker(servers: Servers) -> None:
    """`--workers 2` on one file; after SIGTERM in mid-stream, the runs of both are settled, and the exit is clean."""
    server = servers("--workers", "2")
    run_id, pid, heard = begin_on_a_worker(server)
    with closing(other_worker(server, pid)) as client:
        answer = client.post(f"/runs/{run_id}/stop", params={"wait": "true"})
        assert int(answer.headers["x-pid"]) != pid
        assert (answer.json()["status"], answer.json()["cause"]) == ("interrupted", "stop")
        again = client.post("/threads/u/runs", json=message(LONG)).json()["run_id"]
    server.goes_on(run_id, "interrupted", "stop", "human: " + LONG, f"ai~: {heard}")
    with server.events(again) as events:
        heard, _ = hear(events, 3)
    assert server.end() == 0
    server = servers()
    server.goes_on(again, "interrupted", "shutdown", "human: " + LONG, f"ai~: {heard}", thread="u")


def test_a_worker_is_killed(servers: Servers) -> None:
    """A client that asks the other one to stop the run finds the thread settled; so does the worker that takes its place."""
    server = servers("--workers", "2")
    run_id, pid, heard = begin_on_a_worker(server)
    with closing(other_worker(server, pid)) as client:
        os.kill(pid, signal.SIGKILL)
        answer = client.post(f"/runs/{run_id}/stop", params={"wait": "true"})
        assert (answer.json()["status"], answer.json()["settled"]) == ("interrupted", True)
    # A connection to a worker that was killed is broken, as clients know.
    server.client.close()
    server.client = httpx.Client(base_url=server.client.base_url, timeout=PATIENCE)
    server.goes_on(run_id, "interrupted", answer.json()["cause"], "human: " + LONG, f"ai~: {heard}")
    assert server.end() == 0


# --- the end of a process -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_read", [True, False])
def test_sigterm_in_mid_stream(servers: Servers, is_read: bool) -> None:
    """It ends in time, also while clients read; the run is stopped, cause "shutdown", and settled before the exit."""
    server = servers()
    run_id = server.send(LONG)
    with server.events(run_id) as events:
        heard, seq = hear(events, 3)
        if is_read:
            server.process.terminate()
            with pytest.raises(httpx.TransportError):  # cut off: it is no end of the run
                for event in events:
                    heard, seq = heard + text_of([event]), event["seq"]
    assert server.end() == -signal.SIGTERM  # as uvicorn ends, once all is done
    assert server.complaints() == ""
    server = servers()
    assert end_of(server.rest(run_id, seq)) == ("interrupted", "shutdown")
    server.goes_on(run_id, "interrupted", "shutdown", "human: " + LONG, f"ai~: {heard}")
    server.is_at_rest()


def test_sigkill_in_mid_stream(servers: Servers) -> None:
    """All that had been shown is in the thread when the next process has started; the journal goes on where one left."""
    server = servers()
    run_id = server.send(LONG)
    with server.events(run_id) as events:
        heard, seq = hear(events, 20)
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
    server = servers()
    assert end_of(server.rest(run_id, seq)) == ("interrupted", "crash")
    server.goes_on(run_id, "interrupted", "crash", "human: " + LONG, f"ai~: {heard}")
    server.is_at_rest()


def test_sigkill_while_a_tool_is_at_work(servers: Servers) -> None:
    """The next message through a process that was there all the time settles it first: no tool runs, or is asked, twice."""
    server, other = servers(), servers()
    run_id = server.send(f"Weather in Rome, {HELD}")
    with other.events(run_id) as events:
        hear(events, 1, "llm.tool.result")
        server.end(signal.SIGKILL)
        next_id = other.send("hello")
        assert end_of(list(events)) == ("interrupted", "crash")
    assert end_of(other.rest(next_id)) == ("completed", None)
    *left, interrupted, last, answer = other.thread()
    assert left == [f"human: Weather in Rome, {HELD}", "ai: Looking. ", "tool: sunny in Rome"]
    assert interrupted.startswith("tool: Interrupted while running")
    assert (last, answer) == ("human: hello", "ai: I have been given: human, ai, tool, tool, human")
    other.is_at_rest()
