"""Commands on runs of other processes: follow them, stop them, and recover what they left when they were killed."""

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
from tests.support.command_line import COMMAND, PATIENCE, Writer, environment, started
from tests.support.starter import Process

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Start]:
    """Start commands in processes of their own, and end them after the test."""
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
    """A process that writes the run `live`."""
    with Writer(tmp_path / "runs.db") as writing:
        yield writing


def next_event(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_follow_shows_each_event_as_it_comes(command: Start, writer: Writer) -> None:
    """In a pipe, one flushed line each: the reader has it before the next one is written. The command ends with the run."""
    process = command("follow", "live", "--json")
    assert [next_event(process)["kind"] for _ in range(2)] == ["run.start", "llm.start"]
    for word in ("one ", "two ", "three"):
        writer.say("llm.ai.delta", text=word)
        assert next_event(process)["data"] == {"text": word}
    writer.say("run.end", status="completed")
    assert next_event(process)["kind"] == "run.end"
    said, complaint = process.communicate(timeout=PATIENCE)
    assert (said, complaint, process.returncode) == ("", "", 0)


def test_follow_for_people_is_the_text_as_it_comes(command: Start, writer: Writer) -> None:
    """Only the words go to stdout, as they arrive."""
    process = command("follow", "live")
    assert process.stdout is not None
    for word in ("one ", "two ", "three"):
        writer.say("llm.ai.delta", text=word)
        assert process.stdout.read(len(word)) == word
    writer.say("run.end", status="completed")
    said, told = process.communicate(timeout=PATIENCE)
    assert (said, process.returncode) == ("\n", 0)
    assert "run completed, after " in told


def test_follow_ends_when_the_owner_is_killed(command: Start, writer: Writer) -> None:
    """It prints everything up to the kill and how to follow the run again, and exits with 1."""
    process = command("follow", "live", "--json")
    writer.say("llm.ai.delta", text="last words")
    assert [next_event(process)["kind"] for _ in range(3)][-1] == "llm.ai.delta"
    writer.kill()
    said, told = process.communicate(timeout=PATIENCE)
    assert (said, process.returncode) == ("", 1)
    assert "is dead: its process ended" in told
    assert "runjournal follow live --after 3" in told
    again = command("follow", "live", "--after", "2", "--json")
    assert next_event(again)["data"] == {"text": "last words"}
    assert again.wait(PATIENCE) == 1
    beyond = command("follow", "live", "--after", "99999", "--json")
    _, told = beyond.communicate(timeout=PATIENCE)
    assert "It ends at 3, and has nothing after 99999." in told
    assert "runjournal follow live --after 3" in told
    assert (beyond.returncode, told.count("\n")) == (1, 1)


def test_follow_ends_when_the_run_waits_for_a_human(command: Start, writer: Writer) -> None:
    """An answer may take days: the command says that the run waits, and exits with 0."""
    process = command("follow", "live", "--json")
    writer.say("run.pause", interrupts=[{"id": "i", "value": "sure?"}])
    said, told = process.communicate(timeout=PATIENCE)
    assert json.loads(said.splitlines()[-1])["kind"] == "run.pause"
    assert process.returncode == 0
    assert "waits for a human" in told


def test_ctrl_c_ends_the_following_and_not_the_run(command: Start, writer: Writer) -> None:
    """It prints how to follow the run again, without a traceback; the run continues."""
    process = command("follow", "live", "--json")
    writer.say("llm.ai.delta", text="one ")
    assert [next_event(process)["kind"] for _ in range(3)][-1] == "llm.ai.delta"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert told.splitlines() == [told.strip()]
    assert "the run continues" in told
    writer.say("run.end", status="completed")
    # `after` is the last event that it printed, or the one before the page that it was printing.
    after = int(told.rpartition("runjournal follow live --after ")[2])
    assert after <= 3
    again = command("follow", "live", "--after", str(after), "--json")
    said, _ = again.communicate(timeout=PATIENCE)
    assert [json.loads(line)["seq"] for line in said.splitlines()] == list(range(after + 1, 5))
    assert again.returncode == 0


def test_follow_on_a_terminal(writer: Writer, tmp_path: Path) -> None:
    """Words share a line while they arrive, everything else gets a dim line of its own, and nothing moves the cursor."""
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
    """It returns when the run has ended and its thread is settled; a follower of the run sees the end."""
    run_id = starter.do("start", thread="t", text="talk")
    follower = command("follow", run_id, "--json")
    while next_event(follower)["kind"] != "llm.ai.delta":
        pass
    process = command("stop", run_id[:-4], "--cause", "shutdown", "--json")
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
def test_the_runs_of_a_killed_process_are_recovered(
    command: Start, starter: Process, tmp_path: Path, attribute: str
) -> None:
    """`stop` and `recover` name what they need; with the graph, `recover` settles the thread with the partial answer."""
    run_id = starter.do("start", thread="t", text="talk")
    follower = command("follow", run_id)
    assert follower.stdout is not None
    assert follower.stdout.read(2) == "1 "
    starter.kill()
    assert follower.wait(PATIENCE) == 1
    stop = command("stop", run_id)
    _, told = stop.communicate(timeout=PATIENCE)
    assert (stop.returncode, told.count("\n")) == (1, 1)
    assert "runjournal recover" in told
    first = command("recover", "--json")
    said, told = first.communicate(timeout=PATIENCE)
    assert first.returncode == 1
    assert json.loads(said)["outcome"] == "needs_graph"
    assert "starter" in told
    (tmp_path / "my_app.py").write_text(GRAPH)
    second = command("recover", "--graph", f"my_app:{attribute}", "--json")
    said, told = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, told
    found = json.loads(said)
    assert (found["run_id"], found["thread_id"], found["outcome"]) == (run_id, "t", "settled")
    assert [one["origin"] for one in found["messages"]][-1] == "partial"
    shown = command("show", run_id, "--json")
    assert json.loads(shown.communicate(timeout=PATIENCE)[0])["cause"] == "crash"


def test_runs_without_a_graph_are_ended(command: Start, writer: Writer, tmp_path: Path) -> None:
    """As interrupted by a crash, only after their process has ended; the spool is imported first."""
    writer.say("llm.ai.delta", text="last words")
    shown = json.loads(command("show", "live", "--json").communicate(timeout=PATIENCE)[0])
    assert (shown["owner_state"], shown["owner_process"]) == ("alive", writer.process.pid)
    alive = command("recover")
    assert alive.communicate(timeout=PATIENCE)[0] == ""
    assert alive.returncode == 0
    page = command("view", "live", "-o", "-").communicate(timeout=PATIENCE)[0]
    assert "Its process was killed" not in page
    writer.kill()
    page = command("view", "live", "-o", "-").communicate(timeout=PATIENCE)[0]
    assert "Its process was killed" in page
    process = command("recover", "--json")
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert json.loads(said)["outcome"] == "ended"
    with RunJournal(tmp_path / "runs.db") as journal:
        run = journal.run("live")
        assert (run.status, run.cause) == ("interrupted", "crash")
        assert [event.text for event in journal.read("live")][2] == "last words"


def test_the_spool_of_a_killed_process_is_imported(command: Start, tmp_path: Path) -> None:
    """Opening the journal imports the spool, and says so on stderr."""
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
    listing = command("list")
    said, told = listing.communicate(timeout=PATIENCE)
    assert listing.returncode == 0
    assert "dead owner" in said
    assert "imported 2 events of 1 run from the spool of a dead owner" in told
