"""`runjournal recover`: it ends and settles the runs of dead owners, and says what is wrong with a graph."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from langchain_runjournal import RunJournal
from tests.support.command_line import (
    FAILED,
    complaint,
    data,
    run,
    write,
)


def test_recover_leaves_the_runs_of_living_owners(here: Path) -> None:
    """A thread that could not be settled yet belongs to the owner of its run while that process is alive."""
    with RunJournal(here / "runs.db") as owner:
        write(owner, FAILED, "failed")
        owner.flush()
        done = run("recover")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "belong to a process that is alive" in done.stderr
    assert data("recover", exit_code=1)[0]["outcome"] == "needs_graph"


@pytest.mark.parametrize("command", ["follow r1", "stop r1", "recover"])
def test_the_lease_decides_about_an_owner_on_another_machine(here: Path, command: str) -> None:
    """Commands wait for its lease: until then the owner is "unknown"; then it is a dead owner like a local one."""
    with RunJournal(here / "runs.db") as owner:
        write(owner, "r1", "running")
        owner.flush()
        gone = owner.owner_id
    with sqlite3.connect(here / "runs.db") as con:
        con.execute("INSERT INTO owners VALUES (?, 'elsewhere', 1, '', 0.2, 7)", (gone,))
    con.close()
    assert data("show", "r1")[0]["owner_state"] == "unknown"
    if command == "recover":
        assert [one["outcome"] for one in data("recover")] == ["ended"]
    else:
        done = run(*command.split())
        assert done.exit_code == 1
        assert "is dead: its process ended" in done.stderr


def test_recover_with_nothing_to_do(journal: Path) -> None:
    """It names the runs that need a graph; with nothing to do, it says so."""
    found = data("recover", exit_code=1)
    assert [(one["run_id"], one["outcome"], one["graph"]) for one in found] == [(FAILED, "needs_graph", "agent")]
    with RunJournal("other.db") as other:
        write(other, "other")
    done = run("recover", "--journal", "other.db")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "nothing to recover" in done.stderr


GRAPHS = """
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

def noop(state):
    return {}

builder = StateGraph(MessagesState).add_node("noop", noop).add_edge(START, "noop")
bare = builder.compile(name="agent")
number = 3

def make():
    print("a program says something")
    return builder.compile(checkpointer=InMemorySaver(), name="agent")

def broken():
    raise ValueError("no key")

def leaves():
    raise SystemExit(0)

class Down(InMemorySaver):
    def get_tuple(self, config):
        if config["configurable"]["thread_id"] == "t1":
            raise OSError("it is down")
        return super().get_tuple(config)

def down():
    return builder.compile(checkpointer=Down(), name="agent")
"""


def test_recover_says_what_is_wrong_with_the_graph(journal: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each problem is one line."""
    (here / "app_of_cli.py").write_text(GRAPHS)
    (here / "app_needs.py").write_text("import nothing_of_the_kind")
    (here / "app_breaks.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(here))  # undone after the test, with the modules imported from there
    assert "module:attribute" in complaint("recover", "--graph", "app_of_cli", code=2)
    assert "The module nothing_there does not exist" in complaint("recover", "--graph", "nothing_there:graph")
    assert "nothing_of_the_kind" in complaint("recover", "--graph", "app_needs:graph")
    assert "ZeroDivisionError" in complaint("recover", "--graph", "app_breaks:graph")
    assert "has no graph" in complaint("recover", "--graph", "app_of_cli:graph")
    assert "is not a graph, but a int" in complaint("recover", "--graph", "app_of_cli:number")
    assert "compile()" in complaint("recover", "--graph", "app_of_cli:builder")
    assert "no checkpointer" in complaint("recover", "--graph", "app_of_cli:bare")
    assert "ValueError: no key" in complaint("recover", "--graph", "app_of_cli:broken")
    assert "SystemExit: 0" in complaint("recover", "--graph", "app_of_cli:leaves")
    failed = data("recover", "--graph", "app_of_cli:down", exit_code=1)
    assert [(one["run_id"], one["outcome"]) for one in failed] == [(FAILED, "failed")]
    assert "it is down" in failed[0]["reason"]
    told = run("recover", "--graph", "app_of_cli:down").stderr
    assert "runjournal: 1 run could not be settled by agent: " in told
    assert "it is down" in told
    assert "recover again" in told
    found = data("recover", "--graph", "app_of_cli:make")
    assert [(one["run_id"], one["graph"]) for one in found] == [(FAILED, "agent")]
    assert data("recover") == []
