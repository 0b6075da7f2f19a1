"""`runjournal doctor`: it works on every state of a journal, changes nothing, and quotes no one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.cli.doctor_kinds import kind_of
from tests.support.command_line import COMMAND, PATIENCE, Writer, environment, example, on_terminal, run, write
from tests.support.far_store import kill_a_writer
from tests.support.servers import free_port

CANARY = "xylophone"
"""A word that the example journal holds in every place where a program or a user may write."""


def everything(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the bytes of every file of a directory, by its path."""
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mode, path.read_bytes()) for path in found}


def report(*args: str, env: dict[str, str | None] | None = None) -> dict[str, Any]:
    """Run `doctor` as JSON and as text; neither may say the canary, print to stderr or change a file. Return the JSON."""
    before = everything(Path.cwd())
    done, as_text = run("doctor", *args, "--json", env=env), run("doctor", *args, env=env)
    assert everything(Path.cwd()) == before
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == as_text.exit_code == (1 if found["problems"] else 0), as_text.output
    for one in (done, as_text):
        assert one.stderr == ""
        assert CANARY not in one.stdout
    for problem in found["problems"]:
        assert problem["text"] in as_text.stdout
    return found


def whats(found: dict[str, Any]) -> list[str]:
    return [problem["what"] for problem in found["problems"]]


def telling(journal: RunJournal) -> None:
    """Write runs that hold the canary in every field that a program fills."""
    write(
        journal, f"{CANARY}-1", thread=CANARY, name=CANARY, asked=CANARY, found=CANARY, words=(CANARY, CANARY), graph=CANARY
    )
    for place, (status, error) in enumerate(
        [
            ("failed", f"ValueError: {CANARY}"),
            ("failed", f"{CANARY}: the password is {CANARY}"),
            ("failed", f"{CANARY.title()}: {CANARY}"),
            ("interrupted", None),
        ]
    ):
        run_id = f"{CANARY}-e{place}"
        about = {"thread_id": CANARY, "name": CANARY, "metadata": {"runjournal_graph": CANARY, CANARY: CANARY}}
        journal.append(Event(run_id=run_id, kind="run.start", data=about))
        journal.append(Event(run_id=run_id, kind="run.custom", data={"value": CANARY, "name": CANARY}))
        journal.append(Event(run_id=run_id, kind="llm.error", data={"error": f"KeyError: {CANARY}"}, call_id=CANARY))
        ending = {"status": status, "error": error, "cause": CANARY, "settled": False, "problem": f"OSError: {CANARY}"}
        journal.append(Event(run_id=run_id, kind="run.end", data=ending))


