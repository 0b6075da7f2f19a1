"""The rewrite of the tables, which removes what is left of deleted runs: a role that may not do it gets an error."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest

from langchain_runjournal import Event, RunJournal, errors
from langchain_runjournal.stores.postgres import PostgresStore
from langchain_runjournal.testing.store_contract.support import deltas, end, row
from tests.support.command_line import complaint, run
from tests.support.servers import postgres_url

As = Callable[..., str]


@pytest.fixture
def url() -> str:
    """The URL of a journal with a run that has ended. Its tables are the administrator's."""
    url = postgres_url()
    with closing(PostgresStore(url)) as store:
        store.append("me", [row([*deltas("r", 1), end("r", 2)])])
    return url


@pytest.fixture
def as_role(url: str) -> As:
    """Makes a role with the rights that docs/deploying.md lists. Returns its URL, with no or all messages of the server."""

    def make(*grants: str, messages: str = "notice") -> str:
        name = f"role_{uuid4().hex}"
        rights = (
            f"CREATE ROLE {name} LOGIN",
            f"ALTER ROLE {name} SET client_min_messages = '{messages}'",
            f"GRANT USAGE ON SCHEMA runjournal TO {name}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA runjournal TO {name}",
            *(grant.format(name=name) for grant in grants),
        )
        with psycopg.connect(url, autocommit=True) as con:
            for right in rights:
                con.execute(right)  # type: ignore[arg-type]
        return url.replace("postgres@", f"{name}@")

    return make


def files(url: str) -> set[int]:
    with psycopg.connect(url) as con:
        names = "unnest(ARRAY['runs', 'events', 'deleted'])"
        rows = con.execute(f"SELECT pg_relation_filenode('runjournal.' || t) FROM {names} AS t")  # type: ignore[arg-type]
        return {number for (number,) in rows}


@pytest.mark.parametrize("messages", ["notice", "error"])
def test_a_role_that_may_not_vacuum_is_told_so(url: str, as_role: As, messages: str) -> None:
    """The server only warns, and not at all where the role hides warnings; the tables keep the text of deleted runs."""
    other, before = as_role(messages=messages), files(url)
    with RunJournal(other) as journal:
        with pytest.raises(errors.StoreFailed, match=r"may not rewrite the table runs.*Use the role that owns the tables"):
            journal.prune(vacuum=True)
        journal.append(Event(run_id="new", kind="run.start"))
        journal.flush()
    assert files(url) == before


def test_the_command_fails_with_one_line(url: str, as_role: As) -> None:
    """It exits with 1, so that nobody takes the text for erased."""
    said = complaint("--journal", as_role(), "prune", "--vacuum")
    assert "may still hold the text of deleted runs" in said


@pytest.mark.parametrize(
    "right",
    [
        "ALTER ROLE {name} SUPERUSER",
        "GRANT postgres TO {name}",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO {name}', current_database()); END $$",
    ],
)
def test_each_role_that_may_vacuum_does(url: str, as_role: As, right: str) -> None:
    """A superuser, a member of the role that owns the tables, the owner of the database: all tables get new files."""
    before = files(url)
    done = run("--journal", as_role(right), "prune", "--vacuum")
    assert done.exit_code == 0, done.output
    assert files(url).isdisjoint(before)
