"""The Postgres store and the readable specification, the store in memory, do the same, whatever is asked of them."""

from __future__ import annotations

import functools
import itertools

import psycopg
import pytest
from hypothesis import settings

from langchain_runjournal.stores import Store
from langchain_runjournal.stores.postgres import PostgresStore
from tests.stores.test_stores_agree import Agree
from tests.support.servers import postgres_url

numbers = itertools.count(1)


@functools.cache
def database() -> str:
    return postgres_url()


@pytest.fixture(autouse=True, scope="module")
def server() -> None:
    """Without a server the test is skipped, and shows no failing example."""
    database()


class AgreeOnPostgres(Agree):
    """Each example has a schema of its own in one database."""

    def open(self) -> list[Store]:
        self.schema = f"agree_{next(numbers)}"
        url = f"{database()}?schema={self.schema}"
        return [PostgresStore(url), PostgresStore(url)]

    def remove(self) -> None:
        with psycopg.connect(database(), autocommit=True) as con:
            con.execute(f"DROP SCHEMA {self.schema} CASCADE")


AgreeOnPostgres.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestAgreeOnPostgres = pytest.mark.slow(AgreeOnPostgres.TestCase)
