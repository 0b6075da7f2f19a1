"""Every command on a journal in Postgres and in Redis, and what they say about servers that are away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from langchain_runjournal import Event, RunJournal
from langchain_runjournal.events import RunStatus
from tests.support.command_line import (
    ALL,
    DONE,
    FAILED,
    PATIENCE,
    ROOT,
    complaint,
    data,
    environment,
    example,
    run,
    started,
    text,
)
from tests.support.servers import PostgresServer, RedisServer, free_port, postgres_url, redis_url

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
SECRET = "hunter2"


@pytest.fixture(params=["postgres", "redis"])
def empty(request: pytest.FixtureRequest, here: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty database. It has a password, if the server ignores one."""
    if request.param == "redis":
        return redis_url()
    return postgres_url().replace("//postgres@", f"//postgres:{SECRET}@")


@pytest.fixture
def url(empty: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a journal with one run of each kind, which the environment names."""
    example(empty)  # type: ignore[arg-type]
    monkeypatch.setenv("RUNJOURNAL_URL", empty)
    return empty


def test_every_command_works(url: str, here: Path) -> None:
    """With no other change than the URL, and nowhere with its password."""
    said = [
        text("list"),
        text("show", DONE),
        text("transcript", DONE),
        text("follow", DONE),
        text("stop", DONE),
        text("export", "--all"),
        text("view", DONE, "-o", "page.html"),
        run("recover").output,
        run("check").output,
        run("doctor").output,
        Path("page.html").read_text(),
        text("prune", "--keep-last", "1"),
        text("delete", FAILED, "--yes"),
    ]
    assert all(said)
    assert SECRET not in "".join(said)
    assert {one["run_id"] for one in data("list")} == {*ALL[1:2], ALL[3]}


def test_doctor_writes_nothing_to_a_server(url: str, here: Path) -> None:
    """No key or row changes, and no spool is imported; without a journal, it says so and begins none."""
    before = data("export", "--all"), contents(url)
    found = data("doctor", exit_code=1)[0]
    assert found["journal"]["runs"]["by_status"] == {"completed": 1, "failed": 1, "interrupted": 1, "paused": 1}
    assert [problem["what"] for problem in found["problems"]] == ["unsettled"]
    assert contents(url) == before[1]
    assert data("export", "--all") == before[0]


def test_doctor_begins_no_journal_on_a_server(empty: str) -> None:
    """It says that the database has none."""
    before = contents(empty)
    found = data("doctor", "--journal", empty, exit_code=1)[0]
    assert found["journal"]["state"] == "missing"
    assert contents(empty) == before
    assert SECRET not in json.dumps(found)


def contents(url: str) -> Any:
    """Return all rows or keys of a server's journal."""
    if url.startswith("redis"):
        import redis

        client = redis.Redis.from_url(url.partition("?")[0])
        return {key: client.dump(key) for key in sorted(client.keys())}
    import psycopg

    with psycopg.connect(url.partition("?")[0]) as con:
        tables = con.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^(pg_|information)'"
        ).fetchall()
        return {table: con.execute(f'SELECT * FROM "{table[0]}"."{table[1]}"').fetchall() for table in sorted(tables)}


