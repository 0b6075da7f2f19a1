"""The command line beside processes that write: following them, stopping them, and what is left when they are killed."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import RunJournal
from tests._cli import COMMAND, PATIENCE, Writer, environment, started
from tests.support.starter import Process

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Start]:
    """Starts the command in its own process, and leaves none behind."""
    processes: list[subprocess.Popen[str]] = []

    def start(*args: str, **options: Any) -> subprocess.Popen[str]:
        processes.append(started(*args, cwd=tmp_path, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """Writes the run `live`."""
    with Writer(tmp_path / "runs.db") as writing:
        yield writing


def next_event(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_follow_shows_each_event_as_it_comes(command: Start, writer: Writer) -> None:
    """In a pipe, one line each, flushed: whoever reads has it before the next one is written. It ends with the run."""
    process = command("follow", "live")
    assert [next_event(process)["kind"] for _ in range(2)] == ["run.start", "llm.start"]
    for word in ("one ", "two ", "three"):
        writer.say("llm.ai.delta", text=word)
        assert next_event(process)["data"] == {"text": word}
    writer.say("run.end", status="completed")
    assert next_event(process)["kind"] == "run.end"
    said, complaint = process.communicate(timeout=PATIENCE)
    assert (said, complaint, process.returncode) == ("", "", 0)


def test_follow_for_people_is_the_text_as_it_comes(command: Start, writer: Writer) -> None:
    """Nothing but the words on stdout, at once."""
    process = command("follow", "live", "--no-json")
    assert process.stdout is not None
    for word in ("one ", "two ", "three"):
        writer.say("llm.ai.delta", text=word)
        assert process.stdout.read(len(word)) == word
    writer.say("run.end", status="completed")
    said, told = process.communicate(timeout=PATIENCE)
    assert (said, process.returncode) == ("\n", 0)
    assert "run completed, after " in told


def test_follow_ends_when_the_owner_is_killed(command: Start, writer: Writer) -> None:
    """With what it had said to the last, where to go on, and 1; not waiting for ever."""
    process = command("follow", "live")
    writer.say("llm.ai.delta", text="last words")
    assert [next_event(process)["kind"] for _ in range(3)][-1] == "llm.ai.delta"
    writer.kill()
    said, told = process.communicate(timeout=PATIENCE)
    assert (said, process.returncode) == ("", 1)
    assert "its process was killed" in told
    assert "runjournal follow live --after 3" in told
    again = command("follow", "live", "--after", "2")
    assert next_event(again)["data"] == {"text": "last words"}
    assert again.wait(PATIENCE) == 1
    beyond = command("follow", "live", "--after", "99999")
    _, told = beyond.communicate(timeout=PATIENCE)
    assert "It ends at 3, and has nothing behind 99999." in told
    assert "runjournal follow live --after 3" in told
    assert (beyond.returncode, told.count("\n")) == (1, 1)


def test_follow_ends_when_the_run_waits_for_a_human(command: Start, writer: Writer) -> None:
    """That may take days: it says so, and all is fine."""
    process = command("follow", "live")
    writer.say("run.pause", interrupts=[{"id": "i", "value": "sure?"}])
    said, told = process.communicate(timeout=PATIENCE)
    assert json.loads(said.splitlines()[-1])["kind"] == "run.pause"
    assert process.returncode == 0
    assert "waits for a human" in told


def test_ctrl_c_ends_the_following_and_not_the_run(command: Start, writer: Writer) -> None:
    """It says where to go on, without a traceback; and the run goes on."""
    process = command("follow", "live")
    writer.say("llm.ai.delta", text="one ")
    assert [next_event(process)["kind"] for _ in range(3)][-1] == "llm.ai.delta"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert told.splitlines() == [told.strip()]
    assert "the run goes on" in told
    writer.say("run.end", status="completed")
    # Where it says: at the end of what it has shown, or before the page that it was showing just then.
    after = int(told.rpartition("runjournal follow live --after ")[2])
    assert after <= 3
    again = command("follow", "live", "--after", str(after))
    said, _ = again.communicate(timeout=PATIENCE)
    assert [json.loads(line)["seq"] for line in said.splitlines()] == list(range(after + 1, 5))
    assert again.returncode == 0


def test_follow_on_a_terminal(writer: Writer, tmp_path: Path) -> None:
    """Words in one line while they come, and the rest in lines of its own, dim; nothing that moves the cursor."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "follow", "live"], cwd=tmp_path, env=environment(), stdout=theirs, stderr=theirs, stdin=theirs
    )
    os.close(theirs)
    said = ""

    def until(word: str) -> None:
        nonlocal said
        while word not in said:
            said += os.read(ours, 65_536).decode()

    try:
        until("begins")
        for word in ("one ", "two "):
            writer.say("llm.ai.delta", text=word)
            until(word)
        writer.say("tool.start", tool_call_id="t", name="weather", args={"city": "Rome"})
        until("weather")
        writer.say("run.end", status="completed")
        until("completed")
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    lines = said.replace("\r\n", "\n").split("\n")
    assert "one two " in lines
    assert any(line.startswith("\x1b[2m→ weather") for line in lines)
    assert "\x1b[?" not in said
    assert "\r" not in said.replace("\r\n", "")


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Process]:
    """A process that starts runs of a graph."""
    process = Process(tmp_path).up()
    yield process
    process.close()


