"""`runjournal follow` and `runjournal stop`, of runs in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal
from tests.support.command_line import (
    STOPPED,
    WAITS,
    complaint,
    data,
    run,
    write,
)


def test_follow_of_what_is_over(journal: Path) -> None:
    """All of its events, or those after one; as text, only the answers go to stdout."""
    with RunJournal(journal) as opened:
        events = [event.to_dict() for event in opened.read(STOPPED)]
    assert data("follow", STOPPED) == events
    assert data("follow", STOPPED, "--after", "5") == events[5:]
    assert data("follow", STOPPED, "--after", "999") == []
    beyond = run("follow", STOPPED, "--after", "999")
    last = len(events)
    assert (beyond.exit_code, beyond.stderr) == (
        0,
        f"runjournal: run {STOPPED} has ended with event {last}; nothing follows event 999\n",
    )
    assert run("follow", STOPPED, "--after", str(last)).stderr == ""
    done = run("follow", STOPPED)
    assert done.stdout == "Let me look.\nIt is sunny\n"
    for line in ("human: How is Rome?", "→ weather", "← weather", "cut off: stop", "run interrupted (stop)"):
        assert line in done.stderr
    middle = next(event["seq"] for event in events if event["data"] == {"text": "is "})
    assert run("follow", STOPPED, "--after", str(middle)).stdout == "sunny\n"


def test_follow_of_what_waits_for_a_human_ends(journal: Path) -> None:
    """It says that the run waits, and exits with 0."""
    done = run("follow", WAITS, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout.splitlines()[-1])["kind"] == "run.pause"
    assert "waits for a human" in done.stderr


def test_answers_at_the_same_time_do_not_mix(here: Path) -> None:
    """One is printed as it arrives, the other one when the first has ended; a helper call is not printed."""

    with RunJournal(here / "runs.db") as opened:

        def put(kind: Any, call: str, **more: Any) -> None:
            opened.append(Event(run_id="r", kind=kind, data=more, call_id=call))

        for call, role in (("a", "answer"), ("b", "answer"), ("h", "helper")):
            put("llm.start", call, model="m", role=role)
        for word in ("1 ", "2 ", "3 "):
            for call in "abh":
                put("llm.ai.delta", call, text=f"{call}{word}")
        for call in "ab":
            put("llm.ai.partial", call, cause="stop")
        opened.append(Event(run_id="r", kind="run.end", data={"status": "interrupted", "cause": "stop"}))
    assert run("follow", "r").stdout == "a1 a2 a3 \nb1 b2 b3 \n"


def test_what_the_program_reported_goes_to_stderr(here: Path) -> None:
    """With its name if it has one; also a value that was dropped."""
    with RunJournal(here / "runs.db") as opened:
        for data in ({"value": {"found": 3}}, {"value": "half", "name": "progress"}, {"dropped": "too large", "size": 9}):
            opened.append(Event(run_id="r", kind="run.custom", data={"ns": [], "node": None, "name": None, **data}))
        opened.append(Event(run_id="r", kind="run.end"))
    done = run("follow", "r")
    assert done.stdout == ""
    for line in ('· {"found": 3}', "· progress: half", "· (dropped: too large)"):
        assert line in done.stderr


def test_stop_of_what_is_over_is_fine(journal: Path) -> None:
    """It says so, requests nothing, and prints the run."""
    for name, why in ((STOPPED, "ended already"), (WAITS, "waits for a human")):
        done = run("stop", name, "--json")
        assert done.exit_code == 0
        assert why in done.stderr
        assert json.loads(done.stdout)["stop"] is None


def test_stop_without_waiting_asks(here: Path) -> None:
    """The request is recorded with its cause; a run that does not end in time is an error in one line."""
    with RunJournal(here / "runs.db") as owner:
        write(owner, "r1", "running")
        owner.flush()
        assert data("stop", "r1", "--no-wait", "--cause", "shutdown")[0]["stop"] == "shutdown"
        assert owner.run("r1").stop == "shutdown"
        assert "has not ended within 0.05 s" in complaint("stop", "r1", "--timeout", "0.05")


@pytest.mark.parametrize("command", ["follow", "stop"])
def test_a_dead_owner_and_what_ends_its_run(here: Path, command: str) -> None:
    """The advice is the one of `check`: a run of a graph needs its graph, and any other run needs none."""
    with RunJournal(here / "runs.db") as owner:
        write(owner, "ours", "running")
        write(owner, "graphs", "running", graph="agent")
    hints = {one["run_id"]: one["hint"] for one in data("check", exit_code=1) if one["what"] == "abandoned"}
    assert "recover --graph module:attribute" in hints["graphs"]
    assert "--graph" not in hints["ours"]
    for run_id, hint in hints.items():
        done = run(command, run_id)
        assert done.exit_code == 1
        assert f"is dead: its process ended, or lost its lease. {hint}." in done.stderr