def test_check_asks_the_store(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store finds wrong with itself is a problem."""
    from langchain_runjournal.journal import check

    monkeypatch.setattr(check, "_check_store", lambda journal: ["an index is missing"])
    found = data("check", exit_code=1)
    assert ("damage", "an index is missing") in [(one["what"], one["text"]) for one in found]


def test_only_check_says_what_a_server_cannot_promise(here: Path) -> None:
    """A Redis that may lose a second: a worker logs that at opening, and a command that is repeated need not."""
    url = redis_url()
    example(url)  # type: ignore[arg-type]
    said = {command: run(command, "--journal", url).stderr for command in ("list", "check")}
    assert "may be lost" not in said["list"]
    assert "may be lost" in said["check"]


def test_reading_creates_no_journal(empty: str) -> None:
    """The wrong database, or a wrong name: one line, and nothing is written there."""
    for command in (["list"], ["check"], ["show", "@last"], ["prune", "--vacuum"]):
        said = complaint("--journal", empty, *command)
        assert "holds no journal" in said
        assert SECRET not in said
    with RunJournal(empty) as journal:
        assert journal.runs() == []


def test_a_server_that_is_down_is_one_line(here: Path) -> None:
    """No traceback, no password, and what to do."""
    port = free_port()
    for url in (f"postgresql://u:{SECRET}@127.0.0.1:{port}/db", f"redis://:{SECRET}@127.0.0.1:{port}/0"):
        said = complaint("--journal", url, "list")
        assert "cannot be reached" in said
        assert SECRET not in said


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"postgre://u:{SECRET}@h/db", "did you mean 'postgres'?"),
        (f"postgresql+psycopg://u:{SECRET}@h/db", "did you mean 'postgresql'?"),
        (f"reddis://:{SECRET}@h", "did you mean 'redis'?"),
        (f"mysql://u:{SECRET}@h/db", "no store for the scheme 'mysql'"),
        (f"host=h password={SECRET}", "is a connection string and not a URL"),
    ],
)
def test_a_wrong_url_is_one_line(here: Path, url: str, says: str) -> None:
    """With the scheme that is near, and without the password."""
    said = complaint("--journal", url, "list", code=2)
    assert says in said
    assert SECRET not in said
    assert not list(here.iterdir())


@pytest.mark.parametrize(("scheme", "package"), [("postgresql", "psycopg"), ("redis", "redis")])
def test_a_missing_driver_says_what_to_install(here: Path, scheme: str, package: str) -> None:
    """In an environment without the extra."""
    (here / package).mkdir()
    error = f'raise ModuleNotFoundError("No module named {package}", name="{package}")'
    (here / package / "__init__.py").write_text(error)
    env = environment(PYTHONPATH=os.pathsep.join([str(here), str(ROOT)]))
    command = [sys.executable, "-m", "langchain_runjournal", "--journal", f"{scheme}://u:{SECRET}@127.0.0.1/0", "list"]
    done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install" in done.stderr
    assert "langchain-runjournal[" in done.stderr
    assert done.stderr.count("\n") == 1
    assert SECRET not in done.stderr


@pytest.mark.slow
def test_follow_and_stop_from_another_process(url: str, here: Path) -> None:
    """`runjournal follow` prints what another process appends, and `runjournal stop` ends that run."""
    with RunJournal(url) as journal:
        journal.append(Event(run_id="live", kind="run.start", data={"thread_id": "t9", "name": "worker"}))
        journal.flush()
        end = Event(run_id="live", kind="run.end", data={"status": "interrupted", "cause": "stop"})
        journal.on_stop("live", lambda cause: journal.append(end))
        with started("follow", "live", "--json", cwd=here, env=environment(RUNJOURNAL_URL=url)) as follower:
            assert follower.stdout is not None
            assert json.loads(follower.stdout.readline())["kind"] == "run.start"
            journal.append(Event(run_id="live", kind="llm.ai.delta", data={"text": "word"}, call_id="c"))
            assert json.loads(follower.stdout.readline())["data"] == {"text": "word"}
            with started("stop", "live", "--json", cwd=here, env=environment(RUNJOURNAL_URL=url)) as stopper:
                assert stopper.stdout is not None
                stopped: dict[str, Any] = json.loads(stopper.stdout.read())
                assert (stopped["run_id"], stopped["status"]) == ("live", RunStatus.INTERRUPTED)
            assert [json.loads(line)["kind"] for line in follower.stdout] == ["run.stop", "run.end"]
            assert follower.wait(60) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PostgresServer, RedisServer])
def test_follow_of_a_server_that_goes_away(kind: type[PostgresServer | RedisServer], here: Path) -> None:
    """One line: what happened, and the command that continues after the last event that was printed."""
    server = kind()
    server.start()
    url = server.url()
    try:
        with RunJournal(url) as journal:
            journal.append(Event(run_id="live", kind="run.start", data={"name": "worker"}))
            journal.flush()
            with started("follow", "live", "--json", cwd=here, env=environment(RUNJOURNAL_URL=url)) as follower:
                assert follower.stdout is not None
                assert follower.stderr is not None
                assert json.loads(follower.stdout.readline())["seq"] == 1
                server.kill()
                assert follower.wait(PATIENCE) == 1
                said = follower.stderr.read()
            assert said.count("\n") == 1, said
            assert said.startswith("runjournal: The server of ")
            assert said.endswith("then try again. Follow the run again with: runjournal follow live --after 1\n")
            server.start()
            journal.append(Event(run_id="live", kind="run.end", data={"status": "completed"}))
            journal.flush()
        assert [one["seq"] for one in data("follow", "live", "--after", "1", "--journal", url)] == [2]
    finally:
        server.destroy()