def test_stop_stops_a_run_of_another_process(command: Start, starter: Process) -> None:
    """And returns when it is over and its thread whole; whoever follows it sees it end."""
    run_id = starter.do("start", thread="t", text="talk")
    follower = command("follow", run_id)
    while next_event(follower)["kind"] != "llm.ai.delta":
        pass
    process = command("stop", run_id[:-4], "--cause", "shutdown")
    said, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    found = json.loads(said)
    assert (found["status"], found["cause"], found["settled"]) == ("interrupted", "shutdown", True)
    thread, upcoming = starter.do("thread", thread="t")
    assert upcoming == []
    assert len(thread) == 2
    rest, _ = follower.communicate(timeout=PATIENCE)
    assert json.loads(rest.splitlines()[-1])["kind"] == "run.end"
    assert follower.returncode == 0


GRAPH = """
from contextlib import asynccontextmanager, contextmanager
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from tests.support.starter import Speaker, graph_of

@asynccontextmanager
async def agent():
    async with AsyncSqliteSaver.from_conn_string("threads.db") as saver:
        yield graph_of(Speaker(), saver)

@contextmanager
def blocking():
    with SqliteSaver.from_conn_string("threads.db") as saver:
        yield graph_of(Speaker(), saver)
"""


@pytest.mark.parametrize("attribute", ["agent", "blocking"])
def test_what_a_killed_process_left_is_recovered(command: Start, starter: Process, tmp_path: Path, attribute: str) -> None:
    """Stop and recover say what is needed; with the graph, the thread is settled, and the answer is in it."""
    run_id = starter.do("start", thread="t", text="talk")
    follower = command("follow", run_id, "--no-json")
    assert follower.stdout is not None
    assert follower.stdout.read(2) == "1 "
    starter.kill()
    assert follower.wait(PATIENCE) == 1
    stop = command("stop", run_id)
    _, told = stop.communicate(timeout=PATIENCE)
    assert (stop.returncode, told.count("\n")) == (1, 1)
    assert "runjournal recover" in told
    first = command("recover")
    said, told = first.communicate(timeout=PATIENCE)
    assert first.returncode == 1
    assert json.loads(said)["outcome"] == "needs_graph"
    assert "starter" in told
    (tmp_path / "my_app.py").write_text(GRAPH)
    second = command("recover", "--graph", f"my_app:{attribute}")
    said, told = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, told
    found = json.loads(said)
    assert (found["run_id"], found["thread_id"], found["outcome"]) == (run_id, "t", "settled")
    assert [one["origin"] for one in found["messages"]][-1] == "partial"
    shown = command("show", run_id)
    assert json.loads(shown.communicate(timeout=PATIENCE)[0])["cause"] == "crash"


def test_runs_without_a_graph_are_ended(command: Start, writer: Writer, tmp_path: Path) -> None:
    """As interrupted by a crash, once their process is gone, and not before; what it had left is brought in, and said."""
    writer.say("llm.ai.delta", text="last words")
    shown = json.loads(command("show", "live").communicate(timeout=PATIENCE)[0])
    assert (shown["owner_state"], shown["owner_process"]) == ("alive", writer.process.pid)
    alive = command("recover")
    assert alive.communicate(timeout=PATIENCE)[0] == ""
    assert alive.returncode == 0
    page = command("view", "live", "-o", "-").communicate(timeout=PATIENCE)[0]
    assert "Its process was killed" not in page
    writer.kill()
    page = command("view", "live", "-o", "-").communicate(timeout=PATIENCE)[0]
    assert "Its process was killed" in page
    process = command("recover")
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert json.loads(said)["outcome"] == "ended"
    with RunJournal(tmp_path / "runs.db") as journal:
        run = journal.run("live")
        assert (run.status, run.cause) == ("interrupted", "crash")
        assert [event.text for event in journal.read("live")][2] == "last words"


def test_what_a_killed_process_had_not_stored_is_brought_in(command: Start, tmp_path: Path) -> None:
    """Opening the journal does it, and says so on stderr."""
    code = """
import os
from langchain_runjournal import Event, RunJournal
journal = RunJournal("runs.db")
for word in ("one ", "two "):
    journal.append(Event(run_id="r", kind="llm.ai.delta", data={"text": word}, call_id="c"))
os.kill(os.getpid(), 9)
"""
    process = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    listing = command("list", "--no-json")
    said, told = listing.communicate(timeout=PATIENCE)
    assert listing.returncode == 0
    assert "owner gone" in said
    assert "brought in 2 events of 1 run that a killed process had left" in told
