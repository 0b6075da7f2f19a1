"""Helpers for tests of the command line: an example journal, the command in this process or in another one, a terminal,
and a process that writes a run word by word.

python -m tests.support.command_line DB
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner, Result

from langchain_runjournal import Event, RunJournal

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "langchain_runjournal"]
PATIENCE = 60.0  # seconds, for what takes a few at most
EVIL = "\x1b]0;owned\x07 [red]not red[/red] \x9b31m \u202eright to left"


def run(*args: str, env: Mapping[str, str | None] | None = None) -> Result:
    """Run the command in this process. Its output is not a terminal."""
    from langchain_runjournal.cli.app import commands

    try:
        runner = CliRunner(mix_stderr=False)
    except TypeError:  # since click 8.2, stdout and stderr are never mixed
        runner = CliRunner()
    return runner.invoke(commands, list(args), prog_name="runjournal", env=env)


def data(*args: str, exit_code: int = 0) -> list[Any]:
    """Run a command with --json; return the JSON lines of its stdout."""
    done = run(*args, "--json")
    assert done.exit_code == exit_code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def text(*args: str) -> str:
    """Run a command; return its stdout."""
    done = run(*args)
    assert done.exit_code == 0, done.output
    return done.stdout


def complaint(*args: str, code: int = 1, lines: int = 0, **options: Any) -> str:
    """Run a command that fails; return its one line of stderr, with `lines` below it. It prints nothing to stdout."""
    done = run(*args, **options)
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    assert done.stderr.startswith("runjournal: ")
    assert done.stderr.count("\n") == 1 + lines
    return done.stderr


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a user who can import this package."""
    # With PYTHONUNBUFFERED, Python itself counts a half-written text as written when the reader closes the pipe.
    apart = ("RUNJOURNAL", "PYTHONUNBUFFERED", "NO_COLOR")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(apart)}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **more}


