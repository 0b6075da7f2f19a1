"""Every verb that changes a run notifies the other machines: no question is asked within the time of these tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langchain_runjournal.stores.postgres import PostgresStore
from langchain_runjournal.testing.store_contract.support import begun, deltas, end, row
from tests.stores.test_postgres_listening import PATIENCE, Open, no_slow_poll, reader, server, url
from tests.support.failing_postgres import wait_for

__all__ = ["no_slow_poll", "reader", "server", "url"]

TIMES = 10
"""More than the wake-ups with which a connection begins to listen."""
VERBS: dict[str, Callable[[PostgresStore, int], Any]] = {
    "append": lambda store, n: store.append("me", [row(deltas(f"r{n}", 1, 3))]),
    "append to several": lambda store, n: store.append("me", [row(deltas(f"r{n}", 1, 3)), row(deltas(f"s{n}", 1))]),
    "append an end": lambda store, n: store.append("me", [row([end(f"r{n}", 3)])]),
    "begin": lambda store, n: store.begin(begun(f"t{n}", f"thread {n}"), ()),
    "withdraw": lambda store, n: store.withdraw(f"b{n}", "me"),
    "stop": lambda store, n: store.request_stop(f"r{n}", "stop"),
    "claim": lambda store, n: store.claim(f"r{n}", "you", 1),
    "delete": lambda store, n: store.delete([f"r{n}"]),
}


@pytest.mark.usefixtures("no_slow_poll")
@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_notifies(verb: str, url: str, reader: Open) -> None:
    store = PostgresStore(url)
    store.append("me", [row(deltas(f"r{n}", 2)) for n in range(TIMES)])
    for n in range(TIMES):
        assert store.begin(begun(f"b{n}", f"elsewhere {n}"), ()) == []
    one = reader(url)
    wait_for(one.hears)
    for n in range(TIMES):
        one.forget()
        VERBS[verb](store, n)
        assert one._woken.wait(PATIENCE), "no wake-up"
    store.close()