def test_it_quotes_no_one(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds of errors and nothing of their words; no thread, no name, no id that a program has chosen."""
    monkeypatch.setenv("HOME", str(here))
    uuid = "01a1f125-3681-7000-8000-000000000000"
    with RunJournal("runs.db") as journal:
        telling(journal)
        journal.append(Event(run_id=uuid, kind="run.start"))
        journal.append(Event(run_id=uuid, kind="run.end", data={"status": "failed", "settled": False, "problem": CANARY}))
    found = report()
    assert str(here) not in json.dumps(found)
    assert found["journal"]["runs"]["by_status"] == {"completed": 1, "failed": 4, "interrupted": 1}
    assert found["journal"]["runs"]["of_attached_graphs"] == 5
    assert [one["run_id"] for one in found["journal"]["unsettled"]] == [uuid, None, None, None, None]
    assert {one["cause"] for one in found["journal"]["unsettled"]} == {None, "other"}
    assert {one["kind"] for one in found["journal"]["errors"]} == {"ValueError", "OSError", "other"}
    assert "its settlement failed with OSError" in found["journal"]["unsettled"][1]["why"]
    assert whats(found) == ["unsettled"]
    assert found["versions"]["sqlite"] == sqlite3.sqlite_version


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ValueError: no", "ValueError"),
        ("RateLimitError", "RateLimitError"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("StoreFailed: x", "StoreFailed"),
        ("Password: hunter2", "other"),
        ("hunter2Error: x", "other"),
        ("My dear ValueError: x", "other"),
        ("ValueError of mine", "other"),
        (f"{'A' * 99}Error: x", "other"),
        ("", "other"),
        (None, "other"),
    ],
)
def test_the_kind_of_an_error_is_the_name_of_an_exception(text: str | None, kind: str) -> None:
    """Only where that is certain."""
    assert kind_of(text) == kind


def test_a_journal_at_rest_is_fine(here: Path) -> None:
    """No problem, and exit code 0; a terminal and a pipe get the same text."""
    with RunJournal("runs.db") as journal:
        write(journal, "r1")
    found = report()
    assert (found["problems"], found["journal"]["state"], found["journal"]["spools"]) == ([], "fine", [])
    assert [(one["name"], one["mode"], one["exposed"]) for one in found["journal"]["files"]] == [("runs.db", "600", False)]
    code, said = on_terminal([*COMMAND, "doctor"], here, 200)
    assert code == 0
    assert said.replace("\r", "") == run("doctor").stdout


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _overwritten(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[200:] = (CANARY.encode() * len(data))[: len(data) - 200]
    path.write_bytes(data)


def _of_newer_version(path: Path) -> None:
    with sqlite3.connect(path) as con:
        con.execute("INSERT INTO migrations (version, name, at) VALUES (999, 'later', 'now')")
    con.close()


def _of_another_program(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as con:
        con.execute(f"CREATE TABLE {CANARY} (id)")
    con.close()


def _with_a_damaged_row(path: Path) -> None:
    with sqlite3.connect(path) as con:
        con.execute("UPDATE runs SET status = ? WHERE run = 1", (CANARY,))
    con.close()


def _with_odd_columns(path: Path) -> None:
    with sqlite3.connect(path) as con:
        con.execute("INSERT INTO owners VALUES (?, ?, 'pid', ?, 'lease', 'beats')", (CANARY, CANARY, CANARY))
        con.execute("UPDATE facts SET value = ? WHERE name = 'store_id'", (CANARY,))
    con.close()


def _as_text(path: Path) -> None:
    path.write_text(CANARY * 500)


def _as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        (Path.unlink, "missing", "does not exist yet"),
        (lambda path: path.write_bytes(b""), "empty", "an empty file"),
        (lambda path: path.write_bytes(b"x"), "unreadable", "NotADatabase"),
        (_as_text, "unreadable", "NotADatabase"),
        (_as_directory, "unreadable", "it is a directory"),
        (_truncated, "unreadable", "it is damaged"),
        (_overwritten, "unreadable", "it is damaged"),
        (_of_newer_version, "unreadable", "its format is 999"),
        (_of_another_program, "unreadable", "another program"),
        (_with_odd_columns, "unreadable", "cannot be read (TypeError)"),
        (_with_a_damaged_row, "fine", "1 run cannot be read"),
    ],
)
def test_it_works_where_other_commands_fail(here: Path, change: Callable[[Path], object], state: str, said: str) -> None:
    """One problem says what is wrong, without what the file holds, and the rest of the report is there."""
    example(here / "runs.db")
    with RunJournal("runs.db") as journal:
        telling(journal)
    change(here / "runs.db")
    found = report()
    assert found["journal"]["state"] == state
    assert any(said in problem["text"] for problem in found["problems"]), found["problems"]
    assert found["versions"]["langchain-runjournal"]


def test_a_locked_journal_is_reported(journal: Path) -> None:
    """An exclusive lock of another process: the report says so, and waits no longer than --busy-timeout."""
    hold = (
        "import sqlite3, sys; con = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "con.execute('PRAGMA locking_mode = EXCLUSIVE'); con.execute('BEGIN IMMEDIATE');"
        "con.execute('UPDATE facts SET value = value WHERE name = 1'); print('up', flush=True); sys.stdin.read()"
    )
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with RunJournal(journal):  # a -shm file
        shutil.copy(journal, "copy.db")
        for side in ("-wal", "-shm"):
            shutil.copy(f"{journal}{side}", f"copy.db{side}")
    with subprocess.Popen([sys.executable, "-c", hold, "copy.db"], **pipes) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "up\n"
        done = run("doctor", "--journal", "copy.db", "--busy-timeout", "0.05", "--json")
        holder.stdin.close()
    found = json.loads(done.stdout)
    assert (done.exit_code, found["journal"]["state"]) == (1, "unreadable")
    assert "another process holds its lock" in found["problems"][0]["text"]


def test_a_living_owner_is_not_disturbed(here: Path) -> None:
    """Its run is no problem, its spool is alive, and no byte of any file changes."""
    with Writer(here / "runs.db") as writer:
        writer.say("llm.ai.delta", text=CANARY)
        writer.process.send_signal(signal.SIGSTOP)  # so that it changes nothing itself meanwhile
        os.waitpid(writer.process.pid, os.WUNTRACED)
        found = report()
        assert (found["problems"], found["journal"]["runs"]["running"]) == ([], 1)
        assert [one["owner"] for one in found["journal"]["spools"]] == ["alive"]
        assert found["journal"]["owners"] == {"alive": 1}
        writer.kill()
        found = report()
    assert whats(found) == ["unsettled", "spool"]
    assert "its owner is dead: `runjournal recover` ends it" in found["journal"]["unsettled"][0]["why"]
    assert [one["owner"] for one in found["journal"]["spools"]] == ["dead"]
    # A copy without the -shm file: what only the -wal file has cannot be read without a write.
    os.remove("runs.db-shm")
    assert "missed" in whats(report())


@pytest.mark.slow
def test_the_spools_of_a_directory_are_found(here: Path) -> None:
    """In the `spool_dir`, and nothing is imported; a file that was kept as damaged is named as such."""
    RunJournal(here / "runs.db").close()
    (here / "spools").mkdir(mode=0o700)
    kill_a_writer(here / "runs.db", here / "spools", "words")
    found = report("--spool-dir", "spools")
    assert [(one["owner"], one["damaged"]) for one in found["journal"]["spools"]] == [("dead", False)]
    for file in (here / "spools").iterdir():
        file.rename(f"{file}-damaged")
    found = report("--spool-dir", "spools")
    assert found["journal"]["spools"][0]["damaged"]
    assert any("could not be imported whole" in problem["text"] for problem in found["problems"])
    assert "The spool directory missing does not exist" in report("--spool-dir", "missing")["problems"][0]["text"]


def test_what_other_users_can_read_is_reported(journal: Path) -> None:
    """The permissions stay as they are."""
    journal.chmod(0o644)
    found = report()
    assert found["journal"]["files"][0]["mode"] == "644"
    assert "exposed" in whats(found)


@pytest.mark.parametrize(("scheme", "package"), [("postgresql", "psycopg"), ("redis", "redis")])
def test_a_server_that_does_not_answer(here: Path, scheme: str, package: str) -> None:
    """One problem, and no password: neither of the URL nor of its options."""
    pytest.importorskip(package, reason=f"the driver {package} is not installed")
    option = "sslpassword" if scheme == "postgresql" else "password"
    url = f"{scheme}://ann:{CANARY}@127.0.0.1:{free_port()}/0?{option}={CANARY}"
    found = report(env={"RUNJOURNAL_URL": url})
    assert found["journal"]["state"] == "unreadable"
    assert "does not answer" in found["problems"][0]["text"]
    assert "RUNJOURNAL_URL" in found["variables"]


def test_a_url_that_names_no_journal_is_wrong_usage(here: Path) -> None:
    """As for all commands, and without its password."""
    for url in (f"mysql://u:{CANARY}@h/db", f"sqlite://u:{CANARY}@h/db", ":memory:"):
        done = run("doctor", "--journal", url)
        assert (done.exit_code, done.stdout) == (2, "")
        assert CANARY not in done.stderr


# --- --graph ------------------------------------------------------------------------------------------------------------

GRAPHS = f'''
import warnings
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langchain_runjournal import JournalCallbackHandler, RunJournal, attach

print("{CANARY}")
def say(state):
    return {{"messages": [AIMessage("{CANARY}")]}}

def built():
    return StateGraph(MessagesState).add_node("{CANARY}", say).add_edge(START, "{CANARY}")

def fails():
    raise ValueError("{CANARY}")

journal = RunJournal("app.db")
plain = built().compile(checkpointer=InMemorySaver(), name="{CANARY}")
attached = attach(plain, journal)
late = attach(built().compile(), journal, settle="on_stop")
handled = plain.with_config(callbacks=[JournalCallbackHandler(journal)])
outer = StateGraph(MessagesState).add_node("inner", attached).add_edge(START, "inner").compile()
'''


@pytest.fixture
def app(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program with graphs, `app_of_doctor.py`, in the current directory."""
    (here / "app_of_doctor.py").write_text(GRAPHS)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield here
    module = sys.modules.pop("app_of_doctor", None)
    if module is not None:
        module.journal.close()


def of_graph(name: str) -> tuple[dict[str, Any], list[str], str]:
    """Run `doctor --graph`; return what it says of the graph, the problems, and all its output."""
    done, as_text = (
        run("doctor", "--graph", f"app_of_doctor:{name}", "--json"),
        run("doctor", "--graph", f"app_of_doctor:{name}"),
    )
    found = json.loads(done.stdout)
    assert CANARY not in done.stdout + as_text.stdout
    texts = [problem["text"] for problem in found["problems"]]
    assert all(text in as_text.stdout for text in texts)
    return found["graph"], texts, as_text.stdout


def test_it_says_what_is_attached_to_a_graph(app: Path) -> None:
    """By attach or by a handler, with which checkpointer, or with none until later; in the journal of the graph."""
    graph, problems, said = of_graph("attached")
    assert problems == []
    assert graph["class"] == "langgraph.graph.state.CompiledStateGraph"
    assert [one["settle"] for one in graph["attached"]] == ["always"]
    assert graph["checkpointer"] == "langgraph.checkpoint.memory.InMemorySaver"
    assert "app.db" in said
    assert "inside a JournalSaver" in said
    graph, problems, said = of_graph("late")
    assert graph["checkpointer"] is None
    assert "it may be set later" in said
    assert ["has no checkpointer now" in problem for problem in problems] == [True]
    for name, expected in {
        "plain": "is not attached",
        "handled": "settles no thread",
        "outer": "attach the outermost graph",
        "journal": "it is not a compiled graph",
        "nothing": "could not be loaded",
        "fails": "raised ValueError",
    }.items():
        graph, problems, said = of_graph(name)
        assert any(expected in problem for problem in problems), (name, problems)


def test_a_graph_of_another_journal_is_named(app: Path) -> None:
    """With --journal, the report is about that one."""
    RunJournal("other.db").close()
    done = run("doctor", "--graph", "app_of_doctor:attached", "--journal", "other.db")
    assert done.exit_code == 1
    assert "is attached to another journal" in done.stdout


def test_a_program_that_cannot_be_imported_is_reported(here: Path) -> None:
    """Without the message of its error."""
    (here / "broken_app.py").write_text(f"raise RuntimeError({CANARY!r})\n")
    done = subprocess.run(
        [*COMMAND, "doctor", "--graph", "broken_app:graph"],
        cwd=here,
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert "its module raised RuntimeError" in done.stdout
    assert CANARY not in done.stdout + done.stderr
    assert run("doctor", "--graph", "app.py").exit_code == 2