def started(*args: str, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    """Start the command in a process of its own, with pipes for stdout and stderr."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
    return subprocess.Popen([*COMMAND, *args], cwd=cwd, **{"env": environment(), **pipes, **options})


def on_terminal(command: Sequence[str], cwd: Path, width: int = 80, typed: str = "", **more: str) -> tuple[int, str]:
    """Run a command on a pseudo terminal, with `typed` as input. Return its exit code and everything it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    process = subprocess.Popen(command, cwd=cwd, env=environment(**more), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, typed.encode())
    said = b""
    try:
        while True:
            try:
                more_said = os.read(ours, 65_536)
            except OSError:  # Linux raises this when the other end is closed
                break
            if not more_said:
                break
            said += more_said
        return process.wait(PATIENCE), said.decode()
    finally:
        process.kill()
        os.close(ours)


# --- an example journal ---------------------------------------------------------------------------------------------


def message(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return a message in the form that an event holds."""
    return {"message": {"type": kind, "data": {"type": kind, "content": content, **more}}}


def write(journal: RunJournal, run_id: str, status: str = "completed", *, thread: str = "t1", **about: Any) -> None:
    """Write one turn: a question, a tool call, and an answer that is complete, cut off, failed or paused."""
    call = {"name": "weather", "args": {"city": "Rome"}, "id": f"{run_id}-t", "type": "tool_call"}
    usage = {"input_tokens": 812, "output_tokens": 97, "total_tokens": 909}

    def put(kind: Any, data: Mapping[str, Any], call_id: str | None = None) -> None:
        journal.append(Event(run_id=run_id, kind=kind, data=data, call_id=call_id))

    metadata = {"runjournal_graph": about["graph"]} if "graph" in about else {}
    put("run.start", {"thread_id": thread, "name": about.get("name", "agent"), "metadata": metadata})
    put("llm.human.input", message("human", about.get("asked", "How is Rome?"), id=f"{run_id}-h"))
    put("llm.start", {"model": "gpt-x", "role": "answer"}, "c1")
    put("llm.ai.delta", {"text": "Let me look."}, "c1")
    put("llm.ai.response", message("ai", "Let me look.", id=f"{run_id}-a", tool_calls=[call], usage_metadata=usage), "c1")
    put("tool.start", {"tool_call_id": call["id"], "name": "weather", "args": call["args"]}, "x1")
    result = message("tool", about.get("found", "sunny"), name="weather", tool_call_id=call["id"], id=f"{run_id}-r")
    put("llm.tool.result", {"tool_call_id": call["id"], **result}, "x1")
    put("llm.start", {"model": "gpt-x", "role": "answer"}, "c2")
    for word in about.get("words", ("It ", "is ", "sunny")):
        put("llm.ai.delta", {"text": word}, "c2")
    ending: dict[str, Any] = {"status": status, "usage": {"gpt-x": {**usage, "calls": 2, "incomplete": 1}}}
    if status == "running":
        return
    if status == "paused":
        put("run.pause", {"interrupts": [{"id": "i1", "value": "Book it?"}], "usage": ending["usage"]})
        return
    if status == "interrupted":
        put("llm.ai.partial", {"cause": "stop"}, "c2")
        put("run.settled", {"outcome": "settled", "messages": [{"id": f"{run_id}-p", "type": "ai", "origin": "partial"}]})
        ending["cause"] = "stop"
    elif status == "failed":
        put("llm.error", {"error": "RateLimitError: too many"}, "c2")
        ending |= {"error": "RateLimitError: too many", "settled": False, "problem": "the checkpointer is down"}
    else:
        put("llm.ai.response", message("ai", "It is sunny", id=f"{run_id}-b"), "c2")
    put("run.end", ending)


ALL = ("aaaa0000-done", "aaaa0001-stop", "bbbb0000-fail", "cccc0000-wait")
"""The runs of `example`, oldest first."""
DONE, STOPPED, FAILED, WAITS = ALL


KEYS = {
    "run_id",
    "short_id",
    "thread_id",
    "name",
    "status",
    "cause",
    "error",
    "started_at",
    "ended_at",
    "events",
    "settled",
    "problem",
    "stop",
    "lost",
    "owner",
    "owner_state",
    "epoch",
    "continues",
    "usage",
    "metadata",
}
"""The keys of a run as JSON."""


def example(db: Path) -> None:
    """Write one run of each kind. No process is running them."""
    with RunJournal(db) as journal:
        write(journal, ALL[0])
        write(journal, ALL[1], "interrupted", thread="t2")
        write(journal, ALL[2], "failed", asked=EVIL, found=EVIL, words=(EVIL, EVIL))
        write(journal, ALL[3], "paused", thread="t3")


# --- a process that writes --------------------------------------------------------------------------------------------


class Writer:
    """Another process, which writes the events of the run `live` that the test sends it."""

    def __init__(self, db: Path) -> None:
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-m", "tests.support.command_line", str(db)], cwd=ROOT, **pipes)
        self._hear("up")

    def _hear(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{word}\n"

    def say(self, kind: str, **data: Any) -> None:
        """Append an event in that process, and return when it is durable."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([kind, data]) + "\n")
        self.process.stdin.flush()
        self._hear("ok")

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for file in (self.process.stdin, self.process.stdout):
            if file is not None:
                file.close()


def main(db: str) -> None:
    with RunJournal(db) as journal:
        journal.append(Event(run_id="live", kind="run.start", data={"thread_id": "t9", "name": "worker"}))
        journal.append(Event(run_id="live", kind="llm.start", data={"model": "gpt-x", "role": "answer"}, call_id="c"))
        journal.flush()
        print("up", flush=True)
        for line in sys.stdin:
            kind, data = json.loads(line)
            journal.append(Event(run_id="live", kind=kind, data=data, call_id="c" if kind.startswith("llm.") else None))
            journal.flush()
            print("ok", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
